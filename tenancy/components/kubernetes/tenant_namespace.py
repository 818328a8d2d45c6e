from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.catalog import vocabulary as words
from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.components.kubernetes.release import HelmRelease
from tenancy.planning.model import NamespacePlan


class TenantNamespace(pulumi.ComponentResource):
    """A namespace and its isolation resources; access bindings are created last and deleted first."""

    namespace: pulumi.Resource
    isolation_resources: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        plan: NamespacePlan,
        after: Sequence[pulumi.Input[pulumi.Resource]] = (),
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:TenantNamespace", name, None, opts)
        self.namespace = Manifest(
            child_name(name, plan.namespace),
            plan.namespace,
            pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                # Deleting it deletes its content: the engine allows that only after the tenant's file said leaving.
                protect=words.LEAVING not in plan.meta.annotations,
                # What was there before the tenant is not ours to delete.
                retain_on_delete=adopt,
            ),
        )
        # Isolation resources are deleted with their namespace: until then they isolate what still runs in it.
        standing = pulumi.ResourceOptions(
            parent=self, depends_on=[self.namespace], deleted_with=None if adopt else self.namespace
        )
        self.isolation_resources = [Manifest(child_name(name, wall), wall, standing) for wall in plan.isolation]
        behind = pulumi.ResourceOptions(parent=self, depends_on=self.isolation_resources)
        access = [Manifest(child_name(name, binding), binding, behind) for binding in plan.access]
        if plan.chart:
            standing_on = pulumi.ResourceOptions(parent=self, depends_on=[*self.isolation_resources, *access])
            HelmRelease(f"{name}-{plan.chart.name}", plan.chart, standing_on)
        self.register_outputs({"namespace": plan.name})
