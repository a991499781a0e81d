# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Says in plain words what dci-bench measured, and does the same search through Python. scripts/demo runs it:
demo.py search|decode TRACE JSON..."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import dci

# Share of the true best keys from which a search counts as good.
ENOUGH = 0.9


def say(text: str) -> None:
    print(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))


def size(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:.1f} MiB"


def explain(meta: dict[str, Any], paths: list[str]) -> None:
    """One paragraph per figure of the tables, from the JSON that dci-bench wrote."""
    rows_of_all = [row for path in paths for row in json.loads(Path(path).read_text())["rows"]]
    arms = {(row["rows"], row["mode"]): row for row in rows_of_all if row["index"] == "flat"}
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
    for rows in formats:
        tried = [row for row in rows_of_all if row["index"] == "pdci" and row["rows"] == rows]
        if tried:
            explain_pdci(tried, arms[rows, "one"], arms[rows, "batch"])


def explain_pdci(tried: list[dict[str, Any]], flat: dict[str, Any], flat_batch: dict[str, Any]) -> None:
    """What Prioritized DCI saves and costs beside a scan, at the least effort that finds most of the best keys."""
    index = tried[0]["params"]
    say(
        f"pdci, {flat['rows']}: Prioritized DCI projects the keys on {index['num_comp_indices']} times "
        f"{index['num_simp_indices']} random directions and computes distances only to the keys whose projections are "
        f"nearest to the query's. Building it costs {1e3 * tried[0]['build_s']:.1f} ms and {size(tried[0]['bytes'])}, "
        f"{size(tried[0]['bytes'] - flat['bytes'])} more than the keys alone."
    )
    partial = [row for row in tried if row["dist_comps"] < row["n"]]  # at full effort every key is scored, as by flat
    if not partial:
        return
    enough = [row for row in partial if row["recall"] >= ENOUGH]
    shown = min(enough, key=lambda row: row["dist_comps"]) if enough else max(partial, key=lambda row: row["recall"])
    one, batch = (find(partial, shown, mode) for mode in ("one", "batch"))
    say(
        f"Allowed to retrieve {100 * one['params']['prop_to_retrieve']:g} % of the keys per composite index, it computes "
        f"{one['dist_comps']:,.0f} distances per query instead of {one['n']:,}, finds {100 * one['recall']:.1f} % of the "
        f"true best keys and keeps {100 * one['share']:.1f} % of the attention (exact search: {100 * flat['share']:.1f} %). "
        f"One query per call takes {1e6 / one['qps']:.0f} microseconds, a scan of all keys {1e6 / flat['qps']:.0f}; all "
        f"queries in one call {1e6 / batch['qps']:.0f} and {1e6 / flat_batch['qps']:.0f} each."
    )
    faster = [row for row in enough if row["qps"] > (flat if row["mode"] == "one" else flat_batch)["qps"]]
    if faster:
        best = max(faster, key=lambda row: row["qps"])
        say(
            f"So on these keys P-DCI computes fewer distances and, in mode {best['mode']}, is faster than a scan while it "
            f"finds {100 * best['recall']:.1f} % of the best keys."
        )
    else:
        say(
            "So on these keys a scan of all rows wins: P-DCI computes fewer distances, but no effort tried finds "
            f"{100 * ENOUGH:.0f} % of the best keys sooner than the scan finds all of them. Rows this short and this few "
            "are read and scored in the time it takes to rank their projections and gather candidates. Where a distance is "
            "dear, the column dist/query is the one to read."
        )


def find(rows: list[dict[str, Any]], like: dict[str, Any], mode: str) -> dict[str, Any]:
    return next(row for row in rows if row["mode"] == mode and row["params"] == like["params"])


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


def row_of(rows: list[dict[str, Any]], preset: str, budget: int) -> dict[str, Any]:
    return next(row for row in rows if row["preset"] == preset and row["budget"] == budget)


def explain_decode(meta: dict[str, Any], path: str) -> None:
    """What a decode keeps of attention when it reads a few hundred tokens of its cache at each step."""
    rows = [row for row in json.loads(Path(path).read_text())["rows"] if row["share"] is not None]
    budgets = sorted({row["budget"] for row in rows})
    middle = budgets[len(budgets) // 2]
    full, oracle, ours, tail = (row_of(rows, preset, middle) for preset in ("full", "topk", "sketch", "sketch+lowbit"))
    n = meta["tokens"]
    bytes_of_token = 2 * 2 * meta["head_dim"]
    print("What this shows")
    say(
        f"After a prompt of {meta['prompt']:,} tokens, {n - meta['prompt']} more were decoded. Full attention reads all "
        f"keys and values at every step, {full['attended']:,.0f} tokens on average; the other rows attend to {middle} "
        "tokens or to what their column says. Each row is a preset of the same cache, with another way to choose."
    )
    say(
        f"Of the attention that tokens beyond the kept ones receive, the best {middle} tokens hold "
        f"{100 * oracle['share']:.1f} % (topk, which reads every key to find them). sketch, which ranks tokens by "
        f"{ours['key_bits']} bits per coordinate, keeps {100 * ours['share']:.1f} %."
    )
    pages = {name: row_of(rows, name, middle)["share"] for name in ("pagemean", "quest", "arkvale", "snapkv", "streaming")}
    best = max(pages, key=lambda name: pages[name])
    listed = ", ".join(f"{name} {100 * share:.1f} %" for name, share in pages.items())
    say(f"Page summaries, a choice made once, and the most recent tokens: {listed}; {best} is the best of them here.")
    say(
        f"What is left out is not lost: sketch+lowbit attends to it in {tail['key_bits']}-bit keys and "
        f"{tail['value_bits']}-bit values. The error of the attention output is then {tail['err_tail']:.4f} (relative, mean "
        "over heads), against "
        f"{ours['err']:.4f} for sketch and {oracle['err']:.4f} for the best tokens alone. That takes "
        f"{tail['resident_bytes_token']:.0f} bytes per token near the processor instead of {bytes_of_token}."
    )
    say(
        f"A step of sketch fetches {ours['bytes_step'] / 1024:.0f} KiB of keys and values, and "
        f"{ours['bytes_step_cached'] / 1024:.1f} KiB when what the step before fetched is still there; all of them are "
        f"{n * bytes_of_token / 1024:,.0f} KiB."
    )


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    about = json.loads((folder / "meta.json").read_text())
    if sys.argv[1] == "search":
        explain(about, sys.argv[3:])
        search(folder, about)
    else:
        explain_decode(about, sys.argv[3])
