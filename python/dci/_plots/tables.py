# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Rows of a report as a table with units in its heads."""

from __future__ import annotations

from typing import Any, Callable

from . import ann, kv
from .reports import Report, Row

Cell = Callable[[Row], str]


def _count(name: str) -> Cell:
    return lambda row: "" if row.get(name) is None else f"{row[name]:,.0f}"


def _fixed(name: str, places: int, scale: float = 1.0) -> Cell:
    return lambda row: "" if row.get(name) is None else f"{row[name] * scale:,.{places}f}"


def _word(name: str) -> Cell:
    return lambda row: "" if row.get(name) is None else str(row[name])


def _preset(row: Row) -> str:
    return str(row["preset"]) + kv._codes(row)


# Of each kind the heads and what stands below them; figures are set to the right.
Column = tuple[str, Cell]
COLUMNS: dict[str, list[Column]] = {
    "ann": [
        ("arm", lambda row: ann._of_dci(row).name), ("data", _word("dataset")), ("rows", _count("n")),
        ("dim", _count("dim")),
        ("k", _count("k")), ("threads", _count("threads")), ("build, s", _fixed("build_s", 4)),
        ("queries/s, median", _count("qps")), ("lowest", _count("qps_min")), ("highest", _count("qps_max")),
        ("recall", _fixed("recall", 4)), ("scores per query", _count("dist_comps")),
        ("memory, MiB", _fixed("bytes", 1, 2.0**-20)),
    ],
    "peers": [
        ("arm", _word("name")), ("mode", _word("mode")), ("build, s", _fixed("build_s", 4)),
        ("queries/s, median", _count("qps")), ("lowest", _count("qps_min")), ("highest", _count("qps_max")),
        ("recall", _fixed("recall", 4)),
    ],
    "kv": [
        ("trace", _word("trace")), ("preset", _preset), ("budget, tokens", _count("budget")), ("share", _fixed("share", 3)),
        ("error", _fixed("err", 4)), ("error with tail", _fixed("err_tail", 4)),
        ("moved, KiB/step", _fixed("bytes_step", 1, 2.0**-10)), ("resident, bytes/token", _fixed("resident_bytes_token", 1)),
        ("build, ms", _fixed("build_ms", 2)), ("plan, us", _fixed("plan_us", 1)), ("attend, us", _fixed("attend_us", 1)),
        ("step, us", _fixed("step_us", 1)), ("step, us, p99", _fixed("step_us_p99", 1)),
        ("left out because", _word("reason")),
    ],
    "layers": [
        ("preset", _preset), ("budget, tokens", _count("budget")), ("tokens", _count("tokens")),
        ("layers", _count("layers")),
        ("kv heads", _count("heads")), ("build, ms", _fixed("build_ms", 1)), ("append, us", _fixed("append_us", 1)),
        ("plan, us", _fixed("plan_us", 1)), ("attend, us", _fixed("attend_us", 1)),
        ("maintain, us", _fixed("maintain_us", 1)),
        ("full attention, us", _fixed("full_us", 1)), ("tokens/s", _fixed("tokens_per_s", 1)),
        ("full, tokens/s", _fixed("tokens_per_s_full", 1)), ("resident, bytes/token", _fixed("resident_token_bytes", 1)),
    ],
    "kmeans": [
        ("rows", _count("n")), ("dim", _count("dim")), ("clusters", _count("clusters")), ("metric", _word("metric")),
        ("threads", _count("threads")), ("rounds", _count("rounds")), ("seconds, median", _fixed("seconds", 4)),
        ("objective", _fixed("objective", 2)), ("largest cluster", _count("largest")),
    ],
    "kmeans peers": [
        ("rows", _count("n")), ("dim", _count("dim")), ("clusters", _count("clusters")), ("metric", _word("metric")),
        ("threads", _count("threads")), ("dci, s, median", _fixed("dci_s", 4)), ("faiss, s, median", _fixed("faiss_s", 4)),
    ],
}  # fmt: skip


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _as_it_is(rows: list[Row]) -> list[Column]:
    """Of rows without columns of their own: every field that holds one value, by its name in the file."""
    names = dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, (list, dict)))
    return [(name.replace("_", " "), lambda row, name=name: _plain(row.get(name))) for name in names]  # type: ignore[misc]


def _grouped(report: Report) -> dict[str, list[Row]]:
    """Rows that belong in one table: all, or those of one figure of the papers."""
    if report.kind != "papers":
        return {"": report.rows}
    out: dict[str, list[Row]] = {}
    for row in report.rows:
        out.setdefault(row["figure"], []).append(row)
    return out


def tables_of(report: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    """[(caption, heads, lines of cells)]; columns that are empty throughout are left out."""
    out = []
    for caption, rows in _grouped(report).items():
        columns = COLUMNS.get(report.kind) or _as_it_is(rows)
        if caption:
            columns = [(head, cell) for head, cell in columns if head != "figure"]
        lines = [[cell(row) for _, cell in columns] for row in rows]
        used = [i for i in range(len(columns)) if any(line[i] for line in lines)]
        out.append((caption, [columns[i][0] for i in used], [[line[i] for i in used] for line in lines]))
    return out
