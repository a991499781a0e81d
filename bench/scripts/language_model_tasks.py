# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Synthetic long-context tasks with answers that can be checked, for language_model.py.

They follow the public descriptions of RULER (Hsieh et al. 2024: needles, variable tracing, common and frequent words) and of
LongGenBench (Liu et al. 2024: long outputs), with words and filler of our own. A sample is made from a task, a seed and a
length alone, and the same each time.

single      a needle: one secret number in the text; the seed says at which depth, in quarters of the text
multikey    four of one form with different keys, one of them asked for
multivalue  four numbers of one key, all asked for; three other keys have one each
multiquery  four keys with a number each, all asked for in one question
variables   a variable gets a number, others get it from one another; it is asked who has it; a second chain distracts
common      a numbered list of words: ten come ten times as often as the others
frequent    words without meaning, as often as a zeta distribution says; the three most frequent are asked for
lookups     eight keys; three asked for in turn, then two more, each in a fork of the conversation
list        six records in the text, all of them asked for; the answer begins with the first
json        five records in sentences, wanted as an array of objects
chain       twelve operations with numbers in the text; the answer carries them out one after another, a line each
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

Count = Callable[[str], int]  # tokens of a text


def words_of(text: str, by: str | None = None) -> list[str]:
    return [word.strip() for word in text.split(by)]


ADJECTIVES = words_of(
    "amber bitter brisk calm careful cheerful clever coarse crimson curious dusty eager early faint familiar fierce "
    "frozen gentle golden grey hasty heavy hidden hollow humble idle ivory jolly keen lively lonely lucky mellow "
    "modest muddy narrow noble northern odd pale patient plain proud quick quiet rare restless rough rusty scarlet "
    "shallow sharp silent silver sleepy slender smooth sober solid southern spare steady stern stout sturdy subtle "
    "sudden tame tender tidy tiny violet wary weary western whole wide wild wooden young"
)
NOUNS = words_of(
    "anchor apple badger bakery barrel basket beacon bell bench bridge bucket candle canal castle chapel cherry "
    "chimney clock cottage crane dairy drum eagle engine farm feather ferry fiddle forest fountain garden gate "
    "glacier hammer harbour hedge heron hill island kettle kitchen ladder lantern library lighthouse market meadow "
    "mill mirror monastery mountain orchard otter oven owl palace paper pigeon pillar pond quarry rabbit raft "
    "railway ribbon river saddle school shepherd shovel stable station statue tavern temple theatre thistle tower "
    "tunnel turtle valley village violin wagon walnut well willow windmill winter workshop yard"
)
GUESTS = words_of(
    "Agnes Boris Clara Dmitri Edith Felix Greta Henry Irma Jonas Karen Leo Maria Nils Olga Peter Rosa Simon Thea Victor"
)
WHEN = words_of(
    "in the morning, at noon, every spring, late in the year, after the rain, before the fair, on most days, once a week",
    ",",
)
WHERE = words_of(
    "near the {}, behind the {}, across from the {}, on the way to the {}, not far from the {}, below the {}",
    ",",
)
DOES = words_of(
    "was painted by, belonged to the family of, could be seen from the house of, was repaired by, stood empty until "
    "it was sold to, had been built for, was looked after by, was often visited by",
    ",",
)
WHO = words_of(
    "a carpenter, the old miller, two sisters, a travelling clerk, the neighbours, a retired sailor, the mayor, a "
    "weaver and her son, the schoolmaster, a young surveyor, the innkeeper, some students",
    ",",
)
THEN = words_of(
    "nobody remembers why, and people still talk about it, which surprised the whole town, though it cost more than "
    "expected, and the work took three weeks, so the others went home, but the letters were never found, and that "
    "was the end of the matter",
    ",",
)


class Question(NamedTuple):
    """Something to ask after a text, and what the answer has to be."""

    text: str  # up to where the answer begins
    wanted: tuple[str, ...]
    tokens: int  # most of an answer
    stop: str = "\n"  # where it ends
    check: str = "words"  # a name of CHECKS


class Sample(NamedTuple):
    """A document with questions about it: in turn, and then each by itself on a fork of the conversation."""

    document: str
    turns: tuple[Question, ...]
    forks: tuple[Question, ...] = ()


# --- answers ---------------------------------------------------------------------------------------------------------


def words_right(wanted: tuple[str, ...], said: str) -> float:
    """The share of the wanted words that were said."""
    return sum(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", said) is not None for word in wanted) / len(wanted)


def pairs_right(wanted: tuple[str, ...], said: str) -> float:
    """The share of the wanted "key=value" that are objects of a JSON array, as far as it can be read."""
    found = set()
    for text in re.findall(r"\{[^{}]*\}", said):
        try:
            values = [str(value) for value in json.loads(text).values()]
        except ValueError:
            continue
        if len(values) == 2:
            found.add("=".join(values))
    return sum(pair in found for pair in wanted) / len(wanted)


def steps_right(wanted: tuple[str, ...], said: str) -> float:
    """How far the lines are what they should be, before the first that is not."""
    lines = [" ".join(line.split()) for line in said.strip().splitlines()]
    right = next((i for i, step in enumerate(wanted) if i >= len(lines) or lines[i] != step), len(wanted))
    return right / len(wanted)


CHECKS = {"words": words_right, "pairs": pairs_right, "steps": steps_right}


def share_right(question: Question, said: str) -> float:
    """Of an answer, from 0 to 1."""
    return CHECKS[question.check](question.wanted, said)


# --- text ------------------------------------------------------------------------------------------------------------


def sentences(draw: random.Random) -> Iterator[str]:
    """Prose without numbers."""
    while True:
        place = draw.choice(WHERE).format(f"{draw.choice(ADJECTIVES)} {draw.choice(NOUNS)}")
        subject = f"the {draw.choice(ADJECTIVES)} {draw.choice(NOUNS)} {place}"
        text = f"{subject} {draw.choice(DOES)} {draw.choice(WHO)} {draw.choice(WHEN)}, {draw.choice(THEN)}."
        yield text[0].upper() + text[1:]


def paragraphs(text: str) -> Callable[[random.Random], Iterator[str]]:
    """Those of a text, from a place that the seed says, and again from its beginning."""
    parts = [part for part in (" ".join(part.split()) for part in text.split("\n\n")) if part]

    def from_somewhere(draw: random.Random) -> Iterator[str]:
        first = draw.randrange(len(parts))
        while True:
            yield from parts[first:]
            first = 0

    return from_somewhere


class Maker:
    """Makes samples of a length.

    count       tokens of a text
    filler      what stands between lines that matter
    """

    def __init__(self, count: Count, filler: Callable[[random.Random], Iterator[str]] = sentences) -> None:
        self.count, self.filler = count, filler

    def sample(self, task: str, seed: int, length: int) -> Sample:
        """Its document, questions and the most that answers may have are `length` tokens together, and hardly less."""

        def of(n: int) -> Sample:
            return TASKS[task](self, random.Random(f"{task} {seed} {length}"), seed, n)

        first, *later = (*(whole := of(length)).turns, *whole.forks)
        answers = first.tokens + sum(self.count(question.text) + question.tokens for question in later)
        return of(length - answers)

    def around(
        self, draw: random.Random, length: int, begin: str, lines: list[str], end: str, depth: float | None = None
    ) -> str:
        """A document: `begin`, then lines in this order between filler at random places, or at a depth from 0 to 1. The text
        `end` is counted, too."""
        room = length - self.count(begin + "\n".join(["", *lines, ""]) + end)
        if room < 0:
            raise ValueError(f"{length} tokens are too few for what has to be in the text: {-room} more are needed")
        parts, source = list[str](), self.filler(draw)
        while True:
            part = next(source)
            room -= self.count(part + "\n")
            if room < 0:
                break
            parts.append(part)
        places = sorted(draw.randint(0, len(parts)) for _ in lines)
        if depth is not None:
            places = [round(depth * len(parts))] * len(lines)
        while True:
            mixed = list(parts)
            for place, line in reversed(list(zip(places, lines))):
                mixed.insert(place, line)
            text = begin + "\n".join(mixed)
            if not parts or self.count(text + end) <= length:
                return text
            parts.pop()
            places = [min(place, len(parts)) for place in places]


def numbers(draw: random.Random, n: int) -> list[str]:
    return [str(number) for number in draw.sample(range(10**4, 10**5), n)]


def keys(draw: random.Random, n: int) -> list[str]:
    """Names that have no word in common."""
    return [" ".join(pair) for pair in zip(draw.sample(ADJECTIVES, n), draw.sample(NOUNS, n))]


def coined(draw: random.Random, n: int, syllables: int = 3) -> list[str]:
    """Words without meaning."""
    found: dict[str, None] = {}
    while len(found) < n:
        found["".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(syllables))] = None
    return list(found)


def joined(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]


HIDDEN = "Secret numbers are hidden in the following text. Remember them: there will be questions about them.\n"
NEEDLE = "The secret number of the {} is {}."


def asked(name: str, number: str) -> Question:
    text = f"\nQuestion: What is the secret number of the {name}?\nAnswer: The secret number of the {name} is"
    return Question(text, (number,), 12)


# --- tasks -----------------------------------------------------------------------------------------------------------


DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


def depth_of(seed: int) -> float:
    """Where the needle of a sample of `single` is."""
    return DEPTHS[seed % len(DEPTHS)]


def single(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    (name,), (number,) = keys(draw, 1), numbers(draw, 1)
    question = asked(name, number)
    lines = [NEEDLE.format(name, number)]
    return Sample(make.around(draw, length, HIDDEN, lines, question.text, depth_of(seed)), (question,))


def multikey(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    names, codes = keys(draw, 4), numbers(draw, 4)
    question = asked(names[0], codes[0])
    lines = [NEEDLE.format(*pair) for pair in zip(names, codes)]
    draw.shuffle(lines)
    return Sample(make.around(draw, length, HIDDEN, lines, question.text), (question,))


def multivalue(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    names, codes = keys(draw, 4), numbers(draw, 7)
    lines = [NEEDLE.format(names[0], code) for code in codes[:4]]
    lines += [NEEDLE.format(*pair) for pair in zip(names[1:], codes[4:])]
    draw.shuffle(lines)
    name = names[0]
    text = f"\nQuestion: What are the four secret numbers of the {name}?\nAnswer: The secret numbers of the {name} are"
    question = Question(text, tuple(codes[:4]), 40)
    return Sample(make.around(draw, length, HIDDEN, lines, text), (question,))


def multiquery(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    names, codes = keys(draw, 4), numbers(draw, 4)
    lines = [NEEDLE.format(*pair) for pair in zip(names, codes)]
    draw.shuffle(lines)
    those = joined([f"the {name}" for name in names])
    text = f"\nQuestion: What are the secret numbers of {those}?\nAnswer: The secret numbers of {those} are"
    question = Question(text, tuple(codes), 60)
    return Sample(make.around(draw, length, HIDDEN, lines, text), (question,))


TRACED = (
    "Assignments of variables are hidden in the following text. Follow them. An example:\n"
    "VAR BOKIDU = 11111\nVAR SEMALO = VAR BOKIDU\nVAR TUGARI = 22222\n"
    "Question: Which variables have the value 11111?\nAnswer: The variables with the value 11111 are: BOKIDU, SEMALO\n"
    "The text:\n"
)


def variables(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    names, (mine, other) = [word.upper() for word in coined(draw, 6)], numbers(draw, 2)
    chains = [
        [f"VAR {chain[0]} = {number}", *(f"VAR {b} = VAR {a}" for a, b in zip(chain, chain[1:]))]
        for chain, number in ((names[:3], mine), (names[3:], other))
    ]
    lines = [chains[which].pop(0) for which in draw.sample([0, 0, 0, 1, 1, 1], 6)]
    text = f"\nQuestion: Which variables have the value {mine}?\nAnswer: The variables with the value {mine} are:"
    return Sample(make.around(draw, length, TRACED, lines, text), (Question(text, tuple(names[:3]), 40),))


def until(make: Maker, length: int, more: Callable[[int], str]) -> str:
    """The longest of texts of so many tokens that more(n) makes, by bisection."""
    least, most = 1, length
    while least < most:
        n = (least + most + 1) // 2
        if make.count(more(n)) <= length:
            least = n
        else:
            most = n - 1
    return more(least)


def common(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    begin = "Below is a numbered list of words. Some come ten times as often as others. Remember the ten most common ones.\n"
    text = "\nQuestion: What are the ten words that come most often in the list?\nAnswer: The ten most common words are:"
    words = coined(draw, 10 + length)

    def listed(times: int, n: int) -> str:
        """n rare words, so many times each, and ten common ones ten times as often."""
        every = [word for word in words[:10] for _ in range(10 * times)] + words[10 : 10 + n] * times
        random.Random(seed).shuffle(every)
        return begin + "\n".join(f"{i}. {word}" for i, word in enumerate(every, 1)) + text

    times = next((n for n in (3, 2) if make.count(listed(n, 60)) <= length), 1)
    found = until(make, length, lambda n: listed(times, n))
    return Sample(found[: -len(text)], (Question(text, tuple(words[:10]), 80),))


def frequent(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    begin = "Read the following coded text and keep track of how often each coded word appears.\n"
    text = "\nQuestion: What are the three coded words that appear most often?\nAnswer: The three most frequent words are:"
    words = coined(draw, 200)
    total = sum(rank**-2.0 for rank in range(1, len(words) + 1))

    def coded(n: int) -> str:
        every = [word for rank, word in enumerate(words, 1) for _ in range(round(n * rank**-2.0 / total))]
        random.Random(seed).shuffle(every)
        return begin + " ".join(every) + "." + text

    found = until(make, length, coded)
    return Sample(found[: -len(text)], (Question(text, tuple(words[:3]), 24),))


def lookups(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    names, codes = keys(draw, 8), numbers(draw, 8)
    lines = [NEEDLE.format(*pair) for pair in zip(names, codes)]
    questions = [asked(*pair) for pair in zip(names[:5], codes)]
    draw.shuffle(lines)
    return Sample(make.around(draw, length, HIDDEN, lines, questions[0].text), tuple(questions[:3]), tuple(questions[3:]))


def listing(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    names, codes = keys(draw, 6), numbers(draw, 6)
    lines = [NEEDLE.format(*pair) for pair in zip(names, codes)]
    text = (
        "\nQuestion: What has a secret number in the text, and which? All six, in their order:\n"
        f"Answer:\n1. {names[0]}: {codes[0]}\n2."
    )
    question = Question(text, tuple(codes[1:]), 25 * 5, "\n\n")
    return Sample(make.around(draw, length, HIDDEN, lines, text), (question,))


def records(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    begin = "Some guests have tickets with numbers, as the following text says.\n"
    names, codes = draw.sample(GUESTS, 5), numbers(draw, 5)
    lines = [f"Guest {name} has the ticket with the number {code}." for name, code in zip(names, codes)]
    text = (
        "\nQuestion: Write all five guests and tickets in the text as a JSON array of objects, in their order.\n"
        f'Answer:\n[{{"guest": "{names[0]}", "ticket": {codes[0]}}},'
    )
    question = Question(text, tuple(f"{n}={c}" for n, c in zip(names[1:], codes[1:])), 28 * 5, "]", "pairs")
    return Sample(make.around(draw, length, begin, lines, text), (question,))


def chain(make: Maker, draw: random.Random, seed: int, length: int) -> Sample:
    begin = "An account changes by numbered operations, which are hidden in the following text.\n"
    amount, lines, steps = draw.randint(40, 60), list[str](), list[str]()
    first = amount
    for number in range(1, 13):
        by = draw.randint(2, 9)
        plus = amount < 30 or (amount < 80 and draw.random() < 0.5)
        after = amount + by if plus else amount - by
        lines.append(f"Operation {number}: {'add' if plus else 'subtract'} {by}.")
        steps.append(f"Operation {number}: {amount} {'+' if plus else '-'} {by} = {after}")
        amount = after
    text = (
        f"\nQuestion: The account begins with {first}. Carry out operations 1 to 12, a line each.\n"
        f"Answer:\n{steps[0]}\n{steps[1]}\n"
    )
    question = Question(text, tuple(steps[2:]), 24 * 12, "\n\n", "steps")
    return Sample(make.around(draw, length, begin, lines, text), (question,))


TASKS: dict[str, Callable[[Maker, random.Random, int, int], Sample]] = {
    "single": single,
    "multikey": multikey,
    "multivalue": multivalue,
    "multiquery": multiquery,
    "variables": variables,
    "common": common,
    "frequent": frequent,
    "lookups": lookups,
    "list": listing,
    "json": records,
    "chain": chain,
}
