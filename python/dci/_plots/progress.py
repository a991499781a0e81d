# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A bar for somebody who watches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def progress(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with tqdm's bar on a terminal where tqdm is installed."""
    if not sys.stderr.isatty():
        return items
    try:
        from tqdm import tqdm  # noqa: PLC0415 - only where it is used
    except ImportError:
        return items
    bar: Iterable[T] = tqdm(items, desc=what, leave=False)
    return bar
