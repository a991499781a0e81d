# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Arrays and tensors on a device, or in the host's memory, as the library reads and writes them: always where they lie.

Nothing is copied on the way: a copy would be made on a stream of its library's, and would have to live until the work that
reads it is done. What would have to be copied is refused.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ._errors import InvalidError
from ._rows import RowFormat
from ._tensors import in_host_memory, torch_names

HOST = -1


class Located(NamedTuple):
    """An array or tensor by where it lies. Strides are in elements."""

    owner: Any
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    name: str  #: of its numbers
    device: int | None  #: number of the GPU; HOST: the host's memory; None: it does not say
    writeable: bool


def located(x: Any, what: str) -> Located:
    """Where `x` lies: a tensor of torch, an array of NumPy, whatever has `__cuda_array_interface__`, and in the host's
    memory what has `__dlpack__`."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _of_torch(torch, x, what)
    if isinstance(x, np.ndarray):
        return _of_numpy(x, what)
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(x, interface, what)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _of_numpy(x, what)
    raise TypeError(f"{what} is {type(x).__name__}, wanted an array or a tensor")


def _of_torch(torch: Any, x: Any, what: str) -> Located:
    name = torch_names(torch).get(x.dtype)
    if name is None:
        raise TypeError(f"{what} is {x.dtype}: convert it to float32, float16 or bfloat16")
    if x.layout is not torch.strided:
        raise InvalidError(f"{what} is a tensor of layout {x.layout}, wanted {torch.strided}")
    if x.requires_grad:
        raise InvalidError(f"{what} is a tensor with gradients, which pass no KV cache: pass {what}.detach()")
    if not x.is_cpu and x.device.type != "cuda":
        raise InvalidError(f"{what} lies on a device ({x.device}) that is neither the CPU nor a GPU of NVIDIA's")
    device = HOST if x.is_cpu else x.device.index
    return Located(x, x.data_ptr(), tuple(x.shape), tuple(x.stride()), name, device, True)


def _of_numpy(x: Any, what: str) -> Located:
    array, name = in_host_memory(x, what)
    size = array.itemsize
    if not array.dtype.isnative or any(step % size for step in array.strides):
        raise InvalidError(f"{what} ({array.dtype.str}, strides {array.strides}) would have to be copied")
    strides = tuple(step // size for step in array.strides)
    # The array may be all that keeps the memory of x.
    return Located(array, array.ctypes.data, array.shape, strides, name, HOST, array.flags.writeable)


def _of_interface(x: Any, interface: dict[str, Any], what: str) -> Located:
    dtype = np.dtype(interface["typestr"])
    if dtype.kind not in "fiu" or not dtype.isnative:
        raise TypeError(f"{what} is {dtype.str}: convert it to float32, float16 or bfloat16")
    if interface.get("mask") is not None:
        raise InvalidError(f"{what} has a mask")
    shape = tuple(interface["shape"])
    data, read_only = interface["data"]
    steps = interface.get("strides")
    if steps is None:
        steps = [prod(shape[axis + 1 :]) * dtype.itemsize for axis in range(len(shape))]
    if any(step % dtype.itemsize for step in steps):
        raise InvalidError(f"{what} (strides {tuple(steps)}) would have to be copied")
    device = getattr(getattr(x, "device", None), "id", None)
    strides = tuple(step // dtype.itemsize for step in steps)
    return Located(x, data or 0, shape, strides, dtype.name, device, not read_only)


def in_format(x: Any, form: RowFormat, device: int, what: str) -> Located:
    """`x` on a device that the library can reach from `device`, in the wanted format, of which bfloat16 also comes as
    uint16."""
    at = located(x, what)
    if at.name != form.name and (form.name, at.name) != ("bfloat16", "uint16"):
        raise TypeError(
            f"{what} is {at.name}, the {form.taker} takes {form.name}: convert it, or choose another {form.option}"
        )
    if device == HOST and at.device != HOST:
        raise InvalidError(f"{what} lies on a GPU, the KV cache on the host device: pass it in the host's memory")
    return at


def _apart(at: Located, what: str) -> InvalidError:
    return InvalidError(
        f"{what} (shape {at.shape}, strides {at.strides}) would have to be copied: pass rows whose elements lie side by "
        f"side and that follow each other at equal distances, such as {what}.contiguous()"
    )


def _joined(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """How far apart things are where some axes are taken as one; 0: there is one at most. None: not equally far."""
    axes = [(size, step) for size, step in zip(sizes, strides) if size != 1]
    if not axes or prod(sizes) == 0:
        return 0
    for (_, outer), (size, inner) in zip(axes, axes[1:]):
        if outer != size * inner:
            return None
    return axes[-1][1] if axes[-1][1] > 0 else None


def _steps(at: Located, dim: int, what: str, *parts: int) -> list[int]:
    """How far apart things are, taking together the axes up to each of `parts`; 0: there is one at most. Elements of rows
    must be side by side."""
    if prod(at.shape) == 0:
        return [0] * len(parts)
    out, begin = [], 0
    for end in parts:
        out.append(_joined(at.shape[begin:end], at.strides[begin:end]))
        begin = end
    whole = [step for step in out if step is not None and (step == 0 or step >= dim)]
    if len(whole) != len(out) or (dim > 1 and at.strides[-1] != 1 and prod(at.shape) > 0):
        raise _apart(at, what)
    return whole


class Tokens(NamedTuple):
    """Rows of tokens, and strides in elements; 0: as if they were contiguous."""

    at: Located
    n: int
    token_stride: int
    head_stride: int


def tokens_on_device(x: Any, n_sequences: int, heads: int, dim: int, form: RowFormat, device: int, what: str) -> Tokens:
    """As as_tokens of _kv_rows.py, in place."""
    at = in_format(x, form, device, what)
    shape = at.shape
    if not 2 <= len(shape) <= 4 or shape[-2:] != (heads, dim) or (len(shape) == 4 and shape[0] != n_sequences):
        raise InvalidError(
            f"{what} has shape {shape}, wanted (n_tokens, {heads}, {dim}), ({heads}, {dim}) for one token, "
            f"or ({n_sequences}, n_each, {heads}, {dim})"
        )
    token, head = _steps(at, dim, what, len(shape) - 2, len(shape) - 1)
    return Tokens(at, prod(shape[:-2]), token, head)


def rows_on_device(at: Located, dim: int, what: str) -> int:
    """How many elements apart the rows of all axes but the last are."""
    (step,) = _steps(at, dim, what, len(at.shape) - 1)
    return step or dim


def output_on_device(given: Any, shape: tuple[int, ...], form: RowFormat, device: int, what: str) -> tuple[Located, int]:
    """Where to write rows of that shape, and how many elements apart."""
    at = in_format(given, form, device, what)
    if at.shape != shape or not at.writeable:
        raise InvalidError(f"{what} must be a writeable {form.name} array or tensor of shape {shape}, not {at.shape}")
    return at, rows_on_device(at, shape[-1], what)


def new_output(like: Any, shape: tuple[int, ...], form: RowFormat, stream: int | None) -> Any:
    """A tensor of the library and on the device of `like`; of torch for work on `stream` (None: the current one)."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(like, torch.Tensor):
        if not isinstance(like, np.ndarray) and hasattr(like, "__cuda_array_interface__"):
            raise TypeError(f"out is wanted where queries are {type(like).__name__}: {form.name} of shape {shape}")
        return np.empty(shape, form.dtype)
    dtype = getattr(torch, form.name)
    if stream is None or not like.is_cuda:
        return torch.empty(shape, dtype=dtype, device=like.device)
    # Memory belongs to the stream that is current when it is taken, and is given out again in that stream's order.
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=like.device)):
        return torch.empty(shape, dtype=dtype, device=like.device)


class _View:
    """The library's memory as what arrays and tensors are made of; it keeps `owner`."""

    __slots__ = ("__array_interface__", "__cuda_array_interface__", "owner")

    def __init__(self, where: int, shape: tuple[int, ...], typestr: str, device: int, owner: object) -> None:
        interface = {"data": (where, False), "shape": shape, "strides": None, "typestr": typestr, "version": 3}
        self.owner = owner
        if device == HOST:
            self.__array_interface__ = interface
        else:
            self.__cuda_array_interface__ = interface


def view_of(where: int, shape: tuple[int, ...], form: RowFormat, device: int, owner: object) -> Any:
    """The library's memory in place: a tensor where torch is imported; else on the host device an array, on a GPU an object
    with `__cuda_array_interface__`. It keeps `owner`."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        view = _View(where, shape, form.dtype.str, device, owner)
        return np.asarray(view) if device == HOST else view
    place = "cpu" if device == HOST else f"cuda:{device}"
    dtype = getattr(torch, form.name)
    if prod(shape) == 0:
        return torch.empty(shape, dtype=dtype, device=place)
    # Integers: not every torch takes NumPy's uint16, and NumPy has no bfloat16.
    bits = _View(where, shape, f"<i{form.dtype.itemsize}", device, owner)
    tensor = torch.from_numpy(np.asarray(bits)) if device == HOST else torch.as_tensor(bits, device=place)
    return tensor.view(dtype)


def stream_number(stream: Any) -> int | None:
    """A stream as the address that the runtime knows it by; None stays None."""
    if stream is None or (isinstance(stream, int) and not isinstance(stream, bool)):
        number = stream
    elif hasattr(stream, "cuda_stream"):
        number = stream.cuda_stream
    elif hasattr(stream, "__cuda_stream__"):
        number = stream.__cuda_stream__()[1]
    else:
        raise TypeError(f"stream is {type(stream).__name__}, wanted None, an int or an object with cuda_stream")
    if number is not None and not 0 <= number < 2**64:
        raise InvalidError(f"stream is {number}, wanted 0 to {2**64 - 1}")
    return number


def current_stream(device: int) -> int:
    """The stream that torch queues work on now, where it has used GPUs; otherwise the default stream."""
    torch: Any = sys.modules.get("torch")
    if device == HOST or torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)
