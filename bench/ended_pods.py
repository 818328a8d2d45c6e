"""What it costs that the GPUs of a pod that has ended return with its whole job: the same day with Kueue's feature gate
`ReclaimablePods` off, as the environment configures it, and on."""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenancy.kube.objects import Object
from tenancy.output.tables import Table, as_markdown
from tenancy.planning import make_plan
from tenancy.simulation import objects
from tenancy.simulation.attempts import window_of
from tenancy.simulation.cluster import own_lab
from tenancy.simulation.events import EventKind, Run
from tenancy.simulation.generate import generate
from tenancy.simulation.runner import Runner
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded, load

STACKS = ("bank", "local")
JOBS, HOURS, SEED = 500, 24, 1
FIRST = 0.5
"""Part of a job's run time after which its first pod ends; the others end evenly from then on."""
GATE = "ReclaimablePods"


def ends_of(job: Job) -> list[int]:
    """Seconds of run time after which each pod but the last has ended."""
    pods = job.gpus // job.gpus_per_pod
    return [round(job.duration * (FIRST + (1 - FIRST) * n / (pods - 1))) for n in range(pods - 1)] if pods > 1 else []


class ReturningRunner(Runner):
    """Tells Kueue of each pod that ends, as its integrations do; jobs start again with all of their pods."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._parts: list[tuple[int, int, int, int]] = []
        self._returned = [0] * len(self.jobs)

    def _start(self, number: int, item: Object) -> None:
        super()._start(number, item)
        state = self._states[number]
        for ended, seconds in enumerate(ends_of(self.jobs[number]), 1):
            heapq.heappush(self._parts, (self.now + seconds, number, state.round, ended))

    def _next_round(self, nexts: Sequence[int]) -> list[int]:  # noqa: ARG002
        while self._parts and not self._runs(self._parts[0]):
            heapq.heappop(self._parts)
        return [self._parts[0][0]] if self._parts else []

    def _runs(self, part: tuple[int, int, int, int]) -> bool:
        _, number, round, _ = part
        state = self._states[number]
        return state.round == round and state.started is not None and not state.has_ended

    def _round_if_due(self) -> None:
        while self._next_round(()) and self._parts[0][0] == self.now:
            _, number, _, ended = heapq.heappop(self._parts)
            self._use(number, self._returned[number] - ended)
            self._returned[number] = ended
            self._patch(number, {"reclaimablePods": [{"name": "main", "count": ended}]}, [])
            self._log.check_pending = True
            self._batch += 1

    def _use(self, number: int, pods: int) -> None:
        """Count so many pods more or fewer."""
        gpus = pods * self.jobs[number].gpus_per_pod
        pool = self._flavor(self._states[number].pool)
        self._quotas.use(self._queue[number], pool, self._resource[number], gpus)

    def _leave(self, number: int) -> None:
        self._use(number, self._returned[number])
        self._returned[number] = 0
        super()._leave(number)

    def _release(self, number: int, evicted: Object, *further: Object) -> None:
        super()._release(number, evicted, *further)
        self._patch(number, {"reclaimablePods": None}, [])


def run(loaded: Loaded, jobs: Sequence[Job], returned: bool) -> Run:
    values = objects.kueue_values(loaded)
    manager = values["managerConfig"]
    configured = json.loads(manager["controllerManagerConfigYaml"])
    configured["featureGates"] = {**configured["featureGates"], GATE: returned}
    manager["controllerManagerConfigYaml"] = json.dumps(configured)
    plan = make_plan(loaded, loaded.day)
    with own_lab(values, _say) as cluster:
        cluster.make(objects.cluster_objects(plan))
        cluster.wait_until_active(queue.name for queue in plan.cluster_queues if queue.is_open)
        cluster.wait_until_known()
        cluster.watch()
        runner = ReturningRunner if returned else Runner
        return runner(loaded, jobs, cluster, plan, window_of(jobs, None)).run(_say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def waits_of(jobs: Sequence[Job], run: Run) -> Mapping[int, int]:
    """Seconds from the submission of each job to its first start."""
    started: dict[int, int] = {}
    for event in run.events:
        if event.kind is EventKind.START:
            started.setdefault(event.job, event.time)
    return {number: time - jobs[number].submit for number, time in started.items()}


def measure() -> str:
    return "\n\n".join(map(_measured, STACKS))


def _measured(stack: str) -> str:
    loaded = load(Path(__file__).parents[1] / "stacks" / stack)
    jobs = generate(loaded, JOBS, HOURS, SEED)
    several = [job for job in jobs if job.gpus > job.gpus_per_pod]
    all_hours = sum(job.gpus * job.duration for job in jobs) / 3600
    ended_hours = sum(job.gpus_per_pod * (job.duration - end) for job in several for end in ends_of(job)) / 3600
    rows = []
    for returned, text in ((False, "with their job (the gate is off)"), (True, "at once (the gate is on)")):
        returning_run = run(loaded, jobs, returned)
        waits = sorted(waits_of(jobs, returning_run).values())
        p95, longest = (round(waits[int(part * (len(waits) - 1))] / 60) for part in (0.95, 1))
        evicted = sum(event.kind is EventKind.EVICT for event in returning_run.events)
        rows.append((text, f"{sum(waits) / len(waits) / 60:.1f} min", f"{p95} min", f"{longest} min", evicted))
    header = ("GPUs of ended pods return", "mean wait", "p95", "longest", "evictions")
    text = (
        f"{len(jobs)} jobs, {len(several)} of them with several pods, whose ends are spread evenly over the second "
        f"half of the job's run time: {ended_hours:,.0f} of {all_hours:,.0f} GPU hours are those of pods that have "
        "ended before their job."
    )
    return f"{text}\n\n{as_markdown(Table(f'A day of stacks/{stack}', header, rows))}".replace("## ", "### ")
