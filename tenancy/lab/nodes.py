"""Fake GPU nodes: Node objects that kwok keeps ready and on which pods run without a machine."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any
from urllib.parse import quote

from tenancy.catalog import vocabulary
from tenancy.lab import ports
from tenancy.lab.api import LabApi
from tenancy.lab.layout import Lab, LabError

LABEL = vocabulary.LAB_NODE
DIGEST = vocabulary.LAB_NODE + "-digest"
FAKE = "kwok.x-k8s.io/node"
PATH = "/api/v1/nodes"
NOT_READY = "node.kubernetes.io/not-ready"
READY_SECONDS = 90.0
SET_BY_KUBELETS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def apply_nodes(nodes: list[dict[str, Any]], lab: Lab | None = None) -> dict[str, int]:
    """Make the lab's fake nodes exactly `nodes`; return the numbers of nodes written, removed and kept.

    A node that was applied before and has not changed is not touched, so that what a test or a
    person did to it (a cordon, a label) stays.
    """
    lab = lab or Lab.locate()
    planned = {node["metadata"]["name"]: _complete(node) for node in nodes}
    with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as api:
        items = api.get(PATH, labelSelector=f"{LABEL}=node")["items"]
        existing = {node["metadata"]["name"]: node for node in items}
        removed_names = sorted(existing.keys() - planned.keys())
        for name in removed_names:
            api.request("DELETE", f"{PATH}/{quote(name)}")
        changed_names = [name for name, node in planned.items() if _digest(existing.get(name)) != _digest(node)]
        for name in changed_names:
            _write(api, planned[name], existing.get(name))
        _wait_ready(api, set(planned))
    return {"written": len(changed_names), "removed": len(removed_names), "kept": len(planned) - len(changed_names)}


def _complete(node: dict[str, Any]) -> dict[str, Any]:
    metadata = node["metadata"]
    status = dict(node.get("status", {}))
    status.setdefault("capacity", status.get("allocatable", {}))
    status.setdefault("allocatable", status["capacity"])
    if not status["allocatable"]:
        raise LabError(
            f"fake node {metadata['name']} has neither status.allocatable nor status.capacity: "
            "no pod would ever fit on it."
        )
    digest = hashlib.sha256(json.dumps(node, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        **node,
        "metadata": metadata
        | {
            "labels": SET_BY_KUBELETS
            | {"kubernetes.io/hostname": metadata["name"]}
            | metadata.get("labels", {})
            | {LABEL: "node"},
            "annotations": metadata.get("annotations", {}) | {FAKE: "fake", DIGEST: digest},
        },
        "status": status,
    }


def _digest(node: dict[str, Any] | None) -> str | None:
    return node["metadata"].get("annotations", {}).get(DIGEST) if node else None


def _write(api: LabApi, node: dict[str, Any], existing: dict[str, Any] | None) -> None:
    path = f"{PATH}/{quote(node['metadata']['name'])}"
    body = {key: value for key, value in node.items() if key != "status"}
    if existing is None:
        # A creation keeps the status it brings, as that of a kubelet that registers itself.
        api.request("POST", f"{PATH}?fieldManager=gpu-tenancy-lab", node, "application/json")
        return
    status = dict(node["status"])
    for kind in ("capacity", "allocatable"):
        # A merge keeps what it does not name: a resource that is gone has to be named as null.
        status[kind] = dict.fromkeys(existing["status"].get(kind, {})) | status[kind]
    api.request("PATCH", f"{path}/status", {"status": status})
    old = existing["metadata"]
    metadata = body["metadata"]
    labels = dict.fromkeys(set(old.get("labels", {})) - set(metadata["labels"])) | metadata["labels"]
    spec = {"taints": None} | body.get("spec", {})
    api.request("PATCH", path, {"metadata": metadata | {"labels": labels}, "spec": spec})


def _wait_ready(api: LabApi, names: set[str]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        items = api.get(PATH, labelSelector=f"{LABEL}=node", resourceVersion="0")["items"]
        ready_names = {node["metadata"]["name"] for node in items if _takes_pods(node)}
        if names <= ready_names:
            return
        if time.monotonic() > deadline:
            missing_names = sorted(names - ready_names)
            raise LabError(
                f"{len(missing_names)} of {len(names)} fake nodes are not ready after {READY_SECONDS:.0f} s "
                f"({', '.join(missing_names[:3])}…): see `tenancy lab logs kwok`."
            )
        time.sleep(0.1)


def _takes_pods(node: dict[str, Any]) -> bool:
    """Whether the node is ready, and the node controller has removed the taint that keeps pods off until then."""
    conditions = {condition["type"]: condition["status"] for condition in node.get("status", {}).get("conditions", [])}
    kept_off = any(taint["key"] == NOT_READY for taint in node["spec"].get("taints", []))
    return conditions.get("Ready") == "True" and not kept_off
