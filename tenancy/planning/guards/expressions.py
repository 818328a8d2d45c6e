"""What a guard is, and the pieces of CEL that guards share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words


def cel(value: object) -> str:
    """A constant of ours as a CEL literal; CEL reads JSON's strings and lists."""
    return json.dumps(value)


DEVICES = cel(list(gpus.DEVICE_VARIABLES))
_CHARGED = cel(list(words.CHARGED_LABELS))

GRANTED = f"""authorizer.group({cel(words.GPU_GRANT[0])}).resource({cel(words.GPU_GRANT[1])})
            .namespace(namespaceObject.metadata.name).check({cel(words.GPU_GRANT[2])}).allowed()"""
OF_TENANT = f"namespaceObject.metadata.labels[{cel(words.TENANT)}]"


def charged_keys(literal: Callable[[str], str] = cel) -> str:
    """Keys of the labels that costs are charged by: ours, and those that the namespace's annotation names."""
    return f"({_CHARGED} + {noted(words.OWN_LABELS, literal)}.split(','))"


def charged(labels: str) -> str:
    """Whether the cost labels, by which tenants are charged, are the namespace's."""
    return f"""{charged_keys()}.all(k, !(k in {labels})
        || (k in namespaceObject.metadata.labels && {labels}[k] == namespaceObject.metadata.labels[k]))"""


def may(leave_out: words.Allowance) -> str:
    """CEL: whether the namespace has an allowance."""
    return f"({cel(leave_out.value)} in variables.allowances)"


HAS_TENANT = {"ns-02": f"{cel(words.TENANT)} in namespaceObject.metadata.labels"}


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


def noted(key: str, literal: Callable[[str], str] = cel) -> str:
    """An annotation of the namespace; empty if it is not there. `literal` writes the key: CEL takes both quotes, and
    a policy with the other ones is another policy."""
    return f"namespaceObject.metadata.?annotations[?{literal(key)}].orValue('')"


def listed(key: str) -> str:
    """No item is empty: every image's name begins with nothing."""
    return f"{noted(key)}.split(',').filter(x, x != '')"


_KEPT = ("containers", "allowances", "allowedResources", "asked", "defaultLimits", "byController", "minor", "unfit")
"""Variables of pods and their templates that rules share and that take longer to make than to keep."""


def written_out(guard: Guard) -> Guard:
    """The same guard, with its other variables inlined.

    For what is made often: a variable costs the API server a program of its own at each admission, 3 kB and 7 µs, and
    0.5 kB where nothing asks for it, which is more than a path or a look-up that is written twice.
    """
    texts = {**guard.variables, **guard.rules}
    for name in guard.variables:
        if name not in _KEPT:
            text = texts.pop(name)
            here = text if re.fullmatch(r"[\w.]+", text) else f"({text})"
            named = re.compile(rf"\bvariables\.{name}\b")
            texts = {key: named.sub(lambda _, here=here: here, found) for key, found in texts.items()}
    # Of a template `placing` is no question.
    texts = {key: text.replace("!true || ", "") for key, text in texts.items()}
    kept = {name: texts[name] for name in _KEPT if any(f"variables.{name}" in text for text in texts.values())}
    return replace(guard, rules={rule: texts[rule] for rule in guard.rules}, variables=kept)


def untyped(text: str) -> str:
    """Fields of whatever object is asked about: one guard reads what only some of its kinds have."""
    return re.sub(r"\b(object|oldObject)(?=\.)", r"dyn(\1)", text)


OWN_FINALIZERS = """(has(object.metadata.finalizers) ? object.metadata.finalizers : []).filter(f,
    request.operation == 'CREATE'
        || !(has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers))"""

NO_NEW_FINALIZER = f"size({OWN_FINALIZERS}) == 0"


def map_at(at: str, optional: Sequence[str]) -> str:
    """A map that may be absent, as may the objects around it."""
    there = " && ".join([*(f"has({part})" for part in optional), f"has({at})"])
    return f"({there} ? {at} : {{}})"


def changed(*fields: str, also: str = "") -> dict[str, str]:
    """Unchanged fields are not judged again: a finalizer's removal or a status write passes under any later rules.

    `also` is a further condition for an object to count as unchanged.
    """
    pairs = [(f"object.{field}", f"oldObject.{field}") for field in fields]
    same = " && ".join(f"(has({n}) == has({o}) && (!has({n}) || {n} == {o}))" for n, o in pairs)
    same += f" && {also}" if also else ""
    return {"changed": f"request.operation != 'UPDATE' || !({same})"}


META = ("metadata.labels", "metadata.annotations")


def by_resource(values: Mapping[str, Mapping[str, str]]) -> str:
    """What a guard over several resources yields for the one that is asked for."""
    chosen = "{}"
    for resource, value in values.items():
        chosen = f"request.resource.resource == {cel(resource)} ? {cel(value)} : {chosen}"
    return chosen


def unchanged(new: str, old: str, which: str) -> str:
    """Of a map's keys `k`, those that `which` names are as they were: none written, changed or taken off."""
    return (
        f"variables.{new}.all(k, !{which}"
        f" || (k in variables.{old} && variables.{old}[k] == variables.{new}[k]))"
        f" && variables.{old}.all(k, !{which} || k in variables.{new})"
    )


def one_line(text: str) -> str:
    """The text with each run of white space replaced by one space."""
    return " ".join(text.split())
