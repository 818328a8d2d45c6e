"""Damage to a JSON value or a text, by a random number generator: the same seed damages in the same way."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e308, 10**40, "", "x", "1e400", "a" * 300, "é\x00", "2026-13-45"),
    *([], {}, [[]], [None], ["x"], [{}], {"x": None}, {"x": []}),
)
TEXTS = ("", "\x00", ",", "\n", '"', "\r\n", "é", "\ufeff", "-1", "nan", "inf", "1e999", "9" * 40, "{", "]", ": ", "\t")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def damaged(value: Any, random: Random) -> Any:
    value = copy.deepcopy(value)
    for _ in range(random.choice([1, 1, 2, 3])):
        *way, last = random.choice([*places(value)])
        place = value
        for key in way:
            place = place[key]
        place[last] = copy.deepcopy(random.choice(VALUES))
    return value


def cut_up(text: str, random: Random) -> bytes:
    """The text with pieces removed, put in or doubled, and now and then bytes that are no text."""
    for _ in range(random.choice([1, 1, 2, 4])):
        at, to = sorted((random.randrange(len(text) + 1), random.randrange(len(text) + 1)))
        to = min(to, at + random.choice([0, 1, 8, 400]))
        text = text[:at] + random.choice([*TEXTS, text[at:to] * 2]) + text[to:]
    content = text.encode()
    return content if random.random() < 0.9 else content[: len(content) // 2] + b"\xff\xfe\x00" + content[5:]
