"""What the pools yield, what of it is promised, and what is left when something fails.

Only `nodes.min` counts as there: whatever is above it comes by luck. A guarantee may be met only by pools that admit
the part of the tenant that holds it, so supplies are never just added up: claims are placed on pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tenancy.catalog import boards, gpus, nodes, quantity
from tenancy.plan.pools import node_allocatable
from tenancy.spec.base import amount
from tenancy.spec.environment import Environment
from tenancy.spec.placement import placed
from tenancy.spec.pools import Cut, Pool, Provisioner, resource_name
from tenancy.spec.tenant import Tenant

RACK = 4
"""Nodes of one rack where nobody knows better: AWS tells of no racks."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of thing that pods ask a node for: a whole GPU, a slice, or a replica of either."""

    flavor: str | None
    """None: no flavor is this, so nobody can be granted it."""
    profile: str | None
    resource: str
    """The extended resource, or the device class where GPUs are asked for by claim."""
    count: int
    """How many one node has."""
    share: Fraction
    """The part of a board that one takes away from others."""
    each: nodes.Resources
    """What is left for one when all of the node are in use."""


@dataclass(frozen=True, slots=True)
class PoolYield:
    """One pool: how many nodes, and what one of them offers."""

    pool: str
    instance: str
    board: str
    nodes_min: int
    nodes_max: int
    provisioner: Provisioner
    purchase: str
    layout: str
    flavors: Mapping[str, int]
    resources: Mapping[str, int]
    """Extended resources of one node, EFA among them."""
    vcpu: int
    """As EC2 sells it."""
    memory_gib: int
    """As EC2 sells it."""
    allocatable: nodes.Resources
    """What the kubelet offers to all pods."""
    daemonsets: nodes.Resources
    """What the platform's own pods take of it."""
    left: nodes.Resources
    """What is left for tenants."""
    pods_left: int
    """Pods left when each unit has one."""
    units: tuple[Unit, ...]
    notes: tuple[str, ...]


def pool_yield(environment: Environment, name: str, tenants: Sequence[Tenant] = ()) -> PoolYield:
    """What one pool yields. The tiers of `tenants` that a pool names are judged beside those it names itself."""
    pool = environment.pools[name]
    offered, taken = node_allocatable(environment, name), environment.daemonsets(name)
    left = nodes.Resources(
        offered.cpu - taken.cpu, offered.memory - taken.memory, offered.pods - taken.pods, offered.ephemeral
    )
    units = _units(environment, name, left)
    efa = {gpus.EFA: pool.machine.efa} if pool.efa else {}
    by_plugin = {} if environment.devices_by_claim else {unit.resource: unit.count for unit in units}
    return PoolYield(
        pool=name,
        instance=pool.instance,
        board=pool.machine.gpu,
        nodes_min=pool.nodes.min,
        nodes_max=pool.nodes.max,
        provisioner=pool.made_by,
        purchase=str(pool.purchase),
        layout=_layout(environment, name),
        flavors=environment.flavors_of(name),
        resources={**efa, **by_plugin},
        vcpu=pool.machine.vcpu,
        memory_gib=pool.machine.memory,
        allocatable=offered,
        daemonsets=taken,
        left=left,
        pods_left=left.pods - sum(unit.count for unit in units),
        units=units,
        notes=tuple(_notes(environment, name, units, tenants)),
    )


def parts_of(left: nodes.Resources, shares: Mapping[str, tuple[int, Fraction]]) -> dict[str, nodes.Resources]:
    """A node's resources divided among what it is cut into, by count and share of a board; rounded down.

    A 3g slice so gets more CPU than a 1g. A board that is not cut to the end leaves nothing idle: its slices get more.
    """
    whole = sum((count * share for count, share in shares.values()), Fraction())
    parts = {key: share / whole for key, (_, share) in shares.items()}
    return {
        key: nodes.Resources(int(left.cpu * part), int(left.memory * part), 1, int(left.ephemeral * part))
        for key, part in parts.items()
    }


def _units(environment: Environment, name: str, left: nodes.Resources) -> tuple[Unit, ...]:
    pool = environment.pools[name]
    mode, replicas = (pool.share.mode, pool.share.replicas) if pool.share else (None, 1)
    counts: Counter[str] = Counter()
    for count, slices in environment.cuts(name):
        for profile, each in slices.items() or [("", 1)]:
            counts[profile] += count * each * replicas
    board = pool.machine.gpu
    shares = {
        profile: (count, (boards.share_of(board, profile) if profile else Fraction(1)) / replicas)
        for profile, count in counts.items()
    }
    called = {environment.flavors[flavor].mig or "": flavor for flavor in environment.flavors_of(name)}
    each = parts_of(left, shares)
    return tuple(
        Unit(
            flavor=called.get(profile),
            profile=profile or None,
            resource=called.get(profile, "")
            if environment.devices_by_claim
            else resource_name(profile or None, mode is not None, pool.strategy),
            count=count,
            share=share,
            each=each[profile],
        )
        for profile, (count, share) in shares.items()
    )


def _layout(environment: Environment, name: str) -> str:
    pool = environment.pools[name]
    parts = " and ".join(
        f"{count} x [{boards.write_layout(slices)}]" if slices else _whole(count)
        for count, slices in environment.cuts(name)
    )
    if not parts:
        return "no GPUs"
    return f"{parts}, {pool.share.replicas} pods on each by {pool.share.mode}" if pool.share else parts


def _whole(count: int) -> str:
    return f"{count} whole GPU{'s' * (count > 1)}"


def _notes(environment: Environment, name: str, units: Sequence[Unit], tenants: Sequence[Tenant]) -> Iterator[str]:
    pool = environment.pools[name]
    if not pool.nodes.min:
        yield "nodes.min is 0: the pool backs no guarantee"
    for unit in units:
        if unit.flavor is None:
            yield f"{unit.count} x {unit.profile or 'GPU'} on every node are of no flavor: nobody can be granted them"
    for cut in environment.cuts(name):
        if cut.slices and (more := _room(pool.machine.gpu, cut)):
            yield f"{cut.gpus} x [{boards.write_layout(cut.slices)}]: each GPU has room for {more} more"
    if environment.queued and not pool.machine.gpus:
        yield from _beyond(environment, name, tenants)
    for tier in sorted(_tiers(environment, pool, tenants)):
        container = environment.tiers[tier].container
        for unit in units:
            what = unit.flavor or unit.profile or "GPU"
            if over := _over(container.default_request, unit.each):
                yield (
                    f"tier {tier}: a container that writes no requests asks for more than one {what} has ({over}): "
                    "such pods do not fill a node; lower container.default-request"
                )
            if over := _over(container.default, unit.each):
                yield (
                    f"tier {tier}: a container that writes no limits may use more than one {what} has ({over}): "
                    "a full node is overcommitted; lower container.default"
                )


def _beyond(environment: Environment, name: str, tenants: Sequence[Tenant]) -> Iterator[str]:
    """Where queues let more start than a pool without GPUs can hold: of these only the parts' quotas say how much."""
    pools = {each: pool for each, pool in environment.pools.items() if not pool.machine.gpus}
    cores: Counter[frozenset[str]] = Counter()
    gibibytes: Counter[frozenset[str]] = Counter()
    for tenant in tenants:
        for namespace in tenant.namespaces:
            tier = tenant.tier_of(namespace)
            if mine := frozenset(each for each, pool in pools.items() if pool.admits(tenant.tenant, frozenset({tier}))):
                quota = environment.tiers[tier].allows(namespace.quota)
                cores[mine] += int(amount(quota.cpu))
                gibibytes[mine] += int(amount(quota.memory) / 2**30)
    nodes_of = {each: (pool.nodes.max, node_allocatable(environment, each)) for each, pool in pools.items()}
    for claims, there, unit in (
        (cores, {each: most * node.cpu // 1000 for each, (most, node) in nodes_of.items()}, " cores"),
        (gibibytes, {each: most * node.memory // 1024 for each, (most, node) in nodes_of.items()}, "Gi"),
    ):
        _, full = placed(claims, there)
        if name in full:
            quotas = sum(count for mine, count in claims.items() if mine <= full)
            have = sum(there[each] for each in full)
            yield (
                f"quotas of the parts that come here are {quotas:,}{unit}, and all nodes of "
                f"{' and '.join(sorted(full))} have {have:,}{unit}: more is let start, and finds no node"
            )


def _room(board: str, cut: Cut) -> str | None:
    """The largest slice that a board cut like this could hold besides."""
    profiles = boards.BOARDS[board].profiles
    fitting = [p for p in profiles if not boards.layout_misfit(board, {**cut.slices, p: cut.slices.get(p, 0) + 1})]
    return max(fitting, key=lambda p: (profiles[p].memory, profiles[p].compute), default=None)


def _tiers(environment: Environment, pool: Pool, tenants: Sequence[Tenant]) -> frozenset[str]:
    """Tiers whose pods may come to the pool."""
    if not pool.restricted:
        return frozenset(environment.tiers)
    return frozenset(pool.tiers).union(*(tenant.tiers for tenant in tenants if tenant.tenant in pool.tenants))


def _over(asked: Mapping[str, str], each: nodes.Resources) -> str:
    """What of cpu and memory is more than one unit has."""
    has = {"cpu": f"{each.cpu}m", "memory": f"{each.memory}Mi"}
    return " and ".join(
        f"{key} {asked[key]} of {quantity.write(amount(there))}"
        for key, there in has.items()
        if key in asked and amount(asked[key]) > amount(there)
    )


# Supply


@dataclass(frozen=True, slots=True)
class Unmet:
    """Guarantees that pools cannot hold together. Which of the tenants goes without is luck."""

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
    surely: int
    at_most: int
    upgrading: int
    """Surely there while the pool's nodes are replaced."""


@dataclass(frozen=True, slots=True)
class TenantShare:
    """One tenant's part in a flavor."""

    tenant: str
    guaranteed: int
    lends: int
    borrows: int
    """What it may borrow by its file."""
    borrowable: int
    """What of that is surely there when all others lend everything they do lend: nodes that scaling or spot may bring
    are left out."""


@dataclass(frozen=True, slots=True)
class FlavorSupply:
    """One flavor: what is there, whose it is, and what may be lent."""

    flavor: str
    surely: int
    at_most: int
    guaranteed: int
    free: int
    """Surely there and guaranteed to nobody."""
    lendable: int
    upgrading: int
    """Surely there in the worst wave of an upgrade."""
    pools: tuple[PoolSupply, ...]
    tenants: tuple[TenantShare, ...]
    unmet: tuple[Unmet, ...]
    """Guarantees that do not hold during the worst wave of an upgrade."""


_Claims = Mapping[frozenset[str], Mapping[str, int]]
"""Pools that may hold a claim -> tenant -> how much."""


def supply(environment: Environment, tenants: Sequence[Tenant]) -> tuple[FlavorSupply, ...]:
    """Every flavor, in the order of the environment; linear in the number of tenants."""
    return tuple(_flavor_supply(environment, flavor, tenants) for flavor in environment.flavors)


def _flavor_supply(environment: Environment, flavor: str, tenants: Sequence[Tenant]) -> FlavorSupply:
    pools = tuple(_pool_supplies(environment, flavor))
    claims, lent = _claims(environment, flavor, tenants)
    surely = {pool.pool: pool.surely for pool in pools}
    holders = [tenant for tenant in tenants if flavor in tenant.gpus]
    guaranteed = sum(tenant.gpus[flavor].guaranteed for tenant in holders)
    worst = min(_waves(environment, pools), key=lambda there: sum(there.values()), default=surely)
    unmet = [found for there in _waves(environment, pools) if (found := _unmet(flavor, claims, there))]
    return FlavorSupply(
        flavor=flavor,
        surely=sum(surely.values()),
        at_most=sum(pool.at_most for pool in pools),
        guaranteed=guaranteed,
        free=sum(surely.values()) - guaranteed,
        lendable=sum(tenant.gpus[flavor].lend_up_to or 0 for tenant in holders),
        upgrading=sum(worst.values()),
        pools=pools,
        tenants=tuple(_shares(environment, flavor, holders, surely, _Lending(claims, lent))),
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
        {pool.pool: pool.upgrading if wave_of[pool.pool] == wave else pool.surely for pool in pools}
        for wave in sorted(set(wave_of.values()))
    ]


def _admitting(environment: Environment, flavor: str) -> Callable[[str, frozenset[str]], frozenset[str]]:
    """Pools of a flavor that admit a tenant of these tiers."""
    yielding = [(name, pool) for name, pool in environment.pools.items() if flavor in environment.flavors_of(name)]
    return lambda tenant, tiers: frozenset(name for name, pool in yielding if pool.admits(tenant, tiers))


def _claims(
    environment: Environment, flavor: str, tenants: Sequence[Tenant]
) -> tuple[_Claims, Mapping[str, Mapping[frozenset[str], int]]]:
    """What is guaranteed, by the pools that may hold it; and what of that each tenant lends."""
    admitting = _admitting(environment, flavor)
    claims: dict[frozenset[str], dict[str, int]] = {}
    lent: dict[str, dict[frozenset[str], int]] = {}
    for tenant in tenants:
        if flavor not in tenant.gpus:
            continue
        lends = tenant.gpus[flavor].lend_up_to or 0
        for namespace in tenant.namespaces:
            held = tenant.held_in(namespace)[flavor]
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
    """Claims with everything lent that anybody lends."""

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
        asked, found = share.borrow_up_to or 0, 0
        if asked:
            claims = lending.without(tenant.tenant)
            claims[admitting(tenant.tenant, tenant.tiers)] += asked
            found = max(0, asked - placed(claims, there)[0])
        yield TenantShare(tenant.tenant, share.guaranteed, share.lend_up_to or 0, asked, found)


# Placing claims on pools


def _unmet(flavor: str, claims: _Claims, there: Mapping[str, int]) -> tuple[Unmet, ...]:
    """Guarantees that do not fit on what is there; claims that share no pool are judged apart."""
    found = []
    for together in _apart(claims):
        missing, full = placed({pools: sum(claims[pools].values()) for pools in together}, there)
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


# Losses


class Scope(StrEnum):
    GPU = "GPU"
    NODE = "node"
    RACK = "rack"
    ZONE = "zone"


@dataclass(frozen=True, slots=True)
class Loss:
    """What one failure takes, at worst."""

    scope: Scope
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
    """Guarantees that do not hold until it is repaired, when the pools are at their minimum."""


def losses(environment: Environment, tenants: Sequence[Tenant], rack: int = RACK) -> tuple[Loss, ...]:
    """One GPU, one node and one rack of every pool, and every zone that is known.

    A zone takes its part of every pool that has nodes there; nodes are spread evenly.
    """
    return tuple(_Failures(environment, tenants).all(rack))


@dataclass(frozen=True, slots=True)
class _Lost:
    """Nodes, or one GPU, of one pool: at its maximum, and of what surely is there."""

    nodes: int
    gpus: int
    units: Mapping[str, int]
    surely: Mapping[str, int]


class _Failures:
    def __init__(self, environment: Environment, tenants: Sequence[Tenant]) -> None:
        self._environment = environment
        self._claims = {flavor: _claims(environment, flavor, tenants)[0] for flavor in environment.flavors}
        self._there = {
            flavor: {pool.pool: pool.surely for pool in _pool_supplies(environment, flavor)}
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
            for cut in self._environment.cuts(name):
                yield self._loss(Scope.GPU, name, {name: self._gpu(name, cut)})
            yield self._loss(Scope.NODE, name, {name: self._nodes(name, 1, 1)})
            yield self._loss(Scope.RACK, name, {name: self._nodes(name, rack, rack)})
        zones: dict[str, dict[str, _Lost]] = {}
        for name, pool in pools.items():
            known = pool.zones or self._environment.aws.every_zone
            for zone in known:
                share = (-(-pool.nodes.max // len(known)), -(-pool.nodes.min // len(known)))
                zones.setdefault(zone, {})[name] = self._nodes(name, *share)
        for zone, lost in sorted(zones.items()):
            yield self._loss(Scope.ZONE, zone, lost)

    def _gpu(self, name: str, cut: Cut) -> _Lost:
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
        count, surely = min(most, pool.nodes.max), min(least, pool.nodes.min)
        return _Lost(
            count,
            count * pool.machine.gpus,
            {flavor: count * units for flavor, units in each.items()},
            {flavor: surely * units for flavor, units in each.items()},
        )

    def _loss(self, scope: Scope, where: str, lost: Mapping[str, _Lost]) -> Loss:
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
                there[name] -= of.surely.get(flavor, 0)
        return _unmet(flavor, self._claims[flavor], there)
