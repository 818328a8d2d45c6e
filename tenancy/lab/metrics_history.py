"""Metrics of days before the lab's start: a generated trace as the OpenMetrics lines that Prometheus would have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tenancy.catalog import boards
from tenancy.lab.metrics import Sample, line, namespace_samples, node_samples, pod_samples

if TYPE_CHECKING:
    from tenancy.spec.loader import Loaded

STEP = 300
"""Seconds between two samples; a start or an end between two of them shows at the next. It equals Prometheus' lookback,
for which a last sample stays valid: backfilled blocks do not mark where a series ends."""
Rows = dict[str, list[dict[str, Any]]]
TimedSample = tuple[Sample, int, int]
"""A series with the times of its start and its end."""


def openmetrics(loaded: Loaded, rows: Rows, start: int, end: int, step: int = STEP) -> Iterator[str]:
    """The lines, family by family as the format wants it; `rows` are those of `tenancy.chargeback.example.month`."""
    families: dict[str, dict[str, list[tuple[dict[str, str], int, int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (name, labels, value), begin, stop in _timed_samples(loaded, rows, start, end):
        families[name][repr(sorted(labels.items()))].append((labels, begin, stop, value))
    gaps = [(gap["start"], gap["end"]) for gap in rows.get("gaps", ())]
    for name, series in families.items():
        yield f"# TYPE {name} gauge"
        for stretches in series.values():
            for labels, begin, stop, value in sorted(stretches, key=lambda stretch: stretch[1]):
                text = line(name, labels, value)
                for timestamp in range(-(-begin // step) * step, min(stop, end), step):
                    if not any(gap_start <= timestamp < gap_end for gap_start, gap_end in gaps):
                        yield f"{text} {timestamp}"


def _timed_samples(loaded: Loaded, rows: Rows, start: int, end: int) -> Iterator[TimedSample]:
    from tenancy.planning.common.labels import tenant_labels
    from tenancy.planning.common.pools import node_labels, node_resources, node_taints

    environment = loaded.environment
    for node in rows["nodes"]:
        pool = environment.pools[node["pool"]]
        facts = node_labels(node["pool"], pool), node_taints(node["pool"], pool)
        for sample in node_samples(_node_name(node["node"]), *facts, node_resources(environment, node["pool"])):
            yield sample, node["start"], node["end"]
    for tenant in loaded.tenants:
        for part in tenant.namespaces:
            labels = tenant_labels(environment, tenant, part)
            for sample in namespace_samples(tenant.namespace_name(part), labels):
                yield sample, start, end
    labels_of = {
        tenant.namespace_name(part): tenant_labels(environment, tenant, part)
        for tenant in loaded.tenants
        for part in tenant.namespaces
    }
    for allocation, used in zip(rows["allocations"], rows["used"], strict=True):
        yield from (
            (sample, allocation["start"], allocation["end"])
            for sample in _pod(loaded, allocation, labels_of[allocation["namespace"]])
        )
        board = environment.flavors[allocation["flavor"]]
        for index in range(allocation["count"]):
            facts = {
                "gpu": str(index),
                "UUID": f"GPU-{allocation['pod']}-{index}",
                "modelName": boards.PRODUCTS.get(board.gpu, board.gpu),
                "Hostname": _node_name(allocation["node"]),
                **({"GPU_I_PROFILE": board.mig, "GPU_I_ID": str(index)} if board.mig else {}),
                "container": "main",
                "namespace": allocation["namespace"],
                "pod": allocation["pod"],
            }
            yield ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", facts, used["value"]), allocation["start"], allocation["end"]
    for sample in _quota_samples(loaded):
        yield sample, start, end


def _node_name(node: str) -> str:
    """The lab's name of a node: the trace pads numbers with zeros, the lab does not."""
    pool, _, number = node.rpartition("-")
    return f"{pool}-{int(number)}"


def _pod(loaded: Loaded, allocation: dict[str, Any], labels: dict[str, str]) -> Iterator[Sample]:
    resource = loaded.environment.resource_of(allocation["flavor"])
    requests = {resource: str(allocation["count"]), "cpu": str(allocation["cpu"]), "memory": str(allocation["memory"])}
    return pod_samples(
        allocation["namespace"],
        allocation["pod"],
        uid=allocation["workload"],
        node=_node_name(allocation["node"]),
        phase="Running",
        requests={"main": requests},
        owner=("Job", allocation["workload"]),
        given={**labels, "kueue.x-k8s.io/queue-name": allocation["queue"]},
    )


def _quota_samples(loaded: Loaded) -> Iterator[Sample]:
    """Guaranteed and lent quota, as Kueue's metrics report it."""
    from tenancy.planning.queueing.queue_names import flavor_name, parent_cohort, queue_name, queue_resource
    from tenancy.planning.queueing.quota_shares import shares

    environment = loaded.environment
    cohort_by_tenant = {tenant.tenant: parent_cohort(tenant) for tenant in loaded.tenants}
    for tenant, share in shares(environment, loaded.tenants, loaded.day).items():
        for tier, pools in share.guarantees.items():
            for metric, counts in (
                ("kueue_cluster_queue_nominal_quota", pools),
                ("kueue_cluster_queue_lending_limit", {pool: share.lending.get(pool, {}) for pool in pools}),
            ):
                for pool, flavors in counts.items():
                    for flavor, count in flavors.items():
                        facts = {
                            "cohort": cohort_by_tenant[tenant],
                            "cluster_queue": queue_name(tenant, tier),
                            "flavor": flavor_name(environment, pool),
                            "resource": queue_resource(environment, flavor),
                            "replica_role": "leader",
                        }
                        yield (metric, facts, count)
