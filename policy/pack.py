"""Two wide policies: one judges each resource, one judges them all together.

Wide, because the SDK reads every resource once for each policy. The rules are those of `tenancy.rules`,
which the spec files are checked with. Each rule's level can be set in the pack's configuration:
`{"isolation": {"quota-01": "advisory", "cost-02": "disabled"}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

from tenancy.rules.objects import OBJECT_RULES, STACK_RULES, Finding, object_findings, stack_findings

LEVELS = ("mandatory", "advisory", "disabled")
_PREFIX = "kubernetes:"


def manifest(resource_type: str, props: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Kubernetes object of a resource; None if it is none. Its kind is the type's, whatever the inputs say."""
    if not resource_type.startswith(_PREFIX):
        return None
    return {**{key: _plain(value) for key, value in props.items()}, "kind": resource_type.rpartition(":")[2]}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _at_level(findings: Iterable[Finding], config: Mapping[str, str], level: str) -> Iterator[Finding]:
    return (finding for finding in findings if config.get(finding.rule, LEVELS[0]) == level)


def _schema(rules: Iterable[str]) -> PolicyConfigSchema:
    return PolicyConfigSchema(properties={rule: {"enum": list(LEVELS)} for rule in rules})


# The SDK has one level per policy, so what is set to advisory is reported by an advisory twin of the policy,
# which runs after it and reads the configuration that its twin was given.
_configured: dict[str, Mapping[str, str]] = {}


def _config(
    kind: str, level: str, args: ResourceValidationArgs | StackValidationArgs
) -> Mapping[str, str] | None:
    """Rule -> level; None for a twin that has nothing to report."""
    if level == LEVELS[0]:
        _configured[kind] = args.get_config() or {}
    config = _configured.get(kind, {})
    return config if level == LEVELS[0] or level in config.values() else None


def _resources(level: str) -> Any:
    def judge(args: ResourceValidationArgs, report: ReportViolation) -> None:
        config = _config("resource", level, args)
        if config is None:
            return
        item = manifest(args.resource_type, args.props)
        for finding in _at_level(object_findings(item), config, level) if item else ():
            report(str(finding))

    return judge


def _stack(level: str) -> Any:
    def judge(args: StackValidationArgs, report: ReportViolation) -> None:
        config = _config("stack", level, args)
        if config is None:
            return
        items = [found for r in args.resources if (found := manifest(r.resource_type, r.props))]
        for finding in _at_level(stack_findings(items), config, level):
            report(str(finding))

    return judge


POLICIES = [
    ResourceValidationPolicy(
        name="isolation",
        description="No object weakens the isolation of a tenant",
        validate=_resources("mandatory"),
        config_schema=_schema(OBJECT_RULES),
    ),
    StackValidationPolicy(
        name="isolation-stack",
        description="Every tenant namespace has its walls, and nobody is in two tenants",
        validate=_stack("mandatory"),
        config_schema=_schema(STACK_RULES),
    ),
    ResourceValidationPolicy(
        name="isolation-advisory",
        description="Rules of isolation that are set to advisory",
        validate=_resources("advisory"),
        enforcement_level=EnforcementLevel.ADVISORY,
    ),
    StackValidationPolicy(
        name="isolation-stack-advisory",
        description="Rules of isolation-stack that are set to advisory",
        validate=_stack("advisory"),
        enforcement_level=EnforcementLevel.ADVISORY,
    ),
]
