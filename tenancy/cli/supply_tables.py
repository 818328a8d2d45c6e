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
from tenancy.spec.checks.crossfile import list_names
from tenancy.spec.fields.environment import Environment

if TYPE_CHECKING:
    from tenancy.planning.aws.cluster import UpgradeSurge
    from tenancy.planning.fixed_costs import FixedCost
    from tenancy.planning.kubernetes.api_storage import ApiStorage
    from tenancy.planning.queueing.capacity import FlavorSupply, Loss, UnmetGuarantee
    from tenancy.planning.queueing.pool_yields import PoolYield


def capacity(environment: str, flavors: Sequence[FlavorSupply]) -> list[Table]:
    """Supply of each flavor: the whole, by pool and by tenant."""
    total = Table(
        f"Supply of {environment}",
        ("flavor", "always on", "max", "guaranteed", "free", "lendable", "during an upgrade"),
        [
            (
                flavor.flavor,
                flavor.always_on,
                flavor.maximum,
                flavor.guaranteed,
                flavor.free,
                flavor.lendable,
                flavor.upgrading,
            )
            for flavor in flavors
        ],
        [f"during an upgrade: {_unmet_text(unmet)}" for flavor in flavors for unmet in flavor.unmet],
    )
    by_pool = Table(
        "By pool",
        ("flavor", "pool", "a node", "always on", "max", "during an upgrade"),
        [
            (flavor.flavor, pool.pool, pool.node, pool.always_on, pool.maximum, pool.upgrading)
            for flavor in flavors
            for pool in flavor.pools
        ],
    )
    by_tenant = Table(
        "By tenant",
        ("flavor", "tenant", "guaranteed", "lends", "may borrow", "always on"),
        [
            (flavor.flavor, tenant.tenant, tenant.guaranteed, tenant.lends, tenant.borrows, tenant.borrowable)
            for flavor in flavors
            for tenant in flavor.tenants
        ],
    )
    return [total, by_pool, by_tenant]


def upgrades(surges: Sequence[UpgradeSurge]) -> Table:
    """Number of machines that each group needs at once while its nodes are replaced."""
    scarce = [surge.group for surge in surges if surge.gpus and surge.more and surge.zones > 1]
    advice = (
        f"{list_names(scarce)}: EKS starts up to twice as many nodes as the group has zones, and the upgrade fails "
        "where EC2 has none or the account's quota is reached; with one zone (`zones`) it is 2, with "
        "`upgrade: {strategy: terminate-first}` 0"
    )
    return Table(
        "Nodes during an upgrade",
        ("group", "instance", "nodes", "zones", "more nodes", "at most"),
        [
            (surge.group, surge.instance, surge.nodes, surge.zones, surge.more, surge.nodes + surge.more)
            for surge in surges
        ],
        [advice] if scarce else [],
    )


def costs(environment: Environment, cost_items: Sequence[FixedCost]) -> Table:
    """Monthly cost of the platform without its GPU machines."""
    region = environment.aws.region
    unpriced_items = [cost_item.item for cost_item in cost_items if cost_item.month is None]
    return Table(
        f"Estimate of {environment.environment} without GPU machines, dollars a month",
        ("item", "count", "each", "a month", "basis"),
        [
            (cost_item.item, cost_item.count, _dollars(cost_item.unit), _dollars(cost_item.month), cost_item.basis)
            for cost_item in cost_items
        ]
        + ([("total", None, None, _dollars(_total(cost_items)), "")] if cost_items else []),
        [
            f"list prices of {prices.REGION}, nodes of {prices.DATE}, the rest of {service_prices.DATE}; an estimate "
            "and no bill" + (f", and {region} has other prices" if region != prices.REGION else ""),
            "not in it: GPU machines, autoscaled nodes, data transfer, requests, buckets, taxes",
            *([f"without a price: {list_names(unpriced_items)}"] if unpriced_items else []),
        ],
        frozenset({2, 3}),
    )


def costs_value(cost_items: Sequence[FixedCost]) -> dict[str, Any]:
    """The same for programs."""

    def rounded(amount: Decimal | None) -> float | None:
        return None if amount is None else float(round(amount, 2))

    items = [
        {
            "item": cost_item.item,
            "count": cost_item.count,
            "each": rounded(cost_item.unit),
            "month": rounded(cost_item.month),
            "basis": cost_item.basis,
        }
        for cost_item in cost_items
    ]
    dates = {"nodes": prices.DATE, "services": service_prices.DATE}
    return {
        "currency": "USD",
        "prices": {"region": prices.REGION, "dates": dates},
        "items": items,
        "month": rounded(_total(cost_items)),
    }


def _total(cost_items: Sequence[FixedCost]) -> Decimal:
    return sum((cost_item.month for cost_item in cost_items if cost_item.month is not None), Decimal(0))


def _dollars(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def api_storage(storage: ApiStorage) -> Table:
    """Objects and MiB that each tenant may store in the API server and in Kueue."""
    return Table(
        "API storage: max objects of each tenant by its quotas",
        ("tenant", "objects", "MiB", "of the store", "MiB of Kueue's memory"),
        [
            (
                tenant.tenant,
                tenant.objects,
                _mib(tenant.stored),
                f"{tenant.stored / storage.store:.1%}",
                _mib(tenant.cached),
            )
            for tenant in storage.tenants
        ],
        [
            f"total {_mib(storage.stored):,} MiB; {_mib(storage.budget):,} of the store's "
            f"{_mib(storage.store):,} MiB are "
            f"for tenants, and object-overcommit is {storage.overcommit}",
            *([f"Kueue has {_mib(storage.kueue):,} MiB of memory"] if storage.kueue else []),
        ],
    )


def _mib(number: int) -> int:
    return -(-number // 2**20)


def pools(pool_yields: Sequence[PoolYield]) -> list[Table]:
    """Pools, and the units that a node of each yields."""
    table = Table(
        "Pools",
        ("pool", "instance", "nodes", "provisioner", "purchase and layout"),
        [
            (
                pool_yield.pool,
                pool_yield.instance,
                _nodes(pool_yield),
                pool_yield.provisioner,
                f"{pool_yield.purchase}: {pool_yield.layout}",
            )
            for pool_yield in pool_yields
        ],
    )
    units = Table(
        "Units of a node, and the resources for each unit when all are in use",
        ("pool", "flavor", "a node", "vCPU", "memory GiB", "disk GiB", "resource name"),
        [
            (
                pool_yield.pool,
                unit.flavor or f"none ({unit.profile or 'GPU'})",
                unit.count,
                cores(unit.each.cpu),
                gib(unit.each.memory),
                gib(unit.each.ephemeral),
                unit.resource,
            )
            for pool_yield in pool_yields
            for unit in pool_yield.units
        ],
        [f"{pool_yield.pool}: {note}" for pool_yield in pool_yields for note in pool_yield.notes],
    )
    return [table, units]


def _nodes(pool: PoolYield) -> str:
    same = pool.nodes_min == pool.nodes_max
    return str(pool.nodes_max) if same else f"{pool.nodes_min} to {pool.nodes_max}"


def node(pool: PoolYield) -> Table:
    """Part of a node that the system and the platform's pods take."""
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


def _amounts(resources: Resources) -> tuple[float, float, float]:
    return cores(resources.cpu), gib(resources.memory), gib(resources.ephemeral)


def failures(losses: Sequence[Loss], rack: int) -> list[Table]:
    """GPUs lost with each failure, the guarantees that are then not met, and the tenants there."""
    loss_table = Table(
        "Worst case of each failure",
        ("lost", "of", "nodes", "GPUs", "guarantees", "by flavor"),
        [
            (
                loss.scope,
                loss.where,
                loss.nodes,
                loss.gpus,
                f"{missing} missing" if (missing := sum(unmet_table.missing for unmet_table in loss.unmet)) else "met",
                ", ".join(f"{count} {flavor}" for flavor, count in loss.units.items()),
            )
            for loss in losses
        ],
        [
            f"a rack is assumed to have {rack} nodes",
            "a node with a broken GPU is replaced, so the whole node is lost during the repair",
        ],
    )
    unmet_table = Table(
        "Guarantees that are not met until the repair",
        ("lost", "of", "flavor", "available", "guaranteed", "missing", "guaranteed by tenant"),
        [
            (
                loss.scope,
                loss.where,
                unmet.flavor,
                unmet.there,
                unmet.guaranteed,
                unmet.missing,
                _largest_tenants_text(unmet),
            )
            for loss in losses
            for unmet in loss.unmet
        ],
    )
    tenant_table = Table(
        "Tenants that may have work there",
        ("of", "tenants", "names"),
        [
            (where, len(names), list_names(names) or None)
            for where, names in {loss.where: loss.tenants for loss in losses}.items()
        ],
    )
    return [loss_table, unmet_table, tenant_table]


def _unmet_text(unmet: UnmetGuarantee) -> str:
    return (
        f"{unmet.missing} of {unmet.guaranteed} {unmet.flavor} guaranteed are missing in {', '.join(unmet.pools)}: "
        f"{_largest_tenants_text(unmet)}"
    )


def _largest_tenants_text(unmet: UnmetGuarantee) -> str:
    return list_names([f"{name} {count}" for name, count in sorted(unmet.tenants.items(), key=lambda t: (-t[1], t[0]))])
