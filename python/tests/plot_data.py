# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Small reports in the form of those that dci-bench and the scripts beside it write."""

from __future__ import annotations

import json

MACHINE = {"cpu": "<Some> CPU & Co", "cores": 2, "isa": "avx2", "compiler": "gcc", "library": "0.1.0", "date": "2026-01-01"}


def report(command, rows):
    return {"machine": MACHINE, "command": ["dci-bench", *command.split()], "rows": rows}


def ann_row(kind="flat", mode="one", qps=1000.0, recall=1.0, build=0.001, **more):
    params = {"kind": kind, **({"field_of_view": more.pop("view")} if "view" in more else {})}
    return {"index": kind, "params": params, "dataset": "keys", "mode": mode, "rows": "f32", "metric": "ip", "isa": "avx2",
            "threads": 1, "n": 2000, "dim": 64, "k": 10, "n_queries": 500, "bytes": 512000, "build_s": build, "qps": qps,
            "qps_min": 0.9 * qps, "qps_max": 1.1 * qps, "recall": recall, "dist_comps": 2000.0, **more}  # fmt: skip


def ann():
    rows = [ann_row(), ann_row(mode="batch", qps=9000.0)]
    efforts = ((4, 9e3, 0.8), (16, 6e3, 0.97), (64, 2e3, 0.999))
    rows += [ann_row("mdci", qps=q, recall=r, build=0.02, view=v) for v, q, r in efforts]
    rows += [ann_row("mdci", qps=5e3, recall=0.9, build=0.02, view=12)]  # worse than view 16 in both
    codes = {"fitted": False, "rerank": 2.0, "guarantee": None}
    rows += [ann_row(sketch_bits=b, qps=1e4 / b, recall=r, **codes) for b, r in ((2, 0.9), (4, 0.98))]
    return report("ann --json ann.json", rows)


def kv_row(trace, preset, budget, error, key_bits=None, learned=None, **more):
    tail = "+" in preset
    return {"trace": trace, "preset": preset, "budget": budget, "key_bits": key_bits, "value_bits": 2 if tail else None,
            "learned": learned, "share": 1 - error, "err": error, "err_tail": error / 9 if tail else None,
            "bytes_step": 256.0 * budget, "resident_bytes_token": 8.0 * (key_bits or 1), "token_bytes": 256, "dim_k": 64,
            "dim_v": 64, "append_us": 0.1, "plan_us": 5.0, "attend_us": 3.0, "maintain_us": 0.1, "step_us": 8.5,
            "step_us_p99": 12.0, "build_ms": 1.5, "reason": None, **more}  # fmt: skip


def kv(traces=("a/layer1", "a/layer2")):
    rows = []
    for trace in traces:
        for budget in (128, 256, 512):
            at = 40 / budget
            plain = (("topk", 1), ("quest", 2), ("a later one", 2.5))
            rows += [kv_row(trace, preset, budget, at * s) for preset, s in plain]
            rows += [kv_row(trace, "full", budget, 1e-7, bytes_step=0.0)]
            for b in (2, 4):
                rows += [kv_row(trace, "sketch", budget, at * (1 + 1 / b), b, learned) for learned in (False, True)]
            rows += [kv_row(trace, "sketch+lowbit", budget, at, b, False) for b in (2, 4)]
    none = dict.fromkeys(("share", "err", "plan_us", "token_bytes", "bytes_step", "resident_bytes_token"))
    rows.append(kv_row(traces[0], "snapkv", 128, 1.0, **{**none, "reason": "the budget is below what it keeps"}))
    return report("kv --json kv.json", rows)


def layers():
    rows = [{"preset": preset, "key_bits": bits, "value_bits": 0, "learned": False, "budget": 256, "layers": 4, "heads": 8,
             "tokens": 32768, "fill_ms": 25.0, "build_ms": 9.0, "tokens_per_s": 90.0, "tokens_per_s_full": 4.0,
             "append_us": 1.0, "resident_token_bytes": 34.0, "plan_us": plan, "attend_us": 50.0, "full_us": 8000.0,
             "maintain_us": 4000.0}
            for preset, bits, plan in (("quest", 0, 300.0), ("sketch", 4, 800.0))]  # fmt: skip
    return report("layers --json layers.json", rows)


def papers():
    rows = [{"figure": "jaccard", "trace": "a/layer1", "tau": tau, "budget": 256.0, "within": 0.5 + tau / 4, "across": 0.3,
             "within_contested": 0.4, "across_contested": None} for tau in (0.7, 0.85)]  # fmt: skip
    rows += [{"figure": "resident", "trace": "a/layer1", "preset": preset, "codes": "-", "index_bytes": size}
             for preset, size in (("quest", 16.0), ("sketch", 34.0))]  # fmt: skip
    return report("papers --json papers.json", rows)


def history(scale):
    return [{"objective": 1500.0 + 100 * i, "seconds": scale * (i + 1), "moved": 3, "empty": 0} for i in range(4)]


def kmeans():
    rows = [{"n": 2000, "dim": 64, "clusters": 50, "metric": "cosine", "threads": t, "seconds": 0.04 / t, "rounds": 4,
             "objective": 1800.0, "largest": 90, "history": history(0.01 / t)} for t in (1, 2)]  # fmt: skip
    return report("kmeans --json kmeans.json", rows)


def kmeans_peers():
    rows = [{"n": 2000, "dim": 64, "clusters": 50, "metric": "cosine", "threads": 1, "dci_s": 0.04, "faiss_s": 0.2,
             "dci_history": history(0.01), "faiss_history": history(0.05)}]  # fmt: skip
    return {"faiss": "1.15", "base": "keys.npy", "rows": rows}


def perplexity():
    given = {"own cache": (0, 15.0), "sketch": (256, 15.3), "pagemean": (256, 18.0), "sketch+lowbit": (256, 14.97)}
    rows = [{"preset": name, "budget": b, "perplexity": p, "ms_per_token": 40.0} for name, (b, p) in given.items()]
    return {**report("", rows), "command": ["language_model.py", "perplexity", "--text", "t"]}


def lookup():
    given = {"own cache": (0, 0.75), "sketch": (256, 0.5), "pagemean": (256, 0.0)}
    rows = [{"preset": name, "budget": b, "single": s, "multi-key": s / 2, "multi-value": 0.25, "list": 0.0}
            for name, (b, s) in given.items()]  # fmt: skip
    return {**report("", rows), "command": ["language_model.py", "lookup", "--text", "t"]}


def rounds():
    return [{"dci flat f32 / one": [1000 + d, 1.0, 0.001, 2000], "dci mdci f16 view 8 / one": [9000 + d, 0.96, 0.01, 2000],
             "dci mdci f16 view 32 / one": [5000 + d, 0.99, 0.01, 2000], "faiss-flat / batch": [3000 - d, 1.0, 0.002, None],
             "dci flat f32 / batch": [8000 - d, 1.0, 0.001, 2000], "faiss-flat / one": [800, 1.0, 0.002, None],
             "sq SQ8 k_factor 2 / one": [700, 1.0, 0.002, None], "sq SQ8 k_factor 4 / one": [500, 1.0, 0.002, None],
             "ivf IVF599 nprobe 64 / one": [4000, 0.97, 0.9, None]} for d in (0, 50, -70)]  # fmt: skip


def peers():
    rows = (("faiss-flat", "one by one", 900.0, 1.0), ("hnswlib", "M 16, ef 100", 4000.0, 0.96))
    return [dict(zip(("name", "params", "qps", "recall", "build_s"), (*row, 0.5))) for row in rows]


def growth():
    return report("growth --sizes 2000,4000", [{"n": 2000, "build_s": 0.01, "nodes": [3, 1]}, {"n": 4000, "build_s": 0.03}])


EVERY = {"ann": ann, "kv": kv, "layers": layers, "papers": papers, "kmeans": kmeans, "kmeans_peers": kmeans_peers,
         "perplexity": perplexity, "lookup": lookup, "rounds": rounds, "peers": peers}  # fmt: skip


def written(folder, *names):
    """Files of the reports with these names, as strings."""
    paths = []
    for name in names:
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**EVERY, "growth": growth}[name]()))
        paths.append(str(path))
    return paths
