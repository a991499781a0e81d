# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""docs/coming-from.md: the blocks of each library run, and say the same as those of dci."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, normal

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
SECTIONS = {
    part.split("\n", 1)[0]: re.findall(r"^```(py|python)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    for part in PAGE.split("\n## ")[1:]
}
PACKAGES = {"faiss": "faiss", "hnswlib": "hnswlib", "usearch": "usearch", "scikit-learn": "sklearn"}


def run(code: str, folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {
        "rows": normal(2000, 64),
        "queries": normal(5, 64, seed=2),
        "ids": np.random.default_rng(3).permutation(5000)[:2000].astype(np.int64),
        "folder": str(folder),
    }
    exec(compile(code, "docs/coming-from.md", "exec"), names)
    return names


def blocks_of(library: str) -> tuple[str, str]:
    (theirs_kind, theirs), (ours_kind, ours) = SECTIONS[library]
    assert (theirs_kind, ours_kind) == ("py", "python")
    return theirs, ours


def needs(library: str) -> None:
    """Blocks of scikit-learn's section import it on both sides."""
    if importlib.util.find_spec(PACKAGES[library]) is None:
        pytest.skip(f"{library} is not installed")


def test_every_library_has_about_ten_lines_on_each_side():
    assert list(SECTIONS) == list(PACKAGES)
    for library in SECTIONS:
        for block in blocks_of(library):
            assert 8 <= len([line for line in block.splitlines() if line]) <= 11


@pytest.mark.parametrize("library", PACKAGES)
def test_the_lines_of_dci_find_the_nearest_rows(library, tmp_path):
    if library == "scikit-learn":
        needs(library)
    names = run(blocks_of(library)[1], tmp_path)
    rows, queries = names["rows"], names["queries"]
    if library in ("hnswlib", "usearch"):
        rows, queries = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (rows, queries))
    distances = ((queries[:, None] - rows[None]) ** 2).sum(-1)
    order = np.argsort(distances, axis=1)[:, :10]
    truth = order if library == "scikit-learn" else names["ids"][order]
    hits = np.mean([np.isin(a, b).mean() for a, b in zip(truth, names["found"])])
    assert hits == 1 if library in ("faiss", "scikit-learn") else hits >= 0.9


@pytest.mark.parametrize("library", PACKAGES)
def test_both_sides_say_the_same(library, tmp_path):
    needs(library)
    theirs, ours = (run(code, tmp_path) for code in blocks_of(library))
    shared = set(theirs) & set(ours) - {"rows", "queries", "ids", "folder", "index", "dci", "__builtins__"}
    assert len(shared) >= 3
    hits = np.mean([np.isin(a, b).mean() for a, b in zip(theirs["found"], ours["found"])])
    assert hits == 1 if library in ("faiss", "scikit-learn") else hits >= 0.9
    for name in ("n", "present"):
        assert theirs.get(name) == ours.get(name)
    for name in ("row", "vector", "vectors"):
        if name in theirs:
            want, got = np.asarray(theirs[name]), np.asarray(ours[name])
            if library == "hnswlib":  # it keeps unit rows
                got = got / np.linalg.norm(got)
            np.testing.assert_allclose(want, got, rtol=1e-3, atol=1e-3)
    if library == "scikit-learn":
        np.testing.assert_allclose(theirs["distances"], ours["distances"], rtol=1e-5, atol=1e-5)
        assert (theirs["graph"] != ours["graph"].astype(theirs["graph"].dtype)).mean() < 1e-3 or np.allclose(
            theirs["graph"].toarray(), ours["graph"].toarray(), rtol=1e-4, atol=1e-3
        )
        assert ours["inertia"] < 1.05 * theirs["inertia"]
