# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Filters in all their forms, the exceptions they raise, and how a signal ends a long call."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from conftest import normal

import dci
from dci import _guard

N = 200
ALLOWED = sorted({3, 0, 150, 77, 199, 64, 63, 65})


def mask():
    out = np.zeros(N, bool)
    out[ALLOWED] = True
    return out


def words(shift=0):
    out = np.zeros(N // 64 + 1, np.uint64)
    for i in ALLOWED:
        if i >= shift:
            out[(i - shift) // 64] |= np.uint64(1) << np.uint64((i - shift) % 64)
    return out


FILTERS = {
    "sorted ids": lambda: np.array(ALLOWED),
    "shuffled ids, some unknown": lambda: np.array([*ALLOWED[::-1], 10**12, N]),
    "set of ids": lambda: set(ALLOWED),
    "generator of ids": lambda: (i for i in ALLOWED),
    "keys of a dict": lambda: dict.fromkeys(ALLOWED).keys(),
    "array of Python integers": lambda: np.array(ALLOWED, object),
    "Filter of ids, twice": lambda: dci.Filter.from_ids([*ALLOWED[::-1], *ALLOWED]),
    "Filter of a mask": lambda: dci.Filter.from_mask(mask()),
    "Filter of a short mask": lambda: dci.Filter.from_mask(mask()[:200]),
    "Filter of a function": lambda: dci.Filter.from_function(lambda i: i in ALLOWED),
    "complement of ids": lambda: ~dci.Filter.from_ids(np.setdiff1d(np.arange(N), ALLOWED)),
    "complement of a bitmap": lambda: ~dci.Filter.from_mask(~mask()),
    "complement of a function": lambda: ~dci.Filter.from_function(lambda i: i not in ALLOWED),
    "intersection": lambda: dci.Filter.from_mask(mask()) & ~dci.Filter.from_ids([1, 5, 10**12]),
    "int32 ids": lambda: np.array(ALLOWED, np.int32),
    "uint64 ids": lambda: np.array(ALLOWED, np.uint64),
    "list of ids": lambda: list(ALLOWED),
    "mask": mask,
    "strided mask": lambda: np.repeat(mask(), 2)[::2],
    "list of bools": lambda: mask().tolist(),
    "bitmap": lambda: dci.Bitmap(words()),
    "bitmap of a mask": lambda: dci.Bitmap.from_mask(mask()),
    "strided bitmap": lambda: dci.Bitmap(np.repeat(words(), 2)[::2], n=N),
    "function": lambda: lambda i: i in ALLOWED,
}


@pytest.fixture
def index():
    out = dci.Index(16, "ip")
    out.add(normal(N, 16))
    return out


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("n_queries", [1, 20])
def test_only_allowed_rows_are_returned_in_the_order_of_a_full_search(index, name, n_queries):
    asked = normal(n_queries, 16, seed=2)
    every_id, every_score = index.search(asked, N)
    allowed = np.isin(every_id, ALLOWED)
    ids, scores = index.search(asked, 10, filter=FILTERS[name]())
    np.testing.assert_array_equal(ids[:, : len(ALLOWED)], every_id[allowed].reshape(n_queries, -1))
    np.testing.assert_array_equal(scores[:, : len(ALLOWED)], every_score[allowed].reshape(n_queries, -1))
    assert (ids[:, len(ALLOWED) :] == -1).all()
    offsets, ids, _ = index.range_search(asked, -1e9, filter=FILTERS[name]())
    np.testing.assert_array_equal(ids, every_id[allowed])
    assert (np.diff(offsets) == len(ALLOWED)).all()


def test_a_bitmap_may_start_anywhere_and_end_early(index):
    asked = normal(1, 16, seed=2)[0]
    ids, _ = index.search(asked, N, filter=dci.Bitmap(words(64), n=100, first_id=64))
    assert sorted(ids[ids >= 0]) == [i for i in ALLOWED if 64 <= i < 164]
    assert repr(dci.Bitmap(words(), 100, 64)) == "Bitmap(n=100, first_id=64)"


@pytest.mark.parametrize(
    "nothing", [[], set(), np.empty(0, np.int64), np.zeros(N, bool), ~~dci.Filter.from_ids([]), lambda i: False]
)
def test_a_filter_that_allows_nothing_finds_nothing(index, nothing):
    ids, scores = index.search(normal(2, 16), 3, filter=nothing)
    assert (ids == -1).all() and np.isnan(scores).all()


@pytest.mark.parametrize("bad", [1.5, "ids", {1, 2.5}, [[1.0]], np.array([1.0, 2.0]), object(), {True, 7}, [None]])
def test_what_is_no_filter_is_refused(index, bad):
    with pytest.raises(TypeError, match=r"filter(\[\d\])? is .*wanted integers"):
        index.search(normal(1, 16), 3, filter=bad)


# Law: no array of integers is taken for ids that could be meant as a mask.
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8, np.int32, object, list])
@pytest.mark.parametrize("n", [3, N - 1, N, N + 1, 5000])
def test_a_column_of_zeros_and_ones_is_no_filter(index, dtype, n):
    column = np.arange(n) % 2
    column = column.tolist() if dtype is list else column.astype(dtype)
    for call in (index.search, lambda q, k, filter: index.range_search(q, 0, filter=filter)):
        with pytest.raises(dci.InvalidError, match=r"filter has the id [01] more than once.*astype\(bool\)"):
            call(normal(1, 16), 3, filter=column)


def test_a_mask_has_one_element_for_each_id_that_was_ever_given(index):
    index.remove([N - 1, 5])
    for n in (0, 1, N - 2, N - 1, N + 1):
        with pytest.raises(dci.InvalidError, match=f"mask of {n} elements, wanted {N}.* {N - 2} rows"):
            index.search(normal(1, 16), 3, filter=np.ones(n, bool))
    assert set(index.search(normal(1, 16)[0], N, filter=mask())[0]) - {-1} == set(ALLOWED) - {N - 1, 5}
    assert index.add(normal(1, 16)) == [N]
    with pytest.raises(dci.InvalidError, match=f"wanted {N + 1}"):
        index.search(normal(1, 16), 3, filter=mask())


IDS = sorted({*range(0, 120, 7), 63, 64, 65, 128, 10**12})
PARTS = {
    "ids": lambda: dci.Filter.from_ids(IDS),
    "few ids": lambda: dci.Filter.from_ids([64, 1, 10**15]),
    "no ids": lambda: dci.Filter.from_ids(()),
    "bitmap": lambda: dci.Bitmap(words(), n=N),
    "shifted": lambda: dci.Filter.from_mask(np.arange(100) % 3 == 0, first_id=50),
    "far": lambda: dci.Filter.from_mask(np.ones(3, bool), first_id=10**12 - 1),
    "empty bitmap": lambda: dci.Filter.from_mask(np.empty(0, bool)),
    "function": lambda: dci.Filter.from_function(lambda i: i % 2 == 0),
}


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", PARTS)
def test_filters_obey_the_algebra_of_sets(first, second):
    universe = [0, 1, 7, 49, 50, 51, 63, 64, 65, 77, 128, 149, 150, 199, 200, 10**12, 10**12 + 1, 10**15, 2**62]
    a, b = PARTS[first](), PARTS[second]()
    in_a, in_b = {i for i in universe if i in a}, {i for i in universe if i in b}
    for made, wanted in (
        (a & b, in_a & in_b),
        (a | b, in_a | in_b),
        (~a, set(universe) - in_a),
        (a & ~b, in_a - in_b),
        (~a & b, in_b - in_a),
        (~a & ~b, set(universe) - in_a - in_b),
        (~(~a | ~b), in_a & in_b),
        (a | ~b, set(universe) - (in_b - in_a)),
        (~~a, in_a),
    ):
        assert {i for i in universe if i in made} == wanted
        assert set(np.array(universe)[made.contains(universe)]) == wanted
    assert {i for i in universe if i in a} == in_a  # unchanged


@pytest.mark.parametrize("kind", ["flat", "pdci", "mdci"])
def test_a_search_admits_what_a_combination_has(kind):
    index = dci.Index(16, kind=kind)
    index.add(normal(N, 16))
    index.add(normal(3, 16, seed=4), ids=[10**12, 10**12 + 1, 10**15])
    index.remove(range(0, N, 9))
    for make in PARTS.values():
        part, bitmap = make(), PARTS["shifted"]()
        for made in (~part, part & ~bitmap, part | bitmap, ~(part | bitmap)):
            ids, _ = index.search(normal(1, 16)[0], len(index), filter=made)
            assert set(ids.tolist()) - {-1} == {i for i in index if i in made}


def test_the_number_of_ids_of_a_filter():
    assert len(dci.Filter.from_ids([5, 5, 1])) == 2 and len(dci.Filter.from_mask(mask())) == len(ALLOWED)
    assert len(dci.Filter.from_ids([1, 70]) | dci.Filter.from_mask(mask())) == len({1, 70, *ALLOWED})
    for endless in (~dci.Filter.from_ids([1]), dci.Filter.from_function(bool), ~dci.Bitmap(words())):
        with pytest.raises(TypeError, match="no number of ids"):
            len(endless)
        assert bool(endless)
    assert bool(dci.Filter.from_ids([]))


def test_filters_say_what_they_are_and_refuse_what_they_are_not():
    some = dci.Filter.from_ids([3, 1])
    assert repr(~some) == "~Filter(n=2)" and repr(~dci.Bitmap(words(), 9)) == "~Bitmap(n=9, first_id=0)"
    assert repr(dci.Filter.from_function(bool)) == "Filter(function)"
    for other in ([1, 2], np.ones(3, bool), None):
        with pytest.raises(TypeError):
            some & other
        with pytest.raises(TypeError):
            other | some
    with pytest.raises(TypeError, match="from_ids"):
        dci.Filter()
    with pytest.raises(TypeError, match="function is a int"):
        dci.Filter.from_function(7)
    with pytest.raises(TypeError, match=r"mask is int64.*astype\(bool\)"):
        dci.Filter.from_mask(np.array([0, 1, 1]))
    assert "1" not in some and 1.0 not in some and True not in some and 2**70 not in some and 2**70 in ~some


def test_filters_are_pickled_and_copied():
    for name, make in PARTS.items():
        if name == "function":
            continue
        for made in (make(), ~make()):
            for again in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
                assert type(again) is type(made) and repr(again) == repr(made)
                assert (again.contains(IDS) == made.contains(IDS)).all()


def test_a_filter_of_the_wrong_shape_is_refused(index):
    for bad in (np.ones((2, 2), bool), np.ones((2, 2), int)):
        with pytest.raises(dci.InvalidError, match=r"filter has shape \(2, 2\)"):
            index.search(normal(1, 16), 3, filter=bad)
    with pytest.raises(TypeError, match="uint64"):
        dci.Bitmap(np.zeros(3, np.int64))
    with pytest.raises(TypeError, match="bool"):
        dci.Bitmap.from_mask(np.zeros(3, np.int64))
    with pytest.raises(dci.InvalidError, match="n is 193"):
        dci.Bitmap(np.zeros(3, np.uint64), n=193)


def test_a_function_is_asked_once_per_row_whatever_the_batch(index):
    asked = []
    index.search(normal(20, 16), 3, filter=lambda i: asked.append(i) or True)
    assert sorted(asked) == list(range(N))


@pytest.mark.parametrize("raised", [ZeroDivisionError("told so"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_in_a_function_comes_out_and_stops_the_asking(index, raised):
    asked = []

    def fails(row_id):
        asked.append(row_id)
        if len(asked) == 5:
            raise raised
        return True

    for call in (
        lambda: index.search(normal(1, 16), 3, filter=fails),
        lambda: index.range_search(normal(1, 16), 0, filter=fails),
    ):
        asked.clear()
        with pytest.raises(type(raised)) as caught:
            call()
        assert caught.value is raised
        assert len(asked) == 5
    assert index.search(normal(1, 16), 1)[0][0, 0] >= 0


def test_a_function_may_not_change_the_index_it_filters(index):
    for change in (lambda: index.remove([0]), lambda: index.add(normal(1, 16)), lambda: index.search(normal(1, 16))):
        with pytest.raises(dci.BusyError):
            index.search(normal(1, 16), 3, filter=lambda i, change=change: change())
    assert len(index) == N


def test_a_function_and_what_it_holds_are_freed_without_the_cycle_collector(index):
    class Held:
        def __call__(self, row_id):
            return True

    held = Held()
    alive = weakref.ref(held)
    gc.disable()
    try:
        index.search(normal(1, 16), 3, filter=held)
        del held
        assert alive() is None
    finally:
        gc.enable()


def interrupt(row_id):
    signal.raise_signal(signal.SIGINT)
    return True


def test_a_signal_ends_a_watched_search_with_its_own_exception(index):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        index.search(normal(1, 16), 3, filter=interrupt)
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_signal_whose_handler_returns_ends_nothing(index):
    seen = []
    former = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        ids, _ = index.search(normal(1, 16), 3, filter=lambda i: i != 0 or interrupt(i))
    finally:
        signal.signal(signal.SIGINT, former)
    assert seen == [signal.SIGINT] and (ids >= 0).all()


def test_a_handler_that_a_handler_sets_is_there_afterwards(index):
    def second(number, frame):
        pass

    former = signal.signal(signal.SIGINT, lambda number, frame: signal.signal(signal.SIGINT, second))
    try:
        index.search(normal(1, 16), 3, filter=lambda i: i != 0 or interrupt(i))
        assert signal.getsignal(signal.SIGINT) is second
    finally:
        signal.signal(signal.SIGINT, former)


# A host that runs Python in a thread of its own: threading is imported there first, and takes it for the main thread.
ELSEWHERE = """
import _thread, sys
assert "threading" not in sys.modules
done = _thread.allocate_lock()
done.acquire()
def work():
    try:
        import numpy, dci
        index = dci.Index(4)
        index.add(numpy.eye(4, dtype="float32"))
        index.check()
        print(index.search(numpy.ones(4, "float32"), 2, filter=lambda i: i > 1)[0].tolist())
    finally:
        done.release()
_thread.start_new_thread(work, ())
done.acquire()
"""


def test_calls_are_watched_no_further_where_signals_are_handled_elsewhere():
    program = f"import sys; sys.path[:] = {sys.path!r}\n{ELSEWHERE}"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[2, 3]\n", done.stderr


def test_a_watched_add_or_search_is_undone_by_a_signal(index, monkeypatch):
    monkeypatch.setattr(_guard, "WATCHED_WORK", 0)
    monkeypatch.setattr(_guard, "WATCHED_ADD", 0)
    # The first report of progress finds an exception that a signal handler left, as if Ctrl-C had come just before.
    report = _guard.CallGuard._report

    def interrupted(self, ctx, done, total):
        signal.raise_signal(signal.SIGINT)
        return report(self, ctx, done, total)

    monkeypatch.setattr(_guard.CallGuard, "_report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.add(normal(N, 16))
    assert len(index) == N
    with pytest.raises(KeyboardInterrupt):
        index.search(normal(20, 16), 3)
    with pytest.raises(KeyboardInterrupt):
        index.range_search(normal(20, 16), 0)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("storage", ["owned", "borrowed"])
@pytest.mark.parametrize("options", [{}, {"sketch_bits": 4}, {"kind": "pdci"}, {"kind": "mdci"}], ids=str)
def test_an_add_and_its_interrupt_do_not_come_together(options, storage, named, monkeypatch):
    """A signal at each report of progress in turn, the last of which comes when all but the publication is done."""
    rows, few = normal(2000, 16), normal(100, 16, seed=1)
    index = dci.Index(16, "l2", storage=storage, **options)
    index.add(rows)
    before = index.to_bytes()
    monkeypatch.setattr(_guard, "WATCHED_ADD", 0)
    report = _guard.CallGuard._report
    reports = 0
    strikes_at = 0

    def interrupted(self, ctx, done, total):
        nonlocal reports
        reports += 1
        if reports == strikes_at:
            signal.raise_signal(signal.SIGINT)
        return report(self, ctx, done, total)

    monkeypatch.setattr(_guard.CallGuard, "_report", interrupted)
    for batch, first in ((few, 5000), (rows, 6000)):
        ids = np.arange(first, first + len(batch)) if named else None
        strikes_at = 0
        while True:
            strikes_at, reports = strikes_at + 1, 0
            try:
                index.add(batch, ids)
                break
            except KeyboardInterrupt:
                assert index.to_bytes() == before
        assert reports == strikes_at - 1 > 0
        before = index.to_bytes()


def test_watched_calls_give_the_results_of_unwatched_ones(index, monkeypatch):
    asked = normal(20, 16)
    wanted = index.search(asked, 5)
    monkeypatch.setattr(_guard, "WATCHED_WORK", 0)
    monkeypatch.setattr(_guard, "WATCHED_ADD", 0)
    for got, want in zip(index.search(asked, 5), wanted):
        np.testing.assert_array_equal(got, want)
    index.add(normal(3, 16))
    assert len(index) == N + 3


def test_a_function_filters_on_other_threads_too(index):
    found = []
    thread = threading.Thread(target=lambda: found.append(index.search(normal(1, 16)[0], 3, filter=lambda i: i % 2 == 1)[0]))
    thread.start()
    thread.join()
    assert (found[0] % 2 == 1).all()
