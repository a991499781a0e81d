# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""How far next-token distributions on a device are from those on the CPU (language_model.py agreement)."""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from language_model_arms import OWN, Decoder
from language_model_results import held_text, versions, write
from tqdm import tqdm
from transformers import DynamicCache

import dci.gpu
import dci.transformers


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


def led(model: Any, cache: Any, prompt: torch.Tensor, held: list[int], what: str) -> Iterator[torch.Tensor]:
    """Logits of each held token, [vocabulary], float32 on the CPU: after the prompt, and after each but the last."""
    decoder = Decoder(model, cache)
    yield decoder.feed(prompt[0].tolist()).float().cpu()
    yield from tqdm(decoder.steps(held[:-1]), desc=what, total=len(held) - 1, leave=False, disable=None)


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
