#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What offloading a prompt adds to its prefill: a model's matrix products and attention, with and without a KV cache.

    DCI_LIBRARY=build/cuda/libdci.so python3 bench/scripts/gpu_prefill.py --presets sketch,quest --json prefill.json

One run goes through all layers of a model of Llama 3.1 8B's shape (32 layers, 4,096 wide, 32 query heads on 8 kv heads of
128, 14,336 in the middle), in bf16: the products of QKV, O, gate and up, and down over all tokens of the prompt in chunks,
and causal attention by PyTorch's SDPA over the whole prompt. With a cache, each layer's keys and values go to it behind
their product (dci_gpu_kv_append), and what it chooses by is formed (dci_gpu_kv_end_prompt). Both are timed in turns, from
the first launch until everything is done: the cache's `sync` included, so that what the host still has to do counts. Weights
of two layers take turns, so that none stays in the L2. Presets that the host plans form their groups on the host.

Norms, rotary embedding and the activation are left out, and so is the rest of a model: that makes the prefill shorter, and
the share of the cache larger than it is in earnest. What the host builds it builds with --threads threads, while the model
computes: the rest that is left after that is what `whole` has beyond `device`. Needs torch, dci (python/) and a GPU.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"gpu_prefill.py: PyTorch cannot be imported: {error}")
try:
    import dci
except ImportError as error:
    sys.exit(f"gpu_prefill.py: dci cannot be imported: {error}")

OBSERVED = 64


class Model:
    """Weights of two layers, activations and outputs of a chunk; keys, values and queries of a layer's whole prompt."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        self.options = {"dtype": torch.bfloat16, "device": device}
        self.width = args.heads * 4 * args.dim
        inner = args.inner
        qkv = self.width + 2 * args.heads * args.dim
        self.weights = [tuple(self.matrix(*shape) for shape in
                              ((self.width, qkv), (self.width, self.width), (self.width, 2 * inner), (inner, self.width)))
                        for _ in range(2)]
        self.hidden = torch.randn(args.tokens, self.width, **self.options)
        self.qkv = torch.empty(args.tokens, qkv, **self.options)
        self.after = torch.empty(args.tokens, self.width, **self.options)

    def matrix(self, rows, columns):
        return torch.randn(rows, columns, **self.options) / rows**0.5

    def rows(self):
        """Queries, keys and values of the layer: views of one product."""
        n, heads, dim = self.args.tokens, self.args.heads, self.args.dim
        q, k, v = self.qkv.split((self.width, heads * dim, heads * dim), 1)
        return q.view(n, 4 * heads, dim), k.view(n, heads, dim), v.view(n, heads, dim)

    def layer(self, number, cache, sequence):
        """One layer over the whole prompt. A causal chunk's attention needs a mask that no backend is quick with, so the
        products come in chunks, as an engine has them, and attention comes whole."""
        into_qkv, into_out, into_both, into_width = self.weights[number % 2]
        args, x = self.args, self.hidden
        for begin in range(0, args.tokens, args.chunk):
            torch.mm(x[begin:begin + args.chunk], into_qkv, out=self.qkv[begin:begin + args.chunk])
        q, k, v = self.rows()
        if cache is not None:
            cache.append(number, k, v)
            cache.end_prompt(number, sequence, q[-OBSERVED:].contiguous())
        heads = (t.transpose(0, 1)[None] for t in (q, k, v))
        out = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        out = out[0].transpose(0, 1).reshape(args.tokens, self.width)
        for begin in range(0, args.tokens, args.chunk):
            part = out[begin:begin + args.chunk] @ into_out
            both = part @ into_both
            # Each layer begins with the same numbers: fed on, they would shrink to zeros, which are quicker than others.
            torch.mm(both[:, :args.inner], into_width, out=self.after[begin:begin + args.chunk])

    def run(self, cache):
        """Seconds until the device is done, and until the cache is."""
        sequence = cache.open() if cache is not None else None
        wait(self.device)
        begin = time.perf_counter()
        if cache is None:
            self.layers(None, None)
            wait(self.device)
            done = time.perf_counter()
        else:
            with cache.step(sequence, self.args.tokens):
                self.layers(cache, sequence)
                wait(self.device)
                done = time.perf_counter()
            cache.sync()
        whole = time.perf_counter()
        if not bool(torch.isfinite(self.after).all()):
            sys.exit("gpu_prefill.py: the products have numbers that are not finite")
        if cache is not None:
            cache.free(sequence)
        return done - begin, whole - begin

    def layers(self, cache, sequence):
        for number in range(self.args.layers):
            self.layer(number, cache, sequence)


def wait(device):
    if device != "cpu":
        torch.cuda.synchronize()


def open_cache(args, arm, gpu):
    preset, _, summary = arm.partition(":")
    options = {"summary": summary} if summary else {}
    return dci.gpu.GPUKVCache(gpu, args.layers, 4 * args.heads, args.heads, args.dim, preset=preset, dtype="bfloat16",
                              query_dtype="bfloat16", budget=args.budget, dense_layers=0, max_sequences=1,
                              max_tokens=args.tokens + 16, out_dtype="bfloat16", planner=args.planner, **options)


def measure(args, model, preset, gpu):
    """Runs with and without in turns. The first of each warms up, and locks memory that the next ones use again."""
    cache = open_cache(args, preset, gpu)
    alone, beside = [], []
    for number in range(args.rounds + 1):
        without, with_it = model.run(None), model.run(cache)
        if number > 0:
            alone.append(without[1])
            beside.append(with_it)
    info = cache.info()
    cache.close()
    base = statistics.median(alone)
    on_device, whole = (statistics.median(pair[i] for pair in beside) for i in range(2))
    row = {"arm": preset, "planner": info.planner, "threads": gpu.context.threads, "tokens": args.tokens,
           "layers": args.layers, "chunk": args.chunk, "rounds": args.rounds,
           "alone_s": base, "device_s": on_device, "whole_s": whole,
           "alone_all_s": alone, "whole_all_s": [pair[1] for pair in beside],
           "added_device": on_device / base - 1, "added": whole / base - 1,
           "bytes_written": info.bytes_written, "summary_bytes": info.summary_bytes}
    print(f"{preset:16} {info.planner:7} {1e3 * base:10.1f} {1e3 * on_device:10.1f} {1e3 * whole:10.1f} "
          f"{100 * row['added_device']:8.1f}% {100 * row['added']:8.1f}%", flush=True)
    return row


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="0", help="a GPU's number, or host: the CPU in its place, with small sizes")
    parser.add_argument("--presets",
                        default="full,sketch,sketch+lowbit,quest,pagemean,arkvale,clusterkv,louiskv,retroinfer,prkv,icecache",
                        help="comma separated; PRESET:learned has codes that are fitted to the prompt")
    parser.add_argument("--planner", default="auto", choices=("auto", "host", "device"))
    parser.add_argument("--threads", type=int, default=0, help="of the host; 0: as many as it has CPUs")
    parser.add_argument("--tokens", type=int, default=36864)
    parser.add_argument("--chunk", type=int, default=4096, help="tokens of one matrix product")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--heads", type=int, default=8, help="kv heads; there are four times as many query heads")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()
    if min(args.tokens, args.chunk, args.layers, args.heads, args.inner, args.rounds) < 1 or args.tokens < OBSERVED:
        parser.error(f"--tokens wants at least {OBSERVED}, the other numbers 1")
    return args


def main():
    args = parse()
    on_host = args.device == "host"
    if not on_host and not torch.cuda.is_available():
        sys.exit("gpu_prefill.py: PyTorch sees no GPU")
    gpu = dci.gpu.GPU("host" if on_host else int(args.device), context=dci.Context(threads=args.threads))
    device = "cpu" if on_host else f"cuda:{args.device}"
    model = Model(args, device)
    name = "host" if on_host else torch.cuda.get_device_name(device)
    print(f"{name}, PyTorch {torch.__version__}: {args.layers} layers, {args.tokens} tokens, "
          f"{gpu.context.threads} threads of the host; ms\n"
          f"{'':16} {'plans':7} {'alone':>10} {'device':>10} {'whole':>10} {'added':>9} {'whole':>9}", flush=True)
    rows = []
    for preset in args.presets.split(","):
        try:
            rows.append(measure(args, model, preset, gpu))
        except dci.DciError as error:  # one that cannot be planned there, or finds no room, leaves the others be
            print(f"{preset:16} failed: {error}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"device": name, "torch": torch.__version__, "rows": rows}, file, indent=1)
    if not rows:
        sys.exit("gpu_prefill.py: nothing was measured")


if __name__ == "__main__":
    main()
