# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""One exception class per status of the library; the message is the library's own sentence."""

from __future__ import annotations


class DciError(Exception):
    """Base of all errors. `status` is the library's status code, `name` its constant in base.h."""

    status: int = 0
    name: str = "unknown status"

    def __str__(self) -> str:
        # KeyError and OSError would print the sentence in a form of their own.
        return str(self.args[0]) if self.args else self.name


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
    """The operating system refused a read or write."""

    status = 9
    name = "DCI_ERR_IO"


class FormatError(DciError, ValueError):
    """A file is truncated, damaged or not of the expected kind."""

    status = 10
    name = "DCI_ERR_FORMAT"


class CancelledError(DciError, RuntimeError):
    """A progress callback asked to stop."""

    status = 11
    name = "DCI_ERR_CANCELLED"


class BusyError(DciError, RuntimeError):
    """The object was called from inside one of its own callbacks."""

    status = 12
    name = "DCI_ERR_BUSY"


class DeviceError(DciError, RuntimeError):
    """A GPU's runtime refused or failed; the message quotes it."""

    status = 13
    name = "DCI_ERR_DEVICE"


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


def error_of(status: int, sentence: str) -> DciError:
    """The exception for a failing status; one that this package does not know is a plain DciError."""
    error = ERRORS.get(status, DciError)(sentence)
    error.status = status
    return error
