"""Enforcement levels of rules: three presets, as an alternative to a level per rule."""

from __future__ import annotations

from enum import StrEnum

from tenancy.kube.objects import UNKNOWN
from tenancy.rules.catalogue import RULES
from tenancy.rules.findings import Finding
from tenancy.rules.model import Severity


class RuleLevel(StrEnum):
    """The effect of a broken rule on a check or a preview."""

    MANDATORY = "mandatory"  # ends with exit code 1
    ADVISORY = "advisory"  # is reported
    DISABLED = "disabled"  # is not checked


class PolicyPreset(StrEnum):
    """A choice of a level for every rule."""

    BASELINE = "baseline"  # rules against access to another tenant; others advise, and cost rules are disabled
    RESTRICTED = "restricted"  # every rule but those that correct programs can break
    REGULATED = "regulated"  # every rule, and unknown values count as broken


_NOT_IN_BASELINE = frozenset({"cost-01", "cost-02", "cost-03"})
REGULATED_ALONE = frozenset({"reg-01", "reg-02", "reg-03", "reg-04"})
"""Rules that are disabled outside of `regulated`, unless configured by id."""
_SOFT_IN_BASELINE = frozenset({"ns-03"})
"""Rules that only advise in `baseline`: many charts need the Pod Security level baseline."""


def level_of(finding: Finding, preset: PolicyPreset = PolicyPreset.RESTRICTED) -> RuleLevel:
    """The level of a finding in a preset."""
    rule = RULES[finding.rule]
    if preset is PolicyPreset.REGULATED:
        return RuleLevel.MANDATORY
    if rule.id in REGULATED_ALONE or (preset is PolicyPreset.BASELINE and rule.id in _NOT_IN_BASELINE):
        return RuleLevel.DISABLED
    soft = preset is PolicyPreset.BASELINE and (rule.severity is Severity.MEDIUM or rule.id in _SOFT_IN_BASELINE)
    return RuleLevel.ADVISORY if rule.advises or soft or UNKNOWN in finding.given else RuleLevel.MANDATORY
