# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Pictures of reports: what they show, that they read without colours and repeat byte by byte, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import plot_data
import pytest

import dci

pytest.importorskip("matplotlib")
from dci import plot
from dci._plots import kv, style
from dci._plots.ann import Arm, frontier
from dci._plots.progress import progress

# Of each report the pictures that it gives.
GIVES = {
    "ann": {"recall", "total", "exact"},
    "rounds": {"recall", "total", "exact"},
    "peers": {"recall", "total", "exact"},
    "kv": {"budget", "moved", "resident", "steps"},
    "layers": {"steps"},
    "kmeans": {"kmeans"},
    "kmeans_peers": {"kmeans"},
    "papers": {"papers-jaccard", "papers-resident"},
    "perplexity": {"perplexity"},
    "lookup": {"lookup"},
}


def reports(folder, *names):
    return [plot.read(path) for path in plot_data.written(folder, *names)]


def drawn(folder, what, *names, **options):
    return plot.draw(what, reports(folder, *names), **options)


def lines(axes):
    """{label: points} of the lines that are in the legend."""
    return {one.get_label(): list(zip(*map(list, one.get_data()))) for one in axes.get_lines() if one.get_label()[0] != "_"}


def bars(axes):
    """{label: widths} of stacked bars."""
    return {one.get_label(): [bar.get_width() for bar in one] for one in axes.containers if one.get_label()[0] != "_"}


# --- the command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GIVES)
@pytest.mark.parametrize("form", ["png", "svg"])
def test_every_report_gives_its_pictures(tmp_path, monkeypatch, capsys, name, form):
    monkeypatch.chdir(tmp_path)
    (path,) = plot_data.written(tmp_path, name)
    assert plot.main([path, "-o", f"out.{form}"]) == 0
    wanted = {f"out-{what}.{form}" for what in GIVES[name]} if len(GIVES[name]) > 1 else {f"out.{form}"}
    assert {one.name for one in tmp_path.glob(f"*.{form}")} == wanted == set(capsys.readouterr().out.split())
    for one in wanted:
        head = (tmp_path / one).read_bytes()[:300]
        assert head.startswith(b"\x89PNG\r\n") if form == "png" else b"<svg" in head or b"<!DOCTYPE svg" in head


def test_equal_reports_give_equal_files(tmp_path):
    """Also in another process, whose hashes of texts differ, and with settings of the user's."""
    (path,) = plot_data.written(tmp_path, "kv")
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 20\nsvg.hashsalt: mine\n")
    for form in ("svg", "png"):
        out = [tmp_path / f"{n}.{form}" for n in range(2)]
        assert plot.main([path, "--what", "budget", "-o", str(out[0])]) == 0
        again = [sys.executable, "-m", "dci.plot", path, "--what", "budget", "-o", str(out[1])]
        subprocess.run(again, check=True, cwd=tmp_path)
        assert out[0].read_bytes() == out[1].read_bytes()


def test_names_of_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    paths = plot_data.written(tmp_path, "papers", "layers")
    assert plot.main(paths) == 0
    assert capsys.readouterr().out.split() == ["papers-steps.png", "papers-jaccard.png", "papers-resident.png"]
    assert plot.main([f"Two layers={paths[1]}", "--what", "steps", "-o", "one.svg"]) == 0
    assert (tmp_path / "one.svg").exists()


# --- what pictures show ---------------------------------------------------------------------------------------------------


def test_recall_shows_what_no_other_of_the_line_beats(tmp_path):
    (axes,) = drawn(tmp_path, "recall", "ann").axes
    assert lines(axes)["dci mdci f32, one"] == [(0.8, 9e3), (0.97, 6e3), (0.999, 2e3)]
    assert lines(axes)["dci flat f32 4-bit codes, one"] == [(0.98, 2.5e3)]
    left, right = drawn(tmp_path, "recall", "rounds", "peers").axes
    assert lines(left)["dci mdci f16, one"] == [(0.96, 9000), (0.99, 5000)]
    assert lines(left)["ivf IVF599, one"] == [(0.97, 4000)]
    assert lines(right)["hnswlib M 16, one"] == [(0.96, 4000)]


def test_total_is_build_and_queries_of_the_cheapest_arm_that_reaches_the_recall(tmp_path):
    (axes,) = drawn(tmp_path, "total", "ann").axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    found = dict(zip(names, zip(*bars(axes).values())))
    assert list(found) == sorted(found, key=lambda name: sum(found[name]))
    assert found["dci mdci f32 view 16, one"] == pytest.approx((0.02, 500 / 6e3))
    assert found["dci flat f32 4-bit codes x2, one"] == pytest.approx((0.001, 500 / 2.5e3))
    assert not any("2-bit" in name or "view 4" in name for name in names)  # below the recall
    (axes,) = drawn(tmp_path, "total", "ann", recall=0.999, queries=10).axes
    assert min(bars(axes)["queries"]) == pytest.approx(10 / 9e3)
    with pytest.raises(dci.InvalidError, match="nothing for the picture 'total'"):
        drawn(tmp_path, "total", "peers", recall=1.1)


def test_exact_has_a_panel_for_each_way_to_ask_and_leaves_out_what_is_not(tmp_path):
    one, many = drawn(tmp_path, "exact", "rounds").axes
    # The fastest exact effort of each index, the slowest index first; bars are medians and begin at 0.
    assert [label.get_text() for label in one.get_yticklabels()] == ["sq SQ8 k_factor 2", "faiss-flat", "dci flat f32"]
    assert bars(one) == {"dci": [1000], "others": [700, 800]}
    assert [label.get_text() for label in many.get_yticklabels()] == ["faiss-flat", "dci flat f32"]
    assert bars(many) == {"dci": [8000], "others": [3000]}
    for axes in (one, many):
        assert axes.get_xscale() == "linear" and axes.get_xlim()[0] == 0


def test_share_and_error_against_budget_bytes_moved_and_bytes_resident(tmp_path):
    figure = drawn(tmp_path, "budget", "kv")
    share, error, *_ = figure.axes
    assert len(figure.axes) == 4  # of two traces
    assert lines(share)["sketch K4"] == [(b, pytest.approx(1 - 40 / b * 1.25)) for b in (128, 256, 512)]
    assert "sketch K2" not in lines(share)  # the widest codes stand for a preset
    assert "sketch+lowbit K4 V2" not in lines(share)  # chooses as sketch
    assert lines(error)["sketch+lowbit K4 V2"] == [(b, pytest.approx(40 / b / 9)) for b in (128, 256, 512)]
    share, error, *_ = drawn(tmp_path, "moved", "kv").axes
    assert [x for x, _ in lines(share)["quest"]] == [32, 64, 128]  # KiB
    assert "full" not in lines(share)
    share, error, *_ = drawn(tmp_path, "resident", "kv", budget=512).axes
    assert lines(share)["topk"] == [(128, pytest.approx(1 - 40 / 512))]
    assert lines(share)["full"] == [(256, pytest.approx(1))]
    assert [x for x, _ in lines(error)["sketch"]] == [16, 32]
    assert "full" not in lines(error)  # errs by rounding alone
    assert len(drawn(tmp_path, "budget", "kv", traces=["a/layer2"]).axes) == 2


def test_few_lines_are_named_where_they_are_drawn(tmp_path):
    figure = drawn(tmp_path, "resident", "kv", presets=["topk", "quest", "sketch", "sketch+lowbit"])
    assert not figure.legends
    figure.draw_without_rendering()
    for axes in figure.axes:
        colours = {one.get_label(): one.get_color() for one in axes.get_lines()}
        names = [text for text in axes.texts if text.get_text() in colours]
        assert [text.get_text() for text in names] == list(colours)
        boxes = [text.get_window_extent() for text in names]
        for text, box in zip(names, boxes):
            assert text.get_color() == colours[text.get_text()]
            assert sum(box.overlaps(other) for other in boxes) == 1  # itself
            assert box.x1 <= figure.bbox.x1
        assert {text.get_text() for text in axes.texts if text not in names} == {"2", "4"}  # bits, in markers
    with pytest.raises(dci.InvalidError, match="no rows of the preset 'arkvale'; there are topk, quest, a later one"):
        drawn(tmp_path, "resident", "kv", presets=["arkvale"])
    many = [plot_data.kv_row("t", f"preset {i}", 256, 0.1) for i in range(12)]
    assert plot.draw("resident", [with_rows(tmp_path, "many", many)]).legends


def with_rows(folder, name, rows):
    path = folder / f"{name}.json"
    path.write_text(json.dumps(plot_data.report("kv", rows)))
    return plot.read(str(path))


def test_seeds_are_averaged_and_other_options_are_lines_of_their_own(tmp_path):
    row = plot_data.kv_row
    seeds = with_rows(tmp_path, "seeds", [row("t", "sketch", 256, e, 4, False, seed=s) for s, e in ((0, 0.1), (1, 0.3))])
    assert lines(plot.draw("budget", [seeds]).axes[0]) == {"sketch K4": [pytest.approx((256, 0.8))]}
    kept = with_rows(tmp_path, "kept", [row("t", "quest", 256, e, kept=k) for k, e in (("common", 0.1), ("paper", 0.3))])
    share, _ = plot.draw("budget", [seeds, kept]).axes
    assert set(lines(share)) == {"sketch K4", "quest, kept common", "quest, kept paper"}
    assert len({(one.get_marker(), one.get_linestyle()) for one in share.get_lines()}) == 3


def test_steps_are_made_of_their_parts(tmp_path):
    (axes,) = drawn(tmp_path, "steps", "layers").axes
    assert bars(axes) == {"append": [1, 1], "plan": [300, 800], "attend": [50, 50]}  # maintain was due now and then
    assert "8,000 us" in axes.get_title(loc="left")
    axes = drawn(tmp_path, "steps", "kv").axes[0]
    assert set(bars(axes)) == {"append", "plan", "attend", "maintain"}


def test_kmeans_is_the_mean_objective_over_time(tmp_path):
    (axes,) = drawn(tmp_path, "kmeans", "kmeans_peers").axes
    assert lines(axes)["faiss, 1 thread"] == [pytest.approx((0.05 * i, 0.7 + 0.05 * i)) for i in (1, 2, 3, 4)]
    assert set(lines(axes)) == {"dci, 1 thread", "faiss, 1 thread"}


def test_a_language_model_is_held_against_its_own_cache(tmp_path):
    (axes,) = drawn(tmp_path, "perplexity", "perplexity").axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["pagemean, 256", "sketch, 256", "sketch+lowbit, 256"]
    assert bars(axes) == {"dci's own presets": pytest.approx([2.0, -0.2]), "others": pytest.approx([20.0])}
    panels = drawn(tmp_path, "lookup", "lookup").axes
    # Nothing finds the list.
    assert [axes.get_title(loc="left") for axes in panels] == ["single", "multi-key", "multi-value"]
    assert bars(panels[0]) == {"the model's own cache": [0.75], "dci's own presets": [0.5], "others": [0.0]}


def test_titles_name_files_and_are_taken_as_they_are(tmp_path):
    (path,) = plot_data.written(tmp_path, "rounds")
    figure = plot.draw("exact", [plot.read(path, r"Keys of $10^3, $\frac{")])
    assert figure.axes[0].get_title(loc="left").splitlines()[0] == r"Keys of $10^3, $\frac{"
    plot.save(figure, str(tmp_path / "x.svg"))


def test_a_bar_of_progress_leaves_out_nothing(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    assert list(progress("abc", "pictures")) == ["a", "b", "c"] and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress("abc", "pictures")) == ["a", "b", "c"] and "pictures" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(progress("abc", "pictures")) == ["a", "b", "c"] and capsys.readouterr().err == ""


# --- form -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "names"), [("recall", ["ann", "rounds", "peers"]), ("budget", ["kv"]), ("moved", ["kv"]),
                                             ("resident", ["kv"]), ("kmeans", ["kmeans", "kmeans_peers"]),
                                             ("papers-jaccard", ["papers"])])  # fmt: skip
def test_lines_differ_without_their_colours(tmp_path, what, names):
    for axes in filter(lambda one: one.axison, drawn(tmp_path, what, *names).axes):
        looks = [(one.get_marker(), one.get_linestyle(), one.get_markerfacecolor() == "white")
                 for one in axes.get_lines() if one.get_label()[0] != "_"]  # fmt: skip
        assert len(looks) == len(set(looks)) > 0


@pytest.mark.parametrize(("what", "names"), [("total", ["ann"]), ("exact", ["rounds"]), ("steps", ["kv"]),
                                             ("perplexity", ["perplexity"]), ("lookup", ["lookup"])])  # fmt: skip
def test_bars_differ_without_their_colours(tmp_path, what, names):
    for axes in drawn(tmp_path, what, *names).axes:
        looks = []
        for group in axes.containers:
            if group.get_label()[0] != "_":
                red, green, blue, _ = group[0].get_facecolor()
                looks.append((group[0].get_hatch(), round(0.299 * red + 0.587 * green + 0.114 * blue, 1)))
        assert len(looks) == len(set(looks)) > 1


def test_many_lines_differ():
    looks = [(one.marker, one.dashes, one.hollow) for one in map(style.numbered, range(88))]
    assert len(set(looks)) == 88


def test_presets_of_the_library_have_looks_of_their_own():
    every = [*kv.LOOKS.values(), *kv.FREE]
    assert len({(one.marker, one.dashes, one.hollow) for one in every}) == len(every)


@pytest.mark.parametrize("what", ["recall", "total", "exact", "budget", "moved", "resident", "steps", "kmeans", "perplexity",
                                  "lookup"])  # fmt: skip
def test_legends_cover_no_data_and_axes_have_units(tmp_path, what):
    figure = drawn(tmp_path, what, *GIVES)
    figure.draw_without_rendering()
    for axes in figure.axes:
        if axes.axison:
            assert axes.get_xlabel()
            for legend in figure.legends:
                assert not legend.get_window_extent().overlaps(axes.get_window_extent())


# --- bad input ------------------------------------------------------------------------------------------------------------


def changed(name, **fields):
    content = plot_data.EVERY[name]()
    content["rows"][1].update(fields)
    return json.dumps(content)


def without(name, field):
    content = plot_data.EVERY[name]()
    del content["rows"][0][field]
    return json.dumps(content)


REFUSED = {
    "no JSON": ("{", "is not JSON"),
    "no text": (b"\xff\xfe\x00", "is not JSON"),
    "not a number": ('{"rows": [NaN]}', "NaN is not a number"),
    "deep": ("[" * 100_000, "is n"),  # nested too deeply, or not JSON, by version
    "a number": ("7", "holds no 'rows'"),
    "another's": ('{"benchmarks": []}', "holds no 'rows'"),
    "an empty list": ("[]", "neither of rounds nor of rows"),
    "a foreign list": ('[{"a": 1}]', "neither of rounds nor of rows"),
    "no command": ('{"machine": {}, "rows": []}', "by which command"),
    "no machine": ('{"command": ["dci-bench", "kv"], "rows": [{}]}', "on which machine"),
    "no rows": (json.dumps(plot_data.report("kv", [])), "holds no rows"),
    "rows of numbers": (json.dumps(plot_data.report("kv", [1])), "not a list of objects"),
    "a field is missing": (without("kv", "share"), "row 0 has nothing as 'share', wanted a number or null"),
    "a text for a number": (changed("kv", err="small"), "row 1 has 'small' as 'err'"),
    "true for a number": (changed("kv", err=True), "row 1 has True as 'err'"),
    "infinity": (changed("kv", err=1).replace('"err": 1,', '"err": 1e999,'), "row 1 has inf as 'err'"),
    "beyond floats": (changed("ann", recall=10**400), "row 1 has 1000"),
    "no speed": (changed("ann", qps=0), "row 1 has 0 as 'qps', wanted a number above 0"),
    "a text for an effort": (changed("ann", params={"prop_to_visit": "half"}), "wanted an object of numbers"),
    "no history": (changed("kmeans", history=[{"seconds": 0}]), "wanted a list of {seconds above 0, objective}"),
    "an arm in one round only": ('[{"a / one": [1, 1, 1]}, {"b / one": [1, 1, 1]}]', "'a / one'"),
    "a peer without recall": ('[{"name": "a", "qps": 5, "build_s": 1}]', "row 0 has nothing as 'recall'"),
    "a figure's field is missing": (without("papers", "within"), "a row of 'jaccard' has no 'within'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_report_is_refused_by_its_name(tmp_path, monkeypatch, capsys, case):
    monkeypatch.chdir(tmp_path)
    content, part = REFUSED[case]
    path = tmp_path / "some report.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (good,) = plot_data.written(tmp_path, "layers")
    assert plot.main([good, str(path)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"dci.plot: {path}: ") or case == "a figure's field is missing"
    assert part in said.err and "some report.json" in said.err and said.err.count("\n") == 1
    assert not said.out and not list(tmp_path.glob("*.png"))  # nothing of the good one either
    if "field" not in case:
        with pytest.raises((dci.FormatError, dci.InvalidError)):
            plot.read(str(path))


ASKED = {
    "an unknown picture": ("kv", ["--what", "budgets"], "no picture is called 'budgets'"),
    "another report's picture": ("kv", ["--what", "recall"], "'recall' is drawn of ann or peers reports"),
    "an unknown budget": ("kv", ["--what", "resident", "--budget", "300"], "there are 128, 256, 512"),
    "an unknown trace": ("kv", ["--trace", "b"], "no trace is called b; there are a/layer1, a/layer2"),
    "a recall": ("ann", ["--recall", "95"], "--recall is 95"),
    "queries": ("ann", ["--queries", "0"], "--queries is 0"),
    "another format": ("kv", ["-o", "x.pdf"], "x.pdf: pictures are written as .png or .svg"),
    "no folder": ("kv", ["-o", "nowhere/x.png"], "cannot be written: No such file"),
    "nothing to draw": ("kv", ["--what", "resident", "--value-bits", "2", "--trace", ""], "no trace is called"),
    "a report without pictures": ("growth", [], "no pictures are drawn of 'dci-bench growth'"),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_cannot_be_drawn_is_refused(tmp_path, monkeypatch, capsys, case):
    monkeypatch.chdir(tmp_path)
    name, options, part = ASKED[case]
    assert plot.main([*plot_data.written(tmp_path, name), *options]) == 2
    said = capsys.readouterr()
    assert part in said.err and said.err.count("\n") == 1
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".json"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(dci.FileError, match=r"none\.json: cannot be read: No such file"):
        plot.read(str(tmp_path / "none.json"))


def test_a_picture_that_is_there_stays_when_the_new_one_fails(tmp_path, monkeypatch):
    out = tmp_path / "x.png"
    out.write_bytes(b"old")
    figure = drawn(tmp_path, "budget", "kv")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(dci.FileError, match=r"x\.png: cannot be written: No space left"):
        plot.save(figure, str(out))
    assert out.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 2


def test_too_many_panels_ask_for_traces(tmp_path):
    path = tmp_path / "kv.json"
    path.write_text(json.dumps(plot_data.kv([f"t{i}" for i in range(30)])))
    with pytest.raises(dci.InvalidError, match=r"60 panels are more .*--trace"):
        plot.draw("budget", [plot.read(str(path))])


def test_without_matplotlib_the_command_says_what_to_install(tmp_path):
    """And dci, dci.plot and reading reports do without."""
    (path,) = plot_data.written(tmp_path, "kv")
    code = ("import sys; sys.modules['matplotlib'] = None\nfrom dci import plot\n"
            f"plot.read({path!r})\nsys.exit(plot.main([{path!r}]))")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "pip install 'matplotlib>=3.7'" in done.stderr and done.stderr.count("\n") == 1


def test_matplotlib_is_imported_by_pictures_only():
    code = "import sys, dci, dci.plot, dci.report; sys.exit('matplotlib' in sys.modules or 'tqdm' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_frontier_of_equal_arms_is_one_of_them():
    measured = ((5.0, 0.9), (5.0, 0.9), (4.0, 0.9), (5.0, 0.8), (7.0, 0.1))
    arms = [Arm("a", "a", q, q, q, r, 0.0, None) for q, r in measured]
    assert [(a.recall, a.qps) for a in frontier(arms)] == [(0.1, 7.0), (0.9, 5.0)]
