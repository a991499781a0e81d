# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The page of measurements: what it holds, that it is whole by itself, and what a browser makes of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlunsplit

import plot_data
import pytest

import dci

pytest.importorskip("matplotlib")
from dci import plot, report

NAMES = (*plot_data.EVERY, "growth")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags that are closed in order, names, references and the cells of tables."""

    VOID = frozenset({"meta", "link", "br", "img"})

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.references, self.tables, self.seen, self.text = [], [], [], [], set(), []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        for name, value in attributes:
            assert not name.startswith("on")
            self.ids += [value] if name == "id" else []
            self.references += [value] if name in ("src", "href", "xlink:href", "srcset", "data") else []
            self.references += re.findall(r"url\(([^)]*)\)", value or "")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of all reports: where it is."""
    folder = tmp_path_factory.mktemp("page")
    out = folder / "report.html"
    assert report.main([*plot_data.written(folder, *NAMES), "-o", str(out), "--title", "Figures <of> & for"]) == 0
    return out


def test_the_page_has_every_table_with_units(written):
    page = Page(written.read_text())
    by_heads = {tuple(table[0]): table[1:] for table in page.tables}
    assert len(page.tables) == len(NAMES) + 1  # papers have two
    ann = next(rows for heads, rows in by_heads.items() if {"arm", "build, s", "queries/s, median"} <= set(heads))
    assert ["dci mdci f32 view 16, one", "keys", "2,000", "64", "10", "1", "0.0200", "6,000"] in [row[:8] for row in ann]
    kv = next(rows for heads, rows in by_heads.items() if "moved, KiB/step" in heads)
    assert len(kv) == len(plot_data.kv()["rows"])
    assert kv[-1][-1] == "the budget is below what it keeps"
    assert by_heads["n", "build s"] == [["2,000", "0.01"], ["4,000", "0.03"]]  # a report without columns of its own
    assert all(len(row) == len(table[0]) for table in page.tables for row in table)


def test_the_page_names_machine_and_command_of_each_file(written):
    text = "".join(Page(written.read_text()).text)
    assert "cpu <Some> CPU & Co, cores 2, isa avx2" in text
    for name in ("ann", "kv", "layers", "papers", "kmeans"):
        assert f"dci-bench {name} --json {name}.json" in text
    assert "the file does not say" in text  # peers


def test_the_page_has_every_picture_once_and_its_names_are_its_own(written):
    page = Page(written.read_text())
    assert {one for one in page.ids if one.startswith("picture-")} == {
        f"picture-{name}" for name in ("recall", "total", "exact", "kmeans", "budget", "moved", "resident", "steps",
                                       "perplexity", "lookup",
                                       "papers-jaccard", "papers-resident")}  # fmt: skip
    assert len(page.ids) == len(set(page.ids))
    inside = {one[1:] for one in page.references if one.startswith("#")}
    assert inside and inside <= set(page.ids)


def test_the_page_asks_for_nothing_and_runs_nothing(written):
    page = Page(written.read_text())
    assert all(one.startswith("#") or one == "data:," for one in page.references)
    assert not page.seen & {"script", "iframe", "object", "embed", "img", "form"}
    assert "@import" not in written.read_text()


def test_equal_reports_give_equal_pages(tmp_path):
    reports = [plot.read(path) for path in plot_data.written(tmp_path, "kv", "layers")]
    assert report.page(reports) == report.page(reports)


def test_a_report_without_pictures_is_a_table(tmp_path):
    (path,) = plot_data.written(tmp_path, "growth")
    page = Page(report.page([plot.read(path)]))
    assert len(page.tables) == 1 and "svg" not in page.seen


REFUSED = {
    "a file of another format": (["-o", "x.txt"], "x.txt: a page is written as .html"),
    "no folder": (["-o", "nowhere/x.html"], "nowhere/x.html: cannot be written"),
    "an unknown trace": (["-o", "x.html", "--trace", "b"], "no trace is called b"),
    "a foreign file": (["-o", "x.html", "foreign.json"], "foreign.json: holds no 'rows'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_leaves_no_page(tmp_path, monkeypatch, capsys, case):
    monkeypatch.chdir(tmp_path)
    options, part = REFUSED[case]
    (tmp_path / "foreign.json").write_text("{}")
    files = [*plot_data.written(tmp_path, "kv"), *[one for one in options if one.endswith(".json")]]
    assert report.main([*files, *[one for one in options if one not in files]]) == 2
    said = capsys.readouterr()
    assert part in said.err and said.err.startswith("dci.report: ") and said.err.count("\n") == 1
    assert {one.suffix for one in tmp_path.iterdir()} == {".json"}


def test_no_reports_are_no_page():
    with pytest.raises(dci.InvalidError, match="one report at least"):
        report.page([])


# --- in a browser ---------------------------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and notes what it is asked for."""

    def log_request(self, code="-", size="-"):
        self.server.asked.append(self.path)

    def log_error(self, *_):
        pass


@pytest.fixture
def browse(tmp_path):
    """What headless Chromium makes of a page of a folder: its DOM, what it asked for, and what it had to say."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    server.asked = []
    threading.Thread(target=server.serve_forever).start()

    def browsed(name):
        url = urlunsplit(("http", f"127.0.0.1:{server.server_port}", name, "", ""))
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
             "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", f"--user-data-dir={tmp_path / 'profile'}",
             "--no-first-run", "--dump-dom", url],
            capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
        return done.stdout, server.asked, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]

    yield browsed
    server.shutdown()
    server.server_close()


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@needs_chromium
def test_a_browser_shows_the_tables_and_asks_for_nothing_else(written, tmp_path, browse):
    shutil.copy(written, tmp_path / "page.html")
    dom, asked, console = browse("page.html")
    assert Page(re.sub(r"^.*?<html", "<html", dom, flags=re.DOTALL)).tables == Page(written.read_text()).tables
    assert dom.count("<svg") == 12 and "<title>Figures &lt;of&gt; &amp; for</title>" in dom
    assert asked == ["/page.html"]
    assert console == []


@needs_chromium
def test_the_browser_would_tell_of_requests_and_scripts(written, tmp_path, browse):
    """So that the test above can fail; and the page forbids them, should one get into it."""
    more = '<img src="none.png"><script>console.error("ran")</script>'
    head = '<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head>'
    (tmp_path / "free.html").write_text(f"{head}<body>{more}</body></html>")
    _, asked, console = browse("free.html")
    assert asked == ["/free.html", "/none.png"]
    assert len(console) == 1 and "ran" in console[0]
    (tmp_path / "page.html").write_text(written.read_text().replace("</body>", f"{more}</body>"))
    _, asked, console = browse("page.html")
    assert asked[2:] == ["/page.html"]
    assert not any("ran" in line for line in console)
