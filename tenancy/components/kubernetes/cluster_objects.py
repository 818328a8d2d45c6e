from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pulumi

from tenancy.cluster.preflight import check_platform
from tenancy.components.kubernetes.guarded import Preflight, cluster_ready, provider_of
from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.kube.objects import Object
from tenancy.planning.plan_model import PlatformPlan


class PlannedGuards(pulumi.ComponentResource):
    """Cluster-wide objects: priority classes, personas, guards, and the marker that says they are stored."""

    gate: pulumi.Output[pulumi.Resource]
    """Dependency of every tenant's namespace: no namespace is made before the guards are enforced in it."""

    def __init__(
        self,
        name: str,
        plan: PlatformPlan,
        guards_enforced: Callable[[], None],
        opts: pulumi.ResourceOptions | None = None,
        *,
        preflight: Preflight | None = check_platform,
    ) -> None:
        """`guards_enforced` returns when the guards are enforced; it is called in an update, once they are stored.
        Before anything is made `preflight` asks the provider's cluster whether guards would stop what runs there or
        refuse the deploying identity, and RunError ends the program if so. None: the program has asked already."""
        super().__init__("gpu-tenancy:index:AdmissionGuards", name, None, opts)
        preflight_done = [cluster_ready(name, plan, provider_of(self, name), preflight, self)] if preflight else []

        def make(manifest: Object, after: Sequence[pulumi.Resource] = (), protect: bool | None = None) -> Manifest:
            options = pulumi.ResourceOptions(parent=self, depends_on=[*preflight_done, *after], protect=protect)
            return Manifest(child_name(name, manifest), manifest, options)

        namespace = make(plan.namespace)
        prerequisites = (*plan.priorities, *plan.roles, *plan.device_classes, *plan.pod_settings, *plan.flow_control)
        for manifest in prerequisites:
            make(manifest)
        for manifest in plan.storage_classes:
            # Another key or tag is another object of the same name, and the engine replaces nothing that is protected.
            make(manifest, protect=False)
        guards = [make(guard) for guard in plan.guards]
        readiness_probe = [make(manifest, guards) for manifest in plan.readiness_probe]
        marker = make(plan.marker, [namespace, *readiness_probe])

        async def enforced_marker(_: str) -> pulumi.Resource:
            if not pulumi.runtime.is_dry_run():
                await asyncio.to_thread(guards_enforced)
            return marker

        self.gate = marker.id.apply(enforced_marker)
        self.register_outputs({"guards": plan.marker["data"]["version"]})
