"""Sentences, sums and tables for the debug corpus, drawn from a seed.

What is stated is true within its paragraph: sums add up, totals match their columns, answers follow
from the facts above them. A model can therefore learn something, and its loss falls.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from pp_precompile.models.debug_data import lexicon as words

T = TypeVar("T")


class Dice:
    """Draws that depend on the seed alone.

    Built on ``random()`` only: it is the one method whose sequence Python promises to keep, and the
    committed corpus must come out the same with every later version.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        """Draw a whole number from ``low`` to ``high``, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Draw one item."""
        return items[self.between(0, len(items) - 1)]

    def several(self, items: Sequence[T], count: int) -> list[T]:
        """Draw ``count`` different items."""
        left = list(items)
        return [left.pop(self.between(0, len(left) - 1)) for _ in range(count)]

    def chance(self, percent: int) -> bool:
        """Be true in ``percent`` of a hundred cases."""
        return self.between(1, 100) <= percent


def article(noun: str) -> str:
    """Put the fitting indefinite article before ``noun``."""
    return f"{'an' if noun[0] in 'aeiou' or noun.startswith('honest') else 'a'} {noun}"


def capital(text: str) -> str:
    """Start ``text`` as a sentence starts."""
    return text[0].upper() + text[1:]


def _thing(dice: Dice) -> str:
    noun = dice.pick(words.THINGS)
    return f"{dice.pick(words.ADJECTIVES)} {noun}" if dice.chance(60) else noun


def _person(dice: Dice) -> str:
    noun = dice.pick(words.PEOPLE)
    return f"the {dice.pick(words.ADJECTIVES)} {noun}" if dice.chance(30) else f"the {noun}"


def _plain(dice: Dice) -> str:
    _, past = dice.pick(words.ACTIONS)
    return (
        f"{_person(dice)} {past} {article(_thing(dice))} "
        f"{dice.pick(('in', 'near', 'behind', 'before'))} the {dice.pick(words.PLACES)}"
    )


def _reasoned(dice: Dice) -> str:
    return f"{_plain(dice)} because {dice.pick(words.REASONS)}"


def _manner(dice: Dice) -> str:
    _, past = dice.pick(words.ACTIONS)
    return f"{dice.pick(words.ADVERBS)}, {_person(dice)} {past} the {_thing(dice)}"


def _weather(dice: Dice) -> str:
    return (
        f"on {dice.pick(words.DAYS)} the {dice.pick(words.WEATHER)} came over the "
        f"{dice.pick(words.PLACES)}, and {_person(dice)} stayed inside"
    )


def _wish(dice: Dice) -> str:
    base, _ = dice.pick(words.ACTIONS)
    return f"{_person(dice)} wanted to {base} the {_thing(dice)}, but {dice.pick(words.REASONS)}"


def _speech(dice: Dice) -> str:
    base, past = dice.pick(words.ACTIONS)
    thing = _thing(dice)
    return (
        f'"who will {base} the {thing}?" asked {_person(dice)}; '
        f'"I {past} it {dice.pick(words.ADVERBS)}," said {_person(dice)}'
    )


SENTENCES: tuple[Callable[[Dice], str], ...] = (
    _plain,
    _reasoned,
    _manner,
    _weather,
    _wish,
    _speech,
)


def _sentence(dice: Dice) -> str:
    text = dice.pick(SENTENCES)(dice)
    # A quotation starts with its mark, the word behind it carries the capital.
    text = text[0] + capital(text[1:]) if text[0] == '"' else capital(text)
    return f"{text}."


def story(dice: Dice) -> str:
    """Three to seven sentences of prose."""
    return " ".join(_sentence(dice) for _ in range(dice.between(3, 7)))


def sums(dice: Dice) -> str:
    """Lines of arithmetic with right answers."""
    return "\n".join(_sum(dice) for _ in range(dice.between(4, 9)))


def _sum(dice: Dice) -> str:
    a, b = dice.between(1, 99), dice.between(1, 99)
    kind = dice.between(0, 5)
    if kind == 0:
        return f"{a} + {b} = {a + b}"
    if kind == 1:
        return f"{max(a, b)} - {min(a, b)} = {max(a, b) - min(a, b)}"
    if kind == 2:
        small = a % 12 + 1
        return f"{small} x {b % 12 + 1} = {small * (b % 12 + 1)}"
    if kind == 3:
        return f"{a * (b % 9 + 1)} / {b % 9 + 1} = {a}"
    if kind == 4:
        return f"half of {2 * a} is {a}"
    low, high = a % 10, b % 10
    return f"{words.NUMBERS[low]} and {words.NUMBERS[high]} make {words.NUMBERS[low + high]}"


def table(dice: Dice) -> str:
    """A small table of amounts whose last row is the total."""
    first, second = dice.several(words.UNITS, 2)
    rows = [
        (material, dice.between(1, 60), dice.between(1, 60))
        for material in dice.several(words.MATERIALS, dice.between(3, 7))
    ]
    total = ("total", sum(row[1] for row in rows), sum(row[2] for row in rows))
    head = f"{'goods':<10}|{first:>9} |{second:>9}"
    body = [f"{name:<10}|{left:>9} |{right:>9}" for name, left, right in [*rows, total]]
    return "\n".join([head, "-" * len(head), *body])


def steps(dice: Dice) -> str:
    """A numbered list of things to do."""
    goal_base, _ = dice.pick(words.ACTIONS)
    lines = [f"How to {goal_base} {article(_thing(dice))}:"]
    for number in range(1, dice.between(4, 7)):
        base, _ = dice.pick(words.ACTIONS)
        tail = f", {dice.pick(words.ADVERBS)}" if dice.chance(40) else ""
        lines.append(f"{number}. {capital(base)} the {_thing(dice)}{tail}.")
    return "\n".join(lines)


def questions(dice: Dice) -> str:
    """Facts, then questions that the facts answer."""
    people = dice.several(words.PEOPLE, 3)
    things = dice.several(words.THINGS, 3)
    places = dice.several(words.PLACES, 3)
    facts = [
        f"The {person} keeps the {thing} in the {place}."
        for person, thing, place in zip(people, things, places, strict=True)
    ]
    lines = [" ".join(facts)]
    for index in dice.several(range(3), 2):
        if dice.chance(50):
            lines += [
                f"Q: Where is the {things[index]}?",
                f"A: The {things[index]} is in the {places[index]}.",
            ]
        else:
            lines += [
                f"Q: Who keeps the {things[index]}?",
                f"A: The {people[index]} keeps the {things[index]}.",
            ]
    return "\n".join(lines)


def series(dice: Dice) -> str:
    """A number sequence, its rule and its next member."""
    start, step, length = dice.between(1, 30), dice.between(2, 12), dice.between(5, 9)
    members = [start + step * index for index in range(length + 1)]
    shown = ", ".join(str(member) for member in members[:-1])
    return f"{shown}: each number is {step} more than the last, so the next is {members[-1]}."


def diary(dice: Dice) -> str:
    """Entries with times that only move forward."""
    minutes = dice.between(5 * 60, 8 * 60)
    lines = [f"{dice.pick(words.DAYS)}, at the {dice.pick(words.PLACES)}"]
    for _ in range(dice.between(3, 6)):
        _, past = dice.pick(words.ACTIONS)
        lines.append(
            f"{minutes // 60:02d}:{minutes % 60:02d}  {dice.pick(words.PEOPLE)} "
            f"{past} {dice.between(2, 20)} {dice.pick(words.UNITS)} of {dice.pick(words.MATERIALS)}"
        )
        minutes += dice.between(5, 150)
    return "\n".join(lines)


PARAGRAPHS: tuple[Callable[[Dice], str], ...] = (
    story,
    story,
    story,
    sums,
    table,
    steps,
    questions,
    series,
    diary,
)


def document(dice: Dice, shortest: int, longest: int) -> str:
    """A title and paragraphs: at least ``shortest`` characters, past ``longest`` by one paragraph.

    Paragraphs are not cut to fit: a sum without its answer would teach nothing.
    """
    wanted = dice.between(shortest, longest)
    text = f"{capital(dice.pick(words.ADJECTIVES))} {dice.pick(words.PLACES)}"
    while len(text) < wanted:
        text = f"{text}\n\n{dice.pick(PARAGRAPHS)(dice)}"
    return text
