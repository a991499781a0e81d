# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The index: rows, their ids, and the k of them that score highest for a query."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from ctypes import addressof, byref, c_size_t, memmove
from os import PathLike, fsencode
from typing import Any, Literal, NamedTuple, Optional, SupportsIndex, TypeVar, Union, overload

import numpy as np
import numpy.typing as npt

from . import _guard, _structs
from ._errors import InvalidError, LimitError
from ._filters import Filter, c_filter
from ._guard import CallGuard
from ._library import Handle, address, check, chosen, create, lib, prepared
from ._rows import as_count, as_ids, as_rows, lent_rows, row_format
from .context import Context, default_context

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Rows = npt.NDArray[Any]
# prop_to_visit, prop_to_retrieve, num_to_visit, num_to_retrieve; None: the index's default.
Path = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]
Self = TypeVar("Self", bound="Index")
Effort = tuple[Optional[float], Optional[float], Optional[SupportsIndex], Optional[SupportsIndex]]


class SearchStats(NamedTuple):
    """What a search did."""

    queries: int
    visited: int  #: (query, row) pairs looked at, by whatever arithmetic
    distances: int  #: scores computed by the canonical kernel
    proposed: int  #: pairs ranked by cheaper arithmetic first
    candidates: int  #: distinct (query, row) pairs that the composite indices retrieved; "flat": all pairs


class Index:
    """Stored rows, and which k of them score highest for a query.

    dim         elements per row.
    metric      "ip" (inner product, larger is better), "l2" (squared distance, smaller is better), "cosine" (larger is
                better).
    kind        "flat": every row is scored, so results are exact. "pdci" (Prioritized DCI): rows are ranked by their
                projections on random directions and the best ranked are scored, as many as the effort of a search allows;
                exact at full effort, which is the default (see search and set_defaults).
    dtype       rows as stored: "float32", "float16" or "bfloat16".
    storage     "owned": add copies the rows. "borrowed": add remembers where they are and the index keeps their memory alive
                until it is empty or closed; the caller must not change it (resizing or closing it included). Rows that would
                have to be copied or converted are refused.
    zero_rows   "cosine" only: "refuse" or "keep" rows and queries of all zeros.
    context     threads and instruction set; None: default_context().
    input_dtype rows and queries as passed to add and search; None: dtype. Borrowed rows always have dtype.
    num_comp_indices
                "pdci" only: composite indices, 1 or more. Each proposes its own candidates.
    num_simp_indices
                "pdci" only: simple indices of each composite index, 1 or more; each is one random direction and costs
                4 bytes per row. num_comp_indices * num_simp_indices is at most 4096.
    seed        "pdci" only: of the directions, 0 to 2**64 - 1. The same seed gives the same directions everywhere.

    Rows and queries have shape (n, dim), or (dim,) for one. Arrays of the input dtype whose rows are contiguous are read
    in place, whatever lies between rows; others are copied once. A float32 input takes all real numbers and rounds them to
    the nearest float32, so float64 arrays work but gain no precision. A float16 or bfloat16 input takes nothing that it
    would have to round. bfloat16 is an array of ml_dtypes.bfloat16, or of uint16 with the same bits, and uint16 arrays
    never mean integers.

    Searches may run on several threads at once, beside one add; the interpreter lock is not held meanwhile. Ctrl-C stops
    long searches and adds, which then have changed nothing. Errors are exceptions derived from DciError.

    An index is saved to a file or to bytes, with its rows, ids and defaults, and loaded from them on any machine; pickling
    and copying go the same way and give an index of default_context(). What was borrowed is owned afterwards.
    """

    __slots__ = (
        "_add_input",
        "_context",
        "_dim",
        "_dtype",
        "_handle",
        "_input",
        "_kind",
        "_lock",
        "_metric",
        "_n_simple",
        "_storage",
    )

    def __init__(
        self,
        dim: int,
        metric: str = "ip",
        *,
        kind: str = "flat",
        dtype: npt.DTypeLike = "float32",
        storage: str = "owned",
        zero_rows: str = "refuse",
        context: Context | None = None,
        input_dtype: npt.DTypeLike | None = None,
        num_comp_indices: SupportsIndex = 2,
        num_simp_indices: SupportsIndex = 7,
        seed: SupportsIndex = 0,
    ) -> None:
        self._handle: Handle | None = None
        self._dim = as_count(dim, "dim")
        self._dtype = row_format(dtype, "dtype")
        self._input = self._dtype if input_dtype is None else row_format(input_dtype, "input_dtype")
        self._add_input = self._dtype if storage == "borrowed" else self._input
        self._kind, self._metric, self._storage = kind, metric, storage
        self._context = default_context() if context is None else context
        # Only borrowed rows need it: see _add_borrowed.
        self._lock: AbstractContextManager[object] = threading.RLock() if storage == "borrowed" else nullcontext()
        config = prepared(_structs.IndexConfig)
        config.dim = self._dim
        config.kind = chosen(_structs.KINDS, kind, "kind")
        config.metric = chosen(_structs.METRICS, metric, "metric")
        config.dtype = self._dtype.code
        config.query_dtype = self._input.code
        config.storage = chosen(_structs.STORAGES, storage, "storage")
        config.add_dtype = self._add_input.code
        config.zero_rows = chosen(_structs.ZERO_ROWS, zero_rows, "zero_rows")
        config.num_comp_indices = as_count(num_comp_indices, "num_comp_indices")
        config.num_simp_indices = as_count(num_simp_indices, "num_simp_indices")
        config.seed = as_count(seed, "seed", 2**64 - 1)
        self._n_simple = config.num_comp_indices * config.num_simp_indices if kind == "pdci" else 0
        self._handle = create(lib.dci_index_create, lib.dci_index_destroy, self._context._handle.value, byref(config))

    def add(self, x: npt.ArrayLike, ids: npt.ArrayLike | None = None) -> None:
        """Adds rows, all or none.

        x       (n, dim) or (dim,).
        ids     (n,) distinct integers >= 0 that are not in the index; None: consecutive from one more than the largest id
                ever used, 0 in a new index.
        """
        handle = self._open()
        if self._storage == "borrowed":
            self._add_borrowed(handle, x, ids)
        else:
            rows, n, ld = as_rows(x, self._dim, self._add_input, "x")
            self._add(handle, rows, n, ld, ids)

    def _add(self, handle: Handle, rows: Rows, n: int, ld: int, ids: npt.ArrayLike | None) -> None:
        names = None if ids is None else as_ids(ids)
        if names is not None and names.size != n:
            raise InvalidError(f"{n} rows but {names.size} ids")
        where = None if names is None else address(names)
        if n * self._dim * (64 + self._n_simple) <= _guard.WATCHED_WORK:
            check(lib.dci_index_add(handle.value, n, address(rows), ld, where, None))
            return
        with CallGuard() as guard:
            status = lib.dci_index_add(handle.value, n, address(rows), ld, where, byref(guard.progress))
        guard.raise_kept()
        check(status)

    def _add_borrowed(self, handle: Handle, x: npt.ArrayLike, ids: npt.ArrayLike | None) -> None:
        rows, n, ld = lent_rows(x, self._dim, self._dtype, "x")
        # What owns the memory: many views of one pool cost one entry. It is kept before the add, since a search on another
        # thread may read the rows as soon as they are in, and let go only when no row is left that could point into it.
        owner = rows if rows.base is None else rows.base
        with self._lock:
            new = n > 0 and id(owner) not in handle.kept
            if new:
                handle.kept[id(owner)] = owner
            count = self._count(handle)
            try:
                self._add(handle, rows, n, ld, ids)
            except BaseException:
                if new and self._count(handle) == count:
                    del handle.kept[id(owner)]
                raise

    def remove(self, ids: npt.ArrayLike) -> None:
        """Removes rows, all or none. ids: (n,), distinct. One that is not in the index raises NotFoundError."""
        handle = self._open()
        names = as_ids(ids)
        with self._lock:
            check(lib.dci_index_remove(handle.value, names.size, address(names)))
            if handle.kept and self._count(handle) == 0:
                handle.kept.clear()

    @overload
    def search(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = ...,
        *,
        filter: Filter | None = ...,
        prop_to_visit: float | None = ...,
        prop_to_retrieve: float | None = ...,
        num_to_visit: SupportsIndex | None = ...,
        num_to_retrieve: SupportsIndex | None = ...,
        stats: Literal[False] = ...,
        out: tuple[Ids, Scores] | None = ...,
    ) -> tuple[Ids, Scores]: ...
    @overload
    def search(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = ...,
        *,
        filter: Filter | None = ...,
        prop_to_visit: float | None = ...,
        prop_to_retrieve: float | None = ...,
        num_to_visit: SupportsIndex | None = ...,
        num_to_retrieve: SupportsIndex | None = ...,
        stats: Literal[True],
        out: tuple[Ids, Scores] | None = ...,
    ) -> tuple[Ids, Scores, SearchStats]: ...
    def search(
        self,
        q: npt.ArrayLike,
        k: SupportsIndex = 10,
        *,
        filter: Filter | None = None,
        prop_to_visit: float | None = None,
        prop_to_retrieve: float | None = None,
        num_to_visit: SupportsIndex | None = None,
        num_to_retrieve: SupportsIndex | None = None,
        stats: bool = False,
        out: tuple[Ids, Scores] | None = None,
    ) -> tuple[Ids, Scores] | tuple[Ids, Scores, SearchStats]:
        """Finds the k best rows for each query.

        q       (n, dim), or (dim,) for one.
        k       may exceed the number of rows: results are padded with id -1 and score NaN.
        filter  rows that may be returned: an array of ids; a bool mask, element i for id i; a Bitmap; or a function that
                gets an id and is asked once per stored row and call.
        prop_to_visit, prop_to_retrieve
                "pdci": shares, above 0 and at most 1, of the rows that the filter admits: how many each composite index may
                visit, and how many it may retrieve as candidates, which are all scored. It goes on beyond both until it has
                k. "flat" checks them and always scores all rows.
        num_to_visit, num_to_retrieve
                the same as numbers of rows, in place of the shares; 0: as the shares say.
        stats   also return a SearchStats.
        out     (ids, scores), C-contiguous int64 and float32 of the result's shape, to write to.

        What is None is as set_defaults has it; a share that is given replaces a default number, too.

        Returns ids and scores of shape (n, k), or (k,) for a one-dimensional q, best first, ties by lower id.
        """
        handle = self._open()
        rows, n, ld = as_rows(q, self._dim, self._input, "q")
        k = as_count(k, "k")
        shape = (k,) if rows.ndim == 1 else (n, k)
        ids, scores = (np.empty(shape, np.int64), np.empty(shape, np.float32)) if out is None else _checked(out, shape)
        where = (address(ids), address(scores))
        effort = (prop_to_visit, prop_to_retrieve, num_to_visit, num_to_retrieve)
        found = self._run(lib.dci_index_search, handle, (n, address(rows), ld, k), where, filter, effort, stats)
        return (ids, scores) if found is None else (ids, scores, found)

    @overload
    def range_search(
        self,
        q: npt.ArrayLike,
        radius: float,
        *,
        filter: Filter | None = ...,
        prop_to_visit: float | None = ...,
        prop_to_retrieve: float | None = ...,
        num_to_visit: SupportsIndex | None = ...,
        num_to_retrieve: SupportsIndex | None = ...,
        stats: Literal[False] = ...,
    ) -> tuple[Ids, Ids, Scores]: ...
    @overload
    def range_search(
        self,
        q: npt.ArrayLike,
        radius: float,
        *,
        filter: Filter | None = ...,
        prop_to_visit: float | None = ...,
        prop_to_retrieve: float | None = ...,
        num_to_visit: SupportsIndex | None = ...,
        num_to_retrieve: SupportsIndex | None = ...,
        stats: Literal[True],
    ) -> tuple[Ids, Ids, Scores, SearchStats]: ...
    def range_search(
        self,
        q: npt.ArrayLike,
        radius: float,
        *,
        filter: Filter | None = None,
        prop_to_visit: float | None = None,
        prop_to_retrieve: float | None = None,
        num_to_visit: SupportsIndex | None = None,
        num_to_retrieve: SupportsIndex | None = None,
        stats: bool = False,
    ) -> tuple[Ids, Ids, Scores] | tuple[Ids, Ids, Scores, SearchStats]:
        """Finds every row that scores at least as well as a radius: squared distance <= radius for "l2", score >= it else.

        q       (n, dim), or (dim,) for one.
        radius  rounded to float32, as scores are.

        Returns offsets of shape (n + 1,), ids and scores: those of query i are [offsets[i]:offsets[i + 1]], best first.
        filter, effort and stats as in search; "pdci" finds those among its candidates.
        """
        handle = self._open()
        rows, n, ld = as_rows(q, self._dim, self._input, "q")
        result = prepared(_structs.RangeResult)
        try:
            before, after = (n, address(rows), ld, radius), (byref(result),)
            effort = (prop_to_visit, prop_to_retrieve, num_to_visit, num_to_retrieve)
            found = self._run(lib.dci_index_range_search, handle, before, after, filter, effort, stats)
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
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        filter: Filter | None,
        effort: Effort,
        stats: bool,
    ) -> SearchStats | None:
        """Calls a search function. What a plain call does not need, it does not pay for."""
        watched = before[0] * self._count(handle) * (self._dim + self._n_simple) > _guard.WATCHED_WORK
        if filter is None and not stats and not watched and effort == _DEFAULT:
            check(function(handle.value, *before, None, *after))
            return None
        params = self._defaults(handle)
        _set_effort(params, effort)
        report = prepared(_structs.Stats)
        guard = CallGuard() if watched or callable(filter) else None
        if stats:
            params.stats = addressof(report)
        if filter is not None:
            made, _alive = c_filter(filter, guard)
            params.filter = addressof(made)
        if guard is None:
            check(function(handle.value, *before, byref(params), *after))
        else:
            with guard:
                params.progress = guard.progress
                status = function(handle.value, *before, byref(params), *after)
            guard.raise_kept()
            check(status)
        return SearchStats(*(getattr(report, name) for name in SearchStats._fields)) if stats else None

    def set_defaults(
        self,
        *,
        prop_to_visit: float | None = None,
        prop_to_retrieve: float | None = None,
        num_to_visit: SupportsIndex | None = None,
        num_to_retrieve: SupportsIndex | None = None,
    ) -> None:
        """Sets the effort of searches that do not name their own, see search. What is None is full effort again."""
        params = prepared(_structs.SearchParams)
        _set_effort(params, (prop_to_visit, prop_to_retrieve, num_to_visit, num_to_retrieve))
        check(lib.dci_index_set_defaults(self._open().value, byref(params)))

    def get_defaults(self) -> dict[str, float]:
        """The effort of searches that do not name their own: set_defaults(**get_defaults()) changes nothing."""
        params = self._defaults(self._open())
        return {name: getattr(params, name) for name in _EFFORT}

    @staticmethod
    def _defaults(handle: Handle) -> _structs.SearchParams:
        params = prepared(_structs.SearchParams)
        check(lib.dci_index_get_defaults(handle.value, byref(params)))
        return params

    def reconstruct(self, ids: npt.ArrayLike) -> Rows:
        """Copies rows as they are stored. ids: (n,), or one integer.

        Returns (n, dim), or (dim,) for one integer, of dtype; bfloat16 as uint16.
        """
        handle = self._open()
        names = as_ids(ids)
        rows = np.empty((names.size, self._dim), self._dtype.dtype)
        check(lib.dci_index_reconstruct(handle.value, names.size, address(names), address(rows), self._dim))
        return rows[0] if np.ndim(ids) == 0 else rows

    def ids(self) -> Ids:
        """All ids, ascending, shape (count,)."""
        handle = self._open()
        n = c_size_t()
        while True:
            ids = np.empty(self._count(handle), np.int64)
            check(lib.dci_index_ids(handle.value, ids.size, address(ids), byref(n)))
            # An add on another thread may have come between the two calls.
            if n.value <= ids.size:
                return ids[: n.value]

    def reserve(self, n: SupportsIndex) -> None:
        """Takes memory so that the index holds n rows in all without another allocation for rows."""
        check(lib.dci_index_reserve(self._open().value, as_count(n, "n")))

    def memory(self) -> dict[str, int]:
        """Bytes the index holds: rows (used or reserved; the pointers to them if borrowed), ids, norms, projections, other,
        total."""
        report = prepared(_structs.MemoryReport)
        check(lib.dci_index_memory(self._open().value, byref(report)))
        return {name: getattr(report, name) for name in _MEMORY}

    def save(self, path: Path) -> None:
        """Saves the index to a file. A file that is there already is replaced as a whole, or, on any failure, not at all.

        Searches go on meanwhile; adds and removes on other threads wait. docs/format.md describes the bytes.
        """
        check(lib.dci_index_save(self._open().value, _encoded(path)))

    def to_bytes(self) -> bytes:
        """The bytes that save would write."""
        handle, n = self._open(), c_size_t()
        while True:
            check(lib.dci_index_save_memory(handle.value, 0, None, byref(n)))
            out = np.empty(n.value, np.uint8)
            status = lib.dci_index_save_memory(handle.value, out.size, address(out), byref(n))
            # An add on another thread may have come between the two calls.
            if status != LimitError.status or n.value <= out.size:
                check(status)
                return out[: n.value].tobytes()

    @classmethod
    def load(cls: type[Self], path: Path, context: Context | None = None) -> Self:
        """Loads an index that save wrote, on this machine or another. It answers, and goes on, as the one that was saved.

        context     threads and instruction set; None: default_context().

        A damaged file raises FormatError, one of a newer version UnsupportedError.
        """
        return cls._loaded(context, lib.dci_index_load, _encoded(path))

    @classmethod
    def map(cls: type[Self], path: Path, context: Context | None = None) -> Self:
        """As load, but rows stay in the file, which processes that map it share. It must not be written to meanwhile; saving
        over it, or deleting it, is fine. add, remove and reserve raise UnsupportedError."""
        return cls._loaded(context, lib.dci_index_map, _encoded(path))

    @classmethod
    def from_bytes(cls: type[Self], data: bytes | bytearray | memoryview, context: Context | None = None) -> Self:
        """Loads an index from what to_bytes returned, or from the bytes of a file; any contiguous buffer will do."""
        view = np.frombuffer(data, np.uint8) if memoryview(data).nbytes else np.empty(0, np.uint8)
        return cls._loaded(context, lib.dci_index_load_memory, address(view), view.size)

    @classmethod
    def _loaded(cls: type[Self], context: Context | None, function: Any, *arguments: Any) -> Self:
        self = cls.__new__(cls)
        self._context = default_context() if context is None else context
        handle = create(function, lib.dci_index_destroy, self._context._handle.value, *arguments)
        config = prepared(_structs.IndexConfig)
        check(lib.dci_index_get_config(handle.value, byref(config)))
        self._dim = config.dim
        formats = (config.dtype, config.add_dtype, config.query_dtype)
        self._dtype, self._add_input, self._input = (row_format(_name(_structs.DTYPES, code), "dtype") for code in formats)
        self._kind, self._metric = _name(_structs.KINDS, config.kind), _name(_structs.METRICS, config.metric)
        self._storage, self._lock = "owned", nullcontext()
        self._n_simple = config.num_comp_indices * config.num_simp_indices if self._kind == "pdci" else 0
        self._handle = handle
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)

    @property
    def count(self) -> int:
        """Rows in the index; also len()."""
        return self._count(self._open())

    @property
    def dim(self) -> int:
        """Elements per row."""
        return self._dim

    @property
    def metric(self) -> str:
        """ "ip", "l2" or "cosine"."""
        return self._metric

    @property
    def kind(self) -> str:
        """How rows are found."""
        return self._kind

    @property
    def dtype(self) -> str:
        """Rows as stored."""
        return self._dtype.name

    @property
    def input_dtype(self) -> str:
        """Rows and queries as passed to add and search."""
        return self._input.name

    @property
    def storage(self) -> str:
        """ "owned" or "borrowed"."""
        return self._storage

    @property
    def context(self) -> Context:
        """Threads and instruction set."""
        return self._context

    def close(self) -> None:
        """Frees the index, once the calls that are running on it are done. Closing twice is allowed."""
        self._handle = None

    def _open(self) -> Handle:
        if self._handle is None:
            raise InvalidError("the index is closed")
        return self._handle

    @staticmethod
    def _count(handle: Handle) -> int:
        return lib.dci_index_count(handle.value)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True  # an empty index is an index: `if index:` asks whether there is one

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"count={self.count}"
        return f"Index(dim={self._dim}, metric={self._metric!r}, kind={self._kind!r}, dtype={self.dtype!r}, {state})"


_MEMORY = ("rows", "ids", "norms", "projections", "other", "total")
_EFFORT = ("prop_to_visit", "prop_to_retrieve", "num_to_visit", "num_to_retrieve")
_DEFAULT: Effort = (None, None, None, None)


def _set_effort(params: _structs.SearchParams, effort: Effort) -> None:
    visit, retrieve, n_visit, n_retrieve = effort
    for name, share, number in (("to_visit", visit, n_visit), ("to_retrieve", retrieve, n_retrieve)):
        if share is not None:
            setattr(params, "prop_" + name, share)
        if number is not None:
            setattr(params, "num_" + name, as_count(number, "num_" + name))
        elif share is not None:
            setattr(params, "num_" + name, 0)  # a number would go before the share


def _encoded(path: Path) -> bytes:
    name = fsencode(path)
    if b"\0" in name:  # C would end the path there
        raise InvalidError(f"path is {path!r}, which holds a zero byte")
    return name


def _name(names: dict[str, int], code: int) -> str:
    """The Python name of a C constant."""
    return next(name for name, value in names.items() if value == code)


def _checked(out: tuple[Ids, Scores], shape: tuple[int, ...]) -> tuple[Ids, Scores]:
    ids, scores = out
    for array, dtype, name in ((ids, np.int64, "ids"), (scores, np.float32, "scores")):
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape or not array.flags.carray:
            raise InvalidError(f"out: {name} must be a writeable C-contiguous {np.dtype(dtype).name} array of shape {shape}")
    return ids, scores


def _copied(pointer: int | None, n: int, dtype: Any) -> npt.NDArray[Any]:
    """n elements of the library's memory, in NumPy's."""
    array = np.empty(n, dtype)
    if n:
        memmove(address(array), pointer, array.nbytes)  # type: ignore[arg-type]
    return array
