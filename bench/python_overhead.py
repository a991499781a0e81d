#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What the Python package costs on top of the C call: microseconds per single query, percent per batch.

Both arms search the same index with one thread, in turns. The C arm calls the library's function through ctypes with
arguments made beforehand, so the difference is the package's own work: checks, conversions, result arrays. The raw call on
an empty index is printed beside it, as the cost of ctypes itself. Turns are short, so that on a busy machine most of them
run undisturbed and the medians are those of the work.

    python bench/python_overhead.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from ctypes import c_size_t, c_void_p
from pathlib import Path
from typing import Any, Callable

import numpy as np

import dci
from dci._library import address, check, lib

TRACE = Path(__file__).resolve().parent / "data" / "smollm2-debref-layer06_head0"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, default=TRACE, help="folder with keys.npy and queries.npy")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=201, help="turns of each arm; a tenth of them for batches")
    parser.add_argument("--repeats", type=int, default=50, help="single-query calls per turn")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args()
    result = measure(options.trace, options.k, options.rounds, options.repeats)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:26} {value:.2f}" if isinstance(value, float) else f"{name:26} {value}")


if __name__ == "__main__":
    main()
