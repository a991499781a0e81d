# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What can be asked of pictures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """`budget` of pictures at one budget (None: the one nearest to 256 that was measured); `recall` and `queries` of totals;
    `traces` and `presets` to draw (empty: all); `value_bits` of low-bit tails."""

    budget: int | None = None
    recall: float = 0.95
    queries: int | None = None  # None: as many as a round had, or 1,000
    traces: tuple[str, ...] = ()
    value_bits: int = 2
    presets: tuple[str, ...] = ()
