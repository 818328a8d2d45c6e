"""Generated usage of a month, from the tenants' guarantees and a seed; the same seed gives the same month."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tenancy.planning.common.pools import pools_of
from tenancy.planning.queueing.quota_shares import shares
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.loader import Loaded

HOUR = 3600
DAY = 24 * HOUR
SIZES = ((1, 40), (2, 18), (4, 16), (8, 26))
"""Devices of a job's pod, and how many of a hundred jobs ask for that number."""
OUTAGE = (11 * DAY + 3 * HOUR, 11 * DAY + 3 * HOUR + 2400)
"""Forty minutes at the start without scrapes."""

Rows = dict[str, list[dict[str, Any]]]


@dataclass(slots=True)
class _Pool:
    """Nodes with the free devices of each flavor."""

    name: str
    nodes: list[str]
    free: dict[str, dict[str, int]]
    """Flavor -> node -> devices."""
    ends: list[tuple[int, int, str, str, str, int]] = field(default_factory=list)
    """When, number, tenant, flavor, node, devices."""
    devices_by_tenant: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class _NamespaceFlavor:
    """A namespace of a tenant and a flavor in a pool that it may use."""

    tenant: Tenant
    part: Namespace
    flavor: str
    pool: str
    guaranteed: int
    maximum: int
    load: float


def month(loaded: Loaded, start: int, end: int, seed: int) -> Rows:
    """Tables of a range: devices held on each node, their use, and other billed costs."""
    dice = random.Random(f"chargeback {seed}")
    pools = {name: _pool(loaded, name) for name in loaded.environment.pools}
    places = list(_places(loaded, dice))
    rows: Rows = defaultdict(list)
    for pool in pools.values():
        rows["nodes"] += [{"node": node, "pool": pool.name, "start": start, "end": end} for node in pool.nodes]
    number = 0
    for time in range(start, end, HOUR):
        for place in places:
            pool = pools[place.pool]
            _end_jobs(pool, time)
            wanted_devices = math.ceil(place.guaranteed * place.load * _day(time))
            if dice.random() < 0.01:  # now and then more than the guarantee
                wanted_devices += place.maximum - place.guaranteed
            for _ in range(40):
                missing_devices = (
                    min(wanted_devices, place.maximum) - pool.devices_by_tenant[place.tenant.tenant, place.flavor]
                )
                if missing_devices <= 0:
                    break
                number += 1
                if not _start_job(rows, dice, pool, place, time, end, missing_devices, number):
                    break
    rows["gaps"] = [{"start": start + OUTAGE[0], "end": start + OUTAGE[1]}] if end - start > OUTAGE[1] else []
    rows["lines"] += _other_costs(loaded, dice, start, end)
    return dict(rows)


def frames(rows: Rows) -> dict[str, pl.DataFrame]:
    """Tables of the generated rows."""
    return {name: pl.DataFrame(table_rows, infer_schema_length=None) for name, table_rows in rows.items() if table_rows}


def _pool(loaded: Loaded, name: str) -> _Pool:
    pool, yields = loaded.environment.pools[name], loaded.environment.flavors_of(name)
    nodes = [f"{name}-{i:03d}" for i in range(max(pool.nodes.min, 1))]
    return _Pool(name, nodes, {flavor: dict.fromkeys(nodes, device_count) for flavor, device_count in yields.items()})


def _places(loaded: Loaded, dice: random.Random) -> Iterator[_NamespaceFlavor]:
    quota_shares = shares(loaded.environment, loaded.tenants, loaded.day)
    for tenant in loaded.tenants:
        for flavor, share in tenant.gpus.items():
            # The namespace with the largest share runs it.
            namespace = max(
                tenant.namespaces,
                key=lambda namespace: (tenant.guaranteed_in(namespace)[flavor], -tenant.namespaces.index(namespace)),
            )
            tiers = frozenset({tenant.tier_of(namespace)})
            for pool in pools_of(loaded.environment, flavor, tenant.tenant, tiers):
                guaranteed = quota_shares[tenant.tenant].guaranteed(pool, flavor)
                max_devices = guaranteed + share.borrows
                if max_devices:
                    yield _NamespaceFlavor(
                        tenant, namespace, flavor, pool, guaranteed, max_devices, dice.uniform(0.35, 1.0)
                    )


def _day(at: int) -> float:
    """More by day than by night, and on weekdays than on Sundays."""
    hour, weekday = at // HOUR % 24, (at // DAY + 3) % 7
    return (0.75 + 0.25 * math.sin((hour - 8) * math.pi / 12)) * (0.7 if weekday >= 5 else 1.0)


def _end_jobs(pool: _Pool, at: int) -> None:
    while pool.ends and pool.ends[0][0] <= at:
        _, _, tenant, flavor, node, count = heapq.heappop(pool.ends)
        pool.free[flavor][node] += count
        pool.devices_by_tenant[tenant, flavor] -= count


def _start_job(
    rows: Rows, dice: random.Random, pool: _Pool, place: _NamespaceFlavor, at: int, end: int, short: int, number: int
) -> bool:
    sizes, weights = zip(*SIZES, strict=True)
    size = min(dice.choices(sizes, weights)[0], short)
    free = pool.free[place.flavor]
    node = next((name for name in pool.nodes if free[name] >= size), None)
    if node is None:
        return False
    begin = at + dice.randrange(0, 1800)
    job_end = min(end, begin + min(int(dice.lognormvariate(math.log(5 * HOUR), 1.1)) + 600, 4 * DAY))
    if begin >= job_end:
        return False
    free[node] -= size
    pool.devices_by_tenant[place.tenant.tenant, place.flavor] += size
    heapq.heappush(pool.ends, (job_end, number, place.tenant.tenant, place.flavor, node, size))
    namespace, workload = place.tenant.namespace_name(place.part), f"job-{number:06d}"
    rows["allocations"].append(
        {
            "namespace": namespace,
            "workload": workload,
            "pod": f"{workload}-0",
            "queue": "default",
            "node": node,
            "flavor": place.flavor,
            "count": size,
            "cpu": size,
            "memory": size * 2**32,
            "start": begin,
            "end": job_end,
        }
    )
    rows["used"].append(
        {
            "namespace": namespace,
            "pool": pool.name,
            "flavor": place.flavor,
            "devices": size,
            "value": round(min(0.99, max(0.01, dice.gauss(0.55, 0.22))), 3),
            "start": begin,
            "end": job_end,
        }
    )
    return True


def _other_costs(loaded: Loaded, dice: random.Random, start: int, end: int) -> Iterator[dict[str, Any]]:
    for tenant in loaded.tenants:
        part = tenant.namespace_name(tenant.namespaces[0])
        cost = {"kind": "storage", "id": "volumes", "namespace": part, "dollars": dice.randrange(20_000, 900_000) / 100}
        yield {**cost, "start": start, "end": end}
        for grant in tenant.storage[:1]:
            yield {
                "kind": "s3",
                "bucket": grant.bucket,
                "prefix": grant.prefix,
                "dollars": dice.randrange(5_000, 300_000) / 100,
                "start": start,
                "end": end,
            }
    yield {"kind": "overhead", "id": "control plane and monitoring", "dollars": 2380.00, "start": start, "end": end}
