"""Rules of the guards that hold in every environment, asked of one object without an environment.

What a guard admits depends on lists of the namespace and on facts of the environment. A rule is broken everywhere if
its expression refuses the object with the fewest and with the most that any environment could permit; if the answers
differ, it waits for an environment. Which lists an expression reads is derived from its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.catalog.versions import COMPATIBLE
from tenancy.check.admission.cel import EvaluationError, Evaluator
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.defaults import decoded, defaulted
from tenancy.check.admission.policies import evaluator_of
from tenancy.check.admission.requests import AUTHENTICATED, Identity, creation
from tenancy.check.blame import fields_at_fault
from tenancy.kube.kinds import group_of, plural
from tenancy.kube.objects import Object, get_path
from tenancy.planning.guards import guards_of_objects
from tenancy.planning.guards.model import Guard
from tenancy.rules.model import GuardFacts

_FEWEST = GuardFacts(
    platform_group="platform",
    system_namespaces=(),
    kubernetes=COMPATIBLE["guards"].oldest,
    queued=False,
    devices_by_claim=False,
    virtual_clusters=False,
    frameworks=(),
    claim_classes=(),
    volume_attributes_classes=(),
    keys=(),
)
_MOST = replace(
    _FEWEST,
    platform_group="platform-team",
    queued=True,
    devices_by_claim=True,
    virtual_clusters=True,
    frameworks=tuple(FRAMEWORKS[kind] for kind in sorted(FRAMEWORKS)),
    claim_classes=(words.STORAGE_CLASS,),
)
_PERSON = Identity("person", (AUTHENTICATED,))
_PLATFORM = Identity("person", (AUTHENTICATED, _FEWEST.platform_group, _MOST.platform_group))
"""Who asks is not known either: the platform's people may more."""
_OPEN = frozenset(
    {words.ALLOWED_ACCOUNTS, words.TOKEN_ACCOUNTS, words.ALLOWED_POOLS, words.ALLOWED_PRIORITIES}
    | {words.ALLOWED_REGISTRIES, words.ALLOWED_RESOURCES, words.ALLOWED_QUEUES}
)
"""Lists of the namespace that may contain any name."""
_CLOSED: Mapping[str, str] = {
    words.ALLOWED_RUNTIMES: words.SANDBOX_CLASS,
    words.ALLOWANCES: ",".join(one.value for one in words.Allowance),
}
"""Lists of the namespace with all that they may contain."""
_READ = re.compile(r"""annotations\[\?["']([^"']+)["']\]""")
_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_KNOWN = (
    f'namespaceObject.metadata.labels["{words.TENANT}"]',
    f'"{words.TENANT}" in namespaceObject.metadata.labels',
    "namespaceObject.metadata.name",
    "namespaceObject.metadata.?annotations[?",
)
"""What of a namespace is known without an environment, or is a list."""
_MOST_NAMES = 2000


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that an object breaks in every environment."""

    rule: str
    given: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What guards say of an object without an environment."""

    broken: tuple[Broken, ...] = ()
    waits: frozenset[str] = frozenset()
    """Rules whose answer depends on the environment."""


@dataclass(frozen=True, slots=True)
class _Rule:
    guard: Guard
    rule: str
    text: str
    """The expression with those of its variables, by which equal ones are known."""

    @property
    def lists(self) -> frozenset[str]:
        return frozenset(_READ.findall(self.text))

    @property
    def is_open(self) -> bool:
        """Whether it reads no more of the namespace than lists that are known to be open or closed."""
        left = self.text
        for known in _KNOWN:
            left = left.replace(known, "")
        return "namespaceObject" not in left and self.lists <= _OPEN | {*_CLOSED}


@cache
def _rules() -> Mapping[tuple[str, str], tuple[tuple[_Rule, ...], ...]]:
    """By API group and resource: each rule, as the guards of every kind of environment with the resource have it."""
    cases = [guards_of_objects(facts) for facts in (_FEWEST, _MOST)]
    common = frozenset.intersection(*(frozenset(rule for guard in case for rule in guard.rules) for case in cases))
    found: dict[tuple[str, str], dict[str, dict[str, _Rule]]] = {}
    for case in cases:
        for guard in case:
            for group, _, resources in guard.resources:
                for resource in resources:
                    for rule in common & {*guard.rules} if "CREATE" in guard.operations else ():
                        text = _closure(guard, guard.rules[rule])
                        known = found.setdefault((group, resource), {}).setdefault(rule, {})
                        known.setdefault(f"{guard.name} {text}", _Rule(guard, rule, text))
    return {key: tuple(tuple(one.values()) for one in rules.values()) for key, rules in found.items()}


def _closure(guard: Guard, text: str) -> str:
    texts, names, waiting = [text], set[str](), [text]
    while waiting:
        for name in _VARIABLE.findall(waiting.pop()):
            if name in guard.variables and name not in names:
                names.add(name)
                texts.append(guard.variables[name])
                waiting.append(guard.variables[name])
    return " ".join(" ".join(texts).split())


def judgement(item: Object, tenant: str) -> Judgement:
    """What guards of every environment say of the creation of a tenant's object."""
    group = group_of(item)
    asked = _rules().get((group, plural(str(item.get("kind")))), ())
    if not asked:
        return Judgement()
    item = defaulted(decoded(deepcopy(dict(item)), group), group)
    broken, waits = [], set()
    least, most = _AssumedNamespace(item, tenant, {}), _AssumedNamespace(item, tenant, _annotations(item))
    for ways in asked:
        refused = [one for one in ways if least.refuses(one)]
        if not refused:
            continue
        if len(refused) == len(ways) and all(one.is_open and most.refuses(one) for one in ways):
            broken.append(Broken(ways[0].rule, _given(most, ways[0])))
        else:
            waits.add(ways[0].rule)
    return Judgement(tuple(broken), frozenset(waits))


def _annotations(item: Object) -> Mapping[str, str]:
    names = dict.fromkeys([*_names(item), "default"])
    return {**dict.fromkeys(_OPEN, ",".join(names)), **_CLOSED}


def _names(value: Any) -> Iterator[str]:
    waiting, count = [value], 0
    while waiting and count < _MOST_NAMES:
        one = waiting.pop()
        if isinstance(one, str):
            count += 1
            yield from () if "," in one else (one,)
        elif isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one


class _AssumedNamespace:
    """A namespace in which an object would be created, and who may run work on GPUs there."""

    def __init__(self, item: Object, tenant: str, annotations: Mapping[str, str]) -> None:
        self.item = item
        self._grants = bool(annotations)
        self._name = str(get_path(item, "metadata", "namespace") or "default")
        labels = {words.TENANT: tenant}
        metadata = {"name": self._name, "labels": labels, **({"annotations": dict(annotations)} if annotations else {})}
        self._cluster = ClusterObjects([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
        self._scopes: dict[str, Evaluator | None] = {}

    def refuses(self, one: _Rule) -> bool:
        """Whether a rule refuses the object; an error of an expression refuses nothing here."""
        key = f"{one.guard.name} {id(one.guard)}"
        if key not in self._scopes:
            self._scopes[key] = self._scope(self.item, one.guard)
        scope = self._scopes[key]
        try:
            return scope is not None and scope.value(one.guard.rules[one.rule]) is False
        except EvaluationError:
            return False

    def refuses_item(self, item: Object, one: _Rule) -> bool:
        """The same for a changed object."""
        try:
            scope = self._scope(item, one.guard)
            return scope is not None and scope.value(one.guard.rules[one.rule]) is False
        except EvaluationError:
            return False

    def _scope(self, item: Object, guard: Guard) -> Evaluator | None:
        request = creation(
            {**item, "metadata": {"name": "", **item["metadata"]}}, self._name, _PLATFORM if self._grants else _PERSON
        )
        evaluator = evaluator_of(request, self._cluster, lambda _: self._grants)
        try:
            holds = all(evaluator.value(text) is True for text in guard.conditions.values())
        except EvaluationError:
            return None
        return evaluator.having(guard.variables) if holds else None


def _given(space: _AssumedNamespace, one: _Rule) -> str:
    """The fields that break a rule, with their values."""
    return fields_at_fault(space.item, lambda item: space.refuses_item(item, one), one.text)
