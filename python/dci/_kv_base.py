# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What KVCache and GPUKVCache have in common: options, sequences, and what is only read."""

from __future__ import annotations

from ctypes import byref, c_int64
from typing import Any, ClassVar, SupportsIndex, Union

import numpy as np
import numpy.typing as npt

from . import _kv_structs, _structs
from ._errors import InvalidError
from ._guard import CallGuard
from ._kv_config import c_config, current_names, renamed, set_layers, set_layout
from ._kv_info import KVInfo, KVSequenceInfo, info_of, sequence_info_of
from ._kv_plan import Integers
from ._kv_rows import as_sequences
from ._library import Handle, address, check, lib, prepared
from ._paths import Path, encoded, plain
from ._rows import RowFormat, as_count, row_format

Sequences = Union[SupportsIndex, npt.ArrayLike]
Counts = Union[SupportsIndex, npt.ArrayLike]


class KVBase:
    """A KV cache, on whatever device: the handle of its object, and its shape."""

    __slots__ = ("_handle", "_heads", "_n_layers", "_query", "_row", "_shape")

    #: Names of the presets.
    PRESETS: ClassVar[tuple[str, ...]] = tuple(_kv_structs.KV_PRESETS)
    # What the C functions of the object are called before their last word.
    _C: ClassVar[str]

    _handle: Handle | None
    _heads: tuple[int, int]
    _n_layers: int
    _query: RowFormat
    _row: RowFormat
    _shape: tuple[int, int]

    def _prepare(self, options: dict[str, Any]) -> tuple[_kv_structs.KVConfig, tuple[object, object]]:
        """The config of options, what must stay alive while it is used, and what as long as the KV cache."""
        self._handle = None
        options = current_names(options)
        self._row = row_format(options["dtype"], "dtype", "KV cache", "dtype")
        self._query = row_format(options["query_dtype"], "query_dtype", "KV cache", "query_dtype")
        config = c_config(options, self._row, self._query)
        layers, layout = options["layers"], options["layout"]
        kept = (
            None if layers is None else set_layers(config, layers),
            None if layout is None else set_layout(config, layout, self._row),
        )
        self._heads = int(config.n_kv_heads), int(config.n_query_heads)
        self._shape = int(config.dim_k), int(config.dim_v or config.dim_k)
        self._n_layers = int(config.n_layers)
        return config, kept

    def prompt(self, *arguments: Any, **named: Any) -> None:
        """The name of end_prompt in 0.1."""
        renamed("prompt", "end_prompt", 3)
        self.end_prompt(*arguments, **named)  # type: ignore[attr-defined]

    def _live(self) -> Handle:
        if self._handle is None:
            raise InvalidError("the KV cache is closed")
        return self._handle

    def _host(self, handle: Handle) -> int:
        """The dci_kv of the object, for calls that only read. The handle keeps it."""
        return handle.value

    def _call(self, name: str, handle: Handle, *arguments: Any) -> None:
        check(getattr(lib, self._C + name)(handle.value, *arguments))

    # Sequences

    def open(self) -> int:
        """Begins an empty sequence. Returns its number, which is never used again."""
        out = c_int64()
        self._call("open", self._live(), byref(out))
        return out.value

    def fork(self, sequence: SupportsIndex, n_tokens: SupportsIndex | None = None) -> int:
        """Begins a sequence with the first n_tokens (None: all) of another, whose memory it shares. The prompt of `sequence`
        has ended, and no step is open. Returns its number."""
        handle, out = self._live(), c_int64()
        self._call("fork", handle, *self._part(handle, sequence, n_tokens), byref(out))
        return out.value

    def truncate(self, sequence: SupportsIndex, n_tokens: SupportsIndex) -> None:
        """Forgets the tokens from number n_tokens on; within the rollback at no cost."""
        self._call("truncate", self._live(), number_of(sequence), as_count(n_tokens, "n_tokens"))

    def save(self, sequence: SupportsIndex, path: Path, n_tokens: SupportsIndex | None = None) -> None:
        """Writes the first n_tokens (None: all) of a sequence to a file, which is replaced as a whole. No step is open."""
        handle, name = self._live(), encoded(path)
        save = getattr(lib, self._C + "save")
        check(save(handle.value, *self._part(handle, sequence, n_tokens), name), plain(path))

    def load(self, path: Path) -> int:
        """Begins a sequence with what a file holds, and returns its number. Shape, dtype, stages and what else decides how
        tokens are stored must be as they were; what differs is named."""
        out, load = c_int64(), getattr(lib, self._C + "load")
        check(load(self._live().value, encoded(path), byref(out)), plain(path))
        return out.value

    def maintain(self, sequences: Sequences | None = None) -> None:
        """Between steps: builds groups of tokens that left the window, and encodes again what no longer fits its transform.
        None: of all sequences that are not in the middle of a step. Best called after each step."""
        handle = self._live()
        if sequences is None:
            self._call("maintain", handle, 0, None)
            return
        names = as_sequences(sequences)
        if names.size:
            self._call("maintain", handle, names.size, address(names))

    def check(self, *, full: bool = True) -> None:
        """Checks everything that must hold of the cache; FormatError says what does not, and where. Of use where memory or
        this library is in doubt. Nothing is changed; work of prompts is waited for.

        full    False: what is counted, listed and linked. True: also what was computed from keys and values, computed
                again. Of a cache on a GPU it is the same.
        """
        handle = self._live()
        with CallGuard() as guard:
            level = _structs.CHECK_FULL if full else _structs.CHECK_STRUCTURE
            status = lib.dci_kv_check(self._host(handle), level, byref(guard.progress))
        guard.raise_kept()
        check(status)

    def _part(self, handle: Handle, sequence: SupportsIndex, n_tokens: SupportsIndex | None) -> tuple[int, int]:
        number = number_of(sequence)
        if n_tokens is not None:
            return number, as_count(n_tokens, "n_tokens")
        return number, self._sequence(handle, number).n_tokens

    # What there is

    def _sequence(self, handle: Handle, number: int) -> _kv_structs.KVSequenceInfo:
        struct = prepared(_kv_structs.KVSequenceInfo)
        check(lib.dci_kv_get_sequence(self._host(handle), number, byref(struct)))
        return struct

    def table(self, sequence: SupportsIndex, first: SupportsIndex = 0, n: SupportsIndex | None = None) -> Integers:
        """Blocks of a sequence from number `first` on, in the order of its tokens: (n,) int32; n None: all."""
        handle, number, begin = self._live(), number_of(sequence), as_count(first, "first")
        count = self._sequence(handle, number).n_blocks
        wanted = max(count - begin, 0) if n is None else as_count(n, "n")
        if begin + wanted > count:
            raise InvalidError(f"blocks {begin} to {begin + wanted} wanted of sequence {number}, which has {count}")
        out = np.empty(wanted, np.int32)
        check(lib.dci_kv_table(self._host(handle), number, begin, wanted, address(out)))
        return out

    def read(
        self,
        layer: SupportsIndex,
        sequence: SupportsIndex,
        kv_head: SupportsIndex,
        first: SupportsIndex = 0,
        n: SupportsIndex | None = None,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Keys and values of tokens [first, first + n) of one layer and head, as they are stored; n None: to the last token
        of whole steps. Returns (n, dim_k) and (n, dim_v) of dtype, bfloat16 as its bits in uint16."""
        handle, number, begin = self._live(), number_of(sequence), as_count(first, "first")
        struct = self._sequence(handle, number)
        wanted = max(struct.n_tokens - begin, 0) if n is None else as_count(n, "n")
        if wanted > struct.n_tokens + struct.n_reserved:
            raise InvalidError(f"{wanted} tokens wanted of sequence {number}, which has {struct.n_tokens}")
        keys, values = (np.empty((wanted, dim), self._row.dtype) for dim in self._shape)
        at = (as_count(layer, "layer"), number, as_count(kv_head, "kv_head"), begin, wanted)
        check(lib.dci_kv_read(self._host(handle), *at, address(keys), address(values)))
        return keys, values

    def sequence_info(self, sequence: SupportsIndex) -> KVSequenceInfo:
        """Tokens, blocks, and how plans went."""
        return sequence_info_of(self._sequence(self._live(), number_of(sequence)))

    def _info(self) -> KVInfo:
        handle, struct = self._live(), prepared(_kv_structs.KVInfo)
        check(lib.dci_kv_get_info(self._host(handle), byref(struct)))
        return info_of(struct)

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return self._n_layers

    @property
    def n_kv_heads(self) -> int:
        """Heads that have keys and values."""
        return self._heads[0]

    @property
    def n_query_heads(self) -> int:
        """Heads that have queries."""
        return self._heads[1]

    @property
    def dim_k(self) -> int:
        """Elements of a key and of a query."""
        return self._shape[0]

    @property
    def dim_v(self) -> int:
        """Elements of a value and of an output."""
        return self._shape[1]

    @property
    def dtype(self) -> str:
        """Of keys and values."""
        return self._row.name

    @property
    def query_dtype(self) -> str:
        """Of queries."""
        return self._query.name

    def close(self) -> None:
        """Ends all sequences and frees the KV cache, once the calls that are running on it are done. Closing twice is
        allowed."""
        self._handle = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        kind = type(self).__name__
        raise TypeError(f"a {kind} cannot be copied or pickled: save(sequence, path) its sequences and load them")

    def _described(self, more: str = "") -> str:
        heads = f"n_query_heads={self.n_query_heads}, n_kv_heads={self.n_kv_heads}"
        state = "closed" if self._handle is None else f"n_sequences={self._info().n_sequences}"
        shape = f"n_layers={self.n_layers}, {heads}, dim_k={self.dim_k}, dtype={self.dtype!r}"
        return f"{type(self).__name__}({more}{shape}, {state})"


def number_of(sequence: SupportsIndex) -> int:
    """A sequence's number."""
    return as_count(sequence, "sequence")
