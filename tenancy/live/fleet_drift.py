"""Which tenants have an object that is not as planned: the question of `drift`, for a whole fleet in few requests.

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
from tenancy.live.changed import Changes, changes
from tenancy.live.drift import drift, of_object
from tenancy.live.selectors import of_all_tenants, of_none, of_platform, of_tenants
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

    def add(self, other: FleetDrift) -> None:
        """Take in what was found of other tenants."""
        self.tenants |= other.tenants
        for path, version in other.versions.items():
            self.note(path, version)

    def older(self, other: FleetDrift) -> dict[str, int]:
        """By a list's path: the older version of both."""
        paths = self.versions.keys() | other.versions.keys()
        found = {path: [each.versions[path] for each in (self, other) if path in each.versions] for path in paths}
        return {path: min(versions) for path, versions in sorted(found.items())}


def compared(api: Api, plan: Plan, tenants: Sequence[str], paths: Collection[str] | None = None) -> FleetDrift:
    """Which of the tenants have drift, by all of their objects or by those in the lists of these paths.

    The engine's state is not read, so a value in another form counts too: such a tenant's own run tells the two apart.
    """
    found = FleetDrift()
    for start in range(0, len(tenants), BATCH):
        batch = tenants[start : start + BATCH]
        wanted = (item for name in batch for item in _planned(plan, name, paths))
        late = drift(api, of_tenants(plan.environment, batch), wanted, listed=found.note)
        found.tenants |= {_tenant(each.item) for each in late}
    return found


def followed(
    api: Api,
    plan: Plan,
    tenants: Sequence[str],
    since: Mapping[str, int],
    asked: Future[Mapping[str, Changes | None]] | None = None,
) -> FleetDrift:
    """Which of the tenants have drift, if they had none at the resource versions `since`, by the paths of lists.

    Lists whose changes since then are not known are compared as a whole. `asked` are the changes if they were asked for
    before.
    """
    news = asked.result() if asked else changes(api, since, of_all_tenants(plan.environment), of_none())
    known = {path: each for path, each in news.items() if each is not None}
    unknown = news.keys() - known.keys()
    found = compared(api, plan, tenants, unknown) if unknown else FleetDrift()
    for path, each in known.items():
        found.note(path, each.version)
    found.tenants |= {*_changed(api, plan, tenants, known)}
    return found


def platform_drifted(api: Api, environment: str, platform: PlatformPlan) -> bool:
    """Whether an object of the platform is missing, changed or added to."""
    return bool(drift(api, of_platform(environment), platform.objects()))


def _changed(api: Api, plan: Plan, tenants: Sequence[str], news: Mapping[str, Changes]) -> Iterator[str]:
    """The tenants of changed objects that are not as planned any more."""
    among, known = set(tenants), set(plan.names)
    for path, each in news.items():
        by_tenant: dict[str, dict[tuple[str, str], tuple[Object, bool]]] = {}
        for place, (live, there) in each.objects.items():
            by_tenant.setdefault(_tenant(live), {})[place] = live, there
        strays: list[tuple[str, str]] = []
        for name, objects in by_tenant.items():
            planned = _by_place(plan, [name] if name in known else [], path)
            for place, (live, there) in objects.items():
                if place not in planned:
                    strays.append(place)
                elif name in among and (not there or of_object(api, planned[place], live)):
                    yield name
        if strays:
            # The label of an object says what tenant it belongs to, unless that is what changed.
            whole = _by_place(plan, tenants, path)
            yield from (_tenant(whole[place]) for place in strays if place in whole)


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
