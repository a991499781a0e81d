# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Tables of docs/language-model.md from the rows of language_model.py tasks, long and lengths."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
from typing import Any

from gpu_tables import put_into, table
from language_model_results import wilson
from language_model_tasks import DEPTHS, TASKS, depth_of

OWN = "own cache"
PASSES = 0.8

Row = dict[str, Any]


def of_part(rows: list[Row], part: str) -> list[Row]:
    return [row for row in rows if row["what"]["part"] == part]


def groups(rows: list[Row], *fields: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by these fields of what they are of, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row["what"].get(field) for field in fields), []).append(row)
    return found


def name_of(row: Row) -> str:
    what = row["what"]
    if what["arm"] == OWN:
        return "the model's own cache"
    sizes = "" if what["kept"] == "common" else ", the paper's sizes" if what["kept"] == "paper" else f", {what['kept']}"
    return f"`{what['arm']}`, {what['budget']}{sizes}"


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
        of_part(rows, "tasks"), "model", "device", "length", "protocol"
    ).items():
        own = {row["what"]["task"]: statistics.fmean(row["scores"].values()) for row in some if is_own(row)}
        passed = [task for task in TASKS if own.get(task, 0.0) >= PASSES]
        out.append(f"**{model}, {length:,} tokens, {PROTOCOLS[protocol]}** ({device})\n")
        if passed:
            head = [f"right, % (95 % interval); {most_seeds(some)} seeds", *passed]
            out.append(table(head, lines_of(some, passed)) + "\n")
        failed = [f"`{task}` {100 * own[task]:.0f} %" for task in TASKS if task in own and task not in passed]
        if failed:
            out.append(f"The model cannot (own cache below {100 * PASSES:.0f} %): {', '.join(failed)}.\n")
    return "\n".join(out).rstrip()


def most_seeds(rows: list[Row]) -> int:
    return max(len(row["scores"]) for row in rows)


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
    for (model, device, protocol), some in groups(single, "model", "device", "protocol").items():
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
    for (model, device, prompt, steps), some in groups(of_part(rows, "long"), "model", "device", "prompt", "steps").items():
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
    for (model, device), some in groups(of_part(rows, "lengths"), "model", "device").items():
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
