"""Finds pods and pod templates in objects; the only reader of them.

Kubernetes' own kinds are read where their API has the template. Any other kind is read by shape, at any depth: a
mapping with a list of containers is a pod, for any name of the field that contains it (`template.spec`,
`podTemplate`, `workerGroupSpecs[].template`, KServe's `predictor`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.kube.kinds import GROUPS, group_of, ruled
from tenancy.kube.objects import at, many

Object = Mapping[str, Any]

_TEMPLATE = ("spec", "template")
BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
    "DaemonSet": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "Job": _TEMPLATE,
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
}
"""Built-in kinds that contain a pod, and its path."""
LISTS = ("containers", "initContainers", "ephemeralContainers")
"""Fields of a pod that list its containers."""
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_OF_CONTAINERS = frozenset("args command env envFrom ports resources securityContext volumeMounts".split())
_OF_PODS = (*_HOST, "hostUsers", "nodeName", "os", "runtimeClassName", "volumes")
"""Fields of a pod that a kind may have besides a single container."""
_KUBERNETES = frozenset(
    {"", "apps", "autoscaling", "batch", "extensions", "policy"}
    | {
        f"{name}.k8s.io"
        for name in (
            *("admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization"),
            *("certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver"),
            *("networking", "node", "rbac.authorization", "resource", "scheduling", "storage", "storagemigration"),
        )
    }
)
"""API groups of Kubernetes 1.36 itself (k8s.io/api v0.36.3): no other kind there contains a pod."""
_WITHOUT_PODS = frozenset({"cilium.io", "karpenter.k8s.aws", "karpenter.sh", "kueue.x-k8s.io"})
"""Other groups whose kinds make no pods: those of Cilium 1.18, Karpenter 1.14 and Kueue 0.19."""
_OF_PROMETHEUS = frozenset("AlertmanagerConfig PodMonitor Probe PrometheusRule ScrapeConfig ServiceMonitor".split())


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod, or a pod template."""

    path: str
    """Path of the pod's spec in the object, such as `spec.template.spec`."""
    metadata: Any
    spec: Any
    containers: tuple[tuple[str, Any], ...]
    """Every container with its path in the object."""
    whole: bool = True
    """False if a controller adds further fields: an absent field may then get a value."""


def templates_of(item: Object) -> tuple[PodTemplate, ...]:
    """Every pod template of an object, and the spec of a pod; none if its kind makes no pods."""
    kind = str(item.get("kind"))
    if kind in BUILT_IN and ruled(kind, item.get("apiVersion")) == kind:
        found = _built_in(item, BUILT_IN[kind])
        return () if found is None else (found,)
    if _is_known(item):
        return ()
    found = tuple(_within({key: value for key, value in item.items() if key not in ("metadata", "status")}, "", {}))
    return (*found, *_submitter(item))


def _submitter(item: Object) -> Iterator[PodTemplate]:
    """The pod that submits a RayJob, where its operator makes it: the head's image and no securityContext.

    Source: KubeRay v1.6.2, `GetDefaultSubmitterTemplate` and `GetDefaultSubmitterContainer`; in `SidecarMode` it does
    not read the template.
    """
    if item.get("kind") != "RayJob" or group_of(item) != "ray.io" or not at(item, "spec", "rayClusterSpec"):
        return
    mode = at(item, "spec", "submissionMode") or "K8sJobMode"
    if mode == "SidecarMode" or (mode == "K8sJobMode" and not at(item, "spec", "submitterPodTemplate")):
        head = many(at(item, "spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers"))
        container = {"name": "ray-job-submitter", "image": at(head[0], "image") if head else None}
        where = "spec.submitterPodTemplate.spec"
        spec = {"containers": [container]}
        yield PodTemplate(where, None, spec, tuple(_containers(spec, where)))


def holds_pods(item: Object) -> bool:
    """Whether the object's kind has a pod template that the rules can read."""
    return bool(templates_of(item))


def not_judged(item: Object) -> str | None:
    """Why rules on pods do not apply, or only in part, to an object whose kind may make pods."""
    if _is_known(item):
        return None
    found = templates_of(item)
    if not found:
        return "a kind that rules do not know, without a pod template in it"
    if not all(one.whole for one in found):
        return "judged in part: its controller completes the pods from what is not written here"
    return None


def _is_known(item: Object) -> bool:
    """Whether the places of a kind's pods are known, or that it has none; a resource of AWS has none."""
    kind, group = str(item.get("kind")), group_of(item)
    if ":" in kind or ruled(kind, item.get("apiVersion")) in GROUPS:
        return True
    if group == "monitoring.coreos.com":
        return kind in _OF_PROMETHEUS
    return bool(item.get("apiVersion")) and group in (_KUBERNETES | _WITHOUT_PODS)


def _built_in(item: Object, path: tuple[str, ...]) -> PodTemplate | None:
    template = at(item, *path) if path else item
    spec = at(template, "spec")
    if spec is None:
        return None
    where = ".".join((*path, "spec"))
    return PodTemplate(where, at(template, "metadata"), spec, tuple(_containers(spec, where)))


def containers_of(spec: Any) -> list[Any]:
    """Every container of a pod's spec."""
    return [container for _, container in _containers(spec, "")]


def _containers(spec: Any, where: str) -> Iterator[tuple[str, Any]]:
    for field in LISTS:
        for number, container in enumerate(many(at(spec, field))):
            yield f"{where}.{field}[{number}]", container


def _within(value: Any, where: str, around: Any) -> Iterator[PodTemplate]:
    """Pods in a value; `around` is the mapping that contains the value."""
    if isinstance(value, Mapping):
        if _is_pod(value):
            containers = tuple(_containers(value, where))
            whole = all(isinstance(at(one, "image"), str) for _, one in containers)
            # Besides the list, single containers such as KServe's model server.
            alone = tuple(_alone(value, where))
            metadata = at(around, "metadata") if where.endswith("spec") else None
            yield PodTemplate(where, metadata, value, (*containers, *alone), whole and not alone)
            return
        alone = tuple(_alone(value, where))
        if alone or any(value.get(field) is True for field in _HOST):
            spec = {field: value[field] for field in _OF_PODS if field in value}
            yield PodTemplate(where, None, spec, alone, whole=False)
        for key, item in value.items():
            yield from _within(item, f"{where}.{key}" if where else str(key), value)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _within(item, f"{where}[{number}]", value)


def _is_pod(value: Mapping[Any, Any]) -> bool:
    containers = value.get("containers")
    return isinstance(containers, list) and bool(containers) and all(isinstance(one, Mapping) for one in containers)


def _alone(value: Mapping[Any, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Containers outside of a list of containers: Argo's `container`, KServe's `model`."""
    for key, item in value.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in LISTS and isinstance(item, Mapping) and _is_container(item):
            yield path, item
        elif key not in LISTS and isinstance(item, list):
            yield from (
                (f"{path}[{n}]", one) for n, one in enumerate(item) if isinstance(one, Mapping) and _is_container(one)
            )


def _is_container(value: Mapping[Any, Any]) -> bool:
    if "containers" in value:
        return False
    said = isinstance(value.get("image"), str) or isinstance(value.get("securityContext"), Mapping)
    return said and bool(_OF_CONTAINERS & set(map(str, value)))
