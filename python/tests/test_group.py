# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Searches for groups of queries, and tune."""

from __future__ import annotations

import math
import signal

import numpy as np
import pytest
from conftest import DTYPES, METRICS, TRACE, assert_same, normal, of_kind, recall, stored

import dci
from dci import _guard

KINDS = ("flat", "pdci", "mdci")
PARTIAL = {"flat": {}, "pdci": {"prop_to_retrieve": 0.05}, "mdci": {"field_of_view": 3}}


@pytest.fixture(scope="module")
def indexes():
    """By kind: the same 1,500 rows of 16 elements, inner product."""
    return {kind: of_kind(kind, normal(1500, 16)) for kind in KINDS}


@pytest.fixture(scope="module")
def heads():
    """6 groups of 4 queries that are much alike: (6, 4, 16)."""
    return (normal(6, 16, seed=2)[:, None] + 0.5 * normal(24, 16, seed=3).reshape(6, 4, 16)).astype(np.float32)


def interleaved(ids, scores, k):
    """The union of one group's lists: rank by rank, query by query, each row once."""
    found = {}
    for rank in range(ids.shape[1]):
        for one, score in zip(ids[:, rank].tolist(), scores[:, rank].tolist()):
            if one >= 0:
                found.setdefault(one, score)
    pairs = [*found.items(), *[(-1, math.nan)] * k][:k]
    return [one for one, _ in pairs], [score for _, score in pairs]


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_at_full_effort_finds_what_search_finds(kind, metric, heads):
    index = of_kind(kind, normal(1500, 16), metric)
    ids, scores = index.search_group(heads, 9)
    assert ids.shape == scores.shape == (6, 4, 9)
    assert (ids.dtype, scores.dtype) == (np.int64, np.float32)
    assert_same((ids.reshape(24, 9), scores.reshape(24, 9)), index.search(heads.reshape(24, 16), 9))
    one = index.search_group(heads[2], 9)
    assert one[0].shape == (4, 9)
    assert_same(one, (ids[2], scores[2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_are_taken_in_every_row_format(dtype, heads):
    index = of_kind("mdci", stored(normal(500, 16), dtype))
    asked = stored(heads.reshape(24, 16), dtype)
    ids, scores = index.search_group(asked.reshape(6, 4, 16), 5)
    assert_same((ids.reshape(24, 5), scores.reshape(24, 5)), index.search(asked, 5))


@pytest.mark.parametrize("kind", ["flat", "pdci"])
def test_kinds_without_a_tree_find_what_search_finds_at_any_effort(indexes, kind, heads):
    ids, scores = indexes[kind].search_group(heads, 9, **PARTIAL[kind])
    wanted = indexes[kind].search(heads.reshape(24, 16), 9, **PARTIAL[kind])
    assert_same((ids.reshape(24, 9), scores.reshape(24, 9)), wanted)


def test_a_group_opens_what_any_of_its_queries_would(indexes, heads):
    index = indexes["mdci"]
    ids, scores, stats = index.search_group(heads, 9, field_of_view=3, stats=True)
    alone_ids, alone, alone_stats = index.search(heads.reshape(24, 16), 9, field_of_view=3, stats=True)
    assert (scores.reshape(24, 9) >= alone).all()
    assert not np.array_equal(ids.reshape(24, 9), alone_ids)
    assert stats.queries == 24 and alone_stats.distances < stats.distances < 24 * len(index)
    assert_same(index.search_group(heads[:, :1], 9, field_of_view=3), (alone_ids[::4, None], alone[::4, None]))


@pytest.mark.parametrize("k", [1, 3, 10, 200, 1600])
@pytest.mark.parametrize("effort", ["full", "partial"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_union_is_the_lists_interleaved(indexes, kind, effort, k, heads):
    options = {} if effort == "full" else PARTIAL[kind]
    if k > 10:  # lists so long would open more than shorter ones
        options = {}
    ids, scores = indexes[kind].search_group(heads, k, union=True, **options)
    assert ids.shape == scores.shape == (6, k)
    lists = indexes[kind].search_group(heads, k, **options)
    wanted = [interleaved(*one, k) for one in zip(*lists)]
    assert_same((ids, scores), ([one for one, _ in wanted], np.float32([score for _, score in wanted])))
    one = indexes[kind].search_group(heads[0], k, union=True, **options)
    assert one[0].shape == (k,)
    assert_same(one, (ids[0], scores[0]))


def test_queries_that_agree_make_a_union_of_one_list(indexes):
    query = normal(1, 16, seed=8)
    for index in indexes.values():
        assert_same(index.search_group(np.repeat(query, 8, axis=0), 40, union=True), index.search(query[0], 40))


@pytest.mark.parametrize("union", [False, True])
def test_groups_obey_filters_and_report_stats(indexes, union, heads):
    allowed = np.arange(0, 1500, 7)
    only = of_kind("flat", normal(1500, 16)[allowed], ids=allowed)
    wanted = only.search_group(heads, 9, union=union)
    for kind, index in indexes.items():
        assert_same(index.search_group(heads, 9, union=union, filter=allowed), wanted)
        assert_same(index.search_group(heads, 9, union=union, filter=lambda row_id: row_id % 7 == 0), wanted)
        *found, stats = index.search_group(heads, 9, union=union, stats=True, **PARTIAL[kind])
        assert_same(found, index.search_group(heads, 9, union=union, **PARTIAL[kind]))
        assert stats.queries == 24 and stats.distances > 0


def test_groups_use_the_defaults(heads):
    index = of_kind("mdci", normal(1500, 16))
    wanted = index.search_group(heads, 9, field_of_view=3)
    index.set_defaults(field_of_view=3)
    assert_same(index.search_group(heads, 9), wanted)


def test_watched_groups_give_the_results_of_unwatched_ones(indexes, heads, monkeypatch):
    wanted = [indexes["mdci"].search_group(heads, 9, union=union, field_of_view=3) for union in (False, True)]
    monkeypatch.setattr(_guard, "WATCHED_WORK", 0)
    for union in (False, True):
        assert_same(indexes["mdci"].search_group(heads, 9, union=union, field_of_view=3), wanted[union])
    with pytest.raises(KeyboardInterrupt):
        indexes["mdci"].search_group(heads, 9, filter=lambda row_id: signal.raise_signal(signal.SIGINT))


LAYOUTS = {
    "heads apart": lambda x: np.concatenate([x, x], axis=2)[:, :, :16],
    "groups apart": lambda x: np.concatenate([x, x], axis=1)[:, :4],
    "group last": lambda x: np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1),
    "float64": lambda x: x.astype(np.float64),
    "list": lambda x: x.tolist(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_of_groups_gives_the_same(indexes, name, heads):
    index = indexes["mdci"]
    assert_same(index.search_group(LAYOUTS[name](heads), 5), index.search_group(heads, 5))


def test_out_is_written_and_returned(indexes, heads):
    for union, shape in ((False, (6, 4, 5)), (True, (6, 5))):
        out = np.empty(shape, np.int64), np.empty(shape, np.float32)
        ids, scores = indexes["mdci"].search_group(heads, 5, union=union, out=out)
        assert ids is out[0] and scores is out[1]
        assert_same(out, indexes["mdci"].search_group(heads, 5, union=union))
        with pytest.raises(dci.InvalidError, match=r"out: .* shape"):
            indexes["mdci"].search_group(heads, 5, union=not union, out=out)


def test_no_groups_give_no_results(indexes):
    none = np.empty((0, 4, 16), np.float32)
    assert indexes["mdci"].search_group(none, 5)[0].shape == (0, 4, 5)
    assert indexes["mdci"].search_group(none, 5, union=True)[0].shape == (0, 5)


def test_groups_that_do_not_fit_are_refused(indexes):
    index = indexes["mdci"]
    for shape in ((16,), (4, 15), (2, 4, 17), (1, 2, 4, 16)):
        with pytest.raises(dci.InvalidError, match=r"q has shape .*, wanted \(n_groups, group_size, 16\)"):
            index.search_group(np.zeros(shape, np.float32))
    for size in (0, 9):
        with pytest.raises(dci.InvalidError, match=f"group_size is {size}, allowed are 1 to 8"):
            index.search_group(np.zeros((2, size, 16), np.float32))
    with pytest.raises(TypeError, match="q is complex64"):
        index.search_group(np.zeros((2, 2, 16), np.complex64))
    bad = np.ones((2, 2, 16), np.float32)
    bad[1, 0, 3] = np.inf
    with pytest.raises(dci.NumberError, match="2"):
        index.search_group(bad)


# --- tune -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked():
    """Queries of all heads of the trace, in no order: (n, 64) float16."""
    return np.random.default_rng(6).permutation(np.load(TRACE / "queries.npy").reshape(-1, 64))


@pytest.mark.parametrize("target", [0.8, 0.95])
@pytest.mark.parametrize(
    ("kind", "options"), [("mdci", {}), ("mdci", {"cell_simp_indices": 8}), ("pdci", {}), ("flat", {})], ids=str
)
def test_tune_reaches_its_target_on_queries_it_has_not_seen(keys, asked, kind, options, target):
    rows = keys[:3000]
    index = of_kind(kind, rows, **options)
    found = index.tune(asked[:400], 50, target, cost="distances")
    assert isinstance(found, dci.TuneResult)
    assert found.n_queries == 400 and found.exact_distances == 3000
    assert found.recall >= target and found.recall_held_out >= target - 0.05
    effort = index.get_defaults()
    assert (effort["prop_to_visit"], effort["prop_to_retrieve"]) == (found.prop_to_visit, found.prop_to_retrieve)
    assert effort["num_to_visit"] == effort["num_to_retrieve"] == effort["field_of_view"] == 0
    exact = of_kind("flat", rows)
    wanted, _ = exact.search(asked[400:600], 50)
    ids, _, stats = index.search(asked[400:600], 50, stats=True)
    assert recall(ids, wanted) >= target - 0.05
    if kind == "flat":
        assert (found.n_efforts, found.recall, found.distances) == (0, 1.0, 3000)
    else:
        assert found.n_efforts > 1 and found.distances < 3000
        assert stats.distances / 200 == pytest.approx(found.distances, rel=0.25)


def test_tune_reports_the_recall_of_even_and_odd_queries(keys, asked):
    index, exact = of_kind("mdci", keys[:2000]), of_kind("flat", keys[:2000])
    found = index.tune(asked[:60], 10, 0.9)
    wanted, ids = exact.search(asked[:60], 10)[0], index.search(asked[:60], 10)[0]
    assert found.recall == pytest.approx(recall(ids[::2], wanted[::2]))
    assert found.recall_held_out == pytest.approx(recall(ids[1::2], wanted[1::2]))


def test_tune_for_all_neighbours_sets_full_effort():
    index = of_kind("mdci", normal(500, 16))
    index.set_defaults(prop_to_visit=0.1, field_of_view=3)
    found = index.tune(normal(6, 16, seed=2), 5, 1.0)
    assert (found.recall, found.prop_to_visit, found.prop_to_retrieve) == (1.0, 1.0, 1.0)
    assert index.get_defaults()["prop_to_visit"] == 1.0 and index.get_defaults()["field_of_view"] == 0


def test_tune_takes_one_query():
    found = of_kind("mdci", normal(500, 16)).tune(normal(1, 16, seed=2)[0], 5, 0.5)
    assert found.n_queries == 1 and found.recall >= 0.5 and math.isnan(found.recall_held_out)


def test_tune_that_fails_leaves_the_defaults():
    index = of_kind("mdci", normal(500, 16))
    index.set_defaults(field_of_view=3)
    queries = normal(4, 16, seed=2)
    for target in (0.0, 1.5, math.nan):
        with pytest.raises(dci.InvalidError, match=r"target_recall is .*, allowed is \(0, 1\]"):
            index.tune(queries, 5, target)
    with pytest.raises(dci.InvalidError, match="there are no queries"):
        index.tune(queries[:0], 5, 0.9)
    with pytest.raises(dci.InvalidError, match="k is 0"):
        index.tune(queries, 0, 0.9)
    with pytest.raises(TypeError):
        index.tune(queries, 5, "most")
    queries[3, 2] = np.nan
    with pytest.raises(dci.NumberError, match="3"):
        index.tune(queries, 5, 0.9)
    assert index.get_defaults()["field_of_view"] == 3
