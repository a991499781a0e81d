# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The attention function that dci.transformers gives a model, and exact attention of a chunk over its history."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ._errors import UnsupportedError
from ._hf_states import Call, differentiable

MARK = "_dci_layer"  # of keys: the layer of a DCICache that they belong to


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: by dci where a DCICache holds the keys, else PyTorch's."""
    layer = getattr(key, MARK, None)
    if layer is None:
        own: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return own
    layer.session.waiting = None
    for name in ("softcap", "s_aux", "sliding_window", "position_bias"):
        if kwargs.get(name) is not None:
            raise UnsupportedError(
                f"this model's attention has {name}, which dci does not have: dci.transformers.disable(model)"
            )
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    options = {"dropout": dropout, **{name: kwargs[name] for name in ("is_causal",) if name in kwargs}}
    return layer.session.forward(layer.number, Call(module, (query, key, value), attention_mask, scale, options)), None


def attention_of_chunk(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention of the last positions of a sequence, [1, heads, positions, dim]."""
    n, earlier = query.shape[2], keys.shape[2] - query.shape[2]
    # cuDNN prepares itself for each new length, for some tens of milliseconds.
    if n >= 2048 and earlier >= 2048 and _has_cudnn(query) and not differentiable((query, keys, values)):
        return _in_parts(query, keys, values, scale)
    causal: Any = causal_lower_right(n, keys.shape[2])
    if not query.is_cuda:
        causal = causal._materialize(query.device)
    grouped = query.shape[1] != keys.shape[1]
    out: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=causal, scale=scale, enable_gqa=grouped
    )
    return out


def _has_cudnn(query: torch.Tensor) -> bool:
    """Whether cuDNN's attention, on Hopper nearly twice as fast as PyTorch's own, takes these."""
    return (
        query.is_cuda
        and query.shape[3] in (64, 128)
        and torch.cuda.get_device_capability(query.device) >= (9, 0)
        and torch.backends.cuda.cudnn_sdp_enabled()
        and (torch.backends.cudnn.version() or 0) >= 90100
        and hasattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention")
    )


def _in_parts(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention over what is earlier, and among the positions themselves, merged by the logs of their sums: cuDNN has no
    causal mask for fewer queries than keys."""
    earlier, found = keys.shape[2] - query.shape[2], []
    for part, causal in ((slice(earlier, None), True), (slice(0, earlier), False)):
        out, log_sum, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            query, keys[:, :, part], values[:, :, part], None, True, 0.0, causal, False, scale=scale
        )
        found.append((out.float(), log_sum.reshape(*query.shape[:2], -1)[:, :, : query.shape[2]].unsqueeze(-1)))
    (own, own_sum), (before, before_sum) = found
    return torch.lerp(own, before, torch.sigmoid(before_sum - own_sum)).to(query.dtype)
