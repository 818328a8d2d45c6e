from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, basename, policy_json, retain_opts
from tenancy.components.aws.bucket import ALL_BLOCKED
from tenancy.planning.aws.tenant_models import BudgetPlan, TenantAwsPlan


class TenantAwsResources(pulumi.ComponentResource):
    """AWS resources of one tenant: access points of shared buckets, images, secrets, logs, queues and budget."""

    def __init__(
        self,
        name: str,
        plan: TenantAwsPlan,
        depends_on: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`depends_on` are the shared buckets, where this stack makes them."""
        super().__init__("gpu-tenancy:index:TenantAwsResources", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        for point in plan.access_points:
            AwsResource(
                "s3/accessPoint:AccessPoint",
                f"{name}-{point.name}",
                {
                    "bucket": point.bucket,
                    "name": point.name,
                    "policy": policy_json(point.policy),
                    "publicAccessBlockConfiguration": ALL_BLOCKED,
                    "tags": point.tags,
                },
                pulumi.ResourceOptions(parent=self, depends_on=list(depends_on)),
            )
        for repository in plan.repositories:
            child = f"{name}-{basename(repository.name)}"
            parent_resource = AwsResource(
                "ecr/repository:Repository",
                child,
                {
                    "name": repository.name,
                    "imageTagMutability": "IMMUTABLE",
                    "imageScanningConfiguration": {"scanOnPush": True},
                    "tags": repository.tags,
                },
                retain_opts(self, protect=True),
            )
            AwsResource(
                "ecr/repositoryPolicy:RepositoryPolicy",
                child,
                {"repository": parent_resource.id, "policy": policy_json(repository.policy)},
                retain_opts(parent_resource),
            )
        for secret in plan.secrets:
            child = f"{name}-{basename(secret.name)}"
            parent_resource = AwsResource(
                "secretsmanager/secret:Secret",
                child,
                {"name": secret.name, "recoveryWindowInDays": secret.recovery_days, "tags": secret.tags},
                retain_opts(self, protect=True),
            )
            AwsResource(
                "secretsmanager/secretPolicy:SecretPolicy",
                child,
                {"secretArn": parent_resource.id, "policy": policy_json(secret.policy), "blockPublicPolicy": True},
                # Kept with it: a secret that is left without its policy has one lock instead of two.
                retain_opts(parent_resource),
            )
        for group in plan.log_groups:
            AwsResource(
                "cloudwatch/logGroup:LogGroup",
                f"{name}-{basename(group.name)}",
                {
                    "name": group.name,
                    "retentionInDays": group.days,
                    **({"kmsKeyId": group.key} if group.key else {}),
                    "tags": group.tags,
                },
                retain_opts(self),
            )
        for queue in plan.queues:
            child = f"{name}-{queue.name}"
            parent_resource = AwsResource(
                "sqs/queue:Queue",
                child,
                {"name": queue.name, "sqsManagedSseEnabled": True, "tags": queue.tags},
                child_opts,
            )
            AwsResource(
                "sqs/queuePolicy:QueuePolicy",
                child,
                {"queueUrl": parent_resource.id, "policy": policy_json(queue.policy)},
                pulumi.ResourceOptions(parent=parent_resource),
            )
        if plan.budget:
            AwsResource("budgets/budget:Budget", f"{name}-budget", _budget(plan.budget), child_opts)
        self.register_outputs({})


def _budget(plan: BudgetPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "budgetType": "COST",
        "timeUnit": "MONTHLY",
        "limitAmount": plan.limit,
        "limitUnit": "USD",
        "costFilters": [{"name": name, "values": list(values)} for name, values in plan.filters.items()],
        "notifications": [
            {
                "notificationType": alert.kind,
                "comparisonOperator": "GREATER_THAN",
                "threshold": alert.percent,
                "thresholdType": "PERCENTAGE",
                "subscriberEmailAddresses": [alert.mail],
            }
            for alert in plan.alerts
        ],
        "tags": plan.tags,
    }
