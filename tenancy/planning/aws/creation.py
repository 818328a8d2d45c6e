"""Values that AWS fixes when a cluster, its network and its node groups are created: no edit changes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from tenancy.planning.aws.cluster import ClusterPlan, NodeGroupPlan

CHOSEN_BY_EKS = "chosen by EKS"
CREATED_HERE = "made here"
"""Value of a field that names what exists already, where it names nothing."""
SERVICE_CIDR = "cluster.service-cidr"
FIXED_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "aws.account": "a cluster is in one account",
        "aws.region": "a cluster is in one region",
        "aws.network.vpc": "EKS fixes the VPC of a cluster",
        "aws.network.cidr": "EC2 fixes the range of a VPC",
        "aws.kms-key-arn": "EKS encrypts a cluster's secrets with the key that it was given first",
        "cluster.name": "EKS fixes the name of a cluster, and its roles, groups and key are named after it",
        SERVICE_CIDR: "EKS fixes the range of a cluster's services",
    }
)
"""Fields of an environment that no update of its cluster changes, and what fixes them.

Sources, 2026-11-27: EKS API reference, CreateCluster (name, kubernetesNetworkConfig) and UpdateClusterConfig, which
takes none of them; AssociateEncryptionConfig, once for a cluster; EC2 CreateVpc (CidrBlock).
"""


def fixed_values(plan: ClusterPlan) -> dict[str, str]:
    """The value of each fixed field; an empty one is open, and any value fits it."""
    network = plan.network
    return {
        "aws.account": plan.account,
        "aws.region": plan.region,
        "aws.network.vpc": network.vpc or CREATED_HERE,
        "aws.network.cidr": "" if network.vpc else network.cidr,
        "aws.kms-key-arn": plan.key or CREATED_HERE,
        "cluster.name": plan.name,
        SERVICE_CIDR: plan.service_cidr,
    }


def group_values(group: NodeGroupPlan) -> dict[str, str]:
    """Immutable values of a node group besides its zones: terraform-provider-aws, `ForceNew` of aws_eks_node_group."""
    return {"capacity type": group.capacity_type, "image type": group.ami_type}


def group_differences(before: NodeGroupPlan, after: NodeGroupPlan) -> list[str]:
    """Differences of the immutable values of a node group; zones that the environment has in addition are for new
    groups."""
    old, new = group_values(before), group_values(after)
    differences = [f"{name} {old[name]} → {new[name]}" for name in new if old[name] != new[name]]
    if adds_zones(before.zones, after):
        return differences
    return [*differences, *zone_difference(before.zones, after)]


def adds_zones(zones: Collection[str], group: NodeGroupPlan) -> bool:
    """Whether a group in these zones differs from its plan only by zones that its file does not name."""
    return bool(zones) and set(zones) < set(group.zones) and not group.names_zones


def zone_difference(zones: Collection[str], group: NodeGroupPlan) -> list[str]:
    """Zones of a group and those of its plan, where they differ."""
    before, after = sorted(zones), sorted(group.zones)
    return [f"zones {', '.join(before)} → {', '.join(after)}"] if before != after else []


def launch_differences(
    cluster: ClusterPlan, group: NodeGroupPlan, cluster_after: ClusterPlan, group_after: NodeGroupPlan
) -> list[str]:
    """Differences of what nodes of a group are launched with: for each EKS replaces them one after another."""
    return setting_differences(_launch_settings(cluster, group), _launch_settings(cluster_after, group_after))


def setting_differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Settings that differ, with both values; of start-up settings, which are a script, the name alone."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [
        name if name == START_UP else f"{name} {before.get(name) or 'none'} → {after.get(name) or 'none'}"
        for name in names
    ]


START_UP = "start-up settings"


def launch_settings(image: str, root_volume: int, key: str, start_up: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Settings with which a node is launched, by name: those that node groups and Karpenter share."""
    return {
        "image": image,
        "root volume": f"{root_volume} GiB",
        "key": key or CREATED_HERE,
        START_UP: start_up,
        **{f"tag {name}": value for name, value in tags.items()},
    }


def _launch_settings(cluster: ClusterPlan, group: NodeGroupPlan) -> dict[str, str]:
    return {
        "instance": group.instance,
        **launch_settings(group.image_release, group.root_volume, cluster.key, group.user_data, group.tags),
        "reservation": group.reservation,
        "EFA cards": ", ".join(map(str, group.efa_cards)),
    }


def wave_text(wave: int, groups: Iterable[str]) -> str:
    """Sentence of `tenancy diff` and `tenancy up --preview` on one wave of an upgrade."""
    return f"wave {wave} replaces the nodes of {', '.join(groups)}"


def group_field(group: NodeGroupPlan) -> str:
    """Field of a node group in environment.yaml."""
    return f"pools.{group.pool}" if group.pool else "aws.system"
