"""Summary of waiting times, in a simulation and of a cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[int], part: float, never: int = 0) -> int | None:
    """Percentile by nearest rank; `values` ascend, and `never` more values follow that are larger than all of them."""
    rank = max(0, math.ceil(part * (len(values) + never)) - 1)
    return values[rank] if rank < len(values) else None


def time(seconds: int | None) -> str:
    """A duration in minutes and hours; a dash for none."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds}s"
    minutes = round(seconds / 60)
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}"
