from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

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
        addon_version=plan.version,
        configuration_values=json.dumps(plan.configuration, sort_keys=True) if plan.configuration else None,
        pod_identity_associations=associations,  # ty: ignore[invalid-argument-type]
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags=tags,
        opts=opts,
    )
