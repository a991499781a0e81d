#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Run dci-bench and a peers script in turns on the same rows, and print medians and ratios.

    python3 bench/scripts/compare_peers.py --dci-bench build/release/bench/dci-bench --peers SCRIPT \
        --base keys.npy --query queries.npy --metric ip --k 100 --only faiss-flat,faiss-sq4 --rounds 5

SCRIPT prints and writes (--out FILE) rows with name, params, build_s, qps, recall. One thread everywhere. Each round runs
every program once, so that a slow minute of the machine hits all arms alike; a figure is the median of the rounds.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile


def run(command, environment):
    result = subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with {result.returncode}: {result.stderr.strip()}")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def name_of(row):
    """dci, the kind, the rows, and the effort and the codes where there are any."""
    params = row["params"]
    parts = ["dci", row["index"], row["rows"]]
    if row["index"] == "pdci":
        parts.append(f"{params['num_comp_indices']}x{params['num_simp_indices']} retrieve {params['prop_to_retrieve']:g}")
    if params.get("field_of_view"):
        parts.append(f"view {params['field_of_view']}")
    elif row["index"] == "mdci":
        parts.append(f"visit {params['prop_to_visit']:g}")
    if row.get("sketch_bits"):
        plural = "" if row["sketch_bits"] == 1 else "s"
        parts.append(f"{row['sketch_bits']} bit{plural}" + (" fitted" if row["fitted"] else ""))
        if row["guarantee"] is not None:
            parts.append(f"guarantee {row['guarantee']:g}")
        else:
            parts.append("all" if row["rerank"] is None else f"x{row['rerank']:g}")
    return " ".join(parts)


def measure(args, environment, folder):
    """One round: {arm: (qps, recall, build_s, floor_qps or None)}."""
    arms = {}
    for rows in args.rows.split(","):
        out = os.path.join(folder, "dci.json")
        run([args.dci_bench, "ann", "--base", args.base, "--query", args.query, "--metric", args.metric,
             "--k", str(args.k), "--rows", rows, "--threads", "1", "--repeat", "3", "--json", out,
             *shlex.split(args.ann)], environment)
        for row in load(out)["rows"]:
            arms[name_of(row), row["mode"]] = row["qps"], row["recall"], row["build_s"], row["read_floor_qps"]
    if args.peers:
        out = os.path.join(folder, "peers.json")
        run([sys.executable, args.peers, "--base", args.base, "--query", args.query, "--metric", args.metric,
             "--k", str(args.k), "--only", args.only, "--out", out], environment)
        for row in load(out):
            mode = "batch" if "batch" in row["params"] else "one"
            name = f"{row['name']} {row['params']}".replace("one by one", "").replace("batch", "").strip()
            arms[name, mode] = row["qps"], row["recall"], row["build_s"], None
    return arms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dci-bench", required=True, help="the built program")
    parser.add_argument("--peers", help="the peers script; without it only dci runs")
    parser.add_argument("--base", required=True)
    parser.add_argument("--query", required=True)
    parser.add_argument("--metric", default="ip", choices=["ip", "l2"])
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--only", default="faiss-flat,faiss-sq4", help="arms of the peers script")
    parser.add_argument("--rows", default="f32,f16,bf16", help="row formats of dci")
    parser.add_argument("--ann", default="", help="more options of dci-bench ann: '--kind mdci --field-of-view 8,32' or "
                        "'--sketch-bits 0,4 --rerank 1,2'")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write all rounds here")
    args = parser.parse_args()
    if "--pareto" in shlex.split(args.ann):
        parser.error("--ann: --pareto keeps other arms in each round, so there is no median of them")
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            rounds.append(measure(args, environment, folder))
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    print(f"| arm | mode | queries/s (median of {args.rounds}; lowest, highest) | us per query | recall | build s | "
          "time / read floor | build + 1,000 queries s |\n|---|---|---|---|---|---|---|---|")
    for arm in rounds[0]:
        values = [r[arm] for r in rounds]
        qps = [v[0] for v in values]
        middle = statistics.median(qps)
        floor = [v[3] / v[0] for v in values if v[3]]
        ratio = f"{statistics.median(floor):.2f}" if floor and arm[1] == "one" else ""
        build = statistics.median([v[2] for v in values])
        print(f"| {arm[0]} | {arm[1]} | {middle:,.0f} ({min(qps):,.0f}, {max(qps):,.0f}) | {1e6 / middle:.1f} | "
              f"{values[0][1]:.4f} | {build:.4f} | {ratio} | {build + 1000 / middle:.3f} |")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump([{" / ".join(arm): value for arm, value in r.items()} for r in rounds], file, indent=1)


if __name__ == "__main__":
    main()
