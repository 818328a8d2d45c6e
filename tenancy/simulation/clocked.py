"""The clock of an environment in a simulation: the same decision as on a cluster, every five simulated minutes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.clock.decision import KEY, Desired, desired
from tenancy.clock.usage import Meter, Usage, empty
from tenancy.kube.objects import Object, identity
from tenancy.kube.quantities import units
from tenancy.simulation.objects import uid_of, unchecked
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded

ROUND_SECONDS = 300
"""Simulated seconds between two rounds; on a cluster 30 seconds."""
LAST_ROUNDS = 86400
"""Seconds after the last submission and end for which rounds go on while work waits: a day has all windows of a day."""
RESERVATION_RUN_TIME = 10**9
"""Run time of a reservation: the clock ends it."""


def first_instant(day: dt.date) -> dt.datetime:
    """Start of the next Monday, or of the day itself if it is one: windows of working days are in the run."""
    return dt.datetime.combine(day + dt.timedelta(days=-day.weekday() % 7), dt.time(), dt.UTC)


@dataclass(frozen=True, slots=True)
class JobRun:
    """A time for which a job held its GPUs, in seconds from the start; `ended` is None while it does."""

    uid: str
    namespace: str
    admission: Mapping[str, Any]
    started: int
    ended: int | None

    def workload(self, start: dt.datetime) -> Object:
        """As the API server would have it at the dates of the simulation."""

        def condition(kind: str, seconds: int) -> Object:
            when = (start + dt.timedelta(seconds=seconds)).isoformat()
            return {"type": kind, "status": "True", "lastTransitionTime": when}

        conditions = [condition("Admitted", self.started)]
        if self.ended is not None:
            conditions.append(condition("Finished", self.ended))
        metadata = {"uid": self.uid, "namespace": self.namespace}
        return {"metadata": metadata, "status": {"admission": self.admission, "conditions": conditions}}


@dataclass
class SimulatedClock:
    """State of the clock between two rounds."""

    loaded: Loaded
    start: dt.datetime
    next_round: int = 0
    """Seconds from the start of the next round."""
    ended: list[JobRun] = field(default_factory=list)
    """Times that ended since the last round."""
    reservations: dict[str, int] = field(default_factory=dict)
    """Name of a reservation -> number of its job."""
    queues: dict[Any, Object] = field(default_factory=dict)
    """Queues and Cohorts as they were written last."""
    usage: Usage = field(init=False)
    exhausted_budgets: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.usage = empty(self.start)
        self._meter = Meter(self.loaded.environment, self.loaded.tenants)

    def decide(self, seconds: int, running_jobs: Iterable[JobRun], admitted: set[str]) -> Desired:
        """The queues at `seconds`, by what ran since the last round."""
        instant = self.start + dt.timedelta(seconds=seconds)
        works = [ran.workload(self.start) for ran in (*self.ended, *running_jobs)]
        usage, _ = self._meter.advance(self.usage, works, instant)
        desired_state = desired(self.loaded.environment, self.loaded.tenants, instant, usage, admitted)
        self.usage, self.ended, self.next_round = desired_state.usage, [], seconds + ROUND_SECONDS
        return desired_state

    def changed_queues(self, desired_state: Desired) -> Iterator[Object]:
        """Queues and Cohorts that differ from those written last; what loses quota first."""
        items = [queue.manifest() for queue in (*desired_state.cohorts, *map(unchecked, desired_state.cluster_queues))]
        new_items = {identity(item): item for item in items}
        changed_items = [(key, item) for key, item in new_items.items() if self.queues.get(key) != item]
        changed_items.sort(key=lambda pair: _gpus(pair[1]) - _gpus(self.queues.get(pair[0], {})))
        self.queues = new_items
        return (item for _, item in changed_items)

    def text(self) -> list[Any]:
        """For a checkpoint, which is not made while GPUs are reserved."""
        ended = [[r.uid, r.namespace, r.admission, r.started, r.ended] for r in self.ended]
        return [self.start.isoformat(), self.next_round, self.usage.text(), ended]

    def restore(self, checkpoint: list[Any]) -> None:
        """Go on from a checkpoint."""
        start, self.next_round, usage, ended = checkpoint
        self.start, self.usage = dt.datetime.fromisoformat(start), Usage.read(usage)
        self.ended = [JobRun(*row) for row in ended]


def _gpus(item: Mapping[str, Any]) -> float:
    groups = (item.get("spec") or {}).get("resourceGroups") or ()
    return sum(
        float(units(resource["nominalQuota"]))
        for group in groups
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if "/" in resource["name"]
    )


def reservation_job(item: Object, now: int) -> Job:
    """A reservation as a job of a trace: it holds its GPUs until the clock ends it."""
    tenant, flavor = item["metadata"]["annotations"][KEY].split("/")[:2]
    count = item["spec"]["podSets"][0]["count"]
    return Job(
        item["metadata"]["name"], now, tenant, vocabulary.PLATFORM_NAMESPACE, flavor, count, 1, RESERVATION_RUN_TIME, ""
    )


def reservation(item: Object, number: int, created: dt.datetime) -> Object:
    """The Workload of a reservation under the number of its job."""
    metadata = {
        **item["metadata"],
        "name": f"job-{number}",
        "uid": uid_of(number),
        "generation": 1,
        "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
    }
    return {**item, "metadata": metadata, "spec": {"active": True, "priority": 0, **item["spec"]}}
