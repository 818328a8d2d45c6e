from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, basename, policy_json, retain_opts
from tenancy.components.aws.bucket import ALL_BLOCKED
from tenancy.planning.aws.tenant_models import BudgetPlan, TenantAwsPlan


class TenantAwsResources(pulumi.ComponentResource):
    """AWS resources of one tenant: access points of shared buckets, resources of its own and budget."""

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
        for owned in plan.owned:
            child = f"{name}-{basename(owned.name)}"
            resource = AwsResource(
                owned.type,
                child,
                {"name": owned.name, **owned.properties, "tags": owned.tags},
                retain_opts(self, protect=owned.is_protected) if owned.is_kept else child_opts,
            )
            if owned.policy:
                document = {owned.policy.target: resource.id, "policy": policy_json(owned.policy.document)}
                AwsResource(
                    owned.policy.type,
                    child,
                    {**document, **owned.policy.properties},
                    retain_opts(resource) if owned.is_kept else pulumi.ResourceOptions(parent=resource),
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
