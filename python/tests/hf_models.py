# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Small models of transformers with random weights, for tests of dci.transformers."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf

VOCABULARY = 120
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.5,
}
EXACT: dict[str, Any] = {"preset": "sketch", "budget": 1024, "window": 16, "sink": 4}


def build(family: str = "Llama", **changes: Any) -> Any:
    """A model with weights that are the same each time."""
    more = {"sliding_window": None} if family == "Mistral" else {}
    more.update({"use_sliding_window": False, "layer_types": ["full_attention"] * 3} if family.startswith("Qwen") else {})
    torch.manual_seed(7)
    config = getattr(hf, family + "Config")(**{**SHAPE, **more, **changes})
    return getattr(hf, family + "ForCausalLM")(config).eval()


def prompt(n: int, batch: int = 1, seed: int = 3) -> Any:
    """Random tokens."""
    return torch.randint(2, VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(seed))


def generate(model: Any, ids: Any, n: int = 24, **options: Any) -> Any:
    """The new tokens."""
    options = {"do_sample": False, "max_new_tokens": n, "attention_mask": torch.ones_like(ids), **options}
    return model.generate(ids, **options)[:, ids.shape[1] :]
