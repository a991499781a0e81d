# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""whole_model.py and language_model.py on a device: GPU 0 where DCI_GPU_DEVICE says so, else the host device."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")

SCRIPTS = ROOT / "bench" / "scripts"
if not SCRIPTS.is_dir():
    pytest.skip("the scripts are those of the repository", allow_module_level=True)
GPU = os.environ.get("DCI_GPU_DEVICE", "") == "0"
FEW = "--shape tiny --lengths 96 --batches 2 --tokens 3 --warm 3 --baseline-tokens 2 --rounds 1 --turn 16 --chunk 40"


@pytest.fixture(scope="module")
def whole() -> Iterator[Any]:
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("whole_model")
    sys.path.remove(str(SCRIPTS))


def run(whole: Any, path: Any, more: str) -> list[dict[str, Any]]:
    """Rows of a run."""
    device = "0" if GPU else "host"
    arguments = [*FEW.split(), "--device", device, "--presets", "sketch:window=16", "--json", str(path), *more.split()]
    assert whole.main([*arguments, "--raise-errors"]) == 0
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def test_rows_without_a_forward(whole: Any, tmp_path: Any) -> None:
    decoded, turned = run(whole, tmp_path / "whole.json", "--arms dci --part decode,turn")
    assert decoded["n"] == 3 and decoded["pinned_gib"] > 0 and decoded["planner"] == "device"
    assert turned["turn_s"] > 0 and turned["history_bytes"] == 4 * 2 * 96 * 2 * 64  # two of three layers are dense
    if GPU:
        assert decoded["replays_per_token"] == 1 and 0 < decoded["graph_ms"] < decoded["wall_ms"]


def test_real_prompts(whole: Any, tmp_path: Any) -> None:
    decoded, first, steps, talks = run(
        whole, tmp_path / "whole.json", "--arms dci --part decode,ttft,soak --fill prompt --steps 5 --talks 2"
    )
    assert decoded["second_s"] > decoded["first_s"] > 0 and first["ratio"] > 0 and steps["n"] == 5
    assert len(talks["after"]) == 2 and talks["grown"]["pinned_gib"] == 0


@pytest.mark.skipif(not GPU, reason="CUDA graphs and transformers' offloading want a GPU")
def test_the_other_arms(whole: Any, tmp_path: Any) -> None:
    arms = "offloaded,dynamic,static-eager,static,flash,cudnn"
    rows = run(whole, tmp_path / "whole.json", f"--arms {arms} --part decode")
    assert [row["what"]["arm"] for row in rows] == arms.split(",") and all(row["n"] == 2 for row in rows)
    machine = whole.arms.Machine("0")
    model = sharpened(whole, "tiny", machine)
    loop = whole.arms.Loop(model, machine, 1, 128)
    ids = whole.arms.tokens(model, 1, 100)
    with torch.no_grad():
        wanted = model(ids, logits_to_keep=1).logits[0, -1]
        assert wanted[loop.prompt(ids, 30)[0, 0]] >= wanted.max() - 0.1 * wanted.std()  # sums in another order


def sharpened(whole: Any, name: str, machine: Any) -> Any:
    """A model whose next tokens differ: small random weights leave them nearly alike."""
    model = whole.arms.build(whole.arms.SHAPES[name], machine)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.mul_(8)
    return model


def test_agreement_with_the_cpu(whole: Any, tmp_path: Any, capsys: Any) -> None:
    pytest.importorskip("tqdm")
    tokenizers = pytest.importorskip("tokenizers")
    folder, text, file = tmp_path / "model", tmp_path / "text.md", tmp_path / "rows.json"
    words = [f"w{i}" for i in range(whole.arms.SHAPES["tiny"].vocabulary)]
    level = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0])
    plain = tokenizers.Tokenizer(level)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    hf.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token=words[0]).save_pretrained(folder)
    sharpened(whole, "tiny", whole.arms.Machine("cpu")).save_pretrained(folder)
    text.write_text(" ".join(words[(7 * i) % 500] for i in range(200)))
    agree = f"agreement --model {folder} --text {text} --prompt 120 --steps 6 --dir {tmp_path} --json {file} --preset full"
    language = importlib.import_module("language_model")
    language.main([*agree.split(), "--top", "512"])  # what a machine without a GPU says, to be taken along
    assert json.loads(file.read_text())["rows"] == []
    device = ["--device", "cuda" if GPU else "host"]
    language.main([*agree.split(), *device])
    rows = json.loads(file.read_text())["rows"]
    assert [row["what"]["arm"] for row in rows] == ["own cache", "full"]
    assert all(abs(row["divergence"]) < 5e-2 for row in rows)
    capsys.readouterr()
    language.main([*agree.split(), *device])
    assert "divergence" not in capsys.readouterr().out and json.loads(file.read_text())["rows"] == rows


def test_tasks_on_the_device(whole: Any, tmp_path: Any) -> None:
    """A prompt that the model has read once, and caches of dci on the device."""
    arms = importlib.import_module("language_model_arms")
    model = sharpened(whole, "tiny", whole.arms.Machine("0" if GPU else "host"))
    ids = torch.randint(2, 500, (1, 300), generator=torch.Generator().manual_seed(1))
    small = '{"window": 16, "sink": 4, "rollback": 16, "dense_layers": 1}'
    found = arms.specs("full,sketch,snapkv", "128", "common", small)
    reader, every = arms.arms_of(model, found, "cuda" if GPU else "host", 512)
    prompt = reader.read(ids)
    for _ in range(2):  # engines and graphs of the first time serve the second
        logits = {}
        for arm in every:
            decoder = arm.after(prompt)
            for token in (7, 8):
                decoder.feed([token])
            fork = decoder.fork()
            fork.feed([9])
            fork.close()
            logits[arm.name] = decoder.feed([10]).float()
            decoder.close()
        own, full = logits[arms.OWN], logits["full"]
        assert (own - full).abs().max() < 0.1 * own.std()
        assert all(torch.isfinite(one).all() for one in logits.values())
    for arm in every:
        arm.close()
