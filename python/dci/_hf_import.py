# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Caches of transformers that an enabled model is given: a DynamicCache becomes one of dci's, others are refused."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ._errors import InvalidError, UnsupportedError
from ._hf_cache import DCICache
from ._hf_states import Rows

_INSTEAD = "give dci.transformers.new_cache(model), a DynamicCache or none, or dci.transformers.disable(model) first"


class DCIDynamicCache(DCICache, DynamicCache):
    """A DynamicCache that a model was given while it decoded through dci. The object stays what its owner holds: further
    forwards go on from it, and it has what a DCICache has."""


def rows_of(given: DynamicCache, cache: DCICache) -> list[Rows] | None:
    """Keys and values by layer of a cache that the stock model filled; None of one that is empty."""
    n_layers = cache.session.n_layers
    filled = [layer for layer in given.layers if layer.get_seq_length() > 0]
    if not filled:
        return None
    for number, layer in enumerate(given.layers):
        if type(layer) is not DynamicLayer:
            raise UnsupportedError(
                f"layer {number} of the DynamicCache is a {type(layer).__name__}, wanted a DynamicLayer: {_INSTEAD}"
            )
    lengths = [layer.get_seq_length() for layer in given.layers]
    if len(lengths) != n_layers or len(set(lengths)) > 1:
        raise InvalidError(f"the DynamicCache has layers of {lengths} tokens, wanted {n_layers} of one length: {_INSTEAD}")
    cache.session.check_device(filled[0].keys)
    return [(layer.keys, layer.values) for layer in given.layers]


def recorded(model: Any, given: Any) -> bool:
    """Whether gradients are to pass to a cache of transformers', which is the stock model's work."""
    if type(given) is not DynamicCache or not torch.is_grad_enabled():
        return False
    keys = (getattr(layer, "keys", None) for layer in given.layers)
    return model.training or any(key is not None and key.requires_grad for key in keys)


def adopt(given: Any, cache: DCICache) -> Any:
    """Makes a DynamicCache one of dci's: it takes the place of `cache`, which is empty, and its rows are the prompt."""
    if isinstance(given, (tuple, list)):
        raise InvalidError(
            f"past_key_values is a {type(given).__name__}, wanted a cache: transformers.DynamicCache(it) makes one"
        )
    if type(given) is not DynamicCache:
        of = f" of {given.get_seq_length()} tokens" if hasattr(given, "get_seq_length") else ""
        raise InvalidError(f"the model decodes through dci, but was given a {type(given).__name__}{of}: {_INSTEAD}")
    rows = rows_of(given, cache)
    given.__class__ = DCIDynamicCache
    vars(given).update(vars(cache))
    if rows is not None:
        given.session.imported, given.session.seen = rows, rows[0][0].shape[2]
    return given
