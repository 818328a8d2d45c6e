"""Notes on valid files that are probably not what was meant: shown when files are read, never refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog.versions import NEWEST_KNOWN, incompatible, is_unknown
from tenancy.kube.quantities import write
from tenancy.spec.checks.crossfile import list_names
from tenancy.spec.fields.base import amount
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Market
from tenancy.spec.fields.queues import SharingPreset
from tenancy.spec.fields.tenant import OffboardingStage, Tenant
from tenancy.spec.fields.tiers import Spread
from tenancy.spec.reading.mistakes import Mistake

_HTTPS = 443
_CLOSE = 0.75
"""Similarity of two names from which on one may be a typing error for the other."""
_AWS_NAMES = (".amazonaws.com", ".amazonaws.com.cn")


def notes(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """All notes on the environment's file."""
    yield from _unknown_version(environment)
    yield from _without_s3_egress(environment, tenants)
    yield from _never_started(environment, tenants)
    yield from _spot_role(environment)
    yield from _crowded_nodes(environment, tenants)
    yield from _unspread_tiers(environment, tenants)
    yield from _kept_in_departments(environment, tenants)


def _unknown_version(environment: Environment) -> Iterator[Mistake]:
    if is_unknown(version := environment.cluster.kubernetes):
        cilium = " with Cilium" if environment.cluster.cni is Cni.CILIUM else ""
        fault = f"Kubernetes {version}{cilium}, of which nothing is known here"
        rule = f"guards, charts and their limits were read for Kubernetes up to {NEWEST_KNOWN}, Cilium too"
        change = f"run `tenancy verify` on a test cluster of {version} first"
        if environment.builds_cluster:
            change = f'write "{NEWEST_KNOWN}", or {change}'
        else:
            change += f', or write "{NEWEST_KNOWN}" if the cluster has that'
        yield Mistake(("cluster", "kubernetes"), fault, rule, change, "ver-01")


def tenants_without_file(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tenants that a pool names and that have no file yet; a pool that must name its tenant is declared first."""
    tenant_names = {tenant.tenant for tenant in tenants}
    for name, pool in environment.pools.items():
        for i, tenant in enumerate(pool.tenants):
            if tenant not in tenant_names:
                import difflib  # only for such a note

                # A misspelt name would keep the pool for a tenant that never comes.
                similar_names = difflib.get_close_matches(tenant, sorted(tenant_names), 1, _CLOSE)
                hint = f"write {similar_names[0]} if that is meant, or " if similar_names else ""
                fault = f"tenant {tenant!r}, which has no file yet"
                rule = "a pool is reserved for the tenants that it names"
                change = f"{hint}write it with `tenancy new {tenant} {environment.environment}`"
                yield Mistake(("pools", name, "tenants", i), fault, rule, change)


def _never_started(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Namespaces whose queue has no quota: CPU and memory come with GPUs, or from pools without GPUs."""
    if not environment.has_queues:
        return
    empty = [
        tenant.namespace_name(namespace)
        for tenant in tenants
        for namespace in tenant.namespaces
        if not _has_quota(environment, tenant, tenant.tier_of(namespace))
    ]
    if empty:
        has, it = ("has", "it") if len(empty) == 1 else ("have", "them")
        fault = f"{list_names(empty)}, which {has} no GPUs and which no CPU-only pool admits: nothing can run there"
        rule = "a namespace has CPU and memory by its share of GPUs or by a pool without GPUs"
        change = f"add a CPU-only pool that admits {it}, or give {it} GPUs to hold or borrow"
        yield Mistake(("pools",), fault, rule, change)


def _spot_role(environment: Environment) -> Iterator[Mistake]:
    """Spot pools, which start no nodes in an account that never used Spot: Karpenter may not make the role."""
    pools = [name for name, pool in environment.pools.items() if pool.purchase.market is Market.SPOT]
    if environment.builds_cluster and pools:
        fault = f"spot for {list_names(pools)}"
        rule = "EC2 launches spot instances by the account's role AWSServiceRoleForEC2Spot, which is not made here"
        command = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        change = f"run `{command}` once per account; this note stays, because files do not show whether the role exists"
        yield Mistake(("pools", pools[0], "purchase"), fault, rule, change)


def _crowded_nodes(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Pools with more devices on a node than default pods fit on it: some devices could never be used."""
    used_tiers = frozenset[str]().union(*(tenant.tiers for tenant in tenants))
    for name, pool in environment.pools.items():
        devices, machine = sum(environment.flavors_of(name).values()), pool.machine
        node_amounts = {"cpu": machine.vcpu, "memory": machine.memory * 2**30}
        named_tenants = [tenant for tenant in tenants if tenant.tenant in pool.tenants]
        tiers = {*pool.tiers} & used_tiers if pool.is_restricted else used_tiers
        tiers = tiers.union(*(tenant.tiers for tenant in named_tenants))
        for tier in sorted(tiers):
            requests = environment.tiers[tier].container.default_request
            for resource, node_amount in node_amounts.items():
                default_amount = amount(requests.get(resource, "0"))
                if devices * default_amount > node_amount:
                    fit = f"{int(node_amount / default_amount)} pods fit onto a {pool.instance_type}"
                    request = f"tier {tier}'s default-request of {resource}, {write(default_amount)}"
                    fault = f"{devices} devices on a node, where {fit} by {request}"
                    change = f"lower the tier's default-request.{resource}, or offer fewer devices"
                    yield Mistake(("pools", name), fault, "a pod for each device fits onto its node", change)


def _unspread_tiers(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tiers that ask for spread pods of a cluster whose API server does not write the constraint.

    A note, because a guard could only refuse work that names no constraints of its own: `preferred` is no more than a
    preference, and `required` is refused there when the file is read (ver-01).
    """
    used_tiers = {tier for tenant in tenants for tier in tenant.tiers}
    spread_tiers = [
        name
        for name, tier in environment.tiers.items()
        if name in used_tiers and tier.topology_spread is not Spread.NONE
    ]
    misfit = incompatible(environment.cluster.kubernetes, "pod-defaults")
    if misfit and spread_tiers:
        first = environment.tiers[spread_tiers[0]]
        fault = (
            f"topology-spread: {first.topology_spread} for {list_names(spread_tiers)} on Kubernetes "
            f"{environment.cluster.kubernetes}, "
            "whose API server adds no topologySpreadConstraints to pods: the scheduler's default applies, which "
            "accepts a difference of 3 replicas between nodes"
        )
        rule = "a tier's spread is written onto pods from Kubernetes 1.36 on"
        change = (
            f"{misfit}; or set topology-spread: none for these tiers, and write topologySpreadConstraints with "
            "maxSkew 1 and "
            "topologyKey kubernetes.io/hostname into Deployments and StatefulSets"
        )
        yield Mistake(("tiers", spread_tiers[0], "topology-spread"), fault, rule, change)


def _kept_in_departments(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tenants that lend or borrow in a strict department in which no other tenant takes part."""
    if not environment.has_queues:
        return
    active = [tenant for tenant in tenants if tenant.offboarding is not OffboardingStage.REMOVE]
    for name, department in environment.organisation.departments.items():
        members = [tenant for tenant in active if tenant.department == name]
        sharing_tenants = [t for t in members if any(share.lends or share.borrows for share in t.gpus.values())]
        if department.sharing is SharingPreset.STRICT and sharing_tenants and len(members) == 1:
            (tenant,) = sharing_tenants
            fault = f"sharing in the file of {tenant.tenant}, the only tenant of {name}, whose own sharing is strict"
            rule = "a strict department lends to no other department and borrows from none"
            change = "set it to lend or lend-and-borrow; until then the tenant lends and borrows nothing"
            yield Mistake(("organisation", "departments", name), fault, rule, change)


def _has_quota(environment: Environment, tenant: Tenant, tier: str) -> bool:
    """Whether a tenant's queue of a tier has any quota, guaranteed or borrowed."""
    tiers = frozenset({tier})
    open_pools = [name for name, pool in environment.pools.items() if pool.admits(tenant.tenant, tiers)]
    if any(not environment.pools[name].machine.gpus for name in open_pools):
        return True
    namespaces = [namespace for namespace in tenant.namespaces if tenant.tier_of(namespace) == tier]
    if any(count for namespace in namespaces for count in tenant.guaranteed_in(namespace).values()):
        return True
    yielded = {flavor for name in open_pools for flavor in environment.flavors_of(name)}
    has_gpus = any(share.guaranteed or share.borrows for f, share in tenant.gpus.items() if f in yielded)
    return environment.tiers[tier].allow_borrowing and has_gpus


def _without_s3_egress(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Tenants with grants in buckets whose pods have no egress to S3."""
    network = environment.aws.network
    if not environment.aws.enabled or network.aws_service_cidrs:
        return
    if cut_off_tenants := [tenant.tenant for tenant in tenants if tenant.storage and not _may_reach_s3(tenant)]:
        fault = f"none, and grants of buckets to {list_names(cut_off_tenants)}, whose egress does not include S3"
        rule = "pods reach S3 only at ranges that network policies allow, whatever their role may do"
        change = "write the ranges of S3's prefix list in the region; docs/network.md shows how to get them"
        yield Mistake(("aws", "network", "aws-service-cidrs"), fault, rule, change)


def _may_reach_s3(tenant: Tenant) -> bool:
    """Whether an entry under reach may lead to S3; the owner of a range is unknown."""
    return any(
        rule.port == _HTTPS and (rule.cidr or rule.internet or (rule.dns and rule.dns.endswith(_AWS_NAMES)))
        for rule in tenant.egress
    )
