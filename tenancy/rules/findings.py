"""Objects that rules check, findings, and access to values that may be missing or unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import get_path, name_of
from tenancy.rules.model import RULES_BY_ID

Object = Mapping[str, Any]
"""An object of Kubernetes or a resource of AWS, with the type as `kind` and the engine's name as `metadata.name`."""
Given = Iterator[tuple[str, str]]
"""Pairs of a rule's id and what was given."""

UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that rules raise if an object does not have the form that the API accepts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule: the object, and what was given."""

    rule: str
    object: str
    given: str
    fix: str = ""
    """The change to make in this object; empty: the one of the rule."""

    @property
    def change(self) -> str:
        """The change to make."""
        return self.fix or RULES_BY_ID[self.rule].fix

    def __str__(self) -> str:
        return f"{self.rule}: {self.object}: given {self.given}; why: {RULES_BY_ID[self.rule].why}; fix: {self.change}"


def finding_on(item: Object, rule: str, detail: str) -> Finding:
    """A finding on an object, with advice in the words of its manifest if no spec file describes it."""
    is_managed = get_path(item, "metadata", "labels", vocabulary.ENVIRONMENT)
    return Finding(rule, name_of(item), detail, "" if is_managed else RULES_BY_ID[rule].fix_of_object)
