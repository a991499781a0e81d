# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What a KV cache refuses, in sentences that say what it wants."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import run_all
from kv_model import DIM, N_KV_HEADS, N_LAYERS, N_QUERY_HEADS, SHAPE, Text, kv_of, read_in, started

import dci

TEXT = Text(300)
Q = TEXT.queries[0, -1]
ROWS = TEXT.keys[0, :2]


BAD_OPTIONS = {
    "preset is 'best', wanted one of 'full', 'topk'": {"preset": "best"},
    "preset is 99": {"preset": 99},
    "group is 'pages', wanted one of 'token', 'page'": {"group": "pages"},
    "tail is 'low', wanted one of 'drop', 'sums', 'lowbit'": {"tail": "low"},
    "dtype is 'float64', wanted one of 'float32'": {"dtype": "float64"},
    "budget is -1": {"budget": -1},
    "budget is 20, expected": {"budget": 20},
    "page_tokens is 7": {"page_tokens": 7},
    "key_bits is 5": {"key_bits": 5},
    "tree_promotion_subseq is 0.6, expected 0 to 0.5, or -1": {"tree_promotion_subseq": 0.6},
    "tree_simple_indices is 33": {"tree_simple_indices": 33},
    "tree_retrieve is 2": {"tree_retrieve": 2.0},
    "tau is 3": {"schedule": "boundary", "tau": 3.0},
    r"layers has 1 entries, wanted n_layers = 2": {"layers": ["dense"]},
    "the mode of layer 1 is 'most', wanted one of 'sparse', 'dense'": {"layers": ["dense", "most"]},
}


@pytest.mark.parametrize("sentence", BAD_OPTIONS)
def test_options_are_refused_by_name(sentence):
    with pytest.raises(dci.InvalidError, match=sentence):
        kv_of(**BAD_OPTIONS[sentence])


def test_what_is_not_built_is_unsupported():
    for layers in (["sliding"] * 2, [dci.KVLayer(logit_cap=30.0)] * 2):
        with pytest.raises(dci.UnsupportedError):
            kv_of(layers=layers)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(dci.InvalidError, match="heads"):
        dci.KVCache(2, 7, 2, 64)
    with pytest.raises(TypeError):
        dci.KVCache(2, 6.5, 2, 64)


CALLS = {
    "open": lambda kv, s: kv.open(),
    "fork": lambda kv, s: kv.fork(s),
    "truncate": lambda kv, s: kv.truncate(s, 1),
    "free": lambda kv, s: kv.free(s),
    "save": lambda kv, s: kv.save(s, "nowhere"),
    "load": lambda kv, s: kv.load("nowhere"),
    "assign_blocks": lambda kv, s: kv.assign_blocks(s, [1]),
    "reserve": lambda kv, s: kv.reserve(s),
    "append": lambda kv, s: kv.append(0, s, ROWS, ROWS),
    "end_prompt": lambda kv, s: kv.end_prompt(0, s),
    "wait": lambda kv, s: kv.wait(),
    "step_end": lambda kv, s: kv.step_end(s),
    "step_abort": lambda kv, s: kv.step_abort(s),
    "maintain": lambda kv, s: kv.maintain(),
    "new_plan": lambda kv, s: kv.new_plan(),
    "plan": lambda kv, s: kv.plan(0, s, Q),
    "attend": lambda kv, s: kv.attend(0, s, Q),
    "table": lambda kv, s: kv.table(s),
    "read": lambda kv, s: kv.read(0, s, 0),
    "order": lambda kv, s: kv.order(0, s, 0),
    "sequence_info": lambda kv, s: kv.sequence_info(s),
    "info": lambda kv, s: kv.info(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_cache_is_refused(call):
    with kv_of() as kv:
        s = kv.open()
    with pytest.raises(dci.InvalidError, match="the KV cache is closed"):
        CALLS[call](kv, s)
    kv.close()
    assert "closed" in repr(kv)


ONE_SEQUENCE = [name for name in CALLS if name not in ("open", "load", "wait", "maintain", "new_plan", "info")]


@pytest.mark.parametrize("call", ONE_SEQUENCE)
def test_a_sequence_that_is_not_there_is_not_found(call):
    kv, s = started(TEXT)
    with pytest.raises((dci.NotFoundError, dci.InvalidError)) as caught:
        CALLS[call](kv, s + 7)
    # Blocks are lent, and orders asked for, only where the config has them.
    assert isinstance(caught.value, dci.NotFoundError) or call in ("assign_blocks", "order")


BAD_CALLS = {
    r"keys has shape \(2, 3, 32\), wanted \(n_tokens, 2": lambda kv, s: kv.append(0, s, np.ones((2, 3, 32), "f4"), ROWS),
    r"values has shape \(32,\)": lambda kv, s: kv.append(0, s, ROWS, np.ones(32, "f4")),
    "keys has 2 tokens, values 1": lambda kv, s: kv.append(0, s, ROWS, ROWS[:1]),
    "n_tokens says 3 tokens, but there are 2": lambda kv, s: kv.append(0, s, ROWS, ROWS, n_tokens=3),
    r"n_tokens has shape \(2,\), wanted one number": lambda kv, s: kv.append(0, s, ROWS, ROWS, n_tokens=[1, 1]),
    "n_tokens holds -1": lambda kv, s: kv.reserve(s, -1),
    "layer is -1": lambda kv, s: kv.append(-1, s, ROWS, ROWS),
    "layer is 2, expected less than 2": lambda kv, s: kv.append(2, s, ROWS, ROWS),
    r"sequences has shape \(1, 1\)": lambda kv, s: kv.reserve([[s]]),
    r"queries has shape \(6, 31\), wanted \(1, 6, 32\)": lambda kv, s: kv.plan(0, s, np.ones((6, 31), "f4")),
    r"queries has shape \(2, 6, 32\), wanted \(1, 6, 32\)": lambda kv, s: kv.attend(0, s, np.ones((2, 6, 32), "f4")),
    r"queries has shape \(6, 32\), wanted \(n_positions, 6, 32\)": lambda kv, s: kv.end_prompt(0, s, Q),
    "out must be a writeable": lambda kv, s: kv.attend(0, s, Q, out=np.empty((6, 31), "f4")),
    "lse must be a writeable": lambda kv, s: kv.attend(0, s, Q, lse=np.empty(5, "f4")),
    "blocks 0 to 999 wanted of sequence": lambda kv, s: kv.table(s, 0, 999),
    "tokens wanted of sequence": lambda kv, s: kv.read(0, s, 0, 0, 2**40),
    "kv_head is 2, expected less than 2": lambda kv, s: kv.read(0, s, 2),
    "sequence 0 has 300 tokens, not 301": lambda kv, s: kv.fork(s, 301),
    "zero byte": lambda kv, s: kv.save(s, "a\0b"),
    "holds -5 to 3": lambda kv, s: kv.assign_blocks(s, [-5, 3]),
    "sequence 0, layer 0: the prompt has ended already": lambda kv, s: kv.end_prompt(0, s),
    "room is -1": lambda kv, s: kv.new_plan(-1),
    "the plan has room for 0 sequences, not 1": lambda kv, s: kv.plan(0, s, Q, out=kv.new_plan(0)),
    "the plan is empty": lambda kv, s: kv.attend(0, s, Q, kv.new_plan()),
}


@pytest.mark.parametrize("sentence", BAD_CALLS)
def test_bad_calls_leave_everything_as_it_was(sentence):
    kv, s = started(TEXT, budget=160)
    before, wanted = kv.sequence_info(s), kv.attend(0, s, Q, kv.plan(0, s, Q))
    with pytest.raises(dci.DciError, match=sentence):
        BAD_CALLS[sentence](kv, s)
    after = kv.sequence_info(s)
    assert (after.n_tokens, after.n_reserved) == (before.n_tokens, 0)
    np.testing.assert_array_equal(kv.attend(0, s, Q, kv.plan(0, s, Q)), wanted)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (ROWS.astype(np.float16), "keys is float16|values is float16"),
        (ROWS.view(np.uint16)[..., ::2], "keys is uint16"),
        (ROWS.astype(np.float64), "keys is float64, the KV cache takes float16: convert it, or choose another dtype"),
    ],
)
def test_rows_of_another_dtype_say_what_is_wanted(rows, sentence):
    dtype = {"float16": "bfloat16", "uint16": "float16", "float64": "float16"}[rows.dtype.name]
    kv = kv_of(dtype=dtype)
    with pytest.raises(TypeError, match=sentence):
        kv.append(0, kv.open(), rows, rows)


def test_bad_numbers_name_token_and_head():
    kv, s = started(TEXT)
    rows = np.ones((3, N_KV_HEADS, DIM), np.float32)
    rows[2, 1, 5] = np.nan
    with pytest.raises(dci.NumberError, match="token 302 of sequence 0: the key of kv head 1"), kv.step(s, 3):
        kv.append(0, s, rows, rows)
    assert kv.sequence_info(s).n_tokens == TEXT.n
    queries = Q.copy()
    queries[4, 0] = np.inf
    with pytest.raises(dci.NumberError, match="head 4"):
        kv.plan(0, s, queries)


def test_a_plan_that_failed_is_empty():
    kv, s = started(TEXT, budget=160)
    plan = kv.plan(0, s, Q)
    with pytest.raises(dci.NumberError):
        kv.plan(0, s, np.full_like(Q, np.nan), out=plan)
    assert plan.n_sequences == 0 and plan.slots.shape[0] == 0
    with pytest.raises(dci.InvalidError, match="empty"):
        kv.attend(0, s, Q, plan)


def test_a_plan_of_other_sequences_or_caches_is_refused():
    kv, s = started(TEXT, budget=160)
    other = kv.fork(s)
    plan = kv.plan(0, s, Q)
    with pytest.raises(dci.InvalidError, match=rf"the plan is of sequences \[{s}\], not of \[{other}\]"):
        kv.attend(0, other, Q, plan)
    second, t = started(TEXT, budget=160)
    with pytest.raises(dci.InvalidError, match="another KV cache"):
        second.attend(0, t, Q, plan)
    with pytest.raises(dci.InvalidError, match="another KV cache"):
        second.plan(0, t, Q, out=plan)


def test_a_plan_of_another_layer_is_refused():
    kv, s = started(TEXT, "sketch+lowbit", budget=160)
    plan = kv.plan(0, s, Q)
    out = np.full((6, DIM), 7, np.float32)
    with pytest.raises(dci.InvalidError, match="the plan is of layer 0, not of 1: make one for each layer"):
        kv.attend(1, s, Q, plan, out=out)
    assert (out == 7).all()
    kv.plan(1, s, Q, out=plan)
    assert kv.attend(1, s, Q, plan, out=out) is out
    np.testing.assert_array_equal(out, kv.attend(1, s, Q, kv.plan(1, s, Q)))


def test_a_plan_before_the_prompts_end_is_refused():
    kv = kv_of()
    s = kv.open()
    read_in(kv, s, TEXT, ends=False)
    with pytest.raises(dci.InvalidError, match="the prompt has not ended in layer 0"):
        kv.plan(0, s, Q)


def test_full_memory_changes_nothing():
    text = Text(4000)
    kv = kv_of(max_bytes=2**20)
    s = kv.open()
    with pytest.raises(dci.FullError, match="bytes"), kv.step(s, text.n):
        raise AssertionError("not reached")
    assert kv.sequence_info(s)[:2] == (0, 0)


LAYOUTS = {
    "are 1 arrays, wanted n_layers = 2": lambda a: dci.KVLayout(a[:1], a),
    r"have shape \(4, 16, 2, 31\), wanted \(n_blocks, page_tokens, 2, 32\)": lambda a: dci.KVLayout([a[0][..., 1:]] * 2, a),
    "side by side": lambda a: dci.KVLayout([np.zeros((4, 16, 2, 64), "f4")[..., ::2]] * 2, a),
    "of layer 1 have not the shape": lambda a: dci.KVLayout([a[0], a[1][:3]], a),
    "keys have 4 blocks, its values 3": lambda a: dci.KVLayout(a, [one[:3] for one in a]),
    "blocks_by is 'me', wanted one of": lambda a: dci.KVLayout(a, a, "me"),
}


@pytest.mark.parametrize("sentence", LAYOUTS)
def test_layouts_that_do_not_fit_are_refused(sentence):
    arrays = [np.zeros((4, 16, N_KV_HEADS, DIM), np.float32) for _ in range(N_LAYERS)]
    with pytest.raises(dci.InvalidError, match=sentence):
        kv_of(layout=LAYOUTS[sentence](arrays))
    with pytest.raises(TypeError, match="the layout's keys are float16, the KV cache has float32"):
        kv_of(layout=dci.KVLayout([one.astype(np.float16) for one in arrays], arrays))


def test_the_layouts_memory_lives_as_long_as_the_cache():
    arrays = [np.zeros((2, 8, 16, N_KV_HEADS, DIM), np.float32) for _ in range(N_LAYERS)]
    kv = kv_of(layout=dci.KVLayout([one[0] for one in arrays], [one[1] for one in arrays]))
    del arrays
    gc.collect()
    text = Text(100)
    s = kv.open()
    read_in(kv, s, text)
    np.testing.assert_array_equal(kv.read(0, s, 1)[0], text.keys[0, :, 1])


def test_caches_and_plans_are_not_copied():
    kv, s = started(TEXT)
    for what in (kv, kv.plan(0, s, Q)):
        with pytest.raises(TypeError, match="copied"):
            pickle.dumps(what)
        with pytest.raises(TypeError, match="copied"):
            copy.copy(what)


def test_closing_beside_calls_frees_when_they_are_done():
    text = Text(2000)
    kv = kv_of("clusterkv")
    s = kv.open()

    def read():
        try:
            read_in(kv, s, text)
        except dci.InvalidError as error:
            assert "closed" in str(error)

    run_all([read, kv.close])
    with pytest.raises(dci.InvalidError, match="closed"):
        kv.open()


def test_the_process_ends_cleanly_in_the_middle_of_a_step_and_of_a_prompts_work():
    code = """
import dci, numpy as np
kv = dci.KVCache(1, 2, 1, 32, dtype="float32", preset="clusterkv", dense_layers=0)
s = kv.open()
rows = np.random.default_rng(0).standard_normal((6000, 1, 32), dtype=np.float32)
kv.reserve(s, 6000)
kv.append(0, s, rows, rows)
kv.end_prompt(0, s)
plan = kv.new_plan()
print(kv)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("KVCache(n_layers=1")


def test_rows_are_copied_where_they_must_and_give_the_same():
    text = Text(200)
    kv, s = started(text)
    wanted = kv.read(1, s, 1)
    wide = np.zeros((*text.keys.shape[:3], 2 * DIM), np.float32)
    wide[..., ::2], wide[..., 1::2] = text.keys, text.values
    other = kv_of()
    t = other.open()
    with other.step(t, text.n):
        for layer in range(N_LAYERS):
            other.append(layer, t, wide[layer, ..., ::2], wide[layer, ..., 1::2])
            other.end_prompt(layer, t, text.queries[layer, -64:].astype(np.float64))
    for got, want in zip(other.read(1, t, 1), wanted):
        np.testing.assert_array_equal(got, want)
    assert (other.n_layers, other.n_query_heads, other.n_kv_heads, other.dim_k) == SHAPE == (N_LAYERS, N_QUERY_HEADS, 2, 32)
    assert (other.dim_v, other.dtype, other.query_dtype) == (32, "float32", "float32")
