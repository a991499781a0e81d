# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Sketches: estimates keep to their bounds, searches are sorted estimates, and arrays are taken and given as Index does."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from conftest import DTYPES, TRACE, assert_same, in_float64, normal, recall, sketched, stored, to_bits, within
from test_rows import LAYOUTS

import dci

BITS = (1, 2, 3, 4, 8)
# The centres that can be, for rows of dimension 24.
CENTRED = {"running": "running", "none": "none", "given": np.linspace(-1, 1, 24)}


# --- what a sketch says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
def test_estimates_on_the_trace_lie_within_the_bound(keys, queries, bits, dtype):
    rows, asked = stored(keys.astype(np.float32), dtype), stored(queries.astype(np.float32), dtype)
    sketch = sketched(rows, bits)
    assert within(sketch, rows, asked).all()
    assert within(sketch, rows, asked, first=1001, n=333).all()
    sketch.fit(rows, asked)
    sketch.truncate(4001)
    sketch.append(rows[4001:])
    assert within(sketch, rows, asked).all()


@pytest.mark.parametrize("transform", ["random", "none"])
@pytest.mark.parametrize("centre", CENTRED)
def test_every_transform_and_centre_keeps_the_bound(transform, centre):
    rows, asked = normal(300, 24) + np.float32(3), normal(9, 24, seed=2)
    assert within(sketched(rows, 3, transform=transform, centre=CENTRED[centre]), rows, asked).all()


def test_more_bits_are_nearer(keys, queries):
    rows, asked = keys.astype(np.float32), queries.astype(np.float32)
    errors = [np.abs(sketched(rows, bits).score(asked) - asked @ rows.T).mean() for bits in BITS]
    assert (np.diff(errors) < 0).all()


def test_a_bound_that_may_fail_is_narrower_and_rarely_does(keys, queries):
    sketch = sketched(keys, 2)
    certain, likely = sketch.bound(queries), sketch.bound(queries, probability=0.9)
    assert (likely < certain).all()
    assert within(sketch, keys, queries, probability=0.9).mean() >= 0.9


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("n_queries", [1, 9])
def test_a_search_is_the_sorted_scores(keys, queries, bits, n_queries):
    sketch, asked = sketched(keys, bits), queries[:n_queries]
    scores = sketch.score(asked)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :100]
    assert_same(sketch.search(asked, 100), (order, np.take_along_axis(scores, order, 1)))


def test_ties_go_to_the_lower_row():
    sketch = sketched(np.repeat(normal(1, 8), 50, axis=0), centre="none")
    rows, scores = sketch.search(normal(1, 8, seed=2)[0], 7)
    assert rows.tolist() == list(range(7)) and len(set(scores.tolist())) == 1


def test_scores_of_a_part_and_of_a_batch_have_the_bits_of_all(keys, queries):
    sketch = sketched(keys)
    every, bounds = sketch.score(queries), sketch.bound(queries)
    for first, n in ((0, 1), (17, 100), (1000, 5000), (7679, 1), (7680, 0)):
        np.testing.assert_array_equal(sketch.score(queries, first, n), every[:, first : first + n])
        np.testing.assert_array_equal(sketch.bound(queries, first, n), bounds[:, first : first + n])
    np.testing.assert_array_equal(sketch.score(queries, 100), every[:, 100:])
    for query, scores in zip(queries, every):
        np.testing.assert_array_equal(sketch.score(query), scores)


def test_results_do_not_depend_on_the_thread_count(keys, queries):
    found = []
    for threads in (1, 2, 5):
        sketch = sketched(keys, context=dci.Context(threads=threads, executor="pthreads"))
        found.append((sketch.score(queries), *sketch.search(queries, 30)))
    for one in found[1:]:
        assert_same(one, found[0])


def test_the_seed_chooses_the_rotation():
    rows, asked = normal(50, 24), normal(2, 24, seed=2)
    first, again, other = (sketched(rows, seed=seed).score(asked) for seed in (0, 0, 2**64 - 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_fit_improves_recall_at_one_bit(keys):
    asked = np.load(TRACE / "queries.npy")
    prompt, decode = asked[:, :64].reshape(-1, 64), asked[:, 64::40].reshape(-1, 64)
    truth = decode.astype(np.float64) @ keys.astype(np.float64).T
    wanted = np.argsort(-truth, axis=1)[:, :20]
    found = []
    for fit in (False, True):
        sketch = dci.Sketch(64, 1, dtype="float16")
        if fit:
            sketch.fit(keys[:7168], prompt)
        sketch.append(keys)
        found.append(recall(sketch.search(decode, 40)[0], wanted))
    assert found[1] > found[0] + 0.05


def test_rows_decode_to_what_their_codes_say(keys):
    rows = keys.astype(np.float32)
    sketch = sketched(rows, 8)
    got = sketch.decode([5, 5, 7000])
    assert got.dtype == np.float32 and got.shape == (3, 64)
    np.testing.assert_allclose(got, rows[[5, 5, 7000]], atol=0.05 * np.abs(rows).max())
    np.testing.assert_array_equal(sketch.decode(7000), got[2])
    np.testing.assert_array_equal(sketch.decode(np.int32([7000])), got[2:])
    assert sketch.decode([]).shape == (0, 64)


def test_decoded_rows_have_the_estimates_up_to_the_query(keys, queries):
    sketch = sketched(keys[:500], 2)
    scores = queries.astype(np.float64) @ sketch.decode(np.arange(500)).astype(np.float64).T
    assert (np.abs(sketch.score(queries) - scores) <= 0.02 * np.abs(scores).max()).all()


# --- rows come and go -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 3])
def test_k_beyond_the_count_is_padded(n):
    sketch = dci.Sketch(8)
    sketch.append(normal(n, 8))
    rows, scores = sketch.search(normal(2, 8), 5)
    assert (rows[:, n:] == -1).all() and np.isnan(scores[:, n:]).all()
    assert (np.sort(rows[:, :n], axis=1) == np.arange(n)).all() and np.isfinite(scores[:, :n]).all()


def test_an_empty_sketch_answers_with_nothing():
    sketch = dci.Sketch(8)
    assert len(sketch) == sketch.count == 0 and sketch
    assert sketch.score(normal(2, 8)).shape == sketch.bound(normal(2, 8)).shape == (2, 0)
    assert sketch.score(normal(1, 8)[0]).shape == (0,)
    info = sketch.info()
    assert (info.n_rows, info.row_bytes) == (0, 12) and np.isnan(info.drift)
    sketch.truncate(0)
    sketch.append(np.empty((0, 8), np.float32))
    assert len(sketch) == 0


def test_rows_forgotten_make_room_for_others():
    rows, asked = normal(200, 24), normal(3, 24, seed=2)
    sketch, whole = sketched(rows, centre="none"), sketched(rows, centre="none").score(asked)
    for n in (199, 64, 33, 0):
        sketch.truncate(n)
        assert len(sketch) == n
        np.testing.assert_array_equal(sketch.score(asked), whole[:, :n])
        sketch.append(rows[n:])
        np.testing.assert_array_equal(sketch.score(asked), whole)


def test_codes_keep_the_transform_they_were_made_with():
    rows, asked = normal(256, 24), normal(3, 24, seed=2)
    sketch = sketched(rows[:128])
    before = sketch.score(asked)
    sketch.fit(rows, asked)
    np.testing.assert_array_equal(sketch.score(asked), before)
    sketch.append(rows[128:])
    np.testing.assert_array_equal(sketch.score(asked, 0, 128), before)
    assert sketch.info().transforms == 2 and within(sketch, rows, asked).all()


def test_reserve_takes_the_memory_of_the_rows():
    sketch = dci.Sketch(64)
    sketch.reserve(1024)
    held = sketch.info().bytes
    assert held >= 1024 * sketch.info().row_bytes
    sketch.append(normal(1024, 64))
    assert sketch.info().bytes < held + 64 * 64 * 4


@pytest.mark.parametrize(("bits", "dim", "row_bytes"), [(4, 64, 40), (2, 64, 24), (1, 64, 16), (8, 64, 72), (1, 20, 12)])
def test_info_says_what_the_sketch_is(bits, dim, row_bytes):
    info = sketched(normal(100, dim), bits).info()
    assert (info.n_rows, info.row_bytes, info.transforms) == (100, row_bytes, 1)
    assert info.bytes > 100 * row_bytes and info.centres >= 1 and 0.5 < info.drift < 2
    assert info.isa in ("avx512 vnni", "avx512", "avx2", "neon dot", "neon", "scalar")


def test_rows_unlike_those_learned_from_drift(keys, queries):
    sketch = dci.Sketch(64, centre="none", dtype="float16")
    sketch.fit(keys[:2000], queries)
    sketch.append(keys[:2000])
    assert sketch.info().drift < 1.5
    sketch.append(keys[:2000] * np.float16(3))
    assert sketch.info().drift > 1.5


# --- arrays ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_results(name):
    lay, _ = LAYOUTS[name]
    rows, asked = normal(70, 24), normal(20, 24, seed=2)
    wanted, sketch = sketched(rows), dci.Sketch(24)
    sketch.append(lay(rows))
    assert_same(sketch.search(lay(asked), 9), wanted.search(asked, 9))
    assert_same(sketch.search(lay(asked[:1])[0], 9), wanted.search(asked[0], 9))
    np.testing.assert_array_equal(sketch.score(lay(asked)), wanted.score(asked))
    for one in (sketch, wanted):
        one.fit(*((lay(rows), lay(asked)) if one is sketch else (rows, asked)))
        one.truncate(0)
        one.append(rows)
    np.testing.assert_array_equal(sketch.bound(lay(asked)), wanted.bound(asked))


@pytest.mark.parametrize("query_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_queries_may_differ_in_format(dtype, query_dtype):
    rows, asked = stored(normal(100, 24), dtype), stored(normal(9, 24, seed=2), query_dtype)
    sketch, wide = dci.Sketch(24, 8, dtype=dtype, query_dtype=query_dtype), dci.Sketch(24, 8)
    assert (sketch.dtype, sketch.query_dtype) == (dtype, query_dtype)
    for one, (x, q) in ((sketch, (rows, asked)), (wide, (in_float64(rows), in_float64(asked)))):
        one.fit(x, q)
        one.append(x)
    np.testing.assert_array_equal(sketch.score(asked), wide.score(in_float64(asked)))
    assert_same(sketch.search(asked, 9), wide.search(in_float64(asked), 9))


def test_bfloat16_of_ml_dtypes_is_taken_and_equals_its_bits():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    rows, asked = normal(40, 16), normal(3, 16, seed=2)
    typed, bits = dci.Sketch(16, dtype=bfloat16), sketched(to_bits(rows))
    typed.append(rows.astype(bfloat16))
    assert_same(typed.search(asked.astype(bfloat16), 5), bits.search(to_bits(asked), 5))
    centre = asked[0].astype(bfloat16)
    given = (sketched(rows, centre=one).score(asked) for one in (centre, centre.astype(np.float64)))
    np.testing.assert_array_equal(*given)


@pytest.mark.parametrize("given", [np.float64([[1.5, -2]]), np.int8([[3, -2]]), [[3, -2]], [3.5, 1]])
def test_float32_takes_all_real_numbers(given):
    sketch = dci.Sketch(2, 8)
    sketch.append(given)
    rows = np.asarray(given, np.float32).reshape(1, 2)
    np.testing.assert_array_equal(sketch.decode([0]), sketched(rows, 8).decode([0]))


@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("float32", np.complex64([[1, 2]])),
        ("float32", np.array([[None, 1]])),
        ("float16", np.float32([[1, 2]])),
        ("float16", [[1.0, 2.0]]),
        ("bfloat16", np.float32([[1, 2]])),
        ("bfloat16", np.int16([[1, 2]])),
    ],
)
def test_an_input_that_would_change_is_refused(dtype, given):
    sketch = dci.Sketch(2, dtype=dtype)
    for call in (sketch.append, lambda x: sketch.fit(x, np.zeros((1, 2), "uint16" if dtype == "bfloat16" else dtype))):
        with pytest.raises(TypeError, match=f"the sketch takes {dtype}: convert it, or choose another dtype"):
            call(given)
    for call in (sketch.search, sketch.score, sketch.bound):
        with pytest.raises(TypeError, match=f"the sketch takes {dtype}: convert it, or choose another query_dtype"):
            call(given)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (5, 2), (2, 2, 4)])
def test_a_wrong_shape_is_refused_with_both_shapes(shape):
    sketch = dci.Sketch(4)
    with pytest.raises(dci.InvalidError, match=r"rows has shape .*, wanted \(n, 4\)"):
        sketch.append(np.zeros(shape, np.float32))
    for call in (sketch.score, sketch.bound, sketch.search, lambda q: sketch.fit(np.eye(4), q)):
        with pytest.raises(dci.InvalidError, match=r"queries has shape .*, wanted \(n, 4\)"):
            call(np.zeros(shape, np.float32))


def test_shapes_and_dtypes_of_results():
    sketch = sketched(normal(5, 8))
    for asked, lead in ((normal(1, 8)[0], ()), (normal(1, 8), (1,)), (np.empty((0, 8), np.float32), (0,))):
        rows, scores = sketch.search(asked, 3)
        assert (rows.shape, rows.dtype) == ((*lead, 3), np.int64)
        assert (scores.shape, scores.dtype) == ((*lead, 3), np.float32)
        for values in (sketch.score(asked), sketch.bound(asked)):
            assert (values.shape, values.dtype) == ((*lead, 5), np.float32)
        assert sketch.score(asked, 2, 2).shape == (*lead, 2) and sketch.search(asked)[0].shape == (*lead, 10)


def test_out_is_written_and_returned():
    sketch, asked = sketched(normal(20, 8)), normal(2, 8)
    out = np.empty((2, 4), np.int64), np.empty((2, 4), np.float32)
    rows, scores = sketch.search(asked, 4, out=out)
    assert rows is out[0] and scores is out[1]
    assert_same(out, sketch.search(asked, 4))
    for call in (sketch.score, sketch.bound):
        values = np.empty((2, 17), np.float32)
        assert call(asked, 3, out=values) is values
        np.testing.assert_array_equal(values, call(asked, 3))
        for bad in (np.empty((2, 18), np.float32), np.empty((2, 17)), np.empty((17, 2), np.float32).T, [0.0]):
            with pytest.raises(dci.InvalidError, match=r"out: values must be .* shape \(2, 17\)"):
                call(asked, 3, out=bad)
    with pytest.raises(dci.InvalidError, match=r"out: rows must be"):
        sketch.search(asked, 4, out=(scores, scores))


def test_calls_keep_no_reference_to_what_they_were_given():
    given = rows, asked, centre, numbers = normal(20, 8), normal(2, 8), normal(1, 8)[0], np.arange(20)
    before = [sys.getrefcount(one) for one in given]
    sketch = sketched(rows, centre=centre)
    sketch.fit(rows, asked)
    sketch.score(asked)
    sketch.bound(asked)
    sketch.search(asked, 3)
    sketch.decode(numbers)
    assert [sys.getrefcount(one) for one in given] == before
