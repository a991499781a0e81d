# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which pictures there are, of which reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

from .._errors import InvalidError
from . import ann, kv, language, papers
from .options import Options
from .reports import Report

Draw = Callable[[list[Report], Options], Any]


@dataclass(frozen=True)
class Picture:
    """`draw` gives a figure, or None where the reports hold nothing for it."""

    kinds: tuple[str, ...]
    about: str
    draw: Draw


PICTURES: dict[str, Picture] = {
    "recall": Picture(("ann", "peers"), "queries per second against recall", ann.recall),
    "total": Picture(("ann", "peers"), "seconds of build plus queries, of each index the cheapest effort", ann.total),
    "exact": Picture(("ann", "peers"), "queries per second of exact search", ann.exact),
    "kmeans": Picture(("kmeans", "kmeans peers"), "k-means: objective against time", ann.kmeans),
    "budget": Picture(("kv",), "share of attention and error against the budget", kv.budget),
    "moved": Picture(("kv",), "share of attention and error against the bytes moved per step", kv.moved),
    "resident": Picture(("kv",), "share of attention and error against the bytes per token that stay resident", kv.resident),
    "steps": Picture(("kv", "layers"), "what the time of a step is made of", kv.steps),
    "perplexity": Picture(("perplexity",), "a language model's perplexity against its own cache's", language.perplexity),
    "lookup": Picture(("lookup",), "records that a language model finds in a long text", language.lookup),
    **{
        f"papers-{name}": Picture(("papers",), f"figure '{name}' of dci-bench papers", partial(papers.draw, name))
        for name in papers.PANELS
    },
}


def chosen(names: list[str], reports: list[Report]) -> list[str]:
    """The pictures that are asked for, or all that the reports are for; each name must be one that they are for."""
    kinds = {report.kind for report in reports}
    able = [name for name, picture in PICTURES.items() if kinds & set(picture.kinds)]
    if not able:
        kind = next(iter(kinds))
        raise InvalidError(f"{reports[0].path}: no pictures are drawn of 'dci-bench {kind}'; they are of ann, kv, layers, "
                           "papers, kmeans, language_model.py and peers' scripts; dci.report shows its tables")  # fmt: skip
    for name in names:
        if name not in PICTURES:
            raise InvalidError(f"no picture is called {name!r}; there are {', '.join(PICTURES)}")
        if name not in able:
            raise InvalidError(f"{name!r} is drawn of {' or '.join(PICTURES[name].kinds)} reports; these are of "
                               f"{', '.join(sorted(kinds))}, which give {', '.join(able)}")  # fmt: skip
    return list(dict.fromkeys(names)) or able


def drawn(name: str, reports: list[Report], options: Options) -> Any:
    """A picture of those reports that it is for; None where their rows hold nothing for it."""
    picture = PICTURES[name]
    return picture.draw([report for report in reports if report.kind in picture.kinds], options)
