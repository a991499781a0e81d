#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""How much of k-means' assignment could bounds leave out? An exact model of Hamerly's and Elkan's bounds.

    python3 bench/scripts/kmeans_bounds.py --base keys.npy --clusters 280 --iter 12

Spherical k-means from a random start. Printed per round: the share of rows that Hamerly's bounds settle without looking at
other centroids, the share of (row, centroid) pairs that Elkan's bounds exclude, and the share of tiles of 32 rows x 32
centroids of which Elkan's bounds exclude every pair: products come in tiles, so only those would be saved.
"""
import argparse

import numpy as np


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def empty_tiles(needed):
    """Share of 32 x 32 tiles without a pair that is needed."""
    rows, columns = needed.shape[0] // 32 * 32, needed.shape[1] // 32 * 32
    tiles = needed[:rows, :columns].reshape(rows // 32, 32, columns // 32, 32)
    return 1 - tiles.any(axis=(1, 3)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="rows, .npy")
    parser.add_argument("--clusters", type=int, required=True)
    parser.add_argument("--iter", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=20000, help="rows to use at most")
    args = parser.parse_args()
    u = unit(np.load(args.base)[: args.limit].astype(np.float32))
    rows, k = np.arange(len(u)), args.clusters
    c = u[np.sort(np.random.default_rng(args.seed).choice(len(u), k, replace=False))]
    label = lower = second = before = None
    print("| round | rows moved | Hamerly: rows settled | Elkan: pairs excluded | tiles excluded |\n|---|---|---|---|---|")
    for i in range(args.iter):
        distance = np.sqrt(np.maximum(2 - 2 * u @ c.T, 0))
        found = distance.argmin(1)
        if i > 0:
            moved = np.linalg.norm(c - before, axis=1)
            second -= moved.max()
            lower -= moved
            half = np.sqrt(np.maximum(2 - 2 * c @ c.T, 0))
            np.fill_diagonal(half, np.inf)
            half /= 2
            own = distance[rows, label]
            settled = own < np.maximum(second, half.min(1)[label])
            needed = own[:, None] >= np.maximum(lower, half[label])
            print(f"| {i + 1} | {(found != label).mean():.3f} | {settled.mean():.3f} | {1 - needed.mean():.3f} "
                  f"| {empty_tiles(needed):.3f} |", flush=True)
        else:
            settled, needed = np.zeros(len(u), bool), np.ones(distance.shape, bool)
            lower, second = distance, distance[:, 0]
        lower = np.where(needed, distance, lower)
        others = distance.copy()
        others[rows, found] = np.inf
        second = np.where(settled, second, others.min(1))
        label, before = found, c
        sums = np.zeros_like(c)
        np.add.at(sums, label, u)
        c = np.where(np.bincount(label, minlength=k)[:, None] > 0, unit(sums), c)


if __name__ == "__main__":
    main()
