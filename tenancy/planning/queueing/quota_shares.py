"""Guarantees of each tenant in each pool, its borrowing limits, and the maximum that a namespace may use."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tenancy.catalog import boards
from tenancy.kube.placement import Placement, place
from tenancy.planning.common.pools import node_allocatable, pools_of
from tenancy.planning.queueing.queue_names import ANY_POOL, BOARD_COMPUTE, BOARD_MEMORY, queue_resource
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool
from tenancy.spec.fields.queues import seconds
from tenancy.spec.fields.tenant import Namespace, Tenant

BOARD = 56
"""Units of a whole board: a multiple of 7 and 8, so that every share of a board is a whole number of them."""
PoolFlavorCounts = Mapping[str, Mapping[str, int]]
"""Pool -> flavor of the spec -> how many."""


@dataclass(slots=True)
class QueueShare:
    """Share of one tenant in the queues."""

    guarantees: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Guaranteed: tier -> pool -> flavor -> how many."""
    lending: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maximum: pool -> flavor -> how many."""
    borrowing: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maximum on top of the guarantee: pool -> flavor -> how many."""

    def guaranteed(self, pool: str, flavor: str) -> int:
        """Number of devices of a flavor that all tiers of the tenant are guaranteed in a pool."""
        return sum(pools.get(pool, {}).get(flavor, 0) for pools in self.guarantees.values())


def has_no_capacity(environment: Environment, pool: Pool, day: dt.date) -> bool:
    """Whether on that day the pool's capacity block ends too soon for new work, or has not begun."""
    hold = dt.timedelta(seconds=seconds(environment.queues.hold_before_capacity_block_end))
    return not pool.purchase.has_begun(day) or pool.purchase.ends_by(day + hold)


def supply(environment: Environment, day: dt.date, *, always_on: bool) -> dict[str, dict[str, int]]:
    """Flavor -> pool -> how many there are on that day, at the minimum or the maximum of nodes."""
    supplies: dict[str, dict[str, int]] = {flavor: {} for flavor in environment.flavors}
    for name, pool in environment.pools.items():
        nodes = 0 if has_no_capacity(environment, pool, day) else pool.nodes.min if always_on else pool.nodes.max
        for flavor, per_node in environment.flavors_of(name).items():
            supplies[flavor][name] = per_node * nodes
    return supplies


def open_pools(environment: Environment, tenant: Tenant, tier: str) -> list[str]:
    """Pools with GPUs that a queue spans, in the order in which Kueue tries them."""
    pools = [pools_of(environment, flavor, tenant.tenant, frozenset({tier})) for flavor in tenant.gpus]
    return in_preference(environment, {name for flavor_pools in pools for name in flavor_pools})


def in_preference(environment: Environment, pools: Iterable[str]) -> list[str]:
    """Names of pools, the preferred first."""
    return sorted(pools, key=lambda name: environment.pools[name].preference(name))


def borrowing_tiers(environment: Environment, tenant: Tenant) -> list[str]:
    """Names of the tenant's tiers that may borrow, sorted."""
    return [tier for tier in sorted(tenant.tiers) if environment.tiers[tier].allow_borrowing]


ExtraShares = Mapping[tuple[str, str], int]
"""(tenant, flavor) -> how many it has on top of its guarantee at some instant. They belong to its first namespace."""


def shares(
    environment: Environment, tenants: Sequence[Tenant], day: dt.date, extra_shares: ExtraShares | None = None
) -> dict[str, QueueShare]:
    """Every tenant's share on that day: guarantees are placed in pools, each in as few as possible.

    What tenants have on top at an instant is placed in what the guarantees leave, so that no guarantee moves; only if
    it does not fit there, all are placed together.
    """
    queue_shares = {tenant.tenant: QueueShare({tier: {} for tier in sorted(tenant.tiers)}) for tenant in tenants}
    always_on, max_supply = (supply(environment, day, always_on=flag) for flag in (True, False))
    guarantees_by_tenant = {
        tenant.tenant: [(tenant.tier_of(namespace), tenant.guaranteed_in(namespace)) for namespace in tenant.namespaces]
        for tenant in tenants
    }
    for flavor in environment.flavors:
        claims: dict[tuple[str, str], int] = Counter()
        for tenant in tenants:
            for tier, counts in guarantees_by_tenant[tenant.tenant] if flavor in tenant.gpus else ():
                claims[tenant.tenant, tier] += counts[flavor]
        ordered = sorted(claims.items(), key=lambda claim: (-claim[1], claim[0]))
        extra = {
            (tenant.tenant, tenant.tier_of(tenant.namespaces[0])): count
            for tenant in tenants
            if (count := (extra_shares or {}).get((tenant.tenant, flavor), 0))
        }
        for pool, holders in _place_claims(environment, flavor, dict(ordered), extra, always_on[flavor]).items():
            for (name, tier), count in holders.items():
                if count:
                    queue_shares[name].guarantees[tier].setdefault(pool, {})[flavor] = count
        for tenant in tenants:
            if flavor in tenant.gpus:
                _set_lending_and_borrowing(environment, tenant, flavor, queue_shares[tenant.tenant], max_supply[flavor])
    return queue_shares


_Queue = tuple[str, str]
"""A tenant and one of its tiers."""


def _place_claims(
    environment: Environment,
    flavor: str,
    claims: Mapping[_Queue, int],
    extra: Mapping[_Queue, int],
    capacity: Mapping[str, int],
) -> Mapping[str, Mapping[_Queue, int]]:
    """Pool -> queue -> how many."""

    def place_in(queue_claims: Mapping[_Queue, int], free: Mapping[str, int]) -> Placement[_Queue]:
        pools = {queue: pools_of(environment, flavor, queue[0], frozenset({queue[1]})) for queue in queue_claims}
        return place({queue: (pools[queue], count) for queue, count in queue_claims.items() if count}, free)

    base = place_in(claims, capacity)
    if not extra:
        return base.holds
    free_capacity = {pool: count - base.holds[pool].total() for pool, count in capacity.items()}
    extra_placement = place_in(extra, free_capacity)
    if extra_placement.missing:
        return place_in(
            {queue: claims.get(queue, 0) + extra.get(queue, 0) for queue in {**claims, **extra}}, capacity
        ).holds
    return {pool: base.holds[pool] + extra_placement.holds[pool] for pool in capacity}


def _set_lending_and_borrowing(
    environment: Environment, tenant: Tenant, flavor: str, share: QueueShare, max_supply: Mapping[str, int]
) -> None:
    gpu_share = tenant.gpus[flavor]
    unlent = gpu_share.lends
    # Pools that others may use before the tenant's own, from which no other tenant could borrow.
    lendable = pools_of(environment, flavor, tenant.tenant, tenant.tiers)
    for pool in sorted(lendable, key=lambda name: environment.pools[name].sole_tenant is not None):
        if lent_count := min(unlent, share.guaranteed(pool, flavor)):
            share.lending.setdefault(pool, {})[flavor] = lent_count
            unlent -= lent_count
    tiers = frozenset(borrowing_tiers(environment, tenant))
    for pool in pools_of(environment, flavor, tenant.tenant, tiers) if tiers else ():
        if borrow_count := min(gpu_share.borrows, max_supply[pool] - share.guaranteed(pool, flavor)):
            share.borrowing.setdefault(pool, {})[flavor] = borrow_count


def quota_ceiling(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, int]:
    """The maximum that one namespace may use at once, by flavor: the limit of its quota, in case the queue fails.

    All that its tier's queue is guaranteed, and for a tier that borrows also what the tenant's other tiers leave idle
    and what the tenant may borrow, in each pool again: Kueue knows no limit over several. It does not depend on where
    other tenants' guarantees are placed, so no quota changes with them. Without a queue, the namespace's own guarantee.
    """
    if not environment.has_queues:
        return tenant.guaranteed_in(namespace)
    tier = tenant.tier_of(namespace)
    ceilings = dict.fromkeys(tenant.gpus, 0)
    borrowing = frozenset(borrowing_tiers(environment, tenant))
    for flavor, share in tenant.gpus.items():
        if not pools_of(environment, flavor, tenant.tenant, frozenset({tier})):
            continue
        if environment.tiers[tier].allow_borrowing:
            pools = pools_of(environment, flavor, tenant.tenant, borrowing)
            capacities = [environment.flavors_of(pool)[flavor] * environment.pools[pool].nodes.max for pool in pools]
            guaranteed = share.guaranteed + tenant.max_extra_gpus(flavor)
            ceilings[flavor] = guaranteed + sum(min(share.borrows, count) for count in capacities)
        else:
            parts = [part for part in tenant.namespaces if tenant.tier_of(part) == tier]
            ceilings[flavor] = sum(tenant.guaranteed_in(part)[flavor] for part in parts)
            if tenant.namespaces[0] in parts:
                ceilings[flavor] += tenant.max_extra_gpus(flavor)
    return ceilings


def board_units(environment: Environment) -> dict[str, tuple[int, int]]:
    """Board units of compute and memory that one of each extended resource takes.

    The queue sees a resource's name alone: where two boards have one name for slices of different size, the larger
    counts for both, in what is asked for and in what is promised. Of one resource alone they would say the same once
    more, for which Kueue takes a fifth of its time: there are none.
    """
    units: dict[str, tuple[int, int]] = {}
    for pool_name, pool in environment.pools.items():
        for flavor in environment.flavors_of(pool_name):
            gpu, profile = environment.flavors[flavor].gpu, environment.flavors[flavor].mig
            compute = memory = Fraction(1, pool.gpu_sharing.replicas if pool.gpu_sharing else 1)
            if profile:
                board = boards.BOARDS[gpu]
                compute *= Fraction(board.profiles[profile].compute, board.compute_slices)
                memory *= Fraction(board.profiles[profile].memory, board.memory_units)
            resource = environment.resource_of(flavor)
            previous = units.get(resource, (0, 0))
            units[resource] = (
                max(previous[0], _round_up(compute * BOARD)),
                max(previous[1], _round_up(memory * BOARD)),
            )
    return units if len(units) > 1 else {}


def _round_up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


def part_of_node(environment: Environment, pool: str, flavor: str) -> Fraction:
    """The part of a node that goes with one GPU, slice or replica: all that it yields make up the node."""

    def part(name: str) -> Fraction:
        profile = environment.flavors[name].mig
        return boards.share_of(environment.flavors[name].gpu, profile) if profile else Fraction(1)

    return part(flavor) / sum(part(name) * count for name, count in environment.flavors_of(pool).items())


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Quota that one unit of a flavor in a pool takes."""

    cpu: int
    memory: int
    resource: str
    compute: int
    board_memory: int


class QuotaCalculator:
    """Turns counts of flavors into quotas of Kueue, on one day."""

    def __init__(self, environment: Environment, day: dt.date) -> None:
        self.environment, self.day = environment, day
        self._units = {} if environment.uses_device_claims else board_units(environment)
        self._unit_costs: dict[tuple[str, str], UnitCost] = {}
        for name in environment.pools:
            flavors = environment.flavors_of(name)
            allocatable, daemonsets = node_allocatable(environment, name), environment.daemonset_resources(name)
            for flavor in flavors:
                part = part_of_node(environment, name, flavor)
                compute, memory = self._units.get(environment.resource_of(flavor), (0, 0))
                self._unit_costs[name, flavor] = UnitCost(
                    int((allocatable.cpu - daemonsets.cpu) * part),
                    int((allocatable.memory - daemonsets.memory) * part),
                    queue_resource(environment, flavor),
                    compute,
                    memory,
                )

    def resources(self, flavors: Iterable[str]) -> list[str]:
        """Resources that a queue of these flavors covers, in one order everywhere."""
        names = sorted({queue_resource(self.environment, flavor) for flavor in flavors})
        return [*names, *([BOARD_COMPUTE, BOARD_MEMORY] if names and self._units else [])]

    def gpu_quota(self, counts: PoolFlavorCounts) -> Counter[tuple[str, str]]:
        """Quota of GPUs for counts of flavors in each pool."""
        quota: Counter[tuple[str, str]] = Counter()
        for pool, flavors in counts.items():
            for flavor, count in flavors.items():
                unit_cost = self._unit_costs[pool, flavor]
                quota[pool, unit_cost.resource] += count
                if self._units:
                    quota[pool, BOARD_COMPUTE] += count * unit_cost.compute
                    quota[pool, BOARD_MEMORY] += count * unit_cost.board_memory
        return quota

    def quota_with_cpu(self, counts: PoolFlavorCounts) -> Counter[tuple[str, str]]:
        """Quota of GPUs with the CPU and memory that belong to them."""
        quota = self.gpu_quota(counts)
        for pool, flavors in counts.items():
            for flavor, count in flavors.items():
                quota[ANY_POOL, "cpu"] += count * self._unit_costs[pool, flavor].cpu
                quota[ANY_POOL, "memory"] += count * self._unit_costs[pool, flavor].memory
        return quota

    def quota_for_any_pool(self, counts: PoolFlavorCounts, count: Mapping[str, int]) -> Counter[tuple[str, str]]:
        """Quota for counts in several pools that are not all used at once: `count` of each flavor, in any pool."""
        quota = self.gpu_quota(counts)
        for flavor, maximum in count.items():
            costs = [self._unit_costs[pool, flavor] for pool, flavors in counts.items() if flavor in flavors]
            quota[ANY_POOL, "cpu"] += maximum * max((unit_cost.cpu for unit_cost in costs), default=0)
            quota[ANY_POOL, "memory"] += maximum * max((unit_cost.memory for unit_cost in costs), default=0)
        return quota
