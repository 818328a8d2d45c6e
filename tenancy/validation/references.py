"""Names in a tenant's file that the environment, or the cluster, must have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tenancy.rules.values import foreign_subject, inside, is_private, whole_private
from tenancy.schema.base import Mistake, broken
from tenancy.schema.cluster import Cni
from tenancy.schema.environment import Environment, undeclared
from tenancy.schema.tenant import Tenant
from tenancy.schema.tiers import unusable


def references(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """Mistakes in the names that a tenant's file refers to."""
    yield from _organisation(environment, tenant)
    yield from _namespaces(environment, tenant)
    yield from _aws(environment, tenant)
    yield from _network(environment, tenant)
    yield from _people(environment, tenant)


def _organisation(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    departments = environment.organisation.departments
    if tenant.department not in departments:
        yield undeclared(("department",), "department", tenant.department, departments)
    if tenant.tier not in environment.tiers:
        yield undeclared(("tier",), "tier", tenant.tier, environment.tiers)
    for key in tenant.labels:
        if key not in environment.organisation.labels:
            yield undeclared(("labels", key), "label", key, environment.organisation.labels, "organisation.labels")
    organisation = environment.organisation
    for at, given in (
        ((), tenant.annotations),
        *((("namespaces", i), namespace.annotations) for i, namespace in enumerate(tenant.namespaces)),
    ):
        for key in given:
            if not organisation.takes_annotation(key):
                known, home = organisation.annotations, "organisation.annotations"
                yield undeclared((*at, "annotations", key), "annotation", key, known, home)


def _namespaces(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, namespace in enumerate(tenant.namespaces):
        for key in namespace.labels:
            if key not in environment.organisation.labels:
                where = ("namespaces", i, "labels", key)
                yield undeclared(where, "label", key, environment.organisation.labels, "organisation.labels")
        if namespace.tier and namespace.tier not in environment.tiers:
            yield undeclared(("namespaces", i, "tier"), "tier", namespace.tier, environment.tiers)
        tier = environment.tiers.get(tenant.tier_of(namespace))
        if tier and namespace.quota:
            for field, (asked, most) in namespace.quota.over(tier.quota).items():
                name = tenant.tier_of(namespace)
                given = f"{field} {asked}, more than the {most} of tier {name}"
                change = f"lower it to {most}, or have the platform team raise the quota of tier {name}"
                rule = "a namespace's quota is no more than its tier's"
                yield Mistake(("namespaces", i, "quota", *field.split(".", 1)), given, rule, change, "ref-01")
            for mistake in unusable(tier.allows(namespace.quota), tier.container, tier.claim):
                yield replace(mistake, where=("namespaces", i, "quota", *mistake.where))


def _aws(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, grant in enumerate(tenant.storage):
        if grant.bucket not in environment.buckets:
            yield undeclared(("storage", i, "bucket"), "bucket", grant.bucket, environment.buckets)
    points = environment.file_access_points
    for i, files in enumerate(tenant.uses.files):
        if files.access_point not in points:
            where = ("uses", "files", i, "access-point")
            yield undeclared(where, "access point", files.access_point, points, "file-access-points")
    if tenant.ci and tenant.ci.forge not in environment.aws.forges:
        field = "github" if tenant.ci.github else "host" if tenant.ci.host else "gitlab"
        yield undeclared(("ci", field), "forge", tenant.ci.forge, environment.aws.forges, "aws.forges")


def _network(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, place in enumerate(tenant.egress):
        if place.dns and environment.cluster.cni is not Cni.CILIUM:
            yield broken(("egress", i, "dns"), "net-06", f"dns: {place.dns} with cni {environment.cluster.cni}")
        if place.internet and not environment.own_ranges:
            given = "internet: true, while the ranges of nodes and pods are unknown and cannot be left out"
            yield broken(("egress", i, "internet"), "net-05", given, "write them as cluster.ranges first")
    services = environment.platform.services
    for field, ways in (("egress", tenant.egress), ("ingress", tenant.ingress)):
        for i, way in enumerate(ways):
            if way.service is not None and way.service not in services:
                yield undeclared((field, i, "service"), "service", way.service, services, "platform.services")
            elif way.cidr and ":" in way.cidr and environment.ipv4_alone:
                rule, change = (
                    "the cluster's addresses are IPv4 alone",
                    "name the range of the service's IPv4 addresses",
                )
                yield Mistake((field, i, "cidr"), way.cidr, rule, change)
            elif way.cidr and (given := inside(way.cidr, environment.own_ranges)):
                yield broken((field, i, "cidr"), "net-05", given)
            elif field == "egress" and way.cidr and (given := inside(way.cidr, environment.service_cidrs, "services")):
                # The VPC CNI matches a packet by the service's address, not by the pod behind it.
                change = "name ranges outside of it, or write the cluster's service range as cluster.service-cidr"
                yield broken((field, i, "cidr"), "net-05", given, None if environment.cluster.service_cidr else change)
            elif field == "ingress" and way.cidr and not environment.own_ranges and is_private(way.cidr):
                change = "write the ranges of nodes and pods as cluster.ranges first, so that none of them is allowed"
                yield broken((field, i, "cidr"), "net-05", f"{way.cidr!r}, which may hold nodes and pods", change)
    if not environment.own_ranges and (given := whole_private([place.cidr or "" for place in tenant.egress])):
        change = "write the ranges of nodes and pods as cluster.ranges first, so that none of them is allowed"
        yield broken(("egress",), "net-05", given, change)


def _people(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for field, subjects in (("people", tenant.people), ("gpu-users", tenant.gpu_users)):
        for i, subject in enumerate(subjects):
            if subject.kind == "ServiceAccount":
                continue
            if given := foreign_subject(subject.kind, subject.name, environment.platform.group):
                yield broken((field, i, subject.kind.lower()), "rbac-05", given)
