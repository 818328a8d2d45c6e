"""The program of a stack, given what its config says."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy.cluster.guards import require_guards
from tenancy.components.kubernetes.guarded import Require
from tenancy.components.platform import PlannedPlatform
from tenancy.components.tenant import PlannedTenant
from tenancy.planning import Plan
from tenancy.planning.aws.cluster import AccountPlan, ClusterPlan
from tenancy.planning.common.names import kubeconfig_command
from tenancy.planning.plan_model import PlatformPlan, TenantPlan
from tenancy.planning.scope import StackScope


def build(
    plan: Plan,
    scope: StackScope,
    platform: PlatformPlan | None,
    tenants: tuple[TenantPlan, ...],
    guards_enforced: Callable[[], None],
    require: Require = require_guards,
    replacing: Collection[str] = (),
) -> None:
    """Register the stack's resources; `guards_enforced` returns when the guards just made judge requests, and `require`
    if those of a tenant's own stack do. `replacing` is as for PlannedCluster."""
    if scope is StackScope.CLUSTER:
        if plan.cluster:
            _build_cluster(plan, plan.cluster, replacing)
        return
    # Else a changed ConfigMap is deleted and made anew, and for a moment the marker is gone.
    provider = kubernetes.Provider("kubernetes", context=plan.context, enable_config_map_mutable=True)
    uses_aws = (platform and (platform.services or platform.data)) or any(tenant.aws for tenant in tenants)
    providers = [provider, *([aws_provider(plan.account)] if plan.account and uses_aws else [])]
    provider_opts = pulumi.ResourceOptions(providers=providers)
    planned_platform: PlannedPlatform | None = None
    if platform:
        # A tenant's own stack depends on these guards: deleting them takes an explicit unprotect.
        protect = scope is StackScope.PLATFORM
        planned_platform = PlannedPlatform(
            "platform", platform, guards_enforced, provider_opts, preflight=None, protect=protect
        )
    gate, data, guards = (
        (planned_platform.gate, planned_platform.data, planned_platform.guards)
        if planned_platform
        else ([], None, None)
    )
    for tenant in tenants:
        PlannedTenant(tenant.name, tenant, gate, data, provider_opts, platform=guards, require=require)


def _build_cluster(plan: Plan, cluster: ClusterPlan, replacing: Collection[str]) -> None:
    from tenancy.components.aws.cluster import PlannedCluster

    assert plan.account, "a cluster is built in an account"
    providers = pulumi.ResourceOptions(providers=[aws_provider(plan.account)])
    PlannedCluster(cluster.name, cluster, providers, replacing=replacing)
    pulumi.export("kubeconfig", kubeconfig_command(cluster.name, cluster.region, plan.context))


def aws_provider(plan: AccountPlan) -> pulumi.ProviderResource:
    """The provider of the resources of an account in its region."""
    import pulumi_aws as aws  # only where there is something on AWS: the lab does without

    return aws.Provider(
        "aws",
        region=plan.region,
        # Credentials of another account end the run before anything is made.
        allowed_account_ids=[plan.account],
        default_tags={"tags": plan.tags},
    )
