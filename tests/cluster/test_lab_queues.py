"""A lab with queues: Kueue as a process under its own service account, and work that takes time."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import ApiError, LabApi
from tenancy.lab.components import COMPONENTS, KUEUE
from tenancy.lab.layout import Lab
from tenancy.lab.nodes import apply_nodes
from tests.conftest import every
from tests.waiting import until

pytestmark = pytest.mark.exhaustive(
    reason=(
        "each way in which Kueue ends, hangs or changes beside a lab; "
        "tests/queues run work on such a lab in `make test`"
    )
)

KUEUE_USER = "system:serviceaccount:kueue-system:kueue-controller-manager"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
TENANT = "fraud--train"
PODS = f"/api/v1/namespaces/{TENANT}/pods"
JOBS = f"/apis/batch/v1/namespaces/{TENANT}/jobs"
CREATE = "application/json"
GPU = "nvidia.com/gpu"


def values(**more: Any) -> dict[str, Any]:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchExpressions": [{"key": vocabulary.TENANT, "operator": "Exists"}]},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job", "pod", "deployment"]},
        **more,
    }
    return {"managerConfig": {"controllerManagerConfigYaml": json.dumps(configuration)}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("queues")
    (folder / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        try:
            control_plane.up(root=folder, platform_group="gpu-platform", nodes=[gpu_node("gpu-0")], queues=values())
            yield folder
        finally:
            control_plane.down(root=folder)


@pytest.fixture(scope="module")
def lab(root: Path) -> Lab:
    return Lab.locate(root)


@pytest.fixture
def engineer(lab: Lab, root: Path) -> Iterator[LabApi]:
    """The API server as the platform engineer sees it, with a tenant's queue of eight GPUs."""
    control_plane.up(root=root, queues=values())
    apply_nodes([gpu_node("gpu-0")], lab)
    with LabApi(lab, ports.remembered(lab)["kube-apiserver"], identity="platform") as api:
        api.apply("/api/v1/namespaces", kind("v1", "Namespace", TENANT, labels={vocabulary.TENANT: "fraud"}))
        until(lambda: served(api, f"/api/v1/namespaces/{TENANT}/serviceaccounts/default"), "the namespace takes pods")
        api.apply(f"{QUEUES}/resourceflavors", queue_kind("ResourceFlavor", "a100"))
        api.apply(f"{QUEUES}/clusterqueues", cluster_queue("fraud"))
        local = queue_kind("LocalQueue", "default", spec={"clusterQueue": "fraud"})
        api.apply(f"{QUEUES}/namespaces/{TENANT}/localqueues", local)
        yield api
        for path in (JOBS, PODS):
            api.request("DELETE", f"{path}?propagationPolicy=Background")
            until(lambda path=path: not api.get(path)["items"], f"{path} is empty")


def kind(version: str, name: str, called: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    item = {"apiVersion": version, "kind": name, "metadata": {"name": called, **metadata}}
    return item | ({"spec": spec} if spec else {})


def queue_kind(name: str, called: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return kind("kueue.x-k8s.io/v1beta2", name, called, spec or {})


def cluster_queue(name: str, gpus: str = "8") -> dict[str, Any]:
    flavor = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": gpus}]}
    groups = [{"coveredResources": [GPU], "flavors": [flavor]}]
    return queue_kind("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})


def gpu_node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}}


def pod(name: str, seconds: str | None = None) -> dict[str, Any]:
    """A pod outside of the queues."""
    notes = {} if seconds is None else {vocabulary.LAB_SECONDS: seconds}
    return kind("v1", "Pod", name, {"containers": [{"name": "main", "image": "fake"}]}, annotations=notes)


def job(name: str, gpus: int, seconds: str | None = None) -> dict[str, Any]:
    container = {"name": "main", "image": "fake", "resources": {"limits": {GPU: str(gpus)}}}
    notes = {} if seconds is None else {vocabulary.LAB_SECONDS: seconds}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return kind("batch/v1", "Job", name, {"template": {"metadata": {"annotations": notes}, "spec": spec}})


def served(api: LabApi, path: str) -> bool:
    try:
        return bool(api.get(path))
    except ApiError:
        return False


def conditions(item: dict[str, Any]) -> set[str]:
    return {
        condition["type"] for condition in item.get("status", {}).get("conditions", []) if condition["status"] == "True"
    }


def pid(lab: Lab, name: str = KUEUE) -> int | None:
    return next((process_list[0].pid for process_list in processes.running(lab, (name,)).values()), None)


def audited(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.folder / "audit.log").read_text().splitlines()]


@pytest.mark.usefixtures("engineer")
def test_kueue_answers_beside_the_others(root: Path) -> None:
    rows = control_plane.status(root=root)
    assert [row.component for row in rows if row.answering] == [*COMPONENTS, KUEUE]


@pytest.mark.usefixtures("engineer")
def test_kueue_acts_as_its_service_account_and_nothing_more(lab: Lab) -> None:
    users = [event["user"] for event in audited(lab) if event.get("userAgent", "").startswith("kueue/")]
    assert {user["username"] for user in users} == {KUEUE_USER}
    assert {group for user in users for group in user["groups"]} == {
        "system:serviceaccounts",
        "system:serviceaccounts:kueue-system",
        "system:authenticated",
    }


@pytest.mark.usefixtures("engineer")
def test_kueue_may_do_what_its_chart_gives_it(lab: Lab) -> None:
    """All of it, and nothing that a cluster would refuse: the lab lends it no rights."""
    refused = [
        (event["verb"], event["requestURI"])
        for event in audited(lab)
        if event["user"]["username"] == KUEUE_USER and event["responseStatus"]["code"] == 403
    ]
    assert refused == []


def test_the_webhooks_refuse_a_queue_that_covers_a_resource_twice(engineer: LabApi) -> None:
    wrong = cluster_queue("wrong")
    wrong["spec"]["resourceGroups"] *= 2
    with pytest.raises(ApiError, match=r'admission webhook "vclusterqueue\.kb\.io" denied'):
        engineer.request("POST", f"{QUEUES}/clusterqueues?dryRun=All", wrong, CREATE)
    engineer.request("POST", f"{QUEUES}/clusterqueues?dryRun=All", cluster_queue("right"), CREATE)


def test_an_older_version_of_a_kind_is_converted(engineer: LabApi) -> None:
    older = engineer.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/fraud")
    assert older["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert older["spec"]["resourceGroups"][0]["coveredResources"] == [GPU]


def test_a_job_waits_for_its_queue_in_a_managed_namespace_and_nowhere_else(engineer: LabApi) -> None:
    elsewhere = JOBS.replace(TENANT, "default")
    managed = engineer.request("POST", f"{JOBS}?dryRun=All", job("one", 4), CREATE)
    free = engineer.request("POST", f"{elsewhere}?dryRun=All", job("one", 4), CREATE)
    assert (managed["spec"]["suspend"], free["spec"]["suspend"]) == (True, False)


def test_of_three_jobs_of_four_gpus_two_are_admitted_to_eight_and_one_waits(engineer: LabApi) -> None:
    for name in ("one", "two", "three"):
        engineer.request("POST", JOBS, job(name, 4, seconds="3600"), CREATE)

    def workloads() -> list[set[str]]:
        return [conditions(workload) for workload in engineer.get(f"{QUEUES}/namespaces/{TENANT}/workloads")["items"]]

    until(
        lambda: sum("Admitted" in workload_conditions for workload_conditions in workloads()) == 2, "two are admitted"
    )
    until(
        lambda: engineer.get(f"{QUEUES}/clusterqueues/fraud")["status"].get("pendingWorkloads") == 1, "one is pending"
    )
    until(lambda: [p["status"]["phase"] for p in engineer.get(PODS)["items"]] == ["Running"] * 2, "two run")
    assert len(workloads()) == 3


def test_a_job_that_ends_makes_room_for_the_next(engineer: LabApi) -> None:
    for name in ("one", "two"):
        engineer.request("POST", JOBS, job(name, 8, seconds="0.2"), CREATE)
    until(
        lambda: all("Complete" in conditions(job_item) for job_item in engineer.get(JOBS)["items"]), "both are complete"
    )


@pytest.mark.parametrize("seconds", ["0.25", "2"])
def test_a_pod_ends_as_many_seconds_after_its_start_as_it_says(engineer: LabApi, seconds: str) -> None:
    """For every kind of owner; a change of the pod on the way does not begin anew."""
    pods = PODS.replace(TENANT, "default")
    engineer.request("POST", pods, pod("timed", seconds), CREATE)
    until(lambda: engineer.get(f"{pods}/timed")["status"]["phase"] != "Pending", "it runs")

    def ended() -> dict[str, Any] | None:
        engineer.request("PATCH", f"{pods}/timed", {"metadata": {"annotations": {"seen": str(time.monotonic())}}})
        timed_pod = engineer.get(f"{pods}/timed")
        return timed_pod if timed_pod["status"]["phase"] != "Running" else None

    timed_pod = until(ended, "it has ended though it is changed all the time")
    assert timed_pod is not None
    assert timed_pod["status"]["phase"] == "Succeeded"
    state = timed_pod["status"]["containerStatuses"][0]["state"]["terminated"]
    ends = datetime.fromisoformat(state["finishedAt"])
    assert (ends - datetime.fromisoformat(timed_pod["status"]["startTime"])).total_seconds() >= int(float(seconds))
    engineer.request("DELETE", f"{pods}/timed")
    until(lambda: not engineer.get(pods)["items"], "it is gone")


def test_the_end_of_a_pod_outlives_the_kubelets(root: Path, lab: Lab, engineer: LabApi) -> None:
    pods = PODS.replace(TENANT, "default")
    engineer.request("POST", pods, pod("timed", "3"), CREATE)
    messages: list[str] = []

    def phase() -> str:
        status = engineer.get(f"{pods}/timed")["status"]
        if status["phase"] == "Running":
            messages.append(status["message"])
        return status["phase"]

    until(lambda: phase() == "Running", "it runs")
    ends = datetime.fromisoformat(messages[0].removeprefix("ends at "))
    kwok = pid(lab, "kwok")
    assert kwok
    os.kill(kwok, signal.SIGKILL)
    until(lambda: pid(lab, "kwok") is None, "kwok is dead")
    control_plane.up(root=root)
    until(lambda: phase() == "Succeeded", "it has ended")
    assert time.time() >= ends.timestamp()
    assert {*messages} == {messages[0]}, "its time does not begin anew"
    engineer.request("DELETE", f"{pods}/timed")
    until(lambda: not engineer.get(pods)["items"], "it is gone")


@pytest.mark.parametrize("seconds", [None, "10m", "soon"])
def test_a_pod_that_says_no_number_runs_until_it_is_deleted(engineer: LabApi, seconds: str | None) -> None:
    pods = PODS.replace(TENANT, "default")
    for pod_item in (pod("endless", seconds), pod("timed", "0.3")):
        engineer.request("POST", pods, pod_item, CREATE)
    until(lambda: engineer.get(f"{pods}/timed")["status"]["phase"] == "Succeeded", "the other has ended")
    assert engineer.get(f"{pods}/endless")["status"]["phase"] == "Running"
    for name in ("endless", "timed"):
        engineer.request("DELETE", f"{pods}/{name}")
    until(lambda: not engineer.get(pods)["items"], "both are gone")


def test_a_killed_kueue_comes_back_with_its_queues(root: Path, lab: Lab, engineer: LabApi) -> None:
    certificate = (lab.kueue / "certificates" / "tls.crt").read_bytes()
    before = pid(lab)
    assert before
    os.kill(before, signal.SIGKILL)
    until(lambda: pid(lab) is None, "it is dead")
    assert [row.component for row in control_plane.status(root=root) if not row.answering] == [KUEUE]
    with pytest.raises(ApiError, match="failed calling webhook"):
        engineer.request("POST", JOBS, job("one", 4), CREATE)
    control_plane.up(root=root)
    assert every(row.answering for row in control_plane.status(root=root))
    assert (lab.kueue / "certificates" / "tls.crt").read_bytes() == certificate
    engineer.request("POST", JOBS, job("one", 4, seconds="0.1"), CREATE)
    until(lambda: "Complete" in conditions(engineer.get(f"{JOBS}/one")), "it is admitted and runs")


@pytest.mark.usefixtures("engineer")
def test_a_kueue_that_hangs_is_replaced(root: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "PATIENCE_SECONDS", 1)
    before = pid(lab)
    assert before
    os.kill(before, signal.SIGSTOP)
    control_plane.up(root=root)
    assert pid(lab) != before
    assert every(row.answering for row in control_plane.status(root=root))


def test_changed_values_restart_kueue_and_nothing_else(root: Path, lab: Lab, engineer: LabApi) -> None:
    before = {name: pid(lab, name) for name in (*COMPONENTS, KUEUE)}
    for same in (None, values()):
        control_plane.up(root=root, queues=same)
        assert {name: pid(lab, name) for name in (*COMPONENTS, KUEUE)} == before
    control_plane.up(root=root, queues=values(managedJobsNamespaceSelector={"matchLabels": {"no-namespace": "has-it"}}))
    assert {name for name in before if pid(lab, name) != before[name]} == {KUEUE}
    created_job = engineer.request("POST", f"{JOBS}?dryRun=All", job("one", 4), CREATE)
    assert created_job["spec"]["suspend"] is False, "its webhooks are no longer asked about this namespace"


def test_the_port_of_a_webhook_that_another_process_took_is_given_up(root: Path, lab: Lab, engineer: LabApi) -> None:
    before = ports.remembered(lab)
    processes.stop(processes.running(lab, (KUEUE,))[KUEUE])
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", before["kueue-webhook"]))
        thief.listen()
        control_plane.up(root=root)
    after = ports.remembered(lab)
    assert {name for name in before if after[name] != before[name]} == {"kueue-webhook"}
    assert engineer.request("POST", f"{JOBS}?dryRun=All", job("one", 4), CREATE)["spec"]["suspend"] is True


def test_without_values_kueue_and_its_webhooks_are_removed(root: Path, lab: Lab, engineer: LabApi) -> None:
    engineer.request("POST", JOBS, job("held", 4, seconds="3600"), CREATE)
    until(lambda: bool(engineer.get(PODS)["items"]), "a workload holds quota")
    control_plane.up(root=root, queues={})
    assert pid(lab) is None
    assert KUEUE not in {row.component for row in control_plane.status(root=root)}
    until(lambda: not served(engineer, QUEUES), "the kinds are gone with their objects")
    engineer.request("POST", PODS, pod("free"), CREATE)
    until(lambda: engineer.get(f"{PODS}/free")["status"]["phase"] == "Running", "it runs without a queue")
    control_plane.up(root=root)
    assert pid(lab) is None, "what an earlier up said is kept"


def test_a_lab_that_was_never_told_has_no_kueue(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        try:
            lab = control_plane.up(root=tmp_path)
            rows = control_plane.status(root=tmp_path)
            assert [row.component for row in rows if row.answering] == list(COMPONENTS)
            assert set(ports.remembered(lab)) == set(ports.NAMES)
        finally:
            control_plane.down(root=tmp_path)
