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
from tenancy.schema.tenant import Namespace, Tenant
from tenancy.validation import Loaded

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
    held: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class _NamespaceFlavor:
    """A namespace of a tenant and a flavor in a pool that it may use."""

    tenant: Tenant
    part: Namespace
    flavor: str
    pool: str
    guaranteed: int
    most: int
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
    for at in range(start, end, HOUR):
        for place in places:
            pool = pools[place.pool]
            _finish(pool, at)
            wanted = math.ceil(place.guaranteed * place.load * _day(at))
            if dice.random() < 0.01:  # now and then more than the guarantee
                wanted += place.most - place.guaranteed
            for _ in range(40):
                short = min(wanted, place.most) - pool.held[place.tenant.tenant, place.flavor]
                if short <= 0:
                    break
                number += 1
                if not _job(rows, dice, pool, place, at, end, short, number):
                    break
    rows["gaps"] = [{"start": start + OUTAGE[0], "end": start + OUTAGE[1]}] if end - start > OUTAGE[1] else []
    rows["lines"] += _beside(loaded, dice, start, end)
    return dict(rows)


def frames(rows: Rows) -> dict[str, pl.DataFrame]:
    """Tables of the generated rows."""
    return {name: pl.DataFrame(of, infer_schema_length=None) for name, of in rows.items() if of}


def _pool(loaded: Loaded, name: str) -> _Pool:
    pool, yields = loaded.environment.pools[name], loaded.environment.flavors_of(name)
    nodes = [f"{name}-{i:03d}" for i in range(max(pool.nodes.min, 1))]
    return _Pool(name, nodes, {flavor: dict.fromkeys(nodes, each) for flavor, each in yields.items()})


def _places(loaded: Loaded, dice: random.Random) -> Iterator[_NamespaceFlavor]:
    held = shares(loaded.environment, loaded.tenants)
    for tenant in loaded.tenants:
        for flavor, share in tenant.gpus.items():
            # The namespace with the largest share runs it.
            part = max(tenant.namespaces, key=lambda n: (tenant.guaranteed_in(n)[flavor], -tenant.namespaces.index(n)))
            tiers = frozenset({tenant.tier_of(part)})
            for pool in pools_of(loaded.environment, flavor, tenant.tenant, tiers):
                guaranteed = held[tenant.tenant].guaranteed(pool, flavor)
                most = guaranteed + share.borrows
                if most:
                    yield _NamespaceFlavor(tenant, part, flavor, pool, guaranteed, most, dice.uniform(0.35, 1.0))


def _day(at: int) -> float:
    """More by day than by night, and on weekdays than on Sundays."""
    hour, weekday = at // HOUR % 24, (at // DAY + 3) % 7
    return (0.75 + 0.25 * math.sin((hour - 8) * math.pi / 12)) * (0.7 if weekday >= 5 else 1.0)


def _finish(pool: _Pool, at: int) -> None:
    while pool.ends and pool.ends[0][0] <= at:
        _, _, tenant, flavor, node, count = heapq.heappop(pool.ends)
        pool.free[flavor][node] += count
        pool.held[tenant, flavor] -= count


def _job(
    rows: Rows, dice: random.Random, pool: _Pool, place: _NamespaceFlavor, at: int, end: int, short: int, number: int
) -> bool:
    sizes, weights = zip(*SIZES, strict=True)
    size = min(dice.choices(sizes, weights)[0], short)
    free = pool.free[place.flavor]
    node = next((name for name in pool.nodes if free[name] >= size), None)
    if node is None:
        return False
    begin = at + dice.randrange(0, 1800)
    over = min(end, begin + min(int(dice.lognormvariate(math.log(5 * HOUR), 1.1)) + 600, 4 * DAY))
    if begin >= over:
        return False
    free[node] -= size
    pool.held[place.tenant.tenant, place.flavor] += size
    heapq.heappush(pool.ends, (over, number, place.tenant.tenant, place.flavor, node, size))
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
            "end": over,
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
            "end": over,
        }
    )
    return True


def _beside(loaded: Loaded, dice: random.Random, start: int, end: int) -> Iterator[dict[str, Any]]:
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
