from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.aws.access_entry import access_entry
from tenancy.components.aws.aws_resource import AwsResource, basename, policy_json, retain_opts
from tenancy.components.aws.break_glass import EmergencyAccess
from tenancy.components.aws.bucket import ProtectedBucket
from tenancy.components.aws.identity import IamRole
from tenancy.components.aws.key import EncryptionKey
from tenancy.planning.aws.platform_models import DataPlan


class SharedAws(pulumi.ComponentResource):
    """AWS resources that tenants share: keys, buckets with their policies, the roles' boundary, access entries."""

    gate: list[pulumi.Resource]
    """Resources that every role of a tenant depends on: the buckets' policies exist before any role has a key."""
    roles: dict[str, pulumi.Output[str]]
    """The shared roles, by the ARN that the plan knows them by."""

    def __init__(
        self,
        name: str,
        plan: DataPlan,
        guards: Sequence[pulumi.Input[pulumi.Resource]] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`guards` are the cluster's guards: people get access only once these exist."""
        super().__init__("gpu-tenancy:index:Data", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        keys = {key.alias: EncryptionKey(f"{name}-{basename(key.alias)}", key, child_opts) for key in plan.keys}
        self.gate = [
            ProtectedBucket(f"{name}-{bucket.name}", bucket, keys[bucket.key].arn, child_opts).policy
            for bucket in plan.buckets
        ]
        if plan.boundary:
            boundary = AwsResource(
                "iam/policy:Policy",
                f"{name}-boundary",
                {
                    "name": plan.boundary.name,
                    "path": plan.boundary.path,
                    "policy": policy_json(plan.boundary.document),
                    "tags": plan.boundary.tags,
                },
                pulumi.ResourceOptions(parent=self, depends_on=self.gate),
            )
            self.gate = [boundary]
        self.roles = {
            role.arn: IamRole(f"{name}-{role.name}", role, self.gate, child_opts).arn for role in plan.shared_roles
        }
        for provider in plan.providers:
            if not provider.existing:
                AwsResource(
                    "iam/openIdConnectProvider:OpenIdConnectProvider",
                    f"{name}-{provider.url.removeprefix('https://')}",
                    {"url": provider.url, "clientIdLists": [provider.audience], "tags": provider.tags},
                    # An account has one for each forge: other environments' pipelines come by it too.
                    retain_opts(self),
                )
        for entry in plan.access_entries:
            access_entry(f"{name}-{basename(entry.principal)}", entry, entry.principal, guards, self)
        if plan.break_glass:
            EmergencyAccess(f"{name}-break-glass", plan.break_glass, child_opts)
        for tag in plan.cost_tags:
            AwsResource(
                "costexplorer/costAllocationTag:CostAllocationTag",
                f"{name}-tag-{tag}",
                {"tagKey": tag, "status": "Active"},
                # Deleted, it would deactivate a key such as `team` for the whole organisation.
                retain_opts(self),
            )
        self.register_outputs({"buckets": [bucket.name for bucket in plan.buckets]})
