"""Services of a cluster with machines: add-ons, charts, and Karpenter's objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube import quantities
from tenancy.kube.objects import Object
from tenancy.planning.aws import identity, node_config
from tenancy.planning.aws.addons import AddOn, wanted_add_ons
from tenancy.planning.aws.karpenter import karpenter_objects
from tenancy.planning.common import charts, names, replicas
from tenancy.planning.common.charts import HelmChart, from_mirror
from tenancy.planning.common.pools import tolerations
from tenancy.planning.observability.metrics import COUNTERS, stack_values
from tenancy.planning.queueing.kueue import configuration
from tenancy.spec.checks.stored_objects import kueue_memory
from tenancy.spec.fields.cluster import Cni, Encryption
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """The role of a service account, by Pod Identity."""

    role: str
    """ARN."""
    service_account: str


@dataclass(frozen=True, slots=True)
class ServicesPlan:
    """The platform's own services: Helm charts and EKS add-ons."""

    cluster: str
    charts: tuple[HelmChart, ...]
    """In the order in which they are installed: each may depend on those before it."""
    network: str
    """The chart that pods need before they start: under Cilium one that comes before its agent has no identity."""
    queue: str
    """The chart that installs the queue; empty where the environment has no queue."""
    add_ons: tuple[AddOn, ...]
    """Those that need a network."""
    identities: dict[str, ServiceIdentity]
    """By purpose."""
    nodes: tuple[Object, ...]
    """Karpenter's objects."""
    tags: dict[str, str]


def services_plan(environment: Environment, tenants: Sequence[Tenant] = ()) -> ServicesPlan | None:
    """None where nothing is installed. `tenants` are those whose work Kueue caches."""
    builds_cluster = environment.builds_cluster
    installed_charts = tuple(from_mirror(environment, chart) for chart in _charts(environment, tenants))
    if not builds_cluster and not installed_charts:
        return None
    return ServicesPlan(
        cluster=environment.cluster.name,
        charts=installed_charts,
        network="cilium" if builds_cluster and environment.cluster.cni is Cni.CILIUM else "",
        queue="kueue" if environment.installs("kueue") else "",
        add_ons=tuple(add_on for add_on in wanted_add_ons(environment) if not add_on.before_nodes)
        if builds_cluster
        else (),
        identities={
            purpose: ServiceIdentity(identity.role_arn(environment, role), role.service_account[1])
            for purpose, role in identity.roles(environment).items()
            if role.service_account
        }
        if builds_cluster
        else {},
        nodes=karpenter_objects(environment),
        tags=names.tags(environment),
    )


def queue_chart(environment: Environment, tenants: Sequence[Tenant] = ()) -> HelmChart | None:
    """Kueue's chart; None where the environment has no queue. A lab runs it; the operator of a cluster that was not
    made here installs it."""
    return from_mirror(environment, _kueue(environment, tenants)) if environment.has_queues else None


def operator_values(environment: Environment, queues: HelmChart | None) -> dict[str, dict[str, Any]]:
    """Values of the charts that define the plan's kinds, by the chart's name, where the platform installs none.

    `queues` is that of `queue_chart`.
    """
    if environment.aws.enabled:
        return {}
    needed_charts = [queues]
    if environment.cluster.cni is Cni.CILIUM:
        wireguard = environment.cluster.encryption is Encryption.WIREGUARD
        system = replicas.system_nodes(environment)
        needed_charts.append(from_mirror(environment, charts.cilium(wireguard=wireguard, system=system)))
    return {chart.name: chart.values for chart in needed_charts if chart}


def _kueue(environment: Environment, tenants: Sequence[Tenant]) -> HelmChart:
    memory = quantities.write(Decimal(kueue_memory(environment, tenants)))
    return charts.kueue(configuration(environment, tenants), memory, system=replicas.system_nodes(environment))


def metrics_charts(environment: Environment) -> tuple[HelmChart, ...]:
    """Charts that collect metrics, where the platform installs them; the CRDs first."""
    metrics = environment.metrics
    if not metrics.installed:
        return ()
    stack = charts.prometheus_stack(
        metrics.namespace,
        stack_values(metrics),
        labels=metrics.labels,
        retention=metrics.retention,
        storage=metrics.storage,
        storage_class=vocabulary.STORAGE_CLASS,
        system=replicas.system_nodes(environment),
    )
    return tuple(from_mirror(environment, chart) for chart in (charts.prometheus_crds(metrics.namespace), stack))


def _charts(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[HelmChart]:
    pools, all_tolerations = environment.pools, tolerations(environment)
    builds_cluster = environment.builds_cluster
    system = replicas.system_nodes(environment)
    if builds_cluster and environment.cluster.cni is Cni.CILIUM:
        yield charts.cilium(wireguard=environment.cluster.encryption is Encryption.WIREGUARD)
    if environment.installs("kueue"):
        yield _kueue(environment, tenants)
    if builds_cluster and any(pool.is_autoscaled for pool in pools.values()):
        yield charts.karpenter_crds()
        yield charts.karpenter(
            cluster=environment.cluster.name,
            queue=names.karpenter_queue(environment),
            region=environment.aws.region,
        )
    if environment.installs("gpu-operator"):
        yield charts.gpu_operator(
            all_tolerations,
            device_plugin_configs=node_config.device_plugin_configs(environment),
            device_plugin=environment.installs("device-plugin"),
            exporter=environment.installs("dcgm-exporter"),
            counters=COUNTERS if environment.metrics.collected else "",
            system=system,
        )
    if environment.installs("dra-driver"):
        yield charts.dra_driver(all_tolerations)
    if environment.installs("efa-device-plugin"):
        yield charts.efa_plugin(all_tolerations, [name for name, pool in pools.items() if pool.efa])
