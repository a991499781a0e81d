#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What a chunk of queries over history in host memory takes: a step of some tokens after many, with and without a KV cache.

    DCI_LIBRARY=build/cuda/libdci.so python3 bench/scripts/gpu_history.py --tokens 32768,131072 --new 512 --json history.json

Three arms in turns, each through all layers. copy: dci_gpu_kv_append and dci_gpu_kv_history of each layer and nothing else,
which the bus bounds. alone: the layers' arithmetic (the products of QKV, O, gate and up, and down, and attention of the new
tokens to all, by PyTorch) over keys and values in device memory. both: that arithmetic over the rows that the history gives.
A copy that is hidden makes `both` no longer than the longer one of the others. Times are until the device is done; host is
what the calls of one layer's history take on the host. The first rows of a history are compared with what was appended.

Needs torch, dci (python/) and a GPU, and locks as much host memory as the keys and values take: 17 GB for 131,072 tokens.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention.bias import causal_lower_right
except ImportError as error:
    sys.exit(f"gpu_history.py: PyTorch cannot be imported: {error}")
try:
    import dci
except ImportError as error:
    sys.exit(f"gpu_history.py: dci cannot be imported: {error}")

FILL = 4096  # tokens of the steps that fill the cache


class Model:
    """Weights of two layers in turn, and the new tokens' hidden states."""

    def __init__(self, args, device):
        self.args, self.options = args, {"dtype": torch.bfloat16, "device": device}
        self.width, self.kv = args.heads * 4 * args.dim, args.heads * args.dim
        shapes = ((self.width, self.width + 2 * self.kv), (self.width, self.width), (self.width, 2 * args.inner),
                  (args.inner, self.width))
        self.weights = [tuple(torch.randn(*shape, **self.options) / shape[0] ** 0.5 for shape in shapes) for _ in range(2)]
        self.hidden = torch.randn(args.new, self.width, **self.options)

    def rows(self, layer):
        """Queries, keys and values of the new tokens."""
        q, k, v = (self.hidden @ self.weights[layer % 2][0]).split((self.width, self.kv, self.kv), 1)
        return (x.view(len(x), -1, self.args.dim) for x in (q, k, v))

    def rest(self, layer, queries, keys, values):
        """Attention of the new tokens to all, and the products after it. keys, values: (kv heads, tokens, dim)."""
        _, into_out, into_both, into_width = self.weights[layer % 2]
        mask = causal_lower_right(len(queries), keys.shape[1])
        out = F.scaled_dot_product_attention(queries.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask,
                                             enable_gqa=True)
        both = (out[0].transpose(0, 1).reshape(len(queries), -1) @ into_out) @ into_both
        return both[:, :self.args.inner] @ into_width


def wait(device):
    if device != "cpu":
        torch.cuda.synchronize()


def fill(cache, sequence, tokens, args, options):
    """Brings the sequence to so many tokens; returns the rows of each FILL of them, which all layers share."""
    keys, values = (torch.randn(FILL, args.heads, args.dim, **options) for _ in range(2))
    has = cache.sequence_info(sequence).n_tokens
    while has < tokens:
        n = min(FILL - has % FILL, tokens - has)
        with cache.step(sequence, n):
            for layer in range(args.layers):
                cache.append(layer, keys[:n], values[:n])
        has += n
    return keys, values


def step(model, cache, sequence, kept, device):
    """Seconds until the device is done, and those that the host was in the calls for the history."""
    args, on_host, rest = model.args, 0.0, cache is None or kept is not None
    if cache is not None:
        cache.reserve(sequence, args.new)
    wait(device)
    begin = time.perf_counter()
    for layer in range(args.layers):
        q, k, v = model.rows(layer) if rest else (model.hidden[:, :model.kv].view(args.new, -1, args.dim),) * 3
        keys, values = kept if kept is not None else (None, None)
        if cache is not None:
            cache.append(layer, k, v)
            before = time.perf_counter()
            keys, values = cache.history(layer, sequence)
            on_host += time.perf_counter() - before
        if rest:
            model.rest(layer, q, keys, values)
    wait(device)
    seconds = time.perf_counter() - begin
    if cache is not None:
        cache.step_abort()
    return seconds, on_host / args.layers


def check(model, cache, sequence, filled, device):
    cache.reserve(sequence, model.args.new)
    n = min(FILL, cache.sequence_info(sequence).n_tokens)
    for layer in range(model.args.layers):
        k = model.hidden[:, :model.kv].view(model.args.new, -1, model.args.dim)
        cache.append(layer, k, k)
        for got, wanted in zip(cache.history(layer, sequence), filled):
            rows = got.transpose(0, 1)
            if not (torch.equal(rows[:n], wanted[:n]) and torch.equal(rows[-len(k):], k)):
                sys.exit(f"gpu_history.py: layer {layer}: the history has other rows than were appended")
    wait(device)
    cache.step_abort()


def measure(args, tokens, gpu, device):
    model = Model(args, device)
    cache = dci.gpu.GPUKVCache(gpu, args.layers, 4 * args.heads, args.heads, args.dim, preset=args.preset, dtype="bfloat16",
                               query_dtype="bfloat16", dense_layers=0, max_tokens=tokens + args.new,
                               piece_bytes=args.piece_mib * 2**20 * args.layers or None)
    sequence = cache.open()
    filled = fill(cache, sequence, tokens, args, model.options)
    check(model, cache, sequence, filled, device)
    kept = tuple(torch.randn(args.heads, tokens + args.new, args.dim, **model.options) for _ in range(2))
    seen = {"copy": [], "alone": [], "both": []}
    for number in range(args.rounds + 1):
        for arm, of in (("copy", (cache, sequence, None)), ("alone", (None, None, kept)), ("both", (cache, sequence, kept))):
            found = step(model, *of, device)
            if number > 0:
                seen[arm].append(found)
    copy, alone, both = (statistics.median(s for s, _ in seen[arm]) for arm in ("copy", "alone", "both"))
    n_bytes = tokens * args.layers * args.heads * args.dim * 4
    row = {"tokens": tokens, "new": args.new, "layers": args.layers, "piece_mib": args.piece_mib, "copy_s": copy,
           "alone_s": alone, "both_s": both, "history_bytes": n_bytes, "bytes_per_second": n_bytes / copy,
           "host_s": statistics.median(h for _, h in seen["both"]), "buffer_bytes": cache.info().buffer_bytes}
    print(f"{tokens:8} {args.new:6} {1e3 * copy:9.1f} {1e3 * alone:9.1f} {1e3 * both:9.1f} {both / max(copy, alone):7.2f}x "
          f"{n_bytes / copy / 1e9:8.1f} {1e6 * row['host_s']:9.0f}", flush=True)
    cache.close()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="0", help="a GPU's number, or host: the CPU in its place, with small sizes")
    parser.add_argument("--tokens", default="32768,131072", help="of earlier steps; comma separated")
    parser.add_argument("--new", type=int, default=512, help="tokens of the step")
    parser.add_argument("--preset", default="sketch")
    parser.add_argument("--piece-mib", type=int, default=0, help="of a layer in a segment of the pool; 0: default")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--heads", type=int, default=8, help="kv heads; there are four times as many query heads")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    args = parser.parse_args()
    on_host = args.device == "host"
    if not on_host and not torch.cuda.is_available():
        sys.exit("gpu_history.py: PyTorch sees no GPU")
    gpu, device = dci.gpu.GPU("host" if on_host else int(args.device)), "cpu" if on_host else f"cuda:{args.device}"
    name = "host" if on_host else torch.cuda.get_device_name(device)
    print(f"{name}, PyTorch {torch.__version__}: {args.layers} layers; ms\n{'tokens':>8} {'new':>6} {'copy':>9} "
          f"{'alone':>9} {'both':>9} {'':8} {'GB/s':>8} {'host, us':>9}", flush=True)
    rows = [measure(args, int(tokens), gpu, device) for tokens in args.tokens.split(",")]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"device": name, "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
