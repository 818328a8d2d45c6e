"""Finds pods and pod templates in objects; the only reader of them.

Kubernetes' own kinds are read where their API has the template, any other kind by shape (`pod_shapes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.kube.kinds import GROUPS, group_of, ruled
from tenancy.kube.objects import at, many
from tenancy.kube.pod_shapes import PodTemplate, listed_containers, shapes_of

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


def templates_of(item: Object) -> tuple[PodTemplate, ...]:
    """Every pod template of an object, and the spec of a pod; none if its kind makes no pods."""
    kind = str(item.get("kind"))
    if kind in BUILT_IN and ruled(kind, item.get("apiVersion")) == kind:
        found = _built_in(item, BUILT_IN[kind])
        return () if found is None else (found,)
    if _is_known(item):
        return ()
    found = shapes_of(item, group_of(item)).templates
    return (*(one for one in found if not one.path.startswith(_PATCHES)), *_patches(item), *_submitter(item))


_PATCHES = "spec.runtimePatches["


def _patches(item: Object) -> Iterator[PodTemplate]:
    """Parts of pods in a TrainJob, which its operator merges into its runtime's (Trainer v2.2.1, `RuntimePatch`)."""
    if item.get("kind") != "TrainJob" or group_of(item) != "trainer.kubeflow.org":
        return
    for number, patch in enumerate(many(at(item, "spec", "runtimePatches"))):
        path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        for index, job in enumerate(many(at(patch, *path))):
            if (pod := at(job, "template", "spec", "template")) is not None:
                where = f"{_PATCHES}{number}].{'.'.join(path)}[{index}].template.spec.template.spec"
                spec = at(pod, "spec") or {}
                yield PodTemplate(where, at(pod, "metadata"), spec, tuple(listed_containers(spec, where)), whole=False)


def _submitter(item: Object) -> Iterator[PodTemplate]:
    """The pod that submits a RayJob's job, where its operator makes it: the head's image and no securityContext.

    Source: KubeRay v1.6.2, `GetDefaultSubmitterTemplate` and `GetDefaultSubmitterContainer`; in `SidecarMode` it does
    not read the template.
    """
    root = {"RayJob": ("spec",), "RayCronJob": ("spec", "jobTemplate")}.get(str(item.get("kind")), ())
    job = at(item, *root)
    if not root or group_of(item) != "ray.io" or not at(job, "rayClusterSpec"):
        return
    mode = at(job, "submissionMode") or "K8sJobMode"
    if mode == "SidecarMode" or (mode == "K8sJobMode" and not at(job, "submitterPodTemplate")):
        head = many(at(job, "rayClusterSpec", "headGroupSpec", "template", "spec", "containers"))
        container = {"name": "ray-job-submitter", "image": at(head[0], "image") if head else None}
        where = f"{'.'.join(root)}.submitterPodTemplate.spec"
        spec = {"containers": [container]}
        yield PodTemplate(where, None, spec, tuple(listed_containers(spec, where)))


def holds_pods(item: Object) -> bool:
    """Whether the object's kind has a pod template that the rules can read."""
    return bool(templates_of(item))


def not_judged(item: Object) -> str | None:
    """Why rules on pods do not apply, or only in part, to an object whose kind may make pods."""
    if _is_known(item):
        return None
    found = templates_of(item)
    if unread := shapes_of(item, group_of(item)).unread:
        return f"judged in part: {', '.join(unread)}" if found else f"not searched for pods: {', '.join(unread)}"
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
    return PodTemplate(where, at(template, "metadata"), spec, tuple(listed_containers(spec, where)))


def containers_of(spec: Any) -> list[Any]:
    """Every container of a pod's spec."""
    return [container for _, container in listed_containers(spec, "")]
