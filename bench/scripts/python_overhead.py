#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What the Python package costs on top of the C call: microseconds per single query and per call of a KV cache, percent per
batch.

Both arms search the same index with one thread, in turns. The C arm calls the library's function through ctypes with
arguments made beforehand, so the difference is the package's own work: checks, conversions, result arrays. The raw call on
an empty index is printed beside it, as the cost of ctypes itself. Turns are short, so that on a busy machine most of them
run undisturbed and the medians are those of the work.

Calls of a KV cache (append of a token, plan, attend) are those of one layer of 9 query and 3 kv heads over 16 tokens, with
arrays of NumPy and, where it is installed, tensors of torch.

    python bench/scripts/python_overhead.py
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import time
from ctypes import byref, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Callable

import numpy as np

import dci
from dci import _kv_structs
from dci._library import address, check, lib, prepared

TRACE = Path(__file__).resolve().parent.parent / "data" / "smollm2-debref-layer06_head0"


def raw_search(index: dci.Index, queries: Any, k: int) -> Callable[[], None]:
    """The C call alone; results go to the same arrays every time."""
    assert index._handle is not None
    ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    arguments = (
        c_void_p(index._handle.value),
        c_size_t(len(queries)),
        c_void_p(address(queries)),
        c_size_t(queries.shape[1]),
        c_size_t(k),
        None,
        c_void_p(address(ids)),
        c_void_p(address(scores)),
    )
    function = lib.dci_index_search
    kept = (queries, ids, scores)

    def call(_kept: Any = kept) -> None:
        check(function(*arguments))

    return call


def medians(calls: list[Callable[[], Any]], rounds: int, repeats: int) -> list[float]:
    """Seconds per call of each, as the median over rounds; the calls take turns, so that drift hits all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for spent, call in zip(times, calls):
            begin = time.perf_counter()
            for _ in range(repeats):
                call()
            spent.append((time.perf_counter() - begin) / repeats)
    return [statistics.median(spent) for spent in times]


def measure(trace: Path, k: int, rounds: int, repeats: int) -> dict[str, Any]:
    keys = np.load(trace / "keys.npy").astype(np.float32)
    queries = np.load(trace / "queries.npy").astype(np.float32).reshape(-1, keys.shape[1])
    context = dci.Context(threads=1)
    empty, full = (dci.Index(keys.shape[1], "ip", context=context) for _ in range(2))
    full.add(keys)
    one, row = queries[:1], queries[0]
    out = np.empty(k, np.int64), np.empty(k, np.float32)
    # On an empty index the C call does next to nothing, so its noise does not hide the package's microseconds.
    bare, wrapped, preallocated = medians(
        [
            raw_search(empty, one, k),
            lambda: empty.search(row, k),
            lambda: empty.search(row, k, out=out),
        ],
        rounds,
        repeats,
    )
    single, single_wrapped = medians([raw_search(full, one, k), lambda: full.search(row, k)], rounds, 1)
    batch, batch_wrapped = medians([raw_search(full, queries, k), lambda: full.search(queries, k)], max(rounds // 10, 1), 1)
    return {
        "isa": context.isa,
        "keys": len(keys),
        "queries": len(queries),
        "dim": keys.shape[1],
        "k": k,
        "raw_call_empty_index_us": bare * 1e6,
        "overhead_us": (wrapped - bare) * 1e6,
        "overhead_with_out_us": (preallocated - bare) * 1e6,
        "single_query_c_us": single * 1e6,
        "single_query_python_us": single_wrapped * 1e6,
        "batch_c_ms": batch * 1e3,
        "batch_overhead_percent": (batch_wrapped / batch - 1) * 100,
    }


def arms_of_kv(kv: dci.KVCache, s: int, plan: dci.KVPlan, room: Any) -> dict[str, list[Callable[[], Any]]]:
    """What each call is: of C, and of Python with everything that it is given made by room(shape)."""
    n_query_heads, n_kv_heads, dim = kv.n_query_heads, kv.n_kv_heads, kv.dim_k
    handle, chosen = kv._handle, plan._struct
    assert handle is not None
    names, rows = np.array([s]), prepared(_kv_structs.KVRows)
    k, q, out = (np.ones((n, dim), np.float32) for n in (n_kv_heads, n_query_heads, n_query_heads))
    rows.keys = rows.values = address(k)
    one, at = handle.value, (1, address(names), address(q), dim)

    def append(_kept: Any = (names, rows, k)) -> None:
        check(lib.dci_kv_append(one, 0, 1, at[1], None, byref(rows)))

    def make(_kept: Any = (plan, q)) -> None:
        check(lib.dci_kv_plan_make(one, 0, *at, byref(chosen)))

    def attend(_kept: Any = out) -> None:
        check(lib.dci_kv_attend(one, 0, *at, byref(chosen), address(out), dim, None))

    key, query, result = (room((n, dim)) for n in (n_kv_heads, n_query_heads, n_query_heads))
    return {
        "append": [append, lambda: kv.append(0, s, key, key)],
        "plan": [make, lambda: kv.plan(0, s, query, out=plan)],
        "attend": [attend, lambda: kv.attend(0, s, query, plan, out=result)],
    }


def rooms() -> dict[str, Any]:
    """What makes float32 of a shape, by the library that it is of."""
    made: dict[str, Any] = {"numpy": lambda shape: np.ones(shape, np.float32)}
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        made["torch"] = lambda shape: torch.ones(shape, dtype=torch.float32)
    return made


def measure_kv(rounds: int, repeats: int) -> dict[str, Any]:
    """Microseconds of each call in C, and what Python adds."""
    kv = dci.KVCache(1, 9, 3, 64, dtype="float32", preset="full", dense_layers=0, context=dci.Context(threads=1))
    result: dict[str, Any] = {}
    for library, room in rooms().items():
        s = kv.open()
        tokens = np.ones((16, 3, 64), np.float32)
        with kv.step(s, len(tokens)):
            kv.append(0, s, tokens, tokens)
            kv.end_prompt(0, s)
        plan = kv.plan(0, s, np.ones((9, 64), np.float32))
        arms = arms_of_kv(kv, s, plan, room)
        for name in ("plan", "attend", "append"):
            if name == "append":
                kv.reserve(s, len(arms[name]) * (rounds * repeats + 1))
            bare, wrapped = medians(arms[name], rounds, repeats)
            result[f"kv_{name}_c_us"] = bare * 1e6
            result[f"kv_{name}_{library}_overhead_us"] = (wrapped - bare) * 1e6
        kv.step_abort(s)
        kv.free(s)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, default=TRACE, help="folder with keys.npy and queries.npy")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=201, help="turns of each arm; a tenth of them for batches")
    parser.add_argument("--repeats", type=int, default=50, help="calls per turn, of single queries and of the KV cache")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args()
    result = measure(options.trace, options.k, options.rounds, options.repeats)
    result.update(measure_kv(options.rounds, options.repeats))
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:30} {value:.2f}" if isinstance(value, float) else f"{name:30} {value}")


if __name__ == "__main__":
    main()
