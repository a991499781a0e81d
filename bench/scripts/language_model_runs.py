# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Parts of language_model.py that go on where the last run ended: synthetic tasks, long decodes, lengths.

Rows are of one thing each (`what`: the model, the arm, the task, ..). Those of tasks have a score for each seed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from language_model_arms import Arm, Decoder, Prompt, Reader, arms_of, specs
from language_model_results import Deadline, OutOfTime, device_name, read_text, text_ids, versions
from language_model_tasks import Maker, Question, Sample, paragraphs, sentences, share_right
from whole_model import LEFT, Results

HOPELESS, TRIED, ENOUGH = 0.5, 3, 10  # less than a half: presets are left out after three seeds, the own cache after ten
BLOCK = 64  # logits that are compared at a time

Row = dict[str, Any]


class Run:
    """A model, the ways to decode, and what there is already."""

    def __init__(self, model: Any, tokenizer: Any, options: argparse.Namespace, room: int) -> None:
        self.options, self.tokenizer = options, tokenizer
        self.results = Results(options.json, options.folder)
        self.deadline = Deadline(options.seconds)
        found = specs(options.preset, options.budget, options.kept, options.config)
        self.reader, self.arms = arms_of(model, found, options.device, room)
        self.same = {"model": options.name, "device": device_name(options), "dtype": options.dtype}

    def what(self, arm: Arm, part: str, **more: Any) -> Row:
        arms = {"arm": arm.name, "budget": arm.budget}
        own = {"kept": "-"} if arm.spec is None else {"kept": self.options.kept, **arm.spec.what()}
        return {"part": part, **self.same, **more, **arms, **own}

    def find(self, what: Row) -> Row | None:
        return next((row for row in self.results.rows if row["what"] == what), None)

    def open(self, what: Row, **begin: Any) -> Row:
        """The row of this, which is made where it is not there."""
        row = self.find(what)
        if row is None:
            row = {"what": what, **begin, **versions()}
            self.results.rows.append(row)
        return row

    def until_the_end(self, work: Callable[[], None]) -> int:
        """The status of a run."""
        try:
            work()
        except OutOfTime:
            self.results.write()
            print(f"language_model.py: {self.options.seconds:g} s are over, the next run goes on", flush=True)
            return LEFT
        self.results.write()
        return 0


# --- tasks -----------------------------------------------------------------------------------------------------------


def said_by(decoder: Decoder, question: Question, tokenizer: Any) -> str:
    """A greedy answer. What ends it is not read."""
    said: list[int] = []
    while len(said) < question.tokens:
        token = int(decoder.logits.argmax())
        if token == tokenizer.eos_token_id or question.stop in tokenizer.decode([*said[-4:], token]):
            said.append(token)
            break
        said.append(token)
        decoder.feed([token])
    return str(tokenizer.decode(said, skip_special_tokens=True))


class Asked:
    """A sample, as tokens."""

    def __init__(self, sample: Sample, run: Run) -> None:
        self.sample, self.run = sample, run
        self.document = run.tokenizer(sample.document, return_tensors="pt").input_ids
        self._read: dict[bool, Prompt] = {}

    def ids(self, question: Question) -> list[int]:
        return list(self.run.tokenizer(question.text, add_special_tokens=False).input_ids)

    def prompt(self, with_question: bool) -> Prompt:
        """What the model has read, once: the document, with its first question or without."""
        if with_question not in self._read:
            if with_question:
                ids = torch.tensor([self.ids(self.sample.turns[0])])
                self._read[True] = self.run.reader.read(ids, self.prompt(False))
            else:
                self._read[False] = self.run.reader.read(self.document)
        return self._read[with_question]

    def ask(self, decoder: Decoder, question: Question, at_once: bool) -> None:
        """The question goes in, as one part of a prompt or token by token."""
        ids = self.ids(question)
        if at_once:
            decoder.feed(ids)
        else:
            for token in ids:
                decoder.feed([token])

    def answers(self, arm: Arm, protocol: str) -> tuple[float, list[str]]:
        """The share of all questions that is right, and what was said."""
        at_once, found, said = protocol == "prompt", list[float](), list[str]()
        decoder = arm.after(self.prompt(at_once))
        try:
            for number, question in enumerate(self.sample.turns):
                if number > 0 or not at_once:
                    self.ask(decoder, question, at_once)
                said.append(said_by(decoder, question, self.run.tokenizer))
                found.append(share_right(question, said[-1]))
            for question in self.sample.forks:
                fork = decoder.fork()
                try:
                    self.ask(fork, question, at_once)
                    said.append(said_by(fork, question, self.run.tokenizer))
                finally:
                    fork.close()
                found.append(share_right(question, said[-1]))
        finally:
            decoder.close()
        return statistics.fmean(found), said


def is_hopeless(scores: dict[str, float], tried: int = TRIED) -> bool:
    """Whether the model's own cache is so far from what counts that presets need not be tried."""
    return len(scores) >= tried and statistics.fmean(scores.values()) < HOPELESS


class Tasks:
    """The matrix of tasks, lengths, seeds, protocols and arms: a document is read once for all of its presets."""

    def __init__(self, run: Run) -> None:
        self.run, options = run, run.options
        filler = paragraphs(read_text(options.filler)) if options.filler else sentences
        self.maker = Maker(lambda text: len(run.tokenizer(text, add_special_tokens=False).input_ids), filler)

    def rows(self, task: str, length: int, protocol: str) -> list[tuple[Arm, Row]]:
        more = {"task": task, "length": length, "protocol": protocol}
        if self.run.options.filler:
            more["filler"] = self.run.options.filler
        run = self.run
        return [(arm, run.open(run.what(arm, "tasks", **more), scores={})) for arm in run.arms]

    def all(self) -> None:
        options = self.run.options
        for task in options.task:
            for length in options.lengths:
                rows = {protocol: self.rows(task, length, protocol) for protocol in options.protocol}
                for seed in range(1, options.seeds + 1):
                    self.one(task, length, seed, rows)
                for protocol, found in rows.items():
                    self.show(task, length, protocol, found)

    def one(self, task: str, length: int, seed: int, rows: dict[str, list[tuple[Arm, Row]]]) -> None:
        """A document, and what is missing of it."""
        asked: Asked | None = None
        for protocol, found in rows.items():
            own = found[0][1]["scores"]
            for arm, row in found:
                if str(seed) in row["scores"] or is_hopeless(own, ENOUGH if arm.spec is None else TRIED):
                    continue
                self.run.deadline.check()
                asked = asked or Asked(self.maker.sample(task, seed, length), self.run)
                begin = time.perf_counter()
                share, said = asked.answers(arm, protocol)
                row["scores"][str(seed)] = share
                row["s"] = row.get("s", 0.0) + time.perf_counter() - begin
                if self.run.options.answers:
                    row.setdefault("said", {})[str(seed)] = said
        if asked is not None:
            self.run.results.write()

    def show(self, task: str, length: int, protocol: str, found: list[tuple[Arm, Row]]) -> None:
        shares = [f"{arm.name} {arm.budget or ''} {statistics.fmean(row['scores'].values()):.2f}".replace("  ", " ")
                  for arm, row in found if row["scores"]]  # fmt: skip
        print(f"{task} {length}, {protocol}: {', '.join(shares)}", flush=True)


def tasks(model: Any, tokenizer: Any, options: argparse.Namespace) -> int:
    """Shares of right answers."""
    run = Run(model, tokenizer, options, max(options.lengths) + 1024)
    return run.until_the_end(Tasks(run).all)


# --- a text that is given ------------------------------------------------------------------------------------------------


def chunks_of_logits(reader: Reader, prompt: Prompt, held: list[int]) -> Iterator[torch.Tensor]:
    """By the model's own cache, of each held token: [tokens, vocabulary], some at a time."""
    cache, ids = prompt.copy(), torch.tensor([held[:-1]], device=prompt.logits.device)
    yield prompt.logits[None]
    for part in ids.split(512, dim=1):
        with torch.no_grad():
            yield reader.model(part, past_key_values=cache).logits[0]


def blocks(decoder: Decoder, held: list[int], deadline: Deadline) -> Iterator[torch.Tensor]:
    """The same by an arm, which reads one token after another."""
    kept = [decoder.logits]
    for token in held[:-1]:
        if len(kept) == BLOCK:
            deadline.check()
            yield torch.stack(kept)
            kept = []
        kept.append(decoder.feed([token]))
    yield torch.stack(kept)


def surprise(logits: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Of each held token, in nats."""
    return torch.nn.functional.cross_entropy(logits.float(), held.to(logits.device), reduction="none").double().cpu()


def differences(own: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each token: Kullback-Leibler divergence from the own cache's distribution, and whether the first is the same."""
    p, q = (torch.log_softmax(x.float(), -1) for x in (own, logits))
    return (p.exp() * (p - q)).sum(-1).double().cpu(), (own.argmax(-1) == logits.argmax(-1)).double().cpu()


def of_windows(values: torch.Tensor, window: int) -> list[float]:
    return [float(part.mean()) for part in values.split(window)]


def long(model: Any, tokenizer: Any, options: argparse.Namespace) -> int:
    """A text is decoded after a short prompt: how far presets are from the own cache, by windows."""
    run = Run(model, tokenizer, options, options.prompt + options.steps + 64)
    ids = text_ids(tokenizer, options, options.prompt + options.steps)
    held = ids[options.prompt :]
    more = {"prompt": options.prompt, "steps": options.steps, "text": options.text, "skip": options.skip}

    def work() -> None:
        missing = [arm for arm in run.arms if run.find(run.what(arm, "long", **more)) is None]
        if not missing:
            return
        prompt = run.reader.read(ids[None, : options.prompt])
        own = torch.cat(list(chunks_of_logits(run.reader, prompt, held.tolist())))
        for arm in missing:
            run.deadline.check()
            begin = time.perf_counter()
            figures = one_long(arm, run, prompt, held, own)
            run.open(run.what(arm, "long", **more), **figures, s=time.perf_counter() - begin)
            run.results.write()
            print(f"{arm.name} {arm.budget}: divergence {figures['divergence']:.4g}, the same first token "
                  f"{100 * figures['same_first']:.2f} %, perplexity {figures['perplexity']:.4f}", flush=True)  # fmt: skip

    return run.until_the_end(work)


def one_long(arm: Arm, run: Run, prompt: Prompt, held: torch.Tensor, own: torch.Tensor) -> Row:
    """Figures of an arm."""
    window = run.options.window
    if arm.spec is None:
        surprises = torch.cat([surprise(*pair) for pair in zip(own.split(512), held.split(512))])
        divergences, same = torch.zeros(len(held)), torch.ones(len(held))
    else:
        decoder, found = arm.after(prompt), list[tuple[torch.Tensor, ...]]()
        try:
            at = 0
            for logits in blocks(decoder, held.tolist(), run.deadline):
                part = slice(at, at + len(logits))
                found.append((surprise(logits, held[part]), *differences(own[part], logits)))
                at = part.stop
        finally:
            decoder.close()
            arm.close()
        surprises, divergences, same = (torch.cat(parts) for parts in zip(*found))
    return {
        "perplexity": math.exp(float(surprises.mean())),
        "divergence": float(divergences.mean()),
        "divergence_error": float(divergences.std() / math.sqrt(len(held))),
        "same_first": float(same.mean()),
        "windows": {"tokens": window, "surprise": of_windows(surprises, window),
                    "divergence": of_windows(divergences, window), "same_first": of_windows(same, window)},
    }  # fmt: skip


def lengths(model: Any, tokenizer: Any, options: argparse.Namespace) -> int:
    """The surprise at the same held tokens after contexts of several lengths, at several places of the text."""
    run, most = Run(model, tokenizer, options, max(options.lengths) + 64), max(options.lengths)
    if min(options.lengths) <= options.steps:
        raise SystemExit(f"--lengths are to be above --steps, which are {options.steps}")
    parts = text_ids(tokenizer, options, options.places * most).split(most)

    def work() -> None:
        for place, ids in enumerate(parts):
            held = ids[most - options.steps :]
            for length in options.lengths:
                more = {"length": length, "place": place, "steps": options.steps, "text": options.text, "skip": options.skip}
                missing = [arm for arm in run.arms if run.find(run.what(arm, "lengths", **more)) is None]
                prompt: Prompt | None = None
                for arm in missing:
                    run.deadline.check()
                    prompt = prompt or run.reader.read(ids[None, most - length : most - options.steps])
                    figures = {"surprise": one_length(arm, run, prompt, held)}
                    run.open(run.what(arm, "lengths", **more), **figures)
                    run.results.write()
                    print(f"{length} tokens, place {place}, {arm.name} {arm.budget}: {math.exp(figures['surprise']):.3f}",
                          flush=True)  # fmt: skip

    return run.until_the_end(work)


def one_length(arm: Arm, run: Run, prompt: Prompt, held: torch.Tensor) -> float:
    """The mean surprise."""
    if arm.spec is None:
        logits = torch.cat(list(chunks_of_logits(run.reader, prompt, held.tolist())))
        return float(surprise(logits, held).mean())
    decoder, total, at = arm.after(prompt), 0.0, 0
    try:
        for part in blocks(decoder, held.tolist(), run.deadline):
            total += float(surprise(part, held[at : at + len(part)]).sum())
            at += len(part)
    finally:
        decoder.close()
    return total / len(held)
