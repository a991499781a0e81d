# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Tokens, queries and numbers of sequences of a KV cache, from what the caller has to what the library takes."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._errors import InvalidError
from ._library import address
from ._rows import RowFormat, as_ids, converted
from ._tensors import in_host_memory


class Tokens(NamedTuple):
    """Rows of tokens that the library can read in place, with strides in elements; 0: as if they were contiguous."""

    array: npt.NDArray[Any]
    n: int
    token_stride: int
    head_stride: int


def as_sequences(sequences: Any) -> npt.NDArray[np.int64]:
    """Numbers of sequences as int64, shape (n_sequences,); one of them gives shape (1,)."""
    if type(sequences) is int and -1 <= sequences < 2**63:
        return np.array([sequences], np.int64)
    return as_ids(sequences, "sequences")


def as_counts(given: Any, n: int, what: str) -> npt.NDArray[np.uintp]:
    """One count for each of n sequences, or the same for all, as size_t."""
    if type(given) is int and 0 <= given < 2**63:
        return np.full(n, given, np.uintp)
    array = np.asarray(given)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{what} is {array.dtype.name}, wanted integers")
    if array.shape not in ((), (n,)):
        raise InvalidError(f"{what} has shape {array.shape}, wanted one number, or one for each of {n} sequences")
    if array.size and array.min() < 0:
        raise InvalidError(f"{what} holds {array.min()}, wanted 0 or more")
    return np.require(np.broadcast_to(array, (n,)), np.uintp, ["C", "A"])


def as_tokens(x: Any, n_sequences: int, heads: int, dim: int, form: RowFormat, what: str) -> Tokens:
    """Rows (n_tokens, heads, dim), (heads, dim) for one token, or (n_sequences, n_each, heads, dim). Copies at most once:
    where the dtype differs, the elements of a row are not side by side, or rows overlap or do not follow each other at equal
    distances."""
    array = x if type(x) is np.ndarray and x.dtype is form.dtype else converted(x, form, what)
    shape = array.shape
    if not 2 <= len(shape) <= 4 or shape[-2:] != (heads, dim) or (len(shape) == 4 and shape[0] != n_sequences):
        raise InvalidError(
            f"{what} has shape {shape}, wanted (n_tokens, {heads}, {dim}), ({heads}, {dim}) for one token, "
            f"or ({n_sequences}, n_each, {heads}, {dim})"
        )
    n, size, flags = prod(shape[:-2]), array.itemsize, array.flags
    if flags.c_contiguous and flags.aligned:
        return Tokens(array, n, 0, 0)
    array = array.reshape(n, heads, dim)
    flags = array.flags
    token, head = (array.strides[0] if n > 1 else dim * size), (array.strides[1] if heads > 1 else dim * size)
    side_by_side = dim == 1 or array.strides[2] == size
    if flags.aligned and side_by_side and token % size == head % size == 0 and min(token, head) >= dim * size:
        return Tokens(array, n, token // size, head // size)
    return Tokens(np.array(array, order="C"), n, 0, 0)


def counts_of(n_tokens: Any, n: int, n_sequences: int) -> npt.NDArray[np.uintp] | None:
    """How many of n rows each sequence gets: as it says, or, for None, the same number. None: one each."""
    if n_tokens is None:
        if n == n_sequences:
            return None
        if n_sequences == 0 or n % n_sequences != 0:
            raise InvalidError(f"{n} tokens for {n_sequences} sequences: say by n_tokens how many each gets")
        return np.full(n_sequences, n // n_sequences, np.uintp)
    counts = as_counts(n_tokens, n_sequences, "n_tokens")
    if int(counts.sum()) != n:
        raise InvalidError(f"n_tokens says {int(counts.sum())} tokens, but there are {n}")
    return counts


def output(given: Any, shape: tuple[int, ...], what: str) -> tuple[Any, int]:
    """Where to write float32 of that shape: an array or tensor of the caller's, or a new array; and its address."""
    if given is None:
        out = np.empty(shape, np.float32)
        return out, address(out)
    if not isinstance(given, np.ndarray) and not hasattr(given, "__dlpack__"):
        raise TypeError(f"{what} is {type(given).__name__}, wanted a float32 array or tensor")
    array = given if type(given) is np.ndarray else in_host_memory(given, what)[0]
    if array.dtype != np.float32 or array.shape != shape or not array.flags.carray:
        raise InvalidError(f"{what} must be a writeable C-contiguous float32 array or tensor of shape {shape}")
    return given, address(array)
