"""Tenants of a fleet with an object that is not as planned, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, path_of
from tenancy.deploy.fleet_drift import tenants_with_drift
from tenancy.kube.requests import APPLY, MERGE
from tenancy.lab import control_plane
from tenancy.planning import make_plan
from tenancy.planning.plan_model import Plan
from tenancy.spec.loader import Loaded, load

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "stacks" / "local"
MANAGER = "pulumi-kubernetes-1a2b3c4d"
QUOTA = "/api/v1/namespaces/fraud--train/resourcequotas/tenant"
OTHERS = "another-client"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    local_files = load(LOCAL)
    # Kueue's kinds need its webhooks; what is tested here is the same for every kind.
    queues = local_files.environment.queues.model_copy(update={"scheduler": "none"})
    environment = local_files.environment.model_copy(update={"queues": queues})
    return replace(local_files, environment=environment)


@pytest.fixture(scope="module")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded, loaded.day)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home = tmp_path_factory.mktemp("fleet-drift") / "lab"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANCY_LAB", str(home))
        try:
            control_plane.up(root=ROOT, nodes=[])
            yield Api(vocabulary.LAB_CONTEXT, str(home / "kubeconfig"))
        finally:
            control_plane.down(root=ROOT)


def write(api: Api, item: Mapping[str, Any], manager: str = MANAGER) -> None:
    answer = api.request("PATCH", f"{path_of(item)}?fieldManager={manager}&force=true", item, content_type=APPLY)
    assert answer.ok, answer.message


@pytest.fixture
def as_planned(api: Api, plan: Plan) -> None:
    """All objects are as planned."""
    api.request("DELETE", QUOTA)
    for name in plan.names:
        for item in plan.tenant(name).objects():
            write(api, item)
    assert tenants_with_drift(api, plan, plan.names) == set()


CHANGES = {
    "changed": ("PATCH", QUOTA, {"spec": {"hard": {"pods": "9999"}}}),
    "annotated": ("PATCH", QUOTA, {"metadata": {"annotations": {f"{vocabulary.PREFIX}note": "x"}}}),
    "deleted": ("DELETE", QUOTA, None),
    "without the environment": ("PATCH", QUOTA, {"metadata": {"labels": {vocabulary.ENVIRONMENT: None}}}),
    "of another tenant": ("PATCH", QUOTA, {"metadata": {"labels": {vocabulary.TENANT: "research"}}}),
    "of no tenant": ("PATCH", QUOTA, {"metadata": {"labels": {vocabulary.TENANT: None}}}),
}


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("case", CHANGES)
def test_a_tenant_with_an_object_that_another_client_changed_is_found(api: Api, plan: Plan, case: str) -> None:
    method, path, body = CHANGES[case]
    assert api.request(method, f"{path}?fieldManager={OTHERS}", body, content_type=MERGE).ok
    assert tenants_with_drift(api, plan, plan.names) == {"fraud"}
    assert tenants_with_drift(api, plan, [name for name in plan.names if name != "fraud"]) == set()


@pytest.mark.usefixtures("as_planned")
def test_a_status_an_annotation_of_another_tool_and_an_object_that_no_plan_has_are_no_drift(
    api: Api, plan: Plan
) -> None:
    status = {"status": {"used": {"pods": "3"}}}
    assert api.request("PATCH", f"{QUOTA}/status?fieldManager={OTHERS}", status, content_type=MERGE).ok
    note = {"metadata": {"annotations": {"tool.example/note": "x"}}}
    assert api.request("PATCH", f"{QUOTA}?fieldManager={OTHERS}", note, content_type=MERGE).ok
    quota = next(item for item in plan.tenant("fraud").objects() if path_of(item) == QUOTA)
    more = {**quota, "metadata": {**quota["metadata"], "name": "more"}}
    write(api, more, OTHERS)
    assert tenants_with_drift(api, plan, plan.names) == set()
    assert api.request("DELETE", path_of(more)).ok
