# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Caches of a transformers model whose rows lie in host memory and whose attention runs on the model's GPU.

An `Engine` belongs to an enabled model. Its GPUKVCache is shared by the model's caches: a cache takes a sequence for each row of
its batch, and gives it back. Forwards of one model run one after another, since a GPUKVCache has one step at a time.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from torch.nn.attention.bias import causal_lower_right
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from ._errors import InvalidError, LimitError, NumberError, UnsupportedError
from ._hf_cache import Call, Session
from .gpu import GPU, GPUKVCache

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
    """By row of the batch: how many of n tokens, in front, are none. Refuses masks that hide others. Waits for the device."""
    if mask is None:
        return [0] * batch
    if mask.dim() != 2:
        raise UnsupportedError(f"the attention mask has {mask.dim()} axes: give dci one of 2, (batch, tokens)")
    if mask.shape[1] != n:
        raise InvalidError(f"the attention mask has {mask.shape[1]} tokens, but the forward ends at {n}")
    shown = mask.bool().expand(batch, -1)
    hidden = n - shown.sum(dim=1)
    grows = (shown[:, 1:] >= shown[:, :-1]).all(dim=1) & shown[:, -1]
    found = torch.stack([hidden, grows.to(hidden.dtype)]).tolist()
    if not all(found[1]):
        raise UnsupportedError(
            "the attention mask hides tokens after the first one that it shows: dci takes padding on the left only "
            '(tokenizer.padding_side = "left"), or use_cache=False'
        )
    return [int(pad) for pad in found[0]]


class Shared:
    """A GPUKVCache that caches of one model share, how many of its sequences are open, and the graphs captured on it."""

    def __init__(self, kv: GPUKVCache) -> None:
        self.kv, self.n_open = kv, 0
        self.graphs: dict[Any, Any] = {}  # of _hf_graph.py
        self.warm: set[Any] = set()  # what has run once

    def close(self) -> None:
        """Gives everything back."""
        self.graphs.clear()
        self.kv.close()


class Engine:
    """What the caches of one model share: the GPU, the KV cache that new sequences are opened in, and the lock of a forward.

    make        a GPUKVCache for so many sequences and tokens
    max_tokens, max_sequences
                what there is room for at least; more where a generation asks for more
    """

    def __init__(self, gpu: GPU, make: Callable[[int, int], GPUKVCache], max_tokens: int, max_sequences: int) -> None:
        self.gpu, self.make = gpu, make
        self.max_tokens, self.max_sequences = max_tokens, max_sequences
        self.lock = threading.RLock()
        self.current: Shared | None = None
        self.dropped: deque[tuple[Shared, list[int]]] = deque()  # of caches that nobody has any more

    def acquire(self, n_sequences: int, n_tokens: int) -> Shared:
        """A KV cache with that many free places, for sequences of that many tokens."""
        self.collect()
        now = self.current
        if now is not None and now.kv.max_tokens >= n_tokens and now.kv.max_sequences - now.n_open >= n_sequences:
            return now
        if now is not None:
            n_sequences, n_tokens = max(n_sequences, now.kv.max_sequences), max(n_tokens, now.kv.max_tokens)
            if now.n_open == 0:  # before memory is asked for again
                self.current = None
                now.close()
        self.current = Shared(self.make(max(n_sequences, self.max_sequences), max(n_tokens, self.max_tokens)))
        return self.current

    def release(self, shared: Shared, sequences: Iterable[int]) -> None:
        """Ends sequences. The last one of a KV cache that another has replaced closes it."""
        for sequence in list(sequences):
            shared.kv.free(sequence)
            shared.n_open -= 1
        if shared is not self.current and shared.n_open == 0:
            shared.close()

    def collect(self) -> None:
        """Ends the sequences of caches that were dropped without being closed."""
        while self.dropped:
            self.release(*self.dropped.popleft())

    def close(self) -> None:
        """Gives back what no sequence uses."""
        self.collect()
        now, self.current = self.current, None
        if now is not None and now.n_open == 0:
            now.close()


def _refused(*args: Any) -> Any:
    raise InvalidError("a KV cache on a device is made by its model's engine")


class DeviceSession(Session):
    """A Session whose KV cache is a GPUKVCache that it shares with others of its engine."""

    kv: GPUKVCache | None  # type: ignore[assignment]

    def __init__(self, engine: Engine, n_layers: int, observe: int, store: torch.dtype | None) -> None:
        self.engine = engine
        self.shared: Shared | None = None
        self.beams = False  # rows of the batch will be copied before others are dropped
        self.wanted_tokens = 0  # most tokens of the generation that this is for; 0: not known
        self.whole: int | None = None  # tokens of the whole prompt, where that is known
        self.captured = False  # the forward under way is a graph's: its step is begun and ended around it
        self.ends = False  # the forward under way ends the prompt
        self.fresh = -1  # steps of one token since a graph's conditions were looked at; -1: not yet
        super().__init__(_refused, n_layers, observe, store)

    # --- sequences -----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forgets all tokens."""
        sequences, self.sequences = getattr(self, "sequences", []), []
        if sequences and self.shared is not None:
            with self.engine.lock:
                self.engine.release(self.shared, sequences)
        super().clear()
        self.wanted_tokens, self.whole, self.ends = 0, None, False
        self._use(None, [])

    def _use(self, shared: Shared | None, sequences: list[int]) -> None:
        """These sequences are this session's, and end with it."""
        self.shared, self.sequences = shared, sequences
        self.kv = None if shared is None else shared.kv
        holder = getattr(self, "_holder", None)
        if holder is not None:
            holder.detach()
        self._holder = None
        if shared is not None:
            self._holder = weakref.finalize(self, self.engine.dropped.append, (shared, list(sequences)))
            self._holder.atexit = False

    def _open(self, batch: int, n_tokens: int) -> None:
        """A sequence for each row of the batch."""
        shared = self.engine.acquire(2 * batch if self.beams else batch, max(n_tokens, self.wanted_tokens))
        sequences: list[int] = []
        try:
            for _ in range(batch):
                sequences.append(shared.kv.open())
        except BaseException:
            for sequence in sequences:
                shared.kv.free(sequence)
            raise
        shared.n_open += batch
        self._use(shared, sequences)

    def _forks(self, rows: Iterable[int]) -> list[int]:
        self.engine.collect()
        forks = super()._forks(rows)
        if self.shared is not None:
            self.shared.n_open += len(forks)
        return forks

    def select(self, rows: list[int]) -> None:
        """Row i of the batch becomes what row rows[i] is; a row that several become is forked."""
        with self.engine.lock:
            before, shared = list(self.sequences), self.shared
            super().select(rows)
            if shared is not None and self.sequences != before:
                shared.n_open -= len(set(before) - set(self.sequences))  # the base class has freed them
                self._use(shared, self.sequences)

    def fork(self) -> Session:
        """One that goes on from here by itself; what there is is shared."""
        other = DeviceSession(self.engine, self.n_layers, self.observe, self.store)
        if self.sequences:
            with self.engine.lock:
                self.end_prompt()
                other._use(self.shared, self._forks(range(len(self.sequences))))
            other.pads, other.seen, other.scaling, other.prompted = list(self.pads), self.seen, self.scaling, True
        return other

    # --- a forward -----------------------------------------------------------------------------------------------------

    def check_device(self, states: torch.Tensor) -> None:
        """Refuses keys that are not on the engine's device."""
        device = self.engine.gpu.device
        there = "cpu" if device == "host" else f"cuda:{device}"
        if str(states.device) != there:
            raise InvalidError(
                f"keys are on {states.device}, but the model was enabled on {there}: "
                "call dci.transformers.enable(model) again after it was moved"
            )

    def _fit(self, call: Call) -> None:
        """Finds a KV cache; refuses states of another shape or dtype than it has."""
        if self.captured:
            return
        batch, n_new = call.states[1].shape[0], call.states[1].shape[2]
        if self.kv is None:
            self.shared = self.engine.acquire(2 * batch if self.beams else batch, max(self.seen + n_new, self.wanted_tokens))
            self.kv, self.scaling = self.shared.kv, call.scaling
        self.make = lambda *_: self._kv
        super()._fit(call)

    def _begin(self, call: Call) -> None:
        if self.captured:
            return
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
        """Refuses to go on from rows with NaN or infinity, as far as the device has seen them."""
        bad = self._kv.poll(self.sequences)
        if bad.any():
            row = int(bad.argmax())
            raise NumberError(
                f"keys or values of row {row} of the batch (sequence {self.sequences[row]}) have NaN or infinity: "
                "its outputs are of no use; batch_select_indices keeps the other rows"
            )

    def _attend(self, layer: int, call: Call) -> torch.Tensor:
        query, key, value = call.states
        kv = self._kv
        if self.captured or (self.n_new == 1 and self.prompted):
            return self._decode(layer, query, key, value)
        kv.append(layer, self._packed(key), self._packed(value))
        if not self.prompted and self.observe > 0:
            before = self.observed.get(layer)
            now = query.detach()[:, :, -self.observe :]
            self.observing[layer] = now if before is None else torch.cat([before, now], dim=2)[:, :, -self.observe :]
        if self.seen == 0:
            out = self._within(call)
        else:
            out = self._over_history(layer, call)
        if self.ends and self.seen == 0:
            for row, sequence in enumerate(self.sequences):
                kv.end_prompt(layer, sequence, self._queries(layer, row, self.n_new - self.pads[row]))
        return out

    def _packed(self, states: torch.Tensor) -> torch.Tensor:
        """Of [batch, heads, positions, dim] rows as they are stored, of all sequences one after another."""
        rows = states.detach().transpose(1, 2)
        if self.store is not None:
            rows = rows.to(self.store)
        if self.seen == 0 and any(self.pads):
            return torch.cat([rows[row, pad:] for row, pad in enumerate(self.pads)])
        return rows if rows.shape[0] == 1 and rows.stride(3) == 1 else rows.contiguous()

    def _queries(self, layer: int, row: int, n: int) -> torch.Tensor | None:
        """A prompt's last queries, [positions, heads, dim]."""
        seen = self.observing.get(layer, self.observed.get(layer))
        if seen is None or n <= 0:
            return None
        return seen[row, :, -min(n, seen.shape[2]) :].transpose(0, 1).contiguous()

    def _within(self, call: Call) -> torch.Tensor:
        """Attention among a prompt's own tokens, [batch, positions, heads, dim]; nothing where there is no token."""
        query, key, value = call.states
        options = {"scaling": call.scaling, **call.options}
        if not any(self.pads):
            whole: torch.Tensor = sdpa_attention_forward(call.module, query, key, value, None, **options)[0]
            return whole
        out = query.new_zeros((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
        for row, pad in enumerate(self.pads):
            states = (x[row : row + 1, :, pad:] for x in (query, key, value))
            out[row, pad:] = sdpa_attention_forward(call.module, *states, None, **options)[0][0]
        return out

    def _over_history(self, layer: int, call: Call) -> torch.Tensor:
        """Attention over all earlier tokens and among the new ones, [batch, positions, heads, dim]."""
        query, _, value = call.states
        out = query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3]))
        for row, sequence in enumerate(self.sequences):
            keys, values = self._kv.history(layer, sequence)
            if self.ends:
                self._kv.prompt_rows(layer, sequence, keys.transpose(0, 1), values.transpose(0, 1))
                self._kv.end_prompt(layer, sequence, self._queries(layer, row, self.seen + self.n_new - self.pads[row]))
            if self.store is not None:
                keys, values = keys.to(query.dtype), values.to(query.dtype)
            causal = causal_lower_right(query.shape[2], keys.shape[1])
            found = torch.nn.functional.scaled_dot_product_attention(
                query[row : row + 1],
                keys.unsqueeze(0),
                values.unsqueeze(0),
                attn_mask=causal if query.is_cuda else causal._materialize(query.device),
                scale=call.scaling,
                enable_gqa=query.shape[1] != keys.shape[0],
            )
            out[row] = found[0].transpose(0, 1)
        return out

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

    def advance(self) -> None:
        """Counts the tokens of a step that has ended."""
        self.observed.update(self.observing)
        self.observing = {}
        self.seen += self.n_new
        self.begun = 0
        if self.n_new != 1:
            self.fresh = -1
        if self.ends:
            self.prompted, self.ends, self.observed = True, False, {}
        if self.prompted and self.host_plans:
            self._kv.maintain(self.sequences)

    @property
    def host_plans(self) -> bool:
        """Whether each plan waits for its layer's queries."""
        return self._kv.planner == "host"

    def abort(self) -> None:
        """Takes back a forward that did not come to its end."""
        if self.captured:
            self.begun = 0
            return
        if self.n_new > 0 and self.sequences and self.kv is not None and self.kv.in_step:
            self.kv.step_abort()
        self.begun = self.n_new = 0
        self.observing, self.ends = {}, False
        self._emptied()

    def end_prompt(self) -> None:
        """Ends a prompt of which no forward said that it was whole."""
        if self.prompted:
            return
        kv = self._kv
        kv.reserve(self.sequences, 0)
        try:
            for layer in range(self.n_layers):
                for row, (sequence, length) in enumerate(zip(self.sequences, self.lengths())):
                    kv.end_prompt(layer, sequence, self._queries(layer, row, length))
            kv.step_end()
        except BaseException:
            kv.step_abort()
            raise
        self.observed = {}
        self.prompted = True
