"""`tenancy fits` on a real API server with Kueue: every control says no, and lets a twin in that differs in one field.

What it says of queues is compared with what Kueue then does.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.cli import main
from tenancy.explain.fits import fit
from tenancy.explain.fits_answers import ControlAnswer, Fit, FitVerdict
from tenancy.kube import deniers
from tenancy.kube.requests import Impersonation
from tenancy.lab import control_plane
from tenancy.planning.kubernetes.quotas import NAME
from tests.operators import crds
from tests.queues import town
from tests.queues.scene import LEAST_PODS, Object, Scene, on_stage
from tests.waiting import until

GPU = "nvidia.com/gpu"
ENVIRONMENT = (
    town.ENVIRONMENT.replace("nodes: 8", "nodes: 2")
    .replace("a100-1g.5gb: {gpu: a100-40gb, mig: 1g.5gb}", "")
    .replace("a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}", "")
    .replace("quota: {cpu: 600, memory: 4Ti}", "quota: {pods: 8, jobs: 20}")
    + "queues: {kinds: [jobset]}\n"
)
AUDITORS = "[{group: fraud-engineers, role: developer}, {group: auditors, role: viewer}]"
FILES = {
    "environment.yaml": ENVIRONMENT,
    "tenants/fraud.yaml": town.tenant(
        "fraud", "risk", "guaranteed: 8, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 8"
    ).replace("[{group: fraud-engineers, role: developer}]", AUDITORS),
    "tenants/owner.yaml": town.tenant("owner", "markets", "guaranteed: 8, sharing: lend, lending-limit: 8"),
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("files") / "town"
    (home / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    (folder / "tenants").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    try:
        with on_stage(home, folder, crds()) as lab_scene:
            yield lab_scene
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("GPU_TENANCY_LAB", raising=False)
            control_plane.down(root=home)


@pytest.fixture
def scene(stage: Scene) -> Iterator[Scene]:
    yield stage
    stage.clear()


def fit_of(scene: Scene, item: Object, tenant: str = "fraud", group: str | None = None) -> Fit:
    group = group or f"{tenant}-engineers"
    return fit(scene.api, scene.loaded.environment, copy.deepcopy(item), Impersonation("x", (group,)), f"group {group}")


def control_answer(fit: Fit, plane: str) -> ControlAnswer:
    (answer,) = (candidate for candidate in fit.said if candidate.plane == plane)
    return answer


def refused(
    scene: Scene, item: Object, twin: Object, plane: str, verdict: FitVerdict = FitVerdict.NEVER
) -> ControlAnswer:
    """The answer of a control that refuses `item`; all controls admit its twin."""
    let_in = fit_of(scene, twin)
    assert let_in.verdict is FitVerdict.FITS, let_in
    fit = fit_of(scene, item)
    assert fit.verdict is verdict, fit
    control = control_answer(fit, plane)
    assert (control.verdict, bool(control.change)) == (verdict, True), fit
    return control


def pod(scene: Scene, gpus: int = 1) -> Object:
    job = scene.job("fraud", "one", gpus)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": job["metadata"]["namespace"]},
        "spec": job["spec"]["template"]["spec"],
    }


def container(item: Object) -> Any:
    spec = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
    return spec["containers"][0]


def wrapped(scene: Scene, kind: str, pods: int) -> Object:
    """Work of a kind, of so many pods with 8 GPUs each that start together."""
    job = scene.job("fraud", "one", 8, pods=pods)
    template = copy.deepcopy(job["spec"]["template"])
    body = {"metadata": {"labels": {"app": "one"}}, "spec": {**template["spec"], "restartPolicy": "Always"}}
    group, version, spec = {
        "Job": ("batch", "v1", job["spec"]),
        "CronJob": ("batch", "v1", {"schedule": "@daily", "jobTemplate": {"spec": job["spec"]}}),
        "StatefulSet": (
            *("apps", "v1"),
            {"serviceName": "one", "replicas": pods, "selector": {"matchLabels": {"app": "one"}}, "template": body},
        ),
        "JobSet": (
            *("jobset.x-k8s.io", "v1alpha2"),
            {
                "suspend": True,
                "replicatedJobs": [
                    {"name": f"part-{n}", "template": {"spec": {**job["spec"], "parallelism": 1, "completions": 1}}}
                    for n in range(pods)
                ],
            },
        ),
    }[kind]
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": job["metadata"], "spec": spec}


# Each control


def test_who_may_not_make_it_is_told_so_by_rbac(scene: Scene) -> None:
    job = scene.job("fraud", "one", 1)
    assert fit_of(scene, job).verdict is FitVerdict.FITS
    rbac_answer = control_answer(fit_of(scene, job, group="auditors"), "RBAC")
    assert (rbac_answer.verdict, rbac_answer.denier) == (FitVerdict.NEVER, deniers.RBAC)
    assert rbac_answer.sentence == "group auditors may not create Jobs in fraud--main."


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_a_guard_that_refuses_is_named_with_its_rule(scene: Scene, kind: str) -> None:
    twin = pod(scene) if kind == "Pod" else scene.job("fraud", "one", 1)
    item = copy.deepcopy(twin)
    container(item)["image"] = "docker.io/stranger/cuda:13"
    answer = refused(scene, item, twin, "guard")
    assert answer.denier.startswith(deniers.ADMISSION_POLICY)
    assert answer.denier.endswith(":img-01")
    assert "img-01: " in answer.sentence


def test_pod_security_that_refuses_is_named(scene: Scene) -> None:
    twin = pod(scene)
    item = copy.deepcopy(twin)
    container(item)["securityContext"]["allowPrivilegeEscalation"] = True
    answer = refused(scene, item, twin, "Pod Security")
    assert answer.denier == deniers.POD_SECURITY
    assert "allowPrivilegeEscalation" in answer.sentence


def test_a_limit_range_that_refuses_the_pods_of_a_job_is_named(scene: Scene) -> None:
    """The job itself is taken, and its pods would fail for ever."""
    twin = scene.job("fraud", "one", 1, cpu="1")
    item = scene.job("fraud", "one", 1, cpu="97")
    assert scene.ask("fraud", item, "?dryRun=All").ok
    answer = refused(scene, item, twin, "LimitRange")
    assert answer.denier == deniers.LIMIT_RANGE
    assert "maximum cpu usage per Container is 95" in answer.sentence, "the largest node of its pools"


def test_a_form_that_the_api_server_refuses_is_told(scene: Scene) -> None:
    twin = scene.job("fraud", "one", 1)
    item = copy.deepcopy(twin)
    item["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    assert "restartPolicy" in refused(scene, item, twin, "API validation").sentence


def test_more_pods_than_the_quota_has_never_fit(scene: Scene) -> None:
    answer = refused(scene, scene.job("fraud", "one", 1, pods=9), scene.job("fraud", "one", 1, pods=8), "quota")
    assert answer.denier == deniers.quota(NAME)
    assert answer.sentence == f"9 pods at once, of which quota {NAME} has 8 in all and 8 left."


def test_more_pods_than_the_quota_has_left_wait(scene: Scene) -> None:
    home = scene.submit("fraud", "before", 1, pods=6)
    until(lambda: len(scene.pods(home)) == 6, "its pods run")
    quota_object = lambda: {q["metadata"]["name"]: q for q in scene.items("ResourceQuota", home, "v1")}[NAME]  # noqa: E731
    until(lambda: quota_object()["status"]["used"]["pods"] == "6", "the quota counts them")
    item, twin = (scene.job("fraud", "one", 1, pods=pods) for pods in (3, 2))
    assert "has 8 in all and 2 left" in refused(scene, item, twin, "quota", FitVerdict.WAITS).sentence


def test_more_than_the_queue_may_ever_hold_never_fits(scene: Scene) -> None:
    item, twin = (scene.job("fraud", "one", 8, pods=pods) for pods in (3, 2))
    assert (
        "24 nvidia.com/gpu at once, and the maximum of its queue is 16" in refused(scene, item, twin, "queue").sentence
    )


@pytest.mark.parametrize("kind", ["CronJob", "Job", "JobSet", "StatefulSet"])
def test_every_kind_of_work_is_counted_as_a_whole(scene: Scene, kind: str) -> None:
    answer = refused(scene, wrapped(scene, kind, 3), wrapped(scene, kind, 2), "queue")
    assert "It never starts in pool train as it is" in answer.sentence


def test_a_guard_judges_every_kind_of_work(scene: Scene) -> None:
    twin = wrapped(scene, "JobSet", 1)
    item = copy.deepcopy(twin)
    spec = item["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["containers"][0]["image"] = "docker.io/stranger/cuda:13"
    assert refused(scene, item, twin, "guard").denier.endswith(":img-01")


def test_a_queue_that_is_in_use_lets_it_wait(scene: Scene) -> None:
    home = scene.submit("owner", "mine", 8)
    scene.until_runs(home, "mine")
    scene.until_held("owner", 8)
    item, twin = (scene.job("fraud", "one", 8, pods=pods) for pods in (2, 1))
    answer = refused(scene, item, twin, "queue", FitVerdict.WAITS)
    assert answer.sentence == "Queue fraud--batch: 8 nvidia.com/gpu free in pool train, 16 requested."


def test_what_is_lent_is_called_back(scene: Scene) -> None:
    home = scene.submit("fraud", "big", 8, pods=2)
    scene.until_runs(home, "big")
    scene.until_held("fraud", 16)
    fit = fit_of(scene, scene.job("owner", "mine", 8), "owner")
    answer = control_answer(fit, "queue")
    assert answer.sentence == "Queue owner--batch: 0 nvidia.com/gpu free in pool train, 8 requested."
    assert "within the queue's guarantee" in answer.change
    assert fit.verdict is FitVerdict.WAITS


def test_work_that_may_start_with_fewer_pods_than_its_queue_can_ever_hold_is_not_refused(scene: Scene) -> None:
    elastic_job = scene.job("fraud", "one", 4, pods=6, notes={LEAST_PODS: "1"})
    answer = control_answer(fit_of(scene, elastic_job), "queue")
    assert answer.sentence == "Queue fraud--batch: 16 nvidia.com/gpu free in pool train, 4 requested."
    inelastic_job = scene.job("fraud", "one", 4, pods=6)
    assert control_answer(fit_of(scene, inelastic_job), "queue").verdict is FitVerdict.NEVER


def test_a_pod_larger_than_any_node_never_starts(scene: Scene) -> None:
    """The queue would let it start: it counts GPUs of all nodes together."""
    item, twin = scene.job("fraud", "one", 9), scene.job("fraud", "one", 8)
    assert "one pod asks for 9 nvidia.com/gpu, and a node has 8" in refused(scene, item, twin, "queue").sentence


def test_a_kind_that_the_cluster_does_not_have_is_told(scene: Scene) -> None:
    item = {**scene.job("fraud", "one", 1), "apiVersion": "batch/v7"}
    assert control_answer(fit_of(scene, item), "API validation").sentence == "The cluster has no kind Job (batch/v7)."


def test_nothing_is_made(scene: Scene) -> None:
    fit_of(scene, scene.job("fraud", "one", 1))
    assert scene.items("Job", "fraud--main", "batch/v1") == scene.items("Pod", "fraud--main", "v1") == []


def test_what_is_there_already_is_asked_for_once_more(scene: Scene) -> None:
    scene.submit("fraud", "one", 1)
    assert fit_of(scene, scene.job("fraud", "one", 1)).verdict is FitVerdict.FITS


# What then happens


def test_it_says_of_any_job_what_kueue_then_does(scene: Scene) -> None:
    """Jobs of any size, one after the other, of both tenants: what is said to start now starts, and nothing else."""
    chance = random.Random(11)
    outcomes = set()
    for number in range(14):
        tenant, gpus = chance.choice(["fraud", "owner"]), chance.choice([1, 2, 3, 5, 8])
        name = f"job-{number}"
        # Of work that is alike Kueue looks at one piece: each asks for something else.
        cpu = f"{100 + number}m"
        queue_answer = control_answer(fit_of(scene, scene.job(tenant, name, gpus, cpu=cpu), tenant), "queue")
        home = scene.submit(tenant, name, gpus, cpu=cpu)
        until(lambda: scene.runs(home, name) or scene.waits(home, name), f"{name} runs or waits")  # noqa: B023
        if "guarantee" in queue_answer.change:
            scene.until_runs(home, name)
        else:
            assert scene.runs(home, name) is (queue_answer.verdict is FitVerdict.FITS), (tenant, gpus, queue_answer)
        outcomes.add(queue_answer.verdict)
        if chance.random() < 0.2:
            scene.clear()
        scene.until_held(
            tenant, sum(_gpus(workload) for workload in scene.items("Workload", home) if _admitted(workload))
        )
    assert {FitVerdict.FITS, FitVerdict.WAITS} <= outcomes


def _admitted(workload: Object) -> bool:
    return bool((workload.get("status") or {}).get("admission"))


def _gpus(workload: Object) -> int:
    return sum(int(p["resourceUsage"].get(GPU, 0)) for p in workload["status"]["admission"]["podSetAssignments"])


# The command


def run(scene: Scene, item: Object, *options: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(scene.root)
        return CliRunner().invoke(main, ["fits", "-", str(scene.folder), "--lab", *options], input=json.dumps(item))


def test_the_command_ends_with_0_where_it_fits(scene: Scene) -> None:
    result = run(scene, scene.job("fraud", "one", 1))
    assert (result.exit_code, result.stderr) == (0, "")
    first, *control_lines = result.stdout.splitlines()
    assert first == "Job one in fraud--main, as group fraud-engineers: fits now."
    assert [line.split()[0] for line in control_lines] == ["yes"] * 6


def test_the_command_ends_with_1_where_it_does_not(scene: Scene) -> None:
    result = run(scene, scene.job("fraud", "one", 8, pods=3))
    assert result.exit_code == 1
    assert "never starts as it is." in result.stdout
    assert "  no   queue" in result.stdout


def test_the_command_tells_machines(scene: Scene) -> None:
    (report,) = json.loads(run(scene, scene.job("fraud", "one", 1), "--format", "json").stdout)
    assert (report["verdict"], report["kind"], report["namespace"]) == ("fits", "Job", "fraud--main")
    assert {control["plane"] for control in report["said"]} == {
        *("RBAC", "guard", "Pod Security", "LimitRange", "quota", "queue")
    }


def test_the_review_of_access_finds_a_binding_that_no_file_has(scene: Scene, tmp_path: Path) -> None:
    where = "/apis/rbac.authorization.k8s.io/v1/namespaces/fraud--main/rolebindings"
    item = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "by-hand"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "mallory"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenancy-owner"},
    }
    words = ["report", "access", str(scene.folder), "--lab", "--live", "--format", "json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        before = CliRunner().invoke(main, words)
        assert scene.api.request("POST", where, item).ok
        try:
            after = CliRunner().invoke(main, words)
        finally:
            scene.api.request("DELETE", f"{where}/by-hand")
    assert (before.exit_code, json.loads(before.stdout)["not_in_files"]) == (0, [])
    assert after.exit_code == 1
    assert json.loads(after.stdout)["not_in_files"] == [
        {"namespace": "fraud--main", "kind": "Group", "name": "mallory", "role": "tenancy-owner"}
    ]
