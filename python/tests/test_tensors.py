# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Tensors of other libraries are read and written where they lie."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_same, in_float64, normal, stored
from kv_model import DIM, N_KV_HEADS, N_LAYERS, Text, kv_of, read_in, started

import dci
from dci._tensors import in_host_memory

ROWS, QUERIES = normal(300, 32), normal(7, 32, 2)


class Tensor:
    """What other libraries' tensors have in common, around a NumPy array."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.at = array, device

    def __dlpack_device__(self):
        return self.at

    def __dlpack__(self):
        assert self.at[0] == 1
        return self.array.__dlpack__()


def test_a_tensor_is_read_in_place_with_its_strides():
    base = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for array in (base, base[::2], base.transpose(2, 0, 1), base[:, 1:3, ::2], base[:1, 0, 0].reshape(())):
        view, name = in_host_memory(Tensor(array), "x")
        assert name == "float32" and np.may_share_memory(view, base)
        assert (view.shape, view.strides) == (array.shape, array.strides)
        np.testing.assert_array_equal(view, array)
    empty, _ = in_host_memory(Tensor(base[:0]), "x")
    assert empty.shape == (0, 4, 5)


def test_the_memory_lives_as_long_as_the_array():
    array = np.arange(1000.0)
    references = sys.getrefcount(array)
    view, _ = in_host_memory(Tensor(array), "x")
    assert sys.getrefcount(array) > references
    part = view[10:20]
    del view
    assert sys.getrefcount(array) > references
    del part
    assert sys.getrefcount(array) == references


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8", "bool"])
def test_dtypes_keep_their_names(dtype):
    array = np.ones(5, dtype)
    view, name = in_host_memory(Tensor(array), "x")
    assert (name, view.dtype) == (dtype, array.dtype)


def test_a_tensor_on_a_device_is_refused():
    with pytest.raises(dci.InvalidError, match=r"x lies on a device \(DLPack type 2\).*x\.cpu\(\)"):
        dci.Index(32).add(Tensor(ROWS, (2, 0)))
    index = dci.Index(32)
    index.add(ROWS)
    with pytest.raises(dci.InvalidError, match="q lies on a device"):
        index.search(Tensor(QUERIES, (10, 1)))
    kv, name = started(Text(100))
    with pytest.raises(dci.InvalidError, match="keys lies on a device"), kv.step(name):
        kv.append(0, name, Tensor(np.ones((N_KV_HEADS, DIM), np.float32), (2, 0)), np.ones((N_KV_HEADS, DIM), np.float32))
    assert kv.sequence_info(name).n_tokens == 100
    with pytest.raises(dci.InvalidError, match="out lies on a device"):
        kv.attend(0, name, np.ones((6, DIM), np.float32), out=Tensor(np.ones((6, DIM), np.float32), (2, 0)))


def test_complex_numbers_are_refused_by_name():
    with pytest.raises(TypeError, match="x is DLPack kind 5 of 64 bits: convert it to float32"):
        dci.Index(32).add(Tensor(ROWS.astype(np.complex64)))


def test_an_index_sketch_and_kmeans_take_tensors():
    index, sketch = dci.Index(32), dci.Sketch(32)
    index.add(Tensor(ROWS))
    sketch.append(Tensor(ROWS))
    plain, codes = dci.Index(32), dci.Sketch(32)
    plain.add(ROWS)
    codes.append(ROWS)
    assert_same(index.search(Tensor(QUERIES), 5), plain.search(QUERIES, 5))
    assert_same(sketch.search(Tensor(QUERIES), 5), codes.search(QUERIES, 5))
    found, wanted = dci.kmeans(Tensor(ROWS), 7, values=Tensor(ROWS)), dci.kmeans(ROWS, 7, values=ROWS)
    assert_same((found.labels, found.value_sums), (wanted.labels, wanted.value_sums))


def test_an_index_borrows_the_memory_of_a_tensor():
    rows = ROWS.copy()
    index = dci.Index(32, storage="borrowed")
    index.add(Tensor(rows))
    held = sys.getrefcount(rows)
    rows[5] = 100.0
    np.testing.assert_array_equal(index.reconstruct(5), rows[5])
    index.close()
    assert sys.getrefcount(rows) < held
    with pytest.raises(dci.InvalidError, match="copied"):
        dci.Index(16, storage="borrowed").add(Tensor(rows[:, ::2]))


def test_importing_the_package_imports_no_other_library():
    code = "import sys, dci; print({'torch', 'transformers', 'ml_dtypes', 'sklearn'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def tensor_of(torch, array, dtype):
    """The tensor that has the values of stored rows."""
    if dtype == "bfloat16":
        return torch.from_numpy(array.astype(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_torch_tensors_give_the_bits_of_arrays(torch, dtype):
    text = Text(700, dtype=dtype)
    kv, name = started(text, dtype=dtype, budget=192)
    keys, values = (tensor_of(torch, array, dtype) for array in (text.keys, text.values))
    asked = torch.from_numpy(text.queries)
    other = kv_of(dtype=dtype, budget=192)
    same = other.open()
    # As transformers has them: (batch, heads, tokens, elements).
    ordered = [rows.transpose(1, 2).contiguous().unsqueeze(1) for rows in (keys, values)]
    with other.step(same, text.n):
        for layer in range(N_LAYERS):
            other.append(layer, same, *(rows[layer].transpose(1, 2) for rows in ordered))
            other.end_prompt(layer, same, asked[layer, -64:])
    for layer in range(N_LAYERS):
        out, lse = torch.empty(6, DIM), torch.empty(6)
        plan = other.plan(layer, same, asked[layer, -1])
        assert other.attend(layer, same, asked[layer, -1], plan, out=out, lse=lse) is out
        wanted = kv.attend(layer, name, text.queries[layer, -1], kv.plan(layer, name, text.queries[layer, -1]))
        np.testing.assert_array_equal(out.numpy(), wanted)


class Through:
    """A tensor of torch of which only `__dlpack__` is known."""

    def __init__(self, tensor):
        self.__dlpack__, self.at = tensor.__dlpack__, tensor.__dlpack_device__()

    def __dlpack_device__(self):
        return self.at


KINDS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@pytest.mark.parametrize("dtype", KINDS)
def test_torch_tensors_are_read_as_dlpack_says(torch, dtype):
    base = torch.arange(60).reshape(3, 4, 5).to(getattr(torch, dtype))
    parts = (base, base[::2], base.permute(2, 0, 1), base[:, 1:3, ::2], base[1, 2, 3], base[:0], base[0, 0].expand(7, 5))
    for tensor in parts:
        (view, name), (wanted, same) = in_host_memory(tensor, "x"), in_host_memory(Through(tensor), "x")
        assert (name, view.dtype, view.shape) == (same, wanted.dtype, wanted.shape) and name == dtype
        np.testing.assert_array_equal(view, wanted)
        if view.size:
            assert view.ctypes.data == tensor.data_ptr() and view.strides == wanted.strides


def test_torch_memory_lives_as_long_as_the_array(torch):
    tensor = torch.arange(1000, dtype=torch.bfloat16)
    view, _ = in_host_memory(tensor, "x")
    wanted = view.copy()
    del tensor
    torch.zeros(1000, dtype=torch.bfloat16)  # would get the memory, were it free
    np.testing.assert_array_equal(view, wanted)


def test_torch_tensors_of_their_own_kind_are_left_to_dlpack(torch):
    class Named(torch.Tensor):
        pass

    rows = torch.from_numpy(ROWS)
    view, name = in_host_memory(rows.as_subclass(Named), "x")
    assert name == "float32" and view.ctypes.data == rows.data_ptr()
    with torch.no_grad(), pytest.raises(BufferError, match="detach"):
        in_host_memory(torch.nn.Parameter(rows), "x")
    with pytest.raises(ValueError, match="meta"):
        in_host_memory(torch.empty(3, device="meta"), "x")
    with pytest.raises(BufferError, match="strided"):
        in_host_memory(torch.ones(3, 3).to_sparse(), "x")
    with pytest.raises(TypeError, match=r"x is torch\.complex64: convert it"):
        in_host_memory(torch.ones(3, dtype=torch.complex64), "x")


def test_a_torch_that_knows_no_numpy_is_read_by_dlpack(torch, monkeypatch):
    def refuses(self):
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", refuses)
    rows = torch.from_numpy(ROWS)
    view, name = in_host_memory(rows, "x")
    assert name == "float32" and view.ctypes.data == rows.data_ptr()


def test_torch_bfloat16_is_taken_by_all(torch):
    bits = stored(ROWS, "bfloat16")
    rows = tensor_of(torch, bits, "bfloat16")
    narrow, wide = dci.Index(32, dtype="bfloat16", storage="borrowed"), dci.Index(32)
    narrow.add(rows)
    wide.add(rows)  # widened, as arrays of ml_dtypes are
    np.testing.assert_array_equal(narrow.reconstruct([3]), bits[[3]])
    np.testing.assert_array_equal(wide.reconstruct([3]), in_float64(bits[[3]]))
    assert_same(dci.kmeans(rows, 5).sizes[None], dci.kmeans(bits, 5, dtype="bfloat16").sizes[None])
    with pytest.raises(TypeError, match="x is bfloat16, the index takes float16"):
        dci.Index(32, dtype="float16").add(rows)


def test_a_torch_tensor_that_wants_gradients_is_refused(torch):
    with pytest.raises(BufferError, match="detach"):
        dci.Index(32).add(torch.ones(3, 32, requires_grad=True))


def test_outputs_that_cannot_be_written_to_are_refused(torch):
    kv, name = started(Text(100))
    queries = torch.ones(6, DIM)
    for out in (torch.empty(6, DIM, dtype=torch.float64), torch.empty(DIM, 6).T, torch.empty(5, DIM)):
        with pytest.raises(dci.InvalidError, match=r"out must be a writeable C-contiguous float32"):
            kv.attend(0, name, queries, out=out)


def test_a_step_of_torch_rows_of_several_sequences(torch):
    texts = [Text(300, 1), Text(400, 2)]
    kv = kv_of(budget=192)
    names = [kv.open(), kv.open()]
    for name, text in zip(names, texts):
        read_in(kv, name, text)
    # (batch, heads, tokens, elements), one token each: the batch is the axis of tokens, and nothing is copied.
    rows = torch.randn(2, N_KV_HEADS, 1, DIM)
    with kv.step(names):
        for layer in range(N_LAYERS):
            kv.append(layer, names, rows.transpose(1, 2), rows.transpose(1, 2))
    for i, name in enumerate(names):
        keys, _ = kv.read(1, name, 1, first=texts[i].n)
        np.testing.assert_array_equal(keys[0], rows[i, 1, 0].numpy())
