"""AWS resources that tenants share, and the policies that isolate them: buckets, keys, boundary, access entries.

Plain data, as in `tenancy.planning.aws.tenant_models`; all of it belongs to the platform's stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from tenancy.planning.aws.documents import Document
from tenancy.planning.aws.tenant_models import AccessEntry, KeyPlan, TenantRolePlan

KNOWN_COST_TAGS = "GPU_TENANCY_KNOWN_COST_TAGS"
"""Variable of the program: keys of tags that AWS knows, with commas. Not set: every key is taken for known."""


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
class BucketPlan:
    """aws.s3.Bucket, and of the same name aws.s3.BucketPublicAccessBlock (all four true), BucketOwnershipControls
    (BucketOwnerEnforced), BucketVersioning, BucketServerSideEncryptionConfiguration (aws:kms by `key`, bucket keys on),
    BucketLifecycleConfiguration, BucketPolicy. The bucket is protected and kept, the rest is not.

    A bucket that is managed elsewhere (`existing: true` in the file) is not among them.
    """

    name: str
    policy: Document
    key: str
    """Alias of the key that encrypts by default: one of `DataPlan.keys`."""
    versioned: bool
    lifecycle: tuple[LifecycleRule, ...]
    tags: dict[str, str]
    force_destroy: bool = False
    """Always False: removing a line of a file never deletes a bucket with objects in it."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """aws.iam.Policy, the permissions boundary of all tenants' roles."""

    name: str
    path: str
    arn: str
    document: Document
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class OidcProvider:
    """aws.iam.OpenIdConnectProvider of a forge; `existing` ones are not made. Kept: an account has one for each forge,
    and other environments' pipelines come by it too."""

    url: str
    arn: str
    audience: str
    existing: bool
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class AlarmPlan:
    """aws.cloudwatch.EventRule with `pattern`, an aws.cloudwatch.EventTarget on an aws.sns.Topic with `topic_policy`
    (aws.sns.TopicPolicy), and an aws.sns.TopicSubscription by mail. CloudTrail sends it AssumeRole calls."""

    name: str
    """Name of the rule and of the topic."""
    topic: str
    """ARN of the topic."""
    pattern: Document
    state: str
    """One that matches read-only management events too: plain ENABLED leaves them out, and AssumeRole is one."""
    topic_policy: Document
    mail: str
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class BreakGlassPlan:
    """Emergency access: a role that requires MFA, an access entry, and an alarm on its use."""

    role: TenantRolePlan
    entry: AccessEntry
    alarm: AlarmPlan


@dataclass(frozen=True, slots=True)
class DataPlan:
    """In the order in which it is made: keys and buckets, boundary, roles, then who gets in."""

    keys: tuple[KeyPlan, ...] = ()
    boundary: Boundary | None = None
    """None where no tenant has an identity."""
    shared_roles: tuple[TenantRolePlan, ...] = ()
    """Only with `aws.identity: shared`: one for each shape of grants."""
    buckets: tuple[BucketPlan, ...] = ()
    providers: tuple[OidcProvider, ...] = ()
    access_entries: tuple[AccessEntry, ...] = ()
    """Access entries of people, one for each IAM role."""
    break_glass: BreakGlassPlan | None = None
    cost_tags: tuple[str, ...] = ()
    """aws.costexplorer.CostAllocationTag, status Active, by key; only the account that pays can. Kept: the keys are the
    organisation's, and others' reports rest on them."""
    tags: dict[str, str] = field(default_factory=dict)

    def with_cost_tags(self, known_tags: Collection[str]) -> DataPlan:
        """The same with no other cost tags than these: AWS refuses a key that it does not know yet."""
        return replace(self, cost_tags=tuple(tag for tag in self.cost_tags if tag in known_tags))

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
