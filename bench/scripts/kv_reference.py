#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Lay what `dci-bench kv` measured beside the tables of a README.md that a reference in NumPy computed.

    ARMS="--frozen-prompt --page-tokens 16 --key-bits 1,2,4 --value-bits 2,4 --learned random,learned --judged-only"
    dci-bench kv $ARMS --every 24 --trace SHORT,.. --json short.json
    dci-bench kv $ARMS --every 240 --trace LONG,.. --json long.json
    dci-bench kv --preset icecache --leaves mean --frozen-prompt --judged-only --every 24 --trace SHORT,.. --json leaves.json
    python3 bench/scripts/kv_reference.py traces/README.md short.json long.json
    python3 bench/scripts/kv_reference.py --seeds --draws draws.json traces/README.md leaves*.json parts*.json clusters*.json

The README has a heading "### NAME" per trace and beneath it a table: arm, share, err, err with page sums, err with 2-bit
values, each figure at several budgets, which the table's head names ("B = 128 / 256 / 512"). Per arm and figure a line gives
ours, theirs and the difference; "!" marks a share more than 0.01 below (clusters: 0.02, learned codes: 0.03) and an error
more than 5 % above (clusters and learned: 15 %). "k-means 16" is retroinfer of a report with --cluster-most 16
--cluster-by raw. Ours are means over the reports that have a figure, such as those of several --seed; theirs are of one
rotation.

--seeds asks whether groups that are drawn at random (leaves and clusters) keep as much as the reference's. A cell is the
mean and the standard deviation of our share over the reports' seeds and, in brackets, the README's figure, marked < or >
where all seeds keep less or more, and ! where the mean is more than 0.02 below. --draws adds the reference's mean and
deviation over draws of its own, from a file {trace: {arm: [[share at each budget], a list per draw]}}, and counts the
cells in which the two means differ by more than twice the standard error of their difference.
"""
import argparse
import json
import math
import re
import statistics

FIGURES = ("share", "err", "err with page sums", "err with 2-bit values")
PLAIN = {"exact top tokens": "topk", "most recent": "streaming", "position, mean": "pagemean", "position, cuboid": "arkvale",
         "position, quest": "quest", "clusters 80, trimmed, mean": "clusterkv", "k-means 16, mean": "retroinfer",
         "tree leaves, mean": "icecache mean"}
DRAWN = ("tree leaves, mean", "k-means 16, mean", "clusters 80, trimmed, mean")
CLUSTERS = ("clusterkv", "retroinfer")
PARTS = "retroinfer"  # counts with --cluster-most 16, as the README's clusters are cut into pages
LOWER_SHARE = {"exact": 0.01, "clusters": 0.02, "learned": 0.03}
HIGHER_ERROR = {"exact": 0.05, "clusters": 0.15, "learned": 0.15}  # k-means draws other rows to begin with than the README's


def read_tables(path):
    """{trace: {arm: [[figures at each budget] or None, ..]}} and the budgets."""
    tables, budgets, trace = {}, [], None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("### "):
                trace = line[4:].strip()
            elif line.startswith("|") and trace is not None:
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                if cells[0] == "arm":
                    budgets = [int(b) for b in re.findall(r"\d+", cells[1])]
                elif not cells[0].startswith("---"):
                    numbers = [[float(x) for x in cell.split()] or None for cell in cells[1:5]]
                    tables.setdefault(trace, {})[cells[0]] = numbers
    return tables, budgets


def find_rows(arm):
    """What to look for in a report, per figure: (key of the row, name of the number). None: the arm is not one of ours."""
    if arm in PLAIN:
        key = (PLAIN[arm], None, None, None)
        return {"share": (key, "share"), "err": (key, "err")}
    codes = re.fullmatch(r"(random|learned) (\d) bit", arm)
    if codes:
        bits, learned = int(codes[2]), codes[1] == "learned"
        return {"share": (("sketch", bits, None, learned), "share"), "err": (("sketch", bits, None, learned), "err"),
                "err with page sums": (("sketch+sums", bits, None, learned), "err_tail"),
                "err with 2-bit values": (("sketch+lowbit", bits, 2, learned), "err_tail")}
    alone = re.fullmatch(r"codes only, K(\d) V(\d)( learned)?", arm)
    if alone:
        return {"err": (("lowbit", int(alone[1]), int(alone[2]), alone[3] is not None), "err_tail")}
    return None


def read_reports(paths):
    """{trace, preset, .., budget: rows}, several where reports differ in their seeds."""
    rows, notes = {}, []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        for row in report["rows"]:
            if row["preset"] in CLUSTERS and row.get("cluster_most") != (16 if row["preset"] == PARTS else 0):
                continue
            preset = row["preset"] if not row.get("leaves") else f"{row['preset']} {row['leaves']}"
            key = row["trace"], preset, row["key_bits"], row["value_bits"], row["learned"], row["budget"]
            rows.setdefault(key, []).append(row)
        if not all(row["frozen_prompt"] for row in report["rows"]):
            notes.append(f"{path}: not measured with --frozen-prompt, so figures do not compare")
    return rows, notes


def mean_of(rows, name):
    values = [row[name] for row in rows if row[name] is not None]
    return statistics.mean(values) if values else None


def kind_of(key):
    return "learned" if key[3] is True else "clusters" if key[0] in CLUSTERS else "exact"


def compare(figure, ours, theirs, kind):
    """The cell, and whether it is flagged."""
    if ours is None:
        return "missing", True
    if figure == "share":
        flagged = ours < theirs - LOWER_SHARE[kind]
        text = f"{ours:.3f} {theirs:.3f} {ours - theirs:+.3f}"
    else:
        flagged = ours > theirs * (1 + HIGHER_ERROR[kind]) + 5e-5  # the README's own rounding
        text = f"{ours:.4f} {theirs:.4f} {100 * (ours / theirs - 1):+.1f} %"
    return text + (" !" if flagged else ""), flagged


def print_trace(trace, arms, budgets, rows):
    """Prints a table; returns how many figures were compared, and how many of them flagged."""
    print(f"\n### {trace}\n\n| arm | figure | {' | '.join(f'B = {b}: ours, theirs' for b in budgets)} |")
    print("|---|---|" + "---|" * len(budgets))
    n = flags = 0
    for arm, numbers in arms.items():
        wanted = find_rows(arm)
        for figure, theirs in zip(FIGURES, numbers):
            if wanted is None or theirs is None or figure not in wanted:
                continue
            key, name = wanted[figure]
            cells = []
            for budget, value in zip(budgets, theirs):
                ours = mean_of(rows.get((trace, *key, budget), []), name)
                text, flagged = compare(figure, ours, value, kind_of(key))
                cells.append(text)
                n, flags = n + 1, flags + flagged
            print(f"| {arm} | {figure} | {' | '.join(cells)} |")
    return n, flags


def deviation_of(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def verdict_of(ours, theirs, drawn):
    """The cell, and which counts it goes into."""
    mean, low = statistics.mean(ours), statistics.mean(ours) < theirs - LOWER_SHARE["clusters"]
    beside = "<" if max(ours) < theirs else ">" if min(ours) > theirs else ""
    text = f"{mean:.3f} ±{deviation_of(ours):.3f} ({theirs:.3f}{' ' if beside or low else ''}{beside}{'!' if low else ''}"
    counts = {"cells": 1, "README's within the seeds": not beside, "mean 0.02 below the README's": low}
    if drawn:
        error = math.sqrt(deviation_of(ours) ** 2 / len(ours) + deviation_of(drawn) ** 2 / len(drawn))
        apart = mean - statistics.mean(drawn)
        text += f"; {statistics.mean(drawn):.3f} ±{deviation_of(drawn):.3f}"
        counts |= {"twice the error below its draws": apart < -2 * error, "twice the error above": apart > 2 * error}
    return text + ")", counts


def print_seeds(tables, budgets, rows, draws):
    for arm in DRAWN:
        key, name = find_rows(arm)["share"]
        total = {}
        print(f"\n| {arm} | {' | '.join(f'B = {b}' for b in budgets)} |\n|---|" + "---|" * len(budgets))
        for trace, arms in tables.items():
            cells = []
            for i, budget in enumerate(budgets):
                ours = [row[name] for row in rows.get((trace, *key, budget), [])]
                if ours and arm in arms:
                    drawn = [draw[i] for draw in draws.get(trace, {}).get(arm, [])]
                    text, counts = verdict_of(ours, arms[arm][0][i], drawn)
                    cells.append(text)
                    total = {what: total.get(what, 0) + n for what, n in counts.items()}
            if cells:
                print(f"| {trace} | {' | '.join(cells)} |")
        print("\n" + ", ".join(f"{what}: {n}" for what, n in total.items()) + ".")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readme", help="the file with the tables of the reference")
    parser.add_argument("report", nargs="+", help="what dci-bench kv wrote with --json")
    parser.add_argument("--seeds", action="store_true", help="how shares of leaves and clusters are spread over seeds")
    parser.add_argument("--draws", help="shares of other draws of the reference, with --seeds")
    args = parser.parse_args()
    tables, budgets = read_tables(args.readme)
    rows, notes = read_reports(args.report)
    if args.seeds:
        draws = {}
        if args.draws:
            with open(args.draws, encoding="utf-8") as file:
                draws = json.load(file)
        print_seeds(tables, budgets, rows, draws)
        return
    measured = {key[0] for key in rows}
    n = flags = 0
    for trace, arms in tables.items():
        if trace in measured:
            more, flagged = print_trace(trace, arms, budgets, rows)
            n, flags = n + more, flags + flagged
    print(f"\n{flags} of {n} figures flagged.")
    left = [trace for trace in tables if trace not in measured]
    notes += [f"not measured: {', '.join(left)}"] if left else []
    unknown = sorted({arm for arms in tables.values() for arm in arms if find_rows(arm) is None})
    notes += [f"no arm of ours: {'; '.join(unknown)}"] if unknown else []
    for note in notes:
        print(note)


if __name__ == "__main__":
    main()
