"""Runs many stacks side by side: how many at once, what a busy API server does to it, and how a run is ended."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MEMORY_PER_RUN = 700
"""MiB of one run: Pulumi's engine, its language host, the Kubernetes provider and the policy pack's process."""
MAX_WORKERS = 16
"""Max workers that are chosen by themselves: more of them wait for one another in one API server."""
_BUSY = re.compile(r"\b429\b|too ?many ?requests|throttl", re.IGNORECASE)
RETRIES = 3
"""Further runs of a stack that an API server was too busy for."""

T = TypeVar("T")


def default_workers(cores: int, memory: int) -> int:
    """Stacks to run at once on that many cores and MiB of memory: one for each core, because a run computes most of its
    time, and no more than the memory holds."""
    return max(1, min(cores, memory // MEMORY_PER_RUN, MAX_WORKERS))


def available() -> tuple[int, int]:
    """Cores and MiB of memory of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return os.cpu_count() or 1, memory


def is_busy(message: str) -> bool:
    """Whether a failure says that a server had too much to do."""
    return bool(_BUSY.search(message))


@dataclass(slots=True)
class Throttle:
    """Number of stacks that run at once: half as many after an answer that the server is busy, one more after each
    success."""

    max_workers: int
    current_workers: int = field(init=False)

    def __post_init__(self) -> None:
        self.current_workers = self.max_workers

    def busy(self) -> None:
        """The server refused a run."""
        self.current_workers = max(1, self.current_workers // 2)

    def fine(self) -> None:
        """A run succeeded."""
        self.current_workers = min(self.max_workers, self.current_workers + 1)


class RunResult(Generic[T]):
    """One item's end: `failed` is the message, None if it succeeded."""

    __slots__ = ("failed", "item")

    def __init__(self, item: T, failed: str | None) -> None:
        self.item, self.failed = item, failed


def run_all(
    items: Sequence[T],
    work: Callable[[T], None],
    workers: int,
    failures: type[Exception] | tuple[type[Exception], ...],
    interrupted: Callable[[], None],
) -> Iterator[RunResult[T]]:
    """Work on all items, and tell each one's end as it comes. An exception of `failures` fails its item alone; a busy
    server's is tried again with fewer at once.

    After Ctrl-C `interrupted` is called, no further item begins, and those at work end first; a second one is raised.
    """
    throttle, waiting = Throttle(workers), deque((item, RETRIES) for item in items)
    running: dict[Future[None], tuple[T, int]] = {}
    is_interrupted = False
    with ThreadPoolExecutor(workers) as pool:
        while running or (waiting and not is_interrupted):
            while waiting and not is_interrupted and len(running) < throttle.current_workers:
                item, retries_left = waiting.popleft()
                running[pool.submit(work, item)] = item, retries_left
            try:
                finished_futures, _ = wait(running, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt:
                if is_interrupted:
                    raise
                is_interrupted = True
                interrupted()
                continue
            for future in finished_futures:
                item, retries_left = running.pop(future)
                error = future.exception()
                if error is None:
                    throttle.fine()
                    yield RunResult(item, None)
                elif not isinstance(error, failures):
                    raise error
                elif retries_left and is_busy(str(error)):
                    throttle.busy()
                    waiting.append((item, retries_left - 1))
                else:
                    yield RunResult(item, str(error))
    if is_interrupted:
        raise KeyboardInterrupt
