"""How strictly a rule is held: three presets, for whoever does not want to decide rule by rule."""

from __future__ import annotations

from enum import StrEnum

from tenancy.rules.catalogue import RULES, Severity
from tenancy.rules.found import UNKNOWN, Finding


class Level(StrEnum):
    MANDATORY = "mandatory"  # ends with exit code 1
    ADVISORY = "advisory"  # is said
    DISABLED = "disabled"  # is not looked at


class Preset(StrEnum):
    BASELINE = "baseline"  # what lets a tenant reach another; the rest advises, and nobody's bill is looked at
    RESTRICTED = "restricted"  # every rule but those that what is meant well can break
    REGULATED = "regulated"  # every rule, and what cannot be known counts as broken


_NOT_IN_BASELINE = frozenset({"cost-01", "cost-02", "cost-03"})
REGULATED_ALONE = frozenset({"reg-01", "reg-02", "reg-03", "reg-04"})
"""Disabled unless it is regulated, or a rule is asked for by its id."""
_SOFT_IN_BASELINE = frozenset({"ns-03"})
"""Below restricted there is a level, baseline, that many charts need."""


def level_of(finding: Finding, preset: Preset = Preset.RESTRICTED) -> Level:
    """What a preset makes of a finding."""
    rule = RULES[finding.rule]
    if preset is Preset.REGULATED:
        return Level.MANDATORY
    if rule.id in REGULATED_ALONE or (preset is Preset.BASELINE and rule.id in _NOT_IN_BASELINE):
        return Level.DISABLED
    soft = preset is Preset.BASELINE and (rule.severity is Severity.MEDIUM or rule.id in _SOFT_IN_BASELINE)
    return Level.ADVISORY if rule.advises or soft or UNKNOWN in finding.given else Level.MANDATORY
