from __future__ import annotations

import pulumi

from tenancy.components.access_entry import access_entry
from tenancy.components.alarm import Alarm
from tenancy.components.identity import Identity
from tenancy.plan import data


class BreakGlass(pulumi.ComponentResource):
    """The way in for an emergency, which nobody takes unheard: its alarm is there first and goes last."""

    def __init__(self, name: str, plan: data.BreakGlass, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:BreakGlass", name, None, opts)
        below = pulumi.ResourceOptions(parent=self)
        alarm = Alarm(f"{name}-alarm", plan.alarm, below)
        role = Identity(f"{name}-role", plan.role, alarm.heard, below)
        access_entry(f"{name}-entry", plan.entry, role.arn, (), self)
        self.register_outputs({"role": role.arn})
