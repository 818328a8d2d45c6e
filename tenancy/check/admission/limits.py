"""LimitRanges: the defaults that they give containers, and the bounds that they set.

Source: `k8s.io/kubernetes` v1.36.3 `plugin/pkg/admission/limitranger/admission.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import LIMIT_RANGE
from tenancy.kube.objects import as_list, get_path
from tenancy.kube.pods import Resources, limits_of, quantity_text, requests_of
from tenancy.kube.quantities import parse, thousandths

_NOTE = "kubernetes.io/limit-ranger"


def applies(request: AdmissionRequest) -> bool:
    """Whether LimitRanges are asked about a request: new pods, and claims."""
    if request.group or request.subresource or request.object is None:
        return False
    is_create = request.operation is Operation.CREATE
    return (request.resource == "pods" and is_create) or (
        request.resource == "persistentvolumeclaims" and request.operation in (Operation.CREATE, Operation.UPDATE)
    )


def with_default_limits(request: AdmissionRequest, cluster: ClusterObjects) -> None:
    """Gives the containers of a new pod the defaults of its namespace's LimitRanges; the object is changed."""
    item = request.object
    if item is None or not applies(request) or request.resource != "pods":
        return
    remarks: list[str] = []
    for limit in _limits(request, cluster, "Container"):
        default, least = defaults_of(limit)
        for field, word in (("containers", "container"), ("initContainers", "init container")):
            for container in as_list(get_path(item, "spec", field)):
                remarks += _completed(container, least, default, f"{word} {container.get('name')}")
    if remarks:
        notes = item["metadata"].setdefault("annotations", {})
        notes[_NOTE] = f"LimitRanger plugin set: {'; '.join(remarks)}"


def defaults_of(limit: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Default limits and requests of an item of a LimitRange: what it does not name follows from its bounds."""
    default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
    return default, {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}


def _completed(container: Any, requests: Mapping[str, Any], limits: Mapping[str, Any], name: str) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    for side, amounts, word in (("requests", requests, "request"), ("limits", limits, "limit")):
        own_amounts = resources.get(side) or {}
        if absent := sorted(set(amounts) - set(own_amounts)):
            resources[side] = {**own_amounts, **{resource: amounts[resource] for resource in absent}}
            yield f"{', '.join(absent)} {word} for {name}"


def limit_denials(request: AdmissionRequest, cluster: ClusterObjects) -> Iterator[Denial]:
    """Bounds that a pod's containers, the pod or a claim break."""
    item = request.object
    if item is None or not applies(request):
        return
    broken: list[str] = []
    if request.resource == "persistentvolumeclaims":
        resources = get_path(item, "spec", "resources") or {}
        for limit in _limits(request, cluster, "PersistentVolumeClaim"):
            requests = _exact(resources.get("requests"))
            broken += _below_min(limit, requests, {}, "PersistentVolumeClaim")
            broken += _above_max(limit, requests, None, "PersistentVolumeClaim")
    else:
        for limit in _limits(request, cluster, "Container"):
            for container in (
                *as_list(get_path(item, "spec", "containers")),
                *as_list(get_path(item, "spec", "initContainers")),
            ):
                resources = container.get("resources") or {}
                broken += _outside(limit, _exact(resources.get("requests")), _exact(resources.get("limits")))
        for limit in _limits(request, cluster, "Pod"):
            broken += _outside(limit, requests_of(item["spec"]), limits_of(item["spec"]), "Pod")
    if broken:
        yield Denial(LIMIT_RANGE, None, broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]")


def _limits(request: AdmissionRequest, cluster: ClusterObjects, kind: str) -> Iterator[Mapping[str, Any]]:
    for item in cluster.all("", "LimitRange", request.namespace):
        yield from (limit for limit in as_list(get_path(item, "spec", "limits")) if limit.get("type") == kind)


def _exact(amounts: Any) -> Resources:
    return Resources({name: thousandths(amount) for name, amount in (amounts or {}).items()})


def _outside(
    limit: Mapping[str, Any], requests: Resources, limits: Resources, kind: str = "Container"
) -> Iterator[str]:
    yield from _below_min(limit, requests, limits, kind)
    yield from _above_max(limit, requests, limits, kind)
    for name, max_ratio in (limit.get("maxLimitRequestRatio") or {}).items():
        request, at_most = requests.get(name, 0), limits.get(name, 0)
        words = f"{name} max limit to request ratio per {kind} is {max_ratio}, but"
        if not request:
            yield f"{words} no request is specified or request is 0"
        elif not at_most:
            yield f"{words} no limit is specified or limit is 0"
        elif at_most > parse(max_ratio) * request:
            yield f"{words} provided ratio is {at_most / request:f}"


def _below_min(limit: Mapping[str, Any], requests: Resources, limits: Mapping[str, int], kind: str) -> Iterator[str]:
    for name, least in (limit.get("min") or {}).items():
        words, bound = f"minimum {name} usage per {kind} is {least}", thousandths(least)
        if name not in requests:
            yield f"{words}.  No request is specified"
        elif requests[name] < bound:
            yield f"{words}, but request is {quantity_text(requests[name])}"
        elif name in limits and limits[name] < bound:
            yield f"{words}, but limit is {quantity_text(limits[name])}"


def _above_max(limit: Mapping[str, Any], requests: Resources, limits: Resources | None, kind: str) -> Iterator[str]:
    """Without `limits` the bound is on requests alone: a claim has no limits."""
    for name, max_amount in (limit.get("max") or {}).items():
        words, bound = f"maximum {name} usage per {kind} is {max_amount}", thousandths(max_amount)
        if limits is not None and name not in limits:
            yield f"{words}.  No limit is specified"
        elif limits is not None and limits[name] > bound:
            yield f"{words}, but limit is {quantity_text(limits[name])}"
        elif limits is None and name not in requests:
            yield f"{words}.  No request is specified"
        elif requests.get(name, 0) > bound:
            yield f"{words}, but request is {quantity_text(requests[name])}"
