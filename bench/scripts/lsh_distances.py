#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Distances that locality-sensitive hashing computes per query, to set beside P-DCI's.

Euclidean LSH as in Datar et al. 2004: a table's key is n_hashes values floor((a.x + b) / width), candidates are the union of
the query's buckets over all tables, and each distinct candidate costs one distance. Over a grid of tables, hashes and widths
it prints, for each recall reached, the fewest distances. Speed is not the subject: only counts are.

    python3 bench/scripts/lsh_distances.py --base base.npy --query query.npy --k 10
"""

import argparse
import json

import numpy as np


def exact_neighbours(base: np.ndarray, queries: np.ndarray, k: int) -> list[set[int]]:
    """Ids of the k nearest rows of each query: base n x d, queries m x d."""
    norms = (base * base).sum(axis=1)
    found = []
    for query in queries:
        distances = norms - 2.0 * (base @ query)
        found.append(set(np.argpartition(distances, k)[:k].tolist()))
    return found


def bucket_ids(projected: np.ndarray, width: float) -> np.ndarray:
    """One 64-bit number per row for its tuple of cells: projected is n x n_hashes, shifted already."""
    cells = np.floor(projected / width).astype(np.int64)
    mixed = np.zeros(len(cells), dtype=np.uint64)
    for column in cells.T:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def measure(base, queries, truth, n_tables, n_hashes, width, rng):
    """(recall, distances per query) after 1, 2, .. n_tables tables."""
    n, dim = base.shape
    candidates = np.zeros((len(queries), n), dtype=bool)
    steps = []
    for table in range(n_tables):
        directions = rng.standard_normal((dim, n_hashes)).astype(np.float32)
        shift = rng.uniform(0.0, width, n_hashes).astype(np.float32)
        base_ids = bucket_ids(base @ directions + shift, width)
        query_ids = bucket_ids(queries @ directions + shift, width)
        for query, bucket in enumerate(query_ids):
            candidates[query] |= base_ids == bucket
        if (table + 1) & table == 0 or table + 1 == n_tables:
            hits = sum(int(marks[list(ids)].sum()) for marks, ids in zip(candidates, truth))
            distances = float(candidates.sum(axis=1).mean())
            steps.append((hits / sum(len(ids) for ids in truth), distances, table + 1))
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", required=True, help="n x d rows, .npy")
    parser.add_argument("--query", required=True, help="m x d queries, .npy")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--queries", type=int, default=100, help="how many of the queries to use")
    parser.add_argument("--tables", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write all points to this file")
    arguments = parser.parse_args()
    base = np.load(arguments.base).astype(np.float32)
    queries = np.load(arguments.query).astype(np.float32)[: arguments.queries]
    truth = exact_neighbours(base, queries, arguments.k)
    rng = np.random.default_rng(arguments.seed)
    sample = rng.integers(0, len(base), 256)
    scale = float(np.median(np.linalg.norm(base[sample[:128]] - base[sample[128:]], axis=1)))
    points = []
    for n_hashes in (4, 8, 12, 16, 24):
        for share in (0.25, 0.5, 1.0, 2.0):
            for recall, distances, tables in measure(
                base, queries, truth, arguments.tables, n_hashes, share * scale, rng
            ):
                points.append(
                    {"recall": recall, "distances": distances, "tables": tables, "hashes": n_hashes, "width": share}
                )
    print("| recall at least | fewest distances per query | share of n | tables, hashes, width / median distance |")
    print("|---|---|---|---|")
    for wanted in (0.5, 0.8, 0.9, 0.95, 0.99):
        good = [point for point in points if point["recall"] >= wanted]
        if good:
            best = min(good, key=lambda point: point["distances"])
            print(
                f"| {wanted} | {best['distances']:,.0f} | {best['distances'] / len(base):.4f} | "
                f"{best['tables']}, {best['hashes']}, {best['width']} |"
            )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"n": len(base), "k": arguments.k, "points": points}, file, indent=1)


if __name__ == "__main__":
    main()
