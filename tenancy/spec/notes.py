"""What files may say and hardly mean: told when they are read, never refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog.quantity import write
from tenancy.spec.base import Mistake, amount
from tenancy.spec.crossfile import some
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Tenant

_HTTPS = 443
_AWS_NAMES = (".amazonaws.com", ".amazonaws.com.cn")


def notes(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """All that is to be known, in the environment's file."""
    yield from _unreached(environment, tenants)
    yield from _never_started(environment, tenants)
    yield from _crowded(environment, tenants)


def _never_started(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Parts whose queue has nothing: CPU and memory come with GPUs, or with pools that have none."""
    if not environment.queued:
        return
    empty = [
        tenant.namespace_name(namespace)
        for tenant in tenants
        for namespace in tenant.namespaces
        if not _starts(environment, tenant, tenant.tier_of(namespace))
    ]
    if empty:
        given = f"none without GPUs that admits {some(empty)}, whose queue holds no GPU and borrows none"
        rule = "work starts where its queue has CPU and memory: they come with GPUs, or with pools that have none"
        change = "add a pool without GPUs, open one to them, or let them hold or borrow GPUs"
        yield Mistake(("pools",), given, rule, change)


def _crowded(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Pools with more devices on a node than pods by default have room on it: some are promised and never taken."""
    for name, pool in environment.pools.items():
        devices, machine = sum(environment.flavors_of(name).values()), pool.machine
        there = {"cpu": machine.vcpu, "memory": machine.memory * 2**30}
        tiers = {tier for t in tenants for tier in t.tiers if pool.admits(t.tenant, frozenset({tier}))}
        for tier in sorted(tiers):
            requests = environment.tiers[tier].container.default_request
            for resource, whole in there.items():
                each = amount(requests.get(resource, "0"))
                if devices * each > whole:
                    fit = f"{int(whole / each)} pods fit onto a {pool.instance} by tier {tier}'s default-request"
                    given = f"{devices} devices on a node, where {fit} of {resource}, {write(each)}"
                    change = f"lower the tier's default-request.{resource}, or offer fewer devices"
                    yield Mistake(("pools", name), given, "a pod for each device fits onto its node", change)


def _starts(environment: Environment, tenant: Tenant, tier: str) -> bool:
    """Whether a tenant's queue of a tier has anything, of its own or borrowed."""
    mine = frozenset({tier})
    open_pools = [name for name, pool in environment.pools.items() if pool.admits(tenant.tenant, mine)]
    if any(not environment.pools[name].machine.gpus for name in open_pools):
        return True
    parts = [namespace for namespace in tenant.namespaces if tenant.tier_of(namespace) == tier]
    if any(count for part in parts for count in tenant.held_in(part).values()):
        return True
    yielded = {flavor for name in open_pools for flavor in environment.flavors_of(name)}
    some_gpus = any(share.guaranteed or share.borrow_up_to for f, share in tenant.gpus.items() if f in yielded)
    return environment.tiers[tier].borrows and some_gpus


def _unreached(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Grants of buckets whose holders' pods have no way to S3."""
    network = environment.aws.network
    if not environment.aws.enabled or network.service_ranges:
        return
    if shut := [tenant.tenant for tenant in tenants if tenant.storage and not _leaves(tenant)]:
        given = f"none, and grants of buckets to {some(shut)}, who name no way to S3 under reach"
        rule = "pods reach S3 at ranges that are opened, whatever their role may do there"
        change = "write S3's prefix list of the region, as docs/network.md gets it"
        yield Mistake(("aws", "network", "service-ranges"), given, rule, change)


def _leaves(tenant: Tenant) -> bool:
    """Whether some way of its own may be one to S3: nobody knows whose a range is."""
    return any(way.port == _HTTPS and (way.cidr or (way.dns and way.dns.endswith(_AWS_NAMES))) for way in tenant.reach)
