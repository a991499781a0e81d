# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Plays ranges of mutated files, several at a time, and keeps account of them: see scripts/mutate."""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutate"
PROGRAMS = ROOT / "build" / "asan-ubsan" / "tests" / "fuzz"
# What reads HDF5 is a child of its own, libhdf5 in it: whatever happens to it is a refusal. Sanitizers would
# only make forks slow.
PLAIN = ROOT / "build" / "release" / "tests" / "fuzz"
READERS = ("a.npy", "a.fvecs", "a.bvecs", "a.fbin", "a.u8bin", "a.i8bin", "a.idx", "a.gz", "a.ivecs", "a.ibin", "ids.npy",
           "a.yaml", "trace", "a.hdf5")
# Format: program, and what it is called there.
FORMATS = {"index": ("load", "any"), "sequence": ("load_kv", "any"), **{name: ("readers", name) for name in READERS}}
PART = 2000  # files of one process
SECONDS = 1800  # a part that takes longer hangs
OPTIONS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "OPENBLAS_NUM_THREADS": "1",
}


def play(name, seed, first, end, file=None):
    """Plays files first to end - 1: (refused, accepted, inputs), or what the program said when it failed."""
    program, format_there = FORMATS[name]
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    scratch = tempfile.mkdtemp(prefix="dci-mutate-", dir=base)
    programs = PLAIN if name == "a.hdf5" else PROGRAMS
    command = [programs / f"fuzz_replay_{program}", "--mutations", format_there, str(seed), str(first), str(end)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DCI_", "CK_", "OMP_"))}
    try:
        done = subprocess.run(command + ([file] if file else []), env={**kept, **OPTIONS, "TMPDIR": scratch},
                              timeout=SECONDS, capture_output=True, text=True, errors="replace", check=False)
        found = re.search(r"inputs (\d+), files (\d+), refused (\d+), accepted (\d+)", done.stdout)
        if done.returncode == 0 and found and int(found[3]) + int(found[4]) == end - first:
            return int(found[3]), int(found[4]), int(found[1])
        return f"exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[:3000]}"
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def narrow(name, seed, first, end):
    """The first file of a part that failed, as a file, and what was said of it."""
    while end - first > 1:
        middle = (first + end) // 2
        if isinstance(play(name, seed, first, middle), str):
            end = middle
        else:
            first = middle
    folder = FOLDER / "found"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{seed}-{first}"
    return path, play(name, seed, first, end, str(path))


def part(name, seed, first, end):
    began = time.time()
    outcome = play(name, seed, first, end)
    entry = {"format": name, "seed": seed, "first": first, "end": end, "seconds": round(time.time() - began, 1),
             "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    if isinstance(outcome, str):
        path, said = narrow(name, seed, first, end)
        return {**entry, "failed": str(path.relative_to(ROOT)), "said": said if isinstance(said, str) else outcome}
    return {**entry, "refused": outcome[0], "accepted": outcome[1], "inputs": outcome[2]}


def whole(line):
    """An entry, or None where a line was cut off, by a full disk perhaps."""
    try:
        return json.loads(line)
    except ValueError:
        return None


class Account:
    """One line per part that has ended, in a file of these sources."""

    def __init__(self, state):
        self.path = FOLDER / f"passed-{state}.jsonl" if state else None
        self.entries = []
        if self.path and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self.entries = [entry for entry in map(whole, lines) if entry is not None]

    def add(self, entry):
        self.entries.append(entry)
        if self.path:
            FOLDER.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(entry) + "\n")  # whatever the last one left

    def has(self, name, seed, first, end):
        wanted = (name, seed, first, end)
        return any((e["format"], e["seed"], e["first"], e["end"]) == wanted and "failed" not in e for e in self.entries)

    def table(self, seed):
        print("| format | begins with | mutated files | refused | accepted | failed parts | seconds |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name in FORMATS:
            # What failed and passed later, which only chance can bring about, stays failed.
            of = [e for e in self.entries if e["format"] == name and e["seed"] == seed]
            passed = [e for e in of if "failed" not in e]
            if of:
                figures = (max((e["inputs"] for e in passed), default=0), sum(e["end"] - e["first"] for e in passed),
                           sum(e["refused"] for e in passed), sum(e["accepted"] for e in passed), len(of) - len(passed),
                           round(sum(e["seconds"] for e in of)))
                print(f"| {name} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")


def main():
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true")
    parser.add_argument("formats", nargs="*", metavar="format", help=", ".join(FORMATS))
    arguments = parser.parse_args()
    for name in arguments.formats:
        if name not in FORMATS:
            parser.error(f"there is no format {name}; there are {', '.join(FORMATS)}")
    account = Account(os.environ.get("DCI_STATE", ""))
    failed = 0
    if not arguments.table:
        parts = [(name, arguments.seed, first, min(first + PART, arguments.count))
                 for name in arguments.formats or FORMATS for first in range(0, arguments.count, PART)]
        waiting = [p for p in parts if not account.has(*p)]
        print(f"{len(parts) - len(waiting)} of {len(parts)} parts have passed with these sources", flush=True)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for done in concurrent.futures.as_completed([pool.submit(part, *p) for p in waiting]):
                entry = done.result()
                account.add(entry)
                if "failed" in entry:
                    failed += 1
                    print(f"{entry['format']}: {entry['failed']} fails:\n{entry['said']}", flush=True)
    account.table(arguments.seed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
