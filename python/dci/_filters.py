# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which rows a search may return: ids, one bit per id, or a Python function; and what these have in common, or not."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any, Callable, SupportsIndex, TypeVar, Union

import numpy as np
import numpy.typing as npt

from . import _structs
from ._errors import InvalidError
from ._guard import CallGuard
from ._library import address, lib, prepared
from ._rows import as_count, as_ids, single_id

Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Self = TypeVar("Self", bound="Filter")


class Filter:
    """A set of ids that a search may return. Make one with from_ids, from_mask or from_function, combine them:

        (in_stock & cheap) | ~seen

    `a & b` has the ids that are in both, `a | b` those in either, `~a` all others, also those that no row has yet. Filters
    do not change. `id in a` asks for one id; len(a) is how many ids it has, and a TypeError for what has no number of ids:
    a complement and a function. Ids that are not in the index are allowed and ignored.

    A filter that is made of a function asks it once per stored row and search, so the others are cheaper.
    """

    __slots__ = ("_function", "_ids", "_turned")
    __array_ufunc__ = None  # an array on the left of & is refused, not gone through element by element

    _ids: Ids  #: ascending, distinct
    _function: Callable[[int], object] | None
    _turned: bool  #: the ids that are not among these

    def __init__(self) -> None:
        raise TypeError("a filter is made with from_ids, from_mask or from_function")

    @staticmethod
    def from_ids(ids: Iterable[SupportsIndex] | npt.ArrayLike) -> Filter:
        """Of ids in any order: an array of integers, or any iterable of them; one that comes twice counts once."""
        return _of_ids(np.unique(as_ids(ids)))

    @staticmethod
    def from_mask(mask: npt.ArrayLike, first_id: SupportsIndex = 0) -> Bitmap:
        """Of one bool per id, shape (n,): the ids first_id + i for which mask[i] is true, and no others."""
        mask = np.asarray(mask)
        if mask.dtype != np.bool_ or mask.ndim != 1:
            hint = ": use mask.astype(bool)" if mask.dtype.kind in "iu" and mask.ndim == 1 else ""
            raise TypeError(f"mask is {mask.dtype.name} of shape {mask.shape}, wanted a one-dimensional bool array{hint}")
        packed = np.zeros((mask.size + 63) // 64 * 8, np.uint8)
        packed[: (mask.size + 7) // 8] = np.packbits(mask, bitorder="little")
        return Bitmap(packed.view("<u8").astype(np.uint64, copy=False), mask.size, first_id)

    @staticmethod
    def from_function(function: Callable[[int], object]) -> Filter:
        """Of the ids for which function(id) is true. An exception that it raises ends the search."""
        if not callable(function):
            raise TypeError(f"function is a {type(function).__name__}, wanted a function of an id")
        return _of_ids(np.empty(0, np.int64), function)

    def _has(self, ids: Ids) -> Bools:
        """Which of some ids are in the set, were it not turned."""
        function = self._function
        if function is not None:
            return np.fromiter((bool(function(i)) for i in ids.tolist()), np.bool_, ids.size)
        at = np.searchsorted(self._ids, ids)
        found: Bools = np.zeros(ids.shape, np.bool_)
        within = at < self._ids.size
        found[within] = self._ids[at[within]] == ids[within]
        return found

    def _all(self) -> Ids:
        """The ids of the set, ascending, were it not turned."""
        return self._ids

    def _fill(self, out: _structs.Filter, guard: CallGuard | None) -> object:
        """Describes the filter to the library. Returns what must stay alive."""
        if self._function is None:
            out.kind, out.n, out.ids = _structs.FILTER_IDS, self._ids.size, address(self._ids)
        else:
            assert guard is not None
            out.kind, out.fn = _structs.FILTER_CALLBACK, guard.filter(self._function)
        return self

    @property
    def asks(self) -> bool:
        """Whether a search calls a Python function for it."""
        return self._function is not None

    def contains(self, ids: Iterable[SupportsIndex] | npt.ArrayLike) -> Bools:
        """Which of some ids are in the set: a bool array."""
        return self._has(as_ids(ids)) ^ self._turned

    def __contains__(self, row_id: object) -> bool:
        number = single_id(row_id)
        if number is None:
            return False
        if self._function is not None:
            return bool(self._function(number)) ^ self._turned
        return bool(self._has(np.array([number]))[0]) ^ self._turned if -(2**63) <= number < 2**63 else self._turned

    def __len__(self) -> int:
        if self._turned or self._function is not None:
            raise TypeError(f"{self!r} has no number of ids: index.ids() and contains tell which rows are in it")
        return int(self._all().size)

    def __bool__(self) -> bool:
        return True  # `if filter:` asks whether there is one

    def __invert__(self: Self) -> Self:
        out = copy(self)
        out._turned = not self._turned
        return out

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        if self._function is not None or other._function is not None:
            return Filter.from_function(lambda row_id: row_id in self and row_id in other)
        if self._turned and other._turned:
            return ~_union(self, other)
        if self._turned:
            return _reduced(other, self)
        return _reduced(self, other)

    def __or__(self, other: Filter) -> Filter:
        return ~(~self & ~other) if isinstance(other, Filter) else NotImplemented

    def __repr__(self) -> str:
        return "~" * self._turned + (f"Filter(n={self._ids.size})" if self._function is None else "Filter(function)")


class Bitmap(Filter):
    """A filter by one bit per id: bit (id - first_id), least significant first, is 1 for a row that may be returned.
    Ids outside [first_id, first_id + n) are not returned. Made once, it costs a search nothing to pass.

    words       uint64 array, one-dimensional; used in place when it is contiguous.
    n           how many bits count; None: all of them.
    first_id    the id of bit 0, >= 0.

    `&`, `|` and `~` are those of Filter; ~bitmap has all ids outside its range.
    """

    __slots__ = ("first_id", "n", "words")

    def __init__(self, words: npt.NDArray[np.uint64], n: SupportsIndex | None = None, first_id: SupportsIndex = 0) -> None:
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.ndim != 1:
            raise TypeError("words must be a one-dimensional uint64 array")
        self.words = np.require(words, requirements=["C", "A"])
        self.n = as_count(64 * words.size if n is None else n, "n", 64 * words.size)
        self.first_id = as_count(first_id, "first_id")
        self._function, self._turned = None, False

    def _mask(self) -> Bools:
        """One bool per bit."""
        octets = self.words.astype("<u8", copy=False).view(np.uint8)
        return np.unpackbits(octets, bitorder="little")[: self.n].astype(np.bool_)

    def _has(self, ids: Ids) -> Bools:
        found: Bools = np.zeros(ids.shape, np.bool_)
        within = (ids >= self.first_id) & (ids - self.first_id < self.n) if self.n else found
        bits = (ids[within] - self.first_id).astype(np.uint64)
        found[within] = (self.words[bits >> np.uint64(6)] >> (bits & np.uint64(63)) & np.uint64(1)) != 0
        return found

    def _all(self) -> Ids:
        return np.flatnonzero(self._mask()).astype(np.int64) + self.first_id

    def _fill(self, out: _structs.Filter, guard: CallGuard | None) -> object:
        out.kind = _structs.FILTER_BITMAP
        out.n, out.bits, out.first_id = self.n, address(self.words), self.first_id
        return self

    def __repr__(self) -> str:
        return "~" * self._turned + f"Bitmap(n={self.n}, first_id={self.first_id})"


def _of_ids(ids: Ids, function: Callable[[int], object] | None = None) -> Filter:
    self = Filter.__new__(Filter)
    self._ids, self._function, self._turned = ids, function, False
    return self


def _reduced(of: Filter, by: Filter) -> Filter:
    """The ids of a set, which is not turned, that are in another filter too."""
    if isinstance(of, Bitmap) and not isinstance(by, Bitmap) and not by._turned:
        of, by = by, of  # the fewer ids decide
    if not isinstance(of, Bitmap):
        return _of_ids(of._ids[by._has(of._ids) ^ by._turned])
    mask, ids = of._mask(), np.arange(of.first_id, of.first_id + of.n, dtype=np.int64)
    return Filter.from_mask(mask & (by._has(ids) ^ by._turned), of.first_id)


def _union(a: Filter, b: Filter) -> Filter:
    """The ids of either of two sets, were they not turned: as a bitmap where that is not much larger than they are."""
    if isinstance(a, Bitmap) or isinstance(b, Bitmap):
        parts = [(s.first_id, s.first_id + s.n) for s in (a, b) if isinstance(s, Bitmap)]
        parts += [(int(s._ids[0]), int(s._ids[-1]) + 1) for s in (a, b) if not isinstance(s, Bitmap) and s._ids.size]
        first, end = min(p[0] for p in parts), max(p[1] for p in parts)
        size = sum(s.n if isinstance(s, Bitmap) else 64 * s._ids.size for s in (a, b))
        if first >= 0 and end - first <= 4 * size + 4096:
            mask = np.zeros(end - first, np.bool_)
            for s in (a, b):
                mask[s._all() - first] = True
            return Filter.from_mask(mask, first)
    return _of_ids(np.union1d(a._all(), b._all()))


FilterLike = Union[npt.ArrayLike, Iterable[SupportsIndex], Filter, Callable[[int], object]]


def as_filter(given: Any, index: int) -> Filter:
    """What a search was given, as a Filter. index: of the library, whose ids a mask must fit."""
    if isinstance(given, Filter):
        return given
    if callable(given):
        return Filter.from_function(given)
    array = np.asarray(given) if isinstance(given, (np.ndarray, list, tuple)) or hasattr(given, "__array__") else None
    if array is not None and array.dtype == np.bool_:
        return _of_whole_mask(array, index)
    ids = as_ids(given, "filter")
    if (ids[1:] > ids[:-1]).all():
        return _of_ids(ids)
    ascending = np.sort(ids)
    repeats = ascending[1:][ascending[1:] == ascending[:-1]]
    if repeats.size:
        raise InvalidError(
            f"filter has the id {repeats[0]} more than once: for a mask of one element per row use filter.astype(bool), for "
            "ids that repeat dci.Filter.from_ids"
        )
    return _of_ids(ascending)


def _of_whole_mask(mask: npt.NDArray[Any], index: int) -> Filter:
    if mask.ndim != 1:
        raise InvalidError(f"filter has shape {mask.shape}, wanted (n,)")
    wanted, count = lib.dci_index_next_id(index), lib.dci_index_count(index)
    if mask.size != wanted:
        raise InvalidError(
            f"filter is a mask of {mask.size} elements, wanted {wanted}, one for each id from 0 to the largest ever used "
            f"(the index has {count} rows): dci.Filter.from_mask takes a mask of any length"
        )
    return Filter.from_mask(mask)


def c_filter(given: Filter, guard: CallGuard | None) -> tuple[_structs.Filter, object]:
    """The filter for C, and what must stay alive as long as it is used. guard: where it asks a function."""
    out = prepared(_structs.Filter)
    kept = given._fill(out, guard)
    out.flags = _structs.FILTER_NOT if given._turned else 0
    return out, kept
