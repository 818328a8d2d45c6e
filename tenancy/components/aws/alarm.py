from __future__ import annotations

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, policy_json
from tenancy.planning.aws import platform_models


class EventAlarm(pulumi.ComponentResource):
    """A mail to people when an event matches the plan's pattern."""

    recipients: list[pulumi.Resource]
    """Resources that must exist for a mail to be sent."""

    def __init__(self, name: str, plan: platform_models.AlarmPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:EventAlarm", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        topic = AwsResource("sns/topic:Topic", f"{name}-topic", {"name": plan.name, "tags": plan.tags}, child_opts)
        policy = AwsResource(
            "sns/topicPolicy:TopicPolicy",
            f"{name}-topic",
            {"arn": topic.id, "policy": policy_json(plan.topic_policy)},
            child_opts,
        )
        people = AwsResource(
            "sns/topicSubscription:TopicSubscription",
            f"{name}-mail",
            {"topic": topic.id, "protocol": "email", "endpoint": plan.mail},
            child_opts,
        )
        rule = AwsResource(
            "cloudwatch/eventRule:EventRule",
            f"{name}-rule",
            {"name": plan.name, "eventPattern": policy_json(plan.pattern), "state": plan.state, "tags": plan.tags},
            child_opts,
        )
        target = AwsResource(
            "cloudwatch/eventTarget:EventTarget",
            f"{name}-rule",
            # Without an id EventBridge's provider makes a random one; this one never changes.
            {"rule": rule.id, "targetId": "topic", "arn": topic.id},
            pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        self.recipients = [people, target]
        self.register_outputs({"topic": topic.id})
