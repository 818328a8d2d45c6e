"""Quotas of an AWS account, and the maximum lengths of its policies. Read 2026-11-21.

Sources: IAM user guide "IAM and AWS STS quotas"; EKS "Endpoints and quotas" (access entries), "EKS Pod Identity" and
best practices "Known limits and service quotas"; S3 user guide "Access points restrictions and limitations", "Setting
lifecycle configuration", "Bucket policies"; KMS developer guide "Resource quotas"; AWS cost management "Quotas and
restrictions"; SQS, Secrets Manager and ECR "Endpoints and quotas". The values are the defaults of a new account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceQuota:
    """A quota of an AWS account: its title, AWS' default value and the largest value that AWS grants."""

    title: str
    default: int
    most: int | None = None
    """Maximum that AWS grants without a special agreement; None if it is unknown, 0 if the quota is fixed."""


QUOTAS: Mapping[str, ServiceQuota] = {
    "roles": ServiceQuota("IAM roles of an account", 1000, 10_000),
    "policies": ServiceQuota("customer managed policies of an account", 1500, 10_000),
    "oidc-providers": ServiceQuota("OIDC providers of an account", 100, 700),
    "associations": ServiceQuota("Pod Identity associations of a cluster", 5000, 0),
    "access-entries": ServiceQuota("access entries of a cluster", 3000, 0),
    "access-points": ServiceQuota("S3 access points of an account in a region", 10_000),
    "buckets": ServiceQuota("S3 buckets of an account", 10_000, 1_000_000),
    "keys": ServiceQuota("KMS keys of an account in a region", 100_000),
    "budgets": ServiceQuota("budgets of an account", 20_000),
    "secrets": ServiceQuota("secrets of an account in a region", 500_000, 0),
    "repositories": ServiceQuota("ECR repositories of an account in a region", 100_000),
}
"""Quotas that tenants' resources count against, by their names in `aws.service-quotas`."""

INLINE_LENGTH = 10_240
"""Characters of a role's inline policies together, white space not counted; fixed."""
TRUST_LENGTH = 2048
"""Characters of a trust policy, unless raised."""
MANAGED_LENGTH = 6144
"""Characters of a managed policy, white space not counted; fixed."""
BUCKET_POLICY_LENGTH = 20_480
"""Bytes of a bucket's policy, and of an access point's; fixed."""
KEY_POLICY_LENGTH = 32_768
"""Bytes of a key's policy; fixed."""
QUEUE_POLICY_LENGTH = 8192
"""Bytes of an SQS queue's policy; fixed."""
REPOSITORY_POLICY_LENGTH = 10_240
"""Bytes of an ECR repository's policy; fixed."""
SECRET_POLICY_LENGTH = 20_480
"""Characters of a secret's policy; fixed."""
BUCKET_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
BUCKET_SUFFIXES = ("-s3alias", "--ol-s3", "--x-s3", "--table-s3")
"""Beginnings and ends of bucket names that S3 reserves: S3 user guide, "General purpose bucket naming rules",
2026-11-22. Those with dots are omitted, because bucket names here have none."""
LONGEST_BLOCK, EARLIEST_BLOCK = 182, 56
"""Maximum length of a capacity block, and maximum time between purchase and start, days: EC2 user guide, "Capacity
Blocks for ML" and "Extend Capacity Blocks", 2026-11-22. An extension keeps the id and counts."""
MAX_NODES_AT_ONCE = 100
"""Maximum of nodes of a group that are replaced at once: EKS API reference, NodegroupUpdateConfig, 2026-11-22."""
LIFECYCLE_RULES = 1000
"""Lifecycle rules of a bucket; fixed."""
ROLE_NAME, QUEUE_NAME, ACCESS_POINT_NAME, BUDGET_NAME = 64, 80, 50, 100
"""Maximum number of characters of a name."""
