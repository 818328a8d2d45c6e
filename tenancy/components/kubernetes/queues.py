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
        depends_on: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:ClusterQueues", name, None, opts)
        manifests: list[pulumi.Resource] = []
        for number, manifest in enumerate(plan, 1):
            prerequisites = manifests if number == len(plan) else []
            options = pulumi.ResourceOptions(parent=self, depends_on=[*depends_on, *prerequisites])
            manifests.append(Manifest(child_name(name, manifest), manifest, options))
        self.gate = manifests[-1:]
        self.register_outputs({"queues": len(manifests)})
