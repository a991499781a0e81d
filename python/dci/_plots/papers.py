# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A picture for each figure of `dci-bench papers`, a row of panels per trace. Axes: `dci-bench papers --help`."""

from __future__ import annotations

from typing import Any

from .._errors import FormatError, InvalidError
from . import style
from .options import Options
from .reports import Report, Row

# Of each figure its panels: title, abscissa and its scale, ordinates, what names a line, and the rows that are shown.
Panel = tuple[str, "str | None", str, list[str], list[str], dict[str, str]]
PANELS: dict[str, list[Panel]] = {
    "token-recall": [("best of all tokens", "budget", "log", ["token_recall"], ["preset", "codes"], {"best_of": "all"}),
                     ("best of the prompt", "budget", "log", ["token_recall"], ["preset", "codes"], {"best_of": "prompt"})],
    "cluster-recall": [("a head for itself", "budget", "log", ["token_recall"], ["groups", "rows"], {})],
    "static-ratio": [("over the full cache", "S", "linear", ["recall"], ["budget"], {}),
                     ("of what is chosen from", "S", "linear", ["share"], ["budget"], {})],
    "reuse-decay": [("best tokens of step 0", "from_step", "symlog", ["top", "with_local", "reused", "local"], ["budget"],
                     {})],
    "online-s": [("suggested static ratio", "n", "linear", ["S"], ["budget"], {})],
    "jaccard": [("best of all tokens", "tau", "linear", ["within", "across"], ["budget"], {}),
                ("of those to choose from", "tau", "linear", ["within_contested", "across_contested"], ["budget"], {})],
    "frequency": [("retrievals per step", "tau", "linear", ["frequency"], [], {}),
                  ("beside the layer before", "tau", "linear", ["agreement", "chance"], [], {})],
    "boundary": [("over the full cache", "stride", "log", ["recall_boundary", "recall_stride"], ["budget"], {}),
                 ("of what is chosen from", "stride", "log", ["share_boundary", "share_stride"], ["budget"], {})],
    "cache-hits": [("chosen in one of R steps before", "R", "linear", ["hit_rate"], ["choice", "codes"], {})],
    "fragmentation": [("share of pages with so many important tokens", None, "linear",
                       ["pages_1", "pages_2", "pages_3_4", "pages_5_8", "pages_9_up"], ["budget"], {"tokens": "contested"})],
    "page-hits": [("by quarter of the decode", None, "linear", ["first_quarter", "last_quarter"],
                   ["preset", "codes", "budget"], {}),
                  ("by origin of the key", None, "linear", ["of_prompt", "of_decoded"], ["preset", "codes", "budget"], {})],
    "resident": [("bytes per token", None, "linear", ["index_bytes"], ["preset", "codes"], {})],
}  # fmt: skip

# What stands at an axis in place of a field's name.
AXES = {"budget": "budget, tokens per step", "S": "static ratio S", "from_step": "first step of the range", "n": "tokens n",
        "tau": "threshold tau", "stride": "stride, steps", "R": "steps R", "token_recall": "recall of the best tokens",
        "recall": "recall of the attention", "share": "share of the attention", "frequency": "retrievals per step",
        "hit_rate": "share of the tokens chosen", "index_bytes": "resident bytes per token"}  # fmt: skip


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _name_of(row: Row, fields: list[str]) -> str:
    return " ".join(("B " if f == "budget" else "") + _word(row[f]) for f in fields if row[f] != "-")


def _lines(axes: Any, rows: list[Row], panel: Panel) -> None:
    _, x, scale, ordinates, names, _ = panel
    lines: dict[str, dict[float, float]] = {}
    for row in rows:
        for y in ordinates:
            if row[y] is not None:
                label = " ".join(part for part in (y if len(ordinates) > 1 else "", _name_of(row, names)) if part)
                lines.setdefault(label or y, {})[row[str(x)]] = row[y]
    for i, (label, points) in enumerate(lines.items()):
        at = sorted(points)
        axes.plot(at, [points[p] for p in at], label=label, **{**style.numbered(i).options(), "markersize": 4})
    if scale == "log":
        ticks = sorted({p for points in lines.values() for p in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{t:,g}" for t in ticks])
        axes.minorticks_off()
    else:
        axes.set_xscale(scale)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel(AXES.get(str(x), str(x)) + (" (log scale)" if scale != "linear" else ""))


def _bars(axes: Any, rows: list[Row], panel: Panel) -> None:
    """A cluster of bars for each row: for figures that have no abscissa."""
    _, _, _, ordinates, names, _ = panel
    of_label = {_name_of(row, names): row for row in rows}
    width = 0.8 / len(ordinates)
    for i, y in enumerate(ordinates):
        at = [k + (i - (len(ordinates) - 1) / 2) * width for k in range(len(of_label))]
        axes.bar(at, [row[y] or 0 for row in of_label.values()], width, label=y.replace("_", " "),
                 color=style.SHADES[i], hatch=style.HATCHES[i], edgecolor=style.BLACK, linewidth=0.6)  # fmt: skip
    tilted = max(map(len, of_label), default=0) > 6
    axes.set_xticks(range(len(of_label)), list(of_label), rotation=60 if tilted else 0, ha="right" if tilted else "center",
                    rotation_mode="anchor")  # fmt: skip


def _draw_panel(axes: Any, rows: list[Row], panel: Panel) -> None:
    title, x, _, ordinates, _, wanted = panel
    shown = [row for row in rows if all(row[k] == v for k, v in wanted.items())]
    (_bars if x is None else _lines)(axes, shown, panel)
    axes.set_title(f"{rows[0]['trace']}: {title}")
    axes.set_ylabel(AXES.get(ordinates[0], ordinates[0].replace("_", " ")) if len(ordinates) == 1 else "share")
    axes.set_ylim(0, 1.03 * max(axes.get_ylim()))
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        axes.legend(handles, labels, fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.2)


def _check_rows(figure: str, reports: list[Report]) -> None:
    """Rows of a figure hold what its panels want."""
    number = (int, float, type(None))
    for report in reports:
        for row in report.rows:
            for _, x, _, ordinates, names, wanted in PANELS[figure] if row["figure"] == figure else []:
                for name in (*([x] if x else []), *ordinates, *names, *wanted):
                    kinds = number if name in (x, *ordinates) else (*number, str)
                    if name not in row or not isinstance(row[name], kinds) or (name == x and row[name] is None):
                        raise FormatError(f"{report.path}: dci-bench papers: a row of '{figure}' has no '{name}' to draw")


def draw(figure: str, reports: list[Report], options: Options) -> Any:
    """One figure of all reports; of rows that agree in trace, line and abscissa the last one counts."""
    _check_rows(figure, reports)
    rows = [row for report in reports for row in report.rows if row["figure"] == figure]
    unknown = sorted(set(options.traces) - {row["trace"] for row in rows})
    if rows and unknown:
        there = ", ".join(dict.fromkeys(row["trace"] for row in rows))
        raise InvalidError(f"no trace is called {unknown[0]}; there are {there}")
    traces = [t for t in dict.fromkeys(row["trace"] for row in rows) if not options.traces or t in options.traces]
    if not traces:
        return None
    picture, grid = style.panels(len(traces), len(PANELS[figure]), 6.5, 3.4)
    for trace, line in zip(traces, grid):
        for axes, panel in zip(line, PANELS[figure]):
            _draw_panel(axes, [row for row in rows if row["trace"] == trace], panel)
    return picture
