from __future__ import annotations

from collections.abc import Callable, Sequence

import pulumi

from tenancy.catalog import vocabulary
from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.components.kubernetes.release import HelmRelease
from tenancy.planning.plan_model import NamespacePlan


class PlannedNamespace(pulumi.ComponentResource):
    """A namespace and its isolation resources; access bindings are created last and deleted first."""

    namespace: pulumi.Resource
    isolation_resources: list[pulumi.Resource]
    access: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        plan: NamespacePlan,
        depends_on: Sequence[pulumi.Input[pulumi.Resource]] = (),
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
        *,
        guards: Callable[[pulumi.ComponentResource], pulumi.Input[pulumi.Resource]] | None = None,
    ) -> None:
        """`guards` finds one more dependency, given this component with its providers."""
        super().__init__("gpu-tenancy:index:TenantNamespace", name, None, opts)
        depends_on = [*depends_on, *([guards(self)] if guards else [])]
        self.namespace = Manifest(
            name,
            plan.namespace,
            pulumi.ResourceOptions(
                parent=self,
                depends_on=depends_on,
                # Deleting it deletes its content: the engine allows that only after the tenant's file said leaving.
                protect=vocabulary.LEAVING not in plan.meta.annotations,
                # What was there before the tenant is not ours to delete.
                retain_on_delete=adopt,
            ),
        )
        # Isolation resources are deleted with their namespace: until then they isolate what still runs in it.
        isolation_opts = pulumi.ResourceOptions(
            parent=self, depends_on=[self.namespace], deleted_with=None if adopt else self.namespace
        )
        self.isolation_resources = [
            Manifest(child_name(name, manifest), manifest, isolation_opts) for manifest in plan.isolation
        ]
        access_opts = pulumi.ResourceOptions(parent=self, depends_on=self.isolation_resources)
        self.access = [Manifest(child_name(name, binding), binding, access_opts) for binding in plan.access]
        if plan.chart:
            chart_opts = pulumi.ResourceOptions(parent=self, depends_on=[*self.isolation_resources, *self.access])
            HelmRelease(f"{name}-{plan.chart.name}", plan.chart, chart_opts)
        self.register_outputs({"namespace": plan.name})
