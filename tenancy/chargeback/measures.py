"""What a node of each pool is made of, as whole numbers, and what it costs for an hour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from tenancy.catalog.instances import MACHINES
from tenancy.catalog.prices import ON_DEMAND
from tenancy.plan.pools import node_allocatable
from tenancy.plan.queues import part_of_node
from tenancy.spec.costs import Bought
from tenancy.spec.environment import Environment
from tenancy.spec.pools import Pool

FINE = 1_000_000
"""A node has at least so many units: what CPU and memory take of it is rounded down to one."""
MICRO = 1_000_000
"""Of a dollar: the unit of all amounts."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A node of a pool, in units of which every GPU, slice and replica has a whole number."""

    units: int
    of: Mapping[str, int]
    """Units of one GPU, slice or replica, by flavor."""
    cpu: int
    """Thousandths of a core for tenants' pods."""
    memory: int
    """MiB for tenants' pods."""
    gpus: int
    """Whole GPUs; 0: a pool for work that needs none, and hours are a node's."""
    owner: str
    """The tenant that the pool is for; empty: it is shared."""


def measure(environment: Environment, name: str) -> Measure:
    pool = environment.pools[name]
    parts = {flavor: part_of_node(environment, name, flavor) for flavor in environment.flavors_of(name)}
    whole = math.lcm(*(part.denominator for part in parts.values()))
    units = whole * -(-FINE // whole)
    left, ours = node_allocatable(environment, name), environment.daemonsets(name)
    return Measure(
        units,
        {flavor: part.numerator * units // part.denominator for flavor, part in parts.items()},
        left.cpu - ours.cpu,
        left.memory - ours.memory,
        pool.machine.gpus,
        pool.tenants[0] if len(pool.tenants) == 1 and not pool.tiers else "",
    )


def bought(pool: Pool) -> Bought:
    return Bought(pool.purchase.way)


def node_price(environment: Environment, name: str, instance: str, purchase: str) -> int | None:
    """Millionths of a dollar for an hour of a node; None where nobody has said it."""
    costs = environment.costs
    if name in costs.pools:
        return int(costs.pools[name] * MICRO)
    known = MACHINES.get(instance)
    discount = costs.discounts.get(Bought(purchase), 0) if purchase in set(Bought) else 0
    if known and known.gpus and known.gpu in environment.prices:
        return _less(environment.prices[known.gpu] * known.gpus, discount)
    published = purchase in {Bought.ON_DEMAND, Bought.RESERVATION} or discount
    if instance in ON_DEMAND and published:
        return _less(ON_DEMAND[instance], discount)
    return None


def _less(price: Decimal, discount: int) -> int:
    return round(price * MICRO * (100 - discount) / 100)
