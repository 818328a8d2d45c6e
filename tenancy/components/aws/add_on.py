from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from tenancy.catalog.versions import add_on_too_old
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


def _version(plan: AddOn, parent: pulumi.Resource | None) -> str:
    """The fixed version, or the first that EKS lists for the cluster's Kubernetes and that is not too old."""
    if plan.version:
        return plan.version
    too_old = None
    for most_recent in (True,) if plan.latest else (False, True):
        version = aws.eks.get_addon_version(
            addon_name=plan.name,
            kubernetes_version=plan.kubernetes,
            most_recent=most_recent,
            opts=pulumi.InvokeOptions(parent=parent),
        ).version
        too_old = add_on_too_old(plan.name, version)
        if too_old is None:
            return version
    raise pulumi.RunError(
        f"given cluster.kubernetes: {plan.kubernetes}, for which EKS lists {too_old}; rule: no add-on is older than "
        "the platform needs; change: use a newer Kubernetes"
    )
