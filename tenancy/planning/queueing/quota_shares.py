"""What each tenant is guaranteed of each pool, what it may borrow, and the most that a namespace may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tenancy.catalog import boards
from tenancy.kube.placement import Placement, place
from tenancy.planning.common.pools import node_allocatable, pools_of
from tenancy.planning.queueing.queue_names import ANY_POOL, BOARD_COMPUTE, BOARD_MEMORY, queue_resource
from tenancy.schema.environment import Environment
from tenancy.schema.pools import Pool
from tenancy.schema.queues import seconds
from tenancy.schema.tenant import Namespace, Tenant

BOARD = 56
"""Units of a whole board: a multiple of 7 and 8, so that every share of a board is a whole number of them."""
PoolFlavorCounts = Mapping[str, Mapping[str, int]]
"""Pool -> flavor of the spec -> how many."""


@dataclass(slots=True)
class QueueShare:
    """What one tenant has in the queues."""

    held: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Guaranteed: tier -> pool -> flavor -> how many."""
    lent: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maximum: pool -> flavor -> how many."""
    borrowed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maximum on top of the guarantee: pool -> flavor -> how many."""

    def guaranteed(self, pool: str, flavor: str) -> int:
        """Number of devices of a flavor that all tiers of the tenant are guaranteed in a pool."""
        return sum(pools.get(pool, {}).get(flavor, 0) for pools in self.held.values())


def closing(environment: Environment, pool: Pool) -> bool:
    """Whether the pool's capacity block ends too soon for new work, or has not begun."""
    return not pool.purchase.has_begun or pool.purchase.ends_within(
        seconds(environment.queues.hold_before_end) // seconds("1d")
    )


def supply(environment: Environment, *, always_on: bool) -> dict[str, dict[str, int]]:
    """Flavor -> pool -> how many there are, at the minimum or the maximum of nodes."""
    found: dict[str, dict[str, int]] = {flavor: {} for flavor in environment.flavors}
    for name, pool in environment.pools.items():
        nodes = 0 if closing(environment, pool) else pool.nodes.min if always_on else pool.nodes.max
        for flavor, each in environment.flavors_of(name).items():
            found[flavor][name] = each * nodes
    return found


def open_pools(environment: Environment, tenant: Tenant, tier: str) -> list[str]:
    """Pools with GPUs that a queue spans, in the order in which Kueue tries them."""
    pools = [pools_of(environment, flavor, tenant.tenant, frozenset({tier})) for flavor in tenant.gpus]
    return in_preference(environment, {name for found in pools for name in found})


def in_preference(environment: Environment, pools: Iterable[str]) -> list[str]:
    """Names of pools, the preferred first."""
    return sorted(pools, key=lambda name: environment.pools[name].preference(name))


def borrowing_tiers(environment: Environment, tenant: Tenant) -> list[str]:
    """Names of the tenant's tiers that may borrow, sorted."""
    return [tier for tier in sorted(tenant.tiers) if environment.tiers[tier].borrows]


More = Mapping[tuple[str, str], int]
"""(tenant, flavor) -> how many it has on top of its guarantee at some instant. They belong to its first namespace."""


def shares(environment: Environment, tenants: Sequence[Tenant], more: More | None = None) -> dict[str, QueueShare]:
    """Every tenant's share: guarantees are placed in pools, each in as few as possible.

    What tenants have on top at an instant is placed in what the guarantees leave, so that no guarantee moves; only if
    it does not fit there, all are placed together.
    """
    found = {tenant.tenant: QueueShare({tier: {} for tier in sorted(tenant.tiers)}) for tenant in tenants}
    always_on, most = supply(environment, always_on=True), supply(environment, always_on=False)
    held = {
        tenant.tenant: [(tenant.tier_of(each), tenant.guaranteed_in(each)) for each in tenant.namespaces]
        for tenant in tenants
    }
    for flavor in environment.flavors:
        claims: dict[tuple[str, str], int] = Counter()
        for tenant in tenants:
            for tier, counts in held[tenant.tenant] if flavor in tenant.gpus else ():
                claims[tenant.tenant, tier] += counts[flavor]
        ordered = sorted(claims.items(), key=lambda claim: (-claim[1], claim[0]))
        extra = {
            (tenant.tenant, tenant.tier_of(tenant.namespaces[0])): count
            for tenant in tenants
            if (count := (more or {}).get((tenant.tenant, flavor), 0))
        }
        for pool, holders in _placed(environment, flavor, dict(ordered), extra, always_on[flavor]).items():
            for (name, tier), count in holders.items():
                if count:
                    found[name].held[tier].setdefault(pool, {})[flavor] = count
        for tenant in tenants:
            if flavor in tenant.gpus:
                _share_out(environment, tenant, flavor, found[tenant.tenant], most[flavor])
    return found


_Queue = tuple[str, str]
"""A tenant and one of its tiers."""


def _placed(
    environment: Environment,
    flavor: str,
    claims: Mapping[_Queue, int],
    extra: Mapping[_Queue, int],
    there: Mapping[str, int],
) -> Mapping[str, Mapping[_Queue, int]]:
    """Pool -> queue -> how many."""

    def placing(wanted: Mapping[_Queue, int], free: Mapping[str, int]) -> Placement[_Queue]:
        pools = {queue: pools_of(environment, flavor, queue[0], frozenset({queue[1]})) for queue in wanted}
        return place({queue: (pools[queue], count) for queue, count in wanted.items() if count}, free)

    base = placing(claims, there)
    if not extra:
        return base.holds
    left = {pool: count - base.holds[pool].total() for pool, count in there.items()}
    beside = placing(extra, left)
    if beside.missing:
        return placing(
            {queue: claims.get(queue, 0) + extra.get(queue, 0) for queue in {**claims, **extra}}, there
        ).holds
    return {pool: base.holds[pool] + beside.holds[pool] for pool in there}


def _share_out(
    environment: Environment, tenant: Tenant, flavor: str, share: QueueShare, most: Mapping[str, int]
) -> None:
    wanted = tenant.gpus[flavor]
    left = wanted.lends
    # Pools that others may use before the tenant's own, from which no other tenant could borrow.
    lendable = pools_of(environment, flavor, tenant.tenant, tenant.tiers)
    for pool in sorted(lendable, key=lambda name: environment.pools[name].sole_tenant is not None):
        if lent := min(left, share.guaranteed(pool, flavor)):
            share.lent.setdefault(pool, {})[flavor] = lent
            left -= lent
    tiers = frozenset(borrowing_tiers(environment, tenant))
    for pool in pools_of(environment, flavor, tenant.tenant, tiers) if tiers else ():
        if more := min(wanted.borrows, most[pool] - share.guaranteed(pool, flavor)):
            share.borrowed.setdefault(pool, {})[flavor] = more


def quota_ceiling(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, int]:
    """The maximum that one namespace may use at once, by flavor: the limit of its quota, in case the queue fails.

    All that its tier's queue is guaranteed, and for a tier that borrows also what the tenant's other tiers leave idle
    and what the tenant may borrow, in each pool again: Kueue knows no limit over several. It does not depend on where
    other tenants' guarantees are placed, so no quota changes with them. Without a queue, the namespace's own guarantee.
    """
    if not environment.has_queues:
        return tenant.guaranteed_in(namespace)
    tier = tenant.tier_of(namespace)
    most = dict.fromkeys(tenant.gpus, 0)
    borrowing = frozenset(borrowing_tiers(environment, tenant))
    for flavor, share in tenant.gpus.items():
        if not pools_of(environment, flavor, tenant.tenant, frozenset({tier})):
            continue
        if environment.tiers[tier].borrows:
            pools = pools_of(environment, flavor, tenant.tenant, borrowing)
            there = [environment.flavors_of(pool)[flavor] * environment.pools[pool].nodes.max for pool in pools]
            guaranteed = share.guaranteed + tenant.max_extra_gpus(flavor)
            most[flavor] = guaranteed + sum(min(share.borrows, count) for count in there)
        else:
            parts = [part for part in tenant.namespaces if tenant.tier_of(part) == tier]
            most[flavor] = sum(tenant.guaranteed_in(part)[flavor] for part in parts)
            if tenant.namespaces[0] in parts:
                most[flavor] += tenant.max_extra_gpus(flavor)
    return most


def board_units(environment: Environment) -> dict[str, tuple[int, int]]:
    """What one of each extended resource takes of a board, in compute and in memory.

    The queue sees a resource's name alone: where two boards have one name for slices of different size, the larger
    counts for both, in what is asked for and in what is promised. Of one resource alone they would say the same once
    more, for which Kueue takes a fifth of its time: there are none.
    """
    units: dict[str, tuple[int, int]] = {}
    for pool_name, pool in environment.pools.items():
        for flavor in environment.flavors_of(pool_name):
            of, profile = environment.flavors[flavor].gpu, environment.flavors[flavor].mig
            compute = memory = Fraction(1, pool.share.replicas if pool.share else 1)
            if profile:
                board = boards.BOARDS[of]
                compute *= Fraction(board.profiles[profile].compute, board.compute_slices)
                memory *= Fraction(board.profiles[profile].memory, board.memory_units)
            resource = environment.resource_of(flavor)
            before = units.get(resource, (0, 0))
            units[resource] = (max(before[0], _up(compute * BOARD)), max(before[1], _up(memory * BOARD)))
    return units if len(units) > 1 else {}


def _up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)


def part_of_node(environment: Environment, pool: str, flavor: str) -> Fraction:
    """The part of a node that goes with one GPU, slice or replica: all that it yields make up the node."""

    def part(name: str) -> Fraction:
        profile = environment.flavors[name].mig
        return boards.share_of(environment.flavors[name].gpu, profile) if profile else Fraction(1)

    return part(flavor) / sum(part(name) * each for name, each in environment.flavors_of(pool).items())


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one unit of a flavor in a pool is to the queues."""

    cpu: int
    memory: int
    resource: str
    compute: int
    board_memory: int


class QuotaCalculator:
    """Turns counts of flavors into quotas of Kueue."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._units = {} if environment.uses_device_claims else board_units(environment)
        self._unit_costs: dict[tuple[str, str], UnitCost] = {}
        for name in environment.pools:
            yielded = environment.flavors_of(name)
            left, ours = node_allocatable(environment, name), environment.daemonset_resources(name)
            for flavor in yielded:
                part = part_of_node(environment, name, flavor)
                compute, memory = self._units.get(environment.resource_of(flavor), (0, 0))
                self._unit_costs[name, flavor] = UnitCost(
                    int((left.cpu - ours.cpu) * part),
                    int((left.memory - ours.memory) * part),
                    queue_resource(environment, flavor),
                    compute,
                    memory,
                )

    def resources(self, flavors: Iterable[str]) -> list[str]:
        """Resources that a queue of these flavors covers, in one order everywhere."""
        names = sorted({queue_resource(self.environment, flavor) for flavor in flavors})
        return [*names, *([BOARD_COMPUTE, BOARD_MEMORY] if names and self._units else [])]

    def gpus(self, counts: PoolFlavorCounts) -> Counter[tuple[str, str]]:
        """What counts of flavors are of each pool."""
        found: Counter[tuple[str, str]] = Counter()
        for pool, flavors in counts.items():
            for flavor, count in flavors.items():
                unit_cost = self._unit_costs[pool, flavor]
                found[pool, unit_cost.resource] += count
                if self._units:
                    found[pool, BOARD_COMPUTE] += count * unit_cost.compute
                    found[pool, BOARD_MEMORY] += count * unit_cost.board_memory
        return found

    def all(self, counts: PoolFlavorCounts) -> Counter[tuple[str, str]]:
        """The same with the CPU and memory that come along."""
        found = self.gpus(counts)
        for pool, flavors in counts.items():
            for flavor, count in flavors.items():
                found[ANY_POOL, "cpu"] += count * self._unit_costs[pool, flavor].cpu
                found[ANY_POOL, "memory"] += count * self._unit_costs[pool, flavor].memory
        return found

    def either(self, counts: PoolFlavorCounts, count: Mapping[str, int]) -> Counter[tuple[str, str]]:
        """Of counts in several pools that are not all used at once: `count` of each flavor, in whichever pool."""
        found = self.gpus(counts)
        for flavor, most in count.items():
            costs = [self._unit_costs[pool, flavor] for pool, flavors in counts.items() if flavor in flavors]
            found[ANY_POOL, "cpu"] += most * max((unit_cost.cpu for unit_cost in costs), default=0)
            found[ANY_POOL, "memory"] += most * max((unit_cost.memory for unit_cost in costs), default=0)
        return found
