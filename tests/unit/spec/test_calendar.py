"""When windows are: on days on which clocks change, in leap years, over midnight; and what pools must have then."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.spec.fields.calendar import WEEK, GpuWindow
from tenancy.spec.reading.problems import SpecError
from tests.conftest import SpecFolder, in_days
from tests.spec_cases import ENV, FRAUD, RESEARCH

ZONES = {"Europe/Berlin": 60, "America/New_York": 60, "Australia/Lord_Howe": 30}
"""Zones, and by how many minutes their clocks change."""
CLOCK = "queues: {clock: true}\n"
MINUTE = dt.timedelta(minutes=1)


def window(**fields: object) -> GpuWindow:
    base = {"name": "close", "flavor": "a100", "gpus": 8, "days": "mon-sun", "starts": "17:00", "ends": "20:00"}
    return GpuWindow.from_file({**base, **fields})


def changes(zone: str, year: int) -> list[dt.date]:
    """Days on which the zone's clocks change."""
    time_zone = ZoneInfo(zone)
    days = [dt.date(year, 1, 1) + dt.timedelta(days=n) for n in range(365)]

    def offset(day: dt.date) -> dt.timedelta | None:
        return dt.datetime(day.year, day.month, day.day, tzinfo=time_zone).utcoffset()

    return [day for day in days if offset(day) != offset(day + dt.timedelta(days=1))]


def minutes_shown(zone: str, day: dt.date, starts: dt.time, ends: dt.time) -> list[dt.datetime]:
    """Every minute, in UTC, at which clocks of the zone show the day and a time from `starts` up to `ends`."""
    first = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC) - dt.timedelta(days=1)
    minutes = []
    for n in range(3 * 24 * 60):
        local = (first + n * MINUTE).astimezone(ZoneInfo(zone))
        if local.date() == day and starts <= local.time() < ends:
            minutes.append(first + n * MINUTE)
    return minutes


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("starts", "ends"), [("00:30", "06:00"), ("02:15", "02:45"), ("01:10", "03:20"), ("17:00", "20:00")]
)
def test_a_window_is_from_the_first_to_the_last_minute_at_which_clocks_show_it(
    zone: str, starts: str, ends: str
) -> None:
    days = changes(zone, 2027)
    assert len(days) == 2
    for day in [*days, dt.date(2028, 2, 29)]:
        minutes = minutes_shown(zone, day, dt.time.fromisoformat(starts), dt.time.fromisoformat(ends))
        interval = window(**{"time-zone": zone}, starts=starts, ends=ends).interval_on(day)
        if not minutes:
            assert interval is None, "clocks skip all of it"
            continue
        assert interval
        assert interval == (minutes[0], minutes[-1] + MINUTE), (zone, day)


@given(
    zone=st.sampled_from(sorted(ZONES)),
    day=st.dates(dt.date(2026, 1, 1), dt.date(2036, 12, 31)),
    starts=st.times(),
    ends=st.times(),
    minute=st.integers(0, 2 * 24 * 60),
)
def test_what_is_asked_at_an_instant_is_what_the_calendar_lists(
    zone: str, day: dt.date, starts: dt.time, ends: dt.time, minute: int
) -> None:
    if f"{starts:%H:%M}" == f"{ends:%H:%M}":
        return
    weekly_window = window(**{"time-zone": zone}, starts=f"{starts:%H:%M}", ends=f"{ends:%H:%M}", days="mon-wed,sat")
    now = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC) + minute * MINUTE
    intervals = list(weekly_window.intervals_between(now - dt.timedelta(days=3), now + dt.timedelta(days=3)))
    assert intervals == sorted(intervals)
    current_intervals = [
        interval for interval in intervals if interval.start - weekly_window.lead_time <= now < interval.end
    ]
    assert weekly_window.interval_at(now) == (current_intervals[0] if current_intervals else None)


def test_days_may_go_over_the_end_of_the_week() -> None:
    assert {WEEK[n] for n in window(days="fri-mon").weekdays} == {"fri", "sat", "sun", "mon"}
    assert {WEEK[n] for n in window(days="mon-wed,sat").weekdays} == {"mon", "tue", "wed", "sat"}


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_starts() -> None:
    interval = window(starts="22:00", ends="06:00", days="fri").interval_on(dt.date(2026, 11, 27))
    assert interval == (dt.datetime(2026, 11, 27, 22, tzinfo=dt.UTC), dt.datetime(2026, 11, 28, 6, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("field", "value", "message_part"),
    [
        ("time_zone", "Europe/Berlim", "a time zone of the IANA database"),
        ("time_zone", "../../etc/passwd", "a time zone of the IANA database"),
        ("starts", "25:00", "a time of day"),
        ("days", "mon-fry", "days of the week"),
        ("ends", "17:00", "a window has a length"),
        ("gpus", 0, "a whole number from 1"),
    ],
)
def test_a_window_that_means_nothing_is_refused(field: str, value: object, message_part: str) -> None:
    fields = {"name": "w", "flavor": "a100", "gpus": 1, "starts": "17:00", "ends": "20:00"} | {field: value}
    with pytest.raises(SpecError) as refused:
        GpuWindow(**fields)
    assert message_part in str(refused.value)


def small(spec: SpecFolder, starts: str = "17:00", zone: str = "Europe/Berlin") -> None:
    """Of 32 a100, 24 are guaranteed. fraud has 8 more from 17 to 20 o'clock in Berlin, research 8 at another time."""
    spec.add(ENV, CLOCK)
    head = "gpu-windows:\n  - {name: close, flavor: a100, gpus: 8, "
    spec.add(FRAUD, head + "starts: '17:00', ends: '20:00', time-zone: Europe/Berlin}\n")
    spec.add(RESEARCH, head + f"starts: '{starts}', ends: '23:00', time-zone: {zone}}}\n")


def test_windows_one_after_another_share_what_is_left(spec: SpecFolder) -> None:
    small(spec, starts="20:15")
    assert spec.problems() == ()


def test_a_lead_needs_the_gpus_as_the_window_does(spec: SpecFolder) -> None:
    small(spec, starts="20:14")
    problem = spec.problem()
    assert (problem.id, problem.field) == ("time-02", "gpu-windows[0].gpus")
    assert "40 guaranteed of 32 a100" in problem.given
    assert problem.line == 15


def test_windows_of_two_zones_are_compared_on_the_days_between_their_changes_too(spec: SpecFolder) -> None:
    """New York changes its clocks three weeks before Berlin in spring: for these 14:15 there is 19:15 in Berlin, and at
    all other times 20:15."""
    small(spec, starts="14:15", zone="America/New_York")
    problem = spec.problem()
    assert problem.id == "time-02"
    spec.edit(RESEARCH, "14:15", "15:15")
    assert spec.problems() == ()


def test_a_further_share_is_judged_on_its_days_and_not_on_others(spec: SpecFolder) -> None:
    spec.add(ENV, CLOCK)
    share = "{gpus: %d, starts: %s, until: %s, reason: quarter close}"
    first, second = share % (8, in_days(10), in_days(20)), share % (8, in_days(15), in_days(30))
    spec.edit(FRAUD, "borrowing-limit: 16}", f"borrowing-limit: 16, temporary-shares: [{first}]}}")
    spec.edit(RESEARCH, "a100: {guaranteed: 8}", f"a100: {{guaranteed: 8, temporary-shares: [{second}]}}")
    assert spec.problem().field == "gpus.a100.temporary-shares[0].gpus"
    spec.edit(RESEARCH, in_days(15), in_days(22))
    assert spec.problems() == ()
