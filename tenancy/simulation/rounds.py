"""A run in an environment with a clock: quotas and states of queues change while it runs, GPUs are reserved, and idle
work is suspended."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.clock.decision import KEY
from tenancy.kube.objects import Object
from tenancy.planning.queueing.queue_names import queue_resource
from tenancy.simulation.checkpoint import Checkpoint
from tenancy.simulation.clocked import LAST_ROUNDS, JobRun, SimulatedClock, reservation, reservation_job
from tenancy.simulation.events import Event, EventKind
from tenancy.simulation.idling import SimulatedIdle, with_owner
from tenancy.simulation.quotas import Quotas
from tenancy.simulation.runner import LAST_WORD_SECONDS, POLL_SECONDS, Runner
from tenancy.simulation.workloads import JobState, version_of


class ClockedRunner(Runner):
    """Runs a trace as Runner does, with a round of the clock every five simulated minutes, and looks at idle work."""

    def __init__(self, *runner_arguments: Any, start: dt.datetime) -> None:
        """`start` is the instant at which the trace begins; all else as for a Runner."""
        super().__init__(*runner_arguments)
        self._time = SimulatedClock(self.loaded, start)
        self._idle = SimulatedIdle(self.loaded, start)
        self._suspending: dict[int, str] = {}
        """Job that was suspended and that Kueue has not evicted yet -> why."""
        self._keys: dict[int, str] = {}
        """Number of a reservation's job -> key of what it reserves."""
        self._busy = 0
        """Time of the last submission or end that is known."""

    def _next_round(self, nexts: Sequence[int]) -> list[int]:
        """Times of the clock's next decisions; empty if nothing but a closed queue is left."""
        if nexts:
            self._busy = max(nexts)
        elif not self._waiting or self.now - self._busy > LAST_ROUNDS:
            return []
        look = self._idle.next()
        return [self._time.next_round, *([] if look is None else [look])]

    def _round(self) -> None:
        """Write what the clock decides, and wait until Kueue has decided about it."""
        running_jobs = [
            self._job_run(n, None) for n, s in enumerate(self._states) if s.started is not None and n < self._trace_jobs
        ]
        desired_state = self._time.decide(self.now, running_jobs, self._admitted())
        changed_queues = list(self._time.changed_queues(desired_state))
        self.cluster.make(changed_queues)
        if changed_queues:
            self._quotas = Quotas(desired_state.cluster_queues, desired_state.cohorts)
            for number, state in enumerate(self._states):
                if state.started is not None:
                    flavor, gpus = self._flavor(state.pool), self.jobs[number].gpus
                    self._quotas.use(self._queue[number], flavor, self._resource[number], gpus)
            closed = {queue.name for queue in desired_state.cluster_queues if not queue.is_open}
            self._held_jobs = self._stopped_jobs | {n for n, queue in enumerate(self._queue) if queue in closed}
        planned = {item["metadata"]["name"]: item for item in desired_state.reservations}
        for name in [name for name in self._time.reservations if name not in planned]:
            self._end_reservation(self._time.reservations.pop(name))
        for name, item in planned.items():
            if name not in self._time.reservations:
                self._time.reservations[name] = self._reserve(item)
        if changed_queues or planned:
            self._wait_until_moved()

    def _job_run(self, number: int, ended: int | None) -> JobRun:
        state, job = self._states[number], self.jobs[number]
        assert state.item is not None
        assert state.started is not None
        space, admission = self._spaces[job.tenant, job.namespace], state.item["status"].get("admission") or {}
        return JobRun(self._name(number), space, admission, state.started, ended)

    def _name(self, number: int) -> str:
        """Identifier of one start of a job."""
        return f"{number}-{self._states[number].round}"

    def _admitted(self) -> set[str]:
        """Keys of spans all of whose reservations run."""
        running_by_key: dict[str, bool] = {}
        for number in self._time.reservations.values():
            key = self._keys[number]
            running_by_key[key] = running_by_key.get(key, True) and self._states[number].started is not None
        return {key for key, all_running in running_by_key.items() if all_running}

    def _reserve(self, item: Object) -> int:
        """Submit a reservation as a job of its own; its number."""
        job, number = reservation_job(item, self.now), len(self.jobs)
        self.jobs.append(job)
        self._queue.append(vocabulary.RESERVE_QUEUE)
        self._resource.append(queue_resource(self.loaded.environment, job.flavor))
        reservation_workload = reservation(item, number, self._base + dt.timedelta(seconds=self.now))
        self._states.append(JobState(written_at=self._clock()))
        self._keys[number] = item["metadata"]["annotations"][KEY]
        self._waiting[number] = None
        self._log.expect_created.add(number)
        self.cluster.put(reservation_workload)
        return number

    def _end_reservation(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._finish(number)

    def _wait_until_moved(self) -> None:
        """Wait until Kueue has taken up changed queues, which takes it about a second."""
        deadline = self._clock() + LAST_WORD_SECONDS
        while self._clock() < deadline:
            self._settle()
            time.sleep(POLL_SECONDS)

    def _round_if_due(self) -> None:
        if self._time.next_round == self.now:
            self._round()
        if self._idle.next() == self.now:
            self._look()

    def _before_release(self, number: int) -> None:
        self._time.ended.append(self._job_run(number, self.now))
        self._idle.ended(number)

    # Idle work

    def _start(self, number: int, item: Object) -> None:
        super()._start(number, item)
        self._watch(number)

    def _watch(self, number: int) -> None:
        """Have the looks find a running job once its GPUs are idle."""
        state = self._states[number]
        if number < self._trace_jobs and state.started is not None:
            job = self.jobs[number]
            space = self._spaces[job.tenant, job.namespace]
            self._idle.started(number, job, space, state.started, state.saved_seconds)

    def _look(self) -> None:
        """Do what the idle rules say, and wait until Kueue has evicted what is suspended."""
        running_jobs = [n for n in self._idle.idle_from if self._states[n].started is not None]
        decision = self._idle.look(self.now, [with_owner(self._item(n), self._name(n)) for n in running_jobs])
        for work, reason in decision.suspensions:
            number = next(n for n in running_jobs if self._name(n) == work.uid)
            self._states[number].item = item = self.cluster.suspend(self._item(number), reason)
            self._unseen_versions[number] = version_of(item)
            self._suspending[number] = reason
        if decision.suspensions:
            self._settle()

    def _rests(self) -> bool:
        return not self._suspending and super()._rests()

    def _evict(self, number: int, condition: Object) -> None:
        if number not in self._suspending:
            super()._evict(number, condition)
            return
        state, job = self._states[number], self.jobs[number]
        assert state.started is not None
        returned_seconds = job.duration - state.saved_seconds - (self.now - state.started)
        reason = self._suspending.pop(number)
        self._note(Event(self.now, EventKind.SUSPEND, number, state.pool, reason, returned_seconds=returned_seconds))
        self._leave(number)
        state.has_ended, state.started = True, None
        self._log.expect_returned.add(number)
        self._release(number, condition)

    # Checkpoints

    def _can_save(self) -> bool:
        return super()._can_save() and not self._time.reservations

    def _checkpoint(self, *, is_final: bool) -> Checkpoint:
        return {**super()._checkpoint(is_final=is_final), "clock": self._time.text(), "idle": self._idle.text()}

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._time.restore(checkpoint["clock"])
        # Quotas as they were, before Kueue sees the work that has them; the next round is when it would have been.
        next_round, self.now = self._time.next_round, checkpoint["now"]
        self._round()
        self._time.next_round = next_round
        super()._restore(checkpoint)
        self._idle.restore(checkpoint["idle"])
        for number in range(self._trace_jobs):
            self._watch(number)
