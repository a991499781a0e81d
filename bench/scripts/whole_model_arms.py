# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What whole_model.py measures: models of known shapes with random weights, rows for their caches, and the ways to decode.

Two functions know dci's interface: `enabled` (options of enable) and `filled` (rows that no forward made).
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache, StaticCache, StoppingCriteria
from transformers.cache_utils import DynamicLayer

import dci.gpu
import dci.transformers
from dci._hf_attention import attention_of_chunk

GIB = 2**30


class Shape(NamedTuple):
    """Of a decoder-only model."""

    family: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    dim: int
    vocabulary: int
    theta: float
    tied: bool = False


SHAPES = {
    "Llama-3.1-8B": Shape("Llama", 32, 4096, 14336, 32, 8, 128, 128256, 5e5),
    "Qwen3-8B": Shape("Qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1e6),
    "SmolLM2-135M": Shape("Llama", 30, 576, 1536, 9, 3, 64, 49152, 1e5, True),
    "tiny": Shape("Llama", 3, 128, 256, 4, 2, 64, 512, 1e4),
}


# --- the device ------------------------------------------------------------------------------------------------------


class Machine:
    """A GPU, or the CPU in its place: waiting, marks in time, memory.

    device      a GPU's number; "host": dci.gpu.GPU("host"), with the model on the CPU; "cpu": dci's KV cache for the CPU
    """

    def __init__(self, device: str) -> None:
        self.kind = "cuda" if device.isdigit() else device
        self.gpu = dci.gpu.GPU("host") if device == "host" else None
        self.device = torch.device(f"cuda:{device}" if self.kind == "cuda" else "cpu")
        if self.kind == "cuda":
            torch.cuda.set_device(self.device)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.kind == "cuda" else self.kind

    def sync(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def mark(self) -> Any:
        """A point in the work that was queued so far: an event on the current stream; without a GPU the time."""
        if self.kind != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks: list[Any]) -> list[float]:
        """Milliseconds between marks that follow each other, of work that is done."""
        pairs = list(zip(marks, marks[1:]))
        if self.kind != "cuda":
            return [1e3 * (after - before) for before, after in pairs]
        return [before.elapsed_time(after) for before, after in pairs]

    def tidy(self) -> None:
        """Gives memory that nothing holds back to the device, and begins a new peak."""
        if self.kind == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def memory(self) -> dict[str, float]:
        """GiB: of the device in all, as the driver counts; the peak of torch's tensors; resident in the host's memory."""
        out = {"host_gib": resident_bytes() / GIB}
        if self.kind == "cuda":
            free, total = torch.cuda.mem_get_info()
            out.update(device_gib=(total - free) / GIB, torch_peak_gib=torch.cuda.max_memory_allocated() / GIB)
        return out


def resident_bytes() -> int:
    """Of this process; pinned memory counts where the system counts it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


class Replays:
    """Marks around each replay of a CUDA graph, whoever replays it."""

    def __init__(self) -> None:
        self.marks: list[tuple[Any, Any]] = []

    @contextmanager
    def watched(self, machine: Machine) -> Iterator[Replays]:
        if machine.kind != "cuda":
            yield self
            return
        stock = torch.cuda.CUDAGraph.replay

        def replay(graph: Any) -> None:
            begin = machine.mark()
            stock(graph)
            self.marks.append((begin, machine.mark()))

        torch.cuda.CUDAGraph.replay = replay  # type: ignore[method-assign]
        try:
            yield self
        finally:
            torch.cuda.CUDAGraph.replay = stock  # type: ignore[method-assign]


# --- models and rows -------------------------------------------------------------------------------------------------


def build(shape: Shape, machine: Machine) -> Any:
    """A model with random weights, the same each time, in bfloat16."""
    config = getattr(transformers, shape.family + "Config")(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.dim,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=1 << 20,
        rope_theta=shape.theta,
        attn_implementation="sdpa",
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    try:
        with machine.device:
            model = getattr(transformers, shape.family + "ForCausalLM")(config).eval()
    finally:
        torch.set_default_dtype(before)
    return model.requires_grad_(False)


def tokens(model: Any, batch: int, n: int, seed: int = 1) -> torch.Tensor:
    """Random ones, without those that mean something."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(2, model.config.vocab_size, (batch, n), generator=draw).to(model.device)


class DrawnLayer(DynamicLayer):
    """A filled layer whose rows are drawn when they are asked for: of a long context there is one layer's at a time."""

    def __init__(self, number: int, shape: tuple[int, int, int, int], like: torch.Tensor) -> None:
        self.number, self.shape = number, shape
        self.dtype, self.device, self.is_initialized = like.dtype, like.device, True

    def _drawn(self, which: int) -> torch.Tensor:
        draw = torch.Generator(self.device).manual_seed(2 * self.number + which)
        return torch.randn(self.shape, dtype=self.dtype, device=self.device, generator=draw)

    @property
    def keys(self) -> torch.Tensor:  # type: ignore[override]
        return self._drawn(0)

    @property
    def values(self) -> torch.Tensor:  # type: ignore[override]
        return self._drawn(1)

    def get_seq_length(self) -> int:
        return self.shape[2]


def rows_of(model: Any, batch: int, length: int) -> DynamicCache:
    """A DynamicCache of random rows, the same for each arm."""
    config, cache = model.config, DynamicCache()
    shape = (batch, config.num_key_value_heads, length, config.head_dim)
    like = next(model.parameters())
    cache.layers = [DrawnLayer(number, shape, like) for number in range(config.num_hidden_layers)]
    cache.layer_class_to_replicate = None
    return cache


# --- dci -------------------------------------------------------------------------------------------------------------


def named(spec: str) -> tuple[str, dict[str, Any]]:
    """Of PRESET[:option=value..] the preset and its options."""
    preset, *given = spec.split(":")
    options: dict[str, Any] = {}
    for pair in given:
        name, _, text = pair.partition("=")
        for kind in (int, float):
            try:
                options[name] = kind(text)
                break
            except ValueError:
                options[name] = text
    return preset, options


@contextmanager
def enabled(
    model: Any, machine: Machine, spec: str, budget: int, batch: int, max_tokens: int, chunk: int
) -> Iterator[None]:
    """The model decodes through dci. The one place that knows the options of enable."""
    preset, options = named(spec)
    if machine.kind != "cpu":
        options = {"max_tokens": max_tokens, "max_sequences": batch, "prefill_chunk_size": chunk, **options}
    if machine.gpu is not None:
        options["gpu"] = machine.gpu
    dci.transformers.enable(model, preset=preset, budget=budget, **options)
    try:
        yield
    finally:
        dci.transformers.disable(model)


class Drawn(Sequence[tuple[torch.Tensor, torch.Tensor]]):
    """Keys and values by layer, drawn when they are asked for. Those of the last layer stay, for its next row or part."""

    def __init__(self, source: DynamicCache) -> None:
        self.layers = source.layers
        self.last: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, number: Any) -> Any:
        if self.last[0] != number:
            self.last = (-1, None)  # before others are drawn
            self.last = (number, (self.layers[number].keys, self.layers[number].values))
        return self.last[1]


def filled(model: Any, source: DynamicCache) -> Any:
    """A cache of dci with the rows of another one. The one place that knows how rows get in without a forward: as those of a
    DynamicCache that the model was given, which its next forward takes in."""
    cache = dci.transformers.new_cache(model)
    cache.session.imported, cache.session.seen = Drawn(source), source.get_seq_length()
    return cache


def cache_figures(cache: Any) -> dict[str, Any]:
    """What a cache of dci says of itself."""
    info = cache.kv.info()
    fields = info._asdict()
    out: dict[str, Any] = {"planner": fields.get("planner", "host")}
    for name, given in (("kv_device_gib", "device_bytes"), ("pinned_gib", "pinned_bytes")):
        if given in fields:
            out[name] = fields[given] / GIB
    if fields.get("n_asked"):
        out["missed"] = fields["n_missed"] / fields["n_asked"]
    return out


class Clock(StoppingCriteria):  # type: ignore[misc]
    """generate() calls it after each token: it notes the time, and stops nothing. The first two wait for the token."""

    def __init__(self, machine: Machine, warm: int = 0, replays: Replays | None = None) -> None:
        self.machine, self.warm, self.replays = machine, warm, replays
        self.marks: list[Any] = []
        self.walls: list[float] = []
        self.replayed: list[int] = []
        self.after_prompt: dict[str, float] = {}

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        n = len(self.walls)
        if n in (0, 1, self.warm):
            self.machine.sync()
        if n == 0:
            self.after_prompt = self.machine.memory()
        elif n == self.warm:
            self.machine.tidy()  # what the prompt's activations took is not the decode's
        self.marks.append(self.machine.mark())
        self.walls.append(time.perf_counter())
        self.replayed.append(0 if self.replays is None else len(self.replays.marks))
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def generate(model: Any, ids: torch.Tensor, cache: Any, n: int, clock: Clock, chunk: int = 0) -> torch.Tensor:
    """n greedy tokens by the model's own generate()."""
    more = {"prefill_chunk_size": chunk} if 0 < chunk < ids.shape[1] else {}
    out: torch.Tensor = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        past_key_values=cache,
        max_new_tokens=n,
        do_sample=False,
        stopping_criteria=[clock],
        **more,
    )
    return out


# --- the others ------------------------------------------------------------------------------------------------------


def graphed(machine: Machine, step: Callable[[], None]) -> Callable[[], None]:
    """The step as one CUDA graph; without a GPU as it is."""
    if machine.kind != "cuda":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(kept: Callable[[], None] = step) -> None:  # with the tensors that the graph reads
        graph.replay()

    return replay


BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
ROOM = 64  # tokens after the context that fixed buffers have room for


def stock_step(model: Any, machine: Machine, arm: str, batch: int, length: int) -> Callable[[], None]:
    """A greedy step of the model itself, called as generate() calls it, with one of transformers' caches."""
    if arm.startswith("static"):
        cache: Any = StaticCache(config=model.config, max_cache_len=length + ROOM)
    else:
        cache = DynamicCache(config=model.config, offloading=arm == "offloaded")
    source = rows_of(model, batch, length)
    for number, layer in enumerate(source.layers):
        cache.update(layer.keys, layer.values, number)
    token = torch.full((batch, 1), 2, dtype=torch.long, device=machine.device)
    position = torch.full((batch, 1), length, device=machine.device)

    def step() -> None:
        logits = model(token, past_key_values=cache, position_ids=position, use_cache=True).logits
        token.copy_(logits[:, -1:].argmax(-1))
        position.add_(1)

    return graphed(machine, step) if arm == "static" else step


class Loop:
    """The model's modules by hand: keys and values in buffers on the device, attention by one of PyTorch's backends."""

    def __init__(self, model: Any, machine: Machine, batch: int, room: int, backend: str = "flash") -> None:
        self.model, self.machine, self.backend = model, machine, BACKENDS[backend]
        self.rotate = sys.modules[type(model).__module__].apply_rotary_pos_emb
        config = model.config
        self.heads, self.dim = config.num_key_value_heads, config.head_dim
        self.group = config.num_attention_heads // self.heads
        shape = (batch, self.heads, room, self.dim)
        options = {"dtype": next(model.parameters()).dtype, "device": machine.device}
        self.keys, self.values = ([torch.zeros(shape, **options) for _ in range(config.num_hidden_layers)] for _ in "kv")

    def fill(self, length: int) -> None:
        """The rows that every arm has."""
        source = rows_of(self.model, self.keys[0].shape[0], length)
        for number, layer in enumerate(source.layers):
            self.keys[number][:, :, :length] = layer.keys
            self.values[number][:, :, :length] = layer.values

    def _states(self, attention: Any, x: torch.Tensor, at: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value, [batch, heads, positions, dim], after rotation."""
        shape = (*x.shape[:2], -1, self.dim)
        q, k, v = (attention.q_proj(x).view(shape), attention.k_proj(x).view(shape), attention.v_proj(x).view(shape))
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        q, k = self.rotate(q.transpose(1, 2), k.transpose(1, 2), *at)
        return q, k, v.transpose(1, 2)

    def _through(self, ids: torch.Tensor, positions: torch.Tensor, attend: Any) -> torch.Tensor:
        """The next tokens, [batch, 1]."""
        inner = self.model.model
        x = inner.embed_tokens(ids)
        at = inner.rotary_emb(x, positions)
        for number, layer in enumerate(inner.layers):
            states = self._states(layer.self_attn, layer.input_layernorm(x), at)
            out = attend(number, *states).transpose(1, 2).reshape(*x.shape[:2], -1)
            x = x + layer.self_attn.o_proj(out)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        best: torch.Tensor = self.model.lm_head(inner.norm(x[:, -1:])).argmax(-1)
        return best

    def chunk(self, ids: torch.Tensor, begin: int) -> torch.Tensor:
        """Part of a prompt, from position `begin` on, that sees all before it."""
        end = begin + ids.shape[1]

        def attend(number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.keys[number], self.values[number]
            keys[:, :, begin:end], values[:, :, begin:end] = k, v
            return attention_of_chunk(q, keys[:, :, :end], values[:, :, :end], q.shape[3] ** -0.5)  # as dci's prompts do

        return self._through(ids, torch.arange(begin, end, device=self.machine.device)[None], attend)

    def prompt(self, ids: torch.Tensor, chunk: int) -> torch.Tensor:
        """A prompt in chunks (0: whole)."""
        out = ids
        for begin in range(0, ids.shape[1], chunk or ids.shape[1]):
            out = self.chunk(ids[:, begin : begin + (chunk or ids.shape[1])], begin)
        return out

    def step(self, length: int) -> Callable[[], None]:
        """A greedy step at the end of `length` tokens, as a CUDA graph. What a graph attends to has a fixed size: the whole
        buffers, whose last rows are zeros until tokens are written there. A kv head's query heads are query positions of one
        head, which reads each key once with any backend."""
        batch, room = self.keys[0].shape[0], self.keys[0].shape[2]
        token = torch.full((batch, 1), 2, dtype=torch.long, device=self.machine.device)
        position = torch.full((1,), length, device=self.machine.device)
        on_gpu = self.machine.kind == "cuda"

        def attend(number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.keys[number], self.values[number]
            keys.index_copy_(2, position, k)
            values.index_copy_(2, position, v)
            folded = q.reshape(batch, self.heads, self.group, self.dim)
            if on_gpu:
                with sdpa_kernel(self.backend):
                    out = F.scaled_dot_product_attention(folded, keys, values)
            else:
                out = F.scaled_dot_product_attention(folded, keys, values)
            return out.reshape(batch, self.heads * self.group, 1, self.dim)

        def step() -> None:
            token.copy_(self._through(token, position.expand(batch, 1), attend))
            position.add_(1).clamp_(max=room - 1)

        return graphed(self.machine, step)


def bus_gb_s(machine: Machine) -> float:
    """Of one large copy out of pinned memory to the device (without a GPU: of the host's memory); the best of five."""
    n = GIB if machine.kind == "cuda" else 2**24
    here = torch.ones(n, dtype=torch.uint8, pin_memory=machine.kind == "cuda")
    there = torch.empty_like(here, device=machine.device)
    best = 0.0
    for _ in range(5):
        marks = [machine.mark()]
        there.copy_(here, non_blocking=True)
        marks.append(machine.mark())
        machine.sync()
        best = max(best, n / machine.between(marks)[0] * 1e-6)
    return best
