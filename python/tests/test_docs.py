# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Every block of Python in the documents runs: in order, one namespace per document."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = ("docs/gpu.md", "docs/tutorial.md", "python/README.md")


def blocks(text: str) -> list[tuple[int, str]]:
    """[(the line that a block begins on, its code)]"""
    return [(text.count("\n", 0, found.start(1)) + 1, found.group(1)) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_run(name, monkeypatch):
    path = ROOT / name
    monkeypatch.chdir(ROOT)
    namespace: dict[str, Any] = {"__name__": "document"}
    found = blocks(path.read_text())
    assert found
    for line, code in found:
        # Lines of a traceback are those of the document.
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)


def test_blocks_are_found_with_their_lines():
    text = "a\n```python\nx = 1\ny = 2\n```\n```sh\nls\n```\n\n```python\nz = 3\n```\n"
    assert blocks(text) == [(3, "x = 1\ny = 2\n"), (11, "z = 3\n")]
