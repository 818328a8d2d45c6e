"""`environment.yaml`: the cluster, its pools and the limits of each tier of tenants, with derived look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field

from tenancy.catalog import boards, nodes, vocabulary
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.rules.values import (
    unusable_namespace,
)
from tenancy.spec.fields.aws import Aws
from tenancy.spec.fields.base import FlavorName, Positive, ShortName, Slug, Spec, TextForm
from tenancy.spec.fields.cluster import (
    SERVICE_CIDRS,
    Cluster,
    ClusterMode,
    Cni,
    Devices,
    Images,
    Sandbox,
    VirtualClusters,
)
from tenancy.spec.fields.costs import Costs, Price
from tenancy.spec.fields.data import Buckets, FileAccessPoints
from tenancy.spec.fields.metrics import Metrics
from tenancy.spec.fields.organisation import Organisation
from tenancy.spec.fields.platform import Platform
from tenancy.spec.fields.pools import Flavor, GpuPartition, Pool, Strategy, resource_name
from tenancy.spec.fields.queues import Queues, Scheduler
from tenancy.spec.fields.rollout import Rollout
from tenancy.spec.fields.services import Services, Source
from tenancy.spec.fields.tiers import IdleAction, Tier, TierName
from tenancy.spec.reading.mistakes import Mistake

OPERATOR_PARTS = ("device-plugin", "dcgm-exporter")
"""Services that the chart of NVIDIA's GPU operator installs."""


class GuardsMode(StrEnum):
    """Whether admission policies refuse requests or only warn."""

    ENFORCE = "enforce"
    AUDIT = "audit"  # nothing is refused: the user is warned, and the audit log records it


class Layout(StrEnum):
    """Split of an environment's objects into Pulumi stacks."""

    ONE = "one"  # one stack for everything: best up to about five tenants
    PER_TENANT = "per-tenant"  # a platform stack and one per tenant: a change runs about 30 resources, not all


_NamePattern = Annotated[
    str,
    TextForm(
        r"^([a-z0-9-]|\{namespace\})*\{tenant\}([a-z0-9-]|\{namespace\})*$",
        "lower-case letters, digits and dashes, with {tenant} once and {namespace}",
        'write it like "{tenant}-{namespace}", with quotes',
        100,
    ),
]


class Environment(Spec):
    """One cluster and all that its tenants share."""

    environment: ShortName = Field(description="Name of the environment, equal to the name of its folder. Required.")
    organisation: Organisation = Field(description="Organisation and departments that share the cluster. Required.")
    platform: Platform = Field(description="Platform team: its group, namespaces and services. Required.")
    cluster: Cluster = Field(description="Kubernetes cluster: name, version, network and devices. Required.")
    namespace_name: _NamePattern = Field(
        default=vocabulary.NAMESPACE_NAME,
        description="Pattern of the names of tenants' namespaces; {tenant} and {namespace} stand for their names in "
        "the tenant's file. Without {namespace}, a tenant has one namespace. A namespace may have a name of its own "
        "instead, as its namespace-name. Changing it deletes and makes every namespace. Default: "
        "{tenant}--{namespace}.",
    )
    guards: GuardsMode = Field(
        default=GuardsMode.ENFORCE,
        description="Whether guards refuse requests that break a rule, or only warn (audit). audit is for a cluster "
        "with existing workloads, until `tenancy report adoption` finds nothing; tenants are not isolated meanwhile. "
        "Default: enforce.",
    )
    stacks: Layout = Field(
        default=Layout.ONE, description="How the environment is split into Pulumi stacks. Default: one."
    )
    rollout: Rollout | None = Field(
        default=None,
        description="Waves in which a new version of the program reaches the stacks of tenants. Default: all at once.",
    )
    aws: Aws = Field(default_factory=Aws, description="AWS side of the environment. Default: disabled.")
    services: Services = Field(
        default_factory=Services,
        description="Services on the cluster's nodes: installed by the environment, present, or none. Default: the "
        "defaults of its fields.",
    )
    images: Images = Field(description="Registries of container images. Required.")
    sandbox: Sandbox | None = Field(
        default=None, description="Runtime of tenants with isolation: sandbox. Default: no tenant may have it."
    )
    virtual_clusters: VirtualClusters | None = Field(
        default=None,
        description="Control planes of tenants with isolation: virtual-cluster. Default: no tenant may have it.",
    )
    queues: Queues = Field(
        default_factory=Queues, description="How GPUs are shared over time. Default: the defaults of its fields."
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="Price of a whole GPU for one hour, dollars, by board; makes shares of different boards "
        "comparable. For all boards of the flavors, or none. Default: none.",
    )
    costs: Costs = Field(
        default_factory=Costs,
        description="Further prices and keys for `tenancy chargeback`. Default: the defaults of its fields.",
    )
    metrics: Metrics = Field(
        default_factory=Metrics,
        description="Collection of metrics and alerts. Default: no metrics are collected and no alerts are sent.",
    )
    buckets: Buckets = Field(
        default_factory=dict,
        description="S3 buckets in which tenants may have prefixes: a list of names, or a mapping of names to "
        "settings. Default: none.",
    )
    efs_access_points: FileAccessPoints = Field(
        default_factory=dict,
        description="EFS access points that tenants may use, by ARN: a list, or a mapping of ARNs to settings. "
        "Default: none.",
    )
    tiers: dict[TierName, Tier] = Field(min_length=1, description="Tiers of tenants, by name. Required.")
    flavors: dict[FlavorName, Flavor] = Field(
        default_factory=dict, description="GPU flavors that tenants may ask for, by name. Default: none."
    )
    mig_layouts: dict[Slug, dict[str, Positive]] = Field(
        default_factory=dict,
        description="MIG layouts that pools can share, by name: number of slices per GPU, by profile. Default: none.",
    )
    pools: dict[ShortName, Pool] = Field(
        default_factory=dict, description="Node pools that yield the flavors, by name. Default: none."
    )

    checks: ClassVar[list[Callable[[Environment], Iterable[Mistake]]]] = []
    """Checks across the fields, which `tenancy.spec.checks` adds."""

    def mistakes(self) -> Iterator[Mistake]:
        """Mistakes of the environment as a whole, although each field is valid."""
        for check in self.checks:
            yield from check(self)

    def partitions_of(self, pool: str) -> list[GpuPartition]:
        """Groups of a node's GPUs in order of their index, with the slices on each."""
        return self.pools[pool].partitions(self.mig_layouts)

    def daemonset_resources(self, pool: str) -> nodes.Resources:
        """Resources that the platform's own pods take of one node of a pool."""
        spec, addon = self.pools[pool], nodes.Addon
        addons = {addon.VPC_CNI, addon.KUBE_PROXY, addon.POD_IDENTITY, addon.EBS_CSI, addon.NODE_MONITORING}
        addons |= {addon.GPU_OPERATOR} if spec.machine.gpus else set()
        exported = spec.machine.gpus and self.source_of("dcgm-exporter") is not Source.NONE
        addons |= {addon.DCGM_EXPORTER} if exported else set()
        addons |= {addon.CILIUM} if self.cluster.cni is Cni.CILIUM else set()
        addons |= {addon.EFA} if spec.efa else set()
        addons |= {addon.NODE_EXPORTER} if self.metrics.installed else set()
        return nodes.daemonset_reserve(addons)

    @property
    def own_ranges(self) -> tuple[str, ...]:
        """Address ranges of nodes and pods; empty if they are unknown."""
        vpc_range = (self.aws.network.cidr,) if self.builds_cluster and not self.aws.network.vpc else ()
        return self.cluster.node_and_pod_cidrs or vpc_range

    @property
    def service_cidrs(self) -> tuple[str, ...]:
        """Address ranges that services have, or may have."""
        return (self.cluster.service_cidr,) if self.cluster.service_cidr else SERVICE_CIDRS

    @property
    def is_ipv4_only(self) -> bool:
        """Whether pods are known to have no IPv6 address. EKS assigns IPv4 or IPv6 addresses, by default IPv4."""
        if self.builds_cluster:
            return True
        return bool(self.cluster.node_and_pod_cidrs) and not any(
            ":" in text for text in self.cluster.node_and_pod_cidrs
        )

    @property
    def builds_cluster(self) -> bool:
        """Whether network, cluster and nodes are made."""
        return self.aws.enabled and self.cluster.mode is not ClusterMode.EXISTING

    def source_of(self, service: str) -> Source:
        """Source of a service, by its name under `services`."""
        source = getattr(self.services, service.replace("-", "_"))
        if source is None and service in OPERATOR_PARTS:
            return self.source_of("gpu-operator")
        return source or (Source.INSTALL if self.builds_cluster else Source.PRESENT)

    def installs(self, service: str) -> bool:
        """Whether the environment installs a service that it needs."""
        needed = {
            "device-plugin": not self.uses_device_claims,
            "dra-driver": self.uses_device_claims,
            "efa-device-plugin": any(pool.efa for pool in self.pools.values()),
            "kueue": self.has_queues,
        }
        return needed.get(service, True) and self.source_of(service) is Source.INSTALL

    @property
    def makes_storage_class(self) -> bool:
        """Whether the environment makes its storage class."""
        return self.services.storage_class is Source.INSTALL or (
            self.builds_cluster and self.services.storage_class is None
        )

    @property
    def has_storage_class(self) -> bool:
        """Whether the cluster has the environment's storage class, made here or before."""
        return self.makes_storage_class or self.services.storage_class is Source.PRESENT

    @property
    def claim_classes(self) -> tuple[str, ...]:
        """Storage classes that tenants' claims may name."""
        virtual_cluster_class = self.virtual_clusters.storage_class if self.virtual_clusters else None
        declared_classes = self.platform.storage_classes or (vocabulary.STORAGE_CLASS,)
        return tuple(dict.fromkeys([*declared_classes, *([virtual_cluster_class] if virtual_cluster_class else [])]))

    @property
    def has_queues(self) -> bool:
        """Whether a queue decides when work starts."""
        return self.queues.scheduler is Scheduler.KUEUE

    @property
    def has_clock(self) -> bool:
        """Whether quotas and states of queues change with time."""
        return self.has_queues and self.queues.clock

    @property
    def suspends_idle(self) -> bool:
        """Whether work of some tier is suspended when its GPUs are idle."""
        return any(tier.idle and tier.idle.action is IdleAction.SUSPEND for tier in self.tiers.values())

    @property
    def uses_device_claims(self) -> bool:
        """Whether pods get GPUs by a ResourceClaim instead of an extended resource."""
        return self.cluster.devices is Devices.DRA

    def flavors_of(self, pool: str) -> dict[str, int]:
        """Flavors that one node of a pool yields, with how many of each."""
        return self._yield_of[pool]

    @cached_property
    def pools_by_flavor(self) -> dict[str, list[tuple[str, Pool]]]:
        """Pools that yield each flavor, the preferred first."""
        best_first = sorted(self.pools.items(), key=lambda item: item[1].preference(item[0]))
        return {
            flavor: [(name, pool) for name, pool in best_first if flavor in self.flavors_of(name)]
            for flavor in self.flavors
        }

    @cached_property
    def _yield_of(self) -> dict[str, dict[str, int]]:
        return {name: self._yield(name, pool) for name, pool in self.pools.items()}

    def _yield(self, name: str, pool: Pool) -> dict[str, int]:
        mode, replicas = (pool.gpu_sharing.mode, pool.gpu_sharing.replicas) if pool.gpu_sharing else (None, 1)
        units: dict[str | None, int] = {}
        for count, slices in self.partitions_of(name):
            for profile, slices_per_gpu in slices.items() or [(None, 1)]:
                units[profile] = units.get(profile, 0) + count * slices_per_gpu
        return {
            name: units[flavor.mig] * replicas
            for name, flavor in self.flavors.items()
            if flavor.gpu == pool.machine.gpu and flavor.gpu_sharing is mode and flavor.mig in units
        }

    def resource_of(self, flavor: str) -> str:
        """The name of a flavor's extended resource."""
        return self._resource_of[flavor]

    @cached_property
    def _resource_of(self) -> dict[str, str]:
        strategies = {flavor: pool.strategy for name, pool in self.pools.items() for flavor in self.flavors_of(name)}
        return {
            name: resource_name(flavor.mig, flavor.gpu_sharing is not None, strategies.get(name, Strategy.MIXED))
            for name, flavor in self.flavors.items()
        }

    @property
    def resources(self) -> frozenset[str]:
        """The extended resources of all flavors."""
        return frozenset(self._resource_of.values())

    @cached_property
    def possible_slices(self) -> frozenset[str]:
        """Resource names of every profile of every board that the environment names, and of shared slices of those
        that a pool cuts and shares."""
        boards_of_pools = {pool.machine.gpu for pool in self.pools.values() if pool.machine.gpus}
        unshared = {(board, False) for board in boards_of_pools | {flavor.gpu for flavor in self.flavors.values()}}
        shared_boards = {(pool.machine.gpu, True) for pool in self.pools.values() if pool.mig and pool.gpu_sharing}
        return frozenset(
            resource_name(profile, replicas)
            for board, replicas in unshared | shared_boards
            for profile in boards.BOARDS[board].profiles
        )

    def foreign_namespace(self, tenant: str, name: str) -> str | None:
        """name-03: why a namespace of the tenant cannot have the name on the cluster; None if it can."""
        if fault := unusable_namespace(tenant, name):
            return fault
        if name in self.system_namespaces:
            return f"{name!r}, a namespace of the platform"
        if name in self.platform.unmanaged_namespaces:
            return f"{name!r}, which platform.unmanaged-namespaces lists"
        for entry in self.platform.temporary_namespaces:
            if entry.matches(name):
                return f"{name!r}, which platform.temporary-namespaces lists as {entry.name}"
        return None

    @property
    def system_namespaces(self) -> tuple[str, ...]:
        """Names of the namespaces of the platform and of Kubernetes, sorted; guards do not apply there."""
        operator = self.aws.enabled or self.services.gpu_operator in {Source.INSTALL, Source.PRESENT}
        installed = {vocabulary.OPERATOR_NAMESPACE} if operator else set()
        installed |= {self.metrics.namespace} if self.metrics.collected else set()
        if self.has_queues:
            installed |= {vocabulary.QUEUE_NAMESPACE, *(FRAMEWORKS[kind].namespace for kind in self.queues.kinds)}
        return tuple(sorted({*vocabulary.SYSTEM_NAMESPACES, *self.platform.namespaces, *installed}))
