# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Caches of a transformers model whose rows lie in host memory and whose attention runs on the model's GPU.

They share the GPUKVCache of an `Engine`: a cache takes a sequence for each row of its batch, and gives it back. Forwards of
one model run one after another: a GPUKVCache has one step at a time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from ._errors import InvalidError, LimitError, NumberError, UnsupportedError
from ._hf_attention import attention_of_chunk
from ._hf_cache import Session
from ._hf_engine import Engine, Shared
from ._hf_states import HOLES, Call, Held, Rows, differentiable
from .gpu import GPUKVCache

_forward = threading.local()  # .device: the forward under way gives its keys to a DeviceSession


def device_mask(*args: Any, mask_function: Any = causal_mask_function, attention_mask: Any = None, **kwargs: Any) -> Any:
    """The mask of a forward on the device: the 2D one as it came, since rows of a batch are read without their padding."""
    if not getattr(_forward, "device", False):
        return sdpa_mask(*args, mask_function=mask_function, attention_mask=attention_mask, **kwargs)
    if mask_function is not causal_mask_function:
        raise UnsupportedError("this model's mask is not causal, which dci does not have: dci.transformers.disable(model)")
    return attention_mask


@contextmanager
def on_device() -> Iterator[None]:
    """Within it masks are left as they are."""
    before = getattr(_forward, "device", False)
    _forward.device = True
    try:
        yield
    finally:
        _forward.device = before


def pads_on_device(mask: torch.Tensor | None, batch: int, n: int) -> list[int]:
    """By row of the batch: how many of n tokens, in front, are none. Refuses masks that hide others. Waits."""
    if mask is None:
        return [0] * batch
    if mask.dim() != 2:
        raise UnsupportedError(f"the attention mask has {mask.dim()} axes: give dci one of 2, (batch, tokens)")
    if mask.shape[1] != n:
        raise InvalidError(f"the attention mask is for {mask.shape[1]} tokens, but the forward ends at {n}")
    shown = mask.bool().expand(batch, -1)
    hidden = n - shown.sum(dim=1)
    grows = (shown[:, 1:] >= shown[:, :-1]).all(dim=1) & shown[:, -1]
    found = torch.stack([hidden, grows.to(hidden.dtype)]).tolist()
    if not all(found[1]):
        raise UnsupportedError(HOLES)
    return [int(pad) for pad in found[0]]


def _refused(*args: Any) -> Any:
    raise InvalidError("the model has other heads than the one that this cache is for: dci.transformers.new_cache(model)")


class DeviceSession(Session):
    """A Session whose KV cache is a GPUKVCache that it shares with others of its engine."""

    kv: GPUKVCache | None  # type: ignore[assignment]

    def __init__(self, engine: Engine, n_layers: int, observe: int, store: torch.dtype | None) -> None:
        self.engine = engine
        self.shared: Shared | None = None
        self.placed = True  # on the device, unless swapped out
        self.used = 0  # by the engine's clock
        self._holder: Any = None
        self.beams = False  # rows of the batch will be copied before others are dropped
        self.wanted_tokens = 0  # most tokens of the generation that this is for; 0: not known
        self.whole_prompt: int | None = None  # its tokens, where they are known
        self.captured = False  # the forward under way is a graph's: its step is begun and ended around it
        self.ends = False  # the forward under way ends the prompt
        self.streamed = False  # history came through buffers that a decode has no use for
        self.fresh = -1  # steps of one token since a graph's conditions were looked at; -1: not yet
        super().__init__(_refused, n_layers, observe, store)

    @property
    def _kv(self) -> GPUKVCache:  # type: ignore[override]
        if self.kv is None:
            raise InvalidError("the cache is empty: no forward has filled it yet")
        return self.kv

    @property
    def _shared(self) -> Shared:
        assert self.shared is not None
        return self.shared

    # --- sequences -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forgets all tokens."""
        sequences, self.sequences = self.sequences, []
        if self.shared is not None:
            with self.engine.lock:
                self.engine.release(self.shared, sequences, self.placed)
        super().clear()
        self.wanted_tokens, self.whole_prompt, self.ends = 0, None, False
        self._use(None, [])

    def _use(self, shared: Shared | None, sequences: list[int]) -> None:
        """These sequences are this session's, and end with it."""
        if self.shared is not None and self.shared is not shared:
            self.shared.sessions.discard(self)
        self.shared, self.sequences = shared, sequences
        self.kv = None if shared is None else shared.kv
        if self._holder is not None:
            self._holder.detach()
        self._holder = None
        if shared is None:
            self.placed = True
            return
        shared.sessions.add(self)
        self._holder = weakref.finalize(self, self.engine.dropped.append, (shared, list(sequences), self.placed))
        self._holder.atexit = False

    def _open(self, batch: int) -> list[int]:
        shared, sequences = self._shared, list[int]()
        try:
            for _ in range(batch):
                sequences.append(shared.kv.open())
        except BaseException:
            for sequence in sequences:
                shared.kv.free(sequence)
            raise
        shared.n_open += batch
        shared.n_placed += batch
        self._use(shared, sequences)
        return sequences

    def swap_out(self) -> None:
        """Gives the device's memory to others; the next forward takes it again."""
        with self.engine.lock:
            if self.shared is not None and self.placed and self.sequences:
                self.shared.disarm()
                self._swap(self.shared, self.shared.kv.swap_out, self.shared.kv.swap_in)

    def swap_in(self) -> None:
        """Takes places on the device, which others may have to give."""
        self.used = next(self.engine.clock)
        if self.shared is None or self.placed:
            return
        with self.engine.lock:
            self.engine.collect()
            self.shared.make_room(len(self.sequences), self)
            self._swap(self.shared, self.shared.kv.swap_in, self.shared.kv.swap_out)

    def _swap(self, shared: Shared, there: Callable[[int], None], back: Callable[[int], None]) -> None:
        """All sequences, or none."""
        done: list[int] = []
        try:
            for sequence in self.sequences:
                there(sequence)
                done.append(sequence)
        except BaseException:
            for sequence in done:
                back(sequence)
            raise
        self.placed = not self.placed
        shared.n_placed += len(done) if self.placed else -len(done)
        self._use(shared, self.sequences)

    def _forks(self, rows: Iterable[int]) -> list[int]:
        shared, forks = self._shared, super()._forks(rows)
        shared.n_open += len(forks)
        shared.n_placed += len(forks)
        return forks

    def select(self, rows: list[int]) -> None:
        """Row i of the batch becomes what row rows[i] is; a row that several become is forked."""
        with self.engine.lock:
            self.disarm()
            self.swap_in()
            before, shared = list(self.sequences), self.shared
            if shared is not None and before:
                self.engine.collect()
                shared.make_room(len(rows) - len({range(len(before))[row] for row in rows}), self)
            super().select(rows)
            if shared is not None and self.sequences != before:
                gone = len(set(before) - set(self.sequences))  # the base class has freed them
                shared.n_open -= gone
                shared.n_placed -= gone
                self._use(shared, self.sequences)

    def fork(self) -> Session:
        """One that goes on from here by itself; what there is is shared."""
        other = DeviceSession(self.engine, self.n_layers, self.observe, self.store)
        other.scaling, other.config = self.scaling, self.config
        if self.sequences:
            with self.engine.lock:
                self.end_prompt()
                self.engine.collect()
                self._shared.make_room(len(self.sequences), None)
                other._use(self.shared, self._forks(range(len(self.sequences))))
            other.pads, other.seen, other.prompted = list(self.pads), self.seen, True
            other.recorded = self.recorded
        elif self.imported is not None:
            other.imported, other.seen = list(self.imported), self.seen
        return other

    def crop(self, n: int) -> None:
        """Forgets tokens from n on, those in front included."""
        with self.engine.lock:
            self.disarm()
            self.swap_in()
            super().crop(n)

    def disarm(self) -> None:
        """Takes back a step that was begun early, of this session or another one."""
        with self.engine.lock:
            if self.shared is not None:
                self.shared.disarm()

    def prepare(self, source: Any, scaling: float, lengths: list[int]) -> None:
        """Finds a KV cache for sequences of such lengths; refuses rows of another shape than it has."""
        with self.engine.lock:
            if self.kv is None:
                self._acquire(len(lengths), max(lengths, default=0), scaling)
            super().prepare(source, scaling, lengths)

    def load(self, paths: list[str]) -> None:
        """Opens sequences with what files hold, whose prompts have ended."""
        shared = self._shared
        with self.engine.lock:
            shared.make_room(len(paths), self)
            super().load(paths)
            shared.n_open += len(paths)
            shared.n_placed += len(paths)
            self._use(shared, self.sequences)

    def whole(self, layer: int, which: int) -> torch.Tensor | None:
        """All keys (0) or values (1) of a layer, [batch, heads, tokens, dim], as the model computed them."""
        found = super().whole(layer, which)
        return found if found is None else found.to(self._place())

    def _place(self) -> str:
        device = self.engine.gpu.device
        return "cpu" if device == "host" else f"cuda:{device}"

    # --- a forward -----------------------------------------------------------------------------------------------------

    def check_device(self, states: torch.Tensor) -> None:
        """Refuses keys that are not on the engine's device."""
        if str(states.device) != self._place():
            raise InvalidError(
                f"keys are on {states.device}, but the model was enabled on {self._place()}: "
                "call dci.transformers.enable(model) again after it was moved"
            )

    def _acquire(self, batch: int, n_tokens: int, scaling: float) -> None:
        """Finds a KV cache with room for a prompt of so many sequences."""
        n_places, n_tokens = 2 * batch if self.beams else batch, max(n_tokens, self.wanted_tokens)
        self._use(self.engine.acquire(batch, n_places, n_tokens, scaling), [])
        self.scaling = scaling

    def _fit(self, call: Call) -> None:
        if self.kv is None:
            self._acquire(call.states[1].shape[0], self.seen + call.states[1].shape[2], call.scaling)
        super()._fit(call)

    def _begin(self, call: Call) -> None:
        if self.captured:
            return
        if self.shared is not None:
            self.shared.disarm(rest=64)
        self.swap_in()
        if self.sequences:
            self.check_numbers()
        super()._begin(call)
        self.ends = not self.prompted and self.whole_prompt is not None and self.seen + self.n_new >= self.whole_prompt

    def _find_pads(self, mask: torch.Tensor | None, batch: int, n: int) -> list[int]:
        if mask is None and self.sequences:
            return self.pads
        found = pads_on_device(mask, batch, n)
        if not self.sequences:
            return found
        pads = [pad if pad < self.seen else new for pad, new in zip(self.pads, found)]
        if found != pads:
            raise InvalidError(f"the attention mask hides {found} tokens in front, earlier ones hid {self.pads}")
        return pads

    def _reserve(self, n_tokens: list[int]) -> None:
        try:
            super()._reserve(n_tokens)
        except LimitError as error:
            raise LimitError(f"{error}: dci.transformers.enable(model, max_tokens=...) has room for more") from None

    def check_numbers(self) -> None:
        """Refuses to go on from rows with NaN or infinity, as far as the device has seen. A sequence alone is closed."""
        layers = self._kv.bad_layers(self.sequences)
        row = int((layers >= 0).argmax())
        if layers[row] < 0:
            return
        alone, sequence = len(layers) == 1, self.sequences[row]
        if alone:
            self.clear()
        raise NumberError(
            f"layer {layers[row]}: keys or values of row {row} of the batch (sequence {sequence}) have NaN or infinity"
            + (": the cache is empty again" if alone else ": batch_select_indices keeps the others")
        )

    def _attend(self, layer: int, call: Call) -> torch.Tensor:
        query, key, value = call.states
        kv, exact = self._kv, differentiable(call.states)
        if self.captured or (self.n_new == 1 and self.prompted and not exact):
            return self._decode(layer, query, key, value)
        self.recording = self.recording or differentiable((key, key, value))
        kv.append(layer, self._packed(key), self._packed(value))
        if not self.prompted and self.observe > 0:
            before = self.observed.get(layer)
            now = query.detach()[:, :, -self.observe :]
            self.observing[layer] = now if before is None else torch.cat([before, now], dim=2)[:, :, -self.observe :]
        if self.seen > 0:
            return self._over_history(layer, call, exact)
        for row, sequence in enumerate(self.sequences):
            if self.ends:
                kv.end_prompt(layer, sequence, self._queries(layer, row, self.n_new - self.pads[row]))
        return self._within(call)

    def _firsts(self) -> list[int]:
        """By row of the batch: positions of this forward, in front, that are no tokens."""
        return [min(max(pad - self.seen, 0), self.n_new) for pad in self.pads]

    def _packed(self, states: torch.Tensor) -> torch.Tensor:
        """Of [batch, heads, positions, dim] rows as they are stored, of all sequences one after another."""
        rows = states.detach().transpose(1, 2)
        if self.store is not None:
            rows = rows.to(self.store)
        if any(self._firsts()):
            return torch.cat([rows[row, first:] for row, first in enumerate(self._firsts())])
        return rows if rows.shape[0] == 1 and rows.stride(3) == 1 else rows.contiguous()

    def _queries(self, layer: int, row: int, n: int) -> torch.Tensor | None:
        """A prompt's last queries, [positions, heads, dim]."""
        seen = self.observing.get(layer, self.observed.get(layer))
        if seen is None or n <= 0:
            return None
        return seen[row, :, -min(n, seen.shape[2]) :].transpose(0, 1).contiguous().to(self._place())

    def _within(self, call: Call) -> torch.Tensor:
        """Attention among a prompt's own tokens, [batch, positions, heads, dim]; zeros where there is no token."""
        query, key, value = call.states
        options = {"scaling": call.scaling, **call.options}
        if not any(self.pads):
            whole: torch.Tensor = sdpa_attention_forward(call.module, query, key, value, None, **options)[0]
            return whole
        rows = []
        for row, first in enumerate(self._firsts()):
            states = (x[row : row + 1, :, first:] for x in (query, key, value))
            padding = query.new_zeros((1, first, query.shape[1], value.shape[3]))
            own = [sdpa_attention_forward(call.module, *states, None, **options)[0]] if first < self.n_new else []
            rows.append(torch.cat([padding, *own], dim=1))
        return torch.cat(rows)

    def _over_history(self, layer: int, call: Call, exact: bool) -> torch.Tensor:
        """Attention over all earlier tokens and among the new ones, [batch, positions, heads, dim]."""
        query, value, rows = call.states[0], call.states[2], []
        self.streamed = self.streamed or self.n_new >= 64  # guessed tokens are fewer, and come again at once
        for row, (sequence, first) in enumerate(zip(self.sequences, self._firsts())):
            rows.append([query.new_zeros((1, first, query.shape[1], value.shape[3]))])
            if first == self.n_new:
                continue
            found = self._kv.history(layer, sequence)
            if self.ends:
                self._kv.prompt_rows(layer, sequence, *(x.transpose(0, 1) for x in found))
                self._kv.end_prompt(layer, sequence, self._queries(layer, row, self.seen + self.n_new - self.pads[row]))
            new = self.n_new - first
            keys, values = (x.to(query.dtype).unsqueeze(0) for x in found)
            if exact:
                keys, values = (
                    torch.cat([self._constant(x[:, :, :-new]), own[row : row + 1, :, first:]], dim=2)
                    for x, own in zip((keys, values), call.states[1:])
                )
            own = attention_of_chunk(query[row : row + 1, :, first:], keys, values, call.scaling)
            rows[-1].append(own.transpose(1, 2))
        return torch.cat([torch.cat(parts, dim=1) for parts in rows])

    def _constant(self, rows: torch.Tensor) -> torch.Tensor:
        """Earlier rows, to which no gradient passes, in memory that later steps leave alone."""
        if not self.recorded:
            return rows.clone()
        held: torch.Tensor = Held.apply(rows, torch.zeros((), requires_grad=True))
        return held

    def begin_decode(self) -> None:
        """Before a step of one token: the buffers that a prompt has left behind are given back."""
        if self.streamed:
            self.streamed = False
            self.disarm()
            self._kv.trim("buffers")

    def _decode(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        kv = self._kv
        keys, values = key.detach()[:, :, 0], value.detach()[:, :, 0]
        if self.store is not None:
            keys, values = keys.to(self.store), values.to(self.store)
        kv.append(layer, keys.contiguous(), values.contiguous())
        queries = query.detach()[:, :, 0].contiguous()
        kv.plan(layer, queries)
        out: torch.Tensor = kv.attend(layer, queries)
        return out.unsqueeze(1)

    def _end(self) -> None:
        if self.captured:
            self.begun = 0
            return
        self._kv.step_end()
        self.advance()
        if self.prompted and self._kv.planner == "host":
            self._kv.maintain(self.sequences)

    def advance(self) -> None:
        """Counts the tokens of a step that has ended."""
        self.observed.update(self.observing)
        self.observing = {}
        self.recorded, self.recording = self.recorded or self.recording, False
        self.seen += self.n_new
        self.begun = 0
        if self.n_new != 1:
            self.fresh = -1
        if self.ends:
            self.prompted, self.ends, self.observed = True, False, {}

    def abort(self) -> None:
        """Takes back a forward that did not come to its end."""
        if self.captured:
            self.begun = 0
            return
        if self.n_new > 0 and self.sequences and self._kv.in_step:
            self._kv.step_abort()
        self.begun = self.n_new = 0
        self.observing, self.recording, self.ends = {}, False, False
        if self.seen == 0:
            self.clear()

    def _fill(self, lengths: list[int], rows: Callable[[int, int], Rows]) -> None:
        """Opens sequences of prompts that have not ended. Rows come to the device some thousand tokens at a time."""
        if self.kv is None:
            self._acquire(len(lengths), max(lengths), self.scaling)
        kv, place = self._kv, self._place()
        sequences = self._open(len(lengths))
        try:
            for begin in range(0, max(lengths), 8192):
                parts = [slice(min(begin, n), min(begin + 8192, n)) for n in lengths]
                kv.reserve(sequences, [part.stop - part.start for part in parts])
                for layer in range(self.n_layers):
                    found = [rows(layer, row) for row in range(len(lengths))]
                    kv.append(layer, *(
                        torch.cat([self._rows(of[which][:, part].to(place)) for of, part in zip(found, parts)])
                        for which in (0, 1)
                    ))
                kv.step_end()
        except BaseException:
            if kv.in_step:
                kv.step_abort()
            self.clear()
            raise

    def end_prompt(self) -> None:
        """Ends a prompt of which no forward knew that it was whole: the device reads its rows once more."""
        if self.prompted:
            return
        kv, self.streamed = self._kv, True
        self.disarm()
        self.swap_in()
        kv.reserve(self.sequences, 0)
        try:
            for layer in range(self.n_layers):
                for row, (sequence, length) in enumerate(zip(self.sequences, self.lengths())):
                    if kv.planner == "device":
                        kv.prompt_rows(layer, sequence, *(x.transpose(0, 1) for x in kv.history(layer, sequence)))
                    kv.end_prompt(layer, sequence, self._queries(layer, row, length))
            kv.step_end()
        except BaseException:
            kv.step_abort()
            raise
        self.observed = {}
        self.prompted = True
