"""ResourceQuotas of a namespace without work: what alone is more than they allow can never be created.

Source: `k8s.io/kubernetes` v1.36.3 `pkg/quota/v1/evaluator/core` and `k8s.io/apiserver` v0.36.3
`pkg/admission/plugin/resourcequota/controller.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import quota
from tenancy.kube.objects import Object, as_list, get_path
from tenancy.kube.pods import SCALE, Resources, limits_of, quantity_text, requests_of
from tenancy.kube.quantities import thousandths

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_NEEDED = tuple(f"{side}{name}" for side in ("", "requests.", "limits.") for name in ("cpu", "memory"))
"""Resources that every container has to name where a quota counts them."""
_ALL_DEVICES = 32
"""Devices that a claim without a count is charged for."""
_IN_GROUPS = {
    ("", "pods"): "pods",
    ("", "services"): "services",
    ("", "secrets"): "secrets",
    ("", "configmaps"): "configmaps",
    ("", "persistentvolumeclaims"): "persistentvolumeclaims",
    ("", "replicationcontrollers"): "replicationcontrollers",
    ("", "resourcequotas"): "resourcequotas",
}


def quota_denials(request: AdmissionRequest, cluster: ClusterObjects) -> Iterator[Denial]:
    """Quotas that a new object exceeds by itself, the first one of the namespace first."""
    item = request.object
    if item is None or request.subresource or request.operation is not Operation.CREATE or request.namespace is None:
        return
    usage = usage_of(request.group, request.resource, item)
    for item_quota in sorted(
        cluster.all("", "ResourceQuota", request.namespace), key=lambda item_quota: item_quota["metadata"]["name"]
    ):
        name, hard = item_quota["metadata"]["name"], get_path(item_quota, "spec", "hard") or {}
        if not all(_in_scope(scope, item) for scope in _scopes(item_quota)):
            continue
        if request.resource == "pods" and (missing := _unnamed(item, hard)):
            yield Denial(quota(name), None, f"failed quota: {name}: must specify {missing}")
            continue
        exceeded_keys = sorted(key for key, limit in hard.items() if usage.get(key, 0) > thousandths(limit))
        if exceeded_keys:
            requests, at_most = (
                ",".join(f"{key}={amount}" for key, amount in amounts)
                for amounts in (
                    [(key, quantity_text(usage[key])) for key in exceeded_keys],
                    [(key, str(hard[key])) for key in exceeded_keys],
                )
            )
            none = ",".join(f"{key}=0" for key in exceeded_keys)
            yield Denial(
                quota(name),
                None,
                f"exceeded quota: {name}, requested: {requests}, used: {none}, limited: {at_most}",
            )


def usage_of(group: str, resource: str, item: Object) -> Resources:
    """Usage of one object that a quota counts, in thousandths."""
    usage = Resources({f"count/{resource}.{group}" if group else f"count/{resource}": SCALE})
    if (plain := _IN_GROUPS.get((group, resource))) is not None:
        usage[plain] = SCALE
    match group, resource:
        case "", "pods":
            usage.update(_of_pod(item["spec"]))
        case "", "persistentvolumeclaims":
            usage.update(_of_claim(item))
        case "", "services":
            usage.update(_of_service(item))
        case "resource.k8s.io", "resourceclaims":
            usage.update(_of_devices(item))
    return usage


def _of_pod(spec: Mapping[str, Any]) -> Resources:
    usage = Resources()
    for name, amount in requests_of(spec).items():
        usage[f"requests.{name}"] = amount
        if name in _COMPUTE or name.startswith("hugepages-"):
            usage[name] = amount
    for name, amount in limits_of(spec).items():
        if name in _COMPUTE:
            usage[f"limits.{name}"] = amount
    return usage


def _of_claim(item: Object) -> Resources:
    amount = thousandths(get_path(item, "spec", "resources", "requests", "storage") or 0)
    usage = Resources({"requests.storage": amount})
    if name := get_path(item, "spec", "storageClassName"):
        prefix = f"{name}.storageclass.storage.k8s.io/"
        usage.update({f"{prefix}requests.storage": amount, f"{prefix}persistentvolumeclaims": SCALE})
    return usage


def _of_service(item: Object) -> Resources:
    kind, ports = get_path(item, "spec", "type"), len(as_list(get_path(item, "spec", "ports")))
    usage = Resources()
    if kind == "LoadBalancer":
        usage["services.loadbalancers"] = SCALE
    if kind == "NodePort" or (
        kind == "LoadBalancer" and get_path(item, "spec", "allocateLoadBalancerNodePorts") is not False
    ):
        usage["services.nodeports"] = ports * SCALE
    return usage


def _of_devices(item: Object) -> Resources:
    usage = Resources()
    for request in as_list(get_path(item, "spec", "devices", "requests")):
        max_counts: dict[str, int] = {}
        for part in (request.get("exactly"), *as_list(request.get("firstAvailable"))):
            if isinstance(part, Mapping):
                count = _ALL_DEVICES if part.get("allocationMode") == "All" else int(part.get("count", 1))
                name = str(part.get("deviceClassName"))
                max_counts[name] = max(max_counts.get(name, 0), count)
        for name, count in max_counts.items():
            usage[f"{name}.deviceclass.resource.k8s.io/devices"] += count * SCALE
    return usage


def _unnamed(item: Object, hard: Mapping[str, Any]) -> str:
    """Resources that the quota counts and containers leave out, as the API server names them."""
    missing: dict[str, list[str]] = {}
    of_pod = get_path(item, "spec", "resources") or {}
    for container in (
        *as_list(get_path(item, "spec", "containers")),
        *as_list(get_path(item, "spec", "initContainers")),
    ):
        resources = container.get("resources") or {}
        for key in _NEEDED:
            if key not in hard:
                continue
            side = "limits" if key.startswith("limits.") else "requests"
            name = key.rpartition(".")[2]
            if not any(name in (holder.get(side) or {}) for holder in (resources, of_pod)):
                missing.setdefault(key, []).append(str(container.get("name")))
    return "; ".join(f"{key} for: {','.join(sorted(names))}" for key, names in sorted(missing.items()))


def _scopes(item: Object) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name in as_list(get_path(item, "spec", "scopes")):
        yield name, "Exists", ()
    for expression in as_list(get_path(item, "spec", "scopeSelector", "matchExpressions")):
        yield expression["scopeName"], expression["operator"], as_list(expression.get("values"))


def _in_scope(scope: tuple[str, str, tuple[str, ...]], item: Object) -> bool:
    """Whether a quota with this scope counts an object; scopes are of pods."""
    name, operator, values = scope
    if item.get("kind") != "Pod":
        return False
    spec = item["spec"]
    match name:
        case "PriorityClass":
            class_name = spec.get("priorityClassName") or ""
            if operator in ("In", "NotIn"):
                return (class_name in values) == (operator == "In")
            return bool(class_name) == (operator == "Exists")
        case "Terminating" | "NotTerminating":
            return ("activeDeadlineSeconds" in spec) == (name == "Terminating")
        case "BestEffort" | "NotBestEffort":
            return bool(requests_of(spec)) == (name == "NotBestEffort")
        case "CrossNamespacePodAffinity":
            return "namespaces" in str(spec.get("affinity"))
        case _:
            return False
