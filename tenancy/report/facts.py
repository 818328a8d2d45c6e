"""Shares, supply and cost: the numbers of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tenancy.catalog.prices import MONTH_HOURS
from tenancy.planning.aws.prices import MICRO, pool_price
from tenancy.planning.observability.dashboards import gpu_part
from tenancy.planning.queueing.capacity import supply
from tenancy.planning.queueing.quota_shares import part_of_node, shares
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded


@dataclass(frozen=True, slots=True)
class FlavorShare:
    """Share of one tenant in one flavor; counts are GPUs, slices or replicas."""

    flavor: str
    guaranteed: int
    lends: int
    borrows: int
    """Borrowing limit of its file."""
    borrowable: int
    """Part of it that is available when all other tenants lend as much as they allow."""


@dataclass(frozen=True, slots=True)
class PoolGuarantee:
    """Guarantee of one tenant for one flavor in one pool."""

    pool: str
    flavor: str
    count: int
    gpus: Fraction
    """As whole GPUs: a slice counts as its part of a board."""
    monthly: int | None
    """Millionths of a dollar for a month; None: the node has no known price."""


@dataclass(frozen=True, slots=True)
class Member:
    """One tenant."""

    spec: Tenant
    shares: tuple[FlavorShare, ...]
    places: tuple[PoolGuarantee, ...]

    @property
    def name(self) -> str:
        """Name of the tenant."""
        return self.spec.tenant

    @property
    def gpus(self) -> Fraction:
        """Guaranteed whole GPUs; a slice counts as its fraction."""
        return sum((place.gpus for place in self.places), Fraction())

    @property
    def monthly(self) -> int:
        """Min cost of the guarantees in millionths of a dollar a month, as far as prices are known."""
        return sum(place.monthly or 0 for place in self.places)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Pools whose nodes have no known price."""
        return tuple(sorted({place.pool for place in self.places if place.monthly is None}))


@dataclass(frozen=True, slots=True)
class SupplyBar:
    """Supply of one flavor in one pool, in counts of the flavor."""

    pool: str
    flavor: str
    always_on: int
    maximum: int
    never_lent: int
    """Guaranteed and never lent."""
    lent: int
    """Guaranteed, and lent to other tenants while idle."""

    @property
    def free(self) -> int:
        """Always on and unallocated."""
        return max(0, self.always_on - self.never_lent - self.lent)

    @property
    def burst(self) -> int:
        """Autoscaled, not guaranteed."""
        return self.maximum - max(self.always_on, self.never_lent + self.lent)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of an environment that both kinds of pages show."""

    loaded: Loaded
    members: tuple[Member, ...]
    bars: tuple[SupplyBar, ...]

    @property
    def environment(self) -> Environment:
        """The environment's spec."""
        return self.loaded.environment

    def member(self, name: str) -> Member:
        """The tenant of that name; StopIteration if there is none."""
        return next(member for member in self.members if member.name == name)


def facts(loaded: Loaded) -> Facts:
    """The facts of an environment, tenants sorted by name."""
    environment = loaded.environment
    tenants = sorted(loaded.tenants, key=lambda tenant: tenant.tenant)
    quota_shares, supplies = shares(environment, tenants, loaded.day), supply(environment, tenants)
    by_tenant: dict[str, list[FlavorShare]] = {tenant.tenant: [] for tenant in tenants}
    for flavor in supplies:
        for tenant_supply in flavor.tenants:
            by_tenant[tenant_supply.tenant].append(
                FlavorShare(
                    flavor.flavor,
                    tenant_supply.guaranteed,
                    tenant_supply.lends,
                    tenant_supply.borrows,
                    tenant_supply.borrowable,
                )
            )
    members = tuple(
        Member(tenant, tuple(by_tenant[tenant.tenant]), _places(environment, quota_shares[tenant.tenant].guarantees))
        for tenant in tenants
    )
    bars = []
    for flavor in supplies:
        for tenant_supply in flavor.pools:
            promised = sum(share.guaranteed(tenant_supply.pool, flavor.flavor) for share in quota_shares.values())
            lent = sum(
                share.lending.get(tenant_supply.pool, {}).get(flavor.flavor, 0) for share in quota_shares.values()
            )
            bars.append(
                SupplyBar(
                    tenant_supply.pool,
                    flavor.flavor,
                    tenant_supply.always_on,
                    tenant_supply.maximum,
                    promised - lent,
                    lent,
                )
            )
    order = list(environment.pools)
    return Facts(loaded, members, tuple(sorted(bars, key=lambda bar: (order.index(bar.pool), bar.flavor))))


def _places(
    environment: Environment, guaranteed_counts: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> tuple[PoolGuarantee, ...]:
    counts: dict[tuple[str, str], int] = {}
    for pools in guaranteed_counts.values():
        for pool, flavors in pools.items():
            for flavor, count in flavors.items():
                counts[pool, flavor] = counts.get((pool, flavor), 0) + count
    return tuple(
        PoolGuarantee(
            pool, flavor, count, count * gpu_part(environment, pool, flavor), monthly(environment, pool, flavor, count)
        )
        for (pool, flavor), count in sorted(counts.items())
    )


def monthly(environment: Environment, pool: str, flavor: str, count: int) -> int | None:
    """count x part of a node x price of a node-hour x 730 hours, millionths of a dollar."""
    price = pool_price(environment, pool)
    return None if price is None else round(count * part_of_node(environment, pool, flavor) * price * MONTH_HOURS)


def pools_monthly(environment: Environment) -> tuple[int, tuple[str, ...]]:
    """Cost of the nodes that are always on, a month, and the pools without a price."""
    prices = {name: pool_price(environment, name) for name in environment.pools}
    total = sum(price * environment.pools[name].nodes.min * MONTH_HOURS for name, price in prices.items() if price)
    return total, tuple(name for name, price in prices.items() if price is None and environment.pools[name].nodes.min)


def dollars(micro: int | float) -> str:
    """Whole dollars; only a bill needs cents."""
    return f"${round(micro / MICRO):,}"


def number(value: Fraction | float) -> str:
    """A number of GPUs with at most two decimals."""
    return f"{float(value):,.2f}".rstrip("0").rstrip(".")


def first_names(names: Sequence[str], max_names: int = 4) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:max_names]) + (f" and {len(names) - max_names} more" if len(names) > max_names else "")
