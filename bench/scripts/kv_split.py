#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""How bits are best shared between keys and values: a Markdown table of what `dci-bench kv` measured.

    ARMS="--frozen-prompt --judged-only --preset topk,sketch+lowbit,lowbit --budget 256 --page-tokens 16"
    ARMS="$ARMS --key-bits 1,2,3,4,8 --value-bits 1,2,4,8 --learned random,learned"
    dci-bench kv $ARMS --every 24 --trace A,B --json short.json
    python3 bench/scripts/kv_split.py short.json ..

A row is a split: bytes per token that codes keep, and the error with them over that of `topk`, which reads every key and
drops the rest, at the same budget: geometric mean over traces and budgets (and worst of them). `*` marks what no cheaper
split undercuts.
"""
import argparse
import json
import math


def read(paths):
    """{(trace, budget): error of topk}, {(preset, learned, key bits, value bits): (bytes, {(trace, budget): error})}."""
    exact, splits = {}, {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                where = row["trace"], row["budget"]
                if row["preset"] == "topk":
                    exact[where] = row["err"]
                elif row.get("err_tail") is not None:
                    key = (row["preset"], row["learned"], row["key_bits"], row["value_bits"])
                    splits.setdefault(key, (row["resident_bytes_token"], {}))[1][where] = row["err_tail"]
    return exact, splits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", nargs="+")
    exact, splits = read(parser.parse_args().report)
    print("| preset | codes | bytes/token | error / topk's, mean (worst) | |\n|---|---|---|---|---|")
    for preset in dict.fromkeys(key[0] for key in splits):
        least = math.inf
        arms = []
        for (name, learned, key_bits, value_bits), (n_bytes, errors) in splits.items():
            if name == preset:
                ratios = [error / exact[where] for where, error in errors.items()]
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                arms.append((n_bytes, mean, max(ratios), f"K{key_bits} V{value_bits}{' learned' if learned else ''}"))
        for n_bytes, mean, worst, codes in sorted(arms):
            best = mean < least
            least = min(least, mean)
            print(f"| {preset} | {codes} | {n_bytes:.0f} | {mean:.3f} ({worst:.3f}) | {'*' if best else ''} |")


if __name__ == "__main__":
    main()
