# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Draw what dci-bench and the scripts of bench/ measured.

    python -m dci.plot kv.json                              # all pictures of it: kv-budget.png, kv-moved.png, ...
    python -m dci.plot ann.json --what recall -o recall.svg
    python -m dci.plot "Keys, d 64=keys.json" fashion.json --what exact -o exact.png

A file is what `dci-bench ann`, `kv`, `layers`, `papers` or `kmeans` wrote with --json, or compare_peers.py,
kmeans_peers.py or a peers script; TITLE=FILE names it. Reports of one kind are drawn together. Pictures read without
colours, and equal reports give equal files. Needs matplotlib 3.7 or newer.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from ._errors import DciError, InvalidError
from ._plots import pictures, style
from ._plots.options import Options
from ._plots.progress import progress
from ._plots.reports import Report, read, read_named

__all__ = ["draw", "main", "read", "save"]


def draw(what: str, reports: Sequence[Report], *, budget: int | None = None, recall: float = 0.95,
         queries: int | None = None, traces: Sequence[str] = (), value_bits: int = 2,
         presets: Sequence[str] = ()) -> Any:  # fmt: skip
    """A picture as a matplotlib Figure.

    what     one of the names that `python -m dci.plot --help` lists
    reports  what read(path) gave, of one kind or several; those that the picture is not for are left out
    budget   of pictures at one budget; None: the one nearest to 256
    recall, queries   of "total": the least recall, and how many queries (None: as many as a round had)
    traces, presets   names of those to draw; none: all
    value_bits        of low-bit tails

    Raises InvalidError if the reports hold nothing for the picture, with what they do hold.
    """
    options = Options(budget, recall, queries, tuple(traces), value_bits, tuple(presets))
    pictures.chosen([what], list(reports))
    with style.canvas():
        figure = pictures.drawn(what, list(reports), options)
    if figure is None:
        files = ", ".join(report.path for report in reports)
        raise InvalidError(f"the rows of {files} hold nothing for the picture {what!r}")
    return figure


def save(figure: Any, path: str) -> None:
    """Writes a picture of draw() as .png or .svg, all of it or nothing; equal pictures give equal files."""
    form = style.form_of(path)
    with style.canvas():
        content = style.rendered(figure, form)
    style.write(path, content)


def _paths(out: str | None, names: list[str], first: Report) -> dict[str, str]:
    """Where each picture goes: to OUT, or of several to OUT with the picture's name before its ending."""
    target = out or f"{os.path.splitext(os.path.basename(first.path))[0]}.png"
    style.form_of(target)
    if out and len(names) == 1:
        return {names[0]: out}
    stem, ending = os.path.splitext(target)
    already = os.path.basename(stem) + "-"  # papers.json gives papers-jaccard.png
    return {name: f"{stem}-{name[len(already) :] if name.startswith(already) else name}{ending}" for name in names}


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:24} {picture.about}" for name, picture in pictures.PICTURES.items())
    parser = argparse.ArgumentParser(prog="python -m dci.plot", description=f"{__doc__}\npictures:\n{listed}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("report", nargs="+", metavar="[TITLE=]FILE")
    parser.add_argument("--what", help="names of pictures, with commas between (default: all that the files give)")
    parser.add_argument("-o", "--out", help="a .png or .svg; of several pictures each adds its name")
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """What dci.plot and dci.report have in common."""
    parser.add_argument("--budget", type=int, help="of pictures at one budget (default: the one nearest to 256)")
    parser.add_argument("--recall", type=float, default=0.95, help="that 'total' asks for (default 0.95)")
    parser.add_argument("--queries", type=int, help="of 'total' (default: as many as a round had, or 1,000)")
    parser.add_argument("--trace", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--preset", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--value-bits", type=int, default=2, help="of low-bit tails (default 2)")


def options_of(args: argparse.Namespace) -> Options:
    """The same, checked."""
    if not 0 < args.recall <= 1:
        raise InvalidError(f"--recall is {args.recall:g}, wanted more than 0 and at most 1")
    if args.queries is not None and args.queries < 1:
        raise InvalidError(f"--queries is {args.queries}, wanted 1 or more")
    return Options(args.budget, args.recall, args.queries, tuple(args.trace), args.value_bits, tuple(args.preset))


def _run(args: argparse.Namespace) -> None:
    options = options_of(args)
    reports = [read_named(named) for named in args.report]
    names = pictures.chosen(args.what.split(",") if args.what else [], reports)
    paths = _paths(args.out, names, reports[0])
    content: dict[str, bytes] = {}
    with style.canvas():
        for name in progress(names, "pictures"):
            figure = pictures.drawn(name, reports, options)
            if figure is not None:
                content[name] = style.rendered(figure, style.form_of(paths[name]))
            elif args.what:
                raise InvalidError(f"the rows hold nothing for the picture {name!r}")
    if not content:
        raise InvalidError(f"the rows of {', '.join(report.path for report in reports)} hold nothing to draw")
    if args.out and not args.what and len(content) == 1:  # the only one that there is
        paths = dict.fromkeys(content, args.out)
    for name, picture in content.items():
        style.write(paths[name], picture)
        print(paths[name])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    args = _parser().parse_args(arguments)
    try:
        _run(args)
    except (DciError, ImportError) as error:
        print(f"dci.plot: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
