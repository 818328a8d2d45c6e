"""Flux' controllers, a git repository and a real API server: the tenants of two shards, each with a controller of its
own, wait for the platform, and what a commit of one tenant, a stopped controller and another number of shards do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flux import KUSTOMIZATIONS, NONE, Flux, flux
from gitops_cluster import EGRESS, created_keys, expect_isolation_stays, key, of_tenant, rendered_items, uids

from tenancy.deploy.gitops.flux import SHARD
from tenancy.deploy.gitops.source import shard_of
from tests.conftest import documents
from tests.waiting import until

pytestmark = [
    pytest.mark.exhaustive(
        reason=(
            "runs Flux' own controllers; the order and the objects that stay "
            "are in tests/unit/deploy/test_gitops_files.py"
        )
    ),
    pytest.mark.chapters,
]

DENY = "/apis/networking.k8s.io/v1/namespaces/fraud--train/networkpolicies/default-deny"
FRAUD, RESEARCH = "shard-2", "shard-1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    assert (shard_of("fraud", 2), shard_of("research", 2)) == (FRAUD, RESEARCH)
    assert shard_of("research", 3) == "shard-3", "it moves"
    with flux(tmp_path_factory.mktemp("flux"), shards=2) as lab_cluster:
        yield lab_cluster


def test_the_platform_is_made_before_any_tenant_and_a_tenants_access_last_across_shards(cluster: Flux) -> None:
    cluster.applied()
    items = {key(item): item for item in rendered_items(cluster)}
    created = created_keys(cluster)
    assert set(created) == set(items), "each object is made, and nothing else"
    assert len(created) == len(items), "once"
    tenants = {name: of_tenant(cluster, name) for name in ("fraud", "research")}
    platform = [
        n
        for n, identity in enumerate(created)
        if not any(identity in tenant_objects for tenant_objects in tenants.values())
    ]
    for name, tenant_objects in tenants.items():
        texts = [text for path, text in cluster.texts().items() if path.startswith(f"tenants/{name}/access/")]
        bindings = {key(item) for text in texts for item in documents(text)}
        places = [n for n, identity in enumerate(created) if identity in tenant_objects]
        access = [n for n in places if created[n] in bindings]
        assert any(created[n][0] == "rolebindings" for n in access)
        assert max(platform) < min(places)
        assert max({*places} - {*access}) < min(access)


def test_a_change_of_one_tenant_writes_that_tenants_objects_alone(cluster: Flux) -> None:
    since = cluster.audit_size()
    cluster.spec.add("tenants/research.yaml", EGRESS)
    cluster.publish()
    cluster.applied()
    written_objects = {identity for identity, _, _ in cluster.writes(since)}
    assert written_objects
    assert written_objects <= of_tenant(cluster, "research")


def test_a_default_deny_that_a_person_deletes_comes_back(cluster: Flux) -> None:
    with cluster.as_platform() as api:
        api.request("DELETE", DENY)
    cluster.reconcile(f"{KUSTOMIZATIONS}/small--fraud.isolation")
    until(lambda: cluster.exists(DENY), lambda: f"it is there: {cluster.conditions_text(['small--fraud.isolation'])}")


def test_tenants_of_a_stopped_controller_wait_and_the_others_go_on(cluster: Flux) -> None:
    cluster.stop(FRAUD)
    since = cluster.audit_size()
    for name in ("fraud", "research"):
        cluster.spec.edit(f"tenants/{name}.yaml", "egress:\n", "egress:\n  - {cidr: 198.51.100.9/32, port: 9444}\n")
    cluster.publish()
    cluster.applied("small.platform", "small--research.isolation", "small--research.access")
    written_objects = {identity for identity, _, _ in cluster.writes(since)}
    assert written_objects
    assert written_objects <= of_tenant(cluster, "research")
    cluster.start(FRAUD)
    cluster.applied()
    assert {identity for identity, _, _ in cluster.writes(since)} & of_tenant(cluster, "fraud")


def test_another_number_of_shards_deletes_nothing_and_makes_nothing_again(cluster: Flux) -> None:
    before, since = uids(cluster), cluster.audit_size()
    cluster.shards = 3
    cluster.start("shard-3")
    cluster.publish()
    cluster.applied()
    labels = cluster.api.get(f"{KUSTOMIZATIONS}/small--research.access")["metadata"]["labels"]
    assert labels[SHARD] == "shard-3"
    assert cluster.deleted(since) == set()
    assert uids(cluster) == before
    cluster.stop(RESEARCH)
    since = cluster.audit_size()
    cluster.spec.edit("tenants/research.yaml", "port: 9444", "port: 9445")
    cluster.publish()
    cluster.applied()
    assert {identity for identity, _, _ in cluster.writes(since)}, "by its new controller"


def test_a_tenant_without_a_file_loses_access_and_keeps_its_data_and_isolation(cluster: Flux) -> None:
    items = {key(item): item for item in cluster.plan().tenant("fraud").objects()}
    since = cluster.audit_size()
    (cluster.spec.path / "tenants" / "fraud.yaml").unlink()
    cluster.publish()
    cluster.applied()
    for part in ("isolation", "access"):
        path = f"{KUSTOMIZATIONS}/small--fraud.{part}"
        until(
            lambda path=path: not cluster.exists(path),
            lambda part=part: cluster.conditions_text([f"small--fraud.{part}"]),
        )
    deleted = cluster.deleted(since)
    assert deleted <= set(items), "of no other tenant, and nothing of the platform"
    expect_isolation_stays(cluster, items, deleted)


def test_without_the_controller_of_the_platform_no_tenant_is_given_another_commit(cluster: Flux) -> None:
    cluster.stop(NONE)
    since = cluster.audit_size()
    cluster.spec.edit("tenants/research.yaml", "port: 9445", "port: 9446")
    cluster.publish()
    revision = cluster.fetched()

    def waits() -> bool:
        conditions = cluster.kustomization("small--research.isolation").get("conditions") or []
        return any("revision is not up to date" in condition.get("message", "") for condition in conditions)

    until(waits, lambda: cluster.conditions_text(["small--research.isolation"]))
    assert cluster.writes(since) == []
    cluster.start(NONE)
    until(
        lambda: cluster.kustomization("small--research.access").get("lastAppliedRevision") == revision,
        lambda: cluster.conditions_text(cluster.names()),
    )
