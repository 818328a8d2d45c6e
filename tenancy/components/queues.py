from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.manifest import Manifest, child_name
from tenancy.plan.model import Object


class Queues(pulumi.ComponentResource):
    """What tenants' queues stand on: flavors, priorities, and the tree of who lends to whom."""

    made: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        plan: Sequence[Object],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:Queues", name, None, opts)
        self.made = [
            Manifest(child_name(name, manifest), manifest, pulumi.ResourceOptions(parent=self, depends_on=list(after)))
            for manifest in plan
        ]
        self.register_outputs({"queues": len(self.made)})
