"""The engine and the clock write the same queues: neither reverts the other, and both leave nothing."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import town
from scene import ROOT, Object, Scene, holds, on_lab_of

from tenancy.catalog import vocabulary
from tenancy.clock.controller import Clock, ClockRefused, Round
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.kube.requests import MERGE
from tenancy.lab import clock as lab_clock
from tenancy.lab import ports
from tenancy.spec.loader import load
from tenancy.verify.attacks.clock import clock_attacks
from tenancy.verify.verification import find_scene, run
from tests.waiting import until

sys.path.append(str(ROOT / "tests" / "engine"))
from engine_project import QUEUES, Key, Project, copied

FILE, SPENDER, ENVIRONMENT = "tenants/risk.yaml", "tenants/spender.yaml", "environment.yaml"
ON = "queues: {clock: true}\n"
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
# Where it is about noon, so that the window is open for hours before and after the test.
ZONE = f"Etc/GMT{NOW.hour - 12:+d}"
LEAD = NOW.replace(minute=0, second=0) + dt.timedelta(hours=17, minutes=50)
"""Ten minutes before the window of the next day."""
WINDOW = (
    "gpu-windows: "
    f"[{{name: day, flavor: a100, gpus: 8, days: mon-sun, starts: '06:00', ends: '18:00', time-zone: {ZONE}}}]\n"
)
BUDGET = "budget: {monthly-usd: 1000000, monthly-gpu-hours: 1, when-spent: hold}\n"
RECORD = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/{vocabulary.CLOCK}"
RESERVE = f"{QUEUES}/clusterqueues/{vocabulary.RESERVE_QUEUE}"
WORKLOADS = f"{QUEUES}/namespaces/{vocabulary.PLATFORM_NAMESPACE}/workloads"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A tenant in whose window it is now, and one with a budget; deployed by `tenancy up`."""
    with copied(tmp_path_factory.mktemp("engine") / "project") as lab_project:
        for tenant in ("fraud", "performance", "research"):
            lab_project.remove(f"tenants/{tenant}.yaml")
        text = town.ENVIRONMENT.replace("environment: town", "environment: local").replace("nodes: 8", "nodes: 4")
        text = text.replace("context: town", f"context: {vocabulary.LAB_CONTEXT}")
        lab_project.write(ENVIRONMENT, text)
        lab_project.write(FILE, town.tenant("risk", "risk", "guaranteed: 8"))
        lab_project.write(SPENDER, town.tenant("spender", "research", "guaranteed: 8"))
        # Without the clock's process, whose rounds would have another time than those of the tests.
        result = lab_project.tenancy("lab", "up", "local")
        assert result.code == 0, result.text
        lab_project.write(ENVIRONMENT, text + ON)
        lab_project.write(FILE, town.tenant("risk", "risk", "guaranteed: 8", more=WINDOW))
        lab_project.write(SPENDER, town.tenant("spender", "research", "guaranteed: 8", more=BUDGET))
        lab_project.up()
        yield lab_project


@pytest.fixture
def scene(project: Project) -> Iterator[Scene]:
    with on_lab_of(project.folder, project.environment) as lab_scene:
        yield lab_scene


def tick(scene: Scene, now: dt.datetime) -> Round:
    return Clock(scene.api, scene.loaded.environment, scene.loaded.tenants, lambda: now).tick()


def queue(scene: Scene, name: str) -> Object:
    return next(candidate for candidate in scene.items("ClusterQueue") if candidate["metadata"]["name"] == name)


def gpus(scene: Scene, name: str) -> int:
    """A100 that the queue has."""
    quotas = (
        resource["nominalQuota"]
        for group in queue(scene, name)["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == "nvidia.com/gpu"
    )
    return sum(int(quota) for quota in quotas)


def versions(project: Project) -> dict[Key, str]:
    """Versions of all objects but the clock's record, which is written in every round."""
    object_versions = project.versions()
    assert object_versions.pop(("configmaps", vocabulary.PLATFORM_NAMESPACE, vocabulary.CLOCK))
    return object_versions


def reserved(scene: Scene) -> bool:
    workloads = scene.items("Workload", vocabulary.PLATFORM_NAMESPACE)
    return bool(workloads) and all(holds(workload, "Admitted") for workload in workloads)


def as_the_clock_wrote(scene: Scene) -> bool:
    return gpus(scene, "risk--batch") == 16 and queue(scene, "spender--batch")["spec"]["stopPolicy"] == "Hold"


def spend(scene: Scene) -> None:
    """A round of the clock that finds the spender's budget spent."""
    record = scene.api.request("GET", RECORD).body
    usage = json.loads(record["data"]["usage"])
    usage["used"] = {"spender": {"a100-40gb": 2 * 3600 * 1000}}
    # A round of another time may have been before: the record would count nothing until then.
    now = dt.datetime.now(dt.UTC)
    usage["until"] = (now - dt.timedelta(seconds=1)).isoformat()
    record["data"]["usage"] = json.dumps(usage)
    assert scene.api.request("PUT", RECORD, record).ok
    tick(scene, now)


def test_an_update_changes_nothing_of_what_the_clock_wrote(project: Project, scene: Scene) -> None:
    until(lambda: reserved(scene), "the update's own round has reserved the window's GPUs")
    assert gpus(scene, vocabulary.RESERVE_QUEUE) == 8
    spend(scene)
    assert as_the_clock_wrote(scene)
    before = versions(project)
    report = project.tenancy("report", "drift", "local")
    assert report.code == 0, report.text
    assert "No drift" in report.out

    result = project.up()
    assert "clock: 0 queues and reservations changed" in result.text, result.text
    assert versions(project) == before


def test_an_update_of_another_field_keeps_what_the_clock_wrote(project: Project, scene: Scene) -> None:
    path = f"{QUEUES}/clusterqueues/risk--batch?fieldManager=another"
    strategy_patch = {"spec": {"queueingStrategy": "StrictFIFO"}}
    assert queue(scene, "risk--batch")["spec"]["queueingStrategy"] == "BestEffortFIFO"
    assert scene.api.request("PATCH", path, strategy_patch, content_type=MERGE).ok
    since = project.audit_size()
    project.edit(FILE, "tier: batch\n", "tier: batch\nweight: 2\n")
    project.edit(SPENDER, "tier: batch\n", "tier: batch\nweight: 2\n")
    result = project.up()
    written_queues = {
        request.name for request in project.audit(since) if request.resource == "clusterqueues" and not request.dry_run
    }
    assert {"risk--batch", "spender--batch"} <= written_queues, "else the engine had nothing to revert"
    assert "clock: 0 queues and reservations changed" in result.text, result.text
    assert as_the_clock_wrote(scene)
    assert queue(scene, "risk--batch")["spec"]["queueingStrategy"] == "BestEffortFIFO", "that field is the engine's"


def test_a_tenant_is_refused_what_the_clock_writes(scene: Scene) -> None:
    loaded = load(scene.folder)
    attacks = list(clock_attacks(find_scene(scene.api, loaded, scene.plan)))
    results = run(scene.api, attacks)
    assert len(results) == len(attacks) > 0
    assert [result.as_dict() for result in results if result.gap] == []


def clock_pid(project: Project) -> int | None:
    components = json.loads(project.tenancy("lab", "status", "--format", "json").out)
    return next((row["pid"] for row in components if row["component"] == "clock" and row["answering"]), None)


def writers(project: Project, since: int) -> set[str]:
    """Users that have written the record of usage since a size of the audit log."""
    with (project.lab.folder / "audit.log").open("rb") as file:
        file.seek(since)
        events = [json.loads(line) for line in file.read().splitlines()]
    return {
        event["user"]["username"]
        for event in events
        if event["verb"] in {"create", "update"}
        and (event.get("objectRef") or {}).get("resource") == "configmaps"
        and event["objectRef"].get("name") == vocabulary.CLOCK
    }


def holder(scene: Scene) -> str:
    lease = scene.api.request(
        "GET", f"/apis/coordination.k8s.io/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/leases/{vocabulary.CLOCK}"
    )
    return str((lease.body.get("spec") or {}).get("holderIdentity"))


def test_the_lab_runs_the_clock_where_the_environment_has_one(project: Project, scene: Scene) -> None:
    assert clock_pid(project) is None
    since = project.audit_size()
    result = project.tenancy("lab", "up", "local")
    assert result.code == 0, result.text
    pid = clock_pid(project)
    assert pid
    until(lambda: holder(scene).endswith(f"-{pid}"), "it works")
    until(lambda: writers(project, since) != set(), "it has made a round")
    assert writers(project, since) == {lab_clock.USER}, "it has no other identity"
    project.tenancy("lab", "up", "local")
    assert clock_pid(project) == pid, "a clock that runs is left alone"
    os.kill(pid, signal.SIGKILL)
    assert project.tenancy("lab", "status").code == 1
    project.tenancy("lab", "up", "local")
    new_pid = clock_pid(project)
    assert new_pid
    assert new_pid != pid
    project.edit(ENVIRONMENT, ON, "")
    # Windows and budgets that bind need a clock.
    before = {name: (project.environment / name).read_text("utf-8") for name in (FILE, SPENDER)}
    project.edit(FILE, WINDOW, "")
    project.edit(SPENDER, BUDGET, "")
    project.tenancy("lab", "up", "local")
    assert clock_pid(project) is None
    until(lambda: not Path(f"/proc/{new_pid}").exists(), "its process has ended")
    for name, text in before.items():
        project.write(name, text)
    path = project.environment / ENVIRONMENT
    project.write(ENVIRONMENT, path.read_text("utf-8") + ON)


RIGHTS = {
    "configmaps": ("roles", f'configmaps "{vocabulary.CLOCK}" is forbidden'),
    "workloads": ("clusterroles", "workloads.kueue.x-k8s.io is forbidden"),
    "clusterqueues": ("clusterroles", "cohorts.kueue.x-k8s.io is forbidden"),
    "events": ("clusterroles", 'events "budget.'),
}
"""A resource of a rule that a round is refused without, the kind of its role, and what the refusal says."""


def refusal(scene: Scene, kubeconfig: Path) -> str:
    """The refusal in a round of a new clock; empty if it works."""
    environment, tenants = scene.loaded.environment, scene.loaded.tenants
    try:
        Clock(Api(vocabulary.LAB_CONTEXT, str(kubeconfig)), environment, tenants).tick()
    except (ApiUnreachable, ClockRefused) as error:
        return str(error)
    return ""


def test_the_rights_of_its_role_suffice_for_a_round_and_a_missing_one_is_named(scene: Scene) -> None:
    spend(scene)
    kubeconfig = lab_clock.write_identity(scene.lab, ports.remembered(scene.lab)["kube-apiserver"])
    until(lambda: refusal(scene, kubeconfig) == "", "the whole role suffices")
    for resource, (kind, message) in RIGHTS.items():
        where = "" if kind == "clusterroles" else f"/namespaces/{vocabulary.PLATFORM_NAMESPACE}"
        path = f"/apis/rbac.authorization.k8s.io/v1{where}/{kind}/{vocabulary.CLOCK}"
        role = scene.api.request("GET", path).body
        missing = next(rule for rule in role["rules"] if resource in rule["resources"])
        reduced_role = {"rules": [rule for rule in role["rules"] if rule != missing]}
        assert scene.api.request("PATCH", path, reduced_role, content_type=MERGE).ok
        try:
            until(lambda: refusal(scene, kubeconfig) != "", f"a round without {resource} is refused")
            output = refusal(scene, kubeconfig)
        finally:
            assert scene.api.request("PATCH", path, {"rules": role["rules"]}, content_type=MERGE).ok
        assert ": 403 " in output, output
        assert message in output
        assert lab_clock.USER in output
        until(lambda: refusal(scene, kubeconfig) == "", f"a round with {resource} works")


@pytest.mark.exhaustive(reason="a refresh beside the clock; an update beside it is in `make test`")
def test_a_refresh_keeps_what_the_clock_wrote(project: Project, scene: Scene) -> None:
    result = project.tenancy("up", "local", "--refresh")
    assert result.code == 0, result.text
    assert "clock: 0 queues and reservations changed" in result.text, result.text
    assert as_the_clock_wrote(scene)


@pytest.mark.exhaustive(reason="a clock that is switched off; an update beside a running one is in `make test`")
def test_a_clock_that_is_switched_off_leaves_the_quotas_of_the_files(project: Project, scene: Scene) -> None:
    tick(scene, LEAD)
    until(lambda: reserved(scene), "GPUs of the next window are reserved")
    before = {name: (project.environment / name).read_text("utf-8") for name in (ENVIRONMENT, FILE, SPENDER)}
    project.edit(ENVIRONMENT, ON, "")
    project.edit(FILE, WINDOW, "")
    project.edit(SPENDER, BUDGET, "")
    project.up()
    assert not scene.items("Workload", vocabulary.PLATFORM_NAMESPACE)
    assert not project.exists(RESERVE)
    assert gpus(scene, "risk--batch") == 8
    assert queue(scene, "spender--batch")["spec"]["stopPolicy"] == "None"
    for name, text in before.items():
        project.write(name, text)
    project.up()


@pytest.mark.exhaustive(reason="a stack for each tenant beside the clock; one stack is in `make test`")
def test_what_the_clock_wrote_stays_with_a_stack_for_each_tenant(project: Project, scene: Scene) -> None:
    project.edit(ENVIRONMENT, "environment: local\n", "environment: local\nstacks: per-tenant\n")
    settings = project.folder / "stacks" / "Pulumi.local.yaml"
    settings.write_text(settings.read_text("utf-8").replace("scope: all", "scope: platform"), "utf-8")
    moved = project.tenancy("move", "local")
    assert moved.code == 0, moved.text
    project.up()
    # The update's own round is the first since the chapter above that finds the window's GPUs reserved, or the second.
    until(lambda: reserved(scene) or gpus(scene, "risk--batch") == 16, "the window's GPUs are reserved or given")
    spend(scene)
    assert as_the_clock_wrote(scene)
    before = versions(project)
    result = project.up()
    assert "clock: 0 queues and reservations changed" in result.text, result.text
    assert versions(project) == before
    project.edit(SPENDER, "weight: 2\n", "weight: 3\n")
    result = project.up()
    assert "clock: 0 queues and reservations changed" in result.text, result.text
    assert as_the_clock_wrote(scene)


@pytest.mark.exhaustive(
    reason="the end of an environment beside a running clock; the end without one is in tests/engine/test_scopes.py"
)
def test_the_end_of_an_environment_removes_a_reservation_in_use_beside_a_running_clock(
    project: Project, scene: Scene
) -> None:
    result = project.tenancy("lab", "up", "local")
    assert result.code == 0, result.text
    pid = clock_pid(project)
    assert pid
    until(lambda: holder(scene).endswith(f"-{pid}"), "it works")

    def ahead() -> bool:
        # The process ends in its next round what a round of another time has reserved.
        with contextlib.suppress(ClockRefused):
            tick(scene, LEAD)
        return reserved(scene)

    until(ahead, "GPUs of the next window are reserved")
    result = project.tenancy("down", "local", "--yes")
    assert result.code == 0, result.text
    assert project.objects() == {}
    log = project.lab.logs / "clock.log"
    log_size = log.stat().st_size
    until(lambda: " 403 " in log.read_text("utf-8")[log_size:], "it has tried a round since")
    assert project.objects() == {}
    assert not project.exists(RECORD)
    assert not project.exists(RESERVE)
    assert not scene.items("Workload", vocabulary.PLATFORM_NAMESPACE)
    assert clock_pid(project) == pid, "it works again after the next update"
    assert project.tenancy("lab", "down").code == 0
    until(lambda: not Path(f"/proc/{pid}").exists(), "its process has ended")
