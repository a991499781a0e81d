# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The structs and constants of include/dci/kv.h; tests/test_abi.py compares them with what a C compiler says."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_double, c_int32, c_size_t, c_uint64, c_void_p

KV_PRESETS = {
    "full": 1,
    "topk": 2,
    "streaming": 3,
    "snapkv": 4,
    "pagemean": 5,
    "quest": 6,
    "arkvale": 7,
    "lowbit": 8,
    "sketch": 9,
    "sketch+sums": 10,
    "sketch+lowbit": 11,
    "icecache": 12,
    "clusterkv": 13,
    "prkv": 14,
    "louiskv": 15,
    "retroinfer": 16,
    "freekv": 17,
    "sketch+groups": 18,
    "sketch+verify": 19,
    "pariskv": 20,
}
KV_GROUPS = {"token": 1, "page": 2, "tree": 3, "cluster": 4, "segment": 5, "reordered": 6}
KV_SUMMARIES = {
    **{"none": 1, "keys": 2, "mean": 3, "minmax": 4, "cuboid": 5, "codes": 6, "learned": 7, "tree": 8},
    "mean_std": 9,
    "votes": 10,
}
KV_CHOICES = {"none": 1, "all": 2, "scan": 3, "observed": 4, "recent": 5, "tree": 6, "static": 7}
KV_SCHEDULES = {"every_step": 1, "once": 2, "periodic": 3, "boundary": 4, "anchor": 5, "ahead": 6}
KV_TAILS = {"drop": 1, "sums": 2, "lowbit": 3}
KV_COMBINES = {"softmax": 1, "mean": 2, "each": 3}
KV_CLUSTERS = {"raw": 1, "centred": 2}
KV_COUNTS = {"all": 1, "sink_and_window": 2, "sink": 3, "selected": 4}
KV_TREE_KEYS = {"exact": 1, "codes": 2, "means": 3}
KV_LAYERS = {"sparse": 1, "dense": 2, "sliding": 3}
KV_BLOCKS = {"by_library": 1, "by_caller": 2}

KV_TAKEN_FN = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
KV_GIVEN_BACK_FN = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)


class LayerConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("mode", c_int32),
        ("reserved", c_int32),
        ("sliding_window", c_size_t),
        ("logit_cap", c_double),
        ("learned_sinks", c_size_t),
    ]


class KVLayout(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("n_blocks", c_size_t),
        ("key_page_stride", c_size_t),
        ("key_head_stride", c_size_t),
        ("key_slot_stride", c_size_t),
        ("value_page_stride", c_size_t),
        ("value_head_stride", c_size_t),
        ("value_slot_stride", c_size_t),
        ("blocks_by", c_int32),
        ("reserved", c_int32),
    ]


class KVHook(ctypes.Structure):
    _fields_ = [
        ("ctx", c_void_p),
        ("taken", KV_TAKEN_FN),
        ("given_back", KV_GIVEN_BACK_FN),
    ]


class KVConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_layers", c_size_t),
        ("n_query_heads", c_size_t),
        ("n_kv_heads", c_size_t),
        ("dim_k", c_size_t),
        ("dim_v", c_size_t),
        ("dtype", c_int32),
        ("query_dtype", c_int32),
        ("scale", c_double),
        ("page_tokens", c_size_t),
        ("preset", c_int32),
        ("group", c_int32),
        ("summary", c_int32),
        ("select", c_int32),
        ("schedule", c_int32),
        ("tail", c_int32),
        ("combine", c_int32),
        ("key_bits", c_int32),
        ("value_bits", c_int32),
        ("frozen_prompt", c_int32),
        ("foreground", c_int32),
        ("budget", c_size_t),
        ("sink", c_size_t),
        ("window", c_size_t),
        ("rollback", c_size_t),
        ("dense_layers", c_size_t),
        ("layers", c_void_p),
        ("layer_stride", c_size_t),
        ("layout", c_void_p),
        ("hook", KVHook),
        ("max_bytes", c_size_t),
        ("resident_bytes", c_size_t),
        ("refit", c_double),
        ("seed", c_uint64),
        ("cluster_tokens", c_size_t),
        ("cluster_every", c_size_t),
        ("cluster_segment", c_size_t),
        ("cluster_rounds", c_size_t),
        ("cluster_most", c_size_t),
        ("cluster_by", c_int32),
        ("reserved", c_int32),
        ("estimate_share", c_double),
        ("tau", c_double),
        ("period", c_size_t),
        ("anchor_first", c_size_t),
        ("anchor_period", c_size_t),
        ("ring", c_size_t),
        ("tree_promotion", c_double),
        ("tree_field_of_view", c_size_t),
        ("tree_tokens", c_int32),
        ("segment_buffer", c_size_t),
        ("verify", c_double),
        ("static_share", c_double),
        ("preselect", c_double),
        ("preselect_tokens", c_size_t),
        ("preselect_least", c_size_t),
        ("sums_whole", c_int32),
        ("reserved_more", c_int32),
        ("piece_bytes", c_size_t),
        ("budget_counts", c_int32),
        ("observed_keep", c_int32),
        ("budget_share", c_double),
        ("observed_pool", c_size_t),
        ("segment_least", c_size_t),
        ("tree_promotion_subseq", c_double),
        ("tree_simple_indices", c_size_t),
        ("tree_retrieve", c_double),
        ("deviation_weight", c_double),
        ("contiguous", c_int32),
        ("tree_keys", c_int32),
        ("reorder_delay", c_size_t),
        ("query_head_lists", c_int32),
        ("reserved_end", c_int32),
        ("vote_share", c_double),
        ("candidate_share", c_double),
    ]


class KVRows(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_token_stride", c_size_t),
        ("key_head_stride", c_size_t),
        ("value_token_stride", c_size_t),
        ("value_head_stride", c_size_t),
    ]


class KVPlan(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("max_sequences", c_size_t),
        ("n_lists", c_size_t),
        ("stride", c_size_t),
        ("slots", c_void_p),
        ("positions", c_void_p),
        ("counts", c_void_p),
        ("sink_end", c_void_p),
        ("recent_begin", c_void_p),
        ("n_tokens", c_void_p),
        ("tail_out", c_void_p),
        ("tail_lse", c_void_p),
    ]


class KVSequenceInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_tokens", c_size_t),
        ("n_reserved", c_size_t),
        ("n_grouped", c_size_t),
        ("n_blocks", c_size_t),
        ("n_shared_blocks", c_size_t),
        ("resident", c_int32),
        ("refits", c_int32),
        ("drift", c_double),
        ("n_plans", c_uint64),
        ("n_decisions", c_uint64),
        ("n_corrections", c_uint64),
        ("n_batches", c_size_t),
        ("n_early", c_size_t),
        ("tree_pages", c_size_t),
        ("tree_stale_pages", c_size_t),
    ]


class KVInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_sequences", c_size_t),
        ("n_resident", c_size_t),
        ("page_tokens", c_size_t),
        ("sink", c_size_t),
        ("window", c_size_t),
        ("rollback", c_size_t),
        ("stride", c_size_t),
        ("group", c_int32),
        ("summary", c_int32),
        ("select", c_int32),
        ("schedule", c_int32),
        ("tail", c_int32),
        ("combine", c_int32),
        ("n_blocks", c_size_t),
        ("n_free_blocks", c_size_t),
        ("bytes", c_size_t),
        ("row_bytes", c_size_t),
        ("summary_bytes", c_size_t),
        ("token_bytes", c_size_t),
        ("resident_token_bytes", c_double),
        ("budget_counts", c_int32),
        ("observed_keep", c_int32),
        ("copy_bytes", c_size_t),
        ("n_lists", c_size_t),
    ]


# As in _structs.py; the hook is a part of the config.
C_NAMES: dict[type[ctypes.Structure], str] = {
    LayerConfig: "dci_layer_config",
    KVLayout: "dci_kv_layout",
    KVHook: "dci_kv_hook",
    KVConfig: "dci_kv_config",
    KVRows: "dci_kv_rows",
    KVPlan: "dci_kv_plan",
    KVSequenceInfo: "dci_kv_sequence_info",
    KVInfo: "dci_kv_info",
}
