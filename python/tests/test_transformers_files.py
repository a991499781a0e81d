# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A model's cache that is saved and loaded generates what it would have generated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")

from hf_models import EXACT, VOCABULARY, build, generate, prompt  # noqa: E402

import dci  # noqa: E402
import dci.transformers as dt  # noqa: E402

LEARNED: dict[str, Any] = {
    "summary": "learned",
    "key_bits": 1,
    "budget": 64,
    "window": 16,
    "rollback": 16,
    "sink": 4,
    "dense_layers": 0,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": EXACT,
    "learned": LEARNED,
    "snapkv": {"preset": "snapkv", "budget": 64, "window": 16, "dense_layers": 0},
    "icecache": {"preset": "icecache", "budget": 128, "dense_layers": 0},
    "bfloat16": {**EXACT, "dtype": "bfloat16"},
    "no queries": {**EXACT, "observe": 0},
}


@pytest.fixture
def model() -> Any:
    built = build()
    yield built
    dt.disable(built)


def read(model: Any, *parts: Any, mask: Any = None) -> Any:
    """A cache that has read a prompt, maybe in parts."""
    cache, seen = dt.new_cache(model), 0
    with torch.no_grad():
        for part in parts:
            seen += part.shape[1]
            model(part, attention_mask=None if mask is None else mask[:, :seen], past_key_values=cache)
    return cache


def steps(model: Any, cache: Any, mask: Any = None, n: int = 6) -> Any:
    """Logits of tokens that follow, which are the same each time."""
    batch, out = len(cache.sequences), []
    with torch.no_grad():
        for step in range(n):
            if mask is not None:
                mask = torch.cat([mask, torch.ones((batch, 1), dtype=mask.dtype)], dim=1)
            out.append(model(prompt(1, batch, seed=step), attention_mask=mask, past_key_values=cache).logits)
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("decoded", [0, 5], ids=["before the first step", "after some"])
def test_a_loaded_cache_goes_on_as_the_saved_one(model: Any, tmp_path: Path, options: str, decoded: int) -> None:
    dt.enable(model, **OPTIONS[options])
    mask = torch.ones((2, 200), dtype=torch.long)
    mask[0, :9] = 0
    cache = read(model, prompt(200, 2), mask=mask)
    if decoded:
        steps(model, cache, mask, decoded)
        mask = torch.cat([mask, torch.ones((2, decoded), dtype=torch.long)], dim=1)
    cache.save(tmp_path / "cache")
    loaded = dt.load_cache(model, tmp_path / "cache")
    assert loaded.get_seq_length() == cache.get_seq_length() and loaded.session.prompted == cache.session.prompted
    again = dt.DCICache.load(str(tmp_path / "cache"), model)
    wanted = steps(model, cache, mask)
    assert torch.equal(steps(model, loaded, mask), wanted) and torch.equal(steps(model, again, mask), wanted)


def test_a_prompt_that_has_not_ended_is_read_further(model: Any, tmp_path: Path) -> None:
    dt.enable(model, **LEARNED)
    first, second = prompt(150), prompt(40, seed=4)
    read(model, first).save(tmp_path)
    loaded = dt.load_cache(model, tmp_path)
    with torch.no_grad():
        model(second, past_key_values=loaded)
    assert torch.equal(steps(model, loaded), steps(model, read(model, first, second)))
    dt.enable(model, preset="quest", budget=512)  # whose groups are another matter
    assert torch.allclose(steps(model, dt.load_cache(model, tmp_path)), steps(model, read(model, first)), atol=1e-4)


def test_half_precision_is_kept(model: Any, tmp_path: Path) -> None:
    model.to(torch.bfloat16)
    dt.enable(model, **EXACT)
    cache = read(model, prompt(40))
    for name in ("a", "b"):
        cache.save(tmp_path / name)
        assert torch.equal(steps(model, dt.load_cache(model, tmp_path / name)), steps(model, cache))
        cache.crop(40)


def test_a_dynamic_cache_that_became_one_of_dcis_is_saved(model: Any, tmp_path: Path) -> None:
    ids, cache = prompt(40), hf.DynamicCache()
    wanted = generate(model, ids, 8)
    dt.enable(model, **EXACT)
    with torch.no_grad():
        model(ids[:, :-1], past_key_values=cache)
    cache.save(tmp_path)
    assert torch.equal(generate(model, ids, 8, past_key_values=dt.load_cache(model, tmp_path)), wanted)


def test_another_process_goes_on(model: Any, tmp_path: Path) -> None:
    ids = prompt(60)
    wanted = generate(model, ids, 8)
    dt.enable(model, **EXACT)
    read(model, ids).save(tmp_path / "open")
    cache = read(model, ids)
    steps(model, cache, n=1)
    cache.crop(-1)
    cache.save(tmp_path / "ended")
    program = (
        "import sys, torch\nfrom hf_models import EXACT, build, generate, prompt\nimport dci.transformers as dt\n"
        "model = build()\ndt.enable(model, **EXACT)\n"
        "for path in sys.argv[1:]:\n"
        "    cache = dt.load_cache(model, path)\n"
        "    print(*generate(model, prompt(60), 8, past_key_values=cache)[0].tolist())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "open"), str(tmp_path / "ended")]
    out = subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True, text=True).stdout
    line = " ".join(map(str, wanted[0].tolist()))
    assert out.splitlines()[-2:] == [line, line]


def test_a_folder_holds_the_old_cache_or_the_new_one(model: Any, tmp_path: Path, monkeypatch: Any) -> None:
    dt.enable(model, **EXACT)
    old, new = read(model, prompt(40)), read(model, prompt(50, 2))
    steps(model, old, n=1)
    old.save(tmp_path)
    before = sorted(tmp_path.iterdir())

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(dci.FileError, match="No space"):
        patched.setattr("os.replace", fail)
        new.save(tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert dt.load_cache(model, tmp_path).get_seq_length() == 41
    new.save(tmp_path)
    assert dt.load_cache(model, tmp_path).get_seq_length() == 50
    assert not set(before) & set(tmp_path.iterdir()) - {tmp_path / "cache.json"}
    assert torch.equal(steps(model, dt.load_cache(model, tmp_path)), steps(model, new))


def test_folders_and_caches_that_cannot_be_saved(model: Any, tmp_path: Path) -> None:
    dt.enable(model, **EXACT)
    cache = read(model, prompt(20))
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    for path, error, sentence in (
        ("file", dci.InvalidError, "is a file"),
        ("other", dci.InvalidError, "no cache.json"),
        ("file/below", OSError, "file"),
    ):
        with pytest.raises(error, match=sentence):
            cache.save(tmp_path / path)
    with pytest.raises(dci.InvalidError, match="empty"):
        dt.new_cache(model).save(tmp_path / "empty")
    with pytest.raises(TypeError, match="path is int"):
        cache.save(3)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "notes.txt", "other"]


def test_another_model_is_refused(model: Any, tmp_path: Path) -> None:
    dt.enable(model, **EXACT)
    read(model, prompt(20)).save(tmp_path / "open")
    cache = read(model, prompt(20))
    steps(model, cache, n=1)
    cache.save(tmp_path / "ended")
    for other, sentence in (
        (build(num_hidden_layers=2), "num_hidden_layers is 3; this one's is 2"),
        (build(num_key_value_heads=3), "num_key_value_heads is 2"),
        (build(rope_parameters={"rope_type": "default", "rope_theta": 5000.0}), "rope_parameters"),
        (build("Qwen3"), "head_dim|model_type"),
        (build().to(torch.bfloat16), "in float32; this one is in bfloat16"),
    ):
        dt.enable(other, **EXACT)
        with pytest.raises(dci.InvalidError, match=sentence):
            dt.load_cache(other, tmp_path / "open")
    dt.enable(model, **{**EXACT, "key_bits": 2})
    with pytest.raises(dci.DciError, match="bits"):
        dt.load_cache(model, tmp_path / "ended")
    assert dt.load_cache(model, tmp_path / "open").get_seq_length() == 20  # whose codes are made later
    dt.disable(model)
    with pytest.raises(dci.InvalidError, match="enable"):
        dt.load_cache(model, tmp_path / "open")


def spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(bytes(data))


def test_damage_is_noticed(model: Any, tmp_path: Path) -> None:
    dt.enable(model, **EXACT)
    cache = read(model, prompt(40, 2))
    for state in ("open", "ended"):
        if state == "ended":
            steps(model, cache, n=1)
        for case in range(20):
            folder = tmp_path / f"{state}{case}"
            cache.save(folder)
            path = sorted(folder.iterdir())[case % len(list(folder.iterdir()))]
            if case % 3 == 2:
                path.write_bytes(path.read_bytes()[: -1 - case * 7])
            else:
                spoil(path, (case * 7919) % path.stat().st_size)
            with pytest.raises(dci.FormatError, match=path.name):
                dt.load_cache(model, folder)
        folder = tmp_path / state
        cache.save(folder)
        next(path for path in folder.iterdir() if path.name != "cache.json").unlink()
        with pytest.raises(FileNotFoundError):
            dt.load_cache(model, folder)
    with pytest.raises(FileNotFoundError):
        dt.load_cache(model, tmp_path / "none")
    (tmp_path / "bare").mkdir()
    with pytest.raises(dci.FormatError, match=r"no cache\.json"):
        dt.load_cache(model, tmp_path / "bare")
    assert steps(model, cache).shape[2] == VOCABULARY


def test_lists_of_a_later_version_are_refused(model: Any, tmp_path: Path) -> None:
    dt.enable(model, **EXACT)
    read(model, prompt(20)).save(tmp_path)
    zlib = pytest.importorskip("zlib")
    whole = json.loads((tmp_path / "cache.json").read_text())
    whole["cache"]["version"] = 2
    whole["crc"] = zlib.crc32(json.dumps(whole["cache"], sort_keys=True).encode())
    (tmp_path / "cache.json").write_text(json.dumps(whole))
    with pytest.raises(dci.UnsupportedError, match="version 2"):
        dt.load_cache(model, tmp_path)
