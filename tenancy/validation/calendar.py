"""Windows and further shares of tenants against what the pools have, at every instant of more than a year.

Between two instants at which a window or a share begins, what is held only becomes less: those instants are judged.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tenancy.catalog.days import today
from tenancy.catalog.sizes import MOST_GRACE
from tenancy.schema.base import Mistake, broken
from tenancy.schema.calendar import MORE_AHEAD, GpuWindow, Interval
from tenancy.schema.environment import Environment
from tenancy.schema.queues import seconds
from tenancy.schema.shares import WhenSpent
from tenancy.schema.source import Location
from tenancy.schema.tenant import Leaving, Tenant
from tenancy.validation.found import Found
from tenancy.validation.shares import Offers, guarantees

HORIZON = dt.timedelta(days=372)
"""Every pair of days on which two zones change their clocks is in a year."""
FARTHEST = dt.timedelta(days=3 * 366)
"""How far ahead shares with a last day are judged; one that ends later is refused, so that files which are valid today
are valid on each later day."""


class _Held(NamedTuple):
    """What a tenant holds on top of its guarantee in an interval."""

    tenant: int
    where: Location
    flavor: str
    gpus: int
    said: str


def calendar(environment: Environment, offers: Offers, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Mistakes in windows, further shares and binding budgets."""
    moving = [(index, tenant) for index, tenant in enumerate(tenants) if tenant.changes_with_time]
    for index, tenant in moving:
        for mistake in _of_tenant(environment, tenant):
            yield index, mistake
    # A flavor that is not there is reported by itself, and so are guarantees that are too high without any window.
    moving = [(index, tenant) for index, tenant in moving if tenant.leaving is not Leaving.REMOVE]
    if moving and not any(True for _ in guarantees(offers, tenants)):
        yield from _oversold(offers, tenants, moving)


def _of_tenant(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    where: Location = ("windows",) if tenant.windows else ("gpus",)
    budget = tenant.budget
    binding = budget is not None and budget.when_spent is not WhenSpent.ALERT
    if binding:
        where = ("budget", "when-spent")
    limit = _first_instant() + FARTHEST
    for flavor, share in tenant.gpus.items():
        for i, more in enumerate(share.more):
            if more.interval.end > limit:
                given = f"until: {more.until}, after {limit:%Y-%m-%d}, the last day that is judged"
                yield broken(("gpus", flavor, "more", i, "until"), "time-02", given, "write an earlier day")
    if not environment.clocked:
        state = "queues.clock: false" if environment.queued else "queues.scheduler: none"
        yield broken(where, "time-01", f"{'.'.join(map(str, where))} with {state}")
        return
    if binding and budget and not environment.prices and not budget.monthly_gpu_hours:
        given = f"when-spent: {budget.when_spent} in an environment without prices"
        yield broken(("budget", "when-spent"), "time-04", given)
    most = environment.queues.pods_ready_within
    for i, window in enumerate(tenant.windows):
        if not MOST_GRACE < seconds(window.lead) <= seconds(most):
            yield broken(("windows", i, "lead"), "time-03", f"lead: {window.lead} with pods-ready-within: {most}")


def _first_instant() -> dt.datetime:
    return dt.datetime.combine(today(), dt.time(), dt.UTC)


@cache
def _times(window: GpuWindow, start: dt.datetime, end: dt.datetime) -> tuple[Interval, ...]:
    return tuple(Interval(each.start - window.ahead, each.end) for each in window.between(start, end))


def _held(index: int, tenant: Tenant, start: dt.datetime, end: dt.datetime) -> Iterator[tuple[Interval, _Held]]:
    for i, window in enumerate(tenant.windows):
        said = f"window {window.name} of {tenant.tenant} {window.gpus}"
        held = _Held(index, ("windows", i, "gpus"), window.flavor, window.gpus, said)
        # One schedule of many tenants is computed once.
        schedule = window.model_copy(update={"name": "schedule", "flavor": "any", "gpus": 1})
        for interval in _times(schedule, start, end):
            yield interval, held
    for flavor, share in tenant.gpus.items():
        for i, more in enumerate(share.more):
            said = f"more of {tenant.tenant} {more.gpus}"
            interval = Interval(more.interval.start - MORE_AHEAD, more.interval.end)
            yield interval, _Held(index, ("gpus", flavor, "more", i, "gpus"), flavor, more.gpus, said)


def _oversold(offers: Offers, tenants: Sequence[Tenant], moving: Sequence[tuple[int, Tenant]]) -> Iterator[Found]:
    start = _first_instant()
    ends = [more.interval.end for _, tenant in moving for share in tenant.gpus.values() for more in share.more]
    end = min(max([start + HORIZON, *ends]), start + FARTHEST)
    events: dict[dt.datetime, tuple[list[_Held], list[_Held]]] = {}
    for index, tenant in moving:
        for interval, held in _held(index, tenant, start, end):
            if interval.end > start and held.flavor in offers:
                events.setdefault(interval.start, ([], []))[0].append(held)
                events.setdefault(interval.end, ([], []))[1].append(held)
    now: Counter[_Held] = Counter()
    judged: set[frozenset[_Held]] = set()
    told: set[Location] = set()
    for moment in sorted(events):
        begun, over = events[moment]
        now.subtract(over)
        now.update(begun)
        active = frozenset(+now)
        if not begun or active in judged:
            continue
        judged.add(active)
        more: Counter[tuple[int, str]] = Counter()
        for held in active:
            more[held.tenant, held.flavor] += held.gpus
        for mistake in (found.mistake for found in guarantees(offers, tenants, more)):
            flavor = str(mistake.where[1])
            last = max((held for held in begun if held.flavor == flavor), key=lambda held: held[:2], default=None)
            if last and (place := (last.tenant, *last.where)) not in told:
                told.add(place)
                others = " + ".join(sorted(held.said for held in active if held.flavor == flavor))
                given = f"{others}, with which it is {mistake.given}, from {moment:%Y-%m-%d %H:%M} UTC"
                yield last.tenant, broken(last.where, "time-02", given)
