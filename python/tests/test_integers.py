# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Rows of int8 and uint8: stored as they are, scored exactly for queries of integers, as float32 for others."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from conftest import METRICS

import dci

INTEGERS = ("int8", "uint8")


def numbers(shape: tuple[int, int], dtype: str, seed: int) -> Any:
    bounds = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def exact(rows: Any, queries: Any, metric: str, k: int) -> tuple[Any, Any]:
    """Ids and scores by sums of 64 bits, rounded once; ties go to the lower id."""
    x, q = rows.astype(np.int64), queries.astype(np.int64)
    dots, one = q @ x.T, np.float32(1)
    norms = [np.einsum("ij,ij->i", a, a) for a in (q, x)]
    scores = dots.astype(np.float32)
    if metric == "l2":
        scores = (norms[0][:, None] + norms[1] - 2 * dots).astype(np.float32)
    if metric == "cosine":
        of_query, of_row = (one / np.sqrt(norm.astype(np.float32)) for norm in norms)
        scores = scores * of_row * of_query[:, None]
    order = np.argsort(scores if metric == "l2" else -scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("kind", ("flat", "pdci", "mdci"))
def test_queries_of_any_dtype_are_answered_exactly(kind, dtype, metric):
    rows, queries = numbers((1200, 53), dtype, 1), numbers((30, 53), dtype, 2)
    ids, scores = exact(rows, queries, metric, 9)
    index = dci.Index(53, metric, kind=kind, dtype=dtype)
    index.add(rows)
    for given in (queries, queries.astype(np.float32), queries.astype(np.int64), queries.tolist()):
        found = index.search(given, 9, recall=1)
        assert (found[0] == ids).all()
        assert found[1] == pytest.approx(scores, rel=1e-6) if metric == "cosine" else (found[1] == scores).all()
        assert (index.search(given[4], 9, recall=1)[0] == ids[4]).all()
    assert (index.reconstruct(range(1200)) == rows).all() and index.reconstruct(3).dtype == dtype
    assert index.dtype == dtype and index.memory()["rows"] < 2 * rows.nbytes


@pytest.mark.parametrize("dtype", INTEGERS)
def test_other_queries_are_those_of_float32(dtype):
    rows = numbers((800, 24), dtype, 3)
    queries = np.random.default_rng(4).normal(0, 50, (25, 24)).astype(np.float32)
    index, wide = dci.Index(24, "l2", dtype=dtype), dci.Index(24, "l2")
    index.add(rows)
    wide.add(rows)
    for found, wanted in zip(index.search(queries, 5), wide.search(queries, 5)):
        assert (found == wanted).all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_rows_of_other_dtypes_enter_where_they_fit(dtype):
    rows = numbers((50, 6), dtype, 5)
    for given in (np.float32, np.float64, np.int16, np.uint16, np.int64, np.float16):
        if dtype == "int8" and given is np.uint16:
            continue
        index = dci.Index(6, "l2", dtype=dtype)
        index.add(rows.astype(given))
        assert (index.reconstruct(range(50)) == rows).all()
    index = dci.Index(6, "l2", dtype=dtype, input_dtype="float32")
    index.add(rows)
    assert (index.reconstruct(range(50)) == rows).all()


@pytest.mark.parametrize("bad", (0.5, -129.0, 256.0, float("nan"), float("inf")))
@pytest.mark.parametrize("dtype", INTEGERS)
def test_what_does_not_fit_is_refused_naming_it(dtype, bad):
    rows = np.ones((4, 3))
    rows[2, 1] = bad
    index = dci.Index(3, "l2", dtype=dtype)
    with pytest.raises(dci.NumberError, match=rf"row 2, column 1 of x is {bad:.9g}, {dtype} holds integers from"):
        index.add(rows)
    index = dci.Index(3, "l2", dtype=dtype, input_dtype="float32")
    with pytest.raises(dci.NumberError, match="row 2: element 1 is"):
        index.add(rows)
    assert len(index) == 0
    index = dci.Index(3, "l2", dtype=dtype, input_dtype=dtype)
    index.add(np.ones((4, 3), dtype))
    with pytest.raises(dci.NumberError, match="row 2, column 1 of q is"):
        index.search(rows, 1)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_copies_files_and_borrowed_rows_answer_the_same(dtype, tmp_path):
    rows, queries = numbers((400, 11), dtype, 6), numbers((20, 11), dtype, 7)
    index = dci.Index(11, "l2", dtype=dtype, storage="borrowed")
    index.add(rows)
    wanted = index.search(queries, 4)
    path = tmp_path / "rows.dci"
    index.save(path)
    for other in (copy.copy(index), dci.Index.load(path), dci.Index.map(path)):
        found = other.search(queries + np.float32(0), 4)
        assert (found[0] == wanted[0]).all() and (found[1] == wanted[1]).all()
        assert other.dtype == dtype and (other.reconstruct([7, 0]) == rows[[7, 0]]).all()


def test_a_sketch_and_a_cache_refuse_them_by_name():
    with pytest.raises(dci.InvalidError, match="dtype is 'int8', wanted one of 'float32', 'float16', 'bfloat16'"):
        dci.Sketch(8, 4, dtype="int8")
    with pytest.raises(dci.InvalidError, match="dtype is 'uint8'"):
        dci.KVCache(n_layers=1, n_query_heads=1, n_kv_heads=1, dim_k=64, dtype="uint8")
