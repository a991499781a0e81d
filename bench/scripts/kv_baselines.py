#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Systems that the papers compare with and that dci has no preset for, in NumPy on captured traces.

    python3 bench/scripts/kv_baselines.py traces/*/* [--budgets 128,256,512] [--json baselines.json]

A trace is a folder as `dci-bench kv --trace` reads: keys.npy, values.npy, queries.npy, meta.json. Two protocols:

prompt  The one of the reference tables and of `dci-bench kv --frozen-prompt`: sink 16 and window 64 count in the budget
        B, the other B - 80 tokens are selected from the prompt for a kv head, decoded tokens are attended to and not
        counted. `share` is the softmax weight of the selected tokens over that of all prompt tokens after the sink, `err`
        the relative error of the attention output. `exact top tokens` is the bound.
        - PQCache (Zhang et al. 2024): keys in 2 parts of 64 centroids each, by k-means; the best tokens by estimated q . k.
        - ShadowKV (Sun et al. 2024): chunks of 8 tokens by their mean key; of the budget 384 / 2,048 goes to the chunks
          whose worst token is least like their mean, for good; keys of the others come back at low rank, which the paper
          takes from the keys of all heads before rotary embedding: 160 of 1,024. A trace has one head. `rank` says which
          share of its dimensions is kept, and err is given for that and for exact keys.
live    Everything that is attended to counts in B, at every step of the decode, and what a system evicts is lost to it.
        - H2O (Zhang et al. 2023): half of B for the latest tokens, half for those with the greatest sum of attention so
          far. The sums begin with the queries that a trace has of its prompt, the last 64, not all.
        - RaaS (Hu et al. 2025): the prompt stays and does not count; of decoded pages of 16 those that were among the
          better half by attention most recently stay. Traces whose decode is no longer than prompt and B are left out.
        Each with the exact top tokens and the most recent ones under the same rule.

Figures are means over query heads and positions (prompt + 8, + 32, ..; every 240th in decodes of 1,000 and more).
"""
import argparse
import json
import os

import numpy as np

SINK, WINDOW, CHUNK, PAGE = 16, 64, 8, 16
OUTLIERS = 384 / 2048
RANKS = (160 / 1024, 0.5)
ROPE_THETA = {"SmolLM2-135M": 1e5, "Qwen2.5-Coder-0.5B": 1e6}


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def best(weights, n):
    """The n greatest (None: all), equal ones by number."""
    return np.argsort(-weights, kind="stable")[:n]


class Trace:
    def __init__(self, folder):
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
            self.meta = json.load(file)
        read = (np.load(os.path.join(folder, f"{name}.npy")).astype(np.float32) for name in ("keys", "values", "queries"))
        self.keys, self.values, self.queries = read
        self.name = "/".join(os.path.normpath(folder).split(os.sep)[-2:])
        self.prompt, self.scale = self.meta["prompt"], self.meta["scale"]
        self.decoded = len(self.keys) - self.prompt

    def positions(self):
        return range(self.prompt + 8, len(self.keys), 24 if self.decoded < 1000 else 240)

    def query(self, position):
        return self.queries[:, position - self.meta["first_query"]]

    def scores(self, position):
        return self.query(position) @ self.keys[:position + 1].T * self.scale

    def error(self, scores, kept, exact):
        """Relative error of the output over kept tokens, with these scores for them."""
        out = softmax(scores[:, kept]) @ self.values[kept]
        return float((np.linalg.norm(out - exact, axis=1) / np.linalg.norm(exact, axis=1)).mean())


# --- prompt ----------------------------------------------------------------------------------------------------------
# An arm has at(query, scale, weights), for a position, and select(room), the tokens of a budget at that position.


def quantize(rows, n_centroids, seed, rounds=10):
    """Centroids by k-means, and each row's."""
    centroids = rows[np.random.default_rng(seed).choice(len(rows), n_centroids, replace=False)].copy()
    for _ in range(rounds):
        labels = (rows @ centroids.T - (centroids**2).sum(1) / 2).argmax(1)
        sums = np.zeros_like(centroids)
        np.add.at(sums, labels, rows)
        n = np.bincount(labels, minlength=n_centroids)[:, None]
        centroids = np.where(n > 0, sums / np.maximum(n, 1), centroids)
    return centroids, (rows @ centroids.T - (centroids**2).sum(1) / 2).argmax(1)


class PQCache:
    name, ranks = "PQCache", (None,)

    def __init__(self, trace, n_parts=2, bits=6):
        keys = trace.keys[SINK:trace.prompt]
        self.parts = [quantize(part, 2**bits, i) for i, part in enumerate(np.split(keys, n_parts, axis=1))]

    def at(self, query, scale, weights):
        del weights
        parts = zip(np.split(query, len(self.parts), axis=1), self.parts)
        scores = sum((q @ centroids.T)[:, labels] for q, (centroids, labels) in parts)
        self.order = best(softmax(scores * scale).sum(0), None)

    def select(self, room):
        return self.order[:room]


def rotate(keys, first, theta, sign):
    """Rotary embedding of rows at consecutive positions, halves of the row as pairs; sign -1 takes it off."""
    half = keys.shape[1] // 2
    angle = sign * (first + np.arange(len(keys)))[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = keys[:, :half], keys[:, half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], 1).astype(np.float32)


def low_rank(keys, first, theta, rank):
    """Of the two ways in which models pair elements, halves of a row and neighbours, the one that leaves less over."""
    found = []
    for order in (np.arange(keys.shape[1]), np.arange(keys.shape[1]).reshape(-1, 2).T.ravel()):
        left, values, right = np.linalg.svd(rotate(keys[:, order], first, theta, -1), full_matrices=False)
        low = rotate((left[:, :rank] * values[:rank]) @ right[:rank], first, theta, 1)
        found.append(((values[rank:]**2).sum(), low[:, np.argsort(order)]))
    return min(found, key=lambda pair: pair[0])[1]


class ShadowKV:
    name, ranks = "ShadowKV", (None, *RANKS)

    def __init__(self, trace):
        self.keys = trace.keys[SINK:trace.prompt]
        self.groups = [np.arange(i, min(i + CHUNK, len(self.keys))) for i in range(0, len(self.keys), CHUNK)]
        self.means = np.stack([self.keys[g].mean(0) for g in self.groups])
        unit = self.keys / np.linalg.norm(self.keys, axis=1, keepdims=True)
        means = self.means / np.linalg.norm(self.means, axis=1, keepdims=True)
        likeness = np.array([(unit[g] @ means[i]).min() for i, g in enumerate(self.groups)])
        self.by_likeness = np.argsort(likeness, kind="stable")
        theta = next((t for model, t in ROPE_THETA.items() if trace.meta["model"].startswith(model)), None)
        dim = self.keys.shape[1]
        self.low = {rank: low_rank(self.keys, SINK, theta, round(rank * dim)) for rank in RANKS} if theta else {}

    def at(self, query, scale, weights):
        del weights
        self.weights = softmax(query @ self.means.T * scale).sum(0)

    def select(self, room):
        self.outliers = self.by_likeness[:int(room * OUTLIERS) // CHUNK]
        weights = self.weights.copy()
        weights[self.outliers] = np.inf
        chosen = np.concatenate([self.groups[i] for i in best(weights, room // CHUNK + 1)])
        return chosen[:room]

    def keys_of(self, rank, selected):
        """As they come back: those of outliers are exact."""
        exact = np.isin(selected // CHUNK, self.outliers)[:, None]
        return np.where(exact, self.keys[selected], self.low[rank][selected])


class TopTokens:
    name, ranks = "exact top tokens", (None,)

    def at(self, query, scale, weights):
        del query, scale
        self.order = best(weights, None)

    def select(self, room):
        return self.order[:room]


def run_prompt(trace, budgets):
    """{(arm, rank, budget): [share, err]}."""
    arms = [TopTokens(), PQCache(trace), ShadowKV(trace)]
    found, errors = {}, {}
    for t in trace.positions():
        scores = trace.scores(t)
        weights = softmax(scores)
        exact = weights @ trace.values[:t + 1]
        contested = weights[:, SINK:trace.prompt].sum(0)
        for arm in arms:
            arm.at(trace.query(t), trace.scale, contested)
        for budget in budgets:
            for arm in arms:
                selected = arm.select(budget - SINK - WINDOW)
                kept = np.concatenate([np.arange(SINK), SINK + selected, np.arange(trace.prompt, t + 1)])
                for rank in arm.ranks:
                    if rank is not None and rank not in arm.low:
                        continue
                    at = scores
                    if rank is not None:
                        at = scores.copy()
                        at[:, SINK + selected] = trace.query(t) @ arm.keys_of(rank, selected).T * trace.scale
                    key = arm.name, rank, budget
                    errors.setdefault(key, []).append(trace.error(at, kept, exact))
                    found.setdefault(key, []).append((contested[selected].sum(), contested.sum()))
    return {key: [float(np.sum([f for f, _ in found[key]]) / np.sum([a for _, a in found[key]])),
                  float(np.mean(errors[key]))] for key in errors}


# --- live ------------------------------------------------------------------------------------------------------------


class H2O:
    def __init__(self, trace, budget):
        self.budget, self.recent = budget, budget // 2
        self.sums = np.zeros(len(trace.keys), np.float64)
        for t in range(trace.meta["first_query"], trace.prompt):
            self.sums[:t + 1] += softmax(trace.scores(t)).sum(0)
        self.kept = self.cut(np.arange(trace.prompt))

    def cut(self, kept):
        old, late = kept[:-self.recent], kept[-self.recent:]
        heavy = old[best(self.sums[old], self.budget - len(late))]
        return np.concatenate([np.sort(heavy), late])

    def step(self, t, scores):
        kept = np.append(self.kept, t)
        self.sums[kept] += softmax(scores[:, kept]).sum(0)
        self.kept = self.cut(kept)
        return kept


class RaaS:
    def __init__(self, trace, budget):
        self.prompt, self.room = trace.prompt, budget // PAGE
        self.pages, self.stamps = [], {}

    def step(self, t, scores):
        page = (t - self.prompt) // PAGE
        if page not in self.stamps:
            self.pages.append(page)
        self.stamps[page] = t
        kept = self.tokens(t)
        weights = softmax(scores[:, kept])[:, self.prompt:].sum(0)
        by_page = np.bincount((kept[self.prompt:] - self.prompt) // PAGE, weights, minlength=page + 1)[self.pages]
        for i in best(by_page, (len(self.pages) + 1) // 2):
            self.stamps[self.pages[i]] = t
        while len(self.pages) > self.room:
            oldest = min(self.pages[:-1], key=lambda p: (self.stamps[p], p))
            self.pages.remove(oldest)
        return kept

    def tokens(self, t):
        decoded = [np.arange(self.prompt + p * PAGE, min(self.prompt + (p + 1) * PAGE, t + 1)) for p in self.pages]
        return np.concatenate([np.arange(self.prompt), *decoded])


def top_tokens(weights, begin, t, room):
    """The best tokens from begin on and the window; those before begin are kept anyway."""
    end = max(begin, t + 1 - WINDOW)
    chosen = begin + best(weights[begin:end], max(0, room - (t + 1 - end)))
    return np.concatenate([np.arange(begin), chosen, np.arange(end, t + 1)])


def run_live(trace, budgets):
    systems = {("H2O", b): H2O(trace, b) for b in budgets}
    systems |= {("RaaS", b): RaaS(trace, b) for b in budgets if trace.decoded > max(b, trace.prompt)}
    errors, wanted = {}, set(trace.positions())
    for t in range(trace.prompt, len(trace.keys)):
        scores = trace.scores(t)
        sets = {key: system.step(t, scores) for key, system in systems.items()}
        if t not in wanted:
            continue
        weights = softmax(scores)
        exact, total = weights @ trace.values[:t + 1], weights.sum(0)
        for (name, budget) in systems:
            begin, room = (trace.prompt, budget) if name == "RaaS" else (SINK, budget - SINK)
            sets[f"exact top tokens, as {name}", budget] = top_tokens(total, begin, t, room)
            latest = np.arange(max(begin, t + 1 - room), t + 1)
            sets[f"most recent, as {name}", budget] = np.concatenate([np.arange(begin), latest])
        for key, kept in sets.items():
            errors.setdefault(key, []).append(trace.error(scores, kept, exact))
    return {(name, None, budget): [None, float(np.mean(e))] for (name, budget), e in errors.items()}


def print_table(trace, rows, budgets):
    print(f"\n### {trace.name}\n\n| arm | share, B = {' / '.join(map(str, budgets))} | err |\n|---|---|---|")
    for name, rank in dict.fromkeys((name, rank) for name, rank, _ in rows):
        cells = [rows.get((name, rank, b)) for b in budgets]
        shares = " ".join("-" if c is None or c[0] is None else f"{c[0]:.3f}" for c in cells)
        errors = " ".join("-" if c is None else f"{c[1]:.4f}" for c in cells)
        print(f"| {name}{'' if rank is None else f', rank {rank:.2f}'} | {shares} | {errors} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="+", help="folders of traces")
    parser.add_argument("--budgets", default="128,256,512", help="tokens, each at least 128")
    parser.add_argument("--json", help="file for the figures")
    args = parser.parse_args()
    budgets = [int(b) for b in args.budgets.split(",")]
    if min(budgets) < 128:
        parser.error(f"a budget of {min(budgets)} is too small: expected 128 at least")
    report = []
    for folder in args.trace:
        trace = Trace(folder)
        rows = run_prompt(trace, budgets) | run_live(trace, budgets)
        print_table(trace, rows, budgets)
        report += [{"trace": trace.name, "arm": name, "rank": rank, "budget": budget, "share": share, "err": err}
                   for (name, rank, budget), (share, err) in rows.items()]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
