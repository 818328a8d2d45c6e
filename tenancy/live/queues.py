"""Is the queue there, and is nobody's work in the way of what would change?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.live.api import Api, collection
from tenancy.plan.model import Plan, PlatformPlan, TenantPlan
from tenancy.plan.queues import API


def queue_problems(api: Api, plan: Plan, platform: PlatformPlan | None, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """A cluster without Kueue, and queues that work still names."""
    if not plan.platform.queues:
        return
    if api.request("GET", f"/apis/{API}").ok:
        for tenant in tenants:
            yield from _in_use(api, tenant)
    elif platform is None or platform.services is None:
        yield (
            f"given a cluster that does not serve {API}; rule: GPUs are lent and borrowed through a queue; change: "
            f"install Kueue with the values of charts/00-kueue.yaml of `tenancy render {plan.environment}` (for the "
            "lab: `tenancy lab up`), or set queues.scheduler to none"
        )


def _in_use(api: Api, tenant: TenantPlan) -> Iterator[str]:
    """Queues that would be removed, or lead elsewhere, while work is in them: it would wait for ever, or be counted
    where it does not run."""
    for namespace in tenant.namespaces:
        planned = {o["metadata"]["name"]: o["spec"] for o in namespace.isolation if o["kind"] == "LocalQueue"}
        for present in api.items(collection(API, "LocalQueue", namespace.name), absent=True):
            name, status = present["metadata"]["name"], present.get("status") or {}
            running, waiting = status.get("reservingWorkloads") or 0, status.get("pendingWorkloads") or 0
            if words.ENVIRONMENT not in (present["metadata"].get("labels") or {}) or not running + waiting:
                continue
            if name not in planned:
                yield _refusal(namespace.name, name, running, waiting, "leave the file", "keep it in the part's queues")
            elif running and (leads := planned[name]["clusterQueue"]) != present["spec"]["clusterQueue"]:
                yield _refusal(namespace.name, name, running, waiting, f"lead to {leads}", "leave the part's tier")


def _refusal(namespace: str, name: str, running: Any, waiting: Any, what: str, until: str) -> str:
    return (
        f"given queue {name} of {namespace}, which would {what} with {running} running and {waiting} waiting in it; "
        f"rule: a queue changes when it is empty; change: {until} until they end, or write `queue: drain` into the "
        "tenant's file first, which evicts what runs"
    )
