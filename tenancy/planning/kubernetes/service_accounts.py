"""Service accounts of a tenant's namespaces."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary
from tenancy.planning.aws.iam_roles import role_arn
from tenancy.planning.common.labels import tenant_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.kubernetes.namespace_objects import PodAccount
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.tenant import Namespace, Tenant


def default_account(environment: Environment, tenant: Tenant, namespace: Namespace) -> PodAccount:
    """The account of pods that name none. The API server makes it; that its pods get no token is ours (id-08)."""
    return _account(environment, tenant, namespace, vocabulary.DEFAULT_ACCOUNT)


def service_accounts(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[PodAccount, ...]:
    """The one that the namespace's grants hang on, where it has some, and those that its file declares."""
    declared_accounts = tuple(
        _account(environment, tenant, namespace, account.name, api_token=account.automount_token)
        for account in tenant.accounts_in(namespace)
    )
    return (*_granted_account(environment, tenant, namespace), *declared_accounts)


def _granted_account(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[PodAccount, ...]:
    """Pod Identity knows it by its name alone. No token of the API server comes with it: what a pod says to AWS comes
    by a projected token that EKS adds."""
    if not tenant.has_identity(namespace):
        return ()
    annotations = {}
    if environment.aws.identity is PodIdentity.IRSA and environment.aws.account:
        annotations["eks.amazonaws.com/role-arn"] = role_arn(environment, tenant, namespace)
    return (_account(environment, tenant, namespace, namespace.service_account, annotations),)


def _account(
    environment: Environment,
    tenant: Tenant,
    namespace: Namespace,
    name: str,
    annotations: Mapping[str, str] | None = None,
    *,
    api_token: bool = False,
) -> PodAccount:
    labels, namespace_name = tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace)
    return PodAccount(Meta(name, labels, namespace_name, annotations or {}), api_token)
