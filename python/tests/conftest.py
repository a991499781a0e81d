# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What the tests share: the repository's trace, reproducible rows, and exact search in float64."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dci

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "bench" / "data" / "smollm2-debref-layer06_head0"

METRICS = ("ip", "l2", "cosine")
DTYPES = ("float32", "float16", "bfloat16")


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background of a shell, which has it ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.fixture(scope="session")
def keys() -> Any:
    """Keys of one attention head: (7680, 64) float16."""
    return np.load(TRACE / "keys.npy")


@pytest.fixture(scope="session")
def queries() -> Any:
    """40 queries of that head, from all three query heads: (40, 64) float16."""
    every = np.load(TRACE / "queries.npy").reshape(-1, 64)
    return every[:: len(every) // 40][:40].copy()


# Options of a tree with three levels of nodes from some hundred rows on.
DEEP: dict[str, Any] = {"promotion_prob": 0.2, "promotion_prob_subseq": 0.3, "top_nodes": 8, "page_rows": 4}

# What an index that was made exact (recall=1.0) does by itself, and an effort that leaves nothing out.
EXACT: dict[str, float] = {"recall": 1.0}
FULL: dict[str, float] = {
    "prop_to_visit": 1.0,
    "prop_to_retrieve": 1.0,
    "num_to_visit": 0,
    "num_to_retrieve": 0,
    "field_of_view": 0,
    "rerank": 0.0,
    "guarantee": 0.0,
}


def of_kind(kind: str, rows: Any, metric: str = "ip", ids: Any = None, **options: Any) -> dci.Index:
    """An index of a kind that holds these rows, in their format; exact unless a search or an option says otherwise."""
    dtype = "bfloat16" if rows.dtype == np.uint16 else rows.dtype
    index = dci.Index(rows.shape[1], metric, kind=kind, dtype=dtype, **{"recall": 1.0, **options})
    index.add(rows, ids)
    return index


def assert_same(found: Any, wanted: Any) -> None:
    """Two results are equal, array by array."""
    for got, want in zip(found, wanted):
        np.testing.assert_array_equal(got, want)


def recall(found: Any, wanted: Any) -> float:
    """The share of the wanted ids, (n_queries, k), that were found."""
    return float(sum(np.intersect1d(got, want).size for got, want in zip(found, wanted)) / wanted.size)


def run_all(functions: Any) -> None:
    """Runs the functions on a thread each; raises what the first of them raised."""
    errors: list[BaseException] = []

    def kept(function: Any) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=kept, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# Options of an index of each form.
KINDS: dict[str, dict[str, Any]] = {
    "flat": {},
    "flat with codes": {"sketch_bits": 4},
    "pdci": {"kind": "pdci"},
    "mdci": {"kind": "mdci"},
    "mdci with codes": {"kind": "mdci", "sketch_bits": 2},
    "borrowed": {"storage": "borrowed"},
}


def normal(n: int, dim: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def to_bits(rows: Any) -> Any:
    """float32 as bfloat16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def stored(rows: Any, dtype: str) -> Any:
    """Rows in a storage format, as the package takes and gives them."""
    return to_bits(rows) if dtype == "bfloat16" else rows.astype(dtype)


def in_float64(rows: Any) -> Any:
    """The exact values of rows in any storage format."""
    if rows.dtype == np.uint16:
        return (rows.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return rows.astype(np.float64)


def sketched(rows: Any, bits: int = 4, **options: Any) -> dci.Sketch:
    """A sketch of these rows, in their format."""
    dtype = "bfloat16" if rows.dtype == np.uint16 else rows.dtype
    sketch = dci.Sketch(rows.shape[1], bits, dtype=dtype, **options)
    sketch.append(rows)
    return sketch


def within(sketch: dci.Sketch, rows: Any, asked: Any, probability: float = 1.0, **part: Any) -> Any:
    """Which estimates lie within the bound of the inner products."""
    first = part.get("first", 0)
    truth = in_float64(asked) @ in_float64(rows[first : first + part.get("n", len(rows))]).T
    return np.abs(sketch.score(asked, **part) - truth) <= sketch.bound(asked, probability=probability, **part)


def true_scores(rows: Any, queries: Any, metric: str) -> tuple[Any, Any]:
    """Scores in float64, (n_queries, n_rows), and the error that index.h allows for each."""
    x, q = in_float64(rows), in_float64(queries)
    step = (x.shape[1] / 16 + 6) * 2.0**-24
    if metric == "ip":
        return q @ x.T, step * (np.abs(q) @ np.abs(x).T)
    if metric == "l2":
        squared = np.stack([((x - one) ** 2).sum(1) for one in q])
        return squared, step * squared
    cosines = (q @ x.T) / np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(x, axis=1))
    return cosines, np.full(cosines.shape, 2.0**-20)


def assert_exact(found: tuple[Any, Any], rows: Any, queries: Any, metric: str) -> None:
    """`found` is an exact search's answer for rows whose ids are their positions: each score is within the stated rounding
    of the true one, the order is that of the scores, ties by lower id, and no better row was left out."""
    ids, scores = found
    truth, allowed = true_scores(rows, queries, metric)
    sign = 1.0 if metric == "l2" else -1.0
    at = np.arange(len(ids))[:, None]
    assert ids.min() >= 0
    assert (np.abs(scores - truth[at, ids]) <= allowed[at, ids]).all()
    worse = np.diff(sign * scores.astype(np.float64), axis=1)
    assert ((worse > 0) | ((worse == 0) & (np.diff(ids, axis=1) > 0))).all()
    missed = np.ones(truth.shape, bool)
    missed[at, ids] = False
    # A row left out may beat the last one returned by no more than rounding can explain.
    best_missed = np.where(missed, sign * truth + allowed, np.inf).min(1)
    assert (sign * scores[:, -1].astype(np.float64) <= best_missed).all()
