# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which arrays are taken, which are read in place, and how long borrowed ones live."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest
from conftest import normal, stored, to_bits

import dci
from dci._kv_rows import as_counts
from dci._rows import as_ids, as_rows, row_format

FLOAT32 = row_format("float32", "dtype")


def unaligned(rows):
    """The same numbers, one byte off."""
    raw = np.empty(rows.nbytes + 1, np.uint8)
    out = raw[1:].view(rows.dtype).reshape(rows.shape)
    out[...] = rows
    return out


# name: how to lay out the rows of a contiguous float32 array, and whether the library can read that in place
LAYOUTS = {
    "contiguous": (lambda x: x, True),
    "wider rows": (lambda x: np.pad(x, ((0, 0), (3, 5)))[:, 3:-5], True),
    "every other row": (lambda x: np.repeat(x, 2, axis=0)[::2], True),
    "read only": (lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape), True),
    "transposed": (np.asfortranarray, False),
    "every other element": (lambda x: np.repeat(x, 2, axis=1)[:, ::2], False),
    "reversed rows": (lambda x: x[::-1].copy()[::-1], False),
    "unaligned": (unaligned, False),
    "big endian": (lambda x: x.astype(">f4"), False),
    "float64": (lambda x: x.astype(np.float64), False),
    "list": (lambda x: x.tolist(), False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_results(name):
    lay, _ = LAYOUTS[name]
    rows, asked = normal(70, 24), normal(20, 24, seed=2)
    wanted = dci.Index(24)
    wanted.add(rows)
    index = dci.Index(24)
    index.add(lay(rows))
    np.testing.assert_array_equal(index.reconstruct(np.arange(70)), rows)
    for got, want in zip(index.search(lay(asked), 9), wanted.search(asked, 9)):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(index.search(lay(asked[:1])[0], 9), wanted.search(asked[0], 9)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_are_read_in_place_where_they_can_be(name):
    lay, in_place = LAYOUTS[name]
    rows = lay(normal(70, 24))
    array, n, ld = as_rows(rows, 24, FLOAT32, "x")
    assert n == 70
    assert np.may_share_memory(array, rows) == in_place
    assert ld * array.itemsize == array.strides[0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_borrowed_rows_are_never_copied(name):
    lay, in_place = LAYOUTS[name]
    rows = lay(normal(70, 24))
    index = dci.Index(24, storage="borrowed")
    if in_place:
        index.add(rows)
        assert index.memory()["rows"] < 70 * 24 * 4
    else:
        with pytest.raises((TypeError, dci.InvalidError), match="borrowed"):
            index.add(rows)
        assert len(index) == 0


def test_a_borrowed_index_sees_the_callers_memory():
    rows = normal(10, 8)
    index = dci.Index(8, storage="borrowed")
    index.add(rows[:, :])
    rows[4] *= 2
    np.testing.assert_array_equal(index.reconstruct(4), rows[4])


@pytest.mark.parametrize(
    "given",
    [
        np.float16([[1.5, -2]]),
        np.float64([[1.5, -2]]),
        np.longdouble([[1.5, -2]]),
        np.int8([[3, -2]]),
        np.uint32([[3, 2]]),
        np.uint16([[3, 2]]),
        np.array([[True, False]]),
        [[3, -2]],
    ],
)
def test_float32_takes_all_real_numbers(given):
    index = dci.Index(2)
    index.add(given)
    np.testing.assert_array_equal(index.reconstruct([0]), np.asarray(given, np.float32))


@pytest.mark.parametrize(
    ("input_dtype", "given"),
    [
        ("float32", np.complex64([[1, 2]])),
        ("float32", np.array([["a", "b"]])),
        ("float32", np.array([[None, 1]])),
        ("float16", np.float32([[1, 2]])),
        ("float16", [[1.0, 2.0]]),
        ("bfloat16", np.float32([[1, 2]])),
        ("bfloat16", np.int16([[1, 2]])),
    ],
)
def test_an_input_that_would_change_is_refused(input_dtype, given):
    index = dci.Index(2, dtype=input_dtype)
    for call in (index.add, index.search):
        with pytest.raises(TypeError, match=f"the index takes {input_dtype}"):
            call(given)


def test_a_double_beyond_float32_is_refused_by_row():
    index = dci.Index(2)
    with pytest.raises(dci.NumberError, match="row 1"):
        index.add([[1.0, 2.0], [1e300, 0.0]])
    assert len(index) == 0


def test_bfloat16_of_ml_dtypes_is_taken_and_equals_its_bits():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    rows, asked = normal(40, 16), normal(3, 16, seed=2)
    typed, bits = dci.Index(16, dtype=bfloat16), dci.Index(16, dtype="bfloat16", storage="borrowed")
    typed.add(rows.astype(bfloat16))
    bits.add(to_bits(rows))
    bits.add(rows.astype(bfloat16), ids=np.arange(100, 140))
    np.testing.assert_array_equal(typed.reconstruct(np.arange(40)), bits.reconstruct(np.arange(40)))
    np.testing.assert_array_equal(typed.reconstruct(np.arange(40)), bits.reconstruct(np.arange(100, 140)))
    for got, want in zip(typed.search(asked.astype(bfloat16), 5), typed.search(to_bits(asked), 5)):
        np.testing.assert_array_equal(got, want)
    wide = dci.Index(16)
    wide.add(rows.astype(bfloat16))
    np.testing.assert_array_equal(to_bits(wide.reconstruct(np.arange(40))), to_bits(rows))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (5, 2), (2, 2, 4)])
def test_a_wrong_shape_is_refused_with_both_shapes(shape):
    index = dci.Index(4)
    with pytest.raises(dci.InvalidError, match=r"x has shape .*, wanted \(n, 4\)"):
        index.add(np.zeros(shape, np.float32))
    with pytest.raises(dci.InvalidError, match=r"q has shape .*, wanted \(n, 4\)"):
        index.search(np.zeros(shape, np.float32))


def test_borrowed_memory_lives_until_the_index_is_empty_or_closed():
    for end in ("close", "remove", "forget"):
        pool = normal(10, 8)
        before = sys.getrefcount(pool)
        index = dci.Index(8, storage="borrowed")
        index.add(pool[:4])
        index.add(pool[4:6])
        index.add(normal(1, 8), ids=[99])
        assert sys.getrefcount(pool) == before + 1
        index.remove([0, 1, 2, 3, 4])
        assert sys.getrefcount(pool) == before + 1
        if end == "close":
            index.close()
        elif end == "remove":
            index.remove([5, 99])
        else:
            del index
        assert sys.getrefcount(pool) == before, end


def test_borrowed_rows_survive_their_last_other_reference():
    rows = normal(10, 8)
    copy = rows.copy()
    alive = weakref.ref(rows)
    index = dci.Index(8, storage="borrowed")
    index.add(rows)
    del rows
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(index.reconstruct(np.arange(10)), copy)
    index.close()
    assert alive() is None


def test_ids_masks_and_counts_behind_a_header_are_aligned():
    data = np.zeros(4, np.uint8).tobytes() + np.arange(5, dtype=np.int64).tobytes()
    odd = np.frombuffer(data, np.int64, offset=4)
    assert not odd.flags.aligned
    for taken in (as_ids(odd), dci.Bitmap(odd.view(np.uint64)).words, as_counts(odd.view(np.uintp), 5, "n")):
        assert taken.flags.aligned and taken.flags.c_contiguous
        np.testing.assert_array_equal(taken, odd)


def test_a_refused_add_keeps_nothing():
    rows = normal(3, 8)
    rows[1, 2] = np.nan
    before = sys.getrefcount(rows)
    index = dci.Index(8, storage="borrowed")
    for _ in range(2):
        with pytest.raises(dci.NumberError, match="row 1"):
            index.add(rows)
        assert sys.getrefcount(rows) == before
    index.add(rows[:1])
    with pytest.raises(dci.NumberError):
        index.add(rows)
    assert sys.getrefcount(rows) == before + 1


def test_calls_keep_no_reference_to_what_they_were_given():
    rows, asked, ids = normal(20, 8), normal(2, 8), np.arange(20)
    mask = np.ones(20, bool)
    given = (rows, asked, ids, mask)
    before = [sys.getrefcount(one) for one in given]
    index = dci.Index(8)
    index.add(rows, ids)
    index.search(asked, 3, filter=ids, stats=True)
    index.search(asked, 3, filter=mask)
    index.range_search(asked, 0.0)
    index.search_group(asked, 3, union=True)
    index.tune(asked, 3, 0.9)
    index.reconstruct(ids)
    index.remove(ids)
    assert [sys.getrefcount(one) for one in given] == before


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_borrowed_rows_may_be_queried_in_float32(dtype):
    rows = stored(normal(30, 8), dtype)
    index = dci.Index(8, dtype=dtype, storage="borrowed", input_dtype="float32")
    index.add(rows)
    owned = dci.Index(8, dtype=dtype, input_dtype="float32")
    owned.add(normal(30, 8))
    for got, want in zip(index.search(normal(2, 8, seed=3), 4), owned.search(normal(2, 8, seed=3), 4)):
        np.testing.assert_array_equal(got, want)
