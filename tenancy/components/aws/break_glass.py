from __future__ import annotations

import pulumi

from tenancy.components.aws.access_entry import access_entry
from tenancy.components.aws.alarm import EventAlarm
from tenancy.components.aws.identity import IamRole
from tenancy.planning.aws import platform_models


class EmergencyAccess(pulumi.ComponentResource):
    """Emergency access. Its alarm is created first and deleted last, so that each use is reported."""

    def __init__(
        self, name: str, plan: platform_models.BreakGlassPlan, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:index:EmergencyAccess", name, None, opts)
        child_opts = pulumi.ResourceOptions(parent=self)
        alarm = EventAlarm(f"{name}-alarm", plan.alarm, child_opts)
        role = IamRole(name, plan.role, alarm.recipients, child_opts)
        access_entry(f"{name}-entry", plan.entry, role.arn, (), self)
        self.register_outputs({"role": role.arn})
