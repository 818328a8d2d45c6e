"""Progress of a long step: a live line on a terminal, else a line every half a minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

LINE_INTERVAL = 30.0  # seconds between lines where there is no live line: a CI log shows life, not noise


def duration(seconds: float) -> str:
    """A duration as text, such as 1.5s, 42s or 3m07s."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    total_seconds = round(seconds)
    return f"{total_seconds}s" if total_seconds < 60 else f"{total_seconds // 60}m{total_seconds % 60:02d}s"


class Progress:
    """Lines go to `say`, or to standard error, where a terminal also gets the live line."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say
        self._live = say is None and sys.stderr.isatty()
        self._next = 0.0

    def line(self, text: str) -> None:
        """Print a line that stays."""
        if self._say is not None:
            self._say(text)
        else:
            print(f"\r\x1b[K{text}" if self._live else text, file=sys.stderr, flush=True)

    def begin(self, text: str) -> float:
        """Start a step, and return its time for `tick`."""
        if not self._live:
            self.line(f"{text} …")
        self._next = time.monotonic() + LINE_INTERVAL
        return time.monotonic()

    def tick(self, text: str, since: float) -> None:
        """Show that a step still runs: on a terminal at every call, elsewhere from time to time."""
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text} … {duration(now - since)}")
            sys.stderr.flush()
        elif now >= self._next:
            self._next = now + LINE_INTERVAL
            self.line(f"{text} … {duration(now - since)}")
