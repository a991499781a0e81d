# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""bench/scripts/language_model.py with a tiny model: a prompt is read once for all arms, and runs go on."""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("tqdm")

import dci.transformers  # noqa: E402 - it needs what was looked for above

SCRIPTS = ROOT / "bench" / "scripts"
if not SCRIPTS.is_dir():
    pytest.skip("the scripts are those of the repository", allow_module_level=True)
GPU = os.environ.get("DCI_GPU_DEVICE", "") == "0"
SMALL = {"window": 16, "sink": 4, "rollback": 16, "dense_layers": 1}
OPTIONS = json.dumps(SMALL)


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def language() -> Any:
    return importlib.import_module("language_model")


@pytest.fixture(scope="module")
def arms() -> Any:
    return importlib.import_module("language_model_arms")


def tiny() -> Any:
    """A model whose next tokens differ: small random weights leave them nearly alike."""
    whole = importlib.import_module("whole_model_arms")
    model = whole.build(whole.SHAPES["tiny"], whole.Machine("cpu"))
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.mul_(8)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokens are pieces of the words of tasks."""
    path, tasks = tmp_path_factory.mktemp("model"), importlib.import_module("language_model_tasks")
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=512, initial_alphabet=alphabet, show_progress=False)
    samples = (tasks.Maker(len).sample(name, 1, 5000) for name in ("single", "lookups", "chain"))
    plain.train_from_iterator([sample.document + sample.turns[0].text for sample in samples], trainer)
    hf.PreTrainedTokenizerFast(tokenizer_object=plain).save_pretrained(path)
    tiny().save_pretrained(path)
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_a_prompt_in_two_parts_is_one_prompt(arms: Any) -> None:
    reader, ids = arms.Reader(tiny().float()), torch.arange(2, 202)[None]
    whole, first = reader.read(ids), reader.read(ids[:, :170])
    both = reader.read(ids[:, 170:], first)
    assert first.n == 170 and both.n == whole.n == 200  # what comes after leaves a prompt as it is
    torch.testing.assert_close(both.logits, whole.logits, rtol=1e-4, atol=1e-4)
    for layer in range(3):
        assert both.queries[layer].shape == (1, 4, arms.OBSERVED, 64)
        torch.testing.assert_close(both.queries[layer], whole.queries[layer], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("preset", ["full", "sketch", "sketch+verify", "snapkv", "clusterkv", "louiskv", "icecache"])
def test_a_filled_cache_is_one_that_read_the_prompt_itself(arms: Any, preset: str) -> None:
    """Also for presets that look at the prompt's last queries."""
    model, ids = tiny().float(), torch.randint(2, 500, (1, 400), generator=torch.Generator().manual_seed(1))
    spec = arms.Spec(preset, {"budget": 128, **SMALL})
    plain = copy.deepcopy(model)
    reader, found = arms.arms_of(model, [spec], "cpu", 512)
    assert [arm.name for arm in found] == [arms.OWN, preset]
    decoder = found[1].after(reader.read(ids))
    dci.transformers.enable(plain, preset, **spec.options)
    cache = dci.transformers.new_cache(plain)
    with torch.no_grad():
        last = plain(ids, past_key_values=cache, logits_to_keep=1).logits[0, -1]
        torch.testing.assert_close(decoder.logits, last, rtol=1e-4, atol=1e-4)
        for token in (7, 8, 9):
            want = plain(torch.tensor([[token]]), past_key_values=cache).logits[0, -1]
            torch.testing.assert_close(decoder.feed([token]), want, rtol=1e-3, atol=1e-3)


def test_decoders_and_their_forks_go_on_by_themselves(arms: Any) -> None:
    ids = torch.randint(2, 500, (1, 150), generator=torch.Generator().manual_seed(2))
    reader, (own, full) = arms.arms_of(tiny().float(), arms.specs("full", "512", "common", OPTIONS), "cpu", 512)
    prompt = reader.read(ids)
    first = own.after(prompt)
    want = [first.feed([3]).clone(), first.feed([4]).clone()]
    for arm in (own, full):
        for _ in range(2):  # the second time from the same prompt
            decoder = arm.after(prompt)
            got = [decoder.feed([3])]
            fork = decoder.fork()
            fork.feed([5, 6])
            fork.close()
            got.append(decoder.feed([4]))
            decoder.close()
            for a, b in zip(got, want):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    assert prompt.n == 150


def test_sizes_of_papers(arms: Any, tmp_path: Path) -> None:
    found = arms.specs("icecache,sketch", "128,256", "paper", "{}")
    assert [(spec.preset, spec.budget) for spec in found] == [("icecache", 256), ("sketch", 128), ("sketch", 256)]
    assert all(spec.options["published"] for spec in found)
    file = tmp_path / "sizes.json"
    file.write_text('{"sketch": {"budget": 512, "key_bits": 2}}')
    (spec,) = arms.specs("sketch", "128,256", str(file), '{"sink": 4}')
    assert spec.options == {"sink": 4, "budget": 512, "key_bits": 2}
    model = tiny()
    for device, kind in (("cpu", model.float()), ("host", copy.deepcopy(model).bfloat16())):
        reader, every = arms.arms_of(kind, arms.specs(",".join(arms.PAPER), "64", "paper", "{}"), device, 2048)
        prompt = reader.read(torch.randint(2, 500, (1, 1400), generator=torch.Generator().manual_seed(3)))
        for arm in every[1:]:
            assert torch.isfinite(arm.after(prompt).feed([3])).all(), arm.name


# --- runs ------------------------------------------------------------------------------------------------------------


def run(language: Any, folder: Path, file: Path, what: str) -> int:
    """On GPU 0 where there is one, else on the CPU."""
    device = "cuda" if GPU else "cpu"
    arguments = [*what.split(), "--model", str(folder), "--device", device, "--json", str(file), "--config", OPTIONS]
    status: int = language.main(arguments)
    return status


TASKS = "tasks --task lookups --lengths 1000 --seeds 1 --preset full,sketch --budget 128"


def test_tasks_go_on_where_they_ended(language: Any, folder: Path, tmp_path: Path, capsys: Any) -> None:
    runs = importlib.import_module("language_model_runs")
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    assert run(language, folder, whole, TASKS + " --answers") == 0
    rows = rows_of(whole)
    assert [row["what"]["arm"] for row in rows[:3]] == ["own cache", "full", "sketch"]
    assert {row["what"]["protocol"] for row in rows} == {"prompt", "steps"} and len(rows) == 2 * 3
    assert all(list(row["scores"]) == ["1"] for row in rows)
    assert {len(row["said"]["1"]) for row in rows} == {5}  # three turns and two forks
    checks, stop = 0, runs.Deadline.check

    def some(self: Any) -> None:
        nonlocal checks
        checks += 1
        if checks > 2:
            raise runs.OutOfTime

    try:
        runs.Deadline.check = some
        assert run(language, folder, cut, TASKS) == runs.LEFT
    finally:
        runs.Deadline.check = stop
    assert "the next run goes on" in capsys.readouterr().out
    assert sum(len(row["scores"]) for row in rows_of(cut)) == 2
    assert run(language, folder, cut, TASKS) == 0
    key = "what", "scores"
    assert [[row[k] for k in key] for row in rows_of(cut)] == [[row[k] for k in key] for row in rows]
    before = cut.read_text()
    assert run(language, folder, cut, TASKS) == 0
    assert cut.read_text() == before
    assert run(language, folder, cut, TASKS.replace("full,sketch", "quest")) == 0
    assert len(rows_of(cut)) == len(rows) + 2  # others are added
    sizes = tmp_path / "sizes.json"
    for more in ({}, {"key_bits": 2}):  # and what other options make of the same preset
        sizes.write_text(json.dumps({"sketch": {"budget": 128, **SMALL, **more}}))
        assert run(language, folder, cut, TASKS.replace("full,sketch", f"sketch --kept {sizes}")) == 0
    assert len(rows_of(cut)) == len(rows) + 6


def test_pages_say_what_is_measured_and_what_is_not_finished() -> None:
    page = importlib.import_module("language_model_page")
    at = {"part": "tasks", "model": "m", "device": "d", "length": 4096, "protocol": "prompt"}

    def row(task: str, n: int, right: float = 1.0, **what: Any) -> dict[str, Any]:
        of = {"arm": "own cache", "budget": 0, "kept": "-", **what}
        return {"what": {**at, "task": task, **of}, "scores": {str(i): right for i in range(n)}}

    louiskv = {"arm": "louiskv", "budget": 1056, "kept": "paper"}
    old = {**row("single", 4, **louiskv), "options": {"budget": 1056, "sink": 32}}
    new = row("single", 4, **louiskv, options={"published": True, "query_head_lists": False})
    made = page.tasks([row("single", 4), row("lookups", 1), row("multikey", 4, 0.5), old, new])
    assert "| right, % (95 % interval); 4 seeds | single |\n" in made
    assert "| `louiskv`, 1,056, sink 32 | 100" in made
    assert "| `louiskv`, 1,056, published sizes, query_head_lists False | 100" in made
    assert "below 80 %): `multikey` 50 %." in made and "Not finished: `lookups` 1 of 4 seeds." in made


def test_presets_are_left_out_where_the_model_cannot(language: Any, folder: Path, tmp_path: Path) -> None:
    file, page = tmp_path / "tasks.json", tmp_path / "page.md"
    what = "tasks --task multivalue --protocol prompt --lengths 900 --seeds 4 --preset sketch --budget 128"
    assert run(language, folder, file, what) == 0
    own, preset = rows_of(file)
    assert list(own["scores"].values()) == [0.0] * 4 and len(preset["scores"]) == 2
    page.write_text("# x\n<!-- table tasks -->\n<!-- end of table -->\n<!-- table long -->\nstays\n<!-- end of table -->\n")
    assert language.main(["page", "--json", str(file), "--page", str(page)]) == 0
    assert "The model cannot (own cache below 80 %): `multivalue` 0 %." in page.read_text() and "stays" in page.read_text()


def test_long_decodes_and_lengths(language: Any, folder: Path, tmp_path: Path) -> None:
    text, file, page = tmp_path / "text.txt", tmp_path / "rows.json", tmp_path / "page.md"
    text.write_text("".join(f"{7 * i % 1000} is a number of {i}. " for i in range(200)))
    what = f"--text {text} --preset full,sketch --budget 128"
    every = [
        f"long {what} --prompt 100 --steps 150 --window 60",
        f"lengths {what} --lengths 300,200 --steps 40 --places 2",
    ]
    for one in every:
        assert run(language, folder, file, one) == 0
    rows = rows_of(file)
    own, full, sketch = rows[:3]
    assert own["divergence"] == 0 and own["same_first"] == 1 and len(own["windows"]["surprise"]) == 3
    if not GPU:
        assert abs(full["divergence"]) < 1e-5 and full["same_first"] == 1 < 1 + sketch["divergence"]
        assert full["perplexity"] == pytest.approx(own["perplexity"], rel=1e-4)
    by_arm = {(row["what"]["length"], row["what"]["place"], row["what"]["arm"]): row["surprise"] for row in rows[3:]}
    assert len(by_arm) == 12
    assert by_arm[200, 1, "full"] == pytest.approx(by_arm[200, 1, "own cache"], rel=1e-1 if GPU else 1e-4)
    before = file.read_text()
    for one in every:
        assert run(language, folder, file, one) == 0
    assert file.read_text() == before
    page.write_text("".join(f"<!-- table {name} -->\n<!-- end of table -->\n" for name in ("long", "lengths")))
    assert language.main(["page", "--json", str(file), "--page", str(page)]) == 0
    assert "150 tokens after 100" in page.read_text() and "| context | 200 | 300 |" in page.read_text()


@pytest.mark.parametrize("protocol", ["prompt", "steps"])
def test_lookups_in_both_protocols(language: Any, folder: Path, tmp_path: Path, protocol: str) -> None:
    text, file = tmp_path / "text.txt", tmp_path / "rows.json"
    text.write_text("\n\n".join(f"Paragraph {i} is about the number {i * i}." for i in range(300)))
    what = f"lookup --text {text} --prompt 1500 --records 3 --kind single,multi-key --protocol {protocol}"
    assert run(language, folder, file, f"{what} --preset full --budget 128") == 0
    own, full = rows_of(file)
    assert (
        own["preset"] == "own cache" and full["preset"] == "full" and set(own) == {"preset", "budget", "single", "multi-key"}
    )
    assert [own[kind] for kind in ("single", "multi-key")] == [full[kind] for kind in ("single", "multi-key")]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("tasks --json x --task single,sorting", "--task has 'sorting', expected of single, multikey"),
        ("tasks --json x --protocol chat", "--protocol has 'chat', expected of prompt, steps"),
        ("tasks", "tasks wants --json"),
        ("lengths --json x", "--text is wanted"),
        ("tasks --json x --seeds 0", "numbers from 1 on are wanted"),
        ("lookup --text x --protocol prompt,steps", "lookup wants one --protocol"),
        ("page --json x", "page wants --page"),
    ],
)
def test_wrong_options_are_refused(language: Any, capsys: Any, wrong: str, why: str) -> None:
    with pytest.raises(SystemExit):
        language.main(wrong.split())
    assert why in capsys.readouterr().err


def test_intervals_of_shares(language: Any) -> None:
    wilson = importlib.import_module("language_model_results").wilson
    low, high = wilson(0.5, 20)
    assert low == pytest.approx(0.2993, abs=1e-4) and high == pytest.approx(0.7007, abs=1e-4)
    assert wilson(1.0, 20) == (pytest.approx(0.8389, abs=1e-4), 1.0) and wilson(0.0, 20)[0] == 0.0
