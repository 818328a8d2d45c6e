"""Regions of AWS.

botocore 1.44.5 `botocore/data/endpoints.json`, read 2026-11-22: those of the partitions aws, aws-cn and aws-us-gov.
"""

from __future__ import annotations

REGIONS: tuple[str, ...] = (
    *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1"),
    *("ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5"),
    *("ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2", "eu-north-1"),
    *("eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1", "me-central-1", "me-south-1"),
    *("mx-central-1", "sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2"),
    *("cn-north-1", "cn-northwest-1", "us-gov-east-1", "us-gov-west-1"),
)
PREFIX_WITHOUT_BUDGETS = "us-gov-"
"""Prefix of the regions of a partition that has neither Budgets nor Cost Explorer: the same file lists both services in
aws and aws-cn only."""
PREFIX_BILLED_IN_YUAN = "cn-"
"""Prefix of the regions whose accounts AWS bills in CNY."""
