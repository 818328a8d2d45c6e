"""Where attacks happen: the environment's namespaces, and the identities that have a role in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenancy.catalog.frameworks import Framework
from tenancy.kube.objects import Object
from tenancy.live import denial
from tenancy.live.api import Impersonation
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.common.stages import standing
from tenancy.planning.guards import guards
from tenancy.planning.kubernetes.samples import sample
from tenancy.planning.queueing.quota_shares import quota_ceiling
from tenancy.schema.environment import Environment
from tenancy.schema.people import Role
from tenancy.schema.tenant import Namespace, Tenant, held

POD_NAME = "tenancy-verify"


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
        found = [
            person for person in self.tenant.people if person.role is role and held(person.namespaces, self.namespace)
        ]
        for person in sorted(found, key=lambda person: person.kind):
            if person.kind == "Group":
                return Impersonation(f"verify-{role}@{self.tenant.tenant}", (person.name,))
            if person.kind == "User":
                return Impersonation(person.name)
        return None

    @cached_property
    def without_grant(self) -> Impersonation | None:
        """An identity that may create workloads here and has no grant of GPUs by name (gpu-users)."""
        return self.person(Role.DEVELOPER) or self.person(Role.OWNER)

    @cached_property
    def developer(self) -> Impersonation | None:
        """An identity that may create workloads here, with GPUs too."""
        stranger = self.without_grant
        for user in self.tenant.gpu_users if stranger else ():
            if held(user.namespaces, self.namespace):
                assert stranger
                if user.kind == "Group":
                    return Impersonation(stranger.user, (*stranger.groups, user.name))
                if user.kind == "User":
                    return Impersonation(user.name, stranger.groups)
        return stranger

    def pod(self, wanted: Mapping[str, int] | None = None) -> Object:
        """The sample pod without a namespace, so that it can be requested here or elsewhere."""
        pod = sample("pod", self.environment, self.tenant, self.namespace, wanted or {})
        del pod["metadata"]["namespace"]
        pod["metadata"]["name"] = POD_NAME
        return pod

    @cached_property
    def most(self) -> dict[str, int]:
        """Maximum number of GPUs in use here at once, by flavor."""
        return quota_ceiling(self.environment, self.tenant, self.namespace)

    @cached_property
    def held(self) -> dict[str, int]:
        """Flavors whose maximum here is above zero."""
        return {flavor: count for flavor, count in self.most.items() if count}


@dataclass(frozen=True)
class Scene:
    """What attacks are built from: the environment, its tenants and facts of the cluster."""

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
        named = sorted(self.environment.platform.unmanaged)
        return next((name for name in named if self.namespaces is None or name in self.namespaces), None)

    @cached_property
    def places(self) -> list[AttackedNamespace]:
        """Every namespace, the tenants in the order of their names."""
        ordered = sorted(standing(self.tenants), key=lambda tenant: tenant.tenant)
        runtime = next(iter(self.training_runtimes), None)
        return [
            AttackedNamespace(self.environment, tenant, part, runtime)
            for tenant in ordered
            for part in tenant.namespaces
        ]

    @cached_property
    def manned(self) -> list[AttackedNamespace]:
        """Namespaces with a developer or an owner."""
        return [place for place in self.places if place.developer]

    @cached_property
    def home(self) -> AttackedNamespace | None:
        """The namespace in which rules common to all namespaces are attacked; one with GPUs if there is any."""
        return next((place for place in self.manned if place.held), next(iter(self.manned), None))

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
        return denial.guard(self._policies[rule, resource, deleted], rule)

    def pairs(self) -> Iterator[tuple[AttackedNamespace, AttackedNamespace]]:
        """Attacker and victim: each tenant and its neighbours, both ways, so that the number is linear in tenants.

        With up to three tenants these are all pairs.
        """
        fronts = list({place.tenant.tenant: place for place in reversed(self.manned)}.values())[::-1]
        seen: set[tuple[str, str]] = set()
        for at, place in enumerate(fronts):
            for other in (fronts[at - 1], fronts[(at + 1) % len(fronts)]):
                pair = (place.name, other.name)
                if place is not other and pair not in seen:
                    seen.add(pair)
                    yield place, other

    def other(self, place: AttackedNamespace) -> AttackedNamespace | None:
        """A namespace of another tenant."""
        return next((other for other in self.places if other.tenant.tenant != place.tenant.tenant), None)
