# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Clusters as an object: fitted once, and then asked where other rows belong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Literal, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from ._errors import DciError, InvalidError, NumberError
from ._knn import knn
from ._rows import in_own_format
from ._tensors import widened
from .clusters import Floats, Integers, KMeansReport, KMeansResult, kmeans
from .context import Context
from .index import Index

T = TypeVar("T")

# Squared lengths below this have no direction, as in dci_kmeans.
_LEAST_SQUARE = 2.0**-80
# Options of dci.kmeans by scikit-learn's names.
_NAMES = (("n_redo", "n_init"), ("n_iter", "max_iter"), ("tolerance", "tol"), ("seed", "random_state"))


class KMeans:
    """k-means whose clusters are kept: fit makes them, predict tells where other rows belong.

        model = dci.KMeans(64, metric="l2", init="k-means++", n_init=4).fit(keys)
        model.ids[model.offsets[5] : model.offsets[6]]  # the rows of cluster 5
        model.predict(new_keys)

    n_clusters  of each problem, 1 to the number of rows.
    metric      "cosine" (the default, as of dci.kmeans and in C), "l2" or "ip", or another word that Index takes.
    init        as for dci.kmeans; or starting points, (n_clusters, dim), which are those of every fit that is given no
                centroids.
    n_init      runs from different random starts, of which the best is kept; None: 1. "auto": 10 for "random", else 1.
    max_iter    most rounds; None: 20.
    tol         a run ends when a round changes the objective by no more than this share of it; None: 0, when no label
                changes.
    random_state
                seed of the draws: a whole number, 0 to 2**64 - 1, which is what dci.kmeans calls seed; None: 0; or a
                generator of NumPy's, from which every fit draws one.
    context     threads and instruction set; None: default_context(). A copy and what is unpickled use default_context().

    The other options are those of dci.kmeans. Its names n_redo, n_iter, tolerance and seed are taken for n_init, max_iter,
    tol and random_state. fit checks all of them.

    What fit gives has two names: labels and labels_, centroids and cluster_centers_ (with a subtracted mean added back), and
    the rest of KMeansResult. New clusters next to old ones (first_row, first_cluster, first_problem) and a choice of outputs
    are the function's alone. Calls may come from any thread: a fit takes effect when it is done, and one that fails changes
    nothing.
    """

    def __init__(
        self,
        n_clusters: SupportsIndex,
        metric: str = "cosine",
        *,
        init: str | npt.ArrayLike = "random",
        centroid: str | None = None,
        zero_rows: str | None = None,
        subtract_mean: Literal["own"] | npt.ArrayLike | None = None,
        n_init: SupportsIndex | Literal["auto"] | None = None,
        max_iter: SupportsIndex | None = None,
        tol: float | None = None,
        random_state: Any = None,
        capacity: SupportsIndex | None = None,
        segment_rows: SupportsIndex | None = None,
        n_iter_global: SupportsIndex = 0,
        dtype: npt.DTypeLike | None = None,
        context: Context | None = None,
        n_redo: SupportsIndex | None = None,
        n_iter: SupportsIndex | None = None,
        tolerance: float | None = None,
        seed: SupportsIndex | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.init = init
        self.centroid = centroid
        self.zero_rows = zero_rows
        self.subtract_mean = subtract_mean
        self.n_init = _one_of_two("n_init", n_init, "n_redo", n_redo)
        self.max_iter = _one_of_two("max_iter", max_iter, "n_iter", n_iter)
        self.tol = _one_of_two("tol", tol, "tolerance", tolerance)
        self.random_state = _one_of_two("random_state", random_state, "seed", seed)
        self.capacity = capacity
        self.segment_rows = segment_rows
        self.n_iter_global = n_iter_global
        self.dtype = dtype
        self.context = context
        self._result: KMeansResult | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Threads belong to this process.
        return {**self.__dict__, "context": None}

    def _options(self) -> dict[str, Any]:
        """What dci.kmeans is to be called with."""
        options: dict[str, Any] = {
            "n_iter": self.max_iter,
            "tolerance": self.tol,
            "n_redo": self.n_init,
            "seed": _seed(self.random_state),
        }
        if isinstance(self.n_init, str):
            options["n_redo"] = runs_of(self.n_init, self.init)
        return {name: value for name, value in options.items() if value is not None}

    def fit(
        self,
        rows: npt.ArrayLike,
        y: Any = None,
        *,
        centroids: npt.ArrayLike | None = None,
        values: npt.ArrayLike | None = None,
        value_dtype: npt.DTypeLike | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> KMeans:
        """Clusters rows (n, dim), or (n_problems, n, dim) for independent problems, in place of those fitted before.

        y           is ignored, as pipelines pass it.
        centroids   a warm start, (n_clusters, dim) or (n_problems, n_clusters, dim), such as those of an earlier fit.
        values      (n, value_dim) or (n_problems, n, value_dim): summed by cluster.
        value_dtype, progress
                    as in dci.kmeans.

        Returns self.
        """
        init, from_init = self.init, centroids is None and not isinstance(self.init, str)
        with names_of_scikit_learn(from_init):
            self._result = kmeans(
                rows,
                self.n_clusters,
                metric=self.metric,
                init=init if isinstance(init, str) else "given",
                centroid=self.centroid,
                zero_rows=self.zero_rows,
                subtract_mean=self.subtract_mean,
                capacity=self.capacity,
                segment_rows=self.segment_rows,
                n_iter_global=self.n_iter_global,
                **self._options(),
                centroids=init if from_init else centroids,
                values=values,
                dtype=self.dtype,
                value_dtype=value_dtype,
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
        centroids = _there(found.centroids)
        array, problems = self._problems(rows, found)
        out = np.empty(array.shape[:-1], np.int32)
        for number, (at, moved) in enumerate(problems):
            keep = self.zero_rows == "keep"
            out[at] = nearest_centroids(moved, centroids[at], found.metric, keep, self.context, number)
        return out

    def _problems(
        self, rows: npt.ArrayLike, found: KMeansResult
    ) -> tuple[npt.NDArray[Any], Iterator[tuple[tuple[int, ...], Floats]]]:
        """Rows to compare with the centroids that were found, and of each problem its place and its rows as float32, less
        what was subtracted."""
        centroids, means = _there(found.centroids), _there(found.row_means)
        array, form = in_own_format(rows, "rows", self.dtype)
        lead, dim = centroids.shape[:-2], centroids.shape[-1]
        if array.shape[:-2] != lead or array.ndim != len(lead) + 2 or array.shape[-1] != dim:
            raise InvalidError(f"rows has shape {array.shape}, wanted ({', '.join(map(str, (*lead, 'n', dim)))})")

        def each() -> Iterator[tuple[tuple[int, ...], Floats]]:
            for at in np.ndindex(lead):
                wide = widened(array[at]) if form.name == "bfloat16" else np.asarray(array[at], np.float32)
                yield at, wide - means[at] if means[at].any() else wide

        return array, each()

    def fit_predict(self, rows: npt.ArrayLike, y: Any = None) -> Integers:
        """Clusters rows, and returns their labels."""
        return self.fit(rows).labels

    def transform(self, rows: npt.ArrayLike) -> Floats:
        """The distance of each row to each centroid, float32, (n, n_clusters), or (n_problems, n, n_clusters): Euclidean for
        "l2", 1 - cosine for "cosine"; for "ip" the inner product, of which more is nearer. rows as for predict."""
        found = self.result
        centroids = _there(found.centroids)
        array, problems = self._problems(rows, found)
        out = np.empty((*array.shape[:-1], centroids.shape[-2]), np.float32)
        for at, moved in problems:
            ends, zeros = centroids[at], self._zeros(found)
            ids, scores = knn(ends, moved, len(ends), found.metric, context=self.context, **zeros)
            np.put_along_axis(out[at], ids, scores, axis=-1)
        if found.metric == "l2":
            return np.sqrt(out, out=out)
        return np.maximum(1 - out, 0) if found.metric == "cosine" else out

    def fit_transform(self, rows: npt.ArrayLike, y: Any = None) -> Floats:
        """Clusters rows, and returns what transform says of them."""
        return self.fit(rows).transform(rows)

    def _zeros(self, found: KMeansResult) -> dict[str, Any]:
        return {"zero_rows": self.zero_rows} if found.metric == "cosine" else {}

    @property
    def result(self) -> KMeansResult:
        """All that the last fit gave."""
        if self._result is None:
            raise NotFittedError("this KMeans has no clusters yet: call fit first")
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

    @property
    def labels_(self) -> Integers:
        """labels, by scikit-learn's name."""
        return self.labels

    @property
    def cluster_centers_(self) -> Floats:
        """(n_clusters, dim) float32: centroids in the place of the rows, that is with row_means added back."""
        centroids, means = self.centroids, self.row_means
        return centroids + means[..., None, :] if means.any() else centroids

    @property
    def inertia_(self) -> float:
        """What the objective comes to as a sum of which less is better: of squared distances for "l2", of 1 - cosine for
        "cosine", of negative inner products for "ip"."""
        found = self.result
        if found.metric == "l2":
            return self.objective
        return (self.labels.size if found.metric == "cosine" else 0) - self.objective

    @property
    def n_iter_(self) -> int:
        """Rounds of the run that was kept; of problems, of the one that took most."""
        return max(report.n_rounds for report in self.reports)

    @property
    def n_features_in_(self) -> int:
        """Elements per row."""
        return int(self.centroids.shape[-1])

    def __repr__(self) -> str:
        fitted = "not fitted" if self._result is None else repr(self._result)
        return f"KMeans(n_clusters={self.n_clusters}, metric={self.metric!r}: {fitted})"


@contextmanager
def names_of_scikit_learn(from_init: bool) -> Iterator[None]:
    """A call of dci.kmeans, whose refusals are to be in scikit-learn's names of its options. from_init: the centroids are
    the caller's init."""
    try:
        yield
    except (DciError, TypeError) as error:
        before = sentence = str(error)
        for ours, theirs in (*_NAMES, *([("centroids(?= has| is)", "init")] if from_init else ())):
            sentence = re.sub(rf"^{ours}\b", theirs, sentence)
        if sentence != before:
            error.args = (sentence, *error.args[1:])
        raise


def runs_of(n_init: str, init: Any) -> int:
    """How many runs scikit-learn's "auto" stands for."""
    if n_init != "auto":
        raise InvalidError(f"n_init is {n_init!r}, wanted a number of runs or 'auto'")
    return 10 if isinstance(init, str) and init == "random" else 1


class NotFittedError(InvalidError, AttributeError):  # type: ignore[misc]
    """There are no clusters yet. An AttributeError, so that hasattr tells."""


def _one_of_two(name: str, value: Any, other: str, given: Any) -> Any:
    """The value of an option that has two names."""
    if value is not None and given is not None:
        raise TypeError(f"{name} is {value!r} and {other} is {given!r}: they are one option, give one of them")
    return given if value is None else value


def _seed(given: Any) -> Any:
    """A seed from what scikit-learn calls random_state."""
    if isinstance(given, np.random.Generator):
        return int(given.integers(2**63))
    if isinstance(given, np.random.RandomState):
        return int(given.randint(2**31 - 1))
    return given


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
