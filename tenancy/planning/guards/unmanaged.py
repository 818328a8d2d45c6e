"""Namespaces that are neither a tenant's nor the platform's: what of them guards judge, and which they leave alone.

In an unmanaged namespace work goes on as it was. What is judged there is what would reach tenants: GPUs and the nodes
that are kept for them (gpu-12), labels that make a namespace a tenant's (ns-01), and queues that lead to shares of
tenants (kueue-05).
"""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.planning.guards.admission_policy import Guard, NamespaceScope, change_condition
from tenancy.rules.catalogue import expressions
from tenancy.rules.expressions import cel
from tenancy.rules.model import GuardFacts, GuardSubject
from tenancy.spec.fields.environment import Environment

UNMANAGED = "tenancy-unmanaged"


def unmanaged_guards(environment: Environment, facts: GuardFacts) -> Iterator[Guard]:
    """Guards on the namespaces that are neither a tenant's nor the platform's; none if there are no such namespaces."""
    if not environment.platform.unmanaged_namespaces:
        return
    yield Guard(
        UNMANAGED,
        # Pods alone: a template takes nothing, and to judge it would refuse to scale it down.
        [("", "v1", ["pods", "pods/ephemeralcontainers"])],
        expressions(GuardSubject.UNMANAGED_PODS, facts),
        {"containers": "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"},
        change_condition("spec"),
        spaces=NamespaceScope.UNMANAGED,
    )


def is_temporary(environment: Environment, name: str) -> str:
    """CEL: whether the text `name` is among the temporary namespaces. A tenant's never is, however it begins."""
    ways = []
    for entry in environment.platform.temporary_namespaces:
        start = entry.name.removesuffix("*")
        ways.append(f"{name} == {cel(start)}" if start == entry.name else f"{name}.startsWith({cel(start)})")
    return f"(!{name}.contains({cel(vocabulary.SEPARATOR)}) && ({' || '.join(ways)}))" if ways else "false"


def temporary(environment: Environment, guard: Guard) -> dict[str, str]:
    """Condition that leaves temporary namespaces out. Selectors know whole names alone; a request names its namespace.

    Not of guards on namespaces themselves: which of their labels are free, `ns-01` says.
    """
    on_namespaces = any("namespaces" in resources for _, _, resources in guard.resources)
    if not environment.platform.temporary_namespaces or on_namespaces or guard.spaces is NamespaceScope.UNMANAGED:
        return {}
    return {"temporary": f"!{is_temporary(environment, 'request.namespace')}"}
