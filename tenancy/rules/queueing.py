"""Queueing: what work tells the queue, and how it starts and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import (
    COUNTED,
    DOMAIN,
    HELD,
    MANAGED,
    OWN_CONTROLLERS,
    PLACED,
    QUEUE,
    RUN_TIME,
    URGENCY,
    WRITABLE,
)
from tenancy.kube.objects import Object
from tenancy.rules.attacks import ABSENT, Attack, escaped, put, skipped
from tenancy.rules.expressions import cel, unless_by_controller
from tenancy.rules.model import GuardSubject, Rule, Severity
from tenancy.rules.scene import MISSING_OBJECT, AttackPlace, AttackScene
from tenancy.rules.workloads import (
    ENDING,
    Case,
    all_kinds,
    attack_of,
    in_queue,
    in_second_templates,
    kinds_of,
    through,
    work,
    workload,
)

_OWNERS = unless_by_controller("size(variables.newOwners) == 0 && size(variables.lostOwners) == 0")
_GATES = unless_by_controller("variables.gates.all(g, g in variables.usualGates || g in variables.oldGates)")
_METADATA = unless_by_controller(
    f"""variables.marks.all(m, m.all(k, !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))}
            || (k in variables.given && (variables.given[k] == '' || variables.given[k] == m[k]))
            || variables.oldMarks.exists(o, k in o && o[k] == m[k])))
        && variables.oldMarks.all(o, o.all(k, !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))}
            || variables.marks.exists(m, k in m)))"""
)

_REPLICAS, _OLD_REPLICAS = (f"dyn({root}).?spec.?replicas.orValue(1)" for root in ("object", "oldObject"))

# Attacks

GATES = "/spec/schedulingGates"
OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "kube-root-ca.crt",
    "uid": "0b1c0000-0000-4000-8000-000000000000",
}
"""An owner of a kind that Kueue does not know: Kueue queues its children as work of their own, with or without the
guard."""
OF_CRONJOB = {**OWNER, "apiVersion": "batch/v1", "kind": "CronJob", "name": MISSING_OBJECT, "controller": True}
"""The owner that `kubectl create job --from` writes."""

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


def _second_gates(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    return in_second_templates(scene, place, "kueue-03", GATES, [{"name": "bank.example/wait"}], ABSENT)


def _second_marks(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    at = f"/metadata/annotations/{escaped(DOMAIN + 'role-hash')}"
    return in_second_templates(scene, place, "kueue-08", at, "abcd1234", ABSENT)


def _without_operators(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    missing = {f.kind for f in place.frameworks} - {*all_kinds(place)}
    for kind in sorted(missing):
        absent = any(unserved_kind.kind == kind for unserved_kind in scene.unserved)
        reason = (
            f"the cluster serves no {kind}: its operator is missing"
            if absent
            else "the cluster has no ClusterTrainingRuntime: Kueue refuses every one"
        )
        yield skipped(f"kueue-{kind.lower()}", "kueue-01", f"through a {kind}: start work without the queue", reason)


def _jobs_of_job_sets(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    if "JobSet" in kinds_of(place):
        job, other_manager = "/spec/replicatedJobs/0/template", "batch.kubernetes.io/job-controller"
        manifest = put(put(work(place, "JobSet"), f"{job}/spec/parallelism", 1), f"{job}/spec/completions", 1)
        hold, at = "hold quota for pods that never come", f"{job}/spec/managedBy"
        managed = put(manifest, at, other_manager)
        yield through(
            scene,
            place,
            "kueue-04",
            "of-its-jobs",
            hold,
            "JobSet",
            at,
            f"{DOMAIN}multikueue",
            other_manager,
            base=managed,
        )


def _launchers(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """The queue's webhook writes a mark of its own into such a job: the twin shows that it is admitted."""
    if "MPIJob" in kinds_of(place):
        pods = put(place.pod(), "/metadata/annotations", {"note": "hello"})
        workers = {"replicas": 2, "template": workload("Job", pods)["spec"]["template"]}
        manifest = put(work(place, "MPIJob"), "/spec/mpiReplicaSpecs/Worker", workers)
        manifest = put(manifest, "/spec/runLauncherAsWorker", True)
        annotations = "/spec/mpiReplicaSpecs/Worker/template/metadata/annotations"
        at, alike = f"{annotations}/{escaped(DOMAIN + 'role-hash')}", "have its pods counted as if they were smaller"
        yield through(scene, place, "kueue-08", "launcher-as-worker", alike, "MPIJob", at, "abcd1234", base=manifest)


def of_work(kind: str) -> str:
    """JSON pointer of the metadata of the queued object."""
    return "/spec/jobTemplate/metadata" if kind == "CronJob" else "/metadata"


def _label(kind: str, key: str, field: str = "labels") -> str:
    return f"{of_work(kind)}/{field}/{escaped(key)}"


def _labelled(place: AttackPlace, kind: str, field: str = "labels") -> Object:
    """Work with an unrelated label or annotation, so that the twin differs in one key."""
    return put(work(place, kind), _label(kind, "note", field), "hello")


def _with_queue(kind: str, manifest: Object) -> Object:
    """Work with the queue's label, which Kueue does not add to what it takes for a part of other work."""
    return put(manifest, _label(kind, QUEUE), vocabulary.DEFAULT_QUEUE)


def _names(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "use a queue that is not its namespace's"
    for kind in all_kinds(place):
        at, own_queue = _label(kind, QUEUE), vocabulary.DEFAULT_QUEUE
        yield through(scene, place, "kueue-01", "queue", sentence, kind, at, "another-tenants", own_queue)
    for name in (f"{vocabulary.DEFAULT_QUEUE}-2", vocabulary.DEFAULT_QUEUE[:-1], "a" * 63):
        at = _label("Pod", QUEUE)
        yield through(scene, place, "kueue-01", f"like-{name}", sentence, "Pod", at, name, vocabulary.DEFAULT_QUEUE)
    hidden = f"{sentence}, by its template"
    at = f"/metadata/labels/{escaped(QUEUE)}"
    case = Case("kueue-01", "template", hidden, at, "another-tenants", vocabulary.DEFAULT_QUEUE)
    for kind in ("Job", "CronJob", "StatefulSet"):
        yield attack_of(scene, place, case, kind)


def _owners(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "be taken for a part of work that runs"
    for kind in all_kinds(place):
        manifest = put(work(place, kind), "/metadata/ownerReferences", [{**OWNER, "controller": False}])
        at = "/metadata/ownerReferences/0/controller"
        yield through(scene, place, "kueue-02", "owner", sentence, kind, at, True, False, base=manifest)
    manifest, at = (
        put(work(place, "Job"), "/metadata/ownerReferences", [OF_CRONJOB]),
        "/metadata/ownerReferences/0/kind",
    )
    yield through(scene, place, "kueue-02", "owner-kind", sentence, "Job", at, "ReplicaSet", "CronJob", base=manifest)


def _own_gates(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    hold, own_gates = "reserve GPUs for pods that never start", [{"name": "bank.example/wait"}]
    for kind in kinds_of(place):
        yield attack_of(scene, place, Case("kueue-03", "own", hold, GATES, own_gates), kind)
    forged = "put the queue's own gate into a template"
    for kind in ("Job", "CronJob", "Deployment"):
        yield attack_of(scene, place, Case("kueue-03", "queues", forged, GATES, [{"name": HELD}]), kind)
    placed = "wait for a topology assignment that the queue never makes"
    for kind in (kind for kind in kinds_of(place) if kind != "Pod"):
        yield attack_of(scene, place, Case("kueue-03", "placed", placed, GATES, [{"name": PLACED}]), kind)
    elastic = [{"name": f"{DOMAIN}elastic-job"}]
    yield attack_of(scene, place, Case("kueue-03", "elastic", hold, GATES, elastic), "Pod")


def _suspension(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence, other_manager = "be managed by a controller that the queue does not know", f"{DOMAIN}multikueue"
    where = {
        "Job": "/spec/managedBy",
        "CronJob": "/spec/jobTemplate/spec/managedBy",
        "MPIJob": "/spec/runPolicy/managedBy",
        **dict.fromkeys(("JobSet", "RayCluster", "RayJob", "TrainJob"), "/spec/managedBy"),
    }
    for kind in all_kinds(place):
        if kind in where:
            yield through(scene, place, "kueue-04", "managed-by", sentence, kind, where[kind], other_manager)
    reason = "only existing work can be unsuspended, and the attacks create nothing; Kueue suspends new work by itself"
    yield skipped("kueue-04-unsuspend", "kueue-04", "start suspended work without the queue", reason)


def _urgency(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    jump = "go first in the queue"
    own_priority = place.priorities[-1]
    for kind in all_kinds(place):
        at = _label(kind, URGENCY)
        yield through(scene, place, "kueue-06", "unknown", jump, kind, at, "tenancy-tier-unknown", own_priority)
    case = Case(
        "kueue-06",
        "template",
        f"{jump}, by its template",
        f"/metadata/labels/{escaped(URGENCY)}",
        "system",
        own_priority,
    )
    for kind in ("Job", "CronJob", "Deployment", "StatefulSet"):
        yield attack_of(scene, place, case, kind)
    for namespace in scene.staffed:
        allowed = namespace.priorities
        for name in namespace.other_priorities:
            sentence, at = f"{jump} with {name}", _label("Pod", URGENCY)
            yield through(
                scene, namespace, "kueue-06", name, sentence, "Pod", at, name, allowed[-1], f"@{namespace.name}"
            )


def _notes(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    for slug, (sentence, field, name, kinds) in NOTES.items():
        for kind in kinds or all_kinds(place):
            at, manifest = _label(kind, DOMAIN + name, field), _with_queue(kind, _labelled(place, kind, field))
            yield through(scene, place, "kueue-08", slug, sentence, kind, at, "1", base=manifest)
    if "JobSet" in kinds_of(place):
        at = "/spec/replicatedJobs/0/template/metadata/labels"
        manifest = put(work(place, "JobSet"), at, {"note": "hello"})
        at, sentence = f"{at}/{escaped(DOMAIN + 'prebuilt-workload-name')}", "have its jobs use other work's quota"
        yield through(scene, place, "kueue-08", "of-its-jobs", sentence, "JobSet", at, "1", base=manifest)
    at = _label("Pod", "provreq.kueue.x-k8s.io/ValidUntilSeconds", "annotations")
    tell = "set for how long the autoscaler reserves nodes for it"
    manifest = _labelled(place, "Pod", "annotations")
    yield through(scene, place, "kueue-08", "provisioning", tell, "Pod", at, "604800", base=manifest)
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
        manifest = _with_queue(kind, workload(kind, pod))
        at = ("/spec/jobTemplate" if kind == "CronJob" else "") + "/spec/template/metadata/annotations/"
        at += escaped(DOMAIN + "pod-suspending-parent")
        yield through(scene, place, "kueue-08", "other-parent", escape, kind, at, parent, base=manifest)


def _run_time(scene: AttackScene, _place: AttackPlace) -> Iterator[Attack]:
    sentence = "run for longer than its tier allows"
    timed = [(place, int(max_seconds)) for place in scene.staffed if (max_seconds := place.max_run_seconds)]
    if not timed:
        yield skipped("kueue-10", "kueue-10", sentence, "no namespace with a developer is of a tier with max-run-time")
    for place, max_seconds in timed:
        suffix = f"@{place.name}"
        for kind in all_kinds(place) if place is timed[0][0] else ("Pod", "Job"):
            if kind in ENDING:
                at = _label(kind, RUN_TIME)
                yield through(
                    scene,
                    place,
                    "kueue-10",
                    "too-long",
                    sentence,
                    kind,
                    at,
                    str(max_seconds + 1),
                    str(max_seconds),
                    suffix,
                )
                if kind == "Job":
                    manifest = put(work(place, kind), "/metadata/ownerReferences", [OF_CRONJOB])
                    slug, for_it = "of-cronjob", f"{sentence}, as a part of a CronJob"
                    yield through(
                        scene,
                        place,
                        "kueue-10",
                        slug,
                        for_it,
                        kind,
                        at,
                        str(max_seconds + 1),
                        str(max_seconds),
                        suffix,
                        manifest,
                    )
                manifest = put(_labelled(place, kind), at, ABSENT)
                silent = f"{sentence}: it names no maximum run time"
                yield through(scene, place, "kueue-10", "silent", silent, kind, at, ABSENT, "60", suffix, manifest)


RULES: tuple[Rule, ...] = (
    Rule(
        id="kueue-01",
        title="work names a queue of its namespace",
        why="work without a queue, or with a queue that does not exist, waits for ever",
        fix=(
            "label the work kueue.x-k8s.io/queue-name: default, or with another name of `kubectl get "
            "localqueues`: a queue "
            "on hold takes it, and starts it when it opens"
        ),
        severity=Severity.MEDIUM,
        guards={
            # Also of a CronJob's controller, which tries again: without a queue's name its Job would wait for ever.
            GuardSubject.QUEUED: f"""(!variables.queues || variables.owned || {cel(QUEUE)} in variables.workLabels
            || (variables.byController && request.operation != 'CREATE'))
        && (variables.byController
            || variables.marks.all(m, !({cel(QUEUE)} in m) || m[{cel(QUEUE)}] in variables.allowedQueues))"""
        },
        attacks=(in_queue(_names), in_queue(_without_operators)),
    ),
    Rule(
        id="kueue-02",
        title="only controllers set which objects they own",
        why=(
            "a pod that claims to be part of admitted work, or that leaves it, is not counted: any number of "
            "GPUs could "
            "run under a quota of one CPU"
        ),
        fix=(
            "leave references with controller: true as they are, and the labels of a job's pods; other references "
            "are fine"
        ),
        guards={
            GuardSubject.QUEUED: _OWNERS,
            # A controller knows its pods by their labels, and releases one that lacks them: it would run on without
            # being counted. A pod that is queued by itself is counted with any owner.
            GuardSubject.QUEUED_PODS: f"""({_OWNERS}) && (variables.byController || !variables.owned
        || request.operation != 'UPDATE' || !has(oldObject.metadata.labels)
        || {cel(MANAGED)} in oldObject.metadata.labels
        || oldObject.metadata.labels.all(k, k in variables.podLabels
            && variables.podLabels[k] == oldObject.metadata.labels[k]))""",
        },
        attacks=(in_queue(_owners),),
    ),
    Rule(
        id="kueue-03",
        title="only the queue sets scheduling gates, and removes them from pods that it has counted",
        why="a pod without the gate runs on GPUs of other tenants; a pod with another gate keeps GPUs and never runs",
        fix="drop schedulingGates, and wait for the queue: `tenancy why` shows what it waits for",
        guards={
            GuardSubject.QUEUED: _GATES,
            # A list of gates for each template.
            GuardSubject.FRAMEWORKS: unless_by_controller(
                """variables.gates.all(l, l.all(g, g in variables.usualGates
        || variables.oldGates.exists(o, g in o)))"""
            ),
            # No gate can be added to a pod that exists, and a pod without the queue's gate would start outside the
            # queue. Kueue itself does so: it ungates every pod of a StatefulSet's former revision, admitted or not
            # (pkg/util/statefulset), and a rollout that never ends would exceed any share. What it counted it labels.
            GuardSubject.QUEUED_PODS: f"""({_GATES})
        && (request.operation != 'UPDATE' || !has(oldObject.spec.schedulingGates)
            || oldObject.spec.schedulingGates.all(g,
                g.name in variables.gates || !g.name.startsWith({cel(DOMAIN)})
                || (variables.byQueue && (g.name != {cel(HELD)} || {cel(COUNTED)} in variables.podLabels
                    || has(object.metadata.deletionTimestamp)))))""",
        },
        attacks=(in_queue(_own_gates), in_queue(_second_gates)),
    ),
    Rule(
        id="kueue-04",
        title="only the queue starts work, and the controller of its kind runs it",
        why="work that is created unsuspended, or is resumed by hand, runs before it is counted",
        fix="drop suspend: false and managedBy; to stop work of your own set suspend to true",
        guards={
            GuardSubject.QUEUED_WORK: f"""variables.byRunner || (
        variables.controllers.all(c, c in {cel(list(OWN_CONTROLLERS))})
        && (!variables.waits || variables.suspended
            || (request.operation == 'UPDATE' && !variables.wasSuspended)))"""
        },
        attacks=(in_queue(_suspension), in_queue(_jobs_of_job_sets)),
    ),
    Rule(
        id="kueue-06",
        title="work uses only the workload priority classes of its namespace",
        why="a higher class is admitted first in every queue of the tenant, and evicts the tenant's other work",
        fix="use a class that your namespace lists, or drop the label kueue.x-k8s.io/priority-class",
        guards={
            GuardSubject.QUEUED: unless_by_controller(
                f"""variables.marks.all(m, !({cel(URGENCY)} in m)
            || m[{cel(URGENCY)}] in variables.allowedPriorities)"""
            )
        },
        attacks=(in_queue(_urgency),),
    ),
    Rule(
        id="kueue-07",
        title="a container has requests of CPU and memory",
        why="the queue counts a container without requests as using nothing",
        fix="write requests of cpu and memory; the namespace's limit range, where there is one, fills them in",
        severity=Severity.MEDIUM,
        earlier_control="the limit range of the namespace fills in requests",
        guards={
            GuardSubject.QUEUED_PODS: """request.operation != 'CREATE' || variables.containers.all(c,
        has(c.resources) && has(c.resources.requests)
        && 'cpu' in c.resources.requests && 'memory' in c.resources.requests)"""
        },
    ),
    Rule(
        id="kueue-08",
        title="a tenant sets only those Kueue labels and annotations that are requests to the queue",
        why=(
            "the others are Kueue's own records: a pod with them passes for counted, for a copy of a counted "
            "pod, or for "
            "unmanaged"
        ),
        fix=(
            "drop labels and annotations of kueue.x-k8s.io other than queue-name, priority-class, "
            "max-exec-time-seconds, "
            "job-min-parallelism, job-completions-equal-parallelism and podset-*-topology; for pods that start "
            "together "
            "use a Job"
        ),
        guards={
            GuardSubject.QUEUED: _METADATA,
            # The queue's marks stay labels or annotations, as they are: Kueue ignores a pod whose label became an
            # annotation.
            GuardSubject.QUEUED_PODS: f"""({_METADATA}) && (variables.byController || request.operation != 'UPDATE' || (
        (!has(oldObject.metadata.labels) || oldObject.metadata.labels.all(k,
            !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))} || k in variables.podLabels))
        && (!has(oldObject.metadata.annotations) || oldObject.metadata.annotations.all(k,
            !k.contains({cel(DOMAIN)}) || k in {cel(list(WRITABLE))} || k in variables.podAnnotations))))""",
        },
        attacks=(in_queue(_notes), in_queue(_second_marks), in_queue(_launchers)),
    ),
    Rule(
        id="kueue-09",
        title="a pod waits for the queue unless it is part of work that the queue started",
        why="a pod that starts without the queue is not counted",
        fix="ask the platform team to check the queue's webhooks; the pod itself is correct",
        earlier_control="Kueue's own webhook adds the gate",
        guards={
            # A Deployment's and a StatefulSet's pods wait each by itself, those of other work with it.
            GuardSubject.QUEUED_PODS: "request.operation != 'CREATE' || variables.byRunner"
            f" || {cel(HELD)} in variables.gates"
        },
    ),
    Rule(
        id="kueue-10",
        title="work that runs to completion sets a maximum run time, within the limit of its tier",
        why="without it, there is no time by which its GPUs are free again",
        fix=(
            "set the label kueue.x-k8s.io/max-exec-time-seconds to at most tenancy.gpu/max-run-seconds of the namespace"
        ),
        severity=Severity.MEDIUM,
        guards={
            GuardSubject.QUEUED: unless_by_controller(
                f"""variables.mostSeconds == '' || !variables.ends || variables.owned
        || ({cel(RUN_TIME)} in variables.workLabels
            && variables.workLabels[{cel(RUN_TIME)}].matches('^[1-9][0-9]{{0,8}}$')
            && int(variables.workLabels[{cel(RUN_TIME)}]) <= int(variables.mostSeconds))"""
            )
        },
        attacks=(in_queue(_run_time),),
    ),
    Rule(
        id="kueue-25",
        title="work is deleted together with its pods",
        why="pods that outlive their work keep GPUs that the queue has given to other work",
        fix="delete it with propagationPolicy Background or Foreground, as kubectl does without --cascade=orphan",
        guards={
            # Of a Job without either, the API server leaves the pods.
            GuardSubject.QUEUED_DELETIONS: """variables.byController || request.resource.resource == 'pods' || (
        (!has(request.options.propagationPolicy) || request.options.propagationPolicy != 'Orphan')
        && (!has(request.options.orphanDependents) || !request.options.orphanDependents)
        && (request.resource.resource != 'jobs' || has(request.options.propagationPolicy)
            || has(request.options.orphanDependents)))"""
        },
    ),
    Rule(
        id="kueue-27",
        title="running work has no more pods than the queue has counted",
        why=(
            "further pods run until the queue has stopped the work, and for their grace period after, on GPUs that are "
            "guaranteed to others"
        ),
        fix="suspend the work before its counts are raised, or make further work",
        guards={
            # What a job's count was is what the queue has counted: a higher one makes pods that run until the queue has
            # stopped the job, and then for their grace period. The queue itself starts fewer at first where that was
            # asked for.
            GuardSubject.RUNNING_WORK: """variables.byRunner || request.operation != 'UPDATE' || variables.suspended
        || variables.noMorePods"""
        },
    ),
    Rule(
        id="kueue-34",
        title="a StatefulSet is scaled to 0 in its own spec, and only while one of its pods is ready",
        why=(
            "Kueue holds nothing back for a StatefulSet that waits and is scaled to 0: it is admitted later without "
            "pods, and no eviction frees its GPUs"
        ),
        fix=(
            "delete a StatefulSet that waits or whose pods crash, its volume claims stay; scale one that runs by "
            "spec.replicas, as kubectl patch does, and not by kubectl scale"
        ),
        guards={
            # Kueue 0.19.2 puts on hold only what has quota by then, and looks at the StatefulSet again only when it or
            # its pods change (statefulset_reconciler.go, `reconcileWorkload`). An eviction is completed by the pods of
            # the group, and there are none (pod_controller.go, `Load`; kueue#14574). For Kueue too a StatefulSet
            # without ready pods is one that waits (statefulset_webhook.go, `ValidateUpdate`).
            GuardSubject.BUILT_IN_WORK: lambda facts: (
                unless_by_controller(
                    f"""request.operation != 'UPDATE' || request.resource.resource != 'statefulsets'
        || {_REPLICAS} > 0 || {_OLD_REPLICAS} == 0 || dyn(oldObject).?status.?readyReplicas.orValue(0) > 0"""
                )
                if facts.queued
                else None
            ),
            # A scale does not say how many pods are ready, and leaves 0 out.
            GuardSubject.SCALES: lambda facts: (
                "request.resource.resource != 'statefulsets' || dyn(object).?spec.?replicas.orValue(0) > 0"
                if facts.queued
                else None
            ),
        },
    ),
)
