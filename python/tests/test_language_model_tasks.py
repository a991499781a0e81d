# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""bench/scripts/language_model_tasks.py: what a sample wants is what its document says, for each task."""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT

SCRIPTS = ROOT / "bench" / "scripts"
if not SCRIPTS.is_dir():
    pytest.skip("the scripts are those of the repository", allow_module_level=True)
SEEDS = range(1, 9)
NAMES = "single multikey multivalue multiquery variables common frequent lookups list json chain".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def tasks() -> Iterator[Any]:
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("language_model_tasks")
    sys.path.remove(str(SCRIPTS))


def count(text: str) -> int:
    """Tokens: words, other signs, ends of lines."""
    return len(re.findall(r"\w+|[^\w ]", text))


def needles(document: str) -> list[tuple[str, str]]:
    return re.findall(r"The secret number of the ([a-z ]+) is (\d+)\.", document)


def names_in(question: str) -> list[str]:
    return re.findall(r"the ([a-z]+ [a-z]+)(?=,| and|\?)", question)


def of_needles(document: str, question: str) -> list[str]:
    return [number for name, number in needles(document) if name in names_in(question)]


def of_variables(document: str, question: str) -> list[str]:
    values: dict[str, str] = {}
    for name, given in re.findall(r"^VAR (\w+) = (?:VAR )?(\w+)$", document, re.MULTILINE):
        values[name] = values.get(given, given)
    wanted = re.findall(r"\d+", question)[0]
    return [name for name, value in values.items() if value == wanted]


def of_common(document: str, question: str) -> list[str]:
    found = Counter(re.findall(r"^\d+\. (\w+)$", document, re.MULTILINE))
    times = sorted(found.values())
    assert times[-10] == times[-1] == 10 * times[0] and times[-11] == times[0]
    return [word for word, _ in found.most_common(10)]


def of_frequent(document: str, question: str) -> list[str]:
    return [word for word, _ in Counter(document.splitlines()[1].rstrip(".").split()).most_common(3)]


def of_json(document: str, question: str) -> list[str]:
    found = re.findall(r"Guest (\w+) has the ticket with the number (\d+)\.", document)
    return [f"{name}={number}" for name, number in found if name not in question]


def of_chain(document: str, question: str) -> list[str]:
    amount, out = int(re.findall(r"begins with (\d+)", question)[0]), []
    for number, word, by in sorted(re.findall(r"Operation (\d+): (add|subtract) (\d)\.", document), key=lambda x: int(x[0])):
        after = amount + int(by) if word == "add" else amount - int(by)
        out.append(f"Operation {number}: {amount} {'+' if word == 'add' else '-'} {by} = {after}")
        amount = after
    assert all(line in question for line in out[:2])
    return out[2:]


SOLVED = {"variables": of_variables, "common": of_common, "frequent": of_frequent, "json": of_json, "chain": of_chain,
          "list": lambda document, question: [number for _, number in needles(document)][1:]}  # fmt: skip


def test_there_are_tests_of_all(tasks: Any) -> None:
    assert list(tasks.TASKS) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [700, 1500])
def test_documents_say_what_is_wanted(tasks: Any, name: str, length: int) -> None:
    for seed in SEEDS:
        sample = tasks.Maker(count).sample(name, seed, length)
        questions = (*sample.turns, *sample.forks)
        assert 0.94 * length <= count(sample.document) + sum(count(q.text) + q.tokens for q in questions) <= length
        for question in questions:
            said = SOLVED.get(name, of_needles)(sample.document, question.text)
            assert sorted(said) == sorted(question.wanted), (seed, question)
            assert question.wanted and count(" ".join(question.wanted)) < question.tokens


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_those_of_their_seed(tasks: Any, name: str) -> None:
    random.seed(5)  # which no generator may look at
    made = [tasks.Maker(count).sample(name, seed, 700) for seed in SEEDS]
    random.seed(6)
    assert made == [tasks.Maker(count).sample(name, seed, 700) for seed in SEEDS]
    assert len({sample.document for sample in made}) == len(made) == len({sample.turns[0].wanted for sample in made})


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_judged(tasks: Any, name: str) -> None:
    question = tasks.Maker(count).sample(name, 3, 700).turns[0]
    wanted = question.wanted
    if question.check == "pairs":
        right = [json.dumps(dict(zip(("guest", "ticket"), pair.split("=")))) for pair in wanted]
    else:
        right = list(wanted)
    by = "\n" if question.check == "steps" else ", "
    assert tasks.share_right(question, by.join(right)) == 1
    assert tasks.share_right(question, by.join(right[:1])) == pytest.approx(1 / len(wanted))
    assert tasks.share_right(question, "I do not know") == 0
    assert tasks.share_right(question, "") == 0
    other = [re.sub(r"\w+(?=\W*$)", r"7\g<0>", one) for one in right]  # ends as the right ones do
    assert tasks.share_right(question, by.join(other)) == 0


def test_steps_after_a_mistake_do_not_count(tasks: Any) -> None:
    assert tasks.steps_right(("a", "b", "c", "d"), "\na\nb \nx\nd") == 0.5


def test_numbers_of_json_may_be_numbers_and_the_array_may_be_cut_off(tasks: Any) -> None:
    said = ' {"guest": "A", "ticket": 1}, {"guest": "B", "ticket": "2"}, {"guest": "C'
    assert tasks.pairs_right(("A=1", "B=2"), said) == 1
    assert tasks.pairs_right(("A=1", "B=2"), '{"guest": "B", "ticket": 1}, {"guest": A}') == 0


def test_needles_lie_at_their_depths(tasks: Any) -> None:
    for seed in SEEDS:
        document = tasks.Maker(count).sample("single", seed, 1500).document
        at = document.index("The secret number of the") / len(document)
        assert abs(at - tasks.depth_of(seed)) < 0.1
    assert {tasks.depth_of(seed) for seed in SEEDS} == set(tasks.DEPTHS)


def test_filler_may_be_a_text(tasks: Any) -> None:
    text = "\n\n".join(f"Paragraph {'x' * (i + 1)} of\nthe text." for i in range(30))
    make = tasks.Maker(count, tasks.paragraphs(text))
    documents = [make.sample("single", seed, 600).document for seed in SEEDS]
    assert all("Paragraph xxx of the text." in document for document in documents)
    assert len({document.splitlines()[1] for document in documents}) > 2  # they begin at different places


def test_lengths_that_are_too_small_are_refused(tasks: Any) -> None:
    with pytest.raises(ValueError, match=r"20 tokens are too few for what has to be in the text: \d+ more are needed"):
        tasks.Maker(count).sample("lookups", 1, 20)
