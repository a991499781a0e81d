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

import numpy as np

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


def bar_panels(counts: list[int], width: float = 8.0, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure with a line of panels of horizontal bars for each count, below each other; all bars are as thick."""
    heights = [0.95 + 0.25 * count for count in counts]
    figure = _figure(len(counts) * columns, width, sum(heights))
    grid = figure.subplots(len(counts), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    return figure, list(grid.flat)


# Where a label may stand, in points from what it names: (x, y, the part of its width that is left of x).
AROUND = ((8, 0), (7, 8), (7, -8), (-8, 0), (-7, 8), (-7, -8), (0, 11), (0, -11))
PLACES = [(x * far, y * far, (1 - np.sign(x)) / 2) for far in (1.0, 1.7, 2.6) for x, y in AROUND]
LABEL = 8.5  # points


def _pixels(line: Any) -> Any:
    """A line's points, the last one first."""
    return line.axes.transData.transform(np.column_stack(line.get_data()).astype(float))[::-1]


def _ink(lines: list[Any]) -> Any:
    """Points of all lines and four between each two, which labels should not cover."""
    out = []
    for points in map(_pixels, lines):
        out += [*points, *(a + (b - a) * part for a, b in zip(points, points[1:]) for part in (0.2, 0.4, 0.6, 0.8))]
    return np.array(out).reshape(-1, 2)


def _cost(box: Any, ink: Any, taken: list[Any], room: Any) -> float:
    """What a label covers there: other labels and lines, and how much of it is outside the axes."""
    (left, low, right, high), margin = box, 6
    covered = ((ink > [left - margin, low - margin]) & (ink < [right + margin, high + margin])).all(axis=1).sum()
    labels = sum(left < other[2] and other[0] < right and low < other[3] and other[1] < high for other in taken)
    outside = left < room.x0 or right > room.x1 or low < room.y0 or high > room.y1
    return float(covered + 8 * labels + 20 * outside)


def direct_labels(figure: Any, axes: list[Any]) -> None:
    """Names each line at one of its points, in its colour, where the name covers as little as possible."""
    figure.draw_without_rendering()  # from here on the sizes of the axes are known
    pixel = figure.dpi / 72
    for one in axes:
        lines = [line for line in one.get_lines() if line.get_label()[0] != "_"]
        ink, taken = _ink(lines), [text.get_window_extent().extents for text in one.texts]
        for line in lines:
            width, height = 0.53 * LABEL * len(line.get_label()) * pixel, 1.1 * LABEL * pixel
            able: list[tuple[Any, ...]] = []
            for at in _pixels(line):
                for x, y, part in PLACES:
                    left, low = at[0] + x * pixel - part * width, at[1] + y * pixel - height / 2
                    box = np.array([left, low, left + width, low + height])
                    cost = _cost(box, ink, taken, one.bbox) + 0.06 * math.hypot(x, y)
                    able.append((cost, len(able), box, at, (x, y), part))
            _, _, box, at, offset, part = min(able, key=lambda place: place[:2])
            taken.append(box)
            name = one.annotate(line.get_label(), one.transData.inverted().transform(at), xytext=offset,
                                textcoords="offset points", ha=("left", "center", "right")[int(2 * part)], va="center",
                                fontsize=LABEL, color=line.get_color(), annotation_clip=False)  # fmt: skip
            name.set_in_layout(False)


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
