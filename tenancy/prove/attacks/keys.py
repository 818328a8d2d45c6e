"""Attacks by what agents of the platform obey, by classes of volumes, by schedules, and by work that cannot start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.live import denial
from tenancy.live.api import collection
from tenancy.planning.guards.facts import frameworks
from tenancy.prove.attacks.model import ABSENT, Attack, Request, attack, escaped, put, skipped
from tenancy.prove.attacks.queues import TRAIN_JOB, work
from tenancy.prove.attacks.scene import POD_NAME, AttackedNamespace, Scene
from tenancy.prove.attacks.workloads import kinds_of, workload

NOTE = "note"
"""Key without a domain: no agent's."""
LABELS, ANNOTATIONS = "/metadata/labels", "/metadata/annotations"

AGENTS: Mapping[str, tuple[str, str, str, str]] = {
    "driver-upgrade": (
        "keep its node out of the upgrade of the driver",
        LABELS,
        "nvidia.com/gpu-driver-upgrade-drain.skip",
        "true",
    ),
    "scale-down": ("keep its node, and the bill", LABELS, "spotinst.io/restrict-scale-down", "true"),
    "local-volumes": (
        "keep its node by its volumes",
        ANNOTATIONS,
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
        "x",
    ),
    "consolidation": ("keep its node from consolidation", ANNOTATIONS, "karpenter.sh/do-not-consolidate", "true"),
    "node-check": (
        "have the node's agent send requests of its choice",
        ANNOTATIONS,
        "ad.datadoghq.com/c.checks",
        '{"http_check": {"instances": [{"url": "http://169.254.169.254/"}]}}',
    ),
    "log-tenant": ("write into another tenant's logs", ANNOTATIONS, "loki.grafana.com/tenant", "another-tenant"),
    "metric-path": ("have the collector call any handler", ANNOTATIONS, "prometheus.io/path", "/quit"),
    "metric-parameter": ("have the collector send parameters", ANNOTATIONS, "prometheus.io/param_target", "x"),
    "mesh": ("leave the mesh and its policies", ANNOTATIONS, "sidecar.istio.io/inject", "false"),
    "look-alike": ("hide in a domain that ends like one that is allowed", LABELS, "evil-app.kubernetes.io/name", "x"),
    "below": ("hide in a domain below one that is allowed", LABELS, "scaler.kubernetes.io/keep", "x"),
    "empty": ("obey without a value", LABELS, "spotinst.io/restrict-scale-down", ""),
}
"""Keys that agents obey, and what they do: labels and annotations of a pod."""

COPIED: Mapping[str, tuple[str, str, str]] = {
    "replicator": ("replicator.v1.mittwald.de/replicate-from", "another-tenant/db", "copy another tenant's data"),
    "reflector": ("reflector.v1.k8s.emberstack.com/reflects", "another-tenant/db", "copy another tenant's data"),
    "kubed": ("kubed.appscode.com/sync", "", "copy its data into every namespace"),
}
VOLUMES: Mapping[str, tuple[str, str, str]] = {
    "volume-type": ("ebs.csi.aws.com/volumeType", "io2", "change its volume's type, and the bill"),
    "volume-iops": ("ebs.csi.aws.com/iops", "64000", "change its volume's IOPS, and the bill"),
    "volume-tags": ("tagger.ebs.csi/tags", '{"tenancy:tenant": "x"}', "charge its volume to another tenant"),
    "volume-old-tags": ("aws-ebs-tagger/tags", '{"tenancy:tenant": "x"}', "charge its volume to another tenant"),
    "selected-node": ("volume.kubernetes.io/selected-node", "x", "choose where its volume is made"),
}


def key_attacks(scene: Scene) -> Iterator[Attack]:
    """Every attack of this kind in the namespace in which rules common to all are attacked."""
    if home := scene.home:
        yield from _agents(home)
        yield from _objects(scene, home)
        yield from _claims(home)
        yield from _schedules(home)
        yield from _children(home)


def _on(place: AttackedNamespace, kind: str, pod: Object | None = None) -> Object:
    return workload(kind, pod or place.pod())


def _policy(place: AttackedNamespace, kind: str) -> str:
    """The guard of the templates of a kind."""
    if kind in {framework.kind for framework in frameworks(place.environment)}:
        return "tenancy-frameworks"
    return {"CronJob": "tenancy-cronjobs", "Pod": "tenancy-pods"}.get(kind, "tenancy-templates")


def _tried(
    place: AttackedNamespace,
    rule: str,
    name: str,
    sentence: str,
    policy: str,
    twin: Object,
    at: str,
    bad: Any,
) -> Attack:
    kind = twin["kind"]
    path = collection(twin["apiVersion"], kind, place.name)
    said = (
        sentence if kind in {"Pod", "ConfigMap", "Secret", "PersistentVolumeClaim"} else f"through a {kind}: {sentence}"
    )
    request = Request("POST", path, put(twin, at, bad), place.developer)
    slug = f"{rule}-{kind.lower()}-{name}"
    return attack(slug, rule, said, denial.guard(policy, rule), request, twin_body=twin)


def _noted(made: Object, field: str, at: str = "") -> Object:
    """The object with a harmless key in that field of its metadata, or of the metadata at a pointer."""
    here: Any = made
    for key in f"{at}{field}".split("/")[1:]:
        here = here[int(key)] if isinstance(here, list) else here.get(key, {})
    return put(made, f"{at}{field}", {**here, NOTE: "hello"})


def _agents(place: AttackedNamespace) -> Iterator[Attack]:
    own = "tenancy-work-limits"
    for slug, (sentence, field, key, value) in AGENTS.items():
        pod = _noted(place.pod(), field)
        yield _tried(place, "meta-01", slug, sentence, own, pod, f"{field}/{escaped(key)}", value)
    sentence, field, key, value = AGENTS["driver-upgrade"]
    for kind in kinds_of(place):
        if kind == "Pod":
            continue
        made = _noted(_on(place, kind), field)
        yield _tried(place, "meta-01", "own", sentence, own, made, f"{field}/{escaped(key)}", value)
        # Of what an agent obeys on pods, the template counts.
        made = _on(place, kind, _noted(place.pod(), field))
        where = next(_pointers(made, NOTE)).rpartition("/")[0]
        # The API server gives a Job without labels those of its template (batch/v1, `SetDefaults_Job`).
        made = _noted(made, LABELS)
        yield _tried(
            place, "meta-01", "template", sentence, _policy(place, kind), made, f"{where}/{escaped(key)}", value
        )
    at = "/spec/jobTemplate"
    made = _noted(_on(place, "CronJob"), LABELS, at)
    yield _tried(place, "meta-01", "jobs", sentence, "tenancy-cronjobs", made, f"{at}{LABELS}/{escaped(key)}", value)


def _pointers(value: Any, key: str, at: str = "") -> Iterator[str]:
    """JSON pointers of a key in a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        where = f"{at}/{escaped(str(name))}"
        if name == key:
            yield where
        yield from _pointers(part, key, where)


def _objects(scene: Scene, place: AttackedNamespace) -> Iterator[Attack]:
    policy, others = "tenancy-object-limits", scene.other(place)
    for kind in ("ConfigMap", "Secret"):
        plain: Object = {"apiVersion": "v1", "kind": kind, "metadata": {"name": POD_NAME, "labels": {NOTE: "x"}}}
        for slug, (key, value, sentence) in COPIED.items():
            made = _noted(plain, ANNOTATIONS)
            named = value.replace("another-tenant", others.name if others else "another-tenant")
            yield _tried(place, "meta-01", slug, sentence, policy, made, f"{ANNOTATIONS}/{escaped(key)}", named)
        forged = "have its object taken for one of the platform's"
        at = f"{LABELS}/{escaped(words.ENVIRONMENT)}"
        yield _tried(place, "meta-01", "platforms", forged, policy, plain, at, place.environment.environment)


_DISK: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def _claims(place: AttackedNamespace) -> Iterator[Attack]:
    classed = {**_DISK, "storageClassName": place.environment.claim_classes[0]}
    metadata = {"annotations": {NOTE: "hello"}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": classed}
    plain = {**claim, "metadata": {"name": POD_NAME, **metadata}}
    for slug, (key, value, sentence) in VOLUMES.items():
        at = f"{ANNOTATIONS}/{escaped(key)}"
        yield _tried(place, "meta-01", slug, sentence, "tenancy-object-limits", plain, at, value)
    other, fast = "use a class of volumes that the platform did not choose for tenants", "raise its volume's price"
    named = ("storageClassName", "class-of-others", other), ("volumeAttributesClassName", "fastest", fast)
    for field, value, sentence in named:
        slug = field.removesuffix("Name").lower()
        yield _tried(place, "stor-12", slug, sentence, "tenancy-claims", plain, f"/spec/{field}", value)
    key, value, sentence = VOLUMES["volume-type"]
    at, template = "/spec/volumeClaimTemplates", {"metadata": {"name": "data", **metadata}, "spec": classed}
    stateful = put(_on(place, "StatefulSet"), at, [template])
    ephemeral = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"metadata": metadata, "spec": classed}}}
    pod = put(place.pod(), "/spec/volumes", [ephemeral])
    of_pod = "/spec/volumes/0/ephemeral/volumeClaimTemplate"
    cases = [("claim", stateful, f"{at}/0"), ("ephemeral", pod, of_pod)]
    cases += [
        ("ephemeral", made, next(_pointers(made, "volumeClaimTemplate")))
        for kind in kinds_of(place)
        if kind != "Pod" and (made := _on(place, kind, pod))
    ]
    for slug, made, where in cases:
        policy = _policy(place, made["kind"])
        yield _tried(
            place, "meta-01", slug, sentence, policy, made, f"{where}/metadata/annotations/{escaped(key)}", value
        )
        for field, bad, what in named:
            slug_of_field = f"{slug}-{field.removesuffix('Name').lower()}"
            yield _tried(place, "stor-12", slug_of_field, what, policy, made, f"{where}/spec/{field}", bad)


def _schedules(place: AttackedNamespace) -> Iterator[Attack]:
    sentence = "delay other tenants' CronJobs by one that starts jobs without a pause"
    made = put(_on(place, "CronJob"), "/spec/schedule", "* * * * *")
    for slug, schedule in {"second": "@every 1s", "short": "@every 1ns", "hour": "@every 1h0m0.5s"}.items():
        yield _tried(place, "avail-07", slug, sentence, "tenancy-cronjobs", made, "/spec/schedule", schedule)


def _children(place: AttackedNamespace) -> Iterator[Attack]:
    """Work of operators whose pods never come: the queue counts it until it gives up on it."""
    if not place.environment.queued:
        return
    hold, kinds = "hold quota for pods that never come", kinds_of(place)
    if "JobSet" not in kinds:
        yield skipped("kueue-32-jobset-endless", "kueue-32", hold, "the environment queues no JobSets")
    else:
        job = "/spec/replicatedJobs/0/template"
        made = put(put(work(place, "JobSet"), f"{job}/spec/parallelism", 1), f"{job}/spec/completions", 1)
        policy = "tenancy-frameworks"
        yield _tried(place, "kueue-32", "endless", hold, policy, made, f"{job}/spec/completions", ABSENT)
        at, other = f"{job}/spec/managedBy", "batch.kubernetes.io/job-controller"
        managed = put(made, at, other)
        yield _tried(place, "kueue-04", "of-its-jobs", hold, policy, managed, at, "kueue.x-k8s.io/multikueue")
        exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
        noted = _noted(put(made, f"{job}/metadata", {}), ANNOTATIONS, job)
        at = f"{job}{ANNOTATIONS}/{escaped(exclusive)}"
        yield _tried(place, "meta-01", "topology", hold, policy, noted, at, "topology.kubernetes.io/zone")
    if "LeaderWorkerSet" in kinds:
        noted = _noted(work(place, "LeaderWorkerSet"), ANNOTATIONS)
        at = f"{ANNOTATIONS}/{escaped('leaderworkerset.sigs.k8s.io/exclusive-topology')}"
        policy = "tenancy-work-limits"
        yield _tried(place, "meta-01", "topology", hold, policy, noted, at, "topology.kubernetes.io/zone")
    if TRAIN_JOB in {framework.kind for framework in frameworks(place.environment)} and place.training_runtime:
        limits = "/spec/trainer/resourcesPerNode/limits"
        made = put(work(place, TRAIN_JOB), "/spec/trainer", {"resourcesPerNode": {"limits": {"cpu": "1"}}})
        sentence = "ask for a resource that no quota names"
        yield _tried(place, "gpu-06", "unknown", sentence, "tenancy-frameworks", made, f"{limits}/amd.com~1gpu", "1")
        patch = "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template"
        made = put(work(place, TRAIN_JOB), "/spec/runtimePatches", [_patch()])
        sentence, field, key, value = AGENTS["driver-upgrade"]
        at = f"{patch}{field}/{escaped(key)}"
        yield _tried(place, "meta-01", "patch", sentence, "tenancy-frameworks", made, at, value)


def _patch() -> Object:
    pod = {"metadata": {"labels": {NOTE: "hello"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    return {
        "manager": "bank.example/developer",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
