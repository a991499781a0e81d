# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci for ann-benchmarks: this folder is copied to ann_benchmarks/algorithms/dci, see README.md."""

from __future__ import annotations

from typing import Any

import numpy as np

import dci

from ..base.module import BaseANN

METRICS = {"euclidean": "l2", "angular": "cosine"}
# Queries whose distances are counted, see get_additional.
COUNTED = 1000


class DCI(BaseANN):
    """An index of dci.

    metric      "euclidean" or "angular".
    options     a dict of what dci.Index takes: kind, sketch_bits, seed, ..

    One query runs on one thread, a batch and the build on all that the process may use.
    """

    def __init__(self, metric: str, options: dict[str, Any]) -> None:
        if metric not in METRICS:
            raise NotImplementedError(f"dci knows {', '.join(METRICS)}, not {metric}")
        self._metric = METRICS[metric]
        self._options = dict(options)
        self._effort: dict[str, Any] = {}
        self._index: dci.Index | None = None
        self._reset()

    def _reset(self) -> None:
        self._n_searched = 0
        self._seen: list[Any] = []
        self._count = 1

    def fit(self, X: Any) -> None:
        rows = np.ascontiguousarray(X, np.float32)
        self._context = dci.Context()
        self._threads = self._most = self._context.threads
        zero_rows = "keep" if self._metric == "cosine" else None
        self._index = dci.Index(
            rows.shape[1], self._metric, zero_rows=zero_rows, context=self._context, **self._options
        )
        self._index.add(rows)

    def set_query_arguments(self, effort: dict[str, Any]) -> None:
        """effort: a dict of what Index.search takes: recall, or prop_to_visit, field_of_view, rerank, .."""
        assert self._index is not None
        self._effort = dict(effort)
        self._index.set_defaults(**self._effort)
        self._reset()

    def _use(self, threads: int) -> None:
        if threads != self._threads:
            self._context.threads = self._threads = threads

    def query(self, q: Any, n: int) -> Any:
        assert self._index is not None
        self._use(1)
        ids = self._index.search(np.asarray(q, np.float32), n)[0]
        self._n_searched += 1
        self._count = n
        if len(self._seen) < COUNTED:
            self._seen.append(q)
        return ids if ids[-1] >= 0 else ids[ids >= 0]

    def batch_query(self, X: Any, n: int) -> None:
        assert self._index is not None
        self._use(self._most)
        ids = self._index.search(np.asarray(X, np.float32), n)[0]
        self._n_searched += len(ids)
        self._count = n
        self._seen = list(X[:COUNTED])
        self._ids = ids

    def get_batch_results(self) -> list[Any]:
        return [ids if ids[-1] >= 0 else ids[ids >= 0] for ids in self._ids]

    def get_additional(self) -> dict[str, Any]:
        """dist_comps: pairs of a query and a row that were chosen to be scored, or scores that were computed if those are
        more (a tree's nodes), over all queries since the arguments were set; what codes or projections rank is not among
        them. Counting costs time, so the first thousand queries are searched again for it, after they were timed.
        index_bytes: what the index says that it holds."""
        assert self._index is not None
        additional = {"index_bytes": self._index.memory()["total"]}
        if self._seen:
            self._use(self._most)
            stats = self._index.search(np.asarray(self._seen, np.float32), self._count, stats=True)[2]
            comparisons = max(stats.distances, stats.candidates)
            additional["dist_comps"] = round(comparisons * self._n_searched / len(self._seen))
        return additional

    def done(self) -> None:
        if self._index is not None:
            self._index.close()

    def __str__(self) -> str:
        built = ", ".join(f"{name}={value}" for name, value in self._options.items())
        spent = ", ".join(f"{name}={value:g}" for name, value in self._effort.items())
        return f"dci({built}{'; ' if spent else ''}{spent})"
