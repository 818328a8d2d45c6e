"""Everything of a platform in the order in which it is made."""

from __future__ import annotations

from collections.abc import Callable

import pulumi

from tenancy.cluster.preflight import check_platform
from tenancy.components.aws.data import SharedAws
from tenancy.components.kubernetes.cluster_network_policies import ClusterNetworkPolicies
from tenancy.components.kubernetes.cluster_objects import PlannedGuards
from tenancy.components.kubernetes.guarded import Preflight
from tenancy.components.kubernetes.metrics import MetricsCollection
from tenancy.components.kubernetes.queues import ClusterQueues
from tenancy.planning.plan_model import PlatformPlan


class PlannedPlatform(pulumi.ComponentResource):
    """Everything that the tenants of one cluster share."""

    guards: PlannedGuards
    data: SharedAws | None
    """AWS resources that tenants share; None without AWS."""
    gate: list[pulumi.Input[pulumi.Resource]]
    """Dependencies of tenants besides the guards."""

    def __init__(
        self,
        name: str,
        plan: PlatformPlan,
        guards_enforced: Callable[[], None],
        opts: pulumi.ResourceOptions | None = None,
        *,
        preflight: Preflight | None = check_platform,
        protect: bool | None = None,
    ) -> None:
        """`guards_enforced` returns when the guards just made judge requests, and `preflight` is what AdmissionGuards
        asks first. With `protect` nothing on the cluster is deleted; data on AWS is protected in any case."""
        super().__init__("gpu-tenancy:index:GpuPlatform", name, None, opts)
        unprotected_opts = pulumi.ResourceOptions(parent=self)
        child_opts = pulumi.ResourceOptions(parent=self, protect=protect)
        self.guards = PlannedGuards(f"{name}-guards", plan, guards_enforced, child_opts, preflight=preflight)
        self.gate = []
        self.data = SharedAws(f"{name}-data", plan.data, [self.guards.gate], unprotected_opts) if plan.data else None
        cni: list[pulumi.Resource] = []
        kueue: list[pulumi.Resource] = []
        if plan.services:
            from tenancy.components.services import ClusterServices

            services = ClusterServices(f"{name}-services", plan.services, child_opts)
            cni, kueue = services.network, services.queue
        if plan.cluster_policies:
            policies = f"{name}-cluster-network-policies"
            self.gate += ClusterNetworkPolicies(policies, plan.cluster_policies, cni, child_opts).gate
        if plan.metrics:
            MetricsCollection(f"{name}-metrics", plan, cni, child_opts)
        if plan.queues:
            self.gate += ClusterQueues(f"{name}-queues", plan.queues, kueue, child_opts).gate
        self.register_outputs({"guards": plan.marker["data"]["version"]})
