# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Pictures of the KV cache: share of attention and error against the budget, the bytes moved and the bytes that stay
resident, and what a step's time is made of."""

from __future__ import annotations

import statistics
from typing import Any, Callable

import numpy as np

from .._errors import InvalidError
from . import style
from .options import Options
from .reports import Report, Row

G, N, W = style.GREEN, style.DARK, style.BROWN

# Of each preset marker, colour and dashes. Codes are told apart by the width beside the marker, learned ones are hollow.
LOOKS: dict[str, style.Line] = {
    "full": style.Line("*", style.BLACK, ":"), "topk": style.Line("P", style.BLACK, ":"),
    "lowbit": style.Line("8", style.BLUE, "-."), "streaming": style.Line("v", N, ":"), "snapkv": style.Line("^", N, ":"),
    "pagemean": style.Line("s", style.GREY, "--"), "quest": style.Line("D", style.GREY, "--"),
    "arkvale": style.Line("h", style.GREY, "--"), "sketch": style.Line("o", G), "sketch+sums": style.Line("<", G),
    "sketch+lowbit": style.Line(">", G), "icecache": style.Line("s", W, "-.", True), "clusterkv": style.Line("p", W, "-."),
    "prkv": style.Line("d", W, "-."), "louiskv": style.Line("^", W, "-.", True), "retroinfer": style.Line("X", W, "-."),
    "freekv": style.Line("v", W, "-.", True), "sketch+groups": style.Line("D", G), "sketch+verify": style.Line("P", G),
    "pariskv": style.Line("8", W, "-.", True),
}  # fmt: skip


# Dash-dotted and filled, as no line above is with that marker.
FREE = [style.Line(marker, style.BLUE, "-.") for marker in "o^v<>sDHP*"]


def _look(preset: str, learned: bool, others: list[str], again: int = 0) -> style.Line:
    """Presets of a later library have no look of their own and are numbered; so are lines that repeat a preset."""
    line = LOOKS.get(preset) or FREE[others.index(preset) % len(FREE)]
    if again:
        return style.Line(line.marker, line.colour, style.DASHES[(style.DASHES.index(line.dashes) + again) % 4], learned)
    return style.Line(line.marker, line.colour, "--", True) if learned else line


# --- figures of a row -----------------------------------------------------------------------------------------------------


def _codes(row: Row, bits: bool = True) -> str:
    """Bits per coordinate of keys and values, as the tables of docs/ write them."""
    codes = f" K{row['key_bits']}" if row.get("key_bits") and bits else ""
    codes += f" V{row['value_bits']}" if row.get("value_bits") else ""
    return codes + (" learned" if row.get("learned") and row.get("key_bits") else "")


def _or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def error_of(row: Row) -> float | None:
    """With the tail where there is one: what a model would see. What attends to everything errs by rounding alone."""
    error = _or_none(row["err"] if row["err_tail"] is None else row["err_tail"])
    return error if error is not None and error > 1e-5 else None


def share_of(row: Row) -> float | None:
    """Tails choose as the preset without one, and what attends to everything in codes chooses nothing."""
    return None if row["preset"] in ("lowbit", "sketch+sums", "sketch+lowbit") else _or_none(row["share"])


def resident_of(row: Row) -> float | None:
    """What attends to everything, or ranks by the keys themselves, needs the rows."""
    if row["preset"] == "full":
        return _or_none(row["token_bytes"])
    if row["preset"] == "topk" and row["token_bytes"] is not None:
        return float(row["token_bytes"] * row["dim_k"] / (row["dim_k"] + row["dim_v"]))
    return _or_none(row["resident_bytes_token"])


def moved_of(row: Row) -> float | None:
    """Keys and values of the tokens that were chosen; nothing is chosen where nothing moves. Where keys verify a list, four
    times as many keys are read."""
    if not row["bytes_step"]:
        return None
    keys = row["dim_k"] / (row["dim_k"] + row["dim_v"])
    return float(row["bytes_step"]) / 1024 * (1 + 3 * keys if row["preset"] == "sketch+verify" else 1)


def budget_of(row: Row) -> float | None:
    """Tokens attended to per step."""
    return None if row["preset"] in ("full", "lowbit") else float(row["budget"])


Value = Callable[[Row], "float | None"]


# --- what is drawn --------------------------------------------------------------------------------------------------------


PARTS = ("append", "plan", "attend", "maintain")  # of a step

# What else dci-bench was asked for: where rows of a preset differ in it, it names a line.
ASKED = ("kept", "frozen_prompt", "combine", "leaves", "schedule", "tau", "period", "static_share", "ring")


def _means(rows: list[Row]) -> list[Row]:
    """Rows that differ in their seed alone, as one: codes and first clusters are drawn at random."""
    same: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        names = ("trace", "preset", "budget", "key_bits", "value_bits", "learned", *ASKED)
        same.setdefault(tuple(row.get(name) for name in names), []).append(row)
    figures = ("share", "err", "err_tail", "bytes_step", "resident_bytes_token", *(f"{part}_us" for part in PARTS))
    return [
        {**many[0], **{n: statistics.mean(r[n] for r in many) for n in figures if all(r[n] is not None for r in many)}}
        for many in same.values()
    ]


def _differences(rows: list[Row]) -> dict[str, list[str]]:
    """{preset: what its rows were asked for differently}"""
    return {
        preset: [n for n in ASKED if len({str(row.get(n)) for row in rows if row["preset"] == preset}) > 1]
        for preset in {row["preset"] for row in rows}
    }


def _rows(reports: list[Report], options: Options) -> list[Row]:
    """Rows that were played, of the traces that are asked for, each with the label of its line."""
    every = [row for report in reports for row in report.rows if row["reason"] is None]
    unknown = sorted(set(options.traces) - {row["trace"] for row in every})
    if unknown:
        there = ", ".join(dict.fromkeys(row["trace"] for row in every))
        raise InvalidError(f"no trace is called {unknown[0]}; there are {there}")
    for preset in options.presets:
        if preset not in {row["preset"] for row in every}:
            there = ", ".join(dict.fromkeys(row["preset"] for row in every))
            raise InvalidError(f"no rows of the preset {preset!r}; there are {there}")
    shown = _means([row for row in every if (not options.traces or row["trace"] in options.traces) and
                    (not options.presets or row["preset"] in options.presets) and
                    row["value_bits"] in (None, options.value_bits)])  # fmt: skip
    names = _differences(shown)
    for row in shown:
        row["asked"] = "".join(f", {name.replace('_', ' ')} {row.get(name)}" for name in names[row["preset"]])
    return shown


def _budget(rows: list[Row], options: Options) -> int:
    """The one that is asked for, or the one nearest to 256."""
    there = sorted({row["budget"] for row in rows})
    if options.budget is None:
        return int(min(there, key=lambda budget: abs(budget - 256)))
    if options.budget not in there:
        raise InvalidError(f"no rows with a budget of {options.budget}; there are {', '.join(map(str, there))}")
    return options.budget


def _series(rows: list[Row], per_width: bool) -> dict[tuple[str, bool, str], list[Row]]:
    """{(preset, learned, label): rows}: a line per width of codes, or one through all widths."""
    out: dict[tuple[str, bool, str], list[Row]] = {}
    for row in rows:
        label = row["preset"] + _codes(row, per_width) + row["asked"]
        out.setdefault((row["preset"], bool(row["learned"]), label), []).append(row)
    return out


def _plot(axes: Any, rows: list[Row], x: Value, y: Value, per_width: bool) -> None:
    others = list(dict.fromkeys(row["preset"] for row in rows if row["preset"] not in LOOKS))
    times: dict[tuple[str, bool], int] = {}
    for (preset, learned, label), line in _series(rows, per_width).items():
        again = times[preset, learned] = times.get((preset, learned), -1) + 1
        points = sorted((at, value, row["key_bits"] or 0) for row in line for at, value in [(x(row), y(row))]
                        if at is not None and value is not None)  # fmt: skip
        if not points:
            continue
        look = _look(preset, learned, others, again)
        numbers = not per_width and len(points) > 1
        options = {**look.options(), **({"markersize": 10} if numbers else {})}
        axes.plot([p[0] for p in points], [p[1] for p in points], label=label, clip_on=False, **options)
        for at, value, bits in points if numbers else ():
            axes.annotate(str(bits), (at, value), ha="center", va="center_baseline", fontsize=6.5, fontweight="bold",
                          color=look.colour if look.hollow else "white")  # fmt: skip


def _widest(rows: list[Row]) -> list[Row]:
    """Of each preset the codes with the most bits, so that a picture over budgets has one line per preset and sort."""
    most: dict[tuple[str, str, bool], int] = {}
    for row in rows:
        key = (row["trace"], row["preset"], bool(row["learned"]))
        most[key] = max(most.get(key, 0), row["key_bits"] or 0)
    return [row for row in rows if (row["key_bits"] or 0) == most[row["trace"], row["preset"], bool(row["learned"])]]


FEW = 9  # lines that are named where they are drawn; more of them are named in a legend


def _pair(rows: list[Row], x: Value, scale: Callable[[Any], None], title: str, per_width: bool) -> Any:
    """Share and error beside each other, a row of panels per trace."""
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    if not traces:
        return None
    names = {(row["preset"], bool(row["learned"]), row["asked"], _codes(row, per_width)) for row in rows}
    few = len(names) <= FEW
    figure, grid = style.panels(len(traces), 2, *((4.1, 3.0) if few else (4.7, 3.6)))
    for trace, (left, right) in zip(traces, grid):
        of_trace = [row for row in rows if row["trace"] == trace]
        _plot(left, of_trace, x, share_of, per_width)
        _plot(right, of_trace, x, error_of, per_width)
        left.set_title(f"{trace}{title}")
        left.set_ylabel("share of the attention to choose from")
        left.set_ylim(0, 1.03)
        right.set_ylabel("error of the output (log scale)")
        right.set_yscale("log")
        style.plain_numbers(right.yaxis)
        for axes in (left, right):
            scale(axes)
    if not per_width and any(row["key_bits"] for row in rows):
        grid[0][1].set_title("a number in a marker: bits per coordinate of a key", fontsize=8)
    if few:
        style.direct_labels(figure, list(grid.flat))
    else:
        style.legend(figure, list(grid.flat))
    return figure


def _log_of(label: str, ticks: list[int] | None = None) -> Callable[[Any], None]:
    def scale(axes: Any) -> None:
        axes.set_xscale("log", base=2 if ticks else 10)
        if ticks:
            axes.set_xticks(ticks, [f"{t:,}" for t in ticks])
            axes.minorticks_off()
        else:
            style.plain_numbers(axes.xaxis)
        axes.set_xlabel(label)

    return scale


def budget(reports: list[Report], options: Options) -> Any:
    """Share and error against the budget; of codes the widest that were measured."""
    rows = [row for row in _widest(_rows(reports, options)) if budget_of(row) is not None]
    ticks = sorted({int(row["budget"]) for row in rows})
    return _pair(rows, budget_of, _log_of("budget, tokens per step (log scale)", ticks), "", True)


def moved(reports: list[Report], options: Options) -> Any:
    """Share and error against the bytes of the tokens chosen; points of a line are budgets, codes the widest measured."""
    rows = [row for row in _widest(_rows(reports, options)) if moved_of(row) is not None]
    return _pair(rows, moved_of, _log_of("KiB moved per step (log scale)"), "", True)


def resident(reports: list[Report], options: Options) -> Any:
    """Share and error against the bytes per token that stay resident, at one budget; numbers are bits per coordinate of the
    keys. "full" stands at the bytes of a token's key and value, "topk" at those of its key."""
    rows = _rows(reports, options)
    if not rows:
        return None
    at = _budget(rows, options)

    def scale(axes: Any) -> None:
        # The square root leaves room for the few bytes that most presets keep; the rows themselves are far larger.
        axes.set_xscale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
        most = max(64.0, *(resident_of(row) or 0 for row in rows))
        axes.set_xticks([0, *(2**i for i in range(3, 16) if 2**i <= most)])
        axes.set_xlim(0, most * 1.02)
        axes.set_xlabel("resident bytes per token (square root scale)")

    return _pair([row for row in rows if row["budget"] == at], resident_of, scale, f", budget {at}", False)


# --- the time of a step ---------------------------------------------------------------------------------------------------


def _part(row: Row, part: str) -> float:
    """`dci-bench layers` times maintain only where something was due, which is no part of the median step."""
    return 0.0 if part == "maintain" and "full_us" in row else float(row.get(f"{part}_us") or 0)


def _times(reports: list[Report], options: Options) -> dict[str, list[tuple[str, Row]]]:
    """{title of a panel: (name of a bar, row)}"""
    out: dict[str, list[tuple[str, Row]]] = {}
    for report in reports:
        if report.kind == "layers":
            for row in report.rows:
                title = (f"One layer of {row['layers']}: {row['heads']} kv heads, {row['tokens']:,} tokens, "
                         f"budget {row['budget']}")  # fmt: skip
                out.setdefault(title, []).append((row["preset"] + _codes(row), row))
            continue
        rows = [row for row in _widest(_rows([report], options)) if row["plan_us"] is not None]
        at = _budget(rows, options) if rows else 0
        for row in rows:
            if row["budget"] == at:
                name = row["preset"] + _codes(row) + row["asked"]
                out.setdefault(f"{row['trace']}: one head, budget {at}", []).append((name, row))
    return out


def _full(bars: list[tuple[str, Row]]) -> float | None:
    """What full attention took beside the presets: the median over them."""
    times = [float(row["full_us"]) for _, row in bars if row.get("full_us")]
    return statistics.median(times) if times else None


def _bars(axes: Any, bars: list[tuple[str, Row]]) -> None:
    at, left = list(range(len(bars))), [0.0] * len(bars)
    for i, part in enumerate(PARTS):
        widths = [_part(row, part) for _, row in bars]
        if not any(widths):
            continue
        axes.barh(at, widths, left=left, label=part, color=style.SHADES[i], hatch=style.HATCHES[i], edgecolor=style.BLACK,
                  linewidth=0.6, height=0.7)  # fmt: skip
        left = [a + b for a, b in zip(left, widths)]
    # Beside presets that take a hundredth of it, full attention would leave them no room: a line where it fits.
    widest, full = max(left), _full(bars)
    if full is not None and full <= 1.5 * widest:
        axes.axvline(full, color=style.BLACK, linestyle="--", linewidth=1.2, label="full attention")
    for i, total in enumerate(left):
        axes.text(total, i, f"  {total:,.{0 if total >= 100 else 1}f} us", va="center", fontsize=8)
    axes.set_yticks(at, [name for name, _ in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * widest or 1)


def steps(reports: list[Report], options: Options) -> Any:
    """What the median step is made of: append, plan, attend, and (of `dci-bench kv`) maintain.
    Of codes the widest that were measured."""
    of_panel = _times(reports, options)
    if not of_panel:
        return None
    figure, axes = style.bar_panels([len(bars) for bars in of_panel.values()])
    for one, (title, bars) in zip(axes, of_panel.items()):
        _bars(one, bars)
        full = _full(bars)
        one.set_title(title + ("" if full is None else f"\nfull attention beside them: {full:,.0f} us"))
        one.set_xlabel("microseconds, medians")
        one.grid(axis="y", visible=False)
    style.legend(figure, axes)
    return figure
