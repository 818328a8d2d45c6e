"""Windows and further shares of tenants against what the pools have, at every instant of more than a year.

Between two instants at which a window or a share begins, what is held only becomes less: those instants are judged.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tenancy.catalog.sizes import MAX_GRACE_SECONDS
from tenancy.spec.checks.guarantees import Offers, oversold_guarantees
from tenancy.spec.checks.indexed_mistakes import IndexedMistake
from tenancy.spec.fields.calendar import TEMPORARY_SHARE_LEAD, GpuWindow, Interval
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.queues import seconds
from tenancy.spec.fields.shares import WhenSpent
from tenancy.spec.fields.tenant import OffboardingStage, Tenant
from tenancy.spec.reading.mistakes import Mistake, rule_mistake
from tenancy.spec.reading.source import Location

HORIZON = dt.timedelta(days=372)
"""Every pair of days on which two zones change their clocks is in a year."""
FARTHEST = dt.timedelta(days=3 * 366)
"""Days ahead for which shares with a last day are judged; one that ends later is refused, so that files which are
valid today are valid on each later day."""


class _ExtraGpus(NamedTuple):
    """GPUs that a tenant holds on top of its guarantee in an interval."""

    tenant: int
    where: Location
    flavor: str
    gpus: int
    description: str


def calendar_mistakes(
    environment: Environment, offers: Offers, tenants: Sequence[Tenant], day: dt.date
) -> Iterator[IndexedMistake]:
    """Mistakes in windows, further shares and binding budgets, from that day on."""
    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    timed_tenants = [(index, tenant) for index, tenant in enumerate(tenants) if tenant.changes_with_time]
    for index, tenant in timed_tenants:
        for mistake in _of_tenant(environment, tenant, start + FARTHEST):
            yield index, mistake
    # A flavor that is not there is reported by itself, and so are guarantees that are too high without any window.
    timed_tenants = [
        (index, tenant) for index, tenant in timed_tenants if tenant.offboarding is not OffboardingStage.REMOVE
    ]
    if timed_tenants and not any(True for _ in oversold_guarantees(offers, tenants)):
        yield from _oversold(offers, tenants, timed_tenants, start)


def _of_tenant(environment: Environment, tenant: Tenant, limit: dt.datetime) -> Iterator[Mistake]:
    location: Location = ("gpu-windows",) if tenant.gpu_windows else ("gpus",)
    budget = tenant.budget
    binding = budget is not None and budget.when_spent is not WhenSpent.ALERT
    if binding:
        location = ("budget", "when-spent")
    for flavor, share in tenant.gpus.items():
        for i, temporary_share in enumerate(share.temporary_shares):
            if temporary_share.interval.end > limit:
                fault = f"until: {temporary_share.until}, after {limit:%Y-%m-%d}, the last day that is judged"
                yield rule_mistake(
                    ("gpus", flavor, "temporary-shares", i, "until"), "time-02", fault, "write an earlier day"
                )
    if not environment.has_clock:
        state = "queues.clock: false" if environment.has_queues else "queues.scheduler: none"
        yield rule_mistake(location, "time-01", f"{'.'.join(map(str, location))} with {state}")
        return
    if binding and budget and not environment.prices and not budget.monthly_gpu_hours:
        fault = f"when-spent: {budget.when_spent} in an environment without prices"
        yield rule_mistake(("budget", "when-spent"), "time-04", fault)
    ready_within = environment.queues.pods_ready_timeout
    for i, window in enumerate(tenant.gpu_windows):
        if not MAX_GRACE_SECONDS < seconds(window.reclaim_lead_time) <= seconds(ready_within):
            yield rule_mistake(
                ("gpu-windows", i, "reclaim-lead-time"),
                "time-03",
                f"reclaim-lead-time: {window.reclaim_lead_time} with pods-ready-timeout: {ready_within}",
            )


@cache
def _times(window: GpuWindow, start: dt.datetime, end: dt.datetime) -> tuple[Interval, ...]:
    return tuple(
        Interval(interval.start - window.lead_time, interval.end) for interval in window.intervals_between(start, end)
    )


def _extra_gpus(
    index: int, tenant: Tenant, start: dt.datetime, end: dt.datetime
) -> Iterator[tuple[Interval, _ExtraGpus]]:
    for i, window in enumerate(tenant.gpu_windows):
        description = f"window {window.name} of {tenant.tenant} {window.gpus}"
        extra_gpus = _ExtraGpus(index, ("gpu-windows", i, "gpus"), window.flavor, window.gpus, description)
        # One schedule of many tenants is computed once.
        schedule = window.model_copy(update={"name": "schedule", "flavor": "any", "gpus": 1})
        for interval in _times(schedule, start, end):
            yield interval, extra_gpus
    for flavor, share in tenant.gpus.items():
        for i, temporary_share in enumerate(share.temporary_shares):
            description = f"temporary share of {tenant.tenant} {temporary_share.gpus}"
            interval = Interval(temporary_share.interval.start - TEMPORARY_SHARE_LEAD, temporary_share.interval.end)
            yield (
                interval,
                _ExtraGpus(
                    index, ("gpus", flavor, "temporary-shares", i, "gpus"), flavor, temporary_share.gpus, description
                ),
            )


def _oversold(
    offers: Offers, tenants: Sequence[Tenant], timed_tenants: Sequence[tuple[int, Tenant]], start: dt.datetime
) -> Iterator[IndexedMistake]:
    ends = [
        more.interval.end
        for _, tenant in timed_tenants
        for share in tenant.gpus.values()
        for more in share.temporary_shares
    ]
    end = min(max([start + HORIZON, *ends]), start + FARTHEST)
    events: dict[dt.datetime, tuple[list[_ExtraGpus], list[_ExtraGpus]]] = {}
    for index, tenant in timed_tenants:
        for interval, extra_gpus in _extra_gpus(index, tenant, start, end):
            if interval.end > start and extra_gpus.flavor in offers:
                events.setdefault(interval.start, ([], []))[0].append(extra_gpus)
                events.setdefault(interval.end, ([], []))[1].append(extra_gpus)
    active_counts: Counter[_ExtraGpus] = Counter()
    checked: set[frozenset[_ExtraGpus]] = set()
    reported: set[Location] = set()
    for moment in sorted(events):
        started, ended = events[moment]
        active_counts.subtract(ended)
        active_counts.update(started)
        active = frozenset(+active_counts)
        if not started or active in checked:
            continue
        checked.add(active)
        more: Counter[tuple[int, str]] = Counter()
        for extra_gpus in active:
            more[extra_gpus.tenant, extra_gpus.flavor] += extra_gpus.gpus
        for mistake in (oversold.mistake for oversold in oversold_guarantees(offers, tenants, more)):
            flavor = str(mistake.location[1])
            last = max(
                (extra_gpus for extra_gpus in started if extra_gpus.flavor == flavor),
                key=lambda extra_gpus: extra_gpus[:2],
                default=None,
            )
            if last and (place := (last.tenant, *last.where)) not in reported:
                reported.add(place)
                share_texts = " + ".join(
                    sorted(extra_gpus.description for extra_gpus in active if extra_gpus.flavor == flavor)
                )
                fault = f"{share_texts}, with which it is {mistake.given}, from {moment:%Y-%m-%d %H:%M} UTC"
                yield last.tenant, rule_mistake(last.where, "time-02", fault)
