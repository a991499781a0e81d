#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What ranks cells better: the promoted row, or the mean of the rows? An exact model of the tree on captured attention.

    python3 bench/scripts/cell_ranking.py TRACE...

TRACE is a folder with keys.npy, queries.npy and meta.json. Rows are promoted at random and every row joins the nearest
promoted one (lifted, as MDCI does under inner product). The best cells are opened until they hold a share of the rows; it
prints how many of the k best rows lie in them, when cells are ranked by the promoted row, and by the mean.
"""
import argparse
import json
import os

import numpy as np


def found(queries, ranked_by, cells, sizes, truth, most_rows):
    """Share of the true rows in the best cells that hold most_rows rows."""
    hits = 0
    order = np.argsort(-(queries @ ranked_by.T), axis=1)
    for best, rows in zip(order, truth):
        opened = best[: np.searchsorted(np.cumsum(sizes[best]), most_rows) + 1]
        hits += np.isin(cells[rows], opened).sum()
    return hits / truth.size


def measure(folder, args, rng):
    with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
        n = json.load(file)["prompt"]
    keys = np.load(os.path.join(folder, "keys.npy")).astype(np.float32)[:n]
    queries = np.load(os.path.join(folder, "queries.npy")).astype(np.float32).reshape(-1, keys.shape[1])
    queries = queries[rng.choice(len(queries), min(args.queries, len(queries)), replace=False)]
    truth = np.argpartition(-(queries @ keys.T), args.k, axis=1)[:, : args.k]
    norms2 = (keys**2).sum(1)
    points = np.concatenate([keys, np.sqrt(np.maximum(norms2.max() - norms2, 0))[:, None]], axis=1)
    promoted = np.sort(rng.choice(n, max(2, int(args.promotion * n)), replace=False))
    centres = points[promoted]
    cells = np.argmax(points @ centres.T - 0.5 * (centres**2).sum(1), axis=1)
    sizes = np.bincount(cells, minlength=len(promoted))
    means = np.zeros((len(promoted), keys.shape[1]), np.float32)
    np.add.at(means, cells, keys)
    means /= np.maximum(sizes, 1)[:, None]
    shares = [found(queries, by, cells, sizes, truth, args.share * n) for by in (keys[promoted], means)]
    print(f"{folder}: {n} rows, promoted row {shares[0]:.4f}, mean {shares[1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--promotion", type=float, default=0.03)
    parser.add_argument("--share", type=float, default=0.2, help="of the rows that are looked at")
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--queries", type=int, default=300)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    for folder in args.traces:
        measure(folder, args, rng)


if __name__ == "__main__":
    main()
