from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, policy_json
from tenancy.planning.aws.tenant_models import TenantRolePlan


class IamRole(pulumi.ComponentResource):
    """An IAM role and what it may do."""

    arn: pulumi.Output[str]
    """Known only when the policies are attached: no user of the role gets it before it has its rights."""

    def __init__(
        self,
        name: str,
        plan: TenantRolePlan,
        depends_on: Sequence[pulumi.Input[pulumi.Resource]] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:IamRole", name, None, opts)
        role = AwsResource(
            "iam/role:Role",
            f"{name}-role",
            {
                "name": plan.name,
                "path": plan.path,
                "assumeRolePolicy": policy_json(plan.trust),
                "permissionsBoundary": plan.boundary or None,
                "maxSessionDuration": plan.session_seconds,
                "tags": plan.tags,
            },
            pulumi.ResourceOptions(parent=self, depends_on=list(depends_on)),
        )
        # By the role's id, not by its name: a role that is made anew takes its policies along.
        policies = [
            AwsResource(
                "iam/rolePolicy:RolePolicy",
                f"{name}-{policy}",
                {"name": policy, "role": role.id, "policy": policy_json(document)},
                pulumi.ResourceOptions(parent=role),
            ).id
            for policy, document in plan.policies.items()
        ]
        self.arn = pulumi.Output.all(role.id, *policies).apply(lambda _: plan.arn)
        self.register_outputs({"arn": self.arn})
