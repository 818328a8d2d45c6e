from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.components.kubernetes.release import HelmRelease
from tenancy.kube.objects import Object
from tenancy.planning.plan_model import PlatformPlan


class MetricsCollection(pulumi.ComponentResource):
    """Rules and monitors for a Prometheus Operator, that operator where the platform installs it, and the tenants'
    access to their own series."""

    def __init__(
        self,
        name: str,
        plan: PlatformPlan,
        network: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`network` is what pods need before they start."""
        super().__init__("gpu-tenancy:index:MetricsCollection", name, None, opts)

        def make(manifest: Object, after: Sequence[pulumi.Resource] = ()) -> Manifest:
            options = pulumi.ResourceOptions(parent=self, depends_on=list(after))
            return Manifest(child_name(name, manifest), manifest, options)

        installed: list[pulumi.Resource] = [make(manifest) for manifest in plan.metrics_prerequisites]
        for chart in plan.metrics_charts:
            options = pulumi.ResourceOptions(parent=self, depends_on=[*network, *installed])
            installed = [HelmRelease(f"{name}-{chart.name}", chart, options)]
        for manifest in plan.metrics:
            make(manifest, installed)
        self.register_outputs({"objects": len(plan.metrics)})
