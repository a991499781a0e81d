# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Sketches: a few bits of every coordinate of rows, and what they say of inner products."""

from __future__ import annotations

from ctypes import byref
from typing import Any, ClassVar, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _structs
from ._errors import InvalidError
from ._guard import Turns
from ._library import Handle, address, check, chosen, create, lib, prepared
from ._rows import as_count, as_floats, as_ids, as_number, as_rows, check_output, row_format
from ._search import Ids, Scores, results
from .context import Context, context_of

# The largest k of the library.
_MOST_K = 2**24
# Those that are called by their name.
_NAMED_CENTRES = {name: value for name, value in _structs.CENTRES.items() if name != "given"}


class SketchInfo(NamedTuple):
    """Figures of a sketch."""

    n_rows: int
    bytes: int  #: of memory, in all
    row_bytes: int  #: of a row's codes and its two floats
    transforms: int  #: in use: one from the first row on, and one per fit
    centres: int  #: transforms with their centres; the two together are at most 128
    #: Mean squared distortion of the last 1024 rows, as a share of that of the first 1024 that use the last row's transform.
    #: Well above 1 (say 1.5): fit again. Infinite where only the last rows have any; NaN without rows.
    drift: float
    isa: str  #: the instructions that score: "avx512 vnni", "avx512", "avx2", "neon dot", "neon" or "scalar"


class Sketch:
    """A few bits of every coordinate of a growing sequence of rows, numbered from 0: ranks rows by inner product at a
    fraction of the bytes.

    dim         elements per row, 1 to MAX_DIM.
    bits        per coordinate: 1, 2, 3, 4 or 8. After fit on average: coordinates that matter get more.
    transform   what rows go through before they are rounded, until one is learned by fit: "random" (a random rotation, with
                which estimates are unbiased) or "none" (for rows that are random already).
    centre      what is subtracted from rows before: "running" (the mean of the first rows, and from then on of the latest
                ones whenever they have moved off it), "none", or a vector (dim,) of real numbers, which is copied.
    dtype       rows as passed to append and fit: "float32", "float16" or "bfloat16".
    query_dtype queries as passed; None: dtype.
    seed        of the rotation, 0 to 2**64 - 1. The same seed, input and instruction set give the same bits at any number of
                threads and of rows or queries in a call.
    context     threads and instruction set; None: default_context().

    A row takes bits * dim / 8 bytes, dim rounded up to a multiple of 8 at 4 bits, 16 at 2 and 32 at 1 and 3, and 8 more. The
    rows are not kept. Up to GROUP queries of a call share the reading of the codes.

    Rows and queries have shape (n, dim), or (dim,) for one. Arrays of the dtype whose rows are contiguous are read in place,
    whatever lies between rows; others are copied once. What float32, float16 and bfloat16 take is as for Index.

    Calls may come from any thread, and the interpreter lock is released during them. score, bound, search, decode and info
    run side by side; append, truncate, reserve and fit wait for calls that are running, and others wait for them. Ctrl-C
    takes effect when the call that it falls into is done. Errors are exceptions derived from DciError.
    """

    __slots__ = (
        "_bits",
        "_centre",
        "_context",
        "_dim",
        "_handle",
        "_query",
        "_row",
        "_transform",
        "_turns",
    )

    #: Most elements of a row.
    MAX_DIM: ClassVar[int] = _structs.SKETCH_MAX_DIM
    #: Most elements of a row where a transform is to be learned.
    MAX_FIT_DIM: ClassVar[int] = _structs.SKETCH_MAX_FIT_DIM
    #: Queries that share the reading of the codes.
    GROUP: ClassVar[int] = _structs.SKETCH_GROUP

    def __init__(
        self,
        dim: SupportsIndex,
        bits: SupportsIndex = 4,
        transform: str = "random",
        centre: npt.ArrayLike = "running",
        *,
        dtype: npt.DTypeLike = "float32",
        query_dtype: npt.DTypeLike | None = None,
        seed: SupportsIndex = 0,
        context: Context | None = None,
    ) -> None:
        self._handle: Handle | None = None
        self._dim = as_count(dim, "dim")
        self._bits = as_count(bits, "bits", 2**31 - 1)
        self._row = row_format(dtype, "dtype", "sketch", "dtype")
        asked = self._row.name if query_dtype is None else query_dtype
        self._query = row_format(asked, "query_dtype", "sketch", "query_dtype")
        self._transform, self._centre = transform, centre if isinstance(centre, str) else "given"
        self._context = context_of(context)
        self._turns = Turns()
        config = prepared(_structs.SketchConfig)
        config.dim, config.bits, config.seed = self._dim, self._bits, as_count(seed, "seed", 2**64 - 1)
        config.dtype, config.query_dtype = self._row.code, self._query.code
        config.transform = chosen(_structs.SKETCH_TRANSFORMS, transform, "transform")
        given = None
        if isinstance(centre, str):
            config.centre = chosen(_NAMED_CENTRES, centre, "centre")
        else:
            given = as_floats(centre, (self._dim,), "centre")
            config.centre, config.given_centre = _structs.CENTRES["given"], address(given)
        self._handle = create(lib.dci_sketch_create, lib.dci_sketch_destroy, self._context._handle.value, byref(config))

    def _open(self) -> Handle:
        if self._handle is None:
            raise InvalidError("the sketch is closed")
        return self._handle

    def append(self, rows: npt.ArrayLike) -> None:
        """Encodes rows and appends them, all or none. rows: (n, dim) or (dim,)."""
        handle = self._open()
        array, n, ld = as_rows(rows, self._dim, self._row, "rows")
        check(self._turns.alone(lib.dci_sketch_append, handle.value, n, address(array), ld))

    def truncate(self, n: SupportsIndex) -> None:
        """Forgets all rows from number n on, and transforms and centres that only they had; n is at most the count."""
        handle, left = self._open(), as_count(n, "n")
        check(self._turns.alone(lib.dci_sketch_truncate, handle.value, left))

    def reserve(self, n: SupportsIndex) -> None:
        """Takes memory so that the sketch holds n rows in all without another allocation."""
        handle, wanted = self._open(), as_count(n, "n")
        check(self._turns.alone(lib.dci_sketch_reserve, handle.value, wanted))

    def fit(self, rows: npt.ArrayLike, queries: npt.ArrayLike) -> None:
        """Learns a transform for rows appended from now on, which gives bits to where they matter for queries like these.

        rows    (n, dim) or (dim,): like those to come; at most 8192 of them, evenly spread, are looked at.
        queries (n, dim) or (dim,): like those to come, such as the last 64 positions of a prompt, all heads of a group.

        The mean of these rows is the centre from then on, until the next fit, also of a "running" one. Codes that are there
        stay as they are, and a block of 32 rows that was begun goes on with the transform it has; to encode rows again,
        truncate and append them. dim is at most MAX_FIT_DIM.
        """
        handle = self._open()
        array, n, ld = as_rows(rows, self._dim, self._row, "rows")
        asked, n_queries, query_ld = as_rows(queries, self._dim, self._query, "queries")
        where = (n, address(array), ld, n_queries, address(asked), query_ld)
        check(self._turns.alone(lib.dci_sketch_fit, handle.value, *where))

    def score(
        self,
        queries: npt.ArrayLike,
        first: SupportsIndex = 0,
        n: SupportsIndex | None = None,
        *,
        out: Scores | None = None,
    ) -> Scores:
        """Estimates inner products with rows [first, first + n).

        queries (n_queries, dim), or (dim,) for one.
        n       None: all rows from first on.
        out     C-contiguous float32 of the result's shape, to write to.

        Returns (n_queries, n) float32, or (n,) for one-dimensional queries: column i for row first + i.
        """
        return self._values(lib.dci_sketch_score, queries, first, n, (), out)

    def bound(
        self,
        queries: npt.ArrayLike,
        first: SupportsIndex = 0,
        n: SupportsIndex | None = None,
        probability: float = 1.0,
        *,
        out: Scores | None = None,
    ) -> Scores:
        """How far those estimates may lie from the inner products, in the same places.

        probability 1: for certain. Less, above 0: for each query and row with this probability over the choice of a random
                    rotation; rows coded with a learned transform or none keep the certain bound.

        The rest as in score.
        """
        return self._values(lib.dci_sketch_bound, queries, first, n, (as_number(probability, "probability"),), out)

    def _values(
        self,
        function: Any,
        queries: npt.ArrayLike,
        first: SupportsIndex,
        n: SupportsIndex | None,
        more: tuple[Any, ...],
        out: Scores | None,
    ) -> Scores:
        handle = self._open()
        asked, n_queries, ld = as_rows(queries, self._dim, self._query, "queries")
        begin = as_count(first, "first")
        wanted = None if n is None else as_count(n, "n")
        with self._turns.shared():
            count = lib.dci_sketch_count(handle.value)
            if wanted is None:
                wanted = max(count - begin, 0)
            if begin + wanted > count:
                # The library refuses this range, also without queries; asked before there is an array of that size.
                check(function(handle.value, 0, None, self._dim, begin, wanted, *more, None, wanted))
            shape = (wanted,) if asked.ndim == 1 else (n_queries, wanted)
            if out is None:
                out = np.empty(shape, np.float32)
            else:
                check_output(out, np.float32, shape, "values")
            check(function(handle.value, n_queries, address(asked), ld, begin, wanted, *more, address(out), wanted))
        return out

    def search(
        self, queries: npt.ArrayLike, k: SupportsIndex = 10, *, out: tuple[Ids, Scores] | None = None
    ) -> tuple[Ids, Scores]:
        """Finds the k rows of the highest estimates for each query, in one pass over the codes.

        queries (n, dim), or (dim,) for one.
        k       1 to 2**24; may exceed the number of rows: results are padded with row -1 and score NaN.
        out     (rows, scores), C-contiguous int64 and float32 of the result's shape, to write to.

        Returns rows and scores of shape (n, k), or (k,) for one-dimensional queries, best first, ties by lower number.
        """
        handle = self._open()
        asked, n_queries, ld = as_rows(queries, self._dim, self._query, "queries")
        k = as_count(k, "k")
        if k > _MOST_K:
            # Refused by the library, before there are arrays of that size.
            check(lib.dci_sketch_search(handle.value, 0, None, self._dim, k, None, None))
        rows, scores = results(out, (k,) if asked.ndim == 1 else (n_queries, k), "rows")
        with self._turns.shared():
            check(lib.dci_sketch_search(handle.value, n_queries, address(asked), ld, k, address(rows), address(scores)))
        return rows, scores

    def decode(self, rows: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """What codes say of rows. rows: their numbers, (n,), or one integer.

        Returns (n, dim) float32, or (dim,) for one integer. A number that is not below the count raises NotFoundError.
        """
        handle = self._open()
        numbers = as_ids(rows, "rows")
        out = np.empty((numbers.size, self._dim), np.float32)
        with self._turns.shared():
            check(lib.dci_sketch_decode(handle.value, numbers.size, address(numbers), address(out), self._dim))
        return out[0] if np.ndim(rows) == 0 else out

    def info(self) -> SketchInfo:
        """Rows, bytes, transforms, and whether rows have drifted away from what was learned."""
        handle, info = self._open(), prepared(_structs.SketchInfo)
        with self._turns.shared():
            check(lib.dci_sketch_get_info(handle.value, byref(info)))
        fields: dict[str, Any] = {name: getattr(info, name) for name in SketchInfo._fields}
        fields["isa"] = info.isa.decode()
        return SketchInfo(**fields)

    @property
    def count(self) -> int:
        """Rows in the sketch; also len()."""
        handle = self._open()
        with self._turns.shared():
            return lib.dci_sketch_count(handle.value)  # type: ignore[no-any-return]

    @property
    def dim(self) -> int:
        """Elements per row."""
        return self._dim

    @property
    def bits(self) -> int:
        """Per coordinate, learned: on average."""
        return self._bits

    @property
    def transform(self) -> str:
        """ "random" or "none": what rows go through until a transform is learned."""
        return self._transform

    @property
    def centre(self) -> str:
        """ "running", "none" or "given"."""
        return self._centre

    @property
    def dtype(self) -> str:
        """Rows as passed to append and fit."""
        return self._row.name

    @property
    def query_dtype(self) -> str:
        """Queries as passed."""
        return self._query.name

    @property
    def context(self) -> Context:
        """Threads and instruction set."""
        return self._context

    def close(self) -> None:
        """Frees the sketch, once the calls that are running on it are done. Closing twice is allowed."""
        self._handle = None

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True  # an empty sketch is a sketch

    def __enter__(self) -> Sketch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Sketch cannot be copied or pickled, as it keeps codes but no rows: keep the rows and append them to another, "
            "or use an Index with sketch_bits, which can be"
        )

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"count={self.count}"
        form = f"transform={self._transform!r}, centre={self._centre!r}, dtype={self.dtype!r}"
        return f"Sketch(dim={self._dim}, bits={self._bits}, {form}, {state})"
