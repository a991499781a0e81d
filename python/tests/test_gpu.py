# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""KV caches on a device, held against KVCache."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest
from conftest import run_all, to_bits
from gpu_model import DEVICE, DIM, ON_HOST, SHAPE, Twin, back, bits, close_to, gpu, gpu_kv, put, text_of, torch_of
from kv_model import N_KV_HEADS, N_LAYERS, N_QUERY_HEADS

import dci

TEXT = text_of(700)
PLANNERS = ["host", "device"]
both_plan = pytest.mark.parametrize("planner", PLANNERS)


def gpu_count() -> int:
    try:
        return dci.gpu.count()
    except dci.UnsupportedError:
        return 0


@pytest.mark.parametrize(
    ("preset", "planner"),
    [
        *((preset, planner) for preset in ("sketch", "sketch+lowbit", "arkvale", "pariskv") for planner in PLANNERS),
        ("icecache", "host"),
        ("icecache", "device"),
    ],
)
def test_outputs_are_those_of_the_cpus_cache(preset, planner):
    keys = {"tree_keys": "codes"} if (preset, planner) == ("icecache", "device") else {}  # what a device plans by
    twin = Twin(preset, budget=192, window=32, rollback=16, device={"planner": planner}, **keys)
    assert twin.kv.info().planner == planner
    name = twin.prefill(TEXT, 600, chunk=256)
    assert twin.decode([name], 40) == 40 * N_LAYERS
    assert twin.kv.sequence_info(name).n_tokens == 640
    # What memory of rows is taken in differs; what is made of them is the same.
    here, there = twin.kv.host_info(), twin.cpu.info()
    rows = {"n_blocks", "n_free_blocks", "bytes", "row_bytes"}
    if planner == "host":
        assert {name for name, one, other in zip(here._fields, here, there) if one != other} <= rows
        assert here.summary_bytes == there.summary_bytes
    assert (twin.kv.info().summary_bytes > 0) == (planner == "device")


def test_full_and_dense_layers_attend_to_everything():
    for preset, options in (("full", {}), ("sketch", {"layers": ["dense", "sparse"]}), ("sketch", {"dense_layers": 1})):
        twin = Twin(preset, budget=192, **options)
        assert twin.kv.info().planner == "device"
        name = twin.prefill(TEXT, 500)
        twin.decode([name], 3)
        assert twin.kv.info().dense_bytes > 0


@pytest.mark.parametrize("gather", ["mapped", "staged", "batched", "copies", "direct"])
def test_every_way_to_fetch_gives_the_same(gather):
    twin = Twin("sketch", budget=192, device={"gather": gather})
    name = twin.prefill(TEXT, 600)
    try:
        assert twin.decode([name], 4) == 4 * N_LAYERS
    except dci.DeviceError as error:  # the batched call is of CUDA 12.8 and is not offered on the default stream
        if gather != "batched" or ON_HOST:
            raise
        pytest.skip(str(error))
    info = twin.kv.info()
    assert info.n_asked > 0 if gather != "direct" else info.hot == 0
    assert info.planner == ("device" if gather in ("mapped", "direct") else "host")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("query_dtype", ["float32", "float16", "bfloat16"])
def test_dtypes_of_torch(dtype, query_dtype):
    torch = pytest.importorskip("torch")
    text = text_of(500, 3, dtype)
    text.queries = to_bits(text.queries) if query_dtype == "bfloat16" else text.queries.astype(query_dtype)
    twin = Twin("sketch", torch_of, budget=192, dtype=dtype, query_dtype=query_dtype)
    name = twin.prefill(text, 495)
    assert twin.decode([name], 5) == 5 * N_LAYERS
    twin.kv.reserve(name)
    one = [torch_of(rows[0, 0]) for rows in (text.keys, text.values)]
    queries = torch_of(text.queries[0, 0])
    twin.kv.append(0, *one)
    twin.kv.plan(0, queries)
    out = twin.kv.attend(0, queries)
    assert out.shape == (N_QUERY_HEADS, DIM) and out.dtype == torch.float32 and out.device == queries.device
    twin.kv.step_abort()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_outputs_come_in_the_wanted_dtype(dtype):
    got = {}
    for out_dtype in ("float32", dtype):
        kv = gpu_kv(budget=192, out_dtype=out_dtype)
        assert kv.out_dtype == out_dtype
        s = started(kv)
        got[out_dtype] = look(kv, s)
    assert back(got[dtype]).shape == (N_QUERY_HEADS, DIM)
    np.testing.assert_allclose(back(got[dtype]), back(got["float32"]), rtol=2**-7, atol=1e-6)
    if ON_HOST:
        assert got[dtype].dtype == (np.uint16 if dtype == "bfloat16" else dtype)


def started(kv, n=600, text=TEXT):
    """A sequence whose prompt is the first n tokens of a text."""
    s = kv.open()
    with kv.step(s, n):
        for layer in range(N_LAYERS):
            kv.append(layer, put(text.keys[layer, :n]), put(text.values[layer, :n]))
            kv.end_prompt(layer, s, put(text.queries[layer, n - 64 : n]))
    return s


def look(kv, s, t=600, text=TEXT, **into):
    """The output of the last layer for one more token, which is taken back."""
    kv.reserve(s)
    try:
        for layer in range(N_LAYERS):
            queries = put(text.queries[layer, t])
            kv.append(layer, put(text.keys[layer, t]), put(text.values[layer, t]))
            kv.plan(layer, queries)
            out = kv.attend(layer, queries, **into)
    finally:
        kv.step_abort()
    return out


@both_plan
def test_several_sequences_in_one_step_are_those_of_the_cpu(planner):
    texts = [text_of(n, n) for n in (700, 500, 300)]
    twin = Twin("sketch", budget=192, window=32, rollback=16, device={"planner": planner})
    names = [twin.prefill(text, n) for text, n in zip(texts, (640, 440, 130))]
    assert twin.decode(names[::-1], 5) == 2 * 5 * N_LAYERS  # the last one is shorter than the budget
    twin.step(names[1:], [7, 3], looks=True)
    twin.maintain()
    twin.decode(names, 3)
    infos = [twin.kv.sequence_info(name).n_tokens for name in names]
    assert infos == [648, 455, 141]


def test_rows_of_each_sequence_may_have_an_axis_of_their_own():
    texts = [text_of(200, n) for n in (1, 2)]
    kv = gpu_kv(budget=192)
    names = [kv.open() for _ in texts]
    with kv.step(names, 200):
        for layer in range(N_LAYERS):
            kv.append(layer, *(put(np.stack([getattr(t, what)[layer] for t in texts])) for what in ("keys", "values")))
            for name, text in zip(names, texts):
                kv.end_prompt(layer, name, put(text.queries[layer, -64:]))
    for name, text in zip(names, texts):
        for layer in range(N_LAYERS):
            for head in range(N_KV_HEADS):
                keys, values = kv.read(layer, name, head)
                np.testing.assert_array_equal(keys, text.keys[layer, :, head])
                np.testing.assert_array_equal(values, text.values[layer, :, head])


def wide_rows(text, layer, first, n):
    """Rows as a slice of a fused projection: queries, keys and values of a token side by side."""
    heads = N_QUERY_HEADS + 2 * N_KV_HEADS
    fused = np.zeros((n, heads, DIM), np.float16)
    fused[:, N_QUERY_HEADS : N_QUERY_HEADS + N_KV_HEADS] = text.keys[layer, first : first + n]
    fused[:, N_QUERY_HEADS + N_KV_HEADS :] = text.values[layer, first : first + n]
    fused = put(fused)
    return fused[:, N_QUERY_HEADS : N_QUERY_HEADS + N_KV_HEADS], fused[:, N_QUERY_HEADS + N_KV_HEADS :]


def head_major(text, layer, first, n):
    """Rows of a layer as transformers has them, (n_kv_heads, n, dim), with the axes changed."""
    rows = (rows[layer, first : first + n].transpose(1, 0, 2).copy() for rows in (text.keys, text.values))
    return (put(one).swapaxes(0, 1) for one in rows)


@pytest.mark.parametrize("rows_of", [wide_rows, head_major])
def test_strides_are_followed(rows_of):
    kv = gpu_kv(budget=192)
    s = kv.open()
    with kv.step(s, 300):
        for layer in range(N_LAYERS):
            kv.append(layer, *rows_of(TEXT, layer, 0, 300))
            loose = np.zeros((64, N_QUERY_HEADS, 2 * DIM), np.float32)
            loose[..., :DIM] = TEXT.queries[layer, 236:300]
            kv.end_prompt(layer, s, put(loose)[..., :DIM])
    for layer in range(N_LAYERS):
        np.testing.assert_array_equal(kv.read(layer, s, 1)[0], TEXT.keys[layer, :300, 1])
        np.testing.assert_array_equal(kv.read(layer, s, 0)[1], TEXT.values[layer, :300, 0])
    same = gpu_kv(budget=192)
    wanted = back(look(same, started(same, 300), 300))
    kv.reserve(s)
    room = np.full((N_QUERY_HEADS, DIM + 32), 7, np.float32)
    for layer in range(N_LAYERS):
        kv.append(layer, *rows_of(TEXT, layer, 300, 1))
        loose = np.zeros((N_QUERY_HEADS, DIM + 1), np.float32)
        loose[:, :DIM] = TEXT.queries[layer, 300]
        queries, out = put(loose)[:, :DIM], put(room)
        kv.plan(layer, queries)
        part = out[:, :DIM]
        assert kv.attend(layer, queries, out=part) is part
    kv.step_abort()
    assert close_to(part, wanted) and (back(out)[:, DIM:] == 7).all()


def test_outputs_are_written_to_what_was_given():
    kv = gpu_kv(budget=192)
    s = started(kv)
    out, sums = put(np.zeros((N_QUERY_HEADS, DIM), np.float32)), put(np.zeros(N_QUERY_HEADS, np.float32))
    assert look(kv, s, out=out, lse=sums) is out
    assert close_to(out, back(look(kv, s)))
    assert np.isfinite(back(sums)).all() and back(sums).all()


@both_plan
def test_forks_truncation_and_files(tmp_path, planner):
    twin = Twin("sketch", budget=192, window=32, rollback=16, device={"planner": planner})
    name = twin.prefill(TEXT, 600)
    twin.decode([name], 10)
    other, text, n = twin.at[name]
    child = twin.kv.fork(name)
    twin.at[child] = (twin.cpu.fork(other), text, n)
    twin.decode([child, name], 3)
    twin.kv.truncate(child, 605)
    twin.cpu.truncate(twin.at[child][0], 605)
    twin.at[child] = (twin.at[child][0], text, 605)
    twin.decode([child], 3)
    twin.kv.save(name, tmp_path / "kv")
    twin.kv.free(name)
    twin.cpu.free(other)
    with pytest.raises(dci.NotFoundError):
        twin.kv.sequence_info(name)
    # A file of the one is one of the other.
    loaded = twin.kv.load(tmp_path / "kv")
    twin.at[loaded] = (twin.cpu.load(tmp_path / "kv"), text, 613)
    assert twin.decode([loaded, child], 3) == 2 * 3 * N_LAYERS
    part = twin.kv.fork(loaded, 600)
    assert twin.kv.sequence_info(part).n_tokens == 600
    with pytest.raises(dci.FullError, match="3 sequences already, max_sequences"):
        twin.kv.open()


def appended(kv, layer, names, text, first, counts):
    """Appends tokens [first, first + count) of a text to each sequence."""
    for_each = [[rows[layer, first : first + n] for n in counts] for rows in (text.keys, text.values)]
    kv.append(layer, *(put(np.concatenate(rows)) for rows in for_each))


@both_plan
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("preset", ["sketch", "full"])
def test_the_history_is_what_was_appended(preset, dtype, planner):
    text = text_of(400, 5, dtype)
    kv = gpu_kv(preset, budget=192, dtype=dtype, planner="auto" if preset == "full" else planner)
    names, at, before = [kv.open(), kv.open()], 0, kv.info().buffer_bytes
    for n in (100, 33, 1, 64):
        with kv.step(names, n):
            for layer in range(N_LAYERS):
                appended(kv, layer, names, text, at, (n, n))
                for name in names:
                    for got, rows in zip(kv.history(layer, name), (text.keys, text.values)):
                        assert got.shape == (N_KV_HEADS, at + n, DIM)
                        np.testing.assert_array_equal(bits(got).swapaxes(0, 1), rows[layer, : at + n].view(np.uint16))
        at += n
    info = kv.info()
    assert info.buffer_bytes - before >= 2 * 198 * N_KV_HEADS * DIM * 4
    earlier = 2 * sum((100, 133, 134)) * N_LAYERS * N_KV_HEADS * DIM * 4
    assert info.bytes_fetched == (0 if preset == "full" else earlier)


def test_a_history_is_tensors_where_there_is_torch_and_else_arrays(monkeypatch):
    kv = gpu_kv(dtype="bfloat16")
    text = text_of(30, 1, "bfloat16")
    s = kv.open()
    kv.reserve(s, 30)
    appended(kv, 0, [s], text, 0, [30])
    torch = sys.modules.get("torch")
    if torch is not None:
        for got in kv.history(0, s):
            assert got.dtype == torch.bfloat16 and got.is_contiguous()
            assert got.is_cpu if ON_HOST else got.device.index == DEVICE
        monkeypatch.delitem(sys.modules, "torch")
    got, _ = kv.history(0, s)
    if ON_HOST:
        assert type(got) is np.ndarray and got.dtype == np.uint16
        np.testing.assert_array_equal(got.swapaxes(0, 1), text.keys[0].view(np.uint16))
        del kv
        gc.collect()  # it is kept by what it has given
        np.testing.assert_array_equal(got.swapaxes(0, 1), text.keys[0].view(np.uint16))
    else:
        assert got.__cuda_array_interface__["shape"] == (N_KV_HEADS, 30, DIM)


@pytest.mark.parametrize("with_torch", [False, True])
def test_an_empty_history_has_its_shape(monkeypatch, with_torch):
    if with_torch:
        pytest.importorskip("torch")
    elif not ON_HOST:
        pytest.skip("it has an interface, but no shape")
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    kv = gpu_kv()
    s = kv.open()
    with kv.step(s, 0):
        for layer in range(N_LAYERS):
            kv.append(layer, put(TEXT.keys[layer, :0]), put(TEXT.values[layer, :0]))
            assert [tuple(rows.shape) for rows in kv.history(layer, s)] == [(N_KV_HEADS, 0, DIM)] * 2


@pytest.mark.parametrize("preset", ["sketch", "sketch+lowbit", "quest", "clusterkv"])
def test_a_history_names_the_rows_of_a_prompt_in_chunks(preset):
    outs = []
    for chunks in ((600,), (250, 250, 100)):
        kv = gpu_kv(preset, budget=192, planner="device")
        s, first = kv.open(), 0
        for n in chunks:
            with kv.step(s, n):
                for layer in range(N_LAYERS):
                    appended(kv, layer, [s], TEXT, first, [n])
                    if first + n == 600:
                        keys, values = (rows.swapaxes(0, 1) for rows in kv.history(layer, s))
                        kv.prompt_rows(layer, s, keys, values)
                        kv.end_prompt(layer, s, put(TEXT.queries[layer, 536:600]))
            first += n
        outs.append(back(look(kv, s)))
        assert kv.info().n_clustered == (N_LAYERS if preset == "clusterkv" else 0)
    np.testing.assert_array_equal(*outs)


@both_plan
def test_idle_sequences_are_swapped_out_and_in(tmp_path, planner):
    device = {"planner": planner, "piece_bytes": 1}
    twin = Twin("sketch", budget=192, window=32, rollback=16, dense_layers=1, device=device)
    empty = twin.kv.info()
    name = twin.prefill(TEXT, 600)
    twin.decode([name], 5)
    other, text, n = twin.at[name]
    there = twin.kv.info()
    twin.kv.swap_out(name)
    assert twin.kv.info().device_bytes == there.device_bytes
    twin.kv.trim()
    assert twin.kv.info().device_bytes == empty.device_bytes < there.device_bytes
    assert twin.kv.sequence_info(name).n_tokens == n and not twin.kv.poll(name)
    with pytest.raises(dci.InvalidError, match="is swapped out: swap_in gives it"):
        twin.kv.reserve(name)
    with pytest.raises(dci.InvalidError, match="is swapped out: swap_in gives it"):
        twin.kv.truncate(name, 10)
    with pytest.raises(dci.InvalidError, match="swapped out already"):
        twin.kv.swap_out(name)
    child = twin.kv.fork(name)
    twin.at[child] = (twin.cpu.fork(other), text, n)
    twin.decode([child], 3)
    twin.kv.save(name, tmp_path / "kv")
    twin.kv.swap_in(name)
    with pytest.raises(dci.InvalidError, match="is not swapped out"):
        twin.kv.swap_in(name)
    twin.decode([name, child], 5)
    with twin.kv.step(child, 0), pytest.raises(dci.InvalidError, match="in the middle of a step"):
        twin.kv.swap_out(child)


@both_plan
@pytest.mark.parametrize("preset", ["clusterkv", "icecache", "louiskv", "prkv"])
def test_groups_may_be_contiguous_in_host_memory(preset, planner):
    outs = []
    for contiguous in (False, True):
        kv = gpu_kv(preset=preset, budget=192, planner=planner if preset in ("clusterkv", "louiskv") else "auto",
                    contiguous=contiguous)
        s = started(kv)
        outs.append([back(look(kv, s)) for _ in range(3)])
        assert (kv.host_info().copy_bytes > 0) == contiguous
        assert kv.info().unit_tokens == (1 if not contiguous else 4 if preset in ("clusterkv", "louiskv") else
                                         kv.host_info().page_tokens)
    np.testing.assert_array_equal(*outs)


def test_more_conversations_than_places():
    kv = gpu_kv(budget=192, max_sequences=1)
    first = started(kv)
    wanted = back(look(kv, first))
    kv.swap_out(first)
    second = started(kv)
    with pytest.raises(dci.FullError, match="max_sequences"):
        kv.swap_in(first)
    kv.swap_out(second)
    kv.swap_in(first)
    assert close_to(look(kv, first), wanted)
    kv.free(second)
    kv.free(first)
    kv.trim()
    assert kv.host_info().n_blocks == 0


def test_a_step_that_failed_is_taken_back():
    kv = gpu_kv(budget=192)
    s = started(kv)
    wanted = back(look(kv, s))
    with pytest.raises(RuntimeError, match="mine"), kv.step(s, 3):
        kv.append(0, put(TEXT.keys[0, :3]), put(TEXT.values[0, :3]))
        raise RuntimeError("mine")
    with pytest.raises(dci.InvalidError, match="layer 0"), kv.step(s):
        pass  # a layer has not got its rows
    assert kv.sequence_info(s)[:2] == (600, 0)
    assert close_to(look(kv, s), wanted)


@both_plan
def test_bad_rows_set_their_sequences_flag(planner):
    kv = gpu_kv(budget=192, planner=planner)
    good, bad = started(kv), started(kv)
    assert kv.poll([bad, good]).tolist() == [False, False]
    assert kv.poll([]).shape == (0,)
    rows = np.ones((2, N_KV_HEADS, DIM), np.float16)
    rows[1, 1, 5] = np.inf
    with kv.step([good, bad]):
        for layer in range(N_LAYERS):
            kv.append(layer, put(rows), put(rows))
    kv.sync()
    flags = kv.poll([bad, good])
    assert flags.dtype == np.bool_ and flags.tolist() == [True, False]
    assert kv.poll(good).tolist() == [False]
    with pytest.raises(dci.NumberError, match="NaN or infinity"):
        if planner == "host":  # a device that plans does not look at the flag
            look(kv, bad)
        kv.maintain(bad)
    kv.maintain()  # leaves it out
    kv.free(bad)
    assert np.isfinite(back(look(kv, good))).all()


@both_plan
def test_infos_say_what_was_moved(planner):
    kv = gpu_kv(budget=192, ring_tokens=300, hot_tokens=256, max_sequences=2, planner=planner)
    s = started(kv)
    before = kv.info()
    for t in range(600, 640):
        with kv.step(s):
            for layer in range(N_LAYERS):
                queries = put(TEXT.queries[layer, t])
                kv.append(layer, put(TEXT.keys[layer, t]), put(TEXT.values[layer, t]))
                kv.plan(layer, queries)
                kv.attend(layer, queries)
        kv.maintain()
    info = kv.info()
    assert (info.ring, info.hot, info.unit_tokens) == (512, 256, 1)
    assert info.n_steps - before.n_steps == 40
    assert 0 < info.n_missed < info.n_asked and info.bytes_fetched > 0
    assert info.bytes_written - before.bytes_written == 40 * N_LAYERS * N_KV_HEADS * 2 * DIM * 2
    parts = [info.lane_bytes, info.dense_bytes, info.table_bytes, info.buffer_bytes, info.summary_bytes, info.resident_bytes]
    assert info.device_bytes == sum(parts) > 0 and info.planner == planner
    assert info.pinned_bytes >= 2 * DIM * 2 * 640 * N_LAYERS * N_KV_HEADS
    host = kv.host_info()
    assert (host.n_sequences, host.group, host.summary) == (1, "token", dci.KVCache(*SHAPE).info().summary)
    assert kv.table(s).shape == (kv.sequence_info(s).n_blocks,)
    assert (kv.n_layers, kv.n_query_heads, kv.n_kv_heads, kv.dim_k, kv.dim_v) == (*SHAPE, DIM)
    assert (kv.dtype, kv.query_dtype, kv.out_dtype, kv.gpu) == ("float16", "float32", "float32", gpu())
    assert repr(kv).startswith(f"GPUKVCache(gpu={DEVICE!r}, n_layers=2") and "n_sequences=1" in repr(kv)


@both_plan
def test_resident_pages_change_no_bit(planner):
    outs, infos = [], []
    page = 16 * N_LAYERS * N_KV_HEADS * 2 * DIM * 2
    for pages in (0, 12, 1000):
        kv = gpu_kv(budget=192, ring_tokens=300, hot_tokens=256, planner=planner, device_resident_bytes=pages * page)
        s = started(kv)
        for t in range(600, 620):
            with kv.step(s):
                for layer in range(N_LAYERS):
                    queries = put(TEXT.queries[layer, t])
                    kv.append(layer, put(TEXT.keys[layer, t]), put(TEXT.values[layer, t]))
                    kv.plan(layer, queries)
                    outs.append((pages, back(kv.attend(layer, queries))))
            kv.maintain()
        infos.append(kv.info())
    none, some, every = ([out for pages, out in outs if pages == n] for n in (0, 12, 1000))
    assert all((a == b).all() and (a == c).all() for a, b, c in zip(none, some, every, strict=True))
    assert [info.resident_bytes // page for info in infos[:2]] == [0, 12] and infos[0].n_resident == 0
    assert 0 < infos[1].resident_used_bytes == infos[1].resident_pages * page <= infos[1].resident_bytes
    assert infos[2].n_resident == infos[2].n_missed > 0 == infos[2].bytes_fetched
    with pytest.raises(dci.UnsupportedError, match="needs gather MAPPED"):
        gpu_kv(gather="staged", device_resident_bytes=1)


def test_what_a_device_is():
    info = gpu().info()
    assert info.name and info.device == (-1 if ON_HOST else DEVICE)
    assert gpu().device == DEVICE and gpu().context is dci.default_context()
    assert repr(gpu()) == f"GPU({DEVICE!r}, name={info.name!r})"
    if not ON_HOST:
        assert info.major >= 8 and info.multiprocessors > 0 and info.free_bytes <= info.memory_bytes


def test_gpus_that_are_not_there_are_refused():
    n = gpu_count()
    with pytest.raises(dci.DciError) as caught:
        dci.gpu.GPU(n + 7)
    assert len(str(caught.value)) > 20
    if n == 0:
        with pytest.raises(dci.UnsupportedError):
            dci.gpu.count()
        with pytest.raises(dci.UnsupportedError):
            dci.gpu.GPU()


def test_the_cache_keeps_its_device_and_the_device_its_context():
    kv = dci.gpu.GPUKVCache(dci.gpu.GPU(DEVICE, dci.Context(threads=1)), *SHAPE, budget=192, dense_layers=0, max_tokens=4096)
    gc.collect()
    s = started(kv)
    wanted = back(look(kv, s))
    assert kv.gpu.context.threads == 1 and kv.gpu.info().name
    device = kv.gpu
    kv.close()
    del kv
    gc.collect()
    again = dci.gpu.GPUKVCache(device, *SHAPE, budget=192, dense_layers=0, max_tokens=4096)
    assert close_to(look(again, started(again)), wanted)


def test_the_process_ends_cleanly_in_the_middle_of_a_step_and_of_a_prompts_work():
    code = f"""
import dci, numpy as np
kv = dci.gpu.GPUKVCache(dci.gpu.GPU({DEVICE!r}), 1, 2, 1, 64, preset="clusterkv", dense_layers=0)
s = kv.open()
rows = np.random.default_rng(0).standard_normal((6000, 1, 64)).astype(np.float16)
if {not ON_HOST}:
    import torch
    rows = torch.from_numpy(rows).to("cuda:{DEVICE}")
kv.reserve(s, 6000)
kv.append(0, rows, rows)
kv.end_prompt(0, s)
print(kv)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(f"GPUKVCache(gpu={DEVICE!r}")


def test_threads_on_caches_of_one_device():
    wanted = back(look_alone())
    results = []
    run_all([lambda: results.append(back(look_alone()))] * 3)
    assert len(results) == 3
    for got in results:
        assert close_to(got, wanted)


def look_alone():
    kv = gpu_kv(budget=192)
    return look(kv, started(kv))


def test_streams_of_torch():
    torch = pytest.importorskip("torch")
    if ON_HOST:
        pytest.skip("the host device has no streams of torch")
    kv = gpu_kv(budget=192)
    s = started(kv)
    wanted = back(look(kv, s))
    stream = torch.cuda.Stream(DEVICE)
    for given in (stream, stream.cuda_stream, None):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            kv.reserve(s, stream=given)
            for layer in range(N_LAYERS):
                queries = put(TEXT.queries[layer, 600])
                kv.append(layer, put(TEXT.keys[layer, 600]), put(TEXT.values[layer, 600]))
                kv.plan(layer, queries)
                out = kv.attend(layer, queries)
            assert close_to(out, wanted)
        if given is None:  # the current stream is another one now
            with pytest.raises(dci.InvalidError, match="but the step began on"):
                kv.append(0, put(TEXT.keys[0, 600]), put(TEXT.values[0, 600]))
        kv.step_abort()
