#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw what the KV path of a token takes against the length: attention to all tokens, and presets that select.

    python3 bench/scripts/gpu_plot.py decode.json [--peers peers.json] [--batch 1] [--arm sketch,quest]
                                      [--out docs/gpu-decode.png]

Reports are those of dci-bench gpu --part decode --json, and of bench/scripts/gpu_peers.py --json, which may hold one. Needs
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

STYLES = {None: ("black", "."), "full": ("black", "o"), "sketch": ("tab:blue", "o"), "sketch+lowbit": ("tab:cyan", "s"),
          "quest": ("tab:orange", "o"), "pagemean": ("tab:red", "s"), "arkvale": ("tab:brown", "^"),
          "clusterkv": ("tab:green", "o"), "icecache": ("tab:purple", "o")}


def lengths(tokens, _):
    return f"{tokens / 1024:.0f} k" if tokens < 1 << 20 else f"{tokens / (1 << 20):.0f} M"


def series(decoded, batch, arms):
    """(label, tokens, milliseconds, preset or None) of each line."""
    layers = decoded.rows[0]["model_layers"]
    points = [(tokens, us * layers / 1e3) for (n, tokens), (us, _) in sorted(decoded.sdpa.items()) if n == batch]
    if points:
        yield "all tokens, PyTorch's best", *zip(*points, strict=True), None
    for (arm, _, planner), by_shape in decoded.arms().items():
        points = [(tokens, row["us_model"] / 1e3) for (n, tokens), row in sorted(by_shape.items()) if n == batch]
        if points and (not arms or arm in arms):
            label = {"none": "all tokens, dci", "host": f"{arm}, planned by the host"}.get(planner, arm)
            yield label, *zip(*points, strict=True), arm


def name_ends(axes, ends):
    """Names each line at its last point, apart where lines end at the same length. ends: (x, y, name, colour)."""
    figure = axes.figure
    figure.canvas.draw()  # from here on the transform to pixels is known
    apart, last = 13 * figure.dpi / 72, {}
    for x, y, name, colour in sorted(ends):
        at = axes.transData.transform((x, y))
        place = max(at[1], last.get(x, -apart) + apart)
        last[x] = place
        axes.annotate(name, (x, y), xytext=(7, (place - at[1]) * 72 / figure.dpi), textcoords="offset points", va="center",
                      fontsize=9, color=colour, annotation_clip=False)


def draw(decoded, batch, path, device, arms=()):
    figure, axes = plt.subplots(figsize=(7, 4.4), constrained_layout=True)
    ticks, ends = set(), []
    for label, tokens, times, arm in series(decoded, batch, arms):
        colour, marker = STYLES.get(arm, ("grey", "."))
        dashed = "--" if "host" in label or arm is None else "-"
        axes.plot(tokens, times, dashed, color=colour, marker=marker, markersize=4)
        ends.append((tokens[-1], times[-1], label, colour))
        ticks.update(tokens)
    if not ticks:
        sys.exit(f"gpu_plot.py: the report has nothing at batch {batch}")
    row = decoded.rows[0]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(ticks))
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lengths))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel(f"ms per token, {row['model_layers']} layers")
    axes.set_xlim(right=max(ticks) * 7)  # room for names
    axes.set_title(f"KV path of a token, batch {batch}, budget {row['budget']}; {device}", fontsize=9)
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    name_ends(axes, ends)
    figure.savefig(path, dpi=160)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="of dci-bench gpu --part decode, or of bench/scripts/gpu_peers.py --decode")
    parser.add_argument("--peers", help="of bench/scripts/gpu_peers.py")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--arm", type=lambda text: text.split(","), default=[], help="presets to draw (default: all)")
    parser.add_argument("--out", default="docs/gpu-decode.png")
    args = parser.parse_args()
    with open(args.report) as file:
        report = json.load(file)
    others = report if "decode" in report else None
    if args.peers:
        with open(args.peers) as file:
            others = json.load(file)
    report = report.get("decode") or report
    rows = [row for row in report["rows"] if row["part"] == "decode"]
    if not rows:
        sys.exit(f"gpu_plot.py: {args.report} has no rows of the part decode")
    draw(Decode(rows, others), args.batch, args.out, report["device"]["name"], args.arm)


if __name__ == "__main__":
    main()
