"""Refusals of the API server's own validation for pods and their templates, as far as controls rely on it.

Source: `k8s.io/kubernetes` v1.36.3 `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AdmissionRequest, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import API_VALIDATION
from tenancy.kube.objects import Object, as_list, get_path
from tenancy.kube.pod_templates import BUILT_IN, PodTemplate, templates_of
from tenancy.kube.quantities import parse

_ESCALATION = "Invalid value: cannot set `allowPrivilegeEscalation` to false and"


def validation_denials(request: AdmissionRequest, cluster: ClusterObjects) -> Iterator[Denial]:
    """Fields of a new object that the API server refuses for every identity."""
    item = request.object
    if item is None or request.operation is not Operation.CREATE or request.subresource:
        return
    problems: Iterator[tuple[str, str]] = iter(())
    if item["kind"] in BUILT_IN:
        templates = templates_of(item)
        problems = (problem for template in templates for problem in _of_pod(template, gated=item["kind"] == "Pod"))
    elif request.group == "resource.k8s.io" and not _for_administrators(request, cluster):
        problems = _of_devices(item)
    for path, message in problems:
        yield Denial(API_VALIDATION, None, f"{path}: {message}", path)


def _for_administrators(request: AdmissionRequest, cluster: ClusterObjects) -> bool:
    space = cluster.namespace(request.namespace or "")
    return (get_path(space, "metadata", "labels") or {}).get("resource.kubernetes.io/admin-access") == "true"


def _of_devices(item: Object) -> Iterator[tuple[str, str]]:
    path = "spec.spec.devices" if item["kind"] == "ResourceClaimTemplate" else "spec.devices"
    for number, request in enumerate(as_list(get_path(item, *path.split("."), "requests"))):
        if get_path(request, "exactly", "adminAccess"):
            message = (
                "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label"
            )
            yield f"{path}.requests[{number}].exactly.adminAccess", f"{message} on the containing namespace"


def _of_pod(template: PodTemplate, *, gated: bool) -> Iterator[tuple[str, str]]:
    spec, path = template.spec, template.path
    if not spec.get("containers"):
        yield f"{path}.containers", "Required value"
    if gated and spec.get("nodeName") and spec.get("schedulingGates"):
        yield f"{path}.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared"
    for number, claim in enumerate(as_list(spec.get("resourceClaims"))):
        if len({"resourceClaimName", "resourceClaimTemplateName"} & set(claim)) != 1:
            message = "Invalid value: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield f"{path}.resourceClaims[{number}]", message
    for where, container in template.containers:
        for field in ("name", "image"):
            if not container.get(field):
                yield f"{where}.{field}", "Required value"
        security, at_security = container.get("securityContext") or {}, f"{where}.securityContext"
        if security.get("allowPrivilegeEscalation") is False:
            added = get_path(security, "capabilities", "add") or ()
            if security.get("privileged"):
                yield at_security, f"{_ESCALATION} `privileged` to true"
            if "CAP_SYS_ADMIN" in added:
                yield at_security, f"{_ESCALATION} `capabilities.Add` CAP_SYS_ADMIN"
        if security.get("procMount") == "Unmasked" and spec.get("hostUsers") is not False:
            yield f"{at_security}.procMount", "Invalid value: `hostUsers` must be false to use `Unmasked`"
        yield from _of_resources(container.get("resources") or {}, f"{where}.resources")


def _of_resources(resources: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    try:
        for name, amount in requests.items():
            limit, message_start = limits.get(name), f'Invalid value: "{amount}": must be'
            # Devices and huge pages are never promised twice: a limit is the request.
            exact = "/" in name or name.startswith("hugepages-")
            if limit is None:
                if exact:
                    yield f"{path}.limits", "Required value: Limit must be set for non overcommitable resources"
            elif exact and parse(amount) != parse(limit):
                yield f"{path}.requests", f"{message_start} equal to {name} limit of {limit}"
            elif parse(amount) > parse(limit):
                yield f"{path}.requests", f"{message_start} less than or equal to {name} limit of {limit}"
    except ValueError as error:
        yield path, f"Invalid value: {error}"
