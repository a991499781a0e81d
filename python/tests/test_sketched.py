# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""An index with codes: what rerank and guarantee mean, fit, and that codes go where rows go."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import re

import numpy as np
import pytest
from conftest import (
    DTYPES,
    EXACT,
    FULL,
    METRICS,
    ROOT,
    TRACE,
    assert_same,
    normal,
    of_kind,
    recall,
    run_all,
    stored,
    to_bits,
)

import dci

BITS = (1, 2, 3, 4, 8)
KINDS = ("flat", "pdci", "mdci")
CASES = list(itertools.product(KINDS, METRICS))
# Small efforts that let codes choose among some rows only.
PARTIAL = {"flat": {"prop_to_visit": 1.0}, "pdci": {"prop_to_retrieve": 0.2}, "mdci": {"field_of_view": 8}}
OPTIONS = {"mdci": {"promotion_prob": 0.1, "promotion_prob_subseq": 0.3, "top_nodes": 8}}
SURE = {"rerank": 1, "guarantee": 1}


def made(kind, rows, metric="ip", bits=2, ids=None, **options):
    return of_kind(kind, rows, metric, ids, sketch_bits=bits, **OPTIONS.get(kind, {}), **options)


@pytest.fixture(scope="module")
def asked():
    """All queries of the trace, shuffled: (n, 64) float16."""
    return np.random.default_rng(6).permutation(np.load(TRACE / "queries.npy").reshape(-1, 64))


@pytest.fixture
def index(keys):
    return made("flat", keys[:2000])


def distances(index, *arguments, **options):
    return index.search(*arguments, stats=True, **options)[-1].distances


# --- what a search scores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "metric", "dtype"), list(itertools.product(KINDS, METRICS, DTYPES)))
def test_a_guarantee_of_1_is_exact(keys, queries, kind, metric, dtype):
    rows, q = stored(keys[:2000].astype(np.float32), dtype), stored(queries.astype(np.float32), dtype)
    groups = q.reshape(8, 5, 64)
    exact = of_kind("flat", rows, metric)
    wanted, grouped = exact.search(q, 20), exact.search_group(groups, 20)
    for bits in BITS:
        index = made(kind, rows, metric, bits)
        for _ in ("random rotation", "learned"):
            assert_same(index.search(q, 20, **SURE), wanted)
            assert_same(index.search(q[0], 20, guarantee=1.0), (wanted[0][0], wanted[1][0]))
            assert_same(index.search_group(groups, 20, **SURE), grouped)
            assert_same(index.search_group(groups, 20, union=True, **SURE), exact.search_group(groups, 20, union=True))
            index.fit(q)


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_an_infinite_rerank_is_an_index_without_codes(keys, queries, kind, metric):
    plain = of_kind(kind, keys[:2000], metric, **OPTIONS.get(kind, {}))
    index = made(kind, keys[:2000], metric, 1)
    for effort in ({}, PARTIAL[kind]):
        wanted = plain.search(queries, 20, **effort)
        assert_same(index.search(queries, 20, rerank=math.inf, **effort), wanted)
        # A guarantee is for what codes left out.
        assert_same(index.search(queries, 20, rerank=math.inf, guarantee=0.5, **effort), wanted)
    # As many as there are is all of them.
    assert_same(index.search(queries, 20, rerank=100), plain.search(queries, 20))


@pytest.mark.parametrize("bits", BITS)
def test_rerank_says_how_many_rows_are_scored(keys, queries, bits):
    index, k = made("flat", keys, bits=bits), 10
    usual = {1: 16, 2: 8, 3: 4, 4: 3, 8: 2}[bits]
    for rerank in (0, usual):  # of an effort; without one the recall says it
        assert distances(index, queries, k, prop_to_visit=1.0, rerank=rerank) == distances(index, queries, k, rerank=usual)
    for rerank in (1, 1.25, 6.0, np.float32(7)):
        wanted = math.ceil(rerank * k) * len(queries)
        assert wanted <= distances(index, queries, k, rerank=rerank) <= 1.125 * wanted
    *_, stats = index.search(queries, k, rerank=usual, stats=True)
    assert stats.visited == stats.proposed == len(queries) * len(keys) and stats.candidates == stats.distances
    exact, _ = index.search(queries, k, rerank=math.inf)
    recalls = [recall(index.search(queries, k, rerank=many)[0], exact) for many in (1, 4, 32)]
    assert recalls == sorted(recalls) and recalls[-1] > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_codes_choose_among_the_rows_of_a_partial_effort(keys, queries, kind):
    index, effort = made(kind, keys[:3000], "l2"), PARTIAL[kind]
    offsets, every, _, looked_at = index.range_search(queries, math.inf, stats=True, **effort)
    ids, _, stats = index.search(queries, 10, stats=True, **effort)
    for i, some in enumerate(ids):
        assert np.isin(some, every[offsets[i] : offsets[i + 1]]).all()
    assert 80 * len(queries) <= stats.distances <= 90 * len(queries) < looked_at.distances
    assert_same(index.search(queries, 10, **SURE, **effort), index.search(queries, 10, rerank=math.inf, **effort))


@pytest.mark.parametrize("bits", [1, 4])
def test_a_guarantee_that_may_fail_scores_fewer_rows_and_rarely_does(keys, queries, bits):
    index = made("flat", keys, bits=bits)
    wanted, _ = index.search(queries, 10, rerank=math.inf)
    counts = [distances(index, queries, 10, rerank=1, guarantee=chance) for chance in (0, 0.5, 0.99, 1)]
    assert counts == sorted(counts) and counts[0] < 12 * len(queries) and counts[2] < counts[3] <= len(keys) * len(queries)
    assert recall(index.search(queries, 10, rerank=1, guarantee=0.99)[0], wanted) >= 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_a_range_search_scores_all_it_looks_at(keys, queries, kind):
    plain, index = of_kind(kind, keys[:2000], **OPTIONS.get(kind, {})), made(kind, keys[:2000], bits=1)
    radius = float(plain.search(queries, 30)[1].min())
    for effort in ({}, PARTIAL[kind]):
        wanted = plain.range_search(queries, radius, **effort)
        assert len(wanted[1]) > 0
        assert_same(index.range_search(queries, radius, **effort), wanted)
        assert_same(index.range_search(queries, radius, rerank=1, guarantee=0.1, **effort), wanted)


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_a_filter_admits_as_ever(keys, queries, kind, metric):
    rows = keys[:2000]
    exact, index = of_kind("flat", rows, metric), made(kind, rows, metric)
    allowed = np.arange(0, 2000, 3)
    mask = np.zeros(2000, bool)
    mask[allowed] = True
    wanted, few = exact.search(queries, 20, filter=allowed), np.array([7, 8])
    for one in (allowed, mask, dci.Bitmap.from_mask(mask), lambda row_id: row_id % 3 == 0):
        assert_same(index.search(queries, 20, filter=one, **SURE), wanted)
        ids, _ = index.search(queries, 5, filter=one)
        assert (ids % 3 == 0).all() and recall(ids, wanted[0][:, :5]) > 0.8
    assert_same(index.search(queries, 20, filter=few, **SURE), exact.search(queries, 20, filter=few))


@pytest.mark.parametrize("kind", KINDS)
def test_less_than_k_rows_are_padded(kind):
    index = made(kind, normal(5, 8), bits=1)
    for effort in ({}, {"rerank": 1}, SURE):
        ids, scores = index.search(normal(3, 8, seed=2), 9, **effort)
        assert (np.sort(ids[:, :5]) == np.arange(5)).all() and (ids[:, 5:] == -1).all() and np.isnan(scores[:, 5:]).all()
    ids, _ = dci.Index(8, kind=kind, sketch_bits=1).search(normal(2, 8), 2, **SURE)
    assert (ids == -1).all()


def test_cosine_of_rows_and_queries_that_are_zero():
    rows, q = normal(300, 16), normal(4, 16, seed=2)
    rows[::7] = 0
    q[1] = 0
    exact = of_kind("flat", rows, "cosine", zero_rows="keep")
    index = made("flat", rows, "cosine", zero_rows="keep")
    assert_same(index.search(q, 30, **SURE), exact.search(q, 30))


# --- fit ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_fit_finds_more_at_one_bit(keys, asked, kind, metric):
    index = made(kind, keys, metric, 1)
    wanted, _ = index.search(asked[200:400], 20, rerank=math.inf)
    before = recall(index.search(asked[200:400], 20, rerank=1)[0], wanted)
    index.fit(asked[:200])
    after = recall(index.search(asked[200:400], 20, rerank=1)[0], wanted)
    assert after > before + 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_rows_added_after_a_fit_are_coded_by_it(keys, asked, kind):
    index = made(kind, keys[:4000], bits=1)
    index.fit(asked[:200])
    index.add(keys[4000:])
    wanted, _ = index.search(asked[200:400], 20, rerank=math.inf)
    found = recall(index.search(asked[200:400], 20, rerank=1)[0], wanted)
    unfitted = recall(made(kind, keys, bits=1).search(asked[200:400], 20, rerank=1)[0], wanted)
    assert found > unfitted


def test_fit_takes_queries_as_search_does(keys, asked):
    """One of them, other strides, lists, and input_dtype; what is given is neither kept nor changed."""
    index, wide = made("flat", keys[:500]), made("flat", keys[:500], input_dtype="float32")
    some = asked[:100]
    index.fit(some)
    wanted = index.to_bytes()
    spread = np.zeros((100, 80), np.float16)
    spread[:, :64] = some
    for same in (some.copy(), spread[:, :64], np.asfortranarray(some), some[::-1][::-1]):
        before = same.copy()
        index.fit(same)
        np.testing.assert_array_equal(same, before)
        assert index.to_bytes() == wanted
    wide.fit(some.astype(np.float32))
    assert_same(wide.search(some.astype(np.float32), 9), index.search(some, 9))
    wide.fit(some.astype(np.float64).tolist())
    index.fit(some[0])
    small, q = made("flat", to_bits(normal(40, 8))), to_bits(normal(3, 8, 3))
    small.fit(to_bits(normal(20, 8, 2)))
    assert_same(small.search(q, 4, **SURE), small.search(q, 4, rerank=math.inf))


def test_fits_searches_and_adds_go_side_by_side(keys, queries):
    context = dci.Context(threads=1)
    index = made("flat", keys[:1000], context=context)
    exact = {n: of_kind("flat", keys[:n]).search(queries[:4], 5) for n in range(1000, 1201, 50)}

    def fits():
        for at in (0, 10, 20):
            index.fit(queries[at : at + 10])

    def adds():
        for n in range(1000, 1200, 50):
            index.add(keys[n : n + 50])

    def searches():
        for _ in range(40):
            ids, scores = index.search(queries[:4], 5, **SURE)
            assert any(np.array_equal(ids, want) and np.array_equal(scores, good) for want, good in exact.values())

    run_all([fits, adds, searches, searches])
    assert len(index) == 1200


# --- rows come and go -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_codes_come_and_go_with_rows(kind, metric, storage):
    rows, q = normal(1500, 24) + np.float32(1), normal(10, 24, seed=2)
    rows[600:] += 3  # another centre
    index = dci.Index(24, metric, kind=kind, sketch_bits=2, storage=storage, **OPTIONS.get(kind, {}))
    plain = dci.Index(24, metric)

    def check():
        assert_same(index.search(q, 15, **SURE), plain.search(q, 15))
        wanted, _ = plain.search(q, 15)
        assert recall(index.search(q, 15)[0], wanted) > 0.7

    for one in (index, plain):
        one.add(rows[:7])
        one.add(rows[7:600])
    check()
    for one in (index, plain):
        one.remove(np.arange(0, 600, 2))
        one.add(rows[600:1100])
    check()
    index.fit(q)
    for one in (index, plain):
        one.remove(np.arange(1, 600, 2))
        one.add(rows[1100:])
    check()
    for one in (index, plain):
        one.remove(one.ids())
        one.add(rows[:50])
    check()


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize(("kind", "metric"), CASES)
def test_what_is_loaded_mapped_or_unpickled_answers_the_same(keys, queries, kind, metric, fitted, tmp_path):
    index = made(kind, keys[:1500], metric, 3, ids=np.arange(1500) * 7, seed=2**64 - 1)
    if fitted:
        index.fit(queries)
    index.set_defaults(rerank=1.5, guarantee=0.25)
    index.save(tmp_path / "index")
    wanted, sure = index.search(queries, 9), index.search(queries, 9, **SURE)
    for again in (
        dci.Index.load(tmp_path / "index"),
        dci.Index.map(tmp_path / "index"),
        dci.Index.from_bytes(index.to_bytes()),
        pickle.loads(pickle.dumps(index)),
        copy.deepcopy(index),
    ):
        assert again.sketch_bits == 3
        assert again.get_defaults() == {**FULL, "rerank": 1.5, "guarantee": 0.25}
        assert_same(again.search(queries, 9), wanted)
        assert_same(again.search(queries, 9, **SURE), sure)
        assert again.to_bytes() == index.to_bytes()


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_index_goes_on_as_the_saved_one_would(kind, fitted):
    """In the middle of rows that decide about a centre, and emptied: what was learned stays."""
    index = made(kind, normal(5, 16))
    if fitted:
        index.fit(normal(50, 16, seed=3))
    for step in range(6):
        again = dci.Index.from_bytes(index.to_bytes())
        for one in (index, again):
            one.add(normal(20, 16, seed=4 + step) + np.float32(3 * step))
        assert index.to_bytes() == again.to_bytes()
        index.remove(index.ids()[::3])
    for gone in (index.ids()[10:], index.ids()[:10]):
        index.remove(gone)
        again = dci.Index.from_bytes(index.to_bytes())
        for one in (index, again):
            one.add(normal(3, 16, seed=2), [2000, 2001, 2002])
            one.remove([2000, 2001, 2002])
            one.add(normal(100, 16, seed=3), np.arange(3000, 3100))
            one.remove(np.arange(3000, 3100))
        assert index.to_bytes() == again.to_bytes()


def test_memory_says_what_codes_cost(keys):
    report = made("flat", keys, bits=4).memory()
    assert report["codes"] >= len(keys) * (64 // 2 + 8)
    assert report["total"] == sum(size for part, size in report.items() if part != "total")
    assert of_kind("flat", keys).memory()["codes"] == 0
    assert made("flat", keys, "l2", bits=4).memory()["codes"] >= len(keys) * (64 // 2 + 12)


# --- where effort is given ------------------------------------------------------------------------------------------------


def test_defaults_hold_in_every_search_that_does_not_say_otherwise(index, queries):
    groups = queries.reshape(8, 5, 64)
    wanted, grouped = index.search(queries, 5, rerank=1), index.search_group(groups, 5, rerank=1)
    exact = index.search(queries, 5, rerank=math.inf)
    assert not np.array_equal(wanted[0], exact[0])
    index.set_defaults(rerank=1)
    assert index.get_defaults() == {**FULL, "rerank": 1.0}
    assert_same(index.search(queries, 5), wanted)
    assert_same(index.search(queries, 5, guarantee=0), wanted)
    assert_same(index.search_group(groups, 5), grouped)
    assert_same(index.search(queries, 5, guarantee=1), exact)
    assert_same(index.search(queries, 5, rerank=math.inf), exact)
    index.set_defaults(rerank=math.inf, guarantee=0.5)
    assert index.get_defaults() == {**FULL, "rerank": math.inf, "guarantee": 0.5}
    index.set_defaults(**index.get_defaults())
    assert index.get_defaults() == {**FULL, "rerank": math.inf, "guarantee": 0.5}
    assert dci.Index.from_bytes(index.to_bytes()).get_defaults() == index.get_defaults()
    assert_same(index.search(queries, 5), exact)
    index.set_defaults()
    assert index.get_defaults() == EXACT


@pytest.mark.parametrize("kind", KINDS)
def test_tune_chooses_a_rerank(keys, asked, kind):
    index = made(kind, keys[:3000], bits=4)
    found = index.tune(asked[:200], 20, 0.9, cost="distances")
    effort = index.get_defaults()
    names = ("prop_to_visit", "prop_to_retrieve", "rerank")
    assert tuple(effort[name] for name in names) == tuple(getattr(found, name) for name in names)
    assert found.rerank >= 1 and found.n_efforts >= 1 and found.distances < 300
    assert found.rerank < math.inf or kind == "mdci"  # whose cells may be fewer bytes than their codes and those of more
    assert found.recall >= 0.9 and found.recall_held_out >= 0.85
    wanted, _ = of_kind("flat", keys[:3000]).search(asked[200:400], 20)
    assert recall(index.search(asked[200:400], 20)[0], wanted) >= 0.85
    assert index.tune(asked[:10], 20, 1.0).rerank == index.get_defaults()["rerank"] == math.inf
    assert of_kind(kind, keys[:100]).tune(asked[:10], 5, 0.5).rerank == 0


@pytest.mark.parametrize(
    ("name", "bad", "sentence"),
    [
        *(("rerank", bad, f"rerank is {bad:g}, expected at least 1, or 0") for bad in (0.5, -1.0, math.nan, -math.inf)),
        *(("guarantee", bad, f"guarantee is {bad:g}, expected 0 to 1") for bad in (1.5, -0.5, math.nan, math.inf)),
    ],
)
@pytest.mark.parametrize("bits", [0, 2])
def test_what_rerank_and_guarantee_cannot_be(name, bad, sentence, bits):
    index = made("flat", normal(20, 4), bits=bits)
    for call in (
        lambda: index.search(normal(1, 4), 1, **{name: bad}),
        lambda: index.search_group(normal(2, 4), 1, **{name: bad}),
        lambda: index.range_search(normal(1, 4), 1.0, **{name: bad}),
        lambda: index.set_defaults(**{name: bad}),
    ):
        with pytest.raises(dci.InvalidError, match=sentence if bits else "needs an index with sketch_bits"):
            call()
    for bad_type in ("1", [1.0], object()):
        with pytest.raises(TypeError):
            index.search(normal(1, 4), 1, **{name: bad_type})
    assert index.get_defaults() == EXACT


@pytest.mark.parametrize("kind", KINDS)
def test_without_codes_there_is_no_rerank_and_no_guarantee(keys, queries, kind):
    index = of_kind(kind, keys[:1000])
    assert index.sketch_bits == 0
    for name, value in (("rerank", 1), ("rerank", math.inf), ("guarantee", 0.5)):
        with pytest.raises(dci.InvalidError, match=f"{name} is {value}: it needs an index with sketch_bits"):
            index.search(queries, 9, **{name: value})
    assert_same(index.search(queries, 9, rerank=0, guarantee=0), index.search(queries, 9))


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"sketch_bits": 5}, dci.InvalidError, "sketch_bits is 5, expected 1, 2, 3, 4 or 8, or 0 for none"),
        ({"sketch_bits": 16}, dci.InvalidError, "sketch_bits is 16, expected 1, 2, 3, 4 or 8, or 0 for none"),
        ({"sketch_bits": -1}, dci.InvalidError, "sketch_bits is -1"),
        ({"sketch_bits": 2**31}, dci.InvalidError, "sketch_bits is 2147483648"),
        ({"sketch_bits": 2.0}, TypeError, "float"),
        ({"dim": 32737, "sketch_bits": 1}, dci.LimitError, "dim is 32737, with sketch_bits at most 32736"),
        ({"kind": "mdci", "page_rows": 8, "sketch_bits": 1}, dci.InvalidError, "page_rows is 8, with sketch_bits"),
    ],
)
def test_codes_that_cannot_be_are_refused(options, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        dci.Index(**{"dim": 8, **options})


def test_a_fit_that_cannot_be_is_refused_and_changes_nothing(tmp_path):
    index, q = made("flat", normal(50, 8)), normal(4, 8, seed=2)
    before = index.to_bytes()
    bad = q.copy()
    bad[2, 5] = np.nan
    for wrong, error, sentence in (
        (q[:0], dci.InvalidError, "there are no queries"),
        (bad, dci.NumberError, "2"),
        (np.zeros((3, 8), np.float32), dci.NumberError, "mean square is 0"),
        (normal(4, 9), dci.InvalidError, "9"),
        ("queries", TypeError, "queries"),
    ):
        with pytest.raises(error, match=sentence):
            index.fit(wrong)
    assert index.to_bytes() == before
    with pytest.raises(dci.UnsupportedError, match="sketch_bits is 0"):
        of_kind("flat", normal(50, 8)).fit(q)
    with pytest.raises(dci.NumberError, match="the index is empty"):
        dci.Index(8, sketch_bits=1).fit(q)
    with pytest.raises(dci.LimitError, match="dimension 1025 is more than a transform can be learned for, 1024"):
        dci.Index(1025, sketch_bits=1).fit(normal(1, 1025))
    index.save(tmp_path / "index")
    with pytest.raises(dci.UnsupportedError, match="mapped"):
        dci.Index.map(tmp_path / "index").fit(q)
    index.close()
    with pytest.raises(dci.InvalidError, match="closed"):
        index.fit(q)
    assert index.sketch_bits == 2


def test_the_readmes_example_runs():
    section = (ROOT / "python" / "README.md").read_text().split("\n## Codes\n")[1].split("\n## ")[0]
    example = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    names = {"dci": dci, "np": np, "keys": normal(10_000, 64)}
    exec(example, names)
    assert names["ids"].shape == names["scores"].shape == (5, 10)
    assert_same((names["ids"], names["scores"]), of_kind("flat", names["keys"]).search(names["keys"][:5], 10))
    assert names["found"].rerank >= 1 and names["found"].recall >= 0.95
