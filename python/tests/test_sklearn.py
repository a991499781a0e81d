# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The estimators keep scikit-learn's contracts and give what its own do."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import normal

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE, trustworthiness
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dci.sklearn import DCIKMeans, DCITransformer

METRICS = ("euclidean", "sqeuclidean", "cosine")
DIGITS, CLASSES = load_digits(return_X_y=True)

# Checks of scikit-learn's that an estimator is known to fail, with the reason: none.
EXPECTED: dict[str, str] = {}


@parametrize_with_checks(
    [
        DCITransformer(),
        DCITransformer(mode="connectivity", metric="cosine"),
        DCITransformer(kind="mdci", random_state=0),
        DCIKMeans(random_state=0),
        DCIKMeans(metric="cosine", random_state=0),
    ],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def same_graph(ours, theirs):
    """The same neighbours at the same distances; only rows whose neighbours are equally far may be ordered differently."""
    assert ours.shape == theirs.shape and ours.nnz == theirs.nnz
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_allclose(ours.data, theirs.data, rtol=1e-5, atol=2e-6)
    assert (ours.indices == theirs.indices).mean() > 0.999


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_the_graph_is_that_of_scikit_learn(mode, metric, dtype):
    rows, asked = normal(700, 12).astype(dtype), normal(90, 12, seed=2).astype(dtype)
    ours = DCITransformer(n_neighbors=7, mode=mode, metric=metric).fit(rows)
    theirs = KNeighborsTransformer(n_neighbors=7, mode=mode, metric=metric, algorithm="brute").fit(rows)
    for x in (rows, asked):
        graph = ours.transform(x)
        assert graph.format == "csr" and graph.dtype == dtype
        same_graph(graph, theirs.transform(x))
        if mode == "distance":
            assert (np.diff(graph.data.reshape(len(x), 8), axis=1) >= 0).all()
    np.testing.assert_array_equal(ours.get_feature_names_out()[:2], ["dcitransformer0", "dcitransformer1"])


@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_of_training_rows_leave_out_the_row_itself(metric):
    rows = normal(300, 6)
    rows[7] = rows[11]
    rows[200:204] = rows[50]
    distances, ids = DCITransformer(n_neighbors=3, metric=metric).fit(rows).kneighbors()
    assert ids.shape == distances.shape == (300, 3)
    assert (ids != np.arange(300)[:, None]).all()
    assert (ids[7, 0], ids[11, 0]) == (11, 7)
    wanted = KNeighborsTransformer(n_neighbors=3, metric=metric, algorithm="brute").fit(rows).kneighbors()[0]
    np.testing.assert_allclose(distances, wanted, rtol=1e-4, atol=2e-3 if metric != "cosine" else 1e-6)
    asked = normal(4, 6, seed=3)
    fitted = DCITransformer(n_neighbors=3, metric=metric).fit(rows)
    np.testing.assert_array_equal(fitted.kneighbors(asked, 5, return_distance=False), fitted.kneighbors(asked, 5)[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances_have_the_dtype_of_the_rows(dtype):
    rows = normal(50, 6).astype(dtype)
    fitted = DCITransformer(n_neighbors=3).fit(rows)
    assert fitted.kneighbors()[0].dtype == fitted.kneighbors(rows)[0].dtype == dtype
    with pytest.raises(ValueError, match="n_neighbors is 0"):
        fitted.kneighbors(rows, 0)


@pytest.mark.parametrize("options", [{"kind": "mdci"}, {"kind": "pdci"}, {"sketch_bits": 2}], ids=str)
def test_a_target_recall_is_reached_with_less_than_all_rows(options):
    rows = DIGITS.astype(np.float32)
    found = DCITransformer(n_neighbors=10, target_recall=0.9, random_state=1, **options).fit(rows)
    exact = DCITransformer(n_neighbors=10).fit(rows)
    kept = found.transform(rows).astype(bool).multiply(exact.transform(rows).astype(bool)).nnz
    assert kept / (10 * len(rows)) > 0.85 and found.recall_ > 0.85
    stats = found.index_.search(rows, 11, stats=True)[2]
    assert stats.distances < len(rows) ** 2


def test_effort_is_what_searches_spend():
    rows = normal(2000, 16)
    made = DCITransformer(kind="mdci", effort={"field_of_view": 3}, index_options={"page_rows": 8}, random_state=4)
    fitted = made.fit(rows)
    assert fitted.index_.get_defaults()["field_of_view"] == 3
    assert fitted.index_.search(rows[:50], 6, stats=True)[2].distances < 50 * len(rows)


def test_it_feeds_estimators_that_take_neighbours():
    train, test = slice(0, 1200), slice(1200, None)
    ours = make_pipeline(DCITransformer(n_neighbors=5), KNeighborsClassifier(n_neighbors=5, metric="precomputed"))
    said = ours.fit(DIGITS[train], CLASSES[train]).predict(DIGITS[test])
    wanted = KNeighborsClassifier(n_neighbors=5).fit(DIGITS[train], CLASSES[train]).predict(DIGITS[test])
    assert (said == wanted).mean() > 0.99 and (said == CLASSES[test]).mean() > 0.9
    some = DIGITS[:500]
    tsne = TSNE(metric="precomputed", init="random", perplexity=10, max_iter=300, random_state=0)
    placed = make_pipeline(DCITransformer(n_neighbors=45), tsne).fit_transform(some)
    assert trustworthiness(some, placed, n_neighbors=5) > 0.95
    graph = DCITransformer(n_neighbors=20).fit_transform(some)
    np.testing.assert_array_equal(
        DBSCAN(eps=20, metric="precomputed").fit(graph).labels_ >= 0, DBSCAN(eps=20).fit(some).labels_ >= 0
    )


def test_estimators_are_cloned_and_pickled():
    rows = normal(200, 5)
    fitted = DCITransformer(n_neighbors=4, kind="mdci", random_state=3, n_jobs=1).fit(rows)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.transform(rows) != fitted.transform(rows)).nnz == 0
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "index_")


def test_clusters_are_as_good_as_those_of_scikit_learn():
    ours = DCIKMeans(10, n_init=4, random_state=0).fit(DIGITS)
    theirs = KMeans(10, n_init=4, random_state=0).fit(DIGITS)
    assert ours.inertia_ < 1.02 * theirs.inertia_
    assert adjusted_rand_score(CLASSES, ours.labels_) > 0.55
    distances = ((DIGITS[:, None] - ours.cluster_centers_) ** 2).sum(-1)
    np.testing.assert_allclose(ours.inertia_, distances.min(1).sum(), rtol=1e-5)
    np.testing.assert_array_equal(ours.predict(DIGITS), distances.argmin(1))
    np.testing.assert_array_equal(ours.predict(DIGITS[:3]), ours.labels_[:3])  # fewer rows than clusters


def test_clusters_by_cosine_start_from_given_centres_and_keep_their_capacity():
    rows = normal(400, 8)
    found = DCIKMeans(8, metric="cosine", init=rows[:8], capacity=60, random_state=0).fit(rows)
    assert np.bincount(found.labels_, minlength=8).max() <= 60
    np.testing.assert_allclose(np.linalg.norm(found.cluster_centers_, axis=1), 1, rtol=1e-5)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.einsum("nd,nd->n", units, found.cluster_centers_[found.labels_])
    np.testing.assert_allclose(found.inertia_, (1 - cosines).sum(), rtol=1e-4)


def test_fitted_rows_get_their_labels_where_all_cosines_are_near_one():
    rows = normal(1000, 16) + np.float32(3000)
    found = DCIKMeans(20, metric="cosine", random_state=0).fit(rows)
    np.testing.assert_array_equal(found.predict(rows), found.labels_)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (DCITransformer(mode="similarity"), "mode is 'similarity'"),
        (DCITransformer(metric="ip"), "metric is 'ip'"),
        (DCITransformer(kind="hnsw"), "kind is 'hnsw'"),
        (DCITransformer(target_recall=0.9, effort={"rerank": 2}), "give one"),
        (DCITransformer(n_jobs=0), "n_jobs is 0"),
        (DCIKMeans(metric="ip"), "metric is 'ip'"),
        (DCIKMeans(init="best"), "init is 'best'"),
        (DCIKMeans(init=np.zeros((8, 3))), r"shape \(8, 3\)"),
        (DCIKMeans(500), "n_clusters=500"),
    ],
)
def test_what_cannot_be_is_refused_by_fit(estimator, said):
    with pytest.raises(ValueError, match=said):
        estimator.fit(normal(100, 4))
    assert not hasattr(estimator, "index_") and not hasattr(estimator, "labels_")


def test_more_neighbours_than_rows_are_refused():
    fitted = DCITransformer(n_neighbors=5).fit(normal(5, 4))
    with pytest.raises(ValueError, match="n_neighbors = 6, n_samples_fit = 5"):
        fitted.transform(normal(1, 4))


def test_the_package_itself_needs_no_scikit_learn():
    script = "import sys; import dci; assert not any(name.split('.')[0] in ('sklearn', 'scipy') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
    blocked = "import sys; sys.modules['sklearn'] = None\ntry:\n import dci.sklearn\nexcept ImportError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", blocked], check=True, capture_output=True, text=True).stdout
    assert "scikit-learn 1.6" in said and "pip install 'scikit-learn>=1.6'" in said
