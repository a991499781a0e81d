# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Searches of an index, what they may spend, and finding out what they need to spend."""

from __future__ import annotations

import math
from ctypes import addressof, byref, c_double, memmove
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple, SupportsIndex, TypedDict, overload

import numpy as np
import numpy.typing as npt

from . import _guard, _structs
from ._errors import InvalidError, a_type
from ._filters import FilterLike, as_filter, c_filter
from ._guard import CallGuard
from ._library import Handle, address, check, chosen, lib, prepared
from ._rows import Progress, RowFormat, as_count, as_groups, as_number, as_progress, as_rows, check_output

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
if TYPE_CHECKING:
    from typing_extensions import Unpack


class Effort(TypedDict, total=False):
    """How well a search searches, as keywords of the calls below; what is None or left out is as the index has it."""

    recall: float | None
    effort: float | None
    prop_to_visit: float | None
    prop_to_retrieve: float | None
    num_to_visit: SupportsIndex | None
    num_to_retrieve: SupportsIndex | None
    field_of_view: SupportsIndex | None
    rerank: float | None
    guarantee: float | None


class Search(Effort, total=False):
    """Effort, and a callback for the progress of a search."""

    progress: Progress | None


class SearchStats(NamedTuple):
    """What a search did."""

    queries: int
    visited: int  #: (query, row) pairs looked at, by whatever arithmetic
    distances: int  #: scores computed by the canonical kernel
    proposed: int  #: pairs ranked by cheaper arithmetic first; with codes, those whose codes were read
    candidates: int  #: distinct (query, row) pairs that were chosen to be scored; "flat": all pairs
    target_recall: float = 0.0  #: that the effort was chosen for; 0: the effort was given
    prop_to_visit: float = 1.0  #: as used: given, or chosen for the recall
    prop_to_retrieve: float = 1.0  #: the same
    rerank: float = 0.0  #: the same; 0: there are no codes; infinite: they were not used
    field_of_view: int = 0
    calibrated_on: str = "none"  #: what efforts were measured on: "rows" (its own), "queries" (see tune), "none"


class TuneResult(NamedTuple):
    """What tune found."""

    n_queries: int  #: that were measured
    recall: float  #: of the effort chosen, on the queries that chose it
    recall_held_out: float  #: on those that did not: what to expect of others; NaN for a single query
    distances: float  #: rows scored per query, on average
    exact_distances: float  #: the same for exact search of a single query: all rows
    n_efforts: int  #: efforts tried
    prop_to_visit: float  #: what was set as the index's default
    prop_to_retrieve: float  #: the same
    rerank: float  #: with sketch_bits the same; infinite: codes are not used
    seconds: float  #: time of one query alone with that effort, median; NaN: not measured
    exact_seconds: float  #: the same for exact search
    finished: bool  #: False: the deadline came first; what was set is the best until then, nothing if recall is NaN


class Searchable:
    """An object of the library that answers searches; what Index is beyond that is in index.py."""

    __slots__ = ("__weakref__", "_dim", "_handle", "_input", "_kind", "_n_simple", "_sketch_bits")

    _dim: int
    _handle: Handle | None
    _input: RowFormat
    _kind: str
    _n_simple: int
    _sketch_bits: int

    def _open(self) -> Handle:
        if self._handle is None:
            raise InvalidError("the index is closed")
        return self._handle

    @staticmethod
    def _count(handle: Handle) -> int:
        return lib.dci_index_count(handle.value)  # type: ignore[no-any-return]

    @overload
    def search(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = ...,
        *,
        filter: FilterLike | None = ...,
        stats: Literal[False] = ...,
        out: tuple[Ids, Scores] | None = ...,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Scores]: ...
    @overload
    def search(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = ...,
        *,
        filter: FilterLike | None = ...,
        stats: Literal[True],
        out: tuple[Ids, Scores] | None = ...,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Scores, SearchStats]: ...
    def search(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = 10,
        *,
        filter: FilterLike | None = None,
        stats: bool = False,
        out: tuple[Ids, Scores] | None = None,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Scores] | tuple[Ids, Scores, SearchStats]:
        """Finds the k best rows for each query.

        q       (n, dim), or (dim,) for one.
        k       may exceed the number of rows: results are padded with id -1 and score NaN.
        filter  rows that may be returned: distinct ids, as an array of integers, a set or any other iterable; a bool mask,
                element i for id i, with one element for each id from 0 to the largest ever used; a Filter or Bitmap; or a
                function that gets an id and is asked once per stored row and call. A column of zeros and ones is refused as
                ids that repeat: use column.astype(bool).
        recall  above 0, at most 1: the share of the k best that is found, on average. The index knows what that takes from
                its own rows, or from queries (see tune and fit), so that it holds for queries like those; 1.0 is exact.
                None: as Index(recall=..) or set_defaults has it, 0.95 if nobody said anything.
        effort  1.0: everything, which is exact. Less: "mdci" opens this share of the cells, "pdci" retrieves this share of
                the rows.

        For experts, in place of recall and effort; the kind must have them:
        prop_to_visit, prop_to_retrieve
                shares, above 0 and at most 1. "pdci": of the rows that the filter admits: how many each composite index may
                visit, and how many it may retrieve as candidates, which are all scored. It goes on beyond both until it has
                k. "mdci": prop_to_visit of the nodes of each level, rounded up, are opened, and more if that finds fewer
                than k rows; with cell_simp_indices, prop_to_retrieve of the rows in the opened cells are scored.
        num_to_visit, num_to_retrieve
                the same as numbers of rows, in place of the shares; 0: as the shares say.
        field_of_view
                "mdci": nodes opened at each level, in place of prop_to_visit and num_to_visit; 0: as those say.
        rerank  with sketch_bits: rows scored per row wanted: of those that the rest of the effort chooses, the rerank * k
                best by their codes, and perhaps an eighth more. 1 or more; math.inf: all of them, without codes. Of an
                effort that does not say, 16, 8, 4, 3 and 2 at 1, 2, 3, 4 and 8 bits.
        guarantee
                with sketch_bits: go on scoring until no row whose code was looked at can be among the k best but was not
                scored: each with this probability, above 0 and at most 1, under a random rotation; for certain at 1 and
                after fit. 0: off.
        stats   also return a SearchStats.
        progress
                called with the (query, row) pairs done and all; a true answer ends the call with CancelledError, an
                exception with that exception.
        out     (ids, scores), C-contiguous int64 and float32 of the result's shape, to write to.

        Where an expert's option is given, the others are as set_defaults has them, or, if that names a recall, full effort;
        a share that is given replaces a default number, too, and a share or number to visit a default field_of_view.

        Returns ids and scores of shape (n, k), or (k,) for a one-dimensional q, best first, ties by lower id.
        """
        handle = self._open()
        rows, n, ld = as_rows(q, self._dim, self._input, "q")
        k = as_count(k, "k")
        shape = (k,) if rows.ndim == 1 else (n, k)
        ids, scores = results(out, shape)
        where = (address(ids), address(scores))
        found = self._run(lib.dci_index_search, handle, n, (n, address(rows), ld, k), where, filter, effort, stats)
        return (ids, scores) if found is None else (ids, scores, found)

    @overload
    def search_group(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = ...,
        *,
        union: bool = ...,
        filter: FilterLike | None = ...,
        stats: Literal[False] = ...,
        out: tuple[Ids, Scores] | None = ...,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Scores]: ...
    @overload
    def search_group(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = ...,
        *,
        union: bool = ...,
        filter: FilterLike | None = ...,
        stats: Literal[True],
        out: tuple[Ids, Scores] | None = ...,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Scores, SearchStats]: ...
    def search_group(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = 10,
        *,
        union: bool = False,
        filter: FilterLike | None = None,
        stats: bool = False,
        out: tuple[Ids, Scores] | None = None,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Scores] | tuple[Ids, Scores, SearchStats]:
        """Searches for groups of queries that belong together, such as the query heads that share a kv head (GQA).

        q       (n_groups, group_size, dim), or (group_size, dim) for one group; group_size 1 to 8.
        k       rows for each query, or for the whole group if union is true.
        union   False: the k best of each query, among the rows of all nodes that the group opens. True: one list for the
                group, its queries' lists interleaved by rank (the best of the first query, of the second, .., the second
                best of the first, ..), repeats dropped; a row's score is that for the query that brought it.

        "mdci" descends the tree once per group, opening what any of its queries would open; the other kinds find what search
        finds. filter, effort (that of each query), stats, progress and out as in search.

        Returns ids and scores of shape (n_groups, group_size, k), or (n_groups, k) if union is true, without the first axis
        for a two-dimensional q; padded with id -1 and score NaN.
        """
        handle = self._open()
        rows, groups, ld = as_groups(q, self._dim, self._input, "q")
        k = as_count(k, "k")
        shape = (*groups[:-1], k) if union else (*groups, k)
        ids, scores = results(out, shape)
        n_groups, group_size = groups if len(groups) == 2 else (1, *groups)
        before = (n_groups, group_size, address(rows), ld, k, _structs.GROUP_UNION if union else _structs.GROUP_EACH)
        after = (address(ids), address(scores))
        n = n_groups * group_size
        found = self._run(lib.dci_index_search_group, handle, n, before, after, filter, effort, stats)
        return (ids, scores) if found is None else (ids, scores, found)

    @overload
    def range_search(
        self,
        q: npt.ArrayLike,
        radius: float,
        *,
        filter: FilterLike | None = ...,
        stats: Literal[False] = ...,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Ids, Scores]: ...
    @overload
    def range_search(
        self,
        q: npt.ArrayLike,
        radius: float,
        *,
        filter: FilterLike | None = ...,
        stats: Literal[True],
        **effort: Unpack[Search],
    ) -> tuple[Ids, Ids, Scores, SearchStats]: ...
    def range_search(
        self,
        q: npt.ArrayLike,
        radius: float,
        *,
        filter: FilterLike | None = None,
        stats: bool = False,
        **effort: Unpack[Search],
    ) -> tuple[Ids, Ids, Scores] | tuple[Ids, Ids, Scores, SearchStats]:
        """Finds every row that scores at least as well as a radius: squared distance <= radius for "l2", score >= it else.

        q       (n, dim), or (dim,) for one.
        radius  rounded to float32, as scores are.

        Returns offsets of shape (n + 1,), ids and scores: those of query i are [offsets[i]:offsets[i + 1]], best first.
        filter, recall, effort, stats and progress as in search; "pdci" and "mdci" find those among the rows that they score,
        by recall as many as long lists take. Codes have no part in it: rerank and guarantee change nothing.
        """
        handle = self._open()
        rows, n, ld = as_rows(q, self._dim, self._input, "q")
        result = prepared(_structs.RangeResult)
        try:
            before, after = (n, address(rows), ld, as_number(radius, "radius")), (byref(result),)
            found = self._run(lib.dci_index_range_search, handle, n, before, after, filter, effort, stats)
            offsets = _copied(result.offsets, n + 1, np.uintp).astype(np.int64)
            ids = _copied(result.ids, int(offsets[-1]), np.int64)
            scores = _copied(result.scores, int(offsets[-1]), np.float32)
        finally:
            lib.dci_range_result_free(byref(result))
        return (offsets, ids, scores) if found is None else (offsets, ids, scores, found)

    def _run(
        self,
        function: Any,
        handle: Handle,
        n_queries: int,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        filter: FilterLike | None,
        effort: Search,
        stats: bool,
    ) -> SearchStats | None:
        """Calls a search function. What a plain call does not need, it does not pay for."""
        progress = as_progress(effort.pop("progress", None)) if effort else None
        watched = n_queries * self._count(handle) * (self._dim + self._n_simple) > _guard.WATCHED_WORK
        if filter is None and not stats and not watched and not effort and progress is None:
            check(function(handle.value, *before, None, *after))
            return None
        params = self._defaults(handle)
        self._set_effort(params, effort)
        report = prepared(_structs.Stats)
        wanted = None if filter is None else as_filter(filter, handle.value)
        asks = wanted is not None and wanted.asks
        guard = CallGuard(progress) if watched or progress is not None or asks else None
        if stats:
            params.stats = addressof(report)
        if wanted is not None:
            made, _alive = c_filter(wanted, guard)
            params.filter = addressof(made)
        if guard is None:
            check(function(handle.value, *before, byref(params), *after))
        else:
            with guard:
                params.progress = guard.progress
                status = function(handle.value, *before, byref(params), *after)
            guard.raise_kept()
            check(status)
        return _stats(report) if stats else None

    def set_defaults(self, **effort: Unpack[Effort]) -> None:
        """Sets the recall or the effort of searches that do not name their own, see search. Of an effort, what is None is
        full effort; without any argument it is the recall that the index was made with."""
        handle, params = self._open(), prepared(_structs.SearchParams)
        if all(value is None for value in effort.values()):
            config = prepared(_structs.IndexConfig)
            check(lib.dci_index_get_config(handle.value, byref(config)))
            params.target_recall = config.target_recall
        self._set_effort(params, effort)
        check(lib.dci_index_set_defaults(handle.value, byref(params)))

    def get_defaults(self) -> dict[str, float]:
        """The recall or the effort of searches that name none: set_defaults(**get_defaults()) changes nothing."""
        params = self._defaults(self._open())
        effort = {name: getattr(params, name) for name in _EXPERT}
        return effort if any(effort.values()) else {"recall": params.target_recall}

    def tune(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = 10,
        recall: float = 0.95,
        *,
        cost: str = "time",
        progress: Callable[[int, int], object] | None = None,
        deadline: float | None = None,
    ) -> TuneResult:
        """Finds the cheapest effort that reaches a recall on sample queries, makes it the default, and calibrates the index
        on these queries, so that searches that name another recall or k know what that takes.

        q           (n, dim), or (dim,) for one: queries as they will come; some hundred tell a recall to about 0.01. Those
                    at even positions choose the effort, the others check it. Fewer than 16 calibrate nothing.
        k           as in search.
        recall      above 0, at most 1: share of the exact k best that are found (a row as good as the k-th counts). 1 asks
                    for full effort, which is also set where nothing less reaches the target.
        cost        "time": measured, one query at a time. "distances": the fewest rows scored, with sketch_bits the fewest
                    bytes of rows and codes read; the same every time.
        progress    called with the work done and the whole, in thousandths; a true answer ends the call with CancelledError.
        deadline    seconds after which the best effort so far is set, or nothing if there is none yet; see TuneResult.

        "mdci" tunes prop_to_visit (with cell_simp_indices prop_to_retrieve, too), "pdci" prop_to_retrieve; "flat" is always
        exact. With sketch_bits, rerank is tuned together with these, and "flat" is tuned by it alone. A call that fails or
        is interrupted, by Ctrl-C too, has changed nothing.
        """
        handle = self._open()
        rows, n, ld = as_rows(q, self._dim, self._input, "q")
        options = prepared(_structs.TuneOptions)
        options.cost = chosen(_structs.TUNE_COSTS, cost, "cost")
        if deadline is not None:
            if not 0 < as_number(deadline, "deadline") < math.inf:
                raise InvalidError(f"deadline is {deadline}, expected seconds, more than 0, or None")
            options.deadline = deadline
        k, result = as_count(k, "k"), prepared(_structs.TuneResult)
        with CallGuard(progress) as guard:
            options.progress = guard.progress
            status = lib.dci_index_tune_with(
                handle.value, n, address(rows), ld, k, c_double(as_number(recall, "recall")), byref(options), byref(result)
            )
        guard.raise_kept()
        check(status)
        found = {name: getattr(result, name) for name in TuneResult._fields}
        return TuneResult(**{**found, "finished": bool(result.finished)})

    def _set_effort(self, params: _structs.SearchParams, effort: Effort) -> None:
        """Writes a call's keywords into what the index does by itself."""
        for name in effort:
            if name not in _EFFORT:
                raise TypeError(f"there is no option {name!r}: expected one of {', '.join(_EFFORT)}")
        given: dict[str, Any] = {name: value for name, value in effort.items() if value is not None}
        whole = [name for name in ("recall", "effort") if name in given]
        if whole and len(given) > 1:
            others = ", ".join(name for name in given if name != whole[0])
            raise InvalidError(f"{whole[0]} says all about the effort: leave out {others}, or {whole[0]}")
        if whole:
            self._set_whole(params, whole[0], _check_share(whole[0], given[whole[0]]))
            return
        for name, value in given.items():
            setattr(params, name, as_count(value, name) if name in _COUNTS else as_number(value, name))
            self._check_option(name, value)
        # A number goes before a share, and field_of_view before both: a default of these must not hide what is given.
        for name in ("to_visit", "to_retrieve"):
            if "prop_" + name in given and "num_" + name not in given:
                setattr(params, "num_" + name, 0)
        if "field_of_view" not in given and ("prop_to_visit" in given or "num_to_visit" in given):
            params.field_of_view = 0
        # Of shares 0 is not given, which the library takes from nobody else.
        for name in ("prop_to_visit", "prop_to_retrieve"):
            if name in given and given[name] == 0:
                raise InvalidError(f"{name} is 0, expected more than 0 and at most 1")

    def _set_whole(self, params: _structs.SearchParams, name: str, value: float) -> None:
        for expert in _EXPERT:
            setattr(params, expert, 0)
        params.target_recall = value if name == "recall" else 1.0
        if name == "effort" and value < 1.0:
            if self._kind not in _SHARES:
                raise InvalidError(f'effort is {value}: kind="{self._kind}" has no shares, expected 1.0')
            setattr(params, _SHARES[self._kind], value)

    def _check_option(self, name: str, value: Any) -> None:
        """Refuses an expert's option that the index does not have, unless it says what is so anyway."""
        needs = None
        if self._kind == "auto":  # has, or will have, what any of them means
            return
        if name in ("rerank", "guarantee"):
            needs = None if self._sketch_bits else "an index with sketch_bits"
        elif name == "field_of_view":
            needs = None if self._kind == "mdci" else 'kind="mdci"'
        elif self._kind == "flat":
            needs = 'kind="mdci" or kind="pdci"'
        elif name.endswith("_to_retrieve") and self._kind == "mdci" and not self._n_simple:
            needs = 'kind="pdci", or "mdci" with cell_simp_indices'
        if needs is not None and value != (1.0 if name.startswith("prop_") else 0):
            raise InvalidError(f"{name} is {value}: it needs {needs}, this one is of kind {self._kind!r}")

    @staticmethod
    def _defaults(handle: Handle) -> _structs.SearchParams:
        params = prepared(_structs.SearchParams)
        check(lib.dci_index_get_defaults(handle.value, byref(params)))
        return params


_EFFORT = tuple(Effort.__annotations__)
_EXPERT = tuple(name for name in _EFFORT if name not in ("recall", "effort"))
_COUNTS = ("num_to_visit", "num_to_retrieve", "field_of_view")
# Of which the effort is a share.
_SHARES = {"mdci": "prop_to_visit", "pdci": "prop_to_retrieve"}


def _check_share(name: str, value: Any) -> float:
    value = as_number(value, name)
    if not 0 < value <= 1:
        raise InvalidError(f"{name} is {value}, expected more than 0 and at most 1")
    return float(value)


def _stats(report: _structs.Stats) -> SearchStats:
    found = {name: getattr(report, name) for name in SearchStats._fields}
    return SearchStats(**{**found, "calibrated_on": _structs.CALIBRATED[report.calibrated_on]})


def results(out: tuple[Ids, Scores] | None, shape: tuple[int, ...], what: str = "ids") -> tuple[Ids, Scores]:
    """Where a search writes to: new arrays, or the caller's if they fit."""
    if out is None:
        return np.empty(shape, np.int64), np.empty(shape, np.float32)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"out is {a_type(out)}, wanted a pair of arrays: ({what}, scores)")
    ids, scores = out
    check_output(ids, np.int64, shape, what)
    check_output(scores, np.float32, shape, "scores")
    return ids, scores


def _copied(pointer: int | None, n: int, dtype: Any) -> npt.NDArray[Any]:
    """n elements of the library's memory, in NumPy's."""
    array = np.empty(n, dtype)
    if n:
        memmove(address(array), pointer, array.nbytes)  # type: ignore[arg-type]
    return array
