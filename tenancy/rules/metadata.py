"""Metadata: keys of labels and annotations that agents of the platform obey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.catalog import keys, vocabulary
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.rules.attacks import Attack, Request, attack, escaped, put
from tenancy.rules.claims_of_work import CLAIM_TEMPLATES, PARTS_OF_WORK, by_resource_of_work, each_claim_of_volumes
from tenancy.rules.expressions import (
    OF_TENANT,
    annotation,
    by_platform,
    cel,
    in_tenants_namespaces,
    unless_by_controller,
)
from tenancy.rules.model import Face, GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.network import DOMAINS_OF_NODE
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.rules.workloads import (
    DISK,
    TRAIN_JOB,
    against,
    at_home,
    claims_of_pods,
    kinds_of,
    minimal,
    pointers,
    policy_of,
    work,
    workload,
)

# Keys of labels and annotations

_OWN_DOMAIN = f"""{annotation(vocabulary.OWNER_MAIL)}.lowerAscii().split('@')[?1].orValue('/')"""
"""Domain of the address of the tenant's owner: the organization's own keys, which are no agent's."""
_BY_NODES = f"{DOMAINS_OF_NODE}.exists(d, ('.' + k.split('/')[0]).endsWith(d))"
_OF_CLAIMS = [f"c.?metadata.?{field}.orValue({{}}).map(k, k)" for field in ("labels", "annotations")]
_OF_PARTS = [f"j.?metadata.?{field}.orValue({{}}).map(k, k)" for field in ("labels", "annotations")]


def _known_keys(facts: GuardFacts, lists: str) -> str:
    """Whether each key of some lists may be written."""
    domain = "k.split('/')[0]"
    domains = [*keys.DOMAINS, *([keys.SYNCED_DOMAIN] if facts.virtual_clusters else [])]
    names = [*keys.KEYS, *keys.VALUES, *(key for key in facts.keys if "/" in key)]
    more = [f".{key}" for key in facts.keys if "/" not in key]
    ways = [
        f"!k.contains('/') || {domain} in {cel(domains)} || k in {cel(names)} || {domain} == {OF_TENANT}",
        *([f"{cel(more)}.exists(d, ('.' + {domain}).endsWith(d))"] if more else []),
        f"('.' + {domain}).endsWith('.' + {_OWN_DOMAIN})",
    ]
    return f"({lists}).all(l, l.all(k, {' || '.join(ways)}))"


def _valued(annotations: str) -> str:
    return " && ".join(
        f"(!({cel(key)} in {annotations}) || {annotations}[{cel(key)}] == {cel(only)})"
        for key, only in keys.VALUES.items()
    )


def _own_keys(facts: GuardFacts, resources_without_notes: tuple[str, ...] = ()) -> str:
    """Whether the keys of an object's own metadata are known, but for those that it has already. Annotations of some
    resources are not judged."""

    def fresh(field: str) -> str:
        now, before = (f"dyn({root}).metadata.{field}" for root in ("object", "oldObject"))
        judged = f" && !{_BY_NODES}" if field == "annotations" else ""
        return f"""(has({now}) ? {now} : {{}}).filter(k, !(oldObject != null && has({before}) && k in {before}
        && {before}[k] == {now}[k]){judged})"""

    notes = fresh("annotations")
    if resources_without_notes:
        notes = f"(request.resource.resource in {cel(list(resources_without_notes))} ? [] : {notes})"
    now = "dyn(object).metadata.annotations"
    known_keys = _known_keys(facts, f"[{fresh('labels')}, {notes}]")
    return f"{known_keys} && (!has({now}) || {_valued(now)})"


def _of_objects(facts: GuardFacts) -> str:
    """Annotations of a service are judged by net-01, of an account by id-01, of a policy by net-10."""
    return in_tenants_namespaces(f"""request.resource.resource == 'networkpolicies'
        || ({_own_keys(facts, ("services", "serviceaccounts"))})""")


def _of_work(facts: GuardFacts) -> str:
    return in_tenants_namespaces(_own_keys(facts))


def _of_volumes(facts: GuardFacts) -> str:
    """Keys of the claims that a pod makes."""
    return each_claim_of_volumes(_known_keys(facts, f"[{', '.join(_OF_CLAIMS)}]"))


def _of_templates(facts: GuardFacts) -> str:
    """Keys of a pod template, and of the claims that its pods make."""
    notes = f"variables.podAnnotations.filter(k, !{_BY_NODES})"
    pods = _known_keys(facts, f"[variables.podLabels.map(k, k), {notes}]")
    text = f"{pods} && {_valued('variables.podAnnotations')} && {_of_volumes(facts)}"
    return unless_by_controller(f"{by_platform(facts.platform_group)} || ({text})")


def _beside_pods(facts: GuardFacts) -> str | None:
    """Keys of templates of claims, and of what is made between work and its pods."""
    claims, parts = (_known_keys(facts, f"[{', '.join(keys_of)}]") for keys_of in (_OF_CLAIMS, _OF_PARTS))
    return by_resource_of_work(facts, (CLAIM_TEMPLATES, claims), (PARTS_OF_WORK, parts))


# Attacks

_NOTE = "note"
"""Key without a domain: no agent's."""
_LABELS, _ANNOTATIONS = "/metadata/labels", "/metadata/annotations"

_AGENTS: Mapping[str, tuple[str, str, str, str]] = {
    "driver-upgrade": (
        "keep its node out of the upgrade of the driver",
        _LABELS,
        "nvidia.com/gpu-driver-upgrade-drain.skip",
        "true",
    ),
    "scale-down": ("keep its node, and the bill", _LABELS, "spotinst.io/restrict-scale-down", "true"),
    "local-volumes": (
        "keep its node by its volumes",
        _ANNOTATIONS,
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
        "x",
    ),
    "consolidation": ("keep its node from consolidation", _ANNOTATIONS, "karpenter.sh/do-not-consolidate", "true"),
    "node-check": (
        "have the node's agent send requests of its choice",
        _ANNOTATIONS,
        "ad.datadoghq.com/c.checks",
        '{"http_check": {"instances": [{"url": "http://169.254.169.254/"}]}}',
    ),
    "log-tenant": ("write into another tenant's logs", _ANNOTATIONS, "loki.grafana.com/tenant", "another-tenant"),
    "metric-path": ("have the collector call any handler", _ANNOTATIONS, "prometheus.io/path", "/quit"),
    "metric-parameter": ("have the collector send parameters", _ANNOTATIONS, "prometheus.io/param_target", "x"),
    "mesh": ("leave the mesh and its policies", _ANNOTATIONS, "sidecar.istio.io/inject", "false"),
    "look-alike": ("hide in a domain that ends like one that is allowed", _LABELS, "evil-app.kubernetes.io/name", "x"),
    "below": ("hide in a domain below one that is allowed", _LABELS, "scaler.kubernetes.io/keep", "x"),
    "empty": ("obey without a value", _LABELS, "spotinst.io/restrict-scale-down", ""),
}
"""Keys that agents obey, and what they do: labels and annotations of a pod."""

_COPIED: Mapping[str, tuple[str, str, str]] = {
    "replicator": ("replicator.v1.mittwald.de/replicate-from", "another-tenant/db", "copy another tenant's data"),
    "reflector": ("reflector.v1.k8s.emberstack.com/reflects", "another-tenant/db", "copy another tenant's data"),
    "kubed": ("kubed.appscode.com/sync", "", "copy its data into every namespace"),
}

_VOLUMES: Mapping[str, tuple[str, str, str]] = {
    "volume-type": ("ebs.csi.aws.com/volumeType", "io2", "change its volume's type, and the bill"),
    "volume-iops": ("ebs.csi.aws.com/iops", "64000", "change its volume's IOPS, and the bill"),
    "volume-tags": ("tagger.ebs.csi/tags", '{"tenancy:tenant": "x"}', "charge its volume to another tenant"),
    "volume-old-tags": ("aws-ebs-tagger/tags", '{"tenancy:tenant": "x"}', "charge its volume to another tenant"),
    "selected-node": ("volume.kubernetes.io/selected-node", "x", "choose where its volume is made"),
}


def _objects(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    policy, others = "tenancy-object-limits", scene.other_tenant_namespace(place)
    for kind in ("ConfigMap", "Secret"):
        plain: Object = {"apiVersion": "v1", "kind": kind, "metadata": {"name": POD_NAME, "labels": {_NOTE: "x"}}}
        for slug, (key, value, sentence) in _COPIED.items():
            annotated_object = _with_note(plain, _ANNOTATIONS)
            note_value = value.replace("another-tenant", others.name if others else "another-tenant")
            yield against(
                place, "meta-01", slug, sentence, policy, annotated_object, f"{_ANNOTATIONS}/{escaped(key)}", note_value
            )
        forged = "have its object taken for one of the platform's"
        at = f"{_LABELS}/{escaped(vocabulary.ENVIRONMENT)}"
        yield against(place, "meta-01", "platforms", forged, policy, plain, at, place.environment.environment)


def _claims(_scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    plain = minimal("PersistentVolumeClaim", spec={**DISK, "storageClassName": place.environment.claim_classes[0]})
    plain["metadata"]["annotations"] = {_NOTE: "hello"}
    for slug, (key, value, sentence) in _VOLUMES.items():
        at = f"{_ANNOTATIONS}/{escaped(key)}"
        yield against(place, "meta-01", slug, sentence, "tenancy-object-limits", plain, at, value)
    key, value, sentence = _VOLUMES["volume-type"]
    for slug, workload_body, where in claims_of_pods(place):
        at = f"{where}/metadata/annotations/{escaped(key)}"
        yield against(
            place, "meta-01", slug, sentence, policy_of(place, workload_body["kind"]), workload_body, at, value
        )


def _parts_of_work(_scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    """Attacks by annotations of work that operators obey, and by metadata of the objects between work and its pods."""
    if not place.environment.has_queues:
        return
    hold, kinds, zone = "hold quota for pods that never come", kinds_of(place), "topology.kubernetes.io/zone"
    if "JobSet" in kinds:
        job = "/spec/replicatedJobs/0/template"
        workload_body = put(put(work(place, "JobSet"), f"{job}/spec/parallelism", 1), f"{job}/spec/completions", 1)
        workload_body = _with_note(put(workload_body, f"{job}/metadata", {}), _ANNOTATIONS, job)
        at = f"{job}{_ANNOTATIONS}/{escaped('alpha.jobset.sigs.k8s.io/exclusive-topology')}"
        yield against(place, "meta-01", "topology", hold, "tenancy-frameworks", workload_body, at, zone)
    if "LeaderWorkerSet" in kinds:
        workload_body = _with_note(work(place, "LeaderWorkerSet"), _ANNOTATIONS)
        at = f"{_ANNOTATIONS}/{escaped('leaderworkerset.sigs.k8s.io/exclusive-topology')}"
        yield against(place, "meta-01", "topology", hold, "tenancy-work-limits", workload_body, at, zone)
    if TRAIN_JOB in {framework.kind for framework in place.frameworks} and place.training_runtime:
        patch = "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template"
        workload_body = put(work(place, TRAIN_JOB), "/spec/runtimePatches", [_patch()])
        sentence, field, key, value = _AGENTS["driver-upgrade"]
        at = f"{patch}{field}/{escaped(key)}"
        yield against(place, "meta-01", "patch", sentence, "tenancy-frameworks", workload_body, at, value)


def _with_note(manifest: Object, field: str, at: str = "") -> Object:
    """The object with a harmless key in that field of its metadata, or of the metadata at a pointer."""
    target: Any = manifest
    for key in f"{at}{field}".split("/")[1:]:
        target = target[int(key)] if isinstance(target, list) else target.get(key, {})
    return put(manifest, f"{at}{field}", {**target, _NOTE: "hello"})


def _agents(_scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    policy = "tenancy-work-limits"
    for slug, (sentence, field, key, value) in _AGENTS.items():
        pod = _with_note(place.pod(), field)
        yield against(place, "meta-01", slug, sentence, policy, pod, f"{field}/{escaped(key)}", value)
    sentence, field, key, value = _AGENTS["driver-upgrade"]
    for kind in kinds_of(place):
        if kind == "Pod":
            continue
        workload_body = _with_note(workload(kind, place.pod()), field)
        yield against(place, "meta-01", "own", sentence, policy, workload_body, f"{field}/{escaped(key)}", value)
        # Of what an agent obeys on pods, the template counts.
        workload_body = workload(kind, _with_note(place.pod(), field))
        where = next(pointers(workload_body, _NOTE)).rpartition("/")[0]
        # The API server gives a Job without labels those of its template (batch/v1, `SetDefaults_Job`).
        workload_body = _with_note(workload_body, _LABELS)
        yield against(
            place,
            "meta-01",
            "template",
            sentence,
            policy_of(place, kind),
            workload_body,
            f"{where}/{escaped(key)}",
            value,
        )
    at = "/spec/jobTemplate"
    workload_body = _with_note(workload("CronJob", place.pod()), _LABELS, at)
    yield against(
        place, "meta-01", "jobs", sentence, "tenancy-cronjobs", workload_body, f"{at}{_LABELS}/{escaped(key)}", value
    )


def _patch() -> Object:
    pod = {"metadata": {"labels": {_NOTE: "hello"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    return {
        "manager": "bank.example/developer",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


def _of_sidecars(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    sentence = "have the platform's dashboards load its configuration"
    for kind in ("ConfigMap", "Secret"):
        path = collection("v1", kind, place.name)
        guard = scene.guard("obs-01", path.rpartition("/")[2])
        plain = {"apiVersion": "v1", "kind": kind, "metadata": {"name": POD_NAME, "labels": {"app": "x"}}}
        for key in vocabulary.LOADED_LABELS:
            request = Request("POST", path, put(plain, f"/metadata/labels/{key}", "1"), place.developer)
            slug = f"obs-01-{kind.lower()}-{key.replace('_', '-')}"
            yield attack(slug, "obs-01", sentence, guard, request, twin_body=plain)


RULES: tuple[Rule, ...] = (
    Rule(
        id="meta-01",
        title="labels and annotations have keys that no agent of the platform obeys",
        why=(
            "an agent has rights of its own in every namespace: by a key a pod keeps its node from an upgrade or from "
            "being removed, writes into another tenant's logs or leaves a mesh, a claim changes its volume's price and "
            "tags, and a secret becomes a copy of another tenant's"
        ),
        fix=(
            "drop the key, or use one without a domain or under the domain of your owner's mail address; the "
            "platform team "
            "adds keys that its agents may obey under platform.metadata-keys"
        ),
        partial={
            Face.PREVIEW: (
                "it knows the keys that are allowed only where the namespace is among the objects, and an object with "
                "the platform's label may be the platform's"
            )
        },
        guards={
            GuardSubject.POD: lambda facts: unless_by_controller(_of_volumes(facts)),
            GuardSubject.TEMPLATES: _of_templates,
            GuardSubject.CLAIMS_OF_WORK: _beside_pods,
            GuardSubject.SIZES_OF_WORK: _of_work,
            GuardSubject.SIZES_OF_OBJECTS: _of_objects,
        },
        attacks=(at_home(_agents), at_home(_objects), at_home(_claims), at_home(_parts_of_work)),
    ),
    Rule(
        id="obs-01",
        title="the platform's dashboards and collectors load no config map or secret of a tenant",
        why=(
            "a sidecar that watches all namespaces loads what has its label: dashboards, data sources and "
            "alerts that the "
            "platform and other tenants see"
        ),
        fix="drop the label; the platform team adds dashboards and alerts",
        severity=Severity.MEDIUM,
        guards={
            GuardSubject.SIZES_OF_OBJECTS: in_tenants_namespaces(
                f"""!(request.resource.resource in ['configmaps', 'secrets'])
        || !has(object.metadata.labels) || {cel([*vocabulary.LOADED_LABELS])}.all(k, !(k in object.metadata.labels))"""
            )
        },
        attacks=(at_home(_of_sidecars),),
    ),
)
