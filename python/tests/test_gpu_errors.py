# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What a KV cache on a device refuses, in sentences that say what it wants."""

from __future__ import annotations

import copy
import pickle
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from gpu_model import DEVICE, DIM, ON_HOST, SHAPE, back, close_to, gpu, gpu_kv, put, text_of, torch_of
from kv_model import N_KV_HEADS, N_LAYERS, N_QUERY_HEADS
from test_gpu import look, started

import dci
from dci._gpu_arrays import (
    HOST,
    Located,
    current_stream,
    located,
    rows_on_device,
    stream_number,
    tokens_on_device,
    view_of,
)
from dci._rows import row_format

TEXT = text_of(300)
ROWS = put(TEXT.keys[0, :1])
Q = put(TEXT.queries[0, -1])


def floats(*shape):
    return put(np.zeros(shape, np.float32))


def halves(*shape):
    return put(np.zeros(shape, np.float16))


BAD_OPTIONS = {
    "preset is 'best', wanted one of 'full', 'topk'": (dci.InvalidError, {"preset": "best"}),
    "GPUKVCache has no option 'budgets'": (TypeError, {"budgets": 3}),
    "GPUKVCache has no option 'context'": (TypeError, {"context": dci.default_context()}),
    "gather is 'magic', wanted one of 'mapped', 'staged'": (dci.InvalidError, {"gather": "magic"}),
    "out_dtype is 'float64', wanted one of": (dci.InvalidError, {"out_dtype": "float64"}),
    "max_sequences is 4097, expected 1 to 4096": (dci.InvalidError, {"max_sequences": 4097}),
    "max_sequences is -1, wanted 0 to": (dci.InvalidError, {"max_sequences": -1}),
    "max_tokens is 0": (dci.InvalidError, {"max_tokens": 0}),
    "hot_tokens is 9000": (dci.InvalidError, {"hot_tokens": 9000}),
    "ring_tokens is 100": (dci.InvalidError, {"ring_tokens": 100, "budget": 192}),
    "dtype is 1, on a device it is": (dci.UnsupportedError, {"dtype": "float32"}),
    "the layout is set": (
        dci.UnsupportedError,
        {"layout": dci.KVLayout(*[[np.zeros((4, 16, N_KV_HEADS, DIM), np.float16)] * N_LAYERS] * 2)},
    ),
    "bytes on the device are wanted, but 0 of max_device_bytes 1000": (dci.FullError, {"max_device_bytes": 1000}),
}


@pytest.mark.parametrize("sentence", BAD_OPTIONS)
def test_options_are_refused_by_name(sentence):
    error, options = BAD_OPTIONS[sentence]
    with pytest.raises(error, match=sentence):
        gpu_kv(**options)


def test_shapes_that_devices_have_not_are_unsupported():
    for shape in ((2, 6, 2, 32), (2, 6, 2, 64, 128), (2, 34, 2, 64)):
        with pytest.raises(dci.UnsupportedError):
            dci.gpu.GPUKVCache(gpu(), *shape)
    with pytest.raises(TypeError, match=r"gpu is int, wanted a dci\.gpu\.GPU"):
        dci.gpu.GPUKVCache(0, *SHAPE)


def test_devices_are_refused_by_name():
    for device, sentence in (("cuda", "device is 'cuda', wanted one of 'host'"), (-1, "device is -1, wanted 0 to")):
        with pytest.raises(dci.InvalidError, match=sentence):
            dci.gpu.GPU(device)
    with pytest.raises(TypeError):
        dci.gpu.GPU(0.5)


CALLS = {
    "open": lambda kv, s: kv.open(),
    "fork": lambda kv, s: kv.fork(s),
    "truncate": lambda kv, s: kv.truncate(s, 1),
    "free": lambda kv, s: kv.free(s),
    "swap_out": lambda kv, s: kv.swap_out(s),
    "swap_in": lambda kv, s: kv.swap_in(s),
    "trim": lambda kv, s: kv.trim(),
    "save": lambda kv, s: kv.save(s, "nowhere"),
    "load": lambda kv, s: kv.load("nowhere"),
    "reserve": lambda kv, s: kv.reserve(s),
    "append": lambda kv, s: kv.append(0, ROWS, ROWS),
    "end_prompt": lambda kv, s: kv.end_prompt(0, s),
    "history": lambda kv, s: kv.history(0, s),
    "plan": lambda kv, s: kv.plan(0, Q),
    "attend": lambda kv, s: kv.attend(0, Q),
    "step_end": lambda kv, s: kv.step_end(),
    "step_abort": lambda kv, s: kv.step_abort(),
    "maintain": lambda kv, s: kv.maintain(),
    "sync": lambda kv, s: kv.sync(),
    "poll": lambda kv, s: kv.poll(s),
    "table": lambda kv, s: kv.table(s),
    "read": lambda kv, s: kv.read(0, s, 0),
    "sequence_info": lambda kv, s: kv.sequence_info(s),
    "info": lambda kv, s: kv.info(),
    "host_info": lambda kv, s: kv.host_info(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_cache_is_refused(call):
    with gpu_kv() as kv:
        s = kv.open()
    with pytest.raises(dci.InvalidError, match="the KV cache is closed"):
        CALLS[call](kv, s)
    kv.close()
    assert "closed" in repr(kv)


NAMED = ["fork", "truncate", "free", "swap_out", "swap_in", "save", "reserve", "poll", "table", "read", "sequence_info"]


@pytest.mark.parametrize("call", NAMED)
def test_a_sequence_that_is_not_there_is_not_found(call):
    kv = gpu_kv()
    with pytest.raises(dci.NotFoundError):
        CALLS[call](kv, kv.open() + 7)


@pytest.mark.parametrize("call", ["append", "end_prompt", "history", "plan", "attend", "step_end", "step_abort"])
def test_without_a_step_its_calls_are_refused(call):
    kv = gpu_kv()
    s = kv.open()
    with pytest.raises(dci.InvalidError, match="no step is open"):
        CALLS[call](kv, s)
    with kv.step(s, 0):
        for layer in range(N_LAYERS):
            kv.append(layer, ROWS[:0], ROWS[:0])
    with pytest.raises(dci.InvalidError, match="no step is open"):
        CALLS[call](kv, s)


IN_A_STEP = {
    r"keys has shape \(1, 3, 64\), wanted \(n_tokens, 2": lambda kv, s: kv.append(0, halves(1, 3, 64), ROWS),
    r"values has shape \(64,\)": lambda kv, s: kv.append(0, ROWS, halves(64)),
    "keys has 2 tokens, but 1 were reserved": lambda kv, s: kv.append(0, halves(2, 2, 64), ROWS),
    "layer is -1": lambda kv, s: kv.append(-1, ROWS, ROWS),
    "layer is 2, expected less than 2": lambda kv, s: kv.append(2, ROWS, ROWS),
    "layer 0 has got its rows in this step already": lambda kv, s: [kv.append(0, ROWS, ROWS) for _ in range(2)],
    r"keys \(shape \(1, 2, 64\), strides \(256, 128, 2\)\) would have to be": lambda kv, s: kv.append(
        0, halves(1, 2, 128)[..., ::2], ROWS
    ),
    r"values \(shape .*strides \(\d+, 0, 1\)\) would": lambda kv, s: kv.append(
        0, ROWS, spread(halves(1, 1, 64), (1, 2, 64))
    ),
    "a multiple of 16": lambda kv, s: kv.append(0, halves(1, 3, 66)[:, 1:, 1:65], ROWS),
    r"queries has shape \(6, 63\), wanted \(1, 6, 64\)": lambda kv, s: planned(kv, floats(6, 63)),
    r"queries has shape \(2, 6, 64\), wanted \(1, 6, 64\)": lambda kv, s: planned(kv, floats(2, 6, 64)),
    "queries .* would have to be copied": lambda kv, s: planned(kv, floats(6, 128)[:, ::2]),
    "layer 1 has not got its rows": lambda kv, s: kv.plan(1, Q),
    "layer 0 has not got its rows": lambda kv, s: kv.history(0, s),
    "layer is 3, expected less": lambda kv, s: kv.history(3, s),
    "there is no sequence 77": lambda kv, s: [kv.append(0, ROWS, ROWS), kv.history(0, 77)],
    "layer 0 has no plan in this step": lambda kv, s: [kv.append(0, ROWS, ROWS), kv.attend(0, Q)],
    r"queries has shape \(6, 64\), wanted \(n_positions, 6, 64\)": lambda kv, s: kv.end_prompt(0, s, Q),
    r"out must be a writeable float32 array or tensor of shape \(6, 64\)": lambda kv, s: seen(kv, out=floats(6, 63)),
    "out .* would have to be copied": lambda kv, s: seen(kv, out=floats(6, 128)[:, ::2]),
    "lse must be a writeable float32": lambda kv, s: seen(kv, lse=floats(5)),
    "lse .* would have to be copied": lambda kv, s: seen(kv, lse=floats(12)[::2]),
    "a step is open already": lambda kv, s: kv.reserve(s),
    "is in the middle of a step": lambda kv, s: kv.free(s),
}


def spread(x, shape):
    return np.broadcast_to(x, shape) if ON_HOST else x.expand(shape)


def planned(kv, queries):
    kv.append(0, ROWS, ROWS)
    kv.plan(0, queries)


def seen(kv, **into):
    planned(kv, Q)
    kv.attend(0, Q, **into)


@pytest.mark.parametrize("sentence", IN_A_STEP)
def test_bad_calls_leave_everything_as_it_was(sentence):
    kv = gpu_kv(budget=192)
    s = started(kv, 299, TEXT)
    wanted = back(look(kv, s, 299, TEXT))
    kv.reserve(s)
    with pytest.raises(dci.DciError, match=sentence):
        IN_A_STEP[sentence](kv, s)
    assert kv.sequence_info(s)[:2] == (299, 1)
    kv.step_abort()
    assert close_to(look(kv, s, 299, TEXT), wanted)


def test_without_memory_for_a_history_the_step_goes_on():
    options = {"budget": 192, "planner": "host"}
    kv = gpu_kv(**options, max_device_bytes=gpu_kv(**options).info().device_bytes + 1000)
    s = kv.open()
    with kv.step(s, 299):
        for layer in range(N_LAYERS):
            kv.append(layer, put(TEXT.keys[layer, :299]), put(TEXT.values[layer, :299]))
            with pytest.raises(dci.FullError, match="bytes on the device are wanted, but"):
                kv.history(layer, s)
    assert kv.sequence_info(s)[:2] == (299, 0)


WRONG_TYPES = {
    "keys is float32, the KV cache takes float16: convert it, or choose another dtype": lambda kv: kv.append(
        0, floats(1, 2, 64), ROWS
    ),
    "values is list, wanted an array or a tensor": lambda kv: kv.append(0, ROWS, [[0.0] * 64] * 2),
    "queries is float16, the KV cache takes float32: convert it, or choose another query_dtype": lambda kv: planned(
        kv, halves(6, 64)
    ),
    "out is float16, the KV cache takes float32: convert it, or choose another out_dtype": lambda kv: seen(
        kv, out=halves(6, 64)
    ),
    "lse is float16, the log of sums takes float32": lambda kv: seen(kv, lse=halves(6)),
}


@pytest.mark.parametrize("sentence", WRONG_TYPES)
def test_numbers_of_another_kind_are_refused(sentence):
    kv = gpu_kv(budget=192)
    s = started(kv, 299, TEXT)
    with pytest.raises(TypeError, match=sentence), kv.step(s):
        WRONG_TYPES[sentence](kv)
    assert kv.sequence_info(s)[:2] == (299, 0)


def test_streams_of_a_wrong_kind_are_refused():
    kv = gpu_kv()
    s = kv.open()
    for stream in ("0", 1.5, True):
        with pytest.raises(TypeError, match=r"stream is .*, wanted None, an int or an object with cuda_stream"):
            kv.reserve(s, stream=stream)
    with pytest.raises(dci.InvalidError, match="stream is -3"):
        kv.reserve(s, stream=-3)
    if ON_HOST:
        with pytest.raises(dci.InvalidError, match="is no stream of this host device"):
            kv.reserve(s, stream=1234)
    with kv.step(s, 0, stream=0):
        for layer in range(N_LAYERS):
            kv.append(layer, ROWS[:0], ROWS[:0])


class Stream:
    cuda_stream = 77


class NewStream:
    def __cuda_stream__(self):
        return 0, 78


def test_streams_are_numbers_or_have_them():
    assert [stream_number(one) for one in (None, 0, 5, Stream(), NewStream())] == [None, 0, 5, 77, 78]


BASE = np.arange(4 * 5 * 6 * 64, dtype=np.float32).astype(np.float16).reshape(4, 5, 6, 64)
# Tokens of 4 sequences, and whether they lie at equal distances; how far apart their rows do, all taken together.
VIEWS = {
    "all": (BASE, True, 64),
    "one head": (BASE[:, :, 3:4], True, 384),
    "some heads": (BASE[:, :, 2:4], True, None),
    "a token each": (BASE[:, 2:3], True, None),
    "every other token": (BASE.reshape(2, 10, 6, 64)[:, ::2], True, None),
    "heads first, of one sequence": (BASE[:1].transpose(0, 2, 1, 3), True, None),
    "heads first": (BASE.transpose(0, 2, 1, 3), False, None),
    "tokens first": (BASE.transpose(1, 0, 2, 3), False, None),
    "some tokens": (BASE[:, 1:4], False, None),
    "backwards": (BASE[:, ::-1], False, None),
    "overlapping": (np.lib.stride_tricks.as_strided(BASE, (4, 5, 6, 64), (1920, 384, 64, 2)), False, None),
    "nothing": (BASE[:, :0], True, 64),
}


@pytest.mark.parametrize("view", VIEWS)
def test_rows_are_found_by_their_strides_or_refused(view):
    x, equal, apart = VIEWS[view]
    n_sequences, n_each, heads, dim = x.shape
    rows, form = x.reshape(n_sequences * n_each, heads, dim), row_format("float16", "dtype")
    refused = pytest.raises(dci.InvalidError, match=r"x .* would have to be copied")
    with nullcontext() if equal else refused:
        found = tokens_on_device(x, n_sequences, heads, dim, form, HOST, "x")
        assert equal and found.n == len(rows)
        if found.n:
            strides = [2 * (found.token_stride or heads * dim), 2 * (found.head_stride or dim), 2]
            np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(found.at.owner, rows.shape, strides), rows)
    with nullcontext() if apart else refused:
        assert rows_on_device(located(x, "x"), dim, "x") == apart


def test_outputs_of_several_sequences_lie_at_equal_distances():
    kv = gpu_kv(budget=192)
    names = [kv.open(), kv.open()]
    rows, queries = halves(2, N_KV_HEADS, DIM), floats(2, N_QUERY_HEADS, DIM)
    with kv.step(names):
        for layer in range(N_LAYERS):
            kv.append(layer, rows, rows)
            for name in names:
                kv.end_prompt(layer, name)
        kv.plan(0, queries)
        sums = floats(2, N_QUERY_HEADS + 2)
        with pytest.raises(dci.InvalidError, match="wanted it to be contiguous"):
            kv.attend(0, queries, lse=sums[:, :N_QUERY_HEADS])
        with pytest.raises(dci.InvalidError, match=r"out .* would have to be copied"):
            kv.attend(0, queries, out=floats(2, N_QUERY_HEADS + 1, DIM)[:, 1:])
        assert kv.attend(0, queries, lse=floats(2, N_QUERY_HEADS)).shape == (2, N_QUERY_HEADS, DIM)
        assert not back(sums).any()


def test_without_a_stream_torchs_current_one_is_taken_where_it_has_used_gpus(monkeypatch):
    used = []
    cuda = SimpleNamespace(is_initialized=lambda: bool(used), current_stream=lambda device: used[device])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert current_stream(0) == 0
    used.extend([NewStream(), Stream()])
    assert current_stream(1) == 77 and current_stream(HOST) == 0
    monkeypatch.delitem(sys.modules, "torch")
    assert current_stream(1) == 0


@pytest.mark.skipif(not ON_HOST, reason="of the host device")
def test_a_steps_calls_have_its_stream(monkeypatch):
    kv = gpu_kv()
    s = kv.open()
    asked = []
    monkeypatch.setattr("dci.gpu.current_stream", lambda device: asked.append(device) or 1234)
    with pytest.raises(dci.InvalidError, match="is no stream of this host device"):
        kv.reserve(s)
    kv.reserve(s, stream=0)
    assert asked == [HOST]
    for layer in range(N_LAYERS):
        kv.append(layer, ROWS, ROWS)
    kv.step_abort()
    monkeypatch.setattr("dci.gpu.current_stream", lambda device: 0)
    kv.reserve(s)
    monkeypatch.setattr("dci.gpu.current_stream", lambda device: 1234)
    calls = [
        lambda: kv.append(0, ROWS, ROWS),
        lambda: kv.end_prompt(0, s),
        lambda: kv.history(0, s),
        lambda: kv.plan(0, Q),
        lambda: kv.attend(0, Q),
        kv.step_end,
    ]
    for call in calls:
        with pytest.raises(dci.InvalidError, match=r"the stream is 0x4d2, but the step began on"):
            call()
    kv.step_abort()


def test_views_of_a_gpus_memory_are_objects_where_there_is_no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    owner = object()
    view = view_of(4096, (2, 3, 64), row_format("bfloat16", "dtype"), 0, owner)
    at = located(view, "x")
    assert (at.address, at.shape, at.strides, at.name, at.writeable) == (4096, (2, 3, 64), (192, 64, 1), "uint16", True)
    assert view.owner is owner


class OnDevice:
    """An array as CuPy's have it."""

    def __init__(self, **interface):
        self.__cuda_array_interface__ = {
            "data": (4096, False),
            "shape": (3, 2, 64),
            "typestr": "<f2",
            "version": 3,
            **interface,
        }


def test_the_cuda_array_interface_is_followed():
    at = located(OnDevice(), "x")
    assert at == Located(at.owner, 4096, (3, 2, 64), (128, 64, 1), "float16", None, True)
    at = located(OnDevice(strides=(1024, 128, 2), data=(8, True), typestr="<u2"), "x")
    assert (at.address, at.strides, at.name, at.writeable) == (8, (512, 64, 1), "uint16", False)
    for bad in ({"typestr": "<c8"}, {"typestr": ">f2"}):
        with pytest.raises(TypeError, match="convert it to float32, float16 or bfloat16"):
            located(OnDevice(**bad), "x")
    with pytest.raises(dci.InvalidError, match="would have to be copied"):
        located(OnDevice(strides=(1025, 128, 2)), "x")
    with pytest.raises(dci.InvalidError, match="mask"):
        located(OnDevice(mask=OnDevice()), "x")


@pytest.mark.skipif(not ON_HOST, reason="of the host device")
def test_the_host_device_takes_no_memory_of_gpus():
    kv = gpu_kv()
    with pytest.raises(dci.InvalidError, match="keys lies on a GPU, the KV cache on the host device"), kv.step(kv.open(), 3):
        kv.append(0, OnDevice(), OnDevice())


class Wrapped:
    """A tensor of torch with no more than its interface."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


@pytest.mark.skipif(ON_HOST, reason="of GPUs")
def test_a_gpu_takes_what_has_the_interface_and_no_ordinary_memory():
    kv = gpu_kv(budget=192)
    s = started(kv, 299, TEXT)
    wanted = back(look(kv, s, 299, TEXT))
    out = floats(N_QUERY_HEADS, DIM)
    kv.reserve(s)
    for layer in range(N_LAYERS):
        rows = [put(rows[layer, 299]) for rows in (TEXT.keys, TEXT.values)]
        queries = put(TEXT.queries[layer, 299])
        with pytest.raises(dci.InvalidError, match="ordinary host memory"):
            kv.append(layer, TEXT.keys[layer, 299], TEXT.values[layer, 299])
        kv.append(layer, *map(Wrapped, rows))
        kv.plan(layer, Wrapped(queries))
        with pytest.raises(TypeError, match="out is wanted where queries are Wrapped"):
            kv.attend(layer, Wrapped(queries))
        kv.attend(layer, Wrapped(queries), out=Wrapped(out))
    kv.step_abort()
    assert close_to(out, wanted)


@pytest.mark.skipif(ON_HOST, reason="of GPUs")
def test_a_gpu_takes_arrays_of_cupy():
    cupy = pytest.importorskip("cupy")
    kv = gpu_kv(budget=192)
    s = started(kv, 299, TEXT)
    wanted = back(look(kv, s, 299, TEXT))
    with cupy.cuda.Device(DEVICE), cupy.cuda.Stream() as stream:
        kv.reserve(s, stream=stream.ptr)
        for layer in range(N_LAYERS):
            kv.append(layer, *(cupy.asarray(rows[layer, 299]) for rows in (TEXT.keys, TEXT.values)))
            queries, out = cupy.asarray(TEXT.queries[layer, 299]), cupy.zeros((N_QUERY_HEADS, DIM), cupy.float32)
            kv.plan(layer, queries)
            assert kv.attend(layer, queries, out=out) is out
        found = cupy.asnumpy(out)
        kv.step_abort()
    assert close_to(found, wanted)


def test_tensors_that_are_no_plain_memory_are_refused():
    torch = pytest.importorskip("torch")
    kv = gpu_kv()
    s = kv.open()
    rows = torch_of(np.ones((1, N_KV_HEADS, DIM), np.float16))
    bad = {
        "gradients": rows.clone().requires_grad_(),
        "layout": rows.to_sparse(),
        "neither the CPU nor a GPU": rows.to("meta"),
    }
    for sentence, keys in bad.items():
        with pytest.raises(dci.InvalidError, match=sentence), kv.step(s):
            kv.append(0, keys, rows)
    with pytest.raises(TypeError, match="complex64"), kv.step(s):
        kv.append(0, rows.to(torch.complex64), rows)


@pytest.mark.skipif(not ON_HOST, reason="of NumPy")
def test_numpys_other_forms_are_taken_or_refused():
    kv = gpu_kv(dtype="bfloat16", budget=192)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    text = text_of(20, 5, "bfloat16")
    s = kv.open()
    with kv.step(s, 20):
        for layer in range(N_LAYERS):
            kv.append(layer, text.keys[layer].view(ml_dtypes.bfloat16), text.values[layer])
            kv.end_prompt(layer, s)
    np.testing.assert_array_equal(kv.read(1, s, 1)[0], text.keys[1, :, 1])
    one = np.zeros((N_KV_HEADS, DIM), np.uint16)
    with pytest.raises(dci.InvalidError, match="would have to be copied"), kv.step(s):
        kv.append(0, one.astype(">u2"), one)
    frozen = np.zeros((N_QUERY_HEADS, DIM), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(dci.InvalidError, match="out must be a writeable"), kv.step(s):
        kv.append(0, one, one)
        kv.plan(0, frozen)
        kv.attend(0, frozen, out=frozen)
    assert kv.sequence_info(s).n_tokens == 20


def test_too_many_tokens_and_sequences_are_refused():
    kv = gpu_kv(max_tokens=64, max_sequences=1)
    s = kv.open()
    with pytest.raises(dci.LimitError, match="max_tokens is 64"):
        kv.reserve(s, 65)
    with pytest.raises(dci.FullError, match="max_sequences"):
        kv.open()
    with pytest.raises(dci.InvalidError, match="n_tokens holds -1"):
        kv.reserve(s, -1)
    with pytest.raises(dci.InvalidError, match=r"sequences has shape \(1, 1\)"):
        kv.reserve([[s]])


def test_caches_and_devices_are_not_copied():
    for what in (gpu_kv(), gpu()):
        with pytest.raises(TypeError, match="copied"):
            pickle.dumps(what)
        with pytest.raises(TypeError, match="copied"):
            copy.copy(what)
