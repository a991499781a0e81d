# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci.kmeans: refusals, progress and Ctrl-C, reports, results that are checked, clusters of bounded size."""

from __future__ import annotations

import pickle
import signal
from dataclasses import replace

import numpy as np
import pytest
from conftest import METRICS, normal
from kmeans_model import assert_right, closeness, clustered, layer

import dci
from dci import _guard
from dci.clusters import OUTPUTS, ROUND

ROWS = clustered(60, 8, 4)


def with_value(value, at, rows=ROWS):
    out = rows.copy()
    out[at] = value
    return out


# --- refusals ----------------------------------------------------------------------------------------------------------

# the arguments, the exception, a part of the sentence
REFUSED = {
    "nan": ((with_value(np.nan, (7, 1)), 4), {}, dci.NumberError, "row 7 of problem 0 holds NaN"),
    "infinity": ((with_value(np.inf, (2, 7, 1), layer(3, 60, 8, 4)), 4), {}, dci.NumberError, "row 7 of problem 2"),
    "a double beyond float32": ((with_value(1e300, (7, 1), ROWS.astype(float)), 4), {}, dci.NumberError, "row 7"),
    "no clusters": ((ROWS, 0), {}, dci.InvalidError, "n_clusters is 0"),
    "negative clusters": ((ROWS, -1), {}, dci.InvalidError, "n_clusters is -1"),
    "too many clusters": ((ROWS, 61), {}, dci.InvalidError, "61 clusters of 60 rows"),
    "far too many clusters": ((ROWS, 2**62), {}, dci.InvalidError, "4611686018427387904 clusters of 60 rows"),
    "clusters not whole": ((ROWS, 2.5), {}, TypeError, "float"),
    "no rows": ((ROWS[:0], 1), {}, dci.InvalidError, "0 rows"),
    "no elements": ((ROWS[:, :0], 1), {}, dci.InvalidError, "dim is 0"),
    "no problems": ((ROWS[None][:0], 1), {}, dci.InvalidError, "n_problems is 0"),
    "one row": ((ROWS[0], 1), {}, dci.InvalidError, "rows has shape (8,), wanted (n, dim) or (n_problems, n, dim)"),
    "four axes": ((ROWS[None, None], 1), {}, dci.InvalidError, "rows has shape (1, 1, 60, 8)"),
    "complex rows": ((ROWS.astype(complex), 4), {}, TypeError, "rows is complex128"),
    "words": (([["a", "b"]], 1), {}, TypeError, "rows is str"),
    "metric": ((ROWS, 4), {"metric": "max"}, dci.InvalidError, "metric is 'max', wanted one of 'l2', 'ip', 'cosine'"),
    "init": ((ROWS, 4), {"init": "best"}, dci.InvalidError, "init is 'best', wanted one of 'random', 'plusplus'"),
    "given nothing": ((ROWS, 4), {"init": "given"}, dci.InvalidError, "centroids is None"),
    "init and centroids": ((ROWS, 4), {"init": "even", "centroids": ROWS[:4]}, dci.InvalidError, "centroids is given"),
    "centroid": ((ROWS, 4), {"centroid": "median"}, dci.InvalidError, "centroid is 'median'"),
    "centroid of l2": ((ROWS, 4), {"metric": "l2", "centroid": "mean"}, dci.InvalidError, "cosine metric"),
    "zero rows": ((ROWS, 4), {"zero_rows": "drop"}, dci.InvalidError, "zero_rows is 'drop'"),
    "zero rows of ip": ((ROWS, 4), {"metric": "ip", "zero_rows": "keep"}, dci.InvalidError, "cosine metric"),
    "mean": ((ROWS, 4), {"subtract_mean": "given"}, dci.InvalidError, "subtract_mean is 'given', wanted one of 'own'"),
    "mean's shape": ((ROWS, 4), {"subtract_mean": ROWS[:2]}, dci.InvalidError, "has shape (2, 8), wanted (8,)"),
    "mean's values": ((ROWS, 4), {"subtract_mean": np.full(8, np.nan)}, dci.NumberError, "mean of problem 0"),
    "words as mean": ((ROWS, 4), {"subtract_mean": ["a"] * 8}, TypeError, "subtract_mean is str"),
    "starts as init": ((ROWS, 4), {"init": ROWS[:4]}, dci.InvalidError, "init is an ndarray: starting points are"),
    "format": ((ROWS, 4), {"dtype": "float16"}, TypeError, "rows is float32, the call takes float16"),
    "centroids' shape": ((ROWS, 4), {"centroids": ROWS[:3]}, dci.InvalidError, "centroids has shape (3, 8), wanted (4, 8)"),
    "centroids' values": ((ROWS, 4), {"centroids": with_value(np.inf, (2, 0))[:4]}, dci.NumberError, "centroid 2 of"),
    "zero centroid": ((ROWS, 4), {"centroids": with_value(0, 2)[:4]}, dci.NumberError, "0 has length 0"),
    "negative rounds": ((ROWS, 4), {"n_iter": -1}, dci.InvalidError, "n_iter is -1"),
    "tolerance": ((ROWS, 4), {"tolerance": 1.5}, dci.InvalidError, "tolerance is 1.5"),
    "tolerance nan": ((ROWS, 4), {"tolerance": np.nan}, dci.InvalidError, "tolerance is"),
    "no run": ((ROWS, 4), {"n_redo": 0}, dci.InvalidError, "n_redo is 0"),
    "same run again": ((ROWS, 4), {"n_redo": 2, "init": "even"}, dci.InvalidError, "n_redo is 2"),
    "seed": ((ROWS, 4), {"seed": -1}, dci.InvalidError, "seed is -1"),
    "capacity": ((ROWS, 4), {"capacity": 14}, dci.InvalidError, "4 clusters of at most 14 rows do not hold 60 rows"),
    "segments from centroids": (
        (ROWS, 4),
        {"segment_rows": 32, "centroids": ROWS[:4]},
        dci.InvalidError,
        "given centroids belong to no segment",
    ),
    "rounds over no segments": ((ROWS, 4), {"n_iter_global": 1}, dci.InvalidError, "n_iter_global is 1 without segments"),
    "values' rows": ((ROWS, 4), {"values": ROWS[:59]}, dci.InvalidError, "values has shape (59, 8), wanted (60, value_dim)"),
    "values' axes": ((ROWS, 4), {"values": ROWS[None]}, dci.InvalidError, "values has shape (1, 60, 8)"),
    "values' type": ((ROWS, 4), {"values": ROWS * 1j}, TypeError, "values is complex64"),
    "first row": ((ROWS, 4), {"first_row": 2**31}, dci.LimitError, "2147483648"),
    "first cluster": ((ROWS, 4), {"first_cluster": 2**31}, dci.LimitError, "2147483648"),
    "outputs": ((ROWS, 4), {"outputs": ("labels", "lables")}, dci.InvalidError, "outputs names 'lables', wanted 'labels'"),
    "no outputs": ((ROWS, 4), {"outputs": ()}, dci.InvalidError, "outputs names nothing"),
    "sums of nothing": ((ROWS, 4), {"outputs": ("value_sums",)}, dci.InvalidError, "values is None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_its_exception_with_a_sentence(name):
    arguments, options, error, part = REFUSED[name]
    with pytest.raises(error) as caught:
        dci.kmeans(*arguments, **options)
    assert part in str(caught.value) and "\n" not in str(caught.value)


# --- progress and Ctrl-C -----------------------------------------------------------------------------------------------


def test_progress_is_told_and_changes_nothing():
    told = []
    found = dci.kmeans(ROWS, 4, n_redo=3, progress=lambda done, total: told.append((done, total)))
    np.testing.assert_array_equal(found.labels, dci.kmeans(ROWS, 4, n_redo=3).labels)
    done, total = np.array(told).T
    assert (np.diff(done) >= 0).all() and (done <= total).all() and len(set(total)) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_may_cancel(threads):
    rows, told = layer(8, 2000, 16, 30), []

    def stop(done, total):
        told.append(done)
        return len(told) == 1

    with pytest.raises(dci.CancelledError, match="after"):
        dci.kmeans(rows, 30, progress=stop, context=dci.Context(threads=threads))
    assert told


@pytest.mark.parametrize("raised", [ZeroDivisionError("told so"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_of_progress_ends_the_call_with_itself(raised):
    told = []

    def fails(done, total):
        told.append(done)
        raise raised

    with pytest.raises(type(raised)) as caught:
        dci.kmeans(ROWS, 4, progress=fails)
    assert caught.value is raised and len(told) == 1


def test_a_signal_during_the_call_ends_it():
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        dci.kmeans(ROWS, 4, progress=lambda done, total: signal.raise_signal(signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is handler


def test_long_calls_are_watched(monkeypatch):
    wanted = dci.kmeans(ROWS, 4)
    monkeypatch.setattr(_guard, "WATCHED_WORK", 0)
    for name in ("labels", "centroids"):
        np.testing.assert_array_equal(getattr(dci.kmeans(ROWS, 4), name), getattr(wanted, name))
    report = _guard.CallGuard._report

    def interrupted(self, ctx, done, total):
        signal.raise_signal(signal.SIGINT)
        return report(self, ctx, done, total)

    monkeypatch.setattr(_guard.CallGuard, "_report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dci.kmeans(ROWS, 4)


# --- reports -------------------------------------------------------------------------------------------------------------


def test_reports_say_why_rounds_ended_and_list_them():
    rows = normal(400, 8)
    for options, stop in (
        ({"n_iter": 2}, "rounds"),
        ({"n_iter": 1000}, "stable"),
        ({"n_iter": 1000, "tolerance": 0.05}, "tolerance"),
        ({"n_iter": 0}, "rounds"),
    ):
        report = dci.kmeans(rows, 10, **options).reports[0]
        assert report.stop == stop and report.best_redo == 0
        assert report.rounds.dtype == ROUND and report.rounds.shape == (report.n_rounds,)
        if not options["n_iter"]:
            continue
        assert report.n_rounds <= options["n_iter"]
        assert report.rounds["n_moved"][0] == 400 and (report.rounds["n_moved"] <= 400).all()
        assert (np.diff(report.rounds["seconds"]) >= 0).all() and report.rounds["seconds"][-1] <= report.seconds
        assert (np.diff(report.rounds["objective"]) >= -1e-3).all()
        assert stop != "stable" or report.rounds["n_moved"][-1] == 0


def test_rounds_without_end_take_no_room():
    report = dci.kmeans(layer(2, 200, 4, 5), 5, n_iter=2**62).reports[1]
    assert report.stop == "stable" and len(report.rounds) == report.n_rounds


# --- results from elsewhere ------------------------------------------------------------------------------------------------

WHOLE = dci.kmeans(layer(2, 60, 8, 4), 4, first_row=100, first_cluster=50)


def damaged(name, at, value):
    array = getattr(WHOLE, name).copy()
    array[at] = value
    return {name: array}


def swapped(name, at, other):
    array = getattr(WHOLE, name).copy()
    array[at], array[other] = array[other], array[at]
    return {name: array}


# Without what sizes could be compared with.
ALONE = dict.fromkeys(("labels", "offsets", "ids"))

# what is put in place of the result's own, a part of the sentence
DAMAGE = {
    "label too large": (damaged("labels", (1, 7), 54), "problem 1: label of row 7 is 54, expected 50 to 53"),
    "label too small": (damaged("labels", (1, 7), 49), "problem 1: label of row 7 is 49, expected 50 to 53"),
    "other label": (damaged("labels", (1, 7), 50 + (WHOLE.labels[1, 7] - 49) % 4), "problem 1: cluster"),
    "size": (damaged("sizes", (0, 2), WHOLE.sizes[0, 2] + 1), "problem 0: size of cluster 2"),
    "first offset": (damaged("offsets", (1, 0), 99), "problem 1: offsets run from 99 to 160, expected 100 to 160"),
    "last offset": (damaged("offsets", (1, 4), 161), "problem 1: offsets run from 100 to 161"),
    "falling offset": (damaged("offsets", (1, 1), 159), "problem 1: offset 2 is"),
    "other offset": (damaged("offsets", (1, 1), WHOLE.offsets[1, 1] + 1), "problem 1: cluster 0"),
    "id too large": (damaged("ids", (0, 5), 160), "problem 0: id 5 is 160, expected 100 to 159"),
    "id too small": (damaged("ids", (0, 5), 99), "problem 0: id 5 is 99"),
    "id twice": (damaged("ids", (0, 5), WHOLE.ids[0, 4]), "occurs twice"),
    "ids out of order": (swapped("ids", (0, 1), (0, 2)), "problem 0: id"),
    "ids of other clusters": (swapped("ids", (0, 0), (0, 59)), "problem 0: id"),
    "centroid nan": (damaged("centroids", (1, 3, 2), np.nan), "problem 1: centroid 3 holds NaN or infinity"),
    "centroid zero": (damaged("centroids", (1, 3), 0), "problem 1: centroid 3 is zero"),
    "mean infinite": (damaged("means", (0, 1, 7), -np.inf), "problem 0: mean 1 holds NaN or infinity"),
    "beyond the capacity": (
        {**ALONE, "capacity": 15, "sizes": np.int32([[15] * 4, [14, 16, 15, 15]])},
        "problem 1: cluster 1 has 16 rows, its capacity is 15",
    ),
    "too few rows": ({**ALONE, "sizes": np.int32([[15] * 4, [15, 15, 15, 14]])}, "problem 1: sizes add up to 59"),
    "other first row": ({"first_row": 101}, "problem 0: offsets run from 100 to 160, expected 101 to 161"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_check_finds_damage(name):
    change, part = DAMAGE[name]
    WHOLE.check()
    with pytest.raises(dci.FormatError) as caught:
        replace(WHOLE, **change).check()
    assert part in str(caught.value)


def test_check_finds_a_negative_size():
    with pytest.raises(dci.FormatError, match="problem 0"):
        replace(WHOLE, **ALONE, sizes=np.int32([[61, -1, 0, 0]] * 2)).check()


def test_check_leaves_out_what_is_missing():
    for name in OUTPUTS[:6]:
        arrays = {one: getattr(WHOLE, one) if one == name else None for one in OUTPUTS}
        replace(WHOLE, **arrays).check()
    with pytest.raises(dci.InvalidError, match="nothing is wanted"):
        dci.KMeansResult(n=60, n_clusters=4, row_means=np.zeros(8, np.float32)).check()
    # Any layout of the right shape.
    replace(WHOLE, centroids=np.asfortranarray(WHOLE.centroids), labels=np.repeat(WHOLE.labels, 2, axis=1)[:, ::2]).check()
    replace(WHOLE, centroids=np.zeros_like(WHOLE.centroids), metric="l2").check()


def test_a_result_is_pickled():
    copy = pickle.loads(pickle.dumps(WHOLE))
    copy.check()
    np.testing.assert_array_equal(copy.ids, WHOLE.ids)
    assert copy.reports[1].objective == WHOLE.reports[1].objective and repr(copy) == repr(WHOLE)


def test_check_takes_no_array_that_c_would_misread():
    for change, part in (
        ({"labels": WHOLE.labels.astype(np.int64)}, "labels is int64, wanted int32"),
        ({"means": WHOLE.means.astype(np.float64)}, "means is float64, wanted float32"),
        ({"ids": WHOLE.ids.tolist()}, "ids is list, wanted int32"),
        ({"centroids": WHOLE.centroids.tolist()}, "centroids is list, wanted float32"),
    ):
        with pytest.raises(TypeError, match=part):
            replace(WHOLE, **change).check()
    for change in (
        {"labels": WHOLE.labels[:, :59]},
        {"ids": WHOLE.ids[0]},
        {"offsets": WHOLE.sizes},
        {"centroids": WHOLE.centroids[:, :, :7]},
        {"centroids": WHOLE.centroids[..., 0, 0]},
        {"centroids": np.array(3, np.float32)},
        {"n": 61},
        {"n_clusters": 5},
        {"n_problems": None},
    ):
        with pytest.raises(dci.InvalidError, match=r"has shape .*, wanted \("):
            replace(WHOLE, **change).check()
    for change in ({"n": 0}, {"n_clusters": -1}, {"metric": "dot"}, {"n_problems": 0}, {"capacity": 3}):
        with pytest.raises(dci.InvalidError):
            replace(WHOLE, **dict.fromkeys(OUTPUTS), **change).check()


# --- clusters of bounded size ----------------------------------------------------------------------------------------------


class TestCapacity:
    """What the header says of config.capacity. Most of these fail until the library's balanced assignment does more than the
    free one (src/cluster/kmeans_balance.c)."""

    @staticmethod
    def assert_balanced(found, rows):
        """Whatever the labels, the arrays agree; objectives are those of the labels and of the nearest centroids."""
        found.check()
        rows = rows if rows.ndim == 3 else rows[None]
        labels, sizes = found.labels.reshape(len(rows), -1), found.sizes.reshape(len(rows), -1)
        centroids = found.centroids.reshape(len(rows), -1, rows.shape[-1]).astype(np.float64)
        assert sizes.max() <= found.capacity
        for x, one, mine, size, report in zip(rows, centroids, labels, sizes, found.reports):
            score = closeness(x.astype(np.float64), one, found.metric)
            sign = -1 if found.metric == "l2" else 1
            own, free = score[np.arange(len(x)), mine].sum(), score.max(1).sum()
            np.testing.assert_array_equal(size, np.bincount(mine, minlength=found.n_clusters))
            np.testing.assert_allclose(report.objective, sign * own, rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(report.objective_free, sign * free, rtol=1e-4, atol=1e-3)
            assert report.largest == size.max()

    @pytest.mark.parametrize("metric", METRICS)
    def test_without_capacity_the_free_objective_is_the_objective(self, metric):
        report = dci.kmeans(ROWS, 4, metric=metric).reports[0]
        assert report.objective_free == report.objective

    @pytest.mark.parametrize("capacity", [16, 17, 25])
    @pytest.mark.parametrize("metric", METRICS)
    def test_no_cluster_has_more_rows(self, metric, capacity):
        rows = layer(3, 320, 8, 7)
        self.assert_balanced(dci.kmeans(rows, 20, metric=metric, capacity=capacity), rows)

    def test_one_row_per_cluster(self):
        rows = normal(24, 8)
        found = dci.kmeans(rows, 24, capacity=1)
        self.assert_balanced(found, rows)
        assert sorted(found.labels) == list(range(24))

    def test_rows_that_are_all_alike_fill_clusters(self):
        rows = np.tile(normal(1, 8), (40, 1))
        found = dci.kmeans(rows, 4, metric="l2", capacity=10)
        self.assert_balanced(found, rows)
        assert found.sizes.tolist() == [10] * 4

    def test_with_segments_and_runs_and_a_warm_start(self):
        rows = clustered(256, 8, 7)
        for options in (
            {"segment_rows": 64},
            {"segment_rows": 96, "n_iter_global": 3},
            {"n_redo": 3},
            {"n_iter": 0},
            {"centroids": rows[:16], "n_iter": 2},
            {"init": "plusplus", "tolerance": 0.01},
        ):
            self.assert_balanced(dci.kmeans(rows, 16, capacity=16, **options), rows)

    def test_it_is_the_same_for_any_threads_and_problems(self):
        rows = layer(3, 1000, 8, 20)
        every = dci.kmeans(rows, 20, capacity=50)
        assert (every.sizes == 50).all()
        for p in range(3):
            one = dci.kmeans(rows[p], 20, capacity=50, first_problem=p, context=dci.Context(threads=1 + p))
            np.testing.assert_array_equal(one.labels, every.labels[p])
            np.testing.assert_array_equal(one.centroids, every.centroids[p])

    def test_room_for_all_is_no_capacity(self):
        rows = clustered(100, 8, 6)
        found, free = dci.kmeans(rows, 6, capacity=100), dci.kmeans(rows, 6)
        np.testing.assert_array_equal(found.labels, free.labels)
        self.assert_balanced(found, rows)
        assert_right(found, rows)

    def test_pages_of_a_real_trace_cost_little(self, keys):
        found = dci.kmeans(keys, 480, subtract_mean="own", capacity=16)
        found.check()
        assert (found.sizes == 16).all()
        report = found.reports[0]
        assert 0.9 * report.objective_free < report.objective <= report.objective_free
