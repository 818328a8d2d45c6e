"""What the pools yield, what of it is guaranteed, and what is left when something fails.

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
from tenancy.schema.environment import Environment
from tenancy.schema.pools import GpuPartition
from tenancy.schema.tenant import Tenant

RACK = 4
"""Nodes of one rack, by default: AWS does not report racks."""


# Supply


@dataclass(frozen=True, slots=True)
class Unmet:
    """Guarantees that the pools cannot meet together. Which of the tenants goes without is undefined."""

    flavor: str
    pools: tuple[str, ...]
    there: int
    guaranteed: int
    missing: int
    tenants: Mapping[str, int]
    """What each has guaranteed there."""


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """What one pool has of one flavor."""

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
    """What it may borrow by its file."""
    borrowable: int
    """What of that the minimum of nodes can give when all others lend everything that they offer: autoscaled and spot
    nodes above the minimum are left out."""


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
    unmet: tuple[Unmet, ...]
    """Guarantees that are not met during the worst wave of an upgrade."""


_Claims = Mapping[frozenset[str], Mapping[str, int]]
"""Pools that may meet a claim -> tenant -> how much."""


def supply(environment: Environment, tenants: Sequence[Tenant]) -> tuple[FlavorSupply, ...]:
    """Every flavor, in the order of the environment; linear in the number of tenants."""
    present = active_tenants(tenants)
    return tuple(_flavor_supply(environment, flavor, present) for flavor in environment.flavors)


def _flavor_supply(environment: Environment, flavor: str, tenants: Sequence[Tenant]) -> FlavorSupply:
    pools = tuple(_pool_supplies(environment, flavor))
    claims, lent = _claims(environment, flavor, tenants)
    always_on = {pool.pool: pool.always_on for pool in pools}
    holders = [tenant for tenant in tenants if flavor in tenant.gpus]
    guaranteed = sum(tenant.gpus[flavor].guaranteed for tenant in holders)
    worst = min(_waves(environment, pools), key=lambda there: sum(there.values()), default=always_on)
    unmet = [found for there in _waves(environment, pools) if (found := _unmet(flavor, claims, there))]
    return FlavorSupply(
        flavor=flavor,
        always_on=sum(always_on.values()),
        maximum=sum(pool.maximum for pool in pools),
        guaranteed=guaranteed,
        free=sum(always_on.values()) - guaranteed,
        lendable=sum(tenant.gpus[flavor].lends for tenant in holders),
        upgrading=sum(worst.values()),
        pools=pools,
        tenants=tuple(_shares(environment, flavor, holders, always_on, _Lending(claims, lent))),
        unmet=max(unmet, key=lambda found: sum(one.missing for one in found), default=()),
    )


def _pool_supplies(environment: Environment, flavor: str) -> Iterator[PoolSupply]:
    for name, pool in environment.pools.items():
        node = environment.flavors_of(name).get(flavor)
        if node:
            gone = min(pool.upgrade.at_once, pool.nodes.min) if pool.terminates_first else 0
            least, most = pool.nodes.min, pool.nodes.max
            yield PoolSupply(name, node, node * least, node * most, node * (least - gone))


def _waves(environment: Environment, pools: Sequence[PoolSupply]) -> list[dict[str, int]]:
    """What is there in each wave of an upgrade: pools of one wave change at the same time."""
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
    """What is guaranteed, by the pools that may meet it; and what of that each tenant lends."""
    admitting = _admitting(environment, flavor)
    claims: dict[frozenset[str], dict[str, int]] = {}
    lent: dict[str, dict[frozenset[str], int]] = {}
    for tenant in tenants:
        if flavor not in tenant.gpus:
            continue
        lends = tenant.gpus[flavor].lends
        for namespace in tenant.namespaces:
            held = tenant.guaranteed_in(namespace)[flavor]
            pools = admitting(tenant.tenant, frozenset({tenant.tier_of(namespace)})) if held else frozenset()
            if pools:
                of = claims.setdefault(pools, {})
                of[tenant.tenant] = of.get(tenant.tenant, 0) + held
                mine = lent.setdefault(tenant.tenant, {})
                part = min(held, lends)
                mine[pools] = mine.get(pools, 0) + part
                lends -= part
    return claims, lent


class _Lending:
    """Claims while every tenant lends all that it offers."""

    def __init__(self, claims: _Claims, lent: Mapping[str, Mapping[frozenset[str], int]]) -> None:
        self._lent = lent
        self._kept = Counter({pools: sum(of.values()) for pools, of in claims.items()})
        for mine in lent.values():
            self._kept.subtract(mine)

    def without(self, tenant: str) -> Counter[frozenset[str]]:
        """The same, with this tenant keeping its own."""
        return self._kept + Counter(self._lent.get(tenant, {}))


def _shares(
    environment: Environment, flavor: str, holders: Sequence[Tenant], there: Mapping[str, int], lending: _Lending
) -> Iterator[TenantShare]:
    admitting = _admitting(environment, flavor)
    for tenant in holders:
        share = tenant.gpus[flavor]
        asked, found = share.borrows if borrowing_tiers(environment, tenant) else 0, 0
        if asked:
            claims = lending.without(tenant.tenant)
            claims[admitting(tenant.tenant, tenant.tiers)] += asked
            found = max(0, asked - place_by_pools(claims, there)[0])
        yield TenantShare(tenant.tenant, share.guaranteed, share.lends, asked, found)


# Placing claims on pools


def _unmet(flavor: str, claims: _Claims, there: Mapping[str, int]) -> tuple[Unmet, ...]:
    """Guarantees that do not fit on what is there; claims that share no pool are judged apart."""
    found = []
    for together in _apart(claims):
        missing, full = place_by_pools({pools: sum(claims[pools].values()) for pools in together}, there)
        if missing:
            inside: Counter[str] = Counter()
            for pools in together:
                if pools <= full:
                    inside.update(claims[pools])
            had = sum(there[pool] for pool in full)
            found.append(Unmet(flavor, tuple(sorted(full)), had, inside.total(), missing, dict(sorted(inside.items()))))
    return tuple(found)


def _apart(claims: Iterable[frozenset[str]]) -> list[list[frozenset[str]]]:
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
    """What fails at once in an analysis of failures."""

    GPU = "GPU"
    NODE = "node"
    RACK = "rack"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Loss:
    """What one failure takes, at worst."""

    scope: LossScope
    where: str
    """The pool, or the zone."""
    pools: tuple[str, ...]
    nodes: int
    gpus: int
    units: Mapping[str, int]
    """Lost of each flavor when the pools are at their maximum."""
    tenants: tuple[str, ...]
    """Who may have work there."""
    unmet: tuple[Unmet, ...]
    """Guarantees that are not met until the repair, when the pools are at their minimum."""


def losses(environment: Environment, tenants: Sequence[Tenant], rack: int = RACK) -> tuple[Loss, ...]:
    """One GPU, one node and one rack of every pool, and every zone that is known.

    A zone takes its part of every pool that has nodes there; nodes are spread evenly.
    """
    return tuple(_Failures(environment, active_tenants(tenants)).all(rack))


@dataclass(frozen=True, slots=True)
class _Lost:
    """Nodes, or one GPU, of one pool: at its maximum, and at its minimum."""

    nodes: int
    gpus: int
    units: Mapping[str, int]
    always_on: Mapping[str, int]


class _Failures:
    def __init__(self, environment: Environment, tenants: Sequence[Tenant]) -> None:
        self._environment = environment
        self._claims = {flavor: _claims(environment, flavor, tenants)[0] for flavor in environment.flavors}
        self._there = {
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

    def all(self, rack: int) -> Iterator[Loss]:
        pools = {name: pool for name, pool in self._environment.pools.items() if pool.nodes.max}
        for name in pools:
            for cut in self._environment.partitions_of(name):
                yield self._loss(LossScope.GPU, name, {name: self._gpu(name, cut)})
            yield self._loss(LossScope.NODE, name, {name: self._nodes(name, 1, 1)})
            yield self._loss(LossScope.RACK, name, {name: self._nodes(name, rack, rack)})
        zones: dict[str, dict[str, _Lost]] = {}
        for name, pool in pools.items():
            known = pool.zones or self._environment.aws.every_zone
            for zone in known:
                share = (-(-pool.nodes.max // len(known)), -(-pool.nodes.min // len(known)))
                zones.setdefault(zone, {})[name] = self._nodes(name, *share)
        for zone, lost in sorted(zones.items()):
            yield self._loss(LossScope.ZONE, zone, lost)

    def _gpu(self, name: str, cut: GpuPartition) -> _Lost:
        pool = self._environment.pools[name]
        replicas = pool.share.replicas if pool.share else 1
        on_it: Mapping[str | None, int] = {**cut.slices} or {None: 1}
        units = {
            flavor: on_it[profile] * replicas
            for flavor in self._environment.flavors_of(name)
            if (profile := self._environment.flavors[flavor].mig) in on_it
        }
        return _Lost(0, 1, units, units if pool.nodes.min else {})

    def _nodes(self, name: str, most: int, least: int) -> _Lost:
        pool, each = self._environment.pools[name], self._environment.flavors_of(name)
        count, always_on = min(most, pool.nodes.max), min(least, pool.nodes.min)
        return _Lost(
            count,
            count * pool.machine.gpus,
            {flavor: count * units for flavor, units in each.items()},
            {flavor: always_on * units for flavor, units in each.items()},
        )

    def _loss(self, scope: LossScope, where: str, lost: Mapping[str, _Lost]) -> Loss:
        units: Counter[str] = Counter()
        for of in lost.values():
            units.update(of.units)
        return Loss(
            scope=scope,
            where=where,
            pools=tuple(lost),
            nodes=sum(of.nodes for of in lost.values()),
            gpus=sum(of.gpus for of in lost.values()),
            units=dict(units),
            tenants=tuple(sorted({tenant for name in lost for tenant in self._users[name]})),
            unmet=tuple(found for flavor in units for found in self._unmet(flavor, lost)),
        )

    def _unmet(self, flavor: str, lost: Mapping[str, _Lost]) -> tuple[Unmet, ...]:
        there = dict(self._there[flavor])
        for name, of in lost.items():
            if name in there:
                there[name] -= of.always_on.get(flavor, 0)
        return _unmet(flavor, self._claims[flavor], there)
