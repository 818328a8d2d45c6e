"""Common parts of attacks on pods: the kinds of work that contain one, and a case that each kind carries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog.controllers import RUN_TIME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.catalog.vocabulary import Allowance
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation, collection, core
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, escaped, put, skipped, value_at
from tenancy.rules.claim_forms import FORMS, claim
from tenancy.rules.scene import POD_NAME, AttackPlace, Attacks, AttackScene

CLUSTER_ADMIN = Impersonation("verify-cluster-admin", ("system:masters",))
"""An identity with every right of RBAC outside of the platform's group: only guards refuse it."""
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
REQUESTS = "/spec/containers/0/resources/requests"
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


def kinds_of(place: AttackPlace, kinds: Sequence[str] = ALL_KINDS) -> list[str]:
    """Kinds to attack through: with all of Kubernetes' own, those of other operators that the environment queues."""
    framework_kinds = [f.kind for f in place.frameworks if f.kind in _OTHERS] if kinds == ALL_KINDS else []
    return [*kinds, *framework_kinds]


def attack_of(
    scene: AttackScene, place: AttackPlace, case: Case, kind: str, denier: str = "", suffix: str = ""
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


Cases = Callable[[AttackScene, AttackPlace], Iterator[Case]]
"""Cases of pods in a namespace."""


def through_all_kinds(cases: Cases) -> Attacks:
    """The cases in the scene's home, each through its kinds; where these are all, through those of controllers too."""

    def attacks(scene: AttackScene) -> Iterator[Attack]:
        if home := scene.home:
            for case in cases(scene, home):
                by_controllers = BY_CONTROLLERS if case.kinds == ALL_KINDS else ()
                for kind in (*kinds_of(home, case.kinds), *by_controllers):
                    yield attack_of(scene, home, case, kind)

    return attacks


def in_each_namespace(cases: Cases) -> Attacks:
    """The cases through pods, in each namespace with people who may make them."""

    def attacks(scene: AttackScene) -> Iterator[Attack]:
        for place in scene.staffed:
            for case in cases(scene, place):
                yield attack_of(scene, place, case, "Pod", suffix=f"@{place.name}")

    return attacks


def at_home(attacks_at: Callable[[AttackScene, AttackPlace], Iterator[Attack]]) -> Attacks:
    """Attacks in the scene's home, where there is one."""

    def attacks(scene: AttackScene) -> Iterator[Attack]:
        if home := scene.home:
            yield from attacks_at(scene, home)

    return attacks


def in_queue(attacks_at: Callable[[AttackScene, AttackPlace], Iterator[Attack]]) -> Attacks:
    """Attacks in the scene's home, where there is one and a queue."""

    def attacks(scene: AttackScene) -> Iterator[Attack]:
        if (home := scene.home) and home.environment.has_queues:
            yield from attacks_at(scene, home)

    return attacks


TRAIN_JOB = "TrainJob"


def minimal(kind: str, api_version: str = "v1", **fields: Any) -> Object:
    """An object of a kind, with the name of every object that attacks ask for."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": POD_NAME}, **fields}


def create(
    scene: AttackScene,
    place: AttackPlace,
    rule: str,
    name: str,
    sentence: str,
    twin: Object,
    at: str,
    bad: Any,
    who: Impersonation | None = None,
) -> Attack:
    """An object of the core group with `bad` at the JSON pointer; its twin is the object itself."""
    plural = twin["kind"].lower() + "s"
    request = Request("POST", core(place.name, plural), put(twin, at, bad), who or place.developer)
    slug = f"{rule}-{plural.removesuffix('s')}-{name}"
    return attack(slug, rule, sentence, scene.guard(rule, plural), request, twin_body=twin)


def withheld(
    scene: AttackScene,
    rule: str,
    sentence: str,
    allowance: Allowance,
    at: str,
    bad: Any,
    of_good: Callable[[Any], Any] | None = None,
) -> Iterator[Attack]:
    """A field that an allowance lets pods leave out, in the first namespace that lacks it; `of_good` makes what is bad
    of what is there."""
    place = next((place for place in scene.staffed if allowance not in place.allowances), None)
    if place is None:
        yield skipped(f"{rule}-{allowance}", rule, sentence, f"every namespace has {allowance}")
        return
    good = value_at(place.pod(), at)
    for kind in kinds_of(place):
        case = Case(rule, allowance.value, sentence, at, of_good(good) if of_good else bad, good)
        yield attack_of(scene, place, case, kind)


# Work that queues


def work(place: AttackPlace, kind: str) -> Object:
    """Work that is admitted; its pods' metadata is left to the attacks."""
    if kind != TRAIN_JOB:
        return workload(kind, place.pod())
    labels = place.pod()["metadata"].get("labels") or {}
    timed = {"labels": {RUN_TIME: labels[RUN_TIME]}} if RUN_TIME in labels else {}
    return {
        "apiVersion": of_api(kind),
        "kind": kind,
        "metadata": {"name": POD_NAME, **timed},
        "spec": {"runtimeRef": {"name": place.training_runtime}},
    }


def all_kinds(place: AttackPlace) -> list[str]:
    """Kinds that the environment queues, also those without a pod template."""
    others = [f.kind for f in place.frameworks if f.kind != TRAIN_JOB or place.training_runtime]
    return list(dict.fromkeys([*kinds_of(place), *others]))


def through(
    scene: AttackScene,
    place: AttackPlace,
    rule: str,
    name: str,
    sentence: str,
    kind: str,
    at: str,
    bad: Any,
    good: Any = ABSENT,
    suffix: str = "",
    base: Object | None = None,
) -> Attack:
    """Work of a kind with `bad` at the JSON pointer into the object; its twin has `good` there."""
    workload_body = base or work(place, kind)
    path = collection(of_api(kind), kind, place.name)
    return attack(
        f"{rule}-{kind.lower()}-{name}{suffix}",
        rule,
        sentence if kind == "Pod" else f"through a {kind}: {sentence}",
        scene.guard(rule, path.rpartition("/")[2]),
        Request("POST", path, put(workload_body, at, bad), place.developer),
        twin_body=put(workload_body, at, good),
    )


def ray_workers(template: Object) -> list[Object]:
    """The groups of a Ray cluster with one group of one worker."""
    counts = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), 1)
    return [{"groupName": "workers", **counts, "rayStartParams": {}, "template": template}]


def objects_beside_work(place: AttackPlace) -> Iterator[Object]:
    """A minimal object of each kind that tenants write beside work."""
    own_pods = {"matchLabels": {"app": "x"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    yield minimal("ConfigMap", data={"note": "hello"})
    yield minimal("Secret", data={"note": "YWFh"})
    yield minimal("ServiceAccount")
    yield minimal("Service", spec={"selector": {"app": "x"}, "ports": [{"port": 80}]})
    yield minimal("PersistentVolumeClaim", spec={**storage, "storageClassName": place.environment.claim_classes[0]})
    yield minimal("PodDisruptionBudget", "policy/v1", spec={"selector": own_pods, "maxUnavailable": 1})
    if place.developer == place.without_grant:
        yield minimal("HorizontalPodAutoscaler", "autoscaling/v2", spec={"scaleTargetRef": target, "maxReplicas": 2})
    inside = {"podSelector": own_pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own_pods}]}]}
    yield minimal("NetworkPolicy", "networking.k8s.io/v1", spec=inside)
    if place.environment.uses_device_claims and (flavor := next(iter(place.usable_gpus), None)):
        for plural in FORMS:
            yield claim(flavor, plural=plural)


# Requests whose policy is named, where several judge one rule


def policy_of(place: AttackPlace, kind: str) -> str:
    """The guard of the templates of a kind."""
    if kind in {framework.kind for framework in place.frameworks}:
        return "tenancy-frameworks"
    return {"CronJob": "tenancy-cronjobs", "Pod": "tenancy-pods"}.get(kind, "tenancy-templates")


def against(
    place: AttackPlace, rule: str, name: str, sentence: str, policy: str, twin: Object, at: str, bad: Any
) -> Attack:
    """An object with `bad` at the JSON pointer, which a guard refuses; its twin is the object itself."""
    kind = twin["kind"]
    direct = kind in {"Pod", "ConfigMap", "Secret", "PersistentVolumeClaim"}
    request = Request("POST", collection(twin["apiVersion"], kind, place.name), put(twin, at, bad), place.developer)
    text = sentence if direct else f"through a {kind}: {sentence}"
    return attack(f"{rule}-{kind.lower()}-{name}", rule, text, deniers.guard(policy, rule), request, twin_body=twin)


def pointers(value: Any, key: str, at: str = "") -> Iterator[str]:
    """JSON pointers of a key in a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        where = f"{at}/{escaped(str(name))}"
        if name == key:
            yield where
        yield from pointers(part, key, where)


DISK: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
"""Spec of a claim, without its class."""


def claims_of_pods(place: AttackPlace) -> Iterator[tuple[str, Object, str]]:
    """Work that makes claims: a name, the work, and the JSON pointer of the claim's template in it."""
    classed = {**DISK, "storageClassName": place.environment.claim_classes[0]}
    claim: Object = {"metadata": {"annotations": {"note": "hello"}}, "spec": classed}
    named_claim = {**claim, "metadata": {"name": "data", **claim["metadata"]}}
    at = "/spec/volumeClaimTemplates"
    yield "claim", put(workload("StatefulSet", place.pod()), at, [named_claim]), f"{at}/0"
    pod = put(place.pod(), "/spec/volumes", [{"name": "data", "ephemeral": {"volumeClaimTemplate": claim}}])
    for kind in kinds_of(place):
        workload_body = workload(kind, pod)
        yield "ephemeral", workload_body, next(pointers(workload_body, "volumeClaimTemplate"))


SECOND_TEMPLATES: Sequence[tuple[str, str, Callable[[Object], Any], str]] = (
    (
        "JobSet",
        "/spec/replicatedJobs",
        lambda pods: [{"name": name, "template": {"spec": {"template": copy.deepcopy(pods)}}} for name in ("w", "x")],
        "/1/template/spec/template",
    ),
    ("LeaderWorkerSet", "/spec/leaderWorkerTemplate/leaderTemplate", lambda pods: pods, ""),
    ("MPIJob", "/spec/mpiReplicaSpecs/Worker", lambda pods: {"replicas": 1, "template": pods}, "/template"),
    ("RayCluster", "/spec/workerGroupSpecs", ray_workers, "/0/template"),
    ("RayJob", "/spec/rayClusterSpec/workerGroupSpecs", ray_workers, "/0/template"),
    ("RayJob", "/spec/submitterPodTemplate", lambda pods: pods, ""),
)
"""Kinds with a second pod template: its JSON pointer, the value to put there, and the template's pointer in that."""


def in_second_templates(
    scene: AttackScene, place: AttackPlace, rule: str, field: str, bad: Any, good: Any
) -> Iterator[Attack]:
    """Rules on the first pod template apply to the others too."""
    hidden = "hide the breach in one of several templates"
    pods = put(workload("Job", place.pod())["spec"]["template"], "/metadata/annotations", {"note": "hello"})
    for kind, at, wrap, suffix in SECOND_TEMPLATES:
        if kind in kinds_of(place):
            workload_body, slug = put(work(place, kind), at, wrap(pods)), f"in-{at.rpartition('/')[2].lower()}"
            yield through(scene, place, rule, slug, hidden, kind, f"{at}{suffix}{field}", bad, good, base=workload_body)
