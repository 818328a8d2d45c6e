"""Counts: how many pods work makes, against how many the queue counts.

Kueue v0.19.2 counts each kind by its own sum. CEL computes in 64 bits and refuses what exceeds them; Kueue and the
operators compute in 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenancy.catalog.sizes import PODS_OF_WORK
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, put, skipped
from tenancy.rules.expressions import by_framework, unless_by_controller
from tenancy.rules.model import Expression, GuardFacts, GuardSubject, Rule
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.workloads import (
    TRAIN_JOB,
    all_kinds,
    in_queue,
    kinds_of,
    ray_workers,
    through,
    work,
    workload,
)

_REPLICAS, _PARALLELISM = "{0}.?replicas.orValue(1)", "{0}.?parallelism.orValue(1)"
_JOB, _OF_CRON_JOB = "dyn(object).spec", "dyn(object).spec.jobTemplate.spec"
IS_JOB = "request.resource.resource == 'jobs'"


def in_parallel(job: str) -> str:
    """Pods that a Job runs at a time, of its spec. The spec has no type."""
    return _PARALLELISM.format(job)


def _ends_as_counted(job: str) -> str:
    """Whether each pod of a Job that ends leaves less to run (job_controller.go, ReclaimablePods)."""
    return f"(!has({job}.completions) || {in_parallel(job)} <= {job}.completions)"


def _few(*counts: str) -> str:
    """Whether a product of counts is one that the queue counts as it is."""
    return f"{' * '.join(counts)} <= {PODS_OF_WORK}"


def _for_all_parts(at: str, part: str) -> str:
    """A condition on each part `p` of a list that may be absent."""
    return f"(!has({at}) || {at}.all(p, {part}))"


_SPEC = "dyn(object).spec"
_JOBS = f"{_SPEC}.replicatedJobs"
_OF_CLUSTER, _OF_JOB = f"{_SPEC}.workerGroupSpecs", f"{_SPEC}.rayClusterSpec.workerGroupSpecs"
_ROLES = f"{_SPEC}.mpiReplicaSpecs"


def _in_ray_job(text: str) -> str:
    return f"(!has({_SPEC}.rayClusterSpec) || {text})"


def _of_frameworks(texts: Mapping[str, str]) -> Expression:
    """The text for the kind of the object; none where the environment queues none of the kinds."""

    def text_of(facts: GuardFacts) -> str | None:
        text = by_framework([framework.kind for framework in facts.frameworks], texts, "true")
        return None if text == "true" else unless_by_controller(text)

    return text_of


# KubeRay takes a number between minReplicas and maxReplicas, and Kueue the number of replicas (raycluster/common.go,
# `effectiveWorkerCount`, against KubeRay's `GetWorkerGroupDesiredReplicas`).
_GROUP = """p.?minReplicas.orValue(0) <= p.?replicas.orValue(0)
    && p.?replicas.orValue(0) >= 0 && p.?replicas.orValue(0) <= p.?maxReplicas.orValue(p.?replicas.orValue(0))"""
_GROUP_PODS = _few(_REPLICAS.format("p"), "p.?numOfHosts.orValue(1)")
_GROUP_SIZE = f"{_SPEC}.leaderWorkerTemplate.?size.orValue(1)"
_SCALED = "dyn(object).?spec.?replicas.orValue(0)"
_CHILDREN = """object.kind != 'JobSet' || !has(dyn(object).spec.replicatedJobs)
        || dyn(object).spec.replicatedJobs.all(j, !has(j.template.spec.parallelism) || has(j.template.spec.completions)
            || j.template.spec.?completionMode.orValue('Indexed') == 'NonIndexed')"""


def _children(facts: GuardFacts) -> str | None:
    """JobSet's webhook writes Indexed where nothing is said, and the API server refuses such a Job without
    completions."""
    kinds = {framework.kind for framework in facts.frameworks}
    return unless_by_controller(_CHILDREN) if "JobSet" in kinds else None


def _scales(facts: GuardFacts) -> str | None:
    if not facts.queued:
        return None
    return (
        "request.resource.resource == 'horizontalpodautoscalers'"
        f" ? {_few('dyn(object).spec.maxReplicas')} : {_few(_SCALED)}"
    )


# Attacks

JOB_SPECS = {
    "Job": "/spec",
    "CronJob": "/spec/jobTemplate/spec",
    "JobSet": "/spec/replicatedJobs/0/template/spec",
}
"""JSON pointers of the Job's spec in each kind that has one."""
WRAPPED = (641, 6_700_417)
"""Two factors of 2^32 + 1: Kueue counts such a product as 1."""
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


def _left_workers(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence, at = "keep GPUs after the queue has given them to other work", "/spec/runPolicy/cleanPodPolicy"
    if "MPIJob" not in kinds_of(place):
        yield skipped("kueue-30-mpi", "kueue-30", sentence, "the environment queues no MPIJobs")
        return
    for name, bad, good in (("keeps", "None", "Running"), ("default", ABSENT, "All")):
        manifest = _with_workers(place)
        yield through(scene, place, "kueue-30", name, sentence, "MPIJob", at, bad, good, base=manifest)


def _endless(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Work of operators whose pods never come: the queue counts it until it gives up on it."""
    hold = "hold quota for pods that never come"
    if "JobSet" not in kinds_of(place):
        yield skipped("kueue-32-jobset-endless", "kueue-32", hold, "the environment queues no JobSets")
        return
    job = "/spec/replicatedJobs/0/template/spec"
    manifest = put(put(work(place, "JobSet"), f"{job}/parallelism", 1), f"{job}/completions", 1)
    yield through(scene, place, "kueue-32", "endless", hold, "JobSet", f"{job}/completions", ABSENT, 1, base=manifest)


def _ends(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "start further pods on GPUs that the queue takes for returned"
    for kind, spec in JOB_SPECS.items():
        if kind in kinds_of(place):
            manifest, at = put(work(place, kind), f"{spec}/completions", 5), f"{spec}/parallelism"
            yield through(scene, place, "kueue-28", "parallelism", sentence, kind, at, 40, 5, base=manifest)


def _products(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "have so many pods that the queue counts none"
    for kind in all_kinds(place):
        if kind in ("RayCluster", "RayJob"):
            manifest, group = _with_groups(place, kind, WRAPPED[0])
            at, bad, good = f"{group}/numOfHosts", WRAPPED[1], 2
        elif kind in _COUNTS:
            at, pods_per_part, others = _COUNTS[kind]
            manifest = _with_workers(place) if kind == "MPIJob" else work(place, kind)
            for pointer, value in others.items():
                manifest = put(manifest, pointer, value)
            bad, good = PODS_OF_WORK // pods_per_part + 1, PODS_OF_WORK // pods_per_part
        else:
            continue
        yield through(scene, place, "kueue-29", "pods", sentence, kind, at, bad, good, base=manifest)
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


def _ray(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Pods that KubeRay would create beyond what the queue counts, or keep for longer."""
    more, longer = "have more workers than the queue counts", "keep its GPUs after its end"
    fewer = "have the queue count other workers than there are"
    kinds = [kind for kind in ("RayCluster", "RayJob") if kind in kinds_of(place)]
    for kind in kinds:
        manifest, group = _with_groups(place, kind, 1)
        manifest = put(manifest, f"{group}/maxReplicas", 2)
        yield through(
            scene, place, "kueue-26", "least-workers", more, kind, f"{group}/minReplicas", 2, 1, base=manifest
        )
        manifest, group = _with_groups(place, kind, 3)
        yield through(
            scene, place, "kueue-26", "most-workers", fewer, kind, f"{group}/maxReplicas", 1, 3, base=manifest
        )
    if not kinds:
        yield skipped("kueue-26-ray", "kueue-26", more, "the environment queues no Ray clusters")
    if "RayJob" in kinds:
        at = "/spec/ttlSecondsAfterFinished"
        yield through(scene, place, "kueue-26", "after-its-end", longer, "RayJob", at, 86400, 0)
        policy = {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteNone"}}
        yield through(scene, place, "kueue-26", "for-ever", longer, "RayJob", "/spec/deletionStrategy", policy)


def _pods(place: AttackPlace) -> Object:
    pod = put(place.pod(), "/metadata/annotations", {"note": "hello"})
    return workload("Job", pod)["spec"]["template"]


def _with_workers(place: AttackPlace) -> Object:
    return put(work(place, "MPIJob"), "/spec/mpiReplicaSpecs/Worker", {"replicas": 2, "template": _pods(place)})


def _with_groups(place: AttackPlace, kind: str, replicas: int) -> tuple[Object, str]:
    """A Ray cluster with a group of workers, and the group's JSON pointer."""
    at = f"{'/spec' if kind == 'RayCluster' else '/spec/rayClusterSpec'}/workerGroupSpecs"
    manifest = put(work(place, kind), at, ray_workers(_pods(place)))
    for count in ("replicas", "maxReplicas"):
        manifest = put(manifest, f"{at}/0/{count}", replicas)
    return manifest, f"{at}/0"


# scheduler.go `admit` patches the status with WithLooseOnApply and WithRetryOnConflict. By minCount a Workload may be
# admitted with fewer pods (partial admission).
_admitted_counts = """object.status.admission.podSetAssignments.all(a, !has(a.count)
        || object.spec.podSets.exists(p, p.name == a.name && (a.count == p.count
        || (has(p.minCount) && p.minCount <= a.count && a.count < p.count))))"""

RULES: tuple[Rule, ...] = (
    Rule(
        id="kueue-26",
        title="the queue counts every pod of a Ray cluster for as long as the pod exists",
        why="workers that are not counted, or that outlive the job, run on GPUs that are guaranteed to others",
        fix=(
            "set minReplicas no higher than replicas, and maxReplicas no lower; of a RayJob drop "
            "ttlSecondsAfterFinished, "
            "deletionStrategy and clusterSelector"
        ),
        guards={
            GuardSubject.FRAMEWORKS: _of_frameworks(
                {
                    "RayCluster": _for_all_parts(_OF_CLUSTER, _GROUP),
                    # A RayJob's cluster ends with it, and is its own (rayjob_controller.go).
                    "RayJob": f"""({_in_ray_job(_for_all_parts(_OF_JOB, _GROUP))}
        && (!has({_SPEC}.clusterSelector) || size({_SPEC}.clusterSelector) == 0)
        && (!has({_SPEC}.ttlSecondsAfterFinished) || {_SPEC}.ttlSecondsAfterFinished == 0)
        && !has({_SPEC}.deletionStrategy))""",
                }
            )
        },
        attacks=(in_queue(_ray),),
    ),
    Rule(
        id="kueue-28",
        title="a Job's parallelism is at most its completions, also in a CronJob and in a JobSet",
        why=(
            "Kueue takes each pod that ends for one that returns its GPUs, and of such a Job another pod "
            "starts on them: "
            "its running pods are not counted, and no guarantee reclaims them"
        ),
        fix="set parallelism no higher than completions; that many pods run at most in any case",
        guards={
            GuardSubject.BUILT_IN_WORK: unless_by_controller(f"!({IS_JOB}) || {_ends_as_counted(_JOB)}"),
            GuardSubject.CRON_JOBS: lambda facts: (
                unless_by_controller(_ends_as_counted(_OF_CRON_JOB)) if facts.queued else None
            ),
            GuardSubject.FRAMEWORKS: _of_frameworks(
                {"JobSet": _for_all_parts(_JOBS, _ends_as_counted("p.template.spec"))}
            ),
        },
        attacks=(in_queue(_ends),),
    ),
    Rule(
        id="kueue-29",
        title=f"each part of a piece of work has at most {PODS_OF_WORK:,} pods",
        why=(
            "Kueue multiplies counts of pods in 32 bits: a larger product begins again at 0, and the GPUs of "
            "its pods are "
            "not counted"
        ),
        fix="lower replicas, parallelism, size, numOfHosts or numNodes, or make several pieces of work",
        guards={
            GuardSubject.BUILT_IN_WORK: unless_by_controller(
                f"{IS_JOB} ? {_few(in_parallel(_JOB))} : {_few(_REPLICAS.format(_JOB))}"
            ),
            GuardSubject.CRON_JOBS: lambda facts: (
                unless_by_controller(_few(in_parallel(_OF_CRON_JOB))) if facts.queued else None
            ),
            GuardSubject.FRAMEWORKS: _of_frameworks(
                {
                    "JobSet": _for_all_parts(_JOBS, _few(_REPLICAS.format("p"), in_parallel("p.template.spec"))),
                    "LeaderWorkerSet": f"({_few(_REPLICAS.format(_SPEC), _GROUP_SIZE)})",
                    "MPIJob": f"{_ROLES}.all(r, {_few(_REPLICAS.format(f'{_ROLES}[r]'))})",
                    "RayCluster": _for_all_parts(_OF_CLUSTER, _GROUP_PODS),
                    "RayJob": _in_ray_job(_for_all_parts(_OF_JOB, _GROUP_PODS)),
                    "TrainJob": f"({_few(f'{_SPEC}.?trainer.?numNodes.orValue(1)')})",
                }
            ),
            GuardSubject.SCALES: _scales,
        },
        attacks=(in_queue(_products),),
    ),
    Rule(
        id="kueue-30",
        title="the workers of an MPIJob end with its launcher",
        why=(
            "with the MPI operator's default they keep their GPUs after the launcher has ended, and the queue "
            "gives the "
            "same GPUs to other work"
        ),
        fix="set spec.runPolicy.cleanPodPolicy to Running or All",
        guards={
            # By default the operator leaves workers that run (mpi-operator v0.8.2, `setDefaultsRunPolicy`), and Kueue
            # counts none of them once the launcher has ended (mpijob_controller.go, `Finished`).
            GuardSubject.FRAMEWORKS: _of_frameworks(
                {"MPIJob": f"({_SPEC}.?runPolicy.?cleanPodPolicy.orValue('None') in ['Running', 'All'])"}
            )
        },
        attacks=(in_queue(_left_workers),),
    ),
    Rule(
        id="kueue-35",
        title="an admission of the queue counts the pods that the work has",
        why=(
            "Kueue v0.19.2 writes an admission whether or not the work has changed since it decided: pods that the "
            "owner added in that moment run and are never counted"
        ),
        fix="nothing: Kueue decides again by the new counts",
        guards={GuardSubject.ADMISSIONS: _admitted_counts},
    ),
    Rule(
        id="kueue-32",
        title="each job of a JobSet that says parallelism says completions too, or is NonIndexed",
        why=(
            "the API server refuses an Indexed job without completions: the JobSet holds its quota for pods that never "
            "come"
        ),
        fix="set completions, or completionMode: NonIndexed",
        guards={GuardSubject.FRAMEWORKS: _children},
        attacks=(in_queue(_endless),),
    ),
)
