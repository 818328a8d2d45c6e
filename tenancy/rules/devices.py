"""gpu-08 on claims of devices and their templates, as the guards on them judge it (resource.k8s.io)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tenancy.rules.device_claims import MAX_DEVICES
from tenancy.rules.found import Object, as_list, get_path

CLAIMS: Mapping[str, tuple[str, ...]] = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
"""Kind -> path of the claim's spec."""
_FLAT = ("resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1")
"""Versions in which the fields of `exactly` are the request's own."""
_EXACT = "ExactCount"


def _requests(item: Object) -> Iterator[tuple[str, Any]]:
    """Path and fields of each request; None for a request without a class of its own."""
    path = (*CLAIMS[str(item.get("kind"))], "devices", "requests")
    for number, request in enumerate(as_list(get_path(item, *path))):
        where = f"{'.'.join(path)}[{number}]"
        if item.get("apiVersion") in _FLAT:
            yield where, request if get_path(request, "deviceClassName") else None
        else:
            yield f"{where}.exactly", get_path(request, "exactly")


def broken(item: Object) -> Iterator[str]:
    """What a claim or a template asks for besides a count of devices; the API server adds the defaults."""
    path = CLAIMS[str(item.get("kind"))]
    where, devices = ".".join((*path, "devices")), get_path(item, *path, "devices")
    if get_path(devices, "config"):
        yield f"{where}.config"
    requests = list(_requests(item))
    if not requests:
        yield f"{where}.requests is empty"
    for at_request, exact in requests:
        if not exact:
            yield f"{at_request} is absent"
            continue
        mode, count = get_path(exact, "allocationMode"), get_path(exact, "count")
        if mode not in {None, _EXACT}:
            yield f"{at_request}.allocationMode: {mode}"
        elif count is not None and not (isinstance(count, int) and count <= MAX_DEVICES):
            yield f"{at_request}.count: {count} of {MAX_DEVICES} at most"
        for field in ("adminAccess", "tolerations", "capacity"):
            if value := get_path(exact, field):
                yield f"{at_request}.{field}: {value}"


def ungranted(item: Object, classes: Collection[str]) -> Iterator[str]:
    """What a claim or a template in a namespace that is granted these classes has besides: another class, or another
    name than the queue counts by."""
    counted = []
    for where, exact in _requests(item):
        name = get_path(exact, "deviceClassName")
        if exact and name not in classes:
            yield f"{where}.deviceClassName: {name}, of {', '.join(sorted(classes)) or 'none'} granted"
        counted.append(f"{name}-{1 if get_path(exact, 'count') is None else get_path(exact, 'count')}")
    named, wanted = str(get_path(item, "metadata", "name")), "-".join(counted)
    if item.get("kind") == "ResourceClaimTemplate" and named != wanted and not named.startswith(f"{wanted}."):
        yield f"the name {named} for {wanted}"
