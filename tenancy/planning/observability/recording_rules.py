"""Prometheus' recording rules of an environment: facts of its files, and series that carry tenant and owner.

Metrics by their exporters' names, as in `planning/observability/alerts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.bandwidth import GIGABITS, PCIE_BYTES
from tenancy.catalog.boards import BOARDS
from tenancy.catalog.exporters import label_name, metric_name
from tenancy.planning.aws.prices import node_prices
from tenancy.planning.queueing.queue_names import queue_name
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

Rule = dict[str, Any]

POOL_LABEL = label_name(vocabulary.POOL)
ACTIVE_PHASES = ("Pending", "Running")
"""Phases of a pod that has not ended. One that has a node has its devices too."""

ENVIRONMENT_INFO = "tenancy:environment:info"
"""1 for each environment whose rules a Prometheus evaluates; without them it knows no alert of the environment."""
NAMESPACE_INFO = "tenancy:namespace:info"
QUEUE_INFO = "tenancy:queue:info"
GPU_BUSY = "tenancy:gpu:busy"
NODE_POOL = "tenancy:node:pool"
POD_WORKLOAD = "tenancy:pod:workload"
DEVICE_INFO = "tenancy:device:info"
REQUESTED_GPUS = "tenancy:pod:requested_gpus"
POD_GPUS = "tenancy:pod:gpus"
CURRENT_GPUS = "tenancy:current_gpus"
GPU_SECONDS = "tenancy:gpu_seconds_total"
USD_PER_HOUR = "tenancy:tenant:usd_per_hour"


def _record(name: str, expr: str, **labels: str) -> Rule:
    return {"record": name, "expr": expr, **({"labels": labels} if labels else {})}


def owner_rules(environment: Environment, tenants: Iterable[Tenant]) -> Iterator[Rule]:
    """Rules that name the owner of each tenant, namespace and queue."""
    for tenant in tenants:
        owner_labels = {"tenant": tenant.tenant, "owner": tenant.owner.name}
        yield _record("tenancy:tenant:info", "vector(1)", **owner_labels)
        for part in tenant.namespaces:
            queue = {"queue": queue_name(tenant.tenant, tenant.tier_of(part))} if environment.has_queues else {}
            yield _record(NAMESPACE_INFO, "vector(1)", namespace=tenant.namespace_name(part), **queue, **owner_labels)
        for tier in sorted(tenant.tiers) if environment.has_queues else ():
            facts = {"cluster_queue": queue_name(tenant.tenant, tier), "tier": tier, **owner_labels}
            yield _record(QUEUE_INFO, "vector(1)", **facts)
            wait = f"vector({environment.metrics.wait_of(tier)})"
            yield _record("tenancy:queue:longest_wait_seconds", wait, cluster_queue=facts["cluster_queue"])
        if tenant.budget:
            yield _record("tenancy:tenant:budget_usd", f"vector({tenant.budget.monthly_usd})", **owner_labels)


def fact_rules(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Rule]:
    """Rules of pools, pods and devices, and of what tenants use and spend."""
    yield _record(ENVIRONMENT_INFO, "vector(1)", environment=environment.environment)
    pool = f'label_replace(kube_node_labels{{{POOL_LABEL}!=""}}, "pool", "$1", "{POOL_LABEL}", "(.+)")'
    yield _record(NODE_POOL, f"max by (node, pool) ({pool})")
    owner = 'label_replace(topk by (namespace, pod) (1, kube_pod_owner), "workload", "$1", "owner_name", "(.+)")'
    owner = f'label_replace({owner}, "job_type", "$1", "owner_kind", "(.+)")'
    yield _record(POD_WORKLOAD, f"max by (namespace, pod, workload, job_type) ({owner})")
    # NVML has no use of a MIG slice; the profiling counter has, and some boards lack that one.
    yield _record(
        GPU_BUSY,
        "max by (namespace, pod, container, Hostname, gpu, UUID, modelName, GPU_I_PROFILE, GPU_I_ID) "
        '(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""} or DCGM_FI_DEV_GPU_UTIL{pod!="", GPU_I_PROFILE=""} / 100)',
    )
    requests_by_pod = (
        "max by (namespace, pod, container, node, resource) "
        '(kube_pod_container_resource_requests{node!="", resource=~"nvidia_com_.+"})'
    )
    for name, pool in environment.pools.items():
        for flavor in () if environment.uses_device_claims else environment.flavors_of(name):
            facts = {"gpu_type": flavor, "purchase": pool.purchase.option}
            resource = metric_name(environment.resource_of(flavor))
            yield _record(DEVICE_INFO, "vector(1)", pool=name, resource=resource, **facts)
    yield _record(
        REQUESTED_GPUS,
        f"sum by (namespace, pod, node, resource) ({requests_by_pod}) * on (node) group_left (pool) {NODE_POOL} "
        f"* on (namespace) group_left (tenant, owner, queue) {NAMESPACE_INFO}",
    )
    typed = _where_known(REQUESTED_GPUS, "pool, resource", "gpu_type, purchase", DEVICE_INFO)
    yield _record(POD_GPUS, _where_known(typed, "namespace, pod", "job_type", POD_WORKLOAD))
    is_active, has_ended = pods_in_phase(*ACTIVE_PHASES), pods_in_phase("Succeeded", "Failed")
    kinds = "tenant, owner, namespace, queue, job_type, pool, resource, gpu_type, purchase"
    yield _record(CURRENT_GPUS, f"sum by ({kinds}) ({POD_GPUS} and on (namespace, pod) ({is_active}))")
    # Of each pod, never a sum of pods: a sum falls when a pod goes, and a counter that falls has begun anew. From when
    # the pod got its node, not from the first sample: so nothing is lost while Prometheus is down.
    scheduled_at = "max by (namespace, pod) (kube_pod_status_scheduled_time)"
    completed_at = (
        f"(max by (namespace, pod) (kube_pod_completion_time) and on (namespace, pod) ({has_ended})) "
        f"or (0 * {scheduled_at} + time() and on (namespace, pod) ({is_active}))"
    )
    yield _record(GPU_SECONDS, f"{POD_GPUS} * on (namespace, pod) group_left () (({completed_at}) - {scheduled_at})")
    for name, pool in environment.pools.items():
        if pool.instance_type in GIGABITS:
            yield _record("tenancy:pool:network_bits", f"vector({GIGABITS[pool.instance_type] * 1e9:.0f})", pool=name)
        if pool.machine.gpus:
            link = PCIE_BYTES[BOARDS[pool.machine.gpu].architecture]
            yield _record("tenancy:pool:pcie_bytes", f"vector({link:.0f})", pool=name)
    prices = dict(device_prices(environment))
    for (name, resource), price in prices.items():
        yield _record("tenancy:device:usd_per_hour", f"vector({float(price):.6f})", pool=name, resource=resource)
    if prices and tenants:
        spending = f"{CURRENT_GPUS} * on (pool, resource) group_left () tenancy:device:usd_per_hour"
        # A tenant without GPUs in use spends nothing: without the zero its average would leave these hours out.
        yield _record(USD_PER_HOUR, f"sum by (tenant, owner) ({spending}) or on (tenant) tenancy:tenant:info * 0")


def device_prices(environment: Environment) -> Iterator[tuple[tuple[str, str], Fraction]]:
    """Dollars an hour of a device with its part of the node, where a price is known."""
    for name, node in node_prices(environment).items():
        if node is None or environment.uses_device_claims:
            continue
        for flavor in environment.flavors_of(name):
            price = node * part_of_node(environment, name, flavor)
            yield (name, metric_name(environment.resource_of(flavor))), price


def pods_in_phase(*phases: str) -> str:
    """Pods in one of the phases."""
    return f'max by (namespace, pod) (kube_pod_status_phase{{phase=~"{"|".join(phases)}"}}) == 1'


def _where_known(expr: str, keys: str, extra_labels: str, facts: str) -> str:
    """With more labels from `facts`, and without them where those say nothing."""
    return f"({expr} * on ({keys}) group_left ({extra_labels}) {facts} or on ({keys}) {expr})"
