# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Every refusal is an exception of its class with the library's sentence, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import normal

import dci
from dci._errors import ERRORS, error_of


@pytest.fixture
def index():
    out = dci.Index(4)
    out.add(np.eye(4, dtype=np.float32))
    return out


def with_value(value, row=2):
    rows = normal(5, 4)
    rows[row, 1] = value
    return rows


# what is called, the exception, its Python base, a part of the sentence
REFUSED = {
    "nan row": (lambda x: x.add(with_value(np.nan)), dci.NumberError, ValueError, "row 2"),
    "infinite row": (lambda x: x.add(with_value(np.inf)), dci.NumberError, ValueError, "row 2"),
    "long row": (lambda x: x.add(with_value(1e19)), dci.NumberError, ValueError, "row 2"),
    "nan query": (lambda x: x.search(with_value(np.nan)), dci.NumberError, ValueError, "2"),
    "known id": (lambda x: x.add(normal(2, 4), ids=[9, 3]), dci.ExistsError, ValueError, "3"),
    "id twice": (lambda x: x.add(normal(2, 4), ids=[9, 9]), dci.ExistsError, ValueError, "9"),
    "negative id": (lambda x: x.add(normal(1, 4), ids=[-5]), dci.InvalidError, ValueError, "-5"),
    "id beyond int64": (lambda x: x.add(normal(1, 4), ids=[2**63]), dci.InvalidError, ValueError, "9223372036854775808"),
    "too few ids": (lambda x: x.add(normal(2, 4), ids=[9]), dci.InvalidError, ValueError, "2 rows but 1 ids"),
    "ids in a table": (lambda x: x.add(normal(2, 4), ids=[[8, 9]]), dci.InvalidError, ValueError, "shape"),
    "unknown id": (lambda x: x.remove([1, 77]), dci.NotFoundError, KeyError, "77"),
    "removed twice": (lambda x: x.remove([1, 1]), dci.ExistsError, ValueError, "1"),
    "unknown row": (lambda x: x.reconstruct([1, 77]), dci.NotFoundError, KeyError, "77"),
    "k zero": (lambda x: x.search(normal(1, 4), 0), dci.InvalidError, ValueError, "k"),
    "k negative": (lambda x: x.search(normal(1, 4), -1), dci.InvalidError, ValueError, "k is -1"),
    "k huge": (lambda x: x.search(normal(1, 4)[0], 2**24 + 1), dci.LimitError, ValueError, "16777217"),
    "radius nan": (lambda x: x.range_search(normal(1, 4), np.nan), dci.InvalidError, ValueError, "radius"),
    "reserve huge": (lambda x: x.reserve(2**40), dci.LimitError, ValueError, "1099511627776"),
    "reserve negative": (lambda x: x.reserve(-1), dci.InvalidError, ValueError, "-1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_its_exception_and_changes_nothing(index, name):
    call, error, base, part = REFUSED[name]
    before = index.memory()
    with pytest.raises(error) as caught:
        call(index)
    assert isinstance(caught.value, base) and isinstance(caught.value, dci.DciError)
    assert part in str(caught.value) and "\n" not in str(caught.value)
    assert index.ids().tolist() == [0, 1, 2, 3]
    if name != "reserve huge":
        assert index.memory() == before


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": -3}, "dim is -3"),
        ({"dim": 2**20 + 1}, "1048577"),
        ({"dim": 4, "metric": "max"}, "metric is 'max', wanted one of 'l2', 'ip', 'cosine'"),
        ({"dim": 4, "kind": None}, "kind is None"),
        ({"dim": 4, "dtype": "float64"}, "dtype is 'float64'"),
        ({"dim": 4, "input_dtype": np.int16}, "input_dtype is 'int16'"),
        ({"dim": 4, "storage": "lent"}, "storage is 'lent'"),
        ({"dim": 4, "zero_rows": "drop"}, "zero_rows is 'drop'"),
        ({"dim": 4, "kind": "tree"}, "kind is 'tree', wanted one of 'flat', 'pdci'"),
        ({"dim": 4, "kind": "pdci", "num_comp_indices": 0}, "num_comp_indices is 0, expected at least 1"),
        ({"dim": 4, "kind": "pdci", "num_simp_indices": 0}, "num_simp_indices is 0, expected at least 1"),
        ({"dim": 4, "kind": "pdci", "num_simp_indices": -1}, "num_simp_indices is -1"),
        ({"dim": 4, "kind": "pdci", "num_comp_indices": 65, "num_simp_indices": 64}, "at most 4096"),
        ({"dim": 4, "kind": "pdci", "seed": -1}, "seed is -1"),
        ({"dim": 4, "kind": "pdci", "seed": 2**64}, "seed is 18446744073709551616"),
    ],
)
def test_an_index_that_cannot_be_is_refused(options, part):
    with pytest.raises((dci.InvalidError, dci.LimitError)) as caught:
        dci.Index(**options)
    assert part in str(caught.value)


def test_ids_must_be_integers(index):
    for bad in ([1.0], ["1"], [True], [None]):
        with pytest.raises(TypeError, match="wanted integers"):
            index.remove(bad)


def test_a_zero_row_has_no_cosine():
    index = dci.Index(4, "cosine")
    with pytest.raises(dci.NumberError, match="row 1"):
        index.add([[1, 0, 0, 0], [0, 0, 0, 0]])
    with pytest.raises(dci.NumberError):
        index.search(np.zeros(4, np.float32))


def test_every_status_has_a_class_and_an_unknown_one_the_base():
    assert sorted(ERRORS) == list(range(1, 14))
    for status, error in ERRORS.items():
        assert str(error_of(status, "a sentence")) == "a sentence"
        assert error_of(status, "").status == error.status == status
    unknown = error_of(99, "what")
    assert type(unknown) is dci.DciError and unknown.status == 99
