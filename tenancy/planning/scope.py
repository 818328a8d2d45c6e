"""The part of a plan that a stack owns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.names import kubeconfig_command, shard_number
from tenancy.planning.plan_model import Plan, PlatformPlan, TenantPlan
from tenancy.spec.fields.environment import Layout

CLUSTER_SUFFIX = ".cluster"
"""No environment's or tenant's name contains a dot."""


class StackScope(StrEnum):
    """The objects that a stack owns."""

    CLUSTER = "cluster"  # the AWS half: network, control plane, nodes
    ALL = "all"  # all of the Kubernetes half: a small environment has no other stack for it
    PLATFORM = "platform"  # what is cluster-wide
    TENANT = "tenant"  # one tenant's own objects


Stack = tuple[str, StackScope, str | None]
"""Name, scope and tenant."""


def names_of(stack: str) -> tuple[str, str]:
    """Environment and tenant that a stack's name says; no tenant for the environment's own stacks."""
    environment, _, tenant = stack.removesuffix(CLUSTER_SUFFIX).partition(vocabulary.SEPARATOR)
    return environment, tenant


def scope_of(configured_scope: str | None, layout: Layout, stack: str) -> StackScope:
    """Scope of a stack, by its config or else by its name. ValueError if there is no such scope."""
    if configured_scope is not None and configured_scope not in list(StackScope):
        raise ValueError(
            f"given scope {configured_scope!r}; rule: a part of the plan; change: use one of {', '.join(StackScope)}"
        )
    if configured_scope:
        return StackScope(configured_scope)
    if stack.endswith(CLUSTER_SUFFIX):
        return StackScope.CLUSTER
    if names_of(stack)[1]:
        return StackScope.TENANT
    return StackScope.ALL if layout is Layout.ONE else StackScope.PLATFORM


def stacks(plan: Plan, layout: Layout) -> Iterator[Stack]:
    """Every stack, in the order in which they are first made."""
    if plan.cluster:
        yield plan.environment + CLUSTER_SUFFIX, StackScope.CLUSTER, None
    if layout is Layout.ONE:
        yield plan.environment, StackScope.ALL, None
        return
    yield plan.environment, StackScope.PLATFORM, None
    for name in plan.names:
        yield vocabulary.derived_name(plan.environment, name), StackScope.TENANT, name


def ordered_stacks(selected_stacks: Sequence[Stack], cluster_exists: bool) -> list[Stack]:
    """Stacks in the order in which they run: a cluster that exists comes last.

    A slice that is new to it is in every quota before the first node offers it.
    """
    cluster = [stack for stack in selected_stacks if stack[1] is StackScope.CLUSTER]
    other_stacks = [stack for stack in selected_stacks if stack[1] is not StackScope.CLUSTER]
    return [*other_stacks, *cluster] if cluster_exists else [*cluster, *other_stacks]


def in_shard(stacks: Sequence[Stack], part: int, parts: int) -> list[Stack]:
    """The stacks of tenants in one of the parts, counted from 1, by their names."""
    return [stack for stack in stacks if stack[1] is StackScope.TENANT and shard_number(stack[0], parts) == part]


def select(plan: Plan, scope: StackScope, tenant: str | None) -> tuple[PlatformPlan | None, tuple[TenantPlan, ...]]:
    """The Kubernetes part of the plan that a stack owns; KeyError if the tenant is unknown."""
    if scope is StackScope.CLUSTER:
        return None, ()
    if scope is StackScope.TENANT:
        return None, (plan.tenant(tenant or ""),)
    return plan.platform, tuple(plan.tenants) if scope is StackScope.ALL else ()


def objects_of(platform: PlatformPlan | None, tenants: Sequence[TenantPlan]) -> list[Object]:
    """All that a stack makes on the cluster."""
    return [*(platform.objects() if platform else ()), *(item for tenant in tenants for item in tenant.objects())]


def reach_hint(plan: Plan) -> str:
    """Hint for messages where no API server answers: how to create the cluster, and how to reach one on
    AWS. Empty without AWS."""
    if plan.account is None:
        return ""
    command = kubeconfig_command(plan.account.cluster, plan.account.region, plan.context)
    if plan.cluster is None:
        return f"; `{command}` adds the cluster to the kubeconfig"
    stack = plan.environment + CLUSTER_SUFFIX
    return f"; `pulumi up --stack {stack}` makes the cluster, and `{command}` adds it to the kubeconfig"
