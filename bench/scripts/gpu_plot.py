#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw what the KV path of a token takes against the length: attention to everything, and presets that choose.

    python3 bench/scripts/gpu_plot.py decode.json [--peers peers.json] [--batch 1] [--out docs/gpu-decode.png]

Reports are those of dci-bench gpu --part decode --json, and of bench/scripts/gpu_peers.py --json, whose decode they may hold. Needs
matplotlib.
"""
import argparse
import json
import sys

from gpu_tables import Decode

try:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
except ImportError as error:
    sys.exit(f"gpu_plot.py: matplotlib cannot be imported: {error}")

STYLES = {"full": ("black", "o"), "sketch": ("tab:blue", "o"), "sketch+lowbit": ("tab:cyan", "s"),
          "quest": ("tab:orange", "o"), "pagemean": ("tab:red", "s"), "arkvale": ("tab:brown", "^"),
          "clusterkv": ("tab:green", "o"), "icecache": ("tab:purple", "o")}


def lengths(tokens, _):
    return f"{tokens / 1024:.0f} k" if tokens < 1 << 20 else f"{tokens / (1 << 20):.0f} M"


def series(decoded, batch):
    """(label, tokens, milliseconds, preset or None) of each line."""
    layers = decoded.rows[0]["model_layers"]
    points = [(tokens, us * layers / 1e3) for (n, tokens), (us, _) in sorted(decoded.sdpa.items()) if n == batch]
    if points:
        yield "attention to everything, PyTorch's best", *zip(*points, strict=True), None
    for (arm, _, planner), by_shape in decoded.arms().items():
        points = [(tokens, row["us_model"] / 1e3) for (n, tokens), row in sorted(by_shape.items()) if n == batch]
        if points:
            label = {"none": "attention to everything, dci", "host": f"{arm}, planned by the host"}.get(planner, arm)
            yield label, *zip(*points, strict=True), arm


def draw(decoded, batch, path, device):
    figure, axes = plt.subplots(figsize=(7, 4.4), constrained_layout=True)
    ticks = set()
    for label, tokens, times, arm in series(decoded, batch):
        colour, marker = STYLES.get(arm, ("grey", "."))
        dashed = "--" if "host" in label or arm is None else "-"
        axes.plot(tokens, times, dashed, color=colour, marker=marker, markersize=4, label=label)
        ticks.update(tokens)
    if not ticks:
        sys.exit(f"gpu_plot.py: the report has nothing at batch {batch}")
    row = decoded.rows[0]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(ticks))
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lengths))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel(f"ms of a token, {row['model_layers']} layers")
    axes.set_title(f"KV path of a decode step, batch {batch}, budget {row['budget']}; {device}", fontsize=9)
    axes.grid(which="major", alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=160)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="of dci-bench gpu --part decode, or of bench/scripts/gpu_peers.py --decode")
    parser.add_argument("--peers", help="of bench/scripts/gpu_peers.py")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--out", default="docs/gpu-decode.png")
    args = parser.parse_args()
    with open(args.report) as file:
        report = json.load(file)
    beside = report if "decode" in report else None
    if args.peers:
        with open(args.peers) as file:
            beside = json.load(file)
    report = report.get("decode") or report
    rows = [row for row in report["rows"] if row["part"] == "decode"]
    if not rows:
        sys.exit(f"gpu_plot.py: {args.report} has no rows of the part decode")
    draw(Decode(rows, beside), args.batch, args.out, report["device"]["name"])


if __name__ == "__main__":
    main()
