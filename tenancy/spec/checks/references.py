"""Names in a tenant's file that the environment, or the cluster, must have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tenancy.rules.values import foreign_subject, inside, is_private, whole_private
from tenancy.spec.checks.environment_checks import undeclared_name
from tenancy.spec.fields.cluster import Cni
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.fields.tiers import unusable_limits
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


def reference_mistakes(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """Mistakes in the names that a tenant's file refers to."""
    yield from _organisation(environment, tenant)
    yield from _namespaces(environment, tenant)
    yield from _aws(environment, tenant)
    yield from _network(environment, tenant)
    yield from _people(environment, tenant)


def _organisation(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    departments = environment.organisation.departments
    if tenant.department not in departments:
        yield undeclared_name(("department",), "department", tenant.department, departments)
    if tenant.tier not in environment.tiers:
        yield undeclared_name(("tier",), "tier", tenant.tier, environment.tiers)
    for key in tenant.labels:
        if key not in environment.organisation.label_keys:
            yield undeclared_name(
                ("labels", key), "label", key, environment.organisation.label_keys, "organisation.label-keys"
            )
    organisation = environment.organisation
    for parent, given_annotations in (
        ((), tenant.annotations),
        *((("namespaces", i), namespace.annotations) for i, namespace in enumerate(tenant.namespaces)),
    ):
        for key in given_annotations:
            if not organisation.takes_annotation(key):
                allowed, declared_in = organisation.annotation_keys, "organisation.annotation-keys"
                yield undeclared_name((*parent, "annotations", key), "annotation", key, allowed, declared_in)


def _namespaces(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, namespace in enumerate(tenant.namespaces):
        for key in namespace.labels:
            if key not in environment.organisation.label_keys:
                location = ("namespaces", i, "labels", key)
                yield undeclared_name(
                    location, "label", key, environment.organisation.label_keys, "organisation.label-keys"
                )
        if namespace.tier and namespace.tier not in environment.tiers:
            yield undeclared_name(("namespaces", i, "tier"), "tier", namespace.tier, environment.tiers)
        tier = environment.tiers.get(tenant.tier_of(namespace))
        if tier and namespace.quota:
            for field, (requested, maximum) in namespace.quota.excess_over(tier.quota).items():
                name = tenant.tier_of(namespace)
                fault = f"{field} {requested}, more than the {maximum} of tier {name}"
                change = f"lower it to {maximum}, or have the platform team raise the quota of tier {name}"
                rule = "a namespace's quota is no more than its tier's"
                yield Mistake(("namespaces", i, "quota", *field.split(".", 1)), fault, rule, change, "ref-01")
            for mistake in unusable_limits(tier.quota_for(namespace.quota), tier.container, tier.volume_claim):
                yield replace(mistake, location=("namespaces", i, "quota", *mistake.location))


def _aws(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, grant in enumerate(tenant.storage):
        if grant.bucket not in environment.buckets:
            yield undeclared_name(("storage", i, "bucket"), "bucket", grant.bucket, environment.buckets)
    points = environment.efs_access_points
    for i, files in enumerate(tenant.aws_resources.efs_access_points):
        if files.access_point not in points:
            location = ("aws-resources", "efs-access-points", i, "access-point")
            yield undeclared_name(location, "access point", files.access_point, points, "efs-access-points")
    if tenant.ci and tenant.ci.forge not in environment.aws.ci_hosts:
        field = "github" if tenant.ci.github else "host" if tenant.ci.host else "gitlab"
        yield undeclared_name(("ci", field), "forge", tenant.ci.forge, environment.aws.ci_hosts, "aws.ci-hosts")


def _network(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, place in enumerate(tenant.egress):
        if place.dns and environment.cluster.cni is not Cni.CILIUM:
            yield rule_mistake(("egress", i, "dns"), "net-06", f"dns: {place.dns} with cni {environment.cluster.cni}")
        if place.internet and not environment.own_ranges:
            fault = "internet: true, while the ranges of nodes and pods are unknown and cannot be left out"
            yield rule_mistake(
                ("egress", i, "internet"), "net-05", fault, "write them as cluster.node-and-pod-cidrs first"
            )
    services = environment.platform.services
    for field, rules in (("egress", tenant.egress), ("ingress", tenant.ingress)):
        for i, way in enumerate(rules):
            if way.service is not None and way.service not in services:
                yield undeclared_name((field, i, "service"), "service", way.service, services, "platform.services")
            elif way.cidr and ":" in way.cidr and environment.is_ipv4_only:
                rule, change = (
                    "the cluster's addresses are IPv4 alone",
                    "name the range of the service's IPv4 addresses",
                )
                yield Mistake((field, i, "cidr"), way.cidr, rule, change)
            elif way.cidr and (fault := inside(way.cidr, environment.own_ranges)):
                yield rule_mistake((field, i, "cidr"), "net-05", fault)
            elif field == "egress" and way.cidr and (fault := inside(way.cidr, environment.service_cidrs, "services")):
                # The VPC CNI matches a packet by the service's address, not by the pod behind it.
                change = "name ranges outside of it, or write the cluster's service range as cluster.service-cidr"
                yield rule_mistake(
                    (field, i, "cidr"), "net-05", fault, None if environment.cluster.service_cidr else change
                )
            elif field == "ingress" and way.cidr and not environment.own_ranges and is_private(way.cidr):
                change = (
                    "write the ranges of nodes and pods as cluster.node-and-pod-cidrs first, so that none of "
                    "them is allowed"
                )
                yield rule_mistake((field, i, "cidr"), "net-05", f"{way.cidr!r}, which may hold nodes and pods", change)
    if not environment.own_ranges and (fault := whole_private([place.cidr or "" for place in tenant.egress])):
        change = (
            "write the ranges of nodes and pods as cluster.node-and-pod-cidrs first, so that none of them is allowed"
        )
        yield rule_mistake(("egress",), "net-05", fault, change)


def _people(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for field, subjects in (("people", tenant.people), ("gpu-users", tenant.gpu_users)):
        for i, subject in enumerate(subjects):
            if subject.kind == "ServiceAccount":
                continue
            if fault := foreign_subject(subject.kind, subject.name, environment.platform.group):
                yield rule_mistake((field, i, subject.kind.lower()), "rbac-05", fault)
