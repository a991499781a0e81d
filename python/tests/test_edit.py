# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""An index as a collection of rows by id: replacing, removing, asking, iterating; ids of all sorts; metadata; copies."""

from __future__ import annotations

import copy
import json
import pickle
import threading

import numpy as np
import pytest
from conftest import KINDS, normal
from read_index import read_metadata

import dci

DIM = 16


def made(name="flat", n=100, **options):
    index = dci.Index(DIM, "l2", **{**KINDS[name], **options})
    index.add(normal(n, DIM))
    return index


def check_rows(index, model):
    assert list(index) == sorted(model) and len(index) == len(model)
    index.check()
    if model:
        np.testing.assert_array_equal(index[list(model)], np.array(list(model.values())))
        asked = next(iter(model.values()))
        ids, _ = index.search(asked, 1, rerank=np.inf) if index.sketch_bits else index.search(asked, 1)
        np.testing.assert_array_equal(model[ids[0]], asked)


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_replaced_and_added_in_one_call(name):
    index, new = made(name), normal(400, DIM, seed=5)
    model = dict(enumerate(normal(100, DIM)))
    at = 0
    for call in (
        index.upsert,
        lambda ids, x: index.add(x, ids, replace=True),
        lambda ids, x: index.add(x, ids=iter(ids), replace=True),
    ):
        for ids in ([7, 700 + at], [], list(range(3, 60, 4)), [10**6 + at], list(range(0, 100))):
            x = new[at : at + len(ids)]
            returned = call(ids, x)
            assert returned.dtype == np.int64 and returned.tolist() == ids
            model.update(zip(ids, x))
            check_rows(index, model)
        at += 100
    index.replace([7, 3], new[:2])
    model.update({7: new[0], 3: new[1]})
    with pytest.raises(dci.NotFoundError, match="id 101 of row 1"):
        index.replace([7, 101], new[2:4])
    with pytest.raises(dci.ExistsError, match="id 7 of row 1 comes twice"):
        index.upsert([7, 7], new[2:4])
    with pytest.raises(dci.ExistsError, match="in the index already"):
        index.add(new[2:4], [7, 8])
    with pytest.raises(dci.InvalidError, match="2 rows but 3 ids"):
        index.upsert([7, 8, 9], new[2:4])
    with pytest.raises(dci.InvalidError, match="replace is True but ids is None"):
        index.add(new[2:4], replace=True)
    with pytest.raises(dci.NumberError, match="row 1"):
        index.upsert([7, 8], np.array([new[2], np.full(DIM, np.nan)], np.float32))
    check_rows(index, model)


# Law: whoever searches meanwhile finds the old rows or the new ones, and no id is missing.
@pytest.mark.parametrize("name", ["flat", "flat with codes", "pdci", "mdci"])
def test_a_search_on_another_thread_sees_old_or_new(name):
    index = dci.Index(2, "l2", **KINDS[name])
    ids = list(range(50))
    index.add(np.zeros((50, 2), np.float32), ids)
    index.add(np.full((300, 2), 1e4, np.float32) + normal(300, 2), np.arange(1000, 1300))
    complaints, done = [], threading.Event()

    def look():
        while not done.is_set() and not complaints:
            found, scores = (
                index.search(np.zeros(2, np.float32), 50, guarantee=1.0)
                if index.sketch_bits
                else index.search(np.zeros(2, np.float32), 50)
            )
            if sorted(found.tolist()) != ids or len(set(scores.tolist())) != 1:
                complaints.append((found, scores))

    thread = threading.Thread(target=look)
    thread.start()
    for version in range(40):
        index.upsert(ids, np.full((50, 2), version, np.float32))
    done.set()
    thread.join()
    assert not complaints


@pytest.mark.parametrize("name", KINDS)
def test_progress_is_told_and_may_end_the_call(name):
    index, x = made(name), normal(100, DIM, seed=8)
    told = []
    index.upsert(range(50, 150), x, progress=lambda done, whole: told.append((done, whole)))
    assert told and told[-1][1] in (100, 150)  # "mdci" builds its tree again, with all rows
    before = index.to_bytes()
    with pytest.raises(dci.CancelledError):
        index.upsert(range(100), x, progress=lambda done, whole: True)
    with pytest.raises(ZeroDivisionError):
        index.replace(range(100), x, progress=lambda done, whole: 1 / 0)
    with pytest.raises(TypeError, match="progress is an int"):
        index.add(x, progress=3)
    assert index.to_bytes() == before
    assert index.add(x, progress=lambda done, whole: None).tolist() == list(range(150, 250))


def test_borrowed_rows_live_as_long_as_they_are_pointed_to():
    index = made("borrowed")
    index.upsert(np.arange(50), normal(50, DIM, seed=9))
    np.testing.assert_array_equal(index[[0, 49]], normal(50, DIM, seed=9)[[0, 49]])
    index.clear()
    assert not index._handle.kept and len(index) == 0
    assert index.add(normal(2, DIM)).tolist() == [100, 101]


@pytest.mark.parametrize("name", KINDS)
def test_ids_that_are_missing_are_ignored_if_asked_for(name):
    index = made(name)
    assert index.remove([3, 500, 3, 99], missing="ignore") == 2
    assert index.remove([3, 500], missing="ignore") == 0
    assert index.remove({4, 5}) == 2 and index.remove(6) == 1 and index.remove([]) == 0
    for missing in ([3, 7], 3):
        with pytest.raises(dci.NotFoundError):
            index.remove(missing)
    with pytest.raises(dci.InvalidError, match="missing is 'never', wanted one of 'error', 'ignore'"):
        index.remove([7], missing="never")
    assert len(index) == 95
    index.check()


@pytest.mark.parametrize("name", KINDS)
def test_a_cleared_index_goes_on(name):
    index = made(name)
    index.metadata = {"kept": True}
    index.clear()
    assert len(index) == 0 and list(index) == [] and 0 not in index and index.metadata == {"kept": True}
    assert index.search(normal(1, DIM)[0], 2)[0].tolist() == [-1, -1]
    assert index.memory()["rows"] == 0
    assert index.add(normal(2, DIM)).tolist() == [100, 101]
    index.check()


def test_an_index_is_asked_like_a_dict():
    index = made()
    assert 7 in index and np.int32(7) in index and np.uint64(7) in index and np.array(7) in index
    for other in (100, -1, 2**63, 2**200, 7.0, "7", None, True, [7], (7,), np.float32(7), np.array([7]), object()):
        assert other not in index
    assert index.contains([7, 100, -1]).tolist() == [True, False, False] and index.contains(7).tolist() == [True]
    assert index.contains(()).shape == (0,) and index.contains({7}).dtype == bool
    np.testing.assert_array_equal(index[7], normal(100, DIM)[7])
    assert index[[7]].shape == (1, DIM) and index[{7, 9}].shape == (2, DIM) and index[np.arange(3)].shape == (3, DIM)
    np.testing.assert_array_equal(index[np.int64(9)], index.reconstruct(9))
    with pytest.raises(KeyError, match="id 100 "):
        index[100]
    del index[7]
    del index[[8, 9]]
    assert len(index) == 97 and list(index)[6:9] == [6, 10, 11] and all(type(i) is int for i in index)
    for wrong in (slice(None), slice(0, 5), None, ...):
        with pytest.raises(TypeError, match="rows have ids and no order"):
            index[wrong]
    with pytest.raises(TypeError, match="no order"):
        del index[:]
    for wrong in (1.5, "a", [1.5], [True]):
        with pytest.raises(TypeError, match=r"ids(\[0\])? is "):
            index[wrong]
    index.close()
    for call in (lambda: 7 in index, lambda: list(index), lambda: index[7], index.clear, lambda: index.metadata):
        with pytest.raises(dci.InvalidError, match="closed"):
            call()


# Law: any iterable of integers is ids, of every call that takes some.
IDS = {
    "list": lambda: [3, 4],
    "tuple": lambda: (3, 4),
    "set": lambda: {3, 4},
    "frozenset": lambda: frozenset((3, 4)),
    "range": lambda: range(3, 5),
    "generator": lambda: (i for i in (3, 4)),
    "iterator": lambda: iter([3, 4]),
    "map": lambda: map(int, "34"),
    "keys": {3: "a", 4: "b"}.keys,
    "values": {"a": 3, "b": 4}.values,
    "object array": lambda: np.array([3, 4], object),
    "uint64": lambda: np.array([3, 4], np.uint64),
    "uint16": lambda: np.array([3, 4], np.uint16),
    "int8": lambda: np.array([3, 4], np.int8),
    "big endian": lambda: np.array([3, 4], ">i4"),
    "strided": lambda: np.array([3, 0, 4, 0])[::2],
    "NumPy integers": lambda: [np.int32(3), np.uint8(4)],
    "set of NumPy integers": lambda: {np.int64(3), np.int64(4)},
}


@pytest.mark.parametrize("name", IDS)
def test_ids_are_any_iterable_of_integers(name):
    def given():
        return IDS[name]()

    index, x = made(), normal(2, DIM, seed=6)
    assert index.contains(given()).all() and index[given()].shape == (2, DIM)
    assert sorted(index.search(x[0], 2, filter=given())[0]) == [3, 4]
    assert sorted(index.upsert(given(), x)) == [3, 4]
    assert index.remove(given()) == 2 and index.remove(given(), missing="ignore") == 0
    assert sorted(index.add(x, given())) == [3, 4]
    del index[given()]
    assert len(index) == 98


@pytest.mark.parametrize(
    ("bad", "error", "sentence"),
    [
        ([1.5], TypeError, "ids[0] is 1.5, wanted integers from 0 to 9223372036854775806"),
        ([3, 2.0], TypeError, "ids[1] is 2.0, wanted"),
        ({2.5}, TypeError, "ids[0] is 2.5, wanted"),
        (np.array([1.0]), TypeError, "ids is float64, wanted integers from 0 to 9223372036854775806"),
        (np.array([1.0, 2], object), TypeError, "ids[0] is 1.0, wanted"),
        ([True, False], TypeError, "ids[0] is True, wanted"),
        (np.array([True]), TypeError, "ids is bool, wanted"),
        ({True}, TypeError, "ids[0] is True, wanted"),
        (["7"], TypeError, "ids[0] is '7', wanted"),
        ("34", TypeError, "ids is a str, wanted"),
        (b"34", TypeError, "ids is a bytes, wanted"),
        (None, TypeError, "ids is a NoneType, wanted"),
        (1.5, TypeError, "ids is a float, wanted"),
        (object(), TypeError, "ids is a object, wanted"),
        (([3], [4]), dci.InvalidError, "ids has shape (2, 1)"),
        ([3, 2**63], dci.InvalidError, "ids[1] is 9223372036854775808, wanted integers from 0 to 9223372036854775806"),
        ({2**70}, dci.InvalidError, f"ids[0] is {2**70}, wanted"),
        ([-(2**70)], dci.InvalidError, f"ids[0] is {-(2**70)}, wanted"),
        (np.array([3, 2**63], np.uint64), dci.InvalidError, "ids[1] is 9223372036854775808, wanted"),
    ],
)
def test_what_are_no_ids_is_refused_by_name_value_and_range(bad, error, sentence):
    index = made()
    for call in (index.remove, index.contains, index.reconstruct, lambda ids: index.upsert(ids, normal(1, DIM))):
        with pytest.raises(error) as caught:
            call(bad)
        assert sentence in str(caught.value)
    assert len(index) == 100


def test_negative_ids_are_never_there_and_never_given():
    index = made()
    assert not index.contains([-1]).any() and index.remove([-1], missing="ignore") == 0
    for call in (lambda: index.remove([-1]), lambda: index[-1]):
        with pytest.raises(dci.NotFoundError, match="id -1 "):
            call()
    for call in (lambda: index.add(normal(1, DIM), [-1]), lambda: index.upsert([-1], normal(1, DIM))):
        with pytest.raises(dci.InvalidError, match="id -1 of row 0 is negative: ids are 0 to 9223372036854775806"):
            call()


def test_add_returns_the_ids_also_of_many_threads():
    index, got = dci.Index(DIM), []
    threads = [threading.Thread(target=lambda: got.extend(index.add(normal(7, DIM)).tolist())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(56)) == list(index)
    given = np.array([100, 90])
    returned = index.add(normal(2, DIM), given)
    given[0] = 5
    assert returned.tolist() == [100, 90] and index.add(normal(1, DIM)[0]).tolist() == [101]
    assert index.add(np.empty((0, DIM), np.float32)).tolist() == []


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_metadata_are_a_dict_that_goes_where_the_index_goes(tmp_path):
    index = made()
    assert index.metadata == {} and isinstance(index.metadata, dict)
    index.metadata = {"model": "bge-small", "dim": 384, "nested": {"a": [1, None, 2.5, "ü"]}}
    index.metadata["more"] = True
    index.metadata.update(version=3)
    index.metadata |= {"x": 1}
    assert index.metadata.pop("x") == 1 and index.metadata.setdefault("model", "y") == "bge-small"
    del index.metadata["more"]
    wanted = {"model": "bge-small", "dim": 384, "nested": {"a": [1, None, 2.5, "ü"]}, "version": 3}
    index.save(tmp_path / "it")
    assert json.loads(read_metadata((tmp_path / "it").read_bytes())) == wanted
    others = [dci.Index.load(tmp_path / "it"), dci.Index.map(tmp_path / "it"), dci.Index.from_bytes(index.to_bytes())]
    others += [pickle.loads(pickle.dumps(index)), copy.copy(index), copy.deepcopy(index)]
    for other in others:
        assert other.metadata == wanted
        other.metadata.clear()
        assert other.metadata == {}
    assert index.metadata == wanted and pickle.loads(pickle.dumps(index.metadata)) == wanted
    index.metadata = {}
    assert index.metadata.copy() == {} and read_metadata(index.to_bytes()) == b""
    index.metadata["a"] = 1
    assert index.metadata.popitem() == ("a", 1) and index.metadata == {}


def test_what_json_does_not_hold_is_refused_and_changes_nothing():
    index = made()
    index.metadata = {"kept": 1}
    for bad, sentence in (
        ({"when": object()}, "'when' is a object"),
        ({"set": {1}}, "'set' is a set"),
        ({"nan": float("nan")}, "'nan' is a float"),
        ({"array": np.ones(2)}, "'array' is a ndarray"),
        ({"lone": "\ud800"}, "'lone' is a str"),
        ({7: 1}, "metadata has the key 7, wanted strings"),
        ({"a": {7: 1}}, "metadata['a'] has the key 7, wanted strings"),
        ([1], "metadata is a list, wanted a dict"),
        (None, "metadata is a NoneType"),
    ):
        with pytest.raises(TypeError) as caught:
            index.metadata = bad
        assert sentence in str(caught.value)
    with pytest.raises(TypeError, match="'bad' is a set"):
        index.metadata["bad"] = {1}
    with pytest.raises(dci.LimitError, match="at most 1048576"):
        index.metadata = {"large": "x" * (1 << 20)}
    with pytest.raises(KeyError):
        del index.metadata["gone"]
    assert index.metadata == {"kept": 1}


# --- copies -----------------------------------------------------------------------------------------------------------


class Documents(dci.Index):
    """With attributes of its own, some in slots."""

    __slots__ = ("__dict__", "__private", "titles")

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.titles, self.note, self.__private = {}, ["a"], 7

    def private(self):
        return self.__private


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))])
def test_attributes_of_subclasses_survive(again):
    context = dci.Context(threads=1)
    index = Documents(DIM, context=context, kind="mdci")
    index.add(normal(20, DIM))
    index.titles[3] = "three"
    index.set_defaults(prop_to_visit=0.5)
    other = again(index)
    assert type(other) is Documents and other.private() == 7
    assert other.titles == {3: "three"} and other.note == ["a"]
    assert (other.titles is index.titles) == (other.note is index.note) == (again is copy.copy)
    assert other.get_defaults() == index.get_defaults() and other.to_bytes() == index.to_bytes()
    assert (other.context is context) == (again in (copy.copy, copy.deepcopy))
    other.clear()
    assert len(index) == 20


def test_a_copy_within_a_structure_is_made_once():
    index = made()
    first, second = copy.deepcopy([index, index])
    assert first is second and first is not index
    assert copy.copy(made("borrowed")).storage == "owned"
