#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw what kmeans_peers.py wrote: the objective of each round against time, dci and faiss from the same first centroids,
one panel per number of clusters.

    python3 bench/plot_kmeans.py --out docs/kmeans.png "22,437 attention keys, d 64=kmeans.json" "...=fashion.json"
"""
import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"dci": "#1b7f5c", "faiss": "#9aa5b1"}
LINES = ["-", "--", ":", "-."]  # of the numbers of threads
LABELS = {"cosine": "mean cosine to the own centroid", "l2": "mean squared distance to the own centroid"}


def read_panels(named_files):
    """[(title, [rows of all thread counts])]"""
    panels = []
    for named in named_files:
        title, path = named.rsplit("=", 1)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        for clusters in dict.fromkeys(r["clusters"] for r in rows):
            panels.append((f"{title}, {clusters:,} clusters", [r for r in rows if r["clusters"] == clusters]))
    return panels


def draw(axes, title, rows):
    for line, row in enumerate(sorted(rows, key=lambda r: r["threads"])):
        threads = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        for who in ("faiss", "dci"):
            history = row[f"{who}_history"]
            # Each is the objective of the assignment to the centroids before the round; a mean is comparable across data.
            axes.plot([h["seconds"] for h in history], [h["objective"] / row["n"] for h in history], LINES[line % 4],
                      marker="o", markersize=3, color=COLOURS[who], label=f"{who}, {threads}")
    axes.set_xscale("log")
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("seconds (log scale)")
    axes.set_ylabel(LABELS[rows[0]["metric"]], fontsize=9)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("panel", nargs="+", metavar="TITLE=FILE")
    args = parser.parse_args()
    panels = read_panels(args.panel)
    lines = (len(panels) + 1) // 2
    figure, axes = plt.subplots(lines, min(len(panels), 2), figsize=(5.5 * min(len(panels), 2), 3.6 * lines), squeeze=False)
    for one in axes.flat[len(panels):]:
        one.set_axis_off()
    for one, (title, rows) in zip(axes.flat, panels):
        draw(one, title, rows)
    figure.tight_layout()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
