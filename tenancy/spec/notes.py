"""What files may say and hardly mean: told when they are read, never refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.spec.base import Mistake
from tenancy.spec.crossfile import some
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Tenant

_HTTPS = 443
_AWS_NAMES = (".amazonaws.com", ".amazonaws.com.cn")


def notes(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Mistake]:
    """Grants of buckets whose holders' pods have no way to S3."""
    network = environment.aws.network
    if not environment.aws.enabled or network.service_ranges:
        return
    if shut := [tenant.tenant for tenant in tenants if tenant.storage and not _leaves(tenant)]:
        given = f"none, and grants of buckets to {some(shut)}, who name no way to S3 under reach"
        rule = "pods reach S3 at ranges that are opened, whatever their role may do there"
        change = "write S3's prefix list of the region, as docs/network.md gets it"
        yield Mistake(("aws", "network", "service-ranges"), given, rule, change)


def _leaves(tenant: Tenant) -> bool:
    """Whether some way of its own may be one to S3: nobody knows whose a range is."""
    return any(way.port == _HTTPS and (way.cidr or (way.dns and way.dns.endswith(_AWS_NAMES))) for way in tenant.reach)
