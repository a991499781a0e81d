# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What transformers hands to the attention of a layer, and what its masks and gradients ask for (dci.transformers)."""

from __future__ import annotations

import re
import warnings
from typing import Any, NamedTuple

import torch
import transformers

from ._errors import UnsupportedError

if not (5, 17) <= tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (6, 0):
    raise ImportError(f"this is transformers {transformers.__version__}")

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
KINDS = {name: kind for kind, name in DTYPES.items()}

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # query, key and value, [batch, heads, positions, dim] each


class Call(NamedTuple):
    """What transformers hands to the attention of one layer."""

    module: Any
    states: States
    mask: torch.Tensor | None
    scaling: float
    options: dict[str, Any]


Rows = tuple[torch.Tensor, torch.Tensor]  # keys and values

_HIDDEN = -1e4  # what a mask adds to a score that is not to count: so much, or more often the dtype's least


HOLES = (
    "the attention mask hides tokens after the first one that it shows: a cache of dci takes padding on the left only "
    '(tokenizer.padding_side = "left") and causal masks; without a cache (use_cache=False) any mask is taken'
)


def visible(mask: torch.Tensor) -> torch.Tensor:
    """The mask's last row, [batch, keys], as booleans: what the newest token may look at."""
    last = mask[:, 0, -1]
    return last if last.dtype == torch.bool else last > _HIDDEN


def pads_of(mask: torch.Tensor | None, batch: int, n: int) -> list[int]:
    """By row of the batch: how many of a prompt's n tokens, in front, are none."""
    if mask is None:
        return [0] * batch
    shown = visible(mask).expand(batch, -1)[:, :n].int()
    return [n - int(row) for row in shown.sum(dim=1)]


def check_mask(mask: torch.Tensor | None, pads: list[int], n: int) -> None:
    """Refuses masks that hide anything but tokens in front."""
    if mask is None:
        return
    last = mask[:, :, -1]
    if last.dtype != torch.bool and bool(((last != 0) & (last > _HIDDEN)).any()):
        raise UnsupportedError("the attention mask adds to scores (ALiBi or another position bias), which dci does not have")
    if last.shape[1] > 1 and not torch.equal(last, last[:, :1].expand_as(last)):
        raise UnsupportedError("the attention mask differs between heads, which dci does not have")
    shown = visible(mask).expand(len(pads), -1)
    wanted = torch.arange(shown.shape[1]) >= torch.tensor(pads)[:, None]
    if shown.shape[1] != n or not torch.equal(shown, wanted):
        raise UnsupportedError(HOLES)


def fills(mask: Any) -> bool:
    """Whether a cache can hold the prompt of this mask, [batch, keys] or [batch, heads, queries, keys]."""
    if mask is None:
        return True
    if not isinstance(mask, torch.Tensor) or mask.dim() not in (2, 4):
        return False
    shown = visible(mask) if mask.dim() == 4 else mask != 0
    return bool((shown[:, 1:] >= shown[:, :-1]).all() and shown[:, -1].all())


def differentiable(states: States) -> bool:
    """Whether autograd records what becomes of these."""
    return torch.is_grad_enabled() and any(state.requires_grad for state in states)


def by_row(error: Exception, sequences: list[int]) -> str:
    """What an error says of a sequence, with its row of the batch."""

    def named(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"row {sequences.index(number)} of the batch" if number in sequences else found[0]

    sentence = re.sub(r"\bsequence (\d+)", named, str(error))
    if "observed queries" in sentence:
        sentence += (
            ": presets that look at the last queries of a prompt need a part that is read through dci before they decode"
        )
    return sentence


def warn_exact() -> None:
    """Of a step that does not go through dci."""
    warnings.warn(
        "gradients are recorded, so that a forward of one token attends to everything, by PyTorch: under torch.no_grad() it "
        "decodes through dci",
        RuntimeWarning,
        stacklevel=2,
    )


class Held(torch.autograd.Function):
    """Rows that came with gradients, which dci does not keep: a backward pass that comes to them is refused."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        return rows.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise UnsupportedError(
            "the backward pass comes to tokens that were put into a cache of dci with gradients, which it does not keep: "
            "fill the cache under torch.no_grad(), or disable dci"
        )
