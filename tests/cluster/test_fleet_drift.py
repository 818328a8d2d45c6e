"""Drift of a fleet by what changed since the last check, on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary as words
from tenancy.engine import fleet_comparison
from tenancy.engine.digests import plan_digests
from tenancy.engine.fleet_comparison import FleetComparison, HelperProcess, check, check_all, serve_comparisons
from tenancy.kube.requests import APPLY, MERGE, collection
from tenancy.lab import control_plane
from tenancy.live.api import Api, path_of
from tenancy.live.background import in_background
from tenancy.live.fleet_drift import FleetDrift, drift_by_changes, drift_by_lists
from tenancy.planning import make_plan
from tenancy.planning.model import Plan, TenantPlan, TenantPlans
from tenancy.planning.scope import Stack, stacks
from tenancy.schema.environment import Layout
from tenancy.validation import Loaded, load
from tenancy.validation.validator import mark_valid

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "stacks" / "local"
MANAGER = "pulumi-kubernetes-1a2b3c4d"
QUOTA = "/api/v1/namespaces/fraud--train/resourcequotas/tenant"
OTHERS = "another-client"


class Counting(Api):
    """Counts the objects that lists answer."""

    read = 0

    def items_and_version(self, path: str, absent: bool = False) -> tuple[list[dict[str, Any]], str]:
        items, version = super().items_and_version(path, absent)
        self.read += len(items)
        return items, version


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    local_files = load(LOCAL)
    # Kueue's kinds need its webhooks; what is tested here is the same for every kind.
    queues = local_files.environment.queues.model_copy(update={"scheduler": "none"})
    environment = local_files.environment.model_copy(update={"queues": queues})
    mark_valid(environment, local_files.tenants)
    return replace(local_files, environment=environment)


@pytest.fixture(scope="module")
def plan(loaded: Loaded) -> Plan:
    return make_plan(loaded.environment, loaded.tenants, eager=False)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    home = tmp_path_factory.mktemp("fleet-drift") / "lab"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANCY_LAB", str(home))
        try:
            control_plane.up(root=ROOT, nodes=[])
            yield Counting(words.LAB_CONTEXT, str(home / "kubeconfig"))
        finally:
            control_plane.down(root=ROOT)


def write(api: Api, item: Mapping[str, Any], manager: str = MANAGER) -> None:
    answer = api.request("PATCH", f"{path_of(item)}?fieldManager={manager}&force=true", item, content_type=APPLY)
    assert answer.ok, answer.message


@pytest.fixture
def since(api: Counting, plan: Plan) -> FleetDrift:
    """All objects are as planned, and compared as a whole."""
    api.request("DELETE", QUOTA)
    for name in plan.names:
        for item in plan.tenant(name).objects():
            write(api, item)
    drift = drift_by_lists(api, plan, plan.names)
    assert drift.tenants == set()
    assert min(drift.versions.values()) > 0
    return drift


def test_without_a_change_no_object_is_read(api: Counting, plan: Plan, since: FleetDrift) -> None:
    api.read = 0
    drift = drift_by_changes(api, plan, plan.names, since.versions)
    assert drift.tenants == set()
    assert api.read == 0
    assert drift.versions.keys() == since.versions.keys()
    assert min(drift.versions.values()) >= max(since.versions.values()), "the next run asks from here"


@dataclass
class Process(HelperProcess):
    """`answer` in a thread, which answers until it has been asked `patience` times."""

    loaded: Loaded
    patience: int
    requests: list[str] = field(default_factory=list)
    busy: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        client_end, server_end = Pipe()
        super().__init__(client_end)
        in_background(serve_comparisons, server_end, self.loaded, LOCAL)

    def ask(self, stacks: Sequence[Stack]) -> FleetComparison | None:
        if len(self.requests) == self.patience:
            return None
        self.requests += [name for name, *_ in stacks]
        self.busy.set()
        return super().ask(stacks)


@pytest.mark.parametrize("patience", [99, 1, 0], ids=["to the end", "once", "never"])
def test_with_another_process_all_stacks_are_compared_once_and_what_it_leaves_here(
    api: Counting, loaded: Loaded, plan: Plan, since: FleetDrift, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    tenants = [stack for stack in stacks(plan, Layout.PER_TENANT) if stack[2]]
    assert api.request("PATCH", QUOTA, {"spec": {"hard": {"pods": "9999"}}}, content_type=MERGE).ok
    monkeypatch.setattr(fleet_comparison, "BATCH", 1)
    compared_here: list[str] = []

    def counted(api: Api, loaded: Loaded, plan: Plan, stacks: Sequence[Stack]) -> FleetComparison:
        if threading.current_thread() is threading.main_thread():
            compared_here.extend(name for name, *_ in stacks)
            assert patience == 0 or helper_process.busy.wait(30), "the other process has the time for one"
        return check(api, loaded, plan, stacks)

    monkeypatch.setattr(fleet_comparison, "check", counted)
    helper_process = Process(loaded, patience)
    comparison = check_all(api, loaded, plan, tenants, helper_process)
    helper_process.end()
    assert sorted([*compared_here, *helper_process.requests]) == sorted(name for name, *_ in tenants), "each once"
    assert min(patience, 1) <= len(helper_process.requests) <= patience
    assert compared_here
    assert comparison.drift.tenants == {"fraud"}
    assert comparison.drift.versions.keys() == since.versions.keys()
    assert comparison.plans == plan_digests(loaded, plan, tenants)


CHANGES = {
    "changed": ("PATCH", QUOTA, {"spec": {"hard": {"pods": "9999"}}}),
    "annotated": ("PATCH", QUOTA, {"metadata": {"annotations": {f"{words.PREFIX}note": "x"}}}),
    "deleted": ("DELETE", QUOTA, None),
    "without the environment": ("PATCH", QUOTA, {"metadata": {"labels": {words.ENVIRONMENT: None}}}),
    "of another tenant": ("PATCH", QUOTA, {"metadata": {"labels": {words.TENANT: "research"}}}),
    "of no tenant": ("PATCH", QUOTA, {"metadata": {"labels": {words.TENANT: None}}}),
}


@pytest.mark.parametrize("case", CHANGES)
def test_an_object_that_another_client_changed_is_found(
    api: Counting, plan: Plan, since: FleetDrift, case: str
) -> None:
    method, path, body = CHANGES[case]
    assert api.request(method, f"{path}?fieldManager={OTHERS}", body, content_type=MERGE).ok
    api.read = 0
    assert drift_by_changes(api, plan, plan.names, since.versions).tenants == {"fraud"}
    assert api.read == 0
    assert drift_by_lists(api, plan, plan.names).tenants == {"fraud"}, "as by all objects"


def test_a_status_an_annotation_of_another_tool_and_an_object_that_no_plan_has_are_no_drift(
    api: Counting, plan: Plan, since: FleetDrift
) -> None:
    status = {"status": {"used": {"pods": "3"}}}
    assert api.request("PATCH", f"{QUOTA}/status?fieldManager={OTHERS}", status, content_type=MERGE).ok
    note = {"metadata": {"annotations": {"tool.example/note": "x"}}}
    assert api.request("PATCH", f"{QUOTA}?fieldManager={OTHERS}", note, content_type=MERGE).ok
    quota = next(item for item in plan.tenant("fraud").objects() if path_of(item) == QUOTA)
    more = {**quota, "metadata": {**quota["metadata"], "name": "more"}}
    write(api, more, OTHERS)
    assert drift_by_changes(api, plan, plan.names, since.versions).tenants == set()
    assert api.request("DELETE", path_of(more)).ok
    assert drift_by_changes(api, plan, plan.names, since.versions).tenants == set()


def test_a_list_whose_changes_are_not_known_is_compared_as_a_whole(
    api: Counting, plan: Plan, since: FleetDrift
) -> None:
    """As after etcd was restored from a backup. A version that is too old would be known to an API server that has just
    begun."""
    assert api.request("DELETE", QUOTA).ok
    path, api.read = collection("v1", "ResourceQuota"), 0
    late = since.versions[path] + 1_000_000
    drift = drift_by_changes(api, plan, plan.names, {**since.versions, path: late})
    assert drift.tenants == {"fraud"}
    planned = [item for tenant in plan.tenants for item in tenant.objects() if item["kind"] == "ResourceQuota"]
    assert api.read == len(planned) - 1, "and no other"
    assert since.versions[path] < drift.versions[path] < late


def test_what_changed_of_a_tenant_that_is_not_asked_about_is_not_answered(
    api: Counting, plan: Plan, since: FleetDrift
) -> None:
    assert api.request("DELETE", QUOTA).ok
    others, planned_names = [name for name in plan.names if name != "fraud"], list[str]()

    def make(name: str) -> TenantPlan:
        planned_names.append(name)
        return plan.tenant(name)

    counted = replace(plan, tenants=TenantPlans({name: partial(make, name) for name in plan.names}, lambda _: ()))
    assert drift_by_changes(api, counted, others, since.versions).tenants == set()
    assert planned_names == ["fraud"], "that it is no other tenant's takes no other plan"
