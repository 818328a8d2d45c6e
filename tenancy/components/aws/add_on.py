from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from tenancy.catalog.versions import ADD_ON_FLOORS, add_on_too_old
from tenancy.planning.aws.addons import AddOn


def eks_add_on(
    name: str,
    plan: AddOn,
    cluster: pulumi.Input[str],
    identity: tuple[pulumi.Input[str], str] | None,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> aws.eks.Addon:
    """An add-on of EKS; `identity` is a role's ARN and the service account that takes it."""
    associations = [{"role_arn": identity[0], "service_account": identity[1]}] if identity else None
    return aws.eks.Addon(
        name,
        cluster_name=cluster,
        addon_name=plan.name,
        addon_version=_version(plan, opts.parent),
        configuration_values=json.dumps(plan.configuration, sort_keys=True) if plan.configuration else None,
        pod_identity_associations=associations,  # ty: ignore[invalid-argument-type]
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags=tags,
        opts=opts,
    )


def _version(plan: AddOn, parent: pulumi.Resource | None) -> pulumi.Input[str]:
    """The fixed version, or what EKS lists for the cluster's Kubernetes at this run."""
    if plan.version:
        return plan.version
    opts = pulumi.InvokeOptions(parent=parent)

    def listed(most_recent: bool) -> pulumi.Output[str]:
        return aws.eks.get_addon_version_output(
            addon_name=plan.name, kubernetes_version=plan.kubernetes, most_recent=most_recent, opts=opts
        ).version

    if plan.latest or plan.name not in ADD_ON_FLOORS:
        return listed(plan.latest).apply(lambda version: _fitting(plan, version))
    return pulumi.Output.all(listed(False), listed(True)).apply(lambda found: _fitting(plan, *found))


def _fitting(plan: AddOn, *versions: str) -> str:
    """The first version that is not older than the platform needs."""
    misfits = [add_on_too_old(plan.name, version) for version in versions]
    if None in misfits:
        return versions[misfits.index(None)]
    raise pulumi.RunError(
        f"given cluster.kubernetes: {plan.kubernetes}, for which EKS lists {misfits[-1]}; rule: no add-on is older "
        "than the platform needs; change: use a newer Kubernetes"
    )
