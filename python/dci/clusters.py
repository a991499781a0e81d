# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Clusters of rows: k-means by cosine, squared distance or inner product, for one problem or many of one shape at once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Callable, Literal, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _guard, _structs
from ._errors import InvalidError, a_type
from ._guard import CallGuard
from ._library import address, check, chosen, lib, metric_of, prepared
from ._rows import Problems, as_count, as_floats, as_number, as_problems, as_progress
from .context import Context, context_of

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

# What may be asked for, in the order of the C struct.
OUTPUTS = ("labels", "centroids", "means", "sizes", "offsets", "ids", "value_sums", "row_means", "reports")
_INTEGERS = ("labels", "sizes", "offsets", "ids")
# Those that dci_kmeans_check reads.
_CHECKED = OUTPUTS[:6]
# _structs.KMeansRound.
ROUND = np.dtype([("objective", "f8"), ("seconds", "f8"), ("n_moved", "u8"), ("n_empty", "u8")])
# Rounds recorded at most: 128 KiB per problem.
_MOST_ROUNDS = 4096
_STOPS = {code: name for name, code in _structs.KMEANS_STOPS.items()}


class KMeansReport(NamedTuple):
    """What happened to one problem. The objective is the sum over rows of the cosine to the own centroid ("cosine"), of the
    inner product ("ip"; of both, more is better) or of the squared distance ("l2"; less is better)."""

    objective: float  #: of the labels and centroids returned
    objective_free: float  #: without the capacity, every row with its nearest centroid
    n_rounds: int  #: of the run that was kept; with segments, of the one that took most, and those over all rows
    n_empty: int  #: clusters without rows in the result
    n_repaired: int  #: empty clusters that were given a row, in all rounds of the run
    largest: int  #: rows of the largest cluster
    seconds: float  #: of the problem, in all
    stop: str  #: why rounds ended: "rounds" (n_iter), "stable" (no label changed) or "tolerance"
    best_redo: int  #: the run that was kept, from 0
    #: The rounds of the run kept (with segments, those over all rows), the first 4096: a structured array (n,) with the
    #: fields objective (of the round's assignment to the centroids before it), seconds (since the problem was begun),
    #: n_moved (rows whose label changed; all in the first) and n_empty (clusters that the assignment left empty).
    rounds: npt.NDArray[np.void]


@dataclass(frozen=True, eq=False, repr=False)
class KMeansResult:
    """Clusters. Shapes are those of rows (n, dim); rows (n_problems, n, dim) put n_problems in front of each.

    labels      (n,) int32: first_cluster + the number of the row's cluster.
    centroids   (n_clusters, dim) float32: what labels were decided by; of unit length for centroid "unit", the subtracted
                mean not added back.
    means       (n_clusters, dim) float32: means of the rows of each cluster as they were given; of an empty one its
                centroid, with the subtracted mean added back.
    sizes       (n_clusters,) int32: rows of each.
    offsets     (n_clusters + 1,) int32: where the rows of each cluster begin in ids, plus first_row.
    ids         (n,) int32: first_row + the number of a row; by cluster, ascending within one. Those of cluster c are
                ids[offsets[c] - first_row : offsets[c + 1] - first_row].
    value_sums  (n_clusters, value_dim) float32: sums of the values of each cluster's rows.
    row_means   (dim,) float32: what was subtracted from rows, zeros if nothing: subtract_mean of a later call.
    reports     one KMeansReport per problem: a tuple of one for rows (n, dim).

    What was not among the outputs is None. The other fields say what the arrays belong to, which is what check needs. A
    result of another program is put together from them and any of the arrays, and checked:
    KMeansResult(n=..., n_clusters=..., labels=..., ids=...).check().
    """

    n: int
    n_clusters: int
    n_problems: int | None = None  #: None: arrays without that axis
    metric: str = "cosine"
    capacity: int | None = None
    first_row: int = 0
    first_cluster: int = 0
    labels: Integers | None = None
    centroids: Floats | None = None
    means: Floats | None = None
    sizes: Integers | None = None
    offsets: Integers | None = None
    ids: Integers | None = None
    value_sums: Floats | None = None
    row_means: Floats | None = None
    reports: tuple[KMeansReport, ...] | None = None

    def check(self, context: Context | None = None) -> None:
        """Checks the arrays against what any result must be: labels in range and equal to what offsets and ids say, ids a
        permutation of the rows and ascending within clusters, sizes and offsets that agree, no cluster beyond the capacity,
        no centroid or mean that is NaN or infinite, no centroid that is zero under "cosine". Arrays that are None,
        value_sums, row_means and reports are left out.

        FormatError names problem, array, place and both values; InvalidError tells of a wrong shape or nothing to check,
        TypeError of a wrong dtype.
        """
        context = context_of(context)
        given = {name: getattr(self, name) for name in _CHECKED if getattr(self, name) is not None}
        config = prepared(_structs.KMeansConfig)
        source = prepared(_structs.KMeansInput)
        config.n_clusters = as_count(self.n_clusters, "n_clusters")
        config.metric = chosen(_structs.METRICS, self.metric, "metric")
        config.capacity = 0 if self.capacity is None else as_count(self.capacity, "capacity")
        source.n = as_count(self.n, "n")
        source.n_problems = 1 if self.n_problems is None else as_count(self.n_problems, "n_problems")
        source.first_row = as_count(self.first_row, "first_row")
        source.first_cluster = as_count(self.first_cluster, "first_cluster")
        rows = [given[name] for name in ("centroids", "means") if name in given]
        config.dim = np.shape(rows[0])[-1] if rows and np.ndim(rows[0]) else 1
        # Rows are asked for, but not looked at.
        none = np.zeros(1, np.float32)
        source.rows = address(none)
        result = prepared(_structs.KMeansResult)
        lead = () if self.n_problems is None else (source.n_problems,)
        shapes = _shapes(self.n, self.n_clusters, config.dim, None)
        kept = {name: _checkable(array, lead + shapes[name], name) for name, array in given.items()}
        for name, array in kept.items():
            setattr(result, name, address(array))
        check(lib.dci_kmeans_check(context._handle.value, byref(config), byref(source), byref(result)))

    def __repr__(self) -> str:
        problems = "" if self.n_problems is None else f"n_problems={self.n_problems}, "
        arrays = ", ".join(name for name in OUTPUTS if getattr(self, name) is not None)
        return f"KMeansResult({problems}n={self.n}, n_clusters={self.n_clusters}, metric={self.metric!r}: {arrays})"


def kmeans(
    rows: npt.ArrayLike,
    n_clusters: SupportsIndex,
    *,
    metric: str = "cosine",
    init: str = "random",
    centroid: str | None = None,
    zero_rows: str | None = None,
    subtract_mean: Literal["own"] | npt.ArrayLike | None = None,
    n_iter: SupportsIndex = 20,
    tolerance: float = 0.0,
    n_redo: SupportsIndex = 1,
    seed: SupportsIndex = 0,
    capacity: SupportsIndex | None = None,
    segment_rows: SupportsIndex | None = None,
    n_iter_global: SupportsIndex = 0,
    centroids: npt.ArrayLike | None = None,
    values: npt.ArrayLike | None = None,
    first_row: SupportsIndex = 0,
    first_cluster: SupportsIndex = 0,
    first_problem: SupportsIndex = 0,
    outputs: Iterable[str] | None = None,
    dtype: npt.DTypeLike | None = None,
    value_dtype: npt.DTypeLike | None = None,
    progress: Callable[[int, int], object] | None = None,
    context: Context | None = None,
) -> KMeansResult:
    """Clusters rows: each round, every row goes to its nearest centroid and every centroid to the mean of its rows.

    rows        (n, dim), or (n_problems, n, dim) for independent problems of one shape, such as the heads of a layer.
                float16 and bfloat16 are taken as they are, other real numbers as float32, by the rule of Index; see dtype.
                Arrays whose rows are contiguous are read in place, whatever lies between rows and problems: a token-major
                cache (n, heads, dim) is passed as cache.transpose(1, 0, 2). Others are copied once. Tensors with
                `__dlpack__` in the host's memory, such as those of torch, are taken as arrays are.
    n_clusters  of each problem, 1 to n.
    metric      "cosine", "l2" (squared distance) or "ip" (rows go to the centroid of the highest inner product), and the
                other words that Index takes.
    init        where centroids start: "random" (rows drawn without replacement), "plusplus" or "k-means++" (rows drawn by
                squared distance), "even" (evenly spaced rows), "given" (centroids).
    centroid    "cosine" only: "unit" (None: this; the mean of the unit rows, scaled to unit length) or "mean" (of the rows
                as they are, compared by cosine).
    zero_rows   "cosine" only: "refuse" (None: this) rows that have no direction, or "keep" them, with label 0.
    subtract_mean
                taken from every row before anything else: None, "own" (the mean of each problem's rows), or means (dim,) or
                (n_problems, dim), such as row_means of an earlier result.
    n_iter      most rounds; 0: rows are assigned to the first centroids.
    tolerance   ends when a round changes the objective by no more than this share of it, 0 to 1; 0: when no label changes.
    n_redo      runs from different random starts, of which the best is kept.
    seed        of the draws, 0 to 2**64 - 1. The same seed, rows and instruction set give the same bits at any number of
                threads and of problems in a call.
    capacity    most rows of a cluster (n_clusters * capacity >= n); None: any number.
    segment_rows
                rows are clustered in consecutive segments of this many (rounded up to a multiple of 32), each into its share
                of the clusters; the last assignment is over all. None: all at once.
    n_iter_global
                segments only: most rounds over all rows after those within segments.
    centroids   a warm start, (n_clusters, dim) or (n_problems, n_clusters, dim): init is "given".
    values      (n, value_dim) or (n_problems, n, value_dim), of any format and layout that rows may have: summed by cluster.
    first_row, first_cluster
                for new rows next to old ones: ids and offsets count rows from first_row, labels clusters from first_cluster.
    first_problem
                number of the first problem among those of several calls: each has its own stream of draws.
    outputs     names of the arrays of KMeansResult that are wanted; None: all (value_sums only with values). Means and
                value_sums that nobody wants cost nothing.
    dtype, value_dtype
                of rows and of values: None: what the arrays are. "bfloat16": a uint16 array holds its bits, as KVCache.read
                returns them. "float32" widens. Other arrays are converted or refused as an Index with that dtype does.
    progress    called with the rounds done and all that there may be; a true answer ends the call with CancelledError, an
                exception with that exception.
    context     threads and instruction set; None: default_context().

    Returns a KMeansResult. The interpreter lock is not held during the call, and Ctrl-C ends a long one.
    """
    context = context_of(context)
    metric = metric_of(metric)
    points = as_problems(rows, "rows", dtype)
    config, source = prepared(_structs.KMeansConfig), prepared(_structs.KMeansInput)
    config.dim, config.dtype = points.dim, points.form.code
    config.n_clusters = as_count(n_clusters, "n_clusters")
    config.metric = _structs.METRICS[metric]
    config.init = _init_of("given" if centroids is not None and init == "random" else init)
    for name, names, given in (("centroid", _structs.CENTROIDS, centroid), ("zero_rows", _structs.ZERO_ROWS, zero_rows)):
        if given is not None:
            setattr(config, name, chosen(names, given, name))
            if metric != "cosine":
                raise InvalidError(f"{name} is {given!r}, an option of the cosine metric: the metric is {metric!r}")
    config.n_iter = as_count(n_iter, "n_iter")
    config.tolerance = as_number(tolerance, "tolerance")
    config.n_redo = as_count(n_redo, "n_redo")
    config.seed = as_count(seed, "seed", 2**64 - 1)
    config.capacity = 0 if capacity is None else as_count(capacity, "capacity")
    config.segment_rows = 0 if segment_rows is None else as_count(segment_rows, "segment_rows")
    config.n_iter_global = as_count(n_iter_global, "n_iter_global")
    source.n_problems, source.n = points.n_problems, points.n
    source.rows, source.ld, source.problem_ld = address(points.array), points.ld, points.problem_ld
    source.first_row = as_count(first_row, "first_row")
    source.first_cluster = as_count(first_cluster, "first_cluster")
    source.first_problem = as_count(first_problem, "first_problem")
    if config.n_clusters > points.n > 0:
        # As the library says, but before there are arrays of that size.
        raise InvalidError(f"{config.n_clusters} clusters of {points.n} rows: expected at most as many as rows")
    lead = points.array.shape[:-2]
    starts = None if centroids is None else as_floats(centroids, (*lead, config.n_clusters, points.dim), "centroids")
    source.centroids = None if starts is None else address(starts)
    means = _subtracted(config, subtract_mean, (*lead, points.dim))
    source.means = None if means is None else address(means)
    added = None if values is None else _values(source, values, points, value_dtype)
    wanted = _wanted(outputs, values is not None)
    shapes = _shapes(points.n, config.n_clusters, points.dim, None if added is None else added.dim)
    arrays = {name: np.empty(lead + shape, _dtype(name)) for name, shape in shapes.items() if name in wanted}
    result = prepared(_structs.KMeansResult)
    for name, array in arrays.items():
        setattr(result, name, address(array))
    reports = _Reports(config, points.n_problems) if "reports" in wanted else None
    result.reports = None if reports is None else ctypes.addressof(reports.structs)
    _run(context, config, source, result, progress)
    return KMeansResult(
        n=points.n,
        n_clusters=config.n_clusters,
        n_problems=points.n_problems if lead else None,
        metric=metric,
        capacity=config.capacity or None,
        first_row=source.first_row,
        first_cluster=source.first_cluster,
        **arrays,
        reports=None if reports is None else reports.taken(),
    )


def _run(
    context: Context,
    config: _structs.KMeansConfig,
    source: _structs.KMeansInput,
    result: _structs.KMeansResult,
    progress: Callable[[int, int], object] | None,
) -> None:
    call = (context._handle.value, byref(config), byref(source))
    rounds = config.n_redo * (config.n_iter + config.n_iter_global + 1)
    work = source.n_problems * source.n * config.dim * config.n_clusters * rounds
    if progress is None and work <= _guard.WATCHED_WORK:
        check(lib.dci_kmeans(*call, None, byref(result)))
        return
    with CallGuard(as_progress(progress)) as guard:
        status = lib.dci_kmeans(*call, byref(guard.progress), byref(result))
    guard.raise_kept()
    check(status)


def _dtype(name: str) -> type[np.generic]:
    return np.int32 if name in _INTEGERS else np.float32


def _shapes(n: int, n_clusters: int, dim: int, value_dim: int | None) -> dict[str, tuple[int, ...]]:
    """Of the arrays of one problem, by name."""
    shapes: dict[str, tuple[int, ...]] = {
        "labels": (n,),
        "centroids": (n_clusters, dim),
        "means": (n_clusters, dim),
        "sizes": (n_clusters,),
        "offsets": (n_clusters + 1,),
        "ids": (n,),
        "row_means": (dim,),
    }
    if value_dim is not None:
        shapes["value_sums"] = (n_clusters, value_dim)
    return shapes


def _wanted(outputs: Iterable[str] | None, with_values: bool) -> set[str]:
    if outputs is None:
        return set(OUTPUTS) if with_values else set(OUTPUTS) - {"value_sums"}
    if not isinstance(outputs, Iterable):
        raise TypeError(f"outputs is {a_type(outputs)}, wanted names: {', '.join(map(repr, OUTPUTS))}")
    wanted = set((outputs,) if isinstance(outputs, str) else outputs)
    for name in wanted:
        if name not in OUTPUTS:
            raise InvalidError(f"outputs names {name!r}, wanted {', '.join(map(repr, OUTPUTS))}")
    if not wanted:
        raise InvalidError("outputs names nothing")
    if "value_sums" in wanted and not with_values:
        raise InvalidError("outputs names 'value_sums', but values is None")
    return wanted


def _subtracted(config: _structs.KMeansConfig, given: Any, shape: tuple[int, ...]) -> Floats | None:
    """What to take from rows; None where the library finds it, or nothing is taken."""
    if given is None or isinstance(given, str):
        config.subtract_mean = 0 if given is None else chosen({"own": _structs.MEANS["own"]}, given, "subtract_mean")
        return None
    config.subtract_mean = _structs.MEANS["given"]
    return as_floats(given, shape, "subtract_mean")


def _init_of(init: Any) -> int:
    if not isinstance(init, str):
        raise InvalidError(f"init is {a_type(init)}: starting points are passed as centroids")
    return chosen(_structs.KMEANS_INITS, _structs.KMEANS_INIT_ALIASES.get(init, init), "init")


def _values(source: _structs.KMeansInput, given: npt.ArrayLike, points: Problems, dtype: npt.DTypeLike | None) -> Problems:
    values = as_problems(given, "values", dtype, "value_dtype")
    lead = points.array.shape[:-1]
    if values.array.shape[:-1] != lead:
        raise InvalidError(f"values has shape {values.array.shape}, wanted ({', '.join(map(str, lead))}, value_dim)")
    source.values, source.value_dim, source.value_dtype = address(values.array), values.dim, values.form.code
    source.value_ld, source.value_problem_ld = values.ld, values.problem_ld
    return values


def _checkable(array: Any, shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    """An array that check may hand to C: what it is must be what a result has, as C cannot tell."""
    if not isinstance(array, np.ndarray) or array.dtype != _dtype(name):
        given = array.dtype.name if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} is {given}, wanted {np.dtype(_dtype(name)).name}")
    if array.shape != shape:
        raise InvalidError(f"{name} has shape {array.shape}, wanted {shape}")
    return np.require(array, requirements=["C", "A"])


class _Reports:
    """The reports of all problems for C, with room for their rounds."""

    def __init__(self, config: _structs.KMeansConfig, n_problems: int) -> None:
        segments = config.segment_rows > 0
        # With segments as long as all rows, the rounds are those of n_iter.
        room = min(max(config.n_iter, config.n_iter_global if segments else 0), _MOST_ROUNDS)
        self.rounds = np.empty((n_problems, room), ROUND)
        self.structs = (_structs.KMeansReport * n_problems)()
        one = prepared(_structs.KMeansReport)
        one.rounds_room = room
        for number in range(n_problems):
            one.rounds = self.rounds.ctypes.data + number * self.rounds.strides[0]
            self.structs[number] = one

    def taken(self) -> tuple[KMeansReport, ...]:
        return tuple(
            KMeansReport(
                objective=one.objective,
                objective_free=one.objective_free,
                n_rounds=one.n_rounds,
                n_empty=one.n_empty,
                n_repaired=one.n_repaired,
                largest=one.largest,
                seconds=one.seconds,
                stop=_STOPS.get(one.stop, str(one.stop)),
                best_redo=one.best_redo,
                rounds=rounds[: one.n_recorded].copy(),
            )
            for one, rounds in zip(self.structs, self.rounds)
        )
