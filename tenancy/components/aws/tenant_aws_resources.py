from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, kept, last, text
from tenancy.components.aws.bucket import ALL_BLOCKED
from tenancy.planning.aws.tenant_models import BudgetPlan, TenantAwsPlan


class TenantAwsResources(pulumi.ComponentResource):
    """What is one tenant's alone on AWS: access points of shared buckets, images, secrets, logs, queues and budget."""

    def __init__(
        self,
        name: str,
        plan: TenantAwsPlan,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`after` are the shared buckets, where this stack makes them."""
        super().__init__("gpu-tenancy:index:TenantAwsResources", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        for point in plan.access_points:
            AwsResource(
                "s3/accessPoint:AccessPoint",
                f"{name}-{point.name}",
                {
                    "bucket": point.bucket,
                    "name": point.name,
                    "policy": text(point.policy),
                    "publicAccessBlockConfiguration": ALL_BLOCKED,
                    "tags": point.tags,
                },
                pulumi.ResourceOptions(parent=self, depends_on=list(after)),
            )
        for repository in plan.repositories:
            child = f"{name}-{last(repository.name)}"
            made = AwsResource(
                "ecr/repository:Repository",
                child,
                {
                    "name": repository.name,
                    "imageTagMutability": "IMMUTABLE",
                    "imageScanningConfiguration": {"scanOnPush": True},
                    "tags": repository.tags,
                },
                kept(self, protect=True),
            )
            AwsResource(
                "ecr/repositoryPolicy:RepositoryPolicy",
                child,
                {"repository": made.id, "policy": text(repository.policy)},
                kept(made),
            )
        for secret in plan.secrets:
            child = f"{name}-{last(secret.name)}"
            made = AwsResource(
                "secretsmanager/secret:Secret",
                child,
                {"name": secret.name, "recoveryWindowInDays": secret.recovery_days, "tags": secret.tags},
                kept(self, protect=True),
            )
            AwsResource(
                "secretsmanager/secretPolicy:SecretPolicy",
                child,
                {"secretArn": made.id, "policy": text(secret.policy), "blockPublicPolicy": True},
                # Kept with it: a secret that is left without its policy has one lock instead of two.
                kept(made),
            )
        for group in plan.log_groups:
            AwsResource(
                "cloudwatch/logGroup:LogGroup",
                f"{name}-{last(group.name)}",
                {
                    "name": group.name,
                    "retentionInDays": group.days,
                    **({"kmsKeyId": group.key} if group.key else {}),
                    "tags": group.tags,
                },
                kept(self),
            )
        for queue in plan.queues:
            child = f"{name}-{queue.name}"
            made = AwsResource(
                "sqs/queue:Queue",
                child,
                {"name": queue.name, "sqsManagedSseEnabled": True, "tags": queue.tags},
                below,
            )
            AwsResource(
                "sqs/queuePolicy:QueuePolicy",
                child,
                {"queueUrl": made.id, "policy": text(queue.policy)},
                pulumi.ResourceOptions(parent=made),
            )
        if plan.budget:
            AwsResource("budgets/budget:Budget", f"{name}-budget", _budget(plan.budget), below)
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
