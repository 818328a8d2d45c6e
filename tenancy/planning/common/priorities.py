"""Priority classes: one per tier and one below all, which is the cluster's default.

None preempts: the scheduler would evict other tenants' pods. Taking back what was lent is the queues' work.
"""

from __future__ import annotations

from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.spec.fields.environment import Environment

DEFAULT_CLASS = "tenancy-opportunistic"


def class_name(tier: str) -> str:
    """Name of the PriorityClass of a tier."""
    return f"tenancy-tier-{tier}"


def priorities(environment: Environment) -> dict[str, int]:
    """Every class with its value, the default first."""
    lowest = min(tier.priority for tier in environment.tiers.values())
    tiers = {class_name(name): tier.priority for name, tier in sorted(environment.tiers.items())}
    return {DEFAULT_CLASS: max(lowest - 1, -1_000_000_000), **tiers}


def priority_classes(environment: Environment) -> tuple[Object, ...]:
    """One PriorityClass for each tier and the default one; none of them preempts."""

    def make(name: str, value: int, default: bool, text: str) -> Object:
        body = {"value": value, "globalDefault": default, "preemptionPolicy": "Never", "description": text}
        return manifest("scheduling.k8s.io/v1", "PriorityClass", name, platform_labels(environment), body)

    values = priorities(environment)
    return (
        make(DEFAULT_CLASS, values[DEFAULT_CLASS], True, "Whatever names no class."),
        *(
            make(class_name(name), values[class_name(name)], False, f"Workloads of tier {name}.")
            for name in sorted(environment.tiers)
        ),
    )


def allowed_classes(environment: Environment, tier: str) -> list[str]:
    """Classes of the tier and of those below it, and the default."""
    ceiling = environment.tiers[tier].priority
    return [DEFAULT_CLASS, *sorted(class_name(n) for n, t in environment.tiers.items() if t.priority <= ceiling)]
