"""ResourceQuota and LimitRange of a namespace.

GPUs are capped at what is guaranteed: there is no queue that could call borrowed GPUs back.
"""

from __future__ import annotations

from tenancy.catalog import gpus, quantity
from tenancy.catalog import vocabulary as words
from tenancy.plan.labels import manifest, tenant_labels
from tenancy.plan.model import Object
from tenancy.spec.base import amount
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Namespace, Tenant

NAME = "tenant"


def gpu_quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, str]:
    """Every extended resource the environment knows, with what the namespace holds of it: granted or zero.

    Only the `requests.` form is counted by the API server (quota-01).
    """
    held = dict.fromkeys(sorted({*environment.resources, *gpus.ALWAYS_CAPPED}), 0)
    for flavor, count in tenant.held_in(namespace).items():
        held[environment.flavors[flavor].resource] += count
    return {f"requests.{resource}": quantity.write_count(count) for resource, count in held.items()}


def resource_quota(environment: Environment, tenant: Tenant, namespace: Namespace) -> Object:
    tier = environment.tiers[tenant.tier_of(namespace)]
    quota = namespace.quota.within(tier.quota) if namespace.quota else tier.quota
    hard = {
        "requests.cpu": quota.cpu,
        "limits.cpu": quota.cpu_limit or quantity.write(2 * amount(quota.cpu)),
        "requests.memory": quota.memory,
        "limits.memory": quota.memory_limit or quantity.write(2 * amount(quota.memory)),
        "requests.ephemeral-storage": quota.ephemeral_storage,
        "limits.ephemeral-storage": quota.ephemeral_storage,
        "requests.storage": quota.storage,
        "persistentvolumeclaims": quantity.write_count(quota.volume_claims),
        "pods": quantity.write_count(quota.pods),
        "services": quantity.write_count(quota.services),
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        "secrets": quantity.write_count(quota.secrets),
        "configmaps": quantity.write_count(quota.config_maps),
        "count/jobs.batch": quantity.write_count(quota.jobs),
        "count/cronjobs.batch": quantity.write_count(quota.jobs),
        "count/deployments.apps": quantity.write_count(quota.deployments),
        "count/statefulsets.apps": quantity.write_count(quota.deployments),
        **quota.other,
        **gpu_quota(environment, tenant, namespace),
    }
    return manifest(
        "v1",
        "ResourceQuota",
        NAME,
        tenant_labels(environment, tenant, namespace),
        {"spec": {"hard": dict(sorted(hard.items()))}},
        namespace=words.derived_name(tenant.tenant, namespace.name),
    )


def limit_range(environment: Environment, tenant: Tenant, namespace: Namespace) -> Object:
    """Defaults and bounds of containers and claims; never a GPU (quota-02)."""
    tier = environment.tiers[tenant.tier_of(namespace)]
    container, claim = tier.container, tier.claim
    limits = [
        {
            "type": "Container",
            "default": dict(container.default),
            "defaultRequest": dict(container.default_request),
            "min": dict(container.min),
            "max": dict(container.max),
        },
        {"type": "PersistentVolumeClaim", "min": {"storage": claim.min}, "max": {"storage": claim.max}},
    ]
    return manifest(
        "v1",
        "LimitRange",
        NAME,
        tenant_labels(environment, tenant, namespace),
        {"spec": {"limits": limits}},
        namespace=words.derived_name(tenant.tenant, namespace.name),
    )
