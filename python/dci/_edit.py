# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The rows of an index by their ids: adding, replacing, removing and reading them, and which there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from ctypes import byref, c_int64, c_size_t, c_uint8
from typing import Any, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from . import _guard
from ._errors import InvalidError
from ._guard import CallGuard
from ._library import Handle, address, check, chosen, lib
from ._rows import Progress, RowFormat, as_ids, as_progress, as_rows, lent_rows, single_id
from ._search import Ids
from ._tree import Paged

Rows = npt.NDArray[Any]
IdsLike = Union[npt.ArrayLike, Iterable[SupportsIndex]]

_MISSING = {"error": 0, "ignore": 1}


class Editable(Paged):
    """Rows come and go by their ids, which are integers from 0 to 2**63 - 2: arrays of them, or any iterable, such as lists,
    sets and generators."""

    __slots__ = ()

    _add_input: RowFormat
    _dtype: RowFormat
    _lock: AbstractContextManager[object]
    _promotion_prob: float
    _storage: str

    def add(
        self, x: npt.ArrayLike, ids: IdsLike | None = None, *, replace: bool = False, progress: Progress | None = None
    ) -> Ids:
        """Adds rows, all or none.

        x       (n, dim) or (dim,).
        ids     (n,) distinct integers >= 0 that are not in the index; None: consecutive from one more than the largest id
                ever used, 0 in a new index.
        replace True: ids may be in the index, and their rows are replaced, see upsert.
        progress
                called with the rows done and all (a tree that grows much counts all of its own, as it is built as a whole);
                a true answer ends the call with CancelledError, an exception with that exception, and nothing has changed
                then.

        Returns the ids of the rows, shape (n,).
        """
        if not replace:
            return self._take_rows(lib.dci_index_add, x, ids, progress)
        if ids is None:
            raise InvalidError("replace is True but ids is None: which rows are replaced?")
        return self.upsert(ids, x, progress=progress)

    def upsert(self, ids: IdsLike, x: npt.ArrayLike, *, progress: Progress | None = None) -> Ids:
        """Adds rows, and replaces those whose ids are in the index, all or none: a search on another thread finds the old
        rows or the new ones, never some of each, and no id is missing meanwhile. ids: (n,), distinct; x and progress as in
        add. Returns the ids, shape (n,).
        """
        return self._take_rows(lib.dci_index_upsert, x, as_ids(ids), progress)

    def replace(self, ids: IdsLike, x: npt.ArrayLike, *, progress: Progress | None = None) -> Ids:
        """upsert of ids that are all in the index: one that is not raises NotFoundError, and nothing has changed."""
        return self._take_rows(lib.dci_index_replace, x, as_ids(ids), progress)

    def _take_rows(self, function: Any, x: npt.ArrayLike, ids: IdsLike | None, progress: Progress | None) -> Ids:
        handle = self._open()
        as_progress(progress)
        if self._storage == "borrowed":
            return self._take_borrowed(function, handle, x, ids, progress)
        rows, n, ld = as_rows(x, self._dim, self._add_input, "x")
        return self._take_given(function, handle, (rows, n, ld), ids, progress)

    def _take_given(
        self, function: Any, handle: Handle, given: tuple[Rows, int, int], ids: IdsLike | None, progress: Progress | None
    ) -> Ids:
        rows, n, ld = given
        first = c_int64()
        names = None if ids is None else as_ids(ids)
        if names is not None and names.size != n:
            raise InvalidError(f"{n} rows but {names.size} ids")
        before: tuple[Any, ...] = (handle.value, n, address(rows), ld)
        last: tuple[Any, ...] = ()
        if names is None:
            function, last = lib.dci_index_append, (byref(first),)
        else:
            before += (address(names),)
        # Rows of a tree are compared with its nodes.
        n_nodes = self._promotion_prob * (self._count(handle) + n)
        if progress is None and n * self._dim * (64 + self._n_simple + n_nodes) <= _guard.WATCHED_ADD:
            check(function(*before, None, *last))
        else:
            with CallGuard(progress) as guard:
                status = function(*before, byref(guard.progress), *last)
            guard.raise_kept()
            check(status)
        if names is None:
            return np.arange(first.value, first.value + n, dtype=np.int64)
        return names.copy() if names is ids or names.base is not None else names

    def _take_borrowed(
        self, function: Any, handle: Handle, x: npt.ArrayLike, ids: IdsLike | None, progress: Progress | None
    ) -> Ids:
        given = rows, n, _ = lent_rows(x, self._dim, self._dtype, "x")
        # What owns the memory: many views of one pool cost one entry. It is kept before the add, since a search on another
        # thread may read the rows as soon as they are in, and let go only when no row is left that could point into it.
        owner = rows if rows.base is None else rows.base
        with self._lock:
            new = n > 0 and id(owner) not in handle.kept
            if new:
                handle.kept[id(owner)] = owner
            count = self._count(handle)
            try:
                return self._take_given(function, handle, given, ids, progress)
            except BaseException:
                if new and self._count(handle) == count and function is lib.dci_index_add:
                    del handle.kept[id(owner)]
                raise

    def remove(self, ids: IdsLike, missing: str = "error") -> int:
        """Removes rows, all or none.

        ids     (n,), or one integer.
        missing "error": an id that is not in the index raises NotFoundError, one that comes twice ExistsError. "ignore":
                those that are in the index are removed, whatever else is named.

        Returns how many rows were removed.
        """
        handle = self._open()
        ignore = chosen(_MISSING, missing, "missing")
        names, removed = as_ids(ids), c_size_t()
        with self._lock:
            if ignore:
                check(lib.dci_index_remove_present(handle.value, names.size, address(names), byref(removed)))
            else:
                check(lib.dci_index_remove(handle.value, names.size, address(names)))
            if handle.kept and self._count(handle) == 0:
                handle.kept.clear()
        return removed.value if ignore else int(names.size)

    def clear(self) -> None:
        """Removes all rows at once and gives their memory back. The next row that is added without an id gets the id that it
        would have got: an id is never reused by itself. Defaults and metadata stay."""
        handle = self._open()
        with self._lock:
            check(lib.dci_index_clear(handle.value))
            handle.kept.clear()

    def reconstruct(self, ids: IdsLike) -> Rows:
        """Copies rows as they are stored; also index[ids]. ids: (n,), or one integer. One that is not in the index raises
        NotFoundError, which is a KeyError.

        Returns (n, dim), or (dim,) for one integer, of dtype; bfloat16 as its bits in uint16, which are passed on with
        dtype="bfloat16" (or viewed as ml_dtypes.bfloat16).
        """
        handle = self._open()
        single = single_id(ids) is not None
        names = as_ids(ids)
        rows = np.empty((names.size, self._dim), self._dtype.dtype)
        check(lib.dci_index_reconstruct(handle.value, names.size, address(names), address(rows), self._dim))
        return rows[0] if single else rows

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

    def contains(self, ids: IdsLike) -> npt.NDArray[np.bool_]:
        """Which of some ids are in the index: a bool array of shape (n,). Constant time for each."""
        handle, names = self._open(), as_ids(ids)
        there = np.empty(names.size, np.bool_)
        check(lib.dci_index_contains(handle.value, names.size, address(names), address(there)))
        return there

    def __contains__(self, row_id: object) -> bool:
        """Whether an id is in the index, in constant time. What is no integer is not, nor are True and 3.0."""
        handle, number, there = self._open(), single_id(row_id), c_uint8()
        if number is None or not 0 <= number < 2**63:
            return False
        check(lib.dci_index_contains(handle.value, 1, byref(c_int64(number)), byref(there)))
        return there.value != 0

    def __iter__(self) -> Iterator[int]:
        """The ids that there are now, ascending."""
        return iter(self.ids().tolist())

    def __getitem__(self, ids: IdsLike) -> Rows:
        return self.reconstruct(_no_slice(ids))

    def __delitem__(self, ids: IdsLike) -> None:
        self.remove(_no_slice(ids))


def _no_slice(ids: Any) -> Any:
    if isinstance(ids, slice) or ids is None or ids is Ellipsis:
        raise TypeError(f"index[{ids!r}]: rows have ids and no order, index[index.ids()] has them all")
    return ids
