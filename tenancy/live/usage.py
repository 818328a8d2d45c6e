"""What Kueue says of the queues: who holds what, what of it is borrowed, and how much work waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tenancy.catalog import quantity
from tenancy.catalog import vocabulary as words
from tenancy.live.api import Api, collection
from tenancy.plan.queues import ANY_POOL, API, BOARD_COMPUTE, BOARD_MEMORY, part_of_node, pool_of, queue_resource
from tenancy.spec.environment import Environment


@dataclass(frozen=True, slots=True)
class Holding:
    """One flavor of one pool in one queue. Counts are GPUs, slices or replicas."""

    tenant: str
    tier: str
    pool: str
    flavor: str
    guaranteed: int
    may_borrow: int
    """From other tenants, and from the tenant's own other tiers."""
    held: int
    borrowed: int
    running: int
    """Pieces of work that hold quota in the queue, of whatever flavor."""
    waiting: int
    state: str
    """`open`, or why nothing starts."""
    dollars: Decimal | None
    """What is held costs for an hour; None where no price is written."""


def holdings(api: Api, environment: Environment) -> list[Holding]:
    """What every queue of the environment holds, tenants in order of their names; Unreachable without Kueue."""
    found = []
    for queue in api.items(collection(API, "ClusterQueue")):
        labels = queue["metadata"].get("labels") or {}
        if labels.get(words.ENVIRONMENT) == environment.environment:
            found += _of(queue, labels, environment)
    return sorted(found, key=lambda h: (h.tenant, h.tier, h.pool, h.flavor))


def _of(queue: Any, labels: Any, environment: Environment) -> Iterator[Holding]:
    status = queue.get("status") or {}
    used = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsReservation") or ()
        for resource in flavor["resources"]
    }
    for group in queue["spec"]["resourceGroups"]:
        for quota in group["flavors"]:
            pool = pool_of(quota["name"])
            limits = {resource["name"]: resource for resource in quota["resources"]}
            yielded = environment.flavors_of(pool) if pool in environment.pools else ()
            for flavor in yielded if pool != ANY_POOL else ():
                name = queue_resource(environment, flavor)
                if name not in limits or name in {BOARD_COMPUTE, BOARD_MEMORY}:
                    continue
                holds = used.get((quota["name"], name), {})
                held = _count(holds.get("total"))
                guaranteed, more = (_count(limits[name].get(what)) for what in ("nominalQuota", "borrowingLimit"))
                if guaranteed or more or held:
                    yield Holding(
                        labels.get(words.TENANT, ""),
                        labels.get("tier", ""),
                        pool,
                        flavor,
                        guaranteed,
                        more,
                        held,
                        _count(holds.get("borrowed")),
                        status.get("reservingWorkloads") or 0,
                        status.get("pendingWorkloads") or 0,
                        _state(status),
                        _dollars(environment, pool, flavor, held),
                    )


def _count(text: Any) -> int:
    return int(quantity.parse(str(text or 0)))


def _state(status: Any) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "Active" and condition["status"] != "True":
            return f"{condition['reason']}: {condition['message']}"
    return "open"


def _dollars(environment: Environment, pool: str, flavor: str, held: int) -> Decimal | None:
    """A slice costs its part of what the node's GPUs cost: a layout that leaves something over is paid for whole."""
    price = environment.prices.get(environment.flavors[flavor].gpu)
    if price is None:
        return None
    gpus = environment.pools[pool].machine.gpus
    part = part_of_node(environment, pool, flavor) * held * gpus
    return (price * part.numerator / part.denominator).quantize(Decimal("0.01"))
