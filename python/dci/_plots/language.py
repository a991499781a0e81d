# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A language model that decodes through dci, beside its own cache: what bench/scripts/language_model.py wrote."""

from __future__ import annotations

from typing import Any

from . import style
from .options import Options
from .reports import Report, Row

OURS = ("sketch", "lowbit")
KINDS = ("single", "multi-key", "multi-value", "list")


def _name(row: Row) -> str:
    return str(row["preset"]) + (f", {row['budget']}" if row["budget"] else "")


def _rows(reports: list[Report]) -> tuple[list[Row], list[Row]]:
    """The model with its own cache, and the presets."""
    rows = [row for report in reports for row in report.rows]
    return [row for row in rows if not row["budget"]], [row for row in rows if row["budget"]]


def _look(row: Row) -> int:
    return 0 if not row["budget"] else 1 if row["preset"].startswith(OURS) else 2


def perplexity(reports: list[Report], options: Options) -> Any:
    """How much more surprised the model is by held text than with its own cache, in per cent; the best preset on top."""
    own, rows = _rows(reports)
    if not own or not rows:
        return None
    base = own[0]["perplexity"]
    rows = sorted(rows, key=lambda row: -row["perplexity"])
    figure, (axes,) = style.bar_panels([len(rows)])
    most = max(*(100 * (row["perplexity"] / base - 1) for row in rows), 1.0)
    for ours in (True, False):
        at = [i for i, row in enumerate(rows) if row["preset"].startswith(OURS) == ours]
        axes.barh(at, [100 * (rows[i]["perplexity"] / base - 1) for i in at], height=0.7,
                  color=style.GREEN if ours else style.SHADES[1], hatch="" if ours else style.HATCHES[1],
                  edgecolor=style.BLACK, linewidth=0.6, label="dci's own presets" if ours else "others")  # fmt: skip
    for i, row in enumerate(rows):
        more = 100 * (row["perplexity"] / base - 1)
        axes.text(max(more, 0.0) + most / 60, i, f"{more:+.2f}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
    axes.set_xlim(min(0.0, *(100 * (row["perplexity"] / base - 1) for row in rows)) - most / 100, most * 1.12)
    axes.grid(axis="y", visible=False)
    axes.set_title(f"perplexity {base:.2f} with the model's own cache")
    axes.set_xlabel("per cent more with each preset and budget")
    style.legend(figure, [axes])
    return figure


def lookup(reports: list[Report], options: Options) -> Any:
    """The share of planted records that answers name, one panel per kind that the full cache can answer."""
    own, rows = _rows(reports)
    kinds = [kind for kind in KINDS if own and own[0].get(kind)]
    if not rows or not kinds:
        return None
    rows = [*reversed(rows), own[0]]
    figure, axes = style.bar_panels([len(rows)] * len(kinds))
    for one, kind in zip(axes, kinds):
        for look, name in enumerate(("the model's own cache", "dci's own presets", "others")):
            at = [i for i, row in enumerate(rows) if _look(row) == look]
            one.barh(at, [rows[i][kind] for i in at], height=0.7,
                     color=(style.SHADES[4], style.GREEN, style.SHADES[1])[look],
                     hatch=(style.HATCHES[3], "", style.HATCHES[1])[look],
                     edgecolor=style.BLACK, linewidth=0.6, label=name)  # fmt: skip
        for i, row in enumerate(rows):
            one.text(row[kind] + 0.01, i, f"{row[kind]:.2f}", va="center", fontsize=8)
        one.set_yticks(range(len(rows)), [_name(row) for row in rows])
        one.set_xlim(0.0, 1.08)
        one.grid(axis="y", visible=False)
        one.set_title(kind)
        one.set_xlabel("share of the planted records that are found")
    style.legend(figure, axes)
    return figure
