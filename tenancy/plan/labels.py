"""The one place where labels and annotations are made."""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary as words
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Namespace, Tenant


def platform_labels(environment: Environment) -> dict[str, str]:
    """Labels of what belongs to the platform."""
    return {words.MANAGED_BY: words.PRODUCT, words.ENVIRONMENT: environment.environment}


def tenant_labels(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Labels of everything in a tenant's namespace; what `cost-02` asks for."""
    return tier_labels(environment, tenant, tenant.tier_of(namespace))


def tier_labels(environment: Environment, tenant: Tenant, tier: str) -> dict[str, str]:
    """Labels of what belongs to all parts of a tenant that have one tier."""
    return {
        **platform_labels(environment),
        words.TENANT: tenant.tenant,
        "team": tenant.team,
        "owner": tenant.owner.name,
        "department": tenant.department,
        "cost-center": tenant.cost_center,
        "product": tenant.product or tenant.team,
        "env": environment.environment,
        "tier": tier,
        "gpu-tier": environment.tiers[tier].gpu_tier,
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
    metadata: dict[str, object] = {"name": name, "labels": dict(labels)}
    if namespace:
        metadata["namespace"] = namespace
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def beside_the_systems(environment: Environment) -> dict[str, object]:
    """Selector of every namespace but the platform's own, for admission policies.

    By the name, which the API server sets and keeps: nobody can label a namespace out of the guards.
    """
    systems = {"key": words.SPACE_NAME, "operator": "NotIn", "values": list(environment.system_namespaces)}
    return {"matchExpressions": [systems]}
