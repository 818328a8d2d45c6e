"""The AWS half of one tenant."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.planning.aws import grants, iam_roles, kinds
from tenancy.planning.aws.bucket_policies import access_point_policy, exempt_roles
from tenancy.planning.aws.keys import tenant_key_policy
from tenancy.planning.aws.tenant_models import (
    AccessPoint,
    Alert,
    BudgetPlan,
    KeyPlan,
    OwnedResource,
    TenantAwsPlan,
)
from tenancy.planning.common import names
from tenancy.spec.fields.data import Access, KeyPer, ResourceUse
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.tenant import Tenant, applies_to

ALERT_PERCENTAGES = (50, 80, 100)
"""Per cent of the budget that is spent; and the forecast, at all of it."""


def tenant_aws_plan(environment: Environment, tenant: Tenant) -> TenantAwsPlan | None:
    """None where AWS is switched off."""
    if not environment.aws.enabled:
        return None
    namespaces_with_identity = [namespace for namespace in tenant.namespaces if tenant.has_identity(namespace)]
    own_role_namespaces = namespaces_with_identity if environment.aws.identity is not PodIdentity.SHARED else []
    pod_identity_namespaces = namespaces_with_identity if environment.aws.identity is not PodIdentity.IRSA else []
    ci = tenant.ci
    return TenantAwsPlan(
        keys=tuple(_keys(environment, tenant)),
        roles=(
            *(iam_roles.namespace_role(environment, tenant, namespace) for namespace in own_role_namespaces),
            *([iam_roles.pipeline_role(environment, tenant, ci)] if ci else []),
        ),
        access_points=tuple(_access_points(environment, tenant)),
        owned=tuple(_owned(environment, tenant)),
        budget=_budget(environment, tenant),
        associations=tuple(
            iam_roles.association(environment, tenant, namespace) for namespace in pod_identity_namespaces
        ),
        access_entries=(iam_roles.pipeline_entry(environment, tenant),) if ci else (),
        tags=_tags(environment, tenant),
    )


def _tags(environment: Environment, tenant: Tenant) -> dict[str, str]:
    return names.tenant_tags(environment, tenant, tenant.tier)


def _keys(environment: Environment, tenant: Tenant) -> Iterator[KeyPlan]:
    """A key for what it writes into buckets where each tenant has its own."""
    write_grants = [
        grant
        for grant in tenant.storage
        if environment.buckets[grant.bucket].kms_key_scope is KeyPer.TENANT and grant.access is not Access.READ_ONLY
    ]
    if write_grants:
        yield KeyPlan(
            alias=names.tenant_key_alias(environment, tenant),
            description=f"What {tenant.tenant} writes into buckets of {environment.environment}",
            policy=tenant_key_policy(environment, tenant, sorted({(g.bucket, g.prefix) for g in write_grants})),
            tags=_tags(environment, tenant),
        )


def _access_points(environment: Environment, tenant: Tenant) -> Iterator[AccessPoint]:
    for bucket in sorted({grant.bucket for grant in tenant.storage if environment.buckets[grant.bucket].access_points}):
        yield AccessPoint(
            name=names.tenant_access_point(environment, tenant, bucket),
            bucket=bucket,
            arn=grants.access_point_arn(environment, tenant, bucket),
            policy=access_point_policy(environment, tenant, bucket),
            tags=_tags(environment, tenant),
        )


def _owned(environment: Environment, tenant: Tenant) -> Iterator[OwnedResource]:
    exempt, tags = exempt_roles(environment), _tags(environment, tenant)
    pipeline = [iam_roles.ci_role_arn(environment, tenant)] if tenant.ci else []
    for kind in kinds.KINDS:
        for name in sorted(getattr(tenant.aws_resources, kind.field)):
            use = tenant.aws_resources.users(kind.field, name)
            pods = _allowed_roles(environment, tenant, use) if use else []
            allowed = [*pods, *(pipeline if kind.pipeline else ()), *exempt]
            yield kind.resource(environment, tenant, name, allowed, tags)


def _allowed_roles(environment: Environment, tenant: Tenant, use: ResourceUse) -> list[str]:
    """Roles that may use this resource of the tenant."""
    return [
        iam_roles.role_arn(environment, tenant, namespace)
        for namespace in tenant.namespaces
        if applies_to(use.namespaces, namespace)
    ]


def _budget(environment: Environment, tenant: Tenant) -> BudgetPlan | None:
    if tenant.budget is None:
        return None
    mail = tenant.owner.mail
    return BudgetPlan(
        name=names.tenant_budget(environment, tenant),
        limit=str(tenant.budget.monthly_usd),
        filters={"TagKeyValue": (f"user:{vocabulary.TENANT_TAG}${tenant.tenant}",)},
        alerts=(*(Alert("ACTUAL", percent, mail) for percent in ALERT_PERCENTAGES), Alert("FORECASTED", 100, mail)),
        tags=_tags(environment, tenant),
    )
