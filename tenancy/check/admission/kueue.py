"""Fields that Kueue's webhooks write into new work of a tenant's namespace.

Source: `sigs.k8s.io/kueue` v0.19.2 `pkg/controller/jobs` and `pkg/controller/jobframework/defaults.go`. The
platform configures it to manage work without a queue's name too, in every namespace of a tenant.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import QUEUE_NAME
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.defaults import part_at
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.kube.objects import Object, as_list, get_path

GROUP = "kueue.x-k8s.io"
_MANAGED, _TRUE = f"{GROUP}/managed", "true"
_PRIORITY = f"{GROUP}/priority-class"
_PARENT = f"{GROUP}/pod-suspending-parent"
_GATES = (f"{GROUP}/admission", f"{GROUP}/topology")
_SUSPEND_FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("batch", "jobs"): ("spec", "suspend"),
    **{
        (kind.group, kind.resource): ("spec", "runPolicy", "suspend") if kind.kind == "MPIJob" else ("spec", "suspend")
        for kind in FRAMEWORKS.values()
        if kind.kind != "LeaderWorkerSet"
    },
}
"""Kinds that Kueue suspends by a field, and the path of the field."""
_TEMPLATE_KINDS = {("apps", "deployments"): "deployment", ("apps", "statefulsets"): "statefulset"}
"""Kinds of which Kueue gates the pods, and the value of the annotation on these pods."""
_OWNERS = frozenset("Deployment Job Pod ReplicaSet StatefulSet".split()) | {k.kind for k in FRAMEWORKS.values()}
"""Kinds whose own objects wait, so that what they make does not."""


def apply_kueue_defaults(request: AdmissionRequest, cluster: ClusterObjects) -> None:
    """Complete new work as Kueue's webhooks do; the object is changed."""
    item, kind = request.object, (request.group, request.resource)
    if item is None or request.operation is not Operation.CREATE or request.subresource or not request.namespace:
        return
    labels = get_path(cluster.namespace(request.namespace), "metadata", "labels") or {}
    if vocabulary.TENANT not in labels or not cluster.all(GROUP, "ClusterQueue"):
        return
    metadata = item["metadata"]
    if kind == ("", "pods") and _PARENT in (metadata.get("annotations") or {}):
        _add_scheduling_gates(item)
        return
    if kind != ("", "pods") and kind not in _SUSPEND_FIELDS and kind not in _TEMPLATE_KINDS:
        return
    if any(
        owner.get("controller") and owner.get("kind") in _OWNERS for owner in as_list(metadata.get("ownerReferences"))
    ):
        return
    if not (metadata.get("labels") or {}).get(QUEUE_NAME) and cluster.get(
        GROUP, "LocalQueue", vocabulary.DEFAULT_QUEUE, request.namespace
    ):
        metadata.setdefault("labels", {})[QUEUE_NAME] = vocabulary.DEFAULT_QUEUE
    if kind == ("", "pods"):
        metadata.setdefault("labels", {})[_MANAGED] = _TRUE
        metadata["finalizers"] = [*as_list(metadata.get("finalizers")), _MANAGED]
        _add_scheduling_gates(item)
    elif kind in _TEMPLATE_KINDS:
        _annotate_template(item, _TEMPLATE_KINDS[kind])
    else:
        *path, field = _SUSPEND_FIELDS[kind]
        part_at(item, *path)[field] = True


def _add_scheduling_gates(item: Object) -> None:
    gates = as_list(item["spec"].get("schedulingGates"))
    names = {gate.get("name") for gate in gates}
    item["spec"]["schedulingGates"] = [*gates, *({"name": name} for name in _GATES if name not in names)]
    item["metadata"].setdefault("annotations", {}).setdefault(f"{GROUP}/role-hash", "00000000")


def _annotate_template(item: Object, framework: str) -> None:
    template = part_at(item, "spec", "template", "metadata")
    # A StatefulSet that says that it is part of other work is left alone.
    if framework == "statefulset" and (template.get("annotations") or {}).get(_PARENT, framework) != framework:
        return
    template.setdefault("annotations", {})[_PARENT] = framework
    if framework == "deployment":
        labels = template.setdefault("labels", {})
        labels[_MANAGED] = _TRUE
        labels.update({k: v for k, v in (item["metadata"].get("labels") or {}).items() if k in (QUEUE_NAME, _PRIORITY)})
