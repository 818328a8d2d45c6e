"""The one place where labels and annotations are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.meta import Meta
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant


def platform_labels(environment: Environment) -> dict[str, str]:
    """Labels of what belongs to the platform."""
    return {vocabulary.MANAGED_BY: vocabulary.PRODUCT, vocabulary.ENVIRONMENT: environment.environment}


def tenant_labels(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Labels of everything in a tenant's namespace; what `cost-02` asks for."""
    labels = {**tier_labels(environment, tenant, tenant.tier_of(namespace)), **namespace.labels}
    return {**labels, "product": namespace.product} if namespace.product else labels


def extra_labels(tenant: Tenant, namespace: Namespace) -> list[str]:
    """Keys of the labels beside the cost vocabulary that a namespace carries."""
    return sorted({*tenant.labels, *namespace.labels})


def tier_labels(environment: Environment, tenant: Tenant, tier: str) -> dict[str, str]:
    """Labels of what belongs to all namespaces of a tenant that have one tier."""
    return {
        **platform_labels(environment),
        vocabulary.TENANT: tenant.tenant,
        "team": tenant.team,
        "owner": tenant.owner.name,
        "department": tenant.department,
        "cost-center": tenant.cost_center,
        "product": tenant.product or tenant.team,
        "env": environment.environment,
        "tier": tier,
        "gpu-tier": environment.tiers[tier].gpu_tier,
        **tenant.labels,
    }


def manifest(
    api_version: str,
    kind: str,
    name: str,
    labels: Mapping[str, str],
    body: Mapping[str, object],
    namespace: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A Kubernetes object."""
    return Meta(name, labels, namespace or "", annotations or {}).manifest(api_version, kind, body)


def exclude_system_namespaces(environment: Environment, *, unmanaged: bool = True) -> dict[str, object]:
    """Selector of every namespace but the platform's own, for admission policies; without `unmanaged` but those too.

    By the name, which the API server sets and keeps: no label can take a namespace out of the guards' scope.
    """
    excluded_namespaces = {
        *environment.system_namespaces,
        *(() if unmanaged else environment.platform.unmanaged_namespaces),
    }
    systems = {"key": vocabulary.SPACE_NAME, "operator": "NotIn", "values": sorted(excluded_namespaces)}
    return {"matchExpressions": [systems]}


def in_namespaces(names: Sequence[str]) -> dict[str, object]:
    """Selector of the namespaces of these names."""
    return {"matchExpressions": [{"key": vocabulary.SPACE_NAME, "operator": "In", "values": sorted(names)}]}
