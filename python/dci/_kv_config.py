# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""From the options of a KV cache to its config in C."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from . import _kv_structs
from ._errors import InvalidError
from ._library import address, check, chosen, lib, prepared
from ._rows import RowFormat, as_count, as_number
from ._tensors import in_host_memory

# Options by what they are. None leaves what dci_kv_config_init has: the preset's, or the library's.
CHOICES = {
    "group": _kv_structs.KV_GROUPS,
    "summary": _kv_structs.KV_SUMMARIES,
    "select": _kv_structs.KV_CHOICES,
    "schedule": _kv_structs.KV_SCHEDULES,
    "tail": _kv_structs.KV_TAILS,
    "combine": _kv_structs.KV_COMBINES,
    "cluster_by": _kv_structs.KV_CLUSTERS,
    "budget_counts": _kv_structs.KV_COUNTS,
    "tree_keys": _kv_structs.KV_TREE_KEYS,
}
SIZES = (
    *("n_layers", "n_query_heads", "n_kv_heads", "dim_k", "dim_v", "page_tokens", "budget", "sink", "window", "rollback"),
    *("dense_layers", "max_bytes", "resident_bytes", "cluster_tokens", "cluster_every", "cluster_segment", "cluster_rounds"),
    *("cluster_most", "period", "anchor_first", "anchor_period", "ring", "tree_field_of_view", "segment_buffer"),
    *("preselect_tokens", "preselect_least", "piece_bytes", "observed_pool", "segment_least", "tree_simple_indices"),
    "reorder_delay",
)
NUMBERS = ("key_bits", "value_bits")
FLAGS = ("frozen_prompt", "foreground", "tree_tokens", "sums_whole", "observed_keep", "contiguous", "query_head_lists")
REALS = (
    *("scale", "refit", "estimate_share", "tau", "tree_promotion", "verify", "preselect", "static_share", "budget_share"),
    *("tree_promotion_subseq", "tree_retrieve", "deviation_weight", "vote_share", "candidate_share"),
)


class KVLayer(NamedTuple):
    """One layer of a model where it differs from the others."""

    mode: str = "sparse"  #: "sparse" (attends to the plan) or "dense" (to everything); "sliding" is refused as not built
    sliding_window: int = 0  #: 0; others are refused, as are the next two
    logit_cap: float = 0.0
    learned_sinks: int = 0


class KVLayout(NamedTuple):
    """Keys and values in memory of the caller's, such as an engine's paged cache: nothing is copied.

    keys        one array per layer, of shape (n_blocks, page_tokens, n_kv_heads, dim_k) and the cache's dtype. What matters
                is where the elements lie: a cache (n_blocks, n_kv_heads, page_tokens, dim_k) is passed as its
                transpose(0, 2, 1, 3). All layers have the same strides, and the elements of a row are side by side.
    values      the same, with dim_v.
    blocks_by   who says which blocks a sequence gets: "by_library" or "by_caller" (see KVCache.assign_blocks).

    The arrays are kept alive by the KV cache.
    """

    keys: Sequence[Any]
    values: Sequence[Any]
    blocks_by: str = "by_library"


Layers = Sequence[Union[str, KVLayer]]


def renamed(old: str, new: str, depth: int) -> None:
    """Warns of a name of 0.1, which 0.3 will not have. depth: frames from here to the user's."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=depth)


def current_names(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the names of 0.1 replaced."""
    options = dict(options)
    old = options.pop("choose", None)
    if old is not None:
        if options.get("select") is not None:
            raise TypeError("choose is the old name of select: give one of them")
        renamed("the option choose", "select", 5)
        options["select"] = old
    if options.get("group") == "restructured":
        renamed('group "restructured"', '"reordered"', 5)
        options["group"] = "reordered"
    return options


def c_config(options: dict[str, Any], row: RowFormat, query: RowFormat) -> _kv_structs.KVConfig:
    """The config of options as KVCache has them, but for layers and layout."""
    config = prepared(_kv_structs.KVConfig)
    config.dtype, config.query_dtype = row.code, query.code
    given = {name: value for name, value in options.items() if value is not None}
    if "preset" in given:
        config.preset = preset_of(given["preset"])
    if given.get("published"):
        _publish(config, given)
    for name, names in CHOICES.items():
        if name in given:
            setattr(config, name, chosen(names, given[name], name))
    for fields, most in ((SIZES, 2**63 - 1), (NUMBERS, 2**31 - 1)):
        for name in fields:
            if name in given:
                setattr(config, name, as_count(given[name], name, most))
    for name in FLAGS:
        if name in given:
            setattr(config, name, 1 if given[name] else 0)
    for name in REALS:
        if name in given:
            setattr(config, name, as_number(given[name], name))
    if "seed" in given:
        config.seed = as_count(given["seed"], "seed", 2**64 - 1)
    return config


def _publish(config: _kv_structs.KVConfig, given: dict[str, Any]) -> None:
    """Sizes and accounting of the preset's paper, which may depend on the heads."""
    for name in ("n_query_heads", "n_kv_heads"):
        if name in given:
            setattr(config, name, as_count(given[name], name, 2**63 - 1))
    budget = as_count(given.get("budget", config.budget), "budget", 2**63 - 1)
    check(lib.dci_kv_config_published(ctypes.byref(config), config.preset, budget))


def preset_of(preset: Any) -> int:
    """A preset by its name or number."""
    if isinstance(preset, (int, np.integer)):
        return as_count(preset, "preset", 2**31 - 1)
    return chosen(_kv_structs.KV_PRESETS, preset, "preset")


def set_layers(config: _kv_structs.KVConfig, layers: Layers) -> object:
    """Puts layers into a config. Returns what must stay alive while it is used."""
    if len(layers) != config.n_layers:
        raise InvalidError(f"layers has {len(layers)} entries, wanted n_layers = {config.n_layers}")
    structs = (_kv_structs.LayerConfig * max(len(layers), 1))()
    for number, given in enumerate(layers):
        one = KVLayer(given) if isinstance(given, str) else given
        struct = prepared(_kv_structs.LayerConfig)
        struct.mode = chosen(_kv_structs.KV_LAYERS, one.mode, f"the mode of layer {number}")
        struct.sliding_window = as_count(one.sliding_window, "sliding_window")
        struct.logit_cap = one.logit_cap
        struct.learned_sinks = as_count(one.learned_sinks, "learned_sinks")
        structs[number] = struct
    config.layers, config.layer_stride = ctypes.addressof(structs), ctypes.sizeof(_kv_structs.LayerConfig)
    return structs


def set_layout(config: _kv_structs.KVConfig, layout: KVLayout, row: RowFormat) -> object:
    """Puts the caller's memory into a config. Returns what must stay alive as long as the KV cache."""
    out = prepared(_kv_structs.KVLayout)
    keys, out.n_blocks, key_strides = _layers_of(config, layout.keys, config.dim_k, row, "keys")
    values, n_blocks, value_strides = _layers_of(config, layout.values, config.dim_v or config.dim_k, row, "values")
    if n_blocks != out.n_blocks:
        raise InvalidError(f"the layout's keys have {out.n_blocks} blocks, its values {n_blocks}")
    out.key_page_stride, out.key_slot_stride, out.key_head_stride = key_strides
    out.value_page_stride, out.value_slot_stride, out.value_head_stride = value_strides
    out.blocks_by = chosen(_kv_structs.KV_BLOCKS, layout.blocks_by, "blocks_by")
    bases = [(c_void_p * len(arrays))(*map(address, arrays)) for arrays in (keys, values)]
    out.keys, out.values = map(ctypes.addressof, bases)
    config.layout = ctypes.addressof(out)
    return out, bases, keys, values


def _layers_of(
    config: _kv_structs.KVConfig, arrays: Sequence[Any], dim: int, row: RowFormat, what: str
) -> tuple[list[npt.NDArray[Any]], int, list[int]]:
    """The arrays of all layers, how many blocks they have, and their strides by block, slot and head in elements."""
    if len(arrays) != config.n_layers:
        raise InvalidError(f"the layout's {what} are {len(arrays)} arrays, wanted n_layers = {config.n_layers}")
    out = [_layer_of(array, (config.page_tokens, config.n_kv_heads, dim), row, what) for array in arrays]
    if not out:
        return out, 0, [0, 0, 0]
    first = out[0]
    config.page_tokens = first.shape[1]
    for number, array in enumerate(out):
        if array.shape != first.shape or array.strides != first.strides:
            raise InvalidError(f"the layout's {what} of layer {number} have not the shape and strides of those of layer 0")
    return out, first.shape[0], [step // first.itemsize for step in first.strides[:3]]


def _layer_of(given: Any, tail: tuple[int, int, int], row: RowFormat, what: str) -> npt.NDArray[Any]:
    array, name = in_host_memory(given, f"the layout's {what}")
    if array.dtype != row.dtype:
        raise TypeError(f"the layout's {what} are {name}, the KV cache has {row.name}: choose its dtype by the layout's")
    wanted = ("n_blocks", *(size if size else "page_tokens" for size in tail))
    if array.ndim != 4 or array.shape[2:] != tail[1:] or tail[0] not in (0, array.shape[1]):
        raise InvalidError(f"the layout's {what} have shape {array.shape}, wanted ({', '.join(map(str, wanted))})")
    side_by_side = array.strides[3] == array.itemsize or array.shape[3] == 1
    whole = all(step >= 0 and step % array.itemsize == 0 for step in array.strides[:3])
    if not (side_by_side and whole and array.flags.aligned and array.flags.writeable):
        raise InvalidError(f"the layout's {what} must be writeable, with the elements of a row side by side")
    return array
