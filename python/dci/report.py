# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""One HTML page of what dci-bench and the scripts of bench/ measured: pictures, tables, and the machine and command of each.

    python -m dci.report ann.json kv.json layers.json -o report.html

The page is one file: pictures are inside it, nothing is fetched, and no script runs. Any JSON of dci-bench is taken; those
that dci.plot draws have pictures. TITLE=FILE names a file. Needs matplotlib 3.7 or newer.
"""

from __future__ import annotations

import argparse
import html
import re
import shlex
import sys
from collections.abc import Sequence

from ._errors import DciError, InvalidError
from ._library import __version__
from ._plots import pictures, style
from ._plots.options import Options
from ._plots.progress import progress
from ._plots.reports import Report, read_named
from ._plots.tables import tables_of
from .plot import add_options, options_of

__all__ = ["main", "page"]

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
h3 { font-size: 1rem; } figure { margin: 1rem 0; } figcaption { color: #555; font-size: .9rem; }
svg { max-width: 100%; height: auto; } .wide { overflow-x: auto; }
summary { cursor: pointer; font-weight: 600; padding: .4rem 0; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th { text-align: left; vertical-align: bottom; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid #e4e4e4; } td.n, th.n { text-align: right; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; }
dt { color: #555; } dd { margin: 0; } code { font-size: .85rem; overflow-wrap: anywhere; }
@media print { details > * { display: block; } }
"""

OPEN_ROWS = 40  # longer tables are folded


def _svg(content: bytes, prefix: str, title: str) -> str:
    """A picture as an element of the page: without the head of a file, its names its own."""
    text = content.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)


def _pictures(reports: list[Report], options: Options) -> str:
    """All pictures that the reports give; reports of one kind share them."""
    if not any(report.kind in picture.kinds for report in reports for picture in pictures.PICTURES.values()):
        return ""
    out = []
    with style.canvas():
        for name in progress(pictures.chosen([], reports), "pictures"):
            figure = pictures.drawn(name, reports, options)
            if figure is not None:
                about = pictures.PICTURES[name].about
                about = about[0].upper() + about[1:]
                drawn = _svg(style.rendered(figure, "svg"), name, about)
                said = f"<figcaption>{html.escape(about)}.</figcaption>"
                out.append(f'<figure id="picture-{name}">\n{drawn}\n{said}\n</figure>')
    return "<h2>Pictures</h2>\n" + "\n".join(out) if out else ""


def _facts(report: Report) -> str:
    """Where the figures come from."""
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items()) or "the file does not say"
    command = shlex.join(report.command) if report.command else "the file does not say"
    facts = {"File": report.path, "Machine": machine}
    lines = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>\n" for name, value in facts.items())
    return f"<dl>\n{lines}<dt>Command</dt><dd><code>{html.escape(command)}</code></dd>\n</dl>"


NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?")


def _table(caption: str, heads: list[str], lines: list[list[str]]) -> str:
    sides = [' class="n"' if all(NUMBER.fullmatch(line[i]) for line in lines if line[i]) else "" for i in range(len(heads))]
    head = "".join(f'<th scope="col"{side}>{html.escape(text)}</th>' for side, text in zip(sides, heads))
    cells = ["".join(f"<td{side}>{html.escape(text)}</td>" for side, text in zip(sides, line)) for line in lines]
    body = "\n".join(f"<tr>{line}</tr>" for line in cells)
    shown = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    unfolded = " open" if len(lines) <= OPEN_ROWS else ""
    summary = f"<summary>{html.escape(caption)}: {len(lines)} rows</summary>"
    return f'<details{unfolded}>{summary}\n<div class="wide">\n{shown}\n</div></details>'


def _section(report: Report, number: int) -> str:
    made = "a peers script" if report.kind == "peers" else "kmeans_peers.py" if report.kind == "kmeans peers" else None
    made = made or f"dci-bench {report.kind}"
    parts = [f'<section id="report-{number}">\n<h2>{html.escape(report.name)}: {html.escape(made)}</h2>', _facts(report)]
    parts += [_table(caption or made, heads, lines) for caption, heads, lines in tables_of(report)]
    return "\n".join([*parts, "</section>"])


# The page forbids itself what it does not need.
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
"""


def page(reports: Sequence[Report], *, title: str = "dci: measurements", options: Options | None = None) -> str:
    """The page of reports that dci.plot.read(path) gave, as text.

    options   what pictures are asked for, as the command's; None: its defaults
    """
    if not reports:
        raise InvalidError("a page needs one report at least")
    head = HEAD.format(title=html.escape(title), style=STYLE)
    sections = [_section(report, number) for number, report in enumerate(reports, 1)]
    shown = _pictures(list(reports), options or Options())
    return "\n".join([head, shown, *sections, f"<footer><p>dci {__version__}</p></footer>\n</body>\n</html>\n"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dci.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("report", nargs="+", metavar="[TITLE=]FILE")
    parser.add_argument("-o", "--out", required=True, help="an .html file")
    parser.add_argument("--title", default="dci: measurements")
    add_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    args = _parser().parse_args(arguments)
    try:
        if not args.out.lower().endswith((".html", ".htm")):
            raise InvalidError(f"{args.out}: a page is written as .html, wanted a name that ends so")
        reports = [read_named(named) for named in args.report]
        style.write(args.out, page(reports, title=args.title, options=options_of(args)).encode())
        print(args.out)
    except (DciError, ImportError) as error:
        print(f"dci.report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
