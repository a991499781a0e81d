# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Sequences that are forked, cut, taken back, saved and loaded, and memory of the caller's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import ROOT, assert_same
from kv_model import DIM, N_KV_HEADS, N_LAYERS, N_QUERY_HEADS, Text, attention, decode, kv_of, read_in, started

import dci

TEXT = Text(1000)
QUERIES = TEXT.queries[:, -1]


def planned(kv, name, layer=0):
    """What a plan of the text's last queries attends to, and what comes out."""
    plan = kv.plan(layer, name, QUERIES[layer])
    at = [plan.attended(0, head) for head in range(N_KV_HEADS)]
    return [*at, kv.attend(layer, name, QUERIES[layer], plan)]


@pytest.mark.parametrize("preset", ["topk", "sketch", "sketch+lowbit", "quest", "icecache", "clusterkv"])
def test_a_fork_goes_on_as_the_sequence_would(preset):
    kv, first = started(TEXT, preset, budget=256)
    second = kv.fork(first)
    assert kv.sequence_info(second).n_shared_blocks > 0
    assert_same(planned(kv, second), planned(kv, first))
    more = Text(20, 9)
    assert_same(decode(kv, second, more, 0, 20), decode(kv, first, more, 0, 20))
    kv.free(first)
    assert kv.info().n_sequences == 1 and kv.sequence_info(second).n_shared_blocks == 0


def test_a_fork_of_fewer_tokens_attends_to_those():
    kv, first = started(TEXT, "full")
    second = kv.fork(first, 333)
    wanted = attention(QUERIES[0], TEXT.keys[0, :333], TEXT.values[0, :333])
    np.testing.assert_allclose(kv.attend(0, second, QUERIES[0]), wanted, atol=1e-5)


def test_truncating_within_the_rollback_is_as_if_the_tokens_never_were():
    kv, name = started(TEXT, budget=256)
    before = planned(kv, name)
    decode(kv, name, Text(30, 5), 0, 30)
    kv.truncate(name, TEXT.n)
    assert kv.sequence_info(name).n_tokens == TEXT.n
    assert_same(planned(kv, name), before)
    with pytest.raises(dci.InvalidError, match="1001"):
        kv.truncate(name, 1001)


@pytest.mark.parametrize("preset", ["sketch", "sketch+lowbit", "icecache", "clusterkv", "prkv"])
def test_a_loaded_sequence_plans_as_the_one_that_was_saved(preset, tmp_path):
    path = tmp_path / "prefix.dci"
    kv, name = started(TEXT, preset, budget=256)
    wanted = planned(kv, name)
    kv.save(name, path)
    with kv_of(preset, budget=256) as other:
        loaded = other.load(str(path))
        assert other.sequence_info(loaded).n_tokens == TEXT.n
        assert_same(planned(other, loaded), wanted)
    kv.save(name, path, 500)
    assert kv.sequence_info(kv.load(path)).n_tokens == 500


def test_a_file_of_another_shape_is_refused(tmp_path):
    kv, name = started(TEXT)
    kv.save(name, tmp_path / "prefix.dci")
    with pytest.raises(dci.DciError, match="bits"):
        kv_of(key_bits=2).load(tmp_path / "prefix.dci")
    (tmp_path / "prefix.dci").write_bytes(b"nothing of the kind")
    with pytest.raises(dci.FormatError):
        kv.load(tmp_path / "prefix.dci")
    with pytest.raises(dci.FileError):
        kv.load(tmp_path / "missing.dci")


def test_an_exception_takes_the_step_back():
    kv, name = started(TEXT, budget=256)
    before, blocks = planned(kv, name), kv.info().n_free_blocks
    with pytest.raises(ZeroDivisionError), kv.step(name, 40):
        kv.append(0, name, TEXT.keys[0, :40], TEXT.values[0, :40])
        raise ZeroDivisionError
    found = kv.sequence_info(name)
    assert (found.n_tokens, found.n_reserved) == (TEXT.n, 0) and kv.info().n_free_blocks >= blocks
    assert_same(planned(kv, name), before)


def test_a_step_that_lacks_a_layer_is_taken_back():
    kv = kv_of()
    names = [kv.open(), kv.open()]
    with pytest.raises(dci.InvalidError, match="layer 1"), kv.step(names, 5):
        kv.append(0, names, TEXT.keys[0, :10], TEXT.values[0, :10])
    assert [kv.sequence_info(name)[:2] for name in names] == [(0, 0), (0, 0)]


def test_freeing_one_sequence_in_its_step_takes_the_others_back():
    kv = kv_of()
    names = [kv.open(), kv.open()]
    with pytest.raises(dci.NotFoundError), kv.step(names, 5):
        kv.free(names[0])
        kv.append(0, names, TEXT.keys[0, :10], TEXT.values[0, :10])
    assert kv.sequence_info(names[1])[:2] == (0, 0) and kv.info().n_sequences == 1


def test_numbers_of_sequences_are_never_used_again():
    kv = kv_of()
    first = kv.open()
    kv.free(first)
    assert kv.open() > first
    with pytest.raises(dci.NotFoundError):
        kv.sequence_info(first)


@pytest.mark.parametrize("blocks_by", ["by_library", "by_caller"])
@pytest.mark.parametrize("heads_first", [False, True])
def test_rows_in_memory_of_the_callers(blocks_by, heads_first):
    n_blocks, size = 80, 16
    shape = (n_blocks, N_KV_HEADS, size, DIM) if heads_first else (n_blocks, size, N_KV_HEADS, DIM)
    stores = [np.zeros((2, *shape), np.float32) for _ in range(N_LAYERS)]
    seen = [store.transpose(0, 1, 3, 2, 4) if heads_first else store for store in stores]
    layout = dci.KVLayout([one[0] for one in seen], [one[1] for one in seen], blocks_by)
    kv = kv_of(budget=256, layout=layout)
    name = kv.open()
    if blocks_by == "by_caller":
        kv.assign_blocks(name, np.arange(n_blocks)[::-1][: -(-TEXT.n // size)])
    read_in(kv, name, TEXT)
    table = kv.table(name)
    assert blocks_by == "by_library" or table[0] == n_blocks - 1
    for layer in range(N_LAYERS):
        rows = seen[layer][:, table].reshape(2, -1, N_KV_HEADS, DIM)[:, : TEXT.n]
        assert_same(rows, (TEXT.keys[layer], TEXT.values[layer]))
    own, same = started(TEXT, budget=256)
    assert_same(planned(kv, name), planned(own, same))


def test_rows_that_lie_in_their_slots_already():
    stores = np.zeros((2, N_LAYERS, 80, 16, N_KV_HEADS, DIM), np.float32)
    kv = kv_of(budget=256, layout=dci.KVLayout(list(stores[0]), list(stores[1]), "by_caller"))
    name = kv.open()
    kv.assign_blocks(name, range(63))
    stores[0].reshape(N_LAYERS, -1, N_KV_HEADS, DIM)[:, : TEXT.n] = TEXT.keys
    stores[1].reshape(N_LAYERS, -1, N_KV_HEADS, DIM)[:, : TEXT.n] = TEXT.values
    with kv.step(name, TEXT.n):
        for layer in range(N_LAYERS):
            kv.append(layer, name, n_tokens=TEXT.n)
            kv.end_prompt(layer, name, TEXT.queries[layer, -64:])
    own, same = started(TEXT, budget=256)
    assert_same(planned(kv, name), planned(own, same))


def test_an_order_has_every_candidate_once_static_ones_first():
    kv, name = started(TEXT, "prkv", budget=256, static_share=0.5)
    kv.wait()
    positions, n_static = kv.order(0, name, 1)
    info = kv.sequence_info(name)
    sink = kv.info().sink
    np.testing.assert_array_equal(np.sort(positions), np.arange(sink, sink + info.n_grouped))
    assert 0 < n_static < positions.size and (np.diff(positions[n_static:]) > 0).all()


def cosines_of(queries, per_head):
    """The mean cosine of a position's queries with those of the position before, of layers or of kv heads."""
    unit = queries / np.linalg.norm(queries, axis=-1, keepdims=True)
    cosines = (unit[:, 1:] * unit[:, :-1]).sum(-1)
    return cosines.reshape(*cosines.shape[:2], N_KV_HEADS, -1).mean(-1) if per_head else cosines.mean(-1)


@pytest.mark.parametrize("schedule", ["boundary", "ahead"])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_calibrate_meets_the_rate(schedule, rate):
    steps = np.random.default_rng(3).standard_normal((N_LAYERS, 300, N_QUERY_HEADS, DIM))
    queries = np.cumsum(steps, 1).astype(np.float32)
    tau = dci.KVCache.calibrate(queries, rate, N_KV_HEADS, schedule=schedule)
    cosines = cosines_of(queries.astype(np.float64), schedule == "ahead")
    assert abs((cosines < tau).mean() - rate) <= 1.5 / cosines.size


def test_the_example_of_the_readme():
    text = (ROOT / "python" / "README.md").read_text()
    example = re.search(r"## A KV cache.*?```python\n(.*?)```", text, re.S).group(1)
    names = {"np": np, "dci": dci}
    exec(example, names)
    assert names["out"].shape == (6, 64)
    assert len(names["plan"].attended(0, 1)) == 256
    assert names["kv"].sequence_info(names["s"]).n_tokens == 5000
