"""What is wrong with a part of a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tenancy.rules.catalogue import Violation
from tenancy.schema.source import Location

NEEDS_TEXT = "a string is expected"


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with a part of a spec, and where in it. `id` is empty where the form alone is wrong."""

    where: Location
    given: str
    rule: str
    change: str
    id: str = ""

    def __str__(self) -> str:
        return f"given {self.given}; rule {f'{self.id}: ' if self.id else ''}{self.rule}; change: {self.change}"


def broken(where: Location, rule: str, given: str, change: str | None = None) -> Mistake:
    """A mistake against a rule of the catalogue."""
    return found(where, Violation(rule, given, change))


def found(where: Location, violation: Violation) -> Mistake:
    """A mistake at a location of a spec, from a violation of a rule."""
    return Mistake(where, violation.given, violation.rule.title, violation.change, violation.rule.id)


class Mistakes(ValueError):
    """All mistakes that a validator found, so that a file can be corrected in one step."""

    def __init__(self, *mistakes: Mistake) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(map(str, mistakes)))


def plain(given: str, rule: str, change: str, *where: str | int) -> Mistakes:
    """One mistake in form."""
    return Mistakes(Mistake(where, given, rule, change))


def written(value: Any) -> str:
    """A value in words, short."""
    match value:
        case None:
            return "no value"
        case bool():
            return f"the boolean {str(value).lower()}"
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
