from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from tenancy.planning.aws.cluster import KarpenterPlan


class Interruptions(pulumi.ComponentResource):
    """The queue from which Karpenter reads interruptions of instances."""

    def __init__(
        self, name: str, plan: KarpenterPlan, tags: dict[str, str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:index:Interruptions", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        queue = aws.sqs.Queue(
            f"{name}-queue",
            name=plan.queue,
            message_retention_seconds=300,
            sqs_managed_sse_enabled=True,
            tags=tags,
            opts=child_opts,
        )
        aws.sqs.QueuePolicy(f"{name}-queue", queue_url=queue.url, policy=json.dumps(plan.queue_policy), opts=child_opts)
        for event, pattern in plan.events.items():
            rule = aws.cloudwatch.EventRule(
                f"{name}-{event}", name=event, event_pattern=json.dumps(pattern), tags=tags, opts=child_opts
            )
            aws.cloudwatch.EventTarget(f"{name}-{event}", rule=rule.name, arn=queue.arn, opts=child_opts)
        self.register_outputs({"queue": queue.name})
