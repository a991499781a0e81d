# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Kind "mdci": that full effort is exact, what less of it means, filters, borrowed rows, rows that come and go."""

from __future__ import annotations

import signal
import threading
from functools import partial

import numpy as np
import pytest
from conftest import DEEP, DTYPES, EXACT, FULL, METRICS, assert_exact, assert_same, normal, of_kind, recall, stored
from read_index import read_tree

import dci
from dci import _guard


def mdci(rows, metric="ip", **options):
    return of_kind("mdci", rows, metric, **options)


@pytest.fixture
def index():
    return mdci(normal(2000, 32), "l2", **DEEP)


def distances(index, query, k=1, **effort):
    return index.search(query, k, stats=True, **effort)[-1].distances


# --- full effort ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, DEEP, {**DEEP, "cell_simp_indices": 5}], ids=["default", "deep", "simple indices"])
@pytest.mark.parametrize("metric", METRICS)
def test_full_effort_equals_flat(keys, queries, metric, options):
    flat, index = of_kind("flat", keys, metric), mdci(keys, metric, **options)
    wanted = flat.search(queries, 20)
    assert_same(index.search(queries, 20), wanted)
    assert_same(index.search(queries[0], 20), (wanted[0][0], wanted[1][0]))
    assert_same(index.search(queries, 20, field_of_view=len(keys)), wanted)
    assert_same(index.search(queries, 20, num_to_visit=len(keys)), wanted)
    radius = np.median(wanted[1][:, -1])
    assert_same(index.range_search(queries, radius), flat.range_search(queries, radius))


@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_full_effort_equals_numpy_float64(keys, queries, metric, dtype, storage):
    rows, asked = stored(keys.astype(np.float32), dtype), stored(queries.astype(np.float32), dtype)
    index = mdci(rows, metric, storage=storage)
    assert_exact(index.search(asked, 20), rows, asked, metric)


def test_k_beyond_the_count_is_padded():
    index = mdci(normal(3, 8), **DEEP)
    for effort in ({}, {"field_of_view": 1}):
        ids, scores = index.search(normal(2, 8), 5, **effort)
        assert (np.sort(ids[:, :3], axis=1) == np.arange(3)).all() and np.isfinite(scores[:, :3]).all()
        assert (ids[:, 3:] == -1).all() and np.isnan(scores[:, 3:]).all()
    ids, _ = dci.Index(8, kind="mdci").search(normal(2, 8), 2, field_of_view=1)
    assert (ids == -1).all()


# --- less effort ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("name", "efforts"),
    [("prop_to_visit", (0.02, 0.1, 0.5)), ("field_of_view", (5, 30, 150)), ("num_to_visit", (150, 750, 3500))],
)
def test_less_effort_finds_most_neighbours_with_fewer_distances(keys, queries, metric, name, efforts):
    index = mdci(keys, metric)
    wanted, _ = index.search(queries, 20)
    recalls, shares = [], []
    for effort in efforts:
        ids, _, stats = index.search(queries, 20, stats=True, **{name: effort})
        recalls.append(recall(ids, wanted))
        shares.append(stats.distances / (stats.queries * len(keys)))
    assert recalls == sorted(recalls) and recalls[-1] > 0.9
    assert shares == sorted(shares) and shares[0] < 0.2 and shares[-1] < 0.9


def test_a_field_of_view_opens_so_many_cells():
    index = mdci(normal(3000, 16), "l2", promotion_prob=0.05)
    cells = index.tree_stats()
    query = normal(1, 16, seed=2)[0]
    sizes = [distances(index, query, field_of_view=opened) for opened in range(1, 6)]
    assert sizes == sorted(sizes) and all(size <= (i + 1) * cells.largest_cell for i, size in enumerate(sizes))
    assert distances(index, query, field_of_view=cells.n_nodes[0]) == 3000
    # A search that finds fewer than k rows opens more.
    found, _ = index.search(query, 2500, field_of_view=1)
    assert found.min() >= 0


def test_simple_indices_of_cells_score_a_share_of_the_rows_found(keys, queries):
    index = mdci(keys, cell_simp_indices=10)
    assert index.memory()["projections"] >= 4 * 10 * len(keys) and mdci(keys).memory()["projections"] == 0
    every, half = (distances(index, queries, 20, prop_to_visit=0.3, prop_to_retrieve=share) for share in (1.0, 0.5))
    assert 0.4 * every < half < 0.6 * every


def test_a_range_search_returns_those_within_that_are_looked_at(index):
    asked = normal(4, 32, seed=2)
    radius = float(index.search(asked, 50)[1].max())
    offsets, ids, scores, stats = index.range_search(asked, radius, field_of_view=3, stats=True)
    assert stats.distances < 4 * len(index) and 0 < len(ids) <= stats.distances
    every_offsets, every, _ = index.range_search(asked, radius)
    for i in range(4):
        mine = slice(offsets[i], offsets[i + 1])
        assert (scores[mine] <= radius).all() and np.isin(ids[mine], every[every_offsets[i] : every_offsets[i + 1]]).all()
    assert len(ids) < len(every)


def test_a_field_of_view_goes_before_shares_and_numbers(index):
    query = normal(1, 32, seed=2)[0]
    narrow = distances(index, query, field_of_view=2)
    assert distances(index, query, field_of_view=2, prop_to_visit=0.9, num_to_visit=1000) == narrow
    index.set_defaults(field_of_view=2)
    assert distances(index, query) == narrow
    assert distances(index, query, prop_to_retrieve=1.0) == narrow
    assert distances(index, query, field_of_view=0) == len(index)
    assert distances(index, query, prop_to_visit=1.0) == len(index)
    assert distances(index, query, num_to_visit=2000) == len(index)
    index.set_defaults(prop_to_visit=0.01)
    assert distances(index, query, field_of_view=index.tree_stats().n_nodes[0]) == len(index)


def test_defaults_keep_the_field_of_view(index):
    assert index.get_defaults() == EXACT
    index.set_defaults(field_of_view=7, prop_to_visit=0.5)
    assert index.get_defaults() == {**FULL, "field_of_view": 7, "prop_to_visit": 0.5}
    index.set_defaults(**index.get_defaults())
    assert index.get_defaults() == {**FULL, "field_of_view": 7, "prop_to_visit": 0.5}
    asked = normal(3, 32, seed=2)
    assert_same(index.search(asked, 5), index.search(asked, 5, field_of_view=7))
    assert_same(index.range_search(asked, 40.0), index.range_search(asked, 40.0, field_of_view=7))
    index.set_defaults()
    assert index.get_defaults() == EXACT


def test_a_field_of_view_that_is_none_is_refused(index):
    for call in (partial(index.search, normal(1, 32), 1), index.set_defaults):
        with pytest.raises(dci.InvalidError, match="field_of_view is -1"):
            call(field_of_view=-1)
        with pytest.raises(TypeError):
            call(field_of_view=0.5)
    assert index.get_defaults() == EXACT


@pytest.mark.parametrize("kind", ["flat", "pdci"])
def test_other_kinds_have_no_field_of_view(kind):
    index = of_kind(kind, normal(500, 16))
    asked = normal(3, 16, seed=2)
    for call in (index.search, index.search_group):
        with pytest.raises(dci.InvalidError, match='field_of_view is 1: it needs kind="mdci"'):
            call(asked, 5, field_of_view=1)
    assert_same(index.search(asked, 5, field_of_view=0), index.search(asked, 5))


# --- what the tree is made with -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"promotion_prob": 0.0}, dci.InvalidError, r"promotion_prob is 0, expected 0.001 to 0.5"),
        ({"promotion_prob": float("nan")}, dci.InvalidError, "promotion_prob is nan"),
        ({"promotion_prob_subseq": 0.6}, dci.InvalidError, r"promotion_prob_subseq is 0.6, expected 0.001 to 0.5"),
        ({"page_rows": 6}, dci.InvalidError, "page_rows is 6, expected 4, 8, 16"),
        ({"page_rows": -1}, dci.InvalidError, "page_rows is -1"),
        ({"top_nodes": 0}, dci.InvalidError, "top_nodes is 0"),
        ({"cell_simp_indices": 5000}, dci.LimitError, "cell_simp_indices is 5000, expected 0 to 4096"),
        ({"seed": 2**64}, dci.InvalidError, "seed is"),
        ({"top_nodes": 1.5}, TypeError, r"top_nodes is 1.5 \(float\), wanted a whole number"),
        ({"promotion_prob": "often"}, TypeError, r"promotion_prob is 'often' \(str\), wanted a number"),
    ],
)
def test_options_out_of_range_are_refused_with_both_values(options, error, sentence):
    with pytest.raises(error, match=sentence):
        dci.Index(8, kind="mdci", **options)


def nodes(index):
    return [sorted(row_id for row_id, _, _ in level) for level in read_tree(index.to_bytes())["levels"]]


def test_promotions_depend_on_seed_and_ids_alone():
    rows, ids = normal(600, 8), np.random.default_rng(5).permutation(10_000)[:600]
    index = mdci(rows, ids=ids, **DEEP)
    pieces = dci.Index(8, kind="mdci", **DEEP)
    for part in np.array_split(np.arange(600)[::-1], 50):
        pieces.add(rows[part], ids[part])
    assert len(nodes(index)) >= 3 and nodes(pieces) == nodes(index)
    assert nodes(mdci(rows, ids=ids, seed=1, **DEEP)) != nodes(index)
    assert index.tree_stats().n_nodes == tuple(map(len, nodes(index)))


def test_a_name_in_repr_and_properties(index):
    assert (index.kind, index.metric, index.storage) == ("mdci", "l2", "owned")
    assert repr(index) == "Index(dim=32, metric='l2', kind='mdci', dtype='float32', count=2000)"


# --- filters --------------------------------------------------------------------------------------------------------

ALLOWED = np.arange(1, 2000, 3)
FILTERS = {
    "ids": lambda: ALLOWED,
    "mask": lambda: np.arange(2000) % 3 == 1,
    "bitmap": lambda: dci.Bitmap.from_mask(np.arange(2000) % 3 == 1),
    "function": lambda: lambda row_id: row_id % 3 == 1,
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_admits_its_rows_in_every_form(index, name):
    asked = normal(5, 32, seed=2)
    only = of_kind("flat", normal(2000, 32)[ALLOWED], "l2", ids=ALLOWED)
    assert_same(index.search(asked, 10, filter=FILTERS[name]()), only.search(asked, 10))
    assert_same(index.range_search(asked, 30.0, filter=FILTERS[name]()), only.range_search(asked, 30.0))
    wanted = index.search(asked, 10, filter=ALLOWED, field_of_view=3)
    assert_same(index.search(asked, 10, filter=FILTERS[name](), field_of_view=3), wanted)
    assert (wanted[0] % 3 == 1).all()


def test_a_filter_that_admits_few_rows_is_answered_exactly(index):
    few = np.array([3, 77, 1999, 10**9])
    asked = normal(5, 32, seed=2)
    assert_same(index.search(asked, 4, filter=few, field_of_view=1), index.search(asked, 4, filter=few))
    assert (index.search(asked, 4, filter=few, field_of_view=1)[0][:, 3] == -1).all()


# --- rows that come and go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize("metric", METRICS)
def test_rows_may_come_and_go(metric, storage):
    rows, asked = normal(900, 16), normal(6, 16, seed=2)
    rows[700:] *= 100  # under "ip" this raises the c of the lift
    index = dci.Index(16, metric, kind="mdci", storage=storage, **DEEP)
    rng = np.random.default_rng(4)
    for part in np.array_split(np.arange(900), 30):
        index.add(rows[part])
        index.remove(rng.choice(index.ids(), 8, replace=False))
        ids = index.ids()
        np.testing.assert_array_equal(index.reconstruct(ids), rows[ids])
        found, _ = index.search(asked, 9, field_of_view=2)
        assert np.isin(found, ids).all()
    wanted = of_kind("flat", rows[ids], metric, ids=ids)
    assert_same(index.search(asked, 9), wanted.search(asked, 9))
    index.remove(ids)
    assert len(index) == 0
    index.add(rows[:5])
    assert index.ids().tolist() == [900, 901, 902, 903, 904]


def test_borrowed_rows_are_not_copied(keys):
    owned, borrowed = mdci(keys), mdci(keys, storage="borrowed")
    # Their pages have gaps, which cost a pointer each.
    assert borrowed.memory()["rows"] < owned.memory()["rows"] / 4


def test_a_refused_add_or_remove_changes_nothing(index):
    before = index.tree_stats(), index.to_bytes()
    bad = normal(1000, 32, seed=9)
    bad[977, 3] = np.nan
    with pytest.raises(dci.NumberError, match="row 977"):
        index.add(bad)
    with pytest.raises(dci.ExistsError, match="5"):
        index.add(normal(1, 32), ids=[5])
    with pytest.raises(dci.NotFoundError, match="4000"):
        index.remove([1, 4000])
    assert (index.tree_stats(), index.to_bytes()) == before


def test_a_watched_add_is_undone_by_a_signal(index, monkeypatch):
    before = index.to_bytes()
    monkeypatch.setattr(_guard, "WATCHED_WORK", 0)
    monkeypatch.setattr(_guard, "WATCHED_ADD", 0)
    report = _guard.CallGuard._report

    def interrupted(self, ctx, done, total):
        signal.raise_signal(signal.SIGINT)
        return report(self, ctx, done, total)

    monkeypatch.setattr(_guard.CallGuard, "_report", interrupted)
    for n in (100, 3000):  # entered, built anew
        with pytest.raises(KeyboardInterrupt):
            index.add(normal(n, 32))
    assert index.to_bytes() == before
    with pytest.raises(KeyboardInterrupt):
        index.search(normal(20, 32), 3, field_of_view=2)


def test_searches_beside_adds_see_all_of_a_batch_or_none():
    index = dci.Index(8, "l2", kind="mdci", **DEEP)
    asked = np.zeros(8, np.float32)
    counts, done = [], threading.Event()

    def search():
        while True:
            last = done.is_set()
            counts.append(int((index.search(asked, 2000)[0] >= 0).sum()))
            if last:
                break

    thread = threading.Thread(target=search)
    thread.start()
    for i in range(60):
        index.add(normal(20, 8, seed=i))
    done.set()
    thread.join()
    assert counts == sorted(counts) and all(count % 20 == 0 for count in counts) and counts[-1] == 1200
