# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Plans of a KV cache: which tokens the queries of a layer attend to."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from . import _kv_structs
from ._errors import InvalidError
from ._library import Handle, address, prepared

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class KVPlan:
    """Which tokens the queries of one layer attend to: for sequence i of the call and list h those at positions
    0 to sink_end[i] - 1, those of the list slots[i, h, :counts[i, h]], and those from recent_begin[i] to n_tokens[i] - 1.

    List h is that of kv head h, or with query_head_lists that of query head h: n_lists is n_kv_heads, or n_query_heads.

    Made by KVCache.plan, or with room for later ones by KVCache.new_plan. The arrays are views of the sequences that were
    planned last, and hold what is next planned into the same object:

    slots       (n_sequences, n_lists, stride) int32: where the listed rows are,
                (block * n_kv_heads + kv head) * page_tokens + offset, in the order of their positions. What follows
                counts[i, h] of them means nothing.
    positions   the same as positions of the sequence.
    counts      (n_sequences, n_lists) int32.
    sink_end, recent_begin, n_tokens
                (n_sequences,) int32. recent_begin 0: everything is attended to.
    tail_out    (n_sequences, n_query_heads, dim_v) float32: attention over the tail alone; None where the tail is dropped.
    tail_lse    (n_sequences, n_query_heads) float32: log of its sum of exponentials; -inf: there is no tail. Or None.

    A plan is good until the next reserve, truncate or free of one of its sequences. KVCache.attend takes it for its own
    layer alone: a tail is made of that layer's values. The schedule "anchor" has layers share lists, with a plan each.
    """

    __slots__ = ("_arrays", "_handle", "_lists_of_head", "_room", "_sequences", "_struct", "layer")

    def __init__(self, handle: Handle, room: int, shape: tuple[int, int, int, int, int], tail: bool) -> None:
        """shape: n_kv_heads, n_lists, stride, n_query_heads, dim_v."""
        n_kv_heads, n_lists, stride, n_query_heads, dim_v = shape
        ints = dict.fromkeys(("sink_end", "recent_begin", "n_tokens"), (room,))
        lists = {"slots": (room, n_lists, stride), "positions": (room, n_lists, stride), "counts": (room, n_lists)}
        self._arrays: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(form, np.int32) for name, form in {**ints, **lists}.items()
        }
        if tail:
            self._arrays["tail_out"] = np.zeros((room, n_query_heads, dim_v), np.float32)
            self._arrays["tail_lse"] = np.zeros((room, n_query_heads), np.float32)
        struct = prepared(_kv_structs.KVPlan)
        struct.max_sequences, struct.n_lists, struct.stride = room, n_lists, stride
        for name, array in self._arrays.items():
            setattr(struct, name, address(array))
        self._handle, self._room, self._struct = ref(handle), room, struct
        self._lists_of_head = n_lists // n_kv_heads
        self._sequences: npt.NDArray[np.int64] | None = None
        #: The layer that was planned last; -1: none was.
        self.layer = -1

    def _begin(self, handle: Handle, n_sequences: int) -> None:
        """Says that the arrays are to be written to; until _made they hold no plan."""
        if handle is not self._handle():
            raise InvalidError("the plan belongs to another KV cache")
        if n_sequences > self._room:
            raise InvalidError(f"the plan has room for {self._room} sequences, not {n_sequences}: make a new one")
        self._sequences, self.layer = None, -1

    def _made(self, layer: int, sequences: npt.NDArray[np.int64]) -> None:
        self._sequences, self.layer = sequences.copy(), layer

    def _check(self, handle: Handle, layer: int, sequences: npt.NDArray[np.int64]) -> None:
        if handle is not self._handle():
            raise InvalidError("the plan belongs to another KV cache")
        if self._sequences is None:
            raise InvalidError("the plan is empty: make it with KVCache.plan first")
        if layer != self.layer:
            raise InvalidError(f"the plan is of layer {self.layer}, not of {layer}: make one for each layer")
        if sequences.tobytes() != self._sequences.tobytes():
            raise InvalidError(f"the plan is of sequences {self._sequences.tolist()}, not of {sequences.tolist()}")

    @property
    def n_sequences(self) -> int:
        """Sequences that were planned last."""
        return 0 if self._sequences is None else self._sequences.size

    @property
    def room(self) -> int:
        """Most sequences that can be planned."""
        return self._room

    def _view(self, name: str) -> npt.NDArray[Any]:
        return self._arrays[name][: self.n_sequences]

    @property
    def slots(self) -> Integers:
        """(n_sequences, n_lists, stride): where the listed rows are."""
        return self._view("slots")

    @property
    def positions(self) -> Integers:
        """(n_sequences, n_lists, stride): the same as positions."""
        return self._view("positions")

    @property
    def counts(self) -> Integers:
        """(n_sequences, n_lists): how many are listed."""
        return self._view("counts")

    @property
    def sink_end(self) -> Integers:
        """(n_sequences,): tokens before it are attended to."""
        return self._view("sink_end")

    @property
    def recent_begin(self) -> Integers:
        """(n_sequences,): tokens from it on are attended to."""
        return self._view("recent_begin")

    @property
    def n_tokens(self) -> Integers:
        """(n_sequences,): tokens of the sequences in this layer."""
        return self._view("n_tokens")

    @property
    def tail_out(self) -> Floats | None:
        """(n_sequences, n_query_heads, dim_v): attention over the tail alone, or None."""
        return self._view("tail_out") if "tail_out" in self._arrays else None

    @property
    def tail_lse(self) -> Floats | None:
        """(n_sequences, n_query_heads): log of the tail's sum of exponentials, or None."""
        return self._view("tail_lse") if "tail_lse" in self._arrays else None

    def attended(self, i: int, kv_head: int) -> Integers:
        """Positions of all tokens that sequence number i of the call and a kv head attend to, ascending; with
        query_head_lists those that any of its query heads attends to."""
        parts = (
            np.arange(self.sink_end[i], dtype=np.int32),
            self._listed(i, kv_head),
            np.arange(self.recent_begin[i], self.n_tokens[i], dtype=np.int32),
        )
        return np.concatenate(parts)

    def _listed(self, i: int, kv_head: int) -> Integers:
        first = kv_head * self._lists_of_head
        lists = [self.positions[i, h, : self.counts[i, h]] for h in range(first, first + self._lists_of_head)]
        return lists[0] if len(lists) == 1 else np.unique(np.concatenate(lists))

    def __reduce__(self) -> Any:
        raise TypeError("plans cannot be copied or pickled: their arrays can")

    def __repr__(self) -> str:
        return f"KVPlan(layer={self.layer}, n_sequences={self.n_sequences}, room={self._room})"
