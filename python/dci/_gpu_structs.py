# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The structs and constants of include/dci/gpu.h and include/dci/offload.h; tests/test_abi.py compares them with what a C
compiler says."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_double, c_int32, c_size_t, c_uint64

GPU_HOST = -1
GPU_GATHERS = {"mapped": 1, "staged": 2, "batched": 3, "copies": 4, "direct": 5}
GPU_PLANNERS = {"auto": 1, "host": 2, "device": 3}
GPU_TRIMS = {"buffers": 1, "all": 2}


class GPUConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_int32),
        ("reserved", c_int32),
    ]


class GPUInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 64),
        ("device", c_int32),
        ("major", c_int32),
        ("minor", c_int32),
        ("multiprocessors", c_int32),
        ("numa_node", c_int32),
        ("driver", c_int32),
        ("runtime", c_int32),
        ("reserved", c_int32),
        ("memory_bytes", c_size_t),
        ("free_bytes", c_size_t),
        ("l2_bytes", c_size_t),
        ("memory_bytes_per_second", c_double),
    ]


class GPUKVConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("max_sequences", c_size_t),
        ("max_tokens", c_size_t),
        ("ring_tokens", c_size_t),
        ("hot_tokens", c_size_t),
        ("gather", c_int32),
        ("out_dtype", c_int32),
        ("piece_bytes", c_size_t),
        ("max_device_bytes", c_size_t),
        ("planner", c_int32),
        ("reserved", c_int32),
        ("device_resident_bytes", c_size_t),
    ]


class GPUKVInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device_bytes", c_size_t),
        ("lane_bytes", c_size_t),
        ("dense_bytes", c_size_t),
        ("table_bytes", c_size_t),
        ("buffer_bytes", c_size_t),
        ("pinned_bytes", c_size_t),
        ("sink", c_size_t),
        ("ring", c_size_t),
        ("hot", c_size_t),
        ("unit_tokens", c_size_t),
        ("n_steps", c_uint64),
        ("n_asked", c_uint64),
        ("n_missed", c_uint64),
        ("n_stayed", c_uint64),
        ("bytes_fetched", c_uint64),
        ("bytes_written", c_uint64),
        ("summary_bytes", c_size_t),
        ("planner", c_int32),
        ("reserved", c_int32),
        ("resident_bytes", c_size_t),
        ("resident_used_bytes", c_size_t),
        ("resident_pages", c_size_t),
        ("n_resident", c_uint64),
        ("n_clustered", c_uint64),
    ]


# As in _structs.py.
C_NAMES: dict[type[ctypes.Structure], str] = {
    GPUConfig: "dci_gpu_config",
    GPUInfo: "dci_gpu_info",
    GPUKVConfig: "dci_gpu_kv_config",
    GPUKVInfo: "dci_gpu_kv_info",
}
