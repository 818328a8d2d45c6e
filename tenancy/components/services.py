from __future__ import annotations

import pulumi

from tenancy.components.aws.add_on import eks_add_on
from tenancy.components.kubernetes.manifest import Manifest, child_name
from tenancy.components.kubernetes.release import HelmRelease
from tenancy.kube.objects import Object
from tenancy.planning.services import ServicesPlan


class ClusterServices(pulumi.ComponentResource):
    """Services of a cluster with machines, each after its prerequisites."""

    queue: list[pulumi.Resource]
    """The release that defines queues (Kueue); empty where the environment has no queue."""
    network: list[pulumi.Resource]
    """The release that enforces network policies; none where the add-on does."""

    def __init__(self, name: str, plan: ServicesPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:index:Services", name, None, opts)
        releases: list[pulumi.Resource] = []
        self.network = []
        self.queue = []
        for chart in plan.charts:
            options = pulumi.ResourceOptions(parent=self, depends_on=releases[-1:])
            releases.append(HelmRelease(f"{name}-{chart.name}", chart, options))
            self.network += releases[-1:] if chart.name == plan.network else []
            self.queue += releases[-1:] if chart.name == plan.queue else []
        service_add_ons(name, plan, pulumi.ResourceOptions(parent=self, depends_on=self.network))

        def make(manifest: Object, after: list[pulumi.Resource]) -> Manifest:
            options = pulumi.ResourceOptions(parent=self, depends_on=after)
            return Manifest(child_name(name, manifest), manifest, options)

        # A pool that Karpenter sees before its overlay offers no slices, and one before its class is not ready.
        installed = releases[-1:]
        prerequisites = [make(manifest, installed) for manifest in plan.nodes if manifest["kind"] != "NodePool"]
        for manifest in plan.nodes:
            if manifest["kind"] == "NodePool":
                make(manifest, [*installed, *prerequisites])
        self.register_outputs({"charts": [chart.name for chart in plan.charts]})


def service_add_ons(name: str, plan: ServicesPlan, opts: pulumi.ResourceOptions) -> None:
    """The add-ons of EKS that need a network."""
    for add_on in plan.add_ons:
        identity = plan.identities.get(add_on.role)
        account = (identity.role, identity.service_account) if identity else None
        eks_add_on(f"{name}-{add_on.name}", add_on, plan.cluster, account, plan.tags, opts)
