"""Mistakes in a part of a spec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tenancy.rules.catalogue import Violation
from tenancy.spec.reading.source import Location

NEEDS_TEXT = "a string is expected"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Mistake in a part of a spec, with its place. `id` is empty where the form alone is wrong."""

    location: Location
    given: str
    rule: str
    change: str
    id: str = ""

    def __str__(self) -> str:
        return f"given {self.given}; rule {f'{self.id}: ' if self.id else ''}{self.rule}; change: {self.change}"


def rule_mistake(location: Location, rule: str, fault: str, change: str | None = None) -> Mistake:
    """A mistake against a rule of the catalogue."""
    return mistake_of_violation(location, Violation(rule, fault, change))


def mistake_of_violation(location: Location, violation: Violation) -> Mistake:
    """A mistake at a location of a spec, from a violation of a rule."""
    return Mistake(location, violation.given, violation.rule.title, violation.change, violation.rule.id)


class Mistakes(ValueError):
    """All mistakes that a validator found, so that a file can be corrected in one step."""

    def __init__(self, *mistakes: Mistake) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(map(str, mistakes)))


def form_error(fault: str, rule: str, change: str, *location: str | int) -> Mistakes:
    """One mistake in form."""
    return Mistakes(Mistake(location, fault, rule, change))


def describe_value(value: Any) -> str:
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


def nearest(text: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """The known names most similar to the given one, the most similar first."""
    import difflib  # only on the way to a message

    return difflib.get_close_matches(text, list(candidates), n=count, cutoff=0.0)
