"""A day is the same everywhere."""

from __future__ import annotations

import datetime as dt

import pytest

from tenancy.catalog.days import today


@pytest.mark.parametrize("zone", ["Etc/GMT+12", "Pacific/Kiritimati"], indirect=True)
def test_it_is_the_same_day_in_every_time_zone_of_the_machine(zone: str) -> None:
    """Two that are 26 hours apart: at every moment one of them at least has another day than UTC."""
    before = dt.datetime.now(dt.UTC).date()
    assert today() in {before, dt.datetime.now(dt.UTC).date()}, zone
