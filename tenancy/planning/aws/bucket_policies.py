"""Policies of shared buckets: the second lock, on the bucket's side, on top of what the roles' own policies allow.

They only deny. Tenants are named by `aws:PrincipalArn`, a role's whole ARN with its path: as a principal, a role that
does not exist yet would make S3 refuse the policy, and a role that is made anew would no longer match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tenancy.planning.aws import grants, workloads
from tenancy.planning.aws.documents import Document, arn, deny, document
from tenancy.planning.common import names
from tenancy.schema.data import Access
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

DATA = ["s3:*MultipartUpload*", "s3:*Object*", "s3:ListBucket*"]
"""Whatever touches objects or their names; what is about the bucket itself is left to auditors and the platform."""
NEVER = [
    *("s3:BypassGovernanceRetention", "s3:DeleteBucket*", "s3:DeleteObjectVersion", "s3:ListBucketMultipartUploads"),
    *("s3:PutBucket*", "s3:PutEncryptionConfiguration", "s3:PutLifecycleConfiguration", "s3:PutObjectAcl"),
    *("s3:PutObjectLegalHold", "s3:PutObjectRetention", "s3:PutObjectVersionAcl", "s3:PutReplicationConfiguration"),
]
"""Actions that are denied to all tenants, even if a policy of theirs allows them later."""


class GrantHolder(NamedTuple):
    """A role with a grant on a prefix."""

    prefix: str
    access: Access
    role: str

    def meets(self, prefix: str) -> bool:
        """Whether the grant's prefix and the given one share objects."""
        return self.prefix.startswith(prefix) or prefix.startswith(self.prefix)


def exempt(environment: Environment) -> list[str]:
    """Roles that the denies exempt, for repairs: the platform's, and in an emergency the break-glass role."""
    found = [environment.aws.platform_role]
    return [*found, break_glass_arn(environment)] if environment.aws.break_glass else found


def break_glass_arn(environment: Environment) -> str:
    """ARN of the emergency role."""
    path, name = names.platform_path(environment), names.aws_name(environment, "break-glass")
    return arn(environment, "iam", f"role{path}{name}", region="")


def holders(environment: Environment, tenants: Sequence[Tenant], bucket: str) -> list[GrantHolder]:
    """Roles with a grant in a bucket, each with its prefix and access, sorted."""
    return sorted(
        {
            GrantHolder(grant.prefix, grant.access, workloads.role_arn(environment, tenant, namespace))
            for tenant in tenants
            for namespace in tenant.namespaces
            for grant in tenant.grants_of(namespace)
            if grant.bucket == bucket
        }
    )


def bucket_policy(environment: Environment, tenants: Sequence[Tenant], bucket: str) -> Document:
    """Policy of a bucket: TLS only, known roles only, each below its own prefixes."""
    whole = grants.bucket_arn(environment, bucket)
    both = [whole, f"{whole}/*"]
    found = [*_base_statements(environment, both)]
    if environment.buckets[bucket].access_points:
        found.append(_by_points(environment, both))
    else:
        found += _by_prefix(environment, whole, holders(environment, tenants, bucket))
    return document(*found)


def access_point_policy(environment: Environment, tenant: Tenant, bucket: str) -> Document:
    """The same denies, for one tenant's prefixes."""
    point = grants.access_point_arn(environment, tenant, bucket)
    mine = holders(environment, [tenant], bucket)
    others = {"StringNotEquals": {"aws:PrincipalArn": [*sorted({h.role for h in mine}), *exempt(environment)]}}
    anything = deny("OnlyItsOwn", ["s3:*"], [point, f"{point}/object/*"], others, principal="*")
    return document(anything, *_by_prefix(environment, point, mine, "/object"))


def _base_statements(environment: Environment, both: list[str]) -> Iterator[Document]:
    """Denies for all principals."""
    unless = {"aws:PrincipalArn": exempt(environment)}
    _, objects = both
    yield deny("NothingUnencrypted", ["s3:*"], both, {"Bool": {"aws:SecureTransport": "false"}}, principal="*")
    network = environment.aws.network
    # The id of a new VPC is known only when the VPC exists; until then any endpoint of the account will do.
    inside = {"aws:SourceVpc": network.vpc} if network.vpc else {"aws:VpceAccount": environment.aws.account}
    yield deny("OnlyFromInside", DATA, both, {"StringNotEquals": {**inside, **unless}}, principal="*")
    if organisation := environment.aws.organization:
        of_it = {"aws:PrincipalOrgID": organisation, **unless}
        yield deny("OnlyOfTheOrganisation", DATA, both, {"StringNotEquals": of_it}, principal="*")
    known = [workloads.tenants_roles(environment), *exempt(environment)]
    yield deny("OnlyTenants", DATA, both, {"ArnNotLike": {"aws:PrincipalArn": known}}, principal="*")
    yield deny("Never", NEVER, both, {"StringNotEquals": unless}, principal="*")
    key = "s3:x-amz-server-side-encryption"
    unset = {"StringNotEquals": {key: "aws:kms"}, "Null": {key: "false"}}
    yield deny("NoWeakerEncryption", ["s3:PutObject"], objects, unset, principal="*")
    by_client = {"Null": {f"{key}-customer-algorithm": "false"}}
    yield deny("NoKeysOfClients", ["s3:PutObject"], objects, by_client, principal="*")


def _by_points(environment: Environment, both: list[str]) -> Document:
    direct = {
        "ArnLike": {"aws:PrincipalArn": workloads.tenants_roles(environment)},
        "StringNotEquals": {"s3:DataAccessPointAccount": environment.aws.account},
    }
    return deny("OnlyThroughAccessPoints", ["s3:*"], both, direct, principal="*")


def _by_prefix(
    environment: Environment, whole: str, found: Sequence[GrantHolder], between: str = ""
) -> Iterator[Document]:
    """Denies to read, write, delete and list under a prefix, for roles without a grant on it."""
    unless = exempt(environment)
    prefixes = sorted({holder.prefix for holder in found})
    # Where one prefix is inside another, a role with a grant on either is left to its own policy in both.
    meeting = {prefix: [holder for holder in found if holder.meets(prefix)] for prefix in prefixes}
    groups: dict[tuple[str, ...], list[str]] = {}
    for prefix in prefixes:
        groups.setdefault(tuple(sorted({holder.role for holder in meeting[prefix]})), []).append(prefix)

    def objects(some: Sequence[str]) -> list[str]:
        return [f"{whole}{between}/{prefix}*" for prefix in some]

    for number, (roles, some) in enumerate(sorted(groups.items())):
        others = {"StringNotEquals": {"aws:PrincipalArn": [*roles, *unless]}}
        yield deny(f"Only{number}", ["s3:*"], objects(some), others, principal="*")
        listed = {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in some]}, **others}
        yield deny(f"List{number}", [*grants.LIST, *grants.LIST_VERSIONS], whole, listed, principal="*")
    tenants = {"ArnLike": {"aws:PrincipalArn": workloads.tenants_roles(environment)}}
    # A list without a prefix has no such key, and is refused as well.
    outside = {"StringNotLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}} if prefixes else {}
    yield deny("ListWithin", [*grants.LIST, *grants.LIST_VERSIONS], whole, {**tenants, **outside}, principal="*")

    def where(*allowed: Access) -> list[str]:
        return objects([prefix for prefix in prefixes if all(h.access in allowed for h in meeting[prefix])])

    mended = {"StringNotEquals": {"aws:PrincipalArn": unless}}
    once = Access.WRITE_ONCE
    if kept := where(Access.READ_ONLY, once, Access.APPEND_ONLY):
        yield deny("DenyDeletes", grants.DELETE, kept, mended, principal="*")
    if still := where(Access.READ_ONLY):
        yield deny("DenyWrites", grants.PUT, still, mended, principal="*")
    if new := [each for each in where(Access.READ_ONLY, once) if each not in still]:
        again = {"Null": {"s3:if-none-match": "true"}, "Bool": {grants.CREATED_AT_ONCE: "true"}, **mended}
        yield deny("DenyOverwrites", grants.PUT, new, again, principal="*")
