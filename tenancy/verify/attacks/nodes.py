"""An attack by a compromised kubelet on its own Node object."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.kube.deniers import RBAC
from tenancy.rules.attacks import Attack, Request, attack
from tenancy.rules.nodes import kubelet, node_path
from tenancy.verify.attacks.scene import Scene


def node_attacks(scene: Scene) -> Iterator[Attack]:
    """A deletion of the object, to make it anew with other labels."""
    if node := scene.node:
        sentence = "delete its Node, to create it again with other labels"
        request = Request("DELETE", node_path(node), None, kubelet(node["metadata"]["name"]))
        yield attack("rbac-node-of-its-own", "rbac", sentence, RBAC, request, twin_who=None)
