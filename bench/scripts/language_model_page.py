# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Tables of docs/language-model.md from the rows of language_model.py tasks, long and lengths."""

from __future__ import annotations

import json
import math
import pathlib
import statistics

from gpu_tables import put_into, table
from language_model_arms import OWN
from language_model_results import wilson
from language_model_tasks import DEPTHS, TASKS, depth_of
from whole_model_page import Row, groups, of_part

PASSES = 0.8


def name_of(row: Row) -> str:
    what = row["what"]
    if what["arm"] == OWN:
        return "the model's own cache"
    options = {**row.get("options", {}), **what.get("options", {})}  # older rows have them next to what is measured
    more = [f"{name} {value}" for name, value in options.items() if name not in ("budget", "published")]
    sizes = ["published sizes"] if options.get("published") else []
    return ", ".join([f"`{what['arm']}`, {what['budget']:,}", *sizes, *more])


def is_own(row: Row) -> bool:
    """Whether this is of the model's own cache, and there is something."""
    return row["what"]["arm"] == OWN and bool(row["scores"])


def with_interval(scores: list[float]) -> str:
    share = statistics.fmean(scores)
    low, high = wilson(share, len(scores))
    return f"{100 * share:.0f} ({100 * low:.0f} to {100 * high:.0f})"


PROTOCOLS = {"prompt": "the question in the prompt", "steps": "the question token by token"}


def tasks(rows: list[Row]) -> str:
    """Per model, length and protocol a table of the tasks that count."""
    out: list[str] = []
    for (model, device, length, protocol), some in groups(
        of_part(rows, "tasks"), "model", "device", "length", "protocol", ordered=False
    ).items():
        own = {row["what"]["task"]: list(row["scores"].values()) for row in some if is_own(row)}
        seeds = max((len(scores) for scores in own.values()), default=0)
        shares = {task: statistics.fmean(own[task]) for task in TASKS if task in own}
        passed = [task for task, share in shares.items() if share >= PASSES]
        whole = [task for task in passed if len(own[task]) == seeds]
        out.append(f"**{model}, {length:,} tokens, {PROTOCOLS[protocol]}** ({device})\n")
        if whole:
            out.append(table([f"right, % (95 % interval); {seeds} seeds", *whole], lines_of(some, whole)) + "\n")
        failed = [f"`{task}` {100 * share:.0f} %" for task, share in shares.items() if task not in passed]
        if failed:
            out.append(f"The model cannot (own cache below {100 * PASSES:.0f} %): {', '.join(failed)}.\n")
        begun = [f"`{task}` {len(own[task])} of {seeds} seeds" for task in passed if task not in whole]
        if begun:
            out.append(f"Not finished: {', '.join(begun)}.\n")
    return "\n".join(out).rstrip()


def lines_of(rows: list[Row], names: list[str]) -> list[list[str]]:
    """A line for each arm. Arms that have not had all seeds of the own cache have none there yet."""
    seeds = {row["what"]["task"]: len(row["scores"]) for row in rows if row["what"]["arm"] == OWN}
    arms: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        arms.setdefault(name_of(row), {})[row["what"]["task"]] = list(row["scores"].values())
    lines = []
    for name, of in arms.items():
        whole = {task: of[task] for task in names if len(of.get(task, [])) == seeds[task]}
        if whole:
            lines.append([name, *(with_interval(whole[task]) if task in whole else "-" for task in names)])
    return lines


def depths(rows: list[Row]) -> str:
    """Needles by depth and length, the question in the prompt: right of all."""
    out: list[str] = []
    single = [row for row in of_part(rows, "tasks") if row["what"]["task"] == "single" and row["scores"]]
    for (model, device, protocol), some in groups(single, "model", "device", "protocol", ordered=False).items():
        columns = [(length, depth) for length in sorted({row["what"]["length"] for row in some}) for depth in DEPTHS]
        arms: dict[str, dict[tuple[int, float], list[float]]] = {}
        for row in some:
            cells = arms.setdefault(name_of(row), {})
            for seed, score in row["scores"].items():
                cells.setdefault((row["what"]["length"], depth_of(int(seed))), []).append(score)
        lines = [[name, *(f"{sum(cells[at]):.0f}/{len(cells[at])}" if at in cells else "-" for at in columns)]
                 for name, cells in arms.items()]  # fmt: skip
        head = ["found, of all", *(f"{length:,}, depth {100 * depth:.0f} %" for length, depth in columns)]
        out.append(f"**{model}, {PROTOCOLS[protocol]}** ({device})\n\n{table(head, lines)}\n")
    return "\n".join(out).rstrip()


def long(rows: list[Row]) -> str:
    """Divergence along a long decode."""
    out: list[str] = []
    for (model, device, prompt, steps), some in groups(
        of_part(rows, "long"), "model", "device", "prompt", "steps", ordered=False
    ).items():
        window = some[0]["windows"]["tokens"]
        own = next((row for row in some if row["what"]["arm"] == OWN), None)
        marks = [f"to {min(steps, (i + 1) * window):,}" for i in range(len(some[0]["windows"]["divergence"]))]
        lines = []
        for row in some:
            if row["what"]["arm"] == OWN:
                continue
            more = f"{100 * (row['perplexity'] / own['perplexity'] - 1):+.2f} %" if own else "-"
            lines.append([name_of(row), f"{row['divergence']:.4f} ± {1.96 * row['divergence_error']:.4f}",
                          f"{100 * row['same_first']:.2f} %", more,
                          *(f"{value:.4f}" for value in row["windows"]["divergence"])])  # fmt: skip
        head = ["", "divergence, nats", "the same first token", "perplexity", *(f"divergence {mark}" for mark in marks)]
        base = f", perplexity {own['perplexity']:.2f} with the own cache" if own else ""
        out.append(f"**{model}, {steps:,} tokens after {prompt:,}**{base} ({device})\n\n{table(head, lines)}\n")
    return "\n".join(out).rstrip()


def lengths(rows: list[Row]) -> str:
    """Perplexity against the context: of the own cache, and per cent more of presets."""
    out: list[str] = []
    for (model, device), some in groups(of_part(rows, "lengths"), "model", "device", ordered=False).items():
        columns = sorted({row["what"]["length"] for row in some})
        arms: dict[str, dict[int, dict[int, float]]] = {}
        for row in some:
            arms.setdefault(name_of(row), {}).setdefault(row["what"]["length"], {})[row["what"]["place"]] = row["surprise"]
        own = arms.get("the model's own cache", {})
        lines = []
        for name, of in arms.items():
            cells = []
            for length in columns:
                places = of.get(length, {})
                if not places or (of is not own and set(places) != set(own.get(length, {}))):
                    cells.append("-")
                elif of is own:
                    cells.append(f"{math.exp(statistics.fmean(places.values())):.3f}")
                else:
                    more = statistics.fmean(places.values()) - statistics.fmean(own[length].values())
                    cells.append(f"{100 * (math.exp(more) - 1):+.2f} %")
            lines.append([name, *cells])
        steps, places_n = some[0]["what"]["steps"], len({row["what"]["place"] for row in some})
        title = f"**{model}**, the same {steps} tokens at each of {places_n} places ({device})"
        out.append(f"{title}\n\n{table(['context', *(f'{n:,}' for n in columns)], lines)}\n")
    return "\n".join(out).rstrip()


TABLES = {"tasks": tasks, "depths": depths, "long": long, "lengths": lengths}


def write(path: str, files: list[str]) -> None:
    """Puts tables between the lines <!-- table NAME --> and <!-- end of table --> of a document; others stay."""
    rows = [row for file in files for row in json.loads(pathlib.Path(file).read_text())["rows"]]
    made = {name: make(rows) for name, make in TABLES.items()}
    put_into(path, {name: lines for name, lines in made.items() if lines})
