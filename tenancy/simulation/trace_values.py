"""Numbers, times and separators in the texts of traces."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

NO_TIME = (None, "", "None")
"""Values that Philly's own notebook treats as no time."""
_BLANK = re.compile(r"\s*")


def number_in(text: str) -> float | None:
    """A finite number; None if the text is none."""
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def delimiter_of(text: str) -> str:
    """The separator in the first line: spreadsheets use another one where the comma is the decimal separator."""
    first_line = text.partition("\n")[0]
    return max(",;\t", key=first_line.count)


def after_blanks(text: str, position: int) -> int:
    """Position of the next character that is not white space."""
    match = _BLANK.match(text, position)
    return match.end() if match else position


def philly_seconds(start: Any, end: Any) -> float | None:
    """Seconds of an attempt; None where one of its times was not recorded."""
    begin, finish = (moment_in(time) if isinstance(time, str) else None for time in (start, end))
    for time, moment in ((start, begin), (end, finish)):
        if moment is None and time not in NO_TIME:
            raise TypeError(repr(time))
    return None if begin is None or finish is None else finish - begin


def moment_in(text: str) -> float | None:
    """Seconds: a number as it is, a time as seconds since 1970, in UTC if it has no zone."""
    number = number_in(text)
    if number is not None:
        return number
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
