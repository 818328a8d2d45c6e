"""The clock of a run: advances to the next event when Kueue has decided everything about the previous one."""

from __future__ import annotations

import datetime as dt
import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any

from tenancy.kube.objects import Object
from tenancy.planning import Plan
from tenancy.planning.queueing.queue_names import flavor_name, queue_name, queue_resource
from tenancy.simulation import cluster as clusters
from tenancy.simulation import objects
from tenancy.simulation.checkpoint import Checkpoint, Store, events_as_rows, events_of
from tenancy.simulation.cluster import SimulationCluster, SimulationStuck
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.kueue_log import KueueLog
from tenancy.simulation.quotas import Quotas
from tenancy.simulation.trace import Job
from tenancy.simulation.workloads import JobState, condition, condition_of, preemptor_of, version_of, without_condition
from tenancy.spec.fields.queues import StopPolicy
from tenancy.spec.loader import Loaded

TIMES = "%Y-%m-%dT%H:%M:%SZ"
POLL_SECONDS = 0.002
CHECKPOINT_SECONDS = 10.0
"""Seconds between two checkpoints, unless a checkpoint takes more than a twentieth of that."""
LONGEST_SETTLE_SECONDS = 1800.0
"""Max seconds for the decisions about one moment; a longer time means an endless loop in Kueue."""
PROGRESS_SECONDS = 15.0

# The next four are of Kueue's own time: see Pulse.
SILENCE_SECONDS = 0.5
"""Seconds without a message about a job after which Kueue has decided nothing about it."""
SHORT_SILENCE_SECONDS = 0.02
"""The same if an equivalent job waits in its queue, because Kueue then does not try the job."""
MOVING_SECONDS = 0.2
"""Seconds between Kueue's log messages that it moves waiting work and that it moved some; moving none is not logged."""
LAST_WORD_SECONDS = 3.0
"""Seconds for Kueue to start a job that fits when no event is left; Kueue itself takes one second."""
DAY = 86400
EVICTED = "EvictedInSimulation"
"""Reason until Kueue has tried the job again and gives its own."""
MAX_CHECKS_AT_ONCE = 100
MAX_WINDOWS = 4
"""Max windows without a check while no waiting job could start without an eviction."""
MAX_EVENTS = 16
"""Max ends between two checks, which are written within the second that Kueue takes."""


class Runner:
    """Runs a trace through Kueue on a simulation cluster."""

    def __init__(
        self,
        loaded: Loaded,
        jobs: Sequence[Job],
        cluster: SimulationCluster,
        plan: Plan,
        window: int,
        store: Store | None = None,
    ) -> None:
        environment = loaded.environment
        self._store = store or Store()
        self._clock: Callable[[], float] = cluster.pulse.now if cluster else lambda: time.monotonic()
        self._checked = self._saved = self._last_progress = self._began = time.monotonic()
        self._saving = 0.0
        self._earlier_seconds = 0.0
        """Real seconds of the earlier runs that this one continues."""
        self.loaded, self.jobs, self.cluster = loaded, list(jobs), cluster
        self._trace_jobs = len(self.jobs)
        """Number of jobs of the trace; the clock's reservations follow them."""
        resources = {flavor: queue_resource(environment, flavor) for flavor in environment.flavors}
        self._quotas = Quotas(plan.cluster_queues, plan.cohorts)
        self._resource = [resources[job.flavor] for job in jobs]
        namespaces = [(tenant, namespace) for tenant in loaded.tenants for namespace in tenant.namespaces]
        tiers = {(tenant.tenant, namespace.name): tenant.tier_of(namespace) for tenant, namespace in namespaces}
        self._spaces = {(t.tenant, namespace.name): t.namespace_name(namespace) for t, namespace in namespaces}
        self._queue = [queue_name(job.tenant, tiers[job.tenant, job.namespace]) for job in jobs]
        held_queues = {queue.name for queue in plan.cluster_queues if not queue.is_open}
        stopped_namespaces = {
            (t.tenant, part.name) for t, part in namespaces if part.stop_policy is not StopPolicy.NONE
        }
        self._stopped_jobs = {n for n, job in enumerate(jobs) if (job.tenant, job.namespace) in stopped_namespaces}
        self._held_jobs = self._stopped_jobs | {n for n, queue in enumerate(self._queue) if queue in held_queues}
        self._pools = {flavor_name(environment, pool): pool for pool in environment.pools}
        last_submission = max((job.submit for job in jobs), default=0)
        self._window = window
        # In the past, so that dates that Kueue takes from the wall clock are always later.
        max_length = last_submission + sum(job.duration for job in jobs) // max(1, len(jobs)) * 50 + 30 * DAY
        self._base = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(seconds=max_length)
        self._states = [JobState() for _ in jobs]
        self._ends: list[tuple[int, int, int]] = []
        self._waiting: dict[int, None] = {}
        self._events: list[Event] = []
        self.now = 0
        self._looks = 0
        self._latest = 0
        self._log = KueueLog(self._clock)
        self._unseen_versions: dict[int, int] = {}
        """Job -> its last written version, if no watch has shown it yet, so that Kueue may not know it."""
        self._looked_at = (-1, 0)
        self._waiting_since: int | None = None
        self._fitting: int | None = None
        self._batch = 0

    # The clock

    def run(self, say: Callable[[str], None]) -> Run:
        """Run until all jobs have ended, from the last checkpoint if there is one."""
        self._began = time.monotonic()
        order = sorted(range(len(self.jobs)), key=lambda n: (self.jobs[n].submit, n))
        self._read()
        self._position = 0
        if checkpoint := self._store.read():
            self._restore(checkpoint)
        while True:
            self._save_now_and_then()
            position = self._position
            nexts = [self.jobs[order[position]].submit] if position < len(order) else []
            nexts += [self._ends[0][0]] if self._ends else []
            nexts += self._next_round(nexts)
            if self._owes_a_look(min(nexts, default=None)):
                self._look_again()
                continue
            if not nexts:
                if self._waiting and self._any_fits() and self._may_start_more():
                    continue
                break
            self.now = min(nexts)
            self._round_if_due()
            while self._ends and self._ends[0][0] == self.now:
                _, number, round = heapq.heappop(self._ends)
                if self._states[number].round == round and not self._states[number].has_ended:
                    self._finish(number)
                    self._batch += 1
            while self._position < len(order) and self.jobs[order[self._position]].submit == self.now:
                self._submit(order[self._position])
                self._position += 1
                self._batch += 1
            self._settle()
            self._drop_stale()
            if time.monotonic() - self._last_progress > PROGRESS_SECONDS:
                self._last_progress = time.monotonic()
                seconds = f"{self._seconds():.0f} s"
                say(
                    f"{self._position} of {len(self.jobs)} jobs submitted, {self.now / 3600:.1f} h simulated, {seconds}"
                )
        self._store.save(self._checkpoint(is_final=True))
        return Run(tuple(self._events), self._seconds(), self._looks, self._latest)

    # What a run with a clock adds

    def _next_round(self, nexts: Sequence[int]) -> list[int]:  # noqa: ARG002
        """Times of the clock's next decisions."""
        return []

    def _round_if_due(self) -> None:
        """Let the clock decide, if it does so now."""

    def _before_release(self, number: int) -> None:
        """A job of the trace is about to release its GPUs."""

    def _note(self, event: Event) -> None:
        """Record what happened to a job of the trace."""
        if event.job < self._trace_jobs:
            self._events.append(event)

    def _seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._began

    # Checkpoints

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved < max(CHECKPOINT_SECONDS, 20 * self._saving):
            return
        if not self._can_save():
            return
        began = time.monotonic()
        self._store.save(self._checkpoint(is_final=False))
        self._saved = time.monotonic()
        self._saving = self._saved - began

    def _can_save(self) -> bool:
        # If a check by Kueue is pending, a new Kueue would do it at once.
        return self._position > 0 and not (self._log.check_pending and self._waiting)

    def _checkpoint(self, *, is_final: bool) -> Checkpoint:
        """The state that another cluster and runner need to continue from this moment, at which Kueue is idle."""
        # Reservations of the clock have ended, and the next cluster knows none of them.
        states = list(enumerate(self._states[: self._trace_jobs]))
        alive = [] if is_final else [n for n, state in states if state.item and not state.has_ended]
        return {
            "done": is_final,
            "now": self.now,
            "at": self._position,
            "base": self._base.isoformat(),
            "seconds": self._seconds(),
            "looks": self._looks,
            "latest": self._latest,
            "looked-at": list(self._looked_at),
            "events": events_as_rows(self._events),
            "ends": [] if is_final else sorted(end for end in self._ends if end[1] < self._trace_jobs),
            "waiting": [] if is_final else list(self._waiting),
            "over": [n for n, state in states if state.has_ended],
            "alive": [
                [n, s.starts, s.started, s.pool, s.saved_seconds, s.round, s.wait_reason, s.item]
                for n, s in ((n, self._states[n]) for n in alive)
            ],
            "queues": [] if is_final else self.cluster.queues(),
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state of an earlier run in the cluster and this runner."""
        self.now, self._position, self._looks, self._latest = (
            checkpoint[key] for key in ("now", "at", "looks", "latest")
        )
        self._base = dt.datetime.fromisoformat(checkpoint["base"])
        self._earlier_seconds = checkpoint["seconds"]
        self._looked_at = (checkpoint["looked-at"][0], checkpoint["looked-at"][1])
        self._events = events_of(checkpoint)
        self._ends = [(time, number, round) for time, number, round in checkpoint["ends"]]
        self._waiting = dict.fromkeys(checkpoint["waiting"])
        for number in checkpoint["over"]:
            self._states[number].has_ended = True
        for number, starts, started, pool, saved_seconds, round, why, item in checkpoint["alive"]:
            state = self._states[number]
            state.starts, state.started, state.pool, state.saved_seconds = starts, started, pool, saved_seconds
            state.round, state.wait_reason, state.item, state.is_seen = round, why, item, started is not None
            if started is not None:
                gpus = self.jobs[number].gpus
                self._quotas.use(self._queue[number], self._flavor(pool), self._resource[number], gpus)
        running_jobs = [row[0] for row in checkpoint["alive"] if row[2] is not None]
        waiting_jobs = [row[0] for row in checkpoint["alive"] if row[2] is None]
        # Kueue must know running work before it sees waiting work, and of that the first of a queue first.
        waiting_jobs.sort(key=lambda n: (-self._item(n)["spec"]["priority"], self.jobs[n].submit, n))
        for numbers in (running_jobs, *([number] for number in waiting_jobs)):
            for number in numbers:
                state = self._states[number]
                item = self._item(number)
                if state.started is None:
                    # Kueue's last message is left out, so that Kueue writes it again and the run can wait for it.
                    item = without_condition(item, "QuotaReserved")
                state.item, state.written_at = None, self._clock()
                self._log.expect_created.add(number)
                self.cluster.put(item)
            self._settle()
        self._log.check_pending = False

    def _item(self, number: int) -> Object:
        item = self._states[number].item
        assert item is not None
        return item

    def _wait(self, began: float) -> None:
        """Wait for a moment; raises Stuck if the cluster makes no progress, or has lost a process."""
        now = time.monotonic()
        if now - self._log.progressed > clusters.STALL_SECONDS:
            raise SimulationStuck(f"Kueue makes no progress for {clusters.STALL_SECONDS:.0f} s: {self._why_not()}")
        if now - began > LONGEST_SETTLE_SECONDS:
            raise SimulationStuck(
                f"Kueue decides about one moment for {LONGEST_SETTLE_SECONDS:.0f} s: {self._why_not()}"
            )
        if now - self._log.progressed > 1 and now - self._checked > 1:
            self._checked = now
            if ended := self.cluster.ended():
                raise SimulationStuck(f"{' and '.join(ended)} of the simulation's cluster ended")
        time.sleep(POLL_SECONDS)

    def _owes_a_look(self, next_time: int | None) -> bool:
        """Whether Kueue has to check waiting work before the clock advances.

        Kueue does so a second after work ended. If the clock did not wait, the starts would depend on the number of
        events that this machine processes in a second.
        """
        if not self._log.check_pending or not self._waiting:
            self._waiting_since = self._fitting = None
            self._batch = 0
            return False
        if self._waiting_since is None:
            self._waiting_since = self.now
            self._batch = 0
        if self._fitting is None and self._any_fits():
            self._fitting = self.now
        if next_time is None or self._batch >= MAX_EVENTS:
            return True
        limit = self._waiting_since + MAX_WINDOWS * self._window
        return next_time > min(limit, limit if self._fitting is None else self._fitting + self._window)

    def _may_start_more(self) -> bool:
        """Whether Kueue may still start a job when no other event is left."""
        deadline = self._clock() + LAST_WORD_SECONDS
        while not self._ends and self._clock() < deadline:
            self._settle()
            time.sleep(POLL_SECONDS)
        return bool(self._ends)

    def _drop_stale(self) -> None:
        while self._ends and (
            self._states[self._ends[0][1]].round != self._ends[0][2] or self._states[self._ends[0][1]].has_ended
        ):
            heapq.heappop(self._ends)

    def _look_again(self) -> None:
        self._looks += 1
        self._looked_at = (self.now, self._looked_at[1] + 1 if self._looked_at[0] == self.now else 1)
        if self._looked_at[1] > MAX_CHECKS_AT_ONCE:
            raise SimulationStuck(f"jobs evict one another without end at {self.now} s.")
        if self._fitting is not None:
            self._latest = max(self._latest, self.now - self._fitting)
        self._waiting_since = self._fitting = None
        self._batch = 0
        began = self._log.progressed = time.monotonic()
        while self._log.check_pending:
            self._read()
            self._follow()
            self._wait(began)
        self._settle()
        self._drop_stale()

    def _any_fits(self) -> bool:
        requests: set[tuple[str, str, int]] = set()
        strict: set[str] = set()
        for number in self._waiting:
            if number in self._held_jobs:
                continue
            queue = self._queue[number]
            if queue in self._quotas.strict:
                # No job overtakes another: only the first one counts, in order of submission.
                if queue in strict:
                    continue
                strict.add(queue)
            requests.add((queue, self._resource[number], self.jobs[number].gpus))
        return any(self._quotas.fits(*request) for request in requests)

    # Writes to the cluster

    def _date(self, seconds: int) -> str:
        return (self._base + dt.timedelta(seconds=seconds)).strftime(TIMES)

    def _submit(self, number: int) -> None:
        job = self.jobs[number]
        self._note(Event(self.now, EventKind.SUBMIT, number))
        self._waiting[number] = None
        state = self._states[number]
        state.is_seen, state.written_at = False, self._clock()
        self._log.expect_created.add(number)
        space, created = self._spaces[job.tenant, job.namespace], self._base + dt.timedelta(seconds=job.submit)
        item = objects.workload(self.loaded, job, space, number, created)
        self.cluster.put(item)

    def _finish(self, number: int) -> None:
        state = self._states[number]
        self._note(Event(self.now, EventKind.FINISH, number, state.pool))
        self._leave(number)
        state.has_ended, state.started = True, None
        self._log.expect_finished.add(number)
        self._patch(number, {}, [self._condition("Finished", "True", "Succeeded", "its time is over")])

    def _evict(self, number: int, condition: Object) -> None:
        """Act as the Job controller on an eviction: end the pods, which takes no time here, and write the status."""
        state, job = self._states[number], self.jobs[number]
        run_seconds = self.now - (state.started if state.started is not None else self.now)
        saved_seconds = (state.saved_seconds + run_seconds) // job.checkpoint * job.checkpoint if job.checkpoint else 0
        preemptor = preemptor_of(state.item)
        lost_seconds = state.saved_seconds + run_seconds - saved_seconds
        self._note(Event(self.now, EventKind.EVICT, number, state.pool, condition["message"], lost_seconds, preemptor))
        state.saved_seconds, state.is_seen = saved_seconds, False
        self._leave(number)
        state.started, state.written_at, state.wait_reason = None, self._clock(), ""
        state.round += 1
        self._waiting[number] = None
        self._log.expect_returned.add(number)
        requeued = self._condition("Requeued", "True", condition["reason"], condition["message"])
        self._release(number, condition, requeued)

    def _release(self, number: int, evicted: Object, *more_conditions: Object) -> None:
        """Write that evicted work has no quota any more."""
        conditions = [
            self._condition("QuotaReserved", "False", EVICTED, evicted["message"]),
            self._condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
        ]
        self._patch(number, {"admission": None}, [*conditions, *more_conditions])

    def _leave(self, number: int) -> None:
        """Release the job's GPUs."""
        state = self._states[number]
        if state.started is not None:
            if number < self._trace_jobs:
                self._before_release(number)
            self._quotas.use(
                self._queue[number], self._flavor(state.pool), self._resource[number], -self.jobs[number].gpus
            )

    def _flavor(self, pool: str) -> str:
        return flavor_name(self.loaded.environment, pool)

    def _start(self, number: int, item: Object) -> None:
        state, job = self._states[number], self.jobs[number]
        flavors = item["status"]["admission"]["podSetAssignments"][0]["flavors"]
        state.pool = self._pools[flavors[self._resource[number]]]
        state.started = self.now
        state.starts += 1
        state.round += 1
        self._waiting.pop(number, None)
        self._quotas.use(self._queue[number], self._flavor(state.pool), self._resource[number], job.gpus)
        self._note(Event(self.now, EventKind.START, number, state.pool))
        if number < self._trace_jobs:
            heapq.heappush(self._ends, (self.now + job.duration - state.saved_seconds, number, state.round))
        # Kueue would write the wall clock's date. Of equal jobs it evicts the latest, so the date has to be the run's.
        quota_condition = condition_of(item, "QuotaReserved")
        self._patch(number, {}, [{**quota_condition, "lastTransitionTime": self._date(self.now)}])

    def _condition(self, kind: str, status: str, reason: str, message: str) -> Object:
        return condition(kind, status, reason, message, self._date(self.now))

    def _patch(self, number: int, status: dict[str, Any], conditions: Sequence[Object]) -> None:
        """Change conditions of a workload, also if Kueue writes at the same time."""
        state = self._states[number]
        for _ in range(20):
            item = state.item
            assert item is not None
            kinds = {condition["type"] for condition in conditions}
            other_conditions = [c for c in item.get("status", {}).get("conditions", []) if c["type"] not in kinds]
            body = {**status, "conditions": [*other_conditions, *conditions]}
            state.item = self.cluster.change_status(item, body)
            if state.item is not None:
                self._unseen_versions[number] = version_of(state.item)
                return
            state.item = self.cluster.read(item)
            if any(condition in state.item.get("status", {}).get("conditions", []) for condition in conditions):
                # The first attempt was written, but etcd's answer came too late.
                self._unseen_versions[number] = version_of(state.item)
                return
        raise SimulationStuck(f"job {self.jobs[number].name} changes faster than it can be written.")

    # Reads from the cluster

    def _settle(self) -> None:
        began = self._log.progressed = time.monotonic()
        idle_rounds = 0
        while True:
            has_changes = self._read()
            has_changes |= self._follow()
            idle_rounds = 0 if has_changes or not self._rests() else idle_rounds + 1
            if idle_rounds >= 2:
                return
            self._wait(began)

    def _rests(self) -> bool:
        if self._log.expect_created or self._log.expect_finished or self._log.expect_returned or self._unseen_versions:
            return False
        # Work in a queue on hold is never checked, however often it is moved.
        if self._log.moved_at is not None and self._clock() - self._log.moved_at < LAST_WORD_SECONDS:
            return False
        if self._log.moving_since is not None and self._clock() - self._log.moving_since < MOVING_SECONDS:
            return False
        # A decision of the scheduler may be written a moment later.
        if any(self._states[number].starts < count for number, count in self._log.assumed.items()):
            return False
        now = self._clock()
        for number in list(self._log.untried):
            if self._states[number].is_seen:
                self._log.untried.discard(number)
            elif now - self._states[number].written_at < self._patience(number):
                return False
            else:
                self._log.untried.discard(number)
        if self._log.idle:
            return True
        strict = sum(queue in self._quotas.strict for queue in {self._queue[number] for number in self._waiting})
        return bool(strict) and self._log.quiet_cycles >= 2 and self._log.heads_per_cycle <= strict

    def _kind(self, number: int) -> tuple[object, ...]:
        """Kueue treats equivalent jobs as one (its feature SchedulingEquivalenceHashing)."""
        job = self.jobs[number]
        return self._queue[number], job.flavor, job.gpus, job.gpus_per_pod, job.tier

    def _patience(self, number: int) -> float:
        kind = self._kind(number)
        has_equivalent = any(
            candidate != number and self._states[candidate].is_seen and self._kind(candidate) == kind
            for candidate in self._waiting
        )
        return SHORT_SILENCE_SECONDS if has_equivalent else SILENCE_SECONDS

    def _why_not(self) -> str:
        assumed = [number for number, count in self._log.assumed.items() if self._states[number].starts < count]
        return (
            f"{len(self._log.expect_created)} jobs not seen, {len(self._log.expect_finished)} ends not seen, "
            f"{len(self._log.expect_returned)} evictions not seen, {len(assumed)} starts not written, "
            f"{len(self._unseen_versions)} writes not seen, "
            f"{'idle' if self._log.idle else 'busy'}"
        )

    def _follow(self) -> bool:
        """Process changes of workloads."""
        has_changes = False
        while not self.cluster.changes.empty():
            item = self.cluster.changes.get()
            has_changes = True
            self._log.progressed = time.monotonic()
            number = int(item["metadata"]["name"].removeprefix("job-"))
            state = self._states[number]
            if version_of(item) >= self._unseen_versions.get(number, 0):
                self._unseen_versions.pop(number, None)
            if state.item is None or version_of(item) >= version_of(state.item):
                state.item = item
            if state.has_ended:
                continue
            self._take(number, item)
        return has_changes

    def _take(self, number: int, item: Object) -> None:
        state = self._states[number]
        quota_condition, admission_condition = condition_of(item, "QuotaReserved"), condition_of(item, "Admitted")
        eviction_condition = condition_of(item, "Evicted")
        if (
            state.started is None
            and admission_condition.get("status") == "True"
            and eviction_condition.get("status") != "True"
        ):
            state.is_seen = True
            self._start(number, item)
        elif (
            state.started is not None and eviction_condition.get("status") == "True" and item["status"].get("admission")
        ):
            self._evict(number, eviction_condition)
        elif (
            state.started is None and quota_condition.get("status") == "False" and quota_condition["reason"] != EVICTED
        ):
            state.is_seen = True
            if quota_condition["message"] != state.wait_reason:
                state.wait_reason = quota_condition["message"]
                self._note(Event(self.now, EventKind.WAIT, number, text=state.wait_reason))

    def _read(self) -> bool:
        """Process lines of Kueue's log."""
        lines = self.cluster.log.lines()
        relevant = False
        for line in lines:
            relevant |= self._log.process(line)
        return relevant
