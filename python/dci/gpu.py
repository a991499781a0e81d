# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""KV caches whose keys and values lie in host memory and whose attention runs on a GPU.

    gpu = dci.gpu.GPU()  # the first one; dci.gpu.GPU("host") is the CPU in a GPU's place
    kv = dci.gpu.GPUKVCache(gpu, n_layers, n_query_heads, n_kv_heads, dim_k, dtype="bfloat16", query_dtype="bfloat16")

GPUs need a library with CUDA: that of `pip install ./python -C cmake.define.DCI_CUDA=ON`, of the wheel libdci-cu13, or the
one that the environment variable DCI_LIBRARY names. Where that, the driver or the GPU is missing, count() and GPU(0) say so.
The host device is there in every build.

include/dci/offload.h says what each call promises, docs/gpu.md how it works and what it costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_int32, c_size_t
from typing import Any, ClassVar, Literal, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _gpu_structs, _kv_structs
from ._errors import DciError, InvalidError
from ._gpu_arrays import (
    HOST,
    Located,
    current_stream,
    in_format,
    new_output,
    output_on_device,
    rows_on_device,
    stream_number,
    tokens_on_device,
    view_of,
)
from ._gpu_info import GPUInfo, GPUKVInfo
from ._kv_base import Counts, KVBase, Sequences, number_of
from ._kv_info import KVInfo
from ._kv_rows import as_counts, as_sequences
from ._library import Handle, address, check, chosen, create, lib, prepared
from ._rows import RowFormat, as_count, row_format
from .context import Context, context_of
from .kv import KVCache

#: Options that GPUKVCache has in common with KVCache, with their defaults.
OPTIONS: dict[str, Any] = {
    name: value for name, value in (KVCache.__init__.__kwdefaults__ or {}).items() if name not in ("context", "piece_bytes")
}


def count() -> int:
    """How many GPUs there are, at least 1.

    UnsupportedError where there is none to use: its sentence says what is missing (CUDA in this build, a driver, one that is
    new enough, a GPU, or one that CUDA_VISIBLE_DEVICES shows) and what to do.
    """
    out = c_int32()
    check(lib.dci_gpu_count(byref(out)))
    return out.value


class GPU:
    """A device.

    device      0 to count() - 1, or "host": the CPU in a GPU's place, which every build has. It runs each kernel's
                reference, with host memory in place of device memory, for tests and for trying programs out.
    context     threads and instruction set of the host's work; None: default_context().

    Refused: no such device, a driver that is too old, a compute capability without kernels. It lives as long as something
    uses it.
    """

    __slots__ = ("_context", "_device", "_handle")

    def __init__(self, device: SupportsIndex | Literal["host"] = 0, context: Context | None = None) -> None:
        config = prepared(_gpu_structs.GPUConfig)
        if isinstance(device, str):
            config.device = chosen({"host": _gpu_structs.GPU_HOST}, device, "device")
        else:
            config.device = as_count(device, "device", 2**31 - 1)
        self._device = int(config.device)
        self._context = context_of(context)
        self._handle = create(lib.dci_gpu_create, lib.dci_gpu_destroy, self._context._handle.value, byref(config))

    @property
    def device(self) -> int | str:
        """As it was given."""
        return "host" if self._device == HOST else self._device

    @property
    def context(self) -> Context:
        """Threads and instruction set of the host's work."""
        return self._context

    def info(self) -> GPUInfo:
        """What the device is, and how much of its memory is free."""
        struct = prepared(_gpu_structs.GPUInfo)
        check(lib.dci_gpu_get_info(self._handle.value, byref(struct)))
        fields = {name: getattr(struct, name) for name in GPUInfo._fields}
        return GPUInfo(**{**fields, "name": struct.name.decode(errors="replace")})

    def __reduce__(self) -> Any:
        raise TypeError("devices cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"GPU({self.device!r}, name={self.info().name!r})"


class _Step(NamedTuple):
    """The step that is open."""

    n_sequences: int
    n_tokens: int
    stream: int | None  #: None: torch's current one, or the default


class GPUKVCache(KVBase):
    """Keys and values of many sequences in locked host memory, with attention on a device.

    The life of a sequence:

        gpu = dci.gpu.GPU(0)
        kv = dci.gpu.GPUKVCache(gpu, n_layers, n_query_heads, n_kv_heads, dim_k, preset="sketch", budget=256)
        s = kv.open()
        with kv.step(s, n):                             # or reserve, and then step_end or step_abort
            for layer in range(n_layers):
                kv.append(layer, keys, values)          # (n, n_kv_heads, dim_k) each, on the device
                kv.end_prompt(layer, s, queries[-64:])  # once, with the last step of the prompt
        while generating:
            with kv.step(s):                            # one more token
                for layer in range(n_layers):
                    kv.append(layer, keys, values)      # (n_kv_heads, dim_k)
                    kv.plan(layer, queries)             # queries (n_query_heads, dim_k); waits for them, if the host chooses
                    out = kv.attend(layer, queries)     # (n_query_heads, dim_k); nothing waits
            kv.maintain()                               # what the host chooses by; a device does it in its steps

    A chunk of tokens after earlier ones (of a long prompt, a later turn, guessed tokens) attends to all of them exactly, by
    the model's own attention over what history gives:

        with kv.step(s, n):
            for layer in range(n_layers):
                kv.append(layer, keys, values)
                all_keys, all_values = kv.history(layer, s)     # (n_kv_heads, n_tokens, dim_k) each, on the device

    Attention among a prompt's own tokens is the model's. A step is of one or more sequences, and its calls are of all of
    them, in the order that reserve was given; rows of one sequence follow those of another. include/dci/offload.h has all
    limits.

    gpu         a GPU; it may serve many KV caches.
    n_layers, n_query_heads, n_kv_heads, dim_k
                as for KVCache; dim_k is 64, 96, 128 or 256, and dim_v the same, with at most 16 query heads per kv head.
    max_sequences
                at the same time, 1 to 4,096; the device has a place for each from the start. max_tokens: of a sequence.
    ring_tokens latest tokens on the device, at least the budget, or the recent tokens that do not count in it; None: that.
    hot_tokens  of the buffer of fetched tokens, per sequence, sparse layer and kv head; None: twice the budget of
                each of its lists (query_head_lists), at most 8,192.
    gather      how rows that are not on the device come there: "mapped" (a kernel reads them in host memory), "staged",
                "batched", "copies", or "direct" (not at all: attention reads them in host memory).
    out_dtype   of attention's output: "float32", "float16" or "bfloat16".
    piece_bytes host memory is locked in pieces of at least so many bytes, which layers share; None: the library decides.
    max_device_bytes
                0: no limit but the device's.
    device_resident_bytes
                device memory for pages of sparse layers, which stay there until others need the room, so that less comes
                over the bus; 0: none. No output depends on it (resident_bytes, an option of KVCache, is another thing).
    planner     who chooses what is attended to: "host"; "device", which queues its selection after what was queued before
                and lets nothing wait (UnsupportedError, with the reason, where it cannot); "auto": the device where it can,
                else the host; info().planner says which. include/dci/offload.h lists what the device can plan.
    options     all others of KVCache, by name: preset, budget, dtype ("float16" or "bfloat16"), query_dtype, ... A layout is
                refused.

    Arrays are tensors of torch, or what has `__cuda_array_interface__` (with which attend wants out), on the device; on the
    host device NumPy arrays and tensors in the host's memory, bfloat16 of NumPy as for Index. They are of their dtype,
    always used in place, and refused where they would have to be copied: elements of a row lie side by side, rows of queries
    and outputs at equal distances, keys and values at multiples of 16 bytes.

    Work is queued on a stream, one for all calls of a step: what reserve or step were given (an int, or an object with
    `cuda_stream`, such as torch.cuda.Stream). None: the one that is torch's current stream of the device at each call, where
    torch has used GPUs, and else the default stream. Calls return before their work is done unless they say that they wait.
    Tensors of torch's current stream may be dropped or overwritten after a call as in torch itself; with another stream
    given, keep them until it has done the work, or use Tensor.record_stream.

    Calls may come from any thread, as for KVCache. A call that fails raises an exception derived from DciError, and bad
    input and want of memory leave everything as it was. DeviceError: the device's runtime refused or failed.
    """

    __slots__ = ("_gpu", "_host_kv", "_kept", "_limits", "_out", "_planner", "_step")

    _C: ClassVar[str] = "dci_gpu_kv_"

    def __init__(
        self,
        gpu: GPU,
        n_layers: SupportsIndex,
        n_query_heads: SupportsIndex,
        n_kv_heads: SupportsIndex,
        dim_k: SupportsIndex,
        dim_v: SupportsIndex | None = None,
        *,
        max_sequences: SupportsIndex = 1,
        max_tokens: SupportsIndex = 131072,
        ring_tokens: SupportsIndex | None = None,
        hot_tokens: SupportsIndex | None = None,
        gather: str = "mapped",
        out_dtype: npt.DTypeLike = "float32",
        piece_bytes: SupportsIndex | None = None,
        max_device_bytes: SupportsIndex = 0,
        device_resident_bytes: SupportsIndex = 0,
        planner: str = "auto",
        **options: Any,
    ) -> None:
        given = dict(locals())
        if not isinstance(gpu, GPU):
            raise TypeError(f"gpu is {type(gpu).__name__}, wanted a dci.gpu.GPU")
        for name in options:
            if name not in OPTIONS:
                raise TypeError(f"GPUKVCache has no option {name!r}")
        shape = {name: given[name] for name in ("n_layers", "n_query_heads", "n_kv_heads", "dim_k", "dim_v")}
        config, kept = self._prepare({**OPTIONS, **options, **shape})
        self._out = row_format(out_dtype, "out_dtype", "KV cache", "out_dtype")
        own = prepared(_gpu_structs.GPUKVConfig)
        own.planner = chosen(_gpu_structs.GPU_PLANNERS, planner, "planner")
        own.gather, own.out_dtype = chosen(_gpu_structs.GPU_GATHERS, gather, "gather"), self._out.code
        sizes = ("max_sequences", "max_tokens", "ring_tokens", "hot_tokens", "piece_bytes", "max_device_bytes")
        for name in (*sizes, "device_resident_bytes"):
            if given[name] is not None:
                setattr(own, name, as_count(given[name], name))
        self._gpu = gpu
        self._step: _Step | None = None
        self._kept: list[Any] = []  # rows of the step, which a prompt's end may look at again
        at = (gpu._handle.value, byref(config), byref(own))
        handle = create(lib.dci_gpu_kv_create, lib.dci_gpu_kv_destroy, *at)
        del kept  # layers are copied
        self._host_kv = int(lib.dci_gpu_kv_host(handle.value))
        self._handle = handle
        self._limits = int(own.max_sequences), int(own.max_tokens)
        self._planner = self.info().planner

    def _host(self, handle: Handle) -> int:
        return self._host_kv

    # Sequences

    def free(self, sequence: SupportsIndex) -> None:
        """Ends a sequence, not in the middle of a step."""
        self._call("close", self._live(), number_of(sequence))

    def swap_out(self, sequence: SupportsIndex) -> None:
        """Gives up an idle sequence's place on the device: its place among max_sequences, its codes or pages' summaries, and
        its resident pages. What only the device had is copied to host memory, which counts for max_bytes. The sequence can
        then be freed, saved, forked (the fork has a place), polled and read; steps, truncate and maintain refuse it until
        swap_in. Waits for the device. Freed memory serves other sequences; trim gives it back.
        """
        self._call("swap_out", self._live(), number_of(sequence))

    def swap_in(self, sequence: SupportsIndex) -> None:
        """Gives a sequence that was swapped out a place on the device again. It goes on with the same plans and outputs as
        if it had stayed, without a second prefill; its hot buffer is empty. FullError: there are max_sequences on the
        device, or max_device_bytes does not allow it; nothing has changed. Waits for the device.
        """
        self._call("swap_in", self._live(), number_of(sequence))

    def trim(self, what: Literal["all", "buffers"] = "all") -> None:
        """Between steps: gives back device memory and locked host memory that no sequence uses, or only the buffers of
        history and of ends of prompts. Steps take it again as they need it, which costs time, so freeing a sequence does
        not do it by itself. Captured graphs stay valid.
        """
        self._call("trim", self._live(), chosen(_gpu_structs.GPU_TRIMS, what, "what"))

    # Steps

    def reserve(self, sequences: Sequences, n_tokens: Counts = 1, *, stream: Any = None) -> None:
        """Begins a step, one at a time, of different sequences: takes all memory that n_tokens more tokens of each need.

        n_tokens    one number, or (n_sequences,).
        stream      of all calls of the step: None, an int, or an object with `cuda_stream`.

        What cannot be had is refused, and nothing has changed.
        """
        handle, names = self._live(), as_sequences(sequences)
        counts = as_counts(n_tokens, names.size, "n_tokens")
        step = _Step(names.size, int(counts.sum()), stream_number(stream))
        self._call("reserve", handle, self._stream(step), names.size, address(names), address(counts))
        self._step = step

    def append(self, layer: SupportsIndex, keys: Any, values: Any) -> None:
        """Stores keys and values of one layer, for all tokens that were reserved.

        keys        (n_tokens, n_kv_heads, dim_k): rows of all sequences, one sequence after another; or (n_kv_heads, dim_k)
                    for one token; or (n_sequences, n_each, n_kv_heads, dim_k).
        values      the same.

        Rows with NaN or infinity set the sequence's flag, see poll.
        """
        handle, step, number = self._live(), self._opened(), as_count(layer, "layer")
        rows = self._rows_of(keys, values, step.n_sequences, step.n_tokens, "were reserved")
        self._call("append", handle, self._stream(step), number, byref(rows))
        self._kept.append((keys, values))

    def _rows_of(self, keys: Any, values: Any, n_sequences: int, n: int, why: str) -> _kv_structs.KVRows:
        """Rows of keys and values, n tokens of each."""
        rows, of = prepared(_kv_structs.KVRows), (self._heads[0], self._row, self._gpu._device)
        k = tokens_on_device(keys, n_sequences, of[0], self._shape[0], *of[1:], "keys")
        v = tokens_on_device(values, n_sequences, of[0], self._shape[1], *of[1:], "values")
        for found, what in ((k, "keys"), (v, "values")):
            if found.n != n:
                raise InvalidError(f"{what} has {found.n} tokens, but {n} {why}")
        rows.keys, rows.key_token_stride, rows.key_head_stride = k.at.address, k.token_stride, k.head_stride
        rows.values, rows.value_token_stride, rows.value_head_stride = v.at.address, v.token_stride, v.head_stride
        return rows

    def history(self, layer: SupportsIndex, sequence: SupportsIndex) -> tuple[Any, Any]:
        """Keys and values of all tokens of a sequence in one layer, on the device: those of earlier steps and of the step
        that is open, after append of the layer. For exact attention of several queries: chunks of a prompt, later turns,
        guessed tokens. The rows that append was given must still hold what they held.

        Returns (n_kv_heads, n_tokens, dim_k) and (n_kv_heads, n_tokens, dim_v), each contiguous, in the cache's memory and
        not to be written to: tensors where torch is imported; else on the host device arrays (bfloat16 as uint16), on a GPU
        objects with `__cuda_array_interface__`. Work that is queued on the step's stream afterwards finds the rows there.
        They last for what is queued before the next call for another layer or sequence, and before the step ends: the next
        call starts to overwrite them after that work. What reads them later, also the CPU, finds other rows.

        Rows come over the bus while the model computes: the call also starts the copy of what is expected next, the step's
        next sequence or layer. It takes device memory for two buffers of all tokens of a sequence in one layer
        (info().buffer_bytes); without memory for one it raises an exception and changes nothing. To name the rows for the
        end of a prompt that came in chunks:

            kv.prompt_rows(layer, s, all_keys.swapaxes(0, 1), all_values.swapaxes(0, 1))
        """
        handle, step, number = self._live(), self._opened(), as_count(layer, "layer")
        rows, n = prepared(_kv_structs.KVRows), c_size_t()
        self._call("history", handle, self._stream(step), number, number_of(sequence), byref(rows), byref(n))
        heads, device = self._heads[0], self._gpu._device
        found = [
            view_of(at or 0, (heads, n.value, dim), self._row, device, self._handle)
            for at, dim in ((rows.keys, self._shape[0]), (rows.values, self._shape[1]))
        ]
        return found[0], found[1]

    def prompt_rows(self, layer: SupportsIndex, sequence: SupportsIndex, keys: Any, values: Any) -> None:
        """For prompts that came in several steps, where the device plans: names the rows of all of a sequence's tokens in
        this layer, right before prompt in the step that ends the prompt. Without it the host makes what is chosen by, before
        the next step. Where the host plans, it is ignored.

        keys        (n_tokens, n_kv_heads, dim_k), from the sequence's first token to the last one of this step. The cache
                    keeps them until the step's end; what they hold must stay as it is until then.
        values      the same.
        """
        handle, step, number = self._live(), self._opened(), as_count(layer, "layer")
        name = number_of(sequence)
        has = self._sequence(handle, name)
        rows = self._rows_of(keys, values, 1, has.n_tokens + has.n_reserved, f"tokens are of sequence {name}")
        self._call("prompt_rows", handle, self._stream(step), number, name, byref(rows))
        self._kept.append((keys, values))

    def end_prompt(self, layer: SupportsIndex, sequence: SupportsIndex, queries: Any = None) -> None:
        """Says that a sequence's prompt is whole in this layer, as KVCache.end_prompt. The host's work on the layer begins
        when its rows have arrived, while the caller goes on with the next layers; what it wants may be refused by plan or
        step_end. A device that plans works, on the stream, on the rows that append was given in this step, or prompt_rows:
        the cache keeps them until the step's end, but they must not be overwritten by what is queued before that work.

        queries     (n_positions, n_query_heads, dim_k): those of the prompt's last positions, 64 are plenty. None where the
                    preset can do without.
        """
        handle, step, number = self._live(), self._opened(), as_count(layer, "layer")
        n, where, ld = 0, 0, self._shape[0]
        if queries is not None:
            at = in_format(queries, self._query, self._gpu._device, "queries")
            n_query_heads, dim = self._heads[1], self._shape[0]
            if len(at.shape) != 3 or at.shape[1:] != (n_query_heads, dim):
                raise InvalidError(f"queries has shape {at.shape}, wanted (n_positions, {n_query_heads}, {dim})")
            n, where, ld = at.shape[0], at.address, rows_on_device(at, dim, "queries")
        self._call("end_prompt", handle, self._stream(step), number, number_of(sequence), n, where or None, ld)

    def plan(self, layer: SupportsIndex, queries: Any) -> None:
        """Chooses which tokens the queries of one layer attend to. Where the device plans, nothing waits; the host waits
        until the stream has brought the queries. Layers that attend to everything wait for nothing.

        queries     (n_sequences, n_query_heads, dim_k), or (n_query_heads, dim_k) for one sequence: those of the step's last
                    tokens, which were appended to this layer before.
        """
        handle, step, number = self._live(), self._opened(), as_count(layer, "layer")
        at, ld = self._asked(queries, step)
        self._call("plan", handle, self._stream(step), number, at.address, ld)

    def attend(self, layer: SupportsIndex, queries: Any, *, out: Any = None, lse: Any = None) -> Any:
        """Attention of one layer over its plan of this step: what is missing is fetched, and softmax(scale q . K) V merged
        with the tail. Nothing waits.

        queries     as in plan.
        out         of out_dtype and the result's shape, to write to; None: a new one of the library of queries, on its
                    device.
        lse         contiguous float32 (n_sequences, n_query_heads), or (n_query_heads,), to write to: the log of the sum of
                    exponentials, the tail's included.

        Returns (n_sequences, n_query_heads, dim_v), or (n_query_heads, dim_v) for queries without the first axis; out, if
        that was given.
        """
        handle, step, number = self._live(), self._opened(), as_count(layer, "layer")
        at, ld = self._asked(queries, step)
        shape, device = at.shape[:-1], self._gpu._device
        result = new_output(queries, (*shape, self._shape[1]), self._out, step.stream) if out is None else out
        to, out_ld = output_on_device(result, (*shape, self._shape[1]), self._out, device, "out")
        lse_at = None
        if lse is not None:
            sums, between = output_on_device(lse, shape, _LSE, device, "lse")
            if len(shape) == 2 and between != shape[1]:
                raise InvalidError(f"lse has strides {sums.strides}, wanted it to be contiguous")
            lse_at = sums.address
        self._call("attend", handle, self._stream(step), number, at.address, ld, to.address, out_ld, lse_at)
        return result

    def _asked(self, queries: Any, step: _Step) -> tuple[Located, int]:
        """Queries of the step's sequences, and how many elements apart."""
        at = in_format(queries, self._query, self._gpu._device, "queries")
        one = self._heads[1], self._shape[0]
        if at.shape != (step.n_sequences, *one) and (at.shape != one or step.n_sequences != 1):
            raise InvalidError(f"queries has shape {at.shape}, wanted {(step.n_sequences, *one)}")
        return at, rows_on_device(at, one[1], "queries")

    def capture(self, max_tokens: SupportsIndex = 0) -> None:
        """In a step of one token for each sequence, before its layers: until the step's end, what append, plan and attend
        queue is sized for sequences of up to max_tokens tokens (0: the cache's), and may be captured, on the step's stream,
        in a CUDA graph that later steps launch again, see replay. Refused where the host plans.

            stream = torch.cuda.Stream()
            kv.reserve(s, stream=stream)
            kv.capture()
            with torch.cuda.graph(graph, stream=stream):
                out = model_step(kv, token)             # append, plan and attend of all layers
            with torch.cuda.stream(stream):
                graph.replay()                          # capturing has done nothing yet
            kv.step_end()
            while generating:
                kv.reserve(s, stream=stream)
                kv.replay()
                with torch.cuda.stream(stream):
                    graph.replay()
                kv.step_end()

        Tensors that the graph reads and writes are the caller's to keep: the cache lets go of rows at the step's end.
        """
        handle, step = self._live(), self._opened()
        self._call("capture", handle, self._stream(step), as_count(max_tokens, "max_tokens"))

    def replay(self, max_tokens: SupportsIndex = 0) -> None:
        """In place of a step's calls for its layers: a graph that was captured with this max_tokens, and as many sequences
        (whichever), is launched on the step's stream between this and step_end."""
        handle, step = self._live(), self._opened()
        self._call("replay", handle, self._stream(step), as_count(max_tokens, "max_tokens"))

    def step_end(self) -> None:
        """Ends the step: all layers have all tokens that were reserved. A prompt's end waits for its rows to arrive. Refused
        if a layer has not got its tokens, or if a prompt's work could not be done: call it again, or take the step back."""
        handle, step = self._live(), self._opened()
        self._call("step_end", handle, self._stream(step))
        self._step = None
        self._kept.clear()

    def step_abort(self) -> None:
        """Takes the step back: the sequences are as before reserve. Prompts that ended in it have not. Waits for the
        device."""
        handle = self._live()
        self._call("step_abort", handle)
        self._step = None
        self._kept.clear()

    @contextmanager
    def step(self, sequences: Sequences, n_tokens: Counts = 1, *, stream: Any = None) -> Iterator[None]:
        """A step as a `with` block: reserve before it, step_end after it; an exception in either takes the step back."""
        self.reserve(sequences, n_tokens, stream=stream)
        try:
            yield
            self.step_end()
        except BaseException:
            self._take_back()
            raise

    def _take_back(self) -> None:
        with suppress(DciError):  # the cache was closed in its step, or the device has failed
            self.step_abort()

    def _opened(self) -> _Step:
        step = self._step
        if step is None:
            raise InvalidError("no step is open: reserve begins one")
        return step

    def _stream(self, step: _Step) -> int:
        return current_stream(self._gpu._device) if step.stream is None else step.stream

    def sync(self) -> None:
        """Waits until everything is done and all rows are in host memory, and for the host's workers."""
        self._call("sync", self._live())

    # What there is

    def poll(self, sequences: Sequences) -> npt.NDArray[np.bool_]:
        """Whether sequences have got rows with NaN or infinity since they were opened, as of the work that is done:
        (n_sequences,) bool. Waits for nothing. The host chooses nothing by such rows: its plans of the sequence raise
        NumberError, and so does maintain. A device that plans does not look at the flag: what such a sequence attends to is
        of no use. Take the step back and free the sequence."""
        return self.bad_layers(sequences) >= 0

    def bad_layers(self, sequences: Sequences) -> npt.NDArray[np.int32]:
        """As poll, and where: (n_sequences,) int32, the first layer that got rows with NaN or infinity, or -1."""
        handle, names = self._live(), as_sequences(sequences)
        out = np.zeros(names.size, np.int32)
        if names.size:
            check(lib.dci_gpu_poll(handle.value, names.size, address(names), address(out)))
        return out - 1

    def read(
        self,
        layer: SupportsIndex,
        sequence: SupportsIndex,
        kv_head: SupportsIndex,
        first: SupportsIndex = 0,
        n: SupportsIndex | None = None,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """As KVCache.read, from host memory: waits as sync does."""
        self.sync()
        return super().read(layer, sequence, kv_head, first, n)

    def info(self) -> GPUKVInfo:
        """Memory, what was asked for and what was fetched. Waits for the device."""
        handle, struct = self._live(), prepared(_gpu_structs.GPUKVInfo)
        self._call("get_info", handle, byref(struct))
        fields = {name: getattr(struct, name) for name in GPUKVInfo._fields}
        return GPUKVInfo(**{**fields, "planner": _PLANNERS[int(struct.planner)]})

    def host_info(self) -> KVInfo:
        """The KV cache in host memory: choices as they came out, blocks and bytes."""
        return self._info()

    @property
    def gpu(self) -> GPU:
        """The device."""
        return self._gpu

    @property
    def max_sequences(self) -> int:
        """At the same time."""
        return self._limits[0]

    @property
    def max_tokens(self) -> int:
        """Of a sequence."""
        return self._limits[1]

    @property
    def planner(self) -> str:
        """Who chooses what is attended to: "device" or "host"."""
        return self._planner

    @property
    def in_step(self) -> bool:
        """Whether a step is open."""
        return self._step is not None

    @property
    def out_dtype(self) -> str:
        """Of attention's output."""
        return self._out.name

    def __enter__(self) -> GPUKVCache:
        return self

    def __repr__(self) -> str:
        return self._described(f"gpu={self._gpu.device!r}, ")


_PLANNERS = {code: name for name, code in _gpu_structs.GPU_PLANNERS.items()}
_LSE: RowFormat = row_format("float32", "lse", "log of sums", "lse")

__all__ = ["GPU", "GPUInfo", "GPUKVCache", "GPUKVInfo", "count"]
