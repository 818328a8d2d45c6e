"""Tenants with an object that is not as planned: the comparison of `drift`, for a whole fleet in few requests.

Tenants that were found as planned before are asked about only what changed since. Nothing is assumed of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object, place_of
from tenancy.kube.requests import collection
from tenancy.live.api import Api
from tenancy.live.drift import drift, drift_of_object
from tenancy.live.list_changes import Changes, changes
from tenancy.live.selectors import all_tenants_selector, no_object_selector, platform_selector, tenants_selector
from tenancy.planning.model import Plan, PlatformPlan
from tenancy.planning.queueing.queue_names import API

BATCH = 250
"""Tenants whose objects are listed together: one list request for each kind, and the memory for their objects."""
ALWAYS_LISTED = 100
"""Tenants up to which all objects are listed in every run: it takes less time than to wait for watches."""

_LOCAL_QUEUES = collection(API, "LocalQueue")


@dataclass(slots=True)
class FleetDrift:
    """Tenants that are not as planned, and of which resource versions that is known."""

    tenants: set[str] = field(default_factory=set)
    """With an object that is missing, changed or added to."""
    versions: dict[str, int] = field(default_factory=dict)
    """By a list's path: the oldest at which one of the tenants was compared; 0 if it is not known."""

    def note(self, path: str, version: str | int) -> None:
        """Take in the resource version of a list."""
        number = int(version) if str(version).isdecimal() else 0
        self.versions[path] = min(number, self.versions.get(path, number))

    def add(self, result: FleetDrift) -> None:
        """Take in what was found of other tenants."""
        self.tenants |= result.tenants
        for path, version in result.versions.items():
            self.note(path, version)

    def older(self, other: FleetDrift) -> dict[str, int]:
        """By a list's path: the older version of both."""
        paths = self.versions.keys() | other.versions.keys()
        versions_by_path = {
            path: [result.versions[path] for result in (self, other) if path in result.versions] for path in paths
        }
        return {path: min(versions) for path, versions in sorted(versions_by_path.items())}


def drift_by_lists(api: Api, plan: Plan, tenants: Sequence[str], paths: Collection[str] | None = None) -> FleetDrift:
    """Tenants with drift, by all of their objects or by those in the lists of these paths.

    The engine's state is not read, so a value in another form counts too: such a tenant's own run tells the two apart.
    """
    result = FleetDrift()
    for start in range(0, len(tenants), BATCH):
        batch = tenants[start : start + BATCH]
        items = (item for name in batch for item in _planned(plan, name, paths))
        drifts = drift(api, tenants_selector(plan.environment, batch), items, on_list=result.note)
        result.tenants |= {_tenant(object_drift.item) for object_drift in drifts}
    return result


def drift_by_changes(
    api: Api,
    plan: Plan,
    tenants: Sequence[str],
    versions: Mapping[str, int],
    pending_changes: Future[Mapping[str, Changes | None]] | None = None,
) -> FleetDrift:
    """Tenants with drift, if they had none at the resource versions `versions`, by the paths of lists.

    Lists whose changes since then are not known are compared as a whole. `pending_changes` are the changes if they were
    requested before.
    """
    changes_by_path = (
        pending_changes.result()
        if pending_changes
        else changes(api, versions, all_tenants_selector(plan.environment), no_object_selector())
    )
    known_changes = {path: list_changes for path, list_changes in changes_by_path.items() if list_changes is not None}
    unknown_paths = changes_by_path.keys() - known_changes.keys()
    result = drift_by_lists(api, plan, tenants, unknown_paths) if unknown_paths else FleetDrift()
    for path, list_changes in known_changes.items():
        result.note(path, list_changes.version)
    result.tenants |= {*_tenants_with_drift(api, plan, tenants, known_changes)}
    return result


def has_platform_drift(api: Api, environment: str, platform: PlatformPlan) -> bool:
    """Whether an object of the platform is missing, changed or added to."""
    return bool(drift(api, platform_selector(environment), platform.objects()))


def _tenants_with_drift(
    api: Api, plan: Plan, tenants: Sequence[str], changes_by_path: Mapping[str, Changes]
) -> Iterator[str]:
    """The tenants of changed objects that are not as planned any more."""
    selected, tenant_names = set(tenants), set(plan.names)
    for path, list_changes in changes_by_path.items():
        by_tenant: dict[str, dict[tuple[str, str], tuple[Object, bool]]] = {}
        for place, (live, exists) in list_changes.objects.items():
            by_tenant.setdefault(_tenant(live), {})[place] = live, exists
        strays: list[tuple[str, str]] = []
        for name, objects in by_tenant.items():
            planned = _by_place(plan, [name] if name in tenant_names else [], path)
            for place, (live, exists) in objects.items():
                if place not in planned:
                    strays.append(place)
                elif name in selected and (not exists or drift_of_object(api, planned[place], live)):
                    yield name
        if strays:
            # The label of an object says what tenant it belongs to, unless that is what changed.
            planned_by_place = _by_place(plan, tenants, path)
            yield from (_tenant(planned_by_place[place]) for place in strays if place in planned_by_place)


def _by_place(plan: Plan, tenants: Iterable[str], path: str) -> dict[tuple[str, str], Object]:
    return {place_of(item): item for name in tenants for item in _planned(plan, name, {path})}


def _planned(plan: Plan, tenant: str, paths: Collection[str] | None) -> Iterator[Object]:
    """All objects of the tenant, or those in the lists of these paths."""
    if paths is not None and {*paths} == {_LOCAL_QUEUES}:
        return plan.local_queues(tenant)
    items = plan.tenant(tenant).objects()
    return items if paths is None else (item for item in items if _list_of(item) in paths)


def _list_of(item: Object) -> str:
    return collection(item["apiVersion"], item["kind"])


def _tenant(item: Object) -> str:
    return str((item["metadata"].get("labels") or {}).get(words.TENANT, ""))
