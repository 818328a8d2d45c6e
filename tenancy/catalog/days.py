"""The current day."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_assumed: ContextVar[dt.date | None] = ContextVar("_assumed", default=None)


def today() -> dt.date:
    """The day in UTC, as for capacity blocks on AWS. With local time a file could be valid in one office only."""
    return _assumed.get() or dt.datetime.now(dt.UTC).date()


@contextmanager
def assumed(day: dt.date) -> Generator[None]:
    """`today` is that day inside, for what is computed for an instant other than now."""
    token = _assumed.set(day)
    try:
        yield
    finally:
        _assumed.reset(token)
