# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""bench/scripts/whole_model.py on the CPU: the loop is the model, a second run goes on where the first one ended."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.0")

SCRIPTS = ROOT / "bench" / "scripts"
FEW = "--shape tiny --lengths 96 --batches 2 --tokens 3 --warm 2 --baseline-tokens 2 --rounds 1 --turn 16 --steps 4"
if not SCRIPTS.is_dir():
    pytest.skip("the scripts are those of the repository", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def whole() -> Any:
    return importlib.import_module("whole_model")


def sharpened(whole: Any, name: str, **changes: Any) -> Any:
    """A model whose next tokens differ: small random weights leave them nearly alike."""
    model = whole.arms.build(whole.arms.SHAPES[name]._replace(**changes), whole.arms.Machine("cpu"))
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.mul_(8)
    return model


@pytest.mark.parametrize("name", ["tiny", "SmolLM2-135M", "Qwen3-8B"])
def test_the_loop_is_the_model(whole: Any, name: str) -> None:
    arms = whole.arms
    machine, model = arms.Machine("cpu"), sharpened(whole, name, layers=2, hidden=288, inner=256, vocabulary=512).float()
    ids, n = arms.tokens(model, 2, 40), 6
    with torch.no_grad():
        wanted = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False)[:, 40:]
        assert torch.equal(arms.Loop(model, machine, 2, 40).prompt(ids, 0), wanted[:, :1])
        loop = arms.Loop(model, machine, 2, 40 + n)
        got = [loop.prompt(ids, 16)]
        for i in range(n - 1):
            got.append(loop.chunk(got[-1], 40 + i))
    assert len(set(wanted.flatten().tolist())) > 2
    assert torch.equal(torch.cat(got, 1), wanted)


def test_a_step_attends_to_the_context(whole: Any) -> None:
    """A loop's step, whose buffers end with its token, is a chunk of one; so is one of transformers' caches."""
    arms = whole.arms
    machine = arms.Machine("cpu")
    model = arms.build(arms.SHAPES["tiny"], machine).float()
    token = torch.full((1, 1), 2)
    loop = arms.Loop(model, machine, 1, 31)
    loop.fill(30)
    want = loop.chunk(token, 30)
    cache = hf.DynamicCache(config=model.config)
    for number, layer in enumerate(arms.rows_of(model, 1, 30).layers):
        cache.update(layer.keys, layer.values, number)
    with torch.no_grad():
        assert torch.equal(model(token, past_key_values=cache).logits[:, -1:].argmax(-1), want)
        kept = [keys.clone() for keys in loop.keys]
        loop.step(30)()
    for before, after in zip(kept, loop.keys):
        torch.testing.assert_close(before, after)


def test_all_parts_run_and_go_on(whole: Any, tmp_path: Any, capsys: Any) -> None:
    file, page = tmp_path / "whole.json", tmp_path / "page.md"
    every = [*FEW.split(), "--device", "cpu", "--fill", "prompt", "--chunk", "40", "--presets", "sketch:window=16"]
    every += ["--part", "decode,ttft,turn,soak", "--arms", "dynamic,static,static-eager,flash,dci", "--json", str(file)]
    every += ["--talks", "2"]
    assert whole.main([*every, "--seconds", "0.01"]) == whole.LEFT
    left = capsys.readouterr().out
    assert "s are over" in left and "left: talks" in left
    some = len(json.loads(file.read_text())["rows"]) if file.exists() else 0
    assert whole.main([*every, "--raise-errors", "--out", str(tmp_path / "out")]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 10 > some
    assert json.loads((tmp_path / "out" / "whole.json").read_text())["rows"] == rows
    capsys.readouterr()
    assert whole.main(every) == 0  # all is there
    assert "decode" not in capsys.readouterr().out
    decoded = [row for row in rows if row["what"]["part"] == "decode"]
    assert {row["n"] for row in decoded} == {2, 3} and all(row["ms"] > 0 for row in decoded)
    shutil.copy(ROOT / "docs" / "whole-model.md", page)
    assert whole.main(["--json", str(file), "--part", "none", "--page", str(page)]) == 0
    text = page.read_text()
    assert "| **dci, `sketch:window=16`** |" in text and "StaticCache" in text and "| cpu |" in text


def test_rows_without_a_forward_are_those_of_the_stock_model(whole: Any) -> None:
    arms = whole.arms
    machine, model = arms.Machine("cpu"), sharpened(whole, "tiny").float()
    ids = arms.tokens(model, 2, 41)
    stock = hf.DynamicCache(config=model.config)
    for number, layer in enumerate(arms.rows_of(model, 2, 40).layers):
        stock.update(layer.keys, layer.values, number)
    with torch.no_grad():
        wanted = arms.generate(model, ids, stock, 5, arms.Clock(machine))
        with arms.enabled(model, machine, "full", 256, 2, 64, 0):
            cache = arms.filled(model, arms.rows_of(model, 2, 40))
            assert torch.equal(arms.generate(model, ids, cache, 5, arms.Clock(machine)), wanted)
            assert cache.get_seq_length() == 45


def test_what_does_not_fit_is_a_result(whole: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(whole, "available_bytes", lambda: 1000)
    file = tmp_path / "whole.json"
    few = [*FEW.split(), "--device", "cpu", "--fill", "prompt", "--presets", "sketch", "--arms", "dci", "--json", str(file)]
    assert whole.main(few) == 0
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 1 and all("and the host has" in row["why"] for row in rows)


@pytest.mark.parametrize(
    "wrong", ["--part parts", "--arms vllm", "--shape huge", "--tokens 0", "--lengths 0", "--baseline-tokens 60"]
)
def test_wrong_options_are_refused(whole: Any, wrong: str) -> None:
    with pytest.raises(SystemExit):
        whole.main(wrong.split())
