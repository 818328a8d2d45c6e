from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.aws.access_entry import access_entry
from tenancy.components.aws.aws_resource import AwsResource, kept, last, text
from tenancy.components.aws.break_glass import EmergencyAccess
from tenancy.components.aws.bucket import ProtectedBucket
from tenancy.components.aws.identity import IamRole
from tenancy.components.aws.key import EncryptionKey
from tenancy.planning.aws.platform_models import DataPlan


class Data(pulumi.ComponentResource):
    """What tenants share on AWS: keys, buckets with their policies, the boundary of all roles, and access entries."""

    gate: list[pulumi.Resource]
    """Resources that every role of a tenant depends on: the buckets' policies exist before any role has a key."""
    roles: dict[str, pulumi.Output[str]]
    """The shared roles, by the ARN that the plan knows them by."""

    def __init__(
        self,
        name: str,
        plan: DataPlan,
        after: Sequence[pulumi.Input[pulumi.Resource]] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`after` are the cluster's guards: people get access only once these exist."""
        super().__init__("gpu-tenancy:index:Data", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        keys = {key.alias: EncryptionKey(f"{name}-{last(key.alias)}", key, below) for key in plan.keys}
        self.gate = [
            ProtectedBucket(f"{name}-{bucket.name}", bucket, keys[bucket.key].arn, below).policy
            for bucket in plan.buckets
        ]
        if plan.boundary:
            boundary = AwsResource(
                "iam/policy:Policy",
                f"{name}-boundary",
                {
                    "name": plan.boundary.name,
                    "path": plan.boundary.path,
                    "policy": text(plan.boundary.document),
                    "tags": plan.boundary.tags,
                },
                pulumi.ResourceOptions(parent=self, depends_on=self.gate),
            )
            self.gate = [boundary]
        self.roles = {
            role.arn: IamRole(f"{name}-{role.name}", role, self.gate, below).arn for role in plan.shared_roles
        }
        for provider in plan.providers:
            if not provider.existing:
                AwsResource(
                    "iam/openIdConnectProvider:OpenIdConnectProvider",
                    f"{name}-{provider.url.removeprefix('https://')}",
                    {"url": provider.url, "clientIdLists": [provider.audience], "tags": provider.tags},
                    # An account has one for each forge: other environments' pipelines come by it too.
                    kept(self),
                )
        for entry in plan.access_entries:
            access_entry(f"{name}-{last(entry.principal)}", entry, entry.principal, after, self)
        if plan.break_glass:
            EmergencyAccess(f"{name}-break-glass", plan.break_glass, below)
        for tag in plan.cost_tags:
            AwsResource(
                "costexplorer/costAllocationTag:CostAllocationTag",
                f"{name}-tag-{tag}",
                {"tagKey": tag, "status": "Active"},
                # Deleted, it would deactivate a key such as `team` for the whole organisation.
                kept(self),
            )
        self.register_outputs({"buckets": [bucket.name for bucket in plan.buckets]})
