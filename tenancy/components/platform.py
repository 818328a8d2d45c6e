from __future__ import annotations

import pulumi

from tenancy.components.manifest import Manifest, child_name
from tenancy.plan.model import Object, PlatformPlan


class Platform(pulumi.ComponentResource):
    """What is cluster-wide: priority classes, personas, guards, and the marker that says they stand."""

    marker: pulumi.Resource
    """The gate of every tenant: nobody's namespace is made before the guards that judge it."""

    def __init__(self, name: str, plan: PlatformPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:Platform", name, None, opts)

        def make(manifest: Object, after: list[pulumi.Resource] | None = None) -> Manifest:
            options = pulumi.ResourceOptions(parent=self, depends_on=after)
            return Manifest(child_name(name, manifest), manifest, options)

        namespace = make(plan.namespace)
        for manifest in (*plan.priorities, *plan.roles):
            make(manifest)
        self.marker = make(plan.marker, [namespace, *(make(guard) for guard in plan.guards)])
        self.register_outputs({"guards": plan.marker["data"]["version"]})
