"""The tenants in several Applications of Argo CD, which nothing brings into an order, and a change of their number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from argo import APPLICATIONS, Argo, argo_cd, sync_summary
from gitops_cluster import (
    CREATE,
    EGRESS,
    created_keys,
    expect_isolation_stays,
    key,
    of_tenant,
    rendered_items,
    uids,
)

from tenancy.deploy.gitops.argo import WAVE
from tenancy.deploy.gitops.source import shard_of
from tenancy.lab.kueue import _path
from tests.waiting import until

pytestmark = [
    pytest.mark.exhaustive(
        reason=(
            "runs Argo CD's own controllers over several Applications; their "
            "files are in tests/unit/deploy/test_gitops_files.py"
        )
    ),
    pytest.mark.chapters,
]

SHARDS = ("small.shard-1", "small.shard-2")
ALL = ("small.platform", *SHARDS)
DENY = "/apis/networking.k8s.io/v1/namespaces/research--main/networkpolicies/default-deny"
NEXT = 9
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.fixture(scope="module")
def argo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Argo]:
    assert [shard_of(name, 2) for name in ("research", "fraud")] == ["shard-1", "shard-2"]
    assert [shard_of(name, 3) for name in ("research", "fraud")] == ["shard-3", "shard-2"], "one of them moves"
    with argo_cd(tmp_path_factory.mktemp("argo-shards"), shards=2) as server:
        yield server


def may(argo: Argo, group: str = "researchers", namespace: str = "research--main") -> bool:
    """Whether these people may list pods in a namespace."""
    attributes = {"namespace": namespace, "verb": "list", "resource": "pods"}
    spec = {"user": "someone", "groups": [group], "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(argo.api.request("POST", REVIEWS, body, CREATE)["status"]["allowed"])


def test_tenants_that_are_there_before_the_platform_give_no_access(argo: Argo) -> None:
    argo.install(*SHARDS)
    for name in SHARDS:
        argo.synced(name)
    bindings = argo.api.get("/apis/rbac.authorization.k8s.io/v1/namespaces/research--main/rolebindings")["items"]
    assert bindings
    assert not may(argo)
    argo.install("small.platform")
    argo.synced("small.platform")
    assert may(argo), "once the roles are there"
    order = [identity[0] for identity in created_keys(argo)]
    guards = [n for n, kind in enumerate(order) if kind.startswith("validatingadmissionpolic")]
    roles = [n for n, kind in enumerate(order) if kind == "clusterroles"]
    assert guards
    assert roles
    assert max(guards) < min(roles), "which come after the guards"


def test_each_object_is_made_once_and_in_the_waves_of_its_application(argo: Argo) -> None:
    wave = {key(item): int(item["metadata"]["annotations"][WAVE]) for item in rendered_items(argo)}
    created = created_keys(argo)
    assert set(created) == set(wave), "each object is made, and nothing else"
    assert len(created) == len(wave), "once"
    objects_by_tenant = {tenant: of_tenant(argo, tenant) for tenant in ("fraud", "research")}
    for part in (*objects_by_tenant.values(), set(created).difference(*objects_by_tenant.values())):
        order = [wave[identity] for identity in created if identity in part]
        assert order
        assert order == sorted(order)


@pytest.mark.parametrize("name", ALL)
def test_when_all_is_made_each_application_is_synced_and_healthy(argo: Argo, name: str) -> None:
    def state() -> tuple[str, str]:
        application = argo.application(name)
        return application["sync"]["status"], application["health"]["status"]

    until(
        lambda: state() == ("Synced", "Healthy"), lambda: f"synced and healthy: {sync_summary(argo.application(name))}"
    )


def test_a_change_of_one_tenant_writes_that_tenants_objects_alone(argo: Argo) -> None:
    since = argo.audit_size()
    argo.spec.add("tenants/research.yaml", EGRESS)
    argo.publish()
    for name in ALL:
        argo.synced(name)
    written_objects = {identity for identity, _, _ in argo.writes(since)}
    assert written_objects
    assert written_objects <= of_tenant(argo, "research")


def test_a_default_deny_that_a_person_deletes_comes_back(argo: Argo) -> None:
    with argo.as_platform() as api:
        api.request("DELETE", DENY)
    until(lambda: argo.exists(DENY), lambda: f"it is there again: {sync_summary(argo.application(SHARDS[0]))}")


def test_tenants_move_to_other_applications_and_nothing_is_deleted_or_made_again(argo: Argo) -> None:
    before, since = uids(argo), argo.audit_size()
    argo.prune = False
    argo.install()
    argo.shards = 3
    argo.publish()
    argo.install()
    for name in (*ALL, "small.shard-3"):
        argo.synced(name)
    argo.prune = True
    argo.install()
    for name in (*ALL, "small.shard-3"):
        argo.synced(name)

        def is_synced(name: str = name) -> bool:
            argo.refresh(name)
            return argo.application(name)["sync"]["status"] == "Synced"

        until(is_synced, lambda name=name: f"{name} is synced: {sync_summary(argo.application(name))}")
    assert argo.deleted(since) == set()
    assert uids(argo) == before


def test_a_tenant_without_a_file_is_the_last_of_its_application_and_loses_access_and_keeps_isolation(
    argo: Argo,
) -> None:
    items = {key(item): item for item in argo.plan().tenant("fraud").objects()}
    group_and_namespace = ("fraud-engineers", "fraud--train")
    assert may(argo, *group_and_namespace)
    since = argo.audit_size()
    (argo.spec.path / "tenants" / "fraud.yaml").unlink()
    argo.publish()
    argo.synced("small.shard-2")
    deleted = {identity for identity in argo.deleted(since) if identity in items}
    expect_isolation_stays(argo, items, deleted)
    assert not may(argo, *group_and_namespace)


def test_with_pruning_on_the_former_application_deletes_what_moves(argo: Argo) -> None:
    """Why `tenancy render` refuses it: the next Application has not taken over yet."""
    since = argo.audit_size()
    bindings = {key(item) for item in argo.plan().tenant("research").objects() if item["kind"] == "RoleBinding"}
    assert (shard_of("research", 3), shard_of("research", NEXT)) == ("shard-3", f"shard-{NEXT}")
    argo.shards = NEXT
    argo.publish()
    argo.synced("small.shard-3")
    assert bindings
    assert bindings <= argo.deleted(since)
    assert not may(argo)


def test_deleted_applications_delete_no_object(argo: Argo) -> None:
    argo.install()
    argo.synced(f"small.shard-{NEXT}")
    for name in argo.names():
        argo.api.request("DELETE", f"{APPLICATIONS}/{name}")
        until(lambda name=name: not argo.exists(f"{APPLICATIONS}/{name}"), lambda name=name: f"{name} is gone")
    for item in rendered_items(argo):
        assert argo.exists(_path(item)), key(item)
