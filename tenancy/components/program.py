"""The program of a stack, given what its config says."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy.components.aws.data import Data
from tenancy.components.kubernetes.fences import Fences
from tenancy.components.kubernetes.guarded import Require
from tenancy.components.kubernetes.metrics import Metrics
from tenancy.components.kubernetes.platform import Platform
from tenancy.components.kubernetes.queues import Queues
from tenancy.components.scope import Scope
from tenancy.components.tenant import Tenant
from tenancy.live.guards import require_guards
from tenancy.plan import Plan
from tenancy.plan.aws.cluster import ClusterPlan
from tenancy.plan.common.names import kubeconfig_command
from tenancy.plan.model import PlatformPlan, TenantPlan


def build(
    plan: Plan,
    scope: Scope,
    platform: PlatformPlan | None,
    tenants: tuple[TenantPlan, ...],
    in_force: Callable[[], None],
    require: Require = require_guards,
) -> None:
    """Register the stack's resources; `in_force` returns when the guards that were made judge requests, and `require`
    if those of a tenant's own stack do."""
    if scope is Scope.CLUSTER:
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
    made: Platform | None = None
    if platform:
        # A tenant's own stack depends on these guards: deleting them takes an explicit unprotect.
        protect = scope is Scope.PLATFORM
        options = pulumi.ResourceOptions(providers=[provider], protect=protect)
        made = Platform("platform", platform, in_force, options)
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
        if platform.fences:
            gate += Fences("fences", platform.fences, cni, options).gate
        if platform.metrics:
            Metrics("metrics", platform, cni, options)
        if platform.queues:
            gate += Queues("queues", platform.queues, kueue, options).gate
    for tenant in tenants:
        Tenant(tenant.name, tenant, gate[1:], data, inherited, platform=made, require=require)


def _build_cluster(plan: Plan, cluster: ClusterPlan) -> None:
    from tenancy.components.aws.cluster import Cluster

    Cluster(cluster.name, cluster, pulumi.ResourceOptions(providers=[_aws_provider(cluster)]))
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
