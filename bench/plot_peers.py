#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw the rounds that compare_peers.py wrote: queries per second of every exact arm, one panel per data set.

    python3 bench/plot_peers.py --out docs/flat.png "22,453 attention keys, d 64, IP, k 100=keys.json" "...=fashion.json"
"""
import argparse
import json
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"dci": "#1b7f5c", "other": "#9aa5b1"}


def draw(axes, title, rounds):
    arms = {}
    for name in rounds[0]:
        qps = [r[name][0] for r in rounds]
        if rounds[0][name][1] >= 0.9999:  # exact arms only: this picture compares equal answers
            arms[name] = statistics.median(qps), min(qps), max(qps)
    names = sorted(arms, key=lambda n: ("batch" in n.split(" / ")[1], arms[n][0]))
    values = [arms[n][0] for n in names]
    errors = [[arms[n][0] - arms[n][1] for n in names], [arms[n][2] - arms[n][0] for n in names]]
    colours = [COLOURS["dci" if n.startswith("dci") else "other"] for n in names]
    axes.barh(names, values, color=colours, xerr=errors, ecolor="#444444", height=0.7)
    for i, value in enumerate(values):
        axes.text(max(value, arms[names[i]][2]) * 1.05, i, f"{value:,.0f}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(values) * 3)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("exact queries per second, one thread (log scale)")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("panel", nargs="+", metavar="TITLE=FILE")
    args = parser.parse_args()
    figure, panels = plt.subplots(1, len(args.panel), figsize=(6.5 * len(args.panel), 3.6), squeeze=False)
    for axes, panel in zip(panels[0], args.panel):
        title, path = panel.rsplit("=", 1)
        with open(path, encoding="utf-8") as file:
            draw(axes, title, json.load(file))
    figure.tight_layout()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
