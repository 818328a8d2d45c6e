"""Two wide policies: one judges each resource, one judges them all together.

Wide, because the SDK reads every resource once for each policy. The rules are those of `tenancy.rules`,
which the spec files are checked with. Each rule's level can be set in the pack's configuration:
`{"isolation": {"quota-01": "advisory", "cost-02": "disabled"}}`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from tenancy.rules import aws
from tenancy.rules.catalogue import RULES
from tenancy.rules.found import UNKNOWN, Finding, name_of
from tenancy.rules.objects import CHECKS, MACHINES, OBJECT_RULES, STACK_RULES, object_findings, stack_findings

LEVELS = ("mandatory", "advisory", "disabled")
_PREFIX = "kubernetes:"


class Unknown(str):
    """A value that a preview does not know yet: whatever is read out of it is not known either."""

    __slots__ = ()

    def __new__(cls) -> Unknown:
        return super().__new__(cls, UNKNOWN)

    def __iter__(self) -> Iterator[Any]:
        yield self

    def __getitem__(self, _key: Any) -> Unknown:
        return self

    def get(self, _key: str, _default: Any = None) -> Unknown:
        return self


def object_of(resource_type: str, props: Mapping[str, Any], name: str = "") -> dict[str, Any] | None:
    """The object of Kubernetes or AWS that a resource is; None if no rule reads it. Its kind is the type's.

    A `NamespacePatch` is judged as the Namespace that it changes.
    """
    if resource_type in aws.KINDS:
        return {**_plain(props), "kind": resource_type, "metadata": {"name": name}}
    if not resource_type.startswith(_PREFIX):
        return None
    kind = resource_type.rpartition(":")[2]
    changed = kind.removesuffix("Patch")
    item = {**_plain(props), "kind": changed if changed in CHECKS else kind}
    if kind == "Release":
        item["metadata"] = {"name": item.get("name") or name, "namespace": item.get("namespace")}
    return item


def _in_stack(resource: PolicyResource) -> dict[str, Any] | None:
    """The same, with what shows only among all resources: where a node group's launch template comes from."""
    item = object_of(resource.resource_type, resource.props, resource.name)
    if item and item["kind"] == aws.GROUP:
        sources = resource.property_dependencies.get("launchTemplate", ())
        item[aws.TEMPLATES] = [
            object_of(s.resource_type, s.props, s.name) for s in sources if s.resource_type == aws.TEMPLATE
        ]
    return item


def _plain(value: Any) -> Any:
    """As the rules read it; the SDK raises where a value is not known, and would skip the whole policy."""
    if isinstance(value, Mapping):
        return {key: _known(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_known(value, index) for index in range(len(value))]
    return value


def _known(container: Any, key: Any) -> Any:
    try:
        return _plain(container[key])
    except UnknownValueError:
        return Unknown()


def unknown_fields(value: Any, path: str = "") -> Iterator[str]:
    """Paths of what is not known."""
    if isinstance(value, Unknown):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from unknown_fields(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, f"{path}[{index}]")


def level_of(finding: Finding, config: Mapping[str, str]) -> str:
    """A finding that rests on what is not known yet only advises: the apply knows, and judges before it makes."""
    level = config.get(finding.rule, LEVELS[1 if RULES[finding.rule].advises else 0])
    return LEVELS[1] if level == LEVELS[0] and UNKNOWN in finding.given else level


def checked(config: Mapping[str, Any], rules: Iterable[str]) -> Mapping[str, str]:
    """Rule -> level, as configured; ValueError if it names a rule or level that there is not."""
    known = list(rules)
    for rule, level in config.items():
        if rule not in known:
            raise ValueError(f"given rule {rule!r}; rule: one of this policy; change: use one of {', '.join(known)}")
        if level not in LEVELS:
            raise ValueError(f"given {rule}: {level!r}; rule: a level; change: use one of {', '.join(LEVELS)}")
    return config


def _schema(rules: Iterable[str]) -> PolicyConfigSchema:
    return PolicyConfigSchema(properties={rule: {"enum": list(LEVELS)} for rule in rules})


# The SDK has one level per policy, so what only advises is reported by an advisory twin of the policy,
# which runs after it and says what its twin has left over.
# The SDK judges resources side by side, all policies of one resource in one thread.
class _Left(threading.local):
    def __init__(self) -> None:
        self.texts: list[str] = []


_left = _Left()


def _judge(findings: Iterable[Finding], config: Mapping[str, str], report: ReportViolation) -> None:
    for finding in findings:
        level = level_of(finding, config)
        if level == LEVELS[0]:
            report(str(finding), None)
        elif level == LEVELS[1]:
            _left.texts.append(str(finding))


def _resource(args: ResourceValidationArgs, report: ReportViolation) -> None:
    _left.texts = []
    config = checked(args.get_config() or {}, OBJECT_RULES)
    item = object_of(args.resource_type, args.props, args.name)
    if item is None:
        return
    _judge(object_findings(item), config, report)
    unknown = list(unknown_fields(item)) if item["kind"] in CHECKS and item["kind"] not in MACHINES else ()
    if unknown and not _left.texts:
        _left.texts.append(f"{name_of(item)}: {', '.join(unknown)}: {UNKNOWN}, and judged then")


def _stack(args: StackValidationArgs, report: ReportViolation) -> None:
    _left.texts = []
    config = checked(args.get_config() or {}, STACK_RULES)
    _judge(stack_findings(found for r in args.resources if (found := _in_stack(r))), config, report)


def _rest(_args: ResourceValidationArgs | StackValidationArgs, report: ReportViolation) -> None:
    for text in _left.texts:
        report(text, None)


POLICIES: list[Policy] = [
    ResourceValidationPolicy(
        name="isolation",
        description="No object weakens the isolation of a tenant, and no machine that of all",
        validate=_resource,
        config_schema=_schema(OBJECT_RULES),
    ),
    StackValidationPolicy(
        name="isolation-stack",
        description="Every tenant namespace has its walls, nobody is in two tenants, and pools are apart",
        validate=_stack,
        config_schema=_schema(STACK_RULES),
    ),
    ResourceValidationPolicy(
        name="isolation-advisory",
        description="What is set to advisory in isolation, or not known until apply",
        validate=_rest,
        enforcement_level=EnforcementLevel.ADVISORY,
    ),
    StackValidationPolicy(
        name="isolation-stack-advisory",
        description="What is set to advisory in isolation-stack, or not known until apply",
        validate=_rest,
        enforcement_level=EnforcementLevel.ADVISORY,
    ),
]
