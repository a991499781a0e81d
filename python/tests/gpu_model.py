# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A KV cache on a device beside one on the CPU that gets the same rows: the host device, or GPU N where the environment says
DCI_GPU_DEVICE=N and torch is there."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from conftest import in_float64
from kv_model import N_KV_HEADS, N_LAYERS, N_QUERY_HEADS, Text

import dci

try:
    import torch
except ImportError:
    torch = None

DIM = 64
SHAPE = (N_LAYERS, N_QUERY_HEADS, N_KV_HEADS, DIM)
DEVICE: Any = int(os.environ["DCI_GPU_DEVICE"]) if "DCI_GPU_DEVICE" in os.environ else "host"
ON_HOST = DEVICE == "host"
if not ON_HOST and (torch is None or not torch.cuda.is_available()):
    pytest.skip("DCI_GPU_DEVICE names a GPU, but there is no torch that uses it", allow_module_level=True)

# Outputs differ by no more than this share of their norm: kernels sum in another order, and in float32.
OFF = 2e-3

_opened: list[dci.gpu.GPU] = []


def gpu() -> dci.gpu.GPU:
    """The device of all tests."""
    if not _opened:
        _opened.append(dci.gpu.GPU(DEVICE))
    return _opened[0]


def torch_of(array: Any, bfloat16: bool = False) -> Any:
    """An array as a tensor of torch on the device; uint16 as bfloat16."""
    where = "cpu" if ON_HOST else f"cuda:{DEVICE}"
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(where)
    return torch.from_numpy(array.copy()).to(where)


def put(array: Any) -> Any:
    """An array where the device's KV cache takes it."""
    return array if ON_HOST else torch_of(array)


def bits(given: Any) -> Any:
    """An array or tensor of 16-bit floats as its bits."""
    if isinstance(given, np.ndarray):
        return given.view(np.uint16)
    return given.view(torch.int16).cpu().numpy().view(np.uint16)


def back(given: Any) -> Any:
    """An array or tensor as float64; uint16 are bits of bfloat16."""
    if isinstance(given, np.ndarray):
        return in_float64(given)
    return given.detach().cpu().double().numpy()


def text_of(n: int, seed: int = 0, dtype: str = "float16") -> Text:
    """A text of rows that devices have."""
    return Text(n, seed, dtype, DIM)


def gpu_kv(preset: str = "sketch", **options: Any) -> dci.gpu.GPUKVCache:
    """A KV cache of the small shape on the device, without dense layers."""
    small = {"max_sequences": 3, "max_tokens": 4096, "piece_bytes": 2**16}
    return dci.gpu.GPUKVCache(gpu(), *SHAPE, preset=preset, **{"dense_layers": 0, **small, **options})


def close_to(got: Any, wanted: Any) -> bool:
    """Whether outputs are the same to rounding, query by query."""
    off = np.linalg.norm(back(got) - wanted, axis=-1)
    return bool((off <= OFF * np.linalg.norm(wanted, axis=-1)).all())


class Twin:
    """The two KV caches, with one text per sequence."""

    def __init__(self, preset: str = "sketch", put: Any = put, device: Any = None, **options: Any) -> None:
        self.kv = gpu_kv(preset, **options, **(device or {}))
        self.cpu = dci.KVCache(*SHAPE, preset=preset, **{"dense_layers": 0, **options})
        self.put = put
        self.at: dict[int, tuple[int, Text, int]] = {}  # number on the device: number on the CPU, text, tokens

    def open(self, text: Text) -> int:
        name = self.kv.open()
        self.at[name] = (self.cpu.open(), text, 0)
        return name

    def _rows(self, names: list[int], counts: list[int], layer: int, what: str) -> Any:
        parts = []
        for name, n in zip(names, counts):
            _, text, first = self.at[name]
            parts.append(getattr(text, what)[layer, first : first + n])
        return np.concatenate(parts)

    def step(self, names: list[int], counts: list[int], ends: bool = False, looks: bool = False, named: bool = False) -> int:
        """A step of both; named: all rows of a prompt that ends are named. Returns how many outputs were compared."""
        others, looked = [self.at[name][0] for name in names], 0
        with self.kv.step(names, counts), self.cpu.step(others, counts):
            for layer in range(N_LAYERS):
                keys, values = (self._rows(names, counts, layer, what) for what in ("keys", "values"))
                self.kv.append(layer, self.put(keys), self.put(values))
                self.cpu.append(layer, others, keys, values, n_tokens=counts)
                for name, n in zip(names, counts) if ends else ():
                    other, text, first = self.at[name]
                    observed = text.queries[layer, max(0, first + n - 64) : first + n]
                    if named:
                        rows = (getattr(text, what)[layer, : first + n] for what in ("keys", "values"))
                        self.kv.prompt_rows(layer, name, *map(self.put, rows))
                    self.kv.end_prompt(layer, name, self.put(observed))
                    self.cpu.end_prompt(layer, other, observed)
                if looks:
                    looked += self.look(layer, names, counts)
        for name, n in zip(names, counts):
            other, text, first = self.at[name]
            self.at[name] = (other, text, first + n)
        return looked

    def look(self, layer: int, names: list[int], counts: list[int]) -> int:
        others = [self.at[name][0] for name in names]
        queries = np.stack([self.at[name][1].queries[layer, self.at[name][2] + n - 1] for name, n in zip(names, counts)])
        on_device = self.put(queries)
        self.kv.plan(layer, on_device)
        sums = self.put(np.zeros(queries.shape[:2], np.float32))
        out = self.kv.attend(layer, on_device, lse=sums)
        wanted_sums = np.zeros(queries.shape[:2], np.float32)
        plan = self.cpu.plan(layer, others, queries)
        wanted = self.cpu.attend(layer, others, queries, plan, lse=wanted_sums)
        assert close_to(out, wanted)
        np.testing.assert_allclose(back(sums), wanted_sums, rtol=OFF, atol=OFF)
        return int((plan.recent_begin > 0).sum())

    def prefill(self, text: Text, n: int, chunk: int = 0, named: bool = False) -> int:
        name, first = self.open(text), 0
        while chunk and first + chunk < n:
            self.step([name], [chunk])
            first += chunk
        self.step([name], [n - first], ends=True, named=named)
        return name

    def decode(self, names: list[int], n: int) -> int:
        """n tokens of each, one by one. Returns how many plans left tokens out."""
        looked = 0
        for _ in range(n):
            looked += self.step(names, [1] * len(names), looks=True)
            self.maintain()
        return looked

    def maintain(self) -> None:
        """Of both: what left the window can be chosen."""
        self.kv.maintain()
        self.cpu.maintain()
