# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The attention function that dci.transformers gives a model."""

from __future__ import annotations

from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ._errors import UnsupportedError
from ._hf_states import Call

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
