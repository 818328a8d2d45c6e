"""AWS permissions of a tenant that leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tenancy.planning.aws.documents import Document
from tenancy.planning.aws.iam_roles import CI
from tenancy.planning.aws.kinds.repositories import PUSH
from tenancy.planning.aws.tenant_models import TenantAwsPlan
from tenancy.spec.fields.tenant import Tenant


def without_write_grants(tenant: Tenant, aws: TenantAwsPlan | None) -> TenantAwsPlan | None:
    """Its half on AWS, where the pipeline of a tenant that leaves pulls images and pushes none."""
    if aws is None or tenant.offboarding is None:
        return aws
    roles = tuple(
        replace(role, policies={name: _without_actions(document, PUSH) for name, document in role.policies.items()})
        if role.purpose == CI
        else role
        for role in aws.roles
    )
    return replace(aws, roles=roles)


def _without_actions(document: Document, actions: Iterable[str]) -> Document:
    removed_actions = frozenset(actions)
    statements: list[dict[str, Any]] = [
        {**statement, "Action": [action for action in statement["Action"] if action not in removed_actions]}
        for statement in document["Statement"]
    ]
    return {**document, "Statement": statements}
