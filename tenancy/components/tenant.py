from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.data import Data
from tenancy.components.manifest import Manifest, child_name
from tenancy.components.tenant_aws import TenantAws
from tenancy.components.tenant_namespace import TenantNamespace
from tenancy.plan.model import TenantPlan


class Tenant(pulumi.ComponentResource):
    """Everything of one tenant."""

    def __init__(
        self,
        name: str,
        plan: TenantPlan,
        after: Sequence[pulumi.Input[pulumi.Resource]] = (),
        data: Data | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`data` is what tenants share on AWS, where this stack makes it."""
        super().__init__("gpu-tenancy:index:Tenant", name, None, opts)
        ground: list[pulumi.Resource] = []
        tree: list[pulumi.Resource] = []
        for item in (*plan.fences, *plan.queues):
            made = Manifest(
                child_name(name, item), item, pulumi.ResourceOptions(parent=self, depends_on=[*after, *tree])
            )
            ground.append(made)
            if item["kind"] == "Cohort":
                # A queue that comes below it first would be cut off from everybody else's.
                tree.append(made)
        # Their work ends with the namespaces, and a queue goes only when it has none. The queues stand on the rest, and
        # no pod starts before the denies around it.
        behind = ground or after
        namespaces = {
            each.name: TenantNamespace(each.name, each, behind, plan.adopt, pulumi.ResourceOptions(parent=self))
            for each in plan.namespaces
        }
        if plan.aws:
            TenantAws(f"{name}-aws", plan.aws, namespaces, data, pulumi.ResourceOptions(parent=self))
        self.register_outputs({"namespaces": [namespace.name for namespace in plan.namespaces]})
