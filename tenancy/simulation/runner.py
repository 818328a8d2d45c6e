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
from tenancy.schema.queues import QueueState
from tenancy.simulation import cluster as clusters
from tenancy.simulation import objects
from tenancy.simulation.checkpoint import Checkpoint, Store, events_as_rows, events_of
from tenancy.simulation.cluster import SimulationCluster, SimulationStuck
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.kueue_log import KueueLog
from tenancy.simulation.quotas import Quotas
from tenancy.simulation.trace import Job
from tenancy.simulation.workloads import JobState, condition, condition_of, preemptor_of, version_of, without_condition
from tenancy.validation import Loaded

TIMES = "%Y-%m-%dT%H:%M:%SZ"
POLL_SECONDS = 0.002
CHECKPOINT_SECONDS = 10.0
"""Seconds between two checkpoints, unless a checkpoint takes more than a twentieth of that."""
LONGEST_SETTLE_SECONDS = 1800.0
"""Max seconds for the decisions about one moment; a longer time means an endless loop in Kueue."""
SAID_SECONDS = 15.0

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
MOST_LOOKS_AT_ONCE = 100
LONGER = 4
"""Max windows without a check while no waiting job could start without an eviction."""
MOST_EVENTS = 16
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
        self._checked = self._saved = self._shown = self._began = time.monotonic()
        self._saving = 0.0
        self._before = 0.0
        """Real seconds of the earlier runs that this one continues."""
        self.loaded, self.jobs, self.cluster = loaded, list(jobs), cluster
        self._given = len(self.jobs)
        """Number of jobs of the trace; the clock's reservations follow them."""
        resources = {flavor: queue_resource(environment, flavor) for flavor in environment.flavors}
        self._quotas = Quotas(plan.cluster_queues, plan.cohorts)
        self._resource = [resources[job.flavor] for job in jobs]
        tiers = {
            (tenant.tenant, namespace.name): tenant.tier_of(namespace)
            for tenant in loaded.tenants
            for namespace in tenant.namespaces
        }
        self._spaces = {(t.tenant, each.name): t.namespace_name(each) for t in loaded.tenants for each in t.namespaces}
        self._queue = [queue_name(job.tenant, tiers[job.tenant, job.namespace]) for job in jobs]
        held = {queue.name for queue in plan.cluster_queues if not queue.is_open}
        stopped = {
            (t.tenant, each.name) for t in loaded.tenants for each in t.namespaces if each.queue is not QueueState.OPEN
        }
        self._stopped = {n for n, job in enumerate(jobs) if (job.tenant, job.namespace) in stopped}
        self._held = self._stopped | {n for n, queue in enumerate(self._queue) if queue in held}
        self._pools = {flavor_name(environment, pool): pool for pool in environment.pools}
        last = max((job.submit for job in jobs), default=0)
        self._window = window
        # In the past, so that dates that Kueue takes from the wall clock are always later.
        longest = last + sum(job.duration for job in jobs) // max(1, len(jobs)) * 50 + 30 * DAY
        self._base = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(seconds=longest)
        self._states = [JobState() for _ in jobs]
        self._ends: list[tuple[int, int, int]] = []
        self._waiting: dict[int, None] = {}
        self._events: list[Event] = []
        self.now = 0
        self._looks = 0
        self._latest = 0
        self._log = KueueLog(self._clock)
        self._unseen: dict[int, int] = {}
        """Job -> its last written version, if no watch has shown it yet, so that Kueue may not know it."""
        self._looked_at = (-1, 0)
        self._since: int | None = None
        self._fitting: int | None = None
        self._batch = 0

    # The clock

    def run(self, say: Callable[[str], None]) -> Run:
        """Run until all jobs have ended, from the last checkpoint if there is one."""
        self._began = time.monotonic()
        order = sorted(range(len(self.jobs)), key=lambda n: (self.jobs[n].submit, n))
        self._read()
        self._at = 0
        if held := self._store.read():
            self._restore(held)
        while True:
            self._save_now_and_then()
            at = self._at
            nexts = [self.jobs[order[at]].submit] if at < len(order) else []
            nexts += [self._ends[0][0]] if self._ends else []
            nexts += self._next_round(nexts)
            if self._owes_a_look(min(nexts, default=None)):
                self._look_again()
                continue
            if not nexts:
                if self._waiting and self._any_fits() and self._roused():
                    continue
                break
            self.now = min(nexts)
            self._round_at()
            while self._ends and self._ends[0][0] == self.now:
                _, number, round = heapq.heappop(self._ends)
                if self._states[number].round == round and not self._states[number].over:
                    self._finish(number)
                    self._batch += 1
            while self._at < len(order) and self.jobs[order[self._at]].submit == self.now:
                self._submit(order[self._at])
                self._at += 1
                self._batch += 1
            self._settle()
            self._drop_stale()
            if time.monotonic() - self._shown > SAID_SECONDS:
                self._shown = time.monotonic()
                seconds = f"{self._seconds():.0f} s"
                say(f"{self._at} of {len(self.jobs)} jobs submitted, {self.now / 3600:.1f} h simulated, {seconds}")
        self._store.keep(self._checkpoint(done=True))
        return Run(tuple(self._events), self._seconds(), self._looks, self._latest)

    # What a run with a clock adds

    def _next_round(self, nexts: Sequence[int]) -> list[int]:  # noqa: ARG002
        """When the environment's clock decides next."""
        return []

    def _round_at(self) -> None:
        """Let the clock decide, if it does so now."""

    def _left(self, number: int) -> None:
        """A job of the trace is about to release its GPUs."""

    def _note(self, event: Event) -> None:
        """Record what happened to a job of the trace."""
        if event.job < self._given:
            self._events.append(event)

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    # Checkpoints

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved < max(CHECKPOINT_SECONDS, 20 * self._saving):
            return
        if not self._may_save():
            return
        began = time.monotonic()
        self._store.keep(self._checkpoint(done=False))
        self._saved = time.monotonic()
        self._saving = self._saved - began

    def _may_save(self) -> bool:
        # If a check by Kueue is pending, a new Kueue would do it at once.
        return self._at > 0 and not (self._log.owed and self._waiting)

    def _checkpoint(self, *, done: bool) -> Checkpoint:
        """The state that another cluster and runner need to continue from this moment, at which Kueue is idle."""
        # Reservations of the clock have ended, and the next cluster knows none of them.
        states = list(enumerate(self._states[: self._given]))
        alive = [] if done else [n for n, state in states if state.item and not state.over]
        return {
            "done": done,
            "now": self.now,
            "at": self._at,
            "base": self._base.isoformat(),
            "seconds": self._seconds(),
            "looks": self._looks,
            "latest": self._latest,
            "looked-at": list(self._looked_at),
            "events": events_as_rows(self._events),
            "ends": [] if done else sorted(end for end in self._ends if end[1] < self._given),
            "waiting": [] if done else list(self._waiting),
            "over": [n for n, state in states if state.over],
            "alive": [
                [n, s.starts, s.started, s.pool, s.done, s.round, s.why, s.item]
                for n, s in ((n, self._states[n]) for n in alive)
            ],
            "queues": [] if done else self.cluster.queues(),
        }

    def _restore(self, held: Checkpoint) -> None:
        """Restore the state of an earlier run in the cluster and this runner."""
        self.now, self._at, self._looks, self._latest = (held[key] for key in ("now", "at", "looks", "latest"))
        self._base = dt.datetime.fromisoformat(held["base"])
        self._before = held["seconds"]
        self._looked_at = (held["looked-at"][0], held["looked-at"][1])
        self._events = events_of(held)
        self._ends = [(time, number, round) for time, number, round in held["ends"]]
        self._waiting = dict.fromkeys(held["waiting"])
        for number in held["over"]:
            self._states[number].over = True
        for number, starts, started, pool, done, round, why, item in held["alive"]:
            state = self._states[number]
            state.starts, state.started, state.pool, state.done = starts, started, pool, done
            state.round, state.why, state.item, state.seen = round, why, item, started is not None
            if started is not None:
                gpus = self.jobs[number].gpus
                self._quotas.use(self._queue[number], self._flavor(pool), self._resource[number], gpus)
        running = [row[0] for row in held["alive"] if row[2] is not None]
        waiting = [row[0] for row in held["alive"] if row[2] is None]
        # Kueue must know running work before it sees waiting work, and of that the first of a queue first.
        waiting.sort(key=lambda n: (-self._item(n)["spec"]["priority"], self.jobs[n].submit, n))
        for numbers in (running, *([number] for number in waiting)):
            for number in numbers:
                state = self._states[number]
                item = self._item(number)
                if state.started is None:
                    # Kueue's last message is left out, so that Kueue writes it again and the run can wait for it.
                    item = without_condition(item, "QuotaReserved")
                state.item, state.written = None, self._clock()
                self._log.expect_created.add(number)
                self.cluster.put(item)
            self._settle()
        self._log.owed = False

    def _item(self, number: int) -> Object:
        item = self._states[number].item
        assert item is not None
        return item

    def _wait(self, since: float) -> None:
        """Wait for a moment; raises Stuck if the cluster makes no progress, or has lost a process."""
        now = time.monotonic()
        if now - self._log.progressed > clusters.STALL_SECONDS:
            raise SimulationStuck(f"Kueue makes no progress for {clusters.STALL_SECONDS:.0f} s: {self._why_not()}")
        if now - since > LONGEST_SETTLE_SECONDS:
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
        if not self._log.owed or not self._waiting:
            self._since = self._fitting = None
            self._batch = 0
            return False
        if self._since is None:
            self._since = self.now
            self._batch = 0
        if self._fitting is None and self._any_fits():
            self._fitting = self.now
        if next_time is None or self._batch >= MOST_EVENTS:
            return True
        limit = self._since + LONGER * self._window
        return next_time > min(limit, limit if self._fitting is None else self._fitting + self._window)

    def _roused(self) -> bool:
        """Whether Kueue may still start a job when no other event is left."""
        deadline = self._clock() + LAST_WORD_SECONDS
        while not self._ends and self._clock() < deadline:
            self._settle()
            time.sleep(POLL_SECONDS)
        return bool(self._ends)

    def _drop_stale(self) -> None:
        while self._ends and (
            self._states[self._ends[0][1]].round != self._ends[0][2] or self._states[self._ends[0][1]].over
        ):
            heapq.heappop(self._ends)

    def _look_again(self) -> None:
        self._looks += 1
        self._looked_at = (self.now, self._looked_at[1] + 1 if self._looked_at[0] == self.now else 1)
        if self._looked_at[1] > MOST_LOOKS_AT_ONCE:
            raise SimulationStuck(f"jobs evict one another without end at {self.now} s.")
        if self._fitting is not None:
            self._latest = max(self._latest, self.now - self._fitting)
        self._since = self._fitting = None
        self._batch = 0
        began = self._log.progressed = time.monotonic()
        while self._log.owed:
            self._read()
            self._follow()
            self._wait(began)
        self._settle()
        self._drop_stale()

    def _any_fits(self) -> bool:
        asked: set[tuple[str, str, int]] = set()
        strict: set[str] = set()
        for number in self._waiting:
            if number in self._held:
                continue
            queue = self._queue[number]
            if queue in self._quotas.strict:
                # No job overtakes another: only the first one counts, in order of submission.
                if queue in strict:
                    continue
                strict.add(queue)
            asked.add((queue, self._resource[number], self.jobs[number].gpus))
        return any(self._quotas.fits(*each) for each in asked)

    # Writes to the cluster

    def _date(self, seconds: int) -> str:
        return (self._base + dt.timedelta(seconds=seconds)).strftime(TIMES)

    def _submit(self, number: int) -> None:
        job = self.jobs[number]
        self._note(Event(self.now, EventKind.SUBMIT, number))
        self._waiting[number] = None
        state = self._states[number]
        state.seen, state.written = False, self._clock()
        self._log.expect_created.add(number)
        space, made = self._spaces[job.tenant, job.namespace], self._base + dt.timedelta(seconds=job.submit)
        item = objects.workload(self.loaded, job, space, number, made)
        self.cluster.put(item)

    def _finish(self, number: int) -> None:
        state = self._states[number]
        self._note(Event(self.now, EventKind.FINISH, number, state.pool))
        self._leave(number)
        state.over, state.started = True, None
        self._log.expect_finished.add(number)
        self._patch(number, {}, [self._condition("Finished", "True", "Succeeded", "its time is over")])

    def _evict(self, number: int, condition: Object) -> None:
        """Act as the Job controller on an eviction: end the pods, which takes no time here, and write the status."""
        state, job = self._states[number], self.jobs[number]
        ran = self.now - (state.started if state.started is not None else self.now)
        done = (state.done + ran) // job.checkpoint * job.checkpoint if job.checkpoint else 0
        by = preemptor_of(state.item)
        lost = state.done + ran - done
        self._note(Event(self.now, EventKind.EVICT, number, state.pool, condition["message"], lost, by))
        state.done, state.seen = done, False
        self._leave(number)
        state.started, state.written, state.why = None, self._clock(), ""
        state.round += 1
        self._waiting[number] = None
        self._log.expect_returned.add(number)
        requeued = self._condition("Requeued", "True", condition["reason"], condition["message"])
        self._release(number, condition, requeued)

    def _release(self, number: int, evicted: Object, *further: Object) -> None:
        """Write that evicted work has no quota any more."""
        conditions = [
            self._condition("QuotaReserved", "False", EVICTED, evicted["message"]),
            self._condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
        ]
        self._patch(number, {"admission": None}, [*conditions, *further])

    def _leave(self, number: int) -> None:
        """Release the job's GPUs."""
        state = self._states[number]
        if state.started is not None:
            if number < self._given:
                self._left(number)
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
        if number < self._given:
            heapq.heappush(self._ends, (self.now + job.duration - state.done, number, state.round))
        # Kueue would write the wall clock's date. Of equal jobs it evicts the latest, so the date has to be the run's.
        reserved = condition_of(item, "QuotaReserved")
        self._patch(number, {}, [{**reserved, "lastTransitionTime": self._date(self.now)}])

    def _condition(self, kind: str, status: str, reason: str, message: str) -> Object:
        return condition(kind, status, reason, message, self._date(self.now))

    def _patch(self, number: int, status: dict[str, Any], conditions: Sequence[Object]) -> None:
        """Change conditions of a workload, also if Kueue writes at the same time."""
        state = self._states[number]
        for _ in range(20):
            item = state.item
            assert item is not None
            kinds = {condition["type"] for condition in conditions}
            kept = [c for c in item.get("status", {}).get("conditions", []) if c["type"] not in kinds]
            body = {**status, "conditions": [*kept, *conditions]}
            state.item = self.cluster.change_status(item, body)
            if state.item is not None:
                self._unseen[number] = version_of(state.item)
                return
            state.item = self.cluster.read(item)
            if any(condition in state.item.get("status", {}).get("conditions", []) for condition in conditions):
                # The first attempt was written, but etcd's answer came too late.
                self._unseen[number] = version_of(state.item)
                return
        raise SimulationStuck(f"job {self.jobs[number].name} changes faster than it can be written.")

    # Reads from the cluster

    def _settle(self) -> None:
        began = self._log.progressed = time.monotonic()
        rested = 0
        while True:
            changed = self._read()
            changed |= self._follow()
            rested = 0 if changed or not self._rests() else rested + 1
            if rested >= 2:
                return
            self._wait(began)

    def _rests(self) -> bool:
        if self._log.expect_created or self._log.expect_finished or self._log.expect_returned or self._unseen:
            return False
        # Work in a queue on hold is never checked, however often it is moved.
        if self._log.moved is not None and self._clock() - self._log.moved < LAST_WORD_SECONDS:
            return False
        if self._log.moving is not None and self._clock() - self._log.moving < MOVING_SECONDS:
            return False
        # A decision of the scheduler may be written a moment later.
        if any(self._states[number].starts < count for number, count in self._log.assumed.items()):
            return False
        now = self._clock()
        for number in list(self._log.unheard):
            if self._states[number].seen:
                self._log.unheard.discard(number)
            elif now - self._states[number].written < self._patience(number):
                return False
            else:
                self._log.unheard.discard(number)
        if self._log.idle:
            return True
        strict = sum(queue in self._quotas.strict for queue in {self._queue[number] for number in self._waiting})
        return bool(strict) and self._log.quiet >= 2 and self._log.heads <= strict

    def _kind(self, number: int) -> tuple[object, ...]:
        """Kueue treats equivalent jobs as one (its feature SchedulingEquivalenceHashing)."""
        job = self.jobs[number]
        return self._queue[number], job.flavor, job.gpus, job.gpus_per_pod, job.tier

    def _patience(self, number: int) -> float:
        kind = self._kind(number)
        same = any(
            other != number and self._states[other].seen and self._kind(other) == kind for other in self._waiting
        )
        return SHORT_SILENCE_SECONDS if same else SILENCE_SECONDS

    def _why_not(self) -> str:
        assumed = [number for number, count in self._log.assumed.items() if self._states[number].starts < count]
        return (
            f"{len(self._log.expect_created)} jobs not seen, {len(self._log.expect_finished)} ends not seen, "
            f"{len(self._log.expect_returned)} evictions not seen, {len(assumed)} starts not written, "
            f"{len(self._unseen)} writes not seen, "
            f"{'idle' if self._log.idle else 'busy'}"
        )

    def _follow(self) -> bool:
        """Process changes of workloads."""
        changed = False
        while not self.cluster.changes.empty():
            item = self.cluster.changes.get()
            changed = True
            self._log.progressed = time.monotonic()
            number = int(item["metadata"]["name"].removeprefix("job-"))
            state = self._states[number]
            if version_of(item) >= self._unseen.get(number, 0):
                self._unseen.pop(number, None)
            if state.item is None or version_of(item) >= version_of(state.item):
                state.item = item
            if state.over:
                continue
            self._take(number, item)
        return changed

    def _take(self, number: int, item: Object) -> None:
        state = self._states[number]
        reserved, admitted = condition_of(item, "QuotaReserved"), condition_of(item, "Admitted")
        evicted = condition_of(item, "Evicted")
        if state.started is None and admitted.get("status") == "True" and evicted.get("status") != "True":
            state.seen = True
            self._start(number, item)
        elif state.started is not None and evicted.get("status") == "True" and item["status"].get("admission"):
            self._evict(number, evicted)
        elif state.started is None and reserved.get("status") == "False" and reserved["reason"] != EVICTED:
            state.seen = True
            if reserved["message"] != state.why:
                state.why = reserved["message"]
                self._note(Event(self.now, EventKind.WAIT, number, text=state.why))

    def _read(self) -> bool:
        """Process lines of Kueue's log."""
        lines = self.cluster.log.lines()
        relevant = False
        for line in lines:
            relevant |= self._log.take(line)
        return relevant
