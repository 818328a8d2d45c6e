"""What a plan is: plain Kubernetes objects in the order in which they are safe to make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenancy.plan.charts import Chart
    from tenancy.plan.cluster import ClusterPlan
    from tenancy.plan.data import DataPlan
    from tenancy.plan.services import ServicesPlan
    from tenancy.plan.tenant_aws import TenantAwsPlan

Object = dict[str, Any]
"""A Kubernetes object as the API takes it: apiVersion, kind, metadata and the rest."""


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """One namespace. Made top to bottom: nobody gets in before the walls stand. Removed bottom to top."""

    namespace: Object
    isolation: tuple[Object, ...]
    access: tuple[Object, ...]
    chart: Chart | None = None
    """Its own control plane, which stands on all the rest; None where it has none."""

    @property
    def name(self) -> str:
        return self.namespace["metadata"]["name"]

    def objects(self) -> Iterator[Object]:
        yield self.namespace
        yield from self.isolation
        yield from self.access


@dataclass(frozen=True, slots=True)
class TenantPlan:
    name: str
    namespaces: tuple[NamespacePlan, ...]
    adopt: bool
    """Whether namespaces of these names that exist already are taken over."""
    queues: tuple[Object, ...] = ()
    """Its Cohort and what its namespaces' queues lead to; made before them, and removed when their work is gone."""
    aws: TenantAwsPlan | None = None
    """Its half on AWS; None where that is switched off."""
    fences: tuple[Object, ...] = ()
    """Clusterwide denies around it, where the CNI has such; made before its namespaces."""

    def objects(self) -> Iterator[Object]:
        yield from self.queues
        yield from self.fences
        for namespace in self.namespaces:
            yield from namespace.objects()


@dataclass(frozen=True, slots=True)
class PlatformPlan:
    """What is cluster-wide, in the order in which it is made.

    `witness` answers whether the guards are in force; while `marker` stands, they are stored.
    """

    namespace: Object
    priorities: tuple[Object, ...]
    roles: tuple[Object, ...]
    guards: tuple[Object, ...]
    witness: tuple[Object, ...]
    marker: Object
    device_classes: tuple[Object, ...] = ()
    storage_classes: tuple[Object, ...] = ()
    pod_settings: tuple[Object, ...] = ()
    """What the API server adds to pods: cost labels, spreading, and a sandbox to those that ask for one."""
    queues: tuple[Object, ...] = ()
    """What tenants' queues stand on, in the order in which it is made; Kueue has to be there."""
    queue_chart: Chart | None = None
    """Kueue; None where nobody queues."""
    metrics_ground: tuple[Object, ...] = ()
    """What `metrics_charts` stand on."""
    metrics_charts: tuple[Chart, ...] = ()
    """What collects metrics, each on those before it; nothing where somebody else does."""
    metrics: tuple[Object, ...] = ()
    """Rules, monitors and the tenants' way to their series; nothing where nobody collects."""
    fences: tuple[Object, ...] = ()
    """Clusterwide denies around all tenants, where the CNI has such; it has to be there."""
    exporters: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Values of charts that somebody else installs, by the chart's name."""
    services: ServicesPlan | None = None
    """What a cluster with machines runs; None in a lab."""
    data: DataPlan | None = None
    """What tenants share on AWS; None where that is switched off."""

    def objects(self) -> Iterator[Object]:
        yield self.namespace
        yield from self.priorities
        yield from self.roles
        yield from self.device_classes
        yield from self.storage_classes
        yield from self.pod_settings
        if self.services:
            yield from self.services.nodes
        yield from self.guards
        yield from self.witness
        yield self.marker
        yield from self.fences
        yield from self.queues
        yield from self.metrics_ground
        yield from self.metrics


@dataclass(frozen=True, slots=True)
class Plan:
    environment: str
    context: str
    """Context of the kubeconfig that the environment is deployed through."""
    platform: PlatformPlan
    tenants: tuple[TenantPlan, ...]
    cluster: ClusterPlan | None = None
    """The AWS half; None where it is switched off."""

    def tenant(self, name: str) -> TenantPlan:
        """The tenant of that name; KeyError if the environment has none."""
        for tenant in self.tenants:
            if tenant.name == name:
                return tenant
        raise KeyError(name)

    def objects(self) -> Iterator[Object]:
        yield from self.platform.objects()
        for tenant in self.tenants:
            yield from tenant.objects()


def digest(objects: Iterator[Object] | list[Object]) -> str:
    """Short hash of a list of objects: equal if and only if nothing would change."""
    text = json.dumps(list(objects), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
