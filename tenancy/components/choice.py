"""The tenant and the environment of a component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from tenancy.catalog.days import today
from tenancy.components.gpu_platform import GpuPlatform
from tenancy.components.kubernetes.guarded import Require, guards_judge, provider_of
from tenancy.planning import make_plan
from tenancy.planning.outputs import TenantOutputs, tenant_outputs
from tenancy.planning.plan_model import NamespacePlan, TenantPlan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.inputs import (
    EnvironmentInput,
    TenantInput,
    TenantsInput,
    load_model,
    load_models,
    load_spec,
    tenant_files_of,
    tenant_inputs,
)


@dataclass(frozen=True, slots=True)
class ResolvedTenant:
    """A tenant, its environment and its plan; and the platform, if the same program makes it."""

    environment: Environment
    tenant: Tenant
    plan: TenantPlan
    platform: GpuPlatform | None

    @property
    def gate(self) -> Sequence[pulumi.Input[pulumi.Resource]]:
        """Dependencies besides the guards."""
        return self.platform.gate if self.platform else ()

    def outputs(self) -> TenantOutputs:
        """Outputs for other resources, as plain data."""
        return tenant_outputs(self.environment, self.tenant, self.plan)

    def guards(self, component: pulumi.ComponentResource, require: Require) -> pulumi.Input[pulumi.Resource]:
        """Dependency on the guards: the platform's, or those of the component's cluster."""
        if self.platform:
            return self.platform.guards.gate
        name = self.tenant.tenant
        return guards_judge(name, provider_of(component, f"tenant {name}"), require)

    def namespace(self, part: str) -> NamespacePlan:
        """ValueError if the tenant has no namespace of that name."""
        for namespace, plan in zip(self.tenant.namespaces, self.plan.namespaces, strict=True):
            if part == namespace.name:
                return plan
        known_names = ", ".join(namespace_spec.name for namespace_spec in self.tenant.namespaces)
        raise ValueError(
            f"given namespace {part!r} of tenant {self.tenant.tenant}; rule: a namespace that its spec has; change: "
            f"use one of {known_names}"
        )


def resolve_tenant(
    name: str,
    environment: EnvironmentInput | None,
    tenant: TenantInput | None,
    tenants: TenantsInput | None,
    platform: GpuPlatform | None,
) -> ResolvedTenant:
    """The tenant `tenant`, or else the one called `name`, of a platform or of an environment with all tenants.

    Raises SpecError with every problem of the specs, and ValueError for arguments that do not go together.
    """
    if platform and (environment is not None or tenants is not None):
        raise ValueError(
            f"given {name} with platform and with environment or tenants; rule: a platform has both already; change: "
            "drop them"
        )
    given_tenant = load_model(Tenant, tenant) if tenant is not None else None
    tenant_name = given_tenant.tenant if given_tenant else name
    if platform:
        platform_tenant = platform.tenant(tenant_name)
        if given_tenant not in (None, platform_tenant):
            raise ValueError(
                f"given tenant {tenant_name}, which differs from the platform's; rule: a platform knows all of its "
                "tenants; change: give the same to both, or the name alone here"
            )
        return ResolvedTenant(platform.environment, platform_tenant, platform.plan.tenant(tenant_name), platform)
    if environment is None:
        raise ValueError(
            f"given {name} without environment and platform; rule: a tenant's limits are its environment's; change: "
            "give platform=GpuPlatform(...), or environment= of the cluster's platform"
        )
    day = today()
    other_tenants = tenant_files_of(environment) if tenants is None else tenant_inputs(tenants)
    spec = load_spec(environment, _with_tenant(given_tenant, other_tenants), day)
    for tenant_spec in spec.tenants:
        if tenant_spec.tenant == tenant_name:
            return ResolvedTenant(spec.environment, tenant_spec, make_plan(spec, day).tenant(tenant_name), None)
    known_names = ", ".join(tenant_spec.tenant for tenant_spec in spec.tenants) or "none"
    raise ValueError(
        f"given {name} without tenant, and tenants {known_names}; rule: its name is then a tenant's; "
        "change: give the tenant"
    )


def _with_tenant(tenant: Tenant | None, tenants: Sequence[TenantInput]) -> Sequence[TenantInput]:
    """All tenants, this one among them. Only what is equal is the same: two that share a name are refused together."""
    if tenant is None:
        return tenants
    other_tenants = load_models(Tenant, tenants)
    return other_tenants if tenant in other_tenants else [*other_tenants, tenant]
