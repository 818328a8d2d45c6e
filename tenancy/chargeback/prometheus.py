"""Read held capacity and use from Prometheus: metrics of kube-state-metrics, DCGM and Kueue.

Metrics: kube-state-metrics v2 `docs/metrics` (labels need `--metric-labels-allowlist`), dcgm-exporter with pod labels,
Kueue v0.19.2 `pkg/metrics/metrics.go`. Equal samples in sequence become one time interval.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from tenancy.catalog import boards, vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.catalog.exporters import label_name as label
from tenancy.catalog.exporters import metric_name as resource
from tenancy.cluster.prometheus import PAGE, Prometheus, Samples, is_address
from tenancy.planning.queueing.queue_names import ANY_POOL, pool_of, queue_resource
from tenancy.rules.catalogue import Violation
from tenancy.spec.fields.costs import UsageKind
from tenancy.spec.fields.environment import Environment

TRIES = 4
TIMEOUT = 120

Labels = Mapping[str, str]
Rows = list[dict[str, Any]]


def prometheus_at(address: str, token: str = "", pause: Callable[[float], None] = time.sleep) -> Prometheus:
    """The Prometheus of an address, for queries of months; Violation (bill-10) if it is none."""
    if not is_address(address):
        raise Violation("bill-10", f"--prometheus {address!r}", "write it like http://prometheus.monitoring:9090")
    return Prometheus(address, token, timeout=TIMEOUT, tries=TRIES, pause=pause)


_TENANT, _POOL = label(vocabulary.TENANT), label(vocabulary.POOL)
_TYPE, _CAPACITY = label("node.kubernetes.io/instance-type"), label("karpenter.sh/capacity-type")
_EKS_CAPACITY, _QUEUE = label("eks.amazonaws.com/capacityType"), label(QUEUE_NAME)

_ACTIVE = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"}) == 1'
_BUSY = (
    "max by (exported_namespace, namespace, modelName, GPU_I_PROFILE, UUID, GPU_I_ID) "
    '(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""} or DCGM_FI_DEV_GPU_UTIL{pod!="", GPU_I_PROFILE=""} / 100)'
)
_QUEUE_OF = "max by (cluster_queue, flavor, resource)"
# Exporters have two replicas, and Kueue's followers export the leader's values: first the max of each, then the sum.
QUERIES = {
    "nodes": f"max by (node, {_POOL}, {_TYPE}, {_CAPACITY}, {_EKS_CAPACITY}) (kube_node_labels)",
    "namespaces": f'max by (namespace, {_TENANT}) (kube_namespace_labels{{{_TENANT}!=""}})',
    "allocations": "sum by (namespace, pod, node, resource) (max by (namespace, pod, container, node, resource) "
    '(kube_pod_container_resource_requests{node!="", resource=~"cpu|memory|nvidia_com_.+"})) '
    f"and on (namespace, pod) ({_ACTIVE})",
    "labels": f"max by (namespace, pod, {_TENANT}, {_QUEUE}) (last_over_time(kube_pod_labels[{PAGE}s]))",
    "owners": f"max by (namespace, pod, owner_name) (last_over_time(kube_pod_owner[{PAGE}s]))",
    "guarantees": f"{_QUEUE_OF} (kueue_cluster_queue_nominal_quota)",
    "lends": f"{_QUEUE_OF} (kueue_cluster_queue_lending_limit)",
    "used": f"avg by (exported_namespace, namespace, modelName, GPU_I_PROFILE) ({_BUSY})",
    # Volumes of a provisioner have this name; those that the platform created are not the tenant's.
    "claims": "sum by (namespace) (max by (namespace, persistentvolumeclaim) "
    "(kube_persistentvolumeclaim_resource_requests_storage_bytes) "
    'and on (namespace, persistentvolumeclaim) kube_persistentvolumeclaim_info{volumename=~"pvc-.+"})',
    "devices": f"count by (exported_namespace, namespace, modelName, GPU_I_PROFILE) ({_BUSY})",
}


def read_tables(
    source: Prometheus, environment: Environment, start: int, end: int, step: int
) -> dict[str, pl.DataFrame]:
    """The tables of a range."""
    if environment.uses_device_claims:
        observation = "--prometheus with cluster.devices: dra"
        raise Violation("bill-10", observation, "use --tables: kube-state-metrics has no devices of claims")
    first = start // step * step  # a range may begin between two scrapes; the one before it is needed
    last = end - 1

    def query_runs(name: str) -> Iterator[tuple[Labels, int, int, float]]:
        yield from _runs(source.range(QUERIES[name], first, last, step), step)

    nodes = [
        {
            "time": sample_time,
            "node": labels.get("node", ""),
            "pool": labels[_POOL],
            "instance": labels.get(_TYPE, ""),
            "purchase": "spot" if (labels.get(_CAPACITY) or labels.get(_EKS_CAPACITY) or "").lower() == "spot" else "",
        }
        for labels, samples in source.range(QUERIES["nodes"], first, last, step)
        if labels.get(_POOL)
        for sample_time, _ in samples
    ]
    if not nodes:
        observation = f"{source.address} without kube_node_labels with {_POOL} in the whole range"
        raise Violation("bill-10", observation, "allow the labels of nodes in kube-state-metrics, or check the range")
    pool_of = {str(row["node"]): str(row["pool"]) for row in nodes}
    pod_owners = _pod_owners(source, first, last)
    frames: dict[str, Rows] = {
        "nodes": nodes,
        "allocations": list(_allocations(query_runs("allocations"), environment, pool_of, pod_owners)),
        "namespaces": [
            {"namespace": labels["namespace"], "tenant": labels[_TENANT], "start": since, "end": until}
            for labels, since, until, _ in query_runs("namespaces")
        ],
        "guarantees": list(_guarantees(query_runs("guarantees"), query_runs("lends"), environment)),
        "used": list(_device_use(source, environment, first, last, step)),
        "lines": [
            {
                "kind": UsageKind.STORAGE,
                "id": "volumes",
                "namespace": labels["namespace"],
                "quantity": value / 2**30,
                "start": since,
                "end": until,
            }
            for labels, since, until, value in query_runs("claims")
        ]
        if UsageKind.STORAGE in environment.costs.rates
        else [],
    }
    if not frames["allocations"]:  # a month without held capacity is a table without rows
        columns = {"namespace": "", "workload": "", "node": "", "flavor": "", "count": 0, "start": start, "end": start}
        return {name: pl.DataFrame(rows) for name, rows in frames.items() if rows} | {
            "allocations": pl.DataFrame([columns]).clear()
        }
    return {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in frames.items() if rows}


def _runs(series: Iterator[tuple[Labels, Samples]], step: int) -> Iterator[tuple[Labels, int, int, float]]:
    """Consecutive samples with the same value as one interval."""
    for labels, samples in series:
        run_start = previous_time = 0
        value: float | None = None
        for sample_time, sample_value in samples:
            if value is not None and sample_value == value and sample_time - previous_time == step:
                previous_time = sample_time
                continue
            if value is not None:
                yield labels, run_start, previous_time + step, value
            run_start = previous_time = sample_time
            value = sample_value
        if value is not None:
            yield labels, run_start, previous_time + step, value


def _pod_owners(source: Prometheus, first: int, last: int) -> dict[tuple[str, str], dict[str, str]]:
    """Tenant, queue and owner of each pod."""
    owner_by_pod: dict[tuple[str, str], dict[str, str]] = {}
    until = last + PAGE  # each query looks back over one page
    for labels, _ in source.range(QUERIES["labels"], first, until, PAGE):
        pod_labels = {"tenant": labels.get(_TENANT, ""), "queue": labels.get(_QUEUE, "")}
        owner_by_pod.setdefault((labels["namespace"], labels["pod"]), {}).update(pod_labels)
    for labels, _ in source.range(QUERIES["owners"], first, until, PAGE):
        owner_by_pod.setdefault((labels["namespace"], labels["pod"]), {})["workload"] = labels.get("owner_name", "")
    return owner_by_pod


def _allocations(
    runs: Iterator[tuple[Labels, int, int, float]],
    environment: Environment,
    pool_of: Mapping[str, str],
    pod_owners: Mapping[tuple[str, str], Mapping[str, str]],
) -> Iterator[dict[str, Any]]:
    """A row for each resource of a pod: devices as flavors of the node's pool; the first row also has the pod's CPU and
    memory."""
    by_pod: dict[tuple[str, str, str], list[tuple[str, int, int, float]]] = {}
    for labels, since, until, value in runs:
        by_pod.setdefault((labels["namespace"], labels["pod"], labels["node"]), []).append(
            (labels["resource"], since, until, value)
        )
    for (namespace, pod, node), labels in sorted(by_pod.items()):
        pod_owner = pod_owners.get((namespace, pod), {})
        base = {
            "namespace": namespace,
            "workload": pod_owner.get("workload") or pod,
            "pod": pod,
            "queue": pod_owner.get("queue", ""),
            "tenant": pod_owner.get("tenant", ""),
            "node": node,
        }
        flavors = _flavors(environment, pool_of.get(node, ""))
        devices = [row for row in labels if row[0] not in {"cpu", "memory"}]
        cpu_and_memory = {
            "cpu": max((value for name, _, _, value in labels if name == "cpu"), default=0.0),
            "memory": int(max((value for name, _, _, value in labels if name == "memory"), default=0)),
        }
        # CPU and memory are on the row of the devices; on a row of their own they would count twice.
        rows = devices or [row for row in labels if row[0] == ("cpu" if cpu_and_memory["cpu"] else "memory")]
        first = rows[0][0] if rows else ""
        for name, since, until, value in rows:
            flavor = flavors.get(name, name) if devices else ""
            extra = cpu_and_memory if name == first else {"cpu": 0.0, "memory": 0}
            yield {
                **base,
                "flavor": flavor,
                "count": int(value) if devices else 0,
                **extra,
                "start": since,
                "end": until,
            }


def _flavors(environment: Environment, pool: str) -> dict[str, str]:
    """Flavors of a pool by the names of their resources in kube-state-metrics."""
    if pool not in environment.pools:
        return {}
    return {resource(environment.resource_of(flavor)): flavor for flavor in environment.flavors_of(pool)}


def _guarantees(
    runs: Iterator[tuple[Labels, int, int, float]],
    lending_runs: Iterator[tuple[Labels, int, int, float]],
    environment: Environment,
) -> Iterator[dict[str, Any]]:
    """Guarantees as configured in Kueue, with the lending limit in the same row for the time that both are constant."""
    limits = {(tuple(sorted(labels.items())), since, until): value for labels, since, until, value in lending_runs}
    for labels, since, until, value in runs:
        pool = pool_of(labels["flavor"])
        tenant, mark, _ = labels["cluster_queue"].partition(vocabulary.SEPARATOR)
        if pool == ANY_POOL or pool not in environment.pools or not mark:
            continue
        for flavor in environment.flavors_of(pool):
            if queue_resource(environment, flavor) == labels["resource"] and value:
                limit = limits.get((tuple(sorted(labels.items())), since, until), 0.0)
                yield {
                    "tenant": tenant,
                    "pool": pool,
                    "flavor": flavor,
                    "count": int(value),
                    "lends": int(value if math.isinf(limit) else min(limit, value)),
                    "start": since,
                    "end": until,
                }


def _device_use(
    source: Prometheus, environment: Environment, first: int, last: int, step: int
) -> Iterator[dict[str, Any]]:
    """Use of each namespace's devices of a kind; their number comes from a second query."""
    kinds = {
        (boards.PRODUCTS.get(flavor.gpu, ""), flavor.mig or ""): name for name, flavor in environment.flavors.items()
    }
    counts = {
        (tuple(sorted(labels.items())), sample_time): value
        for labels, samples in source.range(QUERIES["devices"], first, last, step)
        for sample_time, value in samples
    }
    for labels, samples in source.range(QUERIES["used"], first, last, step):
        flavor = kinds.get((labels.get("modelName", ""), labels.get("GPU_I_PROFILE", "")))
        namespace = labels.get("exported_namespace") or labels.get("namespace")
        if not flavor or not namespace:
            continue
        for sample_time, value in samples:
            devices = int(counts.get((tuple(sorted(labels.items())), sample_time), 1))
            use = min(max(value, 0.0), 1.0)
            row = {"namespace": namespace, "flavor": flavor, "devices": devices, "value": use}
            yield {**row, "start": sample_time, "end": sample_time + step}
