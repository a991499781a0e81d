# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The context: threads and instruction set, shared by any number of indexes."""

from __future__ import annotations

import os
from ctypes import byref
from typing import Any

from . import _structs
from ._errors import a_type
from ._library import check, chosen, create, lib, prepared
from ._rows import as_count

_ISA_NAMES = {code: name for name, code in _structs.ISAS.items()}
_MOST_THREADS = 1024
_forked: list[bool] = []  # not empty: this process is a child of fork, where OpenMP's threads may be lost, and waited for

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked.append(True))


class Context:
    """Which threads and which instruction set the calls use.

    threads     most threads that one call may use, 1 to 1024; 0: what OpenMP would take, or the CPUs this process may
                run on.
    isa         "auto", "scalar", "avx2", "avx512", "amx" or "neon"; one that this machine cannot run is refused. With
                "auto", the environment variable DCI_ISA may name another.
    executor    "openmp", "pthreads" (a pool of the context's own), or None for the library's default.

    A context may be used from any thread, and by a forked child, where each call runs on the calling thread alone.
    It lives as long as something uses it.
    """

    __slots__ = ("_handle",)

    def __init__(self, threads: int = 0, isa: str = "auto", executor: str | None = None) -> None:
        config = prepared(_structs.ContextConfig)
        config.n_threads = as_count(threads, "threads", _MOST_THREADS)
        config.isa = chosen(_structs.ISAS, isa, "isa")
        if executor is None and _forked:
            executor = "pthreads"
        if executor is not None:
            config.executor_kind = chosen(_structs.EXECUTORS, executor, "executor")
        self._handle = create(lib.dci_context_create, lib.dci_context_destroy, byref(config))

    @property
    def threads(self) -> int:
        """The most threads a call may use. May be set, for calls that start afterwards; results do not depend on it."""
        return int(lib.dci_context_threads(self._handle.value))

    @threads.setter
    def threads(self, threads: int) -> None:
        check(lib.dci_context_set_threads(self._handle.value, as_count(threads, "threads", _MOST_THREADS)))

    @property
    def isa(self) -> str:
        """The instruction set in use, never "auto"."""
        return _ISA_NAMES[lib.dci_context_isa(self._handle.value)]

    def __copy__(self) -> Context:
        return self  # a context is shared, never copied

    def __deepcopy__(self, _memo: object) -> Context:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Context cannot be pickled, as its threads belong to this process: make one where it is needed")

    def __repr__(self) -> str:
        return f"Context(threads={self.threads}, isa={self.isa!r})"


_default: dict[str, Context] = {}


def default_context() -> Context:
    """The context of all indexes that were given none, created when first needed."""
    # setdefault is atomic: of two threads that arrive together, one context stays and the other is freed.
    return _default.get("") or _default.setdefault("", Context())


def context_of(given: Context | None) -> Context:
    """The context to use where a caller gave this one, or none."""
    if given is None:
        return default_context()
    if not isinstance(given, Context):
        raise TypeError(f"context is {a_type(given)}, wanted a dci.Context or None")
    return given


def isa_available(isa: str) -> bool:
    """Whether this build, CPU and operating system can run an instruction set."""
    return bool(lib.dci_isa_available(chosen(_structs.ISAS, isa, "isa")))


def version() -> str:
    """The version of the library that is loaded; its minor version is the package's."""
    return str(lib.dci_version().decode())


def isa() -> str:
    """The instruction set of the default context."""
    return default_context().isa
