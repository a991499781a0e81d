# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What can be asked of a tree (kind "mdci"): its pages, which of them changed, its shape."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint64
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _structs
from ._library import address, check, lib, prepared
from ._rows import as_count
from ._search import Ids, Searchable

# _structs.Page without what is reserved.
PAGE = np.dtype(
    {
        "names": ["page", "cell", "n_rows", "version"],
        "formats": ["i4", "i4", "u4", "u8"],
        "offsets": [0, 4, 8, 16],
        "itemsize": 24,
    }
)
# Room for changes at first: few pages change at a time, and more are asked for again.
_FEW = 64


class TreeStats(NamedTuple):
    """The shape of a tree."""

    n_rows: int
    n_levels: int  #: of nodes; 0 in an empty index
    n_nodes: tuple[int, ...]  #: by level, [0]: the lowest, whose cells hold rows
    page_rows: int  #: rows that a page has room for
    n_pages: int  #: numbers in use or free
    free_pages: int  #: free among them
    page_fill: float  #: rows per page in use, as a share of page_rows
    empty_cells: int  #: cells without rows
    median_cell: int  #: rows of the median cell
    p99_cell: int  #: of one that 99 % of the cells do not exceed
    largest_cell: int  #: of the largest
    version: int  #: see changes
    rebuilds: int  #: how often the tree was built as a whole


class Paged(Searchable):
    """The pages of an index of kind "mdci"; for other kinds every call here raises UnsupportedError, but for the shape of an
    index of kind "auto" that uses a tree."""

    __slots__ = ("_page_rows",)

    _page_rows: int

    def pages(self) -> npt.NDArray[np.void]:
        """The pages in use, cell by cell: a structured array of shape (n_pages,) with the fields

        page    its number, which it keeps while rows come and go.
        cell    the number of its cell; changes when cells vanish.
        n_rows  1 to page_rows.
        version that of the index when the page last changed.

        A page is up to page_rows rows of one cell, side by side in memory. Rows move between pages only when a promotion or
        the removal of a promoted row changes what is nearest, into a gap of their own cell, or when the tree is rebuilt;
        each such page is among the changes.
        """
        handle, n = self._open(), c_size_t()
        capacity = 0
        while True:
            pages = np.zeros(capacity, PAGE)
            check(lib.dci_index_pages(handle.value, capacity, address(pages), byref(n)))
            # An add on another thread may have come between two calls.
            if n.value <= capacity:
                return pages[: n.value]
            capacity = n.value

    def page_ids(self, page: SupportsIndex) -> Ids:
        """The ids in a page, shape (n_rows,), in the order in which its rows lie; empty for a page that is free."""
        handle, n = self._open(), c_size_t()
        ids = np.empty(self._page_rows, np.int64)
        check(lib.dci_index_page_ids(handle.value, as_count(page, "page", 2**31 - 1), address(ids), byref(n)))
        return ids[: n.value]

    def changes(self, version: SupportsIndex = 0) -> tuple[npt.NDArray[np.int32], int]:
        """The log of changes: pages whose rows have changed since a version, and the version now.

        version     what a former call returned; 0: since the index was created.

        Returns the pages, ascending, shape (n,), free ones among them; and the version. A caller asks, brings its copy of
        the pages up to date with page_ids, and asks again from the version that it got. Nothing is forgotten and nothing
        piles up.
        """
        handle, n, now = self._open(), c_size_t(), c_uint64()
        since = as_count(version, "version", 2**64 - 1)
        capacity = _FEW
        while True:
            pages = np.empty(capacity, np.int32)
            check(lib.dci_index_changes(handle.value, since, capacity, address(pages), byref(n), byref(now)))
            if n.value <= capacity:
                return pages[: n.value], now.value
            capacity = n.value

    def tree_stats(self) -> TreeStats:
        """The shape of the tree now."""
        stats = prepared(_structs.TreeStats)
        check(lib.dci_index_tree_stats(self._open().value, byref(stats)))
        fields: dict[str, Any] = {name: getattr(stats, name) for name in TreeStats._fields}
        fields["n_nodes"] = tuple(stats.n_nodes[: stats.n_levels])
        return TreeStats(**fields)
