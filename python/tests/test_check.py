# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Objects check themselves: what is whole passes, and what was changed behind their back is named."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import DTYPES, METRICS, normal, stored
from kv_model import N_LAYERS, Text, decode, kv_of, started

import dci

DIM, N = 12, 300


@pytest.mark.parametrize("kind", ("flat", "pdci", "mdci"))
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_index_passes_through_its_life(kind, metric, dtype):
    index = dci.Index(DIM, metric, kind=kind, dtype=dtype, sketch_bits=4)
    index.check()
    index.add(stored(normal(N, DIM), dtype))
    index.check(full=False)
    index.check()
    index.remove(np.arange(0, N, 3))
    index.check()
    dci.Index.from_bytes(index.to_bytes()).check()


def test_what_was_changed_in_borrowed_rows_is_named():
    rows = normal(N, DIM)
    index = dci.Index(DIM, "l2", kind="pdci", storage="borrowed")
    index.add(rows)
    index.check()
    rows[20, 1] += 1
    index.check(full=False)
    with pytest.raises(dci.FormatError, match="of the row in slot 20 is"):
        index.check()


def test_a_closed_object_is_not_checked():
    index = dci.Index(DIM)
    index.close()
    with pytest.raises(dci.InvalidError, match="closed"):
        index.check()
    kv = kv_of()
    kv.close()
    with pytest.raises(dci.InvalidError, match="closed"):
        kv.check()


@pytest.mark.parametrize("preset", dci.KVCache.PRESETS)
def test_a_cache_passes_through_its_life(preset):
    text = Text(320)
    kv = kv_of(preset)
    kv.check()
    kv, name = started(text, preset)
    kv.check()
    decode(kv, name, text, 300, 20)
    kv.fork(name, 200)
    kv.check(full=False)
    kv.check()
    kv.truncate(name, 100)
    kv.check()


def test_what_was_changed_in_the_callers_memory_is_named():
    text = Text(320)
    memory = np.zeros((N_LAYERS, 2, 32, 16, *text.keys.shape[2:]), np.float32)
    layout = dci.KVLayout(list(memory[:, 0]), list(memory[:, 1]))
    kv, name = started(text, "sketch", layout=layout)
    kv.check()
    block = int(kv.table(name)[4])
    memory[1, 0, block, 3, 0, 0] += 8
    kv.check(full=False)
    with pytest.raises(dci.FormatError, match=r"layer 1, kv head 0: .* of the summaries"):
        kv.check()
    memory[1, 1, block, 3, 0, 0] = np.nan
    with pytest.raises(dci.FormatError, match="the value of token 67 has NaN"):
        kv.check()
