# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci.knn and dci.knn_graph: what an exact index answers, and the graph without a row's own self."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
from conftest import DTYPES, METRICS, assert_exact, assert_same, in_float64, normal, stored, true_scores

import dci


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_knn_is_an_exact_index_of_the_rows(metric, dtype):
    rows, asked = stored(normal(300, 24), dtype), normal(7, 24, 2)
    found = dci.knn(rows, asked, 9, metric, dtype=dtype)
    assert_exact(found, rows, asked, metric)
    index = dci.Index(24, metric)
    index.add(rows if dtype == "float16" else in_float64(rows).astype(np.float32))
    assert_same(found, index.search(asked, 9))
    assert_same(dci.knn(rows, asked[0], 9, metric, dtype=dtype), (found[0][0], found[1][0]))


def test_knn_keeps_nothing_and_copies_no_rows():
    rows = normal(50_000, 64)
    before = sys.getrefcount(rows)
    ids, scores = dci.knn(rows, rows[:2])
    gc.collect()
    assert sys.getrefcount(rows) == before
    assert ids.shape == scores.shape == (2, 10) and ids[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("metric", METRICS)
def test_the_graph_is_the_best_of_the_others(metric):
    rows = normal(120, 12)
    ids, scores = dci.knn_graph(rows, 7, metric)
    truth, allowed = true_scores(rows, rows, metric)
    sign = 1.0 if metric == "l2" else -1.0
    order = sign * truth
    np.fill_diagonal(order, np.inf)
    assert (ids != np.arange(120)[:, None]).all() and ids.shape == (120, 7)
    at = np.arange(120)[:, None]
    kth = np.sort(order, 1)[:, 6:7]
    assert (order[at, ids] <= kth + 2 * allowed[at, ids]).all()
    assert (np.abs(scores - truth[at, ids]) <= allowed[at, ids]).all()
    assert (np.diff(sign * scores.astype(np.float64), axis=1) >= 0).all()


def test_equal_rows_are_each_others_neighbours():
    rows = np.repeat(normal(3, 5), 6, axis=0)
    ids, scores = dci.knn_graph(rows, 5)
    for i, row in enumerate(ids):
        assert sorted(row) == [j for j in range(i // 6 * 6, i // 6 * 6 + 6) if j != i]
    assert (scores == 0).all()


def test_more_than_there_are_is_padded():
    ids, scores = dci.knn_graph(normal(4, 3), 6)
    assert (ids[:, 3:] == -1).all() and np.isnan(scores[:, 3:]).all() and (ids[:, :3] >= 0).all()
    ids, scores = dci.knn(normal(2, 3), normal(1, 3), 4)
    assert (ids[0, 2:] == -1).all()


def test_layouts_that_cannot_be_read_in_place_are_copied():
    rows = normal(60, 10)
    wanted = dci.knn_graph(rows, 3)
    for given in (np.asfortranarray(rows), rows.astype(np.float64), rows.tolist(), np.repeat(rows, 2, 1)[:, ::2]):
        assert_same(dci.knn_graph(given, 3), wanted)


@pytest.mark.parametrize("call", [dci.knn_graph, lambda x, k, **more: dci.knn(x, x, k, **more)])
def test_progress_is_told_and_may_cancel(call):
    rows, told = normal(3000, 16), []
    call(rows, 3, progress=lambda done, total: told.append((done, total)))
    assert told and told[-1][0] <= told[-1][1]
    with pytest.raises(dci.CancelledError):
        call(rows, 3, progress=lambda *_: True)


def test_zero_rows_of_cosine_are_refused_or_kept():
    rows = normal(9, 4)
    rows[3] = 0
    with pytest.raises(dci.NumberError, match="row 3"):
        dci.knn_graph(rows, 2, "cosine")
    assert dci.knn_graph(rows, 2, "cos", zero_rows="keep")[0].shape == (9, 2)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda x: dci.knn(x, x[:, :3]), r"q has shape (20, 3), wanted (n, 5) or (5,)"),
        (lambda x: dci.knn(x[0], x), "x has shape (5,), wanted (n, dim)"),
        (lambda x: dci.knn_graph(x[None]), "x has shape (1, 20, 5), wanted (n, dim)"),
        (lambda x: dci.knn_graph(x, 0), "k is 0"),
        (lambda x: dci.knn_graph(x, -1), "k is -1"),
        (lambda x: dci.knn(x, x, 0), "k is 0"),
        (lambda x: dci.knn(x, x, 3, "manhattan"), "metric is 'manhattan', wanted one of 'l2', 'ip', 'cosine'"),
        (lambda x: dci.knn(x, x, 3, "l2", zero_rows="keep"), "zero_rows is 'keep', an option of metric 'cosine'"),
        (lambda x: dci.knn(x, x, 3, dtype="float64"), "dtype is 'float64'"),
    ],
)
def test_refusals_name_the_argument(call, part):
    with pytest.raises(dci.InvalidError) as caught:
        call(normal(20, 5))
    assert part in str(caught.value)
