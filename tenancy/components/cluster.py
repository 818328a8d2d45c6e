from __future__ import annotations

import json
from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from tenancy.components.efa_wall import EfaWall
from tenancy.components.eks_cluster import EksCluster
from tenancy.components.interruptions import Interruptions
from tenancy.components.network import Network
from tenancy.components.node_group import NodeGroup
from tenancy.components.roles import Roles
from tenancy.plan.addons import AddOn
from tenancy.plan.cluster import ClusterPlan


class Cluster(pulumi.ComponentResource):
    """Network, control plane, add-ons and the nodes that are always there."""

    def __init__(self, name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:Cluster", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        network = Network(f"{name}-network", plan.network, plan.tags, below)
        roles = Roles(f"{name}-role", plan.roles, plan.boundary, plan.tags, below)
        eks = EksCluster(name, plan, network, roles, below)
        # A node without a network never gets ready, and its group fails after twenty minutes.
        first = [self._add_on(name, plan, add_on, eks, roles) for add_on in plan.add_ons if add_on.before_nodes]
        shared = eks.cluster.vpc_config.cluster_security_group_id
        walls = {
            pool: EfaWall(f"{name}-wall-{pool}", pool, tags, network.vpc_id, shared, below)
            for pool, tags in plan.walls.items()
        }
        earlier: list[pulumi.Resource] = []
        wave = -1
        groups: list[pulumi.Resource] = []
        for planned in plan.groups:
            if planned.wave != wave:
                wave, earlier = planned.wave, [*first, *groups]
            made = NodeGroup(
                f"{name}-{planned.name}",
                planned,
                plan,
                eks,
                roles.arns["node"],
                network.subnets,
                walls[planned.pool].group.id if planned.pool in walls else None,
                earlier,
                below,
            )
            groups.append(made.group)
        system = groups[:1]
        for add_on in plan.add_ons:
            if not add_on.before_nodes:
                self._add_on(name, plan, add_on, eks, roles, system)
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
                    opts=below,
                )
        self.register_outputs({"name": eks.cluster.name, "endpoint": eks.cluster.endpoint})

    def _add_on(
        self,
        name: str,
        plan: ClusterPlan,
        add_on: AddOn,
        eks: EksCluster,
        roles: Roles,
        after: Sequence[pulumi.Resource] = (),
    ) -> aws.eks.Addon:
        account = plan.roles[add_on.role].service_account if add_on.role else None
        identity = (
            [{"role_arn": roles.arns[add_on.role], "service_account": account[1]}] if add_on.role and account else None
        )
        return aws.eks.Addon(
            f"{name}-{add_on.name}",
            cluster_name=eks.cluster.name,
            addon_name=add_on.name,
            addon_version=add_on.version,
            configuration_values=json.dumps(add_on.configuration, sort_keys=True) if add_on.configuration else None,
            pod_identity_associations=identity,  # ty: ignore[invalid-argument-type]
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=plan.tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[eks.access, *after]),
        )
