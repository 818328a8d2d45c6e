"""The scene of attacks, as the families of rules see it. `tenancy.verify.attacks.scene` makes it of spec files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from tenancy.catalog.frameworks import Framework
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation
from tenancy.rules.attacks import Attack

POD_NAME = "tenancy-verify"
"""Name of every object that attacks ask for."""
MISSING_OBJECT = f"{POD_NAME}-not-there"
"""Name of an object that does not exist."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackPlace(ABC):
    """One tenant's namespace."""

    # Models of the spec: rules know their fields and not their classes.
    environment: Any
    """The environment's model."""
    tenant: Any
    """The tenant's model."""
    namespace: Any
    """The namespace's model."""
    training_runtime: str | None
    """A ClusterTrainingRuntime of the cluster."""
    name: str
    """Name of the namespace in the cluster."""
    developer: Impersonation | None
    """An identity that may create workloads here, with GPUs too."""
    without_grant: Impersonation | None
    """An identity that may create workloads here and has no grant of GPUs by name."""
    owner: Impersonation | None
    """An identity with the role owner here."""
    usable_gpus: Mapping[str, int]
    """Maximum number of GPUs in use here at once, by flavor, where it is above zero."""
    is_restricted: bool
    """Whether it enforces Pod Security's restricted level."""
    frameworks: Sequence[Framework]
    """Kinds of other operators that the environment queues."""
    allowances: Collection[str]
    """Allowances of the namespace."""
    priorities: Sequence[str]
    """Names of the priority classes that work here may have; the last is its default."""
    other_priorities: Sequence[str]
    """Names of the priority classes of the environment that work here may not have."""
    pools: Sequence[str]
    """Pools with a taint that pods here may tolerate."""
    registries: Sequence[str]
    """Prefixes of images that pods here may run."""
    resources: Collection[str]
    """Extended resources that pods here may ask for."""
    labels: Mapping[str, str]
    """Cost labels of the namespace."""
    own_labels: Collection[str]
    """Keys of the labels that the tenant's file adds."""
    device_classes: Sequence[str]
    """Device classes that claims here may name."""
    other_device_classes: Sequence[str]
    """Device classes of the environment that claims here may not name."""
    queue: str
    """Name of the ClusterQueue of the namespace."""
    max_run_seconds: str
    """Maximum run time of work here, in seconds; empty where there is none."""

    @abstractmethod
    def pod(self, gpu_counts: Mapping[str, int] | None = None) -> Object:
        """A pod that is admitted, with GPUs by flavor."""

    @abstractmethod
    def manifest(self) -> Object:
        """The Namespace as the plan has it."""

    @abstractmethod
    def queue_of(self, tenant: str) -> str:
        """Name that the ClusterQueue of a tenant would have for this namespace's tier."""


Place = TypeVar("Place", bound=AttackPlace)


@dataclass(frozen=True)
class AttackScene(ABC, Generic[Place]):
    """Material of attacks: the environment, its tenants and facts of the cluster."""

    environment: Any
    """The environment's model."""
    tenants: Sequence[Any]
    """The tenants' models."""
    runtime_classes: Sequence[str] = ()
    """RuntimeClasses of the cluster: the API server refuses an unknown one before any guard is evaluated."""
    training_runtimes: Sequence[str] = ()
    """ClusterTrainingRuntimes of the cluster; empty also where the environment does not queue TrainJobs."""
    nodes: Sequence[Object] | None = None
    """Nodes of the cluster, at least one of a pool; None: the nodes that the lab would have."""
    namespaces: frozenset[str] | None = None
    """Namespaces of the cluster; None: all that the files name."""
    address: str | None = None
    """A free address of the cluster's service range; None: one of the range that the files name."""
    unserved: Sequence[Framework] = ()
    """Kinds of queues.kinds that the cluster does not serve: nothing can be sent to them."""

    @cached_property
    @abstractmethod
    def node(self) -> Object | None:
        """The node whose kubelet attacks."""

    @cached_property
    @abstractmethod
    def places(self) -> Sequence[Place]:
        """Every namespace, the tenants in the order of their names."""

    @abstractmethod
    def guard(self, rule: str, resource: str, *, deleted: bool = False) -> str:
        """The expected denier by a rule for a resource; with `deleted` for its deletion."""

    @cached_property
    def unmanaged(self) -> str | None:
        """The first unmanaged namespace (platform.unmanaged-namespaces) that exists."""
        unmanaged_names = sorted(self.environment.platform.unmanaged_namespaces)
        return next((name for name in unmanaged_names if self.namespaces is None or name in self.namespaces), None)

    @cached_property
    def staffed(self) -> Sequence[Place]:
        """Namespaces with a developer or an owner."""
        return [place for place in self.places if place.developer]

    @cached_property
    def home(self) -> Place | None:
        """The namespace in which rules common to all namespaces are attacked; one with GPUs if there is any."""
        return next(iter(sorted(self.staffed, key=lambda place: not place.usable_gpus)), None)

    def pairs(self) -> Iterator[tuple[Place, Place]]:
        """Attacker and victim: each tenant and its neighbours, both ways, so that the number is linear in tenants.

        With up to three tenants these are all pairs.
        """
        first_namespaces = list({place.tenant.tenant: place for place in reversed(self.staffed)}.values())[::-1]
        seen_pairs: set[tuple[str, str]] = set()
        for index, place in enumerate(first_namespaces):
            for neighbour in (first_namespaces[index - 1], first_namespaces[(index + 1) % len(first_namespaces)]):
                pair = (place.name, neighbour.name)
                if place is not neighbour and pair not in seen_pairs:
                    seen_pairs.add(pair)
                    yield place, neighbour

    def other_tenant_namespace(self, place: AttackPlace) -> Place | None:
        """A namespace of another tenant."""
        return next((candidate for candidate in self.places if candidate.tenant.tenant != place.tenant.tenant), None)


Attacks = Callable[[AttackScene], Iterator[Attack]]
"""The attacks on a rule that apply to a scene."""
