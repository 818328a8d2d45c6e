from __future__ import annotations

import pulumi

from tenancy.components.aws.access_entry import access_entry
from tenancy.components.aws.alarm import Alarm
from tenancy.components.aws.identity import Identity
from tenancy.plan.aws import data


class BreakGlass(pulumi.ComponentResource):
    """Emergency access. Its alarm is created first and deleted last, so that each use is reported."""

    def __init__(self, name: str, plan: data.BreakGlass, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:BreakGlass", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        alarm = Alarm(f"{name}-alarm", plan.alarm, below)
        role = Identity(f"{name}-role", plan.role, alarm.heard, below)
        access_entry(f"{name}-entry", plan.entry, role.arn, (), self)
        self.register_outputs({"role": role.arn})
