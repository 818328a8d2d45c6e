"""Objects that rules check, findings, and access to values that may be missing or unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.kube.objects import at as at
from tenancy.kube.objects import many as many
from tenancy.rules.catalogue import RULES

Object = Mapping[str, Any]
"""An object of Kubernetes or a resource of AWS, with the type as `kind` and the engine's name as `metadata.name`."""
Given = Iterator[tuple[str, str]]
"""Pairs of a rule's id and what was given."""

UNKNOWN = "not known until apply"
"""Placeholder of a value that a preview does not know. A finding that contains it only advises, for any rule."""


UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that rules raise if an object does not have the form that the API accepts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule: the object, and what was given."""

    rule: str
    object: str
    given: str

    def __str__(self) -> str:
        found = RULES[self.rule]
        return f"{self.rule}: {self.object}: given {self.given}; why: {found.why}; fix: {found.fix}"


def name_of(item: Object) -> str:
    """Kind, namespace and name of an object, as messages show them."""
    metadata = item.get("metadata") or {}
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{item.get('kind')} {where}{metadata.get('name')}"
