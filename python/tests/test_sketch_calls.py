# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What sketches refuse, what the objects are, and calls from several threads."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import threading

import numpy as np
import pytest
from conftest import ROOT, assert_same, normal, run_all, sketched, within

import dci
from dci._guard import Turns

# --- refusals -------------------------------------------------------------------------------------------------------------


def with_value(value):
    rows = normal(5, 4)
    rows[2, 1] = value
    return rows


# what is called on a sketch of 4 rows, the exception, its Python base, a part of the sentence
REFUSED = {
    "nan row": (lambda x: x.append(with_value(np.nan)), dci.NumberError, ValueError, "row 2 holds NaN"),
    "infinite row": (lambda x: x.append(with_value(np.inf)), dci.NumberError, ValueError, "row 2"),
    "long row": (lambda x: x.append(with_value(1e19)), dci.NumberError, ValueError, "squared norm exceeds"),
    "double row": (lambda x: x.append(with_value(0).astype(np.float64) * 1e300), dci.NumberError, ValueError, "row 0"),
    "nan query": (lambda x: x.search(with_value(np.nan)), dci.NumberError, ValueError, "query 2"),
    "nan to score": (lambda x: x.score(with_value(np.nan)), dci.NumberError, ValueError, "query 2"),
    "nan to fit": (lambda x: x.fit(with_value(np.nan), np.eye(4)), dci.NumberError, ValueError, "row 2"),
    "zeros to fit": (lambda x: x.fit(np.eye(4), np.zeros((3, 4))), dci.NumberError, ValueError, "mean square is 0"),
    "no rows to fit": (lambda x: x.fit(np.empty((0, 4)), np.eye(4)), dci.InvalidError, ValueError, "0 rows and 4 queries"),
    "no queries to fit": (lambda x: x.fit(np.eye(4), np.empty((0, 4))), dci.InvalidError, ValueError, "0 queries"),
    "k zero": (lambda x: x.search(normal(1, 4), 0), dci.InvalidError, ValueError, "k is 0"),
    "k negative": (lambda x: x.search(normal(1, 4), -1), dci.InvalidError, ValueError, "k is -1"),
    "k beyond": (lambda x: x.search(normal(1, 4), 2**24 + 1), dci.LimitError, ValueError, "16777217"),
    "k huge": (lambda x: x.search(normal(1, 4), 2**62), dci.LimitError, ValueError, "4611686018427387904"),
    "range": (lambda x: x.score(normal(1, 4), 2, 3), dci.InvalidError, ValueError, "rows 2 to 5 are asked for, but"),
    "range's begin": (lambda x: x.bound(normal(1, 4), 5), dci.InvalidError, ValueError, "rows 5 to 5"),
    "range huge": (lambda x: x.score(normal(1, 4), 0, 2**62), dci.InvalidError, ValueError, "4611686018427387904"),
    "range negative": (lambda x: x.score(normal(1, 4), -1), dci.InvalidError, ValueError, "first is -1"),
    "probability": (lambda x: x.bound(normal(1, 4), probability=0), dci.InvalidError, ValueError, "probability is 0"),
    "probability nan": (lambda x: x.bound(normal(1, 4), probability=np.nan), dci.InvalidError, ValueError, "probability"),
    "unknown row": (lambda x: x.decode([1, 4]), dci.NotFoundError, KeyError, "row 4"),
    "negative row": (lambda x: x.decode(-1), dci.NotFoundError, KeyError, "row -1"),
    "rows of no numbers": (lambda x: x.decode([1.5]), TypeError, TypeError, "rows[0] is 1.5, wanted integers"),
    "truncate": (lambda x: x.truncate(5), dci.InvalidError, ValueError, "5 rows are to be left, but there are 4"),
    "reserve huge": (lambda x: x.reserve(2**40), dci.LimitError, ValueError, "1099511627776"),
    "reserve negative": (lambda x: x.reserve(-1), dci.InvalidError, ValueError, "n is -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_its_exception_and_changes_nothing(name):
    call, error, base, part = REFUSED[name]
    sketch = sketched(np.eye(4, dtype=np.float32))
    before, scores = sketch.info(), sketch.score(np.eye(4))
    with pytest.raises(error) as caught:
        call(sketch)
    assert isinstance(caught.value, base)
    assert part in str(caught.value) and "\n" not in str(caught.value)
    assert sketch.info() == before
    np.testing.assert_array_equal(sketch.score(np.eye(4)), scores)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"dim": 0}, "dim is 0"),
        ({"dim": -3}, "dim is -3"),
        ({"dim": dci.Sketch.MAX_DIM + 1}, str(dci.Sketch.MAX_DIM)),
        ({"dim": 4, "bits": 5}, "bits is 5, expected 1, 2, 3, 4 or 8"),
        ({"dim": 4, "bits": -1}, "bits is -1"),
        ({"dim": 4, "transform": "hadamard"}, "transform is 'hadamard', wanted one of 'none', 'random'"),
        ({"dim": 4, "centre": "mean"}, "centre is 'mean', wanted one of 'none', 'running'"),
        ({"dim": 4, "centre": "given"}, "centre is 'given'"),
        ({"dim": 4, "centre": np.zeros(3)}, "centre has shape (3,), wanted (4,)"),
        ({"dim": 4, "centre": [0, 0, np.nan, 0]}, "given_centre holds NaN"),
        ({"dim": 4, "dtype": "float64"}, "dtype is 'float64'"),
        ({"dim": 4, "query_dtype": np.int8}, "query_dtype is 'int8'"),
        ({"dim": 4, "seed": -1}, "seed is -1"),
        ({"dim": 4, "seed": 2**64}, "seed is 18446744073709551616"),
    ],
)
def test_a_sketch_that_cannot_be_is_refused(options, part):
    with pytest.raises((dci.InvalidError, dci.NumberError)) as caught:
        dci.Sketch(**options)
    assert part in str(caught.value)


def test_the_largest_dimensions_are_those_stated():
    assert sketched(normal(3, dci.Sketch.MAX_DIM), 1).search(normal(1, dci.Sketch.MAX_DIM), 3)[0].min() == 0
    beyond = dci.Sketch.MAX_FIT_DIM + 1
    with pytest.raises(dci.LimitError, match=f"{beyond}.*{dci.Sketch.MAX_FIT_DIM}"):
        dci.Sketch(beyond).fit(normal(3, beyond), normal(3, beyond))


def test_fits_are_limited_and_the_last_stays():
    rows = normal(64, 4)
    sketch = sketched(rows, centre="none")
    with pytest.raises(dci.LimitError, match="128"):
        for _ in range(200):
            sketch.fit(rows, rows)
    assert sketch.info().transforms == 128
    sketch.append(rows)
    assert within(sketch, np.concatenate((rows, rows)), rows).all()


# --- the object -----------------------------------------------------------------------------------------------------------


def test_properties_say_what_the_sketch_is():
    context = dci.Context(threads=1)
    with dci.Sketch(12, 2, "none", np.zeros(12), dtype=np.float16, query_dtype="float32", context=context) as sketch:
        sketch.append(np.ones((3, 12), np.float16))
        assert (sketch.dim, sketch.bits, sketch.transform, sketch.centre) == (12, 2, "none", "given")
        assert (sketch.dtype, sketch.query_dtype, sketch.context) == ("float16", "float32", context)
        said = "Sketch(dim=12, bits=2, transform='none', centre='given', dtype='float16', "
        assert repr(sketch) == said + "count=3)"
    assert repr(sketch) == said + "closed)"
    sketch.close()
    row = np.ones((1, 12), np.float16)
    of_rows, of_numbers = (sketch.append, sketch.score, sketch.bound, sketch.search), (sketch.truncate, sketch.reserve)
    calls = [(call, row) for call in of_rows] + [(call, 0) for call in (*of_numbers, sketch.decode)]
    for call, *arguments in (*calls, (sketch.fit, row, row), (sketch.info,), (len, sketch)):
        with pytest.raises(dci.InvalidError, match="the sketch is closed"):
            call(*arguments)


def test_a_sketch_outlives_its_context():
    context = dci.Context(threads=2, executor="pthreads")
    sketch = dci.Sketch(24, context=context)
    del context
    sketch.append(normal(2000, 24))
    assert sketch.search(normal(1, 24)[0], 1)[0][0] >= 0


def test_a_sketch_cannot_be_copied_or_pickled():
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="copied or pickled"):
            call(dci.Sketch(4))


def test_the_readmes_example_runs():
    section = (ROOT / "python" / "README.md").read_text().split("\n## Sketches\n")[1].split("\n## ")[0]
    example = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    names = {"dci": dci, "np": np, "keys": normal(10_000, 64)}
    exec(example, names)
    assert names["scores"].shape == names["exact"].shape == (5, 40) and names["bounds"].shape == (5, 50)
    assert (names["rows"][:, 0] == np.arange(5)).all() and len(names["sketch"]) == 10_000


# --- threads --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["openmp", "pthreads"])
def test_searches_beside_appends_see_all_of_a_batch_or_none(executor):
    sketch = dci.Sketch(32, context=dci.Context(threads=2, executor=executor))
    batch, n_batches = 64, 20
    rows = normal(batch * n_batches, 32)

    def appends():
        for at in range(0, len(rows), batch):
            sketch.append(rows[at : at + batch])

    def searches():
        while True:
            found, _ = sketch.search(rows[0], len(rows))
            n = np.count_nonzero(found >= 0)
            assert n % batch == 0 and sorted(found[:n]) == list(range(n))
            assert sketch.score(rows[0]).size >= n and sketch.info().n_rows >= n
            if n == len(rows):
                return

    run_all([searches, appends, searches])


def test_writers_take_turns():
    sketch, rows = dci.Sketch(16, 1), normal(40, 16)

    def writes():
        for _ in range(20):
            sketch.append(rows)
            sketch.reserve(4000)
            sketch.fit(rows, rows)

    def reads():
        for _ in range(50):
            n = len(sketch)
            assert np.isfinite(sketch.decode(np.arange(n))).all() and n % 40 == 0

    run_all([writes, reads, writes, reads])
    assert len(sketch) == 1600 and sketch.info().transforms == 41


def test_calls_that_may_run_side_by_side_do():
    turns, meeting = Turns(), threading.Barrier(2)

    def reads():
        with turns.shared():
            meeting.wait(60)  # only two that are inside together get beyond this

    run_all([reads, reads])


def taking(turns, name, function):
    """Calls the function beside others, or alone."""
    if name == "alone":
        turns.alone(function)
    else:
        with turns.shared():
            function()


@pytest.mark.parametrize(("first", "second"), [("alone", "shared"), ("alone", "alone"), ("shared", "alone")])
def test_what_runs_alone_does(first, second):
    turns, entered = Turns(), threading.Event()
    thread = threading.Thread(target=lambda: taking(turns, second, entered.set))

    def runs():
        thread.start()
        assert not entered.wait(0.05)

    taking(turns, first, runs)
    thread.join()
    assert entered.is_set()


@pytest.mark.parametrize("name", ["shared", "alone"])
def test_an_exception_gives_the_turn_back(name):
    turns = Turns()
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            taking(turns, name, lambda: signal.raise_signal(signal.SIGINT))
    run_all([lambda: turns.alone(lambda: None)])


@pytest.mark.parametrize("inner", ["shared", "alone"])
@pytest.mark.parametrize("outer", ["shared", "alone"])
def test_a_thread_does_not_wait_for_itself(outer, inner):
    turns = Turns()
    taking(turns, outer, lambda: taking(turns, inner, lambda: None))


def test_closing_beside_searches_waits_for_them():
    for _ in range(20):
        sketch = sketched(normal(2000, 32))
        wanted = sketch.search(normal(1, 32)[0], 3)[0].tolist()
        started = threading.Event()

        def searches(sketch=sketch, wanted=wanted, started=started):
            with pytest.raises(dci.InvalidError, match="closed"):
                while True:
                    assert sketch.search(normal(1, 32)[0], 3)[0].tolist() == wanted
                    started.set()

        def closes(sketch=sketch, started=started):
            started.wait()
            sketch.close()

        run_all([searches, closes])


@pytest.mark.parametrize("executor", ["openmp", "pthreads"])
def test_a_forked_child_searches_as_its_parent(executor, keys, queries):
    sketch = sketched(keys, context=dci.Context(threads=2, executor=executor))
    wanted = sketch.search(queries, 10)
    child = os.fork()
    if child == 0:
        # Whatever happens, a child must not run on into the parent's tests.
        status = 1
        try:
            found = sketch.search(queries, 10)
            sketch.append(keys[:5])
            status = 0 if all(map(np.array_equal, found, wanted)) and len(sketch) == len(keys) + 5 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(sketch) == len(keys)
    assert_same(sketch.search(queries, 10), wanted)
