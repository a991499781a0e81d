# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Add, search, remove, ids: what an index answers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from conftest import DTYPES, METRICS, assert_exact, in_float64, normal, stored

import dci


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("batch", [1, 40])
def test_search_on_the_trace_equals_numpy_float64(keys, queries, metric, dtype, batch):
    rows, asked = stored(keys.astype(np.float32), dtype), stored(queries.astype(np.float32), dtype)
    index = dci.Index(64, metric, dtype=dtype)
    index.add(rows)
    parts = [index.search(asked[at : at + batch], 20) for at in range(0, len(asked), batch)]
    assert_exact(tuple(map(np.concatenate, zip(*parts))), rows, asked, metric)


@pytest.mark.parametrize("dtype", DTYPES)
def test_float32_input_is_stored_rounded_and_queried_unrounded(dtype):
    rows, asked = normal(300, 48), normal(20, 48, seed=2)
    index = dci.Index(48, "ip", dtype=dtype, input_dtype="float32")
    index.add(rows)
    np.testing.assert_array_equal(index.reconstruct(np.arange(300)), stored(rows, dtype))
    truth = in_float64(asked) @ in_float64(stored(rows, dtype)).T
    ids, scores = index.search(asked, 300)
    np.testing.assert_allclose(scores, np.take_along_axis(truth, ids, 1), rtol=0, atol=1e-4)


def test_a_batch_gives_the_bits_of_single_searches(keys, queries):
    index = dci.Index(64, dtype="float16")
    index.add(keys)
    ids, scores = index.search(queries, 15)
    for i, query in enumerate(queries):
        one_ids, one_scores = index.search(query, 15)
        np.testing.assert_array_equal(one_ids, ids[i])
        np.testing.assert_array_equal(one_scores, scores[i])


def test_results_do_not_depend_on_the_thread_count(keys, queries):
    found = []
    for threads in (1, 2, 5):
        index = dci.Index(64, context=dci.Context(threads=threads, executor="pthreads"), dtype="float16")
        index.add(keys)
        found.append(index.search(queries, 15))
    for ids, scores in found[1:]:
        np.testing.assert_array_equal(ids, found[0][0])
        np.testing.assert_array_equal(scores, found[0][1])


def test_a_one_dimensional_query_gives_one_dimensional_results():
    index = dci.Index(8)
    index.add(normal(5, 8))
    ids, scores = index.search(normal(1, 8)[0], 3)
    assert (ids.shape, scores.shape) == ((3,), (3,))
    assert (ids.dtype, scores.dtype) == (np.int64, np.float32)
    ids, scores = index.search(normal(1, 8), 3)
    assert (ids.shape, scores.shape) == ((1, 3), (1, 3))
    ids, scores = index.search(np.empty((0, 8), np.float32), 3)
    assert (ids.shape, scores.shape) == ((0, 3), (0, 3))


@pytest.mark.parametrize("n", [0, 3])
def test_k_beyond_the_count_is_padded(n):
    index = dci.Index(8)
    index.add(normal(n, 8))
    ids, scores = index.search(normal(2, 8), 5)
    assert (ids[:, n:] == -1).all() and np.isnan(scores[:, n:]).all()
    assert (np.sort(ids[:, :n], axis=1) == np.arange(n)).all() and np.isfinite(scores[:, :n]).all()


def test_out_is_written_and_returned():
    index = dci.Index(8)
    index.add(normal(20, 8))
    out = np.empty((2, 4), np.int64), np.empty((2, 4), np.float32)
    ids, scores = index.search(normal(2, 8), 4, out=out)
    assert ids is out[0] and scores is out[1]
    wanted = index.search(normal(2, 8), 4)
    np.testing.assert_array_equal(ids, wanted[0])
    np.testing.assert_array_equal(scores, wanted[1])


@pytest.mark.parametrize(
    "out",
    [
        (np.empty((2, 3), np.int64), np.empty((2, 4), np.float32)),
        (np.empty((2, 4), np.int32), np.empty((2, 4), np.float32)),
        (np.empty((2, 4), np.int64), np.empty((2, 4), np.float64)),
        (np.empty((4, 2), np.int64).T, np.empty((2, 4), np.float32)),
        (np.broadcast_to(np.int64(0), (2, 4)), np.empty((2, 4), np.float32)),
    ],
)
def test_an_out_that_does_not_fit_is_refused(out):
    index = dci.Index(8)
    with pytest.raises(dci.InvalidError, match=r"out: .* shape"):
        index.search(normal(2, 8), 4, out=out)


def test_stats_report_every_pair(keys, queries):
    index = dci.Index(64, dtype="float16")
    index.add(keys)
    *_, stats = index.search(queries[:3], 2, stats=True)
    every = 3 * len(keys)
    assert stats == dci.SearchStats(3, visited=every, distances=every, proposed=0, candidates=every, target_recall=0.95)
    *_, stats = index.range_search(queries[0], 0.0, stats=True)
    assert (stats.queries, stats.visited) == (1, len(keys))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n_queries", [1, 40])
def test_range_search_is_the_head_of_a_full_search(keys, queries, metric, n_queries):
    index = dci.Index(64, metric, dtype="float16")
    index.add(keys)
    every_id, every_score = index.search(queries[:n_queries], len(keys))
    radius = np.median(every_score[:, 50])
    inside = every_score <= radius if metric == "l2" else every_score >= radius
    offsets, ids, scores = index.range_search(queries[:n_queries], radius)
    assert (offsets.dtype, ids.dtype, scores.dtype) == (np.int64, np.int64, np.float32)
    assert ids.flags.owndata and scores.flags.owndata
    np.testing.assert_array_equal(np.diff(offsets), inside.sum(1))
    np.testing.assert_array_equal(ids, every_id[inside])
    np.testing.assert_array_equal(scores, every_score[inside])


def test_a_range_search_that_finds_nothing_is_empty():
    index = dci.Index(8, "ip")
    index.add(normal(20, 8))
    offsets, ids, scores = index.range_search(normal(3, 8), 1e9)
    assert offsets.tolist() == [0, 0, 0, 0] and ids.size == scores.size == 0
    offsets, ids, scores = index.range_search(normal(1, 8)[0], 1e9)
    assert offsets.tolist() == [0, 0]


def test_ids_are_the_callers_or_follow_the_largest():
    index = dci.Index(8)
    rows = normal(7, 8)
    index.add(rows[:2])
    index.add(rows[2:4], ids=[40, 7])
    index.add(rows[4:6])
    index.add(rows[6], ids=3)
    assert index.ids().tolist() == [0, 1, 3, 7, 40, 41, 42]
    np.testing.assert_array_equal(index.reconstruct([0, 1, 40, 7, 41, 42, 3]), rows)


def test_removed_rows_are_gone_and_their_ids_are_not_reused():
    index = dci.Index(8)
    rows = normal(50, 8)
    index.add(rows)
    index.remove([49, 3, 10])
    assert len(index) == index.count == 47
    ids, _ = index.search(normal(4, 8, seed=5), 50)
    assert set(ids.ravel()) == set(range(50)) - {3, 10, 49} | {-1}
    index.add(rows[:1])
    assert index.ids()[-1] == 50
    index.remove([])
    assert len(index) == 48


@pytest.mark.parametrize("storage", ["owned", "borrowed"])
def test_an_emptied_index_can_be_filled_again(storage):
    index = dci.Index(8, storage=storage)
    rows = normal(50, 8)
    for n in (1, 3, 50, 2):
        index.add(rows[:n])
        np.testing.assert_array_equal(index.reconstruct(index.ids()), rows[:n])
        index.remove(index.ids())
        assert len(index) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_reconstruct_returns_the_stored_rows(dtype):
    rows = stored(normal(30, 16), dtype)
    index = dci.Index(16, "cosine", dtype=dtype)
    index.add(rows)
    got = index.reconstruct(np.array([5, 5, 29], np.int32))
    assert got.dtype == rows.dtype
    np.testing.assert_array_equal(got, rows[[5, 5, 29]])
    np.testing.assert_array_equal(index.reconstruct(7), rows[7])
    assert index.reconstruct([]).shape == (0, 16)


def test_cosine_keeps_zero_rows_when_asked():
    index = dci.Index(4, "cosine", zero_rows="keep")
    index.add([[0, 0, 0, 0], [-1, 0, 0, 0], [2, 0, 0, 0]])
    ids, scores = index.search([1, 0, 0, 0], 3)
    assert ids.tolist() == [2, 0, 1] and scores.tolist() == [1, 0, -1]


def test_reserve_takes_the_memory_of_the_rows():
    index = dci.Index(64)
    index.reserve(1000)
    report = index.memory()
    assert report["rows"] >= 1000 * 64 * 4
    index.add(normal(1000, 64))
    assert index.memory()["rows"] == report["rows"]
    assert report["total"] == sum(report[part] for part in ("rows", "ids", "norms", "projections", "codes", "other"))


def test_properties_say_what_the_index_is():
    context = dci.Context(threads=1)
    with dci.Index(12, "l2", dtype=np.float16, input_dtype=np.float32, context=context) as index:
        index.add(normal(2, 12))
        assert (index.dim, index.metric, index.kind, index.dtype) == (12, "l2", "flat", "float16")
        assert (index.input_dtype, index.storage, index.context) == ("float32", "owned", context)
        assert index.sketch_bits == 0 and dci.Index(12, sketch_bits=3).sketch_bits == 3
        assert repr(index) == "Index(dim=12, metric='l2', kind='flat', dtype='float16', count=2)"
    assert repr(index) == "Index(dim=12, metric='l2', kind='flat', dtype='float16', closed)"
    index.close()
    for call in (index.ids, index.memory, lambda: len(index), lambda: index.add([[0] * 12])):
        with pytest.raises(dci.InvalidError, match="closed"):
            call()


def test_an_empty_index_is_true():
    assert dci.Index(4)


def test_a_context_is_shared_by_copies_and_cannot_be_pickled():
    context = dci.Context()
    assert copy.copy(context) is context and copy.deepcopy({"context": context})["context"] is context
    with pytest.raises(TypeError, match="a Context cannot be pickled, as its threads belong to this process"):
        pickle.dumps(context)


def test_numpy_blas_and_the_library_share_a_process(keys, queries):
    rows, asked = keys.astype(np.float32), queries.astype(np.float32)
    before = asked @ rows.T
    index = dci.Index(64, "ip")
    index.add(rows)
    ids, scores = index.search(asked, 10)
    np.testing.assert_array_equal(asked @ rows.T, before)
    assert_exact((ids, scores), rows, asked, "ip")
