"""Check that Kueue is installed, and that queues which change have no work in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api
from tenancy.cluster.selectors import MAX_NAMED, tenants_selector
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.planning.plan_model import Plan, TenantPlan
from tenancy.planning.queueing.queue_names import API


def queue_problems(api: Api, plan: Plan, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Changes of queues that still have work."""
    if not (plan.platform.queues and tenants):
        return
    if not api.request("GET", f"/apis/{API}").ok:
        return
    spaces = {space.name for tenant in tenants for space in tenant.namespaces}
    names = {tenant.name for tenant in tenants}
    if len(tenants) > MAX_NAMED:
        queues = api.paged_items(collection(API, "LocalQueue"))
        owned = api.paged_items(collection(API, "ClusterQueue"))
    else:
        queues = (item for space in sorted(spaces) for item in api.paged_items(collection(API, "LocalQueue", space)))
        owned = api.paged_items(
            collection(API, "ClusterQueue"), selector=tenants_selector(plan.environment, sorted(names))
        )
    local = _group_by_owner(queues, plan, spaces, lambda metadata: metadata["namespace"])
    leading = _group_by_owner(owned, plan, names, lambda metadata: metadata["labels"].get(vocabulary.TENANT, ""))
    for tenant in tenants:
        yield from _in_use(tenant, local)
        yield from _in_two_places(tenant, {queue["metadata"]["name"] for queue in leading.get(tenant.name, ())})


def _group_by_owner(
    items: Iterable[Object], plan: Plan, owners: Collection[str], owner_of: Callable[[Any], str]
) -> dict[str, list[Object]]:
    """Those of the objects that are the environment's, by what they belong to, if that is wanted."""
    result: dict[str, list[Object]] = {}
    for item in items:
        metadata = item["metadata"]
        if (metadata.get("labels") or {}).get(vocabulary.ENVIRONMENT) == plan.environment and owner_of(
            metadata
        ) in owners:
            metadata.pop("managedFields", None)  # half of the object
            result.setdefault(owner_of(metadata), []).append(item)
    return result


def _in_two_places(tenant: TenantPlan, present: set[str]) -> Iterator[str]:
    """A tier that is removed while another is added: for a moment both have the guaranteed quota, and work that starts
    then uses other tenants' quota until it ends."""
    planned = {queue.name: queue for queue in tenant.cluster_queues}
    removed_queues, added_queues = sorted(present - planned.keys()), sorted(planned.keys() - present)
    if removed_queues and any(planned[name].is_open for name in added_queues):
        yield (
            f"given tenant {tenant.name}, whose queue {', '.join(removed_queues)} is replaced by "
            f"{', '.join(added_queues)}; rule: guaranteed quota is in one queue at a time; change: write "
            "`stop-policy: hold` "
            "into the tenant's file for this run, and remove it in the next"
        )


def _in_use(tenant: TenantPlan, present: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Queues that would be removed, or get another ClusterQueue, while work is in them: it would wait for ever, or be
    counted where it does not run."""
    for namespace in tenant.namespaces:
        planned = {queue.name: queue.queue for queue in namespace.local_queues}
        for queue in present.get(namespace.name, ()):
            name, status = queue["metadata"]["name"], queue.get("status") or {}
            running, waiting = status.get("reservingWorkloads") or 0, status.get("pendingWorkloads") or 0
            if not running + waiting:
                continue
            if name not in planned:
                yield _refusal(
                    namespace.name, name, running, waiting, "leave the file", "keep it in the namespace's queues"
                )
            elif running and (leads := planned[name]) != queue["spec"]["clusterQueue"]:
                yield _refusal(namespace.name, name, running, waiting, f"lead to {leads}", "leave the namespace's tier")


def _refusal(namespace: str, name: str, running: Any, waiting: Any, effect: str, advice: str) -> str:
    return (
        f"given queue {name} of {namespace}, which would {effect} with {running} running and {waiting} waiting in it; "
        f"rule: a queue changes when it is empty; change: {advice} until they end, or write `stop-policy: "
        "hold-and-drain` into the "
        "tenant's file first, which evicts what runs"
    )
