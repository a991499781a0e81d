# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Pages, their changes and the shape of a tree; and that a second reader of saved trees finds the same."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from conftest import DEEP, DTYPES, METRICS, in_float64, normal, of_kind, stored
from read_index import read_index, read_tree

import dci

PAGE_ROWS = DEEP["page_rows"]


def tree(metric="l2", dtype="float32", storage="owned", n=500, **options):
    """An index with ids of its own and three levels, from which every ninth row was removed."""
    rows = stored(normal(n, 12), dtype)
    index = dci.Index(12, metric, kind="mdci", dtype=dtype, storage=storage, **{**DEEP, **options})
    ids = np.random.default_rng(3).permutation(n) * 1_000_003
    index.add(rows, ids)
    index.remove(ids[::9])
    return index


def contents(index):
    """Page number -> its ids, as the library says."""
    return {page: index.page_ids(page).tolist() for page in index.pages()["page"].tolist()}


def bring_up_to_date(copy, index, version):
    """What a caller that keeps a copy of the pages does; it looks at no other page."""
    changed, version = index.changes(version)
    for page in changed.tolist():
        ids = index.page_ids(page).tolist()
        if ids:
            copy[page] = ids
        else:
            copy.pop(page, None)
    return changed, version


# --- pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_pages_hold_every_row_once(metric, dtype, storage):
    index = tree(metric, dtype, storage)
    pages, shape = index.pages(), index.tree_stats()
    assert pages.dtype.names == ("page", "cell", "n_rows", "version")
    held = contents(index)
    assert [len(held[page]) for page in pages["page"].tolist()] == pages["n_rows"].tolist()
    assert sorted(chain.from_iterable(held.values())) == index.ids().tolist()
    assert len(held) == len(pages) == shape.n_pages - shape.free_pages
    assert pages["page"].max() < shape.n_pages and pages["version"].max() <= shape.version
    # Cell by cell, and only the last page of a cell has gaps.
    assert (np.diff(pages["cell"]) >= 0).all()
    inner = pages["cell"][:-1] == pages["cell"][1:]
    assert (pages["n_rows"][:-1][inner] == PAGE_ROWS).all() and pages["n_rows"].min() >= 1


def test_tree_stats_are_those_of_the_pages():
    index = tree()
    pages, shape = index.pages(), index.tree_stats()
    assert (shape.n_rows, shape.page_rows) == (len(index), PAGE_ROWS)
    assert shape.n_levels == len(shape.n_nodes) >= 3 and shape.n_nodes[-1] <= 8
    assert list(shape.n_nodes) == sorted(shape.n_nodes, reverse=True)
    sizes = np.zeros(shape.n_nodes[0], int)
    np.add.at(sizes, pages["cell"], pages["n_rows"])
    sizes.sort()
    assert shape.empty_cells == (sizes == 0).sum()
    assert (shape.median_cell, shape.largest_cell) == (sizes[len(sizes) // 2], sizes[-1])
    assert shape.median_cell <= shape.p99_cell <= shape.largest_cell
    assert shape.page_fill == pytest.approx(pages["n_rows"].mean() / PAGE_ROWS)
    # One add and one remove.
    assert (shape.version, shape.rebuilds) == (2, 1)


def test_an_empty_tree_has_no_pages():
    index = dci.Index(8, kind="mdci")
    assert index.pages().shape == (0,)
    pages, version = index.changes()
    assert (pages.shape, pages.dtype, version) == ((0,), np.int32, 0)
    shape = index.tree_stats()
    assert (shape.n_rows, shape.n_levels, shape.n_nodes, shape.page_rows, shape.n_pages) == (0, 0, (), 16, 0)


def test_a_free_page_is_empty_and_an_unknown_one_is_refused():
    index = tree()
    free = set(range(index.tree_stats().n_pages)) - set(contents(index))
    assert free and all(index.page_ids(page).shape == (0,) for page in free)
    with pytest.raises(dci.NotFoundError, match="page 100000 is not among"):
        index.page_ids(100_000)
    for bad in (-1, 2**31):
        with pytest.raises(dci.InvalidError, match=f"page is {bad}"):
            index.page_ids(bad)
    for bad in (-1, 2**64):
        with pytest.raises(dci.InvalidError, match=f"version is {bad}"):
            index.changes(bad)


@pytest.mark.parametrize("kind", ["flat", "pdci"])
def test_other_kinds_have_no_pages(kind):
    index = dci.Index(8, kind=kind)
    for call in (index.pages, lambda: index.page_ids(0), index.changes, index.tree_stats):
        with pytest.raises(dci.UnsupportedError, match=f"only indexes of kind 'mdci' have pages, this is of kind '{kind}'"):
            call()


def test_a_closed_index_has_no_pages():
    index = tree()
    index.close()
    for call in (index.pages, lambda: index.page_ids(0), index.changes, index.tree_stats):
        with pytest.raises(dci.InvalidError, match="closed"):
            call()


# --- changes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize("metric", METRICS)
def test_a_copy_is_kept_up_to_date_through_changes(metric, storage):
    rng = np.random.default_rng(8)
    index = dci.Index(12, metric, kind="mdci", storage=storage, **DEEP)
    copy, version, rebuilds, quiet = {}, 0, set(), 0
    for step in range(120):
        before = version
        if len(index) > 60 and step % 3 == 2:
            index.remove(rng.choice(index.ids(), rng.integers(1, len(index) // (2 if step % 5 == 0 else 20)), replace=False))
        else:
            # Now and then many at once, or longer ones: both build the tree anew.
            n = 300 if step % 40 == 7 else rng.integers(1, 12)
            index.add((10 if step % 50 == 30 else 1) * rng.standard_normal((n, 12), np.float32))
        changed, version = bring_up_to_date(copy, index, version)
        assert copy == contents(index)
        assert version == index.tree_stats().version == before + 1
        assert (np.diff(changed) > 0).all() and len(changed) >= 1
        pages = index.pages()
        assert set(pages["page"][pages["version"] == version].tolist()) <= set(changed.tolist())
        rebuilds.add(index.tree_stats().rebuilds)
        quiet += len(changed) < len(pages) / 2
    assert len(rebuilds) >= 3 and quiet > 40
    index.remove(index.ids())
    bring_up_to_date(copy, index, version)
    assert copy == {}


def test_without_a_change_there_is_nothing_to_do():
    index = tree()
    pages, version = index.changes()
    assert set(contents(index)) <= set(pages.tolist()) and len(pages) > 64
    index.search(normal(3, 12), 5)
    index.add(np.empty((0, 12), np.float32))
    index.remove([])
    index.set_defaults(field_of_view=2)
    pages, again = index.changes(version)
    assert (pages.size, again) == (0, version)
    assert index.changes(2**64 - 1)[0].size == 0


def test_rows_that_are_no_nodes_come_and_go_in_few_pages():
    index = tree(n=2000, promotion_prob=0.02)
    nodes = {row_id for row_id, _, _ in read_tree(index.to_bytes())["levels"][0]}
    _, version = index.changes()
    for row_id in [row_id for row_id in index.ids().tolist() if row_id not in nodes][:50]:
        row = index.reconstruct(row_id)
        index.remove(row_id)
        changed, version = index.changes(version)
        assert 1 <= len(changed) <= 2  # where it was, and where the cell's last row came from
        index.add(row, row_id)
        changed, version = index.changes(version)
        assert len(changed) == 1 and row_id in index.page_ids(changed[0])


def test_a_loaded_tree_goes_on_with_versions_and_pages(tmp_path):
    index = tree()
    copy = {}
    _, version = bring_up_to_date(copy, index, 0)
    index.save(tmp_path / "index")
    loaded, mapped = dci.Index.load(tmp_path / "index"), dci.Index.map(tmp_path / "index")
    for again in (loaded, mapped):
        assert contents(again) == copy and again.changes(version)[0].size == 0
        assert again.tree_stats() == index.tree_stats()
        np.testing.assert_array_equal(again.pages(), index.pages())
    loaded.remove(loaded.ids()[:20])
    bring_up_to_date(copy, loaded, version)
    assert contents(loaded) == copy


@pytest.mark.parametrize("page_rows", [4, 256])
def test_a_full_page_is_read_whole_also_of_a_loaded_tree(page_rows):
    index = dci.Index(12, kind="mdci", promotion_prob=0.001, page_rows=page_rows)
    index.add(normal(2000, 12))
    again = dci.Index.from_bytes(index.to_bytes())
    page = index.pages()["page"][0]
    assert index.page_ids(page).size == page_rows == again.tree_stats().page_rows
    np.testing.assert_array_equal(again.page_ids(page), index.page_ids(page))


# --- a second reader ------------------------------------------------------------------------------------------------


def points_of(config, rows, norms, live):
    """Rows as points of the tree, in float64, for empty slots zeros."""
    x = in_float64(rows)
    if norms is None:
        return x
    if config["c_squared"] > 0:
        lift = np.sqrt(np.maximum(config["c_squared"] - norms.astype(np.float64), 0))
        return np.hstack([x, np.where(live, lift, 0)[:, None]])
    return x * norms.astype(np.float64)[:, None]


def distances_to(points, nodes):
    return ((points[:, None] - nodes[None]) ** 2).sum(2)


@pytest.mark.parametrize("cell_simp_indices", [0, 3])
@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_a_second_reader_finds_rows_pages_and_nodes(metric, dtype, storage, cell_simp_indices):
    index = tree(metric, dtype, storage, cell_simp_indices=cell_simp_indices)
    data, shape, pages = index.to_bytes(), index.tree_stats(), index.pages()
    config, rows, ids, _, projections = read_index(data)
    read = read_tree(data)
    assert (projections is None) == (cell_simp_indices == 0)
    assert {name: config[name] for name in DEEP} == DEEP
    counts = (config["n_rows"], config["n_levels"], config["version"], config["n_builds"])
    assert counts == (len(index), shape.n_levels, shape.version, shape.rebuilds)
    # Every slot: the rows of the pages in use, from the front of each, and nothing else.
    assert len(ids) == shape.n_pages * PAGE_ROWS
    wanted = np.full((shape.n_pages, PAGE_ROWS), -1)
    for page in range(shape.n_pages):
        mine = index.page_ids(page)
        wanted[page, : mine.size] = mine
    np.testing.assert_array_equal(ids.reshape(-1, PAGE_ROWS), wanted)
    live = ids >= 0
    np.testing.assert_array_equal(rows[live].view(np.uint8), index.reconstruct(ids[live]).view(np.uint8))
    np.testing.assert_array_equal(np.sort(ids[live]), index.ids())
    # Pages and cells.
    assert read["pages"] == [tuple(page) for page in pages[["page", "cell", "n_rows"]].tolist()]
    np.testing.assert_array_equal(read["versions"][pages["page"]], pages["version"])
    assert sorted([*read["free"].tolist(), *pages["page"].tolist()]) == list(range(shape.n_pages))
    assert len(read["free"]) == shape.free_pages and config["pages_ever"] >= shape.n_pages
    changed, _ = index.changes(1)
    np.testing.assert_array_equal(np.flatnonzero(read["versions"] > 1), changed)
    # Levels: nodes are rows, each with one parent and promoted from the level below.
    assert tuple(map(len, read["levels"])) == shape.n_nodes
    assert np.isin([row_id for row_id, _, _ in read["levels"][0]], ids).all()
    for below, level in zip(read["levels"], read["levels"][1:]):
        assert sorted(chain.from_iterable(items for _, _, items in level)) == list(range(len(below)))
        assert {row_id for row_id, _, _ in level} <= {row_id for row_id, _, _ in below}
    assert read["mean"].shape == (13,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_every_row_and_node_lies_beneath_the_node_nearest_to_it(metric, dtype):
    index = of_kind("mdci", stored(normal(600, 12), dtype), metric, **DEEP)
    data = index.to_bytes()
    config, rows, ids, norms, _ = read_index(data)
    read, points = read_tree(data), points_of(config, rows, norms, ids >= 0)
    slot_of = {row_id: slot for slot, row_id in enumerate(ids.tolist()) if row_id >= 0}
    tolerance = 1e-5 * (points**2).sum(1).max()
    np.testing.assert_allclose(read["mean"][: points.shape[1]], points[ids >= 0].mean(0), atol=1e-4 * np.abs(points).max())
    below, parent, former = [], [], []
    for page, cell, n_rows in read["pages"]:
        below += range(page * PAGE_ROWS, page * PAGE_ROWS + n_rows)
        parent += [cell] * n_rows
    for level, nodes in enumerate(read["levels"]):
        slots = [slot_of[row_id] for row_id, _, _ in nodes]
        if level > 0:
            pairs = [(child, i) for i, (_, _, items) in enumerate(nodes) for child in items]
            below, parent = [former[child] for child, _ in pairs], [i for _, i in pairs]
        far = distances_to(points[below], points[slots])
        assert (far[np.arange(len(below)), parent] <= far.min(1) + tolerance).all(), level
        former = slots
