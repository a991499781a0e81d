#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Print how the best of the published presets and the best of ours compare, from what `dci-bench kv --json` wrote.

    ARMS="--budget 128,256,512,1024 --key-bits 1,2,4 --learned random,learned"
    dci-bench kv $ARMS --every 24 --trace SHORT,.. --json short.json
    dci-bench kv $ARMS --every 240 --trace LONG,.. --json long.json
    # sums of whole pages, which a report tells by its command alone
    dci-bench kv $ARMS --preset sketch+sums --sums whole --every 24 --trace SHORT,.. --json whole-short.json
    dci-bench kv $ARMS --preset sketch+sums --sums whole --every 240 --trace LONG,.. --json whole-long.json
    python3 bench/scripts/kv_tables.py short.json long.json whole-short.json whole-long.json
    # what each paper's B attends to and moves, and a figure on each trace
    dci-bench kv --kept paper --budget 128,256 --every 24 --trace SHORT,.. --json paper.json
    python3 bench/scripts/kv_tables.py --accounting --each recall paper.json

Four Markdown tables. Three have a row per trace and limit:
  equal budget     rows of that budget (--budget: only those);
  equal moved      at most so many bytes per step that were not chosen in the step before (--uncached: all bytes chosen);
  equal resident   at most so many bytes per token that summaries, codes and tails keep, at the budget --resident-budget.

A system is a preset with its codes. Its figure is the error of the output with the tail, where it has one. Three sides are
compared: `published` (presets of the papers), `ours` (all others that choose) and `codes only` (lowbit: nothing is
retrieved). Beside them `ours, tail dropped` are those of ours that only choose, as most published ones do. `full` and `topk`
need all rows and stand aside. A cell is the system with the least error of its side on that trace and at that limit, the
error and, in brackets, its share of the attention to choose from; the least of the three sides is bold. So that nobody picks
where to look, every trace and limit of the reports is printed, and below each table, per limit, the one system of each side
whose geometric mean over all traces is least: what somebody would get who must settle on one beforehand.

Between budgets the logarithm of the error is taken as linear in the bytes moved, and the least error on that line at no more
than the limit counts. Nothing is extended beyond the budgets measured: a system that always moves more is left out there,
and one that always moves less stands at its best; streaming and snapkv, which move next to nothing, stand at the largest
budget. What verifies a list moves N times the keys of the tokens chosen, whether the step before chose them or not, and the
values of those it did not choose: more than a cache would, as what it verified is not known afterwards. Rows that differ in
seed are averaged.

The fourth table is every preset on every trace at the budget --resident-budget: share and error, with the codes that a
preset has by itself, and the tau that its schedule was calibrated to with the share of the steps that selected.

--accounting prints another table in place of the four, of what a paper's B comes to: a row per budget and preset, means
over the traces: tokens attended to per kv head and per query head (those of a group share a list, unless the preset has
one for each), tokens selected in a step and those of them that were not selected in the step before, the latter in KiB of
keys and values, bytes per token that stay resident, recall of attention (the true weight of all that is attended to), the
error with the tail, and tau and steps that selected, from the least trace's to the greatest's. --each prints a figure of
the rows, such as recall, for each trace, and its mean.
"""
import argparse
import json
import math
import statistics

PUBLISHED = {"streaming", "snapkv", "pagemean", "quest", "arkvale", "icecache", "clusterkv", "prkv", "louiskv", "retroinfer",
             "freekv", "pariskv"}
ASIDE = {"full", "topk"}
VERIFIED = {"sketch+verify": 4}  # the preset's `verify`
SIDES = ("published", "ours", "codes only")  # compared; the fourth column is a part of the second
DROPPED = "ours, tail dropped"
COLUMNS = (*SIDES, DROPPED)
MORE = ("attended", "recall", "token_recall", "tau", "decided")


def side_of(preset):
    if preset in ASIDE:
        return None
    return "published" if preset in PUBLISHED else "codes only" if preset == "lowbit" else "ours"


def is_of(side, point):
    """Whether a system, of which one point is at hand, stands on a side."""
    return side_of(point["preset"]) == "ours" and point["dropped"] if side == DROPPED else side_of(point["preset"]) == side


def error_of(row):
    return row["err"] if row["err_tail"] is None else row["err_tail"]


def name_of(row):
    codes = f" K{row['key_bits']}" if row["key_bits"] else ""
    codes += f" V{row['value_bits']}" if row["value_bits"] else ""
    return row["preset"] + codes + (" learned" if row["learned"] else "")


def sums_of(command):
    """Of a report's command, as rows do not say what tails of sums count by: " whole" or nothing."""
    pairs = zip(command, [*command[1:], ""])
    return " whole" if any(a == "--sums=whole" or (a, b) == ("--sums", "whole") for a, b in pairs) else ""


def count_verified(row):
    """Counts the keys that are read to verify a list among what the row moves."""
    times, chosen = VERIFIED.get(row["preset"]), row["bytes_step"]
    if times is None or chosen is None:
        return
    key = row["dim_k"] / (row["dim_k"] + row["dim_v"])
    row["bytes_step"] = times * key * chosen + (1 - key) * chosen
    if row["bytes_step_cached"] is not None:
        row["bytes_step_cached"] = times * key * chosen + (1 - key) * row["bytes_step_cached"]


def read_reports(paths):
    """{trace: {system: {budget: {err, share, moved, chosen, resident}}}}; rows that were not played are left out."""
    rows, protocols = {}, set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        if any(argument.startswith("--verify") for argument in report["command"]):
            raise SystemExit(f"{path} was made with --verify, and its rows do not say what that moves")
        for row in report["rows"]:
            if row["reason"] is None:
                protocols.add((row["kept"], row["frozen_prompt"]))
                count_verified(row)
                name = name_of(row) + (sums_of(report["command"]) if row["preset"] == "sketch+sums" else "")
                rows.setdefault(row["trace"], {}).setdefault(name, {}).setdefault(row["budget"], []).append(row)
    if len(protocols) > 1:
        raise SystemExit(f"the reports follow different protocols (kept, frozen prompt): {sorted(protocols)}")

    def mean(found, name, of=None):
        values = [of(r) if of else r[name] for r in found]
        return None if any(v is None for v in values) else statistics.mean(values)

    return {trace: {system: {budget: {"err": mean(found, None, error_of), "share": mean(found, "share"),
                                      "moved": mean(found, "bytes_step_cached"), "chosen": mean(found, "bytes_step"),
                                      "resident": mean(found, "resident_bytes_token"), "preset": found[0]["preset"],
                                      "dropped": found[0]["err_tail"] is None, **{name: mean(found, name) for name in MORE},
                                      "token": found[0]["token_bytes"],
                                      "attended_query_head": statistics.mean(r.get("attended_query_head", r["attended"])
                                                                             for r in found)}
                             for budget, found in budgets.items()} for system, budgets in systems.items()}
            for trace, systems in rows.items()}


def at_budget(points, budget):
    point = points.get(budget)
    return None if point is None or point["err"] is None else (point["err"], point["share"])


def at_resident(points, limit, budget):
    point = points.get(budget)
    return None if point is None or point["resident"] is None or point["resident"] > limit else at_budget(points, budget)


def at_moved(points, limit, field):
    """The least error at no more than `limit` bytes, on the line through the budgets."""
    line = [points[b] for b in sorted(points) if points[b]["err"] is not None]
    if any(p[field] is None for p in line):
        name = "bytes_step_cached" if field == "moved" else "bytes_step"
        raise SystemExit(f"a row has no '{name}': measure without --judged-only")
    found = [(p["err"], p["share"]) for p in line if p[field] <= limit]
    for a, b in zip(line, line[1:]):
        if min(a[field], b[field]) < limit < max(a[field], b[field]) and min(a["err"], b["err"]) > 0:
            w = (limit - a[field]) / (b[field] - a[field])
            share = None if a["share"] is None or b["share"] is None else a["share"] + w * (b["share"] - a["share"])
            found.append((math.exp((1 - w) * math.log(a["err"]) + w * math.log(b["err"])), share))
    return min(found, key=lambda f: f[0]) if found else None


def best_of(systems, side, figure):
    """(error, share, system) or None."""
    found = []
    for system, points in systems.items():
        value = figure(points) if is_of(side, next(iter(points.values()))) else None
        if value is not None:
            found.append((*value, system))
    return min(found, key=lambda f: f[0]) if found else None


def cell(best, least):
    if best is None:
        return "n/a"
    error = f"{best[0]:.4f}"
    share = "" if best[1] is None else f" ({best[1]:.3f})"
    return f"{best[2]} {'**' + error + '**' if best[0] == least else error}{share}"


def settled(traces, side, figure):
    """(geometric mean, system): of those that stand on every trace."""
    means = {}
    for system in set.intersection(*(set(systems) for systems in traces.values())):
        points = [systems[system] for systems in traces.values()]
        values = [figure(p) for p in points]
        if is_of(side, next(iter(points[0].values()))) and all(v is not None and v[0] > 0 for v in values):
            means[system] = math.exp(statistics.mean(math.log(v[0]) for v in values))
    return min((mean, system) for system, mean in means.items()) if means else None


def print_table(title, head, limits, traces, figure_at, name_limit):
    print(f"\n### {title}\n\n| trace | {head} | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    wins = dict.fromkeys(SIDES, 0)
    n = 0
    for trace, systems in traces.items():
        for limit in limits:
            best = {side: best_of(systems, side, lambda p, limit=limit: figure_at(p, limit)) for side in COLUMNS}
            there = [best[side][0] for side in SIDES if best[side] is not None]
            if not there:
                continue
            least = min(there)
            n += 1
            for side in SIDES:
                wins[side] += best[side] is not None and best[side][0] == least
            print(f"| {trace} | {name_limit(limit)} | {' | '.join(cell(best[side], least) for side in COLUMNS)} |")
    print(f"\nLeast error: {', '.join(f'{side} {wins[side]}' for side in SIDES)} of {n} rows.\n")
    print(f"One system for all {len(traces)} traces, geometric mean of the errors:\n")
    print(f"| {head} | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for limit in limits:
        found = [settled(traces, side, lambda p, limit=limit: figure_at(p, limit)) for side in COLUMNS]
        print(f"| {name_limit(limit)} | {' | '.join('n/a' if f is None else f'{f[1]} {f[0]:.4f}' for f in found)} |")


def is_own(system, preset):
    """Whether a system is a preset as it is made, without options."""
    return system in (preset, f"{preset} K4", f"{preset} K4 V2" if preset != "sketch+verify" else f"{preset} K2 V2 learned")


def print_presets(budget, traces):
    print(f"\n### Every preset on every trace, B = {budget}\n\n| preset | {' | '.join(traces)} | bytes per token |")
    print("|---|" + "---|" * (len(traces) + 1))
    for system in dict.fromkeys(system for systems in traces.values() for system in systems):
        points = [systems.get(system, {}).get(budget) for systems in traces.values()]
        if not is_own(system, next((p["preset"] for p in points if p is not None), None)):
            continue
        cells = ["n/a" if p is None else f"{p['share']:.3f} / {p['err']:.4f}" for p in points]
        sizes = [p["resident"] for p in points if p is not None and p["resident"] is not None]
        ends = list(dict.fromkeys(f"{size:.0f}" for size in (min(sizes), max(sizes)))) if sizes else ["n/a"]
        there = [p for p in points if p is not None]
        gated = any(p["tau"] is not None for p in there)
        gate = f", tau {span(there, 'tau', 2)} ({span(there, 'decided', 2)})" if gated else ""
        print(f"| {system}{gate} | {' | '.join(cells)} | {' to '.join(ends)} |")


def span(points, name, digits):
    values = [p[name] for p in points if p["tau"] is not None]
    ends = list(dict.fromkeys(f"{value:.{digits}f}" for value in (min(values), max(values)))) if values else ["-"]
    return " to ".join(ends)


def each_system(traces, budgets):
    """(budget, preset, its points on the traces; None where it was not played on one), of presets as they are made."""
    for budget in budgets:
        for system in dict.fromkeys(system for systems in traces.values() for system in systems):
            points = [systems.get(system, {}).get(budget) for systems in traces.values()]
            if is_own(system, next((p["preset"] for p in points if p is not None), None)):
                yield budget, system, points


def print_accounting(budgets, traces):
    head = ("B", "preset", "per kv head", "per query head", "selected", "moved", "KiB moved", "bytes per token", "recall",
            "error", "tau", "steps that select")
    print(f"\n### What a budget comes to, means over {len(traces)} traces\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for budget, system, points in each_system(traces, budgets):
        if None in points:
            continue

        def mean(name, points=points):
            return statistics.mean(p[name] for p in points)

        if any(p["moved"] is None for p in points):
            raise SystemExit("a row has no 'bytes_step_cached': measure without --judged-only")
        numbers = (f"{mean('attended'):,.0f}", f"{mean('attended_query_head'):,.0f}",
                   f"{statistics.mean(p['chosen'] / p['token'] for p in points):,.0f}",
                   f"{statistics.mean(p['moved'] / p['token'] for p in points):,.0f}", f"{mean('moved') / 1024:.1f}",
                   f"{mean('resident'):.0f}", f"{mean('recall'):.3f}", f"{mean('err'):.4f}", span(points, "tau", 2),
                   span(points, "decided", 2))
        print(f"| {budget} | {system} | {' | '.join(numbers)} |")


def print_each(name, budgets, traces):
    digits = 4 if name == "err" else 3
    print(f"\n### {name} on each trace\n\n| B | preset | {' | '.join(traces)} | mean |\n|{'---|' * (len(traces) + 3)}")
    for budget, system, points in each_system(traces, budgets):
        values = [None if p is None else p[name] for p in points]
        cells = ["n/a" if v is None else f"{v:.{digits}f}" for v in values]
        mean = "n/a" if None in values else f"{statistics.mean(values):.{digits}f}"
        print(f"| {budget} | {system} | {' | '.join(cells)} | {mean} |")


def sizes(text):
    return [float(item) for item in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=sizes, help="of the first table (default: all of the reports)")
    parser.add_argument("--moved", type=sizes, default=[2048, 8192, 32768], help="bytes per step (default 2048,8192,32768)")
    parser.add_argument("--uncached", action="store_true", help="bytes of all tokens chosen, as without a cache")
    parser.add_argument("--resident", type=sizes, default=[8, 16, 36, 64], help="bytes per token (default 8,16,36,64)")
    parser.add_argument("--resident-budget", type=int, default=256)
    parser.add_argument("--accounting", action="store_true", help="what a budget attends to and moves")
    parser.add_argument("--each", action="append", choices=("recall", "token_recall", "share", "err"), default=[],
                        help="a figure on each trace; several times for more")
    parser.add_argument("report", nargs="+", help="what dci-bench kv wrote with --json, without --judged-only")
    args = parser.parse_args()
    traces = read_reports(args.report)
    budgets = sorted({b for systems in traces.values() for points in systems.values() for b in points
                      if args.budget is None or b in args.budget})
    if not traces:
        parser.error("the reports hold no rows")
    if args.accounting:
        print_accounting(budgets, traces)
    for name in args.each:
        print_each(name, budgets, traces)
    if args.accounting or args.each:
        return
    print_table("Equal budget", "B", budgets, traces, at_budget, str)
    field = "chosen" if args.uncached else "moved"
    print_table(f"Equal bytes {field}", "KiB per step", args.moved, traces, lambda p, limit: at_moved(p, limit, field),
                lambda limit: f"{limit / 1024:g}")
    print_table(f"Equal bytes resident, B = {args.resident_budget}", "bytes per token", args.resident, traces,
                lambda p, limit: at_resident(p, limit, args.resident_budget), lambda limit: f"{limit:g}")
    print_presets(args.resident_budget, traces)


if __name__ == "__main__":
    main()
