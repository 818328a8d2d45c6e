"""A tenant on AWS, and the account that it is in."""

from __future__ import annotations

from typing import Any

from tenancy.spec.fields.tenant import Tenant

ACCOUNT, REGION, CLUSTER = "111122223333", "eu-central-1", "small"
CLUSTER_ARN = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}"
ISSUER = f"oidc.eks.{REGION}.amazonaws.com/id/0123456789ABCDEF"
POINT = f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:access-point/fsap-0123abcd"
AWS = {
    "enabled": True,
    "account": ACCOUNT,
    "region": REGION,
    "zones": [f"{REGION}a", f"{REGION}b"],
    "platform-role": f"arn:aws:iam::{ACCOUNT}:role/platform",
    "log-retention-days": 90,
}
BUCKETS = {
    "data": {},
    "plain": {"versioning": False},
    "own-keys": {"kms-key-scope": "tenant"},
    "bindings": {"access-points": True},
}
FRAUD = {
    "tenant": "fraud",
    "team": "fraud-detection",
    "owner": {"name": "fraud-leads", "mail": "fraud-leads@bank.example"},
    "department": "risk",
    "cost-center": "CC-4411",
    "product": "cards",
    "tier": "batch",
    "namespaces": ["train", {"name": "serve", "tier": "production", "service-account": "scorer"}, "idle"],
    "storage": [{"bucket": "data", "prefix": "fraud/", "access": "read-write", "namespaces": ["train"]}],
    "aws_resources": {"secrets": {"card-network": {"namespaces": ["serve"]}}},
}


def tenant(**more: Any) -> Tenant:
    return Tenant.model_validate({**FRAUD, **more})


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
