"""The small environment, its GPUs handed out by claim: what the tests of device claims share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import SpecFolder

Object = dict[str, Any]


def by_claim(path: Path) -> SpecFolder:
    """Without what DRA has not: pools that scale, and shared GPUs."""
    folder = SpecFolder(path)
    folder.edit("environment.yaml", "  cni: vpc-cni\n", "  cni: vpc-cni\n  devices: dra\n")
    folder.edit("environment.yaml", "l4-shared: {gpu: l4, share: time-slicing}", "l4: {gpu: l4}")
    folder.edit("environment.yaml", "nodes: {min: 1, max: 3}", "nodes: 2")
    folder.edit("environment.yaml", "    share: {time-slicing: 4}\n", "")
    folder.edit("tenants/research.yaml", "l4-shared: {guaranteed: 16}", "l4: {guaranteed: 4}")
    return folder


def claim(device_class: str = "a100", count: int = 1, name: str = "gpu", template: bool = False) -> Object:
    """A claim of devices, or the template of one."""
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    spec: Object = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    kind, body = ("ResourceClaimTemplate", {"spec": spec}) if template else ("ResourceClaim", spec)
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": body}
