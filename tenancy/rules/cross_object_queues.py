"""Rules on queues, flavors and what nodes offer, on one index of all objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.kube.objects import UNKNOWN, as_list, get_path, labels_of, name_of
from tenancy.kube.quantities import parse_or_zero, write
from tenancy.kube.quota_tree import stored_quotas
from tenancy.rules.cross_object_nodes import pool_labels
from tenancy.rules.findings import Finding, Object
from tenancy.rules.index import Index, has_pairs, own_name, pairs_of, tenant_label
from tenancy.rules.nodes import NODE_POOL, OF_KARPENTER
from tenancy.rules.owned import plain_value
from tenancy.rules.queues import cohort_of

_SUPPLIED = ("nvidia.com/", "vpc.amazonaws.com/efa", "amd.com/gpu")
"""Resources that nodes report; others in a queue are made by transformations."""


def findings(index: Index) -> Iterator[Finding]:
    """Violations of the rules on queues and their quotas."""
    yield from _leads(index)
    yield from _members(index)
    yield from _supplies(index)
    yield from _settings(index)
    yield from _shared_fair_shares(index)


def _leads(index: Index) -> Iterator[Finding]:
    """kueue-17, kueue-20."""
    if not index.queues:
        return
    for item in index.kinds("LocalQueue"):
        namespace, name = str(get_path(item, "metadata", "namespace")), str(get_path(item, "spec", "clusterQueue"))
        queue = index.queues.get(name)
        if queue is None and name != UNKNOWN and "ClusterQueue" not in index.blurred:
            yield Finding("kueue-17", name_of(item), f"clusterQueue {name}, which does not exist")
        elif queue and namespace in index.spaces and namespace not in index.taken_by(queue):
            selector = get_path(queue, "spec", "namespaceSelector")
            detail = f"clusterQueue {name}, whose namespaceSelector {plain_value(selector)} does not match {namespace}"
            yield Finding("kueue-17", name_of(item), detail)
    if any(get_path(config, "manageJobsWithoutQueueName") is True for _, config in index.kueue):
        return
    if any(
        QUEUE_NAME in str(get_path(item, "spec")) for item in index.kinds("ValidatingAdmissionPolicy", "ClusterPolicy")
    ):
        return
    for name, space in sorted(index.spaces.items()) if "LocalQueue" not in index.blurred else ():
        called = sorted(own_name(item) for item in index.within(name, "LocalQueue"))
        if vocabulary.DEFAULT_QUEUE not in called:
            queue_text = f"LocalQueue {', '.join(called)}" if called else "no LocalQueue"
            yield Finding("kueue-20", name_of(space), f"{queue_text}, and none is named {vocabulary.DEFAULT_QUEUE}")


def _members(index: Index) -> Iterator[Finding]:
    """kueue-22."""
    tenants = set(index.tenant_of.values())
    for queue in index.kinds("ClusterQueue") if tenants and "Namespace" not in index.blurred else ():
        cohort = cohort_of(queue)
        selector, tenant = get_path(queue, "spec", "namespaceSelector"), tenant_label(queue)
        if not cohort or not selector or UNKNOWN in str(selector):
            continue
        if ((tenant and tenant not in tenants) or not index.taken_by(queue)) and not _uses_nothing(queue):
            detail = (
                f"cohort {cohort}, and no namespace of a tenant that namespaceSelector {plain_value(selector)} matches"
            )
            yield Finding("kueue-22", name_of(queue), detail)


def _uses_nothing(queue: Object) -> bool:
    """Whether it has no quota of its own and may borrow none, all of it written out."""
    amounts = [n for quota in stored_quotas(queue.get("spec")) for n in (quota.nominal, quota.borrowing)]
    return bool(amounts) and all(amount is not None and str(amount) == "0" for amount in amounts)


def _supplies(index: Index) -> Iterator[Finding]:
    """kueue-16, kueue-18."""
    flavors = {own_name(item): item for item in index.kinds("ResourceFlavor")}
    demand: dict[str, dict[str, Decimal]] = {}
    for item in index.kinds("ClusterQueue", "Cohort"):
        for quota in stored_quotas(item.get("spec")):
            flavor, resource = quota.flavor, quota.resource
            flavor_demand = demand.setdefault(flavor, {})
            # A Cohort's own quota is unallocated, and may be for nodes that are added later.
            promised = parse_or_zero(quota.nominal) if item.get("kind") == "ClusterQueue" else Decimal()
            flavor_demand[resource] = flavor_demand.get(resource, Decimal()) + promised
            if flavors and flavor not in {*flavors, UNKNOWN} and "ResourceFlavor" not in index.blurred:
                yield Finding("kueue-18", name_of(item), f"flavor {flavor}, which does not exist")
                flavors[flavor] = {}
    for name, item in sorted(flavors.items()):
        labels = get_path(item, "spec", "nodeLabels") or {}
        nodes = [node for node in index.kinds("Node") if has_pairs(labels_of(node), labels)]
        pools = [pool for pool in index.kinds("NodePool") if has_pairs(pool_labels(pool), labels)]
        if item and labels and index.kinds("Node") and not nodes and not pools:
            yield Finding("kueue-18", name_of(item), f"nodeLabels {plain_value(labels)}, which no node has")
            continue
        for resource, requested_amount in sorted(demand.get(name, {}).items()):
            # If no node is shown, there may be others than Karpenter's, unless the flavor is only for those.
            nodes_known = index.kinds("Node") or any(str(key).startswith(OF_KARPENTER) for key in labels)
            supply = _supply(nodes, pools, resource) if nodes_known else None
            if supply is not None and requested_amount > supply and resource.startswith(_SUPPLIED):
                detail = f"{write(requested_amount)} {resource} of flavor {name} in all queues, of {write(supply)}"
                yield Finding("kueue-16", name_of(item), detail)


def _supply(nodes: list[Object], pools: list[Object], resource: str) -> Decimal | None:
    """Maximum capacity of nodes and pools; None if a pool has no limit, or none is shown."""
    limits = [pairs_of(get_path(pool, "spec", "limits")) for pool in pools]
    if not (nodes or pools) or any(resource not in limit for limit in limits):
        return None
    # Nodes of a pool count against its limit.
    pool_names = {own_name(pool) for pool in pools}
    fixed = [node for node in nodes if labels_of(node).get(NODE_POOL) not in pool_names]
    amounts = [get_path(node, "status", "allocatable", resource) for node in fixed] + [
        limit[resource] for limit in limits
    ]
    return sum((parse_or_zero(amount) for amount in amounts), Decimal())


def _settings(index: Index) -> Iterator[Finding]:
    """kueue-19, kueue-21."""
    offered = {
        quota.resource
        for item in index.kinds("ClusterQueue")
        for quota in stored_quotas(item.get("spec"))
        if quota.resource.startswith("nvidia.com/mig-")
    }
    for source, config in index.kueue:
        fair = get_path(config, "fairSharing")
        if isinstance(fair, Mapping) and get_path(fair, "enable") is not False:
            for queue in index.kinds("ClusterQueue"):
                policy = get_path(queue, "spec", "preemption", "borrowWithinCohort", "policy")
                if policy not in (None, "Never", UNKNOWN):
                    yield Finding("kueue-19", name_of(queue), f"borrowWithinCohort {policy} beside fairSharing")
        inputs = {str(get_path(entry, "input")) for entry in as_list(get_path(config, "resources", "transformations"))}
        missing = sorted(offered - inputs)
        if any(name.startswith(("nvidia.com/mig-", gpus.GPU)) for name in inputs) and missing:
            yield Finding("kueue-21", name_of(source), f"transformations without {', '.join(missing)}")


def _shared_fair_shares(index: Index) -> Iterator[Finding]:
    """pool-02."""
    users: dict[str, dict[str, Object]] = {}
    queued = False
    for queue in index.kinds("ClusterQueue"):
        for quota in stored_quotas(queue.get("spec")):
            if quota.resource.endswith(gpus.SHARED):
                queued = True
                if any(map(parse_or_zero, (quota.nominal, quota.borrowing))):
                    for tenant in {*index.taken_by(queue).values(), *filter(None, [tenant_label(queue)])}:
                        users.setdefault(f"flavor {quota.flavor}", {}).setdefault(tenant, queue)
    if not queued:
        for name, space in sorted(index.spaces.items()):
            for item in index.within(name, "ResourceQuota"):
                claims = {
                    str(key).removeprefix("requests.")
                    for key, amount in pairs_of(get_path(item, "spec", "hard")).items()
                    if str(key).endswith(gpus.SHARED) and parse_or_zero(amount)
                }
                pools = get_path(space, "metadata", "annotations", vocabulary.ALLOWED_POOLS) or ""
                for resource in claims:
                    for pool in sorted(pools.split(",")):
                        users.setdefault(f"{resource} {pool}".strip(), {}).setdefault(index.tenant_of[name], item)
    for what, by in sorted(users.items()):
        if len(by) > 1:
            first, *others = sorted(by)
            for tenant in others:
                yield Finding("pool-02", name_of(by[tenant]), f"{what} for tenant {tenant}, which {first} has as well")
