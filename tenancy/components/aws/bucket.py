from __future__ import annotations

from typing import Any

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, kept, text
from tenancy.planning.aws import platform_models


class ProtectedBucket(pulumi.ComponentResource):
    """A bucket with its protection. They stay together: a bucket that was left without its policy would be open."""

    policy: pulumi.Resource
    """Roles with access to the bucket are created after it."""

    def __init__(
        self,
        name: str,
        plan: platform_models.BucketPlan,
        key: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`key` is the ARN of the key that encrypts by default: S3 looks for an alias in the reader's account."""
        super().__init__("gpu-tenancy:index:ProtectedBucket", name, None, opts)
        below = kept(self)
        bucket = AwsResource(
            "s3/bucket:Bucket",
            f"{name}-bucket",
            {"bucket": plan.name, "forceDestroy": plan.force_destroy, "tags": plan.tags},
            kept(self, protect=True),
        )

        def around(token: str, suffix: str, properties: dict[str, Any], *after: pulumi.Resource) -> AwsResource:
            options = pulumi.ResourceOptions.merge(below, pulumi.ResourceOptions(depends_on=list(after)))
            return AwsResource(f"s3/{token}", f"{name}-{suffix}", {"bucket": bucket.id, **properties}, options)

        block = around("bucketPublicAccessBlock:BucketPublicAccessBlock", "block", ALL_BLOCKED)
        self.policy = around("bucketPolicy:BucketPolicy", "policy", {"policy": text(plan.policy)}, block)
        around(
            "bucketOwnershipControls:BucketOwnershipControls",
            "owner",
            {"rule": {"objectOwnership": "BucketOwnerEnforced"}},
        )
        by_key = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key}
        around(
            "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
            "encryption",
            {"rules": [{"applyServerSideEncryptionByDefault": by_key, "bucketKeyEnabled": True}]},
        )
        versioning = around(
            "bucketVersioning:BucketVersioning",
            "versioning",
            {"versioningConfiguration": {"status": "Enabled" if plan.versioned else "Suspended"}},
        )
        if plan.lifecycle:
            # Rules about old versions mean something only to a bucket that has them.
            around(
                "bucketLifecycleConfiguration:BucketLifecycleConfiguration",
                "lifecycle",
                {"rules": [_rule(planned) for planned in plan.lifecycle]},
                versioning,
            )
        self.register_outputs({"bucket": bucket.id})


ALL_BLOCKED = dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)


def _rule(plan: platform_models.LifecycleRule) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": plan.id, "status": "Enabled", "filter": {"prefix": plan.prefix}}
    if plan.expire_days is not None:
        rule["expiration"] = {"days": plan.expire_days}
    elif plan.drop_markers:
        rule["expiration"] = {"expiredObjectDeleteMarker": True}
    if plan.old_version_days is not None:
        rule["noncurrentVersionExpiration"] = {"noncurrentDays": plan.old_version_days}
    if plan.abort_upload_days is not None:
        rule["abortIncompleteMultipartUpload"] = {"daysAfterInitiation": plan.abort_upload_days}
    return rule
