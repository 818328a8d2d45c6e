"""GPU time of the month, from admitted Workloads; amounts are thousandths of a GPU-second, by board of the flavor.

A Workload counts from its admission to its end, by the times that Kueue writes. One that is deleted or evicted between
two looks counts up to the second of them: no more than one interval too much, and what starts and is deleted between
two looks is not seen.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tenancy.kube.quantities import units
from tenancy.planning.queueing.queue_names import pool_of, queue_resource
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

MILLI = 1000
HOUR = Decimal(3600 * MILLI)

Rate = Mapping[str, int]
"""Board -> thousandths of a GPU that work holds."""


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Work whose GPUs have been idle without interruption."""

    since: dt.datetime
    last: dt.datetime
    """When it was warned last; without a warning, `since`."""
    warned: int = 0
    """Number of warnings."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What tenants used in a month up to an instant."""

    until: dt.datetime
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Tenant -> board -> thousandths of a GPU-second."""
    spent: Mapping[str, dt.datetime] = field(default_factory=dict)
    """Tenant -> when its budget of the month was found spent."""
    granted: frozenset[str] = frozenset()
    """Keys of the spans whose GPUs Kueue has reclaimed and whose tenants have them now."""
    idle: Mapping[str, IdleTime] = field(default_factory=dict)
    """uid of a Workload -> for how long its GPUs have been idle."""

    @property
    def month(self) -> str:
        """The month that it counts, such as 2026-11."""
        return f"{self.until:%Y-%m}"

    def gpu_hours(self, tenant: str) -> Decimal:
        """GPU-hours of the tenant in the month."""
        return sum(self.used.get(tenant, {}).values()) / HOUR

    def dollars(self, tenant: str, prices: Mapping[str, Decimal]) -> Decimal:
        """Cost of the tenant's GPU-hours by the price of each board; a board without a price costs nothing."""
        of = self.used.get(tenant, {})
        return sum((prices.get(board, Decimal(0)) * count for board, count in of.items()), Decimal(0)) / HOUR

    def text(self) -> str:
        """As it is stored."""
        spent = {tenant: at.isoformat() for tenant, at in sorted(self.spent.items())}
        idle = {
            uid: [each.since.isoformat(), each.last.isoformat(), each.warned] for uid, each in sorted(self.idle.items())
        }
        granted = sorted(self.granted)
        said = {"until": self.until.isoformat(), "used": self.used, "spent": spent, "granted": granted, "idle": idle}
        return json.dumps(said, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Usage:
        """From its stored text; ValueError if that is none."""
        try:
            found = json.loads(text)
            until = dt.datetime.fromisoformat(found["until"])
            if until.tzinfo is None:
                raise ValueError("a time without a zone")
            used = {tenant: {board: int(n) for board, n in of.items()} for tenant, of in found["used"].items()}
            spent = {tenant: dt.datetime.fromisoformat(at) for tenant, at in found["spent"].items()}
            granted = frozenset(map(str, found["granted"]))
            idle = {
                uid: IdleTime(dt.datetime.fromisoformat(since), dt.datetime.fromisoformat(last), int(warned))
                for uid, (since, last, warned) in found.get("idle", {}).items()
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no record of usage: {error}") from error
        return cls(until, used, spent, granted, idle)


def month_start(now: dt.datetime) -> dt.datetime:
    """Begin of the instant's month, UTC."""
    return now.astimezone(dt.UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(now: dt.datetime) -> dt.datetime:
    """Begin of the month after the instant's."""
    return month_start(month_start(now) + dt.timedelta(days=32))


def empty(now: dt.datetime) -> Usage:
    """The record before the first look: it then counts all work of the month whose Workloads still exist."""
    return Usage(month_start(now))


@dataclass(frozen=True, slots=True)
class Running:
    """Admitted work that had not ended at the last look."""

    tenant: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class Held:
    """A time for which admitted work holds its GPUs; `end` is None while it does."""

    work: Running
    begin: dt.datetime
    end: dt.datetime | None


class Meter:
    """Counts the GPU time of an environment's Workloads."""

    def __init__(self, environment: Environment, tenants: Iterable[Tenant]) -> None:
        self._environment = environment
        self._tenant_of = {t.namespace_name(n): t.tenant for t in tenants for n in t.namespaces}

    def advance(
        self,
        before: Usage,
        workloads: Iterable[Mapping[str, Any]],
        now: dt.datetime,
        running: Mapping[str, Running] | None = None,
    ) -> tuple[Usage, dict[str, Running]]:
        """The record at `now`, and what runs then. `running` is what ran at `before.until`, if that is known.

        A clock that went back adds nothing; a new month starts at 0.
        """
        found = ((workload["metadata"]["uid"], self.held(workload)) for workload in workloads)
        return self.count(before, ((uid, held) for uid, held in found if held), now, running)

    def held(self, workload: Mapping[str, Any]) -> Held | None:
        """When a Workload holds GPUs of a tenant; None for one that holds none, and for others' work."""
        tenant = self._tenant_of.get(workload["metadata"]["namespace"])
        times = _times(workload) if tenant else None
        return Held(Running(tenant, self._rate(workload)), *times) if tenant and times else None

    def count(
        self,
        before: Usage,
        held: Iterable[tuple[str, Held]],
        now: dt.datetime,
        running: Mapping[str, Running] | None = None,
    ) -> tuple[Usage, dict[str, Running]]:
        """The same as `advance`, for Workloads whose times are known: uid and time."""
        if now <= before.until:
            return before, dict(running or {})
        same = before.month == f"{now:%Y-%m}"
        used = {tenant: dict(of) for tenant, of in before.used.items()} if same else {}
        start = max(before.until, month_start(now))
        on: dict[str, Running] = {}
        seen: set[str] = set()

        def add(work: Running, begin: dt.datetime, end: dt.datetime) -> None:
            count = (max(begin, start), min(end, now))
            if count[0] < count[1]:
                milliseconds = (count[1] - count[0]) // dt.timedelta(milliseconds=1)
                of = used.setdefault(work.tenant, {})
                for board, rate in work.rate.items():
                    of[board] = of.get(board, 0) + rate * milliseconds // MILLI

        for uid, each in held:
            seen.add(uid)
            add(each.work, each.begin, each.end or now)
            if each.end is None:
                on[uid] = each.work
        for uid, work in (running or {}).items():
            if uid not in seen:
                add(work, start, now)
        return Usage(now, used, before.spent if same else {}, before.granted, before.idle), on

    def _rate(self, workload: Mapping[str, Any]) -> Rate:
        rate: dict[str, int] = {}
        for podset in workload["status"]["admission"].get("podSetAssignments") or ():
            used = podset.get("resourceUsage") or {}
            for resource, flavor in (podset.get("flavors") or {}).items():
                pool = pool_of(flavor)
                if pool not in self._environment.pools:
                    continue
                for name in self._environment.flavors_of(pool):
                    if queue_resource(self._environment, name) == resource:
                        gpus = part_of_node(self._environment, pool, name) * self._environment.pools[pool].machine.gpus
                        board = self._environment.flavors[name].gpu
                        count = gpus * units(used.get(resource, 0)) * MILLI
                        rate[board] = rate.get(board, 0) + count.numerator // count.denominator
        return rate


def _times(workload: Mapping[str, Any]) -> tuple[dt.datetime, dt.datetime | None] | None:
    """When it was admitted, and when it ended; None for work that holds no quota."""
    status = workload.get("status") or {}
    found = {c["type"]: c for c in status.get("conditions") or () if c["status"] == "True"}
    if not status.get("admission") or "Admitted" not in found:
        return None
    ended = found.get("Finished")
    return _time(found["Admitted"]), _time(ended) if ended else None


def _time(condition: Mapping[str, Any]) -> dt.datetime:
    return dt.datetime.fromisoformat(condition["lastTransitionTime"])
