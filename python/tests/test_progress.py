# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Progress of long calls: it is told in order, may cancel, may raise, and what it stops has changed nothing."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import KINDS, normal

import dci

DIM = 24
ROWS = normal(3000, DIM)


@pytest.fixture(params=KINDS)
def index(request):
    out = dci.Index(DIM, **KINDS[request.param])
    out.add(ROWS[:500])
    return out


def calls(index):
    return {
        "add": lambda progress: index.add(ROWS, progress=progress),
        "add with ids": lambda progress: index.add(ROWS, np.arange(3000) + 5000, progress=progress),
        "check": lambda progress: index.check(progress=progress),
        **({"fit": lambda progress: index.fit(ROWS[:64], progress=progress)} if index.sketch_bits else {}),
    }


def searches(index):
    asked = np.repeat(ROWS[:400], 4, axis=0)
    return {
        "search": lambda progress, **more: index.search(asked, 5, progress=progress, **more),
        "search_group": lambda progress, **more: index.search_group(asked.reshape(-1, 4, DIM), 5, progress=progress, **more),
        "range_search": lambda progress, **more: index.range_search(asked, 20.0, progress=progress, **more),
    }


@pytest.mark.parametrize("name", ["search", "search_group", "range_search"])
def test_a_search_tells_and_may_be_stopped(index, name):
    call, told = searches(index)[name], []
    wanted = call(None)
    for more in ({}, {"filter": lambda i: True}, {"stats": True}):
        told.clear()
        found = call(lambda done, total: told.append((done, total)), **more)
        for got, want in zip(found, wanted):
            np.testing.assert_array_equal(got, want)
        done, total = np.array(told).T
        assert (np.diff(done) >= 0).all() and (done <= total).all() and len(set(total)) == 1
        with pytest.raises(dci.CancelledError):
            call(lambda *_: True, **more)
        for raised in (ZeroDivisionError("told so"), KeyboardInterrupt()):

            def stop(*_, raised=raised):
                raise raised

            with pytest.raises(type(raised)) as caught:
                call(stop, **more)
            assert caught.value is raised
    with pytest.raises(TypeError, match="progress is an int, wanted a function"):
        call(3)
    with pytest.raises(TypeError, match="there is no option 'progress'"):
        index.set_defaults(progress=print)


@pytest.mark.parametrize("name", ["add", "check", "fit"])
def test_progress_is_told_in_order(index, name):
    told = []
    if name not in calls(index):
        return
    calls(index)[name](lambda done, total: told.append((done, total)))
    done, total = np.array(told).T
    assert (np.diff(done) >= 0).all() and (done <= total).all() and len(set(total)) == 1
    if name == "add":
        assert total[0] == (3500 if index.kind == "mdci" else 3000)  # a tree that grows so much is built as a whole
        assert len(index) == 3500
        again = dci.Index.from_bytes(index.to_bytes())
        np.testing.assert_array_equal(again.ids(), np.arange(3500))


@pytest.mark.parametrize("name", ["add", "add with ids", "check", "fit"])
@pytest.mark.parametrize("how", ["cancels", "raises", "interrupts"])
def test_a_call_that_progress_stops_has_changed_nothing(index, name, how):
    if name not in calls(index):
        return
    before, call = index.to_bytes(), calls(index)[name]
    stops = {"raises": ZeroDivisionError("told so"), "interrupts": KeyboardInterrupt()}
    n_reports = []
    twin = dci.Index.from_bytes(before)
    calls(twin)[name](lambda *_: n_reports.append(1))
    for at in {0, len(n_reports) // 2, len(n_reports) - 1}:
        told = []

        def progress(done, total, at=at, told=told):
            told.append(done)
            if len(told) - 1 < at:
                return None
            if how == "cancels":
                return True
            raise stops[how]

        with pytest.raises(dci.CancelledError if how == "cancels" else type(stops[how])) as caught:
            call(progress)
        if how != "cancels":
            assert caught.value is stops[how]
        assert len(told) == at + 1  # nothing is told after that
        assert index.to_bytes() == before
    call(None)


def test_what_cannot_be_called_is_refused_by_name(index):
    for call in (*calls(index).values(), lambda progress: dci.kmeans(ROWS, 3, progress=progress)):
        for bad, called in ((3, "an int"), ("bar", "a str"), ([], "a list")):
            with pytest.raises(TypeError, match=f"progress is {called}, wanted a function"):
                call(bad)
    assert len(index) == 500
