# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Texts that language_model.py reads, and files that it writes."""

from __future__ import annotations

import argparse
import gzip
import json
import math
import pathlib
import platform
import sys
import time
from datetime import date
from typing import Any

import torch
import transformers

import dci


def read_text(path: str) -> str:
    """A text file, compressed or not; of a folder all its Markdown, in the order of names."""
    if pathlib.Path(path).is_dir():
        return "\n\n".join(file.read_text() for file in sorted(pathlib.Path(path).rglob("*.md")))
    data = pathlib.Path(path).read_bytes()
    return (gzip.decompress(data) if path.endswith(".gz") else data).decode()


def text_ids(tokenizer: Any, options: argparse.Namespace, n: int) -> torch.Tensor:
    """The first n tokens of the text."""
    ids: torch.Tensor = tokenizer(read_text(options.text)[options.skip :], return_tensors="pt").input_ids[0]
    if len(ids) < n:
        sys.exit(f"{options.text} has {len(ids)} tokens, wanted {n}")
    return ids[:n]


def held_text(tokenizer: Any, options: argparse.Namespace) -> tuple[torch.Tensor, list[int]]:
    """A prompt, [1, tokens], and the tokens after it."""
    ids = text_ids(tokenizer, options, options.prompt + options.steps)
    return ids[None, : options.prompt], ids[options.prompt :].tolist()


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


def device_name(options: argparse.Namespace) -> str:
    return torch.cuda.get_device_name() if options.device == "cuda" else str(options.device)


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Rows to the file, if one was named."""
    if options.json:
        report = {"command": ["language_model.py", *sys.argv[1:]], "machine": machine(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


class OutOfTime(Exception):
    """The seconds of a run are over."""


class Deadline:
    """When a run ends, to be gone on with by the next one. 0 seconds: when all is done."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds if seconds else math.inf

    def check(self) -> None:
        if time.monotonic() > self.end:
            raise OutOfTime


def wilson(share: float, n: int) -> tuple[float, float]:
    """A share of n as an interval that the true one is in with 95 %."""
    z = 1.959964
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return tuple(min(1.0, max(0.0, (middle + sign * half) / (1 + z * z / n))) for sign in (-1, 1))  # type: ignore[return-value]
