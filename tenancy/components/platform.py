from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pulumi

from tenancy.components.manifest import Manifest, child_name
from tenancy.plan.model import Object, PlatformPlan


class Platform(pulumi.ComponentResource):
    """What is cluster-wide: priority classes, personas, guards, and the marker that says they are stored."""

    gate: pulumi.Output[pulumi.Resource]
    """What every tenant's namespace depends on: nobody's is made before the guards judge in it."""

    def __init__(
        self,
        name: str,
        plan: PlatformPlan,
        in_force: Callable[[], None],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`in_force` returns when the guards are in force; it is asked in an update, once they are stored."""
        super().__init__("gpu-tenancy:index:Platform", name, None, opts)

        def make(manifest: Object, after: Sequence[pulumi.Resource] = ()) -> Manifest:
            options = pulumi.ResourceOptions(parent=self, depends_on=list(after))
            return Manifest(child_name(name, manifest), manifest, options)

        namespace = make(plan.namespace)
        ground = (*plan.priorities, *plan.roles, *plan.device_classes, *plan.storage_classes, *plan.pod_settings)
        for manifest in ground:
            make(manifest)
        guards = [make(guard) for guard in plan.guards]
        witness = [make(manifest, guards) for manifest in plan.witness]
        marker = make(plan.marker, [namespace, *witness])

        async def stand(_: str) -> pulumi.Resource:
            if not pulumi.runtime.is_dry_run():
                await asyncio.to_thread(in_force)
            return marker

        self.gate = marker.id.apply(stand)
        self.register_outputs({"guards": plan.marker["data"]["version"]})
