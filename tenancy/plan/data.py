"""What tenants share on AWS, and what keeps them apart in it: buckets, keys, the boundary, and who gets in.

Plain data, as in `tenancy.plan.tenant_aws`; all of it belongs to the platform's stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tenancy.plan.documents import Document
from tenancy.plan.tenant_aws import AccessEntry, Key, TenantRole


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """A rule of aws.s3.BucketLifecycleConfiguration (one configuration per bucket, with all of its rules)."""

    id: str
    prefix: str
    """Empty: the whole bucket."""
    expire_days: int | None = None
    old_version_days: int | None = None
    """noncurrentVersionExpiration."""
    abort_upload_days: int | None = None
    """abortIncompleteMultipartUpload."""
    drop_markers: bool = False
    """expiration.expiredObjectDeleteMarker; never beside `expire_days`."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """aws.s3.Bucket, and of the same name aws.s3.BucketPublicAccessBlock (all four true), BucketOwnershipControls
    (BucketOwnerEnforced), BucketVersioning, BucketServerSideEncryptionConfiguration (aws:kms by `key`, bucket keys on),
    BucketLifecycleConfiguration, BucketPolicy. The bucket is protected and kept, the rest is not.

    A bucket of somebody else's (`existing: true` in the file) is not among them.
    """

    name: str
    policy: Document
    key: str
    """Alias of the key that encrypts by default: one of `DataPlan.keys`."""
    versioned: bool
    lifecycle: tuple[LifecycleRule, ...]
    tags: dict[str, str]
    force_destroy: bool = False
    """Always False: nobody deletes a bucket that holds something by removing a line."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """aws.iam.Policy that no tenant's role reaches beyond, whatever its own policies say."""

    name: str
    path: str
    arn: str
    document: Document
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class OidcProvider:
    """aws.iam.OpenIdConnectProvider of a forge; `existing` ones are the account's, and are not made."""

    url: str
    arn: str
    audience: str
    existing: bool
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Alarm:
    """aws.cloudwatch.EventRule with `pattern`, an aws.cloudwatch.EventTarget on an aws.sns.Topic with `topic_policy`
    (aws.sns.TopicPolicy), and an aws.sns.TopicSubscription by mail. It hears of AssumeRole from CloudTrail."""

    name: str
    """Of rule and topic."""
    topic: str
    """ARN of the topic."""
    pattern: Document
    topic_policy: Document
    mail: str
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class BreakGlass:
    """The way in for an emergency: a role that needs MFA, an access entry, an alarm of its use."""

    role: TenantRole
    entry: AccessEntry
    alarm: Alarm


@dataclass(frozen=True, slots=True)
class DataPlan:
    """In the order in which it is made: keys and buckets, boundary, roles, then who gets in."""

    keys: tuple[Key, ...] = ()
    boundary: Boundary | None = None
    """None where no tenant has an identity."""
    shared_roles: tuple[TenantRole, ...] = ()
    """Only with `aws.identity: shared`: one for each shape of grants."""
    buckets: tuple[Bucket, ...] = ()
    providers: tuple[OidcProvider, ...] = ()
    access_entries: tuple[AccessEntry, ...] = ()
    """Of people, one for each IAM role."""
    break_glass: BreakGlass | None = None
    cost_tags: tuple[str, ...] = ()
    """aws.costexplorer.CostAllocationTag, status Active, by key; only the account that pays can."""
    tags: dict[str, str] = field(default_factory=dict)

    def resources(self) -> Iterator[object]:
        """Every one of them, in order."""
        yield from self.keys
        if self.boundary:
            yield self.boundary
        yield from self.shared_roles
        yield from self.buckets
        yield from (provider for provider in self.providers if not provider.existing)
        yield from self.access_entries
        if self.break_glass:
            yield self.break_glass
