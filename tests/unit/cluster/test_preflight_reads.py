"""Reads of the cluster by the checks before a tenant's run: the same, however many tenants there are."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tenancy import planning
from tenancy.catalog import vocabulary
from tenancy.cluster import preflight
from tenancy.cluster.api import Api, ApiUnreachable, Response, path_of
from tenancy.cluster.kueue_settings import MANAGER, KueueSettings, kueue_settings
from tenancy.cluster.preflight import PreconditionFailed, check
from tenancy.cluster.selectors import MAX_NAMED
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.planning import Plan, make_plan
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import API
from tenancy.rules.queues import CONFIGURATION, TEXT
from tenancy.spec.loader import load

LOCAL = Path(__file__).parents[3] / "stacks" / "local"


class Cluster(Api):
    """Objects by their paths; lists of a namespace or of all, and by labels as preflight chooses them."""

    def __init__(self, items: Iterable[Object], refused: str = "") -> None:
        self.items_by_path = {path_of(item): item for item in items}
        self.refused = refused
        self.read = 0
        """Objects that were answered."""

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        assert method == "GET"
        at, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        if self.refused and self.refused in at:
            return Response(403, {"message": "forbidden"})
        if at == f"/apis/{API}":
            return Response(200, {})
        if "limit" in query:
            items = [
                item for item in self._list_items(at) if _matches_selector(item, query.get("labelSelector", [""])[0])
            ]
            self.read += len(items)
            return Response(200, {"metadata": {}, "items": copy.deepcopy(items)})
        self.read += at in self.items_by_path
        stored_item = self.items_by_path.get(at)
        return Response(200, copy.deepcopy(stored_item)) if stored_item else Response(404, {"message": "not found"})

    def _list_items(self, at: str) -> list[Object]:
        return [
            item
            for item in self.items_by_path.values()
            if at
            in {
                collection(item["apiVersion"], item["kind"], namespace)
                for namespace in (None, item["metadata"].get("namespace"))
            }
        ]


def _matches_selector(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    environment, _, tenants = selector.partition(f",{vocabulary.TENANT} in ")
    if not selector:
        return True
    return labels.get(vocabulary.ENVIRONMENT) == environment.partition("=")[2] and labels.get(
        vocabulary.TENANT
    ) in tenants.strip("()").split(",")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    for name in ("deployer_problems", "unserved", "guard_problems"):
        monkeypatch.setattr(preflight, name, lambda *_: [])
    loaded = load(LOCAL)
    return make_plan(loaded, loaded.day)


def others(plan: Plan, number: int) -> list[Object]:
    """Namespaces and queues of further tenants of the environment."""
    tenant = plan.tenant("research")
    models = [*(space.namespace for space in tenant.namespaces), *tenant.queues]
    further_tenants = []
    for index in range(number):
        for model in models:
            item = copy.deepcopy(model)
            item["metadata"]["labels"][vocabulary.TENANT] = f"other-{index}"
            for key in ("name", "namespace"):
                if key in item["metadata"]:
                    item["metadata"][key] = item["metadata"][key].replace("research", f"other-{index}")
            further_tenants.append(item)
    return further_tenants


def planned_objects(plan: Plan) -> list[Object]:
    return copy.deepcopy([*plan.objects()])


def test_a_tenants_run_reads_the_same_of_a_cluster_with_fifty_further_tenants(plan: Plan) -> None:
    alone, shared_cluster = Cluster(planned_objects(plan)), Cluster([*planned_objects(plan), *others(plan, 50)])
    for api in (alone, shared_cluster):
        check(api, plan, None, [plan.tenant("research")])
    assert len(shared_cluster.items_by_path) > len(alone.items_by_path) + 50
    assert shared_cluster.read == alone.read > 0


def test_many_tenants_are_read_by_lists(plan: Plan) -> None:
    loaded = load(LOCAL)
    template = next(tenant for tenant in loaded.tenants if tenant.tenant == "performance")
    further_tenants = [
        template.model_copy(update={"tenant": f"team-{n}", "gpus": {}, "people": ()}) for n in range(MAX_NAMED + 1)
    ]
    full_plan = planning.plan(loaded.environment, [*loaded.tenants, *further_tenants])
    api = Cluster([*planned_objects(full_plan), *others(plan, 10)])
    check(api, full_plan, None, [tenant for tenant in full_plan.tenants if tenant.name.startswith("team-")])
    assert api.read > len(others(plan, 10))


@pytest.mark.parametrize("platform", [True, False])
def test_a_namespace_that_another_tenants_plan_has_is_not_lost(plan: Plan, platform: bool) -> None:
    cluster_objects = planned_objects(plan)
    moved = next(
        item for item in cluster_objects if item["metadata"]["name"] == "fraud--train" and item["kind"] == "Namespace"
    )
    moved["metadata"]["labels"][vocabulary.TENANT] = "research"
    check(
        Cluster(cluster_objects),
        plan,
        plan.platform if platform else None,
        () if platform else [plan.tenant("research")],
    )
    moved["metadata"]["name"] = "fraud--other"
    with pytest.raises(PreconditionFailed, match="fraud--other"):
        check(
            Cluster(cluster_objects),
            plan,
            plan.platform if platform else None,
            () if platform else [plan.tenant("research")],
        )


@pytest.mark.parametrize("kind", ["Namespace", "ClusterQueue"])
def test_an_object_of_another_owner_is_refused_by_name(plan: Plan, kind: str) -> None:
    tenant = plan.tenant("research")
    items = planned_objects(plan)
    tenant_objects = [
        item
        for item in items
        if item["kind"] == kind and item["metadata"]["labels"].get(vocabulary.TENANT) == "research"
    ]
    check(Cluster(items), plan, None, [tenant])
    del tenant_objects[0]["metadata"]["labels"][vocabulary.ENVIRONMENT]
    with pytest.raises(PreconditionFailed, match=f"given {kind} {tenant_objects[0]['metadata']['name']}, which exists"):
        check(Cluster(items), plan, None, [tenant])


@pytest.mark.parametrize("refused", ["clusterqueues", "/api/v1/namespaces/research--main"])
def test_a_read_that_is_refused_ends_the_run(plan: Plan, refused: str) -> None:
    with pytest.raises(ApiUnreachable, match="403 forbidden"):
        check(Cluster(planned_objects(plan), refused=refused), plan, None, [plan.tenant("research")])


@pytest.mark.parametrize("work", ["reservingWorkloads", "pendingWorkloads"])
def test_a_queue_with_work_that_the_files_lack_is_refused(plan: Plan, work: str) -> None:
    items = planned_objects(plan)
    queue = next(
        copy.deepcopy(i) for i in items if i["kind"] == "LocalQueue" and i["metadata"]["namespace"] == "research--main"
    )
    queue["metadata"]["name"] = "former"
    queue["status"] = {work: 0}
    check(Cluster([*items, queue]), plan, None, [plan.tenant("research")])
    queue["status"] = {work: 2}
    with pytest.raises(PreconditionFailed, match="given queue former of research--main, which would leave the file"):
        check(Cluster([*items, queue]), plan, None, [plan.tenant("research")])


# Kueue's own configuration, where the environment does not install it


def kueue(command: str | None = None, **changes: Any) -> list[Object]:
    """Kueue's ConfigMap, and its Deployment if that has a command line."""
    settings = configuration(load(LOCAL).environment) | changes
    where = {"namespace": vocabulary.QUEUE_NAMESPACE}
    kueue_objects: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIGURATION, **where},
            "data": {TEXT: yaml.safe_dump(settings)},
        }
    ]
    if command:
        pods = {"spec": {"containers": [{"name": "manager", "args": ["--config=/controller.yaml", command]}]}}
        metadata = {"name": MANAGER, **where}
        kueue_objects.append(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": pods}}
        )
    return kueue_objects


def settings_messages(plan: Plan, items: Iterable[Object], refused: str = "") -> list[str]:
    return check(Cluster([*planned_objects(plan), *items], refused), plan, plan.platform, [])


@pytest.mark.parametrize(
    "items",
    [kueue(), kueue("--feature-gates=ElasticJobsViaWorkloadSlices=false,ReclaimablePods=false", featureGates=None)],
)
def test_a_kueue_that_counts_every_gpu_is_told_nothing(plan: Plan, items: list[Object]) -> None:
    assert settings_messages(plan, items) == []


@pytest.mark.parametrize(
    ("items", "given_text"),
    [
        (kueue(featureGates=None), "featureGates.ReclaimablePods not set"),
        (kueue(featureGates={"ReclaimablePods": True}), "featureGates.ReclaimablePods true"),
        (kueue("--feature-gates=ReclaimablePods=true"), "featureGates.ReclaimablePods true"),
        (kueue(fairSharing={"preemptionStrategies": ["LessThanInitialShare"]}), "preemptionStrategies LessThanInit"),
        (kueue(fairSharing={}), "preemptionStrategies not set"),
        (kueue(manageJobsWithoutQueueName=False), "manageJobsWithoutQueueName false"),
    ],
)
def test_a_kueue_that_leaves_gpus_uncounted_is_refused_and_under_audit_told(
    plan: Plan, items: list[Object], given_text: str
) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        settings_messages(plan, items)
    (text,) = str(refused.value).splitlines()
    assert f"given Kueue's ConfigMap {CONFIGURATION} in {vocabulary.QUEUE_NAMESPACE} with {given_text}" in text
    assert "; change: set " in text
    assert "restart the lab's Kueue: `tenancy lab up local`" in text
    audited = replace(plan, platform=replace(plan.platform, admission=replace(plan.admission, enforced=False)))
    assert settings_messages(audited, items) == [text]


@pytest.mark.parametrize(("refused", "reason"), [("configmaps", "403 forbidden"), ("", "404 not found")])
def test_a_configuration_that_cannot_be_read_is_told_with_what_to_check(plan: Plan, refused: str, reason: str) -> None:
    (text,) = settings_messages(plan, (), refused)
    assert f"cannot be read ({reason}): check that its configuration has manageJobsWithoutQueueName: true" in text
    assert "featureGates.ReclaimablePods: false" in text


def test_the_kueue_that_the_environment_installs_is_not_read(plan: Plan) -> None:
    installed = SimpleNamespace(queue="kueue")
    installing_plan = replace(plan, platform=replace(plan.platform, services=cast(Any, installed)))
    assert kueue_settings(Cluster(kueue(featureGates=None)), installing_plan) == KueueSettings()
