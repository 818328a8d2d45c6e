"""Every kind of work queues: it waits suspended, is counted in its tenant's queue, and starts when it is let.

Of kinds with an operator Kueue's part is seen: the operators do not run here, so there are no pods of them.
"""

from __future__ import annotations

import pytest
import town
from scene import Object, Scene, collection, condition, holds

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import HELD
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cluster.api import path_of
from tenancy.kube.requests import MERGE
from tests import operators
from tests.waiting import until

pytestmark = pytest.mark.exhaustive(
    reason="every kind of work by itself; the ledger of `make test` plays jobs of all kinds"
)

SHARE = "guaranteed: 8, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16"
KINDS = ("jobset", "leaderworkerset", "mpijob", "raycluster", "rayjob", "trainjob")
FILES = {
    "environment.yaml": town.ENVIRONMENT.replace("nodes: 8", "nodes: 3") + f"queues: {{kinds: [{', '.join(KINDS)}]}}\n",
    "tenants/fraud.yaml": town.tenant("fraud", "risk", SHARE),
    "tenants/owner.yaml": town.tenant("owner", "markets", "guaranteed: 16, sharing: lend, lending-limit: 16"),
}

CRDS = operators.crds
NEVER_DONE = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
"""Pods below that number stay of the former revision."""


def template(scene: Scene, gpus: int, restart: str = "Always") -> Object:
    """A pod of fraud's with so many GPUs."""
    pod_template = scene.job("fraud", "any", gpus)["spec"]["template"]
    labels = {"app": "any"}
    return {"metadata": {"labels": labels}, "spec": {**pod_template["spec"], "restartPolicy": restart}}


def serving(
    scene: Scene, kind: str, name: str, replicas: int, gpus: int = 8, pool: str | None = None, **more: object
) -> str:
    pods = template(scene, gpus)
    pods["metadata"]["labels"] = {"app": name}
    if pool:
        pods["spec"]["nodeSelector"] = {vocabulary.POOL: pool}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pods, **more}
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    where = scene.space("fraud")
    item = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": where}, "spec": spec}
    answer = scene.ask("fraud", item)
    assert answer.ok, answer.message
    return where


def scale(scene: Scene, kind: str, name: str, replicas: int) -> None:
    where = f"{collection('apps/v1', kind, scene.space('fraud'))}/{name}"
    scene.change("fraud", where, {"spec": {"replicas": replicas}})


def test_a_deployment_is_scaled_within_the_queue(scene: Scene) -> None:
    """Every replica is a piece of work: one runs, a second, and the first alone again."""
    scene.clear()
    home = serving(scene, "Deployment", "scorer", 1)
    for replicas in (1, 2, 1):
        scale(scene, "Deployment", "scorer", replicas)
        until(lambda replicas=replicas: len(scene.pods(home)) == replicas, f"{replicas} replicas run")
        scene.until_held("fraud", 8 * replicas)


def test_a_stateful_set_keeps_its_size(scene: Scene) -> None:
    """Its replicas are one piece of work, whose size Kueue holds fixed: another one is refused. Stopped, it holds
    nothing, and back at its size it runs again."""
    scene.clear()
    home = serving(scene, "StatefulSet", "scorer", 2)
    until(lambda: len(scene.pods(home)) == 2, "two replicas run")
    where = f"{collection('apps/v1', 'StatefulSet', home)}/scorer"
    kind = "application/merge-patch+json"
    refused = scene.api.request("PATCH", where, {"spec": {"replicas": 1}}, scene.developer("fraud"), kind)
    assert (refused.status, "vstatefulset.kb.io" in refused.message) == (403, True)
    until(lambda: scene.api.request("GET", where).body["status"].get("readyReplicas"), "it counts a ready replica")
    scale(scene, "StatefulSet", "scorer", 0)
    # Kueue goes by the set's own count, which follows its pods.
    until(lambda: scene.api.request("GET", where).body["status"].get("replicas") == 0, "it counts no replica")
    until(lambda: not scene.items("Pod", home, "v1"), "no pod is left")
    scene.until_held("fraud", 0)
    scale(scene, "StatefulSet", "scorer", 2)
    until(lambda: len(scene.pods(home)) == 2, "two replicas run again")
    scene.until_held("fraud", 16)


def test_a_replica_on_borrowed_gpus_goes_back_into_the_queue(scene: Scene) -> None:
    """A Deployment of three replicas: 8 GPUs are fraud's own and 16 the owner's. The owner takes its 16: two replicas
    wait, one goes on; when the owner is done, they run again."""
    scene.clear()
    home = serving(scene, "Deployment", "scorer", 3)
    until(lambda: len(scene.pods(home)) == 3, "three replicas run")
    owner_space = scene.submit("owner", "all", 8, 2)
    scene.until_runs(owner_space, "all")
    scene.until_held("fraud", 8)
    until(lambda: len(scene.pods(home)) == 1, "one replica goes on")
    scene.until_said(home, "scorer", "waits for 8 more nvidia.com/gpu in pool train", "deployment")
    scene.api.request("DELETE", f"{collection('batch/v1', 'Job', owner_space)}/all?propagationPolicy=Background")
    until(lambda: len(scene.pods(home)) == 3, "three replicas run again")
    scene.until_said(home, "scorer", "It runs", "deployment")


def test_pods_that_wait_fill_the_quota_of_the_namespace_and_why_says_so(scene: Scene) -> None:
    """Fraud's quota is 24 GPUs. Three replicas that no pool takes wait with 24, so the pod of a Job that the queue lets
    start is refused, though the GPUs are idle; without the replicas it runs."""
    scene.clear()
    home = serving(scene, "Deployment", "idle", 3, pool="elsewhere")
    until(lambda: len(scene.items("Pod", home, "v1")) == 3, "three replicas wait")
    scene.submit("fraud", "late", 8)
    scene.until_runs(home, "late")
    explanation = scene.until_said(home, "late", "its pods are refused: ")
    assert "exceeded quota: tenant" in explanation
    scene.until_held("fraud", 8)
    assert not scene.pods(home)
    scale(scene, "Deployment", "idle", 0)
    until(lambda: len(scene.pods(home)) == 1, "the job's pod runs")
    scene.until_said(home, "late", "It runs")


def manifests(scene: Scene) -> dict[str, tuple[Object, int]]:
    """Kind -> its spec, and how many GPUs it asks for."""
    plain, once = template(scene, 2), template(scene, 2, "Never")
    job = {"spec": {"backoffLimit": 0, "parallelism": 2, "completions": 2, "template": once}}
    head, worker = {"rayStartParams": {}, "template": template(scene, 0)}, template(scene, 2)
    ray = {
        "headGroupSpec": head,
        "workerGroupSpecs": [
            {"groupName": "gpus", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}}
            | {"template": worker}
        ],
    }
    rollout = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0}}
    # What its operator's webhook would fill in.
    group = {"replicas": 1, "rolloutStrategy": rollout, "startupPolicy": "LeaderCreated"}
    roles = {
        "Launcher": {"replicas": 1, "template": template(scene, 0, "Never")},
        "Worker": {"replicas": 2, "template": once},
    }
    return {
        "jobset": ({"replicatedJobs": [{"name": "workers", "replicas": 2, "template": job}]}, 8),
        "leaderworkerset": ({"leaderWorkerTemplate": {"size": 2, "workerTemplate": plain}, **group}, 4),
        "mpijob": ({"runPolicy": {"cleanPodPolicy": "All"}, "slotsPerWorker": 2, "mpiReplicaSpecs": roles}, 4),
        "raycluster": (ray, 4),
        "rayjob": (
            {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": ray}
            # Without it Kueue and KubeRay write a template of their own, which Pod Security refuses.
            | {"submitterPodTemplate": template(scene, 0, "Never")},
            4,
        ),
        "trainjob": (
            {
                "runtimeRef": {"name": "plain"},
                "trainer": {"numNodes": 2, "resourcesPerNode": once["spec"]["containers"][0]["resources"]},
            },
            4,
        ),
    }


def make(scene: Scene, kind: str, name: str) -> Object:
    framework, (spec, _) = FRAMEWORKS[kind], manifests(scene)[kind]
    metadata = {"name": name, "namespace": scene.space("fraud")}
    item = {"apiVersion": f"{framework.group}/{framework.version}", "kind": framework.kind, "metadata": metadata}
    item |= {"spec": spec}
    if kind == "trainjob":
        scene.put(_runtime(scene))
    answer = scene.ask("fraud", item)
    assert answer.ok, answer.message
    return item


def _runtime(scene: Scene) -> Object:
    """The platform's runtime, from which a TrainJob is made."""
    pods = template(scene, 2, "Never")
    pods["spec"]["containers"][0]["name"] = "node"
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}
    where = {"name": "plain", "labels": {"trainer.kubeflow.org/framework": "plain"}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": where,
        "spec": spec,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_work_of_an_operator_waits_suspended_and_is_let_start(scene: Scene, kind: str) -> None:
    """It is counted in fraud's queue with the GPUs of all of its pods, and its priority is that of its pods' class."""
    scene.clear()
    home = scene.submit("fraud", "before", 8, 3)
    scene.until_runs(home, "before")
    item = make(scene, kind, "work")
    try:
        until(lambda: _workload_of(scene, home), "it has a workload")
        until(lambda: condition(_workload_of(scene, home), "QuotaReserved").get("status") == "False", "it waits")
        spec = (_workload_of(scene, home) or {})["spec"]
        assert spec["queueName"] == "default"
        assert _gpus(spec) == manifests(scene)[kind][1]
        assert spec["priority"] == 99, "of the class that everything has which names none"
        if kind != "leaderworkerset":
            assert _suspended(scene, item) is True
        assert "It waits for" in scene.until_said(home, "work", "waits for", kind)
        scene.api.request("DELETE", f"{collection('batch/v1', 'Job', home)}/before?propagationPolicy=Background")
        until(lambda: holds(_workload_of(scene, home), "Admitted"), "it is admitted")
        if kind != "leaderworkerset":
            until(lambda: _suspended(scene, item) is False, "it is let start")
        scene.until_held("fraud", manifests(scene)[kind][1])
        if kind != "leaderworkerset":
            _is_stopped_though_it_breaks_a_rule_by_now(scene, item)
    finally:
        where = collection(item["apiVersion"], item["kind"], home)
        scene.api.request("DELETE", f"{where}/work?propagationPolicy=Background")


def _is_stopped_though_it_breaks_a_rule_by_now(scene: Scene, item: Object) -> None:
    with scene.without_registries("fraud"):
        _stop(scene, item["metadata"]["namespace"], "work")
        until(lambda: _suspended(scene, item) is True, "it is suspended")
    scene.until_held("fraud", 0)


def _stop(scene: Scene, home: str, name: str) -> None:
    """As an administrator stops one workload, and as a tenant reclaims its GPUs."""
    workload = scene.workload(home, name)
    assert workload is not None
    answer = scene.api.request("PATCH", path_of(workload), {"spec": {"active": False}}, content_type=MERGE)
    assert answer.ok, answer.message


def test_a_job_that_breaks_a_rule_by_now_is_still_suspended(scene: Scene) -> None:
    scene.clear()
    home = scene.submit("fraud", "before", 8)
    scene.until_runs(home, "before")
    with scene.without_registries("fraud"):
        _stop(scene, home, "before")
        job = f"{collection('batch/v1', 'Job', home)}/before"
        until(lambda: scene.api.request("GET", job).body["spec"]["suspend"], "it is suspended")
    scene.until_held("fraud", 0)


def test_a_deployment_that_breaks_a_rule_by_now_is_still_scaled_down(scene: Scene) -> None:
    """Its controller writes the number into the ReplicaSet, which was made before the rule."""
    scene.clear()
    home = serving(scene, "Deployment", "scorer", 2)
    until(lambda: len(scene.pods(home)) == 2, "2 replicas run")
    with scene.without_registries("fraud"):
        where = f"{collection('apps/v1', 'Deployment', home)}/scorer/scale"
        scene.change("fraud", where, {"spec": {"replicas": 1}})
        until(lambda: len(scene.pods(home)) == 1, "1 replica runs")


def test_a_rollout_that_never_ends_runs_on_no_share_that_is_called_back(scene: Scene) -> None:
    """Pods of the former revision are made again after an eviction. Kueue takes their gates off, counted or not."""
    scene.clear()
    home = serving(scene, "StatefulSet", "half", 2, updateStrategy=NEVER_DONE)
    until(lambda: len(scene.pods(home)) == 2, "its replicas run")
    where = f"{collection('apps/v1', 'StatefulSet', home)}/half"
    scene.change("fraud", where, {"spec": {"template": {"metadata": {"annotations": {"bank.example/build": "2"}}}}})
    revisions = ("currentRevision", "updateRevision")
    status = lambda: scene.api.request("GET", where).body["status"]  # noqa: E731
    until(lambda: len({status()[revision] for revision in revisions}) == 2, "its rollout has begun")
    log = scene.lab.logs / "kueue.log"
    before = log.stat().st_size
    _stop(scene, home, "half")
    until(lambda: b"kueue-03" in log.read_bytes()[before:], "Kueue was refused")
    until(lambda: len(_gated(scene, home)) == 2, "they are made again, and wait")
    events = scene.items("Event", home, "v1")
    bound = [e["involvedObject"]["name"] for e in events if e["reason"] == "Scheduled"]
    assert sorted(name for name in bound if name.startswith("half-")) == ["half-0", "half-1"], "once each"
    scene.until_held("fraud", 0)


def _gated(scene: Scene, home: str) -> list[str]:
    """Pods that wait for the queue."""
    pods = scene.items("Pod", home, "v1")
    return [p["metadata"]["name"] for p in pods if {"name": HELD} in p["spec"].get("schedulingGates", ())]


def _workload_of(scene: Scene, home: str) -> Object | None:
    workloads = scene.workloads(home)
    return next((w for name, w in workloads.items() if name != "before"), None)


def _gpus(spec: Object) -> int:
    total = 0
    for pods in spec["podSets"]:
        for container in pods["template"]["spec"]["containers"]:
            total += pods["count"] * int(container["resources"].get("limits", {}).get("nvidia.com/gpu", 0))
    return total


def _suspended(scene: Scene, item: Object) -> bool:
    where = f"{collection(item['apiVersion'], item['kind'], item['metadata']['namespace'])}/work"
    spec = scene.api.request("GET", where).body["spec"]
    return bool(spec["runPolicy"]["suspend"] if item["kind"] == "MPIJob" else spec.get("suspend"))
