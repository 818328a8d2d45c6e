"""Changes of Kueue's objects and of quotas, in the words of `tenancy diff`: guaranteed, lends, may borrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tenancy.catalog import vocabulary
from tenancy.kube import quantities
from tenancy.kube.objects import get_path
from tenancy.kube.quota_tree import stored_quotas

GUARANTEED, BORROWS, LENDS, WEIGHT = "guaranteed", "may borrow", "lends", "weight"
UNALLOCATED = "unallocated"
"""The nominal quota of the root Cohort, which no tenant is guaranteed."""
MACHINE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
STATES: Mapping[Any, str] = {None: "open", "None": "open", "Hold": "hold", "HoldAndDrain": "drain"}
"""Kueue's `stopPolicy`, and the value of `queue` in a tenant's file."""


class DeviceAmount(NamedTuple):
    """An amount of devices that a ClusterQueue or a Cohort has of one pool; the text where it is no quantity."""

    resource: str
    flavor: str
    limit_kind: str
    amount: int | str


def is_device(resource: str) -> bool:
    """Whether a resource of a queue is a kind of device; CPU, memory and parts of boards follow from the devices."""
    return resource not in MACHINE_RESOURCES and not resource.startswith(vocabulary.PREFIX)


def device_amounts(spec: Any) -> Iterator[DeviceAmount]:
    """Every amount of devices in the resource groups of a ClusterQueue's or a Cohort's spec."""
    for quota in stored_quotas(spec):
        if is_device(quota.resource):
            for quantity, limit_kind in (
                (quota.nominal, GUARANTEED),
                (quota.lending, LENDS),
                (quota.borrowing, BORROWS),
            ):
                yield DeviceAmount(quota.resource, quota.flavor, limit_kind, _count(quantity))


def _count(amount: Any) -> int | str:
    """A count of devices; the text itself if it is not a quantity, such as a value unknown in a preview."""
    try:
        return quantities.units(amount or 0)
    except ValueError:
        return str(amount)


def spec_changes(kind: str, before: Any, after: Any) -> tuple[list[str], tuple[str, ...]]:
    """Sentences for a changed spec, and prefixes of the paths that they cover; empty for other kinds."""
    if kind == "ResourceQuota":
        return list(_hard_changes(before, after)), ("spec.hard",)
    if kind not in {"ClusterQueue", "Cohort", "LocalQueue"}:
        return [], ()
    sentences = [*_amount_changes(kind, before, after), *_state_changes(before, after), *_place_changes(before, after)]
    return sentences, (
        "spec.resourceGroups",
        "spec.stopPolicy",
        "spec.fairSharing",
        "spec.cohortName",
        "spec.parentName",
    )


def _amount_changes(kind: str, before: Any, after: Any) -> Iterator[str]:
    root = kind == "Cohort" and not get_path(after, "parentName")
    old, new = (
        {(a.resource, a.flavor, a.limit_kind): a.amount for a in device_amounts(spec)} for spec in (before, after)
    )
    changes: dict[tuple[str, str], list[str]] = {}
    for resource, flavor, limit_kind in dict.fromkeys([*old, *new]):
        old_amount, new_amount = old.get((resource, flavor, limit_kind), 0), new.get((resource, flavor, limit_kind), 0)
        if old_amount != new_amount:
            changes.setdefault((resource, flavor), []).append(
                f"{UNALLOCATED if root and limit_kind == GUARANTEED else limit_kind} {old_amount} → {new_amount}"
            )
    for (resource, flavor), sentences in changes.items():
        yield f"{resource} in {flavor}: {', '.join(sentences)}"
    if not changes and list(stored_quotas(before)) != list(stored_quotas(after)):
        yield "CPU, memory and parts of boards for its devices change"


def _state_changes(before: Any, after: Any) -> Iterator[str]:
    old_policy, new_policy = get_path(before, "stopPolicy"), get_path(after, "stopPolicy")
    if STATES.get(old_policy, old_policy) != STATES.get(new_policy, new_policy):
        yield f"queue {STATES.get(old_policy, old_policy)} → {STATES.get(new_policy, new_policy)}"


def _place_changes(before: Any, after: Any) -> Iterator[str]:
    for path, title in ((("fairSharing", "weight"), WEIGHT), (("cohortName",), "below"), (("parentName",), "below")):
        old_value, new_value = get_path(before, *path), get_path(after, *path)
        if old_value != new_value:
            yield f"{title} {old_value or 'nothing'} → {new_value or 'nothing'}"


def _hard_changes(before: Any, after: Any) -> Iterator[str]:
    old, new = (dict(get_path(spec, "hard") or {}) for spec in (before, after))
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield f"{key} {old.get(key, 'no limit')} → {new.get(key, 'no limit')}"
