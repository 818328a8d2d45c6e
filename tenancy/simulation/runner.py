"""The clock of a run: from one event to the next, each when Kueue has decided all about the one before."""

from __future__ import annotations

import datetime as dt
import heapq
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tenancy.plan.model import Object
from tenancy.plan.queues import flavor_name, queue_name, queue_resource
from tenancy.simulation import objects
from tenancy.simulation.cluster import AT_WORK, RESTS, TAKEN_IN, Cluster, Stuck, own_lab
from tenancy.simulation.events import Event, Kind, Run
from tenancy.simulation.quotas import Quotas
from tenancy.simulation.trace import Job
from tenancy.spec import Loaded
from tenancy.spec.queues import Gate

TIMES = "%Y-%m-%dT%H:%M:%SZ"
POLL_SECONDS = 0.002
PATIENCE_SECONDS = 60.0
SILENCE_SECONDS = 0.5
"""After so long without a word about a job Kueue has none."""
SHORT_SILENCE_SECONDS = 0.02
"""The same where another job of its kind waits in its queue: then Kueue does not try it at all."""
MOVING_SECONDS = 0.2
"""Between Kueue's words that it moves who waits and that it has moved some; where it moves none it says nothing."""
LAST_WORD_SECONDS = 3.0
"""What Kueue has to start somebody who fits when nothing else is to come: longer than the second that it takes."""
DAY = 86400
EVICTED = "EvictedInSimulation"
"""Kueue's own reason follows when it has tried again."""
MOST_LOOKS = 480
"""In a run, about: each takes Kueue a second. What ends close together shares one."""
MOST_LOOKS_AT_ONCE = 100
LONGER = 4
"""So many windows may pass where nobody could start without an eviction."""
MOST_EVENTS = 16
"""Between two looks: so many are done within the second that Kueue takes by itself."""
_NAME = re.compile(rb'"workload":\{"name":"job-(\d+)"')
_UID = re.compile(r"UID: ([0-9a-f-]{36})")


@dataclass(slots=True)
class _State:
    """A job on its way."""

    seen: bool = False
    """Whether Kueue said anything about it since it was written."""
    starts: int = 0
    item: Object | None = None
    """As last seen."""
    started: int | None = None
    pool: str = ""
    done: int = 0
    """Seconds of its work that are safe."""
    over: bool = False
    round: int = 0
    """How often it has started."""
    why: str = ""
    written: float = 0.0


def window_of(jobs: Sequence[Job], asked: int | None) -> int:
    """Simulated seconds within which ends share one look of Kueue's."""
    return max(1, max((job.submit for job in jobs), default=0) // MOST_LOOKS) if asked is None else asked


def simulate(loaded: Loaded, jobs: Sequence[Job], say: Callable[[str], None], window: int | None = None) -> Run:
    """Run a trace under an environment's quotas, in a cluster of its own."""
    with own_lab(objects.kueue_values(loaded), say) as cluster:
        made = list(objects.cluster_objects(loaded))
        cluster.make(made)
        queues = {item["metadata"]["name"]: item["spec"] for item in made if item["kind"] == "ClusterQueue"}
        cluster.wait_until_active(name for name, spec in queues.items() if spec["stopPolicy"] == "None")
        cluster.watch()
        return Runner(loaded, jobs, cluster, made, window).run(say)


class Runner:
    def __init__(
        self, loaded: Loaded, jobs: Sequence[Job], cluster: Cluster, made: Sequence[Object], window: int | None
    ) -> None:
        environment = loaded.environment
        self.loaded, self.jobs, self.cluster = loaded, jobs, cluster
        resources = {flavor: queue_resource(environment, flavor) for flavor in environment.flavors}
        self._quotas = Quotas(made, resources.values())
        self._resource = [resources[job.flavor] for job in jobs]
        tiers = {
            (tenant.tenant, part.name): tenant.tier_of(part) for tenant in loaded.tenants for part in tenant.namespaces
        }
        self._queue = [queue_name(job.tenant, tiers[job.tenant, job.part]) for job in jobs]
        held = {
            item["metadata"]["name"]
            for item in made
            if item["kind"] == "ClusterQueue" and item["spec"]["stopPolicy"] != "None"
        }
        parts = {(t.tenant, part.name) for t in loaded.tenants for part in t.namespaces if part.queue is not Gate.OPEN}
        self._held = {
            number for number, job in enumerate(jobs) if self._queue[number] in held or (job.tenant, job.part) in parts
        }
        self._pools = {flavor_name(environment, pool): pool for pool in environment.pools}
        last = max((job.submit for job in jobs), default=0)
        self._window = window_of(jobs, window)
        # In the past, so that what Kueue dates by the clock on the wall is always later.
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
        self._moved = False
        self._moving: float | None = None
        """Since when Kueue moves those who wait, of which it may find none."""
        self._expect_created: set[int] = set()
        self._expect_finished: set[int] = set()
        self._expect_returned: set[int] = set()
        self._unseen: dict[int, int] = {}
        """Job -> the version of it that was written and that no watch has shown yet: Kueue may not know it."""
        self._assumed: dict[int, int] = {}
        self._unheard: set[int] = set()
        self._looked_at = (-1, 0)
        self._since: int | None = None
        self._fitting: int | None = None
        self._batch = 0

    # The clock

    def run(self, say: Callable[[str], None]) -> Run:
        began = shown = time.monotonic()
        order = sorted(range(len(self.jobs)), key=lambda n: (self.jobs[n].submit, n))
        self._read()
        at = 0
        while True:
            nexts = [self.jobs[order[at]].submit] if at < len(order) else []
            nexts += [self._ends[0][0]] if self._ends else []
            if self._owes_a_look(min(nexts, default=None)):
                self._look_again()
                continue
            if not nexts:
                if self._waiting and self._somebody_fits() and self._roused():
                    continue
                break
            self.now = min(nexts)
            while self._ends and self._ends[0][0] == self.now:
                _, number, round = heapq.heappop(self._ends)
                if self._states[number].round == round and not self._states[number].over:
                    self._finish(number)
                    self._batch += 1
            while at < len(order) and self.jobs[order[at]].submit == self.now:
                self._submit(order[at])
                at += 1
                self._batch += 1
            self._settle()
            self._drop_stale()
            if time.monotonic() - shown > 15:
                shown = time.monotonic()
                say(
                    f"{at} of {len(self.jobs)} jobs submitted, {self.now / 3600:.1f} h simulated, {shown - began:.0f} s"
                )
        return Run(tuple(self._events), time.monotonic() - began, self._looks, self._latest)

    def _owes_a_look(self, next_time: int | None) -> bool:
        """Whether Kueue has to look at who waits before the clock goes on.

        It does so by itself a second after something ended. Were the clock not to wait, what starts would depend on
        how many events this machine gets done in a second.
        """
        if not self._owed or not self._waiting:
            self._since = self._fitting = None
            self._batch = 0
            return False
        if self._since is None:
            self._since = self.now
            self._batch = 0
        if self._fitting is None and self._somebody_fits():
            self._fitting = self.now
        if next_time is None or self._batch >= MOST_EVENTS:
            return True
        limit = self._since + LONGER * self._window
        return next_time > min(limit, limit if self._fitting is None else self._fitting + self._window)

    def _roused(self) -> bool:
        """Whether Kueue starts somebody yet, when all that is to come is its word."""
        deadline = time.monotonic() + LAST_WORD_SECONDS
        while not self._ends and time.monotonic() < deadline:
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
            raise Stuck(f"jobs evict one another without end at {self.now} s.")
        if self._fitting is not None:
            self._latest = max(self._latest, self.now - self._fitting)
        self._since = self._fitting = None
        self._batch = 0
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._owed:
            self._read()
            self._follow()
            if time.monotonic() > deadline:
                raise Stuck(f"Kueue did not look at who waits again within {PATIENCE_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)
        self._settle()
        self._drop_stale()

    def _somebody_fits(self) -> bool:
        asked: set[tuple[str, str, int]] = set()
        strict: set[str] = set()
        for number in self._waiting:
            if number in self._held:
                continue
            queue = self._queue[number]
            if queue in self._quotas.strict:
                # Nobody overtakes: the first is all that matters, in the order in which they came.
                if queue in strict:
                    continue
                strict.add(queue)
            asked.add((queue, self._resource[number], self.jobs[number].gpus))
        return any(self._quotas.fits(*each) for each in asked)

    # What is done to the cluster

    def _date(self, seconds: int) -> str:
        return (self._base + dt.timedelta(seconds=seconds)).strftime(TIMES)

    def _submit(self, number: int) -> None:
        job = self.jobs[number]
        self._events.append(Event(self.now, Kind.SUBMIT, number))
        self._waiting[number] = None
        state = self._states[number]
        state.seen, state.written = False, time.monotonic()
        self._expect_created.add(number)
        item = objects.workload(self.loaded, job, number, self._base + dt.timedelta(seconds=job.submit))
        self.cluster.put(item)

    def _finish(self, number: int) -> None:
        state = self._states[number]
        self._events.append(Event(self.now, Kind.FINISH, number, state.pool))
        self._release(number)
        state.over, state.started = True, None
        self._expect_finished.add(number)
        self._patch(number, {}, [self._condition("Finished", "True", "Succeeded", "its time is over")])

    def _evict(self, number: int, condition: Object) -> None:
        """What the controller of Jobs does when Kueue evicts: end the pods, which takes no time here, and say so."""
        state, job = self._states[number], self.jobs[number]
        ran = self.now - (state.started if state.started is not None else self.now)
        done = (state.done + ran) // job.checkpoint * job.checkpoint if job.checkpoint else 0
        found = _UID.search(self._preempted(number))
        by = objects.number_of(found.group(1)) if found else None
        lost = state.done + ran - done
        self._events.append(Event(self.now, Kind.EVICT, number, state.pool, condition["message"], lost, by))
        state.done, state.seen = done, False
        self._release(number)
        state.started, state.written, state.why = None, time.monotonic(), ""
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
        self._events.append(Event(self.now, Kind.START, number, state.pool))
        heapq.heappush(self._ends, (self.now + job.duration - state.done, number, state.round))
        # Kueue dates it by the wall; of equals it evicts the latest, so the date has to be the run's.
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
        """Change conditions of a workload, whatever Kueue writes at the same time."""
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
        raise Stuck(f"job {self.jobs[number].name} changes faster than it can be written.")

    # What is seen of the cluster

    def _settle(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        rested = 0
        while True:
            changed = self._read()
            changed |= self._follow()
            rested = 0 if changed or not self._rests() else rested + 1
            if rested >= 2:
                return
            if time.monotonic() > deadline:
                raise Stuck(f"Kueue decides for more than {PATIENCE_SECONDS:.0f} s: {self._why_not()}")
            time.sleep(POLL_SECONDS)

    def _rests(self) -> bool:
        if self._expect_created or self._expect_finished or self._expect_returned or self._unseen or self._moved:
            return False
        if self._moving is not None and time.monotonic() - self._moving < MOVING_SECONDS:
            return False
        # What the scheduler decided may take a moment to be written.
        if any(self._states[number].starts < count for number, count in self._assumed.items()):
            return False
        now = time.monotonic()
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
        """Jobs of one kind are one to Kueue (its feature SchedulingEquivalenceHashing)."""
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
            f"{'idle' if self._idle else 'busy'}"
        )

    def _follow(self) -> bool:
        """Take in what was written about workloads."""
        changed = False
        while not self.cluster.changes.empty():
            item = self.cluster.changes.get()
            changed = True
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
                self._events.append(Event(self.now, Kind.WAIT, number, text=state.why))

    def _read(self) -> bool:
        """Take in what Kueue logged."""
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
                self._idle, self._moved, self._moving = False, False, None
                self._heads = int(line.rpartition(b'"headCount":')[2].split(b",", 1)[0])
            elif b'"msg":"Scheduling cycle complete"' in line:
                self._quiet += 1
            elif b'"msg":"Workload assumed in the cache"' in line:
                self._assume(_number(line), 1)
                self._quiet = 0
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
            return True
        if b'"logger":"inadmissible_workload_requeue_worker"' in line:
            if b'"msg":"Attempting to move workloads"' in line:
                self._owed, self._moving = False, time.monotonic()
            elif b'"msg":"Moved inadmissible workloads in tree"' in line:
                self._moved, self._moving, self._quiet = True, None, 0
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


def _find(item: Object | None, kind: str) -> Object:
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})
