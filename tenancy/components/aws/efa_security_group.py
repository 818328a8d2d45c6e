from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws


def _all_traffic(**peer: Any) -> Any:
    """A rule for every protocol and port."""
    return {"protocol": "-1", "from_port": 0, "to_port": 0, **peer}


class EfaSecurityGroup(pulumi.ComponentResource):
    """The security group of a pool with EFA, whose traffic no network policy sees.

    EKS' own group lets EFA through between all that carry it, so it is on no EFA interface.
    """

    group: aws.ec2.SecurityGroup

    def __init__(
        self,
        name: str,
        pool: str,
        tags: dict[str, str],
        vpc: pulumi.Input[str],
        cluster_group: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:EfaSecurityGroup", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        self.group = aws.ec2.SecurityGroup(
            f"{name}-group",
            vpc_id=vpc,
            description=f"EFA between the nodes of pool {pool}",
            ingress=[
                _all_traffic(self=True, description="the pool"),
                _all_traffic(security_groups=[cluster_group], description="control plane and other nodes"),
            ],
            # EFA asks for the group itself; the rest is what every node does.
            egress=[
                _all_traffic(self=True, description="the pool"),
                _all_traffic(cidr_blocks=["0.0.0.0/0"], description="as any node"),
            ],
            tags=tags,
            opts=child_opts,
        )
        # Karpenter puts one set of groups on all interfaces: its nodes carry this one alone.
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-joins",
            security_group_id=cluster_group,
            referenced_security_group_id=self.group.id,
            ip_protocol="-1",
            description=f"nodes of pool {pool}",
            tags=tags,
            opts=child_opts,
        )
        self.register_outputs({"group": self.group.id})
