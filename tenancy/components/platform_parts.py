"""Everything of a platform in the order in which it is made, for a stack's program and for `GpuPlatform`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pulumi

from tenancy.components.aws.data import Data
from tenancy.components.kubernetes.cluster_network_policies import ClusterNetworkPolicies
from tenancy.components.kubernetes.guarded import Preflight
from tenancy.components.kubernetes.metrics import MetricsCollection
from tenancy.components.kubernetes.platform import PlannedGuards
from tenancy.components.kubernetes.queues import ClusterQueues
from tenancy.live.preflight import check_platform
from tenancy.planning.model import PlatformPlan

Options = Callable[[str], pulumi.ResourceOptions]
"""Options of a part, by its name."""


@dataclass(frozen=True, slots=True)
class PlatformParts:
    """What tenants depend on."""

    guards: PlannedGuards
    data: Data | None
    """What tenants share on AWS; None without AWS."""
    gate: list[pulumi.Input[pulumi.Resource]]
    """Dependencies of tenants besides the guards."""


def platform_parts(
    plan: PlatformPlan,
    guards_enforced: Callable[[], None],
    options: Options,
    prefix: str = "",
    guards: str = "platform",
    *,
    preflight: Preflight | None = check_platform,
) -> PlatformParts:
    """Register a platform. Names of its parts are `guards`, and others that begin with `prefix`; `guards_enforced`
    returns when the guards just made judge requests, and `preflight` is what AdmissionGuards asks first."""
    made = PlannedGuards(guards, plan, guards_enforced, options("guards"), preflight=preflight)
    gate: list[pulumi.Input[pulumi.Resource]] = []
    data: Data | None = None
    if plan.data:
        data = Data(f"{prefix}data", plan.data, [made.gate], options("data"))
    cni: list[pulumi.Resource] = []
    kueue: list[pulumi.Resource] = []
    if plan.services:
        from tenancy.components.services import ClusterServices

        services = ClusterServices(f"{prefix}services", plan.services, options("services"))
        cni, kueue = services.network, services.queue
    if plan.cluster_policies:
        name = f"{prefix}cluster-network-policies"
        gate += ClusterNetworkPolicies(name, plan.cluster_policies, cni, options("cluster-network-policies")).gate
    if plan.metrics:
        MetricsCollection(f"{prefix}metrics", plan, cni, options("metrics"))
    if plan.queues:
        gate += ClusterQueues(f"{prefix}queues", plan.queues, kueue, options("queues")).gate
    return PlatformParts(made, data, gate)
