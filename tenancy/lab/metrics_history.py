"""Metrics of days before the lab's start: a generated trace as the OpenMetrics lines that Prometheus would have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tenancy.catalog import boards
from tenancy.lab.metrics import Sample, line, namespace_samples, node_samples, pod_samples

if TYPE_CHECKING:
    from tenancy.validation import Loaded

STEP = 300
"""Seconds between two samples; a start or an end between two of them shows at the next. It equals Prometheus' lookback,
for which a last sample stays valid: backfilled blocks do not mark where a series ends."""
Rows = dict[str, list[dict[str, Any]]]
Told = tuple[Sample, int, int]
"""A series with the times of its start and its end."""


def openmetrics(loaded: Loaded, rows: Rows, start: int, end: int, step: int = STEP) -> Iterator[str]:
    """The lines, family by family as the format wants it; `rows` are those of `tenancy.chargeback.example.month`."""
    families: dict[str, dict[str, list[tuple[dict[str, str], int, int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (name, labels, value), begin, over in _told(loaded, rows, start, end):
        families[name][repr(sorted(labels.items()))].append((labels, begin, over, value))
    gaps = [(gap["start"], gap["end"]) for gap in rows.get("gaps", ())]
    for name, series in families.items():
        yield f"# TYPE {name} gauge"
        for stretches in series.values():
            for labels, begin, over, value in sorted(stretches, key=lambda stretch: stretch[1]):
                text = line(name, labels, value)
                for at in range(-(-begin // step) * step, min(over, end), step):
                    if not any(since <= at < until for since, until in gaps):
                        yield f"{text} {at}"


def _told(loaded: Loaded, rows: Rows, start: int, end: int) -> Iterator[Told]:
    from tenancy.planning.common.labels import tenant_labels
    from tenancy.planning.common.pools import node_labels, node_resources, node_taints

    environment = loaded.environment
    for node in rows["nodes"]:
        pool = environment.pools[node["pool"]]
        facts = node_labels(node["pool"], pool), node_taints(node["pool"], pool)
        for sample in node_samples(_called(node["node"]), *facts, node_resources(environment, node["pool"])):
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
    for held, used in zip(rows["allocations"], rows["used"], strict=True):
        yield from ((sample, held["start"], held["end"]) for sample in _pod(loaded, held, labels_of[held["namespace"]]))
        board = environment.flavors[held["flavor"]]
        for index in range(held["count"]):
            facts = {
                "gpu": str(index),
                "UUID": f"GPU-{held['pod']}-{index}",
                "modelName": boards.PRODUCTS.get(board.gpu, board.gpu),
                "Hostname": _called(held["node"]),
                **({"GPU_I_PROFILE": board.mig, "GPU_I_ID": str(index)} if board.mig else {}),
                "container": "main",
                "namespace": held["namespace"],
                "pod": held["pod"],
            }
            yield ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", facts, used["value"]), held["start"], held["end"]
    for sample in _promised(loaded):
        yield sample, start, end


def _called(node: str) -> str:
    """The lab's name of a node: the trace pads numbers with zeros, the lab does not."""
    pool, _, number = node.rpartition("-")
    return f"{pool}-{int(number)}"


def _pod(loaded: Loaded, held: dict[str, Any], labels: dict[str, str]) -> Iterator[Sample]:
    resource = loaded.environment.resource_of(held["flavor"])
    wanted = {resource: str(held["count"]), "cpu": str(held["cpu"]), "memory": str(held["memory"])}
    return pod_samples(
        held["namespace"],
        held["pod"],
        uid=held["workload"],
        node=_called(held["node"]),
        phase="Running",
        requests={"main": wanted},
        owner=("Job", held["workload"]),
        given={**labels, "kueue.x-k8s.io/queue-name": held["queue"]},
    )


def _promised(loaded: Loaded) -> Iterator[Sample]:
    """Guaranteed and lent quota, as Kueue's metrics report it."""
    from tenancy.planning.queueing.queue_names import above_queues, flavor_name, queue_name, queue_resource
    from tenancy.planning.queueing.quota_shares import shares

    environment = loaded.environment
    above = {tenant.tenant: above_queues(tenant) for tenant in loaded.tenants}
    for tenant, share in shares(environment, loaded.tenants).items():
        for tier, pools in share.held.items():
            for metric, counts in (
                ("kueue_cluster_queue_nominal_quota", pools),
                ("kueue_cluster_queue_lending_limit", {pool: share.lent.get(pool, {}) for pool in pools}),
            ):
                for pool, flavors in counts.items():
                    for flavor, count in flavors.items():
                        facts = {
                            "cohort": above[tenant],
                            "cluster_queue": queue_name(tenant, tier),
                            "flavor": flavor_name(environment, pool),
                            "resource": queue_resource(environment, flavor),
                            "replica_role": "leader",
                        }
                        yield (metric, facts, count)
