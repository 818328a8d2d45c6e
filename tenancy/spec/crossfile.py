"""What no single file can show: names, prefixes, groups and guarantees across all tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tenancy.rules.catalogue import Violation
from tenancy.rules.values import foreign_subject
from tenancy.spec.environment import Cni, Environment, nearest
from tenancy.spec.tenant import Access, Role, Storage, Tenant

Location = tuple[str | int, ...]
Found = tuple[int, Location, Violation]
"""Index of the tenant, where in its file, and what is wrong."""

_T = TypeVar("_T")


def crossfile(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Every broken rule; linear in the number of tenants."""
    for index, tenant in enumerate(tenants):
        for where, violation in _references(environment, tenant):
            yield index, where, violation
    yield from _names(tenants)
    yield from _groups(tenants)
    yield from _prefixes(tenants)
    yield from _guarantees(environment, tenants)


def _undeclared(what: str, given: str, known: Sequence[str]) -> Violation:
    hint = f"use {' or '.join(nearest(given, known, 2))}" if known else "the environment declares none"
    return Violation("ref-01", f"{what} {given!r}", f"{hint}, or declare it in environment.yaml")


def _references(environment: Environment, tenant: Tenant) -> Iterator[tuple[Location, Violation]]:
    if tenant.department not in environment.organisation.departments:
        yield ("department",), _undeclared("department", tenant.department, [*environment.organisation.departments])
    if tenant.tier not in environment.tiers:
        yield ("tier",), _undeclared("tier", tenant.tier, [*environment.tiers])
    for i, namespace in enumerate(tenant.namespaces):
        if namespace.tier and namespace.tier not in environment.tiers:
            yield ("namespaces", i, "tier"), _undeclared("tier", namespace.tier, [*environment.tiers])
        tier = environment.tiers.get(tenant.tier_of(namespace))
        if tier and namespace.quota and (over := namespace.quota.over(tier.quota)):
            yield ("namespaces", i, "quota"), Violation(
                "ref-01",
                f"more {', '.join(over)} than tier {tenant.tier_of(namespace)} has",
                "lower it to the tier's ceiling, or have the tier raised",
            )
    for flavor in tenant.gpus:
        if flavor not in environment.flavors:
            yield ("gpus", flavor), _undeclared("flavor", flavor, [*environment.flavors])
        elif not any(
            flavor in environment.flavors_of(name) and pool.admits(tenant.tenant, tenant.tiers)
            for name, pool in environment.pools.items()
        ):
            yield ("gpus", flavor), Violation("pool-01", f"{flavor}, which no pool of {tenant.tenant} yields")
    for i, grant in enumerate(tenant.storage):
        if grant.bucket not in environment.buckets:
            yield ("storage", i, "bucket"), _undeclared("bucket", grant.bucket, environment.buckets)
    for i, place in enumerate(tenant.reach):
        if place.dns and environment.cluster.cni is not Cni.CILIUM:
            yield ("reach", i, "dns"), Violation("net-06", f"dns: {place.dns} with cni {environment.cluster.cni}")
    for i, person in enumerate(tenant.people):
        if given := foreign_subject(person.kind, person.name, environment.platform.group):
            yield ("people", i, person.kind.lower()), Violation("rbac-05", given)


def _first(tenants: Sequence[Tenant], key: Callable[[Tenant], Iterator[tuple[str, Location]]]) -> Iterator[
    tuple[int, Location, str, str]
]:
    """Keys that a second tenant uses again, with the tenant that had them first."""
    seen: dict[str, int] = {}
    for index, tenant in enumerate(tenants):
        for name, where in key(tenant):
            first = seen.setdefault(name, index)
            if first != index:
                yield index, where, name, tenants[first].tenant


def _names(tenants: Sequence[Tenant]) -> Iterator[Found]:
    for index, where, name, _ in _first(tenants, lambda t: iter([(t.tenant, ("tenant",))])):
        yield index, where, Violation("name-02", f"tenant {name!r}, which another file describes too")


def _groups(tenants: Sequence[Tenant]) -> Iterator[Found]:
    def groups(tenant: Tenant) -> Iterator[tuple[str, Location]]:
        for i, person in enumerate(tenant.people):
            # Auditors and the like may look at many tenants.
            if person.group and person.role is not Role.VIEWER:
                yield person.group, ("people", i, "group")

    for index, where, name, first in _first(tenants, groups):
        yield index, where, Violation("rbac-05", f"group {name!r}, which belongs to tenant {first}")


def _prefixes(tenants: Sequence[Tenant]) -> Iterator[Found]:
    grants: list[tuple[str, str, int, int, Storage]] = sorted(
        (
            (grant.bucket, grant.prefix, index, i, grant)
            for index, tenant in enumerate(tenants)
            for i, grant in enumerate(tenant.storage)
        ),
        key=lambda row: row[:4],
    )
    # In this order a prefix stands right before everything it holds, so a stack of open prefixes suffices.
    around: list[tuple[str, str, int, int, Storage]] = []
    for row in grants:
        while around and not row[4].overlaps(around[-1][4]):
            around.pop()
        for other in around:
            both_read = row[4].access is other[4].access is Access.READ_ONLY
            if other[2] != row[2] and not both_read:
                late, early = (row, other) if row[2] > other[2] else (other, row)
                given = f"{late[0]}/{late[1]}, which overlaps {early[0]}/{early[1]} of {tenants[early[2]].tenant}"
                yield late[2], ("storage", late[3], "prefix"), Violation("stor-02", given)
        around.append(row)


def _guarantees(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    supply: dict[str, int] = {}
    for name, pool in environment.pools.items():
        for flavor, each in environment.flavors_of(name).items():
            supply[flavor] = supply.get(flavor, 0) + each * pool.nodes.min
    for flavor in environment.flavors:
        holders = [(i, t.gpus[flavor].guaranteed) for i, t in enumerate(tenants) if flavor in t.gpus]
        total = sum(count for _, count in holders)
        if total > supply.get(flavor, 0):
            parts = " + ".join(f"{tenants[i].tenant} {count}" for i, count in holders if count)
            given = f"{parts} = {total} guaranteed of {supply.get(flavor, 0)} {flavor}"
            largest = max(holders, key=lambda row: row[1])[0]
            yield largest, ("gpus", flavor, "guaranteed"), Violation("pool-03", given)
