from __future__ import annotations

import json
from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from tenancy.planning.aws.identity import RolePlan


class Roles(pulumi.ComponentResource):
    """The IAM roles of the cluster, its nodes and the platform's services."""

    arns: dict[str, pulumi.Output[str]]
    """By purpose; known only when the policies are attached, so that no role is used before it has its rights."""

    def __init__(
        self,
        name: str,
        plan: Mapping[str, RolePlan],
        boundary: str,
        tags: dict[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:Roles", name, None, opts)
        self.arns = {}
        for purpose, planned in plan.items():
            role = aws.iam.Role(
                f"{name}-{purpose}",
                name=planned.name,
                assume_role_policy=json.dumps(planned.trust),
                permissions_boundary=boundary or None,
                tags=tags,
                opts=pulumi.ResourceOptions(parent=self),
            )
            role_child_opts = pulumi.ResourceOptions(parent=role)
            policy_ids: list[pulumi.Output[str]] = [
                aws.iam.RolePolicyAttachment(
                    f"{name}-{purpose}-{arn.rpartition('/')[2]}", role=role.name, policy_arn=arn, opts=role_child_opts
                ).id
                for arn in planned.managed
            ]
            policy_ids += [
                aws.iam.RolePolicy(
                    f"{name}-{purpose}-{policy}",
                    role=role.name,
                    name=policy,
                    policy=json.dumps(document),
                    opts=role_child_opts,
                ).id
                for policy, document in planned.inline.items()
            ]
            self.arns[purpose] = pulumi.Output.all(role.arn, *policy_ids).apply(
                lambda arn_and_policies: arn_and_policies[0]
            )
        self.register_outputs({"arns": self.arns})
