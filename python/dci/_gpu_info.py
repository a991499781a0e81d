# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Figures of a device and of a KV cache on it."""

from __future__ import annotations

from typing import NamedTuple


class GPUInfo(NamedTuple):
    """Figures of a device."""

    name: str
    device: int  #: its number; -1: the host device
    major: int  #: this and the next: compute capability
    minor: int
    multiprocessors: int
    numa_node: int  #: that the device hangs on; -1: not known
    driver: int  #: this and the next: versions, 1000 major + 10 minor
    runtime: int
    memory_bytes: int
    free_bytes: int
    l2_bytes: int
    memory_bytes_per_second: float  #: by clock and width, as far as the driver tells; 0: not known


class GPUKVInfo(NamedTuple):
    """What a KV cache takes on its device, and what steps have moved."""

    device_bytes: int  #: taken on the device: the next four, summary_bytes and resident_bytes
    lane_bytes: int
    dense_bytes: int  #: layers that attend to everything
    table_bytes: int
    buffer_bytes: int
    pinned_bytes: int  #: locked host memory: pool and buffers
    sink: int  #: this and the next two: slots of a lane, as they came out
    ring: int
    hot: int
    unit_tokens: int  #: fetched at once: 1, or a page where groups are pages by position
    n_steps: int
    n_asked: int  #: units that plans asked for, of all lists
    n_missed: int  #: of these, fetched
    n_stayed: int  #: tokens read in host memory, for want of room in the hot buffer
    bytes_fetched: int  #: over the bus to the device
    bytes_written: int  #: new tokens' rows to the host
    summary_bytes: int  #: of device_bytes: what the device chooses by; grows with the sequences
    planner: str  #: who chooses: "device" or "host"
    resident_bytes: int  #: of device_bytes: room for pages of sparse layers that stay on the device
    resident_used_bytes: int  #: of these, with pages in them
    resident_pages: int  #: that are there now
    n_resident: int  #: of n_missed, units that came from there; the others came over the bus
    n_clustered: int  #: layers of prompts whose clusters the device made, as far as the host has taken them over
