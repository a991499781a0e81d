# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Runs libFuzzer's targets, several at a time, and keeps account of them: see scripts/fuzz."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
PACKS = ROOT / "tests" / "corpus"
PROGRAMS = {False: BUILD / "fuzz", True: ROOT / "build" / "fuzz-fast" / "fuzz"}  # by "without sanitizers"
RUNS = BUILD / "runs.json"
TARGETS = ("index", "kv", "load", "load_kv", "configs", "kmeans", "sketch", "transform", "readers")
# Bytes of the longest input, and of a pack in the repository.
MOST_INPUT = {"index": 600, "kv": 400, "load": 12000, "load_kv": 20000, "readers": 6700}
MOST_PACK = {"load": 90000, "load_kv": 110000}
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def unpack(target, folder):
    """The inputs of a pack as files, unless they are there."""
    data = (PACKS / f"{target}.pack").read_bytes()
    at = number = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        path = folder / f"kept-{number:04d}"
        if not path.exists():
            path.write_bytes(data[at + 4 : at + 4 + size])
        at += 4 + size
        number += 1


def environment(scratch):
    unset = ("DCI_ISA", "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, **SANITIZERS, "TMPDIR": str(scratch)}


def scratch_folder():
    """Memory where the system has it as files: targets write some to be read back."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return pathlib.Path(tempfile.mkdtemp(prefix="dci-fuzz-", dir=base))


def prepare(target, fast=False):
    """A corpus of what is kept in the repository, of seeds, and of what earlier runs left."""
    corpus, seeds = BUILD / "corpus" / target, BUILD / "seeds" / target
    corpus.mkdir(parents=True, exist_ok=True)
    seeds.mkdir(parents=True, exist_ok=True)
    unpack(target, corpus)
    if not any(seeds.iterdir()):
        scratch = scratch_folder()
        command = [PROGRAMS[fast] / target, f"--seeds={seeds}"]
        subprocess.run(command, env=environment(scratch), check=True)
        shutil.rmtree(scratch)
    return corpus, seeds


class Run:
    """One target for a while; a crash does not end it, until there are ten."""

    def __init__(self, target, seconds, fast):
        self.target, self.seconds, self.fast = target, seconds, fast
        self.corpus, self.seeds = prepare(target, fast)
        self.began = time.time()
        self.executions = self.findings = 0
        self.growth = []  # (seconds since it began, edges)
        self.log = BUILD / "logs" / f"{target}-{int(self.began)}.log"
        for folder in (self.log.parent, BUILD / "found"):
            folder.mkdir(parents=True, exist_ok=True)
        self.scratch = scratch_folder()
        self.start()

    def start(self):
        left = max(1, int(self.began + self.seconds - time.time()))
        self.part = time.time()
        self.before, self.found_before = self.executions, self.findings
        command = [
            PROGRAMS[self.fast] / self.target,
            f"-max_total_time={left}",
            "-timeout=60",
            "-report_slow_units=60",
            "-rss_limit_mb=3000",
            "-print_final_stats=1",
            "-use_value_profile=0",
            f"-max_len={MOST_INPUT.get(self.target, 300)}",
            f"-artifact_prefix={BUILD / 'found' / self.target}-",
            str(self.corpus),
            str(self.seeds),
        ]
        words = ROOT / "tests" / "fuzz" / f"{self.target}.dict"
        if words.exists():
            command.append(f"-dict={words}")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment(self.scratch)
            )
        self.read_to = self.log.stat().st_size if self.log.exists() else 0
        self.text = ""

    def look(self):
        """Reads what the target has said since; True when it is done."""
        code = self.process.poll()
        with self.log.open("rb") as log:
            log.seek(self.read_to)
            said = log.read()
        whole = said.rfind(b"\n") + 1
        self.read_to += whole
        now = round(time.time() - self.began)
        for line in said[:whole].decode(errors="replace").splitlines():
            found = re.match(r"#(\d+)\s.*\bcov: (\d+)", line)
            if found:
                self.executions = self.before + int(found[1])
                if not self.growth or int(found[2]) > self.growth[-1][1]:
                    self.growth.append((now, int(found[2])))
            found = re.match(r"stat::number_of_executed_units:\s*(\d+)", line)
            if found:
                self.executions = self.before + int(found[1])
            self.findings += re.search(r"Test unit written to .*-(crash|leak|oom|timeout)-", line) is not None
        if code is None:
            return False
        if code != 0 and self.findings == self.found_before:
            self.findings += 1  # it ended by itself, and left no input
        if code != 0 and self.findings < 10 and time.time() - self.began < self.seconds - 5:
            self.start()
            return False
        shutil.rmtree(self.scratch, ignore_errors=True)
        return True

    def result(self):
        return {
            "target": self.target + (" (no sanitizers)" if self.fast else ""),
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began),
            "executions": self.executions,
            "growth": self.growth,
            "findings": self.findings,
        }


def runs_so_far():
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def keep(run):
    runs = runs_so_far()
    runs.append(run)
    part = RUNS.with_suffix(".part")
    part.write_text(json.dumps(runs, indent=1) + "\n")
    part.replace(RUNS)


def edges_at(runs, seconds):
    """The most edges after so many seconds of all runs, one behind the other."""
    most = 0
    for run in runs:
        for at, edges in run["growth"]:
            if at <= seconds:
                most = max(most, edges)
        seconds -= run["seconds"]
        if seconds < 0:
            break
    return most


def table(out):
    runs = runs_so_far()
    out("| target | seconds | executions | edges | edges at two thirds of the time | findings |")
    out("|---|---:|---:|---:|---:|---:|")
    for target in [target + kind for target in TARGETS for kind in ("", " (no sanitizers)")]:
        of = [run for run in runs if run["target"] == target]
        if of:
            seconds = sum(run["seconds"] for run in of)
            figures = (
                seconds,
                sum(run["executions"] for run in of),
                edges_at(of, seconds),
                edges_at(of, seconds * 2 / 3),
                sum(run["findings"] for run in of),
            )
            out(f"| {target} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")


def fuzz(targets, seconds, jobs, fast):
    """True if nothing was found."""
    waiting, running, findings = list(targets), [], 0
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Run(waiting.pop(0), seconds, fast))
        time.sleep(1)
        for run in [run for run in running if run.look()]:
            running.remove(run)
            result = run.result()
            keep(result)
            findings += result["findings"]
            print(
                f"{result['target']}: {result['executions']:,} executions, {edges_at([result], 1e9):,} edges, "
                f"{result['findings']} findings in {result['seconds']:,} s",
                flush=True,
            )
    return findings == 0


def pack(targets):
    """Merges each corpus, then takes the shortest inputs as long as they fit."""
    for target in targets:
        corpus, seeds = prepare(target)
        merged = BUILD / "merged" / target
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir(parents=True)
        scratch, copies = scratch_folder(), scratch_folder()
        for path in corpus.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a run that is under way may replace inputs by shorter ones
                shutil.copy(path, copies)
        command = [PROGRAMS[False] / target, "-merge=1", f"-max_len={MOST_INPUT.get(target, 300)}", merged, copies, seeds]
        with (BUILD / "logs" / f"{target}-merge.log").open("wb") as log:
            subprocess.run(command, stdout=log, stderr=log, env=environment(scratch), check=True)
        shutil.rmtree(scratch)
        shutil.rmtree(copies)
        packed, n = b"", 0
        inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data))
        for data in inputs:
            if len(packed) + 4 + len(data) <= MOST_PACK.get(target, 40000):
                packed += struct.pack("<I", len(data)) + data
                n += 1
        (PACKS / f"{target}.pack").write_bytes(packed)
        print(f"{target}: {n} of {len(inputs)} inputs, {len(packed):,} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    arguments = parser.parse_args()
    for target in arguments.targets:
        if target not in TARGETS:
            parser.error(f"there is no target {target}; there are {', '.join(TARGETS)}")
    targets = arguments.targets or TARGETS
    if arguments.pack:
        pack(targets)
        return 0
    good = arguments.table or fuzz(targets, arguments.minutes * 60, arguments.jobs, arguments.fast)
    table(print)
    if not good:
        print(f"Inputs that failed lie in {(BUILD / 'found').relative_to(ROOT)}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
