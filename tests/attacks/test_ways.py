"""A pod that may not be created may not come about by an update: every way to write an existing object, and every sort
of container."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from attack_lab import Cluster, gaps, refused_by

from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import APPLY, JSON_PATCH, MERGE, STRATEGIC, Impersonation, collection
from tenancy.planning.guards import GUARDED
from tenancy.rules.attacks import ABSENT, attack, escaped, put
from tenancy.rules.workloads import CLUSTER_ADMIN, FOREIGN_IMAGE, of_api, workload
from tenancy.verify.attacks import Attack, AttackedNamespace, Request, differences

TEMPLATE_KINDS = ("Deployment", "StatefulSet", "CronJob", "ReplicaSet")
"""Kinds whose template may be written anew; a Job's may not, nor most of a pod."""
WAYS = ("replace", "json", "merge", "strategic", "apply")
PATCHES = {"json": JSON_PATCH, "merge": MERGE, "strategic": STRATEGIC, "apply": APPLY}
STOOD = "stood"
ON_TEMPLATES = {
    rule
    for rule in GUARDED
    if rule.startswith(
        (
            "gpu-0",
            "sched-",
            "img-",
            "dns-",
            "avail-",
            "pod-",
            "quota-",
            "stor-04",
            "net-07",
            "cost-",
            "meta-",
            "stor-12",
        )
    )
} - {"gpu-01", "gpu-04", "gpu-08", "avail-02", "pod-03", "pod-05", "sched-03", "sched-08"}
"""Rules on pods; of those left out one needs a class of the cluster's, three a namespace that is told so, one an older
Kubernetes, and the others are about other kinds."""


@pytest.fixture(scope="module")
def home(cluster: Cluster) -> AttackedNamespace:
    assert cluster.scene.home
    return cluster.scene.home


@pytest.fixture(scope="module")
def stood(cluster: Cluster, home: AttackedNamespace) -> Iterator[str]:
    """A pod, and one of each kind without pods, as they are admitted."""
    pod = put(home.pod(), "/metadata/name", STOOD)
    standing_objects = [pod, *(_still(workload(kind, pod)) for kind in TEMPLATE_KINDS)]
    paths = [collection(item["apiVersion"], item["kind"], home.name) for item in standing_objects]
    try:
        for path, item in zip(paths, standing_objects, strict=True):
            answer = cluster.api.request("POST", path, item)
            assert answer.ok, answer.message
        yield STOOD
    finally:
        for path in paths:
            cluster.api.request("DELETE", f"{path}/{STOOD}?gracePeriodSeconds=0&propagationPolicy=Background")


def _still(work: Object) -> Object:
    """Work that makes no pod by itself."""
    return put(work, "/spec/suspend" if work["kind"] == "CronJob" else "/spec/replicas", work["kind"] == "CronJob" or 0)


@dataclass(frozen=True)
class TemplateAttack:
    """A template that is refused when it is made, and how it would be written onto one that stands."""

    attack: Attack
    kind: str
    path: str

    def by(self, way: str) -> Attack:
        bad, good = (_stands(body) for body in (self.attack.request.body, self.attack.twin.body))
        request, twin = self._request(way, bad), self._request(way, good)
        return replace(self.attack, id=f"{self.attack.id}-{way}", request=request, twin=twin)

    def _request(self, way: str, body: Object) -> Request:
        who = self.attack.request.who
        if way == "replace":
            return Request("PUT", self.path, body, who)
        if way == "json":
            patch = [{"op": "replace", "path": "/spec", "value": body["spec"]}]
            return Request("PATCH", self.path, patch, who, JSON_PATCH)
        query = "?fieldManager=verify&force=true" if way == "apply" else ""
        return Request("PATCH", f"{self.path}{query}", body, who, PATCHES[way])


def _stands(body: Object) -> Object:
    """The body under the name of what stands; the selector goes by that name."""
    renamed = copy.deepcopy(body)
    old, renamed["metadata"]["name"] = renamed["metadata"]["name"], STOOD
    labels = {"app.kubernetes.io/name": STOOD}
    spec = renamed["spec"]
    if "serviceName" in spec:
        spec["serviceName"] = STOOD
    if "selector" in spec:
        assert spec["selector"] == {"matchLabels": {"app.kubernetes.io/name": old}}
        spec["selector"] = {"matchLabels": labels}
        spec["template"]["metadata"]["labels"].update(labels)
    return _still(renamed)


def _of_template(probe: Attack) -> bool:
    """Whether the difference is in what is written anew, and not in the object's own labels nor in who asks."""
    fixed = ("/spec/replicas", "/spec/volumeClaimTemplates")  # no pod stands here, and no claim's template changes
    where = differences(probe.request.body, probe.twin.body)
    return any(at.startswith("/spec/") and not at.startswith(fixed) for at in where)


def _adds(probe: Attack) -> bool:
    """Whether the attack has what its twin lacks, or another value: no patch takes away what it does not name."""
    (at,) = differences(probe.request.body, probe.twin.body)
    return put(probe.request.body, at, ABSENT) != probe.request.body


def _template_attacks(cluster: Cluster, home: AttackedNamespace) -> list[TemplateAttack]:
    attacks = []
    for kind in TEMPLATE_KINDS:
        path = collection(of_api(kind), kind, home.name)
        of_kind = [
            a for a in cluster.attacks if not a.skipped and a.request.method == "POST" and a.request.path == path
        ]
        attacks += [TemplateAttack(a, kind, f"{path}/{STOOD}") for a in of_kind if _of_template(a)]
    return attacks


def _held_by_queue(case: Attack) -> bool:
    """Kueue's webhook makes a StatefulSet's resource requests and node selection immutable: no twin passes."""
    return "-statefulset-" in case.id and case.rule in {"quota-04", "sched-01", "sched-06", "sched-09"}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way,
            marks=()
            if way == "replace"
            else pytest.mark.exhaustive(reason="the other ways to write an object; `make test` replaces it"),
        )
        for way in WAYS
    ],
)
def test_no_template_becomes_what_it_may_not_be(
    cluster: Cluster, home: AttackedNamespace, stood: str, way: str
) -> None:
    assert stood
    is_complete_body = way in ("replace", "json")
    able = [
        template_attack
        for template_attack in _template_attacks(cluster, home)
        if not _held_by_queue(template_attack.attack)
    ]
    attacks = [template_attack.by(way) for template_attack in able if is_complete_body or _adds(template_attack.attack)]
    assert {attack.rule for attack in attacks} >= ON_TEMPLATES - (set() if is_complete_body else {"quota-04"})
    assert gaps(cluster, attacks) == []


# A pod that stands, by each kind of patch


LABELS, NOTES = "/metadata/labels", "/metadata/annotations"
WAY_MARKS: dict[str, tuple[str, str, Any]] = {
    "gpu-05": (f"{NOTES}/{escaped('nvidia.cdi.k8s.io/pod')}", "nvidia.com/gpu=all", "annotation"),
    "avail-04": (f"{NOTES}/{escaped('karpenter.sh/do-not-disrupt')}", "true", "hold"),
    "meta-01": (f"{LABELS}/{escaped('nvidia.com/gpu-driver-upgrade-drain.skip')}", "true", "agent"),
    "net-07": (f"{NOTES}/{escaped('k8s.v1.cni.cncf.io/networks')}", "x", "network"),
    "cost-01": (f"{LABELS}/team", "another-team", "team"),
    "kueue-08": (f"{LABELS}/{escaped('kueue.x-k8s.io/pod-group-name')}", "a", "group"),
}
"""Labels and annotations that a rule refuses: where, what, and a name."""


def _marked(home: AttackedNamespace, path: str, way: str, at: str, value: Any, who: Impersonation | None) -> Request:
    plain: Any = {"metadata": {"annotations": {"bank.example/note": "x"}, "labels": {"note": "hello"}}}
    if way == "json":
        body: Any = [{"op": "add", "path": f"{NOTES}/note", "value": "x"}]
        if value is not ABSENT:
            body = [{"op": "add", "path": at, "value": value}]
        return Request("PATCH", path, body, who, JSON_PATCH)
    if way == "apply":
        plain |= {"apiVersion": "v1", "kind": "Pod"}
        plain["metadata"]["name"] = STOOD
        path = f"{path}?fieldManager=verify&force=true"
    assert home
    return Request("PATCH", path, put(plain, at, value), who, PATCHES[way])


@pytest.mark.parametrize("way", PATCHES)
@pytest.mark.parametrize("status", ["", "/status"])
def test_what_stands_is_guarded_by_its_status_too(
    cluster: Cluster, home: AttackedNamespace, stood: str, way: str, status: str
) -> None:
    path = f"/api/v1/namespaces/{home.name}/pods/{stood}{status}"
    # No person of a tenant may write a status; an identity with every right is still refused.
    who = CLUSTER_ADMIN if status else home.developer
    attacks = []
    for rule, (at, value, name) in WAY_MARKS.items():
        if way == "json":
            bad = _marked(home, path, way, at, value, who)
            twin = {**bad.body[0], "path": f"{at.rpartition('/')[0]}/note"}
            request, good = bad, [twin]
        else:
            request, good = _marked(home, path, way, at, value, who), _marked(home, path, way, at, ABSENT, who).body
        guard = cluster.scene.guard(rule, f"pods{status}")
        attacks.append(attack(f"mark-{name}-{way}", rule, name, guard, request, twin_body=good))
    assert gaps(cluster, attacks) == []


@pytest.mark.parametrize("way", ["json", "merge", "strategic", "apply"])
def test_a_running_pods_image_and_tolerations_are_judged_again(
    cluster: Cluster, home: AttackedNamespace, stood: str, way: str
) -> None:
    path = f"/api/v1/namespaces/{home.name}/pods/{stood}"
    pod_spec = cluster.api.request("GET", path).body["spec"]
    image = pod_spec["containers"][0]["image"]
    extra = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
    me = home.developer
    if way == "json":
        image_patch: Any = [{"op": "replace", "path": "/spec/containers/0/image", "value": image}]
        at = "/0/value"
        tolerate: Any = [{"op": "add", "path": "/spec/tolerations/-", "value": extra}]
        key = "/0/value/key"
    elif way == "strategic":
        image_patch = {"spec": {"containers": [{"name": pod_spec["containers"][0]["name"], "image": image}]}}
        at, key = "/spec/containers/0/image", f"/spec/tolerations/{len(pod_spec['tolerations'])}/key"
        tolerate = {"spec": {"tolerations": [*pod_spec["tolerations"], extra]}}
    elif way == "merge":
        image_patch = {"spec": {"containers": pod_spec["containers"]}}
        at, key = "/spec/containers/0/image", f"/spec/tolerations/{len(pod_spec['tolerations'])}/key"
        tolerate = {"spec": {"tolerations": [*pod_spec["tolerations"], extra]}}
    else:
        pod_head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": stood}}
        container_patch = {"name": pod_spec["containers"][0]["name"], "image": image}
        image_patch = {**pod_head, "spec": {"containers": [container_patch]}}
        at, key = "/spec/containers/0/image", f"/spec/tolerations/{len(pod_spec['tolerations'])}/key"
        tolerate = {
            **pod_head,
            "spec": {"containers": [container_patch], "tolerations": [*pod_spec["tolerations"], extra]},
        }
    query = "?fieldManager=verify&force=true" if way == "apply" else ""
    kind = PATCHES[way]
    attacks = [
        attack(
            f"image-{way}",
            "img-01",
            "another image",
            cluster.scene.guard("img-01", "pods"),
            Request("PATCH", path + query, put(image_patch, at, FOREIGN_IMAGE), me, kind),
            twin_body=image_patch,
        ),
        attack(
            f"toleration-{way}",
            "sched-01",
            "one more toleration",
            cluster.scene.guard("sched-01", "pods"),
            Request("PATCH", path + query, put(tolerate, key, vocabulary.POOL), me, kind),
            twin_body=tolerate,
        ),
    ]
    assert gaps(cluster, attacks) == []


# A container that is added for debugging


@pytest.mark.parametrize("way", ["strategic", "merge", "json"])
def test_a_debug_container_is_judged_like_any_other(
    cluster: Cluster, home: AttackedNamespace, stood: str, way: str
) -> None:
    first = copy.deepcopy(home.pod()["spec"]["containers"][0])
    first.update(name="debug", env=[{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}])
    first["envFrom"] = [{"prefix": "MODEL_", "configMapRef": {"name": "settings"}}]
    del first["resources"]
    cases = {
        "gpu-02": ("/env/0/name", "NVIDIA_VISIBLE_DEVICES"),
        "gpu-03": ("/envFrom/0/prefix", "NVIDIA_"),
        "img-01": ("/image", FOREIGN_IMAGE),
    }
    attacks = [
        _debug(home, stood, way, rule, first, at, bad, cluster.scene.guard(rule, "pods/ephemeralcontainers"))
        for rule, (at, bad) in cases.items()
    ]
    assert gaps(cluster, attacks) == []


def _debug(
    home: AttackedNamespace,
    stood: str,
    way: str,
    rule: str,
    good: Object,
    at: str,
    bad: Any,
    denier: str,
    name: str = "",
) -> Attack:
    path = f"/api/v1/namespaces/{home.name}/pods/{stood}/ephemeralcontainers"
    if way == "json":
        # The list is not there yet.
        body: Any = [{"op": "add", "path": "/spec/ephemeralContainers", "value": [good]}]
        at = f"/0/value/0{at}"
    else:
        body, at = {"spec": {"ephemeralContainers": [good]}}, f"/spec/ephemeralContainers/0{at}"
    request = Request("PATCH", path, put(body, at, bad), home.developer, PATCHES[way])
    return attack(f"debug-{name or rule}-{way}", rule, "a debug container", denier, request, twin_body=body)


SECURITY: dict[str, tuple[str, Any, Any]] = {
    "escalation": ("allowPrivilegeEscalation", True, False),
    "capability": ("capabilities/add", ["SYS_ADMIN"], ABSENT),
    "keeps-capabilities": ("capabilities/drop", ABSENT, ["ALL"]),
    "root": ("runAsUser", 0, 1000),
    "not-unprivileged": ("runAsNonRoot", False, True),
    "seccomp": ("seccompProfile", {"type": "Unconfined"}, ABSENT),
    "app-armor": ("appArmorProfile", {"type": "Unconfined"}, ABSENT),
    "se-linux": ("seLinuxOptions", {"type": "spc_t"}, ABSENT),
}
"""Fields of a container that the restricted level judges: the field, a bad value, and the twin's."""


@pytest.mark.parametrize("sort", ["containers", "initContainers", "sidecars", "ephemeralContainers"])
def test_pod_security_refuses_it_in_every_container(
    cluster: Cluster, home: AttackedNamespace, stood: str, sort: str
) -> None:
    plain = copy.deepcopy(home.pod()["spec"]["containers"][0])
    attacks = []
    for name, (field, bad, good) in SECURITY.items():
        at = f"/securityContext/{field}"
        container = put({**plain, "name": "one-more"}, at, good)
        if sort == "ephemeralContainers":
            container.pop("resources", None)
            probe = _debug(home, stood, "strategic", "pod-security", container, at, bad, deniers.POD_SECURITY, name)
        else:
            probe = _new(home, sort, name, container, at, bad)
        attacks.append(probe)
    assert gaps(cluster, attacks) == []


def _new(home: AttackedNamespace, sort: str, name: str, container: Object, at: str, bad: Any) -> Attack:
    key = "containers" if sort == "containers" else "initContainers"
    if sort == "sidecars":
        container = {**container, "restartPolicy": "Always"}
    pod = home.pod()
    containers = pod["spec"].get(key, [])
    pod = put(pod, f"/spec/{key}", [*containers, container])
    request = Request(
        "POST", collection("v1", "Pod", home.name), put(pod, f"/spec/{key}/{len(containers)}{at}", bad), home.developer
    )
    return attack(f"security-{sort}-{name}", "pod-security", name, deniers.POD_SECURITY, request, twin_body=pod)


def test_a_privileged_container_is_refused_whatever_else_it_says(cluster: Cluster, home: AttackedNamespace) -> None:
    pod = put(home.pod(), "/spec/containers/0/securityContext/allowPrivilegeEscalation", ABSENT)
    path = collection("v1", "Pod", home.name)
    both = put(pod, "/spec/containers/0/securityContext/privileged", True)
    for body in (both, pod):
        answer = cluster.api.request("POST", f"{path}?dryRun=All", body, home.developer)
        assert denial.denier(answer.status, answer.message) == deniers.POD_SECURITY
        assert ("privileged (" in answer.message) == (body is both), "the container's privilege is named by itself"


# Scaling, which says nothing of what is scaled


@pytest.fixture
def scaled(cluster: Cluster) -> Iterator[tuple[AttackedNamespace, str]]:
    """A Deployment that asks for a GPU, without pods, by a person who may: where, and its path."""
    place = next(p for p in cluster.scene.staffed if p.tenant.gpu_users and p.developer != p.without_grant)
    deployment = _still(workload("Deployment", place.pod({next(iter(place.usable_gpus)): 1})))
    path = collection(of_api("Deployment"), "Deployment", place.name)
    answer = cluster.api.request("POST", path, deployment, place.developer)
    assert answer.ok, answer.message
    yield place, f"{path}/{deployment['metadata']['name']}"
    cluster.api.request("DELETE", f"{path}/{deployment['metadata']['name']}?propagationPolicy=Background")


def test_who_may_not_use_gpus_changes_no_program_that_runs_on_them(cluster: Cluster) -> None:
    place = next(p for p in cluster.scene.staffed if p.tenant.gpu_users and p.developer != p.without_grant)
    gpu_pod = place.pod({next(iter(place.usable_gpus)): 1})
    path = collection("v1", "Pod", place.name)
    answer = cluster.api.request("POST", path, gpu_pod, place.developer)
    assert answer.ok, answer.message
    pod_path = f"{path}/{gpu_pod['metadata']['name']}"
    try:
        (container,) = gpu_pod["spec"]["containers"]
        same = {"metadata": {"labels": {"note": "hello"}}, "spec": {"containers": [_image_of(container)]}}
        changed_image = put(same, "/spec/containers/0/image", container["image"].replace(":", "-2:", 1))
        guard = cluster.scene.guard("gpu-10", "pods")
        request = Request("PATCH", pod_path, changed_image, place.without_grant, STRATEGIC)
        sentence = "run a program of its own on a GPU that another person may use"
        more = attack("gpu-10-image", "gpu-10", sentence, guard, request, twin_body=same)
        granted = replace(more, id="gpu-10-image-granted", twin=replace(request, who=place.developer))
        refused_by(cluster, "gpu-10", [more, granted])
    finally:
        cluster.api.request("DELETE", f"{pod_path}?gracePeriodSeconds=0")


def _image_of(container: Object) -> Object:
    return {key: container[key] for key in ("name", "image")}


def test_who_may_not_use_gpus_does_not_scale_what_others_made(
    cluster: Cluster, scaled: tuple[AttackedNamespace, str]
) -> None:
    place, path = scaled
    guard = cluster.scene.guard("gpu-10", "deployments/scale")
    request = Request("PATCH", f"{path}/scale", {"spec": {"replicas": 4}}, place.without_grant, MERGE)
    sentence = "scale up another user's work on GPUs"
    more = attack("gpu-10-scale", "gpu-10", sentence, guard, request, twin_body={"spec": {"replicas": 0}})
    granted = replace(more, id="gpu-10-scale-granted", twin=replace(request, who=place.developer))
    refused_by(cluster, "gpu-10", [more, granted])
