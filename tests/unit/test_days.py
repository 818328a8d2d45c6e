"""A day is the same everywhere."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest

from tenancy.catalog.days import today


@pytest.fixture(params=["Etc/GMT+12", "Pacific/Kiritimati"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Zones of a machine, 26 hours apart: at every moment one of them at least has another day than UTC."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_it_is_the_same_day_in_every_time_zone_of_the_machine(zone: str) -> None:
    before = dt.datetime.now(dt.UTC).date()
    assert today() in {before, dt.datetime.now(dt.UTC).date()}, zone
