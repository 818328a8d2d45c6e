from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.manifest import Manifest, child_name
from tenancy.plan.model import Object


class Queues(pulumi.ComponentResource):
    """What tenants' queues stand on: flavors, priorities, and the tree of who lends to whom."""

    gate: list[pulumi.Resource]
    """The last of them, made after all others: who waits for it waits for one, not for each."""

    def __init__(
        self,
        name: str,
        plan: Sequence[Object],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:Queues", name, None, opts)
        made: list[pulumi.Resource] = []
        for number, manifest in enumerate(plan, 1):
            ground = made if number == len(plan) else []
            options = pulumi.ResourceOptions(parent=self, depends_on=[*after, *ground])
            made.append(Manifest(child_name(name, manifest), manifest, options))
        self.gate = made[-1:]
        self.register_outputs({"queues": len(made)})
