"""Capacity of the pools, guarantees, and the capacity that is left after a failure.

Only `nodes.min` counts as capacity: nodes above it are autoscaled and not guaranteed. Only pools that admit a
tenant's namespace can meet that namespace's guarantee, so supplies are never just added up: claims are placed on pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenancy.kube.placement import place_by_pools
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.queueing.quota_shares import borrowing_tiers
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import GpuPartition
from tenancy.spec.fields.tenant import Tenant

RACK = 4
"""Nodes of one rack, by default: AWS does not report racks."""


# Supply


@dataclass(frozen=True, slots=True)
class UnmetGuarantee:
    """Guarantees that the pools cannot meet together. Which of the tenants goes without is undefined."""

    flavor: str
    pools: tuple[str, ...]
    there: int
    guaranteed: int
    missing: int
    tenants: Mapping[str, int]
    """Guarantee of each tenant there."""


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """Capacity of one flavor in one pool."""

    pool: str
    node: int
    always_on: int
    maximum: int
    upgrading: int
    """The minimum while the pool's nodes are replaced."""


@dataclass(frozen=True, slots=True)
class TenantShare:
    """One tenant's part in a flavor."""

    tenant: str
    guaranteed: int
    lends: int
    borrows: int
    """Borrowing limit in its file."""
    borrowable: int
    """Part of `borrows` that the minimum of nodes can give when all others lend everything that they offer: autoscaled
    and spot nodes above the minimum are left out."""


@dataclass(frozen=True, slots=True)
class FlavorSupply:
    """One flavor: what is there, whose it is, and what may be lent."""

    flavor: str
    always_on: int
    maximum: int
    guaranteed: int
    free: int
    """Minimum that is not guaranteed to any tenant."""
    lendable: int
    upgrading: int
    """The minimum in the worst wave of an upgrade."""
    pools: tuple[PoolSupply, ...]
    tenants: tuple[TenantShare, ...]
    unmet: tuple[UnmetGuarantee, ...]
    """Guarantees that are not met during the worst wave of an upgrade."""


_Claims = Mapping[frozenset[str], Mapping[str, int]]
"""Pools that may meet a claim -> tenant -> how much."""


def supply(environment: Environment, tenants: Sequence[Tenant]) -> tuple[FlavorSupply, ...]:
    """Every flavor, in the order of the environment; linear in the number of tenants."""
    planned_tenants = active_tenants(tenants)
    return tuple(_flavor_supply(environment, flavor, planned_tenants) for flavor in environment.flavors)


def _flavor_supply(environment: Environment, flavor: str, tenants: Sequence[Tenant]) -> FlavorSupply:
    pools = tuple(_pool_supplies(environment, flavor))
    claims, lending = _claims(environment, flavor, tenants)
    always_on = {pool.pool: pool.always_on for pool in pools}
    holders = [tenant for tenant in tenants if flavor in tenant.gpus]
    guaranteed = sum(tenant.gpus[flavor].guaranteed for tenant in holders)
    worst_wave = min(_waves(environment, pools), key=lambda wave: sum(wave.values()), default=always_on)
    unmet = [shortages for wave in _waves(environment, pools) if (shortages := _unmet(flavor, claims, wave))]
    return FlavorSupply(
        flavor=flavor,
        always_on=sum(always_on.values()),
        maximum=sum(pool.maximum for pool in pools),
        guaranteed=guaranteed,
        free=sum(always_on.values()) - guaranteed,
        lendable=sum(tenant.gpus[flavor].lends for tenant in holders),
        upgrading=sum(worst_wave.values()),
        pools=pools,
        tenants=tuple(_shares(environment, flavor, holders, always_on, _Lending(claims, lending))),
        unmet=max(unmet, key=lambda shortages: sum(shortage.missing for shortage in shortages), default=()),
    )


def _pool_supplies(environment: Environment, flavor: str) -> Iterator[PoolSupply]:
    for name, pool in environment.pools.items():
        node = environment.flavors_of(name).get(flavor)
        if node:
            nodes_down = min(pool.upgrade.max_unavailable, pool.nodes.min) if pool.terminates_first else 0
            min_nodes, max_nodes = pool.nodes.min, pool.nodes.max
            yield PoolSupply(name, node, node * min_nodes, node * max_nodes, node * (min_nodes - nodes_down))


def _waves(environment: Environment, pools: Sequence[PoolSupply]) -> list[dict[str, int]]:
    """Capacity of each pool in each wave of an upgrade: pools of one wave change at the same time."""
    wave_of = {pool.pool: environment.pools[pool.pool].upgrade.wave for pool in pools}
    return [
        {pool.pool: pool.upgrading if wave_of[pool.pool] == wave else pool.always_on for pool in pools}
        for wave in sorted(set(wave_of.values()))
    ]


def _admitting(environment: Environment, flavor: str) -> Callable[[str, frozenset[str]], frozenset[str]]:
    """Pools of a flavor that admit a tenant of these tiers."""
    yielding = [(name, pool) for name, pool in environment.pools.items() if flavor in environment.flavors_of(name)]
    return lambda tenant, tiers: frozenset(name for name, pool in yielding if pool.admits(tenant, tiers))


def _claims(
    environment: Environment, flavor: str, tenants: Sequence[Tenant]
) -> tuple[_Claims, Mapping[str, Mapping[frozenset[str], int]]]:
    """Guarantees by the pools that may meet them, and the part of them that each tenant lends."""
    admitting = _admitting(environment, flavor)
    claims: dict[frozenset[str], dict[str, int]] = {}
    lending: dict[str, dict[frozenset[str], int]] = {}
    for tenant in tenants:
        if flavor not in tenant.gpus:
            continue
        lends = tenant.gpus[flavor].lends
        for namespace in tenant.namespaces:
            guaranteed = tenant.guaranteed_in(namespace)[flavor]
            pools = admitting(tenant.tenant, frozenset({tenant.tier_of(namespace)})) if guaranteed else frozenset()
            if pools:
                tenant_claims = claims.setdefault(pools, {})
                tenant_claims[tenant.tenant] = tenant_claims.get(tenant.tenant, 0) + guaranteed
                tenant_lending = lending.setdefault(tenant.tenant, {})
                part = min(guaranteed, lends)
                tenant_lending[pools] = tenant_lending.get(pools, 0) + part
                lends -= part
    return claims, lending


class _Lending:
    """Claims while every tenant lends all that it offers."""

    def __init__(self, claims: _Claims, lending: Mapping[str, Mapping[frozenset[str], int]]) -> None:
        self._lending = lending
        self._unlent = Counter({pools: sum(claim.values()) for pools, claim in claims.items()})
        for tenant_lending in lending.values():
            self._unlent.subtract(tenant_lending)

    def claims_without_loans_of(self, tenant: str) -> Counter[frozenset[str]]:
        """The same, with this tenant keeping its own."""
        return self._unlent + Counter(self._lending.get(tenant, {}))


def _shares(
    environment: Environment, flavor: str, holders: Sequence[Tenant], capacity: Mapping[str, int], lending: _Lending
) -> Iterator[TenantShare]:
    admitting = _admitting(environment, flavor)
    for tenant in holders:
        share = tenant.gpus[flavor]
        requested, borrowable = share.borrows if borrowing_tiers(environment, tenant) else 0, 0
        if requested:
            claims = lending.claims_without_loans_of(tenant.tenant)
            claims[admitting(tenant.tenant, tenant.tiers)] += requested
            borrowable = max(0, requested - place_by_pools(claims, capacity)[0])
        yield TenantShare(tenant.tenant, share.guaranteed, share.lends, requested, borrowable)


# Placing claims on pools


def _unmet(flavor: str, claims: _Claims, capacity: Mapping[str, int]) -> tuple[UnmetGuarantee, ...]:
    """Guarantees that do not fit on what is there; claims that share no pool are judged apart."""
    shortages = []
    for group in _independent_groups(claims):
        missing, full = place_by_pools({pools: sum(claims[pools].values()) for pools in group}, capacity)
        if missing:
            guarantees: Counter[str] = Counter()
            for pools in group:
                if pools <= full:
                    guarantees.update(claims[pools])
            group_capacity = sum(capacity[pool] for pool in full)
            shortages.append(
                UnmetGuarantee(
                    flavor,
                    tuple(sorted(full)),
                    group_capacity,
                    guarantees.total(),
                    missing,
                    dict(sorted(guarantees.items())),
                )
            )
    return tuple(shortages)


def _independent_groups(claims: Iterable[frozenset[str]]) -> list[list[frozenset[str]]]:
    """The claims in groups, no two of which may use the same pool."""
    group_of: dict[str, list[frozenset[str]]] = {}
    for pools in claims:
        merged = [pools]
        for group in {id(group_of[pool]): group_of[pool] for pool in pools if pool in group_of}.values():
            merged += group
        group_of.update(dict.fromkeys(frozenset().union(*merged), merged))
    return list({id(group): group for group in group_of.values()}.values())


# What is stored


# Losses


class LossScope(StrEnum):
    """Units that fail at once in an analysis of failures."""

    GPU = "GPU"
    NODE = "node"
    RACK = "rack"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Loss:
    """The worst effect of one failure."""

    scope: LossScope
    where: str
    """The pool, or the zone."""
    pools: tuple[str, ...]
    nodes: int
    gpus: int
    units: Mapping[str, int]
    """Lost of each flavor when the pools are at their maximum."""
    tenants: tuple[str, ...]
    """Tenants that may have work there."""
    unmet: tuple[UnmetGuarantee, ...]
    """Guarantees that are not met until the repair, when the pools are at their minimum."""


def losses(environment: Environment, tenants: Sequence[Tenant], rack: int = RACK) -> tuple[Loss, ...]:
    """One GPU, one node and one rack of every pool, and every zone that is known.

    A zone takes its part of every pool that has nodes there; nodes are spread evenly.
    """
    return tuple(_Failures(environment, active_tenants(tenants)).losses(rack))


@dataclass(frozen=True, slots=True)
class _PoolLoss:
    """Nodes, or one GPU, of one pool: at its maximum, and at its minimum."""

    nodes: int
    gpus: int
    units: Mapping[str, int]
    always_on: Mapping[str, int]


class _Failures:
    def __init__(self, environment: Environment, tenants: Sequence[Tenant]) -> None:
        self._environment = environment
        self._claims = {flavor: _claims(environment, flavor, tenants)[0] for flavor in environment.flavors}
        self._always_on = {
            flavor: {pool.pool: pool.always_on for pool in _pool_supplies(environment, flavor)}
            for flavor in environment.flavors
        }
        self._users = {
            name: [
                tenant.tenant
                for tenant in tenants
                if pool.admits(tenant.tenant, tenant.tiers)
                and not environment.flavors_of(name).keys().isdisjoint(tenant.gpus)
            ]
            for name, pool in environment.pools.items()
        }

    def losses(self, rack: int) -> Iterator[Loss]:
        pools = {name: pool for name, pool in self._environment.pools.items() if pool.nodes.max}
        for name in pools:
            for layout in self._environment.partitions_of(name):
                yield self._loss(LossScope.GPU, name, {name: self._gpu(name, layout)})
            yield self._loss(LossScope.NODE, name, {name: self._nodes(name, 1, 1)})
            yield self._loss(LossScope.RACK, name, {name: self._nodes(name, rack, rack)})
        zones: dict[str, dict[str, _PoolLoss]] = {}
        for name, pool in pools.items():
            pool_zones = pool.zones or self._environment.aws.every_zone
            for zone in pool_zones:
                share = (-(-pool.nodes.max // len(pool_zones)), -(-pool.nodes.min // len(pool_zones)))
                zones.setdefault(zone, {})[name] = self._nodes(name, *share)
        for zone, pool_losses in sorted(zones.items()):
            yield self._loss(LossScope.ZONE, zone, pool_losses)

    def _gpu(self, name: str, layout: GpuPartition) -> _PoolLoss:
        pool = self._environment.pools[name]
        replicas = pool.gpu_sharing.replicas if pool.gpu_sharing else 1
        slices: Mapping[str | None, int] = {**layout.slices} or {None: 1}
        units = {
            flavor: slices[profile] * replicas
            for flavor in self._environment.flavors_of(name)
            if (profile := self._environment.flavors[flavor].mig) in slices
        }
        return _PoolLoss(0, 1, units, units if pool.nodes.min else {})

    def _nodes(self, name: str, max_count: int, min_count: int) -> _PoolLoss:
        pool, flavor_counts = self._environment.pools[name], self._environment.flavors_of(name)
        count, always_on = min(max_count, pool.nodes.max), min(min_count, pool.nodes.min)
        return _PoolLoss(
            count,
            count * pool.machine.gpus,
            {flavor: count * units for flavor, units in flavor_counts.items()},
            {flavor: always_on * units for flavor, units in flavor_counts.items()},
        )

    def _loss(self, scope: LossScope, where: str, pool_losses: Mapping[str, _PoolLoss]) -> Loss:
        units: Counter[str] = Counter()
        for loss in pool_losses.values():
            units.update(loss.units)
        return Loss(
            scope=scope,
            where=where,
            pools=tuple(pool_losses),
            nodes=sum(loss.nodes for loss in pool_losses.values()),
            gpus=sum(loss.gpus for loss in pool_losses.values()),
            units=dict(units),
            tenants=tuple(sorted({tenant for name in pool_losses for tenant in self._users[name]})),
            unmet=tuple(shortage for flavor in units for shortage in self._unmet(flavor, pool_losses)),
        )

    def _unmet(self, flavor: str, pool_losses: Mapping[str, _PoolLoss]) -> tuple[UnmetGuarantee, ...]:
        capacity = dict(self._always_on[flavor])
        for name, loss in pool_losses.items():
            if name in capacity:
                capacity[name] -= loss.always_on.get(flavor, 0)
        return _unmet(flavor, self._claims[flavor], capacity)
