"""Notes on valid files that are probably not what was meant: shown when files are read, never refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog.versions import NEWEST_KNOWN, incompatible, is_unknown
from tenancy.kube.quantities import write
from tenancy.schema.base import Mistake, amount
from tenancy.schema.environment import Environment
from tenancy.schema.pools import Market
from tenancy.schema.queues import SharingPreset
from tenancy.schema.tenant import Leaving, Tenant
from tenancy.schema.tiers import Spread
from tenancy.validation.crossfile import some

_HTTPS = 443
_CLOSE = 0.75
"""Similarity of two names from which on one may be a typing error for the other."""
_AWS_NAMES = (".amazonaws.com", ".amazonaws.com.cn")


def notes(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """All notes on the environment's file."""
    yield from _unknown_version(environment)
    yield from _unreached(environment, tenants)
    yield from _never_started(environment, tenants)
    yield from _spot(environment)
    yield from _crowded(environment, tenants)
    yield from _unspread(environment, tenants)
    yield from _kept_in_departments(environment, tenants)


def _unknown_version(environment: Environment) -> Iterator[Mistake]:
    if is_unknown(version := environment.cluster.kubernetes):
        given = f"Kubernetes {version}, of which nothing is known here"
        rule = f"guards, charts and their limits were read for Kubernetes up to {NEWEST_KNOWN}"
        change = f'write "{NEWEST_KNOWN}", or run `tenancy verify` on a test cluster of {version} first'
        yield Mistake(("cluster", "kubernetes"), given, rule, change)


def to_come(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tenants that a pool names and that have no file yet; a pool that must name its tenant is declared first."""
    known = {tenant.tenant for tenant in tenants}
    for name, pool in environment.pools.items():
        for i, tenant in enumerate(pool.tenants):
            if tenant not in known:
                import difflib  # only for such a note

                # A misspelt name would keep the pool for a tenant that never comes.
                meant = difflib.get_close_matches(tenant, sorted(known), 1, _CLOSE)
                hint = f"write {meant[0]} if that is meant, or " if meant else ""
                given = f"tenant {tenant!r}, which has no file yet"
                rule = "a pool is reserved for the tenants that it names"
                change = f"{hint}write it with `tenancy new {tenant} {environment.environment}`"
                yield Mistake(("pools", name, "tenants", i), given, rule, change)


def _never_started(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Namespaces whose queue has no quota: CPU and memory come with GPUs, or from pools without GPUs."""
    if not environment.queued:
        return
    empty = [
        tenant.namespace_name(namespace)
        for tenant in tenants
        for namespace in tenant.namespaces
        if not _starts(environment, tenant, tenant.tier_of(namespace))
    ]
    if empty:
        has, it = ("has", "it") if len(empty) == 1 else ("have", "them")
        given = f"{some(empty)}, which {has} no GPUs and which no CPU-only pool admits: nothing can run there"
        rule = "a namespace has CPU and memory by its share of GPUs or by a pool without GPUs"
        change = f"add a CPU-only pool that admits {it}, or give {it} GPUs to hold or borrow"
        yield Mistake(("pools",), given, rule, change)


def _spot(environment: Environment) -> Iterator[Mistake]:
    """Spot pools, which start no nodes in an account that never used Spot: Karpenter may not make the role."""
    pools = [name for name, pool in environment.pools.items() if pool.purchase.market is Market.SPOT]
    if environment.builds_cluster and pools:
        given = f"spot for {some(pools)}"
        rule = "EC2 launches spot instances by the account's role AWSServiceRoleForEC2Spot, which is not made here"
        command = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        change = f"run `{command}` once per account; this note stays, because files do not show whether the role exists"
        yield Mistake(("pools", pools[0], "purchase"), given, rule, change)


def _crowded(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Pools with more devices on a node than default pods fit on it: some devices could never be used."""
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


def _unspread(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tiers that ask for spread pods of a cluster whose API server does not write the constraint.

    A note, because a guard could only refuse work that names no constraints of its own: `preferred` is no more than a
    preference, and `required` is refused there when the file is read (ver-01).
    """
    used = {tier for tenant in tenants for tier in tenant.tiers}
    asking = [name for name, tier in environment.tiers.items() if name in used and tier.spread is not Spread.NONE]
    misfit = incompatible(environment.cluster.kubernetes, "pod-defaults")
    if misfit and asking:
        first = environment.tiers[asking[0]]
        given = (
            f"spread: {first.spread} for {some(asking)} on Kubernetes {environment.cluster.kubernetes}, whose API "
            "server adds no topologySpreadConstraints to pods: the scheduler's default applies, which accepts a "
            "difference of 3 replicas between nodes"
        )
        rule = "a tier's spread is written onto pods from Kubernetes 1.36 on"
        change = (
            f"{misfit}; or set spread: none for these tiers, and write topologySpreadConstraints with maxSkew 1 and "
            "topologyKey kubernetes.io/hostname into Deployments and StatefulSets"
        )
        yield Mistake(("tiers", asking[0], "spread"), given, rule, change)


def _kept_in_departments(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tenants that lend or borrow in a strict department in which no other tenant takes part."""
    if not environment.queued:
        return
    active = [tenant for tenant in tenants if tenant.leaving is not Leaving.REMOVE]
    for name, department in environment.organisation.departments.items():
        mine = [tenant for tenant in active if tenant.department == name]
        shared = [t for t in mine if any(share.lends or share.borrows for share in t.gpus.values())]
        if department.sharing is SharingPreset.STRICT and shared and len(mine) == 1:
            (tenant,) = shared
            given = f"sharing in the file of {tenant.tenant}, the only tenant of {name}, whose own sharing is strict"
            rule = "a strict department lends to no other department and borrows from none"
            change = "set it to lend or lend-and-borrow; until then the tenant lends and borrows nothing"
            yield Mistake(("organisation", "departments", name), given, rule, change)


def _starts(environment: Environment, tenant: Tenant, tier: str) -> bool:
    """Whether a tenant's queue of a tier has any quota, guaranteed or borrowed."""
    mine = frozenset({tier})
    open_pools = [name for name, pool in environment.pools.items() if pool.admits(tenant.tenant, mine)]
    if any(not environment.pools[name].machine.gpus for name in open_pools):
        return True
    namespaces = [namespace for namespace in tenant.namespaces if tenant.tier_of(namespace) == tier]
    if any(count for namespace in namespaces for count in tenant.held_in(namespace).values()):
        return True
    yielded = {flavor for name in open_pools for flavor in environment.flavors_of(name)}
    some_gpus = any(share.guaranteed or share.borrows for f, share in tenant.gpus.items() if f in yielded)
    return environment.tiers[tier].borrows and some_gpus


def _unreached(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tenants with grants in buckets whose pods have no egress to S3."""
    network = environment.aws.network
    if not environment.aws.enabled or network.service_ranges:
        return
    if shut := [tenant.tenant for tenant in tenants if tenant.storage and not _leaves(tenant)]:
        given = f"none, and grants of buckets to {some(shut)}, whose egress does not include S3"
        rule = "pods reach S3 only at ranges that network policies allow, whatever their role may do"
        change = "write the ranges of S3's prefix list in the region; docs/network.md shows how to get them"
        yield Mistake(("aws", "network", "service-ranges"), given, rule, change)


def _leaves(tenant: Tenant) -> bool:
    """Whether an entry under reach may lead to S3; the owner of a range is unknown."""
    return any(
        way.port == _HTTPS and (way.cidr or way.internet or (way.dns and way.dns.endswith(_AWS_NAMES)))
        for way in tenant.egress
    )
