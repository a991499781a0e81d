# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Says in plain words what dci-bench measured, and does the same search through Python. scripts/demo runs it:
demo.py TRACE JSON..."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import dci


def say(text: str) -> None:
    print(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))


def size(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:.1f} MiB"


def explain(meta: dict[str, Any], paths: list[str]) -> None:
    """One paragraph per figure of the tables, from the JSON that dci-bench wrote."""
    arms: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        for row in json.loads(Path(path).read_text())["rows"]:
            arms[row["rows"], row["mode"]] = row
    first = next(iter(arms.values()))
    formats = list(dict.fromkeys(rows for rows, _ in arms))
    print("What this shows")
    say(
        f"{meta['model']} read {meta['text']}; these are the keys of layer {meta['layer']}, head {meta['kv_head']}: "
        f"{first['n']:,} rows of {first['dim']} numbers. For each of {first['n_queries']:,} attention queries that "
        f"followed, the index returned the {first['k']} keys with the largest inner product."
    )
    for rows in formats:
        recall = min(arms[rows, "one"]["recall"], arms[rows, "batch"]["recall"])
        found = "all of the true best keys" if recall == 1 else f"{100 * recall:.2f} % of the true best keys"
        one = arms[rows, "one"]
        say(
            f"{rows}: recall {recall:.4f}, that is {found}. Taking in the keys costs {1e3 * one['build_s']:.1f} ms and "
            f"{size(one['bytes'])}; exact search prepares nothing else."
        )
    share = arms[formats[0], "one"]["share"]
    say(
        f"The keys found are {100 * first['k'] / first['n']:.1f} % of all and receive {100 * share:.1f} % of the attention "
        "that all keys receive together (kept attention share, without the first 16 tokens, which attention uses as a sink)."
    )
    for rows in formats:
        one, batch = arms[rows, "one"], arms[rows, "batch"]
        say(
            f"{rows}, one query per call: {1e6 / one['qps']:.0f} microseconds each. Merely reading all keys once takes "
            f"{1e6 / one['read_floor_qps']:.0f} here, so a call costs {one['read_floor_qps'] / one['qps']:.2f} times what "
            f"reading does. All queries in one call: {1e6 / batch['qps']:.0f} microseconds each, "
            f"{batch['qps'] / one['qps']:.1f} times as fast."
        )


def search(trace: Path, meta: dict[str, Any]) -> None:
    """The same search in Python, held against NumPy's matrix product."""
    keys = np.load(trace / "keys.npy")[: meta["prompt"]].astype(np.float32)
    first = meta["prompt"] - meta["first_query"]
    queries = np.load(trace / "queries.npy")[:, first:].reshape(-1, meta["head_dim"]).astype(np.float32)

    index = dci.Index(dim=meta["head_dim"], metric="ip")
    index.add(keys)
    ids, scores = index.search(queries, k=100)

    agree = int(np.isclose(scores[:, 0], (queries @ keys.T).max(axis=1), rtol=1e-5, atol=1e-5).sum())
    print('\nThe same in Python\n    index = dci.Index(dim=64, metric="ip")\n    index.add(keys)')
    print("    ids, scores = index.search(queries, k=100)")
    say(f"Best keys of the first query: tokens {', '.join(map(str, ids[0, :5]))}; the best score is {scores[0, 0]:.4f}.")
    say(f"For {agree:,} of {len(queries):,} queries, the best score is the largest of NumPy's full matrix product.")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    about = json.loads((folder / "meta.json").read_text())
    explain(about, sys.argv[2:])
    search(folder, about)
