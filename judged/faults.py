"""Seeded faults: a good pod, and one folder per fault that differs from it in the fault alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from judged.program import Resource

FILE = Path(__file__).parent / "faults.yaml"
AWS_FILE = Path(__file__).parent / "faults_aws.yaml"
TWIN = "good"
"""Name of the folder without a fault."""

_RESOURCES = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
_NAMESPACE = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "team-a",
            "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/enforce-version": "v1.36",
            },
        },
    },
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": "team-a"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    },
    {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "all", "namespace": "team-a"},
        "spec": {"hard": {"pods": "10", "requests.cpu": "10", "requests.memory": "10Gi"}},
    },
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "all", "namespace": "team-a"},
        "spec": {"limits": [{"type": "Container", "default": _RESOURCES, "defaultRequest": _RESOURCES}]},
    },
]
_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "work", "namespace": "team-a", "labels": {"app": "a"}},
    "spec": {
        "serviceAccountName": "workload",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 20000,
            "runAsGroup": 20000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "work",
                "image": "registry.bank.example/a@sha256:" + "0123456789abcdef" * 4,
                "imagePullPolicy": "Always",
                "resources": {"requests": _RESOURCES, "limits": _RESOURCES},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "runAsNonRoot": True,
                    "runAsUser": 20000,
                    "runAsGroup": 20000,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and what of ours finds it: one of `rules` in `tenancy check`, or the guard that refuses `attack`."""

    name: str
    rules: tuple[str, ...]
    attack: str
    objects: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class AwsFault:
    """A fault of a resource on AWS, and the rules of which the policy pack reports one. The twin lacks `change`."""

    name: str
    rules: tuple[str, ...]
    broken: Resource
    twin: Resource


def aws_rows() -> list[dict[str, Any]]:
    """The rows of faults_aws.yaml."""
    return yaml.safe_load(AWS_FILE.read_text("utf-8"))["faults"]


def aws_faults(resources: Sequence[Resource]) -> tuple[AwsFault, ...]:
    """Every fault, seeded into a copy of the first of the resources that is of its type."""
    seeded_faults = []
    for row in aws_rows():
        first = next(resource for resource in resources if resource.kind == row["kind"])
        broken, twin = f"fault-{row['name']}", f"twin-{row['name']}"
        inputs = merge(dict(first.inputs), row["change"])
        seeded_faults.append(
            AwsFault(
                row["name"],
                tuple(row["rules"]),
                Resource(first.kind, broken, inputs),
                Resource(first.kind, twin, first.inputs),
            )
        )
    return tuple(seeded_faults)


def good() -> list[dict[str, Any]]:
    """A namespace with a policy, and a pod without a fault."""
    return copy.deepcopy([*_NAMESPACE, _POD])


def faults() -> tuple[Fault, ...]:
    """Every seeded fault."""
    rows = yaml.safe_load(FILE.read_text("utf-8"))["faults"]
    return tuple(
        Fault(row["name"], tuple(row.get("rules", ())), row.get("attack", ""), tuple(_objects(row))) for row in rows
    )


def write(folder: Path) -> None:
    """A subfolder for each fault and one for the good pod, each with one file."""
    for name, objects in ((TWIN, good()), *((fault.name, fault.objects) for fault in faults())):
        (folder / name).mkdir(parents=True)
        (folder / name / "objects.yaml").write_text(yaml.safe_dump_all(map(dict, objects)), "utf-8")


def _objects(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    *other_objects, pod = (object_ for object_ in good() if object_["kind"] != row.get("without"))
    pod["spec"] = merge(pod["spec"], row.get("pod", {}))
    pod["spec"]["containers"] = [merge(pod["spec"]["containers"][0], row.get("container", {}))]
    return [*other_objects, pod, *([row["object"]] if "object" in row else [])]


def merge(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`old` with the values of `new`, at every depth; None removes a field."""
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = (
                merge(merged[key], value) if isinstance(value, dict) and isinstance(merged.get(key), dict) else value
            )
    return merged
