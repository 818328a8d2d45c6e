from __future__ import annotations

from typing import Any

import pulumi

from tenancy.components.aws.aws_resource import AwsResource, policy_json, retain_opts
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
        child_opts = retain_opts(self)
        bucket = AwsResource(
            "s3/bucket:Bucket",
            f"{name}-bucket",
            {"bucket": plan.name, "forceDestroy": plan.force_destroy, "tags": plan.tags},
            retain_opts(self, protect=True),
        )

        def bucket_child(
            token: str, suffix: str, properties: dict[str, Any], *depends_on: pulumi.Resource
        ) -> AwsResource:
            options = pulumi.ResourceOptions.merge(child_opts, pulumi.ResourceOptions(depends_on=list(depends_on)))
            return AwsResource(f"s3/{token}", f"{name}-{suffix}", {"bucket": bucket.id, **properties}, options)

        block = bucket_child("bucketPublicAccessBlock:BucketPublicAccessBlock", "block", ALL_BLOCKED)
        self.policy = bucket_child("bucketPolicy:BucketPolicy", "policy", {"policy": policy_json(plan.policy)}, block)
        bucket_child(
            "bucketOwnershipControls:BucketOwnershipControls",
            "owner",
            {"rule": {"objectOwnership": "BucketOwnerEnforced"}},
        )
        key_default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key}
        bucket_child(
            "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
            "encryption",
            {"rules": [{"applyServerSideEncryptionByDefault": key_default, "bucketKeyEnabled": True}]},
        )
        versioning = bucket_child(
            "bucketVersioning:BucketVersioning",
            "versioning",
            {"versioningConfiguration": {"status": "Enabled" if plan.versioned else "Suspended"}},
        )
        if plan.lifecycle:
            # Rules about old versions mean something only to a bucket that has them.
            bucket_child(
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
