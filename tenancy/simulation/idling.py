"""Idle rules in a simulation: the clock's own decision, on samples that the trace implies.

A trace says exactly when GPUs are idle, so looks between which nothing changes can be left out: there is one when the
samples of a look have become idle, and from then on one as often as the decision needs.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tenancy.clock.decision import budget_exemption
from tenancy.clock.idle import COVERED, IdleDecision, Sample, Work, decide, idle_rules, watched_work
from tenancy.clock.usage import IdleTime, Usage
from tenancy.kube.objects import Object
from tenancy.schema.queues import seconds
from tenancy.simulation.events import ENDS, EventKind, Run
from tenancy.simulation.trace import Job
from tenancy.validation import Loaded

LOOK = COVERED // dt.timedelta(seconds=1)
"""Max simulated seconds between two looks while GPUs are idle, or idle time would begin anew; on a cluster 30."""
OWNER = "Job"
"""Kind of what the Workloads of a trace belong to: what is suspended stays so."""


@dataclass
class SimulatedIdle:
    """What the clock knows of idle work between two looks."""

    loaded: Loaded
    start: dt.datetime
    looked: int = -1
    """Seconds from the start of the last look."""
    falls: dict[int, int] = field(default_factory=dict)
    """Number of a running job under an idle rule -> when its GPUs become idle."""
    idle: Mapping[str, IdleTime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        environment = self.loaded.environment
        tenants = [tenant.with_namespace_names(environment.namespace_name) for tenant in self.loaded.tenants]
        self._rules = idle_rules(environment, tenants)
        self.every = min([LOOK, *(seconds(rule.after) for rule in self._rules.values())])
        """Seconds between two looks while GPUs are idle."""

    def started(self, number: int, job: Job, namespace: str, now: int, done: int) -> None:
        """A job starts with `done` seconds of work saved. Samples of a shared GPU name one pod alone, so it never
        counts as idle."""
        fall = job.idle_from(now, done)
        if fall is not None and namespace in self._rules and not self.loaded.environment.flavors[job.flavor].share:
            self.falls[number] = fall

    def ended(self, number: int) -> None:
        """A job has released its GPUs."""
        self.falls.pop(number, None)

    def next(self) -> int | None:
        """When the clock looks next; None while no GPU will be idle."""
        whole = [fall + LOOK for fall in self.falls.values()]
        known = [self.looked + self.every] if any(at <= self.looked for at in whole) else []
        return min([*known, *(at for at in whole if at > self.looked)], default=None)

    def look(self, now: int, items: Iterable[Object]) -> IdleDecision:
        """What follows at `now` for running work, given as Workloads with owners."""
        at = self.start + dt.timedelta(seconds=now)
        works = list(watched_work(self.loaded.environment, self._rules, items))
        found = IdleDecision((), (), {})
        if not budget_exemption(self.loaded.environment, None, at):
            looked = self.start + dt.timedelta(seconds=self.looked)
            quiet = {f"job-{number}" for number, fall in self.falls.items() if fall + LOOK <= now}
            samples = [sample for work in works if work.name in quiet for sample in _samples(work)]
            found = decide(works, samples, at, self.idle, looked)
        self.idle, self.looked = found.idle, now
        return found

    def text(self) -> list[object]:
        """For a checkpoint."""
        return [self.looked, Usage(self.start, idle=self.idle).text()]

    def restore(self, held: list[object]) -> None:
        """Go on from a checkpoint."""
        looked, usage = held
        assert isinstance(looked, int)
        self.looked, self.idle = looked, Usage.read(str(usage)).idle


def _samples(work: Work) -> Iterator[Sample]:
    (owner,) = work.owners
    for device in range(work.gpus):
        yield Sample(work.namespace, "", owner, f"{work.name}/{device}", 0.0)


def owned(item: Object, uid: str) -> Object:
    """A Workload of the run as a controller of jobs would have made it, under a uid of one of its starts: a job that
    was evicted begins anew."""
    owner = {"kind": OWNER, "name": item["metadata"]["name"]}
    return {**item, "metadata": {**item["metadata"], "uid": uid, "ownerReferences": [owner]}}


def idle_times(jobs: Sequence[Job], run: Run, length: int) -> Iterator[tuple[int, str, int, int]]:
    """Times in which jobs hold idle GPUs, within `length` seconds from the start: the job, its pool, begin, end."""
    done: Counter[int] = Counter()
    running: dict[int, tuple[int, str]] = {}

    def span(number: int, end: int) -> Iterator[tuple[int, str, int, int]]:
        begin, pool = running.pop(number)
        fall, over = jobs[number].idle_from(begin, done[number]), min(end, length)
        if fall is not None and fall < over:
            yield number, pool, fall, over

    for event in run.events:
        if event.kind is EventKind.START:
            running[event.job] = (event.time, event.pool)
        elif event.kind in ENDS and event.job in running:
            ran = event.time - running[event.job][0]
            yield from span(event.job, event.time)
            done[event.job] += ran - event.lost
    for number in list(running):
        yield from span(number, length)
