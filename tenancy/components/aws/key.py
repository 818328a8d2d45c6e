from __future__ import annotations

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, policy_json, retain_opts
from tenancy.planning.aws import tenant_models


class EncryptionKey(pulumi.ComponentResource):
    """A key and its alias. It is kept on AWS: without it, all that it encrypted is lost."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, plan: tenant_models.KeyPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:EncryptionKey", name, None, opts)
        key = AwsResource(
            "kms/key:Key",
            f"{name}-key",
            {
                "description": plan.description,
                "enableKeyRotation": plan.rotates,
                "deletionWindowInDays": plan.deletion_days,
                "policy": policy_json(plan.policy),
                "tags": plan.tags,
            },
            retain_opts(self, protect=True),
        )
        AwsResource("kms/alias:Alias", f"{name}-alias", {"name": plan.alias, "targetKeyId": key.id}, retain_opts(self))
        self.arn = key.arn
        self.register_outputs({"arn": key.arn})
