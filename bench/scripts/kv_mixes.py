#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Stages of different systems mixed: Markdown tables of errors over that of `topk`, which reads every key and drops the
rest, at the same budget: geometric mean over the traces (and worst of them).

    python3 bench/scripts/kv_mixes.py TRACE_FOLDER..                     a simulation in NumPy, of mixes that are not built, too
    python3 bench/scripts/kv_mixes.py --report base-short.json ..        what `dci-bench kv --frozen-prompt --json` measured: reports
                                                                 NAME-*.json are rows of one name, and one has topk

The simulation: frozen prompt, sink 16 and window 64 in the budget, one position in 24 (of decodes beyond 1,000 tokens in
240). Codes are Lloyd-Max levels about the mean under a random rotation (K4), or of the learned transform of
docs/sketches.md (L2); values of tails have 2 random bits (V2). `groups xM codes` means: groups are ranked by the softmax of
their mean keys until they hold M times the room, and codes choose among those tokens; `keys`: the keys themselves do.
"""
import argparse
import json
import math
import os

import numpy as np

SINK, KEPT, BUDGETS = 16, 80, (128, 256, 512)
LEVELS = {1: [.7979], 2: [.4528, 1.510], 3: [.2451, .7560, 1.344, 2.152],
          4: [.1284, .3881, .6568, .9424, 1.256, 1.618, 2.069, 2.733]}


def softmax(scores):
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True)


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def by_label(labels):
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def pages(n, size):
    return [np.arange(i, min(i + size, n)) for i in range(0, n, size)]


def clusters(keys, size, rounds=10):
    rows = unit(keys)
    k = len(keys) // size
    centres = rows[np.sort(np.random.default_rng(0).choice(len(rows), k, replace=False))].copy()
    for _ in range(rounds):
        labels = (rows @ centres.T).argmax(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, rows)
        centres = np.where(np.bincount(labels, minlength=k)[:, None] > 0, unit(sums), centres)
    return by_label((rows @ centres.T).argmax(1))


def leaves(keys, size=16, share=.03):
    """Nearest of randomly promoted keys under the lift, cut into pages."""
    nodes = np.flatnonzero(np.random.default_rng(0).random(len(keys)) < share)
    squares = (keys * keys).sum(1)
    lifted = np.concatenate([keys, np.sqrt(np.maximum(squares.max() - squares, 0))[:, None]], 1)
    cells = by_label((-2 * lifted @ lifted[nodes].T + (lifted[nodes] ** 2).sum(1)).argmin(1))
    return [page for cell in cells for page in np.array_split(cell, -(-len(cell) // size))]


def levels(rows, bits):
    if bits == 0:
        return np.zeros_like(rows)
    if bits not in LEVELS:
        steps = 2 ** bits - 1
        return np.clip(np.round((rows / 3.5 + 1) / 2 * steps), 0, steps) * 2 / steps * 3.5 - 3.5
    table = np.array(sorted([-v for v in LEVELS[bits]] + LEVELS[bits]))
    return table[np.searchsorted((table[1:] + table[:-1]) / 2, rows)]


def random_code(rows, bits, seed, unbiased=True):
    mean = rows.mean(0)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((rows.shape[1],) * 2))[0]
    turned = (rows - mean) @ rotation.T
    scale = np.sqrt((turned * turned).mean(1, keepdims=True))
    codes = levels(turned / scale, bits)
    if unbiased:
        scale = (turned * turned).sum(1, keepdims=True) / np.maximum((codes * turned).sum(1, keepdims=True), 1e-9)
    return (codes * scale) @ rotation + mean


def learned_code(rows, queries, bits, coordinates=None):
    """Transform coding weighted by queries; or its leading coordinates alone, not rounded."""
    dim = rows.shape[1]
    mean, moment = rows.mean(0), queries.T @ queries / len(queries)
    left = np.linalg.cholesky(moment + 1e-2 * np.trace(moment) / dim * np.eye(dim))
    turned = (rows - mean) @ left
    variances, axes = np.linalg.eigh(turned.T @ turned / len(turned))
    turned = turned @ axes
    if coordinates is not None:
        turned[:, :-coordinates] = 0
        return turned @ axes.T @ np.linalg.inv(left) + mean
    widths, rest, deviations = np.zeros(dim, int), variances.copy(), turned.std(0)
    for _ in range(round(bits * dim)):
        i = rest.argmax()
        widths[i] += 1
        rest[i] /= 4
    columns = [levels(turned[:, i] / deviations[i], widths[i]) * deviations[i] for i in range(dim)]
    return np.stack(columns, 1) @ axes.T @ np.linalg.inv(left) + mean


class Trace:
    def __init__(self, folder):
        with open(f"{folder}/meta.json", encoding="utf-8") as file:
            meta = json.load(file)
        arrays = [np.load(f"{folder}/{name}.npy").astype(np.float32) for name in ("keys", "values", "queries")]
        keys, values, queries = arrays
        self.meta, self.all_keys, self.all_values, self.queries = meta, keys, values, queries
        self.keys, self.values = keys[SINK:meta["prompt"]], values[SINK:meta["prompt"]]
        self.n = len(self.keys)
        observed = queries[:, :meta["observation"]].reshape(-1, meta["head_dim"])
        self.codes = {"K4": random_code(self.keys, 4, 1), "L2": learned_code(self.keys, observed, 2),
                      "L1": learned_code(self.keys, observed, 1), "P16": learned_code(self.keys, observed, 0, 16)}
        self.coded_values = random_code(self.values, 2, 3, False)
        self.groups = {"pages of 8": pages(self.n, 8), "pages of 16": pages(self.n, 16), "leaves of 16": leaves(self.keys),
                       "clusters of 16": clusters(self.keys, 16), "clusters of 32": clusters(self.keys, 32),
                       "clusters of 80": clusters(self.keys, 80)}
        self.labels, self.sums, self.means = {}, {}, {}
        for name, groups in self.groups.items():
            sizes = np.array([len(group) for group in groups], np.float32)
            self.labels[name] = np.empty(self.n, int)
            self.labels[name][np.concatenate(groups)] = np.repeat(np.arange(len(groups)), sizes.astype(int))
            sums = [np.stack([rows[group].sum(0) for group in groups]) for rows in (self.keys, self.values)]
            self.sums[name] = sizes, *sums
            self.means[name] = sums[0] / sizes[:, None]

    def positions(self):
        first, end = self.meta["prompt"], len(self.all_keys)
        return range(first + 8, end, 24 if end - first < 1000 else 240)


class Step:
    """One position: what there is to choose from, and what outputs err by."""

    def __init__(self, trace, at):
        self.trace, self.prompt = trace, slice(SINK, trace.meta["prompt"])
        self.q = trace.queries[:, at - trace.meta["first_query"]] * trace.meta["scale"]
        scores = self.q @ trace.all_keys[:at + 1].T
        self.most = scores.max(1, keepdims=True)
        self.terms = np.exp(scores - self.most)
        self.values = trace.all_values[:at + 1]
        self.exact = self.terms @ self.values / self.terms.sum(1, keepdims=True)
        self.always = np.ones(at + 1, np.float32)
        self.always[self.prompt] = 0
        self.kept = self.terms @ self.always
        self.coded = {name: self.terms_of(rows) for name, rows in trace.codes.items()}
        self.coded["keys"] = self.terms[:, self.prompt]
        self.orders = {name: np.argsort(-softmax(self.q @ means.T).sum(0)) for name, means in trace.means.items()}

    def terms_of(self, rows):
        return np.exp(np.minimum(self.q @ rows.T - self.most, 40))

    def best(self, code, among, room):
        if len(among) <= room:
            return among
        terms = self.coded[code][:, among]
        weights = (terms / (terms.sum(1) + self.kept)[:, None]).sum(0)
        return among[np.argpartition(-weights, room)[:room]]

    def error(self, chosen, tail=None):
        mask = self.always.copy()
        mask[SINK + chosen] = 1
        total, weight = (self.terms * mask) @ self.values, self.terms @ mask
        if tail is not None:
            total, weight = total + tail[0], weight + tail[1]
        off = np.linalg.norm(total / weight[:, None] - self.exact, axis=1)
        return (off / np.linalg.norm(self.exact, axis=1)).mean()

    def in_groups(self, name, wanted):
        groups, taken = self.trace.groups[name], []
        for g in self.orders[name]:
            taken.append(groups[g][:wanted])
            wanted -= len(taken[-1])
            if wanted <= 0:
                break
        return np.concatenate(taken)

    def low_bits(self, code, chosen):
        terms = self.coded[code].copy()
        terms[:, chosen] = 0
        return terms @ self.trace.coded_values, terms.sum(1)

    def sums(self, name, chosen, whole):
        """Means of what is left of a group, or of the whole of it."""
        trace = self.trace
        labels, (sizes, key_sums, value_sums) = trace.labels[name], (one.copy() for one in trace.sums[name])
        rest = sizes.copy()
        np.subtract.at(rest, labels[chosen], 1)
        if not whole:
            sizes = rest
            np.subtract.at(key_sums, labels[chosen], trace.keys[chosen])
            np.subtract.at(value_sums, labels[chosen], trace.values[chosen])
        some = rest > 0
        terms = self.terms_of(key_sums[some] / sizes[some, None]) * rest[some]
        return terms @ (value_sums[some] / sizes[some, None]), terms.sum(1)


def arms_of(step, room):
    """(name, error) of every mix at one position."""
    everything = np.arange(step.trace.n)
    yield "topk", step.error(step.best("keys", everything, room))
    for code in ("K4", "L2"):
        chosen = step.best(code, everything, room)
        yield f"{code}", step.error(chosen)
        yield f"{code}, tail {code} V2", step.error(chosen, step.low_bits(code, chosen))
        for name in ("pages of 16", "clusters of 16", "clusters of 32", "clusters of 80"):
            for whole in (False, True):
                of = "whole ones" if whole else "the rest"
                yield f"{code}, tail sums of {name}, {of}", step.error(chosen, step.sums(name, chosen, whole))
    for name in step.trace.groups:
        for times in (2, 4, 8, 16, 24):
            among = step.in_groups(name, times * room)
            yield f"{name} x{times} K4", step.error(step.best("K4", among, room))
            if times <= 4:
                yield f"{name} x{times} keys", step.error(step.best("keys", among, room))
    for code in ("L1", "P16"):
        for times in (2, 4, 8):
            among = step.best(code, everything, times * room)
            yield f"{code} x{times} K4", step.error(step.best("K4", among, room))


def simulate(folders):
    """{(arm, budget): {trace: error}}"""
    errors = {}
    for folder in folders:
        trace = Trace(folder)
        for at in trace.positions():
            step = Step(trace, at)
            for budget in BUDGETS:
                for name, error in arms_of(step, budget - KEPT):
                    errors.setdefault((name, budget), {}).setdefault(folder, []).append(error)
    return {arm: {folder: float(np.mean(of)) for folder, of in traces.items()} for arm, traces in errors.items()}


def measured(paths):
    errors = {}
    for path in paths:
        label = os.path.basename(path).rsplit("-", 1)[0]
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        for row in rows:
            if row.get("err") is None:
                continue
            codes = f" K{row['key_bits']}" if row["key_bits"] else ""
            codes += f" V{row['value_bits']}" if row["value_bits"] else ""
            codes += " learned" if row["learned"] else ""
            size = f", {row['resident_bytes_token']:.0f} bytes"
            name = "topk" if row["preset"] == "topk" else f"{label}: {row['preset']}{codes}{size}"
            error = row["err"] if row["err_tail"] is None else row["err_tail"]
            errors.setdefault((name, row["budget"]), {})[row["trace"]] = error
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="files are reports of dci-bench kv, not folders of traces")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    errors = (measured if options.report else simulate)(options.files)
    budgets = sorted({budget for _, budget in errors})
    print("| arm | " + " | ".join(f"B {budget}" for budget in budgets) + " |\n|---|" + "---|" * len(budgets))
    for name in dict.fromkeys(name for name, _ in errors):
        cells = []
        for budget in budgets:
            of = errors.get((name, budget), {})
            ratios = [error / errors["topk", budget][trace] for trace, error in of.items() if error > 0]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
            cells.append(f"{mean:.3f} ({max(ratios, default=math.nan):.2f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
