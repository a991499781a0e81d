# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Sentences are in the names of Python: no function, enumerator or struct of C, no number of an enum."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import normal
from kv_model import Text, kv_of, started

import dci
from dci._errors import in_python

ROWS = normal(40, 8)


def index_of(kind="flat", **options):
    index = dci.Index(8, kind=kind, **options)
    index.add(ROWS)
    return index


def sketch():
    out = dci.Sketch(8)
    out.append(ROWS)
    return out


def mapped(folder):
    index_of().save(folder / "index")
    return dci.Index.map(folder / "index")


def stepping(call):
    """A call on a cache of which a step is open, that is taken back."""

    def run(_folder):
        kv, name = started(Text(100))
        kv.reserve(name)
        try:
            call(kv, name)
        finally:
            kv.step_abort(name)

    return run


def cached(call):
    def run(_folder):
        call(*started(Text(100)))

    return run


def on_gpu(call):
    def run(_folder):
        shape = {"n_layers": 1, "n_query_heads": 2, "n_kv_heads": 1, "dim_k": 16, "dense_layers": 0}
        kv = dci.gpu.GPUKVCache(dci.gpu.GPU("host"), **shape)
        call(kv, kv.open())

    return run


def unplanned(kv, name):
    with kv.step(name, 1):
        kv.append(0, np.ones((1, 16), np.float16), np.ones((1, 16), np.float16))
        kv.attend(0, np.ones((2, 16), np.float32))


# Calls that are refused, of every class: by Python or by the library.
BAD = {
    "map add": lambda f: mapped(f).add(ROWS),
    "map remove": lambda f: mapped(f).remove([1]),
    "map reserve": lambda f: mapped(f).reserve(100),
    "map fit": lambda f: mapped(f).fit(ROWS),
    "flat pages": lambda f: index_of().pages(),
    "pdci pages": lambda f: index_of("pdci").page_ids(0),
    "flat changes": lambda f: index_of().changes(),
    "flat stats": lambda f: index_of().tree_stats(),
    "no page": lambda f: index_of("mdci").page_ids(9999),
    "tune of nothing": lambda f: index_of().tune(ROWS[:0], 3, 0.9),
    "fit of nothing": lambda f: index_of(sketch_bits=4).fit(ROWS[:0]),
    "fit without codes": lambda f: index_of().fit(ROWS),
    "group of nothing": lambda f: index_of().search_group(np.zeros((2, 0, 8), np.float32), 3),
    "group too large": lambda f: index_of().search_group(np.zeros((2, 9, 8), np.float32), 3),
    "k": lambda f: index_of().search(ROWS, 0),
    "k huge": lambda f: index_of().search(ROWS, 2**24 + 1),
    "nan": lambda f: index_of().add(ROWS * np.nan),
    "large": lambda f: index_of().add(ROWS * np.float32(1e30)),
    "half": lambda f: dci.Index(8, dtype="float16", input_dtype="float32").add(ROWS * 1e6),
    "brain": lambda f: dci.Index(8, dtype="bfloat16", input_dtype="float32").add(np.full((1, 8), 3.4e38, np.float32)),
    "nan query": lambda f: index_of().search(ROWS * np.nan),
    "radius": lambda f: index_of().range_search(ROWS, np.nan),
    "ids": lambda f: index_of().add(ROWS, ids=np.arange(40) + 39),
    "ids twice": lambda f: index_of().add(ROWS, ids=np.zeros(40, int)),
    "no id": lambda f: index_of().remove([77]),
    "no row": lambda f: index_of().reconstruct([77]),
    "reserve": lambda f: index_of().reserve(2**60),
    "dim": lambda f: dci.Index(0),
    "dim huge": lambda f: dci.Index(2**21),
    "bits": lambda f: dci.Index(8, sketch_bits=5),
    "bits and dim": lambda f: dci.Index(40000, sketch_bits=4),
    "bits and pages": lambda f: dci.Index(8, kind="mdci", sketch_bits=4, page_rows=8),
    "pages": lambda f: dci.Index(8, kind="mdci", page_rows=7),
    "simple": lambda f: dci.Index(8, kind="pdci", num_simp_indices=9999),
    "cells": lambda f: dci.Index(8, kind="mdci", cell_simp_indices=9999),
    "promotion": lambda f: dci.Index(8, kind="mdci", promotion_prob=2),
    "share": lambda f: index_of("pdci").search(ROWS, 3, prop_to_visit=2),
    "rerank": lambda f: index_of(sketch_bits=4).search(ROWS, 3, rerank=0.5),
    "guarantee": lambda f: index_of(sketch_bits=4).search(ROWS, 3, guarantee=2),
    "recall": lambda f: index_of().tune(ROWS, 3, 1.5),
    "zero": lambda f: dci.Index(8, "cosine").add(np.zeros((1, 8))),
    "borrowed": lambda f: dci.Index(8, storage="borrowed").add(ROWS.astype(np.float64)),
    "bytes": lambda f: dci.Index.from_bytes(b"x" * 100),
    "kmeans": lambda f: dci.kmeans(ROWS, 0),
    "kmeans init": lambda f: dci.kmeans(ROWS, 3, init="given"),
    "kmeans init and centroids": lambda f: dci.kmeans(ROWS, 3, init="even", centroids=ROWS[:3]),
    "kmeans runs": lambda f: dci.kmeans(ROWS, 3, n_redo=3, init="even"),
    "kmeans runs of given": lambda f: dci.kmeans(ROWS, 3, n_redo=3, centroids=ROWS[:3]),
    "kmeans rounds": lambda f: dci.kmeans(ROWS, 3, n_redo=2**40),
    "kmeans tolerance": lambda f: dci.kmeans(ROWS, 3, tolerance=7),
    "kmeans segments": lambda f: dci.kmeans(ROWS, 3, segment_rows=32, centroids=ROWS[:3]),
    "kmeans rounds over all": lambda f: dci.kmeans(ROWS, 3, n_iter_global=3),
    "kmeans capacity": lambda f: dci.kmeans(ROWS, 3, capacity=2),
    "kmeans nan": lambda f: dci.kmeans(ROWS * np.nan, 3),
    "kmeans zero": lambda f: dci.kmeans(ROWS * 0, 3),
    "kmeans mean": lambda f: dci.kmeans(ROWS, 3, subtract_mean=ROWS[0] * np.nan),
    "kmeans values": lambda f: dci.kmeans(ROWS, 3, values=ROWS * np.nan),
    "kmeans no values": lambda f: dci.kmeans(ROWS, 3, values=ROWS[:, :0]),
    "kmeans first": lambda f: dci.kmeans(ROWS, 3, first_row=2**31),
    "kmeans wrong": lambda f: dci.KMeansResult(n=3, n_clusters=2, labels=np.array([0, 7, 1], np.int32)).check(),
    "kmeans unfit": lambda f: dci.KMeans(3).predict(ROWS),
    "sketch bits": lambda f: dci.Sketch(8, bits=5),
    "sketch dim": lambda f: dci.Sketch(10**6),
    "sketch rows": lambda f: sketch().append(ROWS * np.nan),
    "sketch part": lambda f: sketch().score(ROWS, 30, 20),
    "sketch k": lambda f: sketch().search(ROWS, 2**25),
    "sketch zero k": lambda f: sketch().search(ROWS, 0),
    "sketch truncate": lambda f: sketch().truncate(41),
    "sketch decode": lambda f: sketch().decode([40]),
    "sketch probability": lambda f: sketch().bound(ROWS, probability=2),
    "sketch fit": lambda f: sketch().fit(ROWS[:0], ROWS),
    "sketch fit queries": lambda f: sketch().fit(ROWS, ROWS[:0]),
    "sketch large": lambda f: dci.Sketch(2000).fit(np.ones((9, 2000)), np.ones((9, 2000))),
    "sketch centre": lambda f: dci.Sketch(8, centre=ROWS[0] * np.inf),
    "threads": lambda f: dci.Context(threads=1).__setattr__("threads", 0),
    "isa": lambda f: dci.Context(isa="neon" if dci.isa() != "neon" else "avx2"),
    "kv no step": cached(lambda kv, name: kv.append(0, name, np.ones((2, 32)), np.ones((2, 32)))),
    "kv no prompt": cached(lambda kv, name: kv.end_prompt(0, name)),
    "kv no sequence": cached(lambda kv, name: kv.reserve(99)),
    "kv no layer": stepping(lambda kv, name: kv.append(9, name, np.ones((2, 32)), np.ones((2, 32)))),
    "kv too many": stepping(lambda kv, name: kv.append(0, name, np.ones((3, 2, 32)), np.ones((3, 2, 32)))),
    "kv nan": stepping(lambda kv, name: kv.append(0, name, np.full((2, 32), np.nan), np.ones((2, 32)))),
    "kv queries nan": cached(lambda kv, name: kv.plan(0, name, np.full((6, 32), np.nan))),
    "kv too early": stepping(lambda kv, name: kv.step_end(name)),
    "kv truncate": cached(lambda kv, name: kv.truncate(name, 101)),
    "kv fork": cached(lambda kv, name: kv.fork(name, 101)),
    "kv table": cached(lambda kv, name: kv.table(name, 0, 99)),
    "kv blocks": cached(lambda kv, name: kv.assign_blocks(name, [1])),
    "kv order": cached(lambda kv, name: kv.order(0, name, 0)),
    "kv save": cached(lambda kv, name: kv.save(name, "x", 101)),
    "kv budget": lambda f: kv_of(budget=0),
    "kv stages": lambda f: kv_of(group="token", summary="mean"),
    "kv heads": lambda f: dci.KVCache(1, 5, 2, 8),
    "kv shape": lambda f: dci.KVCache(0, 4, 2, 8),
    "kv memory": lambda f: kv_of(max_bytes=1),
    "gpu no step": on_gpu(lambda kv, name: kv.append(0, np.ones((1, 16)), np.ones((1, 16)))),
    "gpu no plan": on_gpu(unplanned),
    "gpu none": lambda f: dci.gpu.GPU(99),
}
# Names of C (DCI_ISA is a variable of the environment, DCI_CUDA an option of the build), "f32" and the like, numbers of
# enums, arguments that Python does not have.
FOREIGN = re.compile(
    r"\b(dci_|DCI_(?!ISA\b|CUDA\b)|f32\b|f16\b|bf16\b|kind \d|NULL\b|n_queries\b|add_dtype\b|input\.|ld\b|config\.)"
)


@pytest.mark.parametrize("name", BAD)
def test_a_sentence_names_nothing_of_c(name, tmp_path):
    with pytest.raises((dci.DciError, TypeError)) as caught:
        BAD[name](tmp_path)
    sentence = str(caught.value)
    assert sentence and not FOREIGN.search(sentence) and "\n" not in sentence


@pytest.mark.parametrize(
    ("sentence", "wanted"),
    [
        ("n_queries is 0, expected at least 1", "there are no queries, expected at least 1"),
        ("input.centroids is NULL, but init is DCI_KMEANS_INIT_GIVEN", "centroids is None, but init is 'given'"),
        ("DCI_ZERO_KEEP is a choice for the cosine metric", "'keep' is a choice for the cosine metric"),
        (
            "only indexes of kind MDCI have pages, this is of kind FLAT",
            "only indexes of kind 'mdci' have pages, this is of kind 'flat'",
        ),
        ("row 3 does not fit f16; bf16 would, f32 too", "row 3 does not fit float16; bfloat16 would, float32 too"),
        ("call dci_gpu_kv_plan before dci_kv_attend", "call plan before attend"),
        ("row 3 is zero; DCI_ZERO_KEEP keeps such rows", "row 3 is zero; zero_rows='keep' keeps such rows"),
        ("row 2 holds NaN or infinity", "row 2 holds NaN or infinity"),
    ],
)
def test_names_of_c_become_names_of_python(sentence, wanted):
    assert in_python(sentence) == wanted


# Arguments of another type: what is called, and what the sentence says.
MISTYPED = {
    "k": (lambda x: x.search(ROWS, "3"), "k is '3' (str), wanted a whole number"),
    "k, a float": (lambda x: x.search(ROWS, 3.0), "k is 3.0 (float), wanted a whole number"),
    "k, a list": (lambda x: x.search(ROWS, [3]), "k is a list, wanted a whole number"),
    "dim": (lambda x: dci.Index(None), "dim is None, wanted a whole number"),
    "seed": (lambda x: dci.Index(8, seed=1.5), "seed is 1.5 (float), wanted a whole number"),
    "promotion_prob": (
        lambda x: dci.Index(8, kind="mdci", promotion_prob="0.1"),
        "promotion_prob is '0.1' (str), wanted a number",
    ),
    "radius": (lambda x: x.range_search(ROWS, [1.0, 2.0]), "radius is a list, wanted a number"),
    "tolerance": (lambda x: dci.kmeans(ROWS, 2, tolerance="small"), "tolerance is 'small' (str), wanted a number"),
    "n_clusters": (lambda x: dci.kmeans(ROWS, None), "n_clusters is None, wanted a whole number"),
    "outputs": (lambda x: dci.kmeans(ROWS, 2, outputs=3), "outputs is an int, wanted names"),
    "probability": (lambda x: sketch().bound(ROWS, probability=None), "probability is None, wanted a number"),
    "scale": (lambda x: kv_of(scale="1"), "scale is '1' (str), wanted a number"),
    "out": (lambda x: x.search(ROWS, 3, out=np.empty((40, 3))), "out is an ndarray, wanted a pair of arrays: (ids, scores)"),
    "data": (lambda x: dci.Index.from_bytes(3), "data is an int, wanted bytes"),
    "context": (lambda x: dci.Index(8, context="all"), "context is a str, wanted a dci.Context or None"),
    "context of kmeans": (lambda x: dci.kmeans(ROWS, 2, context=4), "context is an int, wanted a dci.Context"),
    "context of load": (lambda x: dci.Index.from_bytes(x.to_bytes(), 4), "context is an int, wanted a dci.Context"),
    "context of a sketch": (lambda x: dci.Sketch(8, context=4), "context is an int, wanted a dci.Context"),
    "context of a cache": (lambda x: dci.KVCache(1, 2, 1, 8, context=4), "context is an int, wanted a dci.Context"),
    "context of a device": (lambda x: dci.gpu.GPU("host", context=4), "context is an int, wanted a dci.Context"),
}


@pytest.mark.parametrize("name", MISTYPED)
def test_an_argument_of_another_type_is_refused_by_name(name):
    call, part = MISTYPED[name]
    with pytest.raises(TypeError) as caught:
        call(index_of())
    assert part in str(caught.value)


@pytest.mark.parametrize("bad", [None, "float64", np.float64, object(), 3])
def test_a_dtype_that_is_not_offered_is_refused_by_name(bad):
    for call in (lambda: dci.Index(8, dtype=bad), lambda: dci.Sketch(8, dtype=bad), lambda: kv_of(dtype=bad)):
        with pytest.raises(dci.InvalidError, match=r"dtype is .*, wanted one of 'float32', 'float16', 'bfloat16'"):
            call()


def test_sentences_about_files_keep_the_names_of_files(tmp_path):
    for name in ("dci_index_f32", "kind FLAT", "DCI_ZERO_KEEP"):
        with pytest.raises(dci.FileError) as caught:
            dci.Index.load(tmp_path / name)
        assert f"/{name}: " in str(caught.value)
        (tmp_path / name).write_bytes(b"x" * 100)
        with pytest.raises(dci.FormatError) as damaged:
            dci.Index.load(tmp_path / name)
        assert name in str(damaged.value)
