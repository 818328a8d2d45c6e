"""Request to AWS: a principal, an action and a resource, with the keys of the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tenancy.iam.conditions import (
    Keys,
    Value,
    texts,
)


class PrincipalKind(Enum):
    """Kind of the caller of a request."""

    ROLE = "role session"
    USER = "user"
    SERVICE = "AWS service"
    FEDERATED = "identity provider"  # who comes with a token to become a role
    ANONYMOUS = "anonymous"


class ResourceClass(Enum):
    """Kind of resource: whether an identity policy alone gives access to it within its account."""

    ORDINARY = "resource"
    KEY = "KMS key"  # identity policies count where the key policy names the account (key)
    TRUST = "role to assume"  # the trust policy names the principal or its account (decision, assume)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request."""

    kind: PrincipalKind
    arn: str
    """ARN of the session, the user or the provider; the name of a service."""
    account: str = ""
    role: str = ""
    """ARN of the role of a session."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Context keys that AWS knows of it in every request."""

    @property
    def service_linked(self) -> bool:
        """Whether the role is one that is linked to an AWS service."""
        return ":role/aws-service-role/" in self.role


def role_session(
    role: str,
    name: str = "session",
    *,
    tags: Mapping[str, str] | None = None,
    session_tags: Mapping[str, str] | None = None,
    organisation: str | None = None,
) -> Principal:
    """A session of a role, given by the role's ARN. Of two tags of one name the session's counts (id_session-tags)."""
    _, partition, _, _, account, path = role.split(":", 5)
    arn = f"arn:{partition}:sts::{account}:assumed-role/{path.rpartition('/')[2]}/{name}"
    all_tags = {key.lower(): value for tag_map in (tags, session_tags) for key, value in (tag_map or {}).items()}
    keys = {"aws:PrincipalArn": role, "aws:PrincipalType": "AssumedRole", **_of_account(account, organisation)}
    return Principal(PrincipalKind.ROLE, arn, account, role, {**keys, **_tag_keys(all_tags)})


def user(arn: str, *, tags: Mapping[str, str] | None = None, organisation: str | None = None) -> Principal:
    """An IAM user as the caller."""
    account, name = arn.split(":")[4], arn.rpartition("/")[2]
    keys = {"aws:PrincipalArn": arn, "aws:PrincipalType": "User", "aws:username": name}
    return Principal(
        PrincipalKind.USER, arn, account, keys={**keys, **_of_account(account, organisation), **_tag_keys(tags or {})}
    )


def service(name: str) -> Principal:
    """An AWS service as the caller."""
    return Principal(
        PrincipalKind.SERVICE, name, keys={"aws:PrincipalIsAWSService": "true", "aws:PrincipalServiceName": name}
    )


def federated(provider: str) -> Principal:
    """An identity provider as the caller, which asks for a role."""
    return Principal(PrincipalKind.FEDERATED, provider)


ANONYMOUS = Principal(PrincipalKind.ANONYMOUS, "anonymous", keys={"aws:PrincipalType": "Anonymous"})


def _of_account(account: str, organisation: str | None) -> dict[str, str]:
    account_keys = {"aws:PrincipalAccount": account, "aws:PrincipalIsAWSService": "false"}
    return {**account_keys, "aws:PrincipalOrgID": organisation} if organisation else account_keys


def _tag_keys(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:PrincipalTag/{key}": value for key, value in tags.items()}


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """One request to AWS: caller, action, resource and condition keys."""

    principal: Principal
    action: str
    resource: str
    keys: Keys
    resource_account: str

    @property
    def within_account(self) -> bool:
        """Whether the caller and the resource belong to one account."""
        return self.principal.account == self.resource_account


def request(
    principal: Principal,
    action: str,
    resource: str,
    context: Mapping[str, Any] | None = None,
    *,
    resource_account: str | None = None,
) -> AwsRequest:
    """The resource's account is in its ARN or is given (S3); otherwise it is the principal's own."""
    arn_account = resource.split(":")[4] if resource.count(":") >= 5 else ""
    keys = {
        name.lower(): _value(value) for key_map in (principal.keys, context or {}) for name, value in key_map.items()
    }
    return AwsRequest(principal, action, resource, keys, resource_account or arn_account or principal.account)


def _value(raw_value: Any) -> Value:
    if isinstance(raw_value, list | tuple | set | frozenset):
        return texts(sorted(raw_value) if isinstance(raw_value, set | frozenset) else raw_value)
    return raw_value if isinstance(raw_value, str | bytes) else texts(raw_value)[0]
