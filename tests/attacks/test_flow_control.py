"""Requests and their priority levels, by the API server's own answers: each names the schema and the level that it
had."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from attack_lab import Cluster

from tenancy.catalog import vocabulary
from tenancy.cluster.api import path_of
from tenancy.kube.requests import Impersonation, collection
from tenancy.planning.kubernetes import flow_control
from tenancy.planning.kubernetes.flow_control import API, PLATFORM, TENANTS
from tests.waiting import until_clear

SCHEMA, LEVEL = "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"
KINDS = {SCHEMA: "FlowSchema", LEVEL: "PriorityLevelConfiguration"}


def account(namespace: str, name: str) -> Impersonation:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Impersonation(f"system:serviceaccount:{namespace}:{name}", groups)


def had(cluster: Cluster, who: Impersonation, path: str = "/api/v1/namespaces/default/pods") -> tuple[str, str]:
    """Names of the schema and of the level that a request has had, refused or not."""
    headers = {name.title(): value for name, value in cluster.api.request("GET", path, identity=who).headers.items()}
    names_by_header = []
    for header, kind in KINDS.items():
        names = {i["metadata"]["uid"]: i["metadata"]["name"] for i in cluster.api.items(collection(API, kind))}
        names_by_header.append(names[headers[header]])
    schema, level = names_by_header
    return schema, level


@pytest.fixture(scope="module", autouse=True)
def taken_up(cluster: Cluster) -> None:
    """A schema holds from when the API server has read it."""
    group = Impersonation("jane", (cluster.scene.environment.platform.group,))
    until_clear(lambda: had(cluster, group) != (PLATFORM, PLATFORM), "the schemas are taken up")


def test_every_person_of_a_tenant_has_the_tenants_level(cluster: Cluster) -> None:
    people = {person for tenant in cluster.scene.tenants for person in tenant.people if person.kind != "ServiceAccount"}
    assert people
    for person in people:
        who = Impersonation(person.name) if person.kind == "User" else Impersonation("jane", (person.name,))
        assert had(cluster, who) == (TENANTS, TENANTS), person


def test_every_service_account_of_a_tenant_has_the_tenants_level(cluster: Cluster) -> None:
    for tenant in cluster.plan.tenants:
        for space in tenant.namespaces:
            who = account(space.name, vocabulary.DEFAULT_ACCOUNT)
            assert had(cluster, who) == (TENANTS, TENANTS), space.name
            # What is no resource counts too.
            assert had(cluster, who, "/version") == (TENANTS, TENANTS), space.name


def test_the_platform_and_what_runs_in_its_namespaces_has_the_platforms_level(cluster: Cluster) -> None:
    group = cluster.scene.environment.platform.group
    kueue = account(vocabulary.QUEUE_NAMESPACE, "kueue-controller-manager")
    for who in (Impersonation("jane", (group,)), kueue):
        assert had(cluster, who) == (PLATFORM, PLATFORM), who


@pytest.mark.parametrize(
    ("who", "level"),
    [
        (Impersonation("system:node:node-1", ("system:nodes",)), "system"),
        (Impersonation("system:kube-scheduler"), "workload-high"),
        (Impersonation("system:kube-controller-manager"), "workload-high"),
        (account("kube-system", "job-controller"), "workload-high"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.user,
)
def test_the_system_keeps_kubernetes_own_levels(cluster: Cluster, who: Impersonation, level: str) -> None:
    assert had(cluster, who)[1] == level


@pytest.mark.parametrize("who", [Impersonation("user-without-roles"), account("foreign", "default")])
def test_an_identity_of_neither_the_system_nor_the_platform_is_bounded_as_tenants_are(
    cluster: Cluster, who: Impersonation
) -> None:
    assert had(cluster, who) == (TENANTS, TENANTS)


def test_a_request_to_anothers_namespace_is_its_authors_and_refused_all_the_same(cluster: Cluster) -> None:
    first_namespace, second_namespace = (tenant.namespaces[0].name for tenant in cluster.plan.tenants[:2])
    path = f"/api/v1/namespaces/{second_namespace}/pods"
    who = account(first_namespace, vocabulary.DEFAULT_ACCOUNT)
    assert cluster.api.request("GET", path, identity=who).status == 403
    assert had(cluster, who, path) == (TENANTS, TENANTS)


@contextmanager
def without(cluster: Cluster, name: str) -> Generator[None]:
    (item,) = [o for o in flow_control_objects(cluster) if (o["kind"], o["metadata"]["name"]) == ("FlowSchema", name)]
    assert cluster.api.request("DELETE", path_of(item)).ok
    try:
        yield
    finally:
        assert cluster.api.request("POST", collection(API, "FlowSchema"), item).ok


def flow_control_objects(cluster: Cluster) -> tuple[dict[str, Any], ...]:
    return cluster.plan.platform.flow_control


def test_without_the_schemas_tenants_share_a_level_with_kueue(cluster: Cluster) -> None:
    """Without them both fall into Kubernetes' own for service accounts."""
    tenant = account(cluster.plan.tenants[0].namespaces[0].name, vocabulary.DEFAULT_ACCOUNT)
    kueue = account(vocabulary.QUEUE_NAMESPACE, "kueue-controller-manager")
    with without(cluster, flow_control.TENANTS), without(cluster, flow_control.PLATFORM):
        service_account_level = {("service-accounts", "workload-low")}
        until_clear(
            lambda: {had(cluster, tenant), had(cluster, kueue)} - service_account_level,
            "both have the level of all service accounts",
        )
    until_clear(lambda: had(cluster, kueue) != (PLATFORM, PLATFORM), "the schemas are back")
