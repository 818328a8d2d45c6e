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
        given: GivenNetwork | None = None,
        replacing: Collection[str] = (),
    ) -> None:
        """`given` is an existing network that is known only as outputs; else its ids are the plan's. `replacing` are
        the node groups that this run may replace, and PLATFORM_ROLE if it may replace the platform's access."""
        super().__init__("gpu-tenancy:index:GpuCluster", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        protect = plan.deletion_protection
        network = ClusterNetwork(f"{name}-network", plan.network, plan.tags, below, given=given, protect=protect)
        roles = Roles(f"{name}-role", plan.roles, plan.boundary, plan.tags, below)
        self.eks = eks = EksCluster(name, plan, network, roles, below, replacing=replacing)
        # A node without a network never gets ready, and its group fails after twenty minutes.
        first = [
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
        shared = eks.cluster.vpc_config.cluster_security_group_id
        efa_groups = {
            pool: EfaSecurityGroup(f"{name}-efa-{pool}", pool, tags, network.vpc_id, shared, below)
            for pool, tags in plan.efa_groups.items()
        }
        # Without egress a node never joins; on deletion the routes exist until the node's group is gone.
        earlier: list[pulumi.Resource] = [*first, *network.ready]
        wave, same = -1, list[pulumi.Resource]()
        for planned in plan.groups:
            if planned.wave != wave:
                wave, earlier, same = planned.wave, same or earlier, []
            made = NodeGroup(
                f"{name}-{planned.name}",
                planned,
                plan,
                eks,
                roles.arns["node"],
                network.subnets,
                efa_groups[planned.pool].group.id if planned.pool in efa_groups else None,
                earlier,
                below,
                replaced=planned.name in replacing,
            )
            same.append(made.group)
        if plan.karpenter:
            Interruptions(f"{name}-interruptions", plan.karpenter, plan.tags, below)
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
