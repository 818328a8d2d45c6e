"""Quotas, network policies and roles as the plan holds them; each becomes a manifest at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenancy.kube.objects import Object
from tenancy.planning.common.meta import Meta, PlannedObject

RBAC = "rbac.authorization.k8s.io"


# Quotas


@dataclass(frozen=True, slots=True)
class ResourceQuota(PlannedObject):
    """Limits of a namespace, on everything or on pods of some priority classes."""

    meta: Meta
    hard: Mapping[str, str]
    """Quantities in the spelling that the API server keeps, in order of their keys."""
    classes: tuple[str, ...] = ()
    """Priority classes whose pods alone it counts; empty: it counts everything."""

    def manifest(self) -> Object:
        """The ResourceQuota as an object."""
        spec: dict[str, Any] = {"hard": dict(self.hard)}
        if self.classes:
            expressions = [{"scopeName": "PriorityClass", "operator": "In", "values": list(self.classes)}]
            spec["scopeSelector"] = {"matchExpressions": expressions}
        return self.meta.manifest("v1", "ResourceQuota", {"spec": spec})


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds and defaults of containers or claims; by resource, absent: none."""

    type: str
    """`Container` or `PersistentVolumeClaim`."""
    min: Mapping[str, str]
    max: Mapping[str, str]
    limits: Mapping[str, str] | None = None
    """Limits of a container that sets none."""
    requests: Mapping[str, str] | None = None
    """Requests of a container that sets none."""

    def manifest(self) -> Object:
        """As the API server takes it."""
        defaults = {"default": self.limits, "defaultRequest": self.requests}
        amounts_by_field = {key: dict(amounts) for key, amounts in defaults.items() if amounts is not None}
        return {"type": self.type, **amounts_by_field, "min": dict(self.min), "max": dict(self.max)}


@dataclass(frozen=True, slots=True)
class LimitRange(PlannedObject):
    """Bounds and defaults of a namespace's containers and claims."""

    meta: Meta
    bounds: tuple[Bounds, ...]

    def manifest(self) -> Object:
        """The LimitRange as an object."""
        return self.meta.manifest("v1", "LimitRange", {"spec": {"limits": [bound.manifest() for bound in self.bounds]}})


# Network


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: addresses, or pods by their labels and their namespace's."""

    cidr: str = ""
    namespaces: Mapping[str, str] | None = None
    """Labels of their namespaces, no label: all; None: the policy's own namespace."""
    pods: Mapping[str, str] | None = None
    """Labels of the pods; none or no label: all."""
    excluded_cidrs: tuple[str, ...] = ()
    """Ranges inside of `cidr` that are left out."""

    def manifest(self) -> Object:
        """As the API server takes it."""
        if self.cidr:
            return {
                "ipBlock": {"cidr": self.cidr, **({"except": list(self.excluded_cidrs)} if self.excluded_cidrs else {})}
            }
        selectors = {"namespaceSelector": self.namespaces, "podSelector": self.pods}
        return {key: _selector(labels) for key, labels in selectors.items() if labels is not None}


def _selector(labels: Mapping[str, str]) -> Object:
    return {"matchLabels": dict(labels)} if labels else {}


@dataclass(frozen=True, slots=True)
class Port:
    """A port of one protocol."""

    protocol: str
    number: int

    def manifest(self) -> Object:
        """As the API server takes it."""
        return {"protocol": self.protocol, "port": self.number}


@dataclass(frozen=True, slots=True)
class NetworkRule:
    """Connections with these peers on these ports; without a peer or a port: with all, on all."""

    peers: tuple[Peer, ...] = ()
    ports: tuple[Port, ...] = ()

    def manifest(self, side: str) -> Object:
        """As the API server takes it."""
        peers = {side: [peer.manifest() for peer in self.peers]} if self.peers else {}
        return {**peers, **({"ports": [port.manifest() for port in self.ports]} if self.ports else {})}


INGRESS, EGRESS = "Ingress", "Egress"


@dataclass(frozen=True, slots=True)
class NetworkPolicy(PlannedObject):
    """Connections that the pods of a namespace may open and accept."""

    meta: Meta
    types: tuple[str, ...]
    """Directions in which it denies what no rule allows: `Ingress`, `Egress`."""
    ingress: tuple[NetworkRule, ...] = ()
    egress: tuple[NetworkRule, ...] = ()
    pods: Mapping[str, str] = field(default_factory=dict)
    """Labels of the pods that it selects; empty: all."""

    def rules(self, direction: str) -> tuple[NetworkRule, ...]:
        """Connections that it allows in one direction, `Ingress` or `Egress`."""
        return self.ingress if direction == INGRESS else self.egress

    def manifest(self) -> Object:
        """The NetworkPolicy as an object."""
        spec: dict[str, Any] = {"podSelector": _selector(self.pods), "policyTypes": list(self.types)}
        for direction, side in ((INGRESS, "from"), (EGRESS, "to")):
            if rules := self.rules(direction):
                spec[direction.lower()] = [rule.manifest(side) for rule in rules]
        return self.meta.manifest("networking.k8s.io/v1", "NetworkPolicy", {"spec": spec})


# Access


@dataclass(frozen=True, slots=True)
class PodAccount(PlannedObject):
    """An account that pods run as."""

    meta: Meta
    api_token: bool
    """Whether its pods get a token of the API server."""

    def manifest(self) -> Object:
        """The ServiceAccount as an object."""
        return self.meta.manifest("v1", "ServiceAccount", {"automountServiceAccountToken": self.api_token})


@dataclass(frozen=True, slots=True)
class RoleSubject:
    """Subject of a role binding."""

    kind: str
    """`User`, `Group` or `ServiceAccount`."""
    name: str
    namespace: str = ""
    """Namespace of a service account; empty for users and groups."""

    @property
    def full_name(self) -> str:
        """The name, of a service account with its namespace before it: without that it means nothing."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def manifest(self) -> Object:
        """As the API server takes it."""
        group = {"namespace": self.namespace} if self.namespace else {"apiGroup": RBAC}
        return {"kind": self.kind, "name": self.name, **group}


@dataclass(frozen=True, slots=True)
class RoleBinding(PlannedObject):
    """A ClusterRole for some subjects in one namespace."""

    meta: Meta
    role: str
    subjects: tuple[RoleSubject, ...]

    def manifest(self) -> Object:
        """The RoleBinding as an object."""
        body = {
            "subjects": [subject.manifest() for subject in self.subjects],
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": self.role},
        }
        return self.meta.manifest(f"{RBAC}/v1", "RoleBinding", body)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]

    def manifest(self) -> Object:
        """As the API server takes it."""
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}


@dataclass(frozen=True, slots=True)
class ClusterRole(PlannedObject):
    """Rights that RoleBindings give in a namespace."""

    meta: Meta
    rules: tuple[PolicyRule, ...]

    def manifest(self) -> Object:
        """The ClusterRole as an object."""
        return self.meta.manifest(f"{RBAC}/v1", "ClusterRole", {"rules": [rule.manifest() for rule in self.rules]})
