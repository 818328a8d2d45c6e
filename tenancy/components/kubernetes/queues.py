from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.kube.objects import Object


class ClusterQueues(pulumi.ComponentResource):
    """Prerequisites of tenants' queues: flavors, priorities, and the tree of Cohorts that lend to each other."""

    gate: list[pulumi.Resource]
    """The last of them, made after all others: a dependent names this one, not each."""

    def __init__(
        self,
        name: str,
        plan: Sequence[Object],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:ClusterQueues", name, None, opts)
        made: list[pulumi.Resource] = []
        for number, manifest in enumerate(plan, 1):
            prerequisites = made if number == len(plan) else []
            options = pulumi.ResourceOptions(parent=self, depends_on=[*after, *prerequisites])
            made.append(Manifest(child_name(name, manifest), manifest, options))
        self.gate = made[-1:]
        self.register_outputs({"queues": len(made)})
