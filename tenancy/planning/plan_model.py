"""The plan: the objects of the platform and of each tenant, in the order in which they are safe to create.

Readers of the plan use its fields. Its properties `namespace`, `isolation`, `access`, `roles` and `queues` are
manifests, for what writes them or compares them with a cluster: components, files, GitOps, drift.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.aws.cluster import AccountPlan, ClusterPlan
from tenancy.planning.aws.platform_models import DataPlan
from tenancy.planning.aws.tenant_models import TenantAwsPlan
from tenancy.planning.common.charts import HelmChart
from tenancy.planning.common.meta import Meta
from tenancy.planning.kubernetes.namespace_objects import (
    ClusterRole,
    LimitRange,
    NetworkPolicy,
    PodAccount,
    ResourceQuota,
    RoleBinding,
)
from tenancy.planning.queueing.queue_objects import ClusterQueue, Cohort, LocalQueue, QueueingPlan
from tenancy.planning.queueing.quota_shares import QueueShare
from tenancy.planning.services import ServicesPlan


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """One namespace. Created top to bottom, so that isolation exists before access; deleted bottom to top."""

    meta: Meta
    """Name, labels and annotations of the namespace itself."""
    quota: ResourceQuota
    class_quotas: tuple[ResourceQuota, ...]
    """By priority class, where that is less than `quota`."""
    limits: LimitRange
    default_account: PodAccount
    policies: tuple[NetworkPolicy, ...]
    cilium_policies: tuple[Object, ...] = ()
    """Policies that no NetworkPolicy can express; empty where another CNI enforces."""
    local_queues: tuple[LocalQueue, ...] = ()
    accounts: tuple[PodAccount, ...] = ()
    """Beside the default one."""
    bindings: tuple[RoleBinding, ...] = ()
    chart: HelmChart | None = None
    """Its virtual control plane, installed after everything else; None where it has none."""

    @property
    def name(self) -> str:
        """Name of the namespace in the cluster."""
        return self.meta.name

    @property
    def quotas(self) -> tuple[ResourceQuota, ...]:
        """Its quota, and those of single priority classes."""
        return (self.quota, *self.class_quotas)

    @property
    def namespace(self) -> Object:
        """Manifest of the namespace itself."""
        return self.meta.manifest("v1", "Namespace", {})

    @property
    def isolation(self) -> tuple[Object, ...]:
        """Manifests of what isolates it, in the order of creation."""
        policies = (*(policy.manifest() for policy in self.policies), *self.cilium_policies)
        limits = (*self.quotas, self.limits, self.default_account)
        return (*(item.manifest() for item in limits), *policies, *(queue.manifest() for queue in self.local_queues))

    @property
    def access(self) -> tuple[Object, ...]:
        """Manifests of what grants access to it, in the order of creation."""
        return tuple(item.manifest() for item in (*self.accounts, *self.bindings))

    def objects(self) -> Iterator[Object]:
        """All objects of the namespace, in the order in which they are made."""
        yield self.namespace
        yield from self.isolation
        yield from self.access


@dataclass(frozen=True, slots=True)
class TenantPlan:
    """The objects of one tenant."""

    name: str
    namespaces: tuple[NamespacePlan, ...]
    adopt: bool
    """Whether namespaces of these names that exist already are taken over."""
    cohort: Cohort | None = None
    """The Cohort over its queues; None with one queue, which is in its department's."""
    cluster_queues: tuple[ClusterQueue, ...] = ()
    """Queues that its namespaces' LocalQueues lead to; created before them, and removed when their work is gone."""
    aws: TenantAwsPlan | None = None
    """Its half on AWS; None where that is switched off."""
    cluster_policies: tuple[Object, ...] = ()
    """Clusterwide denies around it, where the CNI has such; made before its namespaces."""

    @property
    def queues(self) -> tuple[Object, ...]:
        """Manifests of its Cohort and its ClusterQueues, in the order of creation."""
        return tuple(item.manifest() for item in (self.cohort, *self.cluster_queues) if item)

    def objects(self) -> Iterator[Object]:
        """All Kubernetes objects of the tenant, in the order in which they are made."""
        yield from self.queues
        yield from self.cluster_policies
        for namespace in self.namespaces:
            yield from namespace.objects()


@dataclass(frozen=True, slots=True)
class Admission:
    """Namespaces that the guards judge, and the group that may change tenants' namespaces."""

    group: str
    """The platform's."""
    enforced: bool
    """Whether they refuse; else they warn."""
    platform: frozenset[str] = frozenset()
    """Namespaces in which they judge nothing."""
    unmanaged: frozenset[str] = frozenset()
    """Those in which they judge only what reaches tenants."""
    temporary: tuple[str, ...] = ()
    """Names, or beginnings of names with '*', of those in which they judge nothing for a time."""

    def is_decided(self, namespace: str) -> bool:
        """Whether the environment's file says what becomes of a namespace that is no tenant's."""
        if namespace in self.platform or namespace in self.unmanaged:
            return True
        if vocabulary.SEPARATOR in namespace:
            return False
        return any(
            namespace.startswith(name.removesuffix("*")) if name.endswith("*") else namespace == name
            for name in self.temporary
        )


@dataclass(frozen=True, slots=True)
class PlatformPlan:
    """Cluster-wide objects, in the order of creation.

    `readiness_probe` answers whether the guards are enforced. While `marker` exists, they are stored.
    """

    namespace: Object
    priorities: tuple[Object, ...]
    cluster_roles: tuple[ClusterRole, ...]
    guards: tuple[Object, ...]
    readiness_probe: tuple[Object, ...]
    marker: Object
    device_classes: tuple[Object, ...] = ()
    storage_classes: tuple[Object, ...] = ()
    pod_settings: tuple[Object, ...] = ()
    """Mutations of pods by the API server: cost labels, spreading, and a sandbox for those that ask for one."""
    flow_control: tuple[Object, ...] = ()
    """Limits on the concurrent API requests of tenants and of the platform."""
    queueing: QueueingPlan | None = None
    """Prerequisites of the tenants' queues; None where the environment has no queue."""
    queue_chart: HelmChart | None = None
    """Kueue; None where the environment has no queue."""
    metrics_prerequisites: tuple[Object, ...] = ()
    """Objects that `metrics_charts` depend on."""
    metrics_charts: tuple[HelmChart, ...] = ()
    """Charts that collect metrics, each after those that it depends on; empty where the platform does not install
    Prometheus."""
    metrics: tuple[Object, ...] = ()
    """Rules, monitors and the tenants' access to their series; empty where no metrics are collected."""
    cluster_policies: tuple[Object, ...] = ()
    """Clusterwide denies around all tenants, where the CNI has such; it has to be there."""
    exporters: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Values of charts that are installed outside this environment, by the chart's name."""
    mig_parted: dict[str, Any] = field(default_factory=dict)
    """Layouts by pool, for `nvidia-mig-parted` on a node; empty where no pool has MIG."""
    services: ServicesPlan | None = None
    """Services of a cluster with machines; None in a lab."""
    data: DataPlan | None = None
    """AWS resources that tenants share; None where AWS is switched off."""
    admission: Admission = Admission("", enforced=True)

    @property
    def roles(self) -> tuple[Object, ...]:
        """Manifests of the ClusterRoles."""
        return tuple(role.manifest() for role in self.cluster_roles)

    @property
    def queues(self) -> tuple[Object, ...]:
        """Manifests of what tenants' queues depend on, in the order of creation; they need Kueue."""
        return tuple(self.queueing.manifests()) if self.queueing else ()

    def objects(self) -> Iterator[Object]:
        """All Kubernetes objects of the platform, in the order in which they are made."""
        yield self.namespace
        yield from self.priorities
        yield from self.roles
        yield from self.device_classes
        yield from self.storage_classes
        yield from self.pod_settings
        yield from self.flow_control
        if self.services:
            yield from self.services.nodes
        yield from self.guards
        yield from self.readiness_probe
        yield self.marker
        yield from self.cluster_policies
        yield from self.queues
        yield from self.metrics_prerequisites
        yield from self.metrics


@dataclass(frozen=True, slots=True)
class Plan:
    """All objects and AWS resources of an environment, computed from its spec."""

    environment: str
    context: str
    """Context of the kubeconfig that the environment is deployed through."""
    platform: PlatformPlan
    tenants: tuple[TenantPlan, ...]
    """By name."""
    cluster: ClusterPlan | None = None
    """Network, cluster and nodes; None where they exist already."""
    account: AccountPlan | None = None
    """Account and region of the AWS resources; None where AWS is switched off."""
    shares: Mapping[str, QueueShare] = field(default_factory=dict)
    """Each tenant's share of the queues, which depends on the other tenants too; empty where there is no queue."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tenants."""
        return tuple(tenant.name for tenant in self.tenants)

    @property
    def admission(self) -> Admission:
        """Namespaces that the guards judge."""
        return self.platform.admission

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """Every Cohort: the organisation's, the departments', the tenants'."""
        platform_cohorts = self.platform.queueing.cohorts if self.platform.queueing else ()
        return (*platform_cohorts, *(tenant.cohort for tenant in self.tenants if tenant.cohort))

    @property
    def cluster_queues(self) -> tuple[ClusterQueue, ...]:
        """Every tenant's ClusterQueues."""
        return tuple(queue for tenant in self.tenants for queue in tenant.cluster_queues)

    def tenant(self, name: str) -> TenantPlan:
        """The tenant of that name; KeyError if the environment has none."""
        index = bisect_left(self.tenants, name, key=attrgetter("name"))
        if self.tenants[index : index + 1] and self.tenants[index].name == name:
            return self.tenants[index]
        raise KeyError(name)

    def objects(self) -> Iterator[Object]:
        """All Kubernetes objects, those of the platform first."""
        yield from self.platform.objects()
        for tenant in self.tenants:
            yield from tenant.objects()
