# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""One knob: what recall= and effort= of searches reach, what tune leaves, and what is refused."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from conftest import normal

import dci

OPTIONS = {
    "flat": {"sketch_bits": 2},
    "pdci": {"kind": "pdci"},
    "mdci": {"kind": "mdci"},
    "codes": {"kind": "mdci", "sketch_bits": 4},
}


def clustered(n: int, seed: int) -> np.ndarray:
    centres = 3 * normal(40, 24, seed=5)
    return centres[np.random.default_rng(seed).integers(0, 40, n)] + normal(n, 24, seed=seed)


ROWS, QUERIES = clustered(6000, 1), clustered(200, 2)


def share_found(index: dci.Index, exact: np.ndarray, **effort: float) -> float:
    found, _ = index.search(QUERIES, k=10, **effort)
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found)]))


@pytest.mark.parametrize("name", OPTIONS)
def test_searches_reach_the_recall_that_they_ask_for(name):
    exact, _ = dci.knn(ROWS, QUERIES, 10)
    index = dci.Index(24, **OPTIONS[name])
    index.add(ROWS)
    _, _, stats = index.search(QUERIES, k=10, stats=True)
    assert stats.calibrated_on == "rows" and stats.target_recall == 0.95
    assert share_found(index, exact) >= 0.93
    assert share_found(index, exact, recall=0.99) >= 0.97
    assert share_found(index, exact, recall=0.8) >= 0.78
    assert share_found(index, exact, effort=1.0) == 1.0 == share_found(index, exact, recall=1.0)


@pytest.mark.parametrize("name", OPTIONS)
def test_tune_by_distances_sets_the_same_effort_every_time(name):
    index = dci.Index(24, **OPTIONS[name])
    index.add(ROWS)
    first = index.tune(QUERIES, k=10, recall=0.9, cost="distances")
    before = index.get_defaults()
    second = index.tune(QUERIES, k=10, recall=0.9, cost="distances")
    assert index.get_defaults() == before
    assert (first.recall, first.distances, first.rerank) == (second.recall, second.distances, second.rerank)
    assert first.finished and first.recall >= 0.9 and first.distances < len(ROWS)
    assert index.search(QUERIES[0], recall=0.9, stats=True)[2].calibrated_on == "queries"


def test_tune_that_is_stopped_changes_nothing():
    index = dci.Index(24, kind="mdci")
    index.add(ROWS)
    before, saved = index.get_defaults(), index.to_bytes()
    with pytest.raises(dci.CancelledError):
        index.tune(QUERIES, progress=lambda done, total: True)
    with pytest.raises(ZeroDivisionError):
        index.tune(QUERIES, progress=lambda done, total: 1 / 0)
    assert not index.tune(QUERIES, deadline=1e-9).finished
    assert index.get_defaults() == before and index.to_bytes() == saved


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_a_signal_ends_tune():
    index = dci.Index(24, kind="mdci")
    index.add(ROWS)
    before = index.get_defaults()
    told: list[int] = []

    def interrupt(done: int, total: int) -> bool:
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(done)
        return False

    with pytest.raises(KeyboardInterrupt):
        index.tune(QUERIES, progress=interrupt)
    assert index.get_defaults() == before


def test_what_a_search_asks_for_is_refused_by_name():
    index = dci.Index(24, kind="mdci")
    index.add(ROWS[:100])
    for given in ({"recall": 0}, {"recall": 1.5}, {"recall": float("nan")}, {"effort": 0}, {"effort": -1}):
        name = next(iter(given))
        with pytest.raises(dci.InvalidError, match=rf"{name} is .*, expected more than 0 and at most 1"):
            index.search(QUERIES, **given)
    with pytest.raises(dci.InvalidError, match="leave out prop_to_visit, or recall"):
        index.search(QUERIES, recall=0.9, prop_to_visit=0.1)
    with pytest.raises(dci.InvalidError, match=r"rerank is 4.*sketch_bits"):
        index.search(QUERIES, rerank=4)
    with pytest.raises(dci.InvalidError, match=r'field_of_view is 4.*kind="mdci"'):
        dci.Index(24).search(QUERIES, field_of_view=4)
    with pytest.raises(dci.InvalidError, match="cost is 'bytes', wanted one of 'time', 'distances'"):
        index.tune(QUERIES, cost="bytes")


@pytest.mark.parametrize("option", ["recall", "effort", "rerank", "prop_to_visit"])
def test_a_number_of_another_type_is_refused_by_name(option):
    index = dci.Index(8, kind="mdci", sketch_bits=4)
    with pytest.raises(TypeError, match=rf"{option} is 'half'.*wanted a number"):
        index.search(normal(1, 8), **{option: "half"})
    with pytest.raises(TypeError, match=r"recall is 'half'.*wanted a number"):
        index.tune(normal(20, 8), recall="half")
    with pytest.raises(TypeError, match=r"recall is 'half'.*wanted a number"):
        dci.Index(8, recall="half")
