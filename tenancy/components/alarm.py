from __future__ import annotations

import pulumi

from tenancy.components.aws_resource import AwsResource, text
from tenancy.plan import data


class Alarm(pulumi.ComponentResource):
    """A mail to people when something happened that they want to know of."""

    heard: list[pulumi.Resource]
    """What has to stand for anybody to hear."""

    def __init__(self, name: str, plan: data.Alarm, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:Alarm", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        topic = AwsResource("sns/topic:Topic", f"{name}-topic", {"name": plan.name, "tags": plan.tags}, below)
        policy = AwsResource(
            "sns/topicPolicy:TopicPolicy", f"{name}-topic", {"arn": topic.id, "policy": text(plan.topic_policy)}, below
        )
        people = AwsResource(
            "sns/topicSubscription:TopicSubscription",
            f"{name}-mail",
            {"topic": topic.id, "protocol": "email", "endpoint": plan.mail},
            below,
        )
        rule = AwsResource(
            "cloudwatch/eventRule:EventRule",
            f"{name}-rule",
            {"name": plan.name, "eventPattern": text(plan.pattern), "tags": plan.tags},
            below,
        )
        target = AwsResource(
            "cloudwatch/eventTarget:EventTarget",
            f"{name}-rule",
            # The topic's own name would be a name that nobody knows; this one never changes.
            {"rule": rule.id, "targetId": "topic", "arn": topic.id},
            pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        self.heard = [people, target]
        self.register_outputs({"topic": topic.id})
