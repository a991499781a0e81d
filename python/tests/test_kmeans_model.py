# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci.KMeans: its clusters are those of dci.kmeans, and predict names the nearest of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import DTYPES, METRICS, in_float64, normal, stored
from kmeans_model import closeness, clustered, layer
from test_kmeans import ARRAYS, assert_equal

import dci

OPTIONS = [{}, {"subtract_mean": "own"}, {"centroid": "mean"}]


def assert_nearest(labels, rows, model, problem=()):
    """Each label is that of a nearest centroid, in float64."""
    score = closeness(in_float64(rows) - model.row_means[problem], in_float64(model.centroids[problem]), model.metric)
    missed = score.max(1) - score[np.arange(len(rows)), labels]
    assert (missed <= 1e-5 * (1 + np.abs(score).max())).all()


@pytest.mark.parametrize("metric", METRICS)
def test_a_fit_is_the_function(metric):
    rows, values = layer(2, 300, 16, 8), normal(600, 5).reshape(2, 300, 5)
    given = {"metric": metric, "init": "plusplus", "n_iter": 7, "n_redo": 2, "seed": 3, "capacity": 60}
    model = dci.KMeans(8, **given).fit(rows, values=values)
    wanted = dci.kmeans(rows, 8, **given, values=values)
    assert_equal(model.result, wanted)
    assert_equal(model, wanted, ARRAYS)
    assert model.n_problems == 2 and len(model.reports) == 2
    assert model.objective == sum(report.objective for report in wanted.reports)
    c = 3
    members = model.ids[1, model.offsets[1, c] : model.offsets[1, c + 1]]
    np.testing.assert_array_equal(members, np.flatnonzero(model.labels[1] == c))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_were_fitted_get_their_labels(metric, dtype):
    for rows in (stored(clustered(500, 16, 9), dtype), stored(normal(800, 12), dtype), stored(layer(3, 200, 8, 6), dtype)):
        model = dci.KMeans(9, metric, n_iter=200).fit(rows)
        # Rounds by inner product may go in circles; labels are those of the centroids all the same.
        assert metric == "ip" or {report.stop for report in model.reports} == {"stable"}
        found = model.predict(rows)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, model.labels)


@pytest.mark.parametrize("options", OPTIONS)
def test_labels_of_every_form_of_cosine_come_back(options, keys):
    model = dci.KMeans(90, n_iter=100, **options).fit(keys)
    np.testing.assert_array_equal(model.predict(keys), model.labels)


@pytest.mark.parametrize("offset", [300, 3000])
def test_labels_come_back_where_all_cosines_are_near_one(offset):
    rows = normal(2000, 32) + np.float32(offset)
    model = dci.KMeans(40, n_iter=100).fit(rows)
    np.testing.assert_array_equal(model.predict(rows), model.labels)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("metric", METRICS)
def test_new_rows_go_to_the_nearest_centroid(metric, options):
    if metric != "cosine" and "centroid" in options:
        options = {}
    model = dci.KMeans(12, metric, **options).fit(normal(400, 10))
    for n in (0, 1, 5, 700):  # also fewer rows than clusters
        new = normal(n, 10, 2) + np.float32(0.5)
        found = model.predict(new)
        assert found.shape == (n,)
        if n:
            assert_nearest(found, new, model)
    many = dci.KMeans(6, metric, **options).fit(layer(2, 200, 8, 6))
    new = normal(60, 8, 3).reshape(2, 30, 8)
    found = many.predict(new)
    for problem in range(2):
        assert_nearest(found[problem], new[problem], many, problem)


def test_equally_near_centroids_go_by_the_lower_number():
    model = dci.KMeans(3, "l2", n_iter=0).fit([[1.0, 0], [-1, 0], [1, 0]], centroids=[[1.0, 0], [-1, 0], [1, 0]])
    np.testing.assert_array_equal(model.predict([[0.0, 5], [2, 0], [-2, 0]]), [0, 0, 1])


def test_strides_and_tensors_do_not_matter():
    cache = normal(200 * 3, 8).reshape(200, 3, 8)
    model = dci.KMeans(5).fit(cache.transpose(1, 0, 2))
    np.testing.assert_array_equal(model.predict(cache.transpose(1, 0, 2)), model.predict(cache.transpose(1, 0, 2).copy()))


def test_rows_without_direction():
    rows = clustered(60, 8, 4)
    model = dci.KMeans(4, zero_rows="keep").fit(rows)
    rows[[3, 17]] = [[0.0] * 8, [2.0**-42] * 8]
    np.testing.assert_array_equal(model.predict(rows)[[3, 17]], 0)
    refusing = dci.KMeans(4).fit(clustered(60, 8, 4))
    with pytest.raises(dci.NumberError, match="row 3 of problem 0 has length 0"):
        refusing.predict(rows)
    long = np.full((1, 8), 2e38, np.float32)
    np.testing.assert_array_equal(model.predict(long), model.predict(long / np.float32(1e38)))


def test_a_warm_start_goes_on():
    rows = normal(500, 12)
    begun = dci.KMeans(9, n_iter=3).fit(rows)
    went_on = dci.KMeans(9, n_iter=2).fit(rows, centroids=begun.centroids)
    assert_equal(went_on, dci.kmeans(rows, 9, n_iter=2, centroids=begun.centroids))
    assert went_on.objective >= begun.objective


def test_what_is_not_fitted_says_so():
    model = dci.KMeans(3)
    for call in (lambda: model.labels, lambda: model.objective, lambda: model.predict(normal(3, 4)), lambda: model.result):
        with pytest.raises(dci.InvalidError, match="call fit first"):
            call()
    assert "not fitted" in repr(model)
    assert "labels" in repr(model.fit(normal(9, 4)))


@pytest.mark.parametrize(
    ("rows", "error", "sentence"),
    [
        (normal(3, 5), dci.InvalidError, r"rows has shape \(3, 5\), wanted \(n, 4\)"),
        (normal(1, 4)[0], dci.InvalidError, r"rows has shape \(4,\), wanted \(n, 4\)"),
        (normal(6, 4).reshape(2, 3, 4), dci.InvalidError, r"rows has shape \(2, 3, 4\), wanted \(n, 4\)"),
        ([[1.0, 2, 3, 4], [1, np.nan, 0, 0]], dci.NumberError, "row 1 of problem 0 holds NaN"),
        ([[1j, 0, 0, 0]], TypeError, "rows is complex128"),
    ],
)
@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_do_not_fit_are_refused(metric, rows, error, sentence):
    model = dci.KMeans(3, metric).fit(normal(50, 4))
    with pytest.raises(error, match=sentence):
        model.predict(rows)


def test_problems_must_be_as_many_as_were_fitted():
    model = dci.KMeans(3).fit(layer(2, 40, 4, 3))
    for rows in (normal(5, 4), layer(3, 5, 4, 3)):
        with pytest.raises(dci.InvalidError, match=r"wanted \(2, n, 4\)"):
            model.predict(rows)
    rows = layer(2, 5, 4, 3)
    rows[1, 2, 0] = np.inf
    with pytest.raises(dci.NumberError, match="row 2 of problem 1 holds NaN or infinity"):
        model.predict(rows)


def test_a_fit_that_fails_changes_nothing():
    model = dci.KMeans(4, "l2").fit(normal(50, 6))
    before = model.result
    for bad in ({"rows": normal(3, 6)}, {"rows": np.full((9, 6), np.nan, "f4")}, {"rows": normal(9, 6), "centroids": [1.0]}):
        with pytest.raises(dci.DciError):
            model.fit(**bad)
    with pytest.raises(dci.CancelledError):
        model.fit(normal(5000, 6), progress=lambda *_: True)
    assert model.result is before
    for options in ({"metric": "manhattan"}, {"init": "best"}, {"n_iter": -1}):
        with pytest.raises(dci.InvalidError):
            dci.KMeans(4, **options).fit(normal(50, 6))


def test_clusters_are_pickled():
    rows = normal(100, 6)
    model = dci.KMeans(7, "ip", subtract_mean="own").fit(rows)
    again = pickle.loads(pickle.dumps(model))
    assert_equal(again, model)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(dci.KMeans(7).fit_predict(rows), dci.kmeans(rows, 7).labels)
