"""State of the cluster as the clock has read it, of each object only what it needs, and the decision made from it.

It is read whole once and by its changes from then on, so that a round costs what has changed and not what there is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tenancy.catalog import vocabulary
from tenancy.clock.decision import Desired
from tenancy.clock.idle import idle_rules
from tenancy.clock.usage import AllocationTime, Meter
from tenancy.cluster.api import Api
from tenancy.cluster.evictions import is_evicted_group, keeps_quota_without_pods
from tenancy.cluster.watch_cache import WatchCache
from tenancy.kube.objects import CLOCK_FIELDS, Object
from tenancy.kube.requests import collection
from tenancy.planning.queueing.queue_names import API
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

KINDS = ("Cohort", "ClusterQueue")
Place = tuple[str, str]
"""Kind and name of a Cohort or ClusterQueue."""


class _Work(NamedTuple):
    uid: str
    allocation: AllocationTime | None
    item: Object | None
    """The fields that decide on reservations, idle work and evictions; None for all other work."""


@dataclass
class View:
    """One for the spec files in use: other files need another one."""

    environment: Environment
    tenants: Sequence[Tenant]
    decided: Desired | None = None
    """The decision of the last round."""
    unsettled: set[Place] = field(default_factory=set)
    """Queues and Cohorts that may differ from it: those that changed since, and those that were written."""

    def __post_init__(self) -> None:
        self.rules = idle_rules(self.environment, self.tenants)
        self.meter = Meter(self.environment, self.tenants)
        self._works = WatchCache(collection(API, "Workload"), self._work)
        self._queues = {kind: WatchCache(collection(API, kind), partial(_queue, kind)) for kind in KINDS}

    def forget(self) -> None:
        """Read all of it whole the next time."""
        for followed in (self._works, *self._queues.values()):
            followed.forget()

    def read_work(self, api: Api) -> None:
        """Bring the Workloads to what the cluster has; ApiUnreachable without an answer."""
        self._works.read(api)

    def read_queues(self, api: Api) -> None:
        """Bring queues and Cohorts to what the cluster has; ApiUnreachable without an answer."""
        for kind, followed in self._queues.items():
            self.unsettled |= {(kind, name) for _, name in followed.read(api)}

    def decide(self, decision: Desired) -> None:
        """Take over a decision about the queues."""
        if self.decided is None or self.decided.cause != decision.cause:
            self.unsettled |= decision.by_place().keys()
        self.decided = decision

    @property
    def allocations(self) -> Iterator[tuple[str, AllocationTime]]:
        """Work of tenants that holds GPUs, and when, by uid."""
        return ((work.uid, work.allocation) for work in self._works.values.values() if work.allocation)

    @property
    def works(self) -> list[Object]:
        """Workloads that reserve GPUs, and work that is under an idle rule or was evicted, with the fields that are
        needed."""
        return [work.item for work in self._works.values.values() if work.item]

    def unreleased(self, now: dt.datetime) -> Iterator[Object]:
        """Workloads of tenants that were evicted without pods and keep their quota."""
        return (work for work in self.works if keeps_quota_without_pods(work, now))

    def queue(self, place: Place) -> Object | None:
        """A queue or Cohort of the clock's as the cluster has it; None if there is none."""
        kind, name = place
        return self._queues[kind].values.get(("", name))

    def _work(self, workload: Mapping[str, Any]) -> _Work | None:
        space = workload["metadata"]["namespace"]
        allocation = self.meter.allocation_time(workload)
        # Without an allocation it is no tenant's.
        is_group = allocation is not None and is_evicted_group(workload)
        is_needed = space == vocabulary.PLATFORM_NAMESPACE or space in self.rules or is_group
        return (
            _Work(workload["metadata"]["uid"], allocation, _slim(workload) if is_needed else None)
            if allocation or is_needed
            else None
        )


def _queue(kind: str, item: Mapping[str, Any]) -> Object | None:
    if vocabulary.KEPT_BY_CLOCK not in (item["metadata"].get("annotations") or {}):
        return None
    spec = {key: item["spec"][key] for _, key in CLOCK_FIELDS if key in item["spec"]}
    return {"kind": kind, "metadata": {"name": item["metadata"]["name"]}, "spec": spec}


def _slim(workload: Mapping[str, Any]) -> Object:
    metadata, status = workload["metadata"], workload.get("status") or {}
    metadata_keys = (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "annotations",
        "ownerReferences",
        "deletionTimestamp",
    )
    return {
        "metadata": {key: metadata[key] for key in metadata_keys if key in metadata},
        "spec": {key: value for key, value in (workload.get("spec") or {}).items() if key == "active"},
        "status": {key: value for key, value in status.items() if key in {"conditions", "admission"}},
    }
