"""GPUs of tenants against the pools that yield them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tenancy.catalog.text import counted
from tenancy.kube.placement import placed
from tenancy.schema.base import Mistake, broken
from tenancy.schema.environment import Environment, undeclared
from tenancy.schema.pools import Pool
from tenancy.schema.tenant import Leaving, Tenant


class _Offer(NamedTuple):
    """Devices of a flavor in one pool."""

    pool: Pool
    always_on: int


Offers = Mapping[str, Mapping[str, _Offer]]
"""Flavor -> pool -> offer."""


def offers_of(environment: Environment) -> Offers:
    """What each pool yields of each flavor at its minimum size."""
    offers: dict[str, dict[str, _Offer]] = {flavor: {} for flavor in environment.flavors}
    for name, pool in environment.pools.items():
        for flavor, each in environment.flavors_of(name).items():
            offers[flavor][name] = _Offer(pool, each * pool.nodes.min)
    return offers


def _pools(offers: Offers, flavor: str, tenant: str, tiers: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, offer in offers[flavor].items() if offer.pool.admits(tenant, tiers))


def shares(environment: Environment, offers: Offers, tenant: Tenant) -> Iterator[Mistake]:
    """Mistakes in a tenant's shares, against the pools that admit it."""
    guaranteed = [tenant.held_in(namespace) for namespace in tenant.namespaces]
    for flavor in tenant.gpus:
        if flavor not in offers:
            yield undeclared(("gpus", flavor), "flavor", flavor, environment.flavors)
        elif not offers[flavor]:
            continue  # reported once, for all tenants
        elif not _pools(offers, flavor, tenant.tenant, tenant.tiers):
            yield broken(("gpus", flavor), "pool-01", f"{flavor}, which no pool yields to {tenant.tenant}")
        else:
            for i, namespace in enumerate(tenant.namespaces):
                tier, held = tenant.tier_of(namespace), guaranteed[i][flavor]
                # An undeclared tier is reported by itself.
                if held and tier in environment.tiers and not _pools(offers, flavor, tenant.tenant, frozenset({tier})):
                    written = flavor in namespace.gpus
                    where = ("namespaces", i, "gpus", flavor) if written else ("gpus", flavor)
                    given = (
                        f"{held} {flavor} in namespace {namespace.name} of tier {tier}, to which no pool yields them"
                    )
                    change = "claim them under the gpus of a namespace whose tier a pool admits"
                    yield broken(where, "pool-01", given, change)


class Oversold(NamedTuple):
    """Guarantees of a flavor that its pools cannot meet together."""

    tenant: int
    """Index of the tenant with the largest of them."""
    over: int
    mistake: Mistake


def guarantees(
    offers: Offers, tenants: Sequence[Tenant], more: Mapping[tuple[int, str], int] | None = None
) -> Iterator[Oversold]:
    """Guarantees that the pools cannot meet together, at the tenant that exceeds them. `more` is what tenants have on
    top at some instant, by tenant and flavor; it is the first namespace's."""
    claims_on: dict[str, dict[frozenset[str], list[tuple[int, int]]]] = {flavor: {} for flavor in offers}
    counted: set[str] = set()
    for index, tenant in enumerate(tenants):
        if tenant.tenant in counted or tenant.leaving is Leaving.REMOVE:
            continue
        counted.add(tenant.tenant)
        for namespace in tenant.namespaces:
            for flavor, own in tenant.held_in(namespace).items():
                held = own
                if more and namespace is tenant.namespaces[0]:
                    held += more.get((index, flavor), 0)
                if held and flavor in offers:
                    tiers = frozenset({tenant.tier_of(namespace)})
                    pools = _pools(offers, flavor, tenant.tenant, tiers)
                    claims_on[flavor].setdefault(pools, []).append((index, held))
    for flavor, claims in claims_on.items():
        claims.pop(frozenset(), None)
        there = {pool: offer.always_on for pool, offer in offers[flavor].items()}
        wanted = {admitted: sum(count for _, count in some) for admitted, some in claims.items()}
        missing, full = placed(wanted, there)
        if missing:
            inside = [claim for admitted, some in claims.items() if admitted <= full for claim in some]
            yield _oversold(tenants, flavor, inside, sum(there[pool] for pool in full), sorted(full))


def _oversold(
    tenants: Sequence[Tenant], flavor: str, claims: Sequence[tuple[int, int]], there: int, pools: Sequence[str]
) -> Oversold:
    by_tenant: dict[int, int] = {}
    for index, count in claims:
        by_tenant[index] = by_tenant.get(index, 0) + count
    largest = sorted(by_tenant, key=lambda i: (-by_tenant[i], i))
    parts = [f"{tenants[i].tenant} {by_tenant[i]}" for i in largest[:5]]
    more = (
        f" + {counted(len(largest) - 5, 'tenant')} {sum(by_tenant[i] for i in largest[5:])}" if len(largest) > 5 else ""
    )
    given = (
        f"{' + '.join(parts)}{more} = {sum(by_tenant.values())} guaranteed of {there} {flavor} in {', '.join(pools)}"
    )
    over = sum(by_tenant.values()) - there
    change = f"take back {over}, or raise nodes (of an autoscaled pool, nodes.min counts)"
    return Oversold(largest[0], over, broken(("gpus", flavor, "guaranteed"), "pool-03", given, change))
