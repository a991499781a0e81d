# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Kind "pdci": what its effort means, where it is given, and that full effort is exact."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import DTYPES, EXACT, FULL, METRICS, assert_exact, assert_same, normal, of_kind, recall, stored

import dci

EFFORT = ("prop_to_visit", "prop_to_retrieve", "num_to_visit", "num_to_retrieve")


def pdci(rows, metric="ip", **options):
    return of_kind("pdci", rows, metric, **options)


@pytest.fixture
def index():
    return pdci(normal(2000, 32), "l2")


def candidates(index, query, k=1, **effort):
    return index.search(query, k, stats=True, **effort)[-1].candidates


@pytest.mark.parametrize("metric", METRICS)
def test_full_effort_equals_flat(keys, queries, metric):
    flat = dci.Index(64, metric, dtype="float16")
    flat.add(keys)
    index = pdci(keys, metric)
    wanted = flat.search(queries, 20)
    assert_same(index.search(queries, 20), wanted)
    assert_same(index.search(queries[0], 20), (wanted[0][0], wanted[1][0]))
    full = {"num_to_visit": len(keys), "num_to_retrieve": len(keys)}
    assert_same(index.search(queries, 20, **full), wanted)
    radius = np.median(wanted[1][:, -1])
    assert_same(index.range_search(queries, radius), flat.range_search(queries, radius))


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_effort_equals_numpy_float64(keys, queries, dtype):
    rows, asked = stored(keys.astype(np.float32), dtype), stored(queries.astype(np.float32), dtype)
    index = dci.Index(64, "cosine", kind="pdci", dtype=dtype, recall=1.0)
    index.add(rows)
    assert_exact(index.search(asked, 20), rows, asked, "cosine")


@pytest.mark.parametrize("metric", METRICS)
def test_less_effort_finds_most_neighbours_with_fewer_distances(keys, queries, metric):
    index = pdci(keys, metric)
    wanted, _ = index.search(queries, 20)
    recalls, distances = [], []
    for share in (0.01, 0.1, 0.5):
        ids, _, stats = index.search(queries, 20, prop_to_retrieve=share, stats=True)
        recalls.append(recall(ids, wanted))
        distances.append(stats.distances / (stats.queries * len(keys)))
    assert recalls == sorted(recalls) and recalls[-1] > 0.8
    assert distances == sorted(distances) and distances[-1] < 0.9


def test_candidates_are_as_many_as_the_budgets_say():
    index = pdci(normal(1000, 16), "l2", num_comp_indices=1, num_simp_indices=5)
    query = normal(1, 16, seed=2)[0]
    assert candidates(index, query) == 1000
    assert candidates(index, query, prop_to_retrieve=0.25) == 250
    assert candidates(index, query, num_to_retrieve=30) == 30
    assert candidates(index, query, num_to_retrieve=30, prop_to_retrieve=1.0) == 30
    assert candidates(index, query, k=40, num_to_retrieve=30) == 40
    assert candidates(index, query, k=3, num_to_visit=1) == 3
    fewer, more = (candidates(index, query, prop_to_visit=share) for share in (0.3, 0.6))
    assert 1 <= fewer < more < 1000
    assert candidates(index, query, num_to_visit=300) == fewer


def test_a_filtered_search_is_that_of_an_index_of_the_admitted_rows():
    rows, asked = normal(1000, 16), normal(5, 16, seed=2)
    allowed = np.arange(0, 1000, 3)
    only = pdci(rows[allowed], "l2")
    ids, scores = only.search(asked, 10, prop_to_retrieve=0.1)
    assert_same(pdci(rows, "l2").search(asked, 10, filter=allowed, prop_to_retrieve=0.1), (allowed[ids], scores))


def test_a_range_search_returns_the_candidates_within(index):
    asked = normal(4, 32, seed=2)
    radius = float(index.search(asked, 50)[1].max())
    *_, stats = index.range_search(asked, radius, prop_to_retrieve=0.1, stats=True)
    offsets, ids, scores = index.range_search(asked, radius, prop_to_retrieve=0.1)
    assert stats.candidates == stats.distances < 4 * len(index) and len(ids) > 0
    for i, query in enumerate(asked):
        part = slice(offsets[i], offsets[i + 1])
        near_ids, near_scores = index.search(query, 200, prop_to_retrieve=0.1)  # 200: what the budget gives anyway
        assert_same((ids[part], scores[part]), (near_ids[near_scores <= radius], near_scores[near_scores <= radius]))


def test_stats_count_what_was_retrieved(index):
    *_, stats = index.search(normal(3, 32, seed=2), 5, prop_to_retrieve=0.05, stats=True)
    assert (stats.queries, stats.visited, stats.proposed) == (3, 6000, 6000)
    assert 3 * 100 <= stats.candidates == stats.distances <= 3 * 200


def test_memory_says_what_projections_cost(index):
    report = index.memory()
    assert report["projections"] >= 2000 * 2 * 7 * 4
    assert report["total"] == sum(size for part, size in report.items() if part != "total")
    assert dci.Index(32).memory()["projections"] == 0


def test_a_seed_decides_the_directions(index):
    query = normal(1, 32, seed=2)[0]
    effort = {"prop_to_retrieve": 0.02}
    again, other = pdci(normal(2000, 32), "l2"), pdci(normal(2000, 32), "l2", seed=2**64 - 1)
    wanted = index.search(query, 40, **effort)
    assert_same(again.search(query, 40, **effort), wanted)
    assert not np.array_equal(other.search(query, 40, **effort)[0], wanted[0])


def test_rows_may_come_and_go():
    rows, asked = normal(600, 16), normal(3, 16, seed=2)
    index = pdci(rows[:400], "ip")
    index.remove(np.arange(0, 400, 2))
    index.add(100 * rows[400:])
    ids = index.ids()
    wanted = dci.Index(16, "ip")
    wanted.add(index.reconstruct(ids), ids=ids)
    assert_same(index.search(asked, 9), wanted.search(asked, 9))
    found, _ = index.search(asked, 9, prop_to_retrieve=0.2)
    assert np.isin(found, ids).all()


# --- where effort is given ------------------------------------------------------------------------------------------


def test_defaults_are_full_effort_and_go_back_to_it(index):
    assert index.get_defaults() == EXACT
    index.set_defaults(prop_to_visit=0.5, num_to_retrieve=9)
    assert index.get_defaults() == {**FULL, "prop_to_visit": 0.5, "num_to_retrieve": 9}
    index.set_defaults(**index.get_defaults())
    assert index.get_defaults() == {**FULL, "prop_to_visit": 0.5, "num_to_retrieve": 9}
    index.set_defaults()
    assert index.get_defaults() == EXACT


def test_defaults_hold_in_every_search_that_does_not_say_otherwise(index):
    asked = normal(3, 32, seed=2)
    wanted = index.search(asked, 5, prop_to_retrieve=0.02)
    near = index.range_search(asked, 40.0, prop_to_retrieve=0.02)
    exact = index.search(asked, 5)
    assert not np.array_equal(wanted[0], exact[0])
    index.set_defaults(prop_to_retrieve=0.02)
    assert_same(index.search(asked, 5), wanted)
    assert_same(index.search(asked, 5, stats=True)[:2], wanted)
    assert_same(index.search(asked, 5, filter=np.arange(2000)), wanted)
    assert_same(index.search(asked, 5, filter=lambda row_id: True), wanted)
    assert_same(index.search(asked, 5, prop_to_visit=1.0), wanted)
    assert_same(index.range_search(asked, 40.0), near)
    assert_same(index.search(asked, 5, prop_to_retrieve=1.0), exact)


def test_a_share_that_is_given_replaces_a_default_number(index):
    query = normal(1, 32, seed=2)[0]
    index.set_defaults(num_to_retrieve=50, num_to_visit=2000)
    assert 50 <= candidates(index, query) <= 100
    assert candidates(index, query, prop_to_retrieve=1.0) == 2000
    assert 10 <= candidates(index, query, num_to_retrieve=10) <= 20
    assert candidates(index, query, num_to_retrieve=0) == 2000


@pytest.mark.parametrize("name", EFFORT[:2])
@pytest.mark.parametrize("bad", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused_with_the_librarys_sentence(name, bad):
    index = pdci(normal(9, 4))
    sentence = f"{name} is {bad:g}, expected more than 0 and at most 1"
    for call in (
        lambda: index.search(normal(1, 4), 1, **{name: bad}),
        lambda: index.range_search(normal(1, 4), 1.0, **{name: bad}),
        lambda: index.set_defaults(**{name: bad}),
    ):
        with pytest.raises(dci.InvalidError, match=sentence):
            call()
    assert index.get_defaults() == EXACT


@pytest.mark.parametrize("name", EFFORT[2:])
def test_a_number_that_is_none_is_refused(index, name):
    with pytest.raises(dci.InvalidError, match=f"{name} is -1"):
        index.search(normal(1, 32), 1, **{name: -1})
    with pytest.raises(dci.InvalidError, match=f"{name} is -1"):
        index.set_defaults(**{name: -1})
    for bad in (0.5, "9"):
        with pytest.raises(TypeError):
            index.search(normal(1, 32), 1, **{name: bad})
    with pytest.raises(TypeError):
        index.search(normal(1, 32), 1, prop_to_visit="half")


def test_flat_has_no_effort_to_give(keys, queries):
    flat = dci.Index(64, dtype="float16")
    flat.add(keys)
    for name, value in (("prop_to_retrieve", 0.01), ("prop_to_visit", 0.5), ("num_to_visit", 1), ("num_to_retrieve", 1)):
        with pytest.raises(dci.InvalidError, match=f"{name} is {value}: it needs kind="):
            flat.search(queries, 20, **{name: value})
    assert_same(flat.search(queries, 20, prop_to_retrieve=1.0, num_to_visit=0), flat.search(queries, 20))


def test_a_closed_index_has_no_defaults(index):
    index.close()
    for call in (index.get_defaults, index.set_defaults):
        with pytest.raises(dci.InvalidError, match="closed"):
            call()
    assert repr(index) == "Index(dim=32, metric='l2', kind='pdci', dtype='float32', closed)"
