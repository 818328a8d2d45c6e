"""bypasses.toml as objects: the known isolation bypasses of a tenant, and what mitigates each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("bypasses.toml")
HOLDS = ("attack", "rule", "test", "cluster", "outside", "open")
"""What an entry may say first; bypasses.toml says what each means."""


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One mitigation of a bypass: its sort and its name."""

    by: str
    name: str


@dataclass(frozen=True, slots=True)
class Bypass:
    """A known way around a control, and what prevents or shows it."""

    id: str
    what: str
    asked: str
    """Letters of what can test it."""
    held: Sequence[Mitigation]

    @property
    def family(self) -> str:
        """First letter of the id."""
        return self.id[0]

    def names(self, by: str) -> list[str]:
        """Names of its mitigations of one sort."""
        return [held.name for held in self.held if held.by == by]


@cache
def ways() -> Mapping[str, Bypass]:
    """Known bypasses by id."""
    return {id: _way(id, row) for id, row in _file()["ways"].items()}


@cache
def families() -> Mapping[str, str]:
    """Letter of each family -> its title, in order."""
    return _file()["families"]


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text("utf-8"))


def _way(id: str, row: Mapping[str, Any]) -> Bypass:
    held = []
    for text in row["held"]:
        by, _, name = text.partition(" ")
        if by not in HOLDS or not name:
            raise ValueError(f"given {id}: {text!r}; change: start with one of {', '.join(HOLDS)}")
        held.append(Mitigation(by, name))
    return Bypass(id, row["way"], row["asked"], tuple(held))
