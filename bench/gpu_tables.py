#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Print the tables of docs/gpu.md and bench/gpu-notes.md from reports of dci-bench gpu --json and bench/gpu_peers.py --json.

    python3 bench/gpu_tables.py gpu.json [--peers peers.json] [--part gather,dense] [--into docs/gpu.md]

--into puts each table between the lines <!-- table NAME --> and <!-- end of table --> of a document, where it has them.
"""
import argparse
import json
import re
import sys


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def us(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def spread(row):
    return f"{us(row['us'])} ({us(row['us_p10'])} to {us(row['us_p90'])})"


def share(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def run_of(report):
    device = report["device"]
    return (f"{device['name']}, driver {device['driver']}, {report['machine']['date']}"
            f"{'; tiny sizes: the figures mean nothing' if device['tiny'] else ''}")


def limits(report, rows):
    del rows
    known = report["limits"]
    names = [("memory_specified_gb_s", "device memory, by clock and width"),
             ("memory_copy_gb_s", "device memory, a copy of 1 GiB, read and written"),
             ("bulk_to_device_gb_s", "bus, one copy of 256 MiB to the device"),
             ("bulk_to_host_gb_s", "bus, one copy of 256 MiB to the host")]
    lines = table(["limit", "GB/s"], [(text, f"{known[name]:,.1f}") for name, text in names])
    return f"{run_of(report)}\n\n{lines}"


def is_layered(row):
    """Whether what was fetched lay as a layer of a dci_kv does, and not all over the pool."""
    return row.get("layout") == "layers"


def gather(report, rows):
    """One line for each shape, the ways side by side; the kernel's shares."""
    del report
    shapes, ways = {}, []
    for row in rows:
        shapes.setdefault((row["unit_bytes"], row["units"]), {})[row["arm"]] = row
        if row["arm"] not in ways:
            ways.append(row["arm"])
    lines = []
    for (unit, n), arms in sorted(shapes.items()):
        kernel = arms["kernel"]
        lines.append([f"{n:,} x {unit:,} B", *(us(arms[way]["us"]) for way in ways), f"{kernel['gb_s']:.1f}",
                      share(kernel["share_of_copy"]), share(kernel.get("share"))])
    return table(["fetched", *(f"{way}, us" for way in ways), "kernel, GB/s", "of the copy", "of bulk"], lines)


def dense(report, rows):
    """One line for each shape; older reports do not say how pages lie, which was shuffled."""
    del report
    lines = []
    for row in rows:
        pages = f"{row['page']}, {row.get('order', 'shuffled')}"
        lines.append([f"{row['batch']} x {row['tokens']:,}", f"{row['heads'] * row['group']} / {row['heads']}", row["dim"],
                      row["dtype"], pages, row["layers"], spread(row), f"{row['gb_s'] * 1e-3:.2f}", share(row.get("share")),
                      share(row["share_of_copy"])])
    return table(["batch x tokens", "query / kv heads", "d", "type", "pages", "layers", "us (p10 to p90)", "TB/s",
                  "of specified", "of a copy"], lines)


def sparse(report, rows):
    # Attention only reads, and is faster than a copy: the floor is what clock and width allow, where they are known.
    limit = (report["limits"]["memory_specified_gb_s"] or report["limits"]["memory_copy_gb_s"]) * 1e9
    lines = [[row["batch"], f"{row['slots']:,}", row["layers"], spread(row), us(1e6 * row["bytes"] / limit),
              f"{row['gb_s'] * 1e-3:.2f}"] for row in rows]
    return table(["batch", "slots", "layers", "us (p10 to p90)", "floor, us", "TB/s"], lines)


def append(report, rows):
    del report
    lines = [[row["arm"], row["batch"], row["layers"], spread(row), f"{row['gb_s']:.1f}", share(row.get("share")),
              f"{row['tokens_per_s']:,.0f} (wanted {row['tokens_per_s_wanted']:,.0f})" if "tokens_per_s" in row else "-"]
             for row in rows]
    return table(["", "batch", "layers", "us (p10 to p90)", "GB/s", "of limit", "tokens/s"], lines)


def residency(report, rows):
    del report
    lines = [[row["arm"], row["budget"], row["unit_tokens"], f"{row['times_budget']} x", share(row["hit_rate"]),
              share(row["hit_rate_offline"]), share(row["hit_rate_last"]), f"{row['bytes_step_all'] / 1024:.1f}",
              f"{row['bytes_step_saved'] / 1024:.1f}", us(row["us"]), us(row["us_batch_16"])] for row in rows]
    return table(["preset", "budget", "unit", "hot buffer", "hits", "offline optimum", "last step alone", "KiB asked for",
                  "KiB saved", "us, 8 heads", "us, batch 16"], lines)


def step(report, rows):
    del report
    lines = [[row["arm"], row["codes"], f"{row['batch']} x {row['tokens']:,}", row["layers"], spread(row),
              us(row["plan_us"]), us(row["attend_us"]), us(row["device_us"]), us(row["maintain_us"]), share(row["hit_rate"]),
              f"{row['bytes_fetched_step'] / 1024:,.0f}", f"{row['tokens_per_s']:,.1f}"] for row in rows]
    return table(["preset", "codes", "batch x tokens", "layers", "step, us (p10 to p90)", "plan, host", "attend, host",
                  "attend, device", "maintain", "hits", "KiB fetched", "tokens/s"], lines)


def error(report, rows):
    del report
    lines = [[row["arm"], row["codes"], row["trace"], row["budget"], f"{row['err_cpu']:.5f}", f"{row['err_device']:.5f}",
              f"{row['furthest']:.1e}"] for row in rows]
    return table(["preset", "codes", "trace", "budget", "error, CPU", "error, device", "furthest apart"], lines)


def peers(report):
    """Medians by shape; a line for each arm that ran anywhere."""
    shapes, arms = [], {}
    for row in report["rows"]:
        shape = (row["batch"], row["tokens"])
        if shape not in shapes:
            shapes.append(shape)
        arms.setdefault(row["arm"], {})[shape] = row["median_us"]
    lines = []
    for arm, medians in arms.items():
        if any(value is not None for value in medians.values()):
            lines.append([arm, *(us(medians[s]) if medians.get(s) is not None else "-" for s in shapes)])
    return table(["us of a layer", *(f"{batch} x {tokens:,}" for batch, tokens in shapes)], lines)


PARTS = {"limits": limits, "gather": gather, "dense": dense, "sparse": sparse, "append": append, "residency": residency,
         "step": step, "error": error}


def put_into(path, tables):
    with open(path) as file:
        text = file.read()
    for name, lines in tables.items():
        pattern = rf"(<!-- table {name} -->\n).*?(<!-- end of table -->)"
        text = re.sub(pattern, lambda found, lines=lines: f"{found[1]}{lines}\n{found[2]}", text, flags=re.DOTALL)
    with open(path, "w") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="of dci-bench gpu")
    parser.add_argument("--peers", help="of bench/gpu_peers.py")
    parser.add_argument("--part", help="comma separated; all there are if left out")
    parser.add_argument("--into", help="a document")
    args = parser.parse_args()
    with open(args.report) as file:
        report = json.load(file)
    wanted = args.part.split(",") if args.part else list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        sys.exit(f"gpu_tables.py: there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    tables = {}
    for name in wanted:
        rows = [row for row in report["rows"] if row["part"] == name]
        if name == "gather":
            scattered = [row for row in rows if not is_layered(row)]
            rows = [row for row in rows if is_layered(row)]
            if scattered:
                tables["gather scattered"] = gather(report, scattered)
        if rows:
            tables[name] = PARTS[name](report, rows)
    if args.peers:
        with open(args.peers) as file:
            tables["peers"] = peers(json.load(file))
    if args.into:
        put_into(args.into, tables)
        return
    print(run_of(report))
    for name, lines in tables.items():
        print(f"\n{name}\n\n{lines}")


if __name__ == "__main__":
    main()
