from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pulumi

from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.kube.objects import Object
from tenancy.plan.model import PlatformPlan


class Platform(pulumi.ComponentResource):
    """What is cluster-wide: priority classes, personas, guards, and the marker that says they are stored."""

    gate: pulumi.Output[pulumi.Resource]
    """Dependency of every tenant's namespace: no namespace is made before the guards are enforced in it."""

    def __init__(
        self,
        name: str,
        plan: PlatformPlan,
        in_force: Callable[[], None],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`in_force` returns when the guards are enforced; it is called in an update, once they are stored."""
        super().__init__("gpu-tenancy:index:Platform", name, None, opts)

        def make(manifest: Object, after: Sequence[pulumi.Resource] = (), protect: bool | None = None) -> Manifest:
            options = pulumi.ResourceOptions(parent=self, depends_on=list(after), protect=protect)
            return Manifest(child_name(name, manifest), manifest, options)

        namespace = make(plan.namespace)
        ground = (*plan.priorities, *plan.roles, *plan.device_classes, *plan.pod_settings, *plan.flow_control)
        for manifest in ground:
            make(manifest)
        for manifest in plan.storage_classes:
            # Another key or tag is another object of the same name, and the engine replaces nothing that is protected.
            make(manifest, protect=False)
        guards = [make(guard) for guard in plan.guards]
        witness = [make(manifest, guards) for manifest in plan.witness]
        marker = make(plan.marker, [namespace, *witness])

        async def stand(_: str) -> pulumi.Resource:
            if not pulumi.runtime.is_dry_run():
                await asyncio.to_thread(in_force)
            return marker

        self.gate = marker.id.apply(stand)
        self.register_outputs({"guards": plan.marker["data"]["version"]})
