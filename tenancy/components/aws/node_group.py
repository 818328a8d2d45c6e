from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from tenancy.components.aws.eks_cluster import EksCluster
from tenancy.components.aws.image_release import image_release
from tenancy.planning.aws.cluster import GPU_CONDITION, ClusterPlan, NodeGroupPlan
from tenancy.planning.common.names import node_group_names


class NodeGroup(pulumi.ComponentResource):
    """Managed nodes of a pool, alike from birth: image, disks, interfaces, labels, taints."""

    group: aws.eks.NodeGroup

    def __init__(
        self,
        name: str,
        plan: NodeGroupPlan,
        cluster: ClusterPlan,
        control_plane: EksCluster,
        role: pulumi.Input[str],
        subnets: dict[str, pulumi.Output[str]],
        efa_group: pulumi.Input[str] | None,
        depends_on: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
        *,
        replaced: bool = False,
    ) -> None:
        """With `replaced` this run may replace the group; else one that exists keeps its zones."""
        super().__init__("gpu-tenancy:index:NodeGroup", name, None, opts)
        eks = control_plane.cluster
        template_name, group_name = node_group_names(cluster.name, plan.name)
        template = aws.ec2.LaunchTemplate(
            template_name,
            name=f"{cluster.name}-{plan.name}",
            update_default_version=True,
            instance_type=plan.instance,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                # One hop: the node itself, no pod.
                "http_put_response_hop_limit": 1,
                "http_protocol_ipv6": "disabled",
                "instance_metadata_tags": "disabled",
            },
            block_device_mappings=[
                {
                    "device_name": "/dev/xvda",
                    "ebs": {
                        "volume_size": plan.root_volume,
                        "volume_type": "gp3",
                        "encrypted": "true",
                        "kms_key_id": control_plane.key,
                        "delete_on_termination": "true",
                    },
                }
            ],
            user_data=base64.b64encode(plan.user_data.encode()).decode(),
            tag_specifications=[
                {"resource_type": kind, "tags": {**plan.tags, "Name": f"{cluster.name}-{plan.name}"}}
                for kind in ("instance", "volume", "network-interface")
            ],
            tags=plan.tags,
            **_interfaces(plan, eks.vpc_config.cluster_security_group_id, efa_group),
            **_purchase_settings(plan),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.group = aws.eks.NodeGroup(
            group_name,
            cluster_name=eks.name,
            node_group_name=plan.name,
            node_role_arn=role,
            subnet_ids=[subnets[zone] for zone in plan.zones],
            version=cluster.kubernetes,
            ami_type=plan.ami_type,
            release_version=image_release(plan, cluster.kubernetes, self),
            capacity_type=plan.capacity_type,
            scaling_config={"desired_size": plan.started, "min_size": plan.started, "max_size": plan.nodes},
            update_config={
                "max_unavailable": plan.at_once,
                "update_strategy": "MINIMAL" if plan.terminates_first else "DEFAULT",
            },
            # A node is rebooted or replaced for faults that the monitoring agent finds, XID and ECC errors among them.
            node_repair_config={
                "enabled": True,
                "node_repair_config_overrides": [
                    {
                        "node_monitoring_condition": GPU_CONDITION,
                        "node_unhealthy_reason": reason,
                        "min_repair_wait_time_mins": 1,  # EKS asks for all four values, and for no less than 1 here
                        "repair_action": "NoAction",
                    }
                    for reason in plan.unrepaired
                ],
            },
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            labels=plan.labels,
            taints=[dict(taint) for taint in plan.taints],  # ty: ignore[invalid-argument-type]
            tags=plan.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(depends_on),
                protect=cluster.deletion_protection and not replaced,
                # Another zone of the environment is for groups that are made later: EKS replaces a group, with all its
                # nodes at once, for another subnet.
                ignore_changes=None if replaced else ["subnetIds"],
            ),
        )
        self.register_outputs({"name": self.group.node_group_name})


def _interfaces(
    plan: NodeGroupPlan, cluster_group: pulumi.Input[str], efa_group: pulumi.Input[str] | None
) -> dict[str, Any]:
    """One interface with addresses; EFA-only interfaces have the pool's security group and no other."""
    if not plan.efa_cards:
        return {}

    def interface(card: int, device: int, kind: str, group: pulumi.Input[str] | None) -> dict[str, Any]:
        return {
            "network_card_index": card,
            "device_index": device,
            "interface_type": kind,
            "security_groups": [group],
            "delete_on_termination": "true",
        }

    efa = [interface(card, 0 if card else 1, "efa-only", efa_group) for card in plan.efa_cards]
    return {"network_interfaces": [interface(0, 0, "interface", cluster_group), *efa]}


def _purchase_settings(plan: NodeGroupPlan) -> dict[str, Any]:
    """A reservation and nothing else; no placement group, which a reservation may lie outside of."""
    if not plan.reservation:
        return {}
    target = {"capacity_reservation_target": {"capacity_reservation_id": plan.reservation}}
    if plan.capacity_type == "CAPACITY_BLOCK":
        # The target alone, as in EKS user guide, "Create a managed node group with Capacity Blocks for ML".
        return {
            "capacity_reservation_specification": target,
            "instance_market_options": {"market_type": "capacity-block"},
        }
    return {
        "capacity_reservation_specification": {
            "capacity_reservation_preference": "capacity-reservations-only",
            **target,
        }
    }
