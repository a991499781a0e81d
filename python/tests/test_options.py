# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What is given and has no meaning is refused with its name, its value and what it belongs to; names have other words."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from conftest import METRICS, assert_same, normal

import dci
from dci._structs import KINDS, METRIC_ALIASES

# Options that one kind has, with values that it takes.
OF_KIND = {
    "num_comp_indices": ("pdci", (1, 2)),
    "num_simp_indices": ("pdci", (3, 7)),
    "promotion_prob": ("mdci", (0.2, 0.035, np.float32(0.25))),
    "promotion_prob_subseq": ("mdci", (0.2, 0.5)),
    "page_rows": ("mdci", (16, np.int64(4))),
    "top_nodes": ("mdci", (1, 4096)),
    "cell_simp_indices": ("mdci", (0, 3)),
}
OF_AUTO = ("promotion_prob", "promotion_prob_subseq", "page_rows", "top_nodes")


@pytest.mark.parametrize("name", OF_KIND)
@pytest.mark.parametrize("kind", KINDS)
def test_an_option_is_for_its_kind_alone(name, kind):
    own, values = OF_KIND[name]
    for value in values:
        if kind == "auto" and name == "page_rows" and value < 16:  # it will have codes
            with pytest.raises(dci.InvalidError, match=r"page_rows is 4, .* at least 16"):
                dci.Index(16, kind=kind, page_rows=value)
            continue
        if kind == own or (kind == "auto" and name in OF_AUTO):
            index = dci.Index(16, kind=kind, **{name: value})
            index.add(normal(50, 16))
            assert len(index) == 50
            continue
        with pytest.raises(dci.InvalidError) as caught:
            dci.Index(16, kind=kind, **{name: value})
        assert str(caught.value) == f"{name} is {value!r}, an option of kind {own!r}: the kind is {kind!r}"
    assert len(dci.Index(16, kind=kind, **{name: None})) == 0  # None is "not given"


def test_all_options_of_one_kind_are_tested():
    none = {name for name, one in inspect.signature(dci.Index).parameters.items() if one.default is None}
    assert none - {"context", "input_dtype", "zero_rows"} == set(OF_KIND)


def test_defaults_of_options_are_those_of_the_library():
    for kind, options in (("pdci", {"num_comp_indices": 2, "num_simp_indices": 7}), ("mdci", {"promotion_prob": 0.035})):
        made = [dci.Index(16, kind=kind, **one) for one in ({}, options)]
        for index in made:
            index.add(normal(300, 16))
        assert made[0].to_bytes() == made[1].to_bytes()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("value", ["refuse", "keep"])
def test_zero_rows_are_a_matter_of_cosine(metric, value):
    rows = normal(20, 4)
    calls = {
        "Index": lambda: dci.Index(4, metric, zero_rows=value),
        "kmeans": lambda: dci.kmeans(rows, 2, metric=metric, zero_rows=value),
        "KMeans": lambda: dci.KMeans(2, metric, zero_rows=value).fit(rows),
        "knn": lambda: dci.knn_graph(rows, 2, metric, zero_rows=value),
    }
    for call in calls.values():
        if metric == "cosine":
            call()
        else:
            with pytest.raises(
                dci.InvalidError, match=f"zero_rows is '{value}', an option of .*cosine.*: the metric is '{metric}'"
            ):
                call()


@pytest.mark.parametrize("value", ["unit", "mean"])
def test_centroids_of_a_kind_are_a_matter_of_cosine(value):
    rows = normal(20, 4)
    dci.kmeans(rows, 2, centroid=value)
    for metric in ("l2", "ip", "euclidean"):
        with pytest.raises(dci.InvalidError, match=f"centroid is '{value}', an option of the cosine metric: the metric is "):
            dci.kmeans(rows, 2, metric=metric, centroid=value)


def test_an_estimator_refuses_what_its_index_refuses():
    pytest.importorskip("sklearn")
    from dci.sklearn import DCITransformer  # noqa: PLC0415

    made = DCITransformer(3, kind="pdci", index_options={"page_rows": 8})
    with pytest.raises(dci.InvalidError, match="page_rows is 8, an option of kind 'mdci': the kind is 'pdci'"):
        made.fit(normal(50, 4))
    with pytest.raises(ValueError, match="metric is 'manhattan', wanted one of 'euclidean'"):
        DCITransformer(3, metric="manhattan").fit(normal(50, 4))


# --- names -----------------------------------------------------------------------------------------------------------


def test_the_default_metric_is_the_one_of_c():
    index = dci.Index(4)
    assert index.metric == "l2"
    index.add(np.eye(4))
    assert index.search(2 * np.eye(4)[0], 1)[1].tolist() == [1.0]
    assert_same(dci.knn(np.eye(4), np.eye(4)[0], 1), dci.knn(np.eye(4), np.eye(4)[0], 1, "l2"))


@pytest.mark.parametrize("name", METRIC_ALIASES)
def test_other_words_for_a_metric_mean_the_same(name):
    metric, rows = METRIC_ALIASES[name], normal(60, 8)
    made = [dci.Index(8, one) for one in (name, metric)]
    for index in made:
        index.add(rows)
        assert index.metric == metric
    assert made[0].to_bytes() == made[1].to_bytes() and f"metric={metric!r}" in repr(made[0])
    assert dci.Index.from_bytes(made[0].to_bytes()).metric == metric
    assert_same(dci.knn(rows, rows[:3], 4, name), dci.knn(rows, rows[:3], 4, metric))
    found, wanted = dci.kmeans(rows, 5, metric=name), dci.kmeans(rows, 5, metric=metric)
    assert_same((found.labels, found.centroids), (wanted.labels, wanted.centroids))
    assert found.metric == metric
    found.check()
    assert_same(dci.KMeans(5, name).fit(rows).predict(rows), dci.KMeans(5, metric).fit(rows).predict(rows))


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("L2", "l2"),
        ("cosin", "cosine"),
        ("Euclidean", "euclidean"),
        ("inner-product", "inner_product"),
        (3, None),
        (["l2"], None),
    ],
)
def test_an_unknown_metric_lists_what_there_is_and_the_nearest(given, near):
    for call in (lambda: dci.Index(4, given), lambda: dci.kmeans(normal(9, 4), 2, metric=given)):
        with pytest.raises(dci.InvalidError) as caught:
            call()
        sentence = str(caught.value)
        assert sentence.startswith(f"metric is {given!r}, wanted one of 'l2', 'ip', 'cosine' (or 'euclidean', ")
        assert sentence.endswith(f": did you mean {near!r}?") if near else "mean" not in sentence


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"kind": "mcdi"}, "kind is 'mcdi', wanted one of 'flat', 'pdci', 'mdci', 'auto': did you mean 'mdci'?"),
        ({"dtype": "flaot16"}, "dtype is 'flaot16'"),
        ({"storage": "borowed"}, "did you mean 'borrowed'?"),
    ],
)
def test_other_unknown_names_do_the_same(options, part):
    with pytest.raises(dci.InvalidError) as caught:
        dci.Index(4, **options)
    assert part in str(caught.value)
