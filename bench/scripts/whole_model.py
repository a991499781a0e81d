#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What a token of a whole model takes: transformers' generate() through dci, transformers' own caches, a loop by hand.

    DCI_LIBRARY=build/cuda/libdci.so PYTHONPATH=python python3 bench/scripts/whole_model.py --json whole.json
    whole_model.py --json whole.json                                     ms per token against the length, all arms
    whole_model.py --json whole.json --part ttft,turn,soak,batch         prompts, second turns, endurance, batches
    whole_model.py --json whole.json --part none --page docs/whole-model.md --plot docs/whole-model.png
    whole_model.py --device host --shape tiny --lengths 256 --tokens 8   everything on the CPU, to try it out

Models have known shapes and random weights, in bfloat16: figures are of time and memory, not of quality. The context is
random rows (--fill rows), the same for each arm, or comes from a real prompt (--fill prompt: dci and the loop).

arms        dci          generate() after dci.transformers.enable(model, preset=..., budget=...), greedy: one line a preset
            flash, cudnn the model's modules by hand as one CUDA graph, keys and values in device memory, PyTorch's attention
            static       StaticCache, the whole step as one CUDA graph; static-eager: without a graph
            dynamic      DynamicCache; offloaded: with offloading=True, keys and values in host memory
parts       decode       ms per token by arm, length and batch
            batch        the same at 32,768 tokens for batches of 1, 4, 8 and 16
            ttft         time to the first token, in turns with the loop in the same chunks; and of the stock generate()
            turn         a second turn: its chunk over history in host memory, the loop's chunk, and the bus's time
            soak         2,048 tokens in a row; conversations that come and go on one enabled model

Arms of transformers and the loop are called step by step without generate(), nothing waits for their tokens, and their
times are those between events on the device. A result goes into the file as soon as it is there, and a second run does
what is missing; --again repeats what is named. After --seconds the run ends with a list of what is left, and with status
75. What does not fit is a result, too. --json FILE is read where it is there; with --out DIR the file is also written there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import date
from typing import Any, Callable, NamedTuple

import whole_model_page as page

try:
    import torch
    import transformers
    import whole_model_arms as arms

    import dci
    import dci.transformers
except ImportError as error:
    torch = None
    MISSING = str(error)

ARMS = ("offloaded", "dynamic", "static", "flash", "dci")
LOOPS = ("flash", "cudnn")
STOCK = ("dynamic", "offloaded", "static", "static-eager")
PARTS = {
    "decode": ((1024, 36864, 131072, 262144), (1,)),
    "batch": ((32768,), (1, 4, 8, 16)),
    "ttft": ((36864, 131072), (1,)),
    "turn": ((131072,), (1,)),
    "soak": ((36864,), (1,)),
}
LEAST, SLOW_S = 5, 30  # of an arm that takes longer for its steps there are fewer, but so many
LEFT = 75  # the status of a run that has not come to its end: EX_TEMPFAIL


class OutOfTime(BaseException):
    """--seconds are over."""


class Results:
    """Rows in a file, by what was measured."""

    def __init__(self, path: str | None, folder: str | None) -> None:
        self.path = pathlib.Path(path) if path else None
        self.paths = [self.path] if self.path else []
        if folder:
            os.makedirs(folder, exist_ok=True)
            self.paths.append(pathlib.Path(folder) / (self.path.name if self.path else "whole_model.json"))
        self.rows: list[dict[str, Any]] = []
        if self.path and self.path.exists():
            self.rows = json.loads(self.path.read_text())["rows"]

    def has(self, what: dict[str, Any]) -> bool:
        return any(row["what"] == what and "failed" not in row for row in self.rows)

    def add(self, what: dict[str, Any], figures: dict[str, Any]) -> None:
        self.rows = [row for row in self.rows if row["what"] != what]
        self.rows.append({"what": what, **figures})
        self.write()

    def write(self) -> None:
        for path in self.paths:
            partial = path.with_name(path.name + ".part")
            partial.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n")
            partial.replace(path)


class Case(NamedTuple):
    """Something to measure."""

    what: dict[str, Any]
    run: Callable[[], dict[str, Any]]


def spread(times: list[float], batch: int) -> dict[str, Any]:
    """Of milliseconds of single steps."""
    ordered = sorted(times)
    return {
        "ms": statistics.median(ordered),
        "ms_mean": statistics.fmean(ordered),
        "ms_p99": ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)],
        "ms_max": ordered[-1],
        "n": len(ordered),
        "tokens_per_s": 1e3 * batch / statistics.fmean(ordered),
    }


class Bench:
    """A model on a device, and what is measured of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.machine = arms.Machine(options.device)
        self.over = False  # --seconds are
        self._model: Any = None

    @property
    def model(self) -> Any:
        if self._model is None:
            self._model = arms.build(arms.SHAPES[self.options.shape], self.machine)
            self.machine.tidy()
        return self._model

    @property
    def _chunk(self) -> int:
        """Of the first generate(): with a cache that is filled, it would begin with the rows that are there."""
        return 0 if self.options.fill == "rows" else self.options.chunk

    # --- cases ---------------------------------------------------------------------------------------------------------

    def cases(self) -> Iterator[Case]:
        for part in self.options.part:
            lengths, batches = PARTS[part]
            for length in self.options.lengths or lengths:
                for batch in self.options.batches or batches:
                    yield from self._of_part(part, length, batch)

    def _of_part(self, part: str, length: int, batch: int) -> Iterator[Case]:
        named, presets = self.options.arms, self.options.presets if "dci" in self.options.arms else []
        if part in ("decode", "batch"):
            for arm in [arm for arm in named if arm != "dci"]:
                fill = self.options.fill if arm in LOOPS else "rows"
                yield self._case("decode", arm, length, batch, lambda arm=arm: self.baseline(arm, length, batch), fill=fill)
            for spec in presets:
                yield self._ours("decode", spec, length, batch, self.decode, fill=self.options.fill)
        elif part == "ttft":
            if "dynamic" in named:
                yield self._case("ttft", "dynamic", length, batch, lambda: self.stock_ttft(length, batch))
            for spec in presets:
                yield self._ours("ttft", spec, length, batch, self.ttft, chunk=self.options.chunk)
        elif part == "turn":
            for spec in presets:
                yield self._ours("turn", spec, length, batch, self.turn, fill=self.options.fill, new=self.options.turn)
        elif part == "soak":
            for spec in presets:
                more = {"fill": self.options.fill}
                yield self._ours("steps", spec, length, batch, lambda *at: self.decode(*at, self.options.steps), **more)
                # Conversations are short: many of them come and go.
                yield self._ours("talks", spec, min(length, 4096), batch, self.talks, n=self.options.talks)

    def _ours(self, part: str, spec: str, length: int, batch: int, run: Any, **more: Any) -> Case:
        return self._case(part, "dci", length, batch, lambda: run(spec, length, batch), preset=spec,
                          budget=self.options.budget, **more)  # fmt: skip

    def _case(self, part: str, arm: str, length: int, batch: int, run: Any, **more: Any) -> Case:
        shape = self.options.shape
        return Case({"part": part, "arm": arm, "shape": shape, "length": length, "batch": batch,
                     "device": self.machine.name, **more}, run)  # fmt: skip

    # --- decode --------------------------------------------------------------------------------------------------------

    def baseline(self, arm: str, length: int, batch: int) -> dict[str, Any]:
        """Steps of the stock model, or of the loop."""
        if arm == "offloaded":
            self._fits_host(length, batch)
        begin = time.perf_counter()
        if arm in LOOPS:
            loop = arms.Loop(self.model, self.machine, batch, length + arms.ROOM, arm)
            if self.options.fill == "prompt":
                loop.prompt(arms.tokens(self.model, batch, length), self.options.chunk)
            else:
                loop.fill(length)
            step = loop.step(length)
        else:
            step = arms.stock_step(self.model, self.machine, arm, batch, length)
        self.machine.sync()
        fill_s = time.perf_counter() - begin
        for _ in range(3):
            step()
        self.machine.tidy()
        marks, begin = [self.machine.mark()], time.perf_counter()
        while len(marks) <= self.options.baseline_tokens:
            step()
            marks.append(self.machine.mark())
            if len(marks) > LEAST and time.perf_counter() - begin > SLOW_S:
                break
        self.machine.sync()
        return {**spread(self.machine.between(marks), batch), **self.machine.memory(), "fill_s": fill_s}

    def decode(self, spec: str, length: int, batch: int, n: int = 0) -> dict[str, Any]:
        """Tokens of generate()."""
        n, warm = n or self.options.tokens, self.options.warm
        self._fits_host(length, batch)
        with self._enabled(spec, batch, length + warm + n + 64):
            begin = time.perf_counter()
            rows = self.options.fill == "rows"
            cache = self._cache(length, batch, rows)
            try:
                self.machine.sync()
                fill_s = time.perf_counter() - begin
                self.machine.tidy()
                ids = arms.tokens(self.model, batch, length + rows)
                with arms.Replays().watched(self.machine) as replays:
                    clock = arms.Clock(self.machine, warm, replays)
                    begin = time.perf_counter()
                    arms.generate(self.model, ids, cache, warm + n + 1, clock, self._chunk)
                self.machine.sync()
                figures = {**self._decoded(clock, replays, batch), **self.machine.memory(), **arms.cache_figures(cache)}
            finally:
                cache.close()
        first = {"first_s": clock.walls[0] - begin, "second_s": clock.walls[1] - begin}
        after = {f"{name}_prompt": value for name, value in clock.after_prompt.items()}
        return {**figures, "fill_s": fill_s, **({} if rows else {**first, **after})}

    def _enabled(self, spec: str, batch: int, max_tokens: int) -> Any:
        return arms.enabled(self.model, self.machine, spec, self.options.budget, batch, max_tokens, self.options.chunk)

    def _cache(self, length: int, batch: int, rows: bool) -> Any:
        if rows:
            return arms.filled(self.model, arms.rows_of(self.model, batch, length))
        return dci.transformers.new_cache(self.model)

    def _decoded(self, clock: Any, replays: Any, batch: int) -> dict[str, Any]:
        """Steps after the first ones; the graph's share of them."""
        warm = clock.warm
        out = spread(self.machine.between(clock.marks[warm:]), batch)
        out["wall_ms"] = 1e3 * (clock.walls[-1] - clock.walls[warm]) / out["n"]
        graphs = replays.marks[clock.replayed[warm] : clock.replayed[-1]]
        if graphs:
            out["graph_ms"] = sum(before.elapsed_time(after) for before, after in graphs) / out["n"]
            out["replays_per_token"] = len(graphs) / out["n"]
            out["overhead"] = out["wall_ms"] / out["graph_ms"] - 1
        return out

    def _row_bytes(self, length: int, batch: int) -> int:
        config = self.model.config
        return 4 * batch * length * config.num_hidden_layers * config.num_key_value_heads * config.head_dim

    def _fits_host(self, length: int, batch: int) -> None:
        """Rather a sentence than a process that the system ends."""
        wanted, there = self._row_bytes(length, batch), self.options.host_gib * 2**30 or available_bytes()
        if wanted > 0.9 * there:
            raise MemoryError(f"keys and values take {wanted / 2**30:.0f} GiB, and the host has {there / 2**30:.0f} GiB")

    # --- prompts -------------------------------------------------------------------------------------------------------

    def ttft(self, spec: str, length: int, batch: int) -> dict[str, Any]:
        """Seconds to the first token, and to the second, before which the prompt ends; in turns with the loop."""
        ids, chunk = arms.tokens(self.model, batch, length), self.options.chunk
        loop = arms.Loop(self.model, self.machine, batch, length)
        ours, second, theirs = [], [], []
        with self._enabled(spec, batch, length + 64):
            for _ in range(self.options.rounds + 1):
                theirs.append(self._timed(lambda: loop.prompt(ids, chunk).cpu()))
                cache = dci.transformers.new_cache(self.model)
                try:
                    clock, begin = arms.Clock(self.machine, 2), time.perf_counter()
                    arms.generate(self.model, ids, cache, 3, clock, chunk)
                    self.machine.sync()
                finally:
                    cache.close()
                ours.append(clock.walls[0] - begin)
                second.append(clock.walls[1] - begin)
        # The first round warms up, and locks memory that the next ones use again.
        cold_s, ours, theirs = ours[0], ours[1:], theirs[1:]
        first = statistics.median(ours)
        figures = {"first_s": first, "second_s": statistics.median(second[1:]), "loop_s": statistics.median(theirs)}
        return {**figures, "cold_s": cold_s, "ratio": first / figures["loop_s"], "first_all_s": ours, "loop_all_s": theirs}

    def stock_ttft(self, length: int, batch: int) -> dict[str, Any]:
        """The stock model's generate(), the prompt in one forward."""
        ids, times = arms.tokens(self.model, batch, length), []
        for _ in range(self.options.rounds + 1):
            self.machine.tidy()
            clock, begin = arms.Clock(self.machine), time.perf_counter()
            arms.generate(self.model, ids, transformers.DynamicCache(), 1, clock)
            times.append(clock.walls[0] - begin)
        return {"first_s": statistics.median(times[1:]), "first_all_s": times[1:], **clock.after_prompt}

    def turn(self, spec: str, length: int, batch: int) -> dict[str, Any]:
        """A user's next words after a context and a few tokens of an answer."""
        new, options = self.options.turn, self.options
        rows = options.fill == "rows"
        ids = arms.tokens(self.model, batch, length + rows)
        with self._enabled(spec, batch, length + (options.rounds + 1) * (new + 32)):
            cache = self._cache(length, batch, rows)
            try:
                ids = arms.generate(self.model, ids, cache, 8, arms.Clock(self.machine), self._chunk)
                ours = []
                for number in range(options.rounds + 1):
                    # The answer's last token, which has not been through the model, is one of the new ones.
                    ids = torch.cat([ids, arms.tokens(self.model, batch, new - 1, 2 + number)], 1)
                    self.machine.sync()
                    clock, begin = arms.Clock(self.machine), time.perf_counter()
                    ids = arms.generate(self.model, ids, cache, 4, clock)
                    ours.append(clock.walls[0] - begin)
            finally:
                cache.close()
        self.machine.tidy()
        loop = arms.Loop(self.model, self.machine, batch, length + new)
        loop.fill(length)
        chunk = arms.tokens(self.model, batch, new, 2)
        theirs = [self._timed(lambda: loop.chunk(chunk, length).cpu()) for _ in range(options.rounds + 1)]
        bus = arms.bus_gb_s(self.machine)
        layers, dense = self.model.config.num_hidden_layers, int(arms.named(spec)[1].get("dense_layers", 2))
        history = self._row_bytes(length, batch) * (layers - dense) // layers  # dense layers' rows are on the device
        figures = {"turn_s": statistics.median(ours[1:]), "chunk_s": statistics.median(theirs[1:]), "bus_gb_s": bus,
                   "history_bytes": history, "bus_s": history / bus * 1e-9, "turn_all_s": ours}  # fmt: skip
        return {**figures, "ratio": figures["turn_s"] / (figures["bus_s"] + figures["chunk_s"]), **self.machine.memory()}

    def _timed(self, call: Callable[[], Any]) -> float:
        self.machine.sync()
        begin = time.perf_counter()
        call()
        self.machine.sync()
        return time.perf_counter() - begin

    # --- endurance -----------------------------------------------------------------------------------------------------

    def talks(self, spec: str, length: int, batch: int) -> dict[str, Any]:
        """Conversations of a prompt, an answer, a second turn and its answer, one after another; memory after each."""
        answer, new, after = min(64, length), min(256, length), []
        with self._enabled(spec, batch, length + 2 * answer + new + 64):
            for number in range(self.options.talks):
                cache = dci.transformers.new_cache(self.model)
                try:
                    ids = arms.tokens(self.model, batch, length, number)
                    ids = arms.generate(self.model, ids, cache, answer, arms.Clock(self.machine), self.options.chunk)
                    ids = torch.cat([ids, arms.tokens(self.model, batch, new, 1000 + number)], 1)
                    arms.generate(self.model, ids, cache, answer, arms.Clock(self.machine))
                    self.machine.sync()
                    figures = arms.cache_figures(cache)
                finally:
                    cache.close()
                del cache
                after.append({**figures, **self.machine.memory()})
        kept = {name: after[-1][name] / after[min(1, len(after) - 1)][name] - 1 for name in after[-1]
                if name.endswith("_gib") and after[min(1, len(after) - 1)][name]}  # fmt: skip
        return {"after": after, "grown": kept}


def available_bytes() -> int:
    """Of the host's memory, as the system reckons."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error)


def sentence(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


def brief(what: dict[str, Any]) -> str:
    name = what.get("preset", what["arm"])
    return f"{what['part']:7} {name:24} batch {what['batch']:3} length {what['length']:7}"


def shown(figures: dict[str, Any]) -> str:
    """The figures that a person wants to see go by."""
    units = {"ms": "ms", "ms_p99": "p99", "graph_ms": "graph", "overhead": "overhead", "first_s": "s to first",
             "loop_s": "s of the loop", "turn_s": "s of the turn", "chunk_s": "s of the chunk", "bus_s": "s of the bus",
             "ratio": "x", "missed": "missed", "device_gib": "GiB device", "host_gib": "GiB host"}  # fmt: skip
    if "why" in figures or "failed" in figures:
        return str(figures.get("why", figures.get("failed")))
    if "grown" in figures:
        return "grown " + "  ".join(f"{name} {100 * by:+.2f} %" for name, by in figures["grown"].items())
    return "  ".join(f"{figures[name]:.4g} {unit}" for name, unit in units.items() if figures.get(name) is not None)


def measure(case: Case, bench: Bench) -> dict[str, Any]:
    """A row. What does not fit is a result; other failures are measured again by the next run."""
    begin = time.perf_counter()
    try:
        with torch.no_grad():
            figures = case.run()
    except Exception as error:
        figures = {"why" if is_memory(error) else "failed": sentence(error)}
        if bench.options.raise_errors:
            raise
    bench.machine.tidy()
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__, "dci": dci.__version__}
    return {**figures, "took_s": time.perf_counter() - begin, "date": str(date.today()), **versions}


def run(bench: Bench, results: Results) -> list[Case]:
    """Measures what is missing, and returns what is left."""
    cases = [case for case in bench.cases() if bench.options.again or not results.has(case.what)]

    def stop(*_: Any) -> None:
        bench.over = True
        raise OutOfTime

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, bench.options.seconds))
    try:
        while cases:
            figures = measure(cases[0], bench)
            if bench.over:  # and what was closed then failed in its turn
                raise OutOfTime
            results.add(cases[0].what, figures)
            print(f"{brief(cases[0].what)}: {shown(figures)}", flush=True)
            cases.pop(0)
    except OutOfTime:
        print(f"whole_model.py: {bench.options.seconds:g} s are over", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return cases


def numbers(text: str) -> list[int]:
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError("numbers from 1 on are wanted")
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="0", help="a GPU's number; host: dci's host device; cpu: dci's KVCache")
    parser.add_argument("--shape", default="Llama-3.1-8B", help="Llama-3.1-8B, Qwen3-8B, SmolLM2-135M or tiny")
    parser.add_argument("--part", default="decode", help=f"comma separated: {', '.join(PARTS)}; none: --page and --plot")
    parser.add_argument("--lengths", type=numbers, help="tokens of the context, comma separated (default: the part's)")
    parser.add_argument("--batches", type=numbers, help="comma separated (default: the part's)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"comma separated, of {', '.join((*STOCK, *LOOPS, 'dci'))}")
    parser.add_argument("--presets", default="sketch,sketch+lowbit,quest",
                        help="of the arm dci; PRESET:option=value:.. has more of what enable takes")  # fmt: skip
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--fill", default="rows", choices=("rows", "prompt"), help="where the context comes from")
    parser.add_argument("--chunk", type=int, default=8192, help="tokens of a prompt's forward; 0: the whole prompt")
    parser.add_argument("--tokens", type=int, default=512, help="that generate() makes, timed")
    parser.add_argument("--baseline-tokens", type=int, default=20, help="of the other arms, at most 48")
    parser.add_argument("--warm", type=int, default=8, help="tokens of generate() before those that count")
    parser.add_argument("--rounds", type=int, default=2, help="of ttft and turn, after one that warms up")
    parser.add_argument("--turn", type=int, default=512, help="tokens of a second turn")
    parser.add_argument("--steps", type=int, default=2048, help="soak: tokens in a row")
    parser.add_argument("--talks", type=int, default=20, help="soak: conversations")
    parser.add_argument("--host-gib", type=int, default=0, help="of host memory (default: what the system has free)")
    parser.add_argument("--seconds", type=float, default=460, help="after which the run ends")
    parser.add_argument("--again", action="store_true", help="measure what is there already, too")
    parser.add_argument("--raise-errors", action="store_true", help="end with the first failure's traceback")
    parser.add_argument("--json", help="a file of results, read and written")
    parser.add_argument("--out", help="a folder for the file, too")
    parser.add_argument("--also", action="append", default=[], help="--page: a further file, as of language_model.py")
    parser.add_argument("--plot", help="a picture of ms per token against the length (matplotlib)")
    parser.add_argument("--page", help="a document whose tables are replaced")
    options = parser.parse_args(arguments)
    check(parser, options)
    return options


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    options.part = [] if options.part == "none" else options.part.split(",")
    options.arms, options.presets = options.arms.split(","), options.presets.split(",")
    for name, known in (("part", PARTS), ("arms", (*STOCK, *LOOPS, "dci"))):
        unknown = [word for word in getattr(options, name) if word not in known]
        if unknown:
            parser.error(f"--{name} has {unknown[0]!r}, expected of {', '.join(known)}")
    least = min(options.budget, options.tokens, options.baseline_tokens, options.warm, options.rounds, options.turn,
                options.steps, options.talks)  # fmt: skip
    if least < 1 or options.chunk < 0 or options.baseline_tokens > 48:
        parser.error("numbers from 1 on are wanted, --chunk from 0 on, and at most 48 for --baseline-tokens")
    if options.part and torch is None:
        parser.error(f"nothing can be measured: {MISSING}")
    if options.part and options.shape not in arms.SHAPES:
        parser.error(f"--shape is {options.shape!r}, expected one of {', '.join(arms.SHAPES)}")


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    results, left = Results(options.json, options.out), []
    if options.part:
        bench = Bench(options)
        versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
        print(f"{bench.machine.name}, {versions}: {options.shape}, random weights, bfloat16", flush=True)
        left = run(bench, results)
    rows = results.rows + [row for path in options.also for row in json.loads(pathlib.Path(path).read_text())["rows"]]
    if options.page:
        page.write(options.page, rows)
    if options.plot:
        page.plot(options.plot, rows, options.shape)
    for case in left:
        print(f"left: {brief(case.what)}")
    return LEFT if left else 1 if any("failed" in row for row in results.rows) else 0


if __name__ == "__main__":
    status = main()
    if status == LEFT:  # in the middle of a step, which nobody ends
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
