"""From a valid spec and a day to the plan: a pure function, no engine, no network, no clock."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.kube.objects import digest
from tenancy.planning.aws.cluster import account_plan, cluster_plan
from tenancy.planning.aws.node_config import mig_parted
from tenancy.planning.aws.platform_plan import data_plan
from tenancy.planning.aws.tenant_plan import tenant_aws_plan
from tenancy.planning.common.charts import HelmChart
from tenancy.planning.common.device_classes import device_classes
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.priorities import priority_classes
from tenancy.planning.common.stages import active_tenants, with_former_namespaces
from tenancy.planning.guards import guard_objects, marker, readiness_probe
from tenancy.planning.kubernetes.access import cluster_roles, role_bindings
from tenancy.planning.kubernetes.cilium import namespace_policies, platform_network_policies, tenant_network_policies
from tenancy.planning.kubernetes.flow_control import flow_objects
from tenancy.planning.kubernetes.namespaces import namespace_meta, pod_security
from tenancy.planning.kubernetes.network import network_policies
from tenancy.planning.kubernetes.pod_defaults import pod_defaults
from tenancy.planning.kubernetes.queue_defaults import queue_defaults
from tenancy.planning.kubernetes.quotas import class_quotas, limit_range, resource_quota
from tenancy.planning.kubernetes.sandbox import runtime_classes
from tenancy.planning.kubernetes.service_accounts import default_account, service_accounts
from tenancy.planning.kubernetes.storage import storage_classes
from tenancy.planning.kubernetes.virtual_clusters import virtual_cluster
from tenancy.planning.observability.metrics import exporter_values, metrics_objects, metrics_prerequisites
from tenancy.planning.offboarding import without_write_grants
from tenancy.planning.plan_model import Admission, NamespacePlan, Plan, PlatformPlan, TenantPlan
from tenancy.planning.queueing.queues import local_queues, platform_queues, tenant_queues
from tenancy.planning.queueing.quota_shares import QuotaCalculator, shares
from tenancy.planning.services import metrics_charts, operator_values, queue_chart, services_plan
from tenancy.spec.checks.validator import ValidSpec
from tenancy.spec.fields.environment import Environment, GuardsMode
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.inputs import EnvironmentInput, TenantsInput, load_spec

__all__ = ["Plan", "PlatformPlan", "TenantPlan", "digest", "make_plan", "plan"]


def plan(
    environment: EnvironmentInput | ValidSpec, tenants: TenantsInput | None = None, *, day: dt.date | None = None
) -> Plan:
    """All objects and AWS resources of an environment, as plain data; nothing is asked of a cluster or of AWS.

    The arguments are those of `validate`; what `load` returned is taken as it is. Raises SpecError with every problem.
    """
    day = day or today()
    spec = environment if isinstance(environment, ValidSpec) else load_spec(environment, tenants, day)
    return make_plan(spec, day)


def make_plan(spec: ValidSpec, day: dt.date) -> Plan:
    """The plan of an environment on that day, whatever the order of its tenants."""
    environment = with_former_namespaces(spec.environment, spec.tenants)
    sorted_tenants = sorted(spec.tenants, key=lambda tenant: tenant.tenant)
    planned_tenants = active_tenants(sorted_tenants)
    chart = queue_chart(environment, planned_tenants)
    queue_shares, calculator = (
        (shares(environment, planned_tenants, day), QuotaCalculator(environment, day))
        if environment.has_queues
        else ({}, None)
    )

    def tenant_plan(tenant: Tenant) -> TenantPlan:
        if calculator is None:
            return _tenant(environment, tenant)
        cohort, queues = tenant_queues(environment, tenant, queue_shares[tenant.tenant], calculator)
        return replace(_tenant(environment, tenant), cohort=cohort, cluster_queues=queues)

    active_plans = {tenant.tenant: tenant_plan(tenant) for tenant in planned_tenants}
    return Plan(
        environment=environment.environment,
        context=environment.cluster.context,
        platform=replace(
            _platform(environment, planned_tenants, chart),
            queueing=platform_queues(environment, planned_tenants, queue_shares, calculator) if calculator else None,
            metrics_prerequisites=metrics_prerequisites(environment),
            metrics_charts=metrics_charts(environment),
            metrics=metrics_objects(environment, planned_tenants),
            exporters={**operator_values(environment, chart), **exporter_values(environment)},
            data=data_plan(environment, planned_tenants),
        ),
        tenants=tuple(
            active_plans.get(tenant.tenant) or TenantPlan(tenant.tenant, (), tenant.adopt) for tenant in sorted_tenants
        ),
        cluster=cluster_plan(environment, day),
        account=account_plan(environment),
        shares=queue_shares,
    )


def _admission(environment: Environment) -> Admission:
    return Admission(
        group=environment.platform.group,
        enforced=environment.guards is GuardsMode.ENFORCE,
        platform=frozenset(environment.system_namespaces),
        unmanaged=frozenset(environment.platform.unmanaged_namespaces),
        temporary=tuple(entry.name for entry in environment.platform.temporary_namespaces),
    )


def _platform(environment: Environment, tenants: Sequence[Tenant], chart: HelmChart | None) -> PlatformPlan:
    guards = guard_objects(environment)
    labels = {**platform_labels(environment), **pod_security(environment.cluster.kubernetes)}
    return PlatformPlan(
        namespace=manifest("v1", "Namespace", vocabulary.PLATFORM_NAMESPACE, labels, {}),
        priorities=priority_classes(environment),
        cluster_roles=cluster_roles(environment),
        guards=guards,
        readiness_probe=readiness_probe(environment, guards),
        marker=marker(environment, guards),
        admission=_admission(environment),
        device_classes=device_classes(environment),
        storage_classes=storage_classes(environment),
        flow_control=flow_objects(environment),
        pod_settings=(*pod_defaults(environment), *queue_defaults(environment), *runtime_classes(environment)),
        queue_chart=chart,
        cluster_policies=platform_network_policies(environment),
        services=services_plan(environment, tenants),
        mig_parted=mig_parted(environment),
    )


def _tenant(environment: Environment, tenant: Tenant) -> TenantPlan:
    return TenantPlan(
        name=tenant.tenant,
        namespaces=tuple(
            NamespacePlan(
                meta=namespace_meta(environment, tenant, namespace),
                quota=resource_quota(environment, tenant, namespace),
                class_quotas=class_quotas(environment, tenant, namespace),
                limits=limit_range(environment, tenant, namespace),
                default_account=default_account(environment, tenant, namespace),
                policies=network_policies(environment, tenant, namespace),
                cilium_policies=tuple(namespace_policies(environment, tenant, namespace)),
                local_queues=local_queues(environment, tenant, namespace),
                accounts=service_accounts(environment, tenant, namespace),
                bindings=role_bindings(environment, tenant, namespace),
                chart=virtual_cluster(environment, tenant, namespace),
            )
            for namespace in tenant.namespaces
        ),
        adopt=tenant.adopt,
        aws=without_write_grants(tenant, tenant_aws_plan(environment, tenant)),
        cluster_policies=tenant_network_policies(environment, tenant),
    )
