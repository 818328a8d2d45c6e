"""Objects as people wrote them: without what servers, controllers and admission added."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tenancy.catalog.controllers import QUEUE, RUN_TIME, URGENCY
from tenancy.kube.objects import Object, true_conditions

QUEUE_LABELS = frozenset({QUEUE, RUN_TIME, URGENCY})
"""Labels of Kueue that users write."""
TOKEN_VOLUME = "kube-api-access-"
_LABELS = ("batch.kubernetes.io/", "controller-uid", "job-name", "kueue.x-k8s.io/", "pod-template-hash")
_ANNOTATIONS = (
    *("autoscaling.alpha.kubernetes.io/", "batch.kubernetes.io/", "deployment.kubernetes.io/"),
    *("kubectl.kubernetes.io/last-applied", "kueue.x-k8s.io/", "pv.kubernetes.io/", "volume.beta.kubernetes.io/"),
    "volume.kubernetes.io/",
)
_POD = ("ephemeralContainers", "nodeName", "overhead", "preemptionPolicy", "priority", "schedulingGates")
_SERVICE = ("clusterIP", "clusterIPs", "healthCheckNodePort", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy")


def user_copy(item: Mapping[str, Any]) -> Object:
    """A copy that can be created elsewhere: name, namespace, users' labels and annotations, and the spec."""
    server_fields = {"apiVersion", "kind", "metadata", "status"}
    metadata = item["metadata"]
    identity = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    other_fields = {key: copy.deepcopy(value) for key, value in item.items() if key not in server_fields}
    copied = {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "metadata": {**identity, **_user_metadata(metadata)},
        **other_fields,
    }
    spec: dict[str, Any] = copied.get("spec") or {}
    match item["kind"]:
        case "Job":
            _without_selector(spec)
        case "PersistentVolumeClaim":
            spec.pop("volumeName", None)
        case "Pod":
            _without_scheduling(spec)
        case "Service":
            _without_addresses(spec)
        case "ServiceAccount":
            copied.pop("secrets", None)
    return copied


def _user_metadata(metadata: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Labels and annotations that users wrote."""
    result: dict[str, dict[str, str]] = {}
    for place, server_prefixes in (("labels", _LABELS), ("annotations", _ANNOTATIONS)):
        values = metadata.get(place) or {}
        if user_values := {k: v for k, v in values.items() if k in QUEUE_LABELS or not k.startswith(server_prefixes)}:
            result[place] = user_values
    return result


def _without_selector(spec: dict[str, Any]) -> None:
    """Remove a Job's selector, which names its own id, unless the user wrote it (manualSelector)."""
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
        spec["template"]["metadata"] = _user_metadata(spec["template"].get("metadata") or {})


def _without_scheduling(spec: dict[str, Any]) -> None:
    """Remove what admission and the scheduler wrote into a pod."""
    for key in _POD:
        spec.pop(key, None)
    if spec.get("volumes"):
        spec["volumes"] = [v for v in spec["volumes"] if not v["name"].startswith(TOKEN_VOLUME)]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if mounts := container.pop("volumeMounts", None):
            container["volumeMounts"] = [m for m in mounts if not m["name"].startswith(TOKEN_VOLUME)]


def _without_addresses(spec: dict[str, Any]) -> None:
    """Remove a service's addresses and node ports; a headless one stays headless."""
    headless = spec.get("clusterIP") == "None"
    for key in _SERVICE:
        spec.pop(key, None)
    if headless:
        spec["clusterIP"] = "None"
    for port in spec.get("ports") or ():
        port.pop("nodePort", None)


def has_ended(item: Mapping[str, Any]) -> bool:
    """Whether a pod or Job has ended, so that it is not created again."""
    has_ended_phase = (item.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return has_ended_phase or bool(true_conditions(item).keys() & {"Complete", "Failed"})
