"""EKS add-ons: what AWS installs and patches, and the configuration that says where it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.planning.common import names
from tenancy.planning.common.charts import SYSTEM_NODES, Toleration, system_placement, toleration_dicts
from tenancy.planning.common.pools import tolerations
from tenancy.spec.fields.aws import AddOnRelease, AddOns
from tenancy.spec.fields.environment import Environment

CNI_ROLE = "vpc-cni"
EBS_ROLE = "ebs-csi"


@dataclass(frozen=True, slots=True)
class AddOn:
    """An EKS add-on with its version and configuration."""

    name: str
    kubernetes: str
    """Minor of the cluster, whose versions EKS lists."""
    version: str | None = None
    """None: what EKS lists, see `latest`."""
    latest: bool = False
    """Whether the most recent version is taken, and not the default one."""
    configuration: dict[str, Any] = field(default_factory=dict)
    role: str = ""
    """Purpose of the role that it takes by Pod Identity; empty: it makes no AWS calls."""
    before_nodes: bool = False
    """A node gets ready only with these. They are daemonsets, so that they are active with no node."""


def add_ons(
    tolerations: Sequence[Toleration],
    *,
    cni: str,
    volume_tags: Mapping[str, str],
    interface_tags: Mapping[str, str],
    kubernetes: str,
    versions: AddOns | None = None,
    system: Mapping[str, str] = SYSTEM_NODES,
) -> tuple[AddOn, ...]:
    """The add-ons of a cluster. What runs on every node tolerates every taint; `tolerations` is for the rest.
    `volume_tags` are of every volume and snapshot that the EBS driver makes, whatever its class; `interface_tags` of
    every network interface that the CNI makes, and its role may change no interface without them; `wanted` says
    which versions are installed.

    kube-proxy, vpc-cni, the Pod Identity agent and the node monitoring agent tolerate every taint as they come.
    """
    release = versions or AddOns()

    def add_on(name: str, configuration: dict[str, Any] | None = None, **settings: Any) -> AddOn:
        latest = release.release is AddOnRelease.LATEST
        return AddOn(name, kubernetes, release.versions.get(name), latest, configuration or {}, **settings)

    return (
        add_on("vpc-cni", _vpc_cni(cni, interface_tags), role=CNI_ROLE, before_nodes=True),
        add_on("kube-proxy", before_nodes=True),
        # On the host's network: it needs no CNI, and the CNI needs it.
        add_on("eks-pod-identity-agent", before_nodes=True),
        add_on("coredns", system_placement(system)),
        add_on("metrics-server", system_placement(system)),
        # A node that cannot mount is as bad as none: also taints that are put on by hand, and those of a start.
        add_on(
            "aws-ebs-csi-driver",
            {
                "controller": {**system_placement(system), "extraVolumeTags": dict(volume_tags)},
                "node": {"tolerateAllTaints": True},
            },
            role=EBS_ROLE,
        ),
        add_on(
            "eks-node-monitoring-agent",
            # Tolerates nothing as it comes: the agent would find no DCGM on a GPU node, and mark it unhealthy.
            {"dcgmAgent": {"tolerations": toleration_dicts(tolerations)}},
        ),
    )


def _vpc_cni(cni: str, interface_tags: Mapping[str, str]) -> dict[str, Any]:
    """Two enforcers on one node would each drop what the other lets through: under Cilium the CNI gives addresses.

    Standard: a new pod may talk freely for the second or two until its namespace's default-deny reaches the node.
    Strict blocks all its traffic until a policy selects it, the platform's pods too; CoreDNS starts before any policy
    exists.
    """
    env = {"ADDITIONAL_ENI_TAGS": json.dumps(dict(interface_tags), sort_keys=True)}
    if cni != "vpc-cni":
        return {"enableNetworkPolicy": "false", "env": env}
    return {"enableNetworkPolicy": "true", "env": {**env, "NETWORK_POLICY_ENFORCING_MODE": "standard"}}


def wanted_add_ons(environment: Environment) -> tuple[AddOn, ...]:
    """All of them; a part is needed before there are nodes, the rest after."""
    return add_ons(
        tolerations(environment),
        cni=environment.cluster.cni.value,
        volume_tags=names.tags(environment),
        interface_tags={names.CLUSTER_TAG: environment.cluster.name},
        kubernetes=environment.cluster.kubernetes,
        versions=environment.aws.add_ons,
    )
