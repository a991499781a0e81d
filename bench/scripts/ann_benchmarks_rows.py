#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""From what ann-benchmarks exports to rows that dci.plot draws, and to a table.

    python data_export.py --output all.csv                                    # in a checkout of ann-benchmarks
    python3 bench/scripts/ann_benchmarks_rows.py --dataset fashion-mnist-784-euclidean --json rows.json all.csv
    python -m dci.plot "Fashion-MNIST=rows.json" --what recall,total

The table has of every index the fastest row that reaches each recall.
"""
import argparse
import csv
import json
import re

RECALLS = (0.9, 0.95, 0.99, 0.999)


def named(row):
    """(index, what its search spent) of a row."""
    given = dict(re.findall(r"(\w+)=([\w.]+)", row["parameters"]))
    if row["algorithm"].startswith("dci"):
        name = f"dci {given['kind']}"
        if given["kind"] == "pdci":
            name += f" {given['num_comp_indices']}x{given['num_simp_indices']}"
        if "promotion_prob" in given:
            name += f" p{given['promotion_prob']}"
        if "sketch_bits" in given:
            name += f" {given['sketch_bits']}-bit codes"
        spent = [f"view {given['field_of_view']}" if "field_of_view" in given else "",
                 f"retrieve {given['prop_to_retrieve']}" if "prop_to_retrieve" in given else "",
                 f"rerank {given['rerank']}" if "rerank" in given else ""]
        return name, " ".join(filter(None, spent))
    numbers = re.findall(r"(?:efQuery'?[:,] |n_probe=)(\d+)", row["parameters"])
    kind = "hnswlib M16" if row["algorithm"] == "hnswlib" else f"faiss-ivf {given.get('n_list', '')}".strip()
    return kind, ("efs " if "hnsw" in kind else "nprobe ") + numbers[0] if numbers else ""


def read(path, dataset):
    """Rows as a peers script writes them."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["dataset"] != dataset:
                continue
            name, spent = named(row)
            rows.append({"name": f"{name} {spent}".strip(), "params": "", "index": name,
                         "build_s": float(row["build"]), "qps": float(row["qps"]), "recall": float(row["k-nn"])})
    return rows


def table(rows):
    """A Markdown table, the indices in the order of their best speed at the first recall."""
    best = {}
    for row in rows:
        of = best.setdefault(row["index"], {"build": row["build_s"]})
        for recall in RECALLS:
            if row["recall"] >= recall:
                of[recall] = max(of.get(recall, 0.0), row["qps"])
    print("| | build, s | " + " | ".join(f"at recall {r:g}" for r in RECALLS) + " |\n|---|---|" + "---|" * len(RECALLS))
    for name, of in sorted(best.items(), key=lambda item: -item[1].get(RECALLS[1], 0.0)):
        cells = [f"{of[r]:,.0f}/s" if r in of else "" for r in RECALLS]
        print(f"| {name} | {of['build']:.2f} | " + " | ".join(cells) + " |")


def main():
    """Reads, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--json", help="a file for dci.plot")
    options = parser.parse_args()
    rows = read(options.csv, options.dataset)
    if not rows:
        parser.error(f"{options.csv} has no rows of {options.dataset}")
    table(rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([{k: v for k, v in row.items() if k != "index"} for row in rows], file, indent=1)


if __name__ == "__main__":
    main()
