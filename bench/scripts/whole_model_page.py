# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Tables of docs/whole-model.md and its picture, from the rows of whole_model.py and of language_model.py agreement."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Callable

from gpu_tables import put_into, table

Row = dict[str, Any]
NAMES = {
    "offloaded": "transformers, DynamicCache, offloaded",
    "dynamic": "transformers, DynamicCache",
    "static-eager": "transformers, StaticCache",
    "static": "transformers, StaticCache, the step as a CUDA graph",
    "flash": "loop by hand, flash attention on the device, CUDA graph",
    "cudnn": "loop by hand, cuDNN's attention on the device, CUDA graph",
}


def name_of(row: Row) -> str:
    what = row["what"]
    name = f"**dci, `{what['preset']}`**" if what["arm"] == "dci" else NAMES[what["arm"]]
    return name + ", real prompt" if what.get("fill") == "prompt" else name


def figure(value: Any, form: str = ".1f") -> str:
    return "-" if value is None else format(value, form)


def share(value: Any) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def of_part(rows: list[Row], *parts: str) -> list[Row]:
    return [row for row in rows if row["what"]["part"] in parts and "failed" not in row]


def groups(rows: list[Row], *fields: str, ordered: bool = True) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by these fields of what they measured, sorted by them or in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row["what"].get(field) for field in fields), []).append(row)
    return dict(sorted(found.items(), key=lambda item: tuple(map(str, item[0])))) if ordered else found


def titled(title: str, lines: str, without: Iterable[Row] = ()) -> str:
    """A table under its title, and why cells are empty."""
    notes = [f"- {name_of(row)}, {row['what']['batch']} x {row['what']['length']:,} tokens: {row['why']}" for row in without]
    return "\n".join([f"**{title}**", "", lines, *([""] if notes else []), *notes])


def grid(rows: list[Row], column: str, cell: Callable[[Row], str], head: str) -> str:
    """A line for each arm, a column for each length or batch."""
    columns = sorted({row["what"][column] for row in rows})
    arms: dict[str, dict[int, Row]] = {}
    order = [*NAMES, "dci"]
    for row in sorted(rows, key=lambda row: order.index(row["what"]["arm"])):
        arms.setdefault(name_of(row), {})[row["what"][column]] = row
    lines = [[name, *(cell(of[at]) if "ms" in of.get(at, {}) else "-" for at in columns)] for name, of in arms.items()]
    return table([head, *(f"{at:,}" for at in columns)], lines)


def by_length(rows: list[Row]) -> list[Row]:
    """Of a decode, without the length at which batches are compared."""
    found = []
    for some in groups(of_part(rows, "decode"), "shape", "length", "device").values():
        if len({row["what"]["batch"] for row in some}) <= 2:
            found.extend(some)
    return found


def decode(rows: list[Row]) -> str:
    """ms per token, and GiB of the device, against the length."""
    blocks = []
    for (shape, batch, device), some in groups(by_length(rows), "shape", "batch", "device").items():
        if batch in (1, 4):
            lines = grid(some, "length", in_ms, "ms per token (GiB)")
            blocks.append(titled(f"{shape}, batch {batch}; {device}", lines, [row for row in some if "why" in row]))
    return "\n\n".join(blocks)


def in_ms(row: Row) -> str:
    return f"{row['ms']:.1f} ({figure(row.get('device_gib'))})"


def in_tokens(row: Row) -> str:
    return f"{row['tokens_per_s']:,.0f} ({figure(row.get('device_gib'))})"


def batches(rows: list[Row]) -> str:
    """Tokens per second against the batch, where several were measured at one length."""
    blocks = []
    for (shape, length, device), some in groups(of_part(rows, "decode"), "shape", "length", "device").items():
        if len({row["what"]["batch"] for row in some}) > 2:
            lines = grid(some, "batch", in_tokens, "tokens/s (GiB), by batch")
            blocks.append(titled(f"{shape}, {length:,} tokens; {device}", lines, [row for row in some if "why" in row]))
    return "\n\n".join(blocks)


def steps(rows: list[Row]) -> str:
    """What generate() through dci takes, step by step."""
    lines = []
    for row in of_part(rows, "decode", "steps"):
        what = row["what"]
        if what["arm"] == "dci" and "why" not in row:
            lines.append([f"`{what['preset']}`", what["shape"], f"{what['batch']} x {what['length']:,}", f"{row['n']:,}",
                          figure(row["ms"], ".2f"), figure(row["ms_p99"], ".2f"), figure(row["ms_p99"] / row["ms"], ".2f"),
                          figure(row.get("graph_ms"), ".2f"), share(row.get("overhead")), figure(row.get("missed"), ".2f"),
                          figure(row.get("device_gib")), figure(row.get("kv_device_gib"), ".2f"),
                          figure(row.get("pinned_gib")), figure(row["host_gib"])])  # fmt: skip
    head = ["preset", "shape", "batch x tokens", "tokens timed", "ms, median", "p99", "p99 / median", "graph alone, ms",
            "generate and host, over it", "fetched, of asked", "device, GiB", "of these the cache", "pinned, GiB",
            "host resident, GiB"]  # fmt: skip
    return table(head, lines) if lines else ""


def prompts(rows: list[Row]) -> str:
    """Seconds to the first token."""
    lines = []
    for row in of_part(rows, "ttft"):
        what = row["what"]
        size = f"{what['batch']} x {what['length']:,}"
        if "why" in row:
            lines.append([name_of(row), what["shape"], size, row["why"], *["-"] * 4])
            continue
        chunk = f"{what['chunk']:,}" if what.get("chunk") else "whole"
        lines.append([name_of(row), what["shape"], size, chunk, figure(row["first_s"], ".2f"),
                      figure(row.get("second_s"), ".2f"), figure(row.get("loop_s"), ".2f"),
                      figure(row.get("ratio"), ".3f")])  # fmt: skip
    head = ["", "shape", "batch x tokens", "tokens of a chunk", "first token, s", "second token, s", "loop, s",
            "first / loop"]  # fmt: skip
    return table(head, lines) if lines else ""


def turns(rows: list[Row]) -> str:
    """Seconds of a second turn."""
    lines = [[name_of(row), row["what"]["shape"], f"{row['what']['batch']} x {row['what']['length']:,}", row["what"]["new"],
              figure(1e3 * row["turn_s"], ".0f"), figure(1e3 * row["bus_s"], ".0f"), figure(row["bus_gb_s"]),
              figure(1e3 * row["chunk_s"], ".0f"), figure(row["ratio"], ".2f")]
             for row in of_part(rows, "turn") if "why" not in row]  # fmt: skip
    head = ["", "shape", "batch x tokens before", "new tokens", "first token, ms", "history over the bus, ms", "bus, GB/s",
            "chunk by the loop, ms", "first / (bus + chunk)"]  # fmt: skip
    return table(head, lines) if lines else ""


def talks(rows: list[Row]) -> str:
    """Memory after conversations."""
    lines = []
    for row in of_part(rows, "talks"):
        if "why" in row:
            continue
        for name, text in (("device_gib", "device"), ("pinned_gib", "pinned"), ("host_gib", "host resident")):
            after = [talk.get(name) for talk in row["after"]]
            if after[-1] is not None:
                second = after[min(1, len(after) - 1)]
                lines.append([name_of(row), f"{row['what']['length']:,}", text, figure(second, ".3f"), len(after),
                              figure(after[-1], ".3f"), share(row["grown"].get(name))])  # fmt: skip
    head = ["", "tokens of a prompt", "GiB of", "after the second", "conversations", "after the last", "grown"]
    return table(head, lines) if lines else ""


def agreement(rows: list[Row]) -> str:
    """How far a GPU's next-token distributions are from the CPU's."""
    lines = [[row["what"]["model"], name_of_arm(row["what"]["arm"]), row["what"]["steps"], figure(row["divergence"], ".2e"),
              figure(row["divergence_error"], ".1e"), figure(row["divergence_max"], ".2e"),
              f"{100 * row['other_first']:.2f} %", row["what"]["device"]] for row in of_part(rows, "agreement")]  # fmt: skip
    head = ["model", "decoded by", "tokens", "mean divergence from the CPU, nats", "standard error", "largest",
            "another first token", "device"]  # fmt: skip
    return table(head, lines) if lines else ""


def name_of_arm(arm: str) -> str:
    return arm if arm == "own cache" else f"**dci, `{arm}`**"


def runs(rows: list[Row]) -> str:
    """What the figures were made on."""
    found = sorted({(row["what"]["device"], row["torch"], row["transformers"], row["dci"], row["date"]) for row in rows})
    return table(["device", "PyTorch", "transformers", "dci", "date"], [list(line) for line in found]) if found else ""


TABLES = {"decode": decode, "batches": batches, "steps": steps, "prompts": prompts, "turns": turns, "talks": talks,
          "agreement": agreement, "runs": runs}  # fmt: skip


def write(path: str, rows: list[Row]) -> None:
    """Puts tables between the lines <!-- table NAME --> and <!-- end of table --> of a document; others stay."""
    made = {name: make(rows) for name, make in TABLES.items()}
    put_into(path, {name: lines for name, lines in made.items() if lines})


STYLES = {
    "offloaded": ("tab:red", "v"),
    "dynamic": ("tab:orange", "s"),
    "static-eager": ("tab:pink", "x"),
    "static": ("tab:brown", "^"),
    "flash": ("black", "o"),
    "cudnn": ("grey", "o"),
}
PRESETS = {"sketch": "tab:blue", "sketch+lowbit": "tab:cyan", "sketch+groups": "tab:purple", "quest": "tab:green"}


def plot(path: str, rows: list[Row], shape: str) -> None:
    """ms per token against the length at batch 1, a line for each arm."""
    try:
        import gpu_plot  # noqa: PLC0415 - only pictures want matplotlib
    except ImportError as error:
        sys.exit(f"whole_model.py: {error}")
    plt, mpl = gpu_plot.plt, gpu_plot.mpl
    wanted = {"shape": shape, "batch": 1}
    some = [row for row in by_length(rows) if "ms" in row and wanted.items() <= row["what"].items()]
    if not some:
        sys.exit(f"whole_model.py: there are no results of {shape} at batch 1 to draw")
    device = some[-1]["what"]["device"]
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in some:
        if row["what"]["device"] == device:
            lines.setdefault(row["what"].get("preset", row["what"]["arm"]), []).append((row["what"]["length"], row["ms"]))
    figure_, axes = plt.subplots(figsize=(7, 4.4), constrained_layout=True)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ends: list[tuple[int, float, str, str]] = []
    ticks: set[int] = set()
    for name, points in lines.items():
        colour, marker = STYLES.get(name, (PRESETS.get(name, "tab:blue"), "o"))
        lengths, times = zip(*sorted(points))
        axes.plot(lengths, times, "--" if name in STYLES else "-", color=colour, marker=marker, markersize=4)
        ends.append((lengths[-1], times[-1], name if name in STYLES else f"dci, {name}", colour))
        ticks.update(lengths)
    axes.set_xticks(sorted(ticks))
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(gpu_plot.lengths))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("tokens of the context")
    axes.set_ylabel("ms per token")
    axes.set_xlim(right=max(ticks) * 12)  # room for names
    axes.set_title(f"{shape}, random weights, bf16, batch 1; {device}", fontsize=9)
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    gpu_plot.name_ends(axes, ends)
    figure_.savefig(path, dpi=160)
