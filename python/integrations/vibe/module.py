# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci for VIBE: this folder is copied to vibe/algorithms/dci, see README.md."""

from __future__ import annotations

from typing import Any

import numpy as np

import dci

from ..base.module import BaseANN

METRICS = {"euclidean": "l2", "cosine": "cosine", "ip": "ip", "normalized": "ip"}
# Queries that codes are fitted to: what they tell does not grow much further.
LEARNED = 2000
# Queries whose distances are counted, see get_additional.
COUNTED = 1000


class DCI(BaseANN):
    """An index of dci.

    metric      "euclidean", "cosine", "ip" or "normalized".
    kind        "flat", "mdci" or "pdci".
    sketch_bits of codes; 0: none.

    With training queries of their distribution (ood: true in config.yml), codes are fitted to them. One query runs on one
    thread, a batch and the build on all that the process may use.
    """

    def __init__(self, metric: str, kind: str, sketch_bits: int) -> None:
        if metric not in METRICS:
            raise NotImplementedError(f"dci knows {', '.join(METRICS)}, not {metric}")
        self._metric = METRICS[metric]
        self._kind, self._bits = kind, sketch_bits
        self._learned = False
        self._effort: dict[str, Any] = {}
        self._reset()

    def _reset(self) -> None:
        self._n_searched = 0
        self._seen: list[Any] = []
        self._count = 1

    def fit(self, X: Any) -> None:
        rows = np.ascontiguousarray(X, np.float32)
        self._context = dci.Context()
        self._threads = self._most = self._context.threads
        options = {"zero_rows": "keep"} if self._metric == "cosine" else {}
        self._index = dci.Index(
            rows.shape[1], self._metric, kind=self._kind, sketch_bits=self._bits, context=self._context, **options
        )
        self._index.add(rows)

    def fit_ood(self, X_train: Any, X_learn: Any, X_learn_neighbors: Any) -> None:
        """The hook for queries that are distributed otherwise than rows: codes are learned from both. Without codes there is
        nothing to learn; neighbours of the training queries are not needed."""
        self.fit(X_train)
        if self._bits:
            step = max(1, len(X_learn) // LEARNED)
            self._index.fit(np.ascontiguousarray(X_learn[::step][:LEARNED], np.float32))
            self._learned = True

    def set_query_arguments(self, field_of_view: int, rerank: float) -> None:
        """0 each: as the index has it (all cells, and a rerank by the number of bits)."""
        self._effort = {"field_of_view": field_of_view} if field_of_view else {}
        if rerank:
            self._effort["rerank"] = rerank
        self._index.set_defaults(**self._effort)
        self._reset()

    def _use(self, threads: int) -> None:
        if threads != self._threads:
            self._context.threads = self._threads = threads

    def query(self, v: Any, n: int) -> Any:
        self._use(1)
        ids = self._index.search(np.asarray(v, np.float32), n)[0]
        self._n_searched += 1
        self._count = n
        if len(self._seen) < COUNTED:
            self._seen.append(v)
        return ids if ids[-1] >= 0 else ids[ids >= 0]

    def batch_query(self, X: Any, n: int) -> None:
        self._use(self._most)
        self._ids = self._index.search(np.asarray(X, np.float32), n)[0]
        self._n_searched += len(self._ids)
        self._count = n
        self._seen = list(X[:COUNTED])

    def get_batch_results(self) -> Any:
        return [ids if ids[-1] >= 0 else ids[ids >= 0] for ids in self._ids]

    def get_additional(self) -> dict[str, Any]:
        """dist_comps: pairs of a query and a row that were chosen to be scored, or scores that were computed if those are
        more (a tree's nodes), over all queries since the arguments were set; what codes or projections rank is not among
        them. Counting costs time, so the first thousand queries are searched again for it, after they were timed.
        index_bytes: what the index says that it holds."""
        additional = {"index_bytes": self._index.memory()["total"]}
        if self._seen:
            self._use(self._most)
            stats = self._index.search(np.asarray(self._seen, np.float32), self._count, stats=True)[2]
            comparisons = max(stats.distances, stats.candidates)
            additional["dist_comps"] = round(comparisons * self._n_searched / len(self._seen))
        return additional

    def __str__(self) -> str:
        spent = "".join(f", {name}={value:g}" for name, value in self._effort.items())
        return f"dci(kind={self._kind}, bits={self._bits}{', learned' if self._learned else ''}{spent})"
