"""Alarms: changes that need a review before the merge."""

from __future__ import annotations

import re
from enum import StrEnum

from tenancy.diff import changes as of
from tenancy.diff.changes import Change, ChangeTopic


class ReviewReason(StrEnum):
    """An effect of a change that a reviewer has to see."""

    LOST_GUARANTEE = "lost-guarantee"  # a tenant has a smaller guarantee than before
    WIDER_ACCESS = "wider-access"  # a subject gains network reach, data access or rights
    NEW_EXCEPTION = "new-exception"  # a rule is waived, or for longer
    BROKEN_RULE = "broken-rule"  # a rule is broken that was not broken before
    DISRUPTION = "disruption"  # running work is replaced, drained or deleted
    HIGHER_COST = "higher-cost"  # the nodes cost more, or their price is unknown


_WITHIN = {
    "viewer": {"operator", "developer", "owner"},
    "developer": {"owner"},
    "writes what is new": {"writes"},
    "deletes nothing": {"reads"},
}
"""Rights that are included in other rights."""


def alarm(change: Change) -> ReviewReason | None:
    """The alarm that a change raises; None if it raises none."""
    before, after = change.before, change.after
    match change.topic:
        case ChangeTopic.GPUS:
            lost = change.tenant and change.what == of.GUARANTEED and _number(after) < _number(before)
            return ReviewReason.LOST_GUARANTEE if lost else None
        case ChangeTopic.NETWORK | ChangeTopic.ACCESS:
            return ReviewReason.WIDER_ACCESS if _wider(before, after) else None
        case ChangeTopic.EXCEPTION:
            return ReviewReason.NEW_EXCEPTION if after is not None and str(after) > str(before or "") else None
        case ChangeTopic.RULE:
            return ReviewReason.BROKEN_RULE if after is not None else None
        case ChangeTopic.WORK:
            return ReviewReason.DISRUPTION if _disrupts(change) else None
        case ChangeTopic.COST:
            nodes = change.what in {of.ALWAYS_ON, of.MAXIMUM}
            more = after == of.UNKNOWN or (before != of.UNKNOWN and _number(after) > _number(before))
            return ReviewReason.HIGHER_COST if nodes and more else None
    return None


def _number(value: of.Value) -> int:
    return value if isinstance(value, int) else 0


def _wider(before: of.Value, after: of.Value) -> bool:
    """Whether a right is new. Rights are lists of words in one string."""
    had, has = (set(re.split(r", | and ", str(value))) if value else set() for value in (before, after))
    return any(right not in had and not _WITHIN.get(right, set()) & had for right in has)


def _disrupts(change: Change) -> bool:
    before, after = change.before, change.after
    if change.what == of.GATE:
        return after is not None
    if before is None:
        return False
    if change.what == of.NAMESPACE:
        return after is None and before != "adopted"
    if change.what in {of.NODES_MIN, of.NODES_MAX}:
        return after is not None and _number(after) < _number(before)
    return True
