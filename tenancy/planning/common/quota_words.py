"""Changes of Kueue's objects and of quotas, in the words of `tenancy diff`: guaranteed, lends, may borrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tenancy.catalog import vocabulary as words
from tenancy.kube import quantities
from tenancy.kube.objects import at
from tenancy.kube.quota_tree import stored_quotas

GUARANTEED, BORROWS, LENDS, WEIGHT = "guaranteed", "may borrow", "lends", "weight"
UNALLOCATED = "unallocated"
"""The nominal quota of the root Cohort, which no tenant is guaranteed."""
MACHINE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
STATES: Mapping[Any, str] = {None: "open", "None": "open", "Hold": "hold", "HoldAndDrain": "drain"}
"""Kueue's `stopPolicy`, and the value of `queue` in a tenant's file."""


class DeviceAmount(NamedTuple):
    """An amount of devices that a ClusterQueue or a Cohort has of one pool; the text where it is no quantity."""

    resource: str
    flavor: str
    what: str
    amount: int | str


def is_device(resource: str) -> bool:
    """Whether a resource of a queue is a kind of device; CPU, memory and parts of boards follow from the devices."""
    return resource not in MACHINE and not resource.startswith(words.PREFIX)


def device_amounts(spec: Any) -> Iterator[DeviceAmount]:
    """Every amount of devices in the resource groups of a ClusterQueue's or a Cohort's spec."""
    for quota in stored_quotas(spec):
        if is_device(quota.resource):
            for given, what in ((quota.nominal, GUARANTEED), (quota.lending, LENDS), (quota.borrowing, BORROWS)):
                yield DeviceAmount(quota.resource, quota.flavor, what, _count(given))


def _count(amount: Any) -> int | str:
    """A count of devices; the text itself if it is not a quantity, such as a value unknown in a preview."""
    try:
        return quantities.units(amount or 0)
    except ValueError:
        return str(amount)


def spec_changes(kind: str, before: Any, after: Any) -> tuple[list[str], tuple[str, ...]]:
    """What a changed spec means, and the beginnings of the paths that are told by it; nothing for other kinds."""
    if kind == "ResourceQuota":
        return list(_hard(before, after)), ("spec.hard",)
    if kind not in {"ClusterQueue", "Cohort", "LocalQueue"}:
        return [], ()
    told = [*_amounts(kind, before, after), *_state(before, after), *_place(before, after)]
    return told, ("spec.resourceGroups", "spec.stopPolicy", "spec.fairSharing", "spec.cohortName", "spec.parentName")


def _amounts(kind: str, before: Any, after: Any) -> Iterator[str]:
    root = kind == "Cohort" and not at(after, "parentName")
    old, new = ({(a.resource, a.flavor, a.what): a.amount for a in device_amounts(spec)} for spec in (before, after))
    changed: dict[tuple[str, str], list[str]] = {}
    for resource, flavor, what in dict.fromkeys([*old, *new]):
        was, becomes = old.get((resource, flavor, what), 0), new.get((resource, flavor, what), 0)
        if was != becomes:
            changed.setdefault((resource, flavor), []).append(
                f"{UNALLOCATED if root and what == GUARANTEED else what} {was} → {becomes}"
            )
    for (resource, flavor), said in changed.items():
        yield f"{resource} in {flavor}: {', '.join(said)}"
    if not changed and list(stored_quotas(before)) != list(stored_quotas(after)):
        yield "CPU, memory and parts of boards for its devices change"


def _state(before: Any, after: Any) -> Iterator[str]:
    was, becomes = at(before, "stopPolicy"), at(after, "stopPolicy")
    if STATES.get(was, was) != STATES.get(becomes, becomes):
        yield f"queue {STATES.get(was, was)} → {STATES.get(becomes, becomes)}"


def _place(before: Any, after: Any) -> Iterator[str]:
    for path, what in ((("fairSharing", "weight"), WEIGHT), (("cohortName",), "below"), (("parentName",), "below")):
        was, becomes = at(before, *path), at(after, *path)
        if was != becomes:
            yield f"{what} {was or 'nothing'} → {becomes or 'nothing'}"


def _hard(before: Any, after: Any) -> Iterator[str]:
    old, new = (dict(at(spec, "hard") or {}) for spec in (before, after))
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield f"{key} {old.get(key, 'no limit')} → {new.get(key, 'no limit')}"
