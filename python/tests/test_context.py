# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Contexts, threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import threading

import numpy as np
import pytest
from conftest import normal, run_all

import dci


def test_a_context_says_and_takes_its_threads():
    context = dci.Context(threads=3, executor="pthreads")
    assert context.threads == 3
    context.threads = 2
    assert context.threads == 2
    assert repr(context) == f"Context(threads=2, isa={context.isa!r})"
    for bad in (0, 4, 2000, -1):
        with pytest.raises((dci.InvalidError, dci.LimitError)):
            context.threads = bad
    assert context.threads == 2


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "amx", "neon"])
def test_an_isa_is_used_or_refused(isa, keys, queries):
    if not dci.isa_available(isa):
        with pytest.raises(dci.UnsupportedError, match=isa):
            dci.Context(isa=isa)
        return
    context = dci.Context(isa=isa, threads=1)
    assert context.isa == isa
    index, auto = dci.Index(64, context=context, dtype="float16"), dci.Index(64, dtype="float16")
    index.add(keys)
    auto.add(keys)
    _, scores = index.search(queries, 5)
    np.testing.assert_allclose(scores, auto.search(queries, 5)[1], rtol=1e-5)


@pytest.mark.parametrize("options", [{"isa": "sse"}, {"executor": "caller"}, {"threads": 1025}, {"threads": -1}])
def test_a_context_that_cannot_be_is_refused(options):
    with pytest.raises(dci.InvalidError, match=next(iter(options))):
        dci.Context(**options)


def test_the_default_context_is_one():
    assert dci.default_context() is dci.default_context() is dci.Index(4).context


def test_an_index_outlives_its_context():
    context = dci.Context(threads=2, executor="pthreads")
    index = dci.Index(64, context=context)
    del context
    index.add(normal(2000, 64))
    ids, _ = index.search(normal(1, 64)[0], 1)
    assert ids[0] >= 0


@pytest.mark.parametrize("executor", ["openmp", "pthreads"])
def test_searches_beside_an_add_see_all_of_a_batch_or_none(executor):
    index = dci.Index(32, context=dci.Context(threads=2, executor=executor))
    batch, n_batches = 64, 20
    rows = normal(batch * n_batches, 32)

    def adds():
        for at in range(0, len(rows), batch):
            index.add(rows[at : at + batch])

    def searches():
        while True:
            ids, _ = index.search(normal(1, 32)[0], len(rows))
            n = np.count_nonzero(ids >= 0)
            assert n % batch == 0 and sorted(ids[:n]) == list(range(n))
            if n == len(rows):
                return

    run_all([searches, adds, searches])


def test_errors_of_threads_do_not_mix():
    index = dci.Index(4)

    def fails(number):
        for _ in range(200):
            with pytest.raises(dci.NotFoundError, match=str(number)):
                index.remove([number])

    run_all([lambda number=number: fails(number) for number in (1234567, 7654321)])


def test_closing_beside_searches_waits_for_them():
    for _ in range(20):
        index = dci.Index(32)
        index.add(normal(2000, 32))
        wanted = index.search(normal(1, 32)[0], 3)[0].tolist()
        started = threading.Event()

        def searches(index=index, wanted=wanted, started=started):
            with pytest.raises(dci.InvalidError, match="closed"):
                while True:
                    assert index.search(normal(1, 32)[0], 3)[0].tolist() == wanted
                    started.set()

        def closes(index=index, started=started):
            started.wait()
            index.close()

        run_all([searches, closes])


@pytest.mark.parametrize("executor", ["openmp", "pthreads"])
def test_a_forked_child_searches_as_its_parent(executor, keys, queries):
    index = dci.Index(64, context=dci.Context(threads=2, executor=executor), dtype="float16")
    index.add(keys)
    wanted = index.search(queries, 10)
    child = os.fork()
    if child == 0:
        # Whatever happens, a child must not run on into the parent's tests.
        status = 1
        try:
            found = index.search(queries, 10)
            index.add(keys[:5])
            status = 0 if all(map(np.array_equal, found, wanted)) and len(index) == len(keys) + 5 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(index) == len(keys)
    for got, want in zip(index.search(queries, 10), wanted):
        np.testing.assert_array_equal(got, want)


def first_answer(index):
    """In a worker: what the first row is asked to find, by an index and a context that are made there."""
    return index.search(np.ones(64, np.float32), 3)[0].tolist(), index.context.threads


def test_a_forked_worker_makes_contexts_of_its_own():
    # OpenMP's threads are not there in a child, and would be waited for: the parent has used them, through another context.
    index = dci.Index(64, context=dci.Context(threads=2))
    index.add(normal(30_000, 64))
    asked = normal(64, 64)
    wanted = index.search(asked, 10)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(first_answer, (index,)).get(timeout=60)[0] == first_answer(index)[0]
        for got, want in zip(pool.apply_async(dci.Index.search, (index, asked, 10)).get(timeout=60), wanted):
            np.testing.assert_array_equal(got, want)


def test_version_and_isa_are_those_of_the_library_and_the_default_context():
    assert dci.version() == dci.__version__
    assert dci.isa() == dci.default_context().isa
    assert dci.isa_available(dci.isa())
