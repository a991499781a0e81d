#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw what `dci-bench kv --json` wrote: the share of attention and the error of the output against the bytes that stay
resident per token, at one budget; a row of panels per trace. Codes of several widths are joined by a line, numbers are bits
per coordinate of the keys. "full" stands at the bytes of a token's key and value, "topk" at those of its key.

    python3 bench/plot_kv.py --budget 256 --out docs/kv.png kv.json
    python3 bench/plot_kv.py --trace smollm2-135m-debref/layer14_head1 --out docs/kv.png kv.json
"""
import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

# Shapes and shades, so that the picture reads without colours, too.
STYLES = {"full": ("*", "#333333"), "topk": ("P", "#333333"), "streaming": ("v", "#777777"), "snapkv": ("^", "#777777"),
          "pagemean": ("s", "#9aa5b1"), "quest": ("D", "#9aa5b1"), "arkvale": ("h", "#9aa5b1"), "lowbit": ("x", "#777777"),
          "sketch": ("o", "#1b7f5c"), "sketch+sums": ("<", "#1b7f5c"), "sketch+lowbit": (">", "#1b7f5c"),
          "icecache": ("h", "#8c6d31"), "clusterkv": ("p", "#8c6d31"), "prkv": ("d", "#8c6d31"), "louiskv": ("H", "#8c6d31"),
          "retroinfer": ("8", "#8c6d31"), "freekv": ("X", "#8c6d31")}


def error_of(row):
    """With the tail where there is one: what a model would see. What attends to everything errs by rounding alone."""
    error = row["err"] if row["err_tail"] is None else row["err_tail"]
    return error if error > 1e-5 else None


def share_of(row):
    """Tails choose as the preset without one, and what attends to everything in codes chooses nothing."""
    return None if row["preset"] == "lowbit" or "+" in row["preset"] else row["share"]


def bytes_of(row):
    """What attends to everything, or ranks by the keys themselves, needs the rows."""
    if row["preset"] == "full":
        return row["token_bytes"]
    if row["preset"] == "topk":
        return row["token_bytes"] * row["dim_k"] / (row["dim_k"] + row["dim_v"])
    return row["resident_bytes_token"]


def lines_of(rows):
    """{(preset, learned, value bits): rows by ascending resident bytes}"""
    lines = {}
    for row in rows:
        lines.setdefault((row["preset"], bool(row["learned"]), row["value_bits"]), []).append(row)
    return {key: sorted(line, key=bytes_of) for key, line in lines.items()}


def draw(axes, rows, value_of):
    for (preset, learned, value_bits), line in lines_of(rows).items():
        points = [(bytes_of(r), value_of(r), r["key_bits"]) for r in line if value_of(r) is not None]
        if not points:
            continue
        marker, colour = STYLES.get(preset, (".", "#000000"))
        label = preset + (f" V{value_bits}" if value_bits else "") + (" learned" if learned else "")
        x, y = [p[0] for p in points], [p[1] for p in points]
        axes.plot(x, y, marker=marker, color=colour, linestyle="--" if learned else "-", linewidth=1, markersize=6,
                  markerfacecolor="white" if learned else colour, label=label, clip_on=False)
        if preset == "full":
            axes.annotate("full", (x[0], y[0]), textcoords="offset points", xytext=(-22, -3), fontsize=7)
        for bytes_, value, bits in points:
            if bits and len(points) > 1:
                axes.annotate(str(bits), (bytes_, value), textcoords="offset points", xytext=(4, 4), fontsize=6)
    # Room for the few bytes that most presets keep, beside the rows themselves.
    axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    axes.set_xticks([0, 8, 16, 32, 64, 128, 256])
    axes.set_xlabel("resident bytes per token (square root scale)", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--value-bits", type=int, default=2, help="of low-bit tails (default 2)")
    parser.add_argument("--trace", action="append", help="only this one; may be repeated")
    parser.add_argument("report", nargs="+")
    args = parser.parse_args()
    rows = []
    for path in args.report:
        with open(path, encoding="utf-8") as file:
            rows += [r for r in json.load(file)["rows"] if r["budget"] == args.budget and r["reason"] is None and
                     r["value_bits"] in (None, args.value_bits)]
    traces = [t for t in dict.fromkeys(r["trace"] for r in rows) if not args.trace or t in args.trace]
    if not traces:
        parser.error(f"no rows with a budget of {args.budget}")
    figure, panels = plt.subplots(len(traces), 2, figsize=(11, 3.6 * len(traces)), squeeze=False)
    for trace, (left, right) in zip(traces, panels):
        of_trace = [r for r in rows if r["trace"] == trace]
        draw(left, of_trace, share_of)
        draw(right, of_trace, error_of)
        left.set_title(f"{trace}, budget {args.budget}", fontsize=10, loc="left")
        left.set_ylabel("share of the attention to choose from", fontsize=9)
        left.set_ylim(0, 1.03)
        right.set_ylabel("error of the output (log scale)", fontsize=9)
        right.set_yscale("log")
        right.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.tight_layout()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
