"""What a tenant that leaves has on AWS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tenancy.planning.aws.documents import Document
from tenancy.planning.aws.grants import PUSH
from tenancy.planning.aws.tenant_aws import TenantAwsPlan
from tenancy.planning.aws.workloads import CI
from tenancy.schema.tenant import Tenant


def only_reading(tenant: Tenant, aws: TenantAwsPlan | None) -> TenantAwsPlan | None:
    """Its half on AWS, where the pipeline of a tenant that leaves pulls images and pushes none."""
    if aws is None or tenant.leaving is None:
        return aws
    roles = tuple(
        replace(role, policies={name: _without(document, PUSH) for name, document in role.policies.items()})
        if role.purpose == CI
        else role
        for role in aws.roles
    )
    return replace(aws, roles=roles)


def _without(document: Document, actions: Iterable[str]) -> Document:
    dropped = frozenset(actions)
    statements: list[dict[str, Any]] = [
        {**statement, "Action": [action for action in statement["Action"] if action not in dropped]}
        for statement in document["Statement"]
    ]
    return {**document, "Statement": statements}
