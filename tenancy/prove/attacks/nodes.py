"""Attacks by a compromised kubelet: it relabels its node as another pool's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.live import denial
from tenancy.live.api import Impersonation
from tenancy.prove.attacks.model import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Attack,
    Request,
    attack,
    escaped,
    put,
    skipped,
)
from tenancy.prove.attacks.scene import Scene
from tenancy.rules.nodes import PLACE

RULE = "node-08"
NOTE = "bank.example/note"
"""A label that a kubelet may write on its own node: neither the API server nor a guard reserves its prefix."""


def node_attacks(scene: Scene) -> Iterator[Attack]:
    """Changes of a node's pool and place by its own kubelet, whose other writes the API server admits."""
    if (node := scene.node) is None:
        yield skipped("nodes", RULE, "relabel a node as another pool's", "the cluster has no node of a pool")
        return
    yield from _moved(scene, node)
    yield from _renamed(scene, node)
    path, who = node_path(node), kubelet(node["metadata"]["name"])
    sentence = "delete its Node, to create it again with other labels"
    yield attack(
        "rbac-node-of-its-own", "rbac", sentence, denial.RBAC, Request("DELETE", path, None, who), twin_who=None
    )


def node_path(node: Object) -> str:
    """Path of a node that a list returned, and that so has no kind."""
    return f"/api/v1/nodes/{node['metadata']['name']}"


def kubelet(node: str) -> Impersonation:
    """The identity that the kubelet of a node has by its certificate, or by its machine's role on AWS."""
    return Impersonation(f"system:node:{node}", ("system:nodes",))


def _moved(scene: Scene, node: Object) -> Iterator[Attack]:
    """Move the node into another tenant's pool, by every kind of write request."""
    path, who = node_path(node), kubelet(node["metadata"]["name"])
    pool = node["metadata"]["labels"][words.POOL]
    other = next((name for name in sorted(scene.environment.pools) if name != pool), "of-another-tenant")
    key = escaped(words.POOL)
    at = f"/metadata/labels/{key}"
    plain: dict[str, Any] = {"metadata": {"labels": {NOTE: "hello"}}}
    named = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["metadata"]["name"], **plain["metadata"]}}
    applied = f"{path}?{urlencode({'fieldManager': 'verify', 'force': 'true'})}"
    whole = put(_as_it_is(node), f"/metadata/labels/{escaped(NOTE)}", "hello")
    add = [{"op": "add", "path": at, "value": other}]
    ways = {
        "replace": (Request("PUT", path, put(whole, at, other), who), whole),
        "merge": (Request("PATCH", path, put(plain, at, other), who, MERGE), plain),
        "strategic": (Request("PATCH", path, put(plain, at, other), who, STRATEGIC), plain),
        "json": (Request("PATCH", path, add, who, JSON_PATCH), put(add, "/0/path", at.replace(key, escaped(NOTE)))),
        "apply": (Request("PATCH", applied, put(named, at, other), who, APPLY), named),
    }
    for name, (request, twin) in ways.items():
        yield _attack(scene, f"moved-{name}", f"relabel its node as another pool's by {name}", request, twin)
    status = Request("PATCH", f"{path}/status", put(plain, at, other), who, STRATEGIC)
    sentence = "relabel its node as another pool's through its status"
    yield _attack(scene, "moved-status", sentence, status, plain, "nodes/status")
    off = Request("PATCH", path, put(plain, at, None), who, MERGE)
    yield _attack(scene, "orphaned", "remove its pool's label", off, plain)


def _renamed(scene: Scene, node: Object) -> Iterator[Attack]:
    """Change the other labels that pods are scheduled by."""
    tenants = sorted(tenant.tenant for tenant in scene.tenants)
    parts = {
        "tenant": ("relabel its node as a tenant's own", words.TENANT, tenants[0] if tenants else "of-another"),
        "network": ("relabel its node's place in the network topology", f"{words.NETWORK_LAYER}1", "nn-elsewhere"),
        "host": ("relabel its node as another machine", PLACE, "elsewhere"),
    }
    for name, (sentence, key, value) in parts.items():
        plain: dict[str, Any] = {"metadata": {"labels": {NOTE: "hello"}}}
        own = node["metadata"]["labels"].get(key) == value
        bad = put(plain, f"/metadata/labels/{escaped(key)}", None if own else value)
        request = Request("PATCH", f"{node_path(node)}/status", bad, kubelet(node["metadata"]["name"]), STRATEGIC)
        yield _attack(scene, f"renamed-{name}", sentence, request, plain, "nodes/status")


def _attack(scene: Scene, name: str, sentence: str, request: Request, twin: Any, resource: str = "nodes") -> Attack:
    return attack(f"{RULE}-{name}", RULE, sentence, scene.guard(RULE, resource), request, twin_body=twin)


def _as_it_is(node: Object) -> Object:
    """The object as a kubelet would write it, without a resource version that could conflict."""
    metadata = {key: of for key, of in node["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node.get("spec") or {}}
