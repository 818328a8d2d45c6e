"""Outputs of a stack for other programs: names and a sample of each tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from tenancy.kube.objects import Object
from tenancy.planning.kubernetes.samples import sample_to_create
from tenancy.planning.plan_model import TenantPlan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant


@dataclass(frozen=True, slots=True)
class TenantOutputs:
    """Plain data; maps are by the namespace's name in the tenant, such as `train`."""

    namespaces: dict[str, str]
    """Name on the cluster, such as `fraud--train`."""
    service_accounts: dict[str, list[str]]
    """Accounts that are made for pods; with AWS grants the first one has them."""
    role_arns: dict[str, str]
    """Role of the namespace's pods, and under `ci` that of the tenant's pipeline."""
    queues: dict[str, list[str]]
    """Kueue's LocalQueues; empty without queues."""
    buckets: dict[str, list[dict[str, str]]]
    """Grants by bucket: prefix, access, and the access point's ARN where it has one."""
    sample_job: Object | None
    """A Job on one GPU of the first flavor, for `kubectl create`; without GPUs on none. None if the tenant leaves."""


def tenant_outputs(environment: Environment, tenant: Tenant, plan: TenantPlan) -> TenantOutputs:
    """The outputs of one tenant; `plan` is its part of the environment's plan."""
    planned = {space.name: space for space in plan.namespaces}
    spaces = {n.name: planned[name] for n in tenant.namespaces if (name := tenant.namespace_name(n)) in planned}
    aws = plan.aws
    roles = {role.purpose: role.arn for role in aws.roles} if aws else {}
    by_name = {space.name: part for part, space in spaces.items()}
    roles |= {by_name[association.namespace]: association.role for association in (aws.associations if aws else ())}
    points = {point.bucket: point.arn for point in (aws.access_points if aws else ())}
    buckets: dict[str, list[dict[str, str]]] = {}
    for grant in tenant.storage:
        entry = {"prefix": grant.prefix, "access": str(grant.access)}
        if grant.bucket in points:
            entry["access_point"] = points[grant.bucket]
        buckets.setdefault(grant.bucket, []).append(entry)
    return TenantOutputs(
        namespaces={part: space.name for part, space in spaces.items()},
        service_accounts={part: _names_of_kind("ServiceAccount", space.access) for part, space in spaces.items()},
        role_arns=roles,
        queues={part: _names_of_kind("LocalQueue", space.isolation) for part, space in spaces.items()},
        buckets=buckets,
        sample_job=_sample(environment, tenant) if spaces and not tenant.offboarding else None,
    )


def stack_outputs(environment: Environment, tenants: Sequence[Tenant], plans: Sequence[TenantPlan]) -> dict[str, Any]:
    """The outputs of a stack with these tenants: each of `TenantOutputs`, by tenant."""
    tenants_by_name = {tenant.tenant: tenant for tenant in tenants}
    outputs_by_tenant = {plan.name: tenant_outputs(environment, tenants_by_name[plan.name], plan) for plan in plans}
    names = [field.name for field in fields(TenantOutputs)]
    return {name: {tenant: getattr(outputs, name) for tenant, outputs in outputs_by_tenant.items()} for name in names}


def _names_of_kind(kind: str, objects: Sequence[Object]) -> list[str]:
    return [item["metadata"]["name"] for item in objects if item["kind"] == kind]


def _sample(environment: Environment, tenant: Tenant) -> Object:
    for namespace in tenant.namespaces:
        for flavor, count in tenant.guaranteed_in(namespace).items():
            if count:
                return sample_to_create("job", environment, tenant, namespace, {flavor: 1})
    return sample_to_create("job", environment, tenant, tenant.namespaces[0], {})
