"""EKS add-ons: what AWS installs and patches, and how it is told where to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog.versions import ADD_ONS
from tenancy.plan.charts import EVERYWHERE, SYSTEM_NODES, Toleration, at_home, listed

CNI_ROLE = "vpc-cni"
EBS_ROLE = "ebs-csi"


@dataclass(frozen=True, slots=True)
class AddOn:
    name: str
    version: str | None
    """None: EKS' default for the cluster's Kubernetes."""
    configuration: dict[str, Any] = field(default_factory=dict)
    role: str = ""
    """Purpose of the role that it takes by Pod Identity; empty: it calls nothing of AWS."""
    before_nodes: bool = False
    """A node gets ready only with these. They are daemonsets, so that they are active with no node."""


def add_ons(
    tolerations: Sequence[Toleration],
    *,
    cni: str,
    system: Mapping[str, str] = SYSTEM_NODES,
) -> tuple[AddOn, ...]:
    """The add-ons of a cluster. What runs on every node tolerates every taint; `tolerations` is for the rest.

    kube-proxy, vpc-cni and the Pod Identity agent tolerate every taint as they come.
    """
    return (
        _add_on("vpc-cni", _vpc_cni(cni), role=CNI_ROLE, before_nodes=True),
        _add_on("kube-proxy", before_nodes=True),
        # On the host's network: it needs no CNI, and the CNI needs it.
        _add_on("eks-pod-identity-agent", before_nodes=True),
        _add_on("coredns", at_home(system)),
        _add_on("metrics-server", at_home(system)),
        # A node that cannot mount is as bad as none: also taints that are put on by hand, and those of a start.
        _add_on(
            "aws-ebs-csi-driver", {"controller": at_home(system), "node": {"tolerateAllTaints": True}}, role=EBS_ROLE
        ),
        _add_on(
            "eks-node-monitoring-agent",
            {
                "monitoringAgent": {"tolerations": listed(EVERYWHERE)},
                # Tolerates nothing as it comes: without this no GPU is watched, and nothing says so.
                "dcgmAgent": {"tolerations": listed(tolerations)},
            },
        ),
    )


def _add_on(name: str, configuration: dict[str, Any] | None = None, **more: Any) -> AddOn:
    return AddOn(name, ADD_ONS[name], configuration or {}, **more)


def _vpc_cni(cni: str) -> dict[str, Any]:
    """Two enforcers on one node would each drop what the other lets through: under Cilium the CNI gives addresses.

    Standard: a new pod may talk freely for the second or two until its namespace's default-deny reaches the node.
    Strict shuts it in until a policy names it, the platform's pods too; CoreDNS starts before anybody makes policies.
    """
    if cni != "vpc-cni":
        return {"enableNetworkPolicy": "false"}
    return {"enableNetworkPolicy": "true", "env": {"NETWORK_POLICY_ENFORCING_MODE": "standard"}}
