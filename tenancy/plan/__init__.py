"""From what people write to what is made: a pure function, no engine, no network, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenancy.catalog import vocabulary as words
from tenancy.plan.access import cluster_roles, role_bindings
from tenancy.plan.cilium import platform_fences, tenant_fences
from tenancy.plan.cluster import cluster_plan
from tenancy.plan.devices import device_classes
from tenancy.plan.guards import guard_objects, marker, witness
from tenancy.plan.labels import manifest, platform_labels
from tenancy.plan.leaving import only_reading, standing
from tenancy.plan.metrics import exporter_values, metrics_ground, metrics_objects
from tenancy.plan.model import NamespacePlan, Plan, PlatformPlan, TenantPlan, digest
from tenancy.plan.namespaces import namespace_object, pod_security
from tenancy.plan.network import network_policies
from tenancy.plan.pod_defaults import pod_defaults
from tenancy.plan.priorities import priority_classes
from tenancy.plan.queues import Ledger, local_queues, platform_queues, shares, tenant_queues
from tenancy.plan.quotas import class_quotas, limit_range, resource_quota
from tenancy.plan.sandbox import runtime_classes
from tenancy.plan.services import metrics_charts, queue_chart, services_plan
from tenancy.plan.shared_aws import data_plan
from tenancy.plan.storage import storage_classes
from tenancy.plan.tenants_own import tenant_aws_plan
from tenancy.plan.virtual_clusters import virtual_cluster
from tenancy.plan.workloads import default_account, service_accounts
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Tenant

__all__ = ["Plan", "PlatformPlan", "TenantPlan", "digest", "make_plan"]


def make_plan(environment: Environment, tenants: Sequence[Tenant]) -> Plan:
    """The plan of an environment, whatever the order of its tenants."""
    everybody = sorted(tenants, key=lambda tenant: tenant.tenant)
    ordered = standing(everybody)
    found, ledger = (shares(environment, ordered), Ledger(environment)) if environment.queued else ({}, None)
    made = {
        tenant.tenant: replace(
            _tenant(environment, tenant),
            queues=tenant_queues(environment, tenant, found[tenant.tenant], ledger) if ledger else (),
        )
        for tenant in ordered
    }
    return Plan(
        environment=environment.environment,
        context=environment.cluster.context,
        platform=replace(
            _platform(environment),
            queues=tuple(platform_queues(environment, ordered, found, ledger)) if ledger else (),
            metrics_ground=metrics_ground(environment),
            metrics_charts=metrics_charts(environment),
            metrics=metrics_objects(environment, ordered),
            exporters=exporter_values(environment),
            data=data_plan(environment, ordered),
        ),
        tenants=tuple(made.get(t.tenant) or TenantPlan(t.tenant, (), t.adopt) for t in everybody),
        cluster=cluster_plan(environment),
    )


def _platform(environment: Environment) -> PlatformPlan:
    guards = guard_objects(environment)
    labels = {**platform_labels(environment), **pod_security(environment.cluster.kubernetes)}
    return PlatformPlan(
        namespace=manifest("v1", "Namespace", words.PLATFORM_NAMESPACE, labels, {}),
        priorities=priority_classes(environment),
        roles=cluster_roles(environment),
        guards=guards,
        witness=witness(environment, guards),
        marker=marker(environment, guards),
        device_classes=device_classes(environment),
        storage_classes=storage_classes(environment),
        pod_settings=(*pod_defaults(environment), *runtime_classes(environment)),
        queue_chart=queue_chart(environment),
        fences=platform_fences(environment),
        services=services_plan(environment),
    )


def _tenant(environment: Environment, tenant: Tenant) -> TenantPlan:
    return TenantPlan(
        name=tenant.tenant,
        namespaces=tuple(
            NamespacePlan(
                namespace=namespace_object(environment, tenant, namespace),
                isolation=(
                    resource_quota(environment, tenant, namespace),
                    *class_quotas(environment, tenant, namespace),
                    limit_range(environment, tenant, namespace),
                    default_account(environment, tenant, namespace),
                    *network_policies(environment, tenant, namespace),
                    *local_queues(environment, tenant, namespace),
                ),
                access=(
                    *service_accounts(environment, tenant, namespace),
                    *role_bindings(environment, tenant, namespace),
                ),
                chart=virtual_cluster(environment, tenant, namespace),
            )
            for namespace in tenant.namespaces
        ),
        adopt=tenant.adopt,
        aws=only_reading(tenant, tenant_aws_plan(environment, tenant)),
        fences=tenant_fences(environment, tenant),
    )
