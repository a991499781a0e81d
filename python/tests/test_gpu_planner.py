# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Who plans, what the device cannot plan, prompts that it forms, and steps as graphs."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from gpu_model import DEVICE, DIM, ON_HOST, Twin, back, close_to, gpu_kv, put, text_of, torch_of
from kv_model import N_KV_HEADS, N_LAYERS, N_QUERY_HEADS
from test_gpu import look, started

import dci

TEXT = text_of(700)

# What the device cannot plan, and what it says.
UNPLANNED = {
    "but of 4, 2 and 1": {"preset": "sketch", "key_bits": 8},
    "with this summary": {"preset": "topk"},
    "with this choice": {"preset": "streaming"},
    "with lists that heads fill in turns": {"preset": "quest", "combine": "each"},
    "with query_head_lists and trees": {"preset": "icecache", "query_head_lists": True},
    "with a tail but by codes of tokens": {"preset": "quest", "tail": "sums"},
    "with values of 8 bits": {"preset": "sketch+lowbit", "value_bits": 8},
    "with sequences that are kept in full": {"preset": "sketch", "resident_bytes": 2**20},
    "with a frozen prompt": {"preset": "quest", "frozen_prompt": True},
    "with this gather, which the host does": {"preset": "sketch", "gather": "staged"},
}
PLANNED = [
    "full",
    "pagemean",
    "quest",
    "arkvale",
    "clusterkv",
    "louiskv",
    "sketch",
    "sketch+sums",
    "sketch+lowbit",
    "lowbit",
]


@pytest.mark.parametrize("sentence", UNPLANNED)
def test_what_the_device_cannot_plan_is_refused_by_name_or_left_to_the_host(sentence):
    options = {"budget": 192, **UNPLANNED[sentence]}
    with pytest.raises(dci.UnsupportedError, match=sentence):
        gpu_kv(planner="device", **options)
    for planner in ("auto", "host"):
        assert gpu_kv(planner=planner, **options).info().planner == "host"


@pytest.mark.parametrize("preset", PLANNED)
def test_what_the_device_can_plan_it_plans_unless_it_is_told_otherwise(preset):
    for planner, wanted in ((None, "device"), ("auto", "device"), ("device", "device"), ("host", "host")):
        kv = gpu_kv(preset, budget=192, **({} if planner is None else {"planner": planner}))
        assert kv.info().planner == wanted


def test_planners_have_names():
    with pytest.raises(dci.InvalidError, match="planner is 'me', wanted one of 'auto', 'host', 'device'"):
        gpu_kv(planner="me")


@pytest.mark.parametrize("preset", PLANNED)
def test_plans_of_the_device_are_those_of_the_cpu(preset):
    twin = Twin(preset, budget=192, window=32, rollback=16, device={"planner": "device"})
    names = [twin.prefill(text_of(700, seed), n) for seed, n in ((0, 600), (1, 530))]
    looked = twin.decode(names, 40)
    assert looked == (0 if preset == "full" else 2 * 40 * N_LAYERS)


@pytest.mark.parametrize("planner", ["device", "host"])
@pytest.mark.parametrize(
    "options",
    [
        {"preset": "clusterkv", "published": True, "cluster_tokens": 20, "cluster_every": 40},
        {"preset": "quest", "query_head_lists": True, "window": 32},
        {"preset": "sketch+lowbit", "query_head_lists": True, "window": 32},
    ],
)
def test_lists_of_query_heads_are_those_of_the_cpu(options, planner):
    twin = Twin(budget=192, device={"planner": planner}, **options)
    assert twin.kv.info().planner == planner and twin.kv.host_info().n_lists == N_QUERY_HEADS
    names = [twin.prefill(text_of(700, seed), n) for seed, n in ((0, 600), (1, 530))]
    assert twin.decode(names, 40) == 2 * 40 * N_LAYERS
    assert twin.kv.info().n_missed > 0


def test_without_maintain_the_devices_plans_are_those_with_it():
    twin = Twin("sketch", budget=192, window=32, device={"planner": "device"})
    name = twin.prefill(TEXT, 600)
    for _ in range(40):
        twin.step([name], [1], looks=True)
        twin.cpu.maintain()


@pytest.mark.parametrize("preset", ["sketch", "sketch+sums", "sketch+lowbit", "quest"])
@pytest.mark.parametrize("named", [False, True])
def test_prompts_in_several_steps_are_those_of_the_cpu(preset, named):
    twin = Twin(preset, budget=192, window=32, device={"planner": "device"})
    name = twin.prefill(TEXT, 650, chunk=200, named=named)
    # Of rows that were named the device has made summaries; otherwise the host makes them before the next step.
    assert twin.kv.host_info().summary_bytes == 0
    assert twin.step([name], [1], looks=True) == N_LAYERS
    assert (twin.kv.host_info().summary_bytes == 0) == named
    twin.maintain()
    assert twin.decode([name], 20) == 20 * N_LAYERS


def test_named_rows_do_not_count_where_the_host_plans():
    twin = Twin("sketch", budget=192, window=32, device={"planner": "host"})
    name = twin.prefill(TEXT, 650, chunk=200, named=True)
    assert twin.decode([name], 5) == 5 * N_LAYERS
    assert twin.kv.info().summary_bytes == 0 < twin.kv.host_info().summary_bytes


def test_named_rows_are_all_of_the_sequences():
    kv = gpu_kv(budget=192)
    s, other = kv.open(), kv.open()
    rows = put(TEXT.keys[0, :300])
    with kv.step(s, 200):
        for layer in range(N_LAYERS):
            kv.append(layer, rows[:200], rows[:200])
    with kv.step(s, 100):
        for layer in range(N_LAYERS):
            kv.append(layer, rows[200:], rows[200:])
            for part, what in (((rows[:100], rows), "keys"), ((rows, rows[200:]), "values")):
                with pytest.raises(dci.InvalidError, match=rf"{what} has 100 tokens, but 300 tokens are of sequence {s}"):
                    kv.prompt_rows(layer, s, *part)
            with pytest.raises(dci.InvalidError, match=r"keys has shape \(300, 1, 64\)"):
                kv.prompt_rows(layer, s, rows[:, :1], rows)
            with pytest.raises(dci.InvalidError, match="is not in the step that is open"):
                kv.prompt_rows(layer, other, rows[:0], rows[:0])
            with pytest.raises(dci.NotFoundError):
                kv.prompt_rows(layer, other + 1, rows, rows)
            kv.prompt_rows(layer, s, rows, rows)
            kv.end_prompt(layer, s)
    with pytest.raises(dci.InvalidError, match="no step is open"):
        kv.prompt_rows(0, s, rows, rows)


class Rows(np.ndarray):
    """An array that can be watched."""


def watched(array):
    """Rows for the device, and what says whether they are still there."""
    rows = array.copy().view(Rows) if ON_HOST else torch_of(array)
    return rows, weakref.ref(rows)


@pytest.mark.parametrize("ends", ["step_end", "step_abort"])
def test_rows_are_kept_until_the_steps_end(ends):
    kv = gpu_kv(budget=192, planner="device")
    s, seen = kv.open(), []
    with kv.step(s, 200):
        for layer in range(N_LAYERS):
            kv.append(layer, put(TEXT.keys[layer, :200]), put(TEXT.values[layer, :200]))
    kv.reserve(s, 100)
    for layer in range(N_LAYERS):
        for call, at in ((kv.append, slice(200, 300)), (lambda *of: kv.prompt_rows(of[0], s, *of[1:]), slice(0, 300))):
            rows = [watched(rows[layer, at]) for rows in (TEXT.keys, TEXT.values)]
            call(layer, *(one for one, _ in rows))
            seen += [ref for _, ref in rows]
            del rows
        kv.end_prompt(layer, s)
    gc.collect()
    assert len(seen) == 4 * N_LAYERS and all(ref() is not None for ref in seen)
    getattr(kv, ends)()
    gc.collect()
    assert not any(ref() is not None for ref in seen)


@pytest.mark.parametrize("planner", ["host", "device"])
def test_lists_of_the_device_last_until_its_next_plan(planner):
    kv = gpu_kv(budget=192, planner=planner)
    s = started(kv)
    wanted = back(look(kv, s))
    kv.reserve(s)
    queries = [put(TEXT.queries[layer, 600]) for layer in range(N_LAYERS)]
    for layer in range(N_LAYERS):
        kv.append(layer, put(TEXT.keys[layer, 600]), put(TEXT.values[layer, 600]))
        kv.plan(layer, queries[layer])
    if planner == "device":
        with pytest.raises(dci.InvalidError, match="layer 0 was planned, but layer 1 since"):
            kv.attend(0, queries[0])
    else:
        kv.attend(0, queries[0])
    assert close_to(kv.attend(N_LAYERS - 1, queries[-1]), wanted)
    kv.step_abort()


def test_steps_that_cannot_be_graphs_are_refused():
    kv = gpu_kv(budget=192, planner="device")
    s = started(kv)
    for call in (kv.capture, kv.replay):
        with pytest.raises(dci.InvalidError, match="no step is open"):
            call()
        with pytest.raises(dci.InvalidError, match=rf"sequence {s} has 2 tokens in this step, expected 1"), kv.step(s, 2):
            call()
        with pytest.raises(dci.InvalidError, match="max_tokens is 5000, expected at most the config's 4096"), kv.step(s):
            call(5000)
        with pytest.raises(dci.LimitError, match="has 601 tokens after this step, but max_tokens is 600"), kv.step(s):
            call(600)
        with pytest.raises(dci.InvalidError, match="layer 0 has got its rows in this step already"), kv.step(s):
            kv.append(0, put(TEXT.keys[0, 600]), put(TEXT.values[0, 600]))
            call()
    begun = kv.open()
    with pytest.raises(dci.InvalidError, match="the prompt has not ended in some layer"), kv.step(begun):
        kv.replay()
    host = gpu_kv(budget=192, planner="host")
    with (
        pytest.raises(dci.UnsupportedError, match="the host plans, which a graph cannot wait for"),
        host.step(started(host)),
    ):
        host.capture()
    kv.close()
    for call in (kv.capture, kv.replay):
        with pytest.raises(dci.InvalidError, match="the KV cache is closed"):
            call()


def test_a_step_for_a_graph_that_is_not_captured_is_a_step():
    kv = gpu_kv(budget=192, planner="device")
    s = started(kv)
    wanted = back(look(kv, s))
    kv.reserve(s)
    kv.capture(1024)
    for layer in range(N_LAYERS):
        queries = put(TEXT.queries[layer, 600])
        kv.append(layer, put(TEXT.keys[layer, 600]), put(TEXT.values[layer, 600]))
        kv.plan(layer, queries)
        out = kv.attend(layer, queries)
    assert close_to(out, wanted)
    kv.step_end()
    assert kv.sequence_info(s).n_tokens == 601


def captured(kv, name, stream, of):
    """A graph of the step's layers that reads and writes what lies in `of`."""
    torch = pytest.importorskip("torch")
    graph = torch.cuda.CUDAGraph()
    kv.reserve(name, stream=stream)
    kv.capture(1024)
    with torch.cuda.graph(graph, stream=stream):
        for layer in range(N_LAYERS):
            kv.append(layer, of["keys"][layer], of["values"][layer])
            kv.plan(layer, of["queries"][layer])
            kv.attend(layer, of["queries"][layer], out=of["out"][layer])
    return graph


@pytest.mark.skipif(ON_HOST, reason="the host device has no streams of torch")
def test_a_graph_of_torch_is_launched_again_while_the_sequence_grows():
    torch = pytest.importorskip("torch")
    twin = Twin("sketch", budget=192, window=32, device={"planner": "device"})
    name = twin.prefill(TEXT, 600)
    other = twin.at[name][0]
    of = {
        "keys": torch.zeros((N_LAYERS, N_KV_HEADS, DIM), dtype=torch.float16, device=f"cuda:{DEVICE}"),
        "values": torch.zeros((N_LAYERS, N_KV_HEADS, DIM), dtype=torch.float16, device=f"cuda:{DEVICE}"),
        "queries": torch.zeros((N_LAYERS, N_QUERY_HEADS, DIM), device=f"cuda:{DEVICE}"),
        "out": torch.zeros((N_LAYERS, N_QUERY_HEADS, DIM), device=f"cuda:{DEVICE}"),
    }
    stream, graph = torch.cuda.Stream(DEVICE), None
    torch.cuda.synchronize(DEVICE)
    for t in range(600, 640):
        if graph is None:
            graph = captured(twin.kv, name, stream, of)
        else:
            twin.kv.reserve(name, stream=stream)
            twin.kv.replay(1024)
        with torch.cuda.stream(stream):
            for what in ("keys", "values", "queries"):
                of[what].copy_(torch_of(getattr(TEXT, what)[:, t]))
            graph.replay()
        twin.kv.step_end()
        stream.synchronize()
        with twin.cpu.step(other):
            for layer in range(N_LAYERS):
                queries = TEXT.queries[layer, t]
                twin.cpu.append(layer, other, TEXT.keys[layer, t], TEXT.values[layer, t])
                plan = twin.cpu.plan(layer, other, queries)
                assert close_to(of["out"][layer], twin.cpu.attend(layer, other, queries, plan))
        twin.cpu.maintain()
    assert twin.kv.sequence_info(name).n_tokens == 640
