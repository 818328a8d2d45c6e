"""Quota in use by queue, as Kueue reports it: how much of it is borrowed, and how much work is pending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api
from tenancy.kube import quantities
from tenancy.kube.quota_tree import stored_quotas
from tenancy.kube.requests import collection
from tenancy.planning.queueing.causes import on_hold
from tenancy.planning.queueing.queue_names import API, pool_of, queue_resource
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.spec.fields.environment import Environment


@dataclass(frozen=True, slots=True)
class QueueUse:
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
    """Admitted workloads of the queue, of all flavors."""
    waiting: int
    state: str
    """`open`, or the reason why no work starts."""
    dollars: Decimal | None
    """Cost of the quota in use, in dollars an hour; None without a price in the file."""


def queue_use(api: Api, environment: Environment) -> list[QueueUse]:
    """Quota in use of every queue of the environment, sorted by tenant; ApiUnreachable without Kueue."""
    uses = []
    for queue in api.items(collection(API, "ClusterQueue")):
        labels = queue["metadata"].get("labels") or {}
        if labels.get(vocabulary.ENVIRONMENT) == environment.environment:
            uses += _uses_of_queue(queue, labels, environment)
    return sorted(uses, key=lambda h: (h.tenant, h.tier, h.pool, h.flavor))


def _uses_of_queue(queue: Any, labels: Any, environment: Environment) -> Iterator[QueueUse]:
    status = queue.get("status") or {}
    used = {
        (flavor["name"], resource["name"]): resource
        for flavor in status.get("flavorsReservation") or ()
        for resource in flavor["resources"]
    }
    for quota in stored_quotas(queue["spec"]):
        pool = pool_of(quota.flavor)
        for flavor in environment.flavors_of(pool) if pool in environment.pools else ():
            if quota.resource != queue_resource(environment, flavor):
                continue
            reservation = used.get((quota.flavor, quota.resource), {})
            in_use = _count(reservation.get("total"))
            guaranteed, more = _count(quota.nominal), _count(quota.borrowing)
            if guaranteed or more or in_use:
                yield QueueUse(
                    labels.get(vocabulary.TENANT, ""),
                    labels.get("tier", ""),
                    pool,
                    flavor,
                    guaranteed,
                    more,
                    in_use,
                    _count(reservation.get("borrowed")),
                    status.get("reservingWorkloads") or 0,
                    status.get("pendingWorkloads") or 0,
                    _state(status),
                    _dollars(environment, pool, flavor, in_use),
                )


def _count(text: Any) -> int:
    return quantities.units(text or 0)


def _state(status: Any) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "Active" and condition["status"] != "True":
            if condition["reason"] == "Stopped":
                return str(on_hold())
            return f"{condition['reason']}: {condition['message']}"
    return "open"


def _dollars(environment: Environment, pool: str, flavor: str, count: int) -> Decimal | None:
    """Cost of GPUs or slices, in dollars an hour. A slice costs its part of the node's GPUs: the slices of a layout
    that leaves capacity unused share its whole cost."""
    price = environment.prices.get(environment.flavors[flavor].gpu)
    if price is None:
        return None
    gpus = environment.pools[pool].machine.gpus
    part = part_of_node(environment, pool, flavor) * count * gpus
    return (price * part.numerator / part.denominator).quantize(Decimal("0.01"))
