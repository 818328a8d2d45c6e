"""Where months, weeks and days begin, in whatever time zone the books are kept."""

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
"""Times are from 1970 on and before this: calendars end with the year 9999, and a period ends after it begins."""


LONGEST = 10 * 366 * 24 * 3600
"""Seconds of a range: in more, what is held has no room in 64 bits."""


class By(StrEnum):
    MONTH = "month"
    WEEK = "week"  # from Monday
    DAY = "day"
    RANGE = "range"  # not cut


class Period(NamedTuple):
    """Seconds since 1970, the end excluded; `whole` unless the range cuts it short."""

    name: str
    start: int
    end: int
    whole: bool
    length: int
    """Seconds of the whole period, of which this may be a part."""


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Violation("bill-09", f"--zone {name!r}", "use a name such as UTC or Europe/Berlin") from None


def moment(text: str, zone: ZoneInfo) -> int:
    """A day, which begins at its midnight in the zone, or a time; without an offset it is the zone's."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise Violation("bill-09", f"time {text!r}", "write 2026-10-01 or 2026-10-01T06:00:00+02:00") from None
    try:
        at = int((found if found.tzinfo else found.replace(tzinfo=zone)).timestamp())
    except (OverflowError, ValueError):
        at = -1
    if not 0 <= at < LAST:
        raise Violation("bill-09", f"time {text!r}", "write a day from 1970 on and before 9999")
    return at


def periods(start: int, end: int, by: By, zone: ZoneInfo) -> list[Period]:
    """The range, cut at the borders of calendar periods. A day with a change of clocks has 23 or 25 hours."""
    if start >= end:
        given = f"a range from {written(start, zone)} to {written(end, zone)}"
        raise Violation("bill-09", given, "let it end after it begins; the end is excluded")
    if end - start > LONGEST:
        given = f"a range from {written(start, zone)} to {written(end, zone)}"
        raise Violation("bill-09", given, "ask for ten years at most")
    if by is By.RANGE:
        return [Period(f"{written(start, zone)}/{written(end, zone)}", start, end, True, end - start)]
    found, day = [], _first(dt.datetime.fromtimestamp(start, zone).date(), by)
    while (begin := _midnight(day, zone)) < end:
        following = _next(day, by)
        over = _midnight(following, zone)
        cut = max(begin, start), min(over, end)
        if cut[0] < cut[1]:
            found.append(Period(_name(day, by), *cut, cut == (begin, over), over - begin))
        day = following
    return found


def written(moment: int, zone: dt.tzinfo = dt.UTC) -> str:
    return dt.datetime.fromtimestamp(moment, zone).isoformat().replace("+00:00", "Z")


def _midnight(day: dt.date, zone: ZoneInfo) -> int:
    return int(dt.datetime.combine(day, dt.time(), zone).timestamp())


def _first(day: dt.date, by: By) -> dt.date:
    match by:
        case By.MONTH:
            return day.replace(day=1)
        case By.WEEK:
            return day - dt.timedelta(days=day.weekday())
    return day


def _next(day: dt.date, by: By) -> dt.date:
    match by:
        case By.MONTH:
            return (day + dt.timedelta(days=31)).replace(day=1)
        case By.WEEK:
            return day + dt.timedelta(days=7)
    return day + dt.timedelta(days=1)


def _name(day: dt.date, by: By) -> str:
    match by:
        case By.MONTH:
            return f"{day:%Y-%m}"
        case By.WEEK:
            return f"{day:%G-W%V}"
    return day.isoformat()


class Window(NamedTuple):
    """A stretch of a period in which guarantees stay the same and data is there, or is not."""

    start: int
    end: int
    period: int
    gap: bool


def windows(found: list[Period], borders: Iterable[int], gaps: Iterable[tuple[int, int]]) -> list[Window]:
    """The periods, cut where something changes that holds for all nodes."""
    start, end = found[0].start, found[-1].end
    missing = union(gaps)
    marks = {period.start for period in found} | {end}
    marks |= {mark for mark in borders if start < mark < end}
    marks |= {mark for gap in missing for mark in gap if start < mark < end}
    ordered = sorted(marks)
    starts = [period.start for period in found]
    return [
        Window(a, b, bisect_right(starts, a) - 1, any(gap[0] <= a and b <= gap[1] for gap in missing))
        for a, b in pairwise(ordered)
    ]


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of time without overlaps, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return found
