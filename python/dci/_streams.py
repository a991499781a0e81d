# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""File objects as streams of the library: bytes pass in pieces, so a file of any size takes a mebibyte of memory."""

from __future__ import annotations

import errno
import io
from ctypes import memmove, string_at
from os import PathLike
from typing import Any, Protocol

from . import _structs
from ._errors import FormatError, a_type
from ._guard import CallGuard
from ._library import prepared

PIECE = 1 << 20


class Writable(Protocol):
    """What save needs of a file object: write takes bytes and returns how many it took, None meaning all."""

    def write(self, data: bytes, /) -> Any: ...


class Readable(Protocol):
    """What load needs of a file object: read returns at most that many bytes, none at the end."""

    def read(self, n: int, /) -> bytes: ...


def is_file_object(given: object, method: str) -> bool:
    """Whether to write to or read from the object itself. One for text is refused."""
    if isinstance(given, (str, bytes, PathLike)) or not callable(getattr(given, method, None)):
        return False
    if isinstance(given, io.TextIOBase):
        mode = "wb" if method == "write" else "rb"
        raise TypeError(f"the file object is {a_type(given)}, which takes text: open it in binary mode, {mode!r}")
    return True


def writer(file: Writable, guard: CallGuard) -> _structs.Writer:
    """A stream that writes to `file`. What write raises is kept by the guard. Whoever keeps the writer keeps the file."""

    def write(_ctx: int | None, data: int, n: int) -> int:
        try:
            for at in range(0, n, PIECE):
                if guard.error is not None:
                    return 1
                _write_all(file, string_at(data + at, min(PIECE, n - at)))
        except BaseException as error:
            guard.error = error
        return guard.error is not None

    out = prepared(_structs.Writer)
    out.write = _structs.WRITE_FN(write)
    return out


def reader(file: Readable, guard: CallGuard) -> _structs.Reader:
    """A stream that reads from `file`. What read raises is kept by the guard. Whoever keeps the reader keeps the file."""
    n_read = 0

    def read(_ctx: int | None, out: int, n: int) -> int:
        nonlocal n_read
        end = n_read + n
        try:
            while n_read < end and guard.error is None:
                piece = _read_some(file, min(PIECE, end - n_read))
                if not piece:
                    raise FormatError(f"the file object ended after {n_read} bytes, {end - n_read} more were expected")
                memmove(out + n - (end - n_read), piece, len(piece))
                n_read += len(piece)
        except BaseException as error:
            guard.error = error
        return guard.error is not None

    made = prepared(_structs.Reader)
    made.read = _structs.READ_FN(read)
    return made


def _write_all(file: Writable, data: bytes) -> None:
    while data:
        n = file.write(data)
        if n is None:
            if isinstance(file, io.RawIOBase):
                raise BlockingIOError(errno.EAGAIN, "the file object would block: wait for it before saving")
            return
        if not 0 < n <= len(data):
            raise OSError(f"write of the file object took {n} of {len(data)} bytes")
        data = data[n:]


def _read_some(file: Readable, n: int) -> bytes:
    piece = file.read(n)
    if piece is None:
        raise BlockingIOError(errno.EAGAIN, "the file object would block: wait for it before loading")
    if isinstance(piece, str):
        raise TypeError(f"read of the file object ({type(file).__name__}) returned text: open it in binary mode, 'rb'")
    piece = bytes(piece)
    if len(piece) > n:
        raise OSError(f"read of the file object returned {len(piece)} bytes, at most {n} were asked for")
    return piece


__all__ = ["Readable", "Writable", "is_file_object", "reader", "writer"]
