# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The index: rows, their ids, and the k of them that score highest for a query."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from ctypes import byref, c_size_t
from typing import Any, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from . import _structs
from ._edit import Editable
from ._errors import DciError, InvalidError, LimitError, a_type
from ._guard import CallGuard
from ._library import address, check, chosen, create, lib, metric_of, prepared
from ._metadata import Metadata, store
from ._paths import Path, encoded, plain
from ._rows import Progress, as_count, as_number, as_progress, as_rows, row_format
from ._streams import Readable, Writable, is_file_object, reader, writer
from .context import Context, context_of

Self = TypeVar("Self", bound="Index")


class Index(Editable):
    """Stored rows, and which k of them score highest for a query.

    dim         elements per row.
    metric      "l2" (the default, as in C: squared distance, smaller is better), "ip" (inner product, larger is better),
                "cosine" (larger is better). Other words for them: "euclidean" and "sqeuclidean" ("l2"; scores are squared
                distances all the same), "inner_product" and "dot" ("ip"), "cos" and "angular" ("cosine").
    kind        "flat": every row is scored, so results are exact. "pdci" (Prioritized DCI): rows are ranked by their
                projections on random directions and the best ranked are scored, as many as the recall takes; exact at
                recall 1. "mdci" (Multi-level DCI): a tree of randomly promoted rows; every row lies in the cell of the
                promoted row nearest to it, and a search opens the best cells, as many as the recall takes; exact at recall
                1. Rows come and go at any time and lie in pages (see pages and changes). "auto": "flat" for few rows, "flat"
                with codes for more, "mdci" with codes for many. An add that needs another kind makes it while searches go
                on; a remove that leaves far fewer rows goes back. kind and sketch_bits say what is in use. pages, page_ids
                and changes want "mdci".
    dtype       rows as stored: "float32", "float16", "bfloat16", "int8" or "uint8". Rows of int8 and uint8 are stored and
                scored exactly, in a quarter of the memory of float32; queries of integers from -128 to 127 or from 0 to 255
                are scored in integers whatever their array's dtype, others as float32.
    storage     "owned": add copies the rows. "borrowed": add remembers where they are and the index keeps their memory alive
                until it is empty or closed; the caller must not change it (resizing or closing it included). Rows that would
                have to be copied or converted are refused.
    zero_rows   "cosine" only: "refuse" (None: this) or "keep" rows and queries of all zeros.
    context     threads and instruction set; None: default_context().
    input_dtype rows and queries as passed to add and search; None: dtype, and float32 for queries of an index of int8 or
                uint8, which takes real numbers of any kind. Borrowed rows always have dtype.
    num_comp_indices
                "pdci" only: composite indices, 1 or more; None: 2. Each proposes its own candidates.
    num_simp_indices
                "pdci" only: simple indices of each composite index, 1 or more; None: 7. Each is one random direction and
                costs 4 bytes per row. num_comp_indices * num_simp_indices is at most 4096.
    seed        of all that is random: the directions of "pdci", the promotions of "mdci" and "auto", with codes the
                rotation; 0 to 2**64 - 1. The same seed gives the same ones everywhere. Every kind takes one.
    promotion_prob
                "mdci" and "auto": chance of a row to become a node of the lowest level, 0.001 to 0.5; None: 0.035. It is
                drawn from seed and id, so the order of adds has no part in it.
    promotion_prob_subseq
                "mdci" and "auto": chance of a node to become one of the next level, 0.001 to 0.5; None: 0.2.
    page_rows   "mdci" and "auto" (16 or more): rows of a page, a power of two from 4 to 256; None: 16. Cells are made of
                whole pages.
    top_nodes   "mdci" and "auto": another level is built above one of more nodes than this, 1 or more; None: 4096.
    cell_simp_indices
                "mdci" only: simple indices by which P-DCI ranks the rows of the opened cells, at most 4096; None or 0: all
                rows of an opened cell are scored, which is faster.
    sketch_bits 1, 2, 3, 4 or 8: every row has a code of so many bits per element; searches rank rows by their codes and
                score only the best of them (rerank and guarantee of search say how many). fit makes codes for queries like
                those to come. dim is at most 32736 then, and page_rows 16 or more. 0: none; "auto": 4 where it takes codes.

    An option that the kind or the metric does not have is refused when it is given, whatever its value.
    recall      above 0, at most 1: the share of the k best that searches find unless they say otherwise, see search. Adds
                and removes keep measuring what it takes; 1.0: exact, nothing is measured. "flat" without codes is exact.

    Rows and queries have shape (n, dim), or (dim,) for one. Arrays of the input dtype whose rows are contiguous are read
    in place, whatever lies between rows; others are copied once. Tensors with `__dlpack__` in the host's memory, such as
    those of torch, are taken as arrays are.

    What an array holds is what its dtype says, here and in the whole package. A float32 input takes integers of every
    width, bool (0 and 1) and floats, and rounds them to the nearest float32: integers are exact up to 2**24, float64 arrays
    gain no precision, and what float32 cannot reach (1e300) is refused. A float16 or bfloat16 input takes its own format,
    and bool, int8 and uint8, which both hold exactly; an int8 or uint8 one takes numbers that are integers in its range.
    bfloat16 is an array of ml_dtypes.bfloat16 or a tensor of that type; a uint16 array holds its bits only where the option
    that says what the array is (here dtype or input_dtype) was given as "bfloat16", and integers everywhere else.
    Everything else is refused by name.

    Searches may run on several threads at once, concurrently with one add; calls release the interpreter lock. Errors are
    exceptions derived from DciError.

    Ctrl-C (KeyboardInterrupt, or what another signal's handler raises) stops searches that take longer than some tens of
    milliseconds and adds that take longer than one or two, in the main thread. An add that it stops has changed nothing, and
    may be made again. Two cases remain in which add raises and the rows are in the index: an add shorter than that, and a
    signal that arrives after the rows became visible, while add returns (microseconds; for "mdci" also while the rows enter
    their cells). len(index) tells.

    An index is a collection of rows by id: len(index), id in index, index[id] (a row, or the rows of several ids), del
    index[id], and iteration over ids, ascending.

    An index is saved to a file or to bytes, with its rows, ids, defaults and metadata, and loaded from them on any machine;
    by path, or by a file object.
    Pickling goes the same way and gives an index of default_context(); copies have the context of the original. What was
    borrowed is owned afterwards. Attributes that a subclass adds are pickled and copied too.
    """

    __slots__ = (
        "_add_input",
        "_context",
        "_dtype",
        "_lock",
        "_mapped",
        "_metric",
        "_promotion_prob",
        "_storage",
    )

    def __init__(
        self,
        dim: int,
        metric: str = "l2",
        *,
        kind: str = "flat",
        dtype: npt.DTypeLike = "float32",
        storage: str = "owned",
        zero_rows: str | None = None,
        context: Context | None = None,
        input_dtype: npt.DTypeLike | None = None,
        num_comp_indices: SupportsIndex | None = None,
        num_simp_indices: SupportsIndex | None = None,
        seed: SupportsIndex = 0,
        promotion_prob: float | None = None,
        promotion_prob_subseq: float | None = None,
        page_rows: SupportsIndex | None = None,
        top_nodes: SupportsIndex | None = None,
        cell_simp_indices: SupportsIndex | None = None,
        sketch_bits: SupportsIndex = 0,
        recall: float = 0.95,
    ) -> None:
        self._handle = None
        self._dim = as_count(dim, "dim")
        self._dtype = row_format(dtype, "dtype")
        self._input = self._dtype if input_dtype is None else row_format(input_dtype, "input_dtype")
        self._add_input = self._dtype if storage == "borrowed" else self._input
        if input_dtype is None and self._dtype.dtype.itemsize == 1:
            self._input = row_format("float32", "input_dtype")
        self._kind, self._metric, self._storage, self._mapped = kind, metric_of(metric), storage, False
        self._context = context_of(context)
        # Only borrowed rows need it: see _add_borrowed.
        self._lock: AbstractContextManager[object] = threading.RLock() if storage == "borrowed" else nullcontext()
        config = prepared(_structs.IndexConfig)
        config.dim = self._dim
        config.kind = chosen(_structs.KINDS, kind, "kind")
        config.metric = _structs.METRICS[self._metric]
        config.dtype = self._dtype.code
        config.query_dtype = self._input.code
        config.storage = chosen(_structs.STORAGES, storage, "storage")
        config.add_dtype = self._add_input.code
        if zero_rows is not None:
            config.zero_rows = chosen(_structs.ZERO_ROWS, zero_rows, "zero_rows")
            if self._metric != "cosine":
                given = f"zero_rows is {zero_rows!r}"
                raise InvalidError(f"{given}, an option of metric 'cosine': the metric is {self._metric!r}")
        config.seed = as_count(seed, "seed", 2**64 - 1)
        of_kind: dict[str, Any] = {
            "num_comp_indices": num_comp_indices,
            "num_simp_indices": num_simp_indices,
            "promotion_prob": promotion_prob,
            "promotion_prob_subseq": promotion_prob_subseq,
            "page_rows": page_rows,
            "top_nodes": top_nodes,
            "cell_simp_indices": cell_simp_indices,
        }
        for name, value in of_kind.items():
            if value is None:
                continue
            if kind != _KIND_OF[name] and not (kind == "auto" and name in _OF_AUTO):
                raise InvalidError(f"{name} is {value!r}, an option of kind {_KIND_OF[name]!r}: the kind is {kind!r}")
            setattr(config, name, (as_number if name.startswith("promotion_prob") else as_count)(value, name))
        config.sketch_bits = as_count(sketch_bits, "sketch_bits", 2**31 - 1)
        config.target_recall = as_number(recall, "recall")
        self._take(config)
        self._handle = create(lib.dci_index_create, lib.dci_index_destroy, self._context._handle.value, byref(config))

    def _take(self, config: _structs.IndexConfig) -> None:
        """Keeps what calls need to know of a config."""
        simple = {"pdci": config.num_comp_indices * config.num_simp_indices, "mdci": config.cell_simp_indices}
        self._n_simple = simple.get(self._kind, 0)
        self._page_rows = config.page_rows
        self._sketch_bits = config.sketch_bits
        self._promotion_prob = config.promotion_prob if self._kind in ("mdci", "auto") else 0.0

    def reserve(self, n: SupportsIndex) -> None:
        """Takes memory so that the index holds n rows in all without another allocation for rows."""
        check(lib.dci_index_reserve(self._open().value, as_count(n, "n")))

    def fit(self, queries: npt.ArrayLike, *, progress: Progress | None = None) -> None:
        """Fits the codes of an index with sketch_bits to queries: learns a transform from its rows and these queries, and
        encodes all rows again; rows added later use it, too. Codes then rank better for queries like these.

        queries (n, dim), or (dim,) for one: as they will come, some hundred, such as the last 64 positions of a prompt, all
                heads of a group.

        progress
                as in add: rows encoded. While the transform is learned, some seconds at the largest dim, there is no report.

        dim is at most 1024. Searches go on; adds and removes on other threads wait. Ctrl-C ends it, and nothing has changed
        then.
        """
        handle = self._open()
        rows, n, ld = as_rows(queries, self._dim, self._input, "queries")
        with CallGuard(as_progress(progress)) as guard:
            status = lib.dci_index_fit_with(handle.value, n, address(rows), ld, byref(guard.progress))
        guard.raise_kept()
        check(status)

    def memory(self) -> dict[str, int]:
        """Bytes the index holds: rows (used or reserved; the pointers to them if borrowed), ids, norms, projections, codes,
        other, total."""
        report = prepared(_structs.MemoryReport)
        check(lib.dci_index_memory(self._open().value, byref(report)))
        return {name: getattr(report, name) for name in _MEMORY}

    def check(self, *, full: bool = True, progress: Progress | None = None) -> None:
        """Checks the index against everything that must hold of it; FormatError says what does not, and where. Of use where
        memory, a file or this library is in doubt. Nothing is changed.

        full    False: what is counted, listed and linked. True: also what was computed from rows, computed again: norms,
                projections, codes, cells.

        Searches go on; adds and removes on other threads wait. Ctrl-C ends it, and progress may, as in add.
        """
        handle = self._open()
        with CallGuard(as_progress(progress)) as guard:
            level = _structs.CHECK_FULL if full else _structs.CHECK_STRUCTURE
            status = lib.dci_index_check(handle.value, level, byref(guard.progress))
        guard.raise_kept()
        check(status)

    def save(self, path: Path | Writable) -> None:
        """Saves the index to a file.

        path    of a file: one that is there already is replaced as a whole, or, on any failure, not at all. Or a file object
                in binary mode: what has write(bytes), such as an open file, io.BytesIO, a GzipFile or a client's upload. It
                gets the same bytes in pieces of at most a mebibyte, from where it stands; what write raises comes out of
                here, and what was written by then is of no use.

        Searches go on; adds and removes on other threads wait. docs/format.md describes the bytes. A file that cannot be
        written raises FileError with errno and filename, which is also Python's own exception for that errno.
        """
        handle = self._open()
        if not is_file_object(path, "write"):
            check(lib.dci_index_save(handle.value, encoded(path)), plain(path))  # type: ignore[arg-type]
            return
        with CallGuard() as guard:
            to = writer(path, guard)  # type: ignore[arg-type]
            status = lib.dci_index_save_stream(handle.value, byref(to))
        guard.raise_kept()
        check(status)

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
    def load(cls: type[Self], path: Path | Readable, context: Context | None = None) -> Self:
        """Loads an index that save wrote, on this machine or another. It answers, and goes on, as the one that was saved.

        path        of a file, or a file object in binary mode: what has read(n). Exactly the index's bytes are read from
                    where it stands; what read raises comes out of here.
        context     threads and instruction set; None: default_context().

        A damaged or shortened file raises FormatError, one of a newer version UnsupportedError, a missing one a FileError
        that is also a FileNotFoundError.
        """
        if not is_file_object(path, "read"):
            where: Any = path
            return cls._loaded(context, lib.dci_index_load, encoded(where), path=plain(where))
        failed: DciError | None = None
        with CallGuard() as guard:
            source = reader(path, guard)  # type: ignore[arg-type]
            try:
                index = cls._loaded(context, lib.dci_index_load_stream, byref(source))
            except DciError as error:
                failed = error
        guard.raise_kept()
        if failed is not None:
            raise failed
        return index

    @classmethod
    def map(cls: type[Self], path: Path, context: Context | None = None) -> Self:
        """As load, but rows stay in the file, which processes that map it share. It must not be written to as long as the
        index is open; saving over it, or deleting it, is fine. add, remove, reserve and fit raise UnsupportedError."""
        return cls._loaded(context, lib.dci_index_map, encoded(path), path=plain(path), mapped=True)

    @classmethod
    def from_bytes(cls: type[Self], data: bytes | bytearray | memoryview, context: Context | None = None) -> Self:
        """Loads an index from what to_bytes returned, or from the bytes of a file; any contiguous buffer will do."""
        try:
            given = memoryview(data)
        except TypeError:
            raise TypeError(f"data is {a_type(data)}, wanted bytes or another buffer") from None
        if not given.c_contiguous:
            raise InvalidError("data is a buffer with gaps, wanted contiguous bytes")
        view = np.frombuffer(data, np.uint8) if given.nbytes else np.empty(0, np.uint8)
        return cls._loaded(context, lib.dci_index_load_memory, address(view), view.size)

    @classmethod
    def _loaded(
        cls: type[Self],
        context: Context | None,
        function: Any,
        *arguments: Any,
        path: str | bytes | None = None,
        mapped: bool = False,
    ) -> Self:
        self = cls.__new__(cls)
        self._context, self._mapped = context_of(context), mapped
        handle = create(function, lib.dci_index_destroy, self._context._handle.value, *arguments, path=path)
        config = prepared(_structs.IndexConfig)
        check(lib.dci_index_get_config(handle.value, byref(config)))
        self._dim = config.dim
        formats = (config.dtype, config.add_dtype, config.query_dtype)
        self._dtype, self._add_input, self._input = (row_format(_name(_structs.DTYPES, code), "dtype") for code in formats)
        self._kind, self._metric = _name(_structs.KINDS, config.kind), _name(_structs.METRICS, config.metric)
        if lib.dci_index_is_auto(handle.value):
            self._kind = "auto"
        self._storage, self._lock = "owned", nullcontext()
        self._take(config)
        self._handle = handle
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),), _state_of(self)

    def __copy__(self: Self) -> Self:
        """A copy with rows of its own and the same context. Attributes of subclasses are the same objects in both."""
        return _restored(type(self).from_bytes(self.to_bytes(), self._context), _state_of(self))

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        out = type(self).from_bytes(self.to_bytes(), self._context)
        memo[id(self)] = out
        return _restored(out, deepcopy(_state_of(self), memo))

    @property
    def metadata(self) -> dict[str, Any]:
        """What you keep with the index: a dict that JSON can hold, at most 1 MiB of it, empty at first. It is saved, loaded,
        mapped, pickled and copied with the index. Assign a dict, or change this one; lists and dicts within it are copies,
        which must be assigned again when they change."""
        return Metadata(self._open())

    @metadata.setter
    def metadata(self, value: dict[str, Any]) -> None:
        store(self._open(), value)

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
        """ "l2", "ip" or "cosine", whatever word was given for it."""
        return self._metric

    @property
    def kind(self) -> str:
        """How rows are found: "flat", "pdci" or "mdci". Of an index that was made with "auto" it is the one in use."""
        return self._kind if self._kind != "auto" else self._in_use()[0]

    @property
    def is_auto(self) -> bool:
        """Whether the index was made with kind "auto"."""
        return self._kind == "auto"

    @property
    def dtype(self) -> str:
        """Rows as stored."""
        return self._dtype.name

    @property
    def input_dtype(self) -> str:
        """Rows and queries as passed to add and search; of int8 and uint8 rows, queries."""
        return self._input.name

    @property
    def storage(self) -> str:
        """ "owned" or "borrowed"."""
        return self._storage

    @property
    def sketch_bits(self) -> int:
        """Bits per element of the codes; 0: none."""
        return self._sketch_bits if self._kind != "auto" else self._in_use()[1]

    def _in_use(self) -> tuple[str, int]:
        """The kind and the width of codes that an index of kind "auto" uses now."""
        config = prepared(_structs.IndexConfig)
        check(lib.dci_index_get_config(self._open().value, byref(config)))
        return _name(_structs.KINDS, config.kind), config.sketch_bits

    @property
    def is_mapped(self) -> bool:
        """Whether the rows are in a file that map mapped: such an index cannot be changed, load gives one that can."""
        return self._mapped

    @property
    def context(self) -> Context:
        """Threads and instruction set."""
        return self._context

    def close(self) -> None:
        """Frees the index, once the calls that are running on it are done. Closing twice is allowed."""
        self._handle = None

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True  # an empty index is an index: `if index:` asks whether there is one

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"count={self.count}" + (", mapped" if self._mapped else "")
        kind = self._kind
        if kind == "auto" and self._handle is not None:
            used, bits = self._in_use()
            kind = f"auto: {used} with {bits}-bit codes" if bits else f"auto: {used}"
        return f"Index(dim={self._dim}, metric={self._metric!r}, kind={kind!r}, dtype={self.dtype!r}, {state})"


# Options that one kind has.
_KIND_OF = {
    "num_comp_indices": "pdci",
    "num_simp_indices": "pdci",
    "promotion_prob": "mdci",
    "promotion_prob_subseq": "mdci",
    "page_rows": "mdci",
    "top_nodes": "mdci",
    "cell_simp_indices": "mdci",
}
# Those of them that "auto" takes for when it is "mdci".
_OF_AUTO = ("promotion_prob", "promotion_prob_subseq", "page_rows", "top_nodes")
_MEMORY = ("rows", "ids", "norms", "projections", "codes", "other", "total")


def _name(names: dict[str, int], code: int) -> str:
    """The Python name of a C constant."""
    return next(name for name, value in names.items() if value == code)


def _state_of(index: Index) -> tuple[dict[str, Any] | None, dict[str, Any]] | None:
    """What subclasses have added: attributes, and slots."""
    attributes = dict(getattr(index, "__dict__", {}))
    names = {name for of in type(index).__mro__ if of not in Index.__mro__ for name in _slots_of(of)}
    slots = {name: getattr(index, name) for name in sorted(names) if hasattr(index, name)}
    return (attributes or None, slots) if attributes or slots else None


def _slots_of(of: type) -> list[str]:
    slots = of.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    private = "_" + of.__name__.lstrip("_")
    names = [private + name if name.startswith("__") and not name.endswith("__") else name for name in names]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _restored(index: Self, state: tuple[dict[str, Any] | None, dict[str, Any]] | None) -> Self:
    if state is not None:
        for given in state:
            for name, value in (given or {}).items():
                setattr(index, name, value)
    return index
