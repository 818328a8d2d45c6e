"""What a rule is asked about, what it answers, and how it reads what may not be there or not be known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.rules.catalogue import RULES

Object = Mapping[str, Any]
"""An object of Kubernetes or a resource of AWS; of the latter `kind` is the type and `metadata.name` the engine's."""
Given = Iterator[tuple[str, str]]
"""(rule, what was given)."""

UNKNOWN = "not known until apply"
"""What stands for a value that a preview does not know. A finding that shows it advises, whatever its rule."""


UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What rules raise where an object is not of the form that the API takes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule: where, and what was given."""

    rule: str
    object: str
    given: str

    def __str__(self) -> str:
        found = RULES[self.rule]
        return f"{self.rule}: {self.object}: given {self.given}; why: {found.why}; fix: {found.fix}"


def name_of(item: Object) -> str:
    metadata = item.get("metadata") or {}
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{item.get('kind')} {where}{metadata.get('name')}"


def at(item: Any, *path: str) -> Any:
    """What stands at a path; None where something on the way is missing."""
    for key in path:
        item = item.get(key) if hasattr(item, "get") else None
    return item


def many(value: Any) -> tuple[Any, ...]:
    """A list that may be missing; one that is not known is one entry that is not known."""
    return tuple(value or ())
