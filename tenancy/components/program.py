"""The program of a stack, given what its config says."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy.components.aws.data import Data
from tenancy.components.kubernetes.cluster_network_policies import ClusterNetworkPolicies
from tenancy.components.kubernetes.guarded import Require
from tenancy.components.kubernetes.metrics import MetricsCollection
from tenancy.components.kubernetes.platform import AdmissionGuards
from tenancy.components.kubernetes.queues import ClusterQueues
from tenancy.components.scope import StackScope
from tenancy.components.tenant import GpuTenant
from tenancy.live.guards import require_guards
from tenancy.planning import Plan
from tenancy.planning.aws.cluster import ClusterPlan
from tenancy.planning.common.names import kubeconfig_command
from tenancy.planning.model import PlatformPlan, TenantPlan


def build(
    plan: Plan,
    scope: StackScope,
    platform: PlatformPlan | None,
    tenants: tuple[TenantPlan, ...],
    guards_enforced: Callable[[], None],
    require: Require = require_guards,
) -> None:
    """Register the stack's resources; `guards_enforced` returns when the guards just made judge requests, and `require`
    if those of a tenant's own stack do."""
    if scope is StackScope.CLUSTER:
        if plan.cluster:
            _build_cluster(plan, plan.cluster)
        return
    # The collector would walk all resources again and again: half of the time at a thousand of them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)

    # Else a changed ConfigMap is deleted and made anew, and for a moment the marker is gone.
    provider = kubernetes.Provider("kubernetes", context=plan.context, enable_config_map_mutable=True)
    on_aws = (platform and (platform.services or platform.data)) or any(tenant.aws for tenant in tenants)
    both = [provider, *([_aws_provider(plan.cluster)] if plan.cluster and on_aws else [])]
    inherited = pulumi.ResourceOptions(providers=both)
    data: Data | None = None
    gate: list[pulumi.Input[pulumi.Resource]] = []
    made: AdmissionGuards | None = None
    if platform:
        # A tenant's own stack depends on these guards: deleting them takes an explicit unprotect.
        protect = scope is StackScope.PLATFORM
        options = pulumi.ResourceOptions(providers=[provider], protect=protect)
        made = AdmissionGuards("platform", platform, guards_enforced, options, preflight=None)
        gate = [made.gate]
        if platform.data:
            # Resources with data in them are protected in every stack.
            data = Data("data", platform.data, gate, inherited)
        cni: list[pulumi.Resource] = []
        kueue: list[pulumi.Resource] = []
        if platform.services and plan.cluster:
            from tenancy.components.services import Services

            services = Services("services", platform.services, pulumi.ResourceOptions(providers=both, protect=protect))
            cni, kueue = services.network, services.queue
        if platform.cluster_policies:
            gate += ClusterNetworkPolicies("cluster-network-policies", platform.cluster_policies, cni, options).gate
        if platform.metrics:
            MetricsCollection("metrics", platform, cni, options)
        if platform.queues:
            gate += ClusterQueues("queues", platform.queues, kueue, options).gate
    for tenant in tenants:
        GpuTenant(tenant.name, tenant, gate[1:], data, inherited, platform=made, require=require)


def _build_cluster(plan: Plan, cluster: ClusterPlan) -> None:
    from tenancy.components.aws.cluster import GpuCluster

    GpuCluster(cluster.name, cluster, pulumi.ResourceOptions(providers=[_aws_provider(cluster)]))
    pulumi.export("kubeconfig", kubeconfig_command(cluster.name, cluster.region, plan.context))


def _aws_provider(cluster: ClusterPlan) -> pulumi.ProviderResource:
    import pulumi_aws as aws  # only where there is something on AWS: the lab does without

    return aws.Provider(
        "aws",
        region=cluster.region,
        # Credentials of another account end the run before anything is made.
        allowed_account_ids=[cluster.account],
        default_tags={"tags": cluster.tags},
    )
