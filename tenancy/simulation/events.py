"""What happened in a run: all that the results are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    SUBMIT = "submit"
    WAIT = "wait"  # Kueue's reason for not starting it, whenever that changes
    START = "start"
    EVICT = "evict"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Event:
    time: int
    """Seconds from the start of the trace."""
    kind: Kind
    job: int
    """Number of the job in the trace."""
    pool: str = ""
    """Where it starts."""
    text: str = ""
    """Kueue's words."""
    lost: int = 0
    """Seconds of work that an eviction throws away."""
    by: int | None = None
    """For whom it is evicted."""


@dataclass(frozen=True, slots=True)
class Run:
    events: tuple[Event, ...]
    seconds: float
    """How long it took in real time, without the start of the cluster."""
    looks: int
    """How often the run waited for Kueue to look at who waits again."""
    latest: int
    """Most simulated seconds by which such a look was late."""
