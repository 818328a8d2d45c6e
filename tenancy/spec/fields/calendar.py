"""When a tenant has more GPUs than its guarantee: windows that recur, and shares with a first and a last day.

Local times are kept on days on which clocks change: a window starts at the first instant at which the zone's clocks
show its start or later, and ends at the last at which they show its end.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from tenancy.spec.fields.base import Day, FlavorName, Positive, Reason, ShortName, Spec, TextForm
from tenancy.spec.fields.queues import Duration, seconds
from tenancy.spec.reading.mistakes import Mistake, form_error

WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = f"({'|'.join(WEEK)})"


class Interval(NamedTuple):
    """A time from `start` up to and without `end`, both in UTC."""

    start: dt.datetime
    end: dt.datetime

    def contains(self, instant: dt.datetime) -> bool:
        """Whether the instant is in it."""
        return self.start <= instant < self.end


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        change = "write one such as UTC or Europe/Berlin"
        raise form_error(repr(name), "a time zone of the IANA database", change) from None
    return name


Zone = Annotated[str, AfterValidator(_zone)]


class _Clock(TextForm):
    """A time of day as HH:MM; for another spelling the message suggests HH:MM."""

    def _suggestion(self, text: str) -> str:
        match = re.fullmatch(r"(\d{1,2})(?::?(\d\d))?\s*([ap])?\.?(?:m\.?)?(?:\s*h)?", text.strip().lower())
        if not match:
            return self.change
        hour = int(match[1]) % 12 + 12 * (match[3] == "p") if match[3] else int(match[1])
        respelling = f"{hour:02}:{match[2] or '00'}"
        return f'write "{respelling}"' if self.compiled.fullmatch(respelling) else self.change


TimeOfDay = Annotated[
    str,
    _Clock(
        r"^([01][0-9]|2[0-3]):[0-5][0-9]$",
        "a time of day, hours and minutes",
        'write hours and minutes in quotes, such as "09:00" for starts and "17:00" for ends',
    ),
]
Weekdays = Annotated[
    str,
    TextForm(
        rf"^{_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)*$", "days of the week, or ranges of them", "write mon-fri or sat,sun"
    ),
]


def instant(local: dt.datetime, zone: ZoneInfo, *, last: bool) -> dt.datetime:
    """The instant, in UTC, at which clocks of the zone show a local time without a zone: the last of two when clocks go
    back, and the instant of the change when they skip it."""
    utc_time = local.replace(tzinfo=zone, fold=int(last)).astimezone(dt.UTC)
    if utc_time.astimezone(zone).replace(tzinfo=None) == local:
        return utc_time
    # The local time does not exist: search from the instant that the offset after the change gives.
    candidate = local.replace(tzinfo=zone, fold=1).astimezone(dt.UTC)
    while candidate.astimezone(zone).replace(tzinfo=None) < local:
        candidate += dt.timedelta(minutes=1)
    return candidate


@cache
def _weekdays(days: str) -> frozenset[int]:
    numbers: set[int] = set()
    for part in days.split(","):
        first, _, last = part.partition("-")
        begin, end = WEEK.index(first), WEEK.index(last or first)
        numbers |= {day % 7 for day in range(begin, end + 1 + 7 * (end < begin))}
    return frozenset(numbers)


# Windows of many tenants have the same times, and the clock asks for the same days each round.
@lru_cache(maxsize=4096)
def _interval(starts: str, ends: str, zone: str, day: dt.date) -> Interval | None:
    first, last = dt.time.fromisoformat(starts), dt.time.fromisoformat(ends)
    last_day = day + dt.timedelta(days=last <= first)
    interval = Interval(
        instant(dt.datetime.combine(day, first), ZoneInfo(zone), last=False),
        instant(dt.datetime.combine(last_day, last), ZoneInfo(zone), last=True),
    )
    # A change of clocks may skip the whole window.
    return interval if interval.start < interval.end else None


class GpuWindow(Spec):
    """A time of the week in which the tenant has more guaranteed GPUs, free at its start."""

    name: ShortName = Field(description="Name of the window, such as end-of-day. Required.")
    flavor: FlavorName = Field(description="A flavor of the tenant's gpus. Required.")
    gpus: Positive = Field(description="GPUs, slices or replicas on top of the guarantee. Required.")
    days: Weekdays = Field(
        default="mon-fri", description="Days on which the window starts, such as mon-fri or sat,sun. Default: mon-fri."
    )
    starts: TimeOfDay = Field(description="Local time at which the GPUs are free. Required.")
    ends: TimeOfDay = Field(
        description="Local time at which the GPUs go back; at or before starts: on the next day. Required."
    )
    time_zone: Zone = Field(default="UTC", description="Time zone of starts and ends. Default: UTC.")
    reclaim_lead_time: Duration = Field(
        default="15m",
        description="Time before the start at which the GPUs are reclaimed from borrowers. Default: 15m, for the grace "
        "period of a preempted pod and of the work that follows.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if self.starts == self.ends:
            fault, rule = f"starts and ends {self.starts}", "a window has a length"
            yield Mistake(("ends",), fault, rule, "for GPUs of the whole day raise guaranteed")

    @property
    def weekdays(self) -> frozenset[int]:
        """Numbers of its days; Monday is 0."""
        return _weekdays(self.days)

    def interval_on(self, day: dt.date) -> Interval | None:
        """The window that starts on a local day, without its lead; None on other days."""
        return _interval(self.starts, self.ends, self.time_zone, day) if day.weekday() in self.weekdays else None

    def intervals_between(self, start: dt.datetime, end: dt.datetime) -> Iterator[Interval]:
        """Every window that touches the time between two instants, in order, without its lead."""
        zone = ZoneInfo(self.time_zone)
        day, last = start.astimezone(zone).date() - dt.timedelta(days=2), end.astimezone(zone).date()
        while day <= last:
            interval = self.interval_on(day)
            if interval and interval.end > start and interval.start < end:
                yield interval
            day += dt.timedelta(days=1)

    @property
    def lead_time(self) -> dt.timedelta:
        """The reclaim lead time."""
        return dt.timedelta(seconds=seconds(self.reclaim_lead_time))

    def interval_at(self, moment: dt.datetime) -> Interval | None:
        """The window at the instant, or whose lead has begun, from its start to its end; None if there is none."""
        for interval in self.intervals_between(moment, moment + self.lead_time + dt.timedelta(seconds=1)):
            if interval.start - self.lead_time <= moment < interval.end:
                return interval
        return None


TEMPORARY_SHARE_LEAD = dt.timedelta(minutes=15)
"""Time before its first day at which a temporary share is reclaimed from borrowers; a window's default lead."""


class TemporaryShare(Spec):
    """GPUs on top of a guarantee from a first to a last day."""

    gpus: Positive = Field(description="GPUs, slices or replicas on top of the guarantee. Required.")
    starts: Day = Field(description="First day. Required.")
    until: Day = Field(description="Last day. Required.")
    time_zone: Zone = Field(default="UTC", description="Time zone in which the days begin. Default: UTC.")
    reason: Reason = Field(description="Reason for the share, one sentence for an auditor. Required.")

    def mistakes(self) -> Iterator[Mistake]:
        if self.until < self.starts:
            fault, rule = f"until {self.until}, before {self.starts}", "the last day is not before the first"
            yield Mistake(("until",), fault, rule, "write a later day, or drop the entry")

    @property
    def interval(self) -> Interval:
        """From midnight of the first day to midnight after the last."""
        zone = ZoneInfo(self.time_zone)
        after = self.until + dt.timedelta(days=1)
        first, last = (dt.datetime.combine(day, dt.time()) for day in (self.starts, after))
        return Interval(instant(first, zone, last=False), instant(last, zone, last=False))
