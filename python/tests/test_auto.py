# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Kind "auto": what it says that it uses, and that it finds what "flat" finds."""

from __future__ import annotations

import math
import pickle
import struct

import numpy as np
import pytest
from conftest import normal
from read_index import read_config, read_sections

import dci

# The least numbers of the rule: codes come with 2,000 rows and a tree with 20,000 where rows are so wide.
WIDTH, FEW, MANY = 512, 2000, 20000


def shown(index: dci.Index) -> str:
    return repr(index).split("kind='")[1].split("'")[0]


def test_the_kind_in_use_follows_the_number_of_rows():
    rows = normal(MANY, WIDTH).astype(np.float16)
    index = dci.Index(WIDTH, "l2", kind="auto", dtype="float16", promotion_prob=0.01)
    exact = dci.Index(WIDTH, "l2", dtype="float16")
    assert index.is_auto and not exact.is_auto
    steps = [(1, "flat", 0), (FEW - 1, "flat", 0), (FEW, "flat", 4), (MANY - 1, "flat", 4), (MANY, "mdci", 4)]
    for end, kind, bits in steps:
        first = index.count
        index.add(rows[first:end])
        exact.add(rows[first:end])
        assert (index.kind, index.sketch_bits) == (kind, bits)
        assert shown(index) == (f"auto: {kind} with 4-bit codes" if bits else f"auto: {kind}")
        found, wanted = index.search(rows[:3], 4, rerank=math.inf), exact.search(rows[:3], 4)
        assert np.array_equal(found[0], wanted[0]) and np.array_equal(found[1], wanted[1], equal_nan=True)
    assert index.tree_stats().n_rows == MANY
    with pytest.raises(dci.UnsupportedError, match="kind 'auto'"):
        index.pages()
    index.check(full=False)
    again = pickle.loads(pickle.dumps(index))
    assert again.is_auto and again.kind == "mdci" and repr(again) == repr(index)
    index.remove(np.arange(FEW // 4 - 1, MANY))
    assert (index.kind, index.sketch_bits, index.count) == ("flat", 0, FEW // 4 - 1)
    again.close()
    assert shown(again) == "auto"


def test_a_large_first_batch_is_built_as_a_tree_and_options_are_its_own():
    rows = normal(MANY, WIDTH).astype(np.float16)
    index = dci.Index(WIDTH, kind="auto", dtype="float16", promotion_prob=0.01, page_rows=32, sketch_bits=2)
    assert (index.kind, index.sketch_bits) == ("flat", 0)
    index.add(rows)
    assert (index.kind, index.sketch_bits, index.tree_stats().page_rows) == ("mdci", 2, 32)


@pytest.mark.parametrize("options", [{"page_rows": 8}, {"cell_simp_indices": 3}, {"sketch_bits": 5}], ids=str)
def test_options_that_no_kind_could_take_are_refused(options):
    with pytest.raises(dci.InvalidError, match=next(iter(options))):
        dci.Index(8, kind="auto", **options)


def test_the_file_says_what_was_asked_for_and_what_is_in_use():
    tree = {"promotion_prob": 0.25, "promotion_prob_subseq": 0.125, "page_rows": 64, "top_nodes": 99}
    index = dci.Index(8, kind="auto", sketch_bits=3, **tree)
    index.add(normal(5, 8))
    sections = read_sections(index.to_bytes())
    assert struct.unpack("<I4xddQQ", sections["auto"]) == (3, 0.25, 0.125, 64, 99)
    assert (read_config(sections)["kind"], read_config(sections)["sketch_bits"]) == (1, 0)
    assert "auto" not in read_sections(dci.Index(8).to_bytes())


def test_an_option_of_pdci_is_refused():
    with pytest.raises(dci.InvalidError, match="num_simp_indices is 3, an option of kind 'pdci': the kind is 'auto'"):
        dci.Index(8, kind="auto", num_simp_indices=3)
