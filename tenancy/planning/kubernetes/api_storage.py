"""Storage that tenants may use in the API server, and Kueue's memory for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenancy.planning.common.stages import active_tenants
from tenancy.spec.checks import stored_objects as stored
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant


@dataclass(frozen=True, slots=True)
class TenantApiStorage:
    """The maximum that one tenant's quotas let it store."""

    tenant: str
    objects: int
    stored: int
    """Bytes of the API server's store, without former revisions."""
    cached: int
    """Bytes of Kueue's heap."""


@dataclass(frozen=True, slots=True)
class ApiStorage:
    """Total of the tenants' object quotas, in bytes."""

    store: int
    budget: int
    """Part of the store for all tenants together."""
    overcommit: int
    stored: int
    kueue: int
    """Memory of Kueue; 0 where the environment has no queue."""
    tenants: tuple[TenantApiStorage, ...]


def api_storage(environment: Environment, tenants: Sequence[Tenant]) -> ApiStorage:
    """Max bytes that the tenants' objects may take in etcd and in the caches of their readers."""
    quotas, stored_tenants = stored.ObjectQuotas(environment), active_tenants(tenants)
    per_tenant = tuple(
        TenantApiStorage(
            tenant.tenant, quotas.objects(tenant), quotas.stored_bytes(tenant), quotas.cached_bytes(tenant)
        )
        for tenant in stored_tenants
    )
    return ApiStorage(
        store=stored.STORE_BYTES,
        budget=stored.store_budget(),
        overcommit=environment.cluster.object_overcommit,
        stored=sum(entry.stored for entry in per_tenant),
        kueue=stored.kueue_memory(environment, stored_tenants) if environment.has_queues else 0,
        tenants=per_tenant,
    )
