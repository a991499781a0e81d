# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Exact nearest neighbours without an index of one's own: of queries among rows, and of rows among each other."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError
from ._library import metric_of
from ._rows import Progress, RowFormat, as_count, as_rows, in_own_format
from ._search import Ids, Scores
from .context import Context
from .index import Index


def knn(
    x: npt.ArrayLike,
    q: npt.ArrayLike,
    k: SupportsIndex = 10,
    metric: str = "l2",
    *,
    dtype: npt.DTypeLike | None = None,
    query_dtype: npt.DTypeLike | None = None,
    zero_rows: str | None = None,
    progress: Progress | None = None,
    context: Context | None = None,
) -> tuple[Ids, Scores]:
    """Finds the k best of the rows x for each query, exactly, by one search: no index is kept.

    x       (n, dim). float16, bfloat16 and float32 are read in place, as Index has it; all other numbers as float32.
    q       (n_queries, dim), or (dim,) for one; its format need not be that of x.
    k       may exceed the number of rows: results are padded with id -1 and score NaN.
    metric  "l2" (squared distances, ascending), "ip" or "cosine" (descending), and the other words that Index takes.
    dtype, query_dtype
            None: what the arrays are. "bfloat16": a uint16 array x or q holds its bits; other names as for Index.
    zero_rows
            "cosine" only, as for Index.
    progress
            as for Index.search.
    context threads and instruction set; None: default_context().

    Returns ids, the positions in x, and scores, of shape (n_queries, k), or (k,) for a one-dimensional q, best first, ties
    by lower id: what Index(dim, metric) with these rows answers. For more than a few calls over the same rows make that
    Index.
    """
    rows, form = _rows(x, "x", dtype)
    asked, asked_form = in_own_format(q, "q", query_dtype, "query_dtype")
    if asked.ndim not in (1, 2) or asked.shape[-1] != rows.shape[1]:
        raise InvalidError(f"q has shape {asked.shape}, wanted (n, {rows.shape[1]}) or ({rows.shape[1]},), as x has it")
    return _index(rows, form, asked_form, metric, zero_rows, context).search(asked, k, progress=progress)


def knn_graph(
    x: npt.ArrayLike,
    k: SupportsIndex = 10,
    metric: str = "l2",
    *,
    dtype: npt.DTypeLike | None = None,
    zero_rows: str | None = None,
    progress: Progress | None = None,
    context: Context | None = None,
) -> tuple[Ids, Scores]:
    """Finds for each of the rows x the k best of the others, exactly: the graph of nearest neighbours.

    k       1 or more; beyond n - 1 results are padded with id -1 and score NaN.

    All else as for knn. A row is never among its own neighbours; rows equal to it are. Returns ids and scores of shape
    (n, k).
    """
    rows, form = _rows(x, "x", dtype)
    wanted = as_count(k, "k", 2**24 - 1)
    if wanted == 0:
        raise InvalidError("k is 0, expected at least 1")
    ids, scores = _index(rows, form, form, metric, zero_rows, context).search(rows, wanted + 1, progress=progress)
    return without_self(ids, scores)


def without_self(ids: npt.NDArray[Any], scores: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Takes the row's own position out of each row of results; where others crowded it out, the last one."""
    own = ids == np.arange(len(ids))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(ids), ids.shape[1] - 1)
    return ids[~own].reshape(shape), scores[~own].reshape(shape)


def _rows(given: npt.ArrayLike, what: str, dtype: npt.DTypeLike | None) -> tuple[npt.NDArray[Any], RowFormat]:
    """Rows that an index can borrow."""
    rows, form = in_own_format(given, what, dtype)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InvalidError(f"{what} has shape {rows.shape}, wanted (n, dim)")
    return as_rows(rows, rows.shape[1], form, what)[0], form


def _index(
    rows: npt.NDArray[Any], form: RowFormat, asked: RowFormat, metric: str, zero_rows: str | None, context: Context | None
) -> Index:
    index = Index(
        rows.shape[1],
        metric_of(metric),
        dtype=form.name,
        input_dtype=asked.name,
        storage="borrowed",
        zero_rows=zero_rows,
        context=context,
    )
    index.add(rows)
    return index


__all__ = ["knn", "knn_graph", "without_self"]
