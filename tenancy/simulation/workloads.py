"""The state of each job in a run, and the conditions of its Workload."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenancy.kube.objects import Object
from tenancy.simulation.objects import number_of

_UID = re.compile(r"UID: ([0-9a-f-]{36})")


@dataclass(slots=True)
class JobState:
    """The state of a submitted job."""

    is_seen: bool = False
    """Whether Kueue has reacted to it since it was written."""
    starts: int = 0
    item: Object | None = None
    """The object as last seen."""
    started: int | None = None
    pool: str = ""
    saved_seconds: int = 0
    """Seconds of its work that are saved by checkpoints."""
    has_ended: bool = False
    round: int = 0
    """Number of starts."""
    wait_reason: str = ""
    written_at: float = 0.0


def condition(kind: str, status: str, reason: str, message: str, date: str) -> Object:
    """A condition of a type, as controllers write it."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": date}


def version_of(item: Object) -> int:
    """Number of the write that made this version of an object."""
    return int(item["metadata"]["resourceVersion"])


def without_condition(item: Object, kind: str) -> Object:
    """The object without its condition of a type."""
    status = item.get("status", {})
    other_conditions = [condition for condition in status.get("conditions", []) if condition["type"] != kind]
    return {**item, "status": {**status, "conditions": other_conditions}}


def condition_of(item: Object | None, kind: str) -> Object:
    """A condition of an object; empty if it has none of that type."""
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def preemptor_of(item: Object | None) -> int | None:
    """Number of the job for which Kueue evicted this one; None if it does not say."""
    match = _UID.search(condition_of(item, "Preempted").get("message", ""))
    return number_of(match.group(1)) if match else None
