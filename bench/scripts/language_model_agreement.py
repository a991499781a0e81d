# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""How far next-token distributions on a device are from those on the CPU (language_model.py agreement)."""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from language_model_arms import OWN, Decoder, Spec, enabled, specs
from language_model_results import device_name, held_text, versions
from tqdm import tqdm
from transformers import DynamicCache
from whole_model import Results

import dci.transformers


def led(model: Any, cache: Any, prompt: torch.Tensor, held: list[int], what: str) -> Iterator[torch.Tensor]:
    """Logits of each held token, [vocabulary], float32 on the CPU: after the prompt, and after each but the last."""
    decoder = Decoder(model, cache)
    yield decoder.feed(prompt[0].tolist()).float().cpu()
    yield from tqdm(decoder.steps(held[:-1]), desc=what, total=len(held) - 1, leave=False, disable=None)


def arm_logits(model: Any, device: str, spec: Spec, text: Any, options: argparse.Namespace) -> Iterator[torch.Tensor]:
    """The same of one arm."""
    what = f"{spec.preset} {spec.budget}, {device}"
    if spec.preset == OWN:
        yield from led(model, DynamicCache(), *text, what)
        return
    with enabled(model, spec, device, options.prompt + options.steps + 64):
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


def reference(model: Any, spec: Spec, text: Any, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """What the CPU says, from the folder or computed now."""
    folder = pathlib.Path(options.dir)
    folder.mkdir(parents=True, exist_ok=True)
    more = [f"{name}={value}" for name, value in spec.what().get("options", {}).items()]
    named = [spec.preset.replace(" ", "-"), spec.budget, *more, options.prompt, options.steps]
    path = folder / ("-".join(map(str, named)) + ".npz")
    if not path.exists():
        begin = time.perf_counter()
        kept = [largest(logits, options.top) for logits in arm_logits(model, "cpu", spec, text, options)]
        partial = path.with_suffix(".part.npz")
        np.savez(partial, **{name: np.stack([one[name] for one in kept]) for name in kept[0]})
        partial.replace(path)
        print(f"{spec.preset:14} {spec.budget:5}  on the CPU: {time.perf_counter() - begin:.0f} s", flush=True)
    with np.load(path) as file:
        return dict(file)


def agreement(model: Any, tokenizer: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows as whole_model.py has them: what was measured, and figures."""
    if not options.dir:
        sys.exit("agreement wants --dir")
    text, results = held_text(tokenizer, options), Results(options.json, options.folder)
    for spec in [Spec(OWN, {}), *specs(options.preset, options.budget, options.kept, options.config)]:
        what = {"part": "agreement", "model": options.name, "arm": spec.preset, "budget": spec.budget,
                "prompt": options.prompt, "steps": options.steps, "device": device_name(options), **spec.what()}  # fmt: skip
        if results.has(what):
            continue
        model.to("cpu")
        kept = reference(model, spec, text, options)
        if options.device == "cpu":
            continue
        if options.device == "cuda":
            model.to("cuda")
        found, other, begin = [], 0, time.perf_counter()
        for i, logits in enumerate(arm_logits(model, options.device, spec, text, options)):
            found.append(divergence({name: kept[name][i] for name in kept}, logits))
            other += int(logits.argmax()) != int(kept["first"][i])
        figures = summed(found, other)
        results.add(what, {**figures, "s": time.perf_counter() - begin, **versions()})
        print(f"{spec.preset:14} {spec.budget:5}  " + "  ".join(f"{n} {figures[n]:.3g}" for n in FIGURES), flush=True)
    return results.rows


FIGURES = ("divergence", "divergence_error", "divergence_max", "other_first")


def summed(found: list[float], other: int) -> dict[str, Any]:
    """Figures of divergences."""
    n, mean = len(found), sum(found) / len(found)
    spread = math.sqrt(sum((x - mean) ** 2 for x in found) / max(1, n - 1))
    return dict(zip(FIGURES, (mean, spread / math.sqrt(n), max(found), other / n)))
