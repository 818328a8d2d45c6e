"""Two wide policies: one checks each resource, one checks all of them together. Findings have the names of rules.

There are few, because the SDK reads every resource once for each policy. The rules are those of `tenancy.rules`, which
the spec files and `tenancy check` use too. Configuration: `settings`. Safe corrections: `remedies`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

from tenancy.catalog.days import today
from tenancy.check.adopt import adopt
from tenancy.check.judge import findings_alone, stumbles, together, worst_first
from tenancy.kube.objects import UNKNOWN, name_of
from tenancy.policy_pack.charts import NotRenderedError, rendered
from tenancy.policy_pack.names import POLICIES_BY_RULE, configured, names_work, report_as
from tenancy.policy_pack.objects import Unknown, in_stack, object_of
from tenancy.policy_pack.remedies import remedy
from tenancy.policy_pack.settings import SCHEMA, Settings, settings
from tenancy.rules import manifest_rules, objects
from tenancy.rules.exceptions import FindingWaiver, waived_by
from tenancy.rules.findings import UNREADABLE, Finding, Object
from tenancy.rules.levels import RuleLevel


# The SDK has one level per policy. Where a finding cannot be reported under the name and level of its rule, advisory
# findings are reported by an advisory twin of the policy, which runs after it and reports the findings that it left.
# The SDK checks resources in parallel, all policies of one resource in one thread.
class _DeferredTexts(threading.local):
    def __init__(self) -> None:
        self.texts: list[str] = []


class _IsolationConfig:
    """Configuration of `isolation`. It applies to the stack's policy too: the engine checks the stack last."""

    config: Mapping[str, Any] | None = None


_deferred_findings = _DeferredTexts()


def _judge(findings: Iterable[Finding], how: Settings, report: ReportViolation) -> None:
    for finding in findings:
        level = configured(report, finding.rule) or how.level_of(finding)
        if level is RuleLevel.DISABLED:
            continue
        if waiver := waived_by(finding, how.waivers, today()):
            _say(finding.rule, f"excepted: {waiver}", RuleLevel.ADVISORY, report)
        else:
            _say(finding.rule, str(finding), level, report)


def _say(rule: str, text: str, level: RuleLevel, report: ReportViolation) -> None:
    if report_as(rule, text, level, report):
        return
    if level is RuleLevel.MANDATORY:
        report(text, None)
    else:
        _deferred_findings.texts.append(text)


def _alone(item: Mapping[str, Any]) -> list[Finding]:
    try:
        findings = list(findings_alone(item))
    except UNREADABLE:
        return [manifest_rules.unreadable_finding(item, stumbles(item) or "in a way of its own")]
    # A finding on an unknown value reports the value already.
    return (
        findings
        if any(UNKNOWN in finding.given for finding in findings)
        else [*findings, *manifest_rules.unknown_findings(item)]
    )


def _carried(item: Mapping[str, Any]) -> list[FindingWaiver]:
    try:
        return [waiver for _, waiver in objects.excepted(item)]
    except UNREADABLE:
        return []  # reported as seen-03


def _resource(args: ResourceValidationArgs, report: ReportViolation) -> None:
    _deferred_findings.texts = []
    _IsolationConfig.config = args.get_config()
    how = settings(_IsolationConfig.config)
    item = object_of(args.resource_type, args.props, args.name, args.opts, args.provider)
    if item is not None:
        _judge(_alone(item), how, report)
        for waiver in _carried(item):
            _say(waiver.rule, f"excepted: {waiver}", RuleLevel.ADVISORY, report)


def _stack(args: StackValidationArgs, report: ReportViolation) -> None:
    _deferred_findings.texts = []
    how = settings(_IsolationConfig.config, args.get_config())
    items: list[Object] = [item for r in args.resources if (item := in_stack(r))]
    finding_set = {finding for item in items for finding in _alone(item)}
    inside: dict[str, str] = {}
    with suppress(*UNREADABLE):  # the objects are found below
        items, inside = _unpacked(items, how)
    stack_result = together(items, how.label, how.platform)
    all_findings = [
        *(manifest_rules.unreadable_finding(item, reason) for item, reason in stack_result.unread),
        *stack_result.findings,
    ]
    findings = [
        replace(finding, given=f"{finding.given}, of {inside[finding.object]}") if finding.object in inside else finding
        for finding in worst_first(
            dict.fromkeys(finding for finding in all_findings if finding not in finding_set), stack_result.adopted
        )
    ]
    _judge(findings, how, report)
    for waiver in how.waivers:
        if waiver.has_expired(today()):
            report(str(Finding("exc-01", waiver.resource, f"an expired exception: {waiver}")), None)


def _unpacked(items: list[Object], how: Settings) -> tuple[list[Object], dict[str, str]]:
    """Resources with the objects of tenants' releases, and the release of each object."""
    looked_at = how.level_of(Finding("seen-01", "", "")) is not RuleLevel.DISABLED
    if not looked_at or not any(item.get("kind") == "Release" for item in items):
        return items, {}
    adopted = adopt(items, how.label, how.platform).plain
    hidden = {
        name_of(item)
        for item in adopted
        if any(finding.rule == "seen-01" for finding in manifest_rules.object_findings(item))
    }
    unpacked_items: list[Object] = []
    inside: dict[str, str] = {}
    for item in items:
        if name_of(item) not in hidden or manifest_rules.RENDERED in item:
            unpacked_items.append(item)
            continue
        try:
            chart_items = rendered(item, how.charts)
        except NotRenderedError as error:
            unpacked_items.append({**item, manifest_rules.RENDERED: str(error)})
        else:
            inside |= {name_of(chart_item): name_of(item) for chart_item in chart_items}
            unpacked_items += [{**item, manifest_rules.RENDERED: True}, *chart_items]
    return unpacked_items, inside


def _report_deferred(_args: ResourceValidationArgs | StackValidationArgs, report: ReportViolation) -> None:
    for text in _deferred_findings.texts:
        report(text, None)


_schema = PolicyConfigSchema(properties=dict(SCHEMA))
__all__ = ["POLICIES", "Unknown", "object_of", "served"]

POLICIES: list[Policy] = [
    ResourceValidationPolicy(
        name="isolation",
        description="No object weakens the isolation of a tenant, and no node that of all tenants",
        validate=_resource,
        remediate=remedy,  # ty: ignore[invalid-argument-type]  # the SDK takes a plain answer as well
        config_schema=_schema,
    ),
    StackValidationPolicy(
        name="isolation-stack",
        description="Every tenant namespace has its policies and limits, no user or group is in two tenants, and pools "
        "are separate",
        validate=_stack,
        config_schema=_schema,
    ),
    ResourceValidationPolicy(
        name="isolation-advisory",
        description="Findings of isolation that are advisory, excepted, or not known until apply",
        validate=_report_deferred,
        enforcement_level=EnforcementLevel.ADVISORY,
    ),
    StackValidationPolicy(
        name="isolation-stack-advisory",
        description="Findings of isolation-stack that are advisory, excepted, or not known until apply",
        validate=_report_deferred,
        enforcement_level=EnforcementLevel.ADVISORY,
    ),
]


def served() -> list[Policy]:
    """Policies that the engine gets: the wide ones and a name for each rule; advisory twins where names do not work."""
    return [*POLICIES[:2], *POLICIES_BY_RULE.values()] if names_work() else POLICIES
