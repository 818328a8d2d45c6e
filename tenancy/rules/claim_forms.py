"""Claims of devices and templates of them, as attacks and samples write them."""

from __future__ import annotations

from tenancy.kube.objects import Object
from tenancy.rules.attacks import put
from tenancy.rules.scene import POD_NAME

API = "resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
DRIVER_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
"""Classes that the driver's chart makes beside ours (0.5.0): any GPU and any slice. No tenant is granted one.

The first names nvidia.com/gpu as its extended resource: a claim of it counts there as well.
"""
FORMS = {"resourceclaims": "/spec", "resourceclaimtemplates": "/spec/spec"}
"""JSON pointer of a claim's own spec, in a claim and in a template of one."""
CLAIMS, TEMPLATES = FORMS


def claim_spec(class_name: str, *counts: int) -> Object:
    """Content of a claim: a request of a device class for each count."""
    requests = [
        {
            "name": f"gpu-{number}" if number else "gpu",
            "exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count},
        }
        for number, count in enumerate(counts)
    ]
    return {"devices": {"requests": requests}}


def template_name(class_name: str, *counts: int) -> str:
    """Name that gpu-08 demands of a template with these requests."""
    return "-".join(f"{class_name}-{count}" for count in counts)


def claim(class_name: str, *counts: int, name: str = "", plural: str = CLAIMS) -> Object:
    """A claim of devices, or the template of one: a request for each count, one device if there is none."""
    name = name or (POD_NAME if plural == CLAIMS else template_name(class_name, *(counts or (1,))))
    kind = "ResourceClaim" if plural == CLAIMS else "ResourceClaimTemplate"
    empty = {"apiVersion": API, "kind": kind, "metadata": {"name": name}}
    return put(empty, FORMS[plural], claim_spec(class_name, *(counts or (1,))))
