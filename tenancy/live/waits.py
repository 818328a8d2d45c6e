"""How long work waited for its start, by queue, from the Workloads that Kueue still keeps."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.live.api import Api, collection
from tenancy.planning.queueing.queue_names import API

DAYS = 7
"""Work that started in so many days counts; `queues.keep-finished` may keep less."""


@dataclass(frozen=True, slots=True)
class PastWaits:
    """Seconds from creation to admission of work that a queue admitted."""

    started: int
    median: int
    p95: int

    def __str__(self) -> str:
        return f"{_said(self.median)}, p95 {_said(self.p95)} ({self.started} started)"


def past_waits(api: Api, now: dt.datetime) -> dict[str, PastWaits]:
    """Waits by name of the ClusterQueue; a queue that started nothing is missing. ApiUnreachable without Kueue.

    Work that was evicted and started again counts with its last start.
    """
    found: dict[str, list[int]] = {}
    for page in api.pages(collection(API, "Workload")):
        for queue, wait in _waits(page.get("items") or (), now - dt.timedelta(days=DAYS)):
            found.setdefault(queue, []).append(wait)
    return {queue: _past(sorted(waits)) for queue, waits in found.items()}


def _waits(workloads: Iterable[Mapping[str, Any]], since: dt.datetime) -> Iterable[tuple[str, int]]:
    for workload in workloads:
        status = workload.get("status") or {}
        queue = (status.get("admission") or {}).get("clusterQueue")
        started = next(
            (c["lastTransitionTime"] for c in status.get("conditions") or () if _admitted(c)),
            None,
        )
        if not queue or started is None:
            continue
        at = dt.datetime.fromisoformat(started)
        if at >= since:
            waited = at - dt.datetime.fromisoformat(workload["metadata"]["creationTimestamp"])
            yield queue, max(0, int(waited.total_seconds()))


def _admitted(condition: Mapping[str, Any]) -> bool:
    return condition["type"] == "Admitted" and condition["status"] == "True"


def _past(waits: Sequence[int]) -> PastWaits:
    def rank(part: float) -> int:
        return waits[max(0, math.ceil(part * len(waits)) - 1)]

    return PastWaits(len(waits), rank(0.5), rank(0.95))


def _said(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds}s"
    minutes = round(seconds / 60)
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}"
