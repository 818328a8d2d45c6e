from __future__ import annotations

from collections.abc import Sequence

import pulumi

from tenancy.components.aws.aws_resource import AwsResource
from tenancy.planning.aws.tenant_models import AccessEntry

STANDARD = "STANDARD"
"""Of people and pipelines; the other types are nodes'."""


def access_entry(
    name: str,
    plan: AccessEntry,
    principal: pulumi.Input[str],
    after: Sequence[pulumi.Input[pulumi.Resource]],
    parent: pulumi.Resource,
) -> None:
    """A role's access to the cluster. EKS remembers the role by its id, so a role made anew needs a new entry."""
    whose = {"clusterName": plan.cluster, "principalArn": principal}
    entry = AwsResource(
        "eks/accessEntry:AccessEntry",
        name,
        {**whose, "type": STANDARD, "kubernetesGroups": list(plan.groups), "tags": plan.tags},
        pulumi.ResourceOptions(parent=parent, depends_on=list(after)),
    )
    if plan.policy:
        AwsResource(
            "eks/accessPolicyAssociation:AccessPolicyAssociation",
            name,
            {**whose, "policyArn": plan.policy, "accessScope": {"type": "cluster"}},
            pulumi.ResourceOptions(parent=entry, depends_on=[entry]),
        )
