"""Waiting times of work that started, by queue, from the Workloads that Kueue still keeps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.catalog.waits import percentile, time
from tenancy.cluster.api import Api
from tenancy.kube.objects import true_conditions
from tenancy.kube.requests import collection
from tenancy.planning.queueing.queue_names import API

DAYS = 7
"""Work that started in so many days counts; `queues.finished-workload-retention` may keep less."""


@dataclass(frozen=True, slots=True)
class PastWaits:
    """Seconds from creation to admission of work that a queue admitted."""

    started: int
    median: int | None
    """None if it started nothing; likewise p95."""
    p95: int | None

    @classmethod
    def from_seconds(cls, waits: Sequence[int]) -> PastWaits:
        """The summary of waits, which ascend."""
        return cls(len(waits), percentile(waits, 0.5), percentile(waits, 0.95))

    def __str__(self) -> str:
        return f"{time(self.median)}, p95 {time(self.p95)} ({self.started} started)"


def past_waits(api: Api, now: dt.datetime) -> dict[str, PastWaits]:
    """Waits by name of the ClusterQueue; a queue that started nothing is missing. ApiUnreachable without Kueue.

    Work that was evicted and started again counts with its last start.
    """
    seconds_by_queue: dict[str, list[int]] = {}
    for queue, wait in _waits(api.paged_items(collection(API, "Workload")), now - dt.timedelta(days=DAYS)):
        seconds_by_queue.setdefault(queue, []).append(wait)
    return {queue: PastWaits.from_seconds(sorted(waits)) for queue, waits in seconds_by_queue.items()}


def _waits(workloads: Iterable[Mapping[str, Any]], earliest: dt.datetime) -> Iterable[tuple[str, int]]:
    for workload in workloads:
        status = workload.get("status") or {}
        queue = (status.get("admission") or {}).get("clusterQueue")
        admission = true_conditions(workload).get("Admitted")
        if not queue or admission is None:
            continue
        start_time = dt.datetime.fromisoformat(admission["lastTransitionTime"])
        if start_time >= earliest:
            waited = start_time - dt.datetime.fromisoformat(workload["metadata"]["creationTimestamp"])
            yield queue, max(0, int(waited.total_seconds()))
