"""What a tenant's pods may do on AWS, as statements: the smallest list of actions, on names that are the tenant's.

No wildcard in an action, no `NotAction`, no `NotResource`, no condition that is true when its key is absent. Only S3's
lifecycle deletes versions. No role may list uploads in progress: S3 has no condition for a prefix there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tenancy.planning.aws.documents import Document, allow, arn, suffix
from tenancy.planning.common import names
from tenancy.schema.data import Access, KeyPer
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Namespace, Tenant, held

LIST = ["s3:ListBucket"]
LIST_VERSIONS = ["s3:ListBucketVersions"]
READ = ["s3:GetObject"]
READ_VERSIONS = ["s3:GetObjectVersion"]
"""For roles that write: to restore an object after a mistake."""
UPLOAD = ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
PUT = ["s3:PutObject"]
DELETE = ["s3:DeleteObject"]
DECRYPT, ENCRYPT = "kms:Decrypt", "kms:GenerateDataKey"
SECRET = ["secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"]
LOG = ["logs:CreateLogStream", "logs:PutLogEvents"]
QUEUE = [
    *("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
    *("sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:SendMessage"),
]
MOUNT, MOUNT_WRITE = "elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"
PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
PUSH = ["ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"]

CREATED_AT_ONCE = "s3:ObjectCreationOperation"
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


def secret_arn(environment: Environment, name: str) -> str:
    """Secrets Manager adds a dash and six characters; that many and no more."""
    return arn(environment, "secretsmanager", f"secret:{name}-??????")


def key_arns(environment: Environment) -> str:
    """All keys of the account: which one is said by its alias, because only AWS knows its id."""
    return arn(environment, "kms", "key/*")


def via_s3(environment: Environment) -> str:
    """The value of `kms:ViaService` for requests through S3 in the environment's region."""
    return f"s3.{environment.aws.region}.{suffix(environment)}"


def storage(environment: Environment, tenant: Tenant | None, grants: Sequence[PrefixGrant]) -> Iterator[Document]:
    """Statements for grants in buckets. Without a tenant they are a shared role's."""
    for number, bucket in enumerate(sorted({grant.bucket for grant in grants})):
        mine = [grant for grant in grants if grant.bucket == bucket]
        points = environment.buckets[bucket].access_points
        point = access_point_arn(environment, tenant, bucket) if tenant and points else ""
        yield from _within(environment, f"{number}", bucket, point, mine)
    yield from _keys(environment, tenant, grants)


def _within(
    environment: Environment, number: str, bucket: str, point: str, grants: Sequence[PrefixGrant]
) -> Iterator[Document]:
    whole = bucket_arn(environment, bucket)

    def lists(sid: str, actions: list[str], some: Iterable[PrefixGrant]) -> Document:
        # `teams/fraud/*` matches `teams/fraud/` itself; a list without a prefix matches nothing.
        within = {"s3:prefix": [f"{grant.text}*" for grant in some]}
        return allow(sid + number, actions, [whole, point] if point else whole, {"StringLike": within})

    def objects(
        sid: str, actions: list[str], some: Iterable[PrefixGrant], condition: Document | None = None
    ) -> Document:
        found = [f"{whole}/{grant.text}*" for grant in some]
        # S3 authorizes a request through an access point twice: for the point, and for its bucket.
        found += [f"{point}/object/{grant.text}*" for grant in some] if point else []
        return allow(sid + number, actions, found, condition)

    by = {access: [grant for grant in grants if grant.access is access] for access in Access}
    writing = [grant for grant in grants if grant.access is not Access.READ_ONLY]
    versioned = environment.buckets[bucket].versioned
    yield lists("List", LIST, grants)
    yield objects("Read", READ, grants)
    if writing and versioned:
        yield lists("ListVersions", LIST_VERSIONS, writing)
        yield objects("ReadVersions", READ_VERSIONS, writing)
    if writing:
        yield objects("Upload", UPLOAD, writing)
    if by[Access.READ_WRITE]:
        yield objects("Write", [*DELETE, *PUT], by[Access.READ_WRITE])
    if by[Access.APPEND_ONLY]:
        yield objects("Append", PUT, by[Access.APPEND_ONLY])
    if once := by[Access.WRITE_ONCE]:
        yield objects("WriteNew", PUT, once, IF_NEW)
        yield objects("WriteParts", PUT, once, {"Bool": {CREATED_AT_ONCE: "false"}})


def _keys(environment: Environment, tenant: Tenant | None, grants: Sequence[PrefixGrant]) -> Iterator[Document]:
    """The keys that encrypt the buckets, for use through S3 alone.

    With bucket keys, which are on, the context that S3 names is the bucket; a client may switch them off for an object,
    and then it is the object. Which object is S3's own decision in either case.
    """
    for sid, actions, writes in (("UseKeys", [DECRYPT, ENCRYPT], True), ("ReadKeys", [DECRYPT], False)):
        aliases: set[str] = set()
        given: set[str] = set()
        contexts: set[str] = set()
        for bucket in sorted({grant.bucket for grant in grants}):
            spec = environment.buckets[bucket]
            if spec.existing and not spec.key_arn:
                continue
            mine = [grant for grant in grants if grant.bucket == bucket]
            written = [grant for grant in mine if grant.access is not Access.READ_ONLY]
            if spec.key is KeyPer.TENANT and tenant:
                some = written if writes else [grant for grant in mine if grant.access is Access.READ_ONLY]
                keys = {names.tenant_key_alias(environment, tenant)} if writes else _read(environment, tenant, some)
            else:
                # A role that writes with the bucket's key reads as well.
                some = mine if bool(written) is writes else []
                keys = {spec.key_arn or names.bucket_key_alias(environment, bucket)} if some else set()
            if not some:
                continue
            (given if spec.key_arn else aliases).update(keys)
            whole = bucket_arn(environment, bucket)
            contexts |= {whole, *(f"{whole}/{grant.text}*" for grant in some)}
        condition = {
            "StringEquals": {"kms:ViaService": via_s3(environment)},
            "StringLike": {"kms:EncryptionContext:aws:s3:arn": sorted(contexts)},
        }
        if aliases:
            by_alias = {**condition, "ForAnyValue:StringEquals": {"kms:ResourceAliases": sorted(aliases)}}
            yield allow(sid, actions, key_arns(environment), by_alias)
        if given:
            yield allow(f"{sid}Given", actions, sorted(given), condition)


def _read(environment: Environment, tenant: Tenant, some: Sequence[PrefixGrant]) -> set[str]:
    """Keys of what a namespace only reads, where each tenant has its own: the bucket's, and the tenant's for what other
    namespaces of it write there."""
    writes = [(grant.bucket, grant.prefix) for grant in tenant.storage if grant.access is not Access.READ_ONLY]
    own = any(
        bucket == grant.bucket and (prefix.startswith(grant.text) or grant.text.startswith(prefix))
        for grant in some
        for bucket, prefix in writes
    )
    found = {names.bucket_key_alias(environment, grant.bucket) for grant in some}
    return found | {names.tenant_key_alias(environment, tenant)} if own else found


def uses(environment: Environment, tenant: Tenant, namespace: Namespace) -> Iterator[Document]:
    """Statements for what a namespace's pods use beside buckets."""

    def mine(kind: str) -> list[str]:
        return sorted(name for name, use in getattr(tenant.uses, kind).items() if held(use.namespaces, namespace))

    if secrets := mine("secrets"):
        found = [secret_arn(environment, names.tenant_secret(environment, tenant, name)) for name in secrets]
        yield allow("ReadSecrets", SECRET, found)
    if logs := mine("logs"):
        found = [f"{log_group_arn(environment, tenant, name)}:log-stream:*" for name in logs]
        yield allow("WriteLogs", LOG, found)
    if queues := mine("queues"):
        yield allow("UseQueues", QUEUE, [queue_arn(environment, tenant, name) for name in queues])
    for number, files in enumerate(tenant.uses.files):
        if held(files.namespaces, namespace):
            actions = [MOUNT, MOUNT_WRITE] if files.access == "read-write" else [MOUNT]
            system = arn(environment, "elasticfilesystem", f"file-system/{files.file_system}")
            through = {"StringEquals": {"elasticfilesystem:AccessPointArn": files.access_point}}
            yield allow(f"MountFiles{number}", actions, system, through)


def log_group_arn(environment: Environment, tenant: Tenant, name: str) -> str:
    """ARN of a tenant's log group."""
    return arn(environment, "logs", f"log-group:{names.tenant_log_group(environment, tenant, name)}")


def queue_arn(environment: Environment, tenant: Tenant, name: str) -> str:
    """ARN of a tenant's SQS queue."""
    return arn(environment, "sqs", names.tenant_queue(environment, tenant, name))


def repository_arn(environment: Environment, name: str) -> str:
    """ARN of an ECR repository."""
    return arn(environment, "ecr", f"repository/{name}")
