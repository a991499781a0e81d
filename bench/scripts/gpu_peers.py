#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Attention over all keys on a GPU: dci-bench gpu --part dense beside PyTorch's SDPA, FlashInfer and flash-attn, in turns.

    python3 bench/scripts/gpu_peers.py --dci-bench build/cuda/bench/dci-bench --rounds 2 --json peers.json
    python3 bench/scripts/gpu_peers.py --dci-bench build/cuda/bench/dci-bench --json peers.json \\
        --decode "--preset full,sketch --lengths 36864,131072"

One decode position of 32 query heads on 8 kv heads, d 128, bf16. Every arm is timed as dci-bench times its own: a CUDA graph
of one call for each of so many layers that rotate, replayed between two events; a figure is the median over replays and
rounds, of one layer. Each output is first held against float32.

dci runs with its pages in turn, as one sequence gets them from an empty pool, and at batch 1 also shuffled. SDPA runs with
each backend as `gqa` (enable_gqa) and as `folded`: a kv head's query heads as query positions of one head, which for
decoding is the same sum and reads each key once with any backend; its keys and values are contiguous, without pages. What
is far behind (math, efficient, cudnn folded) is timed at the first shape. FlashInfer (paged, pages of 16, shuffled) and
flash-attn (contiguous) take part when they can be imported. Needs torch and a GPU.

--decode runs `dci-bench gpu --part decode` with these options in place of the part dense, puts its report beside the
others' figures, and has them at its batches and lengths: what the KV path of a step is compared with (gpu_tables.py).
"""
import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import warnings

# PyTorch warns of each backend that does not know a shape: the tables say so.
warnings.filterwarnings("ignore", category=UserWarning)
try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"gpu_peers.py: PyTorch cannot be imported: {error}")

HEADS, GROUP, DIM = 8, 4, 128
SHAPES = [(1, 36864), (1, 131072), (1, 262144), (4, 32768), (16, 32768)]
MAX_LAYERS = 32
BACKENDS = [
    ("flash", SDPBackend.FLASH_ATTENTION),
    ("efficient", SDPBackend.EFFICIENT_ATTENTION),
    ("cudnn", SDPBackend.CUDNN_ATTENTION),
    ("math", SDPBackend.MATH),
]
# As (backend, way) or backend: so far behind that one shape shows it.
FAR_BEHIND = {"math", "efficient", ("cudnn", "folded")}


def row_bytes(batch, tokens):
    return batch * tokens * HEADS * DIM * 4


class Layers:
    """Keys, values [layer][batch, head, token, dim] and a query [batch, query head, 1, dim]."""

    def __init__(self, batch, tokens, device_bytes):
        self.batch, self.tokens = batch, tokens
        self.n = max(1, min(MAX_LAYERS, device_bytes // row_bytes(batch, tokens)))
        shape = (batch, HEADS, tokens, DIM)
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        self.keys = [torch.randn(shape, **options) for _ in range(self.n)]
        self.values = [torch.randn(shape, **options) for _ in range(self.n)]
        self.query = torch.randn((batch, HEADS * GROUP, 1, DIM), **options)

    def reference(self):
        query = self.query.view(self.batch, HEADS, GROUP, DIM).float()
        outs = []
        for b in range(self.batch):  # one at a time: scores and rows in float32 are large
            scores = query[b] @ self.keys[0][b].float().transpose(-1, -2) / math.sqrt(DIM)
            outs.append(torch.softmax(scores, -1) @ self.values[0][b].float())
        return torch.stack(outs).view(self.batch, HEADS * GROUP, DIM)


def sdpa_gqa(layers, layer):
    return F.scaled_dot_product_attention(layers.query, layers.keys[layer], layers.values[layer], enable_gqa=True)


def sdpa_folded(layers, layer):
    query = layers.query.view(layers.batch, HEADS, GROUP, DIM)
    return F.scaled_dot_product_attention(query, layers.keys[layer], layers.values[layer])


def with_backend(call, backend):
    def run(layers, layer):
        with sdpa_kernel(backend):
            return call(layers, layer)

    return run


def flash_attn_arm():
    from flash_attn import flash_attn_with_kvcache  # noqa: PLC0415 - not everywhere

    def run(layers, layer):
        # It wants [batch, token, head, dim]; as views these would be scattered, so the same memory is read in that shape.
        shape = (layers.batch, layers.tokens, HEADS, DIM)
        query = layers.query.view(layers.batch, 1, HEADS * GROUP, DIM)
        return flash_attn_with_kvcache(query, layers.keys[layer].view(shape), layers.values[layer].view(shape))

    return run


def flashinfer_arm(layers, shuffled):
    """A wrapper planned for this shape, on the same memory cut into pages of 16: in turn, as dci's are, or shuffled."""
    import flashinfer  # noqa: PLC0415 - not everywhere

    page = 16
    per = layers.tokens // page
    options = {"dtype": torch.int32, "device": "cuda"}
    indptr = torch.arange(0, (layers.batch + 1) * per, per, **options)
    order = torch.randperm if shuffled else torch.arange
    indices = order(layers.batch * per, device="cuda").to(torch.int32)
    last = torch.full((layers.batch,), page, **options)
    work = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        work, "NHD", use_cuda_graph=True, paged_kv_indptr_buffer=indptr, paged_kv_indices_buffer=indices,
        paged_kv_last_page_len_buffer=last, use_tensor_cores=True,
    )
    wrapper.plan(indptr, indices, last, HEADS * GROUP, HEADS, DIM, page, q_data_type=torch.bfloat16,
                 kv_data_type=torch.bfloat16)

    def run(layers_, layer):
        shape = (-1, page, HEADS, DIM)
        return wrapper.run(layers_.query.view(layers_.batch, HEADS * GROUP, DIM),
                           (layers_.keys[layer].view(shape), layers_.values[layer].view(shape)))

    return run


def arms_of(layers, first):
    """(name, call, whether the output is that of Layers.reference), or (name, sentence, None) where there is no such arm."""
    for name, backend in BACKENDS:
        for way, call in (("gqa", sdpa_gqa), ("folded", sdpa_folded)):
            if FAR_BEHIND & {name, (name, way)} and not first:
                continue
            yield f"sdpa {name}, {way}", with_backend(call, backend), True
    # Whether they can be imported is said at the first shape.
    # These read the same memory in another order of its elements: other numbers, as many bytes.
    for name, make in (("flash-attn", flash_attn_arm), ("flashinfer", lambda: flashinfer_arm(layers, shuffled=False)),
                       ("flashinfer, shuffled", lambda: flashinfer_arm(layers, shuffled=True))):
        try:
            made = make()
        except Exception as error:
            if first or not isinstance(error, ImportError):
                yield name, f"{type(error).__name__}: {error}", None
            continue
        yield name, made, False


def check(out, reference, like):
    out = out.float().reshape(reference.shape)
    if not bool(torch.isfinite(out).all()):
        raise RuntimeError("the output has numbers that are not finite")
    error = float((out - reference).norm() / reference.norm()) if like else 0.0
    if error > 1e-2:
        raise RuntimeError(f"the output is {error:.2g} away from float32")


def time_graph(call, layers, reps):
    """Microseconds of one layer: one for each replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for layer in range(min(2, layers.n)):
            call(layers, layer)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(layers.n):
            call(layers, layer)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(reps):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / layers.n)
    return times


def run_torch(shape, args, results, first):
    layers = Layers(*shape, args.device_gib << 30)
    reference = layers.reference()
    for name, call, like in arms_of(layers, first):
        result = results.setdefault(name, {"us": []})
        if like is None:
            result["why"] = call
            continue
        try:
            check(call(layers, 0), reference, like)
            result["us"] += time_graph(call, layers, args.reps)
            result["layers"] = layers.n
        except Exception as error:  # a backend that does not know the shape says so in its own way
            result["why"] = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            torch.cuda.synchronize()
    del layers, reference
    torch.cuda.empty_cache()


def bench(args, *options, shown=False):
    """A report of dci-bench gpu; shown: its output, too."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        command = [args.dci_bench, "gpu", *options, "--json", path]
        ran = subprocess.run(command, check=False, capture_output=not shown, text=True)
        if ran.returncode != 0:
            sys.exit(f"gpu_peers.py: {' '.join(command)}: {(ran.stderr or ran.stdout or 'failed').strip()[-400:]}")
        with open(path) as file:
            return json.load(file)


def run_decode(args):
    return bench(args, "--part", "decode", *shlex.split(args.decode), shown=True)


def shapes_of(args, decoded):
    """Batches and lengths: those that are named, else those that were decoded, else the usual ones."""
    if args.shapes:
        return [tuple(int(number) for number in shape.split("x")) for shape in args.shapes.split(",")]
    if decoded is None:
        return SHAPES
    return sorted({(row["batch"], row["tokens"]) for row in decoded["rows"] if row["part"] == "decode"})


def run_dci(args):
    """The report, and rows of the shapes above: those of pages of 16, also shuffled, and of 64."""
    report = bench(args, "--part", "dense", "--device-gib", str(args.device_gib))
    arms = ("attend", "attend, shuffled")
    return report, [row for row in report["rows"] if row["part"] == "dense" and row["arm"] in arms]


def note_dci(result, row):
    """One median for each round; the spread is the widest of them."""
    result["us"].append(row["us"])
    result["p10"] = min(row["us_p10"], result.get("p10", math.inf))
    result["p90"] = max(row["us_p90"], result.get("p90", 0))


def print_table(shape, results, limit):
    bytes_ = row_bytes(*shape)
    ours = results.get("dci, pages of 16 in turn", {}).get("us")
    print(f"\nbatch {shape[0]}, {shape[1]} tokens: {bytes_ / 1e6:.0f} MB of a layer")
    print(f"{'':30} {'us':>9} {'p10':>9} {'p90':>9} {'TB/s':>7} {'of copy':>8} {'dci is':>8}")
    for name, result in sorted(results.items(), key=lambda item: statistics.median(item[1]["us"] or [math.inf])):
        if not result["us"]:
            print(f"{name:30} not measured: {result.get('why', '')}")
            continue
        times = sorted(result["us"])
        median = statistics.median(times)
        rate = bytes_ / median * 1e-6
        low = result.get("p10", times[len(times) // 10])
        high = result.get("p90", times[len(times) * 9 // 10])
        faster = f"{median / statistics.median(ours):7.2f}x" if ours else ""
        print(f"{name:30} {median:9.1f} {low:9.1f} {high:9.1f} {rate:7.3f} "
              f"{100 * rate * 1e12 / limit:7.0f}% {faster}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dci-bench", help="without it the others alone are measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--reps", type=int, default=15, help="replays of a graph in a round")
    parser.add_argument("--device-gib", type=int, default=40, help="device memory for layers that rotate")
    parser.add_argument("--decode", metavar="OPTIONS", help="of dci-bench gpu --part decode, which runs in place of dense")
    parser.add_argument("--shapes", help="BATCHxTOKENS, comma separated (default: those decoded, or the usual ones)")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.shapes and not re.fullmatch(r"\d+x\d+(,\d+x\d+)*", args.shapes):
        parser.error(f"--shapes wants BATCHxTOKENS, comma separated, not {args.shapes!r}")
    if args.decode is not None and not args.dci_bench:
        parser.error("--decode wants --dci-bench")
    if min(args.rounds, args.reps, args.device_gib) < 1:
        parser.error("--rounds, --reps and --device-gib want at least 1")
    if not torch.cuda.is_available():
        sys.exit("gpu_peers.py: PyTorch sees no GPU")
    report = {}
    decoded = run_decode(args) if args.decode is not None else None
    shapes = shapes_of(args, decoded)
    results = {shape: {} for shape in shapes}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        if args.dci_bench and decoded is None:
            report, rows = run_dci(args)
            for row in rows:
                shape = (row["batch"], row["tokens"])
                if shape in results:
                    note_dci(results[shape].setdefault(f"dci, pages of {row['page']} {row['order']}", {"us": []}), row)
        for shape in shapes:
            run_torch(shape, args, results[shape], shape == shapes[0])
    report = decoded or report
    limit = report.get("limits", {}).get("memory_copy_gb_s", 0) * 1e9 or math.inf
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; a copy on the device: {limit * 1e-9:.0f} GB/s")
    for shape in shapes:
        print_table(shape, results[shape], limit)
    if args.json:
        rows = [{"batch": shape[0], "tokens": shape[1], "arm": name, **result,
                 "median_us": statistics.median(result["us"]) if result["us"] else None}
                for shape in shapes for name, result in results[shape].items()]
        with open(args.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "limits": report.get("limits"), "rows": rows, "decode": decoded}, file, indent=1)


if __name__ == "__main__":
    main()
