"""What day it is."""

from __future__ import annotations

import datetime as dt


def today() -> dt.date:
    """UTC's, as AWS ends capacity blocks: by the machine's, a file would hold in one office and not in another."""
    return dt.datetime.now(dt.UTC).date()
