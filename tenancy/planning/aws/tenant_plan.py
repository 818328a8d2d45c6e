"""The AWS half of one tenant."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary as words
from tenancy.planning.aws import grants, iam_roles
from tenancy.planning.aws.bucket_policies import access_point_policy, exempt_roles
from tenancy.planning.aws.documents import Document, deny, document
from tenancy.planning.aws.keys import tenant_key_policy
from tenancy.planning.aws.tenant_models import (
    AccessPoint,
    Alert,
    BudgetPlan,
    KeyPlan,
    LogGroup,
    Queue,
    Repository,
    Secret,
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
        repositories=tuple(_repositories(environment, tenant)),
        secrets=tuple(_secrets(environment, tenant)),
        log_groups=tuple(
            LogGroup(
                names.tenant_log_group(environment, tenant, name),
                environment.aws.log_days,
                environment.aws.log_key or "",
                _tags(environment, tenant),
            )
            for name in sorted(tenant.aws_resources.logs)
        ),
        queues=tuple(_queues(environment, tenant)),
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
        if environment.buckets[grant.bucket].key is KeyPer.TENANT and grant.access is not Access.READ_ONLY
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


def _allowed_roles(environment: Environment, tenant: Tenant, use: ResourceUse) -> list[str]:
    """Roles that may use this resource of the tenant."""
    return [
        iam_roles.role_arn(environment, tenant, namespace)
        for namespace in tenant.namespaces
        if applies_to(use.namespaces, namespace)
    ]


def _deny_others(environment: Environment, actions: list[str], resource: str, roles: list[str]) -> Document:
    """Resource policy of what is one tenant's: it denies all other identities, whatever their own policies allow."""
    other_principals = {"StringNotEquals": {"aws:PrincipalArn": [*roles, *exempt_roles(environment)]}}
    return deny("OnlyItsOwn", actions, resource, other_principals, principal="*")


def _repositories(environment: Environment, tenant: Tenant) -> Iterator[Repository]:
    pipeline = [iam_roles.ci_role_arn(environment, tenant)] if tenant.ci else []
    statement = _deny_others(environment, [*grants.PUSH, "ecr:BatchDeleteImage"], "*", pipeline)
    # A repository's policy is about the repository: ECR refuses a statement that names a resource.
    policy = document({key: value for key, value in statement.items() if key != "Resource"})
    for name in sorted(tenant.aws_resources.repositories):
        yield Repository(names.tenant_repository(environment, tenant, name), policy, _tags(environment, tenant))


def _secrets(environment: Environment, tenant: Tenant) -> Iterator[Secret]:
    for name, use in sorted(tenant.aws_resources.secrets.items()):
        statement = _deny_others(
            environment, ["secretsmanager:GetSecretValue"], "*", _allowed_roles(environment, tenant, use)
        )
        secret_name = names.tenant_secret(environment, tenant, name)
        yield Secret(secret_name, document(statement), _tags(environment, tenant))


def _queues(environment: Environment, tenant: Tenant) -> Iterator[Queue]:
    for name, use in sorted(tenant.aws_resources.queues.items()):
        arn = grants.queue_arn(environment, tenant, name)
        all_actions = [*grants.QUEUE, "sqs:PurgeQueue"]
        plain_text = {"Bool": {"aws:SecureTransport": "false"}}
        policy = document(
            deny("NothingUnencrypted", all_actions, arn, plain_text, principal="*"),
            _deny_others(environment, all_actions, arn, _allowed_roles(environment, tenant, use)),
        )
        yield Queue(names.tenant_queue(environment, tenant, name), arn, policy, _tags(environment, tenant))


def _budget(environment: Environment, tenant: Tenant) -> BudgetPlan | None:
    if tenant.budget is None:
        return None
    mail = tenant.owner.mail
    return BudgetPlan(
        name=names.tenant_budget(environment, tenant),
        limit=str(tenant.budget.monthly_usd),
        filters={"TagKeyValue": (f"user:{words.TENANT_TAG}${tenant.tenant}",)},
        alerts=(*(Alert("ACTUAL", percent, mail) for percent in ALERT_PERCENTAGES), Alert("FORECASTED", 100, mail)),
        tags=_tags(environment, tenant),
    )
