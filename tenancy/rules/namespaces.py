"""Namespaces and names."""

from __future__ import annotations

from tenancy.catalog.controllers import NAMESPACE_CONTROLLERS
from tenancy.rules.expressions import IN_TENANTS_NAMESPACE, by_platform, cel
from tenancy.rules.model import Face, Rule, Severity, Subject

RULES: tuple[Rule, ...] = (
    Rule(
        id="name-01",
        title=(
            "a name is a DNS label without '--', not reserved, at most 30 characters for a tenant and 31 for a "
            "namespace"
        ),
        why="derived names are <tenant>--<namespace>: any other form could make two tenants' names collide",
        fix="use lower-case letters, digits and single dashes",
        severity=Severity.CRITICAL,
        enforced=Face.SPEC,
    ),
    Rule(
        id="name-02",
        title="a name identifies one thing in an environment",
        why="two tenants with one name would own each other's objects",
        fix="rename one of the two",
        severity=Severity.CRITICAL,
        enforced=Face.SPEC,
    ),
    Rule(
        id="name-03",
        title=(
            "a tenant's namespace has a name of at most 63 characters that is neither reserved nor the platform's nor "
            "unmanaged, with '--' only after its tenant's name"
        ),
        why="guards do not apply in the platform's namespaces, and a name with '--' says whose namespace it is",
        fix="change the namespace's namespace-name, or the pattern namespace-name in environment.yaml",
        severity=Severity.CRITICAL,
        enforced=Face.SPEC,
    ),
    Rule(
        id="ns-01",
        title="only the platform sets labels and annotations of a tenant's namespace",
        why="quota, queue, guards and bill all depend on the namespace's labels",
        fix="ask the platform team to change the tenant's spec file, which they are made from",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={
            Subject.NAMESPACES: lambda facts: (
                f"{by_platform(facts.platform_group)} || (variables.labelsKept && variables.annotationsKept)"
            )
        },
    ),
    Rule(
        id="ns-02",
        title="a workload runs only in a namespace that belongs to a tenant or to the platform",
        why="guards have no data on a namespace without labels, and its cost has no owner",
        fix="create the namespace through a tenant file, or list it under platform.namespaces or platform.unmanaged",
        severity=Severity.CRITICAL,
        enforced=Face.ATTACK,
        guards={Subject.NAMESPACE_OF_WORK: IN_TENANTS_NAMESPACE},
    ),
    Rule(
        id="ns-03",
        title="a tenant's namespace enforces the restricted Pod Security level, pinned to a version",
        why="below restricted, a pod can reach the node, and with it every tenant on the node",
        fix="set pod-security to restricted, or write an exception with an end date",
        severity=Severity.CRITICAL,
        enforced=Face.SPEC | Face.PREVIEW,
        fix_of_object="set the labels enforce: restricted and enforce-version: v1.36, or the cluster's minor version",
        waivable=True,
    ),
    Rule(
        id="ns-04",
        title="every tenant namespace has a quota, a limit range and a default-deny network policy",
        why="a namespace without one of them has no limits or accepts all traffic",
        fix="create all three with the namespace",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW,
    ),
    Rule(
        id="ns-05",
        title="only the platform deletes a tenant's namespace",
        why="all objects of the tenant in it are deleted too, and an administrator can mistype a name",
        fix="remove the tenant's file and run tenancy up, as the platform's group",
        enforced=Face.ATTACK,
        guards={
            Subject.REMOVALS: lambda facts: (
                f"{by_platform(facts.platform_group)}"
                f" || request.userInfo.username in {cel(list(NAMESPACE_CONTROLLERS))}"
            )
        },
    ),
    Rule(
        id="ns-06",
        title=(
            "before guards refuse anything, every namespace with work is the platform's, a tenant's or listed as "
            "unmanaged"
        ),
        why="running pods continue, and their replacements are refused: an outage days after the change",
        fix=(
            "list the namespace under platform.unmanaged or platform.namespaces, adopt it by a tenant's file, or set "
            "guards to audit"
        ),
    ),
    Rule(
        id="ns-07",
        title="a tenant's namespace is removed only after the tenant's file says leaving",
        why="everything in the namespace is deleted with it, and a file is more easily deleted by mistake than changed",
        fix=(
            "restore the file or the namespace in it; to remove the tenant, write `leaving: hold` into its "
            "file, and after "
            "the next run `leaving: remove`; a program of your own makes its namespaces with protect=True"
        ),
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW,
    ),
    Rule(
        id="ns-08",
        title="an exemption of namespaces from the guards has a last day within the next 366",
        why="an exemption that outlives its test suite lets other work bypass the guards",
        fix="renew the date after a review, or remove the entry",
        enforced=Face.SPEC,
    ),
)
