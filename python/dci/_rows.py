# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""From what the caller has to what the library takes: rows with a stride, ids as int64.

What an array holds is what its dtype says, for every class and function of the package (users read it at Index):
 - Integers of every width, bool (0 and 1), float16, float32, float64 and longdouble are numbers. A float32 input takes all
   of them, rounded to the nearest float32 (integers are exact up to 2**24); finite numbers beyond its range are refused.
 - A float16 or bfloat16 input takes its own format, and bool, int8 and uint8, which both hold exactly; nothing that might
   have to be rounded.
 - bfloat16 is an array of ml_dtypes.bfloat16 or a tensor of that type. A uint16 array holds bfloat16 bits only where the
   option that says what this argument is (dtype, input_dtype, query_dtype, value_dtype) was given as "bfloat16"; everywhere
   else its integers are integers.
 - Complex, structured, object, string and date arrays, and masked arrays with masked elements, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import index
from typing import Any, Callable, NamedTuple, Optional, SupportsIndex

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError, NumberError, a_type
from ._library import chosen
from ._structs import DTYPES, FLOATS
from ._tensors import in_host_memory, widened

# NumPy reports a cast that overflows from 1.24 on; before, every cast of doubles is looked through.
_CASTS_REPORT = tuple(map(int, np.__version__.split(".")[:2])) >= (1, 24)
_MOST = f"{float(np.finfo(np.float32).max):.8g}"


class RowFormat(NamedTuple):
    """A number format of rows: its Python name, its C constant, and the NumPy dtype that holds it. For sentences: what takes
    rows in it, and which option chooses it."""

    name: str
    code: int
    dtype: np.dtype[Any]
    taker: str = "index"
    option: str = "input_dtype"


def row_format(dtype: Any, what: str, taker: str = "index", option: str = "input_dtype") -> RowFormat:
    """The format called "float32", "float16" or "bfloat16", of an index also "int8" or "uint8", or of a NumPy (or ml_dtypes)
    type of that name."""
    name: Any = dtype
    if not isinstance(dtype, str) and dtype is not None:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
    # NumPy has no bfloat16 of its own: its bits travel as uint16.
    names = DTYPES if taker == "index" else FLOATS
    return RowFormat(name, chosen(names, name, what), np.dtype("uint16" if name == "bfloat16" else name), taker, option)


# What float16 and bfloat16 hold exactly, whatever the values.
_SMALL = ("bool", "int8", "uint8")


def converted(x: Any, form: RowFormat, what: str) -> npt.NDArray[Any]:
    """`x` as an array of the wanted dtype, by the rule above."""
    array, given = in_host_memory(x, what)
    if array.dtype == form.dtype:
        return array
    if array.dtype.newbyteorder("=") == form.dtype:
        return array.astype(form.dtype)
    if form.dtype.itemsize == 1 and given != "bfloat16" and array.dtype.kind in "fiub":
        return _as_integers(array, form, what)
    if form.name == "float32" and (given == "bfloat16" or array.dtype.kind in "fiub"):
        return as_float32(array, given, what)
    if form.name == "float16" and given in _SMALL:
        return array.astype(np.float16)
    if form.name == "bfloat16" and given in _SMALL:
        return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    called = described(x, array, given)
    raise TypeError(f"{what} is {called}, the {form.taker} takes {form.name}: convert it, or choose another {form.option}")


def as_float32(array: npt.NDArray[Any], given: str, what: str) -> npt.NDArray[Any]:
    """Real numbers as float32, rounded to nearest. Finite ones that are beyond its range are refused."""
    if given == "bfloat16":
        return widened(array)
    if array.dtype.kind != "f" or array.itemsize <= 4:
        return array.astype(np.float32, copy=False)
    if _CASTS_REPORT:
        try:
            with np.errstate(over="raise"):
                return array.astype(np.float32)
        except FloatingPointError:
            pass
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    lost = np.isfinite(array) & ~np.isfinite(narrow)
    if lost.any():
        at = tuple(map(int, np.unravel_index(int(lost.argmax()), lost.shape)))
        where = f"row {at[0]}, column {at[1]} of {what}" if len(at) == 2 else f"{what}[{', '.join(map(str, at))}]"
        raise NumberError(f"{where} is {array[at]:.9g}, beyond the range of float32, -{_MOST} to {_MOST}")
    return narrow


def described(x: Any, array: npt.NDArray[Any], given: str) -> str:
    """What an argument is that holds no numbers of use, for sentences."""
    if array.dtype.names is not None:
        return f"a structured array with the fields {', '.join(map(repr, array.dtype.names))}"
    if array.dtype.kind != "O":
        return given
    if array.ndim == 0 and not isinstance(x, np.ndarray):
        return "None" if x is None else a_type(x)
    first = type(array.flat[0]).__name__ if array.size else "nothing"
    return f"an array of Python objects ({first})"


def _as_integers(array: npt.NDArray[Any], form: RowFormat, what: str) -> npt.NDArray[Any]:
    """Numbers that are integers in the range of int8 or uint8, as such; others are refused."""
    bounds = np.iinfo(form.dtype)
    with np.errstate(invalid="ignore"):
        narrow = array.astype(form.dtype)
    good = (array >= bounds.min) & (array <= bounds.max) & (narrow == array)
    if not good.all():
        at = tuple(map(int, np.unravel_index(int(good.argmin()), good.shape)))
        where = f"row {at[0]}, column {at[1]} of {what}" if len(at) == 2 else f"{what}[{', '.join(map(str, at))}]"
        raise NumberError(f"{where} is {array[at]:.9g}, {form.name} holds integers from {bounds.min} to {bounds.max}")
    return narrow


def as_rows(x: Any, dim: int, form: RowFormat, what: str) -> tuple[npt.NDArray[Any], int, int]:
    """Rows that the library can read in place, how many, and how many elements apart. Copies at most once: when the dtype
    differs, the elements of a row are not side by side, or rows are not a whole number of elements apart."""
    array = x if type(x) is np.ndarray and x.dtype is form.dtype else converted(x, form, what)
    shape = array.shape
    if not 1 <= len(shape) <= 2 or shape[-1] != dim:
        turned = f": {what}.T has it" if len(shape) == 2 and shape[0] == dim else ""
        raise InvalidError(f"{what} has shape {shape}, wanted (n, {dim}) or ({dim},){turned}")
    n = shape[0] if len(shape) == 2 else 1
    flags = array.flags
    if flags.aligned:
        if flags.c_contiguous:
            return array, n, dim
        size = array.itemsize
        ld, rest = divmod(array.strides[0], size)
        if len(shape) == 2 and (array.strides[1] == size or dim == 1) and rest == 0 and ld >= dim:
            return array, n, ld
    return np.array(array, order="C"), n, dim


def as_groups(x: Any, dim: int, form: RowFormat, what: str) -> tuple[npt.NDArray[Any], tuple[int, ...], int]:
    """As as_rows for groups of rows, with their shape less dim: (n_groups, group_size) or (group_size,). Copied too when the
    groups do not follow each other at the distance of their rows."""
    array = converted(x, form, what)
    shape = array.shape
    if not 2 <= len(shape) <= 3 or shape[-1] != dim:
        raise InvalidError(f"{what} has shape {shape}, wanted (n_groups, group_size, {dim}) or (group_size, {dim})")
    rows, _, ld = as_rows(array.reshape(prod(shape[:-1]), dim), dim, form, what)
    return rows, shape[:-1], ld


class Problems(NamedTuple):
    """Rows of problems of one shape, which the library can read in place: row i of problem p begins p * problem_ld + i * ld
    elements after the first of `array`. problem_ld is 0 where there is one problem."""

    array: npt.NDArray[Any]
    form: RowFormat
    n_problems: int
    n: int
    dim: int
    ld: int
    problem_ld: int


def in_own_format(x: Any, what: str, dtype: Any = None, option: str = "dtype") -> tuple[npt.NDArray[Any], RowFormat]:
    """`x` in the format that `dtype` names, the value of the option `option`; None: in that of its own dtype, float16 and
    bfloat16 as they are, all other real numbers in float32."""
    if dtype is not None:
        form = row_format(dtype, option, "call", option)
        return converted(x, form, what), form
    array, given = in_host_memory(x, what)
    form = row_format(given if given in ("float16", "bfloat16") else "float32", what)
    if form.name != "float32":
        return array.astype(form.dtype, copy=False), form
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what} is {described(x, array, given)}, wanted real numbers")
    return as_float32(array, given, what), form


def as_floats(given: Any, shape: tuple[int, ...], what: str) -> npt.NDArray[np.float32]:
    """Contiguous float32 of that shape; other real numbers are converted."""
    array, name = in_host_memory(given, what)
    if name != "bfloat16" and array.dtype.kind not in "fiub":
        raise TypeError(f"{what} is {described(given, array, name)}, wanted real numbers")
    if array.shape != shape:
        raise InvalidError(f"{what} has shape {array.shape}, wanted {shape}")
    return np.require(as_float32(array, name, what), np.float32, ["C", "A"])


def check_output(array: Any, dtype: Any, shape: tuple[int, ...], what: str) -> None:
    """Refuses an array of the caller's that results of that shape cannot be written to."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape or not array.flags.carray:
        raise InvalidError(f"out: {what} must be a writeable C-contiguous {np.dtype(dtype).name} array of shape {shape}")


def as_problems(x: Any, what: str, dtype: Any = None, option: str = "dtype") -> Problems:
    """Rows (n, dim), or (n_problems, n, dim), as in_own_format has them. Copied where the elements of a row are not side by
    side, or rows or problems are not a whole number of elements, at least dim or 1, apart."""
    array, form = in_own_format(x, what, dtype, option)
    shape, size = array.shape, array.itemsize
    if not 2 <= len(shape) <= 3:
        raise InvalidError(f"{what} has shape {shape}, wanted (n, dim) or (n_problems, n, dim)")
    n_problems = shape[0] if len(shape) == 3 else 1
    n, dim = shape[-2:]
    # A distance between things of which there is one says nothing.
    ld, rest = divmod(array.strides[-2], size) if n > 1 else (dim, 0)
    problem_ld, problem_rest = divmod(array.strides[0], size) if n_problems > 1 else (1, 0)
    side_by_side = dim <= 1 or array.strides[-1] == size
    if not (array.flags.aligned and side_by_side and rest == problem_rest == 0 and ld >= dim and problem_ld > 0):
        array, ld, problem_ld = np.array(array, order="C"), dim, n * dim
    return Problems(array, form, n_problems, n, dim, ld, problem_ld if n_problems > 1 else 0)


def lent_rows(x: Any, dim: int, form: RowFormat, what: str) -> tuple[npt.NDArray[Any], int, int]:
    """As as_rows, but refuses what would have to be copied."""
    if not isinstance(x, np.ndarray) and not hasattr(x, "__dlpack__"):
        raise TypeError(f"{what} is {type(x).__name__}: an index with borrowed rows takes NumPy arrays and tensors only")
    given, name = in_host_memory(x, what)
    array, n, ld = as_rows(x, dim, form, what)
    if n and not np.may_share_memory(array, given):
        raise InvalidError(
            f"{what} ({name}, strides {given.strides}) would have to be copied: an index with borrowed rows takes "
            f"aligned {form.name} rows whose elements are side by side"
        )
    return array, n, ld


MAX_ID = 2**63 - 2
_WANTED = f"wanted integers from 0 to {MAX_ID}"


def as_ids(ids: Any, what: str = "ids") -> npt.NDArray[np.int64]:
    """Ids as contiguous int64, shape (n,), of an array of integers or any iterable of them: sets, generators, dict views,
    arrays of Python integers. A single id gives shape (1,). Negative ones are passed on: nothing has them."""
    if isinstance(ids, (str, bytes, bytearray)):
        raise TypeError(f"{what} is a {type(ids).__name__}, {_WANTED}")
    plain = isinstance(ids, (np.ndarray, list, tuple, range)) or hasattr(ids, "__array__") or not hasattr(ids, "__iter__")
    array = np.asarray(ids) if plain else _one_by_one(ids, what)
    if array.dtype.kind not in "iu":
        array = _counted(array, ids, what)
    if array.ndim > 1:
        raise InvalidError(f"{what} has shape {array.shape}, wanted (n,)")
    if array.dtype == np.uint64 and array.size and array.max() > MAX_ID:
        at = int(array.argmax())
        raise InvalidError(f"{what}[{at}] is {array.reshape(-1)[at]}, {_WANTED}")
    return np.require(array, np.int64, ["C", "A"]).reshape(-1)


def _short(value: Any) -> str:
    """A value of the wrong kind, for sentences."""
    if isinstance(value, (int, float, str, bytes)) or value is None:
        return f"{value!r} ({type(value).__name__})" if value is not None else "None"
    return a_type(value)


def _counted(array: npt.NDArray[Any], ids: Any, what: str) -> npt.NDArray[Any]:
    """Ids that NumPy did not make an array of integers of: none at all, or Python integers of any size."""
    if array.size == 0 and array.dtype in (np.float64, np.object_):
        return array.astype(np.int64)
    if array.ndim != 1 or (isinstance(ids, np.ndarray) and array.dtype.kind != "O"):
        given = f"a {type(ids).__name__}" if array.ndim == 0 and not isinstance(ids, np.ndarray) else array.dtype.name
        raise TypeError(f"{what} is {given}, {_WANTED}")
    return _one_by_one(ids, what)


def _one_by_one(ids: Iterable[Any], what: str) -> npt.NDArray[np.int64]:
    numbers = []
    for at, value in enumerate(ids):
        number = single_id(value)
        if number is None:
            raise TypeError(f"{what}[{at}] is {value!r}, {_WANTED}")
        if not -(2**63) <= number <= MAX_ID:
            raise InvalidError(f"{what}[{at}] is {number}, {_WANTED}")
        numbers.append(number)
    return np.array(numbers, np.int64)


def single_id(value: Any) -> int | None:
    """The integer that a value is, of Python or NumPy; None: it is none. True and 3.0 are none."""
    if isinstance(value, (bool, np.bool_)) or getattr(value, "ndim", 0) != 0:
        return None
    try:
        return index(value)
    except TypeError:
        return None


def as_count(value: SupportsIndex, what: str, most: int = 2**63 - 1) -> int:
    """A whole number from 0 to `most`. ctypes would cut others off without a word; narrower ranges the library checks."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{what} is {_short(value)}, wanted a whole number") from None
    if not 0 <= number <= most:
        raise InvalidError(f"{what} is {number}, wanted 0 to {most}")
    return number


def as_number(value: Any, what: str) -> float:
    """A real number."""
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{what} is {_short(value)}, wanted a number")


Progress = Callable[[int, int], object]


def as_progress(given: Any) -> Optional[Progress]:
    """A function that gets the work done and the whole, or None."""
    if given is not None and not callable(given):
        raise TypeError(f"progress is {a_type(given)}, wanted a function of the work done and the whole")
    return given  # type: ignore[no-any-return]
