"""An adoption records the state before it, and the end of the tenant restores it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Response
from tenancy.cluster.guards import PreconditionFailed
from tenancy.kube.objects import Object
from tenancy.lifecycle.adoption_record import record, restore_namespaces
from tenancy.planning import Plan, make_plan
from tests.conftest import SpecFolder, every
from tests.spec_cases import FRAUD

HOME = "/api/v1/namespaces/fraud--train"
TEAM_METADATA = {
    "labels": {"team": "blue-team", "blue/stage": "live"},
    "annotations": {"blue/contact": "b@bank.example"},
}


class Cluster:
    """Objects by path, with the merge patches of an API server."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.refuses = ""
        self.writes: list[str] = []

    def put(self, path: str, item: Object) -> None:
        self.objects[path] = copy.deepcopy(item)

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        path = path.partition("?")[0]
        if method == "GET":
            live = self.objects.get(path)
            return Response(200, copy.deepcopy(live)) if live else Response(404, {"message": "not found"})
        self.writes.append(f"{method} {path}")
        if self.refuses and self.refuses in path:
            return Response(403, {"message": "no right"})
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return Response(409, {"message": "exists"})
            self.put(path, body)
        else:
            _merge(self.objects[path], body)
        return Response(200, self.objects[path])

    def items(self, path: str) -> list[Object]:
        assert path.startswith("/api/v1/namespaces?labelSelector=")
        return [
            copy.deepcopy(item)
            for item in self.objects.values()
            if item["kind"] == "Namespace" and vocabulary.ENVIRONMENT in (item["metadata"].get("labels") or {})
        ]


def _merge(item: Any, change: Any) -> None:
    for key, value in change.items():
        if value is None:
            item.pop(key, None)
        elif isinstance(value, dict) and isinstance(item.get(key), dict):
            _merge(item[key], value)
        else:
            item[key] = copy.deepcopy(value)


def namespace(**metadata: Any) -> Object:
    name = HOME.rpartition("/")[2]
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **copy.deepcopy(metadata)}}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.put(HOME, namespace(**TEAM_METADATA))
    account = {"name": "default", "namespace": "fraud--train", "uid": "1", "resourceVersion": "2"}
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    cluster.put(f"{HOME}/serviceaccounts/default", {**body, "imagePullSecrets": [{"name": "blue"}]})
    return cluster


@pytest.fixture
def plan(spec: SpecFolder) -> Plan:
    spec.add(FRAUD, "adopt: true\n")
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


def adopt(cluster: Cluster, plan: Plan) -> None:
    """As the engine does: the plan's labels and annotations, under its own field manager."""
    (planned,) = [space for space in plan.tenant("fraud").namespaces if space.name == "fraud--train"]
    live = cluster.objects[HOME]["metadata"]
    fields: dict[str, Any] = {}
    for place, planned_values in (("labels", planned.meta.labels), ("annotations", planned.meta.annotations)):
        live.setdefault(place, {}).update(planned_values)
        fields[f"f:{place}"] = {".": {}, **{f"f:{key}": {} for key in planned_values}}
    entry = {"manager": "pulumi-kubernetes-1a2b", "operation": "Apply", "fieldsV1": {"f:metadata": fields}}
    live["managedFields"] = [entry]


def leave(cluster: Cluster) -> list[str]:
    messages: list[str] = []
    cluster.objects[HOME]["metadata"]["annotations"][vocabulary.LEAVING] = vocabulary.LEFT
    restore_namespaces(cluster, "small", messages.append)  # ty: ignore[invalid-argument-type]
    return messages


def now(cluster: Cluster) -> dict[str, Any]:
    return {place: cluster.objects[HOME]["metadata"].get(place) for place in TEAM_METADATA}


def test_everything_that_the_adoption_wrote_is_taken_back_and_what_others_wrote_since_stays(
    cluster: Cluster, plan: Plan
) -> None:
    api: Any = cluster
    record(api, plan.tenants)
    recorded_state = json.loads(cluster.objects[HOME]["metadata"]["annotations"][vocabulary.BEFORE_ADOPTION])
    assert {place: recorded_state[place] for place in TEAM_METADATA} == TEAM_METADATA
    assert [item["kind"] for item in recorded_state["objects"]] == ["ServiceAccount"]
    adopt(cluster, plan)
    assert cluster.objects[HOME]["metadata"]["labels"]["team"] == "fraud-detection"
    cluster.objects[HOME]["metadata"]["labels"]["blue/stage"] = "quiet"
    del cluster.objects[f"{HOME}/serviceaccounts/default"]["imagePullSecrets"]
    (message,) = leave(cluster)
    assert message.startswith("namespace fraud--train has its labels and annotations of before its adoption, with 1 ")
    assert now(cluster) == {**TEAM_METADATA, "labels": {"team": "blue-team", "blue/stage": "quiet"}}
    assert cluster.objects[f"{HOME}/serviceaccounts/default"]["imagePullSecrets"] == [{"name": "blue"}]
    cluster.writes.clear()
    restore_namespaces(api, "small", print)
    assert cluster.writes == [], "it is no longer the environment's"


def test_a_record_is_made_once_and_not_of_what_was_adopted_before(cluster: Cluster, plan: Plan) -> None:
    api: Any = cluster
    record(api, plan.tenants)
    adopt(cluster, plan)
    before = cluster.objects[HOME]["metadata"]["annotations"][vocabulary.BEFORE_ADOPTION]
    record(api, plan.tenants)
    assert cluster.objects[HOME]["metadata"]["annotations"][vocabulary.BEFORE_ADOPTION] == before
    del cluster.objects[HOME]["metadata"]["annotations"][vocabulary.BEFORE_ADOPTION]
    record(api, plan.tenants)
    assert vocabulary.BEFORE_ADOPTION not in cluster.objects[HOME]["metadata"]["annotations"]


def test_a_namespace_without_a_record_loses_what_the_adoption_wrote_and_it_is_said(
    cluster: Cluster, plan: Plan
) -> None:
    adopt(cluster, plan)
    (message,) = leave(cluster)
    assert "what they were before is unknown" in message
    assert now(cluster) == {**TEAM_METADATA, "labels": {"blue/stage": "live"}}


def test_a_tenant_that_adopts_nothing_has_no_record(cluster: Cluster, spec: SpecFolder) -> None:
    api: Any = cluster
    loaded = spec.load()
    record(api, make_plan(loaded, loaded.day).tenants)
    assert cluster.writes == []


@pytest.mark.parametrize("stage", [None, "hold", "export"])
def test_a_namespace_whose_tenant_is_there_is_left_alone(stage: str | None, cluster: Cluster, plan: Plan) -> None:
    api: Any = cluster
    record(api, plan.tenants)
    adopt(cluster, plan)
    if stage:
        cluster.objects[HOME]["metadata"]["annotations"][vocabulary.LEAVING] = stage
    cluster.writes.clear()
    restore_namespaces(api, "small", print)
    assert cluster.writes == []


def test_a_refusal_ends_the_run_before_the_engine_writes(cluster: Cluster, plan: Plan) -> None:
    api: Any = cluster
    cluster.refuses = HOME
    with pytest.raises(PreconditionFailed, match="given namespace fraud--train, of which the API server answers 403"):
        record(api, plan.tenants)


def test_an_adopted_namespace_whose_tenant_has_left_is_unmanaged_and_any_other_is_not(spec: SpecFolder) -> None:
    text = (spec.path / FRAUD).read_text("utf-8")

    def unmanaged(more: str) -> list[str]:
        """Names that guards on unmanaged namespaces are bound to."""
        spec.write(FRAUD, text + more)
        loaded = spec.load()
        platform = make_plan(loaded, loaded.day).platform
        bound = {name for item in platform.guards if item["kind"].endswith("Binding") for name in _bound(item)}
        assert bound == platform.admission.unmanaged
        return sorted(bound)

    assert unmanaged("adopt: true\noffboarding: remove\n") == ["fraud--serve", "fraud--train"]
    others = (
        "adopt: true\n",
        "offboarding: remove\n",
        "adopt: true\noffboarding: hold\n",
        "adopt: true\noffboarding: export\n",
    )
    assert every(unmanaged(more) == [] for more in others)


def _bound(binding: Object) -> list[str]:
    selector = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    return [name for expression in selector if expression["operator"] == "In" for name in expression["values"]]
