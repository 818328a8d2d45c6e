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
from tenancy.simulation.events import ENDS, EventKind, Run
from tenancy.simulation.trace import Job
from tenancy.spec.fields.queues import seconds
from tenancy.spec.loader import Loaded

SAMPLE_SECONDS = COVERED // dt.timedelta(seconds=1)
"""Max simulated seconds between two looks while GPUs are idle, or idle time would begin anew; on a cluster 30."""
OWNER = "Job"
"""Kind of what the Workloads of a trace belong to: what is suspended stays so."""


@dataclass
class SimulatedIdle:
    """State of the clock about idle work between two samples."""

    loaded: Loaded
    start: dt.datetime
    last_sample: int = -1
    """Seconds from the start of the last look."""
    idle_from: dict[int, int] = field(default_factory=dict)
    """Number of a running job under an idle rule -> when its GPUs become idle."""
    idle: Mapping[str, IdleTime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        environment = self.loaded.environment
        self._rules = idle_rules(environment, self.loaded.tenants)
        self.interval = min([SAMPLE_SECONDS, *(seconds(rule.duration) for rule in self._rules.values())])
        """Seconds between two looks while GPUs are idle."""

    def started(self, number: int, job: Job, namespace: str, seconds: int, saved_seconds: int) -> None:
        """A job starts with `saved_seconds` of its work saved. Samples of a shared GPU name one pod alone, so it never
        counts as idle."""
        fall = job.idle_from(seconds, saved_seconds)
        if (
            fall is not None
            and namespace in self._rules
            and not self.loaded.environment.flavors[job.flavor].gpu_sharing
        ):
            self.idle_from[number] = fall

    def ended(self, number: int) -> None:
        """A job has released its GPUs."""
        self.idle_from.pop(number, None)

    def next(self) -> int | None:
        """Time of the clock's next sample; None while no GPU will be idle."""
        idle_ends = [fall + SAMPLE_SECONDS for fall in self.idle_from.values()]
        next_samples = (
            [self.last_sample + self.interval] if any(second <= self.last_sample for second in idle_ends) else []
        )
        return min([*next_samples, *(second for second in idle_ends if second > self.last_sample)], default=None)

    def look(self, seconds: int, items: Iterable[Object]) -> IdleDecision:
        """Decision at `seconds` for running work, given as Workloads with owners."""
        instant = self.start + dt.timedelta(seconds=seconds)
        works = list(watched_work(self.loaded.environment, self._rules, items))
        decision = IdleDecision((), (), {})
        if not budget_exemption(self.loaded.environment, None, instant):
            previous_instant = self.start + dt.timedelta(seconds=self.last_sample)
            idle_names = {
                f"job-{number}" for number, fall in self.idle_from.items() if fall + SAMPLE_SECONDS <= seconds
            }
            samples = [sample for work in works if work.name in idle_names for sample in _samples(work)]
            decision = decide(works, samples, instant, self.idle, previous_instant)
        self.idle, self.last_sample = decision.idle, seconds
        return decision

    def text(self) -> list[object]:
        """For a checkpoint."""
        return [self.last_sample, Usage(self.start, idle=self.idle).text()]

    def restore(self, checkpoint: list[object]) -> None:
        """Go on from a checkpoint."""
        last_sample, usage = checkpoint
        assert isinstance(last_sample, int)
        self.last_sample, self.idle = last_sample, Usage.read(str(usage)).idle


def _samples(work: Work) -> Iterator[Sample]:
    (owner,) = work.owners
    for device in range(work.gpus):
        yield Sample(work.namespace, "", owner, f"{work.name}/{device}", 0.0)


def with_owner(item: Object, uid: str) -> Object:
    """A Workload of the run as a controller of jobs would have made it, under a uid of one of its starts: a job that
    was evicted begins anew."""
    owner = {"kind": OWNER, "name": item["metadata"]["name"]}
    return {**item, "metadata": {**item["metadata"], "uid": uid, "ownerReferences": [owner]}}


def idle_times(jobs: Sequence[Job], run: Run, length: int) -> Iterator[tuple[int, str, int, int]]:
    """Times in which jobs hold idle GPUs, within `length` seconds from the start: the job, its pool, begin, end."""
    saved_seconds: Counter[int] = Counter()
    running_jobs: dict[int, tuple[int, str]] = {}

    def span(number: int, end: int) -> Iterator[tuple[int, str, int, int]]:
        begin, pool = running_jobs.pop(number)
        fall, span_end = jobs[number].idle_from(begin, saved_seconds[number]), min(end, length)
        if fall is not None and fall < span_end:
            yield number, pool, fall, span_end

    for event in run.events:
        if event.kind is EventKind.START:
            running_jobs[event.job] = (event.time, event.pool)
        elif event.kind in ENDS and event.job in running_jobs:
            ran = event.time - running_jobs[event.job][0]
            yield from span(event.job, event.time)
            saved_seconds[event.job] += ran - event.lost_seconds
    for number in list(running_jobs):
        yield from span(number, length)
