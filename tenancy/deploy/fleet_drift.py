"""Tenants with an object that is not as planned: the comparison of `drift`, for a whole fleet in few requests."""

from __future__ import annotations

from collections.abc import Sequence

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api
from tenancy.cluster.drift import drift
from tenancy.cluster.selectors import platform_selector, tenants_selector
from tenancy.planning.plan_model import Plan, PlatformPlan

BATCH = 250
"""Tenants whose objects are listed together: one list request for each kind, and the memory for their objects."""


def tenants_with_drift(api: Api, plan: Plan, tenants: Sequence[str]) -> set[str]:
    """Those of the tenants that have an object which is missing, changed or added to.

    The engine's state is not read, so a value in another form counts too: such a tenant's own run tells the two apart.
    """
    drifted_tenants: set[str] = set()
    plans = {tenant.name: tenant for tenant in plan.tenants}
    for start in range(0, len(tenants), BATCH):
        batch = tenants[start : start + BATCH]
        items = (item for name in batch for item in plans[name].objects())
        drifts = drift(api, tenants_selector(plan.environment, batch), items)
        drifted_tenants |= {object_drift.item["metadata"]["labels"][vocabulary.TENANT] for object_drift in drifts}
    return drifted_tenants


def has_platform_drift(api: Api, environment: str, platform: PlatformPlan) -> bool:
    """Whether an object of the platform is missing, changed or added to."""
    return bool(drift(api, platform_selector(environment), platform.objects()))
