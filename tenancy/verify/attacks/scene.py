"""Scene of the attacks: the environment's namespaces, and the identities that have a role in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenancy.catalog import vocabulary as words
from tenancy.catalog.frameworks import Framework
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import Impersonation
from tenancy.planning.common.device_classes import claimable_flavors, device_class, granted_classes
from tenancy.planning.common.labels import extra_labels, tenant_labels
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.common.priorities import allowed_classes, class_name
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.guards import guards
from tenancy.planning.guards.facts import frameworks
from tenancy.planning.kubernetes.namespaces import (
    allowances,
    allowed_pools,
    allowed_registries,
    granted_resources,
    namespace_meta,
    queue_notes,
)
from tenancy.planning.kubernetes.samples import sample
from tenancy.planning.queueing.queue_names import queue_name
from tenancy.planning.queueing.quota_shares import quota_ceiling
from tenancy.rules.scene import POD_NAME
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Namespace, PodSecurity, Tenant, applies_to


@dataclass(frozen=True)
class AttackedNamespace:
    """One tenant's namespace."""

    environment: Environment
    tenant: Tenant
    namespace: Namespace
    training_runtime: str | None = None
    """A ClusterTrainingRuntime of the cluster: Kueue refuses a TrainJob whose runtime does not exist."""

    @property
    def name(self) -> str:
        """Name of the namespace in the cluster."""
        return self.tenant.namespace_name(self.namespace)

    def person(self, role: Role) -> Impersonation | None:
        """An identity with that role here: the first group that has it, or else the first user."""
        people = [
            person
            for person in self.tenant.people
            if person.role is role and applies_to(person.namespaces, self.namespace)
        ]
        for person in sorted(people, key=lambda person: person.kind):
            if person.kind == "Group":
                return Impersonation(f"verify-{role}@{self.tenant.tenant}", (person.name,))
            if person.kind == "User":
                return Impersonation(person.name)
        return None

    @property
    def owner(self) -> Impersonation | None:
        """An identity with the role owner here."""
        return self.person(Role.OWNER)

    @property
    def is_restricted(self) -> bool:
        """Whether it enforces Pod Security's restricted level."""
        return self.namespace.pod_security is PodSecurity.RESTRICTED

    @cached_property
    def frameworks(self) -> tuple[Framework, ...]:
        """Kinds of other operators that the environment queues."""
        return frameworks(self.environment)

    @property
    def allowances(self) -> Collection[str]:
        """Allowances of the namespace."""
        return allowances(self.environment, self.tenant, self.namespace)

    @property
    def _tier(self) -> str:
        return self.tenant.tier_of(self.namespace)

    @property
    def priorities(self) -> Sequence[str]:
        """Names of the priority classes that work here may have; the last is its default."""
        return allowed_classes(self.environment, self._tier)

    @property
    def other_priorities(self) -> Sequence[str]:
        """Names of the priority classes of the environment that work here may not have."""
        return sorted({class_name(tier) for tier in self.environment.tiers} - set(self.priorities))

    @property
    def pools(self) -> Sequence[str]:
        """Pools with a taint that pods here may tolerate."""
        return allowed_pools(self.environment, self.tenant, self._tier)

    @property
    def registries(self) -> Sequence[str]:
        """Prefixes of images that pods here may run."""
        return allowed_registries(self.environment, self.tenant)

    @property
    def resources(self) -> Collection[str]:
        """Extended resources that pods here may ask for."""
        return granted_resources(self.environment, self.tenant, self.namespace)

    @property
    def labels(self) -> Mapping[str, str]:
        """Cost labels of the namespace."""
        return tenant_labels(self.environment, self.tenant, self.namespace)

    @property
    def own_labels(self) -> Collection[str]:
        """Keys of the labels that the tenant's file adds."""
        return extra_labels(self.tenant, self.namespace)

    @property
    def device_classes(self) -> Sequence[str]:
        """Device classes that claims here may name."""
        return granted_classes(self.environment, self.tenant)

    @property
    def other_device_classes(self) -> Sequence[str]:
        """Device classes of the environment that claims here may not name."""
        return sorted({*map(device_class, claimable_flavors(self.environment))} - {*self.device_classes})

    @property
    def queue(self) -> str:
        """Name of the ClusterQueue of the namespace."""
        return self.queue_of(self.tenant.tenant)

    def queue_of(self, tenant: str) -> str:
        """Name that the ClusterQueue of a tenant would have for this namespace's tier."""
        return queue_name(tenant, self._tier)

    @property
    def max_run_seconds(self) -> str:
        """Maximum run time of work here, in seconds; empty where there is none."""
        return queue_notes(self.environment, self.tenant, self.namespace).get(words.MAX_RUN_SECONDS, "")

    def manifest(self) -> Object:
        """The Namespace as the plan has it."""
        return namespace_meta(self.environment, self.tenant, self.namespace).manifest("v1", "Namespace", {})

    @cached_property
    def without_grant(self) -> Impersonation | None:
        """An identity that may create workloads here and has no grant of GPUs by name (gpu-users)."""
        return self.person(Role.DEVELOPER) or self.person(Role.OWNER)

    @cached_property
    def developer(self) -> Impersonation | None:
        """An identity that may create workloads here, with GPUs too."""
        without_gpu_grant = self.without_grant
        for user in self.tenant.gpu_users if without_gpu_grant else ():
            if applies_to(user.namespaces, self.namespace):
                assert without_gpu_grant
                if user.kind == "Group":
                    return Impersonation(without_gpu_grant.user, (*without_gpu_grant.groups, user.name))
                if user.kind == "User":
                    return Impersonation(user.name, without_gpu_grant.groups)
        return without_gpu_grant

    def pod(self, gpu_counts: Mapping[str, int] | None = None) -> Object:
        """The sample pod without a namespace, so that it can be requested here or elsewhere."""
        pod = sample("pod", self.environment, self.tenant, self.namespace, gpu_counts or {})
        del pod["metadata"]["namespace"]
        pod["metadata"]["name"] = POD_NAME
        return pod

    @cached_property
    def max_gpus(self) -> dict[str, int]:
        """Maximum number of GPUs in use here at once, by flavor."""
        return quota_ceiling(self.environment, self.tenant, self.namespace)

    @cached_property
    def usable_gpus(self) -> dict[str, int]:
        """Flavors whose maximum here is above zero."""
        return {flavor: count for flavor, count in self.max_gpus.items() if count}


@dataclass(frozen=True)
class Scene:
    """Material of attacks: the environment, its tenants and facts of the cluster."""

    environment: Environment
    tenants: Sequence[Tenant]
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
    def node(self) -> Object | None:
        """The node whose kubelet attacks."""
        return next(iter(fake_nodes(self.environment) if self.nodes is None else self.nodes), None)

    @cached_property
    def unmanaged(self) -> str | None:
        """The first unmanaged namespace (platform.unmanaged) that exists."""
        unmanaged_names = sorted(self.environment.platform.unmanaged)
        return next((name for name in unmanaged_names if self.namespaces is None or name in self.namespaces), None)

    @cached_property
    def places(self) -> list[AttackedNamespace]:
        """Every namespace, the tenants in the order of their names."""
        ordered = sorted(active_tenants(self.tenants), key=lambda tenant: tenant.tenant)
        runtime = next(iter(self.training_runtimes), None)
        return [
            AttackedNamespace(self.environment, tenant, part, runtime)
            for tenant in ordered
            for part in tenant.namespaces
        ]

    @cached_property
    def staffed(self) -> list[AttackedNamespace]:
        """Namespaces with a developer or an owner."""
        return [place for place in self.places if place.developer]

    @cached_property
    def home(self) -> AttackedNamespace | None:
        """The namespace in which rules common to all namespaces are attacked; one with GPUs if there is any."""
        return next((place for place in self.staffed if place.usable_gpus), next(iter(self.staffed), None))

    @cached_property
    def _policies(self) -> dict[tuple[str, str, bool], str]:
        return {
            (rule, resource, guard.operations == ("DELETE",)): guard.name
            for guard in guards(self.environment)
            for _, _, resources in guard.resources
            for resource in resources
            for rule in guard.rules
        }

    def guard(self, rule: str, resource: str, *, deleted: bool = False) -> str:
        """The expected denier by a rule for a resource; with `deleted` for its deletion."""
        return deniers.guard(self._policies[rule, resource, deleted], rule)

    def pairs(self) -> Iterator[tuple[AttackedNamespace, AttackedNamespace]]:
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

    def other_tenant_namespace(self, place: AttackedNamespace) -> AttackedNamespace | None:
        """A namespace of another tenant."""
        return next((candidate for candidate in self.places if candidate.tenant.tenant != place.tenant.tenant), None)
