"""Rules across files: names, prefixes, groups and guarantees of all tenants."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

from tenancy.catalog import vocabulary as words
from tenancy.catalog.text import counted
from tenancy.kube import quantities
from tenancy.rules.values import name_misfit
from tenancy.schema.base import Mistake, amount, broken
from tenancy.schema.environment import Environment, undeclared
from tenancy.schema.people import Role
from tenancy.schema.queues import SharingPreset
from tenancy.schema.source import Location
from tenancy.schema.tenant import Access, Leaving, Storage, Tenant
from tenancy.schema.tiers import Tier
from tenancy.validation.aws import aws_resources
from tenancy.validation.calendar import calendar
from tenancy.validation.found import ENVIRONMENT, Found
from tenancy.validation.references import references
from tenancy.validation.shares import guarantees, offers_of, shares
from tenancy.validation.stored import KUEUE_SIZES, ObjectQuotas, store_budget
from tenancy.validation.virtual_clusters import virtual


def across(
    environment: Environment | None,
    tenants: Sequence[Tenant],
    salvaged: Sequence[Tenant] = (),
    unread: Collection[str] = (),
) -> Iterator[Found]:
    """Every broken rule across specs; without an environment, only rules between tenants.

    `salvaged` are tenants whose files can be read in part; their indices follow those of `tenants`.
    """
    yield from between_tenants(tenants)
    if environment:
        yield from crossfile(environment, [*tenants, *salvaged], unread)


def crossfile(environment: Environment, tenants: Sequence[Tenant], unread: Collection[str] = ()) -> Iterator[Found]:
    """Every broken rule between the environment and tenants; linear in the number of tenants.

    `unread` names tenants whose files are broken: they exist, but nothing else is known about them.
    """
    known = dict.fromkeys((*(t.tenant for t in tenants), *unread))
    tiers = {tenant.tenant: tenant.tiers for tenant in tenants}
    for name, pool in environment.pools.items():
        for i, tenant in enumerate(pool.tenants):
            where = ("pools", name, "tenants", i)
            # A tenant without a file may be added later, see notes. A name that no tenant can have is a mistake.
            if tenant not in known and (misfit := name_misfit(tenant, words.TENANT_LENGTH)):
                yield ENVIRONMENT, broken(where, "name-01", misfit)
            mine = [t for t in sorted(tiers.get(tenant, ())) if t in environment.tiers] if pool.uncertain else []
            if firm := [tier for tier in mine if not environment.tiers[tier].interruptible]:
                given = f"{tenant}, of tier {' and '.join(firm)}, on {pool.uncertain}"
                yield ENVIRONMENT, broken(where, "pool-05", given)
    for i, tenant in enumerate(environment.rollout.canary if environment.rollout else ()):
        if tenant not in known:
            yield ENVIRONMENT, undeclared(("rollout", "canary", i), "tenant", tenant, known, "tenants/")
    for i, former in enumerate(environment.rollout.after if environment.rollout else ()):
        if former == environment.environment:
            given, rule = "an environment that waits for itself", "another environment of the repository"
            yield ENVIRONMENT, Mistake(("rollout", "after", i), given, rule, "drop it, or name another one")
    if not unread:
        for mistake in _strangers(environment, tenants):
            yield ENVIRONMENT, mistake
    yield from _namespaces(environment, tenants)
    yield from _withdrawn(environment, tenants)
    yield from _organisation(environment)
    yield from _open_repositories(environment, tenants)
    yield from _ambiguous(environment, tenants)
    offers = offers_of(environment)
    of_tiers = {name: tier.quota.effective() for name, tier in environment.tiers.items()}
    oversold = list(guarantees(offers, tenants))
    given_back = {found.tenant: found.over for found in oversold}
    for index, tenant in enumerate(tenants):
        for mistake in (
            *references(environment, tenant),
            *shares(environment, offers, tenant),
            *_isolated(environment, tenant),
            *virtual(environment, tenant),
            *_queued(environment, of_tiers, tenant, given_back.get(index, 0)),
        ):
            yield index, mistake
    for found in oversold:
        yield found.tenant, found.mistake
    yield from calendar(environment, offers, tenants)
    yield from _remembered(environment, tenants)
    yield from aws_resources(environment, tenants)


def between_tenants(tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Every broken rule between tenants alone, for any environment."""
    again = dict(_names(tenants))
    yield from again.items()
    # A second file of one tenant collides with the first in every name: one message is enough.
    for index, mistake in (*_groups(tenants), *_prefixes(tenants)):
        if index not in again:
            yield index, mistake


def _isolated(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """A tenant whose isolation is stronger than namespaces, in an environment that does not support it."""
    where = ("isolation",)
    if tenant.on_own_nodes:
        own = [name for name, pool in environment.pools.items() if pool.sole_tenant == tenant.tenant]
        if not own:
            yield broken(where, "iso-01", f"isolation: {tenant.isolation} and no pool of its own")
        for flavor in tenant.gpus:
            for name, pool in environment.pools_by_flavor.get(flavor, ()):
                if name not in own and pool.admits(tenant.tenant, tenant.tiers):
                    given = f"{flavor}, which pool {name} yields to it and to others"
                    yield broken(("gpus", flavor), "iso-01", given)
    if tenant.sandboxed:
        if environment.sandbox is None:
            yield broken(where, "iso-02", f"isolation: {tenant.isolation} in an environment without sandbox")
        else:
            pool = environment.pools.get(environment.sandbox.pool)
            if pool and not pool.admits(tenant.tenant, tenant.tiers):
                given = f"isolation: {tenant.isolation}, and pool {environment.sandbox.pool}, which does not admit it"
                yield broken(where, "iso-02", given, f"add {tenant.tenant} or its tier to the pool")
        for flavor in tenant.gpus:
            change = "drop it, or set isolation to dedicated-nodes"
            yield broken(("gpus", flavor), "iso-02", f"{flavor} for a tenant with isolation: sandbox", change)


def _strangers(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Groups with an IAM role that no tenant's file names: access without an owner."""
    known = {person.group for tenant in tenants for person in tenant.people if person.group}
    for group in environment.aws.people:
        if group not in known:
            yield undeclared(("aws", "people", group), "group", group, sorted(known), "the people of a tenant's file")


def _withdrawn(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Flavors that no pool yields (any more), while tenants have a share of them."""
    yielded = {flavor for pool in environment.pools for flavor in environment.flavors_of(pool)}
    holders: dict[str, list[str]] = {flavor: [] for flavor in environment.flavors if flavor not in yielded}
    for tenant in tenants if holders else ():
        for flavor in tenant.gpus:
            if flavor in holders:
                holders[flavor].append(tenant.tenant)
    for flavor, names in holders.items():
        if names:
            given = f"flavor {flavor}, which no pool yields and {some(names)} hold{'s' * (len(names) == 1)} a share of"
            change = "keep a pool that yields it, or take the shares out of the tenants' files first"
            yield ENVIRONMENT, broken(("flavors", flavor), "pool-01", given, change)


def _ambiguous(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Pools with different slices of the same resource name, open to one tenant: its quota would mix them."""
    kinds: dict[str, dict[tuple[str, str | None], list[str]]] = {}
    for name in environment.pools:
        for flavor in environment.flavors_of(name):
            found = environment.flavors[flavor]
            if found.mig:
                same = kinds.setdefault(environment.resource_of(flavor), {})
                same.setdefault((found.gpu, found.mig), []).append(name)
    for resource, slices in kinds.items():
        for (first, ones), (second, others) in combinations(slices.items(), 2):
            one, other = ones[0], others[0]
            both = [
                tenant.tenant
                for tenant in tenants
                if any(environment.resource_of(f) == resource for f in tenant.gpus if f in environment.flavors)
                and any(environment.pools[p].admits(tenant.tenant, tenant.tiers) for p in ones)
                and any(environment.pools[p].admits(tenant.tenant, tenant.tiers) for p in others)
            ]
            if both:
                kinds_there = f"{first[1]} of {first[0]} in {one} and {second[1]} of {second[0]} in {other}"
                given = f"{resource}, which is {kinds_there}, both open to {some(both)}"
                yield ENVIRONMENT, broken(("pools", other), "mig-03", given)


def some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and the number of further ones."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


_Limits = Mapping[str, Decimal]
"""What `Quota.effective` answers."""


def _queued(
    environment: Environment, of_tiers: Mapping[str, _Limits], tenant: Tenant, given_back: int
) -> Iterator[Mistake]:
    """Mistakes of a tenant's shares and queues. `of_tiers` are the quotas of the tiers, `given_back` the GPUs that its
    guarantees have to lose anyway, which need no quota."""
    firm = [tier for tier in sorted(tenant.tiers) if tier in environment.tiers and not environment.tiers[tier].borrows]
    for flavor, share in tenant.gpus.items():
        if share.sharing is not SharingPreset.STRICT and not environment.queued:
            yield broken(("gpus", flavor, "sharing"), "share-04", f"sharing: {share.sharing} with scheduler: none")
        elif share.borrow_up_to and len(firm) == len(tenant.tiers):
            given = f"borrow-up-to: {share.borrow_up_to} with tier {' and '.join(firm)}, which does not borrow"
            yield broken(("gpus", flavor, "borrow-up-to"), "share-03", given)
    if not environment.queued:
        return
    spanned = [
        name
        for name, pool in environment.pools.items()
        if pool.admits(tenant.tenant, tenant.tiers) and tenant.gpus.keys() & environment.flavors_of(name).keys()
    ]
    resources = _resources(environment, tenant.gpus.keys() & environment.flavors.keys())
    if len(spanned) * resources > MOST_AMOUNTS:
        given = f"{len(spanned)} pools x {resources} resources = {len(spanned) * resources} amounts of {MOST_AMOUNTS}"
        yield broken(("gpus",), "queue-01", given, "open fewer pools to the tenant, or give it fewer flavors")
    for i, namespace in enumerate(tenant.namespaces):
        name = tenant.tier_of(namespace)
        if tier := environment.tiers.get(name):
            quota = tier.allows(namespace.quota).effective() if namespace.quota else of_tiers[name]
            yield from _default_containers(tenant, i, tier, quota, given_back)


MOST_FLAVORS = 64
"""Flavors of one queue, and also its resources: Kueue v0.19 `ResourceGroup`."""
MOST_AMOUNTS = 512
"""Amounts of one queue, that is flavors times resources: Kueue's webhook."""
MOST_CLASSES = 16
"""Device classes in Kueue's configuration: it does not start with more (`validateDeviceClassMappings`)."""


def _resources(environment: Environment, flavors: Collection[str]) -> int:
    """Number of resources in a queue of these flavors. By claim each flavor is one resource; otherwise two more are
    counted besides those of the flavors: shares of boards in compute and in memory."""
    if environment.devices_by_claim or not flavors:
        return len(flavors)
    return len({environment.resource_of(flavor) for flavor in flavors}) + 2


def _open_repositories(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    aws = environment.aws
    host = re.compile(rf"{aws.account}\.dkr[.-]ecr(-fips)?\.{aws.region}\.(amazonaws\.com(\.cn)?|on\.aws)/")
    for i, prefix in enumerate(environment.images.registries):
        if "{tenant}" in prefix or not (found := host.match(prefix)):
            continue
        folder = prefix[found.end() :]
        repositories = (
            words.repository(environment.environment, tenant.tenant, name)
            for tenant in tenants
            for name in tenant.uses.repositories
        )
        if below := next((one for one in repositories if one.startswith(folder)), None):
            yield ENVIRONMENT, broken(("images", "registries", i), "img-03", f"{prefix!r}, below which is {below}")


def _organisation(environment: Environment) -> Iterator[Found]:
    """More pools or resources than the root of the queue tree can have; it has all of them."""
    if not environment.queued:
        return
    change = "split the environment into two clusters, or set queues.scheduler to none"
    pools = sum(pool.machine.gpus > 0 for pool in environment.pools.values())
    if pools > MOST_FLAVORS:
        given = f"{pools} pools with GPUs, all of them the organisation's"
        yield ENVIRONMENT, broken(("pools",), "queue-01", given, change)
    by_claim = environment.devices_by_claim
    most, what = (MOST_CLASSES, "classes of devices") if by_claim else (MOST_FLAVORS, "resources")
    if (resources := _resources(environment, environment.flavors)) > most:
        given = f"{resources} {what} of {most}, all of them the organisation's"
        yield ENVIRONMENT, broken(("flavors",), "queue-01", given, f"declare fewer flavors, {change}")


def _remembered(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Object quotas that together exceed the API server's store or Kueue's memory."""
    times, budget, most = environment.cluster.object_overcommit, store_budget(), KUEUE_SIZES[-1]
    quotas = ObjectQuotas(environment)
    present = {index: tenant for index, tenant in enumerate(tenants) if tenant.leaving is not Leaving.REMOVE}
    stored = {index: quotas.stored_bytes(tenant) for index, tenant in present.items()}
    for index, each in stored.items():
        if each > budget:
            given = f"{tenants[index].tenant}, which may store {_mebibytes(each)} of {_mebibytes(budget)}"
            change = "lower the quotas of its namespaces, or split it into two tenants"
            yield index, broken(("namespaces",), "quota-06", given, change)
    where = ("cluster", "object-overcommit")
    if (together := sum(stored.values())) > budget * times:
        given = (
            f"{counted(len(present), 'tenant')}, which may store {_mebibytes(together)} together, "
            f"{together / budget:.1f} times {_mebibytes(budget)}; object-overcommit is {times}"
        )
        yield ENVIRONMENT, broken(where, "quota-06", given)
    for index, tenant in present.items():
        if (need := quotas.kueue_need([tenant])) > most:
            given = f"{tenant.tenant}, for whose work Kueue may need {_mebibytes(need)} of {_mebibytes(most)}"
            change = "lower jobs, pods or ended-pods of its namespaces, or split it into two tenants"
            yield index, broken(("namespaces",), "queue-03", given, change)
            return
    if (need := quotas.kueue_need(list(present.values()))) > most:
        given = (
            f"work of {counted(len(present), 'tenant')}, for which Kueue may need {_mebibytes(need)} of "
            f"{_mebibytes(most)}; object-overcommit is {times}"
        )
        yield ENVIRONMENT, broken(where, "queue-03", given)


def _mebibytes(number: int) -> str:
    return f"{-(-number // quantities.MIB):,} MiB"


def _default_containers(tenant: Tenant, number: int, tier: Tier, quota: _Limits, given_back: int) -> Iterator[Mistake]:
    """A quota without room for one default container per guaranteed GPU."""
    namespace = tenant.namespaces[number]
    gpus = sum(tenant.held_in(namespace).values())
    if number == 0:
        gpus += sum(map(tenant.most_more, tenant.gpus))
    gpus = max(0, gpus - given_back)
    where = ("namespaces", number, "quota") if namespace.quota else ("tier",)
    requests, limits = tier.container.default_request, tier.container.default
    sums = {"cpu": requests, "memory": requests, "cpu-limit": limits, "memory-limit": limits}
    short = [f"pods {quota['pods']}"] if gpus > quota["pods"] else []
    for field, defaults in {**sums, "ephemeral-storage": {**requests, **limits}}.items():
        each = amount(defaults.get(field.removesuffix("-limit"), "0"))
        if gpus * each > quota[field]:
            short.append(f"{field} {quantities.write(quota[field])} at {quantities.write(each)} each by default")
    if short:
        given = f"{', '.join(short)}; for {gpus} GPUs that namespace {namespace.name} is guaranteed"
        yield broken(where, "queue-02", given)


def _first(
    tenants: Sequence[Tenant], key: Callable[[Tenant], Iterator[tuple[str, Location]]]
) -> Iterator[tuple[int, Location, str, str]]:
    """Keys that a second tenant uses too, with the first tenant that has them."""
    seen: dict[str, int] = {}
    for index, tenant in enumerate(tenants):
        for name, where in key(tenant):
            first = seen.setdefault(name, index)
            if first != index:
                yield index, where, name, tenants[first].tenant


def _names(tenants: Sequence[Tenant]) -> Iterator[Found]:
    for index, where, name, _ in _first(tenants, lambda t: iter([(t.tenant, ("tenant",))])):
        yield index, broken(where, "name-02", f"tenant {name!r}, which another file describes too")


def _namespaces(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Names of namespaces on the cluster: each is one tenant's, and none is the platform's or unmanaged."""
    files: dict[str, int] = {}
    first: dict[str, str] = {}
    for index, tenant in enumerate(tenants):
        if files.setdefault(tenant.tenant, index) != index:
            continue  # reported elsewhere
        for i, namespace in enumerate(tenant.namespaces):
            where: Location = ("namespaces", i, "namespace-name")
            name = tenant.namespace_name(namespace)
            # The form <tenant>--<namespace> is name-01's.
            if namespace.namespace_name and (given := environment.foreign_namespace(tenant.tenant, name)):
                yield index, broken(where, "name-03", given)
            mine = f"{namespace.name} of {tenant.tenant}"
            other = first.setdefault(name, mine)
            if other != mine:
                change = "give one of the two a namespace-name of its own"
                yield index, broken(where, "name-02", f"namespace {name!r}, which is {other} as well", change)


def _groups(tenants: Sequence[Tenant]) -> Iterator[Found]:
    def groups(tenant: Tenant) -> Iterator[tuple[str, Location]]:
        for i, person in enumerate(tenant.people):
            # A group of viewers, such as auditors, may have several tenants.
            if person.group and person.role is not Role.VIEWER:
                yield person.group, ("people", i, "group")

    for index, where, name, first in _first(tenants, groups):
        yield index, broken(where, "rbac-05", f"group {name!r}, which belongs to tenant {first}")


class _Grant(NamedTuple):
    tenant: int
    number: int
    storage: Storage


def _prefixes(tenants: Sequence[Tenant]) -> Iterator[Found]:
    grants = [_Grant(t, i, s) for t, tenant in enumerate(tenants) for i, s in enumerate(tenant.storage)]
    grants.sort(key=lambda g: (g.storage.bucket, g.storage.prefix, g.tenant, g.number))
    # In this order a prefix comes right before all prefixes below it, so a stack of open prefixes suffices.
    # Each has the grants around it, all and the writing ones, of two tenants each, so many readers stay cheap.
    around: list[tuple[_Grant, tuple[_Grant, ...], tuple[_Grant, ...]]] = []
    for grant in grants:
        while around and not grant.storage.overlaps(around[-1][0].storage):
            around.pop()
        holders, writers = (around[-1][1], around[-1][2]) if around else ((), ())
        reads = grant.storage.access is Access.READ_ONLY
        other = next((o for o in (writers if reads else holders) if o.tenant != grant.tenant), None)
        if other:
            late, early = (grant, other) if grant.tenant > other.tenant else (other, grant)
            given = f"{_path(late)}, which overlaps {_path(early)} of {tenants[early.tenant].tenant}"
            yield late.tenant, broken(("storage", late.number, "prefix"), "stor-02", given)
        around.append((grant, _two(holders, grant), writers if reads else _two(writers, grant)))


def _path(grant: _Grant) -> str:
    return f"{grant.storage.bucket}/{grant.storage.prefix}"


def _two(grants: tuple[_Grant, ...], grant: _Grant) -> tuple[_Grant, ...]:
    """Grants of at most two tenants: enough to find one of another tenant."""
    if len(grants) == 2 or any(g.tenant == grant.tenant for g in grants):
        return grants
    return (*grants, grant)
