"""Facts that the bridge needs so that Terraform's AWS provider answers to pulumi-aws' type tokens.

Tokens and given names follow from what the programs register. Three things do not: where pulumi-aws calls a property
otherwise, where it makes one object of a list whose schema sets no limit, and what an older provider lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from judged.program import Resource
from judged.terraform import type_of

PACKAGE = "pulumi-aws"

NAMES = {"aws_sns_topic_subscription": {"topic_arn": "topic"}}
"""Pulumi's name by Terraform's, by type."""

SINGLE = {
    "aws_s3_bucket_lifecycle_configuration": (
        "rule.abort_incomplete_multipart_upload",
        "rule.expiration",
        "rule.filter",
        "rule.noncurrent_version_expiration",
    ),
}
"""Lists of Terraform's that are one object in Pulumi, by type."""

NEWER = {
    "aws_eks_cluster": ("deletionProtection",),
    "aws_eks_node_group": ("updateConfig.updateStrategy", "nodeRepairConfig.nodeRepairConfigOverrides"),
    "aws_eks_pod_identity_association": ("disableSessionTags", "policy"),
    "aws_s3_access_point": ("tags",),
}
"""Properties of Pulumi's that Terraform's provider 5.100 does not have: dropped where its schema lacks them."""

FUNCTIONS = {
    "aws_ami": "aws:ec2/getAmi:getAmi",
    "aws_eks_addon_version": "aws:eks/getAddonVersion:getAddonVersion",
    "aws_route_tables": "aws:ec2/getRouteTables:getRouteTables",
    "aws_ssm_parameter": "aws:ssm/getParameter:getParameter",
    "aws_vpc": "aws:ec2/getVpc:getVpc",
    "aws_vpc_endpoint": "aws:ec2/getVpcEndpoint:getVpcEndpoint",
}
"""Questions of the programs, by Terraform's data source."""

NAMED_BY = {
    "aws:cloudwatch/eventTarget:EventTarget": "targetId",
    "aws:eks/nodeGroup:NodeGroup": "nodeGroupName",
    "aws:s3/bucket:Bucket": "bucket",
}
"""The property that pulumi-aws fills with a name of its own where a program gives none; of other types it is `name`."""


def table(resources: Iterable[Resource]) -> dict[str, Any]:
    """Content of the file that judged/modules/aws-bridge reads, for the types of these resources."""
    mappings: dict[str, dict[str, Any]] = {}
    for resource in resources:
        terraform = type_of(resource.kind)
        mapping = mappings.setdefault(
            terraform,
            {
                "token": resource.kind,
                "names": NAMES.get(terraform, {}),
                "single": SINGLE.get(terraform, ()),
                "newer": NEWER.get(terraform, ()),
                "deletesFirst": False,
            },
        )
        # As pulumi-aws does: two resources cannot have one name at a time.
        mapping["deletesFirst"] |= NAMED_BY.get(resource.kind, "name") in resource.inputs
    return {"version": version(PACKAGE), "resources": mappings, "functions": FUNCTIONS}
