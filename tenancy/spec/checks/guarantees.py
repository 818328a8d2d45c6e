"""GPUs of tenants against the pools that yield them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tenancy.catalog.text import pluralize
from tenancy.kube.placement import place_by_pools
from tenancy.spec.checks.environment_checks import undeclared_name
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool
from tenancy.spec.fields.tenant import OffboardingStage, Tenant
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class _Offer(NamedTuple):
    """Devices of a flavor in one pool."""

    pool: Pool
    always_on: int


Offers = Mapping[str, Mapping[str, _Offer]]
"""Flavor -> pool -> offer."""


def offers_of(environment: Environment) -> Offers:
    """Yield of each pool in each flavor at its minimum size."""
    offers: dict[str, dict[str, _Offer]] = {flavor: {} for flavor in environment.flavors}
    for name, pool in environment.pools.items():
        for flavor, per_node in environment.flavors_of(name).items():
            offers[flavor][name] = _Offer(pool, per_node * pool.nodes.min)
    return offers


def _pools(offers: Offers, flavor: str, tenant: str, tiers: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, offer in offers[flavor].items() if offer.pool.admits(tenant, tiers))


def share_mistakes(environment: Environment, offers: Offers, tenant: Tenant) -> Iterator[Mistake]:
    """Mistakes in a tenant's shares, against the pools that admit it."""
    guaranteed = [tenant.guaranteed_in(namespace) for namespace in tenant.namespaces]
    for flavor in tenant.gpus:
        if flavor not in offers:
            yield undeclared_name(("gpus", flavor), "flavor", flavor, environment.flavors)
        elif not offers[flavor]:
            continue  # reported once, for all tenants
        elif not _pools(offers, flavor, tenant.tenant, tenant.tiers):
            yield rule_mistake(("gpus", flavor), "pool-01", f"{flavor}, which no pool yields to {tenant.tenant}")
        else:
            for i, namespace in enumerate(tenant.namespaces):
                tier, namespace_gpus = tenant.tier_of(namespace), guaranteed[i][flavor]
                # An undeclared tier is reported by itself.
                if (
                    namespace_gpus
                    and tier in environment.tiers
                    and not _pools(offers, flavor, tenant.tenant, frozenset({tier}))
                ):
                    is_claimed = flavor in namespace.gpus
                    location = ("namespaces", i, "gpus", flavor) if is_claimed else ("gpus", flavor)
                    claim = f"{namespace_gpus} {flavor} in namespace {namespace.name}"
                    fault = f"{claim} of tier {tier}, to which no pool yields them"
                    change = "claim them under the gpus of a namespace whose tier a pool admits"
                    yield rule_mistake(location, "pool-01", fault, change)


class Oversold(NamedTuple):
    """Guarantees of a flavor that its pools cannot meet together."""

    tenant: int
    """Index of the tenant with the largest of them."""
    excess: int
    mistake: Mistake


def oversold_guarantees(
    offers: Offers, tenants: Sequence[Tenant], extra_gpus: Mapping[tuple[int, str], int] | None = None
) -> Iterator[Oversold]:
    """Guarantees that the pools cannot meet together, at the tenant that exceeds them. `more` is what tenants have on
    top at some instant, by tenant and flavor; it is the first namespace's."""
    claims_on: dict[str, dict[frozenset[str], list[tuple[int, int]]]] = {flavor: {} for flavor in offers}
    checked_tenants: set[str] = set()
    for index, tenant in enumerate(tenants):
        if tenant.tenant in checked_tenants or tenant.offboarding is OffboardingStage.REMOVE:
            continue
        checked_tenants.add(tenant.tenant)
        for namespace in tenant.namespaces:
            for flavor, guaranteed in tenant.guaranteed_in(namespace).items():
                claimed_gpus = guaranteed
                if extra_gpus and namespace is tenant.namespaces[0]:
                    claimed_gpus += extra_gpus.get((index, flavor), 0)
                if claimed_gpus and flavor in offers:
                    tiers = frozenset({tenant.tier_of(namespace)})
                    pools = _pools(offers, flavor, tenant.tenant, tiers)
                    claims_on[flavor].setdefault(pools, []).append((index, claimed_gpus))
    for flavor, claims in claims_on.items():
        claims.pop(frozenset(), None)
        capacity = {pool: offer.always_on for pool, offer in offers[flavor].items()}
        amounts = {admitted: sum(count for _, count in pool_claims) for admitted, pool_claims in claims.items()}
        shortage, full_pools = place_by_pools(amounts, capacity)
        if shortage:
            claims_on_full = [
                claim for admitted, pool_claims in claims.items() if admitted <= full_pools for claim in pool_claims
            ]
            yield _oversold(
                tenants, flavor, claims_on_full, sum(capacity[pool] for pool in full_pools), sorted(full_pools)
            )


def _oversold(
    tenants: Sequence[Tenant], flavor: str, claims: Sequence[tuple[int, int]], capacity: int, pools: Sequence[str]
) -> Oversold:
    by_tenant: dict[int, int] = {}
    for index, count in claims:
        by_tenant[index] = by_tenant.get(index, 0) + count
    largest = sorted(by_tenant, key=lambda i: (-by_tenant[i], i))
    parts = [f"{tenants[i].tenant} {by_tenant[i]}" for i in largest[:5]]
    further_text = (
        f" + {pluralize(len(largest) - 5, 'tenant')} {sum(by_tenant[i] for i in largest[5:])}"
        if len(largest) > 5
        else ""
    )
    total = f"{' + '.join(parts)}{further_text} = {sum(by_tenant.values())}"
    fault = f"{total} guaranteed of {capacity} {flavor} in {', '.join(pools)}"
    excess = sum(by_tenant.values()) - capacity
    change = f"take back {excess}, or raise nodes (of an autoscaled pool, nodes.min counts)"
    return Oversold(largest[0], excess, rule_mistake(("gpus", flavor, "guaranteed"), "pool-03", fault, change))
