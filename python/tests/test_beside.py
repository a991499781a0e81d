# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""dci beside other libraries that bring BLAS and OpenMP runtimes of their own into the process, in every order of imports.

Each case is a process of its own: what is loaded first decides whose symbols others find.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

HAS_TASKS = Path("/proc/self/task").is_dir()
OTHERS = ("numpy", "faiss", "torch", "sklearn")

# What a case runs: imports in its order, then work by turns. `threads()` counts those of the process.
HEAD = """
import os, sys
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
"""
WORK = {
    "numpy": """
import numpy as np
a = np.random.default_rng(5).standard_normal((600, 600))
def numpy_works():
    assert abs((a @ a)[3, 4] - sum(a[3] * a[:, 4])) < 1e-9
""",
    "dci": """
import dci
import numpy as np
rows = np.random.default_rng(6).standard_normal((20_000, 48)).astype(np.float32)
wanted = np.argsort(-(rows[:64].astype(np.float64) @ rows.T.astype(np.float64)), axis=1, kind="stable")[:, :5]
def dci_works(executor="openmp", n=2):
    context = dci.Context(threads=n, executor=executor)
    index = dci.Index(48, "ip", context=context)
    index.add(rows)
    assert (index.search(rows[:64], 5)[0] == wanted).all()
    dci.kmeans(rows[:4000], 16, n_iter=3, context=context, outputs=("labels",))
""",
    "faiss": """
import faiss
def faiss_works():
    index = faiss.IndexFlatIP(48)
    index.add(rows)
    assert (index.search(rows[:64], 5)[1] == wanted).mean() > 0.99
""",
    "torch": """
import torch
def torch_works():
    found = torch.topk(torch.from_numpy(rows[:64]) @ torch.from_numpy(rows).T, 5).indices.numpy()
    assert (found == wanted).mean() > 0.99
""",
    "sklearn": """
import sklearn.cluster
from sklearn.neighbors import NearestNeighbors
def sklearn_works():
    sklearn.cluster.KMeans(8, n_init=1, max_iter=5, random_state=0).fit(rows[:4000])
    found = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(rows[:4000]).kneighbors(rows[:8], return_distance=False)
    assert found.ravel().tolist() == list(range(8))
""",
}


def run(script: str, *, timeout: int = 240, **environment: str) -> str:
    """Runs a script in a process of its own; returns all it printed."""
    fixed = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    variables = {name: value for name, value in os.environ.items() if name not in fixed}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def orders() -> list[tuple[str, ...]]:
    """dci first and last beside each of the others, and all of them together from both ends."""
    pairs = [order for other in OTHERS for order in itertools.permutations(("dci", other))]
    return [*pairs, ("dci", *OTHERS), (*OTHERS, "dci")]


@pytest.mark.parametrize("order", orders(), ids="-".join)
def test_results_are_right_in_any_order_of_imports(order):
    if not installed(*order):
        pytest.skip("not installed: " + ", ".join(name for name in order if not installed(name)))
    calls = [f"{name}_works()" for name in order]
    said = run("\n".join([HEAD, *(WORK[name] for name in order), *calls, *reversed(calls)]))
    assert said == ""  # no warning of a second OpenMP runtime either


@pytest.mark.skipif(not HAS_TASKS, reason="counts threads in /proc")
@pytest.mark.parametrize("order", [("numpy", "dci"), ("dci", "faiss"), ("dci", "torch"), ("sklearn", "dci")], ids="-".join)
def test_no_more_threads_than_stated(order):
    if not installed(*order):
        pytest.skip("not installed: " + ", ".join(name for name in order if not installed(name)))
    imports = [WORK[name] for name in order]
    others = [f"{name}_works()" for name in order if name != "dci"]
    script = """
before = threads()
dci_works("openmp", 3)
assert threads() <= before + 2, (before, threads())  # this thread works, too
for _ in range(3):
    dci_works("openmp", 2)
assert threads() <= before + 2, (before, threads())
before = threads()
for n in (4, 2, 5):
    dci_works("pthreads", n)
    assert threads() == before, (before, threads())  # they end with the context
context = dci.Context(threads=5, executor="pthreads")
index = dci.Index(48, "ip", context=context)
index.add(rows)
index.search(rows[:64], 5)
assert before < threads() <= before + 5, (before, threads())
del index, context
assert threads() == before, (before, threads())
"""
    run("\n".join([HEAD, *imports, *others, script]))


@pytest.mark.skipif(not HAS_TASKS, reason="counts threads in /proc")
def test_an_import_starts_no_threads_that_numpy_has_not():
    script = """
import numpy
beside = threads()
import dci
bundled = any("/dci.libs/" in line for line in open("/proc/self/maps"))
# Where libdci uses the system's OpenBLAS and NumPy has its own, that starts its threads as it is loaded.
assert threads() <= (beside if bundled else beside + os.cpu_count() - 1), (bundled, beside, threads())
assert "OPENBLAS_NUM_THREADS" not in os.environ
"""
    run(HEAD + script)


def test_a_number_of_threads_that_the_environment_asks_for_is_left_alone():
    script = """
import numpy, dci
assert os.environ["OPENBLAS_NUM_THREADS"] == "2"
"""
    run(HEAD + script, OPENBLAS_NUM_THREADS="2")
