"""Buckets of tenants' data, and the other AWS data services that tenants use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tenancy.rules.values import unsafe_prefix
from tenancy.spec.fields.base import Flag, ShortName, Slug, Spec, TenantName, TextForm, WholeNumber
from tenancy.spec.reading.mistakes import Mistake, describe_value, form_error, rule_mistake
from tenancy.spec.reading.source import Location

Days = Annotated[int, WholeNumber(1, 36_500)]
KeyArn = Annotated[
    str,
    TextForm(
        r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]+$",
        "ARN of a KMS key",
        "write it like arn:aws:kms:eu-central-1:111122223333:key/<id>",
    ),
]
AccessPointArn = Annotated[
    str,
    TextForm(
        r"^arn:aws[a-z-]*:elasticfilesystem:[a-z0-9-]+:[0-9]{12}:access-point/fsap-[0-9a-f]{8,40}$",
        "ARN of an EFS access point",
        "write it like arn:aws:elasticfilesystem:eu-central-1:111122223333:access-point/fsap-0123abcd",
    ),
]


class Access(StrEnum):
    """From the narrowest to the widest."""

    READ_ONLY = "read-only"
    WRITE_ONCE = "write-once"  # may write new objects, and overwrite none
    APPEND_ONLY = "append-only"  # may write, not delete; overwritten objects stay as old versions
    READ_WRITE = "read-write"

    def is_wider_than(self, access: Access) -> bool:
        """Whether this access allows more than the other one."""
        return _WIDTH[self] > _WIDTH[access]


_WIDTH = {access: place for place, access in enumerate(Access)}


class KeyPer(StrEnum):
    """Number of KMS keys that encrypt a bucket."""

    BUCKET = "bucket"  # one key, which S3 uses automatically
    TENANT = "tenant"  # a key for each tenant that writes; its clients name the key in every write


def _as_mapping(value: Any) -> Any:
    """Reads a list of names as a mapping without settings."""
    if not isinstance(value, list | tuple):
        return value
    settings_by_name: dict[str, dict[str, Any]] = {}
    for name in value:
        if not isinstance(name, str):
            raise form_error(
                describe_value(name),
                "an entry of this list is the name of one",
                "write the names in the list, or all of them as a mapping: {NAME: {…}}",
            )
        if name in settings_by_name:
            raise form_error(f"{name} twice", "a name is written once", "drop one of the two")
        settings_by_name[name] = {}
    return settings_by_name


_TagValue = Annotated[
    str,
    TextForm(
        r"^([0-9A-Za-z_.:/=+@-]([0-9A-Za-z_ .:/=+@-]*[0-9A-Za-z_.:/=+@-])?)?$",
        "value of a tag on AWS: letters, digits, inner spaces and _ . : / = + - @, 256 characters at most",
        "drop other characters",
        256,
    ),
]
"""S3 user guide, "Using cost allocation S3 bucket tags", 2026-11-23."""


class Bucket(Spec):
    """A bucket in which tenants may have prefixes."""

    purpose: _TagValue = Field(
        default="", description="What the bucket contains: the tag `purpose` of a bucket that is made. Default: no tag."
    )
    tenant: TenantName | None = Field(
        default=None, description="The only tenant that may have grants in the bucket. Default: any tenant."
    )
    kms_key_scope: KeyPer = Field(
        default=KeyPer.BUCKET,
        description="Whether one KMS key encrypts the bucket, or one key per tenant that writes. Default: bucket.",
    )
    expiration_days: Days | None = Field(
        default=None, description="Days after which objects are deleted. Default: never."
    )
    versioning: Flag = Field(
        default=True,
        description="Whether old versions of overwritten and deleted objects are kept for noncurrent-version-days. "
        "Default: "
        "true.",
    )
    noncurrent_version_days: Days = Field(default=30, description="Days for which old versions are kept. Default: 30.")
    access_points: Flag = Field(
        default=False,
        description="Whether each tenant uses an S3 access point of its own, which keeps the bucket policy short. It "
        "changes the address that the tenants' programs use. Default: false.",
    )
    existing: Flag = Field(
        default=False,
        description="Whether the bucket and its policy are managed elsewhere. Then only the tenants' roles refer to "
        "it. Default: false.",
    )
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="ARN of the KMS key of an existing bucket. Default: the bucket is encrypted with S3's own key.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        managed_fields = {
            "kms_key_scope",
            "expiration_days",
            "versioning",
            "noncurrent_version_days",
            "access_points",
        } & self.model_fields_set
        if self.existing and (names := sorted(field.replace("_", "-") for field in managed_fields)):
            rule = "an existing bucket is configured by its owner"
            yield Mistake((names[0],), f"{', '.join(names)} beside existing: true", rule, "drop it, or drop existing")
        if self.kms_key_arn and not self.existing:
            yield Mistake(
                ("kms-key-arn",), "kms-key-arn of a bucket that is made", "its key is made with it", "drop it"
            )
        if not self.versioning and "noncurrent_version_days" in self.model_fields_set:
            fault, change = "noncurrent-version-days beside versioning: false", "drop one of the two"
            yield Mistake(("noncurrent-version-days",), fault, "only a versioned bucket keeps old versions", change)


Buckets = Annotated[
    dict[Slug, Bucket], BeforeValidator(_as_mapping, json_schema_input_type=tuple[Slug, ...] | dict[Slug, Bucket])
]


class FileAccessPoint(Spec):
    """An access point of an EFS file system that the platform made, with a tenant's root folder."""

    tenant: TenantName | None = Field(
        default=None, description="The only tenant that may use the access point. Default: any tenant."
    )


FileAccessPoints = Annotated[
    dict[AccessPointArn, FileAccessPoint],
    BeforeValidator(
        _as_mapping, json_schema_input_type=tuple[AccessPointArn, ...] | dict[AccessPointArn, FileAccessPoint]
    ),
]


class ResourceUse(Spec):
    """A use of an AWS resource by the pods of a tenant's namespaces."""

    namespaces: tuple[ShortName, ...] = Field(
        default=(), min_length=1, description="Namespaces of the tenant whose pods may use it. Default: all namespaces."
    )


Names = Annotated[
    dict[ShortName, ResourceUse],
    BeforeValidator(_as_mapping, json_schema_input_type=tuple[ShortName, ...] | dict[ShortName, ResourceUse]),
]


class Files(Spec):
    """A directory of an EFS file system, reached by an access point that the platform made."""

    access_point: AccessPointArn = Field(description="ARN of an EFS access point of the environment. Required.")
    file_system: Annotated[
        str,
        TextForm(
            r"^fs-[0-9a-f]{8,40}$",
            "an id of an EFS file system is 'fs-' and hexadecimal digits",
            "write it like fs-0123abcd",
        ),
    ] = Field(description="Id of the EFS file system of the access point. Required.")
    access: Literal["read-only", "read-write"] = Field(
        default="read-only", description="Whether pods may only read, or also write. Default: read-only."
    )
    namespaces: tuple[ShortName, ...] = Field(
        default=(), min_length=1, description="Namespaces of the tenant whose pods may use it. Default: all namespaces."
    )


class AwsResources(Spec):
    """Further AWS resources of one tenant. Names are derived from the tenant's, so no two tenants share one."""

    repositories: tuple[ShortName, ...] = Field(
        default=(),
        description="ECR repositories of the tenant. Its pipeline pushes to them; nodes pull from them. Default: none.",
    )
    secrets: Names = Field(
        default_factory=dict,
        description="Secrets in AWS Secrets Manager. They are made empty; people write the values. Default: none.",
    )
    log_groups: Names = Field(
        default_factory=dict, description="CloudWatch log groups that the tenant's pods write to. Default: none."
    )
    sqs_queues: Names = Field(
        default_factory=dict, description="SQS queues that the tenant's pods send to and receive from. Default: none."
    )
    efs_access_points: tuple[Files, ...] = Field(
        default=(), description="EFS access points that the tenant's pods mount. Default: none."
    )

    def uses(self) -> Iterator[tuple[Location, ResourceUse | Files]]:
        """Everything that pods use, with its place below `aws-resources` in a file."""
        for kind in type(self).model_fields:
            entries = getattr(self, kind)
            for key, use in entries.items() if isinstance(entries, Mapping) else enumerate(entries):
                if isinstance(use, ResourceUse | Files):
                    yield (kind.replace("_", "-"), key), use

    def users(self, kind: str, name: str) -> ResourceUse | None:
        """Use of an entry of a kind; None for a kind that pods do not use."""
        entries = getattr(self, kind)
        return entries[name] if isinstance(entries, Mapping) else None


_Prefix = Annotated[
    str, TextForm(r"^[^\x00-\x1f\x7f]+$", "a prefix of object names", "write the prefix as 'teams/<tenant>/'", 512)
]


class Storage(Spec):
    """A grant of access to the objects below a prefix of an S3 bucket."""

    bucket: Slug = Field(description="Name of a bucket of the environment. Required.")
    prefix: _Prefix = Field(description="Prefix of object names, ending with '/'. Required.")
    access: Access = Field(
        default=Access.READ_ONLY,
        description="Access of the tenant's pods to objects below the prefix. Default: read-only.",
    )
    namespaces: tuple[ShortName, ...] = Field(
        default=(),
        min_length=1,
        description="Namespaces of the tenant whose pods have the grant. Default: all namespaces.",
    )
    expiration_days: Days | None = Field(
        default=None,
        description="Days after which objects below the prefix are deleted. Default: expiration-days of the bucket.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if fault := unsafe_prefix(self.prefix):
            yield rule_mistake(("prefix",), "stor-01", fault)
        if self.expiration_days and self.access is Access.READ_ONLY:
            rule = "only a grant that may write sets an expiry"
            yield Mistake(("expiration-days",), "expiration-days with access: read-only", rule, "drop it")

    def overlaps(self, grant: Storage) -> bool:
        """Whether an object may be below both prefixes."""
        return self.bucket == grant.bucket and (
            self.prefix.startswith(grant.prefix) or grant.prefix.startswith(self.prefix)
        )
