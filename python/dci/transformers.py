# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The KV cache of a transformers model in dci: exact attention over the prompt, sparse attention in the decode.

    import dci.transformers
    dci.transformers.enable(model, preset="sketch", budget=256)
    model.generate(**inputs)
    dci.transformers.disable(model)

A forward of several tokens (a prompt, a part of one, or what a user says next) attends exactly, by PyTorch, and its
keys and values are appended to a dci.KVCache. The first forward of a single token ends the prompt: groups and codes
are formed. From then on each layer of a forward of one token chooses at most `budget` tokens per kv head, and attends
to them. With a budget of all tokens that is exact.

Serves decoder-only models with grouped-query attention whose layers all attend to everything (Llama, Qwen2, Qwen3,
SmolLM, Mistral without a window), on the CPU, in float32, float16 or bfloat16, with padding on the left. Needs
transformers from 4.56 on.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any

try:
    import torch
    from transformers import DynamicCache
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    from ._hf_cache import DTYPES, DCICache, States, attention
except ImportError as error:
    raise ImportError(f"dci.transformers needs torch and transformers from 4.56 on: {error}") from error

from ._errors import InvalidError, UnsupportedError
from .context import Context
from .kv import KVCache

__all__ = ["DCICache", "disable", "enable", "is_enabled", "new_cache"]

_NAME = "dci"
_ARGUMENTS = ("cache", "past_key_values")  # what a model's forward calls its cache: in transformers from 5.24 on, and before


_enabled: weakref.WeakKeyDictionary[Any, _Enabled] = weakref.WeakKeyDictionary()


class _Enabled:
    """What enable changed in a model, and what its caches are made with."""

    def __init__(self, model: Any, options: dict[str, Any], observe: int, store: torch.dtype | None) -> None:
        self.options, self.observe, self.store = options, observe, store
        self.config = model.config.get_text_config(decoder=True)
        given = _enabled.get(model)
        self.before: str = model.config._attn_implementation if given is None else given.before
        self.argument = _ARGUMENTS[0] if _ARGUMENTS[0] in inspect.signature(model.forward).parameters else _ARGUMENTS[1]
        self.hooks: list[Any] = []

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The model refers to this, so that copies and pickles of it, which would be enabled by half, are refused here.
        raise InvalidError("a model that decodes through dci cannot be copied: dci.transformers.disable(model) first")

    def make(self, states: States, scaling: float) -> KVCache:
        query, key, value = states
        return KVCache(
            n_layers=self.config.num_hidden_layers,
            n_query_heads=query.shape[1],
            n_kv_heads=key.shape[1],
            dim_k=key.shape[3],
            dim_v=value.shape[3],
            dtype=DTYPES[self.store or key.dtype],
            query_dtype=DTYPES[query.dtype],
            scale=scaling,
            **self.options,
        )

    def new_cache(self) -> DCICache:
        return DCICache(self.make, self.config.num_hidden_layers, self.observe, self.store)

    def own(self, given: Any) -> DCICache:
        """For a DynamicCache that nobody has filled one of dci's; another cache was asked for, and is refused."""
        if isinstance(given, DCICache):
            return given
        if type(given) is not DynamicCache or given.get_seq_length() > 0:
            raise InvalidError(
                f"the model decodes through dci, but has a {type(given).__name__} of {given.get_seq_length()} tokens: "
                "leave it out, give dci.transformers.new_cache(model), or disable dci first"
            )
        return self.new_cache()


def _inner(model: Any) -> Any:
    """The model that generates: that of a PEFT model, around which adapters lie, is inside it."""
    inside = getattr(model, "get_base_model", None)
    return model if inside is None else inside()


def _refuse_unsupported(model: Any) -> None:
    """Says which part of a model dci cannot serve."""
    config = model.config.get_text_config(decoder=True)
    name = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedError(f"{name} is an encoder-decoder: dci serves decoder-only models")
    if getattr(config, "kv_lora_rank", None):
        raise UnsupportedError(
            f"{name} has multi-head latent attention (kv_lora_rank {config.kv_lora_rank}): its cache has no keys per head"
        )
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    for layer, kind in enumerate(kinds):
        if kind != "full_attention":
            raise UnsupportedError(
                f"layer {layer} of {name} is {kind}, and dci serves models whose layers are all full_attention"
            )
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True) and getattr(config, "layer_types", None) is None:
        raise UnsupportedError(
            f"{name} attends to the last {window} tokens only: set config.sliding_window to None to attend to all"
        )
    for field in ("attn_logit_softcapping", "attention_chunk_size"):
        if getattr(config, field, None):
            raise UnsupportedError(f"{name} has {field} {getattr(config, field)}, which dci does not have")
    if any(hasattr(module, "sinks") for module in model.modules()):
        raise UnsupportedError(f"{name} has learned attention sinks, which dci does not have")
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedError(f"{name} does not let its attention be replaced (transformers' AttentionInterface)")
    first = next(model.parameters())
    if first.device.type != "cpu":
        raise UnsupportedError(f"{name} is on {first.device}, and dci attends on the CPU: model.to('cpu')")
    if first.dtype not in DTYPES:
        raise UnsupportedError(f"{name} is {first.dtype}, wanted float32, float16 or bfloat16: model.to(torch.bfloat16)")


def enable(
    model: Any,
    preset: str = "sketch",
    budget: int = 256,
    *,
    observe: int = 64,
    dtype: str | None = None,
    context: Context | None = None,
    **config: Any,
) -> None:
    """Lets a transformers model decode through dci, until `disable`: with generate(), and with forwards that use a cache.

    model       a causal language model, or a PEFT model around one; what it cannot be is refused before anything changes
    preset      "sketch", "sketch+lowbit", "full", or another of dci.KVCache's (docs/presets.md)
    budget      most tokens that a kv head attends to in a step
    observe     how many queries of a prompt's end learned codes are fitted to, and choices made once look at
    dtype       how keys and values are stored: "float32", "float16" or "bfloat16"; None: as the model computes them
    context     threads and instruction set (dci.Context)
    config      what else dci.KVCache takes: window, sink, key_bits, ...

    A model that is enabled already is enabled with the new options. Caches that were filled before keep what they were made
    with.
    """
    model = _inner(model)
    _refuse_unsupported(model)
    stores = {name: kind for kind, name in DTYPES.items()}
    if dtype is not None and dtype not in stores:
        raise InvalidError(f"dtype is {dtype!r}, expected one of {', '.join(map(repr, stores))}")
    if observe < 0:
        raise InvalidError(f"observe is {observe}, expected at least 0")
    options = {"preset": preset, "budget": budget, "context": context, **config}
    state = _Enabled(model, options, observe, None if dtype is None else stores[dtype])
    text, kind = state.config, next(model.parameters()).dtype
    heads = text.num_attention_heads
    dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    # What the library refuses, it refuses now.
    query, rows = (torch.empty((1, n, 0, dim), dtype=kind) for n in (heads, text.num_key_value_heads))
    state.make((query, rows, rows), dim**-0.5).close()
    disable(model)
    AttentionInterface.register(_NAME, attention)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    if model.config._attn_implementation != _NAME:
        raise UnsupportedError(f"{type(model).__name__} did not take the attention of dci")
    state.hooks = [
        model.register_forward_pre_hook(_give_cache, with_kwargs=True),
        model.register_forward_hook(_check_used, with_kwargs=True),
    ]
    prepare = model._prepare_cache_for_generation

    def prepared(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(prepare).bind(*args, **kwargs).arguments
        result = prepare(*args, **kwargs)
        for_model = given["model_kwargs"]
        for_model.update({name: state.own(for_model[name]) for name in _ARGUMENTS if for_model.get(name) is not None})
        return result

    model._dci_enabled = state  # before what no pickle takes
    model._prepare_cache_for_generation = prepared
    _enabled[model] = state


def _give_cache(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Before a forward: one that uses a cache gets one of dci's, by the name that the model has for it."""
    state = _enabled[model]
    names = list(inspect.signature(model.forward).parameters)
    at = names.index(state.argument) if state.argument in names else len(args)
    if len(args) > at:  # given by position
        args, kwargs = args[:at], {**kwargs, **dict(zip(names[at:], args[at:]))}
    wanted = kwargs.get("use_cache")
    caches = [cache for cache in [kwargs.pop(name, None) for name in _ARGUMENTS] if cache is not None]
    if len(caches) > 1:
        raise InvalidError("the model got two caches, as cache and as past_key_values: leave one out")
    if caches:
        kwargs[state.argument] = state.own(caches[0])
    elif (state.config.use_cache if wanted is None else wanted) and not model.training:
        kwargs[state.argument] = state.new_cache()
    if state.argument in kwargs:
        kwargs[state.argument].session.expected = True
    return args, kwargs


def _check_used(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """After a forward: its keys went through dci, not through a cache of which dci does not know."""
    cache = kwargs.get(_enabled[model].argument)
    if isinstance(cache, DCICache) and cache.session.expected:
        raise UnsupportedError(
            f"{type(model).__name__} did not use the cache of dci, which it was given as {_enabled[model].argument}: "
            "dci.transformers.disable(model)"
        )


def disable(model: Any) -> None:
    """Gives a model its own attention and caches back. One that is not enabled stays as it is."""
    model = _inner(model)
    state = _enabled.pop(model, None)
    if state is None:
        return
    for hook in state.hooks:
        hook.remove()
    del model._prepare_cache_for_generation, model._dci_enabled
    model.set_attn_implementation(state.before)


def is_enabled(model: Any) -> bool:
    """Whether a model decodes through dci."""
    return _inner(model) in _enabled


def new_cache(model: Any) -> DCICache:
    """An empty cache for a model that is enabled: to be given as past_key_values, which transformers calls cache from
    5.24 on (forwards take either name, whatever the version), and to be looked at afterwards."""
    model = _inner(model)
    if model not in _enabled:
        raise InvalidError(f"{type(model).__name__} does not decode through dci: call dci.transformers.enable(model) first")
    return _enabled[model].new_cache()
