# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The examples that the documents show run as they stand."""

from __future__ import annotations

import importlib.util
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, normal

DOCUMENTS = ("README.md", "python/README.md")


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="an example needs scikit-learn")
def test_the_examples_run(name, monkeypatch):
    examples = blocks(ROOT / name)
    assert examples
    # Examples may leave files behind, and the later ones use what the earlier ones made.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.chdir(folder)
        # Those of README.md go on from C's, which has keys and queries.
        names: dict[str, object] = {"keys": normal(1000, 64), "queries": normal(5, 64)}
        for number, example in enumerate(examples):
            exec(compile(example, f"{name}, block {number}", "exec"), names)
        monkeypatch.undo()
    ids = names["ids"]
    assert isinstance(ids, np.ndarray) and ids.min() >= 0
