"""Guard: an admission policy, before it is an object."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tenancy.rules.expressions import OWN_FINALIZERS, cel


class NamespaceScope(Enum):
    """Namespaces that a guard judges, beside the platform's, which none does."""

    MANAGED = "all but the unmanaged"
    ALL = "all"
    UNMANAGED = "the unmanaged alone"


@dataclass(frozen=True, slots=True)
class Guard:
    """One policy and its binding, over one kind of object."""

    name: str
    resources: Sequence[tuple[str, str, Sequence[str]]]
    """(API group, version, resources)."""
    rules: Mapping[str, str]
    """Rule id -> CEL expression that must be true."""
    variables: Mapping[str, str]
    conditions: Mapping[str, str]
    operations: Sequence[str] = ("CREATE", "UPDATE")
    spaces: NamespaceScope = NamespaceScope.MANAGED
    messages: Mapping[str, str] = field(default_factory=dict)
    """Rule id -> CEL expression of what the refusal says, where the rule alone does not say what to change."""


_KEPT_VARIABLES = (
    "containers",
    "allowances",
    "allowedResources",
    "asked",
    "defaultLimits",
    "byController",
    "minor",
    "unfit",
)
"""Variables of pods and their templates that rules share and that take longer to make than to keep."""


def with_inlined_variables(guard: Guard) -> Guard:
    """The same guard, with its other variables inlined.

    For what is made often: a variable costs the API server a program of its own at each admission, 3 kB and 7 µs, and
    0.5 kB where nothing asks for it, which is more than a path or a look-up that is written twice.
    """
    texts = {**guard.variables, **guard.rules}
    for name in guard.variables:
        if name not in _KEPT_VARIABLES:
            text = texts.pop(name)
            inlined = text if re.fullmatch(r"[\w.]+", text) else f"({text})"
            reference = re.compile(rf"\bvariables\.{name}\b")
            texts = {
                key: reference.sub(lambda _, inlined=inlined: inlined, text) if f"variables.{name}" in text else text
                for key, text in texts.items()
            }
    # Of a template `placing` is no question.
    texts = {key: text.replace("!true || ", "") for key, text in texts.items()}
    kept_variables = {
        name: texts[name] for name in _KEPT_VARIABLES if any(f"variables.{name}" in text for text in texts.values())
    }
    return replace(guard, rules={rule: texts[rule] for rule in guard.rules}, variables=kept_variables)


def untyped(text: str) -> str:
    """Fields of whatever object is asked about: one guard reads what only some of its kinds have."""
    return re.sub(r"\b(object|oldObject)(?=\.)", r"dyn(\1)", text)


NO_NEW_FINALIZER = f"size({OWN_FINALIZERS}) == 0"


def change_condition(*fields: str, also: str = "") -> dict[str, str]:
    """Unchanged fields are not judged again: a finalizer's removal or a status write passes under any later rules.

    `also` is a further condition for an object to count as unchanged.
    """
    pairs = [(f"object.{field}", f"oldObject.{field}") for field in fields]
    is_unchanged = " && ".join(f"(has({n}) == has({o}) && (!has({n}) || {n} == {o}))" for n, o in pairs)
    is_unchanged += f" && {also}" if also else ""
    return {"changed": f"request.operation != 'UPDATE' || !({is_unchanged})"}


META = ("metadata.labels", "metadata.annotations")


def by_resource(values: Mapping[str, Mapping[str, str]]) -> str:
    """Expressions of a guard over several resources, for one of them."""
    expression = "{}"
    for resource, value in values.items():
        expression = f"request.resource.resource == {cel(resource)} ? {cel(value)} : {expression}"
    return expression


def one_line(text: str) -> str:
    """The text with each run of white space replaced by one space."""
    return " ".join(text.split())
