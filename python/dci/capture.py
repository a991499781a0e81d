# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Attention of a real model as traces: what dci-bench and researchers compare policies on.

    python -m dci.capture --model FOLDER --text FILE --layers 6,14 --heads 0,1 --prompt 6144 --tokens 7168 --out traces

Writes a folder layerLL_headH per layer and kv head: keys.npy and values.npy (tokens x head_dim), queries.npy (query heads of
the kv head x positions x head_dim), all float16 and as attention sees them (rotary embedding applied), and meta.json. The
model reads the text once, with its own exact attention.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from ._errors import InvalidError

_NAME = "dci_capture"


class _Recorder:
    """An attention function that keeps what it is given for some layers."""

    def __init__(self, layers: list[int], first_query: int) -> None:
        self.layers, self.first_query = layers, first_query
        self.taken: dict[int, tuple[Any, Any, Any, float]] = {}

    def __call__(
        self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **kwargs: Any
    ) -> tuple[Any, None]:
        if module.layer_idx in self.layers:
            half = [x[0].to(torch.float16).numpy() for x in (query[:, :, self.first_query :], key, value)]
            self.taken[module.layer_idx] = (*half, scaling if scaling is not None else query.shape[-1] ** -0.5)
        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return out, None


def capture(
    model: Any,
    ids: Any,
    layers: list[int],
    heads: list[int],
    prompt: int,
    observation: int,
    out: str | pathlib.Path,
    notes: dict[str, Any] | None = None,
) -> list[pathlib.Path]:
    """One forward of `ids` ([tokens], integers), written as traces; returns the folders.

    prompt          tokens before the decode begins; queries are kept from prompt - observation on
    heads           kv heads
    notes           more entries of meta.json, for instance {"model": "..", "text": ".."}
    """
    config, n = model.config.get_text_config(decoder=True), len(ids)
    if not 0 < observation <= prompt < n:
        raise InvalidError(
            f"observation is {observation}, prompt {prompt}, tokens {n}: expected 0 < observation <= prompt < tokens"
        )
    for name, given, most in (("layer", layers, config.num_hidden_layers), ("kv head", heads, config.num_key_value_heads)):
        for number in given:
            if not 0 <= number < most:
                raise InvalidError(f"{name} is {number}, expected less than {most}")
    recorder, before = _Recorder(layers, prompt - observation), model.config._attn_implementation
    AttentionInterface.register(_NAME, recorder)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    try:
        with torch.no_grad():
            model(torch.as_tensor(ids)[None], use_cache=False, logits_to_keep=1)
    finally:
        model.set_attn_implementation(before)
    folders = []
    for layer in layers:
        queries, keys, values, scale = recorder.taken[layer]
        group = queries.shape[0] // keys.shape[0]
        for head in heads:
            folder = pathlib.Path(out) / f"layer{layer:02d}_head{head}"
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / "keys.npy", np.ascontiguousarray(keys[head]))
            np.save(folder / "values.npy", np.ascontiguousarray(values[head]))
            np.save(folder / "queries.npy", np.ascontiguousarray(queries[head * group : (head + 1) * group]))
            meta = {
                **(notes or {}),
                "layer": layer,
                "kv_head": head,
                "n_query_heads": queries.shape[0],
                "n_kv_heads": keys.shape[0],
                "group": group,
                "head_dim": keys.shape[2],
                "tokens": n,
                "prompt": prompt,
                "observation": observation,
                "first_query": prompt - observation,
                "scale": scale,
                "rope": "applied",
            }
            (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
            folders.append(folder)
    return folders


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m dci.capture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a folder, or a file in GGUF, that transformers loads")
    parser.add_argument("--text", required=True, help="the text that is read; .gz is read, too")
    parser.add_argument("--layers", required=True, help="comma separated")
    parser.add_argument("--heads", required=True, help="kv heads, comma separated")
    parser.add_argument("--prompt", type=int, required=True, help="tokens before the decode")
    parser.add_argument("--tokens", type=int, required=True, help="tokens in all")
    parser.add_argument("--observation", type=int, default=64, help="queries kept of the prompt's end (default 64)")
    parser.add_argument("--out", required=True, help="the folder of folders")
    options = parser.parse_args()
    path = pathlib.Path(options.model)
    more: dict[str, Any] = {}
    if path.is_file():
        path, more = path.parent, {"gguf_file": path.name}
    tokenizer, model = AutoTokenizer.from_pretrained(path, **more), AutoModelForCausalLM.from_pretrained(path, **more)
    data = pathlib.Path(options.text).read_bytes()
    text = (gzip.decompress(data) if options.text.endswith(".gz") else data).decode()
    ids = tokenizer(text).input_ids[: options.tokens]
    if len(ids) < options.tokens:
        raise InvalidError(f"{options.text} has {len(ids)} tokens, wanted {options.tokens}")
    layers, heads = ([int(item) for item in given.split(",")] for given in (options.layers, options.heads))
    notes = {"model": path.name, "text": pathlib.Path(options.text).name}
    for folder in capture(model.eval(), ids, layers, heads, options.prompt, options.observation, options.out, notes):
        print(folder)


if __name__ == "__main__":
    main()
