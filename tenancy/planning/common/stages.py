"""The effective spec of a tenant, where it has less than its file says: one that leaves, by its stage, and one whose
people work in virtual clusters. The one place where this is decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.queues import StopPolicy
from tenancy.spec.fields.tenant import OffboardingStage, Tenant
from tenancy.spec.loader import Loaded


def active_tenants(tenants: Iterable[Tenant]) -> tuple[Tenant, ...]:
    """The tenants that have something, each with what it has at its stage."""
    return tuple(effective_at_stage(tenant) for tenant in tenants if tenant.offboarding is not OffboardingStage.REMOVE)


def without_removed_tenants(loaded: Loaded) -> Loaded:
    """The environment without the tenants that were removed, for what reports or simulates the others."""
    return replace(loaded, tenants=active_tenants(loaded.tenants))


def with_former_namespaces(environment: Environment, tenants: Iterable[Tenant]) -> Environment:
    """The environment in which adopted namespaces whose tenant has left are unmanaged: they existed before the tenant,
    stay without it, and their own work goes on."""
    former_namespaces = {
        tenant.namespace_name(space)
        for tenant in tenants
        if tenant.adopt and tenant.offboarding is OffboardingStage.REMOVE
        for space in tenant.namespaces
    }
    if not former_namespaces:
        return environment
    unmanaged = tuple(sorted({*environment.platform.unmanaged_namespaces, *former_namespaces}))
    platform = environment.platform.model_copy(update={"unmanaged_namespaces": unmanaged})
    return environment.model_copy(update={"platform": platform})


def effective_at_stage(tenant: Tenant) -> Tenant:
    """Reduces all roles to reading, and in a tenant that leaves admits no new work.

    People of a virtual cluster work with its own API server. A right to create pods in the host namespace, or to exec
    into the virtual control plane, would bypass its isolation.

    Running work may end, so a tenant whose removal is reverted loses none of it. `stop-policy: hold-and-drain` in the
    file evicts
    running work too. Isolation resources, guards and the grants of running work stay. GPU grants stay as well: without
    a role that creates work they have no effect, and a namespace without any opens its GPUs to all.
    """
    if tenant.offboarding is None and not tenant.in_virtual_clusters:
        return tenant
    queue_state = StopPolicy.HOLD_AND_DRAIN if tenant.stop_policy is StopPolicy.HOLD_AND_DRAIN else StopPolicy.HOLD
    return tenant.model_copy(
        update={
            "people": tuple(person.model_copy(update={"role": Role.VIEWER}) for person in tenant.people),
            "ci": tenant.ci and tenant.ci.model_copy(update={"role": Role.VIEWER.value}),
            "stop_policy": queue_state if tenant.offboarding else tenant.stop_policy,
        }
    )
