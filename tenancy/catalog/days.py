"""The current day, and which days have passed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_assumed: ContextVar[dt.date | None] = ContextVar("_assumed", default=None)
_deployed: ContextVar[bool] = ContextVar("_deployed", default=False)


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


def past_is_refused() -> bool:
    """Whether an entry is refused because its last day has passed."""
    return not _deployed.get()


@contextmanager
def as_deployed() -> Generator[None]:
    """No entry is refused inside because its last day has passed: it was valid when it was deployed, and the day alone
    made it invalid."""
    token = _deployed.set(True)
    try:
        yield
    finally:
        _deployed.reset(token)
