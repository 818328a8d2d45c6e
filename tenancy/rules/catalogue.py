"""Every rule, assembled from the families, and what is raised where a rule is broken."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.rules import (
    access,
    accounts,
    admission,
    availability,
    costs,
    device_claims,
    gpus,
    identity,
    images,
    metadata,
    namespaces,
    network,
    network_policies,
    nodes,
    partitions,
    pods,
    pools,
    queue_counts,
    queueing,
    queues,
    quotas,
    regulated,
    scheduling,
    spec_files,
    storage,
)
from tenancy.rules.model import GuardFacts, GuardSubject, Rule

FAMILIES = (
    *(
        namespaces,
        spec_files,
        quotas,
        gpus,
        device_claims,
        partitions,
        pools,
        scheduling,
        images,
        network,
        network_policies,
    ),
    *(pods, metadata, storage),
    *(availability, identity, access, costs, queueing, queue_counts, queues, nodes, accounts, admission, regulated),
)
"""In the order of pages and of the validations of an admission policy."""
RULES: Mapping[str, Rule] = {rule.id: rule for family in FAMILIES for rule in family.RULES}
"""Every rule by its id, family by family."""


class Violation(ValueError):
    """A value broke a rule. `given` is what was found, `change` what to write instead."""

    def __init__(self, rule: str, given: str, change: str | None = None) -> None:
        self.rule = RULES[rule]
        self.given = given
        self.change = change or self.rule.fix
        super().__init__(f"given {given}; rule {rule}: {self.rule.title}; change: {self.change}")


def with_subject(*subjects: GuardSubject) -> tuple[str, ...]:
    """Ids of the rules that judge one of the subjects."""
    return tuple(rule.id for rule in RULES.values() if any(subject in rule.guards for subject in subjects))


def expressions(subject: GuardSubject, facts: GuardFacts) -> dict[str, str]:
    """CEL of every rule on a subject, by rule, where the environment needs it."""
    texts: dict[str, str] = {}
    for rule in RULES.values():
        expression = rule.guards.get(subject)
        text = expression if expression is None or isinstance(expression, str) else expression(facts)
        if text is not None:
            texts[rule.id] = text
    return texts
