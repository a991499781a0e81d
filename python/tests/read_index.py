# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Reads a saved index as docs/format.md describes it, with struct and NumPy alone. Usage: read_index.py FILE"""

import struct
import sys

import numpy as np

DTYPES = {1: "<f4", 2: "<f2", 3: "<u2"}  # bfloat16 as its bits
FIELDS = {
    "dim": "Q", "n_slots": "Q", "kind": "I", "metric": "I", "dtype": "I", "add_dtype": "I", "query_dtype": "I",
    "zero_rows": "I", "num_comp_indices": "Q", "num_simp_indices": "Q", "seed": "Q", "next_id": "q", "prop_to_visit": "d",
    "prop_to_retrieve": "d", "num_to_visit": "Q", "num_to_retrieve": "Q", "c_squared": "f", "sketch_bits": "I",
    "rerank": "d", "guarantee": "d",
}  # fmt: skip
MDCI = 3
TREE_FIELDS = {
    "promotion_prob": "d", "promotion_prob_subseq": "d", "page_rows": "Q", "top_nodes": "Q", "cell_simp_indices": "Q",
    "field_of_view": "Q", "n_rows": "Q", "n_levels": "Q", "pages_ever": "Q", "version": "Q", "built_version": "Q",
    "n_builds": "Q", "lone_id": "q",
}  # fmt: skip


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0x82F63B78, table >> 1)
    return table.tolist()


CRC_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def read_sections(data):
    """Sections of a container: name -> bytes."""
    magic, container, order, kind, version, n, _, length, table_crc, header_crc = struct.unpack_from("<8sII4sIIIQII", data)
    assert (magic, container, order, kind, version) == (b"dciFILE\n", 1, 0x01020304, b"INDX", 1)
    assert length == len(data)
    assert header_crc == crc32c(data[:44])
    assert table_crc == crc32c(data[48 : 48 + 32 * n])
    sections = {}
    for name, offset, size, crc, _ in struct.iter_unpack("<8sQQII", data[48 : 48 + 32 * n]):
        sections[name.rstrip(b"\0").decode()] = data[offset : offset + size]
        assert offset % 64 == 0 and crc == crc32c(data[offset : offset + size]), name
    return sections


def read_fields(data, offset, fields):
    return dict(zip(fields, struct.unpack_from("<" + "".join(fields.values()), data, offset)))


def read_config(sections):
    data = sections["config"]
    assert len(data) == 256
    config = read_fields(data, 0, FIELDS)
    used = 128
    if config["kind"] == MDCI:
        config.update(read_fields(data, 128, TREE_FIELDS))
        used = 232
    assert not any(data[used:])
    return config


def read_index(data):
    """The config as a dict; rows, ids, norms (or None), projections (or None) as arrays, by slot. Of kind MDCI, slots whose
    id is -1 are empty."""
    sections = read_sections(data)
    config = read_config(sections)
    n, dim = config["n_slots"], config["dim"]
    rows = np.frombuffer(sections["rows"], DTYPES[config["dtype"]]).reshape(n, dim)
    ids = np.frombuffer(sections["ids"], "<i8") if "ids" in sections else np.arange(n)
    norms = np.frombuffer(sections["norms"], "<f4") if "norms" in sections else None
    simple = config["num_comp_indices"] * config["num_simp_indices"]
    if config["kind"] == MDCI:
        simple = config["cell_simp_indices"]
    projections = np.frombuffer(sections["proj"], "<f4").reshape(simple, n) if "proj" in sections else None
    return config, rows, ids, norms, projections


def read_metadata(data):
    """The caller's bytes; empty if there are none."""
    return bytes(read_sections(data).get("metadata", b""))


def read_tree(data):
    """The tree of an index of kind MDCI, as a dict: mean, versions (by page) and free pages as arrays; levels, from the
    lowest, each a list of nodes (id, count, items); and the pages in use in the order of cells, (page, cell, n_rows)."""
    sections = read_sections(data)
    config = read_config(sections)
    page_rows = config["page_rows"]
    sizes = np.frombuffer(sections["levels"], "<u8").tolist()
    ids, counts = np.frombuffer(sections["nodes"], "<i8"), np.frombuffer(sections["counts"], "<u8")
    items = np.frombuffer(sections["items"], "<i4")
    assert len(sizes) == config["n_levels"] and len(ids) == len(counts) == sum(sizes)
    levels, pages, node, item = [], [], 0, 0
    for level, size in enumerate(sizes):
        levels.append([])
        for cell in range(size):
            count = int(counts[node])
            n_items = count if level else -(-count // page_rows)
            mine = items[item : item + n_items].tolist()
            levels[level].append((int(ids[node]), count, mine))
            if level == 0:
                pages += [(page, cell, min(page_rows, count - i * page_rows)) for i, page in enumerate(mine)]
            node, item = node + 1, item + n_items
    assert item == len(items)
    return {
        "mean": np.frombuffer(sections["mean"], "<f4"),
        "versions": np.frombuffer(sections["versions"], "<u8"),
        "free": np.frombuffer(sections["free"], "<i4"),
        "levels": levels,
        "pages": pages,
    }


# --- codes --------------------------------------------------------------------------------------------------------------

RANDOM, LEARNED = 2, 3
# By width: a multiple of how many coordinates there are; and the positive levels in units, where they are not even.
STEPS = {8: 4, 4: 8, 3: 32, 2: 16, 1: 32}
LEVELS = {1: [63], 2: [19, 63], 3: [7, 22, 39, 63], 4: [3, 9, 15, 22, 29, 37, 48, 63]}
LARGEST = {1: 0.7979, 2: 1.510, 3: 2.152, 4: 2.733}
UNITS = {8: 7 / 255, **{bits: largest / 63 for bits, largest in LARGEST.items()}}


def levels_of(bits, kind):
    """What codes stand for, in units."""
    if bits == 8 or (kind == RANDOM and bits != 3):
        return np.arange(2**bits) - (2**bits - 1) / 2
    return np.array([-level for level in LEVELS[bits][::-1]] + LEVELS[bits])


def lines_of(dim, bits):
    """Pairs of lines of a block: room for codes of either kind."""
    rotated = -(-dim // STEPS[bits]) * STEPS[bits] * bits // 32
    return max(rotated, (bits * dim + 16) // 32, 1)


def read_layout(frames, dim, bits):
    """The kind of codes; the widths of the coordinates; and the pieces of the codes, four coordinates each: (pair of lines,
    first coordinate, shift in the bytes of its words, bits, which bits of the codes they are)."""
    kind, zero, whole, n_lines, n_groups = struct.unpack_from("<IIQQQ", frames)
    groups = list(struct.iter_unpack("<BBBB", frames[32:]))
    assert len(frames) == 1056 and zero == 0 and not any(map(any, groups[n_groups:]))
    widths, pieces, line = [], [], 0
    if kind == RANDOM:
        assert whole == n_lines == n_groups == 0
        count, width = -(-dim // STEPS[bits]) * STEPS[bits], bits
    else:
        assert kind == LEARNED
        count, width = whole, 8
    while len(widths) < count:
        first, low = len(widths), 2 if width == 3 else width
        for at in range(0, STEPS[width], 32 // low):
            pieces += [(line, first + at + 4 * i, i * low, low, 0) for i in range(8 // low)]
            line += 1
        if width == 3:
            pieces += [(line, first + 4 * i, i, 1, 2) for i in range(8)]
            line += 1
        widths += [width] * STEPS[width]
    for number, shift, width, zero in groups[:n_groups]:
        assert zero == 0 and number < n_lines
        pieces.append((line + number, len(widths), shift, width, 0))
        widths += [width] * 4
    return kind, widths, pieces


def random_words(seed):
    """xoshiro256++, seeded through splitmix64."""
    mask, state = 2**64 - 1, []
    for i in range(1, 5):
        z = (seed + i * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        state.append(z ^ (z >> 31))
    a, b, c, d = state
    while True:
        total = (a + d) & mask
        yield (((total << 23) | (total >> 41)) + a) & mask
        c, d, t = c ^ a, d ^ b, (b << 17) & mask
        b, a, c = b ^ c, a ^ d, c ^ t
        d = ((d << 45) | (d >> 19)) & mask


def rotated_back(y, seed):
    """Rows of coordinates to rows: the inverse of the random rotation."""
    x, dim = y.copy(), y.shape[1]
    part = 1 << (dim.bit_length() - 1)
    words = random_words(seed)
    bits = [word >> i & 1 for word, _ in zip(words, range(-(-6 * part // 64))) for i in range(64)]
    signs = np.where(np.reshape(bits[: 6 * part], (6, part)), 1, -1) / part**0.5
    for r in reversed(range(6)):
        if r % 2 == 1 and part == dim:
            continue
        here = x[:, :part] if r % 2 == 0 else x[:, dim - part :]
        half = 1
        while half < part:
            pairs = here.reshape(len(x), -1, 2, half)
            here = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2).reshape(len(x), part)
            half *= 2
        x[:, slice(part) if r % 2 == 0 else slice(dim - part, dim)] = here * signs[r]
    return x


def read_codes(data):
    """The codes of an index with sketch_bits as a dict; None if it never had rows. By slot: codes and levels (by coordinate,
    in units), scales, residuals, squares (L2, COSINE), coordinates in the kept directions, and the rows that codes make. By
    block of 32 slots: reach and frames (254: no codes). Besides: kind, widths (of coordinates, in bits), centres and their
    energies, kept directions, pending rows (n, sum of squares, sums) or None; learned: worth, to, back."""
    sections = read_sections(data)
    config = read_config(sections)
    if "frames" not in sections:
        return None
    n, dim = config["n_slots"], config["dim"]
    n_blocks = -(-n // 32)
    kind, widths, pieces = read_layout(sections["frames"], dim, config["sketch_bits"])
    centres = np.frombuffer(sections["centres"], "<f4").reshape(-1, dim)
    # A block is pairs of lines; a line is a word of four bytes for each of 16 rows.
    n_lines = lines_of(dim, config["sketch_bits"])
    lines = np.frombuffer(sections["codes"], np.uint8).reshape(n_blocks, n_lines, 2, 16, 4)
    words = lines.transpose(0, 2, 3, 1, 4).reshape(n_blocks * 32, n_lines, 4)[:n]
    codes = np.zeros((n, len(widths)), np.uint8)
    for line, first, shift, bits, at in pieces:
        codes[:, first : first + 4] |= (words[:, line] >> shift & (2**bits - 1)) << at
    if kind == RANDOM:  # what fills up the last lines stands for nothing
        codes, widths = codes[:, :dim], widths[:dim]
    levels = np.stack([levels_of(bits, kind)[codes[:, j]] for j, bits in enumerate(widths)], axis=1)
    scales, residuals = np.frombuffer(sections["scales"], "<f4").reshape(2, -1)[:, :n]
    reach = np.frombuffer(sections["blocks"][: 4 * n_blocks], "<f4")
    frames = np.frombuffer(sections["blocks"][4 * n_blocks :], np.uint8)
    n_kept = struct.unpack_from("<Q", sections["relative"])[0]
    energies, kept = np.split(np.frombuffer(sections["relative"][40:], "<f4"), [len(centres)])
    kept = kept.reshape(n_kept, dim)
    coordinates = np.frombuffer(sections.get("kept", b""), "<f4").reshape(n_blocks, n_kept, 32).transpose(0, 2, 1)
    coordinates = coordinates.reshape(n_blocks * 32, n_kept)[:n]
    squares = np.frombuffer(sections["squares"], "<f4")[:n] if "squares" in sections else None
    out = {"kind": kind, "codes": codes, "levels": levels, "scales": scales, "residuals": residuals, "reach": reach,
           "frames": frames, "centres": centres, "widths": widths, "pending": None, "energies": energies, "kept": kept,
           "coordinates": coordinates, "squares": squares}  # fmt: skip
    if "pending" in sections:
        out["pending"] = (*struct.unpack_from("<Qd", sections["pending"]), np.frombuffer(sections["pending"], "<f8")[2:])
    scaled = scales[:, None] * levels.astype(np.float64)
    if kind == RANDOM:
        moved = rotated_back(scaled, config["seed"])
    else:
        wide = -(-dim // 4) * 4
        learned = np.frombuffer(sections["learned"], "<f4")
        worth, to, back = np.split(learned, [wide, wide * (dim + 1)])
        out.update(worth=worth, to=to.reshape(wide, dim), back=back.reshape(wide, dim))
        moved = scaled @ out["back"][: len(widths)].astype(np.float64)
    # Blocks without rows have the frame 255, those without codes 254.
    centre_of = np.vstack([centres, np.zeros((256 - len(centres), dim))])[np.repeat(frames, 32)[:n]]
    out["rows"] = moved + centre_of + coordinates @ kept.astype(np.float64)
    return out


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    parts = read_index(content)
    print(*parts, sep="\n")
    if parts[0]["kind"] == MDCI:
        print(read_tree(content))
    if parts[0]["sketch_bits"] != 0:
        print(read_codes(content))
