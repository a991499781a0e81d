# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""How pictures look: lines that differ by marker, filling and dashes before they differ by colour, bars by hatching; and how
they are written: the same bytes for the same data. The only module that imports matplotlib."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .._errors import FileError, InvalidError

GREEN, GREY, BROWN, BLUE, BLACK, DARK = "#1b7f5c", "#9aa5b1", "#8c6d31", "#3b6ea5", "#222222", "#666666"
MAX_PANELS = 48


@dataclass(frozen=True)
class Line:
    """How one line or set of points looks."""

    marker: str
    colour: str
    dashes: str = "-"
    hollow: bool = False

    def options(self) -> dict[str, Any]:
        """Arguments of Axes.plot."""
        return {"marker": self.marker, "color": self.colour, "linestyle": self.dashes, "linewidth": 1.2, "markersize": 6,
                "markerfacecolor": "white" if self.hollow else self.colour}  # fmt: skip


MARKERS = "osD^v<>hPX*"
DASHES = ("-", "--", ":", "-.")
COLOURS = (GREEN, BLUE, BROWN, BLACK, GREY)
HATCHES = ("", "////", "xxxx", "....", "\\\\\\\\", "++++", "oo")
SHADES = ("#14503b", "#cfd6dc", "#8fbcab", "#f2f2f2", "#6b7785", "#ffffff", "#b59a63")


def numbered(i: int) -> Line:
    """The look of the i-th line where lines have no names of their own: the first 88 differ in marker, filling or dashes."""
    turn = i // len(MARKERS)
    return Line(MARKERS[i % len(MARKERS)], COLOURS[i % len(COLOURS)], DASHES[(i + turn // 2) % 4], turn % 2 == 1)


@contextmanager
def canvas() -> Iterator[None]:
    """What is drawn and written inside does not depend on the user's settings, the clock or chance."""
    try:
        import matplotlib  # noqa: PLC0415 - only where it is used
    except ImportError:
        raise ImportError("pictures need matplotlib 3.7 or newer: pip install 'matplotlib>=3.7'") from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {"svg.hashsalt": "dci", "svg.fonttype": "path", "text.parse_math": False,
             "axes.spines.top": False, "axes.spines.right": False,
             "axes.titlesize": 10, "axes.titlelocation": "left", "axes.labelsize": 9, "xtick.labelsize": 8,
             "ytick.labelsize": 8, "legend.fontsize": 8, "legend.frameon": False, "hatch.linewidth": 0.6,
             "axes.grid": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.6, "axes.axisbelow": True}
        )  # fmt: skip
        yield


def panels(lines: int, columns: int, width: float = 5.5, height: float = 3.6) -> tuple[Any, Any]:
    """A figure and its axes, (lines, columns); width and height in inches are those of a panel."""
    figure = _figure(lines * columns, width * columns, height * lines)
    return figure, figure.subplots(lines, columns, squeeze=False)


def _figure(n: int, width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415 - only where it is used

    if n > MAX_PANELS:
        raise InvalidError(f"{n} panels are more than one picture holds ({MAX_PANELS}): name some with --trace, or give "
                           "fewer files")  # fmt: skip
    return Figure(figsize=(width, height), layout="constrained")


def arranged(n: int, width: float = 5.5, height: float = 3.6) -> tuple[Any, list[Any]]:
    """A figure of n panels, two beside each other, and the axes that are used; one by itself is wider."""
    columns = min(n, 2)
    width = width if n > 1 else max(width, 7.5)
    figure, grid = panels((n + columns - 1) // columns, columns, width, height)
    axes = list(grid.flat)
    for one in axes[n:]:
        one.set_axis_off()
    return figure, axes[:n]


def bar_panels(counts: list[int], width: float = 8.0) -> tuple[Any, list[Any]]:
    """A figure with a panel of horizontal bars for each count, below each other; all bars are as thick."""
    heights = [0.95 + 0.25 * count for count in counts]
    figure = _figure(len(counts), width, sum(heights))
    grid = figure.subplots(len(counts), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    return figure, list(grid.flat)


def legend(figure: Any, axes: list[Any]) -> None:
    """One legend for all panels below them, each name once, where it covers no data; the figure grows by its height."""
    entries: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    if not entries:
        return
    width, height = figure.get_size_inches()
    columns = max(1, min(len(entries), int((width - 0.2) / (0.75 + 0.064 * max(map(len, entries))))))
    figure.set_size_inches(width, height + 0.2 + 0.165 * math.ceil(len(entries) / columns))
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, handlelength=3.2)


def plain_numbers(axis: Any) -> None:
    """Ticks of a logarithmic axis as 1,000 rather than 10^3, with some between where it spans less than two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415 - only where it is used

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def recall_scale(axis: Any, low: float) -> None:
    """From `low` to 1, where the last hundredths have as much room as they matter."""
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 0.999, 1]
    axis.axes.set_xscale("function", functions=(lambda x: -(abs(1 - x) ** (1 / 3)), lambda y: 1 - abs(y) ** 3))
    shown = [tick for tick in ticks if tick >= low and (low < 0.9 or tick > 0.9)]
    axis.axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axis.axes.set_xlim(low, 1.0)


def rendered(figure: Any, form: str) -> bytes:
    """The picture as "png" or "svg"; equal figures give equal bytes."""
    out = io.BytesIO()
    options: dict[str, Any] = {"metadata": {"Date": None, "Creator": None}}
    if form == "png":
        options = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
    figure.savefig(out, format=form, dpi=110, **options)
    return out.getvalue()


def form_of(path: str) -> str:
    """The format that a file's name asks for."""
    form = os.path.splitext(path)[1].lower().lstrip(".")
    if form not in ("png", "svg"):
        raise InvalidError(f"{path}: pictures are written as .png or .svg, wanted a name that ends so")
    return form


def write(path: str, content: bytes) -> None:
    """All of a file or nothing of it: it takes its name when it is whole."""
    partial = f"{path}.{os.getpid()}.part"
    try:
        try:
            with open(partial, "wb") as file:
                file.write(content)
            os.replace(partial, path)
        except BaseException:
            if os.path.exists(partial):
                os.remove(partial)
            raise
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
