"""Assembly of the expressions of rules into one admission policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenancy.planning.guards.admission_policy import META
from tenancy.rules.catalogue import RULES, expressions
from tenancy.rules.model import GuardFacts, GuardSubject

Kinds = Sequence[tuple[str, str, Sequence[str]]]
"""(API group, version, resources)."""


def of_resources(facts: GuardFacts, kinds: Kinds) -> GuardFacts:
    """The facts for the policy on these resources."""
    return replace(facts, resources=tuple(resource for _, _, resources in kinds for resource in resources))


def latest(facts: GuardFacts, *subjects: GuardSubject) -> dict[str, str]:
    """Expressions on several subjects; of a rule with several, the one on the last subject."""
    return {rule: text for subject in subjects for rule, text in expressions(subject, facts).items()}


def merge_expressions(*parts: Mapping[str, str]) -> dict[str, str]:
    """Expressions of several maps; of a rule in several, all must hold."""
    texts: dict[str, str] = {}
    for part in parts:
        for rule, text in part.items():
            texts[rule] = f"({texts[rule]}) && ({text})" if rule in texts else text
    return texts


def ordered(texts: Mapping[str, str]) -> dict[str, str]:
    """Expressions in the order of the catalogue."""
    return {rule: texts[rule] for rule in RULES if rule in texts}


def fields_of_work(facts: GuardFacts) -> tuple[str, ...]:
    """Fields of work of which a change is judged."""
    return ("spec", *META, "metadata.ownerReferences") if facts.queued else ("spec",)
