"""Connections that NetworkPolicies allow between namespaces of two tenants: between any pods, on any port.

Semantics of Kubernetes: a pod that is selected by policies of a direction has in that direction only connections that
one of them allows, and a connection must be allowed at both ends (reference of NetworkPolicySpec).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tenancy.kube.objects import Object
from tenancy.rules.index import selects
from tenancy.rules.values import inside, is_internet, is_private

Space = tuple[Object, Sequence[Object]]
"""A namespace and its policies."""


def opening(sources: Sequence[Space], targets: Sequence[Space], ranges: Collection[str] = ()) -> str:
    """The policy by which a pod of one namespace may reach a pod of the other; empty if there is none.

    A possible match of an address, a pod's labels or a port counts as a match. `ranges` are those of nodes and pods;
    private ranges if they are not set.
    """
    for target in targets:
        for source in sources:
            into = _way(target, source, "ingress", ranges)
            out = _way(source, target, "egress", ranges)
            if into and out:
                return into
    return ""


def porous(space: Space) -> bool:
    """Whether a policy admits traffic from outside of the namespace; if none does, no pair has to be checked."""
    peers = [
        rule.get("from") or [{"ipBlock": {"cidr": "0.0.0.0/0"}}]
        for item in space[1]
        if "Ingress" in _types(item)
        for rule in item["spec"].get("ingress") or ()
    ]
    foreign = any("ipBlock" in peer or "namespaceSelector" in peer for each in peers for peer in each)
    return foreign or not any("Ingress" in _types(item) and not item["spec"].get("podSelector") for item in space[1])


def _way(own: Space, peer: Space, direction: str, ranges: Collection[str]) -> str:
    """The policy that admits the peer at one end; a namespace with a pod that no policy selects admits all traffic."""
    space, policies = own
    side = "from" if direction == "ingress" else "to"
    name = space["metadata"]["name"]
    governing = [item for item in policies if direction.capitalize() in _types(item)]
    if not any(not item["spec"].get("podSelector") for item in governing):
        return f"none in {name}"
    for item in governing:
        for rule in item["spec"].get(direction) or ():
            peers = rule.get(side)
            if not peers or any(_matches(each, name, peer[0], ranges) for each in peers):
                return f"{item['metadata']['name']} in {name}"
    return ""


def _types(policy: Object) -> Iterator[str]:
    spec = policy["spec"]
    if "policyTypes" in spec:
        yield from spec["policyTypes"]
        return
    yield "Ingress"
    if "egress" in spec:
        yield "Egress"


def _matches(peer: Mapping[str, Any], own: str, other: Object, ranges: Collection[str]) -> bool:
    if "ipBlock" in peer:
        if is_internet(peer["ipBlock"]):
            return False  # it leaves out private ranges and the cluster's own
        cidr = peer["ipBlock"]["cidr"]
        return bool(inside(cidr, ranges)) if ranges else is_private(cidr)
    if "namespaceSelector" not in peer:
        return own == other["metadata"]["name"]
    return selects(peer["namespaceSelector"] or {}, other)
