# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What include/dci/kmeans.h promises, in NumPy and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import in_float64, normal

import dci


def clustered(n: int, dim: int, n_centres: int, seed: int = 1) -> Any:
    """Rows (n, dim) float32 that lie in clusters well apart, in no order, off the origin."""
    centres = 4 * normal(n_centres, dim, seed) + 3
    of = np.random.default_rng(seed + 1000).permutation(np.arange(n) % n_centres)
    return centres[of] + 0.3 * normal(n, dim, seed + 2000)


def layer(n_problems: int, n: int, dim: int, n_centres: int, seed: int = 1) -> Any:
    """Problems (n_problems, n, dim), each with clusters of its own."""
    return np.stack([clustered(n, dim, n_centres, seed + 10 * p) for p in range(n_problems)])


def unit(rows: Any) -> Any:
    """Rows of length one; those of zeros stay as they are."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(length == 0, 1, length)


def closeness(rows: Any, centroids: Any, metric: str) -> Any:
    """(n, n_clusters): more is nearer."""
    if metric == "l2":
        return -np.stack([((rows - one) ** 2).sum(1) for one in centroids], axis=1)
    return unit(rows) @ unit(centroids).T if metric == "cosine" else rows @ centroids.T


def lloyd(rows: Any, centroids: Any, metric: str, n_iter: int, centroid: str = "unit") -> tuple[Any, Any]:
    """Labels and centroids after so many rounds from given centroids; no cluster may become empty."""
    rows, centroids = in_float64(rows), in_float64(centroids)
    for _ in range(n_iter):
        labels = closeness(rows, centroids, metric).argmax(1)
        points = unit(rows) if metric == "cosine" and centroid == "unit" else rows
        centroids = np.stack([points[labels == c].mean(0) for c in range(len(centroids))])
        if metric == "cosine" and centroid == "unit":
            centroids = unit(centroids)
    return closeness(rows, centroids, metric).argmax(1), centroids


def problems_of(result: dci.KMeansResult) -> list[dict[str, Any]]:
    """The arrays of each problem, and its report."""
    names = ("labels", "centroids", "means", "sizes", "offsets", "ids", "value_sums", "row_means")
    if result.n_problems is None:
        return [{**{name: getattr(result, name) for name in names}, "report": result.reports[0]}]
    return [
        {
            **{name: None if getattr(result, name) is None else getattr(result, name)[p] for name in names},
            "report": result.reports[p],
        }
        for p in range(result.n_problems)
    ]


def assert_right(result: dci.KMeansResult, rows: Any, values: Any = None) -> None:
    """Every array of a result with all outputs is what the header says of these rows; no capacity, no rows of zeros."""
    result.check()
    rows = rows if rows.ndim == 3 else rows[None]
    values = [None] * len(rows) if values is None else values if values.ndim == 3 else values[None]
    for one, x, v in zip(problems_of(result), rows, values):
        _assert_problem(result, one, in_float64(x), None if v is None else in_float64(v))


def _assert_problem(result: dci.KMeansResult, one: dict[str, Any], x: Any, v: Any) -> None:
    at = np.arange(len(x))
    labels = one["labels"] - result.first_cluster
    score = closeness(x - one["row_means"], one["centroids"].astype(np.float64), result.metric)
    allowed = 1e-5 * (1 + np.abs(score).max())
    assert (score[at, labels] >= score.max(1) - allowed).all()
    sign = -1 if result.metric == "l2" else 1
    np.testing.assert_allclose(one["report"].objective, sign * score[at, labels].sum(), rtol=1e-4, atol=allowed)
    sizes = np.bincount(labels, minlength=result.n_clusters)
    np.testing.assert_array_equal(one["sizes"], sizes)
    np.testing.assert_array_equal(one["offsets"], result.first_row + np.append(0, np.cumsum(sizes)))
    np.testing.assert_array_equal(one["ids"], result.first_row + np.argsort(labels, kind="stable"))
    assert (one["report"].largest, one["report"].n_empty) == (sizes.max(), (sizes == 0).sum())
    for c in range(result.n_clusters):
        mine = labels == c
        wanted = x[mine].mean(0) if mine.any() else one["centroids"][c] + one["row_means"].astype(np.float64)
        np.testing.assert_allclose(one["means"][c], wanted, rtol=1e-5, atol=1e-5 * np.abs(x).max())
        if v is not None:
            np.testing.assert_allclose(one["value_sums"][c], v[mine].sum(0), rtol=1e-5, atol=1e-5 * np.abs(v).max())
