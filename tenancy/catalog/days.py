"""The current day."""

from __future__ import annotations

import datetime as dt


def today() -> dt.date:
    """The day in UTC, as for capacity blocks on AWS. With local time a file could be valid in one office only."""
    return dt.datetime.now(dt.UTC).date()
