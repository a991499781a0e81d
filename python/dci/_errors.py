# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""One exception class per status of the library; the message is the library's own sentence, in the names of this package."""

from __future__ import annotations

import os
import re
from typing import Any


class DciError(Exception):
    """Base of all errors. `status` is the library's status code, `name` its constant in base.h."""

    status: int = 0
    name: str = "unknown status"

    def __str__(self) -> str:
        # KeyError and OSError would print the sentence in a form of their own.
        return str(self.__dict__.get("sentence") or (self.args[0] if self.args else self.name))


class InvalidError(DciError, ValueError):
    """An argument is missing, out of range or contradicts another."""

    status = 1
    name = "DCI_ERR_INVALID"


class NumberError(DciError, ValueError):
    """A row holds NaN or infinity, or is too large to score; the message names the row."""

    status = 2
    name = "DCI_ERR_NUMBER"


class OutOfMemoryError(DciError, MemoryError):
    """The library could not get the memory it needs."""

    status = 3
    name = "DCI_ERR_MEMORY"


class LimitError(DciError, ValueError):
    """A size overflows or exceeds a stated limit."""

    status = 4
    name = "DCI_ERR_LIMIT"


class ExistsError(DciError, ValueError):
    """An id is already in use, or twice in one batch."""

    status = 5
    name = "DCI_ERR_EXISTS"


class NotFoundError(DciError, KeyError):
    """An id is not in the index."""

    status = 6
    name = "DCI_ERR_NOT_FOUND"


class FullError(DciError, RuntimeError):
    """A fixed budget is used up."""

    status = 7
    name = "DCI_ERR_FULL"


class UnsupportedError(DciError, NotImplementedError):
    """Valid, but not offered by this build, CPU or kind of index."""

    status = 8
    name = "DCI_ERR_UNSUPPORTED"


class FileError(DciError, OSError):
    """The operating system refused a read or write. Where it said why, errno, strerror and filename are set, and the
    exception is also Python's own class for that errno: FileNotFoundError, PermissionError, IsADirectoryError, .."""

    status = 9
    name = "DCI_ERR_IO"


class MissingFileError(FileError, FileNotFoundError):
    """A FileError for ENOENT: there is no such file or folder."""


class FilePermissionError(FileError, PermissionError):
    """A FileError for EACCES and EPERM."""


class NoFolderError(FileError, NotADirectoryError):
    """A FileError for ENOTDIR: a part of the path is a file."""


class FormatError(DciError, ValueError):
    """A file is truncated, damaged or not of the expected kind."""

    status = 10
    name = "DCI_ERR_FORMAT"


class CancelledError(DciError, RuntimeError):
    """A progress callback asked to stop."""

    status = 11
    name = "DCI_ERR_CANCELLED"


class BusyError(DciError, RuntimeError):
    """The object was called from inside one of its own callbacks, or is in use by another thread."""

    status = 12
    name = "DCI_ERR_BUSY"


class DeviceError(DciError, RuntimeError):
    """A GPU's runtime refused or failed; the message quotes it."""

    status = 13
    name = "DCI_ERR_DEVICE"


class FolderError(FileError, IsADirectoryError, InvalidError):
    """An InvalidError and FileError for EISDIR: the path is a folder."""


ERRORS: dict[int, type[DciError]] = {
    error.status: error
    for error in (
        InvalidError,
        NumberError,
        OutOfMemoryError,
        LimitError,
        ExistsError,
        NotFoundError,
        FullError,
        UnsupportedError,
        FileError,
        FormatError,
        CancelledError,
        BusyError,
        DeviceError,
    )
}


_FILE_ERRORS = (MissingFileError, FilePermissionError, NoFolderError, FolderError)


def a_type(value: Any) -> str:
    """The type of an argument that is of the wrong one, with its article, for sentences."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


# What the library calls things that have another name here. Sentences about files are left alone: they hold file names.
_NAMES: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"\bn_queries is 0\b"), "there are no queries"),
    (re.compile(r"\binput\.(?=\w)"), ""),
    (re.compile(r"\b(\w+) is NULL\b"), r"\1 is None"),
    (re.compile(r"\bDCI_ZERO_KEEP keeps\b"), "zero_rows='keep' keeps"),
    (
        re.compile(
            r"\b(?:DCI_(?:KMEANS_INIT|CENTROID|ZERO|MEAN|CENTRE|SKETCH|METRIC|KIND|ROWS|EXECUTOR|KV_BLOCKS|GPU)_|(?<=kind ))"
            r"([A-Z][A-Z0-9_]*)\b"
        ),
        lambda found: repr(found[1].lower()),
    ),
    (re.compile(r"\bDCI_(B?F(?:16|32))\b"), lambda found: found[1].lower()),
    (re.compile(r"\bf32\b"), "float32"),
    (re.compile(r"\bf16\b"), "float16"),
    (re.compile(r"\bbf16\b"), "bfloat16"),
    (re.compile(r"\bdci_(?:index|sketch|kv|gpu_kv|gpu)_(\w+)"), r"\1"),
)


def in_python(sentence: str) -> str:
    """A sentence of the library in the names of this package."""
    for pattern, name in _NAMES:
        sentence = pattern.sub(name, sentence)
    return sentence


def error_of(status: int, sentence: str, number: int = 0, path: Any = None) -> DciError:
    """The exception for a failing status; one that this package does not know is a plain DciError. number: the system's
    errno if it refused something, else 0. path: of the file that the call was about."""
    if number:
        error = _file_error(status, sentence, number, path)
    else:
        error = ERRORS.get(status, DciError)(in_python(sentence) if path is None else sentence)
    error.status = status
    return error


def _file_error(status: int, sentence: str, number: int, path: Any) -> DciError:
    system = type(OSError(number, ""))  # Python's own class for it
    default = ERRORS.get(status, FileError)
    kind = next((one for one in _FILE_ERRORS if issubclass(one, system) and system is not OSError), FileError)
    if not issubclass(default, (FileError, InvalidError)):  # such as no memory for a mapping
        return default(sentence)
    error = kind(number, os.strerror(number), path)
    error.__dict__["sentence"] = sentence
    return error
