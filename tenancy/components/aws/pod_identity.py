from __future__ import annotations

import pulumi

from tenancy.components.aws.aws_resource import AwsResource
from tenancy.planning.aws.tenant_models import Association


def pod_identity(name: str, plan: Association, role: pulumi.Input[str], opts: pulumi.ResourceOptions) -> AwsResource:
    """The association of a service account with the role of that ARN: its pods get the role at once."""
    inputs = {
        "clusterName": plan.cluster,
        "namespace": plan.namespace,
        "serviceAccount": plan.service_account,
        "roleArn": role,
        "disableSessionTags": plan.disable_session_tags,
        "tags": plan.tags,
    }
    return AwsResource("eks/podIdentityAssociation:PodIdentityAssociation", name, inputs, opts)
