# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which rows a search may return: ids, a bitmap, or a Python function."""

from __future__ import annotations

from typing import Any, Callable, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from . import _structs
from ._errors import InvalidError
from ._guard import CallGuard
from ._library import address, prepared
from ._rows import as_count, as_ids


class Bitmap:
    """A filter by one bit per id: bit (id - first_id), least significant first, is 1 for a row that may be returned.
    Ids outside [first_id, first_id + n) are not returned. Made once, it costs a search nothing to pass.

    words       uint64 array, one-dimensional; used in place when it is contiguous.
    n           how many bits count; None: all of them.
    first_id    the id of bit 0, >= 0.
    """

    __slots__ = ("first_id", "n", "words")

    def __init__(self, words: npt.NDArray[np.uint64], n: SupportsIndex | None = None, first_id: SupportsIndex = 0) -> None:
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.ndim != 1:
            raise TypeError("words must be a one-dimensional uint64 array")
        self.words = np.require(words, requirements=["C", "A"])
        self.n = as_count(64 * words.size if n is None else n, "n", 64 * words.size)
        self.first_id = as_count(first_id, "first_id")

    @classmethod
    def from_mask(cls, mask: npt.NDArray[np.bool_], first_id: SupportsIndex = 0) -> Bitmap:
        """From one bool per id, shape (n,)."""
        mask = np.asarray(mask)
        if mask.dtype != np.bool_ or mask.ndim != 1:
            raise TypeError("mask must be a one-dimensional bool array")
        packed = np.zeros((mask.size + 63) // 64 * 8, np.uint8)
        packed[: (mask.size + 7) // 8] = np.packbits(mask, bitorder="little")
        return cls(packed.view("<u8").astype(np.uint64, copy=False), mask.size, first_id)

    def __repr__(self) -> str:
        return f"Bitmap(n={self.n}, first_id={self.first_id})"


Filter = Union[npt.ArrayLike, Bitmap, Callable[[int], object]]


def c_filter(given: Any, guard: CallGuard | None) -> tuple[_structs.Filter, object]:
    """The filter for C, and what must stay alive as long as it is used."""
    out = prepared(_structs.Filter)
    if callable(given):
        assert guard is not None
        out.kind = _structs.FILTER_CALLBACK
        out.fn = guard.filter(given)
        return out, None
    if not isinstance(given, Bitmap):
        array = np.asarray(given)
        if array.dtype != np.bool_:
            return out, _fill_ids(out, array)
        if array.ndim != 1:
            raise InvalidError(f"filter has shape {array.shape}, wanted (n,)")
        given = Bitmap.from_mask(array)
    out.kind = _structs.FILTER_BITMAP
    out.n, out.bits, out.first_id = given.n, address(given.words), given.first_id
    return out, given


def _fill_ids(out: _structs.Filter, array: npt.NDArray[Any]) -> object:
    ids = as_ids(array, "filter")
    if not (ids[1:] > ids[:-1]).all():
        ids = np.unique(ids)
    out.kind = _structs.FILTER_IDS
    out.n, out.ids = ids.size, address(ids)
    return ids
