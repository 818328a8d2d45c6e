"""`tenancy up` tells a change of quotas in the words of `tenancy diff`, with no path into an object that has words."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tenancy.deploy.changes import Outcome
from tenancy.kube.objects import Object, identity
from tenancy.planning import make_plan
from tenancy.planning.common.quota_changes import device_amounts, spec_changes
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder

FRAUD, ENV = "tenants/fraud.yaml", "environment.yaml"
SHARE = "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"


def paths(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Every place in which two values differ, as the engine writes it."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            name = f'["{key}"]' if "." in key or "/" in key else f".{key}"
            yield from paths(before.get(key), after.get(key), (place + name).removeprefix("."))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old_item, new_item) in enumerate(zip(before, after, strict=True)):
            yield from paths(old_item, new_item, f"{place}[{number}]")
    elif before != after:
        yield place


def updates(before: Object, after: Object) -> list[str]:
    """Details that `tenancy up` prints for the change of one object."""
    step = SimpleNamespace(
        op=SimpleNamespace(value="update"),
        type=f"kubernetes:{after['apiVersion']}:{after['kind']}",
        urn="",
        old=SimpleNamespace(inputs=before),
        new=SimpleNamespace(inputs=after),
        detailed_diff=None,
        diffs=list(paths(before, after)),
    )
    outcome = Outcome()
    event = SimpleNamespace(policy_event=None, diagnostic_event=None, resource_pre_event=SimpleNamespace(metadata=step))
    outcome.listen(event)
    (change,) = outcome.changes
    return list(change.details)


def changed_details(before: Loaded, after: Loaded) -> dict[tuple[str, str], list[str]]:
    old, new = ({identity(item): item for item in make_plan(side, side.day).objects()} for side in (before, after))
    return {(key[0], key[2]): updates(old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]}


@pytest.mark.parametrize(
    ("old", "new", "cohort"),
    [
        (
            SHARE,
            SHARE.replace("borrowing-limit: 16", "borrowing-limit: 8"),
            "nvidia.com/gpu in train: may borrow 16 → 8",
        ),
        (SHARE, SHARE.replace("lending-limit: 8", "lending-limit: 3"), "nvidia.com/gpu in train: lends 8 → 3"),
        (SHARE, "a100: {guaranteed: 16}", "nvidia.com/gpu in train: lends 8 → 0, may borrow 16 → 0"),
        ("tier: batch\n", "tier: batch\nweight: 3\n", "weight 1 → 3"),
    ],
)
def test_limits_are_told_as_diff_tells_them(spec: SpecFolder, old: str, new: str, cohort: str) -> None:
    before = spec.load()
    spec.edit(FRAUD, old, new)
    details_by_object = changed_details(before, spec.load())
    assert details_by_object["Cohort", "tenant--fraud"] == [cohort]
    all_details = [detail for details in details_by_object.values() for detail in details]
    assert not [detail for detail in all_details if "resourceGroups" in detail or "[" in detail], all_details


def test_a_guarantee_and_a_hold_are_told_as_the_files_name_them(spec: SpecFolder) -> None:
    before = spec.load()
    spec.edit(FRAUD, "guaranteed: 16,", "guaranteed: 24,")
    spec.add(FRAUD, "stop-policy: hold\n")
    details_by_object = changed_details(before, spec.load())
    amounts, *state = details_by_object["ClusterQueue", "fraud--batch"]
    assert amounts.startswith("nvidia.com/gpu in train: guaranteed 16 → 24, ")
    assert state == ["queue open → hold"]
    assert details_by_object["Cohort", "organisation"] == ["nvidia.com/gpu in train: unallocated 8 → 0"]
    (quota_detail,) = [
        detail for (kind, name), details in details_by_object.items() if kind == "ResourceQuota" for detail in details
    ][:1]
    assert quota_detail == "requests.nvidia.com/gpu 32 → 40"


def test_machine_amounts_alone_are_told_in_one_phrase(spec: SpecFolder) -> None:
    before = spec.load()
    spec.edit(ENV, "quota: {cpu: 128,", "quota: {cpu: 96,")
    details_by_object = changed_details(before, spec.load())
    all_details = {
        detail
        for (kind, _), details in details_by_object.items()
        if kind in {"ClusterQueue", "Cohort"}
        for detail in details
    }
    assert all_details <= {"CPU, memory and parts of boards for its devices change"}


def test_every_kind_with_quotas_of_devices_has_words(spec: SpecFolder) -> None:
    loaded = spec.load()
    kinds = {
        item["kind"]
        for item in make_plan(loaded, loaded.day).objects()
        if item["apiVersion"].startswith("kueue.") and list(device_amounts(item.get("spec")))
    }
    assert kinds == {"ClusterQueue", "Cohort"}
    for kind in (*kinds, "LocalQueue", "ResourceQuota"):
        assert spec_changes(kind, {}, {})[1], kind
