"""IAM roles of a tenant's pods and of its pipeline: trust and permissions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.aws import grants, kinds
from tenancy.planning.aws.documents import Document, allow, arn, document
from tenancy.planning.aws.grants import PrefixGrant
from tenancy.planning.aws.kinds.repositories import PULL, REPOSITORIES
from tenancy.planning.aws.tenant_models import AccessEntry, Association, TenantRolePlan
from tenancy.planning.common import names
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import CI_AUDIENCE, Ci, PodIdentity
from tenancy.spec.fields.tenant import Namespace, Tenant

SESSION_SECONDS = 3600
"""The shortest that IAM allows as a role's maximum. Pod Identity and SDKs renew by themselves."""
CI = "ci"
TENANT_NAMESPACES = f"*{vocabulary.SEPARATOR}*"
"""Names of tenants' namespaces, unless their files or the environment name them otherwise; no other's has this form."""
NAMESPACE_TAG = "${aws:PrincipalTag/kubernetes-namespace}"


def cluster_arn(environment: Environment) -> str:
    """ARN of the EKS cluster."""
    return arn(environment, "eks", f"cluster/{environment.cluster.name}")


def boundary_name(environment: Environment) -> str:
    """Name of the permissions boundary of all tenants' roles."""
    return names.aws_name(environment, "tenants")


def boundary_arn(environment: Environment) -> str:
    """ARN of the permissions boundary of all tenants' roles."""
    path = names.platform_path(environment)
    return arn(environment, "iam", f"policy{path}{boundary_name(environment)}", region="")


def tenant_roles_pattern(environment: Environment) -> str:
    """Pattern of the ARNs of all roles of tenants, for `aws:PrincipalArn`."""
    return arn(environment, "iam", f"role{names.tenants_path(environment)}*", region="")


def role_arn(environment: Environment, tenant: Tenant, namespace: Namespace) -> str:
    """The role that a namespace's pods become: its own, or the shared one of its shape."""
    if environment.aws.identity is PodIdentity.SHARED:
        return shared_role(environment, tenant, namespace).arn
    path, name = names.tenant_path(environment, tenant), names.tenant_role(environment, tenant, namespace.name)
    return arn(environment, "iam", f"role{path}{name}", region="")


def ci_role_arn(environment: Environment, tenant: Tenant) -> str:
    """ARN of the role of a tenant's pipeline."""
    path = names.tenant_path(environment, tenant)
    return arn(environment, "iam", f"role{path}{names.ci_role(environment, tenant)}", region="")


def namespace_role(environment: Environment, tenant: Tenant, namespace: Namespace) -> TenantRolePlan:
    """IAM role of the pods of a namespace, with the namespace's grants."""
    prefix_grants = grants.prefixes(tenant, namespace)
    policies = {
        "storage": [*grants.storage_statements(environment, tenant, prefix_grants)],
        "uses": [*grants.resource_statements(environment, tenant, namespace)],
    }
    return TenantRolePlan(
        name=names.tenant_role(environment, tenant, namespace.name),
        path=names.tenant_path(environment, tenant),
        arn=role_arn(environment, tenant, namespace),
        purpose=namespace.name,
        trust=_role_trust(environment, tenant, namespace),
        policies={name: document(*statements) for name, statements in policies.items() if statements},
        boundary=boundary_arn(environment),
        session_seconds=SESSION_SECONDS,
        tags=names.namespace_tags(environment, tenant, namespace),
    )


def association(environment: Environment, tenant: Tenant, namespace: Namespace) -> Association:
    """The EKS Pod Identity association of a namespace's service account with its role."""
    return Association(
        cluster=environment.cluster.name,
        namespace=tenant.namespace_name(namespace),
        service_account=namespace.service_account,
        role=role_arn(environment, tenant, namespace),
        tags=names.namespace_tags(environment, tenant, namespace),
    )


def _role_trust(environment: Environment, tenant: Tenant, namespace: Namespace) -> Document:
    if environment.aws.identity is PodIdentity.IRSA:
        issuer = environment.aws.oidc_issuer or ""
        account = f"system:serviceaccount:{tenant.namespace_name(namespace)}:{namespace.service_account}"
        return _web_identity_trust(environment, issuer, account)
    return pod_identity_trust(
        environment,
        {
            "aws:RequestTag/kubernetes-namespace": tenant.namespace_name(namespace),
            "aws:RequestTag/kubernetes-service-account": namespace.service_account,
        },
    )


def pod_identity_trust(
    environment: Environment, equal: dict[str, str], like: Mapping[str, str | list[str]] | None = None
) -> Document:
    """Trust in EKS Pod Identity alone, for pods of this cluster with these tags. The tags cannot be forged: no other
    principal is trusted."""
    condition: Document = {
        "StringEquals": {
            "aws:SourceAccount": environment.aws.account,
            "aws:RequestTag/eks-cluster-arn": cluster_arn(environment),
            **equal,
        },
        "ArnEquals": {"aws:SourceArn": cluster_arn(environment)},
    }
    if like:
        condition["StringLike"] = dict(like)
    return document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "pods.eks.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": condition,
        }
    )


def provider_arn(environment: Environment, issuer: str) -> str:
    """ARN of the IAM OIDC provider of an issuer."""
    return arn(environment, "iam", f"oidc-provider/{issuer}", region="")


def _web_identity_trust(environment: Environment, issuer: str, subject: str) -> Document:
    """Trust in one subject of one issuer, both word for word."""
    return document(
        {
            "Effect": "Allow",
            "Principal": {"Federated": provider_arn(environment, issuer)},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": {f"{issuer}:aud": CI_AUDIENCE, f"{issuer}:sub": subject}},
        }
    )


def shared_role(
    environment: Environment, tenant: Tenant, namespace: Namespace, other_namespaces: Collection[str] = ()
) -> TenantRolePlan:
    """The role of all namespaces with grants of the same shape; a session tag selects each namespace's own prefixes.

    `beside` are the role's namespaces whose names do not have the form <tenant>--<namespace>: its trust names them.
    """
    own_prefix = tenant.namespace_name(namespace) + "/"
    shape = sorted(
        PrefixGrant(grant.bucket, f"{NAMESPACE_TAG}/" if grant.text == own_prefix else grant.text, grant.access)
        for grant in grants.prefixes(tenant, namespace)
    )
    shape_json = json.dumps([environment.cluster.name, namespace.service_account, shape])
    digest = hashlib.sha256(shape_json.encode()).hexdigest()[:12]
    name = names.truncate_with_hash(f"{environment.cluster.name}.shared", 51, ".") + f".{digest}"
    path = names.tenants_path(environment)
    return TenantRolePlan(
        name=name,
        path=path,
        arn=arn(environment, "iam", f"role{path}{name}", region=""),
        purpose="shared",
        trust=pod_identity_trust(
            environment,
            {"aws:RequestTag/kubernetes-service-account": namespace.service_account},
            {
                "aws:RequestTag/kubernetes-namespace": [TENANT_NAMESPACES, *sorted(other_namespaces)]
                if other_namespaces
                else TENANT_NAMESPACES
            },
        ),
        policies={"storage": document(*grants.storage_statements(environment, None, shape))},
        boundary=boundary_arn(environment),
        session_seconds=SESSION_SECONDS,
        tags=names.tags(environment),
    )


def shared_roles(environment: Environment, tenants: Sequence[Tenant]) -> tuple[TenantRolePlan, ...]:
    """Roles that several namespaces share, one per list of grants; empty unless identity is shared."""
    if environment.aws.identity is not PodIdentity.SHARED:
        return ()
    users_by_role: dict[str, list[tuple[Tenant, Namespace]]] = {}
    for tenant in tenants:
        for namespace in tenant.namespaces:
            if tenant.has_identity(namespace):
                users_by_role.setdefault(shared_role(environment, tenant, namespace).name, []).append(
                    (tenant, namespace)
                )
    roles = []
    for _, users in sorted(users_by_role.items()):
        spaces = {tenant.namespace_name(namespace) for tenant, namespace in users}
        roles.append(shared_role(environment, *users[0], {name for name in spaces if vocabulary.SEPARATOR not in name}))
    return tuple(roles)


def ci_group(tenant: Tenant) -> str:
    """Kubernetes group of the tenant's pipeline."""
    return vocabulary.CI_GROUP.format(tenant=tenant.tenant)


def pipeline_role(environment: Environment, tenant: Tenant, ci: Ci) -> TenantRolePlan:
    """It may describe the cluster, write the tenant's images and read shared ones. It has no access to data."""
    shared_repositories = REPOSITORIES.arn(environment, names.shared_repositories(environment) + "*")
    statements = [
        allow("FindCluster", ["eks:DescribeCluster"], cluster_arn(environment)),
        allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], "*"),
        allow("PullShared", PULL, shared_repositories),
    ]
    for kind in kinds.KINDS:
        if kind.pipeline and (entries := getattr(tenant.aws_resources, kind.field)):
            arns = kind.arns(environment, tenant, entries)
            statements.append(allow(kind.pipeline.sid, [*kind.pipeline.actions], arns))
    return TenantRolePlan(
        name=names.ci_role(environment, tenant),
        path=names.tenant_path(environment, tenant),
        arn=ci_role_arn(environment, tenant),
        purpose=CI,
        trust=_web_identity_trust(environment, ci.issuer, ci.subject),
        policies={"pipeline": document(*statements)},
        boundary=boundary_arn(environment),
        session_seconds=SESSION_SECONDS,
        tags=names.tenant_tags(environment, tenant, tenant.tier),
    )


def pipeline_entry(environment: Environment, tenant: Tenant) -> AccessEntry:
    """The EKS access entry of a tenant's pipeline."""
    return AccessEntry(
        cluster=environment.cluster.name,
        principal=ci_role_arn(environment, tenant),
        groups=(ci_group(tenant),),
        tags=names.tenant_tags(environment, tenant, tenant.tier),
    )
