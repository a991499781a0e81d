# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What a KV cache attends to, held against NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import DTYPES, TRACE, run_all, stored
from kv_model import (
    N_KV_HEADS,
    N_LAYERS,
    N_QUERY_HEADS,
    Text,
    attention,
    attention_over,
    best_tokens,
    decode,
    kv_of,
    lse_over,
    read_in,
    scores_of,
    shares,
    started,
)

import dci


def attended(plan, i=0):
    return [plan.attended(i, head) for head in range(plan.counts.shape[1])]


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_without_a_plan_is_softmax_attention(dtype):
    texts = [Text(n, n, dtype) for n in (300, 1, 77)]
    kv = kv_of("full", dtype=dtype)
    names = [kv.open() for _ in texts]
    for name, text in zip(names, texts):
        read_in(kv, name, text)
    for layer in range(N_LAYERS):
        queries = np.stack([text.queries[layer, -1] for text in texts])
        wanted = np.stack([attention(text.queries[layer, -1], text.keys[layer], text.values[layer]) for text in texts])
        np.testing.assert_allclose(kv.attend(layer, names, queries), wanted, atol=2e-5)
        plan = kv.plan(layer, names, queries)
        np.testing.assert_allclose(kv.attend(layer, names, queries, plan), wanted, atol=2e-5)


@pytest.mark.parametrize("preset", dci.KVCache.PRESETS)
def test_a_budget_of_all_tokens_is_full_attention(preset):
    text = Text(400)
    kv, name = started(text, preset, budget=512)
    queries = text.queries[1, -1]
    plan = kv.plan(1, name, queries)
    assert plan.recent_begin[0] == 0 and not plan.counts.any()
    wanted = attention(queries, text.keys[1], text.values[1])
    np.testing.assert_allclose(kv.attend(1, name, queries, plan), wanted, atol=1e-5)


def test_topk_lists_the_tokens_with_the_most_attention():
    text = Text(1500)
    kv, name = started(text, "topk", budget=200)
    info = kv.info()
    end = text.n - info.window
    for layer in range(N_LAYERS):
        for t in (-1, -5, -9):
            queries = text.queries[layer, t]
            plan = kv.plan(layer, name, queries)
            wanted = best_tokens(queries, text.keys[layer], info.sink, end, 200 - info.sink - info.window)
            assert (plan.sink_end[0], plan.recent_begin[0], plan.n_tokens[0]) == (info.sink, end, text.n)
            for head, tokens in enumerate(wanted):
                np.testing.assert_array_equal(plan.positions[0, head, : plan.counts[0, head]], tokens)


def test_streaming_attends_to_the_first_and_the_latest_tokens():
    text = Text(900)
    kv, name = started(text, "streaming", budget=128)
    plan = kv.plan(0, name, text.queries[0, -1])
    for at in attended(plan):
        np.testing.assert_array_equal(at, [*range(4), *range(900 - 124, 900)])


@pytest.mark.parametrize("preset", [name for name in dci.KVCache.PRESETS if name not in ("full", "lowbit")])
def test_attention_over_a_plan_is_that_over_its_tokens_and_its_tail(preset):
    text = Text(1200)
    kv, name = started(text, preset, budget=192)
    queries = text.queries[1, -1]
    plan = kv.plan(1, name, queries)
    at = attended(plan)
    assert all(len(one) <= 192 and (np.diff(one) > 0).all() for one in at)
    exact = attention_over(queries, text.keys[1], text.values[1], at)
    lse = lse_over(queries, text.keys[1], at)
    if plan.tail_out is not None:
        tail_lse = plan.tail_lse[0].astype(np.float64)
        whole = np.logaddexp(lse, tail_lse)
        exact = np.exp(lse - whole)[:, None] * exact + np.exp(tail_lse - whole)[:, None] * plan.tail_out[0]
        lse = whole
    else:
        assert plan.tail_lse is None and kv.info().tail == "drop"
    got_lse = np.empty(N_QUERY_HEADS, np.float32)
    np.testing.assert_allclose(kv.attend(1, name, queries, plan, lse=got_lse), exact, atol=1e-4)
    np.testing.assert_allclose(got_lse, lse, atol=1e-4)


def test_the_tail_of_codes_comes_nearer_to_full_attention_than_dropping_it():
    text = Text(1500)
    off = {}
    for preset in ("sketch", "sketch+lowbit"):
        kv, name = started(text, preset, budget=160)
        queries = text.queries[:, -1]
        off[preset] = 0.0
        for layer in range(N_LAYERS):
            wanted = attention(queries[layer], text.keys[layer], text.values[layer])
            got = kv.attend(layer, name, queries[layer], kv.plan(layer, name, queries[layer]))
            off[preset] += np.linalg.norm(got - wanted)
    assert off["sketch+lowbit"] < off["sketch"]


def test_slots_are_where_the_rows_lie():
    text = Text(1000)
    kv, name = started(text, budget=160)
    plan = kv.plan(0, name, text.queries[0, -1])
    blocks, size = kv.table(name), kv.info().page_tokens
    assert plan.counts.min() > 0
    for head in range(N_KV_HEADS):
        n = plan.counts[0, head]
        at = plan.positions[0, head, :n]
        np.testing.assert_array_equal(plan.slots[0, head, :n], (blocks[at // size] * N_KV_HEADS + head) * size + at % size)


def test_several_sequences_in_one_call_are_those_of_calls_for_each():
    texts = [Text(n, n) for n in (700, 900, 30)]
    kv = kv_of(budget=192)
    names = [kv.open() for _ in texts]
    for name, text in zip(names, texts):
        read_in(kv, name, text, n=text.n - 3)
    more = [Text(3, 50 + name) for name in names]
    counts = [1, 3, 2]
    with kv.step(names, counts):
        for layer in range(N_LAYERS):
            rows = [[getattr(text, what)[layer, :n] for text, n in zip(more, counts)] for what in ("keys", "values")]
            kv.append(layer, names, *map(np.concatenate, rows), n_tokens=counts)
    queries = np.stack([text.queries[0, -1] for text in texts])
    plan = kv.plan(0, names, queries, out=kv.new_plan(5))
    assert plan.n_sequences == 3 and plan.room == 5 and plan.slots.shape[0] == 3
    every = kv.attend(0, np.array(names), queries, plan)
    for i, (name, text) in enumerate(zip(names, texts)):
        assert plan.n_tokens[i] == text.n - 3 + counts[i]
        alone = kv.plan(0, name, queries[i])
        for got, want in zip(attended(plan, i), attended(alone)):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(kv.attend(0, name, queries[i], alone), every[i])


def test_a_decode_keeps_to_the_budget_and_near_full_attention():
    text = Text(1100)
    kv = kv_of("topk", budget=256)
    name = kv.open()
    read_in(kv, name, text, n=1000)
    got = decode(kv, name, text, 1000, 100)
    info = kv.info()
    for i in range(0, 100, 33):
        queries, keys, values = text.queries[0, 1000 + i], text.keys[0, : 1001 + i], text.values[0, : 1001 + i]
        end = 1001 + i - info.window
        best = best_tokens(queries, keys, info.sink, end, 256 - info.sink - info.window)
        at = [[*range(info.sink), *one, *range(end, 1001 + i)] for one in best]
        np.testing.assert_allclose(got[i, 0], attention_over(queries, keys, values, at), atol=1e-4)
    found = kv.sequence_info(name)
    assert found.n_tokens == 1100 and found.n_plans == found.n_decisions == 100 * N_LAYERS * N_KV_HEADS


@pytest.mark.parametrize("preset", ["sketch", "pagemean", "icecache", "clusterkv", "louiskv", "prkv"])
def test_maintain_groups_what_left_the_window(preset):
    text = Text(1000)
    kv = kv_of(preset, budget=512, rollback=64)
    name = kv.open()
    read_in(kv, name, text, n=600)
    before = kv.sequence_info(name).n_grouped
    decode(kv, name, text, 600, 400)
    after = kv.sequence_info(name)
    assert 0 < before < after.n_grouped <= 1000 - 64 and not after.resident
    assert after.n_tokens == 1000


def test_resident_sequences_are_attended_to_in_full_while_they_fit():
    text = Text(600)
    kv, name = started(text, budget=160, resident_bytes=2**30)
    assert kv.sequence_info(name).resident and kv.info().n_resident == 1
    queries = text.queries[0, -1]
    wanted = attention(queries, text.keys[0], text.values[0])
    np.testing.assert_allclose(kv.attend(0, name, queries, kv.plan(0, name, queries)), wanted, atol=1e-5)


def test_dense_layers_attend_to_everything():
    text = Text(600)
    for options in ({"dense_layers": 1}, {"layers": ["dense", dci.KVLayer()]}):
        kv, name = started(text, budget=160, **options)
        begins = [kv.plan(layer, name, text.queries[layer, -1]).recent_begin[0] for layer in range(N_LAYERS)]
        assert begins[0] == 0 and begins[1] > 0


def test_levels_and_p_dci_of_a_tree_change_what_is_kept_of_it():
    text = Text(600)
    made = [{}, {"tree_promotion_subseq": 0.5}, {"tree_simple_indices": 2, "tree_retrieve": 0.5}]
    sizes = []
    for options in made:
        kv, name = started(text, preset="icecache", budget=160, tree_promotion=0.25, **options)
        assert kv.plan(0, name, text.queries[0, -1]).counts[0, 0] > 0
        sizes.append(kv.info().summary_bytes)
    assert sizes[0] < min(sizes[1:])


def test_choices_replace_the_presets():
    with kv_of("sketch", group="page", summary="cuboid", combine="mean", page_tokens=32, budget=300, sink=8) as kv:
        info = kv.info()
        assert (info.group, info.summary, info.select, info.combine) == ("page", "cuboid", "scan", "mean")
        assert (info.page_tokens, info.sink, info.stride >= 300) == (32, 8, True)
    with kv_of(9) as kv, kv_of("sketch") as same:
        assert kv.info() == same.info()


@pytest.mark.parametrize(
    ("counts", "listed"), [("all", 96), ("sink_and_window", 96), ("sink", 112), ("selected", 128)]
)
def test_a_budget_counts_what_it_is_told_to(counts, listed):
    text = Text(600)
    kv, name = started(text, "topk", budget=128, budget_counts=counts, sink=16, window=16)
    plan = kv.plan(1, name, text.queries[1, -1])
    assert kv.info().budget_counts == counts
    assert plan.counts.tolist() == [[listed] * N_KV_HEADS]


def test_each_query_head_may_have_a_list_of_its_own():
    text, room = Text(600), 96
    kv, name = started(text, "topk", budget=128, query_head_lists=True, sink=16, window=16)
    query = text.queries[1, -1]
    plan = kv.plan(1, name, query)
    assert kv.info().n_lists == N_QUERY_HEADS
    assert plan.positions.shape == (1, N_QUERY_HEADS, plan.slots.shape[2])
    assert plan.counts.tolist() == [[room] * N_QUERY_HEADS]
    group = N_QUERY_HEADS // N_KV_HEADS
    keys = text.keys[1, :, :].astype(np.float64)
    for head in range(N_QUERY_HEADS):
        scores = keys[16 : 600 - 16, head // group] @ query[head].astype(np.float64)
        best = np.sort(np.argsort(-scores)[:room]) + 16
        assert len(np.intersect1d(best, plan.positions[0, head, :room])) >= room - 1  # the last may be rounded otherwise
    for head in range(N_KV_HEADS):
        lists = plan.positions[0, head * group : (head + 1) * group, :room]
        assert plan.attended(0, head).tolist() == [*range(16), *np.unique(lists), *range(584, 600)]
    with pytest.raises(dci.InvalidError, match="select OBSERVED"):
        kv_of("snapkv", query_head_lists=True)


def test_a_budget_may_be_a_share_of_the_tokens():
    text = Text(600)
    kv, name = started(text, "topk", budget=512, budget_share=0.25, sink=16, window=16)
    assert kv.plan(1, name, text.queries[1, -1]).counts.tolist() == [[600 // 4 // 16 * 16 - 32] * N_KV_HEADS]


def test_published_sizes_are_those_of_the_paper_but_for_what_is_given():
    with kv_of("prkv", budget=256, published=True) as kv:
        info = kv.info()
        assert (info.page_tokens, info.sink, info.window, info.rollback) == (32, 0, 64, 64)
        assert info.budget_counts == "selected"
    with kv_of("icecache", budget=64, published=True) as kv:
        assert (kv.info().page_tokens, kv.info().sink) == (8, 16)
    with kv_of("clusterkv", budget=256, published=True, sink=8, budget_counts="all", rollback=32, window=32) as kv:
        info = kv.info()
        assert (info.sink, info.rollback, info.budget_counts, info.combine) == (8, 32, "all", "each")
        assert info.n_lists == N_QUERY_HEADS
    with kv_of("clusterkv", budget=256, published=True, query_head_lists=False) as kv:
        assert kv.info().n_lists == N_KV_HEADS
    with kv_of("snapkv", budget=256, observed_keep=False, observed_pool=1) as kv:
        assert not kv.info().observed_keep
    with pytest.raises(dci.InvalidError, match=r"expected 112 .* lower sink, rollback, window or page_tokens"):
        kv_of("icecache", budget=64, rollback=64)


# A little less than what each kept when this was written: the share of the attention on all tokens that is on those attended
# to, over the share on those that NumPy chooses by exact keys. "lowbit" leaves the rest to its tail.
KEPT = {
    **{"full": 1.0, "topk": 0.9999, "streaming": 0.38, "snapkv": 0.93, "pagemean": 0.44, "quest": 0.71, "arkvale": 0.56},
    **{"lowbit": 0.10, "sketch": 0.995, "sketch+sums": 0.995, "sketch+lowbit": 0.995, "icecache": 0.96, "clusterkv": 0.97},
    **{"prkv": 0.96, "louiskv": 0.97, "retroinfer": 0.97, "freekv": 0.54},
    **{"sketch+groups": 0.99, "sketch+verify": 0.995, "pariskv": 0.9},
}


@pytest.fixture(scope="module")
def trace():
    """Keys and values (n, 1, 64), queries (n_positions, 3, 64) float32, and the first query's position."""
    meta = json.loads((TRACE / "meta.json").read_text())
    keys, values = (np.load(TRACE / f"{name}.npy")[:, None] for name in ("keys", "values"))
    return keys, values, np.load(TRACE / "queries.npy").transpose(1, 0, 2).astype(np.float32), meta


@pytest.mark.parametrize("preset", dci.KVCache.PRESETS)
def test_every_preset_keeps_its_share_of_a_real_models_attention(trace, preset):
    keys, values, queries, meta = trace
    n, first = meta["prompt"], meta["prompt"] - meta["first_query"]
    kv = dci.KVCache(1, 3, 1, 64, preset=preset, budget=512, dense_layers=0, dtype="float16")
    name = kv.open()
    with kv.step(name, n):
        kv.append(0, name, keys[:n], values[:n])
        kv.end_prompt(0, name, queries[:first])
    kept = best = 0.0
    for t in range(64):
        with kv.step(name):
            kv.append(0, name, keys[n + t], values[n + t])
            plan = kv.plan(0, name, queries[first + t])
        kv.maintain()
        now = n + t + 1
        weights = shares(scores_of(queries[first + t], keys[:now])).sum(0)
        (chosen,) = best_tokens(queries[first + t], keys[:now], 16, now - 64, 512 - 16 - 64)
        kept += weights[plan.attended(0, 0)].sum()
        best += weights[[*range(16), *chosen, *range(now - 64, now)]].sum()
    assert kept >= KEPT[preset] * best


def test_two_threads_on_two_caches_and_two_on_one():
    text = Text(800)
    queries = text.queries[0, -1]

    def alone():
        kv, name = started(text, budget=160)
        return kv.attend(0, name, queries, kv.plan(0, name, queries))

    wanted = alone()
    shared, results = kv_of(budget=160), []

    def beside():
        name = shared.open()
        read_in(shared, name, text)
        results.append(shared.attend(0, name, queries, shared.plan(0, name, queries)))

    run_all([lambda: results.append(alone())] * 2 + [beside] * 2)
    assert len(results) == 4
    for got in results:
        np.testing.assert_array_equal(got, wanted)


def test_stored_rows_are_what_was_appended():
    text = Text(100, dtype="bfloat16")
    kv, name = started(text, dtype="bfloat16")
    keys, values = kv.read(1, name, 1, first=10)
    np.testing.assert_array_equal(keys, text.keys[1, 10:, 1])
    np.testing.assert_array_equal(values, text.values[1, 10:, 1])
    assert stored(np.ones(1), "bfloat16").dtype == keys.dtype


def test_names_of_0_1_warn_and_still_work():
    """prompt, lend, choose and "restructured" are the old names of end_prompt, assign_blocks, select and "reordered"."""
    with pytest.warns(DeprecationWarning, match="the option choose is now select"):
        old = dci.KVCache(1, 2, 1, 32, preset="sketch", choose="scan")
    with pytest.warns(DeprecationWarning, match='group "restructured" is now "reordered"'):
        assert dci.KVCache(1, 2, 1, 32, preset="prkv", group="restructured").info().group == "reordered"
    with pytest.warns(DeprecationWarning, match="choose is now select"):
        assert old.info().choose == old.info().select == "scan"
    with pytest.raises(TypeError, match="choose is the old name of select"):
        dci.KVCache(1, 2, 1, 32, preset="sketch", choose="scan", select="scan")
    name = old.open()
    with old.step(name, 4):
        old.append(0, name, np.ones((4, 1, 32), np.float16), np.ones((4, 1, 32), np.float16))
        with pytest.warns(DeprecationWarning, match="prompt is now end_prompt"):
            old.prompt(0, name)
    with pytest.warns(DeprecationWarning, match="lend is now assign_blocks"), pytest.raises(dci.InvalidError):
        old.lend(name, [-1])
