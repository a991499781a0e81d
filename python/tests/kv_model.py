# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A model of the KV cache in float64: attention, and the choice of tokens by exact keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import in_float64, stored

import dci

N_LAYERS, N_QUERY_HEADS, N_KV_HEADS, DIM = 2, 6, 2, 32
GROUP = N_QUERY_HEADS // N_KV_HEADS
SHAPE = (N_LAYERS, N_QUERY_HEADS, N_KV_HEADS, DIM)


def kv_of(preset: str = "sketch", **options: Any) -> dci.KVCache:
    """A KV cache of the small shape, float32, without dense layers."""
    return dci.KVCache(*SHAPE, preset=preset, **{"dtype": "float32", "dense_layers": 0, **options})


class Text:
    """Keys, values (n_layers, n, n_kv_heads, dim) and queries (n_layers, n, n_query_heads, dim) of n tokens. Keys lie near
    a few directions that queries look in, so attention is on few of them, as in a model."""

    def __init__(self, n: int, seed: int = 0, dtype: str = "float32", dim: int = DIM) -> None:
        random = np.random.default_rng(seed)
        centres = random.standard_normal((N_KV_HEADS, 24, dim)).astype(np.float32)
        at = random.integers(24, size=(N_LAYERS, n))
        near = centres[:, at].transpose(1, 2, 0, 3)
        self.keys = stored(near + 0.5 * random.standard_normal(near.shape), dtype)
        self.values = stored(random.standard_normal(near.shape), dtype)
        asked = np.repeat(centres[:, random.integers(24, size=(N_LAYERS, n))].transpose(1, 2, 0, 3), GROUP, 2)
        self.queries = (asked + 0.7 * random.standard_normal(asked.shape)).astype(np.float32)
        self.n = n


def read_in(kv: dci.KVCache, sequence: int, text: Text, first: int = 0, n: int | None = None, ends: bool = True) -> None:
    """Tokens [first, first + n) of a text in one step, with the prompt's end."""
    end = text.n if n is None else first + n
    with kv.step(sequence, end - first):
        for layer in range(len(text.keys)):
            kv.append(layer, sequence, text.keys[layer, first:end], text.values[layer, first:end])
            if ends:
                kv.end_prompt(layer, sequence, text.queries[layer, max(first, end - 64) : end])


def started(text: Text, preset: str = "sketch", **options: Any) -> tuple[dci.KVCache, int]:
    """A KV cache with one sequence, whose prompt is a text."""
    kv = kv_of(preset, **options)
    sequence = kv.open()
    read_in(kv, sequence, text)
    return kv, sequence


def decode(kv: dci.KVCache, sequence: int, text: Text, first: int, n: int) -> Any:
    """Tokens [first, first + n) one by one. Returns the outputs, (n, n_layers, n_query_heads, dim)."""
    out = np.empty((n, *text.queries.shape[:1], *text.queries.shape[2:]), np.float32)
    for i in range(n):
        with kv.step(sequence):
            for layer in range(len(text.keys)):
                kv.append(layer, sequence, text.keys[layer, first + i], text.values[layer, first + i])
                queries = text.queries[layer, first + i]
                kv.attend(layer, sequence, queries, kv.plan(layer, sequence, queries), out=out[i, layer])
        kv.maintain()
    return out


def scores_of(queries: Any, keys: Any) -> Any:
    """(n_query_heads, n): scaled inner products of one token's queries."""
    wide = np.repeat(in_float64(keys), queries.shape[0] // keys.shape[1], 1)
    return np.einsum("hd,nhd->hn", in_float64(queries), wide) / np.sqrt(keys.shape[2])


def shares(scores: Any) -> Any:
    """Softmax over the last axis."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def attention(queries: Any, keys: Any, values: Any) -> Any:
    """(n_query_heads, dim): of queries (n_query_heads, dim) over all of keys and values (n, n_kv_heads, dim)."""
    wide = np.repeat(in_float64(values), queries.shape[0] // keys.shape[1], 1)
    return np.einsum("hn,nhd->hd", shares(scores_of(queries, keys)), wide)


def attention_over(queries: Any, keys: Any, values: Any, positions: Any) -> Any:
    """The same over the positions of each kv head."""
    group = queries.shape[0] // keys.shape[1]
    parts = []
    for head, at in enumerate(positions):
        one = slice(head, head + 1)
        parts.append(attention(queries[head * group : (head + 1) * group], keys[at, one], values[at, one]))
    return np.concatenate(parts)


def lse_over(queries: Any, keys: Any, positions: Any) -> Any:
    """(n_query_heads,): log of the sum of exponentials over the positions of each kv head."""
    group = queries.shape[0] // keys.shape[1]
    scores = scores_of(queries, keys)
    every = [np.logaddexp.reduce(scores[h, positions[h // group]]) for h in range(queries.shape[0])]
    return np.array(every)


def best_tokens(queries: Any, keys: Any, first: int, end: int, room: int) -> list[Any]:
    """For each kv head the `room` tokens of [first, end) that have the most of the attention of its query heads together."""
    group = queries.shape[0] // keys.shape[1]
    weight = shares(scores_of(queries, keys)).reshape(keys.shape[1], group, -1).sum(1)[:, first:end]
    return [np.sort(first + np.argsort(-one, kind="stable")[:room]) for one in weight]
