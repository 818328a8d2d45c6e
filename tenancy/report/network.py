"""Connections that NetworkPolicies allow between namespaces of two tenants: between any pods, on any port.

Semantics of Kubernetes: a pod that is selected by policies of a direction has in that direction only connections that
one of them allows, and a connection must be allowed at both ends (reference of NetworkPolicySpec).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenancy.kube.selectors import has_labels, namespace_labels
from tenancy.planning.kubernetes.namespace_objects import EGRESS, INGRESS, Peer
from tenancy.planning.plan_model import NamespacePlan
from tenancy.rules.values import inside, is_private


def opening_policy(
    sources: Sequence[NamespacePlan], targets: Sequence[NamespacePlan], ranges: Collection[str] = ()
) -> str:
    """The policy by which a pod of one namespace may reach a pod of the other; empty if there is none.

    A possible match of an address, a pod's labels or a port counts as a match. `ranges` are those of nodes and pods;
    private ranges if they are not set.
    """
    for target in targets:
        for source in sources:
            ingress_policy = _admitting_policy(target, source, INGRESS, ranges)
            egress_policy = _admitting_policy(source, target, EGRESS, ranges)
            if ingress_policy and egress_policy:
                return ingress_policy
    return ""


def admits_outside_traffic(space: NamespacePlan) -> bool:
    """Whether a policy admits traffic from outside of the namespace; if none does, no pair has to be checked."""
    rules = [rule for policy in space.policies if INGRESS in policy.types for rule in policy.ingress]
    foreign = any(
        not rule.peers or any(peer.cidr or peer.namespaces is not None for peer in rule.peers) for rule in rules
    )
    return foreign or not _denies(space, INGRESS)


def _denies(space: NamespacePlan, direction: str) -> bool:
    """Whether policies of the direction select every pod."""
    return any(direction in policy.types and not policy.pods for policy in space.policies)


def _admitting_policy(space: NamespacePlan, peer_space: NamespacePlan, direction: str, ranges: Collection[str]) -> str:
    """The policy that admits the peer at one end; a namespace with a pod that no policy selects admits all traffic."""
    if not _denies(space, direction):
        return f"none in {space.name}"
    for policy in space.policies:
        for rule in policy.rules(direction) if direction in policy.types else ():
            if not rule.peers or any(_matches(peer, space.name, peer_space, ranges) for peer in rule.peers):
                return f"{policy.name} in {space.name}"
    return ""


def _matches(peer: Peer, space_name: str, peer_space: NamespacePlan, ranges: Collection[str]) -> bool:
    if peer.excluded_cidrs:
        return False  # the internet, which leaves out private ranges and the cluster's own
    if peer.cidr:
        return bool(inside(peer.cidr, ranges)) if ranges else is_private(peer.cidr)
    if peer.namespaces is None:
        return space_name == peer_space.name
    return has_labels(peer.namespaces, namespace_labels(peer_space.name, peer_space.meta.labels))
