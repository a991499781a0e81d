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
    "prop_to_retrieve": "d", "num_to_visit": "Q", "num_to_retrieve": "Q", "c_squared": "f",
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
    used = 108
    if config["kind"] == MDCI:
        config.update(read_fields(data, 128, TREE_FIELDS))
        assert not any(data[108:128])
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


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    parts = read_index(content)
    print(*parts, sep="\n")
    if parts[0]["kind"] == MDCI:
        print(read_tree(content))
