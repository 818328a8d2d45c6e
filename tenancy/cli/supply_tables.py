"""The tables of `tenancy report capacity`, `pools`, `failures` and `costs`: supply, guarantees, nodes, losses, and what
the platform costs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tenancy.catalog import prices, service_prices
from tenancy.catalog.nodes import Resources
from tenancy.cli.tables import cores, gib
from tenancy.output.tables import Table
from tenancy.validation import Environment
from tenancy.validation.crossfile import some

if TYPE_CHECKING:
    from tenancy.planning.aws.cluster import UpgradeSurge
    from tenancy.planning.fixed_costs import FixedCost
    from tenancy.planning.kubernetes.api_storage import ApiStorage
    from tenancy.planning.queueing.capacity import FlavorSupply, Loss, Unmet
    from tenancy.planning.queueing.pool_yields import PoolYield


def capacity(environment: str, flavors: Sequence[FlavorSupply]) -> list[Table]:
    """Supply of each flavor: the whole, by pool and by tenant."""
    total = Table(
        f"Supply of {environment}",
        ("flavor", "always on", "max", "guaranteed", "free", "lendable", "during an upgrade"),
        [(f.flavor, f.always_on, f.maximum, f.guaranteed, f.free, f.lendable, f.upgrading) for f in flavors],
        [f"during an upgrade: {_missing(unmet)}" for f in flavors for unmet in f.unmet],
    )
    by_pool = Table(
        "By pool",
        ("flavor", "pool", "a node", "always on", "max", "during an upgrade"),
        [(f.flavor, p.pool, p.node, p.always_on, p.maximum, p.upgrading) for f in flavors for p in f.pools],
    )
    by_tenant = Table(
        "By tenant",
        ("flavor", "tenant", "guaranteed", "lends", "may borrow", "always on"),
        [(f.flavor, t.tenant, t.guaranteed, t.lends, t.borrows, t.borrowable) for f in flavors for t in f.tenants],
    )
    return [total, by_pool, by_tenant]


def upgrades(surges: Sequence[UpgradeSurge]) -> Table:
    """How many machines each group needs at once while its nodes are replaced."""
    scarce = [one.group for one in surges if one.gpus and one.more and one.zones > 1]
    advice = (
        f"{some(scarce)}: EKS starts up to twice as many nodes as the group has zones, and the upgrade fails where EC2 "
        "has none or the account's quota is reached; with one zone (`zones`) it is 2, with `upgrade: {strategy: "
        "terminate-first}` 0"
    )
    return Table(
        "Nodes during an upgrade",
        ("group", "instance", "nodes", "zones", "more nodes", "at most"),
        [(s.group, s.instance, s.nodes, s.zones, s.more, s.nodes + s.more) for s in surges],
        [advice] if scarce else [],
    )


def costs(environment: Environment, found: Sequence[FixedCost]) -> Table:
    """What the platform costs a month without its GPU machines."""
    region = environment.aws.region
    unknown = [one.item for one in found if one.month is None]
    return Table(
        f"Estimate of {environment.environment} without GPU machines, dollars a month",
        ("item", "count", "each", "a month", "basis"),
        [(o.item, o.count, _dollars(o.unit), _dollars(o.month), o.basis) for o in found]
        + ([("total", None, None, _dollars(_total(found)), "")] if found else []),
        [
            f"list prices of {prices.REGION}, nodes of {prices.DATE}, the rest of {service_prices.DATE}; an estimate "
            "and no bill" + (f", and {region} has other prices" if region != prices.REGION else ""),
            "not in it: GPU machines, autoscaled nodes, data transfer, requests, buckets, taxes",
            *([f"without a price: {some(unknown)}"] if unknown else []),
        ],
        frozenset({2, 3}),
    )


def costs_value(found: Sequence[FixedCost]) -> dict[str, Any]:
    """The same for programs."""

    def rounded(amount: Decimal | None) -> float | None:
        return None if amount is None else float(round(amount, 2))

    items = [
        {"item": o.item, "count": o.count, "each": rounded(o.unit), "month": rounded(o.month), "basis": o.basis}
        for o in found
    ]
    dates = {"nodes": prices.DATE, "services": service_prices.DATE}
    return {
        "currency": "USD",
        "prices": {"region": prices.REGION, "dates": dates},
        "items": items,
        "month": rounded(_total(found)),
    }


def _total(found: Sequence[FixedCost]) -> Decimal:
    return sum((one.month for one in found if one.month is not None), Decimal(0))


def _dollars(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def api_storage(found: ApiStorage) -> Table:
    """Objects and MiB that each tenant may store in the API server and in Kueue."""
    return Table(
        "API storage: max objects of each tenant by its quotas",
        ("tenant", "objects", "MiB", "of the store", "MiB of Kueue's memory"),
        [(t.tenant, t.objects, _mib(t.stored), f"{t.stored / found.store:.1%}", _mib(t.cached)) for t in found.tenants],
        [
            f"total {_mib(found.stored):,} MiB; {_mib(found.budget):,} of the store's {_mib(found.store):,} MiB are "
            f"for tenants, and object-overcommit is {found.overcommit}",
            *([f"Kueue has {_mib(found.kueue):,} MiB of memory"] if found.kueue else []),
        ],
    )


def _mib(number: int) -> int:
    return -(-number // 2**20)


def pools(found: Sequence[PoolYield]) -> list[Table]:
    """Pools, and the units that a node of each yields."""
    table = Table(
        "Pools",
        ("pool", "instance", "nodes", "provisioner", "purchase and layout"),
        [(p.pool, p.instance, _nodes(p), p.provisioner, f"{p.purchase}: {p.layout}") for p in found],
    )
    units = Table(
        "Units of a node, and the resources for each unit when all are in use",
        ("pool", "flavor", "a node", "vCPU", "memory GiB", "disk GiB", "resource name"),
        [
            (
                p.pool,
                u.flavor or f"none ({u.profile or 'GPU'})",
                u.count,
                cores(u.each.cpu),
                gib(u.each.memory),
                gib(u.each.ephemeral),
                u.resource,
            )
            for p in found
            for u in p.units
        ],
        [f"{p.pool}: {note}" for p in found for note in p.notes],
    )
    return [table, units]


def _nodes(pool: PoolYield) -> str:
    same = pool.nodes_min == pool.nodes_max
    return str(pool.nodes_max) if same else f"{pool.nodes_min} to {pool.nodes_max}"


def node(pool: PoolYield) -> Table:
    """How much of a node the system and the platform's pods take."""
    units = sum(unit.count for unit in pool.units)
    return Table(
        f"Resources of a node of {pool.pool}",
        ("part", "vCPU", "memory GiB", "disk GiB", "pods"),
        [
            ("EC2 instance", float(pool.vcpu), float(pool.memory_gib), None, None),
            ("allocatable", *_amounts(pool.allocatable), pool.allocatable.pods),
            ("platform's pods", *_amounts(pool.daemonsets), pool.daemonsets.pods),
            ("left for tenants", *_amounts(pool.left), pool.left.pods),
            ("one pod for each GPU, slice or replica", None, None, None, units),
            ("other pods of tenants", None, None, None, pool.pods_left),
        ],
    )


def _amounts(of: Resources) -> tuple[float, float, float]:
    return cores(of.cpu), gib(of.memory), gib(of.ephemeral)


def failures(found: Sequence[Loss], rack: int) -> list[Table]:
    """GPUs lost with each failure, the guarantees that are then not met, and the tenants there."""
    lost = Table(
        "Worst case of each failure",
        ("lost", "of", "nodes", "GPUs", "guarantees", "by flavor"),
        [
            (
                loss.scope,
                loss.where,
                loss.nodes,
                loss.gpus,
                f"{missing} missing" if (missing := sum(unmet.missing for unmet in loss.unmet)) else "met",
                ", ".join(f"{count} {flavor}" for flavor, count in loss.units.items()),
            )
            for loss in found
        ],
        [
            f"a rack is assumed to have {rack} nodes",
            "a node with a broken GPU is replaced, so the whole node is lost during the repair",
        ],
    )
    unmet = Table(
        "Guarantees that are not met until the repair",
        ("lost", "of", "flavor", "available", "guaranteed", "missing", "guaranteed by tenant"),
        [
            (loss.scope, loss.where, u.flavor, u.there, u.guaranteed, u.missing, _largest(u))
            for loss in found
            for u in loss.unmet
        ],
    )
    hit = Table(
        "Tenants that may have work there",
        ("of", "tenants", "names"),
        [
            (where, len(names), some(names) or None)
            for where, names in {loss.where: loss.tenants for loss in found}.items()
        ],
    )
    return [lost, unmet, hit]


def _missing(unmet: Unmet) -> str:
    return (
        f"{unmet.missing} of {unmet.guaranteed} {unmet.flavor} guaranteed are missing in {', '.join(unmet.pools)}: "
        f"{_largest(unmet)}"
    )


def _largest(unmet: Unmet) -> str:
    return some([f"{name} {count}" for name, count in sorted(unmet.tenants.items(), key=lambda t: (-t[1], t[0]))])
