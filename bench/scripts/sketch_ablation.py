#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What codes keep of captured attention: recall and kept share by bits, transform, sample sizes and drift.

    python3 bench/scripts/sketch_ablation.py TRACE_FOLDER...        prints the tables of docs/measurements/sketches.md

A folder holds keys.npy, queries.npy (group x positions x dim) and meta.json as bench/data/README.md says. Transforms are
learned from the prompt's keys after the first 16 and the prompt's last queries, and judged on queries of the decode, which
they have not seen.

recall      share of the true 100 best keys among the 100 (in brackets 200) that rank first by their codes
share       sum of true softmax weight on the chosen prompt keys / on all of them; B - 80 keys for the whole group of query
            heads, chosen by the sum of their softmax over estimates; every 24th position (every 240th of a long decode)
random arms are means over SEEDS rotations
"""
import json
import sys

import numpy as np

import dci

SINK, BUDGETS, K, QUERIES, SEEDS = 16, (128, 256, 512), 100, 400, 5


class Trace:
    def __init__(self, folder):
        with open(f"{folder}/meta.json", encoding="utf-8") as file:
            meta = json.load(file)
        keys, self.queries = (np.load(f"{folder}/{name}.npy").astype(np.float32) for name in ("keys", "queries"))
        self.name = "/".join(folder.rstrip("/").split("/")[-2:])
        self.scale, self.prompt, self.first = meta["scale"], meta["prompt"], meta["first_query"]
        self.all, self.keys = keys, np.ascontiguousarray(keys[SINK : self.prompt])
        dim = keys.shape[1]
        self.seen = np.ascontiguousarray(self.queries[:, : meta["observation"]]).reshape(-1, dim)
        decode = self.queries[:, meta["observation"] :].transpose(1, 0, 2).reshape(-1, dim)
        self.asked = np.ascontiguousarray(decode[np.linspace(0, len(decode) - 1, QUERIES).astype(int)])
        self.best = best_rows(self.asked @ self.keys.T, K)


def best_rows(scores, k):
    return np.argpartition(-scores, k - 1, axis=1)[:, :k]


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def encode(trace, bits, learned=True, keys=None, queries=None, seed=1):
    sketch = dci.Sketch(trace.keys.shape[1], bits=bits, seed=seed)
    if learned:
        sketch.fit(trace.keys if keys is None else keys, trace.seen if queries is None else queries)
    sketch.append(trace.keys)
    return sketch


def recalls(trace, *sketches):
    found = np.zeros(2)
    for sketch in sketches:
        scores = sketch.score(trace.asked)
        for times in (1, 2):
            ranked = best_rows(scores, times * K)
            found[times - 1] += np.mean([len(np.intersect1d(a, b)) for a, b in zip(ranked, trace.best)]) / K
    found /= len(sketches)
    return f"{found[0]:.3f} ({found[1]:.3f})"


def shares(trace, *sketches):
    return " ".join(f"{x:.3f}" for x in np.mean([share(trace, sketch) for sketch in sketches], 0))


def share(trace, sketch):
    kept, total = np.zeros(len(BUDGETS)), 0.0
    step = 24 if len(trace.all) - trace.prompt < 1000 else 240
    for t in range(trace.prompt + 8, len(trace.all), step):
        heads = np.ascontiguousarray(trace.queries[:, t - trace.first])
        weight = softmax(heads @ trace.all[: t + 1].T * trace.scale).sum(0)[SINK : trace.prompt]
        scores = heads @ trace.keys.T if sketch is None else sketch.score(heads)
        ranked = softmax(scores * trace.scale).sum(0) if sketch is not None else weight
        total += weight.sum()
        for i, budget in enumerate(BUDGETS):
            kept[i] += weight[np.argpartition(-ranked, budget - 80)[: budget - 80]].sum()
    return kept / total


def table(head, rows):
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def label(bits, learned):
    return f"{'learned' if learned else 'random'} {bits}"


def spread(rows, n):
    return rows if n is None else np.ascontiguousarray(rows[np.linspace(0, len(rows) - 1, n).astype(int)])


def main():
    traces = [Trace(folder) for folder in sys.argv[1:]]
    arms = [(bits, learned) for learned in (False, True) for bits in (1, 2, 3, 4, 8)]
    made = {(t.name, arm): [encode(t, *arm, seed=i) for i in range(1 if arm[1] else SEEDS)] for t in traces for arm in arms}
    print("Recall of the true 100 among the 100 (200) ranked first, by bits:")
    table(["trace", *(label(*arm) for arm in arms)],
          [[t.name, *(recalls(t, *made[t.name, arm]) for arm in arms)] for t in traces])
    print("\nKept share at B = 128 / 256 / 512:")
    arms = [arm for arm in arms if arm[0] in (1, 2, 4)]
    table(["trace", "exact", *(label(*arm) for arm in arms)],
          [[t.name, shares(t, None), *(shares(t, *made[t.name, arm]) for arm in arms)] for t in traces])
    print("\nSamples that a transform of 2 bits is learned from: keys x queries")
    sizes = [(256, None), (2048, None), (None, 16), (None, 64), (None, None)]
    table(["trace", *(f"{a or 'all'} x {b or 'all'}" for a, b in sizes)],
          [[t.name, *(recalls(t, encode(t, 2, True, spread(t.keys, a), spread(t.seen, b))) for a, b in sizes)]
           for t in traces])
    print("\nDrift: transforms learned from the first half of the keys, or from all, for all; info().drift of the former")
    rows = []
    for t in traces:
        row = [t.name]
        for bits in (1, 2, 4):
            half = encode(t, bits, True, t.keys[: len(t.keys) // 2])
            row += [recalls(t, half), recalls(t, *made[t.name, (bits, True)]), f"{half.info().drift:.2f}"]
        rows.append(row)
    table(["trace", *(f"{bits} bits, {what}" for bits in (1, 2, 4) for what in ("half", "all", "drift"))], rows)


if __name__ == "__main__":
    main()
