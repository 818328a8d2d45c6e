"""IAM documents as data, and the ARNs in them."""

from __future__ import annotations

import json
from typing import Any

from tenancy.spec.fields.environment import Environment

Document = dict[str, Any]
"""An IAM policy, or a part of one."""


def partition(region: str) -> str:
    """The part of AWS that a region lies in; the second word of every ARN."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def dns_suffix(environment: Environment) -> str:
    """DNS suffix of the host names of AWS services."""
    return "amazonaws.com.cn" if partition(environment.aws.region) == "aws-cn" else "amazonaws.com"


def arn(
    environment: Environment, service: str, resource: str, *, region: str | None = None, account: str | None = None
) -> str:
    """ARN of the environment's region and account, but for what is given."""
    aws = environment.aws
    arn_region = aws.region if region is None else region
    arn_account = aws.account if account is None else account
    return f"arn:{partition(aws.region)}:{service}:{arn_region}:{arn_account}:{resource}"


def document(*statements: Document) -> Document:
    """An IAM policy document of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(sid: str, actions: list[str], resource: str | list[str], condition: Document | None = None) -> Document:
    """A statement that allows actions on resources."""
    statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
    return {**statement, "Condition": condition} if condition else statement


def deny(
    sid: str,
    actions: list[str],
    resource: str | list[str],
    condition: Document | None = None,
    *,
    principal: Document | str | None = None,
) -> Document:
    """A statement that denies actions on resources."""
    statement = {"Sid": sid, "Effect": "Deny", "Action": actions, "Resource": resource}
    principal_part = {"Principal": principal} if principal else {}
    return {**statement, **principal_part, **({"Condition": condition} if condition else {})}


def length(policy: Document) -> int:
    """Characters that IAM and S3 count: white space is not among them."""
    return len(json.dumps(policy, separators=(",", ":")))
