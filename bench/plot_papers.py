#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw what `dci-bench papers --json` wrote: a picture for each figure of the reports, a row of panels for each trace.

    dci-bench papers --trace FOLDER,FOLDER --json papers.json
    python3 bench/plot_papers.py --out pictures papers.json

writes pictures/jaccard.png and so on. What the axes mean: `dci-bench papers --help`. Rows of several reports are put
together; of rows that agree in trace, line and abscissa the last one counts.
"""
import argparse
import json
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Of each figure its panels: title, abscissa and its scale, ordinates, what names a line, and the rows that are shown.
PANELS = {
    "token-recall": [("best of all tokens", "budget", "log", ["token_recall"], ["preset", "codes"], {"best_of": "all"}),
                     ("best of the prompt", "budget", "log", ["token_recall"], ["preset", "codes"], {"best_of": "prompt"})],
    "cluster-recall": [("a head for itself", "budget", "log", ["token_recall"], ["groups", "rows"], {})],
    "static-ratio": [("over the full cache", "S", "linear", ["recall"], ["budget"], {}),
                     ("of what is chosen from", "S", "linear", ["share"], ["budget"], {})],
    "reuse-decay": [("best tokens of step 0", "from_step", "symlog", ["top", "with_local", "reused", "local"], ["budget"],
                     {})],
    "online-s": [("suggested static ratio", "n", "linear", ["S"], ["budget"], {})],
    "jaccard": [("best of all tokens", "tau", "linear", ["within", "across"], ["budget"], {}),
                ("of those to choose from", "tau", "linear", ["within_contested", "across_contested"], ["budget"], {})],
    "frequency": [("retrievals per step", "tau", "linear", ["frequency"], [], {}),
                  ("beside the layer before", "tau", "linear", ["agreement", "chance"], [], {})],
    "boundary": [("over the full cache", "stride", "log", ["recall_boundary", "recall_stride"], ["budget"], {}),
                 ("of what is chosen from", "stride", "log", ["share_boundary", "share_stride"], ["budget"], {})],
    "cache-hits": [("chosen in one of R steps before", "R", "linear", ["hit_rate"], ["choice", "codes"], {})],
    "fragmentation": [("share of pages with so many important tokens", None, "linear",
                       ["pages_1", "pages_2", "pages_3_4", "pages_5_8", "pages_9_up"], ["budget"], {"tokens": "contested"})],
    "page-hits": [("by quarter of the decode", None, "linear", ["first_quarter", "last_quarter"],
                   ["preset", "codes", "budget"], {}),
                  ("by origin of the key", None, "linear", ["of_prompt", "of_decoded"], ["preset", "codes", "budget"], {})],
    "resident": [("bytes per token", None, "linear", ["index_bytes"], ["preset", "codes"], {})],
}
MARKERS = "osD^v<>hPX*"


def word(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


def name_of(row, fields):
    return " ".join(("B " if f == "budget" else "") + word(row[f]) for f in fields if row[f] != "-")


def draw_lines(axes, rows, x, scale, ordinates, names):
    lines = {}
    for row in rows:
        for y in ordinates:
            if row[y] is not None:
                label = " ".join(part for part in (y if len(ordinates) > 1 else "", name_of(row, names)) if part)
                lines.setdefault(label, {})[row[x]] = row[y]
    for i, (label, points) in enumerate(lines.items()):
        at = sorted(points)
        axes.plot(at, [points[p] for p in at], marker=MARKERS[i % len(MARKERS)], markersize=4, linewidth=1, label=label,
                  linestyle="-" if i % 2 == 0 else "--")
    axes.set_xscale(scale, **({"base": 2} if scale == "log" else {}))
    axes.set_xlabel(x, fontsize=9)


def draw_bars(axes, rows, ordinates, names):
    """A cluster of bars for each row: for figures that have no abscissa."""
    labels = list(dict.fromkeys(name_of(row, names) for row in rows))
    of_label = {name_of(row, names): row for row in rows}
    width = 0.8 / len(ordinates)
    for i, y in enumerate(ordinates):
        heights = [of_label[label][y] if of_label[label][y] is not None else 0 for label in labels]
        axes.bar([k + (i - (len(ordinates) - 1) / 2) * width for k in range(len(labels))], heights, width, label=y)
    axes.set_xticks(range(len(labels)), labels, fontsize=7)
    if max(map(len, labels)) > 6:
        plt.setp(axes.get_xticklabels(), rotation=60, ha="right", rotation_mode="anchor")


def draw_figure(figure, rows, out):
    panels, traces = PANELS[figure], list(dict.fromkeys(row["trace"] for row in rows))
    picture, grid = plt.subplots(len(traces), len(panels), figsize=(6.5 * len(panels), 3.4 * len(traces)), squeeze=False)
    for trace, line in zip(traces, grid):
        for axes, (title, x, scale, ordinates, names, wanted) in zip(line, panels):
            shown = [r for r in rows if r["trace"] == trace and all(r[k] == v for k, v in wanted.items())]
            if x is None:
                draw_bars(axes, shown, ordinates, names)
            else:
                draw_lines(axes, shown, x, scale, ordinates, names)
            axes.set_title(f"{trace}: {title}", fontsize=9, loc="left")
            axes.set_ylabel(", ".join(ordinates) if len(ordinates) < 3 else "", fontsize=8)
            axes.set_ylim(0, 1.03 * max(axes.get_ylim()))
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    picture.tight_layout()
    picture.savefig(os.path.join(out, f"{figure}.png"), dpi=110)
    plt.close(picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="an existing folder")
    parser.add_argument("report", nargs="+")
    args = parser.parse_args()
    figures = {}
    for path in args.report:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                figures.setdefault(row["figure"], []).append(row)
    unknown = sorted(set(figures) - set(PANELS))
    if unknown or not figures:
        parser.error(f"no pictures of {', '.join(unknown)}" if unknown else "the reports hold no rows")
    for figure, rows in figures.items():
        draw_figure(figure, rows, args.out)


if __name__ == "__main__":
    main()
