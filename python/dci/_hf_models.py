# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which models of transformers dci serves: what the others have is said in a sentence."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from ._errors import UnsupportedError, a_type
from ._hf_states import DTYPES


def kv_heads_of(config: Any) -> int:
    """Of an attention without groups there are as many as query heads, and configs may be silent about it."""
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    named = getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", None)
    return int(named or config.num_attention_heads)


def inner_of(model: Any) -> Any:
    """The model that generates: that of a PEFT model, around which adapters lie, is inside it."""
    inside = getattr(model, "get_base_model", None)
    return model if inside is None else inside()


def _refuse_kind(model: Any, name: str) -> None:
    """Says what is no language model that generates."""
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedError(f"model is {a_type(model)}, wanted a causal language model of transformers")
    if not hasattr(model, "_prepare_cache_for_generation"):
        raise UnsupportedError(
            f"{name} does not generate: dci serves causal language models (AutoModelForCausalLM), in which a cache is of use"
        )
    config = model.config.get_text_config(decoder=True)
    for field in ("num_attention_heads", "num_hidden_layers"):
        if getattr(config, field, None) is None:
            raise UnsupportedError(f"{name} has no {field} in its config: dci serves models whose layers all attend")
    for field in ("num_attention_heads", "num_key_value_heads", "num_kv_heads", "head_dim"):
        if not isinstance(getattr(config, field, None), (int, type(None))):
            raise UnsupportedError(f"{field} of {name} is {getattr(config, field)}, and dci has one number for all layers")


def refuse_unsupported(model: Any) -> None:
    """Says which part of a model dci cannot serve."""
    name = type(model).__name__
    _refuse_kind(model, name)
    config = model.config.get_text_config(decoder=True)
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
    if not getattr(model, "_supports_attention_backend", False) or not model._can_set_attn_implementation():
        raise UnsupportedError(f"{name} does not let its attention be replaced (transformers' AttentionInterface)")
    _refuse_weights(model, name)


def _refuse_weights(model: Any, name: str) -> None:
    """Says where and what weights are that dci cannot serve."""
    first = first_weight(model)
    if any(parameter.device.type == "meta" for parameter in model.parameters()):
        raise UnsupportedError(
            f"weights of {name} are offloaded (on the meta device while they are not used): dci serves models whose weights "
            "are all in memory: load it without device_map and offload_folder"
        )
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    if len(devices) > 1:
        raise UnsupportedError(f"{name} is spread over {', '.join(devices)}: dci serves models on one device")
    if first.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"{name} is on {first.device}, and dci serves models on the CPU and on GPUs of NVIDIA's")
    if first.dtype not in DTYPES:
        raise UnsupportedError(f"{name} is {first.dtype}, wanted float32, float16 or bfloat16: model.to(torch.bfloat16)")


def first_weight(model: Any) -> Any:
    """A weight of the dtype in which a model computes, which those of quantised layers are not."""
    weights = list(model.parameters())
    return next((weight for weight in weights if weight.dtype in DTYPES), weights[0])
