"""The program of a stack, given what its config says."""

from __future__ import annotations

import gc
from enum import StrEnum

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy.components.platform import Platform
from tenancy.components.tenant import Tenant
from tenancy.plan import Plan, digest
from tenancy.plan.model import PlatformPlan, TenantPlan


class Scope(StrEnum):
    """What a stack owns."""

    ALL = "all"  # a small environment: one stack
    PLATFORM = "platform"  # what is cluster-wide
    TENANT = "tenant"  # one tenant's own objects


def select(plan: Plan, scope: Scope, tenant: str | None) -> tuple[PlatformPlan | None, tuple[TenantPlan, ...]]:
    """The part of the plan that a stack owns; KeyError if the tenant is unknown."""
    if scope is Scope.TENANT:
        return None, (plan.tenant(tenant or ""),)
    return plan.platform, plan.tenants if scope is Scope.ALL else ()


def build(plan: Plan, scope: Scope, platform: PlatformPlan | None, tenants: tuple[TenantPlan, ...]) -> None:
    """Register the stack's resources."""
    # The collector would walk all resources again and again: half of the time at a thousand of them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)

    provider = kubernetes.Provider("kubernetes", context=plan.context)
    inherited = pulumi.ResourceOptions(providers=[provider])
    gate: list[pulumi.Resource] = []
    if platform:
        # A tenant's own stack stands on these guards: they go only when somebody unprotects them.
        protect = scope is Scope.PLATFORM
        options = pulumi.ResourceOptions(providers=[provider], protect=protect)
        gate = [Platform("platform", platform, options).marker]
    for tenant in tenants:
        Tenant(tenant.name, tenant, gate, inherited)
    owned = [*(platform.objects() if platform else ()), *(o for t in tenants for o in t.objects())]
    pulumi.export("digest", digest(owned))
