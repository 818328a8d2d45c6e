from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.aws.aws_resource import AwsResource
from tenancy.planning.aws.tenant_models import AccessEntry

STANDARD = "STANDARD"
"""Type of the access entries of people and pipelines; the other types are for nodes."""


def access_entry(
    name: str,
    plan: AccessEntry,
    principal: pulumi.Input[str],
    depends_on: Sequence[pulumi.Input[pulumi.Resource]],
    parent: pulumi.Resource,
) -> None:
    """A role's access to the cluster. EKS remembers the role by its id, so a role made anew needs a new entry."""
    cluster_and_role = {"clusterName": plan.cluster, "principalArn": principal}
    entry = AwsResource(
        "eks/accessEntry:AccessEntry",
        name,
        {**cluster_and_role, "type": STANDARD, "kubernetesGroups": list(plan.groups), "tags": plan.tags},
        pulumi.ResourceOptions(parent=parent, depends_on=list(depends_on)),
    )
    if plan.policy:
        AwsResource(
            "eks/accessPolicyAssociation:AccessPolicyAssociation",
            name,
            {**cluster_and_role, "policyArn": plan.policy, "accessScope": {"type": "cluster"}},
            pulumi.ResourceOptions(parent=entry, depends_on=[entry]),
        )
