from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.kube.objects import Object


class ClusterNetworkPolicies(pulumi.ComponentResource):
    """Cluster network policies: clusterwide denies for all tenants, where the CNI supports them."""

    gate: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        plan: Sequence[Object],
        depends_on: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:index:ClusterNetworkPolicies", name, None, opts)
        options = pulumi.ResourceOptions(parent=self, depends_on=list(depends_on))
        self.gate = [Manifest(child_name(name, item), item, options) for item in plan]
        self.register_outputs({"cluster-network-policies": len(plan)})
