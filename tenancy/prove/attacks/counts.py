"""Attacks on what the queue counts: more pods than it counts, and pods that outlive what it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenancy.catalog.controllers import DOMAIN
from tenancy.catalog.sizes import PODS_OF_WORK
from tenancy.kube.objects import Object
from tenancy.live.api import collection
from tenancy.prove.attacks.model import ABSENT, Attack, Request, attack, escaped, put, skipped
from tenancy.prove.attacks.queues import TRAIN_JOB, all_kinds, ray_workers, through, work
from tenancy.prove.attacks.scene import POD_NAME, AttackedNamespace, Scene
from tenancy.prove.attacks.workloads import kinds_of, workload

JOB_SPECS = {
    "Job": "/spec",
    "CronJob": "/spec/jobTemplate/spec",
    "JobSet": "/spec/replicatedJobs/0/template/spec",
}
"""JSON pointers of the Job's spec in each kind that has one."""
WRAPPED = (641, 6_700_417)
"""Two factors of 2^32 + 1: Kueue counts such a product as 1."""


def count_attacks(scene: Scene) -> Iterator[Attack]:
    """Attacks on the rules that keep running pods counted."""
    place = scene.home
    if place is None or not place.environment.queued:
        return
    yield from _ends(scene, place)
    yield from _products(scene, place)
    yield from _ray(scene, place)
    yield from _mpi(scene, place)


def _ends(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "start further pods on GPUs that the queue takes for returned"
    for kind, spec in JOB_SPECS.items():
        if kind in kinds_of(place):
            made, at = put(work(place, kind), f"{spec}/completions", 5), f"{spec}/parallelism"
            yield through(scene, place, "kueue-28", "parallelism", sentence, kind, at, 40, 5, base=made)


def _products(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "have so many pods that the queue counts none"
    for kind in all_kinds(place):
        if kind in ("RayCluster", "RayJob"):
            made, group = _with_groups(place, kind, WRAPPED[0])
            at, bad, good = f"{group}/numOfHosts", WRAPPED[1], 2
        elif kind in _COUNTS:
            at, each, others = _COUNTS[kind]
            made = _with_workers(place) if kind == "MPIJob" else work(place, kind)
            for pointer, value in others.items():
                made = put(made, pointer, value)
            bad, good = PODS_OF_WORK // each + 1, PODS_OF_WORK // each
        else:
            continue
        yield through(scene, place, "kueue-29", "pods", sentence, kind, at, bad, good, base=made)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serving"}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": POD_NAME},
        "spec": {"scaleTargetRef": target, "maxReplicas": PODS_OF_WORK + 1},
    }
    path = collection("autoscaling/v2", "HorizontalPodAutoscaler", place.name)
    guard, request = scene.guard("kueue-29", "horizontalpodautoscalers"), Request("POST", path, scaler, place.developer)
    twin, sentence = put(scaler, "/spec/maxReplicas", PODS_OF_WORK), f"by an autoscaler: {sentence}"
    yield attack("kueue-29-autoscaler-pods", "kueue-29", sentence, guard, request, twin_body=twin)


_OF_JOBSET = "/spec/replicatedJobs/0/template/spec"
_COUNTS: Mapping[str, tuple[str, int, Mapping[str, int]]] = {
    "Job": ("/spec/parallelism", 1, {}),
    "CronJob": ("/spec/jobTemplate/spec/parallelism", 1, {}),
    "Deployment": ("/spec/replicas", 1, {}),
    "StatefulSet": ("/spec/replicas", 1, {}),
    "JobSet": (
        "/spec/replicatedJobs/0/replicas",
        2,
        {f"{_OF_JOBSET}/{field}": 2 for field in ("parallelism", "completions")},
    ),
    "LeaderWorkerSet": ("/spec/replicas", 4, {"/spec/leaderWorkerTemplate/size": 4}),
    "MPIJob": ("/spec/mpiReplicaSpecs/Worker/replicas", 1, {}),
    TRAIN_JOB: ("/spec/trainer/numNodes", 1, {}),
}
"""JSON pointer of the count of each kind, the pods of each that it counts, and the other factors of the product."""


def _ray(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Pods that KubeRay would create beyond what the queue counts, or keep for longer."""
    more, longer = "have more workers than the queue counts", "keep its GPUs after its end"
    fewer = "have the queue count other workers than there are"
    kinds = [kind for kind in ("RayCluster", "RayJob") if kind in kinds_of(place)]
    for kind in kinds:
        made, group = _with_groups(place, kind, 1)
        made = put(made, f"{group}/maxReplicas", 2)
        yield through(scene, place, "kueue-26", "least-workers", more, kind, f"{group}/minReplicas", 2, 1, base=made)
        made, group = _with_groups(place, kind, 3)
        yield through(scene, place, "kueue-26", "most-workers", fewer, kind, f"{group}/maxReplicas", 1, 3, base=made)
    if not kinds:
        yield skipped("kueue-26-ray", "kueue-26", more, "the environment queues no Ray clusters")
    if "RayJob" in kinds:
        at = "/spec/ttlSecondsAfterFinished"
        yield through(scene, place, "kueue-26", "after-its-end", longer, "RayJob", at, 86400, 0)
        policy = {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteNone"}}
        yield through(scene, place, "kueue-26", "for-ever", longer, "RayJob", "/spec/deletionStrategy", policy)


def _mpi(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence, at = "keep GPUs after the queue has given them to other work", "/spec/runPolicy/cleanPodPolicy"
    if "MPIJob" not in kinds_of(place):
        yield skipped("kueue-30-mpi", "kueue-30", sentence, "the environment queues no MPIJobs")
        return
    made = _with_workers(place)
    for name, bad, good in (("keeps", "None", "Running"), ("default", ABSENT, "All")):
        yield through(scene, place, "kueue-30", name, sentence, "MPIJob", at, bad, good, base=made)
    # The queue's webhook writes a mark of its own into such a job: the twin shows that it is admitted.
    made = put(made, "/spec/runLauncherAsWorker", True)
    marks = "/spec/mpiReplicaSpecs/Worker/template/metadata/annotations"
    made = put(made, marks, {"note": "hello"})
    at, alike = f"{marks}/{escaped(DOMAIN + 'role-hash')}", "have its pods counted as if they were smaller"
    yield through(scene, place, "kueue-08", "launcher-as-worker", alike, "MPIJob", at, "abcd1234", base=made)


def _pods(place: AttackedNamespace) -> Object:
    pod = put(place.pod(), "/metadata/annotations", {"note": "hello"})
    return workload("Job", pod)["spec"]["template"]


def _with_workers(place: AttackedNamespace) -> Object:
    return put(work(place, "MPIJob"), "/spec/mpiReplicaSpecs/Worker", {"replicas": 2, "template": _pods(place)})


def _with_groups(place: AttackedNamespace, kind: str, replicas: int) -> tuple[Object, str]:
    """A Ray cluster with a group of workers, and the group's JSON pointer."""
    at = f"{'/spec' if kind == 'RayCluster' else '/spec/rayClusterSpec'}/workerGroupSpecs"
    made = put(work(place, kind), at, ray_workers(_pods(place)))
    for count in ("replicas", "maxReplicas"):
        made = put(made, f"{at}/0/{count}", replicas)
    return made, f"{at}/0"
