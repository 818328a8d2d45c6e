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

from tenancy.kube.objects import true_conditions
from tenancy.kube.quantities import units
from tenancy.planning.queueing.queue_names import pool_of, queue_resource
from tenancy.planning.queueing.quota_shares import part_of_node
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

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
    """GPU time that tenants used in a month up to an instant."""

    until: dt.datetime
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Tenant -> board -> thousandths of a GPU-second."""
    spent_since: Mapping[str, dt.datetime] = field(default_factory=dict)
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
        boards = self.used.get(tenant, {})
        return sum((prices.get(board, Decimal(0)) * count for board, count in boards.items()), Decimal(0)) / HOUR

    def text(self) -> str:
        """As it is stored."""
        spent_times = {tenant: at.isoformat() for tenant, at in sorted(self.spent_since.items())}
        idle = {
            uid: [idle_time.since.isoformat(), idle_time.last.isoformat(), idle_time.warned]
            for uid, idle_time in sorted(self.idle.items())
        }
        granted = sorted(self.granted)
        document = {
            "until": self.until.isoformat(),
            "used": self.used,
            "spent": spent_times,
            "granted": granted,
            "idle": idle,
        }
        return json.dumps(document, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Usage:
        """From its stored text; ValueError if that is none."""
        try:
            document = json.loads(text)
            until = dt.datetime.fromisoformat(document["until"])
            if until.tzinfo is None:
                raise ValueError("a time without a zone")
            used = {
                tenant: {board: int(n) for board, n in boards.items()} for tenant, boards in document["used"].items()
            }
            spent_times = {tenant: dt.datetime.fromisoformat(at) for tenant, at in document["spent"].items()}
            granted = frozenset(map(str, document["granted"]))
            idle = {
                uid: IdleTime(dt.datetime.fromisoformat(since), dt.datetime.fromisoformat(last), int(warned))
                for uid, (since, last, warned) in document.get("idle", {}).items()
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no record of usage: {error}") from error
        return cls(until, used, spent_times, granted, idle)


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
class AllocationTime:
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
        former: Usage,
        workloads: Iterable[Mapping[str, Any]],
        now: dt.datetime,
        running: Mapping[str, Running] | None = None,
    ) -> tuple[Usage, dict[str, Running]]:
        """The record at `now`, and what runs then. `running` is what ran at `before.until`, if that is known.

        A clock that went back adds nothing; a new month starts at 0.
        """
        allocations = ((workload["metadata"]["uid"], self.allocation_time(workload)) for workload in workloads)
        return self.count(former, ((uid, allocation) for uid, allocation in allocations if allocation), now, running)

    def allocation_time(self, workload: Mapping[str, Any]) -> AllocationTime | None:
        """When a Workload holds GPUs of a tenant; None for one that holds none, and for others' work."""
        tenant = self._tenant_of.get(workload["metadata"]["namespace"])
        times = _times(workload) if tenant else None
        return AllocationTime(Running(tenant, self._rate(workload)), *times) if tenant and times else None

    def count(
        self,
        former: Usage,
        allocations: Iterable[tuple[str, AllocationTime]],
        now: dt.datetime,
        running: Mapping[str, Running] | None = None,
    ) -> tuple[Usage, dict[str, Running]]:
        """The same as `advance`, for Workloads whose times are known: uid and time."""
        if now <= former.until:
            return former, dict(running or {})
        is_same_month = former.month == f"{now:%Y-%m}"
        used = {tenant: dict(boards) for tenant, boards in former.used.items()} if is_same_month else {}
        start = max(former.until, month_start(now))
        still_running: dict[str, Running] = {}
        seen_uids: set[str] = set()

        def add(work: Running, begin: dt.datetime, end: dt.datetime) -> None:
            count = (max(begin, start), min(end, now))
            if count[0] < count[1]:
                milliseconds = (count[1] - count[0]) // dt.timedelta(milliseconds=1)
                boards = used.setdefault(work.tenant, {})
                for board, rate in work.rate.items():
                    boards[board] = boards.get(board, 0) + rate * milliseconds // MILLI

        for uid, allocation in allocations:
            seen_uids.add(uid)
            add(allocation.work, allocation.begin, allocation.end or now)
            if allocation.end is None:
                still_running[uid] = allocation.work
        for uid, work in (running or {}).items():
            if uid not in seen_uids:
                add(work, start, now)
        return Usage(now, used, former.spent_since if is_same_month else {}, former.granted, former.idle), still_running

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
    conditions = true_conditions(workload)
    if not status.get("admission") or "Admitted" not in conditions:
        return None
    ended = conditions.get("Finished")
    return _time(conditions["Admitted"]), _time(ended) if ended else None


def _time(condition: Mapping[str, Any]) -> dt.datetime:
    return dt.datetime.fromisoformat(condition["lastTransitionTime"])
