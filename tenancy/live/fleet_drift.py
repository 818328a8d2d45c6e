"""Which tenants have an object that is not as planned: the question of `drift`, for a whole fleet in few requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.live.api import Api
from tenancy.live.drift import drift
from tenancy.live.selectors import of_tenants
from tenancy.planning.model import PlatformPlan, TenantPlan

BATCH = 100
"""Tenants whose objects are listed together: one list request for each kind, and the memory for their objects."""


def drifted_tenants(api: Api, environment: str, tenants: Sequence[TenantPlan]) -> set[str]:
    """Names of tenants with an object that is missing, changed or added to.

    The engine's state is not read, so a value in another form counts too: such a tenant's own run tells the two apart.
    """
    found: set[str] = set()
    for start in range(0, len(tenants), BATCH):
        batch = tenants[start : start + BATCH]
        selector = of_tenants(environment, (tenant.name for tenant in batch))
        found |= set(_tenants_of(each.item for each in drift(api, selector, _objects(batch))))
    return found


def platform_drifted(api: Api, environment: str, platform: PlatformPlan) -> bool:
    """Whether an object of the platform is missing, changed or added to."""
    selector = quote(f"{words.ENVIRONMENT}={environment},!{words.TENANT}", safe="")
    return bool(drift(api, selector, platform.objects()))


def _objects(tenants: Iterable[TenantPlan]) -> Iterator[Object]:
    for tenant in tenants:
        yield from tenant.objects()


def _tenants_of(items: Iterable[Object]) -> Iterator[str]:
    for item in items:
        yield item["metadata"]["labels"][words.TENANT]
