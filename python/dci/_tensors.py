# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Arrays and tensors of whatever library as memory that is read and written in place."""

from __future__ import annotations

import ctypes
import struct
import sys
from ctypes import c_char_p, c_void_p, string_at
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError, a_type

# What the capsule of `__dlpack__` points to begins with a DLTensor: data, type and number of the device, number of axes,
# kind, bits and lanes of an element, shape, strides, byte offset.
_DL_TENSOR = struct.Struct("@PiiiBBHPPQ")
_AXES = tuple(struct.Struct(f"={n}q") for n in range(65))

# DLPack's numbers of devices whose memory the CPU reads: its own, and pinned by CUDA or ROCm.
_HOST = (1, 3, 11)
# By DLPack's kind and number of bits: the name, and the NumPy type of the same bits.
_KINDS = {
    **{(0, bits): (f"int{bits}", f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(1, bits): (f"uint{bits}", f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(2, bits): (f"float{bits}", f"<f{bits // 8}") for bits in (16, 32, 64)},
    (4, 16): ("bfloat16", "<u2"),
    (6, 8): ("bool", "|b1"),
}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]


class _Lent:
    """Memory of another library's. The capsule gives it back when nothing refers to it any more."""

    __slots__ = ("__array_interface__", "capsule")

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self.capsule, self.__array_interface__ = capsule, interface


def _of_tensor(x: Any, what: str) -> tuple[npt.NDArray[Any], str]:
    device = tuple(map(int, x.__dlpack_device__()))
    if device[0] not in _HOST:
        where = getattr(x, "device", f"DLPack type {device[0]}")
        raise InvalidError(f"{what} lies on a device ({where}): pass a copy in the host's memory, such as x.cpu()")
    capsule = x.__dlpack__()
    fields = _DL_TENSOR.unpack(string_at(_pointer(capsule, b"dltensor"), _DL_TENSOR.size))
    data, _, _, n_axes, kind, bits, lanes, shape_at, strides_at, offset = fields
    if (kind, bits) not in _KINDS or lanes != 1:
        given = getattr(x, "dtype", f"DLPack kind {kind} of {bits} bits")
        raise TypeError(f"{what} is {given}: convert it to float32, float16 or bfloat16")
    name, typestr = _KINDS[kind, bits]
    axes = _AXES[n_axes]
    shape = axes.unpack(string_at(shape_at, axes.size)) if n_axes else ()
    if 0 in shape:
        return np.empty(shape, typestr), name
    size = bits // 8
    strides = None
    if n_axes and strides_at:
        strides = tuple([size * step for step in axes.unpack(string_at(strides_at, axes.size))])
    interface = {"data": (data + offset, False), "shape": shape, "strides": strides, "typestr": typestr, "version": 3}
    return np.asarray(_Lent(capsule, interface)), name


@lru_cache(maxsize=1)
def torch_names(torch: Any) -> dict[Any, str]:
    """The names of torch's numbers, of those above that it has."""
    return {getattr(torch, name): name for name, _ in _KINDS.values() if hasattr(torch, name)}


def _of_torch(x: Any) -> tuple[npt.NDArray[Any], str] | None:
    """A tensor as torch itself gives it to NumPy: in place, in a fraction of the time of `__dlpack__`. None: another object,
    or a tensor that is looked at more closely there (on a device, with gradients, sparse, of a class of its own, ..)."""
    torch: Any = sys.modules.get("torch")
    if type(x) is not getattr(torch, "Tensor", None):
        return None
    name = torch_names(torch).get(x.dtype)
    if name is None or not x.is_cpu or x.requires_grad or x.layout is not torch.strided:
        return None
    try:
        return (x.view(torch.int16).numpy().view(np.uint16) if name == "bfloat16" else x.numpy()), name
    except RuntimeError:  # a torch that was built for another NumPy, or a tensor that stands for another
        return None


def in_host_memory(x: Any, what: str) -> tuple[npt.NDArray[Any], str]:
    """`x` as an array, and the name of its numbers: without a copy for NumPy arrays and for whatever has `__dlpack__`, such
    as tensors of torch, which is not imported for it. bfloat16, of tensors and of ml_dtypes, comes as its bits in uint16 and
    is called "bfloat16". The array keeps the memory alive. A tensor on a device raises InvalidError."""
    if not isinstance(x, np.ndarray):
        given = _of_torch(x)
        if given is not None:
            return given
        if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
            return _of_tensor(x, what)
    if type(x) is not np.ndarray and np.ma.is_masked(x):
        n = int(np.ma.getmaskarray(x).sum())
        raise InvalidError(f"{what} is a masked array with {n} masked elements: fill them or drop their rows")
    try:
        array = np.asarray(x)
    except ValueError as error:
        if not isinstance(x, (list, tuple)):
            raise
        raise InvalidError(f"{what} is {a_type(x)} that makes no array: {error}") from None
    name = array.dtype.name
    return (array.view(np.uint16) if name == "bfloat16" else array), name


def widened(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """bfloat16 bits as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
