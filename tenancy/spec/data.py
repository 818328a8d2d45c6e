"""Where tenants' data is, and what else of AWS' data services they use."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tenancy.spec.base import Flag, Form, Line, Mistake, PartName, Slug, Spec, TenantName, Whole, plain, written

Days = Annotated[int, Whole(1, 36_500)]
KeyArn = Annotated[
    str,
    Form(
        r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]+$",
        "ARN of a KMS key",
        "write it like arn:aws:kms:eu-central-1:111122223333:key/<id>",
    ),
]
AccessPointArn = Annotated[
    str,
    Form(
        r"^arn:aws[a-z-]*:elasticfilesystem:[a-z0-9-]+:[0-9]{12}:access-point/fsap-[0-9a-f]{8,40}$",
        "ARN of an EFS access point",
        "write it like arn:aws:elasticfilesystem:eu-central-1:111122223333:access-point/fsap-0123abcd",
    ),
]


class Access(StrEnum):
    """From the narrowest to the widest."""

    READ_ONLY = "read-only"
    WRITE_ONCE = "write-once"  # may write what is not there
    APPEND_ONLY = "append-only"  # may write, may not delete; what it writes over stays as an old version
    READ_WRITE = "read-write"

    def wider(self, other: Access) -> bool:
        order = list(Access)
        return order.index(self) > order.index(other)


class KeyPer(StrEnum):
    BUCKET = "bucket"  # one key: S3 uses it by itself
    TENANT = "tenant"  # a key for each tenant that writes: its clients name it in every write


def _named(value: Any) -> Any:
    """A list of names is a mapping without anything to say about them."""
    if not isinstance(value, list | tuple):
        return value
    seen: dict[str, dict[str, Any]] = {}
    for name in value:
        if not isinstance(name, str):
            raise plain(written(name), "a list of names, or a mapping with a name for each", "write the name alone")
        if name in seen:
            raise plain(f"{name} twice", "a name is written once", "drop one of the two")
        seen[name] = {}
    return seen


class Bucket(Spec):
    """A bucket that tenants may be given prefixes of."""

    purpose: Line = Field("", description="What is in it; a tag.")
    tenant: TenantName | None = Field(None, description="The one tenant that may be given prefixes; absent: any.")
    key: KeyPer = Field(KeyPer.BUCKET, description="How far a key of encryption reaches.")
    expire_after: Days | None = Field(None, description="Days after which objects go; absent: never.")
    versioned: Flag = Field(True, description="Whether what is overwritten or deleted is kept for a while.")
    keep_versions: Days = Field(30, description="Days for which it is kept.")
    access_points: Flag = Field(
        False,
        description="Whether tenants come through an access point each, so that the bucket's policy stays short. "
        "It changes the address that their programs use.",
    )
    existing: Flag = Field(
        False,
        description="Whether the bucket and its policy are somebody else's: only the tenants' roles name it then.",
    )
    key_arn: KeyArn | None = Field(
        None, description="Of an existing bucket: the key it is encrypted with; absent: S3's own."
    )

    def mistakes(self) -> Iterator[Mistake]:
        ours = {"key", "expire_after", "versioned", "keep_versions", "access_points"} & self.model_fields_set
        if self.existing and (told := sorted(field.replace("_", "-") for field in ours)):
            rule = "an existing bucket is somebody else's to set up"
            yield Mistake((told[0],), f"{', '.join(told)} beside existing: true", rule, "drop it, or drop existing")
        if self.key_arn and not self.existing:
            yield Mistake(("key-arn",), "key-arn of a bucket that is made", "its key is made with it", "drop it")
        if not self.versioned and "keep_versions" in self.model_fields_set:
            given, change = "keep-versions beside versioned: false", "drop one of the two"
            yield Mistake(("keep-versions",), given, "versions are kept where there are any", change)


Buckets = Annotated[
    dict[Slug, Bucket], BeforeValidator(_named, json_schema_input_type=tuple[Slug, ...] | dict[Slug, Bucket])
]


class FileAccessPoint(Spec):
    """An access point of an EFS file system that the platform made, with a tenant's root folder."""

    purpose: Line = Field("", description="What is in the folder.")
    tenant: TenantName | None = Field(None, description="The one tenant that may use it; absent: any.")


FileAccessPoints = Annotated[
    dict[AccessPointArn, FileAccessPoint],
    BeforeValidator(_named, json_schema_input_type=tuple[AccessPointArn, ...] | dict[AccessPointArn, FileAccessPoint]),
]


class Use(Spec):
    namespaces: tuple[PartName, ...] = Field((), min_length=1, description="Parts whose pods use it; absent: all.")


Names = Annotated[
    dict[PartName, Use], BeforeValidator(_named, json_schema_input_type=tuple[PartName, ...] | dict[PartName, Use])
]


class Files(Spec):
    """A part of an EFS file system that the platform made an access point for."""

    access_point: AccessPointArn = Field(description="ARN of an access point of the environment.")
    file_system: Annotated[
        str, Form(r"^fs-[0-9a-f]{8,40}$", "id of an EFS file system", "write it like fs-0123abcd")
    ] = Field(description="The file system that it is of.")
    access: Literal["read-only", "read-write"] = Field("read-only", description="Whether pods may write.")
    namespaces: tuple[PartName, ...] = Field((), min_length=1, description="Parts whose pods use it; absent: all.")


class Uses(Spec):
    """What else on AWS is the tenant's alone; names are its own, and nobody else's are like them."""

    repositories: tuple[PartName, ...] = Field(
        (), description="ECR repositories. The tenant's pipeline writes them; nodes read them."
    )
    secrets: Names = Field(
        default_factory=dict, description="Secrets of Secrets Manager, made empty: people put values into them."
    )
    logs: Names = Field(default_factory=dict, description="Log groups of CloudWatch that pods write to.")
    queues: Names = Field(default_factory=dict, description="SQS queues that pods send to and receive from.")
    files: tuple[Files, ...] = Field((), description="Access points of EFS.")
