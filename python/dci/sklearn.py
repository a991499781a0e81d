# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Estimators of scikit-learn over dci: neighbours as a graph, and k-means.

    from dci.sklearn import DCITransformer
    graph = DCITransformer(n_neighbors=15, kind="mdci", target_recall=0.95).fit_transform(x)
    make_pipeline(DCITransformer(n_neighbors=90), TSNE(metric="precomputed", init="random")).fit_transform(x)

Importing this module needs scikit-learn 1.6 or newer; the rest of the package does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._kmeans import names_of_scikit_learn, nearest_centroids, runs_of
from ._knn import without_self
from ._library import unknown
from ._rows import in_own_format
from .clusters import kmeans
from .context import Context
from .index import Index

try:
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"dci.sklearn needs scikit-learn 1.6 or newer ({error}): pip install 'scikit-learn>=1.6'") from error

Array = npt.NDArray[Any]

# How an index scores for a metric of scikit-learn's.
_METRICS = {"euclidean": "l2", "l2": "l2", "sqeuclidean": "l2", "cosine": "cosine", "cos": "cosine"}
_INITS = {"k-means++": "plusplus", "random": "random", "even": "even"}
_MODES = ("distance", "connectivity")
# Rows on which an effort is chosen, see target_recall.
_TUNED_ROWS = 1000


def _context(n_jobs: int | None) -> Context | None:
    """None and -1 are what the library takes by itself."""
    if n_jobs is None or n_jobs == -1:
        return None
    if n_jobs < 1:
        raise ValueError(f"n_jobs is {n_jobs}, wanted None, -1 or a number of threads")
    return Context(threads=n_jobs)


def _one_of(value: object, names: Any, what: str) -> Any:
    if not isinstance(value, str) or value not in names:
        raise ValueError(unknown(names, value, what))
    return names[value] if isinstance(names, dict) else value


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


class DCITransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A graph of nearest neighbours, as KNeighborsTransformer makes it: the first step of a pipeline whose second takes
    metric="precomputed" (KNeighborsClassifier, TSNE, DBSCAN, ..).

    n_neighbors of each row; mode "distance" gives one more, because a training row is its own nearest neighbour.
    mode        "distance" (entries are distances) or "connectivity" (ones).
    metric      "euclidean" ("l2" is the same), "sqeuclidean" or "cosine" ("cos": 1 - cosine; of a row of zeros 1).
    kind        of dci.Index: "flat" (exact), "pdci", "mdci", "auto" (what suits so many rows).
    sketch_bits of dci.Index: 0 (none), 1, 2, 3, 4 or 8.
    recall      the share of the neighbours that searches find: the index measures on its own rows what that takes; 1.0 is
                exact. kind "flat" without codes always is.
    target_recall
                in place of recall: fit tunes the index: it chooses the cheapest effort that finds this share of the
                neighbours of a thousand training rows.
    effort      a dict of what Index.search takes (prop_to_visit, field_of_view, rerank, ..), in place of target_recall.
    index_options
                a dict of further options of dci.Index (num_simp_indices, promotion_prob, ..).
    random_state
                of the index's directions and promotions, and of the rows that target_recall is measured on.
    n_jobs      most threads of a call; None and -1: those of dci.default_context(). An estimator that was pickled uses them.

    After fit: n_features_in_, n_samples_fit_, index_ (the dci.Index; its rows are float32, their ids the positions), recall_
    (what target_recall came to on rows that had no part in the choice; NaN without it).
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mode: str = "distance",
        metric: str = "euclidean",
        kind: str = "flat",
        sketch_bits: int = 0,
        recall: float = 0.95,
        target_recall: float | None = None,
        effort: dict[str, Any] | None = None,
        index_options: dict[str, Any] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.metric = metric
        self.kind = kind
        self.sketch_bits = sketch_bits
        self.recall = recall
        self.target_recall = target_recall
        self.effort = effort
        self.index_options = index_options
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: Any = None) -> DCITransformer:
        """Makes an index of the rows X, (n_samples, n_features); y is ignored."""
        _one_of(self.mode, _MODES, "mode")
        metric = _one_of(self.metric, _METRICS, "metric")
        if self.target_recall is not None and self.effort is not None:
            raise ValueError("target_recall and effort both say what a search may spend: give one of them")
        rows = validate_data(self, X, dtype=(np.float32, np.float64))
        options: dict[str, Any] = {"zero_rows": "keep"} if metric == "cosine" else {}
        options.update(self.index_options or {})
        seed = _seed(self.random_state)
        index = Index(
            rows.shape[1],
            metric,
            kind=self.kind,
            sketch_bits=self.sketch_bits,
            seed=seed,
            recall=self.recall,
            context=_context(self.n_jobs),
            **options,
        )
        index.add(rows)
        if self.effort is not None:
            index.set_defaults(**self.effort)
        self.recall_ = float("nan") if self.target_recall is None else self._tuned(index, rows, seed)
        self.index_ = index
        self._row_dtype = rows.dtype
        self.n_samples_fit_ = self._n_features_out = len(rows)
        return self

    def _tuned(self, index: Index, rows: Array, seed: int) -> float:
        n = len(rows)
        chosen = np.random.default_rng(seed).permutation(n)[:_TUNED_ROWS]
        assert self.target_recall is not None
        found = index.tune(rows[chosen], min(self.n_neighbors + 1, n), self.target_recall)
        return found.recall_held_out

    def kneighbors(
        self, X: npt.ArrayLike | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """The neighbours of the rows X, (n_queries, n_features); None: of the training rows, each without itself.

        Returns distances and positions of training rows, (n_queries, n_neighbors) each, nearest first; without
        return_distance the positions only.
        """
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        if X is None:
            rows = self.index_.reconstruct(np.arange(self.n_samples_fit_)).astype(self._row_dtype, copy=False)
            ids, distances = without_self(*self._search(rows, k, and_self=True))
        else:
            rows = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
            ids, distances = self._search(rows, k)
        return (distances, ids) if return_distance else ids

    def transform(self, X: npt.ArrayLike) -> Any:
        """The graph from the rows X, (n_queries, n_features), to the training rows: a CSR matrix (n_queries, n_samples_fit_)
        whose explicit entries are the neighbours', by ascending distance within each row."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        ids, distances = self._search(rows, self.n_neighbors, and_self=self.mode == "distance")
        entries = distances if self.mode == "distance" else np.ones_like(distances)
        offsets = np.arange(0, ids.size + 1, ids.shape[1])
        return csr_matrix((entries.ravel(), ids.ravel(), offsets), shape=(len(rows), self.n_samples_fit_))

    def _search(self, rows: Array, n_neighbors: int, and_self: bool = False) -> tuple[Array, Array]:
        """Ids and distances, (len(rows), n_neighbors), and one more with the row itself, of the rows' own precision."""
        if n_neighbors < 1:
            raise ValueError(f"n_neighbors is {n_neighbors}, wanted 1 or more")
        k, n = n_neighbors + and_self, self.n_samples_fit_
        if k > n:
            raise ValueError(f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, n_samples_fit = {n}")
        ids, scores = self.index_.search(rows, k)
        distances = scores.astype(rows.dtype, copy=False)
        if _METRICS[self.metric] == "cosine":
            distances = np.maximum(1 - distances, 0)
        elif self.metric != "sqeuclidean":
            distances = np.sqrt(distances)
        return ids, distances

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class DCIKMeans(ClusterMixin, BaseEstimator):
    """k-means by dci.kmeans.

    n_clusters  at most the number of rows.
    metric      "euclidean" ("l2" is the same), or "cosine" ("cos": centres are unit vectors; rows of zeros get the label 0).
    init        "k-means++", "random" or "even"; or centres, (n_clusters, n_features).
    n_init      runs, of which the best is kept; "auto": 10 for init "random", else 1.
    max_iter    rounds of a run.
    tol         a run ends when a round changes the objective by no more than this share of it; 0: when no label changes.
    capacity    most rows of a cluster; None: any number.
    random_state, n_jobs
                as in DCITransformer.

    After fit: labels_, cluster_centers_ (n_clusters, n_features), inertia_ (the sum of squared distances to the own centre,
    or of 1 - cosine), n_iter_, n_features_in_.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        metric: str = "euclidean",
        init: Any = "k-means++",
        n_init: int | str = 1,
        max_iter: int = 100,
        tol: float = 1e-4,
        capacity: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.capacity = capacity
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: npt.ArrayLike, y: Any = None) -> DCIKMeans:
        """Clusters the rows X, (n_samples, n_features); y is ignored."""
        metric = _one_of(self.metric, {name: of for name, of in _METRICS.items() if name != "sqeuclidean"}, "metric")
        rows = validate_data(self, X, dtype=(np.float32, np.float64))
        if len(rows) < self.n_clusters:
            raise ValueError(f"n_samples={len(rows)} should be >= n_clusters={self.n_clusters}")
        given = not isinstance(self.init, str)
        with names_of_scikit_learn(given):
            found = kmeans(
                rows,
                self.n_clusters,
                metric=metric,
                init="given" if given else _one_of(self.init, _INITS, "init"),
                centroids=self.init if given else None,
                zero_rows="keep" if metric == "cosine" else None,
                n_iter=self.max_iter,
                tolerance=self.tol,
                n_redo=runs_of(self.n_init, self.init) if isinstance(self.n_init, str) else self.n_init,
                seed=_seed(self.random_state),
                capacity=self.capacity,
                outputs=("labels", "centroids", "reports"),
                context=_context(self.n_jobs),
            )
        assert found.centroids is not None and found.reports is not None
        report = found.reports[0]
        self.labels_ = found.labels
        self.cluster_centers_ = found.centroids.astype(rows.dtype, copy=False)
        self.inertia_ = len(rows) - report.objective if metric == "cosine" else report.objective
        self.n_iter_ = report.n_rounds
        return self

    def predict(self, X: npt.ArrayLike) -> Array:
        """The nearest centre of each of the rows X, (n_samples, n_features): int32, (n_samples,). A capacity has no part in
        it."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        centres = np.asarray(self.cluster_centers_, np.float32)
        metric = _METRICS[self.metric]
        return nearest_centroids(in_own_format(rows, "X")[0], centres, metric, True, _context(self.n_jobs))


__all__ = ["DCIKMeans", "DCITransformer"]
