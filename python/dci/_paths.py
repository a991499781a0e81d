# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Paths of files, for C."""

from __future__ import annotations

from os import PathLike, fsencode
from typing import Union

from ._errors import InvalidError

Path = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]


def encoded(path: Path) -> bytes:
    """The bytes of a path."""
    name = fsencode(path)
    if b"\0" in name:  # C would end the path there
        raise InvalidError(f"path is {path!r}, which holds a zero byte")
    return name
