"""Attacks of a kubelet that somebody has taken over: it passes its node off as another pool's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from tenancy.catalog import vocabulary as words
from tenancy.live import denial
from tenancy.live.api import Identity
from tenancy.live.attacks.model import (
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
from tenancy.live.attacks.scene import Scene
from tenancy.plan.guards.objects import PLACE
from tenancy.plan.model import Object
from tenancy.plan.pools import NETWORK_LAYER

RULE = "node-08"
NOTE = "bank.example/note"
"""A label that a kubelet may write on its own node: of no prefix that the API server or we keep."""


def node_attacks(scene: Scene) -> Iterator[Attack]:
    """What moves a node, asked by its own kubelet; with that identity the API server lets it write the rest."""
    if (node := scene.node) is None:
        yield skipped("nodes", RULE, "pass a node off as another pool's", "no node of a pool is there")
        return
    yield from _moved(scene, node)
    yield from _renamed(scene, node)
    path, who = node_path(node), kubelet(node["metadata"]["name"])
    sentence = "take its Node away, to make it anew with other labels"
    yield attack(
        "rbac-node-of-its-own", "rbac", sentence, denial.RBAC, Request("DELETE", path, None, who), twin_who=None
    )


def node_path(node: Object) -> str:
    """Of one as a list gives it, without its kind."""
    return f"/api/v1/nodes/{node['metadata']['name']}"


def kubelet(node: str) -> Identity:
    """Whom its certificate, or its machine's role on AWS, makes the kubelet of the node of that name."""
    return Identity(f"system:node:{node}", ("system:nodes",))


def _moved(scene: Scene, node: Object) -> Iterator[Attack]:
    """Into another tenant's pool, in every way that something can be written."""
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
        yield _attack(scene, f"moved-{name}", f"pass its node off as another pool's by {name}", request, twin)
    status = Request("PATCH", f"{path}/status", put(plain, at, other), who, STRATEGIC)
    sentence = "pass its node off as another pool's by its status"
    yield _attack(scene, "moved-status", sentence, status, plain, "nodes/status")
    off = Request("PATCH", path, put(plain, at, None), who, MERGE)
    yield _attack(scene, "orphaned", "take its pool's label off", off, plain)


def _renamed(scene: Scene, node: Object) -> Iterator[Attack]:
    """Under the other labels that work is placed by."""
    tenants = sorted(tenant.tenant for tenant in scene.tenants)
    parts = {
        "tenant": ("pass its node off as a tenant's own", words.TENANT, tenants[0] if tenants else "of-another"),
        "network": ("move its node to another place in the network", f"{NETWORK_LAYER}1", "nn-elsewhere"),
        "host": ("pass its node off as another machine", PLACE, "elsewhere"),
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
    """What a kubelet would send back, whatever has happened to the object since."""
    metadata = {key: of for key, of in node["metadata"].items() if key not in {"managedFields", "resourceVersion"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": node.get("spec") or {}}
