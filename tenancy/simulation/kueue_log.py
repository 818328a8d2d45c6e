"""Kueue's decisions, read from its log line by line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tenancy.simulation.cluster import CYCLE_STARTS, HEADS_OBTAINED, WORKLOAD_CREATED

_NAME = re.compile(rb'"workload":\{"name":"job-(\d+)"')


class KueueLog:
    """Facts from the log so far. Jobs are given by their numbers; times are of the given clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.progressed = time.monotonic()
        """Real time at which Kueue last decided something."""
        self.idle = True
        """Whether the scheduler waits for work."""
        self.heads_per_cycle = 0
        """Number of jobs that it tries in a cycle."""
        self.quiet_cycles = 0
        """Number of cycles since it last started a job."""
        self.check_pending = False
        """Whether work ended, so that Kueue has to check waiting work again."""
        self.moved_at: float | None = None
        """Time at which waiting work was moved, if it has not been checked since."""
        self.moving_since: float | None = None
        """Time at which Kueue started to move waiting work, which may be none."""
        self.expect_created: set[int] = set()
        """Jobs that were written, and that Kueue has not seen."""
        self.expect_finished: set[int] = set()
        """Jobs whose end it has not seen."""
        self.expect_returned: set[int] = set()
        """Jobs whose eviction it has not seen."""
        self.assumed: dict[int, int] = {}
        """Job -> number of starts that Kueue has decided."""
        self.untried: set[int] = set()
        """Jobs that it knows and has not tried."""

    def _assume(self, number: int, change: int) -> None:
        self.assumed[number] = self.assumed.get(number, 0) + change

    def process(self, line: bytes) -> bool:
        """Process a line; whether it says something that a run waits for."""
        if b'"logger":"scheduler"' in line:
            if CYCLE_STARTS in line:
                self.idle = True
            elif HEADS_OBTAINED in line:
                self.idle, self.moved_at, self.moving_since = False, None, None
                self.heads_per_cycle = int(line.rpartition(b'"headCount":')[2].split(b",", 1)[0])
            elif b'"msg":"Scheduling cycle complete"' in line:
                self.quiet_cycles += 1
            elif b'"msg":"Workload assumed in the cache"' in line:
                self._assume(_number(line), 1)
                self.quiet_cycles = 0
                self.progressed = time.monotonic()
            elif b'"Could not admit Workload' in line:
                self._assume(_number(line), -1)
            else:
                return False
            return True
        if b'"logger":"workload-reconciler"' in line:
            if WORKLOAD_CREATED in line:
                self.expect_created.discard(number := _number(line))
                self.untried.add(number)
            elif b'"msg":"Workload update event"' not in line:
                return False
            elif b'"status":"finished"' in line:
                self.expect_finished.discard(_number(line))
                self.check_pending = True
            elif b'"status":"pending"' in line and b'"prevStatus"' in line:
                self.expect_returned.discard(number := _number(line))
                self.untried.add(number)
                self.check_pending = True
            else:
                return False
            self.quiet_cycles = 0
            self.progressed = time.monotonic()
            return True
        if b'"logger":"inadmissible_workload_requeue_worker"' in line:
            if b'"msg":"Attempting to move workloads"' in line:
                self.check_pending, self.moving_since = False, self._clock()
            elif b'"msg":"Moved inadmissible workloads in tree"' in line:
                self.moved_at, self.moving_since, self.quiet_cycles = self._clock(), None, 0
            else:
                return False
            return True
        return False


def _number(line: bytes) -> int:
    match = _NAME.search(line)
    assert match, line
    return int(match.group(1))
