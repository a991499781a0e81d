# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Clusters as an object: fitted once, and then asked where other rows belong."""

from __future__ import annotations

from typing import Any, Callable, Literal, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError, NumberError
from ._rows import in_own_format
from ._tensors import widened
from .clusters import Floats, Integers, KMeansReport, KMeansResult, kmeans
from .context import Context
from .index import Index

T = TypeVar("T")

# Squared lengths below this have no direction, as in dci_kmeans.
_LEAST_SQUARE = 2.0**-80


class KMeans:
    """k-means whose clusters are kept: fit makes them, predict tells where other rows belong.

        model = dci.KMeans(64, metric="l2", init="plusplus", n_redo=4).fit(keys)
        model.ids[model.offsets[5] : model.offsets[6]]  # the rows of cluster 5
        model.predict(new_keys)

    n_clusters  of each problem, 1 to the number of rows.
    metric      "cosine", "l2" or "ip"; and the other options, as dci.kmeans has them. fit checks them.
    context     threads and instruction set; None: default_context(). A KMeans with None can be pickled.

    New clusters next to old ones (first_row, first_cluster, first_problem) and a choice of outputs are the function's alone.
    Calls may come from any thread: a fit takes effect when it is done, and one that fails changes nothing.
    """

    def __init__(
        self,
        n_clusters: SupportsIndex,
        metric: str = "cosine",
        *,
        init: str = "random",
        centroid: str = "unit",
        zero_rows: str = "refuse",
        subtract_mean: Literal["own"] | npt.ArrayLike | None = None,
        n_iter: SupportsIndex = 20,
        tolerance: float = 0.0,
        n_redo: SupportsIndex = 1,
        seed: SupportsIndex = 0,
        capacity: SupportsIndex | None = None,
        segment_rows: SupportsIndex | None = None,
        n_iter_global: SupportsIndex = 0,
        context: Context | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.zero_rows = zero_rows
        self.context = context
        self._options: dict[str, Any] = {
            "init": init,
            "centroid": centroid,
            "subtract_mean": subtract_mean,
            "n_iter": n_iter,
            "tolerance": tolerance,
            "n_redo": n_redo,
            "seed": seed,
            "capacity": capacity,
            "segment_rows": segment_rows,
            "n_iter_global": n_iter_global,
        }
        self._result: KMeansResult | None = None

    def fit(
        self,
        rows: npt.ArrayLike,
        *,
        centroids: npt.ArrayLike | None = None,
        values: npt.ArrayLike | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> KMeans:
        """Clusters rows (n, dim), or (n_problems, n, dim) for independent problems, in place of those fitted before.

        centroids   a warm start, (n_clusters, dim) or (n_problems, n_clusters, dim), such as those of an earlier fit.
        values      (n, value_dim) or (n_problems, n, value_dim): summed by cluster.
        progress    as in dci.kmeans.

        Returns self.
        """
        self._result = kmeans(
            rows,
            self.n_clusters,
            metric=self.metric,
            zero_rows=self.zero_rows,
            **self._options,
            centroids=centroids,
            values=values,
            progress=progress,
            context=self.context,
        )
        return self

    def predict(self, rows: npt.ArrayLike) -> Integers:
        """The nearest centroid of each row by the metric, of equal ones that of the lower number: int32, (n,), or
        (n_problems, n) if problems were fitted.

        rows        (n, dim), or (n_problems, n, dim) with as many problems as were fitted and any n.

        Rows that were fitted get their labels again, but for those that two centroids are equally near within the rounding
        of float32. A capacity has no part in it: with one, fit may have put a row into another cluster.
        """
        found = self.result
        centroids, means = _there(found.centroids), _there(found.row_means)
        array, form = in_own_format(rows, "rows")
        lead, dim = centroids.shape[:-2], centroids.shape[-1]
        if array.shape[:-2] != lead or array.ndim != len(lead) + 2 or array.shape[-1] != dim:
            raise InvalidError(f"rows has shape {array.shape}, wanted ({', '.join(map(str, (*lead, 'n', dim)))})")
        out = np.empty(array.shape[:-1], np.int32)
        for number, at in enumerate(np.ndindex(lead)):
            wide = widened(array[at]) if form.name == "bfloat16" else np.asarray(array[at], np.float32)
            moved = wide - means[at] if means[at].any() else wide
            keep = self.zero_rows == "keep"
            out[at] = nearest_centroids(moved, centroids[at], found.metric, keep, self.context, number)
        return out

    def fit_predict(self, rows: npt.ArrayLike) -> Integers:
        """Clusters rows, and returns their labels."""
        return self.fit(rows).labels

    @property
    def result(self) -> KMeansResult:
        """All that the last fit gave."""
        if self._result is None:
            raise InvalidError("this KMeans has no clusters yet: call fit first")
        return self._result

    @property
    def n_problems(self) -> int | None:
        """Problems that were fitted; None: rows (n, dim), and arrays without that axis."""
        return self.result.n_problems

    @property
    def labels(self) -> Integers:
        """(n,) int32: the number of each row's cluster. Of problems, n_problems in front, here and below."""
        return _there(self.result.labels)

    @property
    def centroids(self) -> Floats:
        """(n_clusters, dim) float32, the subtracted mean not added back."""
        return _there(self.result.centroids)

    @property
    def means(self) -> Floats:
        """(n_clusters, dim) float32: means of the rows of each cluster as they were given."""
        return _there(self.result.means)

    @property
    def sizes(self) -> Integers:
        """(n_clusters,) int32: rows of each cluster."""
        return _there(self.result.sizes)

    @property
    def offsets(self) -> Integers:
        """(n_clusters + 1,) int32: where the rows of each cluster begin in ids."""
        return _there(self.result.offsets)

    @property
    def ids(self) -> Integers:
        """(n,) int32: numbers of rows by cluster, ascending within one; those of cluster c are
        ids[offsets[c] : offsets[c + 1]]."""
        return _there(self.result.ids)

    @property
    def value_sums(self) -> Floats | None:
        """(n_clusters, value_dim) float32: sums of the values of each cluster's rows; None without values."""
        return self.result.value_sums

    @property
    def row_means(self) -> Floats:
        """(dim,) float32: what is subtracted from rows, by predict too; zeros if nothing."""
        return _there(self.result.row_means)

    @property
    def reports(self) -> tuple[KMeansReport, ...]:
        """What happened to each problem; one for rows (n, dim)."""
        return _there(self.result.reports)

    @property
    def objective(self) -> float:
        """KMeansReport.objective, of all problems together."""
        return sum(report.objective for report in self.reports)

    def __repr__(self) -> str:
        fitted = "not fitted" if self._result is None else repr(self._result)
        return f"KMeans(n_clusters={self.n_clusters}, metric={self.metric!r}: {fitted})"


def _there(output: T | None) -> T:
    assert output is not None  # fit asks for all outputs
    return output


def nearest_centroids(
    rows: Floats, centroids: Floats, metric: str, keep: bool, context: Context | None, problem: int = 0
) -> Integers:
    """The nearest of centroids (n_clusters, dim) for each of rows (n, dim): (n,) int32. keep: under "cosine", rows without
    direction get 0. NumberError names the first row that cannot be used, and the problem."""
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    if not np.isfinite(squares).all():
        at = int(np.isfinite(squares).argmin())
        raise NumberError(f"row {at} of problem {problem} holds NaN or infinity")
    if metric != "cosine":
        return _nearest(rows, centroids, metric, context)
    lost = squares < _LEAST_SQUARE
    if not keep and lost.any():
        at = int(lost.argmax())
        raise NumberError(f"row {at} of problem {problem} has length 0, which has no cosine; zero_rows may keep it")
    # Of unit vectors the highest cosine is the least distance, which rounding does not blur where all cosines are near 1.
    ends = _unit(centroids, np.einsum("ij,ij->i", centroids, centroids, dtype=np.float64))
    out = _nearest(_unit(rows, np.where(lost, np.inf, squares)), ends, "l2", context)
    out[lost] = 0
    return out


def _nearest(rows: Floats, centroids: Floats, metric: str, context: Context | None) -> Integers:
    index = Index(centroids.shape[1], metric, context=context)
    index.add(centroids)
    return index.search(rows, 1)[0][:, 0].astype(np.int32)


def _unit(rows: Floats, squares: npt.NDArray[np.float64]) -> Floats:
    """Rows of length one, of their squared lengths; zeros where that is infinite."""
    return np.divide(rows, np.sqrt(squares)[:, None], out=np.empty(rows.shape, np.float32), casting="same_kind")
