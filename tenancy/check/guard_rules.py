"""Rules of the guards, asked of one object without an environment: by `tenancy check` and by the policy pack.

What a guard admits depends on lists of the namespace and on facts of the environment. A rule is broken everywhere if
its expression refuses the object with the fewest and with the most that any environment could permit; if the answers
differ, it waits for an environment, or for the namespace: where that is among the objects, its lists are read. Which
lists an expression reads is derived from its text. One that reads a value that is not known yet is not decided.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.check.admission.cel import EvaluationError, Evaluator, variables_in
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.defaults import MAPS, add_managed_fields, decode, set_defaults
from tenancy.check.admission.policies import all_hold, evaluator_of
from tenancy.check.admission.requests import AUTHENTICATED, Identity, creation, unreadable
from tenancy.check.blame import SOME_IMAGE, fields_at_fault
from tenancy.kube.kinds import group_of, plural
from tenancy.kube.objects import UNKNOWN, Object, as_list, get_path, name_of
from tenancy.kube.pod_templates import PodTemplate, templates_of
from tenancy.planning.guards import guards_of_objects
from tenancy.planning.guards.admission_policy import Guard
from tenancy.rules.findings import UNREADABLE, Finding, finding_on
from tenancy.rules.model import FEWEST

_WIDEST_FACTS = replace(
    FEWEST,
    platform_group="platform-team",
    queued=True,
    devices_by_claim=True,
    virtual_clusters=True,
    frameworks=tuple(FRAMEWORKS[kind] for kind in sorted(FRAMEWORKS)),
    claim_classes=(vocabulary.STORAGE_CLASS,),
)
_PERSON = Identity("person", (AUTHENTICATED,))
_PLATFORM = Identity("person", (AUTHENTICATED, FEWEST.platform_group, _WIDEST_FACTS.platform_group))
"""An identity with the platform's rights: an object with an environment's label may be the platform's own."""
_BY_EITHER = frozenset({"id-01"})
"""Rules on what the platform writes without such a label too, in namespaces that it did not make."""
_OPEN = frozenset(
    {vocabulary.ALLOWED_ACCOUNTS, vocabulary.TOKEN_ACCOUNTS, vocabulary.ALLOWED_POOLS, vocabulary.ALLOWED_PRIORITIES}
    | {vocabulary.ALLOWED_DEVICE_CLASSES, vocabulary.OWN_LABELS}
    | {vocabulary.ALLOWED_REGISTRIES, vocabulary.ALLOWED_RESOURCES, vocabulary.ALLOWED_QUEUES}
)
"""Lists of the namespace that may contain any name."""
_CLOSED: Mapping[str, str] = {
    vocabulary.ALLOWED_RUNTIMES: vocabulary.SANDBOX_CLASS,
    vocabulary.ALLOWANCES: ",".join(allowance.value for allowance in vocabulary.Allowance),
}
"""Lists of the namespace with all that they may contain."""
_READ = re.compile(r"""annotations\[\?["']([^"']+)["']\]""")
_WORD = re.compile(r"\w+")
_READABLE = (
    f'namespaceObject.metadata.labels["{vocabulary.TENANT}"]',
    f'"{vocabulary.TENANT}" in namespaceObject.metadata.labels',
    "namespaceObject.metadata.name",
    "namespaceObject.metadata.?annotations[?",
)
"""Expressions on a namespace whose value is known without an environment, or is a list."""
_LABELS = "namespaceObject.metadata.labels"
_MOST_NAMES = 2000
_NOT_ASKED = frozenset({"ns-02", "pod-04"})
"""Rules of namespaces of no tenant, and of Pod Security: pods break that too, and no guard judges it."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that an object breaks in every environment."""

    rule: str
    given: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The guards' decision on an object without an environment."""

    broken: tuple[Broken, ...] = ()
    waits: frozenset[str] = frozenset()
    """Rules whose answer depends on the environment, or on values that are not known yet."""


@dataclass(frozen=True, slots=True, eq=False)
class _AskedGuard:
    """A guard with those of its rules that are asked about a resource."""

    conditions: tuple[str, ...]
    variables: Mapping[str, str]
    rules: dict[str, str] = field(default_factory=dict)
    """Rule id -> expression."""


@dataclass(frozen=True, slots=True)
class _Rule:
    guard: _AskedGuard
    rule: str
    text: str
    """The expression with those of its variables, by which equal ones are known."""
    variables: Mapping[str, str]

    @property
    def words(self) -> frozenset[str]:
        """Names that the expression reads, of fields among others."""
        return _words(self.text)


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


_Ways = tuple[_Rule, ...]
"""A rule of a guard, as every kind of environment with the resource has it."""


@cache
def guard_rules() -> Mapping[tuple[str, str], tuple[_Ways, ...]]:
    """The rules by API group and resource."""
    cases = [guards_of_objects(facts) for facts in (FEWEST, _WIDEST_FACTS)]
    common = frozenset.intersection(*(frozenset(rule for guard in case for rule in guard.rules) for case in cases))
    rules_by_resource: dict[tuple[str, str], dict[tuple[str, str], dict[str, _Rule]]] = {}
    for case in cases:
        for guard in case:
            # Objects of some kinds are only where their guard is.
            applicable_rules = {*guard.rules} if guard.name in _WITH_THEIR_KIND else common & {*guard.rules}
            for group, _, resources in guard.resources:
                for resource in resources:
                    asked_guard = _AskedGuard(tuple(guard.conditions.values()), guard.variables)
                    for rule, expression in guard.rules.items() if "CREATE" in guard.operations else ():
                        if rule not in applicable_rules or rule in _NOT_ASKED:
                            continue
                        variables = _closure(guard, expression)
                        text = " ".join(" ".join([expression, *variables.values()]).split())
                        rules_by_text = rules_by_resource.setdefault((group, resource), {}).setdefault(
                            (rule, guard.name), {}
                        )
                        if text not in rules_by_text:
                            rules_by_text[text] = _Rule(asked_guard, rule, text, variables)
                            asked_guard.rules[rule] = expression
    return {
        key: tuple(tuple(by_text.values()) for by_text in rules.values()) for key, rules in rules_by_resource.items()
    }


_WITH_THEIR_KIND = ("tenancy-queues", "tenancy-resourceclaims", "tenancy-resourceclaimtemplates")


def _closure(guard: Guard, text: str) -> Mapping[str, str]:
    """The variables that an expression reads, also by others."""
    expressions, waiting = dict[str, str](), [text]
    while waiting:
        names = [name for name in sorted(variables_in(waiting.pop()) - {*expressions}) if name in guard.variables]
        expressions |= {name: guard.variables[name] for name in names}
        waiting += [guard.variables[name] for name in names]
    return expressions


def guard_findings(
    items: Iterable[Mapping[str, Any]], decided: Container[str] = ()
) -> tuple[list[Finding], frozenset[str]]:
    """Findings of guards on the objects of tenants, beside their namespaces where these are among them, and the rules
    that wait for an environment; none on objects that are `decided`, by name, which are only read."""
    items = list(items)
    spaces = {str(get_path(item, "metadata", "name")): item for item in items if item.get("kind") == "Namespace"}
    findings: list[Finding] = []
    waits: set[str] = set()
    for item in items:
        space = spaces.get(str(get_path(item, "metadata", "namespace")))
        tenants = [
            get_path(labelled_object, "metadata", "labels", vocabulary.TENANT) for labelled_object in (space, item)
        ]
        tenant = tenants[0] or tenants[1]
        if tenant and name_of(item) in decided:
            _read(item)
        elif tenant:
            object_judgement = judgement(item, str(tenant), space)
            waits |= object_judgement.waits
            findings += [
                finding_on(item, labelled_object.rule, labelled_object.given)
                for labelled_object in object_judgement.broken
            ]
    return findings, frozenset(waits)


def judgement(item: Mapping[str, Any], tenant: str, space: Mapping[str, Any] | None = None) -> Judgement:
    """The guards' decision on the creation of a tenant's object, in a namespace of which no more is known than its
    tenant, or in `space`. Raises one of `UNREADABLE` for an object that is not of the form of its kind."""
    if item.get("kind") == "Namespace" or tenant == UNKNOWN:
        return Judgement()
    if reason := unreadable(dict(item)):
        raise ValueError(reason)
    namespace_text = (
        "" if space is None else _text({key: get_path(space, "metadata", key) for key in ("labels", "annotations")})
    )
    return _judgement(_text(item), tenant, "" if UNKNOWN in namespace_text else namespace_text)


def _read(item: Mapping[str, Any]) -> None:
    """Raise one of `UNREADABLE` for an object that is not of the form of its kind."""
    if reason := unreadable(dict(item)):
        raise ValueError(reason)
    _Question(json.loads(_text(item)), "", "")


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


# A preview asks of each object by itself and once more of all of them.
@lru_cache(4096)
def _judgement(text: str, tenant: str, space: str) -> Judgement:
    item = json.loads(text)
    # What is broken in any namespace is told in the same words beside its own.
    broken_anywhere = _judgement(text, tenant, "").broken if space else ()
    try:
        return _of_questions(item, tenant, space, broken_anywhere)
    except UNREADABLE:
        if UNKNOWN not in text:
            raise
        return Judgement(broken_anywhere)  # the unknown values are told as such


def _of_questions(item: Object, tenant: str, space: str, broken_anywhere: tuple[Broken, ...]) -> Judgement:
    group = group_of(item)
    rules_of_kind = guard_rules().get((group, plural(str(item.get("kind")))), ())
    questions = [(_Question(item, tenant, space), rules_of_kind)]
    if not rules_of_kind:
        questions = [*_of_ray(item, tenant, space)] if group == _RAY else []
        questions = questions or [_of_template(item, template, tenant, space) for template in templates_of(item)]
    judgements = [_decided(question, rules, {entry.rule for entry in broken_anywhere}) for question, rules in questions]
    broken = dict.fromkeys((*broken_anywhere, *(broken for entry in judgements for broken in entry.broken)))
    return Judgement(tuple(broken), frozenset().union(*(entry.waits for entry in judgements)))


def _of_template(item: Object, template: PodTemplate, tenant: str, space: str) -> tuple[_Question, tuple[_Ways, ...]]:
    """The question about pods of a kind that no guard reads: they are judged as a template of a known kind."""
    spec = {**template.spec} if isinstance(template.spec, Mapping) else {}
    shown_paths = {}
    if not isinstance(spec.get("containers"), list):
        spec["containers"] = [container for _, container in template.containers]
        shown_paths = {f"{_SPEC}.containers[{number}]": path for number, (path, _) in enumerate(template.containers)}
    notes = {key: value for key in ("labels", "annotations") if (value := get_path(template.metadata, key))}
    metadata = {key: value for key in ("name", "namespace") if (value := get_path(item, "metadata", key))}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "", **metadata},
        "spec": {"template": {"metadata": {} if template.metadata is item.get("metadata") else notes, "spec": spec}},
    }
    shown_paths |= {_SPEC: template.path, _METADATA: f"{template.path.removesuffix('spec')}metadata"}
    return _Question(replica_set, tenant, space, shown_paths, template.whole), guard_rules()["apps", "replicasets"]


_RAY, _HEAD = "ray.io", "headGroupSpec"


def _of_ray(item: Object, tenant: str, space: str) -> Iterator[tuple[_Question, tuple[_Ways, ...]]]:
    """The questions about the clusters in other kinds of KubeRay."""
    waiting = [("spec", item.get("spec"))]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{path}.{key}", inner) for key, inner in value.items()]
            if _HEAD in value:
                ray_cluster = {**item, "kind": "RayCluster", "spec": value}
                yield _Question(ray_cluster, tenant, space, {"spec": path}), guard_rules()[_RAY, "rayclusters"]


_SPEC, _METADATA = "spec.template.spec", "spec.template.metadata"


@dataclass(slots=True)
class _Question:
    """The question whether an object may be created in a namespace."""

    item: Object
    tenant: str
    space: str
    """Labels and annotations of the namespace as JSON; empty if they are not known."""
    manifest_paths: Mapping[str, str] = field(default_factory=dict)
    """Paths as the manifest has them, by the paths of `item`."""
    is_whole: bool = True
    """False if a controller adds further fields: what is absent breaks no rule."""

    def __post_init__(self) -> None:
        group = group_of(self.item)
        self.item = set_defaults(decode(_converted(self.item), group), group)

    def spaces(self) -> tuple[_AssumedNamespace, _AssumedNamespace, bool]:
        """The namespace with the fewest and with the most that it may permit, and whether its lists are known."""
        metadata = json.loads(self.space) if self.space else {}
        labels = {vocabulary.TENANT: self.tenant, **(metadata.get("labels") or {})}
        if vocabulary.ENVIRONMENT in labels:
            lists = metadata.get("annotations") or {}
            least = _AssumedNamespace(self.item, labels, lists, grants=False)
            return least, _AssumedNamespace(self.item, labels, lists, grants=True), True
        least = _AssumedNamespace(self.item, labels, {}, grants=False)
        return least, _AssumedNamespace(self.item, labels, _annotations(self.item), grants=True), False

    def unknown(self) -> Sequence[tuple[str, ...]]:
        """Paths of the values that are not known yet."""
        return tuple(_unknown(self.item, ()))

    def as_shown(self, text: str) -> str:
        """The text of a finding with the paths of the manifest."""
        for path, real in self.manifest_paths.items():
            text = re.sub(rf"(^|; ){re.escape(path)}(?=[.:\[])", rf"\1{real}", text)
        return text


_FLAT = ("resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1")
"""Versions in which what is `exactly` claimed is the request's own."""


def _converted(item: Object) -> Object:
    """A claim of devices in the version that guards read."""
    spec = get_path(item, "spec", "spec") if item.get("kind") == "ResourceClaimTemplate" else item.get("spec")
    for request in as_list(get_path(spec, "devices", "requests")) if item.get("apiVersion") in _FLAT else ():
        if exactly := {key: request.pop(key) for key in [*request] if key not in ("name", "firstAvailable")}:
            request["exactly"] = exactly
    return item


def _unknown(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, str):
        if UNKNOWN in value:
            yield path
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _unknown(inner, (*path, str(key)))
    elif isinstance(value, list):
        for inner in value:
            yield from _unknown(inner, path)


def _reads(guard_rule: _Rule, path: tuple[str, ...]) -> bool:
    """Whether an expression may read the value at a path: by its name, or as an entry of a map that it walks."""
    return path[-1] in guard_rule.words or (len(path) > 1 and path[-2] in MAPS and path[-2] in guard_rule.words)


def _decided(question: _Question, rules: Sequence[_Ways], known_broken: Container[str]) -> Judgement:
    narrowest, widest, lists_known = question.spaces()
    unknown = question.unknown()
    broken, waits = list[Broken](), set[str]()
    for ways in rules:
        if ways[0].rule in known_broken:
            continue
        if any(_reads(guard_rule, path) for path in unknown for guard_rule in ways):
            waits.add(ways[0].rule)
            continue
        refused = [guard_rule for guard_rule in ways if narrowest.refuses(guard_rule)]
        if not refused:
            continue
        certain = len(refused) == len(ways) and all(
            (lists_known or _is_open(guard_rule.text, labels=bool(question.space))) and widest.refuses(guard_rule)
            for guard_rule in ways
        )
        if certain and (
            question.is_whole or all(_by_what_is_there(question.item, widest, guard_rule) for guard_rule in ways)
        ):
            broken.append(Broken(ways[0].rule, question.as_shown(_fields_at_fault(widest, ways[0]))))
        else:
            waits.add(ways[0].rule)
    return Judgement(tuple(broken), frozenset(waits))


@cache
def _is_open(text: str, *, labels: bool) -> bool:
    """Whether an expression reads no more of the namespace than lists that are known to be open or closed, and labels
    where these are known."""
    rest_of_text = text
    for readable in (*_READABLE, *([_LABELS] if labels else [])):
        rest_of_text = rest_of_text.replace(readable, "")
    return "namespaceObject" not in rest_of_text and {*_READ.findall(text)} <= _OPEN | {*_CLOSED}


def _by_what_is_there(item: Object, space: _AssumedNamespace, guard_rule: _Rule) -> bool:
    """Whether a rule refuses a template for a field that it has, not for one that a controller may add."""
    spec = item["spec"]["template"]["spec"]
    containers = [{"image": SOME_IMAGE, **container} for container in spec.get("containers") or ()]
    empty = [{"name": container.get("name", ""), "image": SOME_IMAGE} for container in containers]
    return space.refuses_item(
        _with_spec(item, {**spec, "containers": containers}), guard_rule
    ) and not space.refuses_item(_with_spec(item, {"containers": empty}), guard_rule)


def _with_spec(item: Object, spec: Object) -> Object:
    metadata = item["spec"]["template"].get("metadata", {})
    return set_defaults({**item, "spec": {"template": {"metadata": metadata, "spec": spec}}}, "apps")


def _annotations(item: Object) -> Mapping[str, str]:
    names = dict.fromkeys([*_names(item), "default"])
    return {**dict.fromkeys(_OPEN, ",".join(names)), **_CLOSED}


def _names(value: Any) -> Iterator[str]:
    """Texts in an object that a list may contain: values, and keys that are no fields of the API."""
    waiting, count = [("", value)], 0
    while waiting and count < _MOST_NAMES:
        name, entry = waiting.pop()
        if isinstance(entry, str):
            count += 1
            yield from () if "," in entry else (entry,)
        elif isinstance(entry, Mapping):
            waiting += [("", key) for key in entry if name in MAPS]
            waiting += entry.items()
        elif isinstance(entry, list):
            waiting += [("", inner) for inner in entry]


class _AssumedNamespace:
    """A namespace in which an object would be created, and who may run work on GPUs there."""

    def __init__(
        self, item: Object, labels: Mapping[str, str], annotations: Mapping[str, str], *, grants: bool
    ) -> None:
        self.item = item
        self._grants = grants
        self._of_platform = grants and vocabulary.ENVIRONMENT in (get_path(item, "metadata", "labels") or ())
        self._by_either = _BY_EITHER if grants and vocabulary.ENVIRONMENT not in labels else frozenset[str]()
        self._name = str(get_path(item, "metadata", "namespace") or "default")
        metadata = {"name": self._name, "labels": labels, **({"annotations": dict(annotations)} if annotations else {})}
        self._cluster = ClusterObjects([{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
        self._evaluators: dict[bool, Evaluator] = {}
        self._refused_rules: dict[tuple[_AskedGuard, bool], frozenset[str]] = {}

    def refuses(self, guard_rule: _Rule) -> bool:
        """Whether a rule refuses the object."""
        key = guard, by_platform = guard_rule.guard, self._is_platforms(guard_rule)
        if key not in self._refused_rules:
            if by_platform not in self._evaluators:
                self._evaluators[by_platform] = self._evaluator(self.item, guard_rule)
            self._refused_rules[key] = frozenset(
                _refused_rules(self._evaluators[by_platform], guard, guard.rules, guard.variables)
            )
        return guard_rule.rule in self._refused_rules[key]

    def refuses_item(self, item: Object, guard_rule: _Rule) -> bool:
        """The same for a changed object."""
        evaluator = self._evaluator(item, guard_rule)
        return any(_refused_rules(evaluator, guard_rule.guard, [guard_rule.rule], guard_rule.variables))

    def _is_platforms(self, guard_rule: _Rule) -> bool:
        return self._of_platform or guard_rule.rule in self._by_either

    def _evaluator(self, item: Object, guard_rule: _Rule) -> Evaluator:
        item = {**item, "metadata": {"name": "", **item["metadata"]}}
        add_managed_fields(item, {}, applied=False)
        request = creation(item, self._name, _PLATFORM if self._is_platforms(guard_rule) else _PERSON)
        return evaluator_of(request, self._cluster, lambda _: self._grants)


def _refused_rules(
    evaluator: Evaluator, guard: _AskedGuard, rules: Collection[str], variables: Mapping[str, str]
) -> Iterator[str]:
    """Rules of a guard that refuse a request. An error of an expression refuses nothing here."""
    with suppress(EvaluationError):
        if all_hold(guard.conditions, evaluator):
            values = evaluator.having(variables).values([guard.rules[rule] for rule in rules])
            yield from (rule for rule, value in zip(rules, values, strict=True) if value is False)


def _fields_at_fault(space: _AssumedNamespace, guard_rule: _Rule) -> str:
    """The fields that break a rule, with their values."""
    return fields_at_fault(space.item, lambda item: space.refuses_item(item, guard_rule), guard_rule.text)
