# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci.KMeans by the names of scikit-learn, and copies of it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from conftest import METRICS, normal
from kmeans_model import clustered, layer

import dci

ROWS = clustered(300, 8, 5)

# The same option by both names, and by dci.kmeans's.
PAIRS = [
    ({"n_init": 3}, {"n_redo": 3}),
    ({"max_iter": 2}, {"n_iter": 2}),
    ({"tol": 0.1}, {"tolerance": 0.1}),
    ({"random_state": 7}, {"seed": 7}),
    ({"random_state": np.uint64(2**64 - 1)}, {"seed": 2**64 - 1}),
    ({"init": "k-means++"}, {"init": "plusplus"}),
    ({"init": "k-means++", "n_init": "auto"}, {"init": "plusplus", "n_redo": 1}),
    ({"init": "random", "n_init": "auto"}, {"init": "random", "n_redo": 10}),
    ({"init": "even", "n_init": "auto"}, {"init": "even"}),
]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=str)
def test_both_names_of_an_option_are_one_option(theirs, ours, metric):
    wanted = dci.kmeans(ROWS, 6, metric=metric, **ours)
    for options in (theirs, ours):
        model = dci.KMeans(6, metric, **options).fit(ROWS)
        np.testing.assert_array_equal(model.labels_, wanted.labels)
        np.testing.assert_array_equal(model.centroids, wanted.centroids)


@pytest.mark.parametrize(
    ("new", "old"), [("n_init", "n_redo"), ("max_iter", "n_iter"), ("tol", "tolerance"), ("random_state", "seed")]
)
def test_an_option_by_two_names_is_refused(new, old):
    with pytest.raises(TypeError, match=f"{new} is 1 and {old} is 2: they are one option"):
        dci.KMeans(3, **{new: 1, old: 2})


def test_starting_points_may_be_the_init():
    start = ROWS[:6]
    wanted = dci.kmeans(ROWS, 6, centroids=start)
    for init in (start, start.tolist(), start.astype(np.float64)):
        model = dci.KMeans(6, init=init, n_init="auto").fit(ROWS)
        np.testing.assert_array_equal(model.labels_, wanted.labels)
    other = dci.KMeans(6, init=start).fit(ROWS, centroids=ROWS[100:106])
    np.testing.assert_array_equal(other.labels_, dci.kmeans(ROWS, 6, centroids=ROWS[100:106]).labels)
    with pytest.raises(dci.InvalidError, match=r"init has shape \(5, 8\), wanted \(6, 8\)"):
        dci.KMeans(6, init=ROWS[:5]).fit(ROWS)
    with pytest.raises(dci.InvalidError, match=r"centroids has shape \(5, 8\), wanted \(6, 8\)"):
        dci.KMeans(6, init=start).fit(ROWS, centroids=ROWS[:5])


def test_a_random_state_is_a_seed_or_what_draws_one():
    for made in (np.random.default_rng, np.random.RandomState):
        first, second = (dci.KMeans(6, random_state=made(3)) for _ in range(2))
        np.testing.assert_array_equal(first.fit_predict(ROWS), second.fit_predict(ROWS))
        before = first.labels_
        assert any((first.fit(ROWS).labels_ != before).any() for _ in range(5))  # each fit draws another
    np.testing.assert_array_equal(
        dci.KMeans(6, random_state=None).fit_predict(ROWS), dci.KMeans(6, seed=0).fit_predict(ROWS)
    )


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"n_init": "many"}, "n_init is 'many', wanted a number of runs or 'auto'"),
        ({"n_init": 0}, "n_init is 0"),
        ({"n_init": 2, "init": "even"}, "n_init is 2, but an init without draws"),
        ({"max_iter": -1}, "max_iter is -1"),
        ({"n_iter": -1}, "max_iter is -1"),
        ({"tol": 2}, "tol is 2"),
        ({"random_state": -1}, "random_state is -1"),
        ({"init": ROWS[:2]}, "init has shape (2, 8), wanted (3, 8)"),
        ({"init": "kmeans++"}, "init is 'kmeans++', wanted one of 'random'"),
    ],
)
def test_values_out_of_range_are_refused_by_fit(options, part):
    model = dci.KMeans(3, **options)
    with pytest.raises(dci.InvalidError) as caught:
        model.fit(ROWS)
    assert part in str(caught.value) and not hasattr(model, "labels_")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("mean", [None, "own"])
def test_what_is_found_has_scikit_learns_meaning(metric, mean):
    model = dci.KMeans(5, metric, subtract_mean=mean, n_init=3).fit(ROWS, "ignored")
    centers = model.cluster_centers_
    assert centers.shape == (5, 8) and model.labels_.shape == (300,) and model.n_features_in_ == 8
    assert model.n_iter_ == model.reports[0].n_rounds >= 1
    moved, ends = ROWS - model.row_means, model.centroids
    np.testing.assert_allclose(centers - model.row_means, ends, atol=1e-5)
    if metric == "l2":
        far = np.linalg.norm(ROWS[:, None] - centers, axis=-1)
        wanted, inertia = far, (far.min(1) ** 2).sum()
    else:
        products = moved @ ends.T
        if metric == "cosine":
            products /= np.outer(np.linalg.norm(moved, axis=1), np.linalg.norm(ends, axis=1))
            wanted, inertia = 1 - products, (1 - products).min(1).sum()
        else:
            wanted, inertia = products, -products.max(1).sum()
    np.testing.assert_allclose(model.transform(ROWS), wanted, rtol=1e-3, atol=1e-3)
    assert model.inertia_ == pytest.approx(inertia, rel=1e-3, abs=1e-2)
    nearest = model.transform(ROWS).argmax(1) if metric == "ip" else model.transform(ROWS).argmin(1)
    np.testing.assert_array_equal(nearest, model.predict(ROWS))


def test_l2_agrees_with_scikit_learn_from_the_same_start():
    cluster = pytest.importorskip("sklearn.cluster")
    theirs = cluster.KMeans(5, init=ROWS[:5], n_init=1, max_iter=50, tol=0).fit(ROWS)
    ours = dci.KMeans(n_clusters=5, metric="euclidean", init=ROWS[:5], n_init=1, max_iter=50, tol=0).fit(ROWS)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=1e-4)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-4)
    np.testing.assert_array_equal(ours.predict(normal(50, 8)), theirs.predict(normal(50, 8)))
    np.testing.assert_allclose(ours.transform(ROWS), theirs.transform(ROWS), atol=1e-3)
    np.testing.assert_allclose(dci.KMeans(5, "l2").fit_transform(ROWS), dci.KMeans(5, "l2").fit(ROWS).transform(ROWS))


def test_problems_have_the_same_names():
    rows = layer(3, 60, 8, 4)
    model = dci.KMeans(4, "l2", subtract_mean="own").fit(rows)
    assert model.cluster_centers_.shape == (3, 4, 8) and model.labels_.shape == (3, 60)
    assert model.transform(rows).shape == (3, 60, 4) and model.n_iter_ == max(one.n_rounds for one in model.reports)
    far = np.linalg.norm(rows[:, :, None] - model.cluster_centers_[:, None], axis=-1)
    np.testing.assert_allclose(model.transform(rows), far, atol=1e-3)
    assert model.inertia_ == pytest.approx((far.min(-1) ** 2).sum(), rel=1e-3)


def test_rows_without_direction_are_as_far_as_can_be():
    rows = ROWS.copy()
    rows[3] = 0
    model = dci.KMeans(4, zero_rows="keep").fit(rows)
    assert (model.transform(rows)[3] == 1).all()


def test_before_fit_there_is_nothing_to_ask_for():
    model = dci.KMeans(3)
    for name in ("labels_", "cluster_centers_", "inertia_", "n_iter_", "n_features_in_", "labels", "centroids"):
        assert not hasattr(model, name)
        with pytest.raises(dci.InvalidError, match="call fit first"):
            getattr(model, name)


# --- copies ----------------------------------------------------------------------------------------------------------

COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "oldest pickle": lambda x: pickle.loads(pickle.dumps(x, 2)),
    "deep copy": copy.deepcopy,
    "copy": copy.copy,
}


class Named(dci.KMeans):
    """A class of a user's, with something of its own."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.name = "mine"


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("fitted", [True, False])
def test_a_copy_of_kmeans_answers_the_same_with_the_default_context(way, fitted):
    model = Named(4, "l2", init="k-means++", n_init=2, random_state=5, context=dci.Context(threads=1))
    if fitted:
        model.fit(ROWS)
    again = COPIES[way](model)
    assert type(again) is Named and again.name == "mine" and again.context is None and model.context is not None
    if fitted:
        np.testing.assert_array_equal(again.labels_, model.labels_)
        np.testing.assert_array_equal(again.predict(ROWS), model.labels_)
    np.testing.assert_array_equal(again.fit(ROWS).labels_, model.fit(ROWS).labels_)


@pytest.mark.parametrize("way", COPIES)
def test_whatever_holds_a_result_is_copied(way, tmp_path):
    index = dci.Index(8, context=dci.Context(threads=1))
    index.add(ROWS)
    _, _, stats = index.search(ROWS, 3, stats=True)
    bitmap = dci.Bitmap.from_mask(np.arange(300) % 2 == 0, 7)
    found = dci.kmeans(ROWS, 4)
    sketch = dci.Sketch(8)
    for thing in (stats, index.tune(ROWS, 3, 0.9), sketch.info(), found.reports[0], dci.KVLayer("dense")):
        assert str(COPIES[way](thing)) == str(thing)
    again = COPIES[way](bitmap)
    assert (again.n, again.first_id) == (300, 7) and (again.words == bitmap.words).all()
    COPIES[way](found).check()
    assert COPIES[way](index).to_bytes() == index.to_bytes()
    assert pickle.loads(pickle.dumps(index)).context is dci.default_context()


@pytest.mark.parametrize(
    ("made", "part"),
    [
        (lambda: dci.Sketch(8), "a Sketch cannot be copied or pickled, as it keeps codes but no rows: keep the rows"),
        (
            lambda: dci.KVCache(1, 2, 1, 16),
            "a KVCache cannot be copied or pickled: save(sequence, path) its sequences and load them",
        ),
    ],
)
def test_what_cannot_be_copied_names_the_way_out(made, part):
    for way in COPIES.values():
        with pytest.raises(TypeError) as caught:
            way(made())
        assert part in str(caught.value)


def test_an_estimator_names_its_own_options():
    pytest.importorskip("sklearn")
    from dci.sklearn import DCIKMeans  # noqa: PLC0415

    for options, part in (
        ({"n_init": 0}, "n_init is 0"),
        ({"n_init": "many"}, "n_init is 'many'"),
        ({"max_iter": -3}, "max_iter is -3"),
        ({"max_iter": 2.5}, "max_iter is 2.5 (float)"),
        ({"tol": -1}, "tol is -1"),
        ({"init": ROWS[:2]}, "init has shape (2, 8), wanted (3, 8)"),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            DCIKMeans(3, **options).fit(ROWS)
        assert part in str(caught.value)
    wanted = DCIKMeans(3, init="random", n_init=10, random_state=1).fit(ROWS)
    assert DCIKMeans(3, init="random", n_init="auto", random_state=1).fit(ROWS).inertia_ == wanted.inertia_


def test_estimators_are_cloned_and_pickled():
    base = pytest.importorskip("sklearn.base")
    from dci.sklearn import DCIKMeans, DCITransformer  # noqa: PLC0415

    for made in (DCIKMeans(4, random_state=3, n_jobs=1), DCITransformer(5, kind="pdci", n_jobs=1, random_state=3)):
        unfitted = base.clone(made.fit(ROWS))
        assert unfitted.get_params() == made.get_params() and not hasattr(unfitted, "n_features_in_")
        again = pickle.loads(pickle.dumps(made))
        if isinstance(made, DCIKMeans):
            np.testing.assert_array_equal(again.predict(ROWS), made.labels_)
        else:
            np.testing.assert_array_equal(again.kneighbors(ROWS)[1], made.kneighbors(ROWS)[1])
