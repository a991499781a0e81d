#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Run dci-bench kmeans and faiss.Kmeans in turns on the same rows from the same first centroids; print medians and ratios.

    python3 bench/scripts/kmeans_peers.py --dci-bench build/release/bench/dci-bench --base keys.npy --clusters 400,2048 \
        --iter 10 --metric cosine --threads 1,2 --rounds 5 --json kmeans.json

Both get float32 rows, for cosine scaled to unit length before the clock starts, and k rows of them, drawn, to start from.
faiss sees all rows (no sampling); its time is given for train alone, and with the labels that dci's call returns as well (a
search of all rows for their nearest centroid). dci's time is the whole call, labels and all, as dci-bench measures it. One
NumPy function computes the objective of both from the last centroids: the sum of cosines to the nearest one, or of squared
distances. Each round runs every arm once, so that a slow minute of the machine hits all alike; a figure is the median of the
rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's part is not measured; faiss has its own threads

import faiss
import numpy as np


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def objective(rows, centroids, metric):
    """From float32 products to the label, from double precision to the sum."""
    total = 0.0
    centroids = unit(centroids) if metric == "cosine" else centroids
    norms = (centroids.astype(np.float64) ** 2).sum(1)
    for first in range(0, len(rows), 2048):
        block = rows[first : first + 2048]
        scores = block @ centroids.T
        if metric == "l2":
            scores = 2 * scores - norms
        own = centroids[scores.argmax(1)].astype(np.float64)
        total += (own * block).sum() if metric == "cosine" else ((own - block) ** 2).sum()
    return float(total)


def run_faiss(args, rows, start, threads, rounds=None):
    """(seconds of train, with labels, centroids, history)"""
    faiss.omp_set_num_threads(threads)
    kmeans = faiss.Kmeans(
        rows.shape[1], len(start), niter=rounds or args.iter, spherical=args.metric == "cosine",
        max_points_per_centroid=1 << 30, min_points_per_centroid=1, early_stop_threshold=0.0,
        use_super_kmeans=args.faiss_super,
    )
    began = time.perf_counter()
    kmeans.train(rows, init_centroids=start)
    trained = time.perf_counter()
    kmeans.index.search(rows, 1)  # train leaves the last centroids in the index
    done = time.perf_counter()
    history = [{"objective": s["obj"], "seconds": s["time"]} for s in kmeans.iteration_stats]
    return trained - began, done - began, kmeans.centroids, history


def run_dci(args, rows_file, start_file, threads, folder):
    """(the row of the report, centroids)"""
    report, centroids = os.path.join(folder, "dci.json"), os.path.join(folder, "centroids.npy")
    command = [args.dci_bench, "kmeans", "--base", rows_file, "--init-file", start_file, "--iter", str(args.iter),
               "--metric", args.metric, "--threads", str(threads), "--rounds", "1", "--out-centroids", centroids,
               "--json", report]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed with {result.returncode}: {result.stderr.strip()}")
    with open(report, encoding="utf-8") as file:
        return json.load(file)["rows"][0], np.load(centroids)


class Arm:
    """A number of clusters on a number of threads."""

    def __init__(self, clusters, threads, start, start_file):
        self.clusters, self.threads, self.start, self.start_file = clusters, threads, start, start_file
        self.train, self.labelled, self.dci = [], [], []
        self.objectives = self.their_history = self.row = None

    def measure(self, args, rows, rows_file, folder):
        train, labelled, theirs, their_history = run_faiss(args, rows, self.start, self.threads)
        row, ours = run_dci(args, rows_file, self.start_file, self.threads, folder)
        self.train.append(train)
        self.labelled.append(labelled)
        self.dci.append(row["seconds"])
        if self.objectives is None:
            self.objectives = [objective(rows, c, args.metric) for c in (theirs, ours)]
        if train == min(self.train):
            self.their_history = their_history
        if row["seconds"] == min(self.dci):
            self.row = row

    def report(self, args, rows):
        train, labelled, dci = (statistics.median(s) for s in (self.train, self.labelled, self.dci))
        return {
            "n": rows.shape[0], "dim": rows.shape[1], "clusters": self.clusters, "threads": self.threads,
            "iter": args.iter, "metric": args.metric, "isa": self.row["isa"], "rounds": self.row["rounds"],
            "stop": self.row["stop"], "faiss_train_s": train, "faiss_s": labelled, "dci_s": dci,
            "ratio_train": statistics.median(f / d for f, d in zip(self.train, self.dci)),
            "ratio": statistics.median(f / d for f, d in zip(self.labelled, self.dci)),
            "faiss_objective": self.objectives[0], "dci_objective": self.objectives[1],
            "objective_ratio": self.objectives[1] / self.objectives[0],
            "faiss_all_s": self.labelled, "dci_all_s": self.dci,
            "faiss_history": self.their_history, "dci_history": self.row["history"],
        }


def make_arms(args, rows, folder):
    arms = []
    for clusters in (int(c) for c in args.clusters.split(",")):
        drawn = np.sort(np.random.default_rng(args.seed).choice(len(rows), clusters, replace=False))
        start, start_file = np.ascontiguousarray(rows[drawn]), os.path.join(folder, f"start{clusters}.npy")
        np.save(start_file, start)
        arms += [Arm(clusters, int(t), start, start_file) for t in args.threads.split(",")]
    return arms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dci-bench", required=True, help="the built program")
    parser.add_argument("--base", required=True, help="rows: .npy of any float type")
    parser.add_argument("--limit", type=int, help="only the first rows")
    parser.add_argument("--clusters", default="400,2048")
    parser.add_argument("--iter", type=int, default=10)
    parser.add_argument("--metric", default="cosine", choices=["cosine", "l2"])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faiss-super", action="store_true", help="faiss's SuperKMeans, where it has it")
    parser.add_argument("--json", help="write the rows of the table here, with histories")
    args = parser.parse_args()
    rows = np.load(args.base)[: args.limit].astype(np.float32)
    rows = np.ascontiguousarray(unit(rows) if args.metric == "cosine" else rows)
    with tempfile.TemporaryDirectory() as folder:
        rows_file = os.path.join(folder, "rows.npy")
        np.save(rows_file, rows)
        arms = make_arms(args, rows, folder)
        for arm in arms:  # dci-bench has a warm-up of its own
            run_faiss(args, rows, arm.start, arm.threads, rounds=1)
        for number in range(args.rounds):
            for arm in arms:
                arm.measure(args, rows, rows_file, folder)
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        reports = [arm.report(args, rows) for arm in arms]
    print(f"{args.metric}, {args.iter} rounds, medians of {args.rounds}; faiss {faiss.__version__}, dci on "
          f"{reports[0]['isa']}; objective ratio: dci's over faiss's, "
          f"{'more' if args.metric == 'cosine' else 'less'} is better\n")
    print("| n | dim | clusters | threads | faiss s | with labels | dci s | ratio | with labels | objective ratio |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for r in reports:
        print(f"| {r['n']:,} | {r['dim']} | {r['clusters']:,} | {r['threads']} | {r['faiss_train_s']:.4f} | "
              f"{r['faiss_s']:.4f} | {r['dci_s']:.4f} | {r['ratio_train']:.2f} | {r['ratio']:.2f} | "
              f"{r['objective_ratio']:.5f} |")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"faiss": faiss.__version__, "base": os.path.basename(args.base), "rows": reports}, file, indent=1)


if __name__ == "__main__":
    main()
