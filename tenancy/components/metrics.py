from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.manifest import Manifest, child_name
from tenancy.plan.model import Object


class Metrics(pulumi.ComponentResource):
    """Rules and monitors for the Prometheus Operator that is there, and the tenants' way to their own series."""

    def __init__(self, name: str, plan: Sequence[Object], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:Metrics", name, None, opts)
        for manifest in plan:
            Manifest(child_name(name, manifest), manifest, pulumi.ResourceOptions(parent=self))
        self.register_outputs({"objects": len(plan)})
