# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The modules for ann-benchmarks and VIBE, called as the runners of both call them (runner.py of each): made from
config.yml, fit, for each group of query arguments all queries, one by one and as a batch, and what is stored."""

from __future__ import annotations

import importlib
import itertools
import sys
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, normal, recall

FOLDERS = {"ann_benchmarks": "ann_benchmarks.algorithms", "vibe": "vibe.algorithms"}
yaml = pytest.importorskip("yaml")

BASE = """
class BaseANN(object):
    def done(self):
        pass

    def get_additional(self):
        return {}

    def __str__(self):
        return self.name
"""


@pytest.fixture
def placed(tmp_path, monkeypatch):
    """Puts a folder of integrations where its README says, beside a base module that has what the runners' have."""

    def place(name: str) -> tuple[Any, Any]:
        folder = tmp_path / f"{name}_placed" / "algorithms"
        (folder / "base").mkdir(parents=True)
        (folder / "base" / "module.py").write_text(BASE)
        source = ROOT / "python" / "integrations" / name
        (folder / "dci").mkdir()
        (folder / "dci" / "module.py").write_text((source / "module.py").read_text())
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        module = importlib.import_module(f"{name}_placed.algorithms.dci.module")
        return module, yaml.safe_load((source / "config.yml").read_text())

    yield place
    for name in list(sys.modules):
        if "_placed" in name:
            del sys.modules[name]


def combinations(arguments: Any) -> list[list[Any]]:
    """As definitions.py of both has it: a list of lists, or a dict of lists, by every combination."""
    values = arguments.values() if isinstance(arguments, dict) else arguments
    return [list(one) for one in itertools.product(*values)]


def run(algorithm: Any, queries: Any, groups: Any, k: int, batch: bool) -> list[tuple[list[Any], dict[str, Any]]]:
    """run and run_individual_query of runner.py, without the clock."""
    out = []
    for group in groups or [[]]:
        if group:
            algorithm.set_query_arguments(*group)
        for _ in range(2):
            if batch:
                algorithm.batch_query(queries, k)
                found = algorithm.get_batch_results()
            else:
                found = [algorithm.query(q, k) for q in queries]
        for one in found:
            assert len(one) == len({int(i) for i in one}) <= k
        out.append(([[int(i) for i in one] for one in found], {"name": str(algorithm), **algorithm.get_additional()}))
    return out


def definitions(config: Any) -> Any:
    for algorithm in config["float"]["any"]:
        assert algorithm["base_args"] == ["@metric"] and not algorithm["disabled"]
        for group in algorithm["run_groups"].values():
            for arguments in combinations(group["args"]):
                yield algorithm, arguments, combinations(group["query_args"]) if "query_args" in group else []


def true_neighbours(rows: Any, queries: Any, k: int, metric: str) -> Any:
    x, q = rows.astype(np.float64), queries.astype(np.float64)
    if metric in ("angular", "cosine", "normalized"):
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    scores = q @ x.T if metric != "euclidean" else -((q[:, None] - x) ** 2).sum(-1)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def check_runs(results: Any, wanted: Any, n_queries: int, n_rows: int) -> None:
    assert len({stored["name"] for _, stored in results}) == len(results)  # each point of a plot can be told
    shares = [recall([np.array(ids) for ids in found], wanted) for found, _ in results]
    for _, stored in results:
        # Two runs of all queries; the tree's nodes are compared with, too.
        assert 0 < stored["dist_comps"] <= 2 * n_queries * 1.2 * n_rows
        assert stored["index_bytes"] > 0
    assert shares[-1] >= max(shares[0], 0.5)


@pytest.mark.parametrize("metric", ["euclidean", "angular"])
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
def test_every_arm_of_ann_benchmarks_runs(placed, metric, batch):
    module, config = placed("ann_benchmarks")
    rows, queries = normal(1500, 12).astype(np.float64), normal(20, 12, seed=2).astype(np.float64)
    wanted = true_neighbours(rows, queries, 10, metric)
    arms = set()
    for algorithm, arguments, groups in definitions(config):
        assert algorithm["module"] == "ann_benchmarks.algorithms.dci"
        made = getattr(module, algorithm["constructor"])(metric, *arguments)
        made.fit(rows)
        results = run(made, queries, groups, 10, batch)
        check_runs(results, wanted, len(queries), len(rows))
        if algorithm["name"] == "dci-flat":
            assert recall(np.array(results[0][0]), wanted) == 1
            assert results[0][1]["dist_comps"] == 2 * len(queries) * len(rows)
        arms.add(algorithm["name"])
        made.done()
    assert arms == {"dci-flat", "dci-codes", "dci-mdci", "dci-pdci"}


def test_single_queries_run_on_one_thread_and_batches_on_all(placed):
    module, _ = placed("ann_benchmarks")
    made = module.DCI("euclidean", {"kind": "flat"})
    made.fit(normal(100, 4))
    most = made._context.threads
    made.query(normal(1, 4)[0], 3)
    assert made._context.threads == 1
    made.batch_query(normal(5, 4), 3)
    assert made._context.threads == most


def test_fewer_rows_than_wanted_are_no_padding(placed):
    module, _ = placed("ann_benchmarks")
    made = module.DCI("angular", {"kind": "flat"})
    made.fit(normal(4, 8))
    assert sorted(made.query(normal(1, 8)[0], 10).tolist()) == [0, 1, 2, 3]
    made.batch_query(normal(2, 8), 10)
    assert [len(one) for one in made.get_batch_results()] == [4, 4]


@pytest.mark.parametrize("name", ["ann_benchmarks", "vibe"])
def test_a_metric_that_dci_has_not_is_refused(placed, name):
    module, _ = placed(name)
    with pytest.raises(NotImplementedError, match="hamming"):
        module.DCI("hamming", *([{}] if name == "ann_benchmarks" else ["flat", 2]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "ip", "normalized"])
def test_every_arm_of_vibe_runs(placed, metric):
    module, config = placed("vibe")
    rows, queries = normal(1500, 12), normal(20, 12, seed=2)
    if metric == "normalized":
        rows, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, queries))
    wanted = true_neighbours(rows, queries, 10, metric)
    for algorithm, arguments, groups in definitions(config):
        made = getattr(module, algorithm["constructor"])(metric, *arguments)
        if algorithm.get("ood"):
            learn = normal(300, 12, seed=3)
            made.fit_ood(rows, learn, true_neighbours(rows, learn, 10, metric).astype(np.uint32))
        else:
            made.fit(rows)
        for batch in (False, True):
            check_runs(run(made, queries, groups, 10, batch), wanted, len(queries), len(rows))


def test_codes_learned_from_training_queries_rank_better_for_their_like(placed, keys):
    module, _ = placed("vibe")
    rows = keys[:4000].astype(np.float32)
    # Queries of few directions, far from those of the rows.
    some = normal(6, 64, seed=4) @ np.diag(np.geomspace(3, 0.05, 64).astype(np.float32))
    queries, learn = normal(40, 6, seed=5) @ some, normal(400, 6, seed=6) @ some
    wanted = true_neighbours(rows, queries, 20, "ip")
    shares = []
    for ood in (False, True):
        made = module.DCI("ip", "flat", 1)
        if ood:
            made.fit_ood(rows, learn, None)
        else:
            made.fit(rows)
        made.set_query_arguments(0, 2)
        shares.append(recall(np.array([made.query(q, 20) for q in queries]), wanted))
        assert ("learned" in str(made)) == ood
    assert shares[1] > shares[0] + 0.1, shares
