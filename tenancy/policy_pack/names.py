"""A named policy for each rule, and one evaluation for all of them.

The SDK reads every resource once for each policy that it runs. The policies here are not run: the wide policies judge
once, and report each finding under the name of its rule, with the rule's level and severity.
"""

from __future__ import annotations

import inspect
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyComplianceFramework,
    ReportViolation,
    Severity,
)

from tenancy.check.judge import JUDGED
from tenancy.rules.catalogue import RULES, Rule
from tenancy.rules.controls import controls_of
from tenancy.rules.findings import Finding
from tenancy.rules.levels import RuleLevel, level_of

BENCHMARK = "CIS Amazon EKS Benchmark"
PACK_NAME = "gpu-tenancy"
"""Framework of rules that the benchmark has no control for."""
_LEVELS = {level: EnforcementLevel(level.value) for level in RuleLevel}


class NamedPolicy(Policy):
    """A rule as the console lists it: not a policy of resources or of a stack, so the SDK does not run it."""

    def __init__(self, rule: Rule) -> None:
        group = rule.id.partition("-")[0]
        control = next((control for control in controls_of(rule.id) if control.framework == "cis-eks"), None)
        super().__init__(
            name=rule.id,
            description=rule.title[:1].upper() + rule.title[1:],
            enforcement_level=_LEVELS[level_of(Finding(rule.id, "", ""))],
            severity=Severity[rule.severity.name],
            framework=PolicyComplianceFramework(
                name=BENCHMARK if control else PACK_NAME,
                reference=rule.id,
                specification=f"{control.id} {control.asks}" if control else rule.why,
            ),
            tags=[group, str(rule.severity)],
            remediation_steps=rule.fix,
        )


POLICIES_BY_RULE: dict[str, NamedPolicy] = {rule: NamedPolicy(RULES[rule]) for rule in sorted(JUDGED)}


def configured(report: ReportViolation, rule: str) -> RuleLevel | None:
    """The level that the engine's configuration gives the rule's policy; None where it is the policy's own.

    Of `{"quota-01": "advisory"}` or `{"all": "disabled"}`; the engine sends the default for policies without an entry.
    """
    servicer, policy = _inside(report).get("self"), POLICIES_BY_RULE.get(rule)
    if servicer is None or policy is None:
        return None
    level = servicer._get_enforcement_level(policy)
    if level is policy.enforcement_level:
        return None
    return RuleLevel.MANDATORY if level is EnforcementLevel.REMEDIATE else RuleLevel(level.value)


def report_as(rule: str, text: str, level: RuleLevel, report: ReportViolation) -> bool:
    """Report under the rule's own name and level; False if the SDK's callback is not the known one. A rule without a
    policy of its own is reported under the wide policy's name."""
    response, servicer = _inside(report).get("response"), _inside(report).get("self")
    policy = POLICIES_BY_RULE.get(rule)
    if response is None or servicer is None:
        return False
    report(text, None)
    diagnostic = response.diagnostics[-1]
    diagnostic.enforcementLevel = servicer._map_enforcement_level(_LEVELS[level])
    if policy is None:
        return True
    diagnostic.policyName, diagnostic.description = policy.name, policy.description
    diagnostic.message = f"{policy.description}\n{text}"
    diagnostic.severity = servicer._map_severity(policy.severity)
    return True


def _inside(report: Any) -> dict[str, Any]:
    """Variables that the SDK's callback of a violation closes over: the response that it adds to, and its server."""
    if not inspect.isfunction(report) or report.__closure__ is None:
        return {}
    cells = zip(report.__code__.co_freevars, report.__closure__, strict=True)
    return {name: cell.cell_contents for name, cell in cells if name in {"response", "self"}}


def names_work() -> bool:
    """Whether this SDK lets a policy report under another's name."""
    from pulumi.runtime.proto import analyzer_pb2 as proto
    from pulumi_policy.policy import _PolicyAnalyzerServicer

    response = proto.AnalyzeResponse()
    policy = next(iter(POLICIES_BY_RULE.values()))
    try:
        servicer = _PolicyAnalyzerServicer("names", "0.0.1", [policy], EnforcementLevel.MANDATORY)
        report = servicer._create_report_violation(response, "wide", "Wide", EnforcementLevel.MANDATORY)
        configured(report, policy.name)
        return report_as(policy.name, "text", RuleLevel.ADVISORY, report) and len(response.diagnostics) == 1
    except (AttributeError, TypeError, ValueError, KeyError):
        return False
