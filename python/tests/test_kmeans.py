# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci.kmeans: what it takes, and that its results are those of the model in kmeans_model.py."""

from __future__ import annotations

import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from conftest import DTYPES, METRICS, normal, stored, to_bits
from kmeans_model import assert_right, clustered, layer, lloyd
from test_context import run_all
from test_rows import unaligned

import dci
from dci._rows import as_problems
from dci.clusters import OUTPUTS

ARRAYS = OUTPUTS[:-1]


def assert_equal(found, wanted, names=ARRAYS):
    for name in names:
        got, want = getattr(found, name), getattr(wanted, name)
        assert (got is None) == (want is None), name
        if got is not None:
            np.testing.assert_array_equal(got, want, name)


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_results_are_those_of_the_model(metric, dtype):
    rows = stored(layer(3, 300, 24, 9), dtype)
    values = stored(normal(900, 10).reshape(3, 300, 10), dtype)
    form = {"dtype": dtype, "value_dtype": dtype}
    assert_right(dci.kmeans(rows, 9, metric=metric, values=values, **form), rows, values)
    assert_right(dci.kmeans(rows[1], 9, metric=metric, values=values[1], **form), rows[1], values[1])


@pytest.mark.parametrize("init", ["random", "plusplus", "even"])
@pytest.mark.parametrize("options", [{}, {"subtract_mean": "own"}, {"centroid": "mean"}, {"n_iter": 0}, {"n_iter": 1}])
def test_results_of_every_option_are_those_of_the_model(options, init):
    rows = layer(2, 257, 17, 12)
    assert_right(dci.kmeans(rows, 12, init=init, **options), rows)


@pytest.mark.parametrize(("n", "dim", "n_clusters"), [(1, 1, 1), (5, 3, 5), (33, 1, 4), (40, 130, 1), (64, 2, 64)])
def test_the_smallest_sizes(n, dim, n_clusters):
    rows = np.abs(normal(n, dim)) + 1
    for metric in METRICS:
        assert_right(dci.kmeans(rows, n_clusters, metric=metric), rows)


@pytest.mark.parametrize(("metric", "centroid"), [("cosine", "unit"), ("cosine", "mean"), ("l2", None), ("ip", None)])
def test_rounds_are_lloyds(metric, centroid):
    rows = normal(400, 12)
    start = rows[:6]
    found = dci.kmeans(rows, 6, metric=metric, centroid=centroid, n_iter=4, centroids=start)
    labels, centroids = lloyd(rows, start, metric, 4, centroid)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.centroids, centroids, rtol=1e-4, atol=1e-5)
    assert found.reports[0].n_rounds == 4 and found.reports[0].stop == "rounds"


def test_a_stable_result_does_not_change_by_another_round():
    rows = clustered(500, 16, 7)
    found = dci.kmeans(rows, 7, init="plusplus", n_iter=100)
    assert found.reports[0].stop == "stable"
    labels, centroids = lloyd(rows, found.centroids, "cosine", 1)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.centroids, centroids, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_starts_are_rows(metric):
    rows = normal(90, 8)
    even = dci.kmeans(rows, 6, metric=metric, init="even", n_iter=0)
    wanted = rows[(2 * np.arange(6) + 1) * 90 // 12].astype(np.float64)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True) if metric == "cosine" else 1
    np.testing.assert_allclose(even.centroids, wanted, atol=1e-5)
    for init in ("random", "plusplus"):
        # Under "l2" a row that is a centroid is nearest to itself.
        found = dci.kmeans(rows, 6, metric="l2", init=init, n_iter=0)
        where = [int(np.abs(rows - one).sum(1).argmin()) for one in found.centroids]
        np.testing.assert_allclose(found.centroids, rows[where], atol=1e-5)
        assert len(set(where)) == 6
        assert init == "plusplus" or where == sorted(where)


def test_kmeans_plusplus_finds_clusters_that_lie_apart():
    rows = clustered(400, 16, 8)
    found = dci.kmeans(rows, 8, metric="l2", init="plusplus", n_redo=4)
    np.testing.assert_array_equal(found.sizes, 50)
    assert found.reports[0].objective < 400 * 16 * 0.3**2 * 1.2


def test_the_best_of_several_runs_is_kept():
    rows = normal(300, 8)
    one = dci.kmeans(rows, 20)
    best = dci.kmeans(rows, 20, n_redo=8)
    report = best.reports[0]
    assert_right(best, rows)
    assert 0 <= report.best_redo < 8 and report.objective >= one.reports[0].objective
    assert report.n_rounds == len(report.rounds)


def test_values_of_another_format_and_width_are_summed():
    rows, values = layer(2, 130, 8, 5), normal(260, 33).reshape(2, 130, 33)
    for dtype in DTYPES:
        v = stored(values, dtype)
        assert_right(dci.kmeans(rows, 5, values=v, value_dtype=dtype), rows, v)


def test_rows_without_direction_are_refused_or_kept():
    rows = clustered(60, 8, 4)
    rows[[3, 17]] = 0
    with pytest.raises(dci.NumberError, match="row 3 of problem 0 has length 0"):
        dci.kmeans(rows, 4)
    found = dci.kmeans(rows, 4, zero_rows="keep")
    found.check()
    assert found.labels[[3, 17]].tolist() == [0, 0]
    others = np.delete(np.arange(60), [3, 17])
    labels, _ = lloyd(rows[others], found.centroids, "cosine", 0)
    np.testing.assert_array_equal(found.labels[others], labels)
    # Nothing but such rows; and a mean that makes such a row.
    dci.kmeans(np.zeros((5, 3), np.float32), 2, zero_rows="keep").check()
    with pytest.raises(dci.NumberError, match="row 0 of problem 0 has length 0"):
        dci.kmeans(np.ones((5, 3)), 2, subtract_mean="own")


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_are_all_alike_leave_clusters_empty(metric):
    rows = np.tile(normal(1, 8), (20, 1))
    found = dci.kmeans(rows, 4, metric=metric)
    assert_right(found, rows)
    assert found.reports[0].n_empty == 3 and sorted(found.sizes) == [0, 0, 0, 20]


def test_empty_clusters_are_repaired():
    rows = clustered(200, 8, 10)
    start = np.concatenate([rows[:8], -1000 * np.ones((2, 8), np.float32)])
    found = dci.kmeans(rows, 10, metric="l2", centroids=start)
    assert_right(found, rows)
    assert found.reports[0].n_repaired >= 2 and found.reports[0].n_empty == 0


# --- means, warm starts, segments, new rows beside old -----------------------------------------------------------------


def test_the_mean_is_subtracted_and_told():
    rows = layer(3, 100, 8, 4)
    found = dci.kmeans(rows, 4, subtract_mean="own")
    np.testing.assert_allclose(found.row_means, rows.mean(1), rtol=1e-5)
    given = dci.kmeans(rows, 4, subtract_mean=found.row_means)
    assert_equal(given, found)
    moved = dci.kmeans(rows - found.row_means[:, None], 4)
    np.testing.assert_array_equal(moved.labels, found.labels)
    assert not moved.row_means.any()


def test_a_warm_start_goes_on():
    rows = layer(2, 300, 8, 30)
    half = dci.kmeans(rows, 10, n_iter=3)
    on, whole = dci.kmeans(rows, 10, n_iter=4, centroids=half.centroids), dci.kmeans(rows, 10, n_iter=7)
    np.testing.assert_array_equal(on.labels, whole.labels)
    np.testing.assert_allclose(on.centroids, whole.centroids, atol=1e-5)
    # Under "cosine" centroids may have any length and any real format.
    for given in (1e3 * half.centroids, half.centroids.astype(np.float64), half.centroids.tolist()):
        same = dci.kmeans(rows, 10, n_iter=0, init="given", centroids=given)
        np.testing.assert_array_equal(same.labels, half.labels)


def test_segments_are_clustered_each_on_its_own():
    rows = normal(192, 8)
    parts = [dci.kmeans(rows[at : at + 64], 4, metric="l2", init="even") for at in (0, 64, 128)]
    for wish in (64, 40):  # rounded up to a multiple of 32
        found = dci.kmeans(rows, 12, metric="l2", init="even", segment_rows=wish)
        assert found.reports[0].n_repaired == 0
        np.testing.assert_allclose(found.centroids, np.concatenate([part.centroids for part in parts]), atol=1e-4)
        assert_right(found, rows)
        assert found.reports[0].n_rounds == max(part.reports[0].n_rounds for part in parts)
        assert len(found.reports[0].rounds) == 0
    on = dci.kmeans(rows, 12, metric="l2", init="even", segment_rows=64, n_iter_global=20)
    assert_right(on, rows)
    assert 0 < len(on.reports[0].rounds) <= 20 and on.reports[0].objective <= found.reports[0].objective


@pytest.mark.parametrize("segment_rows", [100, 10_000])
def test_segments_need_not_divide_the_rows(segment_rows):
    rows = layer(2, 333, 8, 6)
    assert_right(dci.kmeans(rows, 13, segment_rows=segment_rows, n_iter_global=2), rows)
    if segment_rows > 333:
        assert_equal(dci.kmeans(rows, 13, segment_rows=segment_rows), dci.kmeans(rows, 13))


def test_new_rows_are_appended_behind_old_ones():
    rows, values = clustered(500, 8, 5), normal(500, 3)
    old = dci.kmeans(rows[:300], 10, subtract_mean="own", values=values[:300])
    new = dci.kmeans(
        rows[300:], 6, subtract_mean=old.row_means, values=values[300:], first_row=300, first_cluster=10, first_problem=1
    )
    assert_right(new, rows[300:], values[300:])
    labels, ids = np.append(old.labels, new.labels), np.append(old.ids, new.ids)
    offsets = np.append(old.offsets[:-1], new.offsets)
    sums = np.concatenate([old.value_sums, new.value_sums])
    dci.KMeansResult(n=500, n_clusters=16, labels=labels, ids=ids, offsets=offsets).check()
    for c in range(16):
        mine = ids[offsets[c] : offsets[c + 1]]
        assert (labels[mine] == c).all()
        np.testing.assert_allclose(sums[c], values[mine].sum(0, dtype=np.float64), rtol=1e-4, atol=1e-4)


# --- the same bits -------------------------------------------------------------------------------------------------------


def test_a_call_for_many_problems_gives_the_bits_of_a_call_for_each():
    rows, values = layer(5, 200, 16, 8), normal(1000, 4).reshape(5, 200, 4)
    options = {"subtract_mean": "own", "n_redo": 2, "seed": 3}
    every = dci.kmeans(rows, 8, values=values, first_problem=7, **options)
    for p in range(5):
        one = dci.kmeans(rows[p], 8, values=values[p], first_problem=7 + p, **options)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(one, name), getattr(every, name)[p], name)
        np.testing.assert_array_equal(one.reports[0].rounds["objective"], every.reports[p].rounds["objective"])


@pytest.mark.parametrize("executor", ["openmp", "pthreads"])
def test_threads_do_not_change_the_bits(executor):
    rows = layer(3, 3000, 16, 40)
    wanted = dci.kmeans(rows, 40, context=dci.Context(threads=1, executor=executor))
    for threads in (2, 5):
        assert_equal(dci.kmeans(rows, 40, context=dci.Context(threads=threads, executor=executor)), wanted)


def test_the_seed_decides():
    rows = normal(300, 8)
    assert_equal(dci.kmeans(rows, 9, seed=5), dci.kmeans(rows, 9, seed=5))
    for other in ({"seed": 6}, {"seed": 5, "first_problem": 1}):
        assert (dci.kmeans(rows, 9, seed=5).labels != dci.kmeans(rows, 9, **other).labels).any()
    # Problems of one call draw from streams of their own.
    twice = dci.kmeans(np.stack([rows, rows]), 9, seed=5)
    assert (twice.labels[0] != twice.labels[1]).any()


def test_calls_run_side_by_side():
    rows = layer(2, 400, 8, 6)
    context = dci.Context(threads=2, executor="pthreads")
    wanted = [dci.kmeans(rows, 6, seed=seed, context=context) for seed in range(3)]

    def again(seed):
        for _ in range(10):
            assert_equal(dci.kmeans(rows, 6, seed=seed, context=context), wanted[seed])

    run_all([lambda seed=seed: again(seed) for seed in range(3)])


# --- what is taken and given -----------------------------------------------------------------------------------------

# name: how to lay out contiguous float32 problems, and whether the library can read that in place
LAYOUTS = {
    "contiguous": (lambda x: x, True),
    "token-major": (lambda x: np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2), True),
    "token-major beside others": (lambda x: np.repeat(x.transpose(1, 0, 2), 3, axis=1)[:, 1::3].transpose(1, 0, 2), True),
    "wider rows": (lambda x: np.pad(x, ((0, 0), (0, 0), (3, 5)))[..., 3:-5], True),
    "every other row": (lambda x: np.repeat(x, 2, axis=1)[:, ::2], True),
    "every other problem": (lambda x: np.repeat(x, 2, axis=0)[::2], True),
    "read only": (lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape), True),
    "Fortran": (np.asfortranarray, False),
    "every other element": (lambda x: np.repeat(x, 2, axis=2)[..., ::2], False),
    "reversed rows": (lambda x: x[:, ::-1].copy()[:, ::-1], False),
    "reversed problems": (lambda x: x[::-1].copy()[::-1], False),
    "unaligned": (unaligned, False),
    "big endian": (lambda x: x.astype(">f4"), False),
    "float64": (lambda x: x.astype(np.float64), False),
    "list": (lambda x: x.tolist(), False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_results(name):
    lay, in_place = LAYOUTS[name]
    rows, values = layer(3, 70, 24, 5), normal(3 * 70, 9).reshape(3, 70, 9)
    wanted = dci.kmeans(rows, 5, values=values)
    assert_equal(dci.kmeans(lay(rows), 5, values=lay(values)), wanted)
    assert_equal(dci.kmeans(lay(rows[:1])[0], 5), dci.kmeans(rows[0], 5))
    laid = lay(rows)
    taken = as_problems(laid, "rows")
    assert np.may_share_memory(taken.array, laid) == in_place
    assert taken[2:5] == (3, 70, 24)
    assert (taken.problem_ld * 4, taken.ld * 4) == taken.array.strides[:2]


def test_problems_that_share_memory_or_stand_alone():
    rows = clustered(100, 8, 5)
    # Windows over one array are read in place; the same problem twice has no distance, and is copied.
    windows = np.lib.stride_tricks.as_strided(rows, (3, 60, 8), (20 * 32, 32, 4))
    assert np.may_share_memory(as_problems(windows, "rows").array, rows)
    assert_equal(dci.kmeans(windows, 5), dci.kmeans(windows.copy(), 5))
    same = np.broadcast_to(rows, (2, 100, 8))
    assert_equal(dci.kmeans(same, 5, init="even"), dci.kmeans(same.copy(), 5, init="even"))
    for one in (rows[None], rows[::-1][:1], np.broadcast_to(rows[0], (1, 1, 8))):
        assert np.may_share_memory(as_problems(one, "rows").array, rows)
        assert_equal(dci.kmeans(one, 1), dci.kmeans(one.copy(), 1))


def test_formats_are_the_arrays_own():
    rows = to_bits(layer(2, 60, 8, 4))
    bits = {"dtype": "bfloat16", "value_dtype": "bfloat16"}
    wanted = dci.kmeans(rows, 4, values=rows, **bits)
    wide = (rows.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(dci.kmeans(wide, 4).labels, wanted.labels)
    assert_equal(dci.kmeans(rows.astype(">u2"), 4, values=rows.astype(">u2"), **bits), wanted)
    half = wide.astype(np.float16)
    assert_equal(dci.kmeans(half.astype(">f2"), 4), dci.kmeans(half, 4))
    assert_equal(dci.kmeans(np.int8([[1, 2], [3, -4]]), 2, init="even"), dci.kmeans([[1, 2], [3, -4]], 2, init="even"))
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert_equal(dci.kmeans(rows.view(bfloat16), 4, values=wide.astype(bfloat16)), wanted)
    start = wide[:, :4].astype(bfloat16)
    given = [dci.kmeans(rows, 4, dtype=bfloat16, centroids=one) for one in (start, wide[:, :4])]
    assert_equal(*given)


def test_shapes_and_types_of_the_arrays():
    rows, values = layer(3, 50, 8, 4), normal(150, 5).reshape(3, 50, 5)
    shapes = {
        "labels": (50,),
        "centroids": (4, 8),
        "means": (4, 8),
        "sizes": (4,),
        "offsets": (5,),
        "ids": (50,),
        "value_sums": (4, 5),
        "row_means": (8,),
    }
    for given, added, lead, n_problems in (
        (rows[0], values[0], (), None),
        (rows[:1], values[:1], (1,), 1),
        (rows, values, (3,), 3),
    ):
        found = dci.kmeans(given, 4, values=added)
        for name, shape in shapes.items():
            array = getattr(found, name)
            integers = name in ("labels", "sizes", "offsets", "ids")
            assert array.shape == lead + shape, name
            assert array.dtype == (np.int32 if integers else np.float32), name
        assert len(found.reports) == (n_problems or 1)
        assert (found.n, found.n_clusters, found.n_problems) == (50, 4, n_problems)
        assert repr(found).startswith("KMeansResult(") and "value_sums" in repr(found)
        with pytest.raises(FrozenInstanceError):
            found.labels = None


def test_only_the_outputs_asked_for_are_made():
    rows, values = layer(2, 80, 8, 4), normal(160, 3).reshape(2, 80, 3)
    whole = dci.kmeans(rows, 4, values=values)
    assert dci.kmeans(rows, 4).value_sums is None
    for names in (*((name,) for name in OUTPUTS), ("labels", "ids"), ["means", "value_sums"], "labels"):
        found = dci.kmeans(rows, 4, values=values, outputs=names)
        wanted = (names,) if isinstance(names, str) else names
        assert {name for name in OUTPUTS if getattr(found, name) is not None} == set(wanted)
        assert_equal(found, whole, [name for name in wanted if name != "reports"])


def test_calls_keep_no_reference_to_what_they_were_given():
    rows, values, start, mean = clustered(40, 8, 4), normal(40, 3), normal(4, 8), np.zeros(8, np.float32)
    given = (rows, values, start, mean)
    before = [sys.getrefcount(one) for one in given]
    found = dci.kmeans(rows, 4, values=values, centroids=start, subtract_mean=mean, progress=lambda done, total: None)
    found.check()
    assert [sys.getrefcount(one) for one in given] == before


def test_a_real_trace(keys):
    found = dci.kmeans(keys, 240, subtract_mean="own", values=keys)
    assert_right(found, keys, keys)
    report = found.reports[0]
    objectives = report.rounds["objective"]
    assert len(objectives) == report.n_rounds and (np.diff(objectives) > -1e-6 * objectives[1:]).all()
    assert report.objective >= objectives[-1] - 1e-6 * objectives[-1] > objectives[0]
    segments = dci.kmeans(keys, 240, subtract_mean="own", segment_rows=2048, n_iter=10)
    assert_right(segments, keys)
    assert segments.reports[0].objective > 0.9 * report.objective
