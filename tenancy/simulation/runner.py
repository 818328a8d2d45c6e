"""The clock of a run: advances to the next event when Kueue has decided everything about the previous one."""

from __future__ import annotations

import datetime as dt
import heapq
import http.client
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.kube.objects import Object
from tenancy.lab.layout import LabError
from tenancy.planning import Plan, make_plan
from tenancy.planning.queueing.queue_names import flavor_name, queue_name, queue_resource
from tenancy.schema.queues import QueueState
from tenancy.simulation import cluster as clusters
from tenancy.simulation import objects
from tenancy.simulation.checkpoint import Checkpoint, Store, events_as_rows, events_of, run_of
from tenancy.simulation.cluster import AT_WORK, RESTS, TAKEN_IN, SimulationCluster, SimulationStuck, end_left, own_lab
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.quotas import Quotas
from tenancy.simulation.trace import Job
from tenancy.validation import Loaded

TIMES = "%Y-%m-%dT%H:%M:%SZ"
POLL_SECONDS = 0.002
CHECKPOINT_SECONDS = 10.0
"""Seconds between two checkpoints, unless a checkpoint takes more than a twentieth of that."""
LONGEST_SETTLE_SECONDS = 1800.0
"""Max seconds for the decisions about one moment; a longer time means an endless loop in Kueue."""
ATTEMPTS = 3
"""Max clusters that are started one after another without progress."""
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
MOST_LOOKS = 480
"""Approximate number of checks in a run, each of which takes Kueue a second. Ends close together share one."""
MOST_LOOKS_AT_ONCE = 100
LONGER = 4
"""Max windows without a check while no waiting job could start without an eviction."""
MOST_EVENTS = 16
"""Max ends between two checks, which are written within the second that Kueue takes."""
_NAME = re.compile(rb'"workload":\{"name":"job-(\d+)"')
_UID = re.compile(r"UID: ([0-9a-f-]{36})")


@dataclass(slots=True)
class _State:
    """The state of a submitted job."""

    seen: bool = False
    """Whether Kueue has reacted to it since it was written."""
    starts: int = 0
    item: Object | None = None
    """The object as last seen."""
    started: int | None = None
    pool: str = ""
    done: int = 0
    """Seconds of its work that are saved by checkpoints."""
    over: bool = False
    round: int = 0
    """Number of starts."""
    why: str = ""
    written: float = 0.0


def window_of(jobs: Sequence[Job], asked: int | None) -> int:
    """Simulated seconds within which ends share one check of Kueue."""
    return max(1, max((job.submit for job in jobs), default=0) // MOST_LOOKS) if asked is None else asked


class Unfinished(LabError):
    """A run that ended before its work; `run` is its saved part, from which a later run continues."""

    def __init__(self, reason: str, run: Run, now: int) -> None:
        super().__init__(reason)
        self.run = run
        self.now = now
        """Seconds from the start of the trace up to which it is saved."""


def simulate(
    loaded: Loaded,
    jobs: Sequence[Job],
    say: Callable[[str], None],
    window: int | None = None,
    store: Store | None = None,
) -> Run:
    """Run a trace under an environment's quotas, in a temporary cluster, from the last checkpoint in `store`.

    A cluster that stalls or loses a process is replaced, and the run continues from its last checkpoint. Raises
    Unfinished if that does not help.
    """
    store = store or Store()
    with store.locked():
        if left := store.left():
            end_left(left)
            store.started(None)
        held = store.read()
        if held and held["done"]:
            say("taken from an earlier run")
            return run_of(held)
        if held:
            say(f"continues from {held['now'] / 3600:.1f} h of an earlier run")
        reached, attempts = held["now"] if held else -1, 0
        while True:
            try:
                return _attempt(loaded, jobs, say, window, store)
            except (LabError, OSError, http.client.HTTPException) as error:
                held = store.read()
                now = held["now"] if held else -1
                attempts = 0 if now > reached else attempts + 1
                reached = now
                if attempts >= ATTEMPTS:
                    run = run_of(held) if held else Run((), 0.0, 0, 0)
                    raise Unfinished(str(error), run, max(0, now)) from error
                say(f"{error}; starting another cluster, from {max(0, now) / 3600:.1f} h")


def _attempt(loaded: Loaded, jobs: Sequence[Job], say: Callable[[str], None], window: int | None, store: Store) -> Run:
    held = store.read()
    with own_lab(objects.kueue_values(loaded), say, started=store.started) as cluster:
        plan = make_plan(loaded.environment, loaded.tenants)
        made = list(objects.cluster_objects(plan))
        used = {_key_of(item): item for item in held["queues"]} if held else {}
        cluster.make(item for item in made if _key_of(item) not in used)
        for item in used.values():
            cluster.put_queue(item)
        cluster.wait_until_active(queue.name for queue in plan.cluster_queues if queue.is_open)
        cluster.wait_until_known()
        cluster.watch()
        return Runner(loaded, jobs, cluster, plan, window, store).run(say)


def _key_of(item: Object) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


class Runner:
    """Runs a trace through Kueue on a simulation cluster."""

    def __init__(
        self,
        loaded: Loaded,
        jobs: Sequence[Job],
        cluster: SimulationCluster,
        plan: Plan,
        window: int | None,
        store: Store | None = None,
    ) -> None:
        environment = loaded.environment
        self._store = store or Store()
        self._clock: Callable[[], float] = cluster.pulse.now if cluster else lambda: time.monotonic()
        self._progressed = self._checked = self._saved = self._shown = self._began = time.monotonic()
        self._saving = 0.0
        self._before = 0.0
        """Real seconds of the earlier runs that this one continues."""
        self.loaded, self.jobs, self.cluster = loaded, jobs, cluster
        resources = {flavor: queue_resource(environment, flavor) for flavor in environment.flavors}
        self._quotas = Quotas(plan.cluster_queues, plan.cohorts)
        self._resource = [resources[job.flavor] for job in jobs]
        tiers = {
            (tenant.tenant, namespace.name): tenant.tier_of(namespace)
            for tenant in loaded.tenants
            for namespace in tenant.namespaces
        }
        self._queue = [queue_name(job.tenant, tiers[job.tenant, job.namespace]) for job in jobs]
        held = {queue.name for queue in plan.cluster_queues if not queue.is_open}
        stopped = {
            (t.tenant, each.name) for t in loaded.tenants for each in t.namespaces if each.queue is not QueueState.OPEN
        }
        self._held = {
            number
            for number, job in enumerate(jobs)
            if self._queue[number] in held or (job.tenant, job.namespace) in stopped
        }
        self._pools = {flavor_name(environment, pool): pool for pool in environment.pools}
        last = max((job.submit for job in jobs), default=0)
        self._window = window_of(jobs, window)
        # In the past, so that dates that Kueue takes from the wall clock are always later.
        longest = last + sum(job.duration for job in jobs) // max(1, len(jobs)) * 50 + 30 * DAY
        self._base = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(seconds=longest)
        self._states = [_State() for _ in jobs]
        self._ends: list[tuple[int, int, int]] = []
        self._waiting: dict[int, None] = {}
        self._events: list[Event] = []
        self.now = 0
        self._looks = 0
        self._latest = 0
        # What the log says.
        self._idle = True
        self._heads = 0
        self._quiet = 0
        self._owed = False
        self._moved: float | None = None
        """Time at which waiting work was moved, if it has not been checked since."""
        self._moving: float | None = None
        """Time at which Kueue started to move waiting work, which may be none."""
        self._expect_created: set[int] = set()
        self._expect_finished: set[int] = set()
        self._expect_returned: set[int] = set()
        self._unseen: dict[int, int] = {}
        """Job -> its last written version, if no watch has shown it yet, so that Kueue may not know it."""
        self._assumed: dict[int, int] = {}
        self._unheard: set[int] = set()
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
            if self._owes_a_look(min(nexts, default=None)):
                self._look_again()
                continue
            if not nexts:
                if self._waiting and self._any_fits() and self._roused():
                    continue
                break
            self.now = min(nexts)
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

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    # Checkpoints

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved < max(CHECKPOINT_SECONDS, 20 * self._saving):
            return
        # If a check by Kueue is pending, a new Kueue would do it at once.
        if self._at == 0 or (self._owed and self._waiting):
            return
        began = time.monotonic()
        self._store.keep(self._checkpoint(done=False))
        self._saved = time.monotonic()
        self._saving = self._saved - began

    def _checkpoint(self, *, done: bool) -> Checkpoint:
        """The state that another cluster and runner need to continue from this moment, at which Kueue is idle."""
        alive = [] if done else [n for n, state in enumerate(self._states) if state.item and not state.over]
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
            "ends": [] if done else list(self._ends),
            "waiting": [] if done else list(self._waiting),
            "over": [n for n, state in enumerate(self._states) if state.over],
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
                    item = _without(item, "QuotaReserved")
                state.item, state.written = None, self._clock()
                self._expect_created.add(number)
                self.cluster.put(item)
            self._settle()
        self._owed = False

    def _item(self, number: int) -> Object:
        item = self._states[number].item
        assert item is not None
        return item

    def _wait(self, since: float) -> None:
        """Wait for a moment; raises Stuck if the cluster makes no progress, or has lost a process."""
        now = time.monotonic()
        if now - self._progressed > clusters.STALL_SECONDS:
            raise SimulationStuck(f"Kueue makes no progress for {clusters.STALL_SECONDS:.0f} s: {self._why_not()}")
        if now - since > LONGEST_SETTLE_SECONDS:
            raise SimulationStuck(
                f"Kueue decides about one moment for {LONGEST_SETTLE_SECONDS:.0f} s: {self._why_not()}"
            )
        if now - self._progressed > 1 and now - self._checked > 1:
            self._checked = now
            if ended := self.cluster.ended():
                raise SimulationStuck(f"{' and '.join(ended)} of the simulation's cluster ended")
        time.sleep(POLL_SECONDS)

    def _owes_a_look(self, next_time: int | None) -> bool:
        """Whether Kueue has to check waiting work before the clock advances.

        Kueue does so a second after work ended. If the clock did not wait, the starts would depend on the number of
        events that this machine processes in a second.
        """
        if not self._owed or not self._waiting:
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
        began = self._progressed = time.monotonic()
        while self._owed:
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
        self._events.append(Event(self.now, EventKind.SUBMIT, number))
        self._waiting[number] = None
        state = self._states[number]
        state.seen, state.written = False, self._clock()
        self._expect_created.add(number)
        item = objects.workload(self.loaded, job, number, self._base + dt.timedelta(seconds=job.submit))
        self.cluster.put(item)

    def _finish(self, number: int) -> None:
        state = self._states[number]
        self._events.append(Event(self.now, EventKind.FINISH, number, state.pool))
        self._release(number)
        state.over, state.started = True, None
        self._expect_finished.add(number)
        self._patch(number, {}, [self._condition("Finished", "True", "Succeeded", "its time is over")])

    def _evict(self, number: int, condition: Object) -> None:
        """Act as the Job controller on an eviction: end the pods, which takes no time here, and write the status."""
        state, job = self._states[number], self.jobs[number]
        ran = self.now - (state.started if state.started is not None else self.now)
        done = (state.done + ran) // job.checkpoint * job.checkpoint if job.checkpoint else 0
        found = _UID.search(self._preempted(number))
        by = objects.number_of(found.group(1)) if found else None
        lost = state.done + ran - done
        self._events.append(Event(self.now, EventKind.EVICT, number, state.pool, condition["message"], lost, by))
        state.done, state.seen = done, False
        self._release(number)
        state.started, state.written, state.why = None, self._clock(), ""
        state.round += 1
        self._waiting[number] = None
        self._expect_returned.add(number)
        self._patch(
            number,
            {"admission": None},
            [
                self._condition("QuotaReserved", "False", EVICTED, condition["message"]),
                self._condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
                self._condition("Requeued", "True", condition["reason"], condition["message"]),
            ],
        )

    def _preempted(self, number: int) -> str:
        return _find(self._states[number].item, "Preempted").get("message", "")

    def _release(self, number: int) -> None:
        state = self._states[number]
        if state.started is not None:
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
        self._events.append(Event(self.now, EventKind.START, number, state.pool))
        heapq.heappush(self._ends, (self.now + job.duration - state.done, number, state.round))
        # Kueue would write the wall clock's date. Of equal jobs it evicts the latest, so the date has to be the run's.
        reserved = _find(item, "QuotaReserved")
        self._patch(number, {}, [{**reserved, "lastTransitionTime": self._date(self.now)}])

    def _condition(self, kind: str, status: str, reason: str, message: str) -> Object:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": self._date(self.now),
        }

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
                self._unseen[number] = _version(state.item)
                return
            state.item = self.cluster.read(item)
            if any(condition in state.item.get("status", {}).get("conditions", []) for condition in conditions):
                # The first attempt was written, but etcd's answer came too late.
                self._unseen[number] = _version(state.item)
                return
        raise SimulationStuck(f"job {self.jobs[number].name} changes faster than it can be written.")

    # Reads from the cluster

    def _settle(self) -> None:
        began = self._progressed = time.monotonic()
        rested = 0
        while True:
            changed = self._read()
            changed |= self._follow()
            rested = 0 if changed or not self._rests() else rested + 1
            if rested >= 2:
                return
            self._wait(began)

    def _rests(self) -> bool:
        if self._expect_created or self._expect_finished or self._expect_returned or self._unseen:
            return False
        # Work in a queue on hold is never checked, however often it is moved.
        if self._moved is not None and self._clock() - self._moved < LAST_WORD_SECONDS:
            return False
        if self._moving is not None and self._clock() - self._moving < MOVING_SECONDS:
            return False
        # A decision of the scheduler may be written a moment later.
        if any(self._states[number].starts < count for number, count in self._assumed.items()):
            return False
        now = self._clock()
        for number in list(self._unheard):
            if self._states[number].seen:
                self._unheard.discard(number)
            elif now - self._states[number].written < self._patience(number):
                return False
            else:
                self._unheard.discard(number)
        if self._idle:
            return True
        strict = sum(queue in self._quotas.strict for queue in {self._queue[number] for number in self._waiting})
        return bool(strict) and self._quiet >= 2 and self._heads <= strict

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
        assumed = [number for number, count in self._assumed.items() if self._states[number].starts < count]
        return (
            f"{len(self._expect_created)} jobs not seen, {len(self._expect_finished)} ends not seen, "
            f"{len(self._expect_returned)} evictions not seen, {len(assumed)} starts not written, "
            f"{len(self._unseen)} writes not seen, "
            f"{'idle' if self._idle else 'busy'}"
        )

    def _follow(self) -> bool:
        """Process changes of workloads."""
        changed = False
        while not self.cluster.changes.empty():
            item = self.cluster.changes.get()
            changed = True
            self._progressed = time.monotonic()
            number = int(item["metadata"]["name"].removeprefix("job-"))
            state = self._states[number]
            if _version(item) >= self._unseen.get(number, 0):
                self._unseen.pop(number, None)
            if state.item is None or _version(item) >= _version(state.item):
                state.item = item
            if state.over:
                continue
            self._take(number, item)
        return changed

    def _take(self, number: int, item: Object) -> None:
        state = self._states[number]
        reserved, admitted = _find(item, "QuotaReserved"), _find(item, "Admitted")
        evicted = _find(item, "Evicted")
        if state.started is None and admitted.get("status") == "True" and evicted.get("status") != "True":
            state.seen = True
            self._start(number, item)
        elif state.started is not None and evicted.get("status") == "True" and item["status"].get("admission"):
            self._evict(number, evicted)
        elif state.started is None and reserved.get("status") == "False" and reserved["reason"] != EVICTED:
            state.seen = True
            if reserved["message"] != state.why:
                state.why = reserved["message"]
                self._events.append(Event(self.now, EventKind.WAIT, number, text=state.why))

    def _read(self) -> bool:
        """Process lines of Kueue's log."""
        lines = self.cluster.log.lines()
        relevant = False
        for line in lines:
            relevant |= self._log(line)
        return relevant

    def _assume(self, number: int, by: int) -> None:
        self._assumed[number] = self._assumed.get(number, 0) + by

    def _log(self, line: bytes) -> bool:
        if b'"logger":"scheduler"' in line:
            if RESTS in line:
                self._idle = True
            elif AT_WORK in line:
                self._idle, self._moved, self._moving = False, None, None
                self._heads = int(line.rpartition(b'"headCount":')[2].split(b",", 1)[0])
            elif b'"msg":"Scheduling cycle complete"' in line:
                self._quiet += 1
            elif b'"msg":"Workload assumed in the cache"' in line:
                self._assume(_number(line), 1)
                self._quiet = 0
                self._progressed = time.monotonic()
            elif b'"Could not admit Workload' in line:
                self._assume(_number(line), -1)
            else:
                return False
            return True
        if b'"logger":"workload-reconciler"' in line:
            if TAKEN_IN in line:
                self._expect_created.discard(number := _number(line))
                self._unheard.add(number)
            elif b'"msg":"Workload update event"' not in line:
                return False
            elif b'"status":"finished"' in line:
                self._expect_finished.discard(_number(line))
                self._owed = True
            elif b'"status":"pending"' in line and b'"prevStatus"' in line:
                self._expect_returned.discard(number := _number(line))
                self._unheard.add(number)
                self._owed = True
            else:
                return False
            self._quiet = 0
            self._progressed = time.monotonic()
            return True
        if b'"logger":"inadmissible_workload_requeue_worker"' in line:
            if b'"msg":"Attempting to move workloads"' in line:
                self._owed, self._moving = False, self._clock()
            elif b'"msg":"Moved inadmissible workloads in tree"' in line:
                self._moved, self._moving, self._quiet = self._clock(), None, 0
            else:
                return False
            return True
        return False


def _number(line: bytes) -> int:
    found = _NAME.search(line)
    assert found, line
    return int(found.group(1))


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


def _without(item: Object, kind: str) -> Object:
    status = item.get("status", {})
    kept = [condition for condition in status.get("conditions", []) if condition["type"] != kind]
    return {**item, "status": {**status, "conditions": kept}}


def _find(item: Object | None, kind: str) -> Object:
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})
