#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Print the tables of docs/measurements/gpu.md from reports of dci-bench gpu --json and bench/scripts/gpu_peers.py --json.

    python3 bench/scripts/gpu_tables.py gpu.json [--peers peers.json] [--prefill prefill.json] [--part gather,dense]
        [--into docs/measurements/gpu.md]

--into puts each table between the lines <!-- table NAME --> and <!-- end of table --> of a document, where it has them.
A peers.json that was made with --decode brings the rows of that part with it; attention to everything is then the best of
dci's own (the preset full) and of PyTorch's backends in the same run.
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


def sdpa_times(report):
    """Microseconds of one layer by (batch, tokens): the best of PyTorch's backends, and its name."""
    best = {}
    for row in report["rows"] if report else []:
        if row["arm"].startswith("sdpa") and row["median_us"] is not None:
            shape = (row["batch"], row["tokens"])
            best[shape] = min(best.get(shape, (float("inf"), "")), (row["median_us"], row["arm"]))
    return best


class Decode:
    """Rows of the part decode, by batch and tokens, against attention to everything."""

    def __init__(self, rows, peers_report):
        self.rows, self.sdpa = rows, sdpa_times(peers_report)
        self.shapes = sorted({self.shape(row) for row in rows})
        self.full = {self.shape(row): row["us_model"] for row in rows if row["arm"] == "full"}

    @staticmethod
    def shape(row):
        return row["batch"], row["tokens"]

    def best(self, row):
        """Of all layers of the model; None: neither was measured."""
        known = [self.full[self.shape(row)]] if self.shape(row) in self.full else []
        if self.shape(row) in self.sdpa:
            known.append(self.sdpa[self.shape(row)][0] * row["model_layers"])
        return min(known) if known else None

    def arms(self):
        names = {}
        for row in self.rows:
            names.setdefault((row["arm"], row["codes"], row["planner"]), {})[self.shape(row)] = row
        return names


def named(arm, codes, planner):
    return arm + (f" {codes}" if codes != "-" else "") + (", planned by the host" if planner == "host" else "")


def milliseconds(value):
    return f"{value / 1e3:.2f}"


def scaled(row):
    return "" if row["layers"] == row["model_layers"] else f" ({row['layers']} layers)"


def ratios(decoded):
    """The KV path of a step over that of attention to everything."""
    lines = []
    head = ["ms of all layers", *(f"{batch} x {tokens:,}" for batch, tokens in decoded.shapes)]
    if decoded.sdpa:
        cells = []
        for shape in decoded.shapes:
            layers = next(row["model_layers"] for row in decoded.rows if decoded.shape(row) == shape)
            us_, arm = decoded.sdpa.get(shape, (None, ""))
            cells.append(f"{milliseconds(us_ * layers)} ({arm.removeprefix('sdpa ')})" if us_ else "-")
        lines.append(["PyTorch's SDPA, the best", *cells])
    for name, by_shape in decoded.arms().items():
        cells = []
        for shape in decoded.shapes:
            row = by_shape.get(shape)
            best = decoded.best(row) if row else None
            ratio = f", {row['us_model'] / best:.2f} x" if best else ""
            cells.append(f"{milliseconds(row['us_model'])}{ratio}{scaled(row)}" if row else "-")
        lines.append([named(*name), *cells])
    return table(head, lines)


def phases(decoded):
    """What a step is made of, all layers of the model."""
    lines = []
    for row in sorted(decoded.rows, key=decoded.shape):
        times = row["model_layers"] / row["layers"]

        def part(*names, row=row, times=times):
            known = [row[f"{name}_us"] for name in names if f"{name}_us" in row]
            return us(max(0.0, sum(known) * times)) if known else "-"

        lines.append([f"{row['batch']} x {row['tokens']:,}", named(row["arm"], row["codes"], row["planner"]) + scaled(row),
                      us(row["us_model"]), part("append", "encode"), part("score"), part("select"), part("residency"),
                      part("gather"), part("tail"), part("attend"), share(row.get("hit_rate")),
                      f"{row['bytes_fetched_step'] * times / 1e6:.2f}",
                      f"{row['fetched_gb_s']:.1f} of {row['bulk_gb_s']:.1f}" if "fetched_gb_s" in row else "-"])
    return table(["batch x tokens", "preset", "us of all layers", "append", "score", "select", "residency", "gather", "tail",
                  "attention", "hits", "MB fetched", "GB/s, of a bulk copy's"], lines)


def memory(decoded):
    """Of the device, against the whole cache there; and tokens per second of the KV path alone."""
    lines = []
    for row in sorted(decoded.rows, key=decoded.shape):
        times = row["model_layers"] / row["layers"]
        lines.append([f"{row['batch']} x {row['tokens']:,}", named(row["arm"], row["codes"], row["planner"]) + scaled(row),
                      f"{row['device_bytes'] * times / 1e9:.2f}", f"{row['summary_bytes'] * times / 1e9:.2f}",
                      f"{row['full_bytes'] * times / 1e9:.2f}", share(row["device_bytes"] / row["full_bytes"]),
                      f"{row['tokens_per_s']:,.0f}", us(row["step_us"] * times)])
    return table(["batch x tokens", "preset", "GB of the device", "of these summaries", "the whole cache, GB", "share",
                  "tokens/s", "with the host's part, us"], lines)


def pages(rows):
    """Groups as scattered rows against groups that are contiguous in host memory, at equal tokens."""
    lines = []
    for row in sorted(rows, key=lambda r: (r["batch"], r["tokens"], r["arm"], r["contiguous"])):
        times = row["model_layers"] / row["layers"]
        lines.append([f"{row['batch']} x {row['tokens']:,}", named(row["arm"], row["codes"], row["planner"]) + scaled(row),
                      "contiguous" if row["contiguous"] else "rows", f"{row['unit_tokens']:.0f}",
                      f"{row['units_step'] / row['layers']:,.0f}", f"{row['missed_step'] / row['layers']:,.1f}",
                      share(row.get("hit_rate")), f"{row['bytes_fetched_step'] * times / 1e6:.2f}",
                      us(max(0.0, row["gather_us"] * times)) if "gather_us" in row else "-",
                      f"{row['fetched_gb_s']:.1f}" if "fetched_gb_s" in row else "-",
                      us(row["residency_us"] * times) if "residency_us" in row else "-", us(row["us_model"]),
                      f"{row['first_s']:.2f}", f"{(row['row_bytes'] + row['copy_bytes']) * times / 1e9:.1f}"])
    return table(["batch x tokens", "preset", "host memory", "tokens of a unit", "units of a layer", "missed", "hits",
                  "MB fetched", "gather, us", "GB/s", "residency, us", "KV path, us", "first step, s", "host, GB"], lines)


def soak(report, rows):
    del report
    lines = [[named(row["arm"], row["codes"], row["planner"]), f"{row['steps']:,}", row["runs_as"], row["lives"],
              f"{row['blocks_poisoned']:,}", f"{row['compared']:,}", f"{row['furthest']:.1e}", f"{row['mean_apart']:.1e}",
              row["apart"], f"{us(row['us_first_half'])} / {us(row['us_second_half'])}",
              f"{(row['device_free_before'] - row['device_free_after']) / 2**20:+.1f}",
              f"{(row['host_resident_after'] - row['host_resident_before']) / 2**20:+.1f}"] for row in rows]
    return table(["preset", "steps", "as", "sequences that came and went", "blocks poisoned", "outputs compared",
                  "furthest from the CPU", "mean", "further than 1e-3", "us of a step, early / late", "device, MiB",
                  "host, MiB"], lines)


def prefill(report):
    lines = [[row["arm"], row["planner"], f"{row['tokens']:,}", row["layers"], f"{1e3 * row['alone_s']:,.0f}",
              f"{1e3 * row['device_s']:,.0f}", f"{1e3 * row['whole_s']:,.0f}", f"{100 * row['added']:+.1f} %"]
             for row in report["rows"]]
    return table(["preset", "planned by", "tokens", "layers", "products and attention alone, ms",
                  "with the cache, device, ms", "until the cache is done, ms", "added"], lines)


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
         "step": step, "error": error, "soak": soak}
DECODE = {"decode": ratios, "decode phases": phases, "decode memory": memory}


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
    parser.add_argument("--peers", help="of bench/scripts/gpu_peers.py")
    parser.add_argument("--prefill", help="of bench/scripts/gpu_prefill.py")
    parser.add_argument("--part", help="comma separated; all there are if left out")
    parser.add_argument("--into", help="a document")
    args = parser.parse_args()
    with open(args.report) as file:
        report = json.load(file)
    others = None
    if args.peers:
        with open(args.peers) as file:
            others = json.load(file)
    wanted = args.part.split(",") if args.part else [*PARTS, "decode"]
    unknown = [name for name in wanted if name not in PARTS and name != "decode"]
    if unknown:
        sys.exit(f"gpu_tables.py: there is no part {unknown[0]}; there are {', '.join(PARTS)}, decode")
    tables = {}
    decoded = [row for row in ((others or {}).get("decode") or report)["rows"] if row["part"] == "decode"]
    if decoded and "decode" in wanted:
        whole = Decode([row for row in decoded if not row.get("contiguous")], others)
        tables.update({name: make(whole) for name, make in DECODE.items()})
        grouped = {row["arm"] for row in decoded if row.get("contiguous")}
        if grouped:
            tables["decode pages"] = pages([row for row in decoded if row["arm"] in grouped])
    for name in (name for name in wanted if name != "decode"):
        rows = [row for row in report["rows"] if row["part"] == name]
        if name == "gather":
            scattered = [row for row in rows if not is_layered(row)]
            rows = [row for row in rows if is_layered(row)]
            if scattered:
                tables["gather scattered"] = gather(report, scattered)
        if rows:
            tables[name] = PARTS[name](report, rows)
    if others and not others.get("decode"):
        tables["peers"] = peers(others)
    if args.prefill:
        with open(args.prefill) as file:
            tables["prefill"] = prefill(json.load(file))
    if args.into:
        put_into(args.into, tables)
        return
    print(run_of(report))
    for name, lines in tables.items():
        print(f"\n{name}\n\n{lines}")


if __name__ == "__main__":
    main()
