"""Rules across files: names, prefixes, groups and guarantees of all tenants."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from typing import NamedTuple

from tenancy.catalog import vocabulary
from tenancy.catalog.text import pluralize
from tenancy.kube import quantities
from tenancy.rules.values import name_misfit
from tenancy.spec.checks.aws_grants import aws_resources
from tenancy.spec.checks.dated_entries import dated_mistakes
from tenancy.spec.checks.environment_checks import undeclared_name
from tenancy.spec.checks.guarantees import offers_of, oversold_guarantees, share_mistakes
from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX, IndexedMistake
from tenancy.spec.checks.references import reference_mistakes
from tenancy.spec.checks.scheduled_quota import calendar_mistakes
from tenancy.spec.checks.stored_objects import KUEUE_SIZES, ObjectQuotas, store_budget
from tenancy.spec.checks.virtual_clusters import virtual_cluster_mistakes
from tenancy.spec.fields.base import amount
from tenancy.spec.fields.data import Access, Storage
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.queues import SharingPreset
from tenancy.spec.fields.tenant import OffboardingStage, Tenant
from tenancy.spec.fields.tiers import Tier
from tenancy.spec.reading.mistakes import Mistake, rule_mistake
from tenancy.spec.reading.source import Location


def check_all(
    environment: Environment | None,
    tenants: Sequence[Tenant],
    day: dt.date,
    salvaged: Sequence[Tenant] = (),
    unread: Collection[str] = (),
    *,
    refuse_past: bool = True,
) -> Iterator[IndexedMistake]:
    """Every broken rule across specs on that day; without an environment, only rules of tenants.

    `salvaged` are tenants whose files can be read in part; their indices follow those of `tenants`. Without
    `refuse_past`, an entry whose last day has passed is no mistake.
    """
    yield from check_between_tenants(tenants)
    yield from dated_mistakes(environment, [*tenants, *salvaged], day, refuse_past=refuse_past)
    if environment:
        yield from check_with_environment(environment, [*tenants, *salvaged], day, unread)


def check_with_environment(
    environment: Environment, tenants: Sequence[Tenant], day: dt.date, unread: Collection[str] = ()
) -> Iterator[IndexedMistake]:
    """Every broken rule between the environment and tenants; linear in the number of tenants.

    `unread` names tenants whose files are broken: they exist, but nothing else is known about them.
    """
    tenant_names = dict.fromkeys((*(t.tenant for t in tenants), *unread))
    tiers = {tenant.tenant: tenant.tiers for tenant in tenants}
    for name, pool in environment.pools.items():
        for i, tenant in enumerate(pool.tenants):
            location = ("pools", name, "tenants", i)
            # A tenant without a file may be added later, see notes. A name that no tenant can have is a mistake.
            if tenant not in tenant_names and (misfit := name_misfit(tenant, vocabulary.TENANT_LENGTH)):
                yield ENVIRONMENT_INDEX, rule_mistake(location, "name-01", misfit)
            tenant_tiers = (
                [t for t in sorted(tiers.get(tenant, ())) if t in environment.tiers] if pool.interruption_cause else []
            )
            if uninterruptible_tiers := [tier for tier in tenant_tiers if not environment.tiers[tier].interruptible]:
                fault = f"{tenant}, of tier {' and '.join(uninterruptible_tiers)}, on {pool.interruption_cause}"
                yield ENVIRONMENT_INDEX, rule_mistake(location, "pool-05", fault)
    for i, tenant in enumerate(environment.rollout.canary if environment.rollout else ()):
        if tenant not in tenant_names:
            yield (
                ENVIRONMENT_INDEX,
                undeclared_name(("rollout", "canary", i), "tenant", tenant, tenant_names, "tenants/"),
            )
    for i, predecessor in enumerate(environment.rollout.depends_on if environment.rollout else ()):
        if predecessor == environment.environment:
            fault, rule = "an environment that waits for itself", "another environment of the repository"
            yield ENVIRONMENT_INDEX, Mistake(("rollout", "depends-on", i), fault, rule, "drop it, or name another one")
    if not unread:
        for mistake in _unknown_groups(environment, tenants):
            yield ENVIRONMENT_INDEX, mistake
    yield from _namespaces(environment, tenants)
    yield from _flavors_without_pool(environment, tenants)
    yield from _organisation(environment)
    yield from _open_repositories(environment, tenants)
    yield from _ambiguous_slices(environment, tenants)
    offers = offers_of(environment)
    quota_of_tier = {name: tier.quota.effective() for name, tier in environment.tiers.items()}
    oversold = list(oversold_guarantees(offers, tenants))
    excess_guarantees = {conflict.tenant: conflict.excess for conflict in oversold}
    for index, tenant in enumerate(tenants):
        for mistake in (
            *reference_mistakes(environment, tenant),
            *share_mistakes(environment, offers, tenant),
            *_isolation_mistakes(environment, tenant),
            *virtual_cluster_mistakes(environment, tenant),
            *_queue_mistakes(environment, quota_of_tier, tenant, excess_guarantees.get(index, 0)),
        ):
            yield index, mistake
    for conflict in oversold:
        yield conflict.tenant, conflict.mistake
    yield from calendar_mistakes(environment, offers, tenants, day)
    yield from _object_quota_mistakes(environment, tenants)
    yield from aws_resources(environment, tenants)


def check_between_tenants(tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Every broken rule between tenants alone, for any environment."""
    duplicates = dict(_names(tenants))
    yield from duplicates.items()
    # A second file of one tenant collides with the first in every name: one message is enough.
    for index, mistake in (*_groups(tenants), *_prefixes(tenants)):
        if index not in duplicates:
            yield index, mistake


def _isolation_mistakes(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """A tenant whose isolation is stronger than namespaces, in an environment that does not support it."""
    location = ("isolation",)
    if tenant.on_own_nodes:
        own_pools = [name for name, pool in environment.pools.items() if pool.sole_tenant == tenant.tenant]
        if not own_pools:
            yield rule_mistake(location, "iso-01", f"isolation: {tenant.isolation} and no pool of its own")
        for flavor in tenant.gpus:
            for name, pool in environment.pools_by_flavor.get(flavor, ()):
                if name not in own_pools and pool.admits(tenant.tenant, tenant.tiers):
                    fault = f"{flavor}, which pool {name} yields to it and to others"
                    yield rule_mistake(("gpus", flavor), "iso-01", fault)
    if tenant.is_sandboxed:
        if environment.sandbox is None:
            yield rule_mistake(location, "iso-02", f"isolation: {tenant.isolation} in an environment without sandbox")
        else:
            pool = environment.pools.get(environment.sandbox.pool)
            if pool and not pool.admits(tenant.tenant, tenant.tiers):
                fault = f"isolation: {tenant.isolation}, and pool {environment.sandbox.pool}, which does not admit it"
                yield rule_mistake(location, "iso-02", fault, f"add {tenant.tenant} or its tier to the pool")
        for flavor in tenant.gpus:
            change = "drop it, or set isolation to dedicated-nodes"
            yield rule_mistake(("gpus", flavor), "iso-02", f"{flavor} for a tenant with isolation: sandbox", change)


def _unknown_groups(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Groups with an IAM role that no tenant's file names: access without an owner."""
    declared_groups = {person.group for tenant in tenants for person in tenant.people if person.group}
    for group in environment.aws.group_roles:
        if group not in declared_groups:
            yield undeclared_name(
                ("aws", "group-roles", group), "group", group, sorted(declared_groups), "the people of a tenant's file"
            )


def _flavors_without_pool(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Flavors that no pool yields (any more), while tenants have a share of them."""
    yielded = {flavor for pool in environment.pools for flavor in environment.flavors_of(pool)}
    holders_of_flavor: dict[str, list[str]] = {flavor: [] for flavor in environment.flavors if flavor not in yielded}
    for tenant in tenants if holders_of_flavor else ():
        for flavor in tenant.gpus:
            if flavor in holders_of_flavor:
                holders_of_flavor[flavor].append(tenant.tenant)
    for flavor, names in holders_of_flavor.items():
        if names:
            holders = f"{list_names(names)} hold{'s' * (len(names) == 1)}"
            fault = f"flavor {flavor}, which no pool yields and {holders} a share of"
            change = "keep a pool that yields it, or take the shares out of the tenants' files first"
            yield ENVIRONMENT_INDEX, rule_mistake(("flavors", flavor), "pool-01", fault, change)


def _ambiguous_slices(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Pools with different slices of the same resource name, open to one tenant: its quota would mix them."""
    kinds: dict[str, dict[tuple[str, str | None], list[str]]] = {}
    for name in environment.pools:
        for flavor in environment.flavors_of(name):
            declared_flavor = environment.flavors[flavor]
            if declared_flavor.mig:
                pools_by_slice = kinds.setdefault(environment.resource_of(flavor), {})
                pools_by_slice.setdefault((declared_flavor.gpu, declared_flavor.mig), []).append(name)
    for resource, slices in kinds.items():
        for (first, first_pools), (second, second_pools) in combinations(slices.items(), 2):
            first_pool, second_pool = first_pools[0], second_pools[0]
            tenants_of_both = [
                tenant.tenant
                for tenant in tenants
                if any(environment.resource_of(f) == resource for f in tenant.gpus if f in environment.flavors)
                and any(environment.pools[p].admits(tenant.tenant, tenant.tiers) for p in first_pools)
                and any(environment.pools[p].admits(tenant.tenant, tenant.tiers) for p in second_pools)
            ]
            if tenants_of_both:
                slices_text = (
                    f"{first[1]} of {first[0]} in {first_pool} and {second[1]} of {second[0]} in {second_pool}"
                )
                fault = f"{resource}, which is {slices_text}, both open to {list_names(tenants_of_both)}"
                yield ENVIRONMENT_INDEX, rule_mistake(("pools", second_pool), "mig-03", fault)


def list_names(names: Sequence[str], limit: int = 5) -> str:
    """The first names, and the number of further ones."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


_Limits = Mapping[str, Decimal]
"""Result of `Quota.effective`."""


def _queue_mistakes(
    environment: Environment, quota_of_tier: Mapping[str, _Limits], tenant: Tenant, excess_gpus: int
) -> Iterator[Mistake]:
    """Mistakes of a tenant's shares and queues. `of_tiers` are the quotas of the tiers, `given_back` the GPUs that its
    guarantees have to lose anyway, which need no quota."""
    firm_tiers = [
        tier
        for tier in sorted(tenant.tiers)
        if tier in environment.tiers and not environment.tiers[tier].allow_borrowing
    ]
    for flavor, share in tenant.gpus.items():
        if share.sharing is not SharingPreset.STRICT and not environment.has_queues:
            yield rule_mistake(
                ("gpus", flavor, "sharing"), "share-04", f"sharing: {share.sharing} with scheduler: none"
            )
        elif share.borrowing_limit and len(firm_tiers) == len(tenant.tiers):
            fault = (
                f"borrowing-limit: {share.borrowing_limit} with tier {' and '.join(firm_tiers)}, which does not borrow"
            )
            yield rule_mistake(("gpus", flavor, "borrowing-limit"), "share-03", fault)
    if not environment.has_queues:
        return
    usable_pools = [
        name
        for name, pool in environment.pools.items()
        if pool.admits(tenant.tenant, tenant.tiers) and tenant.gpus.keys() & environment.flavors_of(name).keys()
    ]
    resources = _resources(environment, tenant.gpus.keys() & environment.flavors.keys())
    if len(usable_pools) * resources > MAX_AMOUNTS:
        amounts = f"{len(usable_pools)} pools x {resources} resources = {len(usable_pools) * resources} amounts"
        fault = f"{amounts} of {MAX_AMOUNTS}"
        yield rule_mistake(("gpus",), "queue-01", fault, "open fewer pools to the tenant, or give it fewer flavors")
    for i, namespace in enumerate(tenant.namespaces):
        name = tenant.tier_of(namespace)
        if tier := environment.tiers.get(name):
            quota = tier.quota_for(namespace.quota).effective() if namespace.quota else quota_of_tier[name]
            yield from _default_containers(tenant, i, tier, quota, excess_gpus)


MAX_FLAVORS = 64
"""Flavors of one queue, and also its resources: Kueue v0.19 `ResourceGroup`."""
MAX_AMOUNTS = 512
"""Amounts of one queue, that is flavors times resources: Kueue's webhook."""
MAX_DEVICE_CLASSES = 16
"""Device classes in Kueue's configuration: it does not start with more (`validateDeviceClassMappings`)."""


def _resources(environment: Environment, flavors: Collection[str]) -> int:
    """Number of resources in a queue of these flavors. By claim each flavor is one resource; otherwise two more are
    counted besides those of the flavors: shares of boards in compute and in memory."""
    if environment.uses_device_claims or not flavors:
        return len(flavors)
    return len({environment.resource_of(flavor) for flavor in flavors}) + 2


def _open_repositories(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    aws = environment.aws
    host = re.compile(rf"{aws.account}\.dkr[.-]ecr(-fips)?\.{aws.region}\.(amazonaws\.com(\.cn)?|on\.aws)/")
    for i, prefix in enumerate(environment.images.registries):
        if "{tenant}" in prefix or not (match := host.match(prefix)):
            continue
        folder = prefix[match.end() :]
        repositories = (
            vocabulary.repository(environment.environment, tenant.tenant, name)
            for tenant in tenants
            for name in tenant.aws_resources.repositories
        )
        if open_repository := next((repository for repository in repositories if repository.startswith(folder)), None):
            yield (
                ENVIRONMENT_INDEX,
                rule_mistake(("images", "registries", i), "img-03", f"{prefix!r}, below which is {open_repository}"),
            )


def _organisation(environment: Environment) -> Iterator[IndexedMistake]:
    """More pools or resources than the root of the queue tree can have; it has all of them."""
    if not environment.has_queues:
        return
    change = "split the environment into two clusters, or set queues.scheduler to none"
    pools = sum(pool.machine.gpus > 0 for pool in environment.pools.values())
    if pools > MAX_FLAVORS:
        fault = f"{pools} pools with GPUs, all of them the organisation's"
        yield ENVIRONMENT_INDEX, rule_mistake(("pools",), "queue-01", fault, change)
    by_claim = environment.uses_device_claims
    maximum, unit = (MAX_DEVICE_CLASSES, "classes of devices") if by_claim else (MAX_FLAVORS, "resources")
    if (resources := _resources(environment, environment.flavors)) > maximum:
        fault = f"{resources} {unit} of {maximum}, all of them the organisation's"
        yield ENVIRONMENT_INDEX, rule_mistake(("flavors",), "queue-01", fault, f"declare fewer flavors, {change}")


def _object_quota_mistakes(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Object quotas that together exceed the API server's store or Kueue's memory."""
    overcommit, budget, max_memory = environment.cluster.object_overcommit, store_budget(), KUEUE_SIZES[-1]
    quotas = ObjectQuotas(environment)
    active_tenants = {
        index: tenant for index, tenant in enumerate(tenants) if tenant.offboarding is not OffboardingStage.REMOVE
    }
    bytes_by_tenant = {index: quotas.stored_bytes(tenant) for index, tenant in active_tenants.items()}
    for index, tenant_bytes in bytes_by_tenant.items():
        if tenant_bytes > budget:
            fault = f"{tenants[index].tenant}, which may store {_mebibytes(tenant_bytes)} of {_mebibytes(budget)}"
            change = "lower the quotas of its namespaces, or split it into two tenants"
            yield index, rule_mistake(("namespaces",), "quota-06", fault, change)
    location = ("cluster", "object-overcommit")
    if (total_bytes := sum(bytes_by_tenant.values())) > budget * overcommit:
        fault = (
            f"{pluralize(len(active_tenants), 'tenant')}, which may store {_mebibytes(total_bytes)} together, "
            f"{total_bytes / budget:.1f} times {_mebibytes(budget)}; object-overcommit is {overcommit}"
        )
        yield ENVIRONMENT_INDEX, rule_mistake(location, "quota-06", fault)
    for index, tenant in active_tenants.items():
        if (need := quotas.kueue_need([tenant])) > max_memory:
            fault = f"{tenant.tenant}, for whose work Kueue may need {_mebibytes(need)} of {_mebibytes(max_memory)}"
            change = "lower jobs, pods or ended-pods of its namespaces, or split it into two tenants"
            yield index, rule_mistake(("namespaces",), "queue-03", fault, change)
            return
    if (need := quotas.kueue_need(list(active_tenants.values()))) > max_memory:
        fault = (
            f"work of {pluralize(len(active_tenants), 'tenant')}, for which Kueue may need {_mebibytes(need)} of "
            f"{_mebibytes(max_memory)}; object-overcommit is {overcommit}"
        )
        yield ENVIRONMENT_INDEX, rule_mistake(location, "queue-03", fault)


def _mebibytes(number: int) -> str:
    return f"{-(-number // quantities.MIB):,} MiB"


def _default_containers(tenant: Tenant, number: int, tier: Tier, quota: _Limits, excess_gpus: int) -> Iterator[Mistake]:
    """A quota without room for one default container per guaranteed GPU."""
    namespace = tenant.namespaces[number]
    gpus = sum(tenant.guaranteed_in(namespace).values())
    if number == 0:
        gpus += sum(map(tenant.max_extra_gpus, tenant.gpus))
    if gpus <= excess_gpus:
        return
    gpus -= excess_gpus
    location = ("namespaces", number, "quota") if namespace.quota else ("tier",)
    requests, limits = tier.container.default_request, tier.container.default
    sums = {"cpu": requests, "memory": requests, "cpu-limit": limits, "memory-limit": limits}
    shortages = [f"pods {quota['pods']}"] if gpus > quota["pods"] else []
    for field, defaults in {**sums, "ephemeral-storage": {**requests, **limits}}.items():
        default_amount = amount(defaults.get(field.removesuffix("-limit"), "0"))
        if gpus * default_amount > quota[field]:
            shortages.append(
                f"{field} {quantities.write(quota[field])} at {quantities.write(default_amount)} each by default"
            )
    if shortages:
        fault = f"{', '.join(shortages)}; for {gpus} GPUs that namespace {namespace.name} is guaranteed"
        yield rule_mistake(location, "queue-02", fault)


def _repeated_keys(
    tenants: Sequence[Tenant], key: Callable[[Tenant], Iterator[tuple[str, Location]]]
) -> Iterator[tuple[int, Location, str, str]]:
    """Keys that a second tenant uses too, with the first tenant that has them."""
    first_indices: dict[str, int] = {}
    for index, tenant in enumerate(tenants):
        for name, location in key(tenant):
            first = first_indices.setdefault(name, index)
            if first != index:
                yield index, location, name, tenants[first].tenant


def _names(tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    for index, location, name, _ in _repeated_keys(tenants, lambda t: iter([(t.tenant, ("tenant",))])):
        yield index, rule_mistake(location, "name-02", f"tenant {name!r}, which another file describes too")


def _namespaces(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Names of namespaces on the cluster: each is one tenant's, and none is the platform's or unmanaged."""
    files: dict[str, int] = {}
    owners: dict[str, str] = {}
    for index, tenant in enumerate(tenants):
        if files.setdefault(tenant.tenant, index) != index:
            continue  # reported elsewhere
        for i, namespace in enumerate(tenant.namespaces):
            location: Location = ("namespaces", i, "namespace-name")
            name = tenant.namespace_name(namespace)
            # The form <tenant>--<namespace> is name-01's.
            if namespace.namespace_name and (fault := environment.foreign_namespace(tenant.tenant, name)):
                yield index, rule_mistake(location, "name-03", fault)
            namespace_text = f"{namespace.name} of {tenant.tenant}"
            first_text = owners.setdefault(name, namespace_text)
            if first_text != namespace_text:
                change = "give one of the two a namespace-name of its own"
                yield (
                    index,
                    rule_mistake(location, "name-02", f"namespace {name!r}, which is {first_text} as well", change),
                )


def _groups(tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    def groups(tenant: Tenant) -> Iterator[tuple[str, Location]]:
        for i, person in enumerate(tenant.people):
            # A group of viewers, such as auditors, may have several tenants.
            if person.group and person.role is not Role.VIEWER:
                yield person.group, ("people", i, "group")

    for index, location, name, first in _repeated_keys(tenants, groups):
        yield index, rule_mistake(location, "rbac-05", f"group {name!r}, which belongs to tenant {first}")


class _Grant(NamedTuple):
    tenant: int
    number: int
    storage: Storage


def _prefixes(tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    grants = [_Grant(t, i, s) for t, tenant in enumerate(tenants) for i, s in enumerate(tenant.storage)]
    grants.sort(key=lambda g: (g.storage.bucket, g.storage.prefix, g.tenant, g.number))
    # In this order a prefix comes right before all prefixes below it, so a stack of open prefixes suffices.
    # Each has the grants around it, all and the writing ones, of two tenants each, so many readers stay cheap.
    open_prefixes: list[tuple[_Grant, tuple[_Grant, ...], tuple[_Grant, ...]]] = []
    for grant in grants:
        while open_prefixes and not grant.storage.overlaps(open_prefixes[-1][0].storage):
            open_prefixes.pop()
        holders, writers = (open_prefixes[-1][1], open_prefixes[-1][2]) if open_prefixes else ((), ())
        reads = grant.storage.access is Access.READ_ONLY
        overlapping_grant = next((o for o in (writers if reads else holders) if o.tenant != grant.tenant), None)
        if overlapping_grant:
            later_grant, earlier_grant = (
                (grant, overlapping_grant) if grant.tenant > overlapping_grant.tenant else (overlapping_grant, grant)
            )
            fault = (
                f"{_path(later_grant)}, which overlaps {_path(earlier_grant)} of {tenants[earlier_grant.tenant].tenant}"
            )
            yield later_grant.tenant, rule_mistake(("storage", later_grant.number, "prefix"), "stor-02", fault)
        open_prefixes.append(
            (grant, _of_two_tenants(holders, grant), writers if reads else _of_two_tenants(writers, grant))
        )


def _path(grant: _Grant) -> str:
    return f"{grant.storage.bucket}/{grant.storage.prefix}"


def _of_two_tenants(grants: tuple[_Grant, ...], grant: _Grant) -> tuple[_Grant, ...]:
    """Grants of at most two tenants: enough to find one of another tenant."""
    if len(grants) == 2 or any(g.tenant == grant.tenant for g in grants):
        return grants
    return (*grants, grant)
