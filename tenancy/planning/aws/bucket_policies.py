"""Policies of shared buckets: the second lock, on the bucket's side, on top of what the roles' own policies allow.

They only deny. Tenants are named by `aws:PrincipalArn`, a role's whole ARN with its path: as a principal, a role that
does not exist yet would make S3 refuse the policy, and a role that is made anew would no longer match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tenancy.planning.aws import grants, iam_roles
from tenancy.planning.aws.documents import Document, arn, deny, document
from tenancy.planning.common import names
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

OBJECT_ACTIONS = ["s3:*MultipartUpload*", "s3:*Object*", "s3:ListBucket*"]
"""Whatever touches objects or their names; what is about the bucket itself is left to auditors and the platform."""
FORBIDDEN_ACTIONS = [
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

    def overlaps(self, prefix: str) -> bool:
        """Whether the grant's prefix and the given one share objects."""
        return self.prefix.startswith(prefix) or prefix.startswith(self.prefix)


def exempt_roles(environment: Environment) -> list[str]:
    """Roles that the denies exempt, for repairs: the platform's, and in an emergency the break-glass role."""
    roles = [environment.aws.platform_role]
    return [*roles, break_glass_arn(environment)] if environment.aws.break_glass else roles


def break_glass_arn(environment: Environment) -> str:
    """ARN of the emergency role."""
    path, name = names.platform_path(environment), names.aws_name(environment, "break-glass")
    return arn(environment, "iam", f"role{path}{name}", region="")


def holders(environment: Environment, tenants: Sequence[Tenant], bucket: str) -> list[GrantHolder]:
    """Roles with a grant in a bucket, each with its prefix and access, sorted."""
    return sorted(
        {
            GrantHolder(grant.prefix, grant.access, iam_roles.role_arn(environment, tenant, namespace))
            for tenant in tenants
            for namespace in tenant.namespaces
            for grant in tenant.grants_of(namespace)
            if grant.bucket == bucket
        }
    )


def bucket_policy(environment: Environment, tenants: Sequence[Tenant], bucket: str) -> Document:
    """Policy of a bucket: TLS only, known roles only, each below its own prefixes."""
    bucket_arn = grants.bucket_arn(environment, bucket)
    resources = [bucket_arn, f"{bucket_arn}/*"]
    statements = [*_base_statements(environment, resources)]
    if environment.buckets[bucket].access_points:
        statements.append(_access_point_statement(environment, resources))
    else:
        statements += _prefix_statements(environment, bucket_arn, holders(environment, tenants, bucket))
    return document(*statements)


def access_point_policy(environment: Environment, tenant: Tenant, bucket: str) -> Document:
    """The same denies, for one tenant's prefixes."""
    point = grants.access_point_arn(environment, tenant, bucket)
    tenant_holders = holders(environment, [tenant], bucket)
    other_principals = {
        "StringNotEquals": {"aws:PrincipalArn": [*sorted({h.role for h in tenant_holders}), *exempt_roles(environment)]}
    }
    deny_others = deny("OnlyItsOwn", ["s3:*"], [point, f"{point}/object/*"], other_principals, principal="*")
    return document(deny_others, *_prefix_statements(environment, point, tenant_holders, "/object"))


def _base_statements(environment: Environment, resources: list[str]) -> Iterator[Document]:
    """Denies for all principals."""
    exempt_principals = {"aws:PrincipalArn": exempt_roles(environment)}
    _, objects = resources
    yield deny("NothingUnencrypted", ["s3:*"], resources, {"Bool": {"aws:SecureTransport": "false"}}, principal="*")
    network = environment.aws.network
    # The id of a new VPC is known only when the VPC exists; until then any endpoint of the account will do.
    allowed_network = {"aws:SourceVpc": network.vpc} if network.vpc else {"aws:VpceAccount": environment.aws.account}
    yield deny(
        "OnlyFromInside",
        OBJECT_ACTIONS,
        resources,
        {"StringNotEquals": {**allowed_network, **exempt_principals}},
        principal="*",
    )
    if organisation := environment.aws.organization_id:
        organization_or_exempt = {"aws:PrincipalOrgID": organisation, **exempt_principals}
        yield deny(
            "OnlyOfTheOrganisation",
            OBJECT_ACTIONS,
            resources,
            {"StringNotEquals": organization_or_exempt},
            principal="*",
        )
    known_roles = [iam_roles.tenant_roles_pattern(environment), *exempt_roles(environment)]
    yield deny(
        "OnlyTenants", OBJECT_ACTIONS, resources, {"ArnNotLike": {"aws:PrincipalArn": known_roles}}, principal="*"
    )
    yield deny("Never", FORBIDDEN_ACTIONS, resources, {"StringNotEquals": exempt_principals}, principal="*")
    key = "s3:x-amz-server-side-encryption"
    weaker_encryption = {"StringNotEquals": {key: "aws:kms"}, "Null": {key: "false"}}
    yield deny("NoWeakerEncryption", ["s3:PutObject"], objects, weaker_encryption, principal="*")
    client_key = {"Null": {f"{key}-customer-algorithm": "false"}}
    yield deny("NoKeysOfClients", ["s3:PutObject"], objects, client_key, principal="*")


def _access_point_statement(environment: Environment, resources: list[str]) -> Document:
    direct_requests = {
        "ArnLike": {"aws:PrincipalArn": iam_roles.tenant_roles_pattern(environment)},
        "StringNotEquals": {"s3:DataAccessPointAccount": environment.aws.account},
    }
    return deny("OnlyThroughAccessPoints", ["s3:*"], resources, direct_requests, principal="*")


def _prefix_statements(
    environment: Environment, base_arn: str, grant_holders: Sequence[GrantHolder], infix: str = ""
) -> Iterator[Document]:
    """Denies to read, write, delete and list under a prefix, for roles without a grant on it."""
    exempt_arns = exempt_roles(environment)
    prefixes = sorted({holder.prefix for holder in grant_holders})
    # Where one prefix is inside another, a role with a grant on either is left to its own policy in both.
    overlapping_holders = {
        prefix: [holder for holder in grant_holders if holder.overlaps(prefix)] for prefix in prefixes
    }
    groups: dict[tuple[str, ...], list[str]] = {}
    for prefix in prefixes:
        groups.setdefault(tuple(sorted({holder.role for holder in overlapping_holders[prefix]})), []).append(prefix)

    def objects(object_prefixes: Sequence[str]) -> list[str]:
        return [f"{base_arn}{infix}/{prefix}*" for prefix in object_prefixes]

    for number, (roles, group_prefixes) in enumerate(sorted(groups.items())):
        other_principals = {"StringNotEquals": {"aws:PrincipalArn": [*roles, *exempt_arns]}}
        yield deny(f"Only{number}", ["s3:*"], objects(group_prefixes), other_principals, principal="*")
        list_condition = {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in group_prefixes]}, **other_principals}
        yield deny(f"List{number}", [*grants.LIST, *grants.LIST_VERSIONS], base_arn, list_condition, principal="*")
    tenants = {"ArnLike": {"aws:PrincipalArn": iam_roles.tenant_roles_pattern(environment)}}
    # A list without a prefix has no such key, and is refused as well.
    other_prefixes = {"StringNotLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}} if prefixes else {}
    yield deny(
        "ListWithin", [*grants.LIST, *grants.LIST_VERSIONS], base_arn, {**tenants, **other_prefixes}, principal="*"
    )

    def objects_with_access(*allowed: Access) -> list[str]:
        return objects([prefix for prefix in prefixes if all(h.access in allowed for h in overlapping_holders[prefix])])

    unless_exempt = {"StringNotEquals": {"aws:PrincipalArn": exempt_arns}}
    write_once = Access.WRITE_ONCE
    if undeletable := objects_with_access(Access.READ_ONLY, write_once, Access.APPEND_ONLY):
        yield deny("DenyDeletes", grants.DELETE, undeletable, unless_exempt, principal="*")
    if read_only := objects_with_access(Access.READ_ONLY):
        yield deny("DenyWrites", grants.PUT, read_only, unless_exempt, principal="*")
    if write_once_objects := [
        object_arn for object_arn in objects_with_access(Access.READ_ONLY, write_once) if object_arn not in read_only
    ]:
        overwrites = {"Null": {"s3:if-none-match": "true"}, "Bool": {grants.OBJECT_CREATION: "true"}, **unless_exempt}
        yield deny("DenyOverwrites", grants.PUT, write_once_objects, overwrites, principal="*")
