# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A transformers Cache whose rows live in a KVCache, and the attention that goes with it (dci.transformers)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ._errors import BusyError, InvalidError, NumberError, UnsupportedError
from ._hf_attention import MARK
from ._hf_files import save
from ._hf_states import DTYPES, KINDS, Call, Held, Rows, States, by_row, check_mask, differentiable, pads_of, warn_exact
from ._paths import Path
from .kv import KVCache

Make = Callable[[States, float], KVCache]  # for states of this shape, and the scale


class Session:
    """What the layers of a DCICache share: a KVCache, a sequence for each row of the batch, how far a forward has come."""

    def __init__(self, make: Make, n_layers: int, observe: int, store: torch.dtype | None) -> None:
        self.make, self.n_layers, self.observe, self.store = make, n_layers, observe, store
        self.kv: KVCache | None = None
        self.plan: Any = None
        self.sequences: list[int] = []
        self.expected = False  # by a forward that has begun and has not come to the first layer
        self.lock = threading.RLock()  # of a forward or a generation
        self.owner: int | None = None  # the thread of the forward that has begun
        self.scaling = 0.0
        self.config: Any = None  # of the model
        self.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        other = memo[id(self)] = self.fork()
        return other

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a cache of dci cannot be pickled, and torch.save cannot write it: cache.save(path), and later "
            "dci.transformers.load_cache(model, path)"
        )

    def take(self) -> None:
        """Begins a forward or a generation: those of one thread at a time."""
        if not self.lock.acquire(blocking=False):
            raise BusyError(
                "the cache is in use by another thread: give each generation a cache of its own (copy.deepcopy of a cache "
                "shares its rows)"
            )

    def enter(self) -> None:
        """Begins a forward."""
        self.take()
        self.owner, self.expected = threading.get_ident(), True

    def entered(self) -> bool:
        """Whether this thread has begun a forward."""
        return self.owner == threading.get_ident()

    def leave(self) -> None:
        """Ends what enter began."""
        self.owner, self.expected = None, False
        self.lock.release()

    def clear(self) -> None:
        """Forgets all tokens."""
        for sequence in self.sequences:
            self._kv.free(sequence)
        self.sequences = []
        self.pads: list[int] = []  # by row of the batch: tokens in front that are none
        self.seen = 0  # tokens of whole forwards, those in front included
        self.begun = 0  # layers that the forward under way has been through
        self.n_new = 0
        self.waiting: int | None = None  # the layer whose keys are on their way from the cache to the attention
        self.prompted = False
        self.observed: dict[int, torch.Tensor] = {}  # by layer: the prompt's last queries
        self.observing: dict[int, torch.Tensor] = {}  # the same with those of the forward under way
        self.imported: list[Rows] | None = None  # by layer: a prompt that the next forward takes in first
        self.recorded = self.recording = False  # some rows came with gradients: earlier ones, and of the forward under way

    @property
    def _kv(self) -> KVCache:
        if self.kv is None:
            raise InvalidError("the cache is empty: no forward has filled it yet")
        return self.kv

    def lengths(self) -> list[int]:
        """Tokens of each row of the batch."""
        return [max(self.seen - pad, 0) for pad in self.pads]

    # --- a forward -----------------------------------------------------------------------------------------------------

    def forward(self, layer: int, call: Call) -> torch.Tensor:
        """Attention of one layer, [batch, positions, heads, dim], of states that are [batch, heads, positions, dim]."""
        self.expected = False
        if layer == 0 and self.begun > 0:
            self.abort()  # the last forward did not come to its end
        if layer != self.begun:
            raise UnsupportedError(f"layer {layer} came, expected {self.begun}: dci serves models whose layers run in turn")
        if layer == 0:
            self._begin(call)
        try:
            if call.scaling != self.scaling:
                raise UnsupportedError(
                    f"layer {layer} scales its scores by {call.scaling}, the first one by {self.scaling}: dci has one scale"
                )
            out = self._attend(layer, call)
        except NumberError as error:
            sentence = f"layer {layer}: {by_row(error, self.sequences)}"
            self.abort()
            raise NumberError(sentence) from None
        except BaseException:
            self.abort()
            raise
        self.begun = layer + 1
        if self.begun == self.n_layers:
            self._end()
        return out

    def _begin(self, call: Call) -> None:
        batch, n_new = call.states[1].shape[0], call.states[1].shape[2]
        self._fit(call)
        if self.sequences and batch != len(self.pads):
            raise InvalidError(f"a forward of {batch} sequences, but the cache holds {len(self.pads)}")
        pads = self._find_pads(call.mask, batch, self.seen + n_new)
        if self.imported is not None:
            self._import(call, pads)
        if n_new == 1 and self.seen > 0:
            if differentiable(call.states):
                warn_exact()
            else:
                self.end_prompt()
        if not self.sequences:
            self.sequences = self._open(batch)
        self.pads = pads
        self._reserve([n_new - max(pad - self.seen, 0) for pad in pads])
        self.n_new = n_new

    def check_device(self, states: torch.Tensor) -> None:
        """Refuses states that this cannot take."""
        if states.device.type != "cpu":
            raise InvalidError(
                f"keys are on {states.device}, but the model was enabled on the CPU: "
                "call dci.transformers.enable(model) again after it was moved"
            )

    def disarm(self) -> None:
        """Has no step open between forwards."""

    def _find_pads(self, mask: torch.Tensor | None, batch: int, n: int) -> list[int]:
        """By row of the batch: how many of n tokens, in front, are none. Refuses a mask that hides others."""
        pads = self.pads
        if not self.sequences or 0 in self.lengths():  # rows of which no token was seen yet may have more padding
            found = pads_of(mask, batch, n)
            pads = [pad if pad < self.seen else new for pad, new in zip(pads, found)] if self.sequences else found
        check_mask(mask, pads, n)
        return pads

    def _open(self, batch: int) -> list[int]:
        """A sequence for each row of the batch."""
        return [self._kv.open() for _ in range(batch)]

    def _reserve(self, n_tokens: list[int]) -> None:
        """Begins a step."""
        try:
            self._kv.reserve(self.sequences, n_tokens)
        except BaseException:
            if self.seen == 0:
                self.clear()
            raise

    def _fit(self, call: Call) -> None:
        """Makes the KV cache; refuses states of another shape or dtype than it has."""
        query, key, value = call.states
        if self.kv is not None:
            kv = self.kv
            ours = kv.n_query_heads, kv.n_kv_heads, kv.dim_k, kv.dim_v, kv.query_dtype
            theirs = query.shape[1], key.shape[1], key.shape[3], value.shape[3], DTYPES.get(query.dtype, str(query.dtype))
            if ours == theirs and (self.sequences or call.scaling == self.scaling):
                return
            if self.sequences:
                words = "{} query and {} kv heads, {} and {} elements, {}"
                raise InvalidError(
                    f"the model has {words.format(*theirs)}, but this cache was filled by one with {words.format(*ours)}: "
                    "give it a new one (dci.transformers.new_cache)"
                )
            self.kv = self.plan = None
        self.kv = self.make(call.states, call.scaling)
        self.scaling = call.scaling

    def _attend(self, layer: int, call: Call) -> torch.Tensor:
        query, key, value = call.states
        if self.n_new == 1 and self.prompted and not differentiable(call.states):
            return self._decode(layer, query, key, value)
        self.recording = self.recording or differentiable((key, key, value))
        for row, (sequence, pad) in enumerate(zip(self.sequences, self.pads)):
            first = max(pad - self.seen, 0)
            self._kv.append(
                layer,
                sequence,
                self._rows(key[row, :, first:]),
                self._rows(value[row, :, first:]),
                n_tokens=[self.n_new - first],
            )
        if not self.prompted and self.observe > 0:
            before = self.observed.get(layer)
            now = query.detach()[:, :, -self.observe :]
            self.observing[layer] = now if before is None else torch.cat([before, now], dim=2)[:, :, -self.observe :]
        if self.seen > 0:
            key, value = self._history(layer, key, value)
        out, _ = sdpa_attention_forward(call.module, query, key, value, call.mask, scaling=call.scaling, **call.options)
        return out

    def _rows(self, states: torch.Tensor) -> torch.Tensor:
        """Of [heads, positions, dim] rows [positions, heads, dim] as they are stored."""
        rows = states.detach().transpose(0, 1)
        return rows if self.store is None else rows.to(self.store)

    def _decode(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        kv, batch = self._kv, len(self.sequences)
        if self.plan is None or self.plan.room < batch:
            self.plan = kv.new_plan(batch)
        keys, values = key.detach()[:, :, 0], value.detach()[:, :, 0]
        if self.store is not None:
            keys, values = keys.to(self.store), values.to(self.store)
        kv.append(layer, self.sequences, keys, values)
        queries = query.detach()[:, :, 0].contiguous()
        kv.plan(layer, self.sequences, queries, out=self.plan)
        out = torch.empty((batch, queries.shape[1], value.shape[3]), dtype=torch.float32)
        kv.attend(layer, self.sequences, queries, self.plan, out=out)
        return out.to(query.dtype).unsqueeze(1)

    def whole(self, layer: int, which: int) -> torch.Tensor | None:
        """All keys (0) or values (1) of a layer, [batch, heads, tokens, dim], as the model computed them."""
        if self.imported is not None:
            return self.imported[layer][which]
        if not self.sequences:
            return None
        kind, pad = KINDS[self._kv.query_dtype], torch.nn.functional.pad
        rows = [(self.read(layer, sequence, n)[which], n) for sequence, n in zip(self.sequences, self.lengths())]
        return torch.stack([pad(found.to(kind), (0, 0, self.seen - n, 0)) for found, n in rows])

    def _history(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of a layer, the new ones last: for several tokens at once, and where gradients are wanted,
        attention is exact. Gradients pass to the new ones alone."""
        shapes = [(*x.shape[:2], self.seen + x.shape[2], x.shape[3]) for x in (key, value)]
        keys, values = (torch.zeros(shape, dtype=key.dtype) for shape in shapes)
        for row, (sequence, n) in enumerate(zip(self.sequences, self.lengths())):
            for out, rows in zip((keys, values), self.read(layer, sequence, n)):
                out[row, :, self.seen - n : self.seen] = rows
        if self.recorded and torch.is_grad_enabled():
            leaf = torch.zeros((), requires_grad=True)
            keys, values = Held.apply(keys, leaf), Held.apply(values, leaf)
        keys[:, :, self.seen :], values[:, :, self.seen :] = key, value
        return keys, values

    def read(self, layer: int, sequence: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first n keys and values of a sequence, [heads, n, dim], as they are stored."""
        kv = self._kv
        heads = [kv.read(layer, sequence, head, 0, n) for head in range(kv.n_kv_heads)]
        keys, values = (torch.stack([torch.from_numpy(rows[i]) for rows in heads]) for i in (0, 1))
        return (keys.view(torch.bfloat16), values.view(torch.bfloat16)) if kv.dtype == "bfloat16" else (keys, values)

    def _end(self) -> None:
        self._kv.step_end(self.sequences)
        self.observed.update(self.observing)
        self.observing = {}
        self.recorded, self.recording = self.recorded or self.recording, False
        self.seen += self.n_new
        self.begun = 0
        if self.prompted:
            self._kv.maintain(self.sequences)

    def abort(self) -> None:
        """Takes back a forward that did not come to its end."""
        if self.n_new > 0 and self.sequences:
            self._kv.step_abort(self.sequences)
        self.begun = self.n_new = 0
        self.observing, self.recording = {}, False
        if self.seen == 0:
            self.clear()

    def _import(self, call: Call, pads: list[int]) -> None:
        """Takes in the rows of a cache that the stock model filled."""
        imported, n = self.imported or [], self.seen
        for name, new, rows in zip(("keys", "values"), call.states[1:], imported[0]):
            ours, theirs = ((*x.shape[:2], x.shape[3], x.dtype) for x in (new, rows))
            if ours != theirs:
                raise InvalidError(
                    f"{name} of the model's own cache, which was given, are {theirs} (rows, heads, elements and dtype), "
                    f"wanted {ours}"
                )
        self.scaling = call.scaling
        self._fill(
            [max(n - pad, 0) for pad in pads],
            lambda layer, row: (imported[layer][0][row, :, pads[row] :], imported[layer][1][row, :, pads[row] :]),
        )
        self.imported, self.pads = None, pads

    def _fill(self, lengths: list[int], rows: Callable[[int, int], Rows]) -> None:
        """Opens sequences of prompts that have not ended. rows: [heads, tokens, dim] each, of a layer and a row."""
        kv = self._kv
        sequences = [kv.open() for _ in lengths]
        try:
            kv.reserve(sequences, lengths)
            for layer in range(self.n_layers):
                for row, (sequence, n) in enumerate(zip(sequences, lengths)):
                    keys, values = rows(layer, row)
                    kv.append(layer, sequence, self._rows(keys), self._rows(values), n_tokens=[n])
            kv.step_end(sequences)
        except BaseException:
            for sequence in sequences:
                kv.free(sequence)
            raise
        self.sequences = sequences

    def end_prompt(self) -> None:
        """Ends the prompt: a thread of the cache builds groups and codes from it while the caller goes on."""
        if self.prompted:
            return
        kv = self._kv
        kv.reserve(self.sequences, 0)  # a step in which prompts end
        try:
            for layer in range(self.n_layers):
                seen = self.observed.get(layer)
                for row, (sequence, length) in enumerate(zip(self.sequences, self.lengths())):
                    queries = None
                    if seen is not None and length > 0:
                        queries = seen[row, :, -min(length, seen.shape[2]) :].transpose(0, 1).contiguous()
                    kv.end_prompt(layer, sequence, queries)
            kv.step_end(self.sequences)
        except BaseException as error:
            kv.step_abort(self.sequences)
            if isinstance(error, NumberError):
                raise NumberError(f"layer {layer}, row {row} of the batch: {error}") from None
            if isinstance(error, InvalidError):
                raise InvalidError(by_row(error, self.sequences)) from None
            raise
        self.observed = {}
        self.prompted = True

    # --- sequences -----------------------------------------------------------------------------------------------------

    def select(self, rows: list[int]) -> None:
        """Row i of the batch becomes what row rows[i] is; a row that several become is forked."""
        if self.imported is not None:
            self.imported = [(keys[rows], values[rows]) for keys, values in self.imported]
            return
        rows = [range(len(self.sequences))[row] for row in rows]  # from the end, too; IndexError before anything changes
        if not self.sequences or rows == list(range(len(self.sequences))):
            return
        if len(set(rows)) < len(rows):
            self.end_prompt()
        first = [row not in rows[:i] for i, row in enumerate(rows)]
        forks = iter(self._forks(row for row, is_first in zip(rows, first) if not is_first))
        sequences = [self.sequences[row] if is_first else next(forks) for row, is_first in zip(rows, first)]
        for row, sequence in enumerate(self.sequences):
            if row not in rows:
                self._kv.free(sequence)
        self.pads, self.sequences = [self.pads[row] for row in rows], sequences
        self.observed = {layer: queries[rows] for layer, queries in self.observed.items()}

    def fork(self) -> Session:
        """One that goes on from here by itself; what there is is shared."""
        other = Session(self.make, self.n_layers, self.observe, self.store)
        other.config = self.config
        if self.sequences:
            self.end_prompt()
            other.kv = self.kv
            other.sequences = self._forks(range(len(self.sequences)))
            other.pads, other.seen, other.scaling, other.prompted = list(self.pads), self.seen, self.scaling, True
            other.recorded = self.recorded
        elif self.imported is not None:
            other.imported, other.seen = list(self.imported), self.seen
        return other

    def _forks(self, rows: Iterable[int]) -> list[int]:
        """A fork of each of these rows of the batch, or none at all."""
        forks: list[int] = []
        try:
            for row in rows:
                forks.append(self._kv.fork(self.sequences[row], self.lengths()[row]))
        except BaseException:
            for sequence in forks:
                self._kv.free(sequence)
            raise
        return forks

    def take_prompt(self, other: Session) -> None:
        """Fills an empty session with the tokens of another, whose prompt has not ended."""
        if self.seen > 0 or other.prompted:
            raise InvalidError("a prompt is taken by an empty cache, from one that has not decoded yet")
        lengths = other.lengths()
        self.take_rows(
            other._kv,
            other.scaling,
            lengths,
            lambda layer, row: other.read(layer, other.sequences[row], lengths[row]),
            other.observed,
        )
        self.pads, self.seen, self.recorded = list(other.pads), other.seen, other.recorded

    def take_rows(
        self,
        source: Any,
        scaling: float,
        lengths: list[int],
        rows: Callable[[int, int], Rows],
        observed: dict[int, torch.Tensor],
    ) -> None:
        """Fills an empty session with prompts of such lengths, which have not ended.

        source      says the rows' shape and dtype, as prepare takes it
        rows        of a layer and a row of the batch: keys and values, [heads, tokens, dim]
        observed    by layer: the prompts' last queries, [batch, heads, positions, dim]
        """
        self.prepare(source, scaling, lengths)
        self._fill(lengths, rows)
        self.seen, self.scaling, self.observed = max(lengths), scaling, dict(observed)
        self.pads = [self.seen - n for n in lengths]

    def prepare(self, source: Any, scaling: float, lengths: list[int]) -> None:
        """Makes the KV cache for sequences of such lengths, and rows of the shape and dtype that `source` names."""
        query = torch.empty((1, source.n_query_heads, 0, source.dim_k), dtype=KINDS[source.query_dtype])
        kind = KINDS[source.dtype]
        key, value = (torch.empty((1, source.n_kv_heads, 0, dim), dtype=kind) for dim in (source.dim_k, source.dim_v))
        self._fit(Call(None, (query, key, value), None, scaling, {}))

    def load(self, paths: list[str]) -> None:
        """Opens sequences with what files hold, whose prompts have ended."""
        sequences: list[int] = []
        try:
            for path in paths:
                sequences.append(self._kv.load(path))
        except BaseException:
            for sequence in sequences:
                self._kv.free(sequence)
            raise
        self.sequences = sequences

    def crop(self, n: int) -> None:
        """Forgets tokens from n on, those in front included."""
        if n >= self.seen:
            return
        if n <= 0:
            self.clear()  # the next tokens are a prompt
            return
        if self.imported is not None:
            self.imported = [(keys[:, :, :n], values[:, :, :n]) for keys, values in self.imported]
        for sequence, pad in zip(self.sequences, self.pads):
            self._kv.truncate(sequence, max(n - pad, 0))
        cut = self.seen - n
        self.observed = {layer: queries[:, :, :-cut] for layer, queries in self.observed.items()}
        self.seen = n


class DCILayer(CacheLayerMixin):
    """One layer: says how long the cache is, and marks keys on their way to the attention."""

    is_sliding = False
    is_compileable = False
    is_croppable = True

    def __init__(self, session: Session, number: int) -> None:
        self.session, self.number = session, number

    @property
    def is_initialized(self) -> bool:
        """Whether there are tokens: by it models know a prompt, which may be masked in a way of its own."""
        return self.session.seen > 0

    @property
    def keys(self) -> torch.Tensor | None:
        """A copy of all keys, [batch, heads, tokens, dim], zeros where there is padding; None: there are none."""
        return self.session.whole(self.number, 0)

    @property
    def values(self) -> torch.Tensor | None:
        """A copy of all values."""
        return self.session.whole(self.number, 1)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the first forward makes the KVCache."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The new keys and values as they are: `attention` knows by the mark where they belong."""
        self.session.check_device(key_states)
        if key_states.dtype not in DTYPES:
            raise UnsupportedError(f"keys are {key_states.dtype}, wanted float32, float16 or bfloat16: convert the model")
        if self.number > 0 and self.session.waiting is not None:
            raise UnsupportedError(
                f"keys of layer {self.session.waiting} did not reach dci's attention: the model does not decode through dci "
                "(dci.transformers.enable), or changes its keys on their way"
            )
        self.session.waiting = self.number
        marked = key_states.view(key_states.shape)
        setattr(marked, MARK, self)
        return marked, value_states

    def get_seq_length(self, *args: Any) -> int:
        """Tokens of whole forwards, those in front that are none included."""
        return self.session.seen

    def get_mask_sizes(self, query_length: Any, *args: Any) -> tuple[int, int]:
        """Keys that a forward of so many tokens sees, and where they begin. Earlier versions give the positions."""
        n = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.session.seen + n, 0

    def get_max_length(self) -> int:
        """-1: there is none."""
        return -1

    get_max_cache_shape = get_max_length

    def offload(self) -> None:
        """Nothing: rows are where they belong."""

    prefetch = offload

    def _refuse(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("the layers of a cache of dci change together: call the method of the same name of the cache")

    reset = crop = reorder_cache = batch_repeat_interleave = batch_select_indices = _refuse


class DCICache(Cache):
    """What dci.transformers gives a model as its cache; its rows lie in the KVCache `kv`."""

    def __init__(self, make: Make, n_layers: int, observe: int, store: torch.dtype | None = None) -> None:
        self.session = Session(make, n_layers, observe, store)
        Cache.__init__(self, layers=[DCILayer(self.session, layer) for layer in range(n_layers)])

    @property
    def kv(self) -> KVCache | None:
        """The KVCache; None before the first forward."""
        self.session.disarm()
        return self.session.kv

    @property
    def sequences(self) -> list[int]:
        """By row of the batch: the number of its sequence in `kv`."""
        return list(self.session.sequences)

    def read(self, layer: int, row: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one row of the batch, [heads, tokens, dim], as they are stored."""
        return self.session.read(layer, self.session.sequences[row], self.session.lengths()[row])

    def __iter__(self) -> Iterator[tuple[torch.Tensor | None, torch.Tensor | None, None]]:
        """By layer: copies of keys and values. DynamicCache(list(cache)) is a cache for a model without dci."""
        return iter([(layer.keys, layer.values, None) for layer in self.layers])

    def reset(self) -> None:
        """Forgets all tokens."""
        self.session.clear()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Beam search: row i goes on from what row beam_idx[i] was."""
        self.session.select([int(row) for row in beam_idx])

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps these rows of the batch."""
        chosen = indices.nonzero().flatten() if indices.dtype == torch.bool else indices
        self.session.select([int(row) for row in chosen])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeats each row of the batch, copies next to each other."""
        self.session.select([row for row in range(len(self.session.sequences)) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Forgets the last -tokens_to_remove tokens; a positive number is how many stay, as in earlier versions.

        Queries that a prompt was observed by go with their tokens: where none is left, presets that choose by them (snapkv)
        need another part of the prompt before they decode.
        """
        n = tokens_to_remove if tokens_to_remove > 0 else self.session.seen + tokens_to_remove
        self.session.crop(n)

    def __deepcopy__(self, memo: Any) -> DCICache:
        """A cache that goes on from here by itself, as a copy would; rows, groups and codes are shared until they change."""
        return self._around(self.session.fork())

    def take_prompt(self, other: DCICache) -> None:
        """Fills this empty cache, which may have another preset, with the prompt of one that has not decoded yet."""
        self.session.take_prompt(other.session)

    def save(self, path: Path) -> None:
        """Writes the cache to a folder, which is made, or takes the place of the cache in it: at any moment it holds the
        old one or the new one. dci.transformers.load_cache reads it, also in another process. No forward runs meanwhile.

        Written are keys, values, and where the prompt has ended groups and codes, for all rows of the batch. A prompt that
        has not ended stays open: it may be read further, before or after loading.
        """
        save(self.session, path)

    @staticmethod
    def load(path: Path, model: Any) -> DCICache:
        """What dci.transformers.load_cache(model, path) gives."""
        from .transformers import load_cache  # noqa: PLC0415 - it imports this module

        return load_cache(model, path)

    @classmethod
    def _around(cls, session: Session) -> DCICache:
        cache = cls(session.make, session.n_layers, session.observe, session.store)
        cache.session = session
        cache.layers = [DCILayer(session, layer) for layer in range(session.n_layers)]
        return cache

    def close(self) -> None:
        """Gives all memory back that no copy shares. The cache may be filled again."""
        self.session.clear()
        self.session.kv = self.session.plan = None
