# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Finds libdci, loads it, and declares its functions.

The first of these that exists is taken: the file that the environment variable DCI_LIBRARY names, the library inside this
package, the system's libdci of this version. ctypes releases the interpreter lock during every call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from ctypes import c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Callable, TypeVar

from . import _gpu_structs, _kv_structs, _structs
from ._errors import InvalidError, error_of


def _installed_version() -> str:
    """Of the distribution that this package came with: `dci`, or the wheel with CUDA."""
    for name in ("dci", "libdci-cu13"):
        with suppress(PackageNotFoundError):
            return version(name)
    raise PackageNotFoundError("dci")


__version__ = _installed_version()

# Result and arguments of every function that the package calls. Pointers are c_void_p, which takes plain ints and byref().
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "dci_last_error": (c_char_p, []),
    "dci_last_errno": (c_int32, []),
    "dci_version": (c_char_p, []),
    "dci_isa_available": (c_int32, [c_int32]),
    "dci_context_create": (c_int32, [c_void_p, c_void_p]),
    "dci_context_destroy": (None, [c_void_p]),
    "dci_context_isa": (c_int32, [c_void_p]),
    "dci_context_threads": (c_int32, [c_void_p]),
    "dci_context_set_threads": (c_int32, [c_void_p, c_int32]),
    "dci_index_create": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "dci_index_destroy": (None, [c_void_p]),
    "dci_index_count": (c_size_t, [c_void_p]),
    "dci_index_is_auto": (c_int32, [c_void_p]),
    "dci_index_reserve": (c_int32, [c_void_p, c_size_t]),
    "dci_index_add": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_append": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_upsert": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_replace": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_remove": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "dci_index_remove_present": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_clear": (c_int32, [c_void_p]),
    "dci_index_contains": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_next_id": (c_int64, [c_void_p]),
    "dci_index_set_metadata": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "dci_index_get_metadata": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_reconstruct": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p, c_size_t]),
    "dci_index_ids": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_search": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_void_p, c_void_p, c_void_p]),
    "dci_index_search_group": (
        c_int32,
        [c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_size_t, c_int32, c_void_p, c_void_p, c_void_p],
    ),
    "dci_index_range_search": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_float, c_void_p, c_void_p]),
    "dci_index_set_defaults": (c_int32, [c_void_p, c_void_p]),
    "dci_index_get_defaults": (c_int32, [c_void_p, c_void_p]),
    "dci_index_get_config": (c_int32, [c_void_p, c_void_p]),
    "dci_index_save": (c_int32, [c_void_p, c_char_p]),
    "dci_index_save_memory": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_save_stream": (c_int32, [c_void_p, c_void_p]),
    "dci_index_load": (c_int32, [c_void_p, c_char_p, c_void_p]),
    "dci_index_load_memory": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "dci_index_load_stream": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "dci_index_map": (c_int32, [c_void_p, c_char_p, c_void_p]),
    "dci_index_check": (c_int32, [c_void_p, c_int32, c_void_p]),
    "dci_index_fit_with": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p]),
    "dci_index_tune_with": (
        c_int32,
        [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_double, c_void_p, c_void_p],
    ),
    "dci_index_pages": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_index_page_ids": (c_int32, [c_void_p, c_int32, c_void_p, c_void_p]),
    "dci_index_changes": (c_int32, [c_void_p, c_uint64, c_size_t, c_void_p, c_void_p, c_void_p]),
    "dci_index_tree_stats": (c_int32, [c_void_p, c_void_p]),
    "dci_range_result_free": (None, [c_void_p]),
    "dci_index_memory": (c_int32, [c_void_p, c_void_p]),
    "dci_kmeans": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "dci_kmeans_check": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "dci_sketch_create": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "dci_sketch_destroy": (None, [c_void_p]),
    "dci_sketch_count": (c_size_t, [c_void_p]),
    "dci_sketch_reserve": (c_int32, [c_void_p, c_size_t]),
    "dci_sketch_append": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t]),
    "dci_sketch_truncate": (c_int32, [c_void_p, c_size_t]),
    "dci_sketch_fit": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_void_p, c_size_t]),
    "dci_sketch_score": (
        c_int32,
        [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_void_p, c_size_t],
    ),
    "dci_sketch_bound": (
        c_int32,
        [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_double, c_void_p, c_size_t],
    ),
    "dci_sketch_search": (c_int32, [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_void_p, c_void_p]),
    "dci_sketch_decode": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p, c_size_t]),
    "dci_sketch_get_info": (c_int32, [c_void_p, c_void_p]),
    "dci_kv_create": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "dci_kv_destroy": (None, [c_void_p]),
    "dci_kv_open": (c_int32, [c_void_p, c_void_p]),
    "dci_kv_fork": (c_int32, [c_void_p, c_int64, c_size_t, c_void_p]),
    "dci_kv_truncate": (c_int32, [c_void_p, c_int64, c_size_t]),
    "dci_kv_close": (c_int32, [c_void_p, c_int64]),
    "dci_kv_reserve": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_kv_assign_blocks": (c_int32, [c_void_p, c_int64, c_size_t, c_void_p]),
    "dci_kv_append": (c_int32, [c_void_p, c_size_t, c_size_t, c_void_p, c_void_p, c_void_p]),
    "dci_kv_end_prompt": (c_int32, [c_void_p, c_size_t, c_int64, c_size_t, c_void_p, c_size_t]),
    "dci_kv_wait": (c_int32, [c_void_p, c_int64]),
    "dci_kv_step_end": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "dci_kv_step_abort": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "dci_kv_maintain": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "dci_kv_plan_make": (c_int32, [c_void_p, c_size_t, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p]),
    "dci_kv_attend": (
        c_int32,
        [c_void_p, c_size_t, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p],
    ),
    "dci_kv_table": (c_int32, [c_void_p, c_int64, c_size_t, c_size_t, c_void_p]),
    "dci_kv_read": (c_int32, [c_void_p, c_size_t, c_int64, c_size_t, c_size_t, c_size_t, c_void_p, c_void_p]),
    "dci_kv_order": (c_int32, [c_void_p, c_size_t, c_int64, c_size_t, c_size_t, c_void_p, c_void_p, c_void_p]),
    "dci_kv_get_sequence": (c_int32, [c_void_p, c_int64, c_void_p]),
    "dci_kv_get_info": (c_int32, [c_void_p, c_void_p]),
    "dci_kv_check": (c_int32, [c_void_p, c_int32, c_void_p]),
    "dci_kv_calibrate": (c_int32, [c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_double, c_void_p]),
    "dci_kv_save": (c_int32, [c_void_p, c_int64, c_size_t, c_char_p]),
    "dci_kv_load": (c_int32, [c_void_p, c_char_p, c_void_p]),
    "dci_context_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_index_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_filter_init": (c_int32, [c_void_p, c_size_t]),
    "dci_search_stats_init": (c_int32, [c_void_p, c_size_t]),
    "dci_search_params_init": (c_int32, [c_void_p, c_size_t]),
    "dci_range_result_init": (c_int32, [c_void_p, c_size_t]),
    "dci_memory_report_init": (c_int32, [c_void_p, c_size_t]),
    "dci_tune_options_init": (c_int32, [c_void_p, c_size_t]),
    "dci_tune_result_init": (c_int32, [c_void_p, c_size_t]),
    "dci_tree_stats_init": (c_int32, [c_void_p, c_size_t]),
    "dci_writer_init": (c_int32, [c_void_p, c_size_t]),
    "dci_reader_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kmeans_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kmeans_input_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kmeans_report_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kmeans_result_init": (c_int32, [c_void_p, c_size_t]),
    "dci_sketch_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_sketch_info_init": (c_int32, [c_void_p, c_size_t]),
    "dci_layer_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kv_layout_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kv_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kv_config_published": (c_int32, [c_void_p, c_int32, c_size_t]),
    "dci_kv_rows_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kv_plan_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kv_sequence_info_init": (c_int32, [c_void_p, c_size_t]),
    "dci_kv_info_init": (c_int32, [c_void_p, c_size_t]),
    "dci_gpu_count": (c_int32, [c_void_p]),
    "dci_gpu_create": (c_int32, [c_void_p, c_void_p, c_void_p]),
    "dci_gpu_destroy": (None, [c_void_p]),
    "dci_gpu_get_info": (c_int32, [c_void_p, c_void_p]),
    "dci_gpu_kv_create": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "dci_gpu_kv_destroy": (None, [c_void_p]),
    "dci_gpu_kv_host": (c_void_p, [c_void_p]),
    "dci_gpu_kv_open": (c_int32, [c_void_p, c_void_p]),
    "dci_gpu_kv_fork": (c_int32, [c_void_p, c_int64, c_size_t, c_void_p]),
    "dci_gpu_kv_truncate": (c_int32, [c_void_p, c_int64, c_size_t]),
    "dci_gpu_kv_close": (c_int32, [c_void_p, c_int64]),
    "dci_gpu_kv_save": (c_int32, [c_void_p, c_int64, c_size_t, c_char_p]),
    "dci_gpu_kv_load": (c_int32, [c_void_p, c_char_p, c_void_p]),
    "dci_gpu_kv_reserve": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_gpu_kv_append": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "dci_gpu_kv_end_prompt": (c_int32, [c_void_p, c_void_p, c_size_t, c_int64, c_size_t, c_void_p, c_size_t]),
    "dci_gpu_kv_plan": (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t]),
    "dci_gpu_kv_attend": (
        c_int32,
        [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p],
    ),
    "dci_gpu_kv_prompt_rows": (c_int32, [c_void_p, c_void_p, c_size_t, c_int64, c_void_p]),
    "dci_gpu_kv_swap_out": (c_int32, [c_void_p, c_int64]),
    "dci_gpu_kv_swap_in": (c_int32, [c_void_p, c_int64]),
    "dci_gpu_kv_trim": (c_int32, [c_void_p, c_int32]),
    "dci_gpu_kv_history": (c_int32, [c_void_p, c_void_p, c_size_t, c_int64, c_void_p, c_void_p]),
    "dci_gpu_kv_capture": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "dci_gpu_kv_replay": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "dci_gpu_kv_step_end": (c_int32, [c_void_p, c_void_p]),
    "dci_gpu_kv_step_abort": (c_int32, [c_void_p]),
    "dci_gpu_kv_maintain": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "dci_gpu_kv_sync": (c_int32, [c_void_p]),
    "dci_gpu_poll": (c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "dci_gpu_kv_get_info": (c_int32, [c_void_p, c_void_p]),
    "dci_gpu_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_gpu_info_init": (c_int32, [c_void_p, c_size_t]),
    "dci_gpu_kv_config_init": (c_int32, [c_void_p, c_size_t]),
    "dci_gpu_kv_info_init": (c_int32, [c_void_p, c_size_t]),
}


def _path() -> str:
    named = os.environ.get("DCI_LIBRARY")
    if named:
        return named
    # An editable install has two folders: the sources, and where the build put the library.
    for folder in sys.modules[__package__].__path__:
        packaged = sorted((Path(folder) / "_lib").glob("libdci.*"))
        if packaged:
            return str(packaged[0])
    minor = ".".join(__version__.split(".")[:2])
    return f"libdci.{minor}.dylib" if sys.platform == "darwin" else f"libdci.so.{minor}"


def _opened(path: str) -> ctypes.CDLL:
    """Loads the library. A wheel holds an OpenBLAS of its own, in dci.libs next to the package, which would start a thread
    per processor as it is loaded; libdci never uses them. What is shared with NumPy is left alone."""
    bundle = Path(path).parent.parent.parent / "dci.libs"
    if not bundle.is_dir():
        return ctypes.CDLL(path)
    name = "OPENBLAS_NUM_THREADS"  # read once, when OpenBLAS is loaded
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        return ctypes.CDLL(path)
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _load() -> ctypes.CDLL:
    path = _path()
    try:
        library = _opened(path)
        library.dci_version.restype = c_char_p
        found = library.dci_version().decode()
    except (OSError, AttributeError) as error:
        if os.environ.get("DCI_LIBRARY"):
            hint = "DCI_LIBRARY names this file: without it the library inside the package is used"
        else:
            hint = "DCI_LIBRARY may name the file"
        raise ImportError(f"libdci cannot be loaded ({path}: {error}); {hint}") from error
    # The binary interface may change with every minor version, so the library must have the package's.
    if found.split(".")[:2] != __version__.split(".")[:2]:
        raise ImportError(f"{path} is libdci {found}, the Python package is {__version__}: their minor versions must agree")
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def check(status: int, path: str | bytes | None = None) -> None:
    """Raises the exception of a failing status, with the library's sentence. Call it on the thread of the failing call.
    path: of the file that the call was about."""
    if status:
        raise error_of(status, lib.dci_last_error().decode(errors="replace"), lib.dci_last_errno(), path)


S = TypeVar("S", bound=ctypes.Structure)
_NAMES = {**_structs.C_NAMES, **_kv_structs.C_NAMES, **_gpu_structs.C_NAMES}
_INIT = {struct: getattr(lib, name + "_init") for struct, name in _NAMES.items() if name + "_init" in PROTOTYPES}


def prepared(struct: type[S]) -> S:
    """A struct as its init function leaves it."""
    value = struct()
    check(_INIT[struct](ctypes.byref(value), ctypes.sizeof(value)))
    return value


class Handle:
    """Owns one object of the library. Calls hold a reference while they run, so the object outlives all of them: closing
    while another thread searches destroys it when that search is done."""

    __slots__ = ("__weakref__", "_destroy", "kept", "value")

    def __init__(self, value: int, destroy: Callable[[int], None]) -> None:
        self.value = value
        self.kept: dict[int, Any] = {}  # what the object points to and therefore must not be freed before it
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy(self.value)

    def __reduce__(self) -> Any:
        # A copy would free the object a second time.
        raise TypeError("an object of libdci belongs to its process: it cannot be copied or pickled")


def create(
    function: Callable[..., int], destroy: Callable[[int], None], *arguments: Any, path: str | bytes | None = None
) -> Handle:
    """Calls a create function, whose last argument is where to write the new object. path: as for check."""
    out = c_void_p()
    check(function(*arguments, ctypes.byref(out)), path)
    assert out.value is not None
    return Handle(out.value, destroy)


def chosen(names: dict[str, int], name: str, what: str) -> int:
    """The C constant for a name of the Python interface."""
    try:
        return names[name]
    except (KeyError, TypeError):
        raise InvalidError(unknown(names, name, what)) from None


def unknown(names: Iterable[str], name: Any, what: str, aliases: Iterable[str] = ()) -> str:
    """The sentence for a name that is none of `names`, and no other word for one of them."""
    names, aliases = list(names), list(aliases)
    also = f" (or {', '.join(map(repr, aliases))})" if aliases else ""
    near = get_close_matches(name.lower(), names + aliases, 1, 0.74) if isinstance(name, str) else []
    hint = f": did you mean {near[0]!r}?" if near else ""
    return f"{what} is {name!r}, wanted one of {', '.join(map(repr, names))}{also}{hint}"


def metric_of(name: str) -> str:
    """The name of a metric, of that name or another word for it."""
    try:
        if name in _structs.METRICS:
            return name
        return _structs.METRIC_ALIASES[name]
    except (KeyError, TypeError):
        raise InvalidError(unknown(_structs.METRICS, name, "metric", _structs.METRIC_ALIASES)) from None


_view = ctypes.c_char.from_buffer


def address(array: Any) -> int:
    """Where a NumPy array's first element is."""
    # The buffer takes a third of the time of `array.ctypes.data`, which every single-query search would pay three times.
    try:
        return ctypes.addressof(_view(array))
    except (TypeError, ValueError):  # read-only, strided or empty
        return int(array.ctypes.data)


__all__ = ["Handle", "__version__", "address", "check", "chosen", "create", "lib", "metric_of", "prepared", "unknown"]
