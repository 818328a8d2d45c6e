"""What Kueue's log says about its decisions, read line by line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tenancy.simulation.cluster import AT_WORK, RESTS, TAKEN_IN

_NAME = re.compile(rb'"workload":\{"name":"job-(\d+)"')


class KueueLog:
    """What is known from the log so far. Jobs are given by their numbers; times are of the clock that is given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.progressed = time.monotonic()
        """Real time at which Kueue last decided something."""
        self.idle = True
        """Whether the scheduler waits for work."""
        self.heads = 0
        """Number of jobs that it tries in a cycle."""
        self.quiet = 0
        """Number of cycles since it last started a job."""
        self.owed = False
        """Whether work ended, so that Kueue has to check waiting work again."""
        self.moved: float | None = None
        """Time at which waiting work was moved, if it has not been checked since."""
        self.moving: float | None = None
        """Time at which Kueue started to move waiting work, which may be none."""
        self.expect_created: set[int] = set()
        """Jobs that were written, and that Kueue has not seen."""
        self.expect_finished: set[int] = set()
        """Jobs whose end it has not seen."""
        self.expect_returned: set[int] = set()
        """Jobs whose eviction it has not seen."""
        self.assumed: dict[int, int] = {}
        """Job -> number of starts that Kueue has decided."""
        self.unheard: set[int] = set()
        """Jobs that it knows and has not tried."""

    def _assume(self, number: int, by: int) -> None:
        self.assumed[number] = self.assumed.get(number, 0) + by

    def take(self, line: bytes) -> bool:
        """Process a line; whether it says something that a run waits for."""
        if b'"logger":"scheduler"' in line:
            if RESTS in line:
                self.idle = True
            elif AT_WORK in line:
                self.idle, self.moved, self.moving = False, None, None
                self.heads = int(line.rpartition(b'"headCount":')[2].split(b",", 1)[0])
            elif b'"msg":"Scheduling cycle complete"' in line:
                self.quiet += 1
            elif b'"msg":"Workload assumed in the cache"' in line:
                self._assume(_number(line), 1)
                self.quiet = 0
                self.progressed = time.monotonic()
            elif b'"Could not admit Workload' in line:
                self._assume(_number(line), -1)
            else:
                return False
            return True
        if b'"logger":"workload-reconciler"' in line:
            if TAKEN_IN in line:
                self.expect_created.discard(number := _number(line))
                self.unheard.add(number)
            elif b'"msg":"Workload update event"' not in line:
                return False
            elif b'"status":"finished"' in line:
                self.expect_finished.discard(_number(line))
                self.owed = True
            elif b'"status":"pending"' in line and b'"prevStatus"' in line:
                self.expect_returned.discard(number := _number(line))
                self.unheard.add(number)
                self.owed = True
            else:
                return False
            self.quiet = 0
            self.progressed = time.monotonic()
            return True
        if b'"logger":"inadmissible_workload_requeue_worker"' in line:
            if b'"msg":"Attempting to move workloads"' in line:
                self.owed, self.moving = False, self._clock()
            elif b'"msg":"Moved inadmissible workloads in tree"' in line:
                self.moved, self.moving, self.quiet = self._clock(), None, 0
            else:
                return False
            return True
        return False


def _number(line: bytes) -> int:
    found = _NAME.search(line)
    assert found, line
    return int(found.group(1))
