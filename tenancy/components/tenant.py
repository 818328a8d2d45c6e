from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.tenant_namespace import TenantNamespace
from tenancy.plan.model import TenantPlan


class Tenant(pulumi.ComponentResource):
    """Everything of one tenant."""

    def __init__(
        self,
        name: str,
        plan: TenantPlan,
        after: Sequence[pulumi.Input[pulumi.Resource]] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:Tenant", name, None, opts)
        for namespace in plan.namespaces:
            TenantNamespace(namespace.name, namespace, after, plan.adopt, pulumi.ResourceOptions(parent=self))
        self.register_outputs({"namespaces": [namespace.name for namespace in plan.namespaces]})
