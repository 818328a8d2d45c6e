from __future__ import annotations

from collections.abc import Collection

import pulumi
import pulumi_aws as aws

from tenancy.components.aws.add_on import eks_add_on
from tenancy.components.aws.efa_security_group import EfaSecurityGroup
from tenancy.components.aws.eks_cluster import EksCluster
from tenancy.components.aws.interruptions import Interruptions
from tenancy.components.aws.network import ClusterNetwork, GivenNetwork
from tenancy.components.aws.node_group import NodeGroup
from tenancy.components.aws.roles import Roles
from tenancy.planning.aws.cluster import ClusterPlan


class PlannedCluster(pulumi.ComponentResource):
    """Network, control plane, add-ons and the nodes that are always there."""

    eks: EksCluster

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        opts: pulumi.ResourceOptions | None = None,
        *,
        existing_network: GivenNetwork | None = None,
        replacing: Collection[str] = (),
    ) -> None:
        """`existing_network` is one that is known only as outputs; else its ids are the plan's. `replacing` are
        the node groups that this run may replace, and PLATFORM_ROLE if it may replace the platform's access."""
        super().__init__("gpu-tenancy:index:GpuCluster", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        protect = plan.deletion_protection
        network = ClusterNetwork(
            f"{name}-network", plan.network, plan.tags, child_opts, existing_network=existing_network, protect=protect
        )
        roles = Roles(f"{name}-role", plan.roles, plan.boundary, plan.tags, child_opts)
        self.eks = eks = EksCluster(name, plan, network, roles, child_opts, replacing=replacing)
        # A node without a network never gets ready, and its group fails after twenty minutes.
        network_add_ons = [
            eks_add_on(
                f"{name}-{add_on.name}",
                add_on,
                eks.cluster.name,
                _identity(plan, roles, add_on.role),
                plan.tags,
                pulumi.ResourceOptions(parent=self, depends_on=[eks.access], protect=protect),
            )
            for add_on in plan.add_ons
        ]
        cluster_group = eks.cluster.vpc_config.cluster_security_group_id
        efa_groups = {
            pool: EfaSecurityGroup(f"{name}-efa-{pool}", pool, tags, network.vpc_id, cluster_group, child_opts)
            for pool, tags in plan.efa_groups.items()
        }
        # Without egress a node never joins; on deletion the routes exist until the node's group is gone.
        earlier_resources: list[pulumi.Resource] = [*network_add_ons, *network.prerequisites]
        wave, wave_groups = -1, list[pulumi.Resource]()
        for planned in plan.groups:
            if planned.wave != wave:
                wave, earlier_resources, wave_groups = planned.wave, wave_groups or earlier_resources, []
            node_group = NodeGroup(
                f"{name}-{planned.name}",
                planned,
                plan,
                eks,
                roles.arns["node"],
                network.subnets,
                efa_groups[planned.pool].group.id if planned.pool in efa_groups else None,
                earlier_resources,
                child_opts,
                replaced=planned.name in replacing,
            )
            wave_groups.append(node_group.group)
        if plan.karpenter:
            Interruptions(f"{name}-interruptions", plan.karpenter, plan.tags, child_opts)
            account = plan.roles["karpenter"].service_account
            if account:
                aws.eks.PodIdentityAssociation(
                    f"{name}-karpenter",
                    cluster_name=eks.cluster.name,
                    namespace=account[0],
                    service_account=account[1],
                    role_arn=roles.arns["karpenter"],
                    tags=plan.tags,
                    opts=pulumi.ResourceOptions(parent=self, protect=protect),
                )
        self.register_outputs({"name": eks.cluster.name, "endpoint": eks.cluster.endpoint})


def _identity(plan: ClusterPlan, roles: Roles, purpose: str) -> tuple[pulumi.Input[str], str] | None:
    account = plan.roles[purpose].service_account if purpose else None
    return (roles.arns[purpose], account[1]) if account else None
