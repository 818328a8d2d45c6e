"""Events of a run, from which the results are computed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """Kind of an event of a job."""

    SUBMIT = "submit"
    WAIT = "wait"  # Kueue's reason for not starting it, at every change
    START = "start"
    EVICT = "evict"
    FINISH = "finish"
    SUSPEND = "suspend"  # the clock ended it because its GPUs were idle


ENDS = frozenset({EventKind.EVICT, EventKind.FINISH, EventKind.SUSPEND})
"""Events after which a job has no GPUs."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a simulation."""

    time: int
    """Seconds from the start of the trace."""
    kind: EventKind
    job: int
    """Number of the job in the trace."""
    pool: str = ""
    """Pool in which it starts."""
    text: str = ""
    """Kueue's message."""
    lost_seconds: int = 0
    """Seconds of work that an eviction throws away."""
    preemptor: int | None = None
    """Number of the job for which it is evicted."""
    returned_seconds: int = 0
    """Seconds for which a suspended job would have kept its GPUs."""


@dataclass(frozen=True, slots=True)
class Run:
    """The events of one simulation, and how exact their times are."""

    events: tuple[Event, ...]
    seconds: float
    """Real seconds of the run, without the start of the cluster."""
    checks: int
    """Number of times that the run waited for Kueue to check waiting work again."""
    max_delay: int
    """Max delay of such a check, in simulated seconds."""


def first_part(run: Run, seconds: int) -> Run:
    """The first part of a run, to compare with a run that ended there."""
    return Run(tuple(e for e in run.events if e.time <= seconds), run.seconds, run.checks, run.max_delay)
