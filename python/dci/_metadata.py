# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What a user keeps with an index: a JSON object that is saved with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ctypes import byref, c_size_t
from typing import Any

import numpy as np

from ._errors import FormatError
from ._library import Handle, address, check, lib


class Metadata(dict[str, Any]):
    """The metadata of an index, as a dict: what changes it changes what the index keeps. Lists and dicts within it are
    copies, which must be assigned again when they change."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        super().__init__(_loaded(handle))
        self._handle = handle

    def _change(self, changed: dict[str, Any]) -> None:
        store(self._handle, changed)
        super().clear()
        super().update(_loaded(self._handle))

    def __setitem__(self, key: str, value: Any) -> None:
        self._change({**self, key: value})

    def __delitem__(self, key: str) -> None:
        changed = dict(self)
        del changed[key]
        self._change(changed)

    def update(self, *given: Any, **more: Any) -> None:
        changed = dict(self)
        changed.update(*given, **more)
        self._change(changed)

    def __ior__(self, given: Any) -> Metadata:  # type: ignore[override, misc]
        self.update(given)
        return self

    def pop(self, *key_and_default: Any) -> Any:
        changed = dict(self)
        value = changed.pop(*key_and_default)
        self._change(changed)
        return value

    def popitem(self) -> tuple[str, Any]:
        changed = dict(self)
        item = changed.popitem()
        self._change(changed)
        return item

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        self._change({})

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def store(handle: Handle, given: Any) -> None:
    """Keeps a dict with an index, as JSON in UTF-8."""
    if not isinstance(given, Mapping):
        raise TypeError(f"metadata is a {type(given).__name__}, wanted a dict that JSON can hold")
    _check_keys(given, "metadata")
    try:
        text = json.dumps(dict(given), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        data = np.frombuffer(text.encode() if given else b"", np.uint8)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"metadata cannot be kept as JSON: {_culprit(given)}{error}") from None
    check(lib.dci_index_set_metadata(handle.value, address(data) if data.size else None, data.size))


def _check_keys(value: Any, where: str) -> None:
    """JSON would make strings of other keys, so that what is read would differ from what was kept."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, wanted strings")
            _check_keys(inner, f"{where}[{key!r}]")


def _culprit(given: Mapping[str, Any]) -> str:
    """The first key whose value JSON does not hold, for sentences."""
    for key, value in given.items():
        try:
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError):
            return f"{key!r} is a {type(value).__name__}: "
    return ""


def _loaded(handle: Handle) -> dict[str, Any]:
    n = c_size_t()
    data = np.empty(0, np.uint8)
    while True:
        check(lib.dci_index_get_metadata(handle.value, data.size, address(data), byref(n)))
        if n.value <= data.size:
            break
        data = np.empty(n.value, np.uint8)
    try:
        found = json.loads(data[: n.value].tobytes().decode()) if n.value else {}
    except ValueError as error:
        raise FormatError(f"the metadata of the index is {n.value} bytes that are no JSON: {error}") from None
    if not isinstance(found, dict):
        raise FormatError(f"the metadata of the index is a JSON {type(found).__name__}, wanted an object")
    return found
