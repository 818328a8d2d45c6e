"""Alarms: changes that need a review before the merge."""

from __future__ import annotations

import re
from enum import StrEnum

from tenancy.diff import changes as change_facts
from tenancy.diff.changes import Change, ChangeTopic


class ReviewReason(StrEnum):
    """An effect of a change that a reviewer has to see."""

    LOST_GUARANTEE = "lost-guarantee"  # a tenant has a smaller guarantee than before
    WIDER_ACCESS = "wider-access"  # a subject gains network reach, data access or rights
    NEW_EXCEPTION = "new-exception"  # a rule is waived, or for longer
    BROKEN_RULE = "broken-rule"  # a rule is broken that was not broken before
    DISRUPTION = "disruption"  # running work is replaced, drained or deleted
    HIGHER_COST = "higher-cost"  # the nodes cost more, or their price is unknown


_INCLUDED_IN = {
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
            is_smaller = change.tenant and change.what == change_facts.GUARANTEED and _number(after) < _number(before)
            return ReviewReason.LOST_GUARANTEE if is_smaller else None
        case ChangeTopic.NETWORK | ChangeTopic.ACCESS:
            return ReviewReason.WIDER_ACCESS if _is_wider(before, after) else None
        case ChangeTopic.EXCEPTION:
            return ReviewReason.NEW_EXCEPTION if after is not None and str(after) > str(before or "") else None
        case ChangeTopic.RULE:
            return ReviewReason.BROKEN_RULE if after is not None else None
        case ChangeTopic.WORK:
            return ReviewReason.DISRUPTION if _disrupts(change) else None
        case ChangeTopic.COST:
            nodes = change.what in {change_facts.ALWAYS_ON, change_facts.MAXIMUM}
            is_higher = after == change_facts.UNKNOWN or (
                before != change_facts.UNKNOWN and _number(after) > _number(before)
            )
            return ReviewReason.HIGHER_COST if nodes and is_higher else None
    return None


def _number(value: change_facts.Value) -> int:
    return value if isinstance(value, int) else 0


def _is_wider(before: change_facts.Value, after: change_facts.Value) -> bool:
    """Whether a right is new. Rights are lists of words in one string."""
    former_rights, new_rights = (
        set(re.split(r", | and ", str(value))) if value else set() for value in (before, after)
    )
    return any(
        right not in former_rights and not _INCLUDED_IN.get(right, set()) & former_rights for right in new_rights
    )


def _disrupts(change: Change) -> bool:
    before, after = change.before, change.after
    if change.what == change_facts.GATE:
        return after is not None
    if before is None:
        return False
    if change.what == change_facts.NAMESPACE:
        return after is None and before != "adopted"
    if change.what in {change_facts.NODES_MIN, change_facts.NODES_MAX}:
        return after is not None and _number(after) < _number(before)
    return True
