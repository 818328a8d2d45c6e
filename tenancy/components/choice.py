"""Which tenant of which environment a component makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from tenancy.components.gpu_platform import GpuPlatform
from tenancy.components.kubernetes.guarded import Require, guarded, provider_of
from tenancy.planning import make_plan
from tenancy.planning.model import NamespacePlan, TenantPlan
from tenancy.planning.outputs import TenantOutputs, tenant_outputs
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant
from tenancy.validation.inputs import (
    EnvironmentInput,
    TenantInput,
    TenantsInput,
    load_model,
    load_models,
    load_specs,
    tenant_files_of,
    tenant_inputs,
)


@dataclass(frozen=True, slots=True)
class Choice:
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
        """What other resources build on, as plain data."""
        return tenant_outputs(self.environment, self.tenant, self.plan)

    def guards(self, component: pulumi.ComponentResource, require: Require) -> pulumi.Input[pulumi.Resource]:
        """Dependency on the guards: the platform's, or those of the component's cluster."""
        if self.platform:
            return self.platform.guards.gate
        name = self.tenant.tenant
        return guarded(name, provider_of(component, f"tenant {name}"), require)

    def namespace(self, part: str) -> NamespacePlan:
        """ValueError if the tenant has no namespace of that name."""
        for namespace, plan in zip(self.tenant.namespaces, self.plan.namespaces, strict=True):
            if part == namespace.name:
                return plan
        known = ", ".join(each.name for each in self.tenant.namespaces)
        raise ValueError(
            f"given namespace {part!r} of tenant {self.tenant.tenant}; rule: a namespace that its spec has; change: "
            f"use one of {known}"
        )


def chosen(
    name: str,
    environment: EnvironmentInput | None,
    tenant: TenantInput | None,
    tenants: TenantsInput | None,
    platform: GpuPlatform | None,
) -> Choice:
    """The tenant `tenant`, or else the one called `name`, of a platform or of an environment with all tenants.

    Raises SpecError with every problem of the specs, and ValueError for arguments that do not go together.
    """
    if platform and (environment is not None or tenants is not None):
        raise ValueError(
            f"given {name} with platform and with environment or tenants; rule: a platform has both already; change: "
            "drop them"
        )
    mine = load_model(Tenant, tenant) if tenant is not None else None
    wanted = mine.tenant if mine else name
    if platform:
        found = platform.tenant(wanted)
        if mine not in (None, found):
            raise ValueError(
                f"given tenant {wanted}, which differs from the platform's; rule: a platform knows all of its tenants; "
                "change: give the same to both, or the name alone here"
            )
        return Choice(platform.environment, found, platform.plan.tenant(wanted), platform)
    if environment is None:
        raise ValueError(
            f"given {name} without environment and platform; rule: a tenant's limits are its environment's; change: "
            "give platform=GpuPlatform(...), or environment= of the cluster's platform"
        )
    whole, every = load_specs(
        environment, _with(mine, tenant_files_of(environment) if tenants is None else tenant_inputs(tenants))
    )
    for each in every:
        if each.tenant == wanted:
            return Choice(whole, each, make_plan(whole, every).tenant(wanted), None)
    known = ", ".join(each.tenant for each in every) or "none"
    raise ValueError(
        f"given {name} without tenant, and tenants {known}; rule: its name is then a tenant's; change: give the tenant"
    )


def _with(mine: Tenant | None, given: Sequence[TenantInput]) -> Sequence[TenantInput]:
    """All tenants, this one among them. Only what is equal is the same: two that share a name are refused together."""
    if mine is None:
        return given
    rest = load_models(Tenant, given)
    return rest if mine in rest else [*rest, mine]
