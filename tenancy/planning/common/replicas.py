"""Common settings of the platform's own Deployments with several replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenancy.planning.common.charts import SYSTEM_NODES, system_placement
from tenancy.spec.fields.environment import Environment

RESTRICTED_SECURITY_CONTEXT: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of a container."""


def disruption_budget(pod_labels: Mapping[str, str]) -> dict[str, Any]:
    """Spec of a PodDisruptionBudget: nodes are drained one by one; a pod that is broken anyway holds up no drain."""
    selector = {"matchLabels": dict(pod_labels)}
    return {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector}


def ingress_on(pod_labels: Mapping[str, str], port: int) -> dict[str, Any]:
    """Spec of a NetworkPolicy that admits connections to one TCP port, and no others."""
    entry = [{"ports": [{"protocol": "TCP", "port": port}]}]
    return {"podSelector": {"matchLabels": dict(pod_labels)}, "policyTypes": ["Ingress"], "ingress": entry}


def spread_over_nodes(pod_labels: Mapping[str, str]) -> dict[str, Any]:
    """Affinity for copies on different nodes. It is preferred, so that a cluster of one node runs all."""
    term = {"labelSelector": {"matchLabels": dict(pod_labels)}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def system_nodes(environment: Environment) -> Mapping[str, str]:
    """Labels of the nodes of the platform's own services; empty on a cluster of another tool, where such nodes are
    unknown."""
    return SYSTEM_NODES if environment.builds_cluster else {}


def placement(environment: Environment) -> dict[str, Any]:
    """Node selector and tolerations; on a cluster that this environment created every node has a taint."""
    return system_placement(system) if (system := system_nodes(environment)) else {}
