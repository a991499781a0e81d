# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Figures of a KV cache and of its sequences."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _kv_structs
from ._kv_config import CHOICES, renamed


class KVInfo(NamedTuple):
    """What a KV cache came out as, and what it holds."""

    n_sequences: int
    n_resident: int  #: of these, attended to in full, see resident_bytes of KVCache
    page_tokens: int  #: this and the next four as they came out
    sink: int
    window: int
    rollback: int
    stride: int  #: of a plan's lists: the most tokens that one can hold
    group: str  #: the five choices, and how query heads agree, as they came out
    summary: str
    select: str
    schedule: str
    tail: str
    combine: str
    n_blocks: int
    n_free_blocks: int
    bytes: int  #: of memory in all, without a layout of the caller's
    row_bytes: int  #: keys and values
    summary_bytes: int  #: summaries, codes and what tails need, shared ones once
    token_bytes: int  #: of keys and values, of one token in all layers
    resident_token_bytes: float  #: what summaries and tails keep per token and kv head
    budget_counts: str  #: what the budget counts, as it came out
    observed_keep: bool  #: select "observed": tokens after the prompt are kept
    copy_bytes: int  #: contiguous copies of keys and values, with the numbers of their tokens
    n_lists: int  #: lists of a plan, per sequence: n_kv_heads, or n_query_heads with query_head_lists

    @property
    def choose(self) -> str:
        """The name of select in 0.1."""
        renamed("choose", "select", 3)
        return self.select


class KVSequenceInfo(NamedTuple):
    """What a sequence of a KV cache holds, and how its plans went."""

    n_tokens: int  #: of whole steps
    n_reserved: int  #: more tokens, of the step that is open
    n_grouped: int  #: tokens that groups cover, in the least advanced sparse layer, after the sink
    n_blocks: int
    n_shared_blocks: int
    resident: bool  #: attended to in full
    refits: int  #: times that a head was encoded again
    #: Greatest over layers and heads: distortion of the last tokens' codes over that of the prompt's; NaN: none.
    drift: float
    n_plans: int  #: lists in plans that left tokens out, of layers and kv heads, since open, fork or load
    n_decisions: int  #: of these, those chosen by the queries of their own plan
    n_corrections: int  #: schedule "ahead": of these, because queries had turned
    n_batches: int  #: of clusters and segments, in that layer: the prompt's, and those of later tokens
    n_early: int  #: of these, later ones that the budget had no room to wait for
    tree_pages: int  #: group "tree", over layers and heads: pages
    tree_stale_pages: int  #: those that the last change of their tree wrote


_NAMES = {name: {code: text for text, code in names.items()} for name, names in CHOICES.items()}


def info_of(struct: _kv_structs.KVInfo) -> KVInfo:
    """The figures of a struct, with names for choices."""
    fields: dict[str, Any] = {name: getattr(struct, name) for name in KVInfo._fields}
    for name in KVInfo._fields:
        if name in _NAMES:
            fields[name] = _NAMES[name].get(fields[name], str(fields[name]))
    fields["observed_keep"] = bool(fields["observed_keep"])
    return KVInfo(**fields)


def sequence_info_of(struct: _kv_structs.KVSequenceInfo) -> KVSequenceInfo:
    """The figures of a struct."""
    fields: dict[str, Any] = {name: getattr(struct, name) for name in KVSequenceInfo._fields}
    fields["resident"] = bool(fields["resident"])
    return KVSequenceInfo(**fields)
