# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What language_model.py decodes with: the model with its own cache, and through dci with presets, from the same prompt.

A `Reader` has the model read a prompt once, with its own cache and attention. An `Arm` decodes from there: the model with
its own cache, or a twin of it, which has the same weights and decodes through dci. Keys and values are those of the one
prompt, and so are the last queries, which some presets look at.
"""

from __future__ import annotations

import copy
import json
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

import dci.gpu
import dci.transformers

OWN = "own cache"
OBSERVED = 64  # last queries of a prompt that are kept, as many as enable observes
# B of the papers, in tokens as each counts them: IceCache 5.2, ClusterKV figure 10, PRKV, LouisKV 5.2 (long inputs), and
# FreeKV's sink and window of 512 with a page.
PAPER = {"icecache": 256, "clusterkv": 1024, "prkv": 256, "louiskv": 512, "freekv": 1056}


class Spec(NamedTuple):
    """A preset and how it is enabled."""

    preset: str
    options: dict[str, Any]  # of enable, the budget among them

    @property
    def budget(self) -> int:
        return int(self.options.get("budget", 0))

    def what(self) -> dict[str, Any]:
        """Of a row, what is measured: options but for the budget, where there are any."""
        more = {name: value for name, value in self.options.items() if name != "budget"}
        return {"options": more} if more else {}


def specs(presets: str, budgets: str, kept: str, config: str) -> list[Spec]:
    """Those of the command line. kept: "common": every preset has the same budgets, and what is kept counts; "paper": sizes
    and accounting are those of each paper (docs/presets.md), and so are budgets where PAPER has one; or a file that has the
    options of enable by preset, as JSON."""
    more, found = json.loads(config), list[Spec]()
    own = {} if kept in ("common", "paper") else json.loads(pathlib.Path(kept).read_text())
    if kept == "paper":
        more["published"] = True
    for preset in [name for name in presets.split(",") if name]:
        if preset in own:
            found.append(Spec(preset, {**more, **own[preset]}))
            continue
        given = [PAPER[preset]] if kept == "paper" and preset in PAPER else map(int, budgets.split(","))
        found.extend(Spec(preset, {**more, "budget": budget}) for budget in given)
    return found


# --- prompts ---------------------------------------------------------------------------------------------------------


class Prompt(NamedTuple):
    """What a model has read."""

    cache: DynamicCache
    queries: dict[int, torch.Tensor]  # by layer, the last ones
    logits: torch.Tensor  # of the last token

    @property
    def n(self) -> int:
        return int(self.cache.get_seq_length())

    def copy(self) -> DynamicCache:
        """A cache that goes on from here. Tensors are shared: DynamicLayer makes new ones when it grows."""
        return copied(self.cache)


def copied(cache: DynamicCache) -> DynamicCache:
    other = copy.copy(cache)
    other.layers = [copy.copy(layer) for layer in cache.layers]
    return other


class Reader:
    """The model with its own cache, and an attention that keeps the last queries of what it reads."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.scaling = 0.0
        self._queries: dict[int, torch.Tensor] | None = None
        name = f"observed-{id(self)}"
        AttentionInterface.register(name, self._attend)
        AttentionMaskInterface.register(name, sdpa_mask)
        model.set_attn_implementation(name)

    def _attend(self, module: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._queries is not None:
            before = self._queries.get(module.layer_idx)
            now = query if before is None else torch.cat([before, query[:, :, -OBSERVED:]], 2)
            self._queries[module.layer_idx] = now[:, :, -OBSERVED:].clone()
            self.scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
        return sdpa_attention_forward(module, query, *args, **kwargs)

    def read(self, ids: torch.Tensor, after: Prompt | None = None) -> Prompt:
        """Tokens [1, n], from an empty cache or after a prompt, which stays as it is."""
        cache = DynamicCache() if after is None else after.copy()
        self._queries = {} if after is None else dict(after.queries)
        try:
            with torch.no_grad():
                ids = ids.to(self.model.device)
                logits = self.model(ids, past_key_values=cache, logits_to_keep=1).logits[0, -1]
            return Prompt(cache, self._queries, logits)
        finally:
            self._queries = None


def filled(cache: Any, prompt: Prompt, scaling: float) -> Any:
    """An empty cache of dci with what a model has read."""
    rows = [(layer.keys, layer.values) for layer in prompt.cache.layers]
    (key, value), query = rows[0], prompt.queries[0]
    dtype = str(key.dtype).removeprefix("torch.")
    shape = SimpleNamespace(n_query_heads=query.shape[1], n_kv_heads=key.shape[1], dim_k=key.shape[3], dim_v=value.shape[3],
                            dtype=dtype, query_dtype=dtype)  # fmt: skip
    cache.session.take_rows(
        shape, scaling, [prompt.n], lambda layer, row: (rows[layer][0][row], rows[layer][1][row]), prompt.queries
    )
    return cache


# --- arms ------------------------------------------------------------------------------------------------------------


def enable(model: Any, spec: Spec, device: str, room: int) -> None:
    """Has the model decode through dci; on a device with room for so many tokens, and for a copy of a cache."""
    options = dict(spec.options)
    if device != "cpu":
        options.update(max_tokens=room, max_sequences=2)
    if device == "host":
        options["gpu"] = dci.gpu.GPU("host")
    dci.transformers.enable(model, spec.preset, **options)


@contextmanager
def enabled(model: Any, spec: Spec, device: str, room: int) -> Iterator[None]:
    """The same for a while."""
    enable(model, spec, device, room)
    try:
        yield
    finally:
        dci.transformers.disable(model)


class Decoder:
    """A cache that a model goes on from, one token at a time or several at once."""

    def __init__(self, model: Any, cache: Any, logits: torch.Tensor | None = None) -> None:
        self.model, self.cache = model, cache
        self.logits = torch.empty(0) if logits is None else logits  # of the last token, as the model computes them

    def feed(self, tokens: list[int]) -> torch.Tensor:
        """Tokens in one forward; the logits of the last one."""
        with torch.no_grad():
            ids = torch.tensor([tokens], device=self.model.device)
            self.logits = self.model(ids, past_key_values=self.cache, logits_to_keep=1).logits[0, -1]
        return self.logits

    def steps(self, tokens: list[int]) -> Iterator[torch.Tensor]:
        """Logits after each token, which goes in alone: [vocabulary], float32 on the CPU."""
        for token in tokens:
            yield self.feed([token]).float().cpu()

    def fork(self) -> Decoder:
        """Another one that goes on from here by itself."""
        cache = copied(self.cache) if type(self.cache) is DynamicCache else copy.deepcopy(self.cache)
        return Decoder(self.model, cache, self.logits)

    def close(self) -> None:
        """Gives the rows back that no fork shares."""
        if isinstance(self.cache, dci.transformers.DCICache):
            self.cache.reset()


class Arm:
    """A way to decode: the model's own cache (spec None), or a preset with a twin of the model."""

    def __init__(self, reader: Reader, twin: Any, spec: Spec | None, device: str, room: int) -> None:
        self.reader, self.spec, self.device, self.room = reader, spec, device, room
        self._twin, self._model = twin, None
        self.name, self.budget = (OWN, 0) if spec is None else (spec.preset, spec.budget)

    def after(self, prompt: Prompt) -> Decoder:
        """Decodes after what the reader has read."""
        if self.spec is None:
            return Decoder(self.reader.model, prompt.copy(), prompt.logits)
        if self._model is None:  # once: graphs and locked memory are kept
            self._model = twin_of(self._twin)
            enable(self._model, self.spec, self.device, self.room)
        cache = dci.transformers.new_cache(self._model)
        with torch.no_grad():
            return Decoder(self._model, filled(cache, prompt, self.reader.scaling), prompt.logits)

    def close(self) -> None:
        """Gives everything back."""
        if self._model is not None:
            dci.transformers.disable(self._model)
            self._model = None


def twin_of(model: Any) -> Any:
    """A model with modules and a config of its own, and the same weights in memory."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def arms_of(model: Any, found: list[Spec], device: str, room: int) -> tuple[Reader, list[Arm]]:
    """The reader of prompts, and all ways to decode, the model's own cache first."""
    twin = twin_of(model)
    reader = Reader(model)
    return reader, [Arm(reader, twin, spec, device, room) for spec in [None, *found]]


def in_turn(arms: list[Arm], prompt: Prompt) -> Iterator[tuple[Arm, Decoder]]:
    """Arms with their decoders after a prompt, one at a time: each is closed before the next begins."""
    for arm in arms:
        decoder = arm.after(prompt)
        try:
            yield arm, decoder
        finally:
            decoder.close()
            arm.close()
