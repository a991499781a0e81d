# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Saving, loading, mapping, pickling; and a second reader of the format, which knows docs/format.md alone."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DTYPES, METRICS, in_float64, normal, stored
from read_index import LEARNED, RANDOM, UNITS, crc32c, read_codes, read_index, read_sections

import dci
from dci import _structs

KINDS = ("flat", "pdci", "mdci")
CASES = list(itertools.product(METRICS, DTYPES, KINDS, ("owned", "borrowed")))
DIM, N = 12, 200
TREE = {"promotion_prob": 0.2, "promotion_prob_subseq": 0.3, "page_rows": 4, "top_nodes": 5, "cell_simp_indices": 2}


def made(metric="ip", dtype="float32", kind="pdci", storage="owned", **options):
    """An index with ids of its own, and its rows and ids as they were added."""
    rows = stored(normal(N, DIM), dtype)
    of_kind = {"flat": {}, "pdci": {"num_simp_indices": 3}, "mdci": TREE}
    options = {"seed": 2**64 - 1, **of_kind[kind], **options}
    index = dci.Index(DIM, metric, kind=kind, dtype=dtype, storage=storage, **options)
    ids = np.random.default_rng(3).permutation(N) * 1_000_003
    index.add(rows, ids)
    if kind != "flat":
        index.set_defaults(prop_to_visit=0.5, num_to_retrieve=9, field_of_view=4 if kind == "mdci" else 0)
    return index, rows, ids


def agree(a, b):
    assert a.get_defaults() == b.get_defaults()
    for name in ("dim", "metric", "kind", "dtype", "input_dtype", "count"):
        assert getattr(a, name) == getattr(b, name), name
    np.testing.assert_array_equal(a.ids(), b.ids())
    np.testing.assert_array_equal(a.reconstruct(a.ids()), b.reconstruct(a.ids()))
    queries = stored(normal(6, DIM, 9), a.input_dtype)
    for one, other in zip(a.search(queries, 7), b.search(queries, 7)):
        np.testing.assert_array_equal(one, other)
    if a.kind == "mdci":
        assert a.tree_stats() == b.tree_stats()
        np.testing.assert_array_equal(a.pages(), b.pages())
        np.testing.assert_array_equal(a.changes()[0], b.changes()[0])


@pytest.mark.parametrize(("metric", "dtype", "kind", "storage"), CASES)
def test_a_second_reader_finds_rows_ids_and_config(metric, dtype, kind, storage):
    index, rows, ids = made(metric, dtype, kind, storage)
    config, found, found_ids, norms, projections = read_index(index.to_bytes())
    if kind == "mdci":
        assert {name: config[name] for name in TREE} == TREE
        assert (config["n_rows"], config["field_of_view"]) == (N, 4)
        # Rows lie in the slots of the tree: as they were added from here on.
        for part in (found, norms, projections if projections is None else projections.T):
            assert part is None or not part[found_ids < 0].any()
        slots = [int(np.flatnonzero(found_ids == one)[0]) for one in ids]
        assert (found_ids >= 0).sum() == N
        found, found_ids, projections = found[slots], found_ids[slots], projections[:, slots]
        norms = norms if norms is None else norms[slots]
    else:
        assert config["n_slots"] == N
    assert (config["dim"], config["num_comp_indices"], config["num_simp_indices"]) == (DIM, 2, 3 if kind == "pdci" else 7)
    assert config["kind"] == _structs.KINDS[kind]
    assert config["metric"] == _structs.METRICS[metric]
    assert config["dtype"] == config["add_dtype"] == config["query_dtype"] == _structs.DTYPES[dtype]
    assert (config["seed"], config["next_id"], config["zero_rows"]) == (2**64 - 1, ids.max() + 1, 0)
    if kind == "flat":  # a recall, in a section of its own
        assert (config["prop_to_visit"], config["prop_to_retrieve"], config["num_to_retrieve"]) == (0, 0, 0)
    else:
        assert (config["prop_to_visit"], config["prop_to_retrieve"]) == (0.5, 1)
        assert (config["num_to_visit"], config["num_to_retrieve"]) == (0, 9)
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_array_equal(found.view(np.uint8), rows.view(np.uint8))
    squared = (in_float64(rows) ** 2).sum(1)
    if metric == "cosine":
        np.testing.assert_allclose(norms, squared**-0.5, rtol=1e-6)
    elif metric == "ip" and kind != "flat":
        np.testing.assert_allclose(norms, squared, rtol=1e-6)
    else:
        assert norms is None
    if kind != "flat" and metric == "ip":
        assert config["c_squared"] == 2.0 ** np.ceil(np.log2(squared.max()))
    else:
        assert config["c_squared"] == 0
    assert (projections is None) == (kind == "flat")
    if kind != "flat":
        # Directions are unit vectors, so no projection is longer than its row.
        longest = np.ones(N) if metric == "cosine" else squared**0.5
        assert projections.shape == ({"pdci": 6, "mdci": 2}[kind], N)
        assert (np.abs(projections) <= longest * (1 + 1e-5)).all() and np.abs(projections).max() > 0


# --- codes ----------------------------------------------------------------------------------------------------------------

CODED = [
    (bits, kind, metric, dim)
    for bits, (kind, metric), dim in itertools.product((1, 2, 3, 4, 8), zip(KINDS, METRICS), (1, 12, 64, 100))
]


def coded(bits, kind="flat", metric="l2", dim=24, n=300, **options):
    """An index of rows with two means, that of the second 200 in another place, and of unlike deviations."""
    rows = normal(n, dim) * np.linspace(0.2, 2, dim, dtype=np.float32)
    rows[100:] += 3
    index = dci.Index(dim, metric, kind=kind, sketch_bits=bits, seed=2**63 + 5, **options)
    index.add(rows[:100])
    index.add(rows[100:])
    return index


def contents(index):
    """The rows and what the codes say of them, by slot; which slots have codes."""
    config, rows, ids, norms, _ = read_index(index.to_bytes())
    codes = read_codes(index.to_bytes())
    full = ids >= 0
    assert config["sketch_bits"] == index.sketch_bits and full.sum() == len(index)
    for part in ("codes", "scales", "residuals"):
        assert not codes[part][~full].any()
    # A block reaches at least as far as its rows do, in units of levels.
    lengths = np.zeros(32 * len(codes["reach"]))
    lengths[: len(full)] = np.linalg.norm(codes["scales"][:, None] * codes["levels"], axis=1) * full
    assert (lengths.reshape(-1, 32).max(1) <= codes["reach"] * (1 + 1e-5)).all()
    empty = ~np.logical_or.reduceat(full, np.arange(0, len(full), 32))
    raw = codes["frames"] == 254  # blocks of rows in two places: they have no codes
    assert (codes["frames"][~empty & ~raw] < len(codes["centres"])).all() and raw.mean() < 0.2
    full &= ~np.repeat(raw, 32)[: len(full)]
    assert ((codes["frames"][empty] < len(codes["centres"])) | (codes["frames"][empty] >= 254)).all()
    rows = rows.astype(np.float64)
    if config["metric"] == 3:  # of COSINE: codes are those of rows of length 1
        rows *= norms[:, None]
    assert codes["coordinates"].shape == (len(rows), len(codes["kept"]))
    return rows, codes, full


@pytest.mark.parametrize(("bits", "kind", "metric", "dim"), CODED)
def test_a_second_reader_decodes_rows_from_rotated_codes(bits, kind, metric, dim):
    rows, codes, full = contents(coded(bits, kind, metric, dim))
    assert codes["kind"] == RANDOM and set(codes["widths"]) == {bits}
    off = rows - codes["rows"]
    np.testing.assert_allclose(np.linalg.norm(off, axis=1)[full], codes["residuals"][full], rtol=1e-4, atol=1e-5)
    # What is left over stands at right angles to the rest of the row: estimates are right on average.
    rests = rows - codes["centres"][np.where(full, codes["frames"][np.arange(len(rows)) // 32], 0)]
    rests -= codes["coordinates"] @ codes["kept"].astype(np.float64)
    np.testing.assert_allclose((rests @ codes["kept"].T.astype(np.float64))[full], 0, atol=1e-5)
    squares = (rests**2).sum(1)
    assert (np.abs((rests * off).sum(1)) <= 1e-5 * squares + 1e-6)[full].all()
    assert (codes["squares"] is None) == (metric == "ip")
    if metric != "ip":
        np.testing.assert_allclose(codes["squares"][full], squares[full], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("bits", "kind", "metric", "dim"), CODED)
def test_a_second_reader_decodes_rows_from_learned_codes(bits, kind, metric, dim):
    index = coded(bits, kind, metric, dim)
    index.fit(normal(64, dim, 5))
    index.add(normal(50, dim, 7))
    rows, codes, full = contents(index)
    n, worth = len(codes["widths"]), codes["worth"]
    to, back = codes["to"].astype(np.float64), codes["back"].astype(np.float64)
    assert codes["kind"] == LEARNED and codes["centres"].shape == (1, dim)
    # Coordinates with codes are in units of levels, the others as they are: `back` is the way back from both.
    units = np.ones(len(to))
    units[:n] = [UNITS[width] for width in codes["widths"]]
    rests = rows - codes["centres"] - codes["coordinates"] @ codes["kept"].astype(np.float64)
    y = rests @ to.T / units
    np.testing.assert_allclose(y @ back, rests, rtol=0, atol=2e-4)
    y[:, :n] -= codes["scales"][:, None] * codes["levels"]
    off = np.linalg.norm(y * worth, axis=1)
    np.testing.assert_allclose(off[full], codes["residuals"][full], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows - codes["rows"], y @ back, rtol=0, atol=2e-4)
    assert sum(codes["widths"]) * 4 <= 32 * -(-bits * dim * 4 // 32) + 128


def test_rows_that_no_centre_was_decided_for_are_in_the_file():
    rows = normal(45, 24)
    index = dci.Index(24, sketch_bits=2)
    assert read_codes(index.to_bytes()) is None
    for first, end, pending in ((0, 5, (0, 5)), (5, 40, None), (40, 45, (40, 45))):
        index.add(rows[first:end])
        found = read_codes(index.to_bytes())["pending"]
        if pending is None:
            assert found is None
            continue
        those = rows[slice(*pending)].astype(np.float64)
        if pending[0] > 0:  # once there is a centre, from the first of them
            those -= read_codes(index.to_bytes())["centres"][0]
        assert found[0] == len(those)
        np.testing.assert_allclose(found[1], (those**2).sum(), rtol=1e-6)
        np.testing.assert_allclose(found[2], those.sum(0), rtol=1e-5, atol=1e-6)
    index.fit(normal(64, 24, 2))
    index.remove(index.ids())
    emptied = read_codes(index.to_bytes())
    assert emptied["kind"] == LEARNED and emptied["codes"].shape == (0, len(emptied["widths"]))


def patched(data, name, offset, value):
    """A file with one byte of a section changed, and its checksums made right."""
    data = bytearray(data)
    (n,) = struct.unpack_from("<I", data, 24)
    for at in range(48, 48 + 32 * n, 32):
        if data[at : at + 8].rstrip(b"\0") == name:
            first, size = struct.unpack_from("<QQ", data, at + 8)
            data[first + offset] = value
            struct.pack_into("<I", data, at + 24, crc32c(data[first : first + size]))
    struct.pack_into("<I", data, 40, crc32c(data[48 : 48 + 32 * n]))
    struct.pack_into("<I", data, 44, crc32c(data[:44]))
    return bytes(data)


@pytest.mark.parametrize("fitted", [False, True])
def test_codes_that_contradict_themselves_are_refused(fitted):
    index = coded(2)
    if fitted:
        index.fit(normal(64, 24, 5))
    else:
        index.add(normal(3, 24))
    data = index.to_bytes()
    assert dci.Index.from_bytes(patched(data, b"codes", 0, 0)).count == len(index)
    n_blocks = len(read_codes(data)["frames"])
    groups = struct.unpack_from("<Q", read_sections(data)["frames"], 24)[0]
    cases = [
        (b"config", 108, 5, dci.FormatError, "sketch_bits is 5"),
        (b"config", 108, 0, dci.UnsupportedError, "section"),
        (b"config", 119, 0xBF, dci.FormatError, "rerank is"),
        (b"config", 127, 0xBF, dci.FormatError, "guarantee is"),
        (b"frames", 0, 1, dci.FormatError, "kind 1"),
        (b"frames", 5, 1, dci.UnsupportedError, "byte 5 of the file's frames is 0x01"),
        (b"frames", 32 + 4 * groups + 1, 9, dci.UnsupportedError, "frames is 0x09"),
        (b"centres", 3, 0xFF, dci.FormatError, None),
        (b"blocks", 4 * n_blocks, 77, dci.FormatError, "name centre 77"),
    ]
    if fitted:
        cases += [
            (b"frames", 32 + 3, 1, dci.UnsupportedError, "byte 35"),
            (b"frames", 32 + 2, 9, dci.FormatError, "impossible layout"),
            (b"frames", 16, 99, dci.FormatError, "impossible layout"),
        ]
    else:
        cases += [(b"pending", 0, n, dci.FormatError, "pending") for n in (0, 32)]
        cases += [(b"pending", at + 7, 0xFF, dci.FormatError, "pending") for at in (8, 16)]
        cases += [(b"frames", 8, 4, dci.UnsupportedError, "byte 8")]
    for name, offset, value, error, part in cases:
        damaged = patched(data, name, offset, value)
        if part is None:  # -NaN or a number, as the byte before it has it
            damaged = patched(damaged, name, offset - 1, 0xFF)
        with pytest.raises(error, match=part):
            dci.Index.from_bytes(damaged)


def test_a_block_without_rows_has_a_centre_that_there_is():
    """Rows may come to it: a centre that there is not would be read from nowhere."""
    index = coded(2, "mdci", n=400, promotion_prob=0.1)
    index.remove(np.arange(0, 400, 2))
    for page in index.pages()["page"][::2]:
        index.remove(index.page_ids(page))
    ids, frames = read_index(index.to_bytes())[2], read_codes(index.to_bytes())["frames"]
    empty = np.flatnonzero(np.maximum.reduceat(ids, np.arange(0, len(ids), 32)) < 0)
    assert len(empty) > 0
    for bad in (len(read_codes(index.to_bytes())["centres"]), 253):
        with pytest.raises(dci.FormatError, match=f"name centre {bad}"):
            dci.Index.from_bytes(patched(index.to_bytes(), b"blocks", 4 * len(frames) + empty[0], bad))
    dci.Index.from_bytes(patched(index.to_bytes(), b"blocks", 4 * len(frames) + empty[0], 255)).add(normal(300, 24))


def test_defaults_of_codes_are_in_the_file():
    index = coded(4)
    assert read_index(index.to_bytes())[0]["rerank"] == 0
    index.set_defaults(rerank=math.inf, guarantee=0.75)
    config = read_index(index.to_bytes())[0]
    assert (config["rerank"], config["guarantee"], config["sketch_bits"]) == (math.inf, 0.75, 4)
    assert read_index(made()[0].to_bytes())[0]["sketch_bits"] == 0


# --- saved and loaded -----------------------------------------------------------------------------------------------------


def test_ids_that_are_slots_are_left_out():
    index = dci.Index(DIM, kind="pdci")
    assert read_index(index.to_bytes())[1].shape == (0, DIM)
    index.add(normal(5, DIM))
    data = index.to_bytes()
    assert b"ids\0" not in data[: 48 + 32 * 8]
    np.testing.assert_array_equal(read_index(data)[2], np.arange(5))


@pytest.mark.parametrize(("metric", "dtype", "kind", "storage"), CASES)
def test_what_is_loaded_mapped_or_unpickled_answers_the_same(metric, dtype, kind, storage, tmp_path):
    index, _, _ = made(metric, dtype, kind, storage)
    path = tmp_path / "index"
    index.save(path)
    assert path.read_bytes() == index.to_bytes()
    for again in (
        dci.Index.load(path),
        dci.Index.load(str(path)),
        dci.Index.map(bytes(path)),
        dci.Index.from_bytes(index.to_bytes()),
        pickle.loads(pickle.dumps(index)),
        copy.copy(index),
        copy.deepcopy(index),
    ):
        agree(index, again)
        assert again.storage == "owned"
        assert again.to_bytes() == index.to_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", METRICS)
def test_a_loaded_index_goes_on_as_the_saved_one_would(metric, kind):
    index, _, ids = made(metric, kind=kind)
    again = dci.Index.from_bytes(bytearray(index.to_bytes()))
    for one in (index, again):
        one.add(normal(20, DIM, 5))
        one.remove(ids[::7])
        one.set_defaults()
    agree(index, again)
    assert index.to_bytes() == again.to_bytes()


def test_input_formats_survive():
    wide, _, _ = made(dtype="float16", input_dtype="float32")
    lent, rows, _ = made(dtype="float16", storage="borrowed", input_dtype="float32")
    for index in (wide, lent):
        again = dci.Index.from_bytes(index.to_bytes())
        assert (again.dtype, again.input_dtype) == ("float16", "float32")
        agree(index, again)
    # A borrowed index takes its own format; the loaded one still does.
    again.add(rows)
    assert again.count == 2 * N


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapped_index_takes_no_rows(kind, tmp_path):
    index, rows, ids = made(kind=kind)
    index.save(tmp_path / "index")
    mapped = dci.Index.map(tmp_path / "index")
    for call in (lambda: mapped.add(rows), lambda: mapped.remove(ids[:1]), lambda: mapped.reserve(5)):
        with pytest.raises(dci.UnsupportedError, match="mapped"):
            call()
    other = {"recall": 0.8} if kind == "flat" else {"num_to_retrieve": 3}
    mapped.set_defaults(**other)
    assert other.items() <= mapped.get_defaults().items()
    index.set_defaults(**other)
    index.save(tmp_path / "index")
    (tmp_path / "index").unlink()
    agree(index, mapped)
    agree(index, pickle.loads(pickle.dumps(mapped)))


def test_the_context_is_the_callers(tmp_path):
    index, _, _ = made()
    index.save(tmp_path / "index")
    context = dci.Context(threads=1, executor="pthreads")
    for again in (
        dci.Index.load(tmp_path / "index", context=context),
        dci.Index.map(tmp_path / "index", context),
        dci.Index.from_bytes(index.to_bytes(), context),
    ):
        assert again.context is context
    assert dci.Index.load(tmp_path / "index").context is dci.default_context()


def test_what_is_no_index_is_refused(tmp_path):
    index, _, _ = made()
    data = bytearray(index.to_bytes())
    data[len(data) // 2] ^= 4
    path = tmp_path / "damaged"
    path.write_bytes(data)
    for call in (dci.Index.load, dci.Index.map):
        with pytest.raises(dci.FormatError, match="damaged"):
            call(path)
        with pytest.raises(dci.FileError, match="No such file"):
            call(tmp_path / "absent")
        with pytest.raises(dci.InvalidError, match="a directory"):
            call(tmp_path)
        with pytest.raises(dci.InvalidError, match="zero byte"):
            call("a\0b")
        with pytest.raises(TypeError, match="path is NoneType"):
            call(None)
    for wrong in (b"", b"x", bytes(data)):
        with pytest.raises(dci.FormatError):
            dci.Index.from_bytes(wrong)
    with pytest.raises(TypeError):
        dci.Index.from_bytes("text")
    with pytest.raises(dci.FileError):
        index.save(tmp_path / "absent" / "index")
    index.close()
    for call in (index.to_bytes, lambda: index.save(path), lambda: pickle.dumps(index)):
        with pytest.raises(dci.InvalidError, match="closed"):
            call()
    assert path.read_bytes() == data


@pytest.mark.parametrize("kind", KINDS)
def test_the_reader_is_a_program(kind, tmp_path):
    index, _, _ = made(kind=kind)
    index.save(tmp_path / "index")
    program = Path(__file__).with_name("read_index.py")
    said = subprocess.run([sys.executable, program, tmp_path / "index"], check=True, capture_output=True, text=True).stdout
    assert "'dim': 12" in said and ("'mean'" in said) == (kind == "mdci") and "'residuals'" not in said
    coded(1, kind).save(tmp_path / "index")
    said = subprocess.run([sys.executable, program, tmp_path / "index"], check=True, capture_output=True, text=True).stdout
    assert "'sketch_bits': 1" in said and "'residuals'" in said
