"""Capacity of a node of each pool, in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tenancy.planning.common.pools import node_allocatable
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.spec.fields.environment import Environment

FINE = 1_000_000
"""Min units of a node: parts of it that CPU and memory take are rounded down to one unit."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A node of a pool, in units of which every GPU, slice and replica has a whole number."""

    units: int
    units_by_flavor: Mapping[str, int]
    """Units of one GPU, slice or replica, by flavor."""
    cpu: int
    """Thousandths of a core for tenants' pods."""
    memory: int
    """MiB for tenants' pods."""
    gpus: int
    """Whole GPUs; 0 for a pool without GPUs, whose hours are node-hours."""
    owner: str
    """The tenant that owns the pool; empty for a shared pool."""


def measure(environment: Environment, name: str) -> Measure:
    """The measure of a pool: units of a node, and how many of them a device, a core and a byte take."""
    pool = environment.pools[name]
    parts = {flavor: part_of_node(environment, name, flavor) for flavor in environment.flavors_of(name)}
    common_denominator = math.lcm(*(part.denominator for part in parts.values()))
    units = common_denominator * -(-FINE // common_denominator)
    allocatable, platform_pods = node_allocatable(environment, name), environment.daemonset_resources(name)
    return Measure(
        units,
        {flavor: part.numerator * units // part.denominator for flavor, part in parts.items()},
        allocatable.cpu - platform_pods.cpu,
        allocatable.memory - platform_pods.memory,
        pool.machine.gpus,
        pool.tenants[0] if len(pool.tenants) == 1 and not pool.tiers else "",
    )
