"""Finds pods and pod templates in objects; the only reader of them.

Kubernetes' own kinds are read where their API has the template, any other kind by shape (`pod_shapes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.kube.kinds import GROUPS, group_of, ruled
from tenancy.kube.objects import as_list, get_path
from tenancy.kube.pod_shapes import PodTemplate, listed_containers, pods_in

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
        templates = _built_in(item, BUILT_IN[kind])
        return () if templates is None else (templates,)
    if _is_known(item):
        return ()
    templates = pods_in(item, group_of(item)).templates
    return (
        *(template for template in templates if not template.path.startswith(_PATCHES)),
        *_patches(item),
        *_submitter(item),
    )


_PATCHES = "spec.runtimePatches["


def _patches(item: Object) -> Iterator[PodTemplate]:
    """Parts of pods in a TrainJob, which its operator merges into its runtime's (Trainer v2.2.1, `RuntimePatch`)."""
    if item.get("kind") != "TrainJob" or group_of(item) != "trainer.kubeflow.org":
        return
    for number, patch in enumerate(as_list(get_path(item, "spec", "runtimePatches"))):
        path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        for index, job in enumerate(as_list(get_path(patch, *path))):
            if (pod := get_path(job, "template", "spec", "template")) is not None:
                spec_path = f"{_PATCHES}{number}].{'.'.join(path)}[{index}].template.spec.template.spec"
                spec = get_path(pod, "spec") or {}
                yield PodTemplate(
                    spec_path, get_path(pod, "metadata"), spec, tuple(listed_containers(spec, spec_path)), whole=False
                )


def _submitter(item: Object) -> Iterator[PodTemplate]:
    """The pod that submits a RayJob's job, where its operator makes it: the head's image and no securityContext.

    Source: KubeRay v1.6.2, `GetDefaultSubmitterTemplate` and `GetDefaultSubmitterContainer`; in `SidecarMode` it does
    not read the template.
    """
    root = {"RayJob": ("spec",), "RayCronJob": ("spec", "jobTemplate")}.get(str(item.get("kind")), ())
    job = get_path(item, *root)
    if not root or group_of(item) != "ray.io" or not get_path(job, "rayClusterSpec"):
        return
    mode = get_path(job, "submissionMode") or "K8sJobMode"
    if mode == "SidecarMode" or (mode == "K8sJobMode" and not get_path(job, "submitterPodTemplate")):
        head = as_list(get_path(job, "rayClusterSpec", "headGroupSpec", "template", "spec", "containers"))
        container = {"name": "ray-job-submitter", "image": get_path(head[0], "image") if head else None}
        spec_path = f"{'.'.join(root)}.submitterPodTemplate.spec"
        spec = {"containers": [container]}
        yield PodTemplate(spec_path, None, spec, tuple(listed_containers(spec, spec_path)))


def holds_pods(item: Object) -> bool:
    """Whether the object's kind has a pod template that the rules can read."""
    return bool(templates_of(item))


def not_judged(item: Object) -> str | None:
    """Why rules on pods do not apply, or only in part, to an object whose kind may make pods."""
    if _is_known(item):
        return None
    templates = templates_of(item)
    if unread := pods_in(item, group_of(item)).unread:
        return f"judged in part: {', '.join(unread)}" if templates else f"not searched for pods: {', '.join(unread)}"
    if not templates:
        return "a kind that rules do not know, without a pod template in it"
    if not all(template.whole for template in templates):
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
    template = get_path(item, *path) if path else item
    spec = get_path(template, "spec")
    if spec is None:
        return None
    spec_path = ".".join((*path, "spec"))
    return PodTemplate(spec_path, get_path(template, "metadata"), spec, tuple(listed_containers(spec, spec_path)))


def containers_of(spec: Any) -> list[Any]:
    """Every container of a pod's spec."""
    return [container for _, container in listed_containers(spec, "")]
