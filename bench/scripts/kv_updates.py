#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Print, and draw, what forming groups of decoded tokens is worth: error by sixths of the decode, with updates and without.

    dci-bench kv --updates on,off --budget 256 --every 59 --judged-only --trace LONG,LONG --json updates.json
    python3 bench/scripts/kv_updates.py --out updates.png updates.json

A Markdown table, a row per preset that has updates: the error of the output, with the tail where there is one, over all of
the decode and in each sixth of it. Without updates groups are those of the prompt, and a decoded token is attended to while
it is in the window; prkv keeps decoded tokens in pages by position and makes no new order. Rows that differ in seed are
averaged. The picture has a panel per trace: full lines with updates, dotted ones without.
"""
import argparse
import json
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from kv_tables import error_of, name_of

SIXTHS = 6
STYLES = {"topk": ("#333333", "P"), "pagemean": ("#9aa5b1", "s"), "quest": ("#9aa5b1", "D"), "arkvale": ("#9aa5b1", "h"),
          "sketch": ("#1b7f5c", "o"), "sketch+lowbit": ("#1b7f5c", ">"), "icecache": ("#8c6d31", "^"),
          "clusterkv": ("#b3541e", "p"), "prkv": ("#5b4b8a", "d"), "louiskv": ("#2f6f9f", "H"),
          "retroinfer": ("#a83f6f", "8"), "freekv": ("#777777", "X")}


def read_reports(paths):
    """{(trace, budget): {name: {updates: [rows that differ in seed]}}}, of what was played."""
    found = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        for row in report["rows"]:
            if row["reason"] is None:
                systems = found.setdefault((row["trace"], row["budget"]), {})
                systems.setdefault(name_of(row), {}).setdefault(row["updates"], []).append(row)
    return found


def figures_of(rows):
    """Of all of the decode, and of its sixths; None where nothing was judged."""
    sixths = [[row["err_sixths"][i] for row in rows] for i in range(SIXTHS)]
    return [statistics.mean(map(error_of, rows))] + [None if None in x else statistics.mean(x) for x in sixths]


def cell(rows):
    if not rows:
        return "-"
    whole, *sixths = ["-" if value is None else f"{value:.3f}" for value in figures_of(rows)]
    return f"**{whole}**: {' '.join(sixths)}"


def print_tables(found):
    for budget in sorted({budget for _, budget in found}):
        traces = {trace: systems for (trace, b), systems in found.items() if b == budget}
        print(f"\nB = {budget}, all of the decode: its sixths\n")
        print("| preset | " + " | ".join(f"{trace}, with updates | without" for trace in traces) + " |")
        print("|---|" + "---|---|" * len(traces))
        for name in dict.fromkeys(name for systems in traces.values() for name in systems):
            rows = [systems.get(name, {}).get(on) for systems in traces.values() for on in (True, False)]
            if any(rows[1::2]):
                print(f"| {name} | {' | '.join(map(cell, rows))} |")


def draw(found, out):
    picture, grid = plt.subplots(1, len(found), figsize=(6.5 * len(found), 4.6), squeeze=False)
    for axes, ((trace, budget), systems) in zip(grid[0], found.items()):
        for name, rows in systems.items():
            if False not in rows or name.split()[0] not in STYLES:
                continue
            colour, marker = STYLES[name.split()[0]]
            for on, style in ((True, "-"), (False, ":")):
                axes.plot(range(1, 1 + SIXTHS), figures_of(rows[on])[1:], style, color=colour, marker=marker, markersize=4,
                          linewidth=1, label=name if on else None)
        axes.set_title(f"{trace}, B {budget}", fontsize=9, loc="left")
        axes.set_xlabel("sixth of the decode (dotted: without updates)", fontsize=9)
        axes.set_ylabel("error of the output", fontsize=9)
        axes.set_yscale("log")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0][-1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    picture.tight_layout()
    picture.savefig(out, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="a picture, too")
    parser.add_argument("report", nargs="+", help="what dci-bench kv --updates on,off wrote with --json")
    args = parser.parse_args()
    found = read_reports(args.report)
    print_tables(found)
    if args.out:
        draw(found, args.out)


if __name__ == "__main__":
    main()
