# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Pictures of search: queries per second against recall, build plus queries, exact search compared with others, k-means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from . import style
from .options import Options
from .reports import Report, Row

EXACT = 0.9999  # recall from which an arm counts as exact


@dataclass(frozen=True)
class Arm:
    """One setting that was measured."""

    series: str  # what it shares with the same index at other efforts
    name: str  # with the effort
    qps: float
    least: float
    most: float
    recall: float
    build: float
    queries: int | None  # of a round; None where the report does not say

    @property
    def ours(self) -> bool:
        """Whether it is a row of this library."""
        return self.name.startswith("dci ")


# --- rows as arms ---------------------------------------------------------------------------------------------------------


def _codes(row: Row) -> str:
    if not row.get("sketch_bits"):
        return ""
    return f" {row['sketch_bits']}-bit codes" + (" fitted" if row.get("fitted") else "")


def _effort(row: Row) -> str:
    """What the row spent: of the index and of its codes."""
    params, parts = row["params"], []
    if params.get("field_of_view"):
        parts.append(f"view {params['field_of_view']}")
    elif row["index"] == "mdci":
        parts.append(f"visit {params.get('prop_to_visit', 1):g}")
    if row["index"] == "pdci":
        parts.append(f"retrieve {params.get('prop_to_retrieve', 1):g}")
    if row.get("sketch_bits"):
        guarantee, rerank = row.get("guarantee"), row.get("rerank")
        parts.append(f"guarantee {guarantee:g}" if guarantee else "all" if rerank is None else f"x{rerank:g}")
    return " ".join(parts)


def _of_dci(row: Row) -> Arm:
    series = f"dci {row['index']} {row['rows']}{_codes(row)}"
    mode, effort = row["mode"], _effort(row)
    return Arm(f"{series}, {mode}", f"{series}{' ' + effort if effort else ''}, {mode}", row["qps"], row["qps_min"],
               row["qps_max"], row["recall"], row["build_s"], int(row["n_queries"]))  # fmt: skip


# Efforts in the names of other libraries' arms, and in ours as compare_peers.py writes them.
EFFORTS = re.compile(
    r"[ ,/]+(?:(?:view|visit|retrieve|guarantee|nprobe|k_factor|kf|search|clusters_to_search|ef|efs|ef_search|search_k|"
    r"leaves|reorder|rerank|expansion_search|points_to_rerank)[ =]*[0-9.]+|x[0-9.]+|all)(?=$|[ ,/])"
)


def _of_peer(row: Row) -> Arm:
    series = EFFORTS.sub("", f" {row['name']}").strip()
    return Arm(f"{series}, {row['mode']}", f"{row['name']}, {row['mode']}", row["qps"], row["qps_min"], row["qps_max"],
               row["recall"], row["build_s"], None)  # fmt: skip


def _panel_of(report: Report, row: Row) -> str:
    if report.title or report.kind == "peers":
        return report.name
    return f"{row['dataset']}: {row['n']:,} x {row['dim']}, {row['metric']}, k {row['k']}"


def arms_of(reports: list[Report]) -> dict[str, list[Arm]]:
    """{title of a panel: its arms}; reports about the same data share a panel."""
    out: dict[str, list[Arm]] = {}
    for report in reports:
        for row in report.rows:
            arm = _of_peer(row) if report.kind == "peers" else _of_dci(row)
            out.setdefault(_panel_of(report, row), []).append(arm)
    return out


def frontier(arms: list[Arm]) -> list[Arm]:
    """Those that no other beats in both recall and queries per second, by ascending recall."""
    best: list[Arm] = []
    for arm in sorted(arms, key=lambda a: (-a.recall, -a.qps)):
        if not best or arm.qps > best[-1].qps:
            best.append(arm)
    return best[::-1]


def _by_series(arms: list[Arm]) -> dict[str, list[Arm]]:
    out: dict[str, list[Arm]] = {}
    for arm in arms:
        out.setdefault(arm.series, []).append(arm)
    return out


# --- pictures -------------------------------------------------------------------------------------------------------------


def _styles(of_panel: dict[str, list[Arm]]) -> dict[str, style.Line]:
    """One look per series, the same in all panels."""
    names = dict.fromkeys(arm.series for arms in of_panel.values() for arm in arms)
    return {name: style.numbered(i) for i, name in enumerate(names)}


def recall(reports: list[Report], options: Options) -> Any:
    """Queries per second against recall, a line per index: the efforts that no other of the same line beats."""
    of_panel = arms_of(reports)
    looks = _styles(of_panel)
    figure, axes = style.arranged(len(of_panel))
    for one, (title, arms) in zip(axes, of_panel.items()):
        for series, points in _by_series(arms).items():
            best = frontier(points)
            one.plot([a.recall for a in best], [a.qps for a in best], label=series, clip_on=False, **looks[series].options())
        one.set_yscale("log")
        low = min(a.recall for points in _by_series(arms).values() for a in frontier(points))
        style.recall_scale(one.xaxis, max(0.0, low - 0.1 * max(1 - low, 0.02)))
        style.plain_numbers(one.yaxis)
        one.set_title(title)
        one.set_xlabel("recall (stretched towards 1)")
        one.set_ylabel("queries per second (log scale)")
    style.legend(figure, axes)
    return figure


def _totals(arms: list[Arm], options: Options) -> tuple[int, list[tuple[float, Arm]]]:
    """How many queries, and of each series the arm that reaches the recall in the least time, best first."""
    queries = options.queries or next((a.queries for a in arms if a.queries), 1000)
    best = []
    for points in _by_series(arms).values():
        able = [(a.build + queries / a.qps, a) for a in points if a.recall >= options.recall]
        if able:
            best.append(min(able, key=lambda pair: pair[0]))
    return queries, sorted(best, key=lambda pair: pair[0])


def total(reports: list[Report], options: Options) -> Any:
    """Seconds of build and queries together, of each index the cheapest effort that reaches a recall."""
    of_panel = {title: _totals(arms, options) for title, arms in arms_of(reports).items()}
    of_panel = {title: pair for title, pair in of_panel.items() if pair[1]}
    if not of_panel:
        return None
    figure, axes = style.bar_panels([len(bars) for _, bars in of_panel.values()])
    for one, (title, (queries, bars)) in zip(axes, of_panel.items()):
        names = [arm.name for _, arm in bars]
        build = [arm.build for _, arm in bars]
        asked = [queries / arm.qps for _, arm in bars]
        look = {"edgecolor": style.BLACK, "linewidth": 0.6, "height": 0.7}
        one.barh(names, build, color=style.SHADES[0], label="build", **look)
        one.barh(names, asked, left=build, color=style.SHADES[1], hatch=style.HATCHES[1], label="queries", **look)
        for i, (seconds, arm) in enumerate(bars):
            one.text(seconds, i, f"  {seconds:#.3g} s, recall {arm.recall:.3f}", va="center", fontsize=8)
        one.set_xlim(0, 1.35 * max(seconds for seconds, _ in bars))
        one.invert_yaxis()
        one.grid(axis="y", visible=False)
        one.set_title(f"{title}\n{queries:,} queries, recall of at least {options.recall:g}")
        one.set_xlabel("seconds")
    style.legend(figure, axes)
    return figure


MODES = {False: "one query per call", True: "many queries per call"}


def _modes(arms: list[Arm]) -> dict[bool, list[Arm]]:
    """{whether in batches: of each index its fastest exact effort, the slowest first}"""
    out: dict[bool, list[Arm]] = {}
    for points in _by_series([arm for arm in arms if arm.recall >= EXACT]).values():
        best = max(points, key=lambda arm: arm.qps)
        out.setdefault("batch" in best.series.rsplit(", ", 1)[1], []).append(best)
    return {mode: sorted(out[mode], key=lambda arm: arm.qps) for mode in sorted(out)}


def _exact_bars(axes: Any, arms: list[Arm], room: int) -> None:
    """Bars from the top of a panel that has room for so many."""
    for ours in (True, False):
        rows = [(i, arm) for i, arm in enumerate(arms) if arm.ours == ours]
        if rows:
            axes.barh([i for i, _ in rows], [arm.qps for _, arm in rows], height=0.7, edgecolor=style.BLACK, linewidth=0.6,
                      color=style.GREEN if ours else style.SHADES[1], hatch="" if ours else style.HATCHES[1],
                      label="dci" if ours else "others")  # fmt: skip
    for i, arm in enumerate(arms):
        axes.plot([arm.least, arm.most], [i - 0.42] * 2, color=style.DARK, linewidth=1.5)
        axes.text(arm.qps, i, f" {arm.qps:,.0f}", va="center", fontsize=9)
    axes.set_yticks(range(len(arms)), [arm.name.rsplit(", ", 1)[0] for arm in arms])
    axes.set_xlim(0, 1.22 * max(arm.most for arm in arms))
    axes.set_ylim(len(arms) - room - 0.7, len(arms) - 0.4)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="y", visible=False)


def exact(reports: list[Report], options: Options) -> Any:
    """Queries per second of exact search: a line of panels per data set, one for each way to ask. Of each index the fastest
    exact effort; bars are medians and begin at 0, the line below each goes from the least to the most."""
    of_panel = {title: _modes(arms) for title, arms in arms_of(reports).items()}
    of_panel = {title: modes for title, modes in of_panel.items() if modes}
    if not of_panel:
        return None
    columns = max(len(modes) for modes in of_panel.values())
    counts = [max(map(len, modes.values())) for modes in of_panel.values()]
    figure, grid = style.bar_panels(counts, 4.2 * columns if columns > 1 else 6.0, columns)
    for line, (title, modes) in enumerate(of_panel.items()):
        axes = grid[line * columns : (line + 1) * columns]
        for one, (batch, arms) in zip(axes, modes.items()):
            _exact_bars(one, arms, counts[line])
            one.set_title(MODES[batch], fontsize=9)
            one.set_xlabel("exact queries per second")
        axes[0].set_title(f"{title}\n{MODES[next(iter(modes))]}", fontsize=9)
        for one in axes[len(modes) :]:
            one.set_axis_off()
    return figure


OBJECTIVES = {"cosine": "mean cosine to the own centroid", "l2": "mean squared distance to the own centroid",
              "ip": "mean inner product with the own centroid"}  # fmt: skip


def _histories(report: Report, row: Row) -> list[tuple[str, list[Row]]]:
    if report.kind == "kmeans":
        return [("dci", row["history"])]
    return [("faiss", row["faiss_history"]), ("dci", row["dci_history"])]


def kmeans(reports: list[Report], options: Options) -> Any:
    """The objective of each round against time, one panel per number of clusters; lines differ by threads."""
    of_panel: dict[str, list[tuple[Report, Row]]] = {}
    for report in reports:
        for row in report.rows:
            of_panel.setdefault(f"{report.name}, {row['clusters']:,} clusters", []).append((report, row))
    figure, axes = style.arranged(len(of_panel))
    for one, (title, rows) in zip(axes, of_panel.items()):
        for i, (report, row) in enumerate(sorted(rows, key=lambda pair: pair[1]["threads"])):
            threads = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
            for who, history in _histories(report, row):
                ours = who == "dci"
                look = style.Line("o" if ours else "s", style.GREEN if ours else style.GREY, style.DASHES[i % 4], not ours)
                # Each is the objective of the assignment to the centroids before the round; means compare across data.
                one.plot([h["seconds"] for h in history], [h["objective"] / row["n"] for h in history],
                         label=f"{who}, {threads}", **{**look.options(), "markersize": 4})  # fmt: skip
        one.set_xscale("log")
        style.plain_numbers(one.xaxis)
        one.set_title(title)
        one.set_xlabel("seconds (log scale)")
        one.set_ylabel(OBJECTIVES.get(rows[0][1]["metric"], "objective over rows"))
    style.legend(figure, axes)
    return figure
