"""Keys of buckets and of tenants: who may use them, through S3 alone, and for which bucket."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.planning.aws import grants, iam_roles
from tenancy.planning.aws.bucket_policies import exempt_roles
from tenancy.planning.aws.documents import Document, allow, arn, document
from tenancy.planning.common import names
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

ADMINISTER = [
    *("kms:CancelKeyDeletion", "kms:CreateAlias", "kms:DeleteAlias", "kms:DescribeKey", "kms:DisableKey"),
    *("kms:DisableKeyRotation", "kms:EnableKey", "kms:EnableKeyRotation", "kms:GetKeyPolicy"),
    *("kms:GetKeyRotationStatus", "kms:ListGrants", "kms:ListKeyPolicies", "kms:ListResourceTags"),
    *("kms:PutKeyPolicy", "kms:RevokeGrant", "kms:ScheduleKeyDeletion", "kms:TagResource"),
    *("kms:UntagResource", "kms:UpdateAlias", "kms:UpdateKeyDescription"),
]
"""Without a right to use the key, or to create a grant on it."""


def bucket_key_policy(environment: Environment, bucket: str) -> Document:
    """Policy of the KMS key of a bucket."""
    bucket_arn = grants.bucket_arn(environment, bucket)
    return _policy(environment, [iam_roles.tenant_roles_pattern(environment)], [bucket_arn, f"{bucket_arn}/*"])


def tenant_key_policy(
    environment: Environment, tenant: Tenant, written_prefixes: Sequence[tuple[str, str]]
) -> Document:
    """For what the tenant's roles write; `written` is bucket and prefix."""
    tenant_roles = arn(environment, "iam", f"role{names.tenant_path(environment, tenant)}*", region="")
    contexts = set()
    for bucket, prefix in written_prefixes:
        bucket_arn = grants.bucket_arn(environment, bucket)
        contexts |= {bucket_arn, f"{bucket_arn}/{prefix}*"}
    return _policy(environment, [tenant_roles], sorted(contexts))


def _policy(environment: Environment, users: list[str], contexts: list[str]) -> Document:
    """To the account's root means: to whom an IAM policy lets as well. So there are two locks on a key, too."""
    root = {"AWS": arn(environment, "iam", "root", region="")}
    condition = {
        "StringEquals": {"kms:ViaService": grants.via_s3(environment)},
        "StringLike": {"kms:EncryptionContext:aws:s3:arn": contexts},
        "ArnLike": {"aws:PrincipalArn": [*users, *exempt_roles(environment)]},
    }
    return document(
        {**allow("Administer", ADMINISTER, "*"), "Principal": root},
        {**allow("UseThroughS3", [grants.DECRYPT, grants.ENCRYPT], "*", condition), "Principal": root},
    )
