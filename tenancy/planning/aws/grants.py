"""IAM statements for a tenant's pods: the smallest list of actions, on resources with the tenant's names.

No wildcard in an action, no `NotAction`, no `NotResource`, no condition that is true when its key is absent. Only S3's
lifecycle deletes versions. No role may list uploads in progress: S3 has no condition for a prefix there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tenancy.planning.aws import kinds
from tenancy.planning.aws.documents import Document, allow, arn, dns_suffix
from tenancy.planning.common import names
from tenancy.spec.fields.data import Access, KeyPer
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant, applies_to

LIST = ["s3:ListBucket"]
LIST_VERSIONS = ["s3:ListBucketVersions"]
READ = ["s3:GetObject"]
READ_VERSIONS = ["s3:GetObjectVersion"]
"""For roles that write: to restore an object after a mistake."""
UPLOAD = ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
PUT = ["s3:PutObject"]
DELETE = ["s3:DeleteObject"]
DECRYPT, ENCRYPT = "kms:Decrypt", "kms:GenerateDataKey"
MOUNT, MOUNT_WRITE = "elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"

OBJECT_CREATION = "s3:ObjectCreationOperation"
"""False for the steps of an upload in parts that carry no precondition; the last one does."""
IF_NEW = {"Null": {"s3:if-none-match": "false"}}
"""The only value that S3 takes there is `*`: the key must not exist."""


class PrefixGrant(NamedTuple):
    """A grant as a policy has it. With a shared role, the text may contain a policy variable."""

    bucket: str
    text: str
    access: Access


def prefixes(tenant: Tenant, namespace: Namespace) -> list[PrefixGrant]:
    """The namespace's grants, sorted, so that their order in a file does not change a document."""
    return sorted({PrefixGrant(grant.bucket, grant.prefix, grant.access) for grant in tenant.grants_of(namespace)})


def bucket_arn(environment: Environment, bucket: str) -> str:
    """ARN of a bucket."""
    return arn(environment, "s3", bucket, region="", account="")


def access_point_arn(environment: Environment, tenant: Tenant, bucket: str) -> str:
    """ARN of a tenant's S3 access point for a bucket."""
    return arn(environment, "s3", f"accesspoint/{names.tenant_access_point(environment, tenant, bucket)}")


def key_arns(environment: Environment) -> str:
    """All keys of the account: which one is said by its alias, because only AWS knows its id."""
    return arn(environment, "kms", "key/*")


def via_s3(environment: Environment) -> str:
    """The value of `kms:ViaService` for requests through S3 in the environment's region."""
    return f"s3.{environment.aws.region}.{dns_suffix(environment)}"


def storage_statements(
    environment: Environment, tenant: Tenant | None, grants: Sequence[PrefixGrant]
) -> Iterator[Document]:
    """Statements for grants in buckets. Without a tenant they are a shared role's."""
    for number, bucket in enumerate(sorted({grant.bucket for grant in grants})):
        bucket_grants = [grant for grant in grants if grant.bucket == bucket]
        points = environment.buckets[bucket].access_points
        point = access_point_arn(environment, tenant, bucket) if tenant and points else ""
        yield from _bucket_statements(environment, f"{number}", bucket, point, bucket_grants)
    yield from _key_statements(environment, tenant, grants)


def _bucket_statements(
    environment: Environment, number: str, bucket: str, point: str, grants: Sequence[PrefixGrant]
) -> Iterator[Document]:
    bucket_resource = bucket_arn(environment, bucket)

    def lists(sid: str, actions: list[str], prefix_grants: Iterable[PrefixGrant]) -> Document:
        # `teams/fraud/*` matches `teams/fraud/` itself; a list without a prefix matches nothing.
        prefix_condition = {"s3:prefix": [f"{grant.text}*" for grant in prefix_grants]}
        return allow(
            sid + number,
            actions,
            [bucket_resource, point] if point else bucket_resource,
            {"StringLike": prefix_condition},
        )

    def objects(
        sid: str, actions: list[str], prefix_grants: Iterable[PrefixGrant], condition: Document | None = None
    ) -> Document:
        resources = [f"{bucket_resource}/{grant.text}*" for grant in prefix_grants]
        # S3 authorizes a request through an access point twice: for the point, and for its bucket.
        resources += [f"{point}/object/{grant.text}*" for grant in prefix_grants] if point else []
        return allow(sid + number, actions, resources, condition)

    by_access = {access: [grant for grant in grants if grant.access is access] for access in Access}
    write_grants = [grant for grant in grants if grant.access is not Access.READ_ONLY]
    versioned = environment.buckets[bucket].versioning
    yield lists("List", LIST, grants)
    yield objects("Read", READ, grants)
    if write_grants and versioned:
        yield lists("ListVersions", LIST_VERSIONS, write_grants)
        yield objects("ReadVersions", READ_VERSIONS, write_grants)
    if write_grants:
        yield objects("Upload", UPLOAD, write_grants)
    if by_access[Access.READ_WRITE]:
        yield objects("Write", [*DELETE, *PUT], by_access[Access.READ_WRITE])
    if by_access[Access.APPEND_ONLY]:
        yield objects("Append", PUT, by_access[Access.APPEND_ONLY])
    if write_once := by_access[Access.WRITE_ONCE]:
        yield objects("WriteNew", PUT, write_once, IF_NEW)
        yield objects("WriteParts", PUT, write_once, {"Bool": {OBJECT_CREATION: "false"}})


def _key_statements(
    environment: Environment, tenant: Tenant | None, grants: Sequence[PrefixGrant]
) -> Iterator[Document]:
    """The keys that encrypt the buckets, for use through S3 alone.

    With bucket keys, which are on, the context that S3 names is the bucket; a client may switch them off for an object,
    and then it is the object. Which object is S3's own decision in either case.
    """
    for sid, actions, writes in (("UseKeys", [DECRYPT, ENCRYPT], True), ("ReadKeys", [DECRYPT], False)):
        aliases: set[str] = set()
        given_keys: set[str] = set()
        contexts: set[str] = set()
        for bucket in sorted({grant.bucket for grant in grants}):
            spec = environment.buckets[bucket]
            if spec.existing and not spec.kms_key_arn:
                continue
            bucket_grants = [grant for grant in grants if grant.bucket == bucket]
            write_grants = [grant for grant in bucket_grants if grant.access is not Access.READ_ONLY]
            if spec.kms_key_scope is KeyPer.TENANT and tenant:
                covered_grants = (
                    write_grants if writes else [grant for grant in bucket_grants if grant.access is Access.READ_ONLY]
                )
                keys = (
                    {names.tenant_key_alias(environment, tenant)}
                    if writes
                    else _read_keys(environment, tenant, covered_grants)
                )
            else:
                # A role that writes with the bucket's key reads as well.
                covered_grants = bucket_grants if bool(write_grants) is writes else []
                keys = {spec.kms_key_arn or names.bucket_key_alias(environment, bucket)} if covered_grants else set()
            if not covered_grants:
                continue
            (given_keys if spec.kms_key_arn else aliases).update(keys)
            bucket_resource = bucket_arn(environment, bucket)
            contexts |= {bucket_resource, *(f"{bucket_resource}/{grant.text}*" for grant in covered_grants)}
        condition = {
            "StringEquals": {"kms:ViaService": via_s3(environment)},
            "StringLike": {"kms:EncryptionContext:aws:s3:arn": sorted(contexts)},
        }
        if aliases:
            by_alias = {**condition, "ForAnyValue:StringEquals": {"kms:ResourceAliases": sorted(aliases)}}
            yield allow(sid, actions, key_arns(environment), by_alias)
        if given_keys:
            yield allow(f"{sid}Given", actions, sorted(given_keys), condition)


def _read_keys(environment: Environment, tenant: Tenant, read_grants: Sequence[PrefixGrant]) -> set[str]:
    """Keys of what a namespace only reads, where each tenant has its own: the bucket's, and the tenant's for what other
    namespaces of it write there."""
    writes = [(grant.bucket, grant.prefix) for grant in tenant.storage if grant.access is not Access.READ_ONLY]
    reads_tenant_writes = any(
        bucket == grant.bucket and (prefix.startswith(grant.text) or grant.text.startswith(prefix))
        for grant in read_grants
        for bucket, prefix in writes
    )
    aliases = {names.bucket_key_alias(environment, grant.bucket) for grant in read_grants}
    return aliases | {names.tenant_key_alias(environment, tenant)} if reads_tenant_writes else aliases


def resource_statements(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[Document]:
    """Statements for what a namespace's pods use beside buckets."""

    for kind in kinds.KINDS:
        if kind.pods is None:
            continue
        entries = getattr(tenant.aws_resources, kind.field)
        if names_in_use := [name for name, use in entries.items() if applies_to(use.namespaces, namespace)]:
            arns = [arn + kind.pods.suffix for arn in kind.arns(environment, tenant, names_in_use)]
            yield allow(kind.pods.sid, [*kind.pods.actions], arns)
    for number, files in enumerate(tenant.aws_resources.efs_access_points):
        if applies_to(files.namespaces, namespace):
            actions = [MOUNT, MOUNT_WRITE] if files.access == "read-write" else [MOUNT]
            system = arn(environment, "elasticfilesystem", f"file-system/{files.file_system}")
            access_point_condition = {"StringEquals": {"elasticfilesystem:AccessPointArn": files.access_point}}
            yield allow(f"MountFiles{number}", actions, system, access_point_condition)
