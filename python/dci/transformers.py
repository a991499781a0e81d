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

Serves causal language models whose layers all attend to everything (Llama, Qwen2, Qwen3, SmolLM, Mistral without a
window, Pythia, GPT-2, OPT, Phi), with padding on the left: on the CPU in float32, float16 or bfloat16, and on a GPU in
float16 or bfloat16 with heads of 64, 96, 128 or 256 elements. There keys and values are in locked host memory, the device
selects, fetches and attends, and a forward of one token is a CUDA graph. Needs transformers from 5.17 on, and below 6;
5.17 and 5.24 are tested.

Forwards and generate() are given new_cache(model), a DynamicCache, or no cache. A DynamicCache becomes a DCICache: the
object stays, further forwards go on from it, and rows that it has are the prompt. A forward that is given none, and whose
mask no cache of dci can hold, runs as in the stock model. Gradients of prompts and of tokens after a prompt that was read
under torch.no_grad() are the stock model's; such a forward attends exactly. docs/language-model.md has the details.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Iterator
from typing import Any

try:
    import torch
    from transformers import GenerationMixin, PreTrainedModel
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    from ._hf_attention import attention
    from ._hf_cache import DCICache
    from ._hf_device import DeviceSession, device_mask, on_device
    from ._hf_engine import Engine, check_host_memory
    from ._hf_files import load
    from ._hf_graph import Graphs
    from ._hf_import import adopt, recorded
    from ._hf_models import first_weight, inner_of, kv_heads_of, refuse_unsupported
    from ._hf_states import DTYPES, States, fills
except ImportError as error:
    raise ImportError(f"dci.transformers needs torch, and transformers from 5.17 on and below 6: {error}") from error

from ._errors import InvalidError, UnsupportedError
from ._paths import Path
from .context import Context
from .gpu import GPU, GPUKVCache
from .kv import KVCache

__all__ = ["DCICache", "disable", "enable", "is_enabled", "load_cache", "new_cache"]

_NAME, _DEVICE_NAME = "dci", "dci_device"  # of attention on the CPU, and on a device
_ARGUMENTS = ("cache", "past_key_values")  # what a model's forward calls its cache: in transformers from 5.24 on, and before


_enabled: weakref.WeakKeyDictionary[Any, _Enabled] = weakref.WeakKeyDictionary()


class _Enabled:
    """What enable changed in a model, and what its caches are made with."""

    def __init__(self, model: Any, options: dict[str, Any], observe: int, store: torch.dtype | None) -> None:
        self.options, self.observe, self.store = options, observe, store
        self.config = model.config.get_text_config(decoder=True)
        heads = self.config.num_attention_heads
        self.heads = heads, kv_heads_of(self.config)
        self.dim = getattr(self.config, "head_dim", None) or self.config.hidden_size // heads
        self.before = _attentions(model)
        self.names = list(inspect.signature(model.forward).parameters)
        self.argument = _ARGUMENTS[0] if _ARGUMENTS[0] in self.names else _ARGUMENTS[1]
        self.hooks: list[Any] = []
        self.engine: Engine | None = None  # of a model whose caches are on a device
        self.chunk = 0
        self.graph = True
        self.generations = threading.local()  # .caches: those of the generation that a thread is in
        self.replaced: dict[str, Any] = {}  # attributes of the model that were there before

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
        layers, cache = self.config.num_hidden_layers, None
        if self.engine is not None:
            cache = DCICache._around(DeviceSession(self.engine, layers, self.observe, self.store))
        else:
            cache = DCICache(self.make, layers, self.observe, self.store)
        cache.session.config = self.config
        return cache

    @contextlib.contextmanager
    def generation(self) -> Iterator[None]:
        """A call of generate(): its cache is that of no other thread."""
        outer = getattr(self.generations, "caches", None)
        taken: list[DCICache] = []
        self.generations.caches = taken
        if self.engine is not None:
            self.engine.generating += 1
        try:
            yield
        finally:
            if self.engine is not None:
                self.engine.generating -= 1
            self.generations.caches = outer
            for cache in taken:
                cache.session.disarm()
                cache.session.lock.release()

    def begin(self, cache: DCICache, mask: Any, generation_config: Any) -> None:
        """Of a generation: makes its cache ready."""
        taken = getattr(self.generations, "caches", None)
        if taken is not None:
            cache.session.take()
            taken.append(cache)
        n = getattr(generation_config, "_mask_length", -1) if mask is None else mask.shape[1]
        if n == cache.get_seq_length() > 0:
            cache.crop(-1)  # the prompt is there whole: what comes after it is said by its last token, which is read again

    def own(self, given: Any) -> DCICache:
        """A cache that the model was given, as one of dci's: a DynamicCache becomes one; another is refused."""
        if not isinstance(given, DCICache):
            adopted: DCICache = adopt(given, self.new_cache())
            return adopted
        if given.session.n_layers != self.config.num_hidden_layers:
            raise InvalidError(
                f"the cache is for a model of {given.session.n_layers} layers, this one has {self.config.num_hidden_layers}"
            )
        return given


def _attentions(model: Any) -> list[tuple[Any, str]]:
    """Configs of a model and of its parts, and which attention each asks for (where dci is on: asked for before)."""
    configs = {id(config): config for config in [model.config, *_parts(model)]}
    earlier = {id(config): name for state in _enabled.values() for config, name in state.before}
    return [(config, earlier.get(at, config._attn_implementation)) for at, config in configs.items()]


def _parts(model: Any) -> list[Any]:
    parts = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    return parts + [part for name in model.config.sub_configs if (part := getattr(model.config, name, None)) is not None]


def enable(
    model: Any,
    preset: str = "sketch",
    budget: int = 256,
    *,
    observe: int = 64,
    dtype: str | None = None,
    context: Context | None = None,
    gpu: GPU | None = None,
    max_tokens: int | None = None,
    max_sequences: int = 1,
    prefill_chunk_size: int = 8192,
    graph: bool = True,
    **config: Any,
) -> None:
    """Lets a transformers model decode through dci, until `disable`: with generate(), and with forwards that use a cache.

    model       a causal language model, or a PEFT model around one; what it cannot be is refused before anything changes
    preset      "sketch", "sketch+lowbit", "full", or another of dci.KVCache's (docs/presets.md)
    budget      most tokens that a kv head attends to in a step; published=True and budget_counts, of dci.KVCache, say which
                of them count
    observe     how many queries of a prompt's end learned codes are fitted to, and choices made once look at
    dtype       how keys and values are stored: "float32", "float16" or "bfloat16"; None: as the model computes them
    context     threads and instruction set (dci.Context)
    config      what else dci.KVCache takes: window, sink, key_bits, ...; on a GPU also what dci.gpu.GPUKVCache takes:
                planner, ring_tokens, hot_tokens, device_resident_bytes, ...

    On a GPU, where the model is, rows are in locked host memory and attention runs on the device:

    gpu         a dci.gpu.GPU; None: the model's. dci.gpu.GPU("host") takes a model on the CPU as if that were a GPU
    max_tokens  of a sequence; more where generate() asks for more. None: config.max_position_embeddings
    max_sequences
                rows of all caches together that are on the device at a time; more where generate() asks for more
    prefill_chunk_size
                generate() reads longer prompts in chunks of so many tokens (0: whole), unless its own argument says
                otherwise
    graph       whether forwards of one token become CUDA graphs

    A model that is enabled already is enabled with the new options. Caches that were filled before keep what they were made
    with.
    """
    model = inner_of(model)
    refuse_unsupported(model)
    stores = {name: kind for kind, name in DTYPES.items()}
    if dtype is not None and dtype not in stores:
        raise InvalidError(f"dtype is {dtype!r}, expected one of {', '.join(map(repr, stores))}")
    for name, value, least in (
        ("observe", observe, 0),
        ("max_tokens", max_tokens, 1),
        ("max_sequences", max_sequences, 1),
        ("prefill_chunk_size", prefill_chunk_size, 0),
    ):
        if value is not None and value < least:
            raise InvalidError(f"{name} is {value}, expected at least {least}")
    state = _Enabled(model, {"preset": preset, "budget": budget, **config}, observe, stores.get(dtype) if dtype else None)
    first = first_weight(model)
    # What the library refuses, it refuses now.
    if first.is_cuda or gpu is not None:
        state.engine = _engine(state, first, _gpu_of(first, gpu, context), max_tokens, max_sequences)
        state.chunk, state.graph = prefill_chunk_size, graph
    else:
        state.options["context"] = context
        query, rows = (torch.empty((1, n, 0, state.dim), dtype=first.dtype) for n in state.heads)
        state.make((query, rows, rows), state.dim**-0.5).close()
    disable(model)
    try:
        _change(model, state)
    except BaseException:
        _restore(model, state)
        raise
    _enabled[model] = state


def _change(model: Any, state: _Enabled) -> None:
    """Replaces a model's attention and what makes its caches."""
    name = _NAME if state.engine is None else _DEVICE_NAME
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, sdpa_mask if state.engine is None else device_mask)
    model.set_attn_implementation(name)
    if state.config._attn_implementation != name:
        raise UnsupportedError(f"{type(model).__name__} did not take the attention of dci")
    if state.engine is None:
        state.hooks.append(model.register_forward_pre_hook(_give_cache, with_kwargs=True))
        state.hooks.append(model.register_forward_hook(_check_used, with_kwargs=True, always_call=True))
    prepare = model._prepare_cache_for_generation

    def prepared(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(prepare).bind(*args, **kwargs).arguments
        kind = given["generation_config"].cache_implementation
        if kind in ("offloaded", "quantized"):
            raise InvalidError(
                f"cache_implementation is {kind!r}, but the model decodes through dci, whose cache is in host memory: leave "
                "it out, or dci.transformers.disable(model) first"
            )
        result = prepare(*args, **kwargs)
        for_model = given["model_kwargs"]
        for_model.update({name: state.own(for_model[name]) for name in _ARGUMENTS if for_model.get(name) is not None})
        cache = next((cache for cache in map(for_model.get, _ARGUMENTS) if cache is not None), None)
        if isinstance(cache, DCICache):
            state.begin(cache, for_model.get("attention_mask"), given["generation_config"])
        _expect(state, given)
        return result

    generate = model.generate

    @functools.wraps(generate)
    def generated(*args: Any, **kwargs: Any) -> Any:
        with state.generation():
            return generate(*args, **kwargs)

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            "continuous batching (generate_batch) has a cache of its own kind: generate() a padded batch, or "
            "dci.transformers.disable(model) first"
        )

    own = {
        "_dci_enabled": state,  # before what no pickle takes
        "_prepare_cache_for_generation": prepared,
        "generate": generated,
        "init_continuous_batching": refused,
    }
    if state.engine is not None:
        own["forward"] = _on_device(model, state)
        if getattr(type(model), "prepare_inputs_for_generation", None) is GenerationMixin.prepare_inputs_for_generation:
            own["prepare_inputs_for_generation"] = _next_inputs(model, state)
    state.replaced = {name: vars(model)[name] for name in own if name in vars(model)}
    vars(model).update(own)


def _gpu_of(parameter: Any, gpu: GPU | None, context: Context | None) -> GPU:
    """The device that a model's caches are on; refuses one on which the model is not."""
    device: Any = parameter.device.index if parameter.is_cuda else "host"
    if gpu is None:
        return GPU(device, context)
    if gpu.device != device:
        raise InvalidError(f"gpu is {gpu!r}, but the model is on {parameter.device}")
    return gpu


def _engine(state: _Enabled, first: Any, gpu: GPU, max_tokens: int | None, max_sequences: int) -> Engine:
    """What makes the KV caches of a model on a device; refuses what the device cannot serve."""
    kind = first.dtype
    if kind is torch.float32:
        raise UnsupportedError("the model is float32, wanted float16 or bfloat16 on a device: model.to(torch.bfloat16)")
    config = state.config
    limit = max_tokens or getattr(config, "max_position_embeddings", None) or 131072
    n_query_heads, n_kv_heads = state.heads

    def make(n_sequences: int, n_tokens: int, scale: float) -> GPUKVCache:
        return GPUKVCache(
            gpu,
            config.num_hidden_layers,
            n_query_heads,
            n_kv_heads,
            state.dim,
            dtype=DTYPES[state.store or kind],
            query_dtype=DTYPES[kind],
            out_dtype=DTYPES[kind],
            scale=scale,
            max_sequences=n_sequences,
            max_tokens=n_tokens,
            **state.options,
        )

    with make(1, min(limit, 1024), state.dim**-0.5) as kv:
        token_bytes = kv.host_info().token_bytes
    if max_tokens is not None:
        check_host_memory(max_sequences * max_tokens, token_bytes, 0)
    return Engine(gpu, make, token_bytes, limit, max_sequences)


def _expect(state: _Enabled, given: dict[str, Any]) -> None:
    """Has a cache know what generate() is about to do with it."""
    generation, kwargs = given["generation_config"], given["model_kwargs"]
    cache = next((kwargs[name] for name in _ARGUMENTS if kwargs.get(name) is not None), None)
    if state.engine is None or not isinstance(cache, DCICache) or not isinstance(cache.session, DeviceSession):
        return
    session, mask = cache.session, kwargs.get("attention_mask")
    if mask is not None and mask.dim() == 2:
        session.whole_prompt = int(mask.shape[1])
    elif generation.max_new_tokens is not None:
        session.whole_prompt = generation.max_length - generation.max_new_tokens
    session.wanted_tokens, session.beams = int(given["max_cache_length"]), generation.num_beams > 1
    # transformers divides tokens alone: no embeddings, and no images.
    tensors = {name for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
    plain, whole = tensors <= _KNOWN - {"inputs_embeds"}, session.whole_prompt or 0
    if plain and session.seen == 0 and whole > state.chunk > 0:
        generation.prefill_chunk_size = generation.prefill_chunk_size or state.chunk


def _on_device(model: Any, state: _Enabled) -> Any:
    """The forward of a model whose caches are on a device: one at a time, and as a graph where it can be one."""
    original = model.forward
    graphs = Graphs(model, original, state.argument) if state.graph else None

    def run(cache: DCICache, kwargs: dict[str, Any]) -> Any:
        session = cache.session
        assert isinstance(session, DeviceSession)
        with session.engine.lock, on_device():
            out = None if graphs is None else graphs.run(cache, kwargs)
            if out is not None:
                session.expected = False
                return out
            try:
                return original(**kwargs)
            except BaseException:
                session.abort()
                raise

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _give_cache(model, args, kwargs)
        kwargs.update(zip(state.names, args))
        cache: Any = kwargs.get(state.argument)
        out = None
        try:
            own = isinstance(cache, DCICache) and isinstance(cache.session, DeviceSession)
            out = run(cache, kwargs) if own else original(**kwargs)
            return out
        finally:
            _check_used(model, (), kwargs, out)

    return forward


_PLAIN = {"use_cache", "logits_to_keep", "return_dict", "output_hidden_states", "output_attentions"}


def _next_inputs(model: Any, state: _Enabled) -> Any:
    """What generate() gives a forward of one token, as transformers finds it, in less time."""
    original = model.prepare_inputs_for_generation

    @functools.wraps(original)
    def prepared(input_ids: Any, next_sequence_length: int | None = None, **kwargs: Any) -> Any:
        cache, positions = kwargs.get(state.argument), kwargs.get("position_ids")
        more = {name: value for name, value in kwargs.items() if value is not None and name not in _KNOWN}
        if (
            next_sequence_length != 1
            or kwargs.get("is_first_iteration")
            or not isinstance(cache, DCICache)
            or not cache.session.prompted
            or positions is None
            or positions.dim() != 2
            or not more.keys() <= _PLAIN
        ):
            return original(input_ids, next_sequence_length=next_sequence_length, **kwargs)
        return {
            "input_ids": input_ids[:, -1:],
            "position_ids": positions[:, -1:],
            "attention_mask": kwargs.get("attention_mask"),
            state.argument: cache,
            **more,
        }

    return prepared


_KNOWN = {*_ARGUMENTS, "position_ids", "attention_mask", "is_first_iteration", "inputs_embeds"}


def _give_cache(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Before a forward: one that uses a cache gets one of dci's, by the name that the model has for it."""
    state = _enabled[model]
    names = state.names
    at = names.index(state.argument) if state.argument in names else len(args)
    if len(args) > at:  # given by position
        args, kwargs = args[:at], {**kwargs, **dict(zip(names[at:], args[at:]))}
    wanted = kwargs.get("use_cache")
    caches = [cache for cache in [kwargs.pop(name, None) for name in _ARGUMENTS] if cache is not None]
    if len(caches) > 1:
        raise InvalidError(
            "the model got two caches, as cache and as past_key_values: leave one out (PEFT's prefix tuning gives one of "
            "its own, of which this transformers knows nothing)"
        )
    if caches and recorded(model, caches[0]):
        kwargs[state.argument] = caches[0]  # gradients pass to its rows: the stock model's work
    elif caches:
        kwargs[state.argument] = state.own(caches[0])
    elif (getattr(state.config, "use_cache", False) if wanted is None else wanted) and not model.training:
        if wanted or fills(dict(zip(names, args), **kwargs).get("attention_mask")):
            kwargs[state.argument] = state.new_cache()
        else:  # nobody asked for a cache, and none of dci's can hold these tokens
            kwargs["use_cache"] = False
    cache = kwargs.get(state.argument)
    if isinstance(cache, DCICache):
        _check_length(cache, dict(zip(names, args), **kwargs))
        cache.session.enter()
    return args, kwargs


def _check_length(cache: DCICache, kwargs: dict[str, Any]) -> None:
    """Refuses a forward whose mask is not for what the cache holds."""
    mask, tokens = kwargs.get("attention_mask"), kwargs.get("input_ids")
    tokens = kwargs.get("inputs_embeds") if tokens is None else tokens
    if mask is None or tokens is None or not isinstance(mask, torch.Tensor) or mask.dim() != 2:
        return
    seen, n = cache.get_seq_length(), tokens.shape[1]
    if mask.shape[1] != seen + n:
        raise InvalidError(
            f"the attention mask is for {mask.shape[1]} tokens, but the cache holds {seen} and {n} are new: the mask is for "
            "all of them. Two generations at a time need a cache each (copy.deepcopy of a cache shares its rows)"
        )


def _check_used(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """After a forward, also one that failed: its keys went through dci, not through a cache of which dci does not know."""
    cache = kwargs.get(_enabled[model].argument)
    if not isinstance(cache, DCICache) or not cache.session.entered():
        return
    session = cache.session
    missed, n = session.expected and output is not None, 0 if output is None else session.begun
    session.leave()
    if n > 0:
        session.abort()
        raise UnsupportedError(
            f"the forward ran {n} of {session.n_layers} layers: dci serves models whose layers all run in each forward"
        )
    if missed:
        raise UnsupportedError(
            f"{type(model).__name__} did not use the cache of dci, which it was given as {_enabled[model].argument} "
            "(gradient checkpointing leaves caches out, for one): leave it out, or dci.transformers.disable(model)"
        )


def disable(model: Any) -> None:
    """Gives a model its own attention and caches back. One that is not enabled stays as it is."""
    model = inner_of(model)
    state = _enabled.pop(model, None)
    if state is None:
        return
    _restore(model, state)


def _restore(model: Any, state: _Enabled) -> None:
    """Takes back what enable changed."""
    for hook in state.hooks:
        hook.remove()
    for name in ("_dci_enabled", "_prepare_cache_for_generation", "generate", "init_continuous_batching"):
        vars(model).pop(name, None)
    if state.engine is not None:
        for name in ("forward", "prepare_inputs_for_generation"):
            vars(model).pop(name, None)
        state.engine.close()
    vars(model).update(state.replaced)
    others = {id(config) for other in _enabled.values() for config, _ in other.before}
    for config, before in state.before:
        if id(config) not in others:  # those of two models may be the same
            config._attn_implementation_internal = before


def is_enabled(model: Any) -> bool:
    """Whether a model decodes through dci."""
    return inner_of(model) in _enabled


def new_cache(model: Any) -> DCICache:
    """An empty cache for a model that is enabled: to be given as past_key_values, which transformers calls cache from
    5.24 on (forwards take either name, whatever the version), and to be looked at afterwards."""
    model = inner_of(model)
    if model not in _enabled:
        raise InvalidError(f"{type(model).__name__} does not decode through dci: call dci.transformers.enable(model) first")
    return _enabled[model].new_cache()


def load_cache(model: Any, path: Path) -> DCICache:
    """A cache that DCICache.save wrote, for a model that is enabled: what is generated from it is what would have been
    generated from the one that was saved.

    The model must be the one whose cache was saved: its config is compared, and what differs is named; its weights are not
    compared. Where the prompt has ended, the options of enable that decide how tokens are stored must be the same, too;
    where it has not, they may be others. InvalidError: another model, or other options. FormatError: a file is damaged.
    """
    cache = new_cache(model)
    load(cache.session, path, first_weight(inner_of(model)).dtype)
    return cache
