"""What is common to attacks on pods: the kinds of work that contain one, and a case that each kind carries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog.controllers import RUN_TIME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.kube.objects import Object
from tenancy.live.api import collection
from tenancy.planning.guards.facts import frameworks
from tenancy.prove.attacks.model import ABSENT, Attack, Request, attack, put
from tenancy.prove.attacks.objects import CLUSTER_ADMIN
from tenancy.prove.attacks.scene import AttackedNamespace, Scene

ALL_KINDS = ("Pod", "Job", "CronJob", "Deployment", "StatefulSet")
"""Kinds that every cluster has; where others are queued, what goes through all of these goes through them too."""
BY_CONTROLLERS = ("ReplicaSet", "DaemonSet", "ReplicationController")
"""Kinds with a template that no tenant may write: requested by a cluster admin."""
_API = {
    "Pod": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
    **{framework.kind: f"{framework.group}/{framework.version}" for framework in FRAMEWORKS.values()},
}
FOREIGN_IMAGE = "docker.io/attacker/miner:1"
ENV = "/spec/containers/0/env"
INIT = "/spec/initContainers"
LIMITS = "/spec/containers/0/resources/limits"
SECURITY = "/spec/containers/0/securityContext"
RUNTIME = "/spec/runtimeClassName"
FINALIZERS = "/metadata/finalizers"
TOKEN = "/spec/volumes/0/projected/sources/0/serviceAccountToken"
ANTI_AFFINITY = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Case:
    """A pod with `bad` at the pointer `at`; its twin has `good` there. `base` is what both have beside that."""

    rule: str
    name: str
    attack: str
    at: str
    bad: Any
    good: Any = ABSENT
    base: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = ("Pod",)
    gpus: Mapping[str, int] = field(default_factory=dict)


def workload(kind: str, pod: Object) -> Object:
    """An object of that kind whose pods are like `pod`."""
    if kind == "Pod":
        return pod
    name = pod["metadata"]["name"]
    labels = {"app.kubernetes.io/name": name}
    meta = copy.deepcopy(pod["metadata"])
    del meta["name"]
    meta["labels"] = {**meta.get("labels", {}), **labels}
    # The queued object carries the maximum run time, not its pod template.
    run_time = meta["labels"].pop(RUN_TIME, None)
    of_work = {"labels": {RUN_TIME: run_time}} if run_time else {}
    template = {"metadata": meta, "spec": copy.deepcopy(pod["spec"])}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec, "metadata": of_work}}
    elif kind in ("Deployment", "StatefulSet", *BY_CONTROLLERS):
        template["spec"]["restartPolicy"] = "Always"
        spec["selector"] = labels if kind == "ReplicationController" else {"matchLabels": labels}
        if kind == "StatefulSet":
            spec["serviceName"] = name
    elif kind in _OTHERS:
        spec = _OTHERS[kind](template)
    of_work = of_work if kind in ENDING and kind != "CronJob" else {}
    metadata = {"name": name, **of_work}
    return {"apiVersion": of_api(kind), "kind": kind, "metadata": metadata, "spec": spec}


ENDING = ("Pod", "Job", "CronJob", "JobSet", "MPIJob", "RayCluster", "RayJob", "TrainJob")
"""Kinds whose maximum run time the queue enforces."""


def _ray_cluster(template: Object) -> Object:
    return {"headGroupSpec": {"rayStartParams": {}, "template": template}}


_OTHERS: Mapping[str, Callable[[Object], Object]] = {
    "JobSet": lambda template: {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": template}}}]},
    # Kueue's webhook writes an empty strategy where there is none, which the schema then refuses.
    "LeaderWorkerSet": lambda template: {
        "leaderWorkerTemplate": {"size": 1, "workerTemplate": template},
        "rolloutStrategy": {"type": "RollingUpdate"},
    },
    "MPIJob": lambda template: {
        "runPolicy": {"cleanPodPolicy": "Running"},
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template}},
    },
    "RayCluster": _ray_cluster,
    "RayJob": lambda template: {
        "entrypoint": "true",
        "shutdownAfterJobFinishes": True,
        # In its default mode it has one more pod, of which it would have to hold a template.
        "submissionMode": "HTTPMode",
        "rayClusterSpec": _ray_cluster(template),
    },
}
"""A minimal spec of each kind of other operators that has pod templates."""


def of_api(kind: str) -> str:
    """API version of a kind."""
    return _API.get(kind, "apps/v1")


def kinds_of(place: AttackedNamespace, kinds: Sequence[str] = ALL_KINDS) -> list[str]:
    """Kinds to attack through: with all of Kubernetes' own, those of other operators that the environment queues."""
    found = [f.kind for f in frameworks(place.environment) if f.kind in _OTHERS] if kinds == ALL_KINDS else []
    return [*kinds, *found]


def attack_of(
    scene: Scene, place: AttackedNamespace, case: Case, kind: str, denier: str = "", suffix: str = ""
) -> Attack:
    """The attack of a case through objects of a kind; the expected denier is `denier`, by default the rule's guard."""
    pod = place.pod(case.gpus)
    for pointer, value in case.base.items():
        pod = put(pod, pointer, value)
    bad, good = (workload(kind, put(pod, case.at, value)) for value in (case.bad, case.good))
    path = collection(of_api(kind), kind, place.name)
    return attack(
        f"{case.rule}-{kind.lower()}-{case.name}{suffix}",
        case.rule,
        case.attack if kind == "Pod" else f"through a {kind}: {case.attack}",
        denier or scene.guard(case.rule, path.rpartition("/")[2]),
        Request("POST", path, bad, CLUSTER_ADMIN if kind in BY_CONTROLLERS else place.developer),
        twin_body=good,
    )
