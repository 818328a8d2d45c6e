"""Service accounts of a tenant's namespaces."""

from __future__ import annotations

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.planning.aws.workloads import role_arn
from tenancy.planning.common.labels import manifest, tenant_labels
from tenancy.schema.environment import Environment
from tenancy.schema.identity import PodIdentity
from tenancy.schema.tenant import Namespace, Tenant


def default_account(environment: Environment, tenant: Tenant, namespace: Namespace) -> Object:
    """The account of pods that name none. The API server makes it; that its pods get no token is ours (id-08)."""
    return manifest(
        "v1",
        "ServiceAccount",
        words.DEFAULT_ACCOUNT,
        tenant_labels(environment, tenant, namespace),
        {"automountServiceAccountToken": False},
        namespace=tenant.namespace_name(namespace),
    )


def service_accounts(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    """The one that the namespace's grants hang on, where it has some, and those that its file declares."""
    declared = tuple(
        manifest(
            "v1",
            "ServiceAccount",
            account.name,
            tenant_labels(environment, tenant, namespace),
            {"automountServiceAccountToken": account.api_token},
            namespace=tenant.namespace_name(namespace),
        )
        for account in tenant.accounts_in(namespace)
    )
    return (*_granted_account(environment, tenant, namespace), *declared)


def _granted_account(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    """Pod Identity knows it by its name alone. No token of the API server comes with it: what a pod says to AWS comes
    by a projected token that EKS adds."""
    if not tenant.has_identity(namespace):
        return ()
    annotations = {}
    if environment.aws.identity is PodIdentity.IRSA and environment.aws.account:
        annotations["eks.amazonaws.com/role-arn"] = role_arn(environment, tenant, namespace)
    account = manifest(
        "v1",
        "ServiceAccount",
        namespace.service_account,
        tenant_labels(environment, tenant, namespace),
        {"automountServiceAccountToken": False},
        namespace=tenant.namespace_name(namespace),
        annotations=annotations,
    )
    return (account,)
