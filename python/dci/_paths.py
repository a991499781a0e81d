# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Paths of files, for C."""

from __future__ import annotations

from os import PathLike, fsencode, fspath
from typing import Any, Union

from ._errors import InvalidError

Path = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]


def plain(path: Any) -> str | bytes:
    """A path as str or bytes, as exceptions have it."""
    try:
        return fspath(path)  # type: ignore[no-any-return]
    except TypeError:
        raise TypeError(f"path is {type(path).__name__}, wanted the path of a file: str, bytes or os.PathLike") from None


def encoded(path: Path) -> bytes:
    """The bytes of a path."""
    name = fsencode(plain(path))
    if b"\0" in name:  # C would end the path there
        raise InvalidError(f"path is {path!r}, which holds a zero byte")
    return name
