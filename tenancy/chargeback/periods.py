"""Boundaries of months, weeks and days in a given time zone."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tenancy.rules.catalogue import Violation

LAST = int(dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp())
"""Exclusive end of times, which start in 1970: calendars end with the year 9999, and a period ends after it begins."""


LONGEST = 10 * 366 * 24 * 3600
"""Max seconds of a range; in a longer one, held capacity does not fit into 64 bits."""


class PeriodLength(StrEnum):
    """Length of a billing period."""

    MONTH = "month"
    WEEK = "week"  # from Monday
    DAY = "day"
    RANGE = "range"  # one period


class Period(NamedTuple):
    """Seconds since 1970, the end excluded; `whole` unless the range cuts it short."""

    name: str
    start: int
    end: int
    is_whole: bool
    length: int
    """Seconds of the whole period, of which this may be a part."""


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name; raises Violation for an unknown one."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Violation("bill-09", f"--timezone {name!r}", "use a name such as UTC or Europe/Berlin") from None


def moment(text: str, zone: ZoneInfo) -> int:
    """Parse a date, which means its midnight in the zone, or a time, which is in the zone if it has no offset."""
    try:
        parsed = dt.datetime.fromisoformat(text)
    except ValueError:
        raise Violation("bill-09", f"time {text!r}", "write 2026-10-01 or 2026-10-01T06:00:00+02:00") from None
    try:
        seconds = int((parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)).timestamp())
    except (OverflowError, ValueError):
        seconds = -1
    if not 0 <= seconds < LAST:
        raise Violation("bill-09", f"time {text!r}", "write a date from 1970 to 9998")
    return seconds


def periods(start: int, end: int, by: PeriodLength, zone: ZoneInfo) -> list[Period]:
    """Split the range at the boundaries of calendar periods. A day with a change of clocks has 23 or 25 hours."""
    if start >= end:
        observation = f"a range from {iso_time(start, zone)} to {iso_time(end, zone)}"
        raise Violation("bill-09", observation, "write an end after the start; the end is exclusive")
    if end - start > LONGEST:
        observation = f"a range from {iso_time(start, zone)} to {iso_time(end, zone)}"
        raise Violation("bill-09", observation, "write a range of at most ten years")
    if by is PeriodLength.RANGE:
        return [Period(f"{iso_time(start, zone)}/{iso_time(end, zone)}", start, end, True, end - start)]
    result, day = [], _first(dt.datetime.fromtimestamp(start, zone).date(), by)
    while (begin := _midnight(day, zone)) < end:
        following = _next(day, by)
        following_start = _midnight(following, zone)
        clipped = max(begin, start), min(following_start, end)
        if clipped[0] < clipped[1]:
            result.append(
                Period(_name(day, by), *clipped, clipped == (begin, following_start), following_start - begin)
            )
        day = following
    return result


def iso_time(moment: int, zone: dt.tzinfo = dt.UTC) -> str:
    """A time in seconds since 1970, in ISO 8601."""
    return dt.datetime.fromtimestamp(moment, zone).isoformat().replace("+00:00", "Z")


def _midnight(day: dt.date, zone: ZoneInfo) -> int:
    return int(dt.datetime.combine(day, dt.time(), zone).timestamp())


def _first(day: dt.date, by: PeriodLength) -> dt.date:
    match by:
        case PeriodLength.MONTH:
            return day.replace(day=1)
        case PeriodLength.WEEK:
            return day - dt.timedelta(days=day.weekday())
    return day


def _next(day: dt.date, by: PeriodLength) -> dt.date:
    match by:
        case PeriodLength.MONTH:
            return (day + dt.timedelta(days=31)).replace(day=1)
        case PeriodLength.WEEK:
            return day + dt.timedelta(days=7)
    return day + dt.timedelta(days=1)


def _name(day: dt.date, by: PeriodLength) -> str:
    match by:
        case PeriodLength.MONTH:
            return f"{day:%Y-%m}"
        case PeriodLength.WEEK:
            return f"{day:%G-W%V}"
    return day.isoformat()


class Window(NamedTuple):
    """Part of a period with constant guarantees, and entirely with or without data."""

    start: int
    end: int
    period: int
    gap: bool


def windows(periods: list[Period], borders: Iterable[int], gaps: Iterable[tuple[int, int]]) -> list[Window]:
    """The periods, split where guarantees or the presence of data change."""
    start, end = periods[0].start, periods[-1].end
    missing = union(gaps)
    borders_in_range = {period.start for period in periods} | {end}
    borders_in_range |= {mark for mark in borders if start < mark < end}
    borders_in_range |= {mark for gap in missing for mark in gap if start < mark < end}
    ordered = sorted(borders_in_range)
    starts = [period.start for period in periods]
    return [
        Window(a, b, bisect_right(starts, a) - 1, any(gap[0] <= a and b <= gap[1] for gap in missing))
        for a, b in pairwise(ordered)
    ]


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Time intervals, merged where they overlap, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged
