"""bypasses.toml as objects: the known isolation bypasses of a tenant, and what mitigates each."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("bypasses.toml")
MITIGATION_SORTS = ("attack", "rule", "test", "cluster", "outside", "open")
"""First words of an entry; bypasses.toml explains each."""


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One mitigation of a bypass: its sort and its name."""

    sort: str
    name: str


@dataclass(frozen=True, slots=True)
class Bypass:
    """A known way around a control, and what prevents or shows it."""

    id: str
    title: str
    testers: str
    """Letters of what can test it."""
    mitigations: Sequence[Mitigation]

    @property
    def family(self) -> str:
        """First letter of the id."""
        return self.id[0]

    def names(self, sort: str) -> list[str]:
        """Names of its mitigations of one sort."""
        return [mitigation.name for mitigation in self.mitigations if mitigation.sort == sort]


@cache
def bypasses() -> Mapping[str, Bypass]:
    """Known bypasses by id."""
    return {id: _bypass(id, row) for id, row in _file()["ways"].items()}


@cache
def families() -> Mapping[str, str]:
    """Letter of each family -> its title, in order."""
    return _file()["families"]


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(FILE.read_text("utf-8"))


def _bypass(id: str, row: Mapping[str, Any]) -> Bypass:
    mitigations = []
    for text in row["held"]:
        sort, _, name = text.partition(" ")
        if sort not in MITIGATION_SORTS or not name:
            raise ValueError(f"given {id}: {text!r}; change: start with one of {', '.join(MITIGATION_SORTS)}")
        mitigations.append(Mitigation(sort, name))
    return Bypass(id, row["way"], row["asked"], tuple(mitigations))
