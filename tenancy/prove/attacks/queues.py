"""Attacks on the queue: work that bypasses it, is undercounted by it, or uses another tenant's quota."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.catalog.controllers import DOMAIN, HELD, PLACED, QUEUE, RUN_TIME, URGENCY
from tenancy.kube import quantities
from tenancy.kube.objects import Object
from tenancy.live import denial
from tenancy.live.api import Impersonation, collection
from tenancy.planning.common.priorities import allowed_classes, class_name
from tenancy.planning.guards.facts import frameworks
from tenancy.planning.kubernetes.namespaces import queue_notes
from tenancy.planning.queueing.queue_names import API, queue_name
from tenancy.prove.attacks.model import ABSENT, MERGE, Attack, Request, attack, escaped, group, put, skipped
from tenancy.prove.attacks.objects import CLUSTER_ADMIN
from tenancy.prove.attacks.scene import POD_NAME, AttackedNamespace, Scene
from tenancy.prove.attacks.workloads import ENDING, FOREIGN_IMAGE, LIMITS, Case, attack_of, kinds_of, of_api, workload
from tenancy.schema.people import Role
from tenancy.schema.tenant import PodSecurity

TRAIN_JOB = "TrainJob"
GATES = "/spec/schedulingGates"
REQUESTS = "/spec/containers/0/resources/requests"
GONE = f"{POD_NAME}-not-there"
OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "kube-root-ca.crt",
    "uid": "0b1c0000-0000-4000-8000-000000000000",
}
"""An owner of a kind that Kueue does not know: Kueue queues its children as work of their own, with or without the
guard."""

OF_CRONJOB = {"apiVersion": "batch/v1", "kind": "CronJob", "name": GONE, "uid": OWNER["uid"], "controller": True}
"""What `kubectl create job --from` writes."""

NOTES: dict[str, tuple[str, str, str, Sequence[str]]] = {
    "prebuilt": ("run under the quota reserved for other work", "labels", "prebuilt-workload-name", ()),
    "prebuilt-note": (
        "run under the quota reserved for other work, by annotation",
        "annotations",
        "prebuilt-workload-name",
        ("Pod", "Job"),
    ),
    "origin": ("be taken for work of another cluster, which is not counted here", "labels", "multikueue-origin", ()),
    "group": ("be counted like a smaller pod of its group", "labels", "pod-group-name", ("Pod",)),
    "group-note": (
        "be counted like a smaller pod of its group, by annotation",
        "annotations",
        "pod-group-name",
        ("Pod",),
    ),
    "group-size": ("choose the size of its pod group", "annotations", "pod-group-total-count", ("Pod",)),
    "group-fast": ("be admitted before its group is complete", "annotations", "pod-group-fast-admission", ("Pod",)),
    "parent": ("be taken for a part of other work", "annotations", "pod-suspending-parent", ("Pod",)),
    "podset": ("be taken for a part of other work by label", "labels", "podset", ("Pod", "Job")),
    "workload": ("take another pod's topology assignment", "annotations", "workload", ("Pod", "Job")),
    "elastic": ("grow while it runs", "annotations", "elastic-job", ("Job",)),
    "stopping": ("keep the queue from evicting it", "annotations", "stopping", ("Job",)),
    "force": ("have its pods counted as terminated", "annotations", "safe-to-forcefully-delete", ("Pod",)),
}
"""Labels and annotations of Kueue's own, set by the creator of the work; without kinds: through all of them."""


def ray_workers(template: Object) -> list[Object]:
    """The groups of a Ray cluster with one group of one worker."""
    counts = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), 1)
    return [{"groupName": "workers", **counts, "rayStartParams": {}, "template": template}]


BESIDE: Sequence[tuple[str, str, Callable[[Object], Any], str]] = (
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


def queue_attacks(scene: Scene) -> Iterator[Attack]:
    """Attacks on the rules that keep work in its queue."""
    home, sentence = scene.home, "start work without the queue"
    if home is None:
        yield skipped("queues", "kueue-01", sentence, "no tenant has a developer or an owner")
        return
    if not home.environment.queued:
        yield skipped("queues", "kueue-01", sentence, "the environment has no queue")
        return
    yield from _names(scene, home)
    yield from _owners(scene, home)
    yield from _gates(scene, home)
    yield from _suspension(scene, home)
    yield from _urgency(scene, home)
    yield from _notes(scene, home)
    yield from _run_time(scene)
    yield from _beside(scene, home)
    yield from _ray(scene, home)
    yield from _runtimes(scene)
    yield from _limits(scene, home)
    yield from _alike(scene, home)
    for one, other in scene.pairs():
        yield from _shares(scene, one, other)
    yield from _rights(home)
    missing = {f.kind for f in frameworks(home.environment)} - {*all_kinds(home)}
    for kind in sorted(missing):
        absent = any(each.kind == kind for each in scene.unserved)
        reason = (
            f"the cluster serves no {kind}: its operator is missing"
            if absent
            else "the cluster has no ClusterTrainingRuntime: Kueue refuses every one"
        )
        yield skipped(f"kueue-{kind.lower()}", "kueue-01", f"through a {kind}: {sentence}", reason)
    if unread := [f.kind for f in frameworks(home.environment) if f.kind not in kinds_of(home)]:
        reason = f"{', '.join(unread)} has no pod template of its own: guards judge its pods instead"
        yield skipped("kueue-template", "quota-04", "hide a pod in a template", reason)


def of_work(kind: str) -> str:
    """JSON pointer of the metadata of the queued object."""
    return "/spec/jobTemplate/metadata" if kind == "CronJob" else "/metadata"


def work(place: AttackedNamespace, kind: str) -> Object:
    """Work that is admitted; its pods' metadata is left to the attacks."""
    if kind == TRAIN_JOB:
        name = {"name": POD_NAME, **({"labels": labels} if (labels := _timed(place)) else {})}
        return {
            "apiVersion": of_api(kind),
            "kind": kind,
            "metadata": name,
            "spec": {"runtimeRef": {"name": place.training_runtime}},
        }
    return workload(kind, place.pod())


def _timed(place: AttackedNamespace) -> dict[str, str]:
    labels = place.pod()["metadata"].get("labels") or {}
    return {RUN_TIME: labels[RUN_TIME]} if RUN_TIME in labels else {}


def all_kinds(place: AttackedNamespace) -> list[str]:
    """Kinds that the environment queues, also those without a pod template."""
    others = [f.kind for f in frameworks(place.environment) if f.kind != TRAIN_JOB or place.training_runtime]
    return list(dict.fromkeys([*kinds_of(place), *others]))


def through(
    scene: Scene,
    place: AttackedNamespace,
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
    made = base or work(place, kind)
    path = collection(of_api(kind), kind, place.name)
    return attack(
        f"{rule}-{kind.lower()}-{name}{suffix}",
        rule,
        sentence if kind == "Pod" else f"through a {kind}: {sentence}",
        scene.guard(rule, path.rpartition("/")[2]),
        Request("POST", path, put(made, at, bad), place.developer),
        twin_body=put(made, at, good),
    )


def _label(kind: str, key: str, field: str = "labels") -> str:
    return f"{of_work(kind)}/{field}/{escaped(key)}"


def _labelled(place: AttackedNamespace, kind: str, field: str = "labels") -> Object:
    """Work with an unrelated label or annotation, so that the twin differs in one key."""
    return put(work(place, kind), _label(kind, "note", field), "hello")


def _names(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "use a queue that is not its namespace's"
    for kind in all_kinds(place):
        at, mine = _label(kind, QUEUE), words.DEFAULT_QUEUE
        yield through(scene, place, "kueue-01", "queue", sentence, kind, at, "another-tenants", mine)
    for name in (f"{words.DEFAULT_QUEUE}-2", words.DEFAULT_QUEUE[:-1], "a" * 63):
        at = _label("Pod", QUEUE)
        yield through(scene, place, "kueue-01", f"like-{name}", sentence, "Pod", at, name, words.DEFAULT_QUEUE)
    hidden = f"{sentence}, by its template"
    at = f"/metadata/labels/{escaped(QUEUE)}"
    case = Case("kueue-01", "template", hidden, at, "another-tenants", words.DEFAULT_QUEUE)
    for kind in ("Job", "CronJob", "StatefulSet"):
        yield attack_of(scene, place, case, kind)


def _owners(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "be taken for a part of work that runs"
    for kind in all_kinds(place):
        made = put(work(place, kind), "/metadata/ownerReferences", [{**OWNER, "controller": False}])
        at = "/metadata/ownerReferences/0/controller"
        yield through(scene, place, "kueue-02", "owner", sentence, kind, at, True, False, base=made)
    made, at = put(work(place, "Job"), "/metadata/ownerReferences", [OF_CRONJOB]), "/metadata/ownerReferences/0/kind"
    yield through(scene, place, "kueue-02", "owner-kind", sentence, "Job", at, "ReplicaSet", "CronJob", base=made)
    reason = "only running work can be enlarged, and the attacks create nothing"
    yield skipped("kueue-27-parallelism", "kueue-27", "run more pods than the queue has counted", reason)
    reason = "only existing work can be deleted, and the attacks create nothing"
    yield skipped("kueue-25-orphan", "kueue-25", "leave running pods that no queue counts", reason)


def _gates(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    hold, own = "reserve GPUs for pods that never start", [{"name": "bank.example/wait"}]
    for kind in kinds_of(place):
        yield attack_of(scene, place, Case("kueue-03", "own", hold, GATES, own), kind)
    forged = "put the queue's own gate into a template"
    for kind in ("Job", "CronJob", "Deployment"):
        yield attack_of(scene, place, Case("kueue-03", "queues", forged, GATES, [{"name": HELD}]), kind)
    placed = "wait for a topology assignment that the queue never makes"
    for kind in (kind for kind in kinds_of(place) if kind != "Pod"):
        yield attack_of(scene, place, Case("kueue-03", "placed", placed, GATES, [{"name": PLACED}]), kind)
    elastic = [{"name": f"{DOMAIN}elastic-job"}]
    yield attack_of(scene, place, Case("kueue-03", "elastic", hold, GATES, elastic), "Pod")


def _suspension(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    sentence, other = "be managed by a controller that the queue does not know", f"{DOMAIN}multikueue"
    where = {
        "Job": "/spec/managedBy",
        "CronJob": "/spec/jobTemplate/spec/managedBy",
        "MPIJob": "/spec/runPolicy/managedBy",
        **dict.fromkeys(("JobSet", "RayCluster", "RayJob", "TrainJob"), "/spec/managedBy"),
    }
    for kind in all_kinds(place):
        if kind in where:
            yield through(scene, place, "kueue-04", "managed-by", sentence, kind, where[kind], other)
    reason = "only existing work can be unsuspended, and the attacks create nothing; Kueue suspends new work by itself"
    yield skipped("kueue-04-unsuspend", "kueue-04", "start suspended work without the queue", reason)


def _urgency(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    jump = "go first in the queue"
    mine = allowed_classes(place.environment, place.tenant.tier_of(place.namespace))[-1]
    for kind in all_kinds(place):
        at = _label(kind, URGENCY)
        yield through(scene, place, "kueue-06", "unknown", jump, kind, at, "tenancy-tier-unknown", mine)
    case = Case(
        "kueue-06", "template", f"{jump}, by its template", f"/metadata/labels/{escaped(URGENCY)}", "system", mine
    )
    for kind in ("Job", "CronJob", "Deployment", "StatefulSet"):
        yield attack_of(scene, place, case, kind)
    for there in scene.manned:
        allowed = allowed_classes(there.environment, there.tenant.tier_of(there.namespace))
        for name in sorted({class_name(tier) for tier in there.environment.tiers} - set(allowed)):
            sentence, at = f"{jump} with {name}", _label("Pod", URGENCY)
            yield through(scene, there, "kueue-06", name, sentence, "Pod", at, name, allowed[-1], f"@{there.name}")


def _notes(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    for slug, (sentence, field, name, kinds) in NOTES.items():
        for kind in kinds or all_kinds(place):
            at, made = _label(kind, DOMAIN + name, field), _in_queue(kind, _labelled(place, kind, field))
            yield through(scene, place, "kueue-08", slug, sentence, kind, at, "1", base=made)
    if "JobSet" in kinds_of(place):
        at = "/spec/replicatedJobs/0/template/metadata/labels"
        made = put(work(place, "JobSet"), at, {"note": "hello"})
        at, sentence = f"{at}/{escaped(DOMAIN + 'prebuilt-workload-name')}", "have its jobs use other work's quota"
        yield through(scene, place, "kueue-08", "of-its-jobs", sentence, "JobSet", at, "1", base=made)
    at = _label("Pod", "provreq.kueue.x-k8s.io/ValidUntilSeconds", "annotations")
    tell = "set for how long the autoscaler reserves nodes for it"
    made = _labelled(place, "Pod", "annotations")
    yield through(scene, place, "kueue-08", "provisioning", tell, "Pod", at, "604800", base=made)
    note = {"/metadata/annotations": {"note": "hello"}}
    at = f"/metadata/annotations/{escaped(DOMAIN + 'role-hash')}"
    alike = Case("kueue-08", "role-hash", "have its pods counted as if they were smaller", at, "abcd1234", base=note)
    for kind in kinds_of(place):
        # On a single pod Kueue writes the hash: without a group it has no effect.
        if kind != "Pod":
            yield attack_of(scene, place, alike, kind)
    at = f"/metadata/annotations/{escaped(DOMAIN + 'pod-suspending-parent')}"
    parent = "leaderworkerset.x-k8s.io/leaderworkerset"
    escape = "be taken for a part of another controller's work"
    for kind in ("Job", "CronJob", "StatefulSet"):
        pod = put(place.pod(), "/metadata/annotations", note["/metadata/annotations"])
        made = _in_queue(kind, workload(kind, pod))
        at = ("/spec/jobTemplate" if kind == "CronJob" else "") + "/spec/template/metadata/annotations/"
        at += escaped(DOMAIN + "pod-suspending-parent")
        yield through(scene, place, "kueue-08", "other-parent", escape, kind, at, parent, base=made)


def _in_queue(kind: str, made: Object) -> Object:
    """Work with the queue's label, which Kueue does not add to what it takes for a part of other work."""
    return put(made, _label(kind, QUEUE), words.DEFAULT_QUEUE)


def _run_time(scene: Scene) -> Iterator[Attack]:
    sentence = "run for longer than its tier allows"
    timed = [(place, int(most)) for place in scene.manned if (most := _most_seconds(place))]
    if not timed:
        yield skipped("kueue-10", "kueue-10", sentence, "no namespace with a developer is of a tier with max-run-time")
    for place, most in timed:
        suffix = f"@{place.name}"
        for kind in all_kinds(place) if place is timed[0][0] else ("Pod", "Job"):
            if kind in ENDING:
                at = _label(kind, RUN_TIME)
                yield through(
                    scene, place, "kueue-10", "too-long", sentence, kind, at, str(most + 1), str(most), suffix
                )
                if kind == "Job":
                    made = put(work(place, kind), "/metadata/ownerReferences", [OF_CRONJOB])
                    slug, for_it = "of-cronjob", f"{sentence}, as a part of a CronJob"
                    yield through(
                        scene, place, "kueue-10", slug, for_it, kind, at, str(most + 1), str(most), suffix, made
                    )
                made = put(_labelled(place, kind), at, ABSENT)
                silent = f"{sentence}: it names no maximum run time"
                yield through(scene, place, "kueue-10", "silent", silent, kind, at, ABSENT, "60", suffix, made)


def _most_seconds(place: AttackedNamespace) -> str:
    return queue_notes(place.environment, place.tenant, place.namespace).get(words.MAX_RUN_SECONDS, "")


def _beside(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Rules on the first pod template apply to the others too."""
    hidden = "hide the breach in one of several templates"
    note = {"note": "hello"}
    pods = put(workload("Job", place.pod())["spec"]["template"], "/metadata/annotations", note)
    for kind, at, beside, below in BESIDE:
        if kind in kinds_of(place):
            made, slug = put(work(place, kind), at, beside(pods)), f"in-{at.rpartition('/')[2].lower()}"
            for rule, field, bad, good in (
                ("img-01", "/spec/containers/0/image", FOREIGN_IMAGE, place.environment.images.sample),
                ("kueue-03", GATES, [{"name": "bank.example/wait"}], ABSENT),
                ("kueue-08", f"/metadata/annotations/{escaped(DOMAIN + 'role-hash')}", "abcd1234", ABSENT),
            ):
                yield through(scene, place, rule, slug, hidden, kind, f"{at}{below}{field}", bad, good, base=made)


def _runtimes(scene: Scene) -> Iterator[Attack]:
    """A TrainJob has no pod template: its GPUs are in its runtime or in its own fields."""
    place = next((p for p in scene.manned if p.tenant.gpu_users and p.developer != p.without_grant), None)
    if place and TRAIN_JOB in all_kinds(place):
        path = collection(of_api(TRAIN_JOB), TRAIN_JOB, place.name)
        sentence, guard = "train on GPUs without a grant", scene.guard("gpu-10", "trainjobs")
        request = Request("POST", path, work(place, TRAIN_JOB), place.without_grant)
        yield attack("gpu-10-trainjob-not-granted", "gpu-10", sentence, guard, request, twin_who=place.developer)
    home = scene.home
    if home and TRAIN_JOB in all_kinds(home):
        yield from _runtime_patches(scene, home)


def _runtime_patches(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Patches of a TrainJob's runtime that make pods which Pod Security refuses; the twins keep to its level."""
    sentence, patch = "hold GPUs for pods that Pod Security refuses", "/spec/runtimePatches/0/trainingRuntimeSpec"
    pods = f"{patch}/template/spec/replicatedJobs/0/template/spec/template/spec"
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    named = {"name": "node", "template": {"spec": {"template": {"spec": {"volumes": [], "containers": []}}}}}
    made = put(
        work(place, TRAIN_JOB),
        "/spec/runtimePatches",
        [
            {
                "manager": "bank.example/developer",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [named]}}},
            }
        ],
    )
    container = {"name": "node", "securityContext": secure}
    node = {"name": "node", "hostPath": {"path": "/"}}
    for name, field, bad, good in (
        ("volume-of-the-node", "/volumes", [node], []),
        ("privileged", "/containers", [put(container, "/securityContext/privileged", True)], [container]),
        ("capability", "/initContainers", [put(container, "/securityContext/capabilities/add", ["BPF"])], [container]),
        ("keeps-capabilities", "/containers", [put(container, "/securityContext/capabilities/drop", [])], [container]),
        ("root", "/securityContext", {"runAsNonRoot": False}, {"runAsNonRoot": True}),
    ):
        if name in _AT_ANY_LEVEL or place.namespace.pod_security is PodSecurity.RESTRICTED:
            yield through(scene, place, "pod-04", name, sentence, TRAIN_JOB, f"{pods}{field}", bad, good, base=made)


_AT_ANY_LEVEL = ("volume-of-the-node", "privileged")
"""What the baseline level refuses too."""


def _ray(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Ingresses that KubeRay would create, and submitters that Pod Security refuses."""
    for kind, spec in (("RayCluster", "/spec"), ("RayJob", "/spec/rayClusterSpec")):
        if kind in kinds_of(place):
            at, sentence = f"{spec}/headGroupSpec/enableIngress", "publish its dashboard by an ingress"
            yield through(scene, place, "net-01", "ingress", sentence, kind, at, True, False)
    if "RayJob" in kinds_of(place) and place.namespace.pod_security is PodSecurity.RESTRICTED:
        idle, at = "hold GPUs for a job whose submitter never starts", "/spec/submissionMode"
        for mode in ("K8sJobMode", "SidecarMode"):
            yield through(scene, place, "pod-04", mode.lower(), idle, "RayJob", at, mode, "HTTPMode")


def _limits(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    default = place.environment.tiers[place.tenant.tier_of(place.namespace)].container.default
    sentence = "block its queue with work that can never start"
    if "cpu" not in default:
        reason = "its tier has no default limit of cpu"
        yield skipped("quota-04-job-limit", "quota-04", sentence, reason)
        return
    more = quantities.write(quantities.parse(default["cpu"]) + 1)
    case = Case("quota-04", "limit", sentence, f"{LIMITS}/cpu", ABSENT, more, {f"{REQUESTS}/cpu": more})
    for kind in kinds_of(place):
        # A pod's limit gets its default before it is judged; the API server then compares request and limit.
        if kind != "Pod":
            yield attack_of(scene, place, case, kind)


def local_queue(leads_to: str) -> Object:
    """A LocalQueue that leads to a ClusterQueue."""
    spec = {"clusterQueue": leads_to}
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": POD_NAME}, "spec": spec}


def leading(scene: Scene, place: AttackedNamespace, leads_to: str, slug: str) -> Attack:
    """A LocalQueue of another ClusterQueue, created by a cluster admin; its twin names the namespace's ClusterQueue."""
    own = local_queue(queue_name(place.tenant.tenant, place.tenant.tier_of(place.namespace)))
    queues, guard = group(API, place.name, "localqueues"), scene.guard("kueue-05", "localqueues")
    request = Request("POST", queues, put(own, "/spec/clusterQueue", leads_to), CLUSTER_ADMIN)
    text = f"create a queue in {place.name} that uses the quota of {leads_to}"
    return attack(f"kueue-05-localqueue-{slug}@{place.name}", "kueue-05", text, guard, request, twin_body=own)


def _alike(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    """Queues of tenants whose names begin like this one's, and that need not exist."""
    tenant, tier = place.tenant.tenant, place.tenant.tier_of(place.namespace)
    yield leading(scene, place, queue_name(f"{tenant}-2", tier), "like")
    yield leading(scene, place, queue_name(f"{tenant}x", tier), "longer")


def _shares(scene: Scene, one: AttackedNamespace, other: AttackedNamespace) -> Iterator[Attack]:
    tenant = one.tenant.tenant
    theirs = queue_name(other.tenant.tenant, other.tenant.tier_of(other.namespace))
    yield leading(scene, one, theirs, f"share-of-{other.tenant.tenant}")
    who, suffix = one.developer, f"as-{tenant}@{other.name}"
    for what in ("localqueues", "workloads"):
        path, home = (group(API, place.name, what) for place in (other, one))
        text = f"{tenant}'s developer: see the {what} of {other.tenant.tenant}"
        yield _rbac(f"list-{what}-{suffix}", text, Request("GET", path, None, who), twin_path=home)


def _rbac(id: str, sentence: str, request: Request, **twin: Any) -> Attack:
    return attack(f"rbac-{id}", "rbac", sentence, denial.RBAC, request, **twin)


def _rights(place: AttackedNamespace) -> Iterator[Attack]:
    """Objects of the queue that only Kueue and the platform write."""
    who, mine = place.developer, queue_name(place.tenant.tenant, place.tenant.tier_of(place.namespace))
    queues, works = (group(API, place.name, what) for what in ("localqueues", "workloads"))
    note = {"metadata": {"annotations": {"note": "hello"}}}
    stop = {"spec": {"stopPolicy": "None"}}
    status = {"status": {"conditions": []}}
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": place.pod()["spec"]}}]}
    own: Object = {"apiVersion": API, "kind": "Workload", "metadata": {"name": POD_NAME}, "spec": spec}
    urgent: Object = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": POD_NAME}, "value": 9}
    for name, sentence, request in (
        ("make-queue", "make itself a queue", Request("POST", queues, local_queue(mine), who)),
        (
            "open-queue",
            "resume a queue that is on hold",
            Request("PATCH", f"{queues}/{words.DEFAULT_QUEUE}", stop, who, MERGE),
        ),
        ("drop-queue", "remove its queue", Request("DELETE", f"{queues}/{words.DEFAULT_QUEUE}", None, who)),
        ("make-workload", "create a Workload", Request("POST", works, own, who)),
        ("admit", "admit its own work", Request("PATCH", f"{works}/{GONE}/status", status, who, MERGE)),
        ("change-workload", "change a Workload", Request("PATCH", f"{works}/{GONE}", note, who, MERGE)),
        ("drop-workload", "delete a Workload", Request("DELETE", f"{works}/{GONE}", None, who)),
        ("list-shares", "list every tenant's quota", Request("GET", group(API, None, "clusterqueues"), None, who)),
        ("list-cohorts", "list the cohorts", Request("GET", group(API, None, "cohorts"), None, who)),
        (
            "widen-share",
            "raise its quota",
            Request("PATCH", group(API, None, "clusterqueues", mine), note, who, MERGE),
        ),
        (
            "make-urgency",
            "create a priority class for its work",
            Request("POST", group(API, None, "workloadpriorityclasses"), urgent, who),
        ),
        (
            "others-pending",
            "list the pending work of a ClusterQueue",
            Request(
                "GET",
                group("visibility.kueue.x-k8s.io/v1beta2", None, "clusterqueues", mine, "pendingworkloads"),
                None,
                who,
            ),
        ),
    ):
        # The lab runs no visibility server.
        missing = GONE in request.path or "visibility" in request.path
        yield _rbac(
            f"queue-{name}",
            f"{place.tenant.tenant}'s developer: {sentence}",
            request,
            twin_who=None,
            twin_missing=missing,
        )
    for framework in frameworks(place.environment):
        path = group(f"{framework.group}/{framework.version}", place.name, framework.resource)
        account = f"system:serviceaccount:{place.name}:default"
        pod = Impersonation(account, ("system:serviceaccounts", f"system:serviceaccounts:{place.name}"))
        request = Request("GET", path, None, pod)
        yield _rbac(
            f"workload-{framework.resource}", f"a pod's own account: see {framework.resource}", request, twin_who=who
        )
        viewer = place.person(Role.VIEWER)
        if viewer and framework.kind in all_kinds(place):
            request = Request("POST", path, work(place, framework.kind), viewer)
            yield _rbac(f"viewer-{framework.resource}", f"viewer: make {framework.resource}", request, twin_who=who)
