"""Kueue's objects as the plan holds them; each becomes a manifest at the edge.

Amounts of a quota are CPU in thousandths, memory in Mi, all other resources in units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tenancy.kube import quantities
from tenancy.kube.objects import Object
from tenancy.kube.quota_tree import FlavorQuota, Place
from tenancy.planning.common.meta import Meta, PlannedObject
from tenancy.planning.queueing.queue_names import API, CORES, MEMORY
from tenancy.spec.fields.base import amount


@cache
def _quantity_text(resource: str, count: int) -> str:
    if resource == CORES:
        return quantities.write_count(count)
    if resource == "cpu":
        return quantities.write_count(count // 1000) if count % 1000 == 0 else f"{count}m"
    if resource in {"memory", MEMORY}:
        return quantities.write(amount(f"{count}Mi"))
    return quantities.write_count(count)


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that get their quota from one flavor together."""

    covered: tuple[str, ...]
    flavors: Mapping[str, Mapping[str, FlavorQuota]]
    """Flavors in the order in which Kueue tries them; each lists all covered resources."""

    def manifest(self) -> Object:
        """As the API server takes it."""
        return {
            "coveredResources": list(self.covered),
            "flavors": [
                {"name": name, "resources": [_resource(resource, quota) for resource, quota in quotas.items()]}
                for name, quotas in self.flavors.items()
            ],
        }


def _resource(name: str, quota: FlavorQuota) -> Object:
    limits = {"nominalQuota": quota.nominal, "borrowingLimit": quota.borrowing, "lendingLimit": quota.lending}
    return {"name": name, **{key: _quantity_text(name, count) for key, count in limits.items() if count is not None}}


def _quotas(groups: tuple[ResourceGroup, ...]) -> dict[Place, FlavorQuota]:
    return {
        (flavor, resource): quota
        for group in groups
        for flavor, quotas in group.flavors.items()
        for resource, quota in quotas.items()
    }


@dataclass(frozen=True, slots=True)
class ResourceFlavor(PlannedObject):
    """The nodes of a pool."""

    meta: Meta
    node_labels: Mapping[str, str] | None = None
    """None: any node; then nothing else is set."""
    taints: tuple[Mapping[str, str], ...] = ()
    """Taints of these nodes, which work with this flavor tolerates."""
    topology: str | None = None

    def manifest(self) -> Object:
        """The ResourceFlavor as an object."""
        spec: dict[str, Any] = {}
        if self.node_labels is not None:
            taints = [dict(taint) for taint in self.taints]
            spec = {
                "nodeLabels": dict(self.node_labels),
                "nodeTaints": taints,
                # Only who asks for a GPU gets this flavor, so the pods that it opens the pool to are the pool's.
                "tolerations": [{"operator": "Equal", **taint} for taint in taints],
                **({"topologyName": self.topology} if self.topology else {}),
            }
        return self.meta.manifest(API, "ResourceFlavor", {"spec": spec})


@dataclass(frozen=True, slots=True)
class Cohort(PlannedObject):
    """Queues and Cohorts that share quota."""

    meta: Meta
    parent: str | None
    """The Cohort above it; None for the root."""
    groups: tuple[ResourceGroup, ...]
    weight: int | None = None
    """Its weight among the Cohorts and queues of one parent; None for the root."""

    @property
    def quotas(self) -> Mapping[Place, FlavorQuota]:
        """Its quotas, by flavor and resource."""
        return _quotas(self.groups)

    def manifest(self) -> Object:
        """The Cohort as an object."""
        spec: dict[str, Any] = {"resourceGroups": [group.manifest() for group in self.groups]}
        if self.parent is not None:
            spec["parentName"] = self.parent
        if self.weight is not None:
            spec["fairSharing"] = {"weight": str(self.weight)}
        return self.meta.manifest(API, "Cohort", {"spec": spec})


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """A check that work passes before it is admitted to some flavors."""

    name: str
    flavors: tuple[str, ...]

    def manifest(self) -> Object:
        """As the API server takes it."""
        return {"name": self.name, "onFlavors": list(self.flavors)}


OPEN = "None"
"""Kueue's stop policy of a queue that admits work."""


@dataclass(frozen=True, slots=True)
class ClusterQueue(PlannedObject):
    """A tenant's share for one tier."""

    meta: Meta
    parent: str
    """The Cohort above it."""
    selects: Mapping[str, str]
    """Labels of the namespaces that it admits."""
    groups: tuple[ResourceGroup, ...]
    weight: int
    strict: bool
    """Whether work starts strictly in order."""
    stop: str
    checks: tuple[AdmissionCheck, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it admits work."""
        return self.stop == OPEN

    @property
    def quotas(self) -> Mapping[Place, FlavorQuota]:
        """Its quotas, by flavor and resource."""
        return _quotas(self.groups)

    @property
    def flavors(self) -> tuple[str, ...]:
        """Its flavors, in the order in which Kueue tries them."""
        return tuple(flavor for group in self.groups for flavor in group.flavors)

    def manifest(self) -> Object:
        """The ClusterQueue as an object."""
        checks = {"admissionChecksStrategy": {"admissionChecks": [check.manifest() for check in self.checks]}}
        spec = {
            "cohortName": self.parent,
            "namespaceSelector": {"matchLabels": dict(self.selects)},
            "queueingStrategy": "StrictFIFO" if self.strict else "BestEffortFIFO",
            "resourceGroups": [group.manifest() for group in self.groups],
            # What is promised in any pool before what others lend in a better one: who borrows may be evicted. And free
            # GPUs anywhere before other work is evicted.
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                # A lender gets its GPUs back, from work of any priority.
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "Never"},
            },
            "fairSharing": {"weight": str(self.weight)},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "stopPolicy": self.stop,
            **(checks if self.checks else {}),
        }
        return self.meta.manifest(API, "ClusterQueue", {"spec": spec})


@dataclass(frozen=True, slots=True)
class LocalQueue(PlannedObject):
    """A queue that work in a namespace names."""

    meta: Meta
    queue: str
    """The ClusterQueue that it leads to."""
    stop: str
    weight: int

    def manifest(self) -> Object:
        """The LocalQueue as an object."""
        spec = {
            "clusterQueue": self.queue,
            "stopPolicy": self.stop,
            "fairSharing": {"weight": str(self.weight)},
        }
        return self.meta.manifest(API, "LocalQueue", {"spec": spec})


@dataclass(frozen=True, slots=True)
class QueueingPlan:
    """Objects that all queues depend on, in the order of creation; they need Kueue."""

    topologies: tuple[Object, ...] = ()
    flavors: tuple[ResourceFlavor, ...] = ()
    priorities: tuple[Object, ...] = ()
    """Kueue's priority classes."""
    checks: tuple[Object, ...] = ()
    """The admission check for nodes that are added on request, and its settings."""
    cohorts: tuple[Cohort, ...] = ()
    """The organisation and its departments."""
    clock: tuple[Object, ...] = ()
    """The clock's service account, its rights and its Deployment; empty without queues.clock."""
    reserve: tuple[ClusterQueue | LocalQueue, ...] = ()
    """Queues of the Workloads that reserve GPUs for windows; empty without queues.clock."""

    def manifests(self) -> Iterator[Object]:
        """Manifests of all of them."""
        yield from self.clock
        yield from self.topologies
        yield from (flavor.manifest() for flavor in self.flavors)
        yield from self.priorities
        yield from self.checks
        yield from (cohort.manifest() for cohort in self.cohorts)
        yield from (queue.manifest() for queue in self.reserve)
