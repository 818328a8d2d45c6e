"""Argo CD's controller and repository server, a git repository and a real API server: in which order Argo CD makes what
is rendered for it, what it writes for a change of one tenant, and what stays when a tenant's file is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from argo import APPLICATIONS, Argo, argo_cd, sync_summary
from gitops_cluster import CREATE, EGRESS, created_keys, expect_isolation_stays, key, of_tenant, rendered_items

from tenancy.deploy.gitops.argo import COMPARE, WAVE, application_bytes
from tenancy.lab.kueue import _path
from tests.waiting import until

pytestmark = [
    pytest.mark.exhaustive(
        reason=(
            "runs Argo CD's own controllers; the order and the objects that "
            "stay are in tests/unit/deploy/test_gitops_files.py"
        )
    ),
    pytest.mark.chapters,
]

DENY = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/default-deny"


@pytest.fixture(scope="module")
def argo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Argo]:
    with argo_cd(tmp_path_factory.mktemp("argo")) as server:
        server.install()
        yield server


def test_each_wave_is_made_after_the_one_before_it_and_access_last(argo: Argo) -> None:
    argo.synced()
    items = rendered_items(argo)
    wave = {key(item): int(item["metadata"]["annotations"][WAVE]) for item in items}
    created = created_keys(argo)
    assert set(created) == set(wave), "each object is made, and nothing else"
    assert len(created) == len(wave), "once"
    order = [wave[identity] for identity in created]
    assert order == sorted(order)
    guards = [n for n, identity in enumerate(created) if identity[0].startswith("validatingadmissionpolic")]
    spaces = [n for n, identity in enumerate(created) if identity[0] == "namespaces" and "--" in identity[2]]
    bindings = [n for n, identity in enumerate(created) if identity[0] == "rolebindings" and "--" in identity[1]]
    assert guards
    assert spaces
    assert bindings
    assert max(guards) < min(spaces)
    assert max(spaces) < min(bindings)


def test_when_all_is_made_the_application_is_synced_and_healthy(argo: Argo) -> None:
    until(
        lambda: (argo.application()["sync"]["status"], argo.application()["health"]["status"]) == ("Synced", "Healthy"),
        lambda: f"synced and healthy: {sync_summary(argo.application())}",
    )


def test_the_size_of_the_application_is_known_before_it_is_rendered(argo: Argo) -> None:
    """Above what etcd takes for an object `tenancy render` refuses: Argo CD could not write down what it synced."""
    application = argo.api.get(f"{APPLICATIONS}/small")
    assert len(application["status"]["resources"]) == len(
        application["status"]["operationState"]["syncResult"]["resources"]
    )
    size = len(json.dumps(application, separators=(",", ":")))
    assert size < application_bytes(argo.plan().objects()) < 1.25 * size + 8192


def test_a_change_of_one_tenant_writes_that_tenants_objects_alone(argo: Argo) -> None:
    since = argo.audit_size()
    argo.spec.add("tenants/research.yaml", EGRESS)
    argo.publish()
    argo.synced()
    written_objects = {identity for identity, _, _ in argo.writes(since)}
    assert written_objects
    assert written_objects <= of_tenant(argo, "research")


def test_a_default_deny_that_a_person_deletes_comes_back(argo: Argo) -> None:
    path = DENY.format("fraud--train")
    with argo.as_platform() as api:
        api.request("DELETE", path)
    until(lambda: argo.exists(path), lambda: f"it is there again: {sync_summary(argo.application())}")


def test_a_tenant_without_a_file_loses_access_and_keeps_its_data_and_isolation(argo: Argo) -> None:
    claims = "/api/v1/namespaces/fraud--train/persistentvolumeclaims"
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "tenancy-gp3",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"}, "spec": claim}
    argo.api.request("POST", claims, body, CREATE)
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/fraud--train/rolebindings"
    assert argo.api.get(bindings)["items"]
    items = {key(item): item for tenant in argo.plan().tenants if tenant.name == "fraud" for item in tenant.objects()}
    since = argo.audit_size()
    (argo.spec.path / "tenants" / "fraud.yaml").unlink()
    argo.publish()
    argo.synced()
    deleted = argo.deleted(since)
    assert deleted <= set(items), "of no other tenant, and nothing of the platform"
    assert argo.api.get(bindings)["items"] == []
    expect_isolation_stays(argo, items, deleted)
    assert argo.exists(f"{claims}/weights")


def test_what_stays_of_a_tenant_does_not_keep_the_application_out_of_sync(argo: Argo) -> None:
    """An Application that stays out of sync is synced at ever longer intervals, and a deleted default-deny of another
    tenant would be back after minutes."""

    def is_now(expected_status: str) -> None:
        argo.refresh()
        until(
            lambda: argo.application()["sync"]["status"] == expected_status,
            lambda: f"it is {expected_status}: {sync_summary(argo.application())}",
            60,
        )

    is_now("Synced")
    without = {"metadata": {"annotations": {COMPARE: None}}}
    with argo.as_platform() as api:
        api.request("PATCH", "/api/v1/namespaces/fraud--train", without)
    is_now("OutOfSync")


def test_a_deleted_application_deletes_no_object(argo: Argo) -> None:
    argo.api.request("DELETE", f"{APPLICATIONS}/small")
    until(lambda: not argo.exists(f"{APPLICATIONS}/small"), lambda: "it is gone")
    for tenant in argo.plan().tenants:
        for item in tenant.objects():
            assert argo.exists(_path(item)), key(item)
