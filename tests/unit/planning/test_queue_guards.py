"""Rights of tenants' people in the queues, against those of Kueue's own role for people who run work."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest

from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.objects import Object
from tenancy.lab import tools
from tenancy.planning.kubernetes.access import PERSONAS, cluster_roles
from tenancy.spec.fields.environment import Environment
from tests.conftest import SpecFolder, documents

Rights = set[tuple[str, str, str]]
"""(API group, resource, verb)."""
QUEUE_GROUPS = ("kueue.x-k8s.io", "visibility.kueue.x-k8s.io")
BATCH_USER = "rbac.kueue.x-k8s.io/batch-user"


def rights_of(roles: list[Object]) -> Rights:
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@cache
def batch_user() -> Rights:
    """Rights of the batch user of Kueue's chart: its role for those who run work is made of every role with this
    label."""
    tool_paths = tools.ensure(only=["kueue-chart", "helm"])
    argv = [str(tool_paths["helm"]), "template", "kueue", str(tool_paths["kueue-chart"]), "-n", "kueue-system"]
    process = subprocess.run(argv, capture_output=True, text=True, check=True)
    items = documents(process.stdout)
    (aggregated_role,) = (item for item in items if item["metadata"]["name"] == "kueue-batch-user-role")
    assert aggregated_role["aggregationRule"]["clusterRoleSelectors"] == [{"matchLabels": {BATCH_USER: "true"}}]
    parts = [i for i in items if i["kind"] == "ClusterRole" and i["metadata"]["labels"].get(BATCH_USER) == "true"]
    return rights_of(parts)


@pytest.fixture
def everything(spec: SpecFolder) -> Environment:
    spec.edit("environment.yaml", "buckets:", f"queues: {{kinds: [{', '.join(FRAMEWORKS)}]}}\nbuckets:")
    return spec.load().environment


def of_queues(rights: Rights) -> Rights:
    return {right for right in rights if right[0] in QUEUE_GROUPS}


def test_roles_of_a_tenant_have_no_more_rights_in_the_queues_than_kueues_batch_user(everything: Environment) -> None:
    tenant_rights = of_queues(rights_of([role.manifest() for role in cluster_roles(everything)]))
    assert tenant_rights - batch_user() == set()


def test_every_role_of_a_tenant_sees_its_queues_and_what_waits_there(everything: Environment) -> None:
    visible_rights = {right for right in of_queues(batch_user()) if right[1] in ("localqueues", "workloads")}
    assert len(visible_rights) == 6
    for role in cluster_roles(everything)[: len(PERSONAS)]:
        assert visible_rights <= rights_of([role.manifest()]), role.name


def test_what_kueue_gives_beyond_is_left_out_on_purpose(everything: Environment) -> None:
    """A status is read with its object, and of those that wait the visibility server gives one answer: `get`."""
    tenant_rights = of_queues(rights_of([role.manifest() for role in cluster_roles(everything)]))
    assert {right[1:] for right in of_queues(batch_user()) - tenant_rights} == {
        ("localqueues/status", "get"),
        ("workloads/status", "get"),
        ("localqueues/pendingworkloads", "list"),
        ("localqueues/pendingworkloads", "watch"),
    }


def test_on_kinds_of_work_no_role_has_more_rights_than_kueue_gives(everything: Environment) -> None:
    groups = {framework.group for framework in FRAMEWORKS.values()}
    kueue_rights = {right for right in batch_user() if right[0] in groups}
    tenant_rights = {
        right for role in cluster_roles(everything) for right in rights_of([role.manifest()]) if right[0] in groups
    }
    # A whole collection of one's own work at once: what `delete` gives one by one.
    assert {right[2] for right in tenant_rights - kueue_rights} <= {"deletecollection"}
