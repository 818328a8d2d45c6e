"""Where attacks happen: the environment's namespaces, and who can be what in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenancy.live import denial
from tenancy.live.api import Identity
from tenancy.plan.guards import guards
from tenancy.plan.leaving import standing
from tenancy.plan.model import Object
from tenancy.plan.pools import fake_nodes
from tenancy.plan.queues import most_held
from tenancy.plan.samples import sample
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Namespace, Role, Tenant, held

POD_NAME = "tenancy-verify"


@dataclass(frozen=True)
class Place:
    """One tenant's namespace."""

    environment: Environment
    tenant: Tenant
    namespace: Namespace
    training_runtime: str | None = None
    """One that the cluster has: Kueue refuses a TrainJob of a runtime that is not there."""

    @property
    def name(self) -> str:
        return self.tenant.namespace_name(self.namespace)

    def person(self, role: Role) -> Identity | None:
        """Somebody with that role here: the first group that has it, or else the first user."""
        found = [
            person for person in self.tenant.people if person.role is role and held(person.namespaces, self.namespace)
        ]
        for person in sorted(found, key=lambda person: person.kind):
            if person.kind == "Group":
                return Identity(f"verify-{role}@{self.tenant.tenant}", (person.name,))
            if person.kind == "User":
                return Identity(person.name)
        return None

    @cached_property
    def without_grant(self) -> Identity | None:
        """Somebody who runs workloads here, on GPUs only where everybody may."""
        return self.person(Role.DEVELOPER) or self.person(Role.OWNER)

    @cached_property
    def developer(self) -> Identity | None:
        """Somebody who runs workloads here, on GPUs too."""
        somebody = self.without_grant
        for user in self.tenant.gpu_users if somebody else ():
            if held(user.namespaces, self.namespace):
                assert somebody
                if user.kind == "Group":
                    return Identity(somebody.user, (*somebody.groups, user.name))
                if user.kind == "User":
                    return Identity(user.name, somebody.groups)
        return somebody

    def pod(self, wanted: Mapping[str, int] | None = None) -> Object:
        """The sample pod, to be asked for here or elsewhere: it names no namespace."""
        pod = sample("pod", self.environment, self.tenant, self.namespace, wanted or {})
        del pod["metadata"]["namespace"]
        pod["metadata"]["name"] = POD_NAME
        return pod

    @cached_property
    def most(self) -> dict[str, int]:
        """The most GPUs by flavor that may run here at once."""
        return most_held(self.environment, self.tenant, self.namespace)

    @cached_property
    def held(self) -> dict[str, int]:
        """Flavors of which some may run here."""
        return {flavor: count for flavor, count in self.most.items() if count}


@dataclass(frozen=True)
class Scene:
    environment: Environment
    tenants: Sequence[Tenant]
    runtime_classes: Sequence[str] = ()
    """Of the cluster: a class that is not there is refused before any guard is asked."""
    training_runtimes: Sequence[str] = ()
    """Of the cluster; empty also where nobody trains by TrainJob."""
    nodes: Sequence[Object] | None = None
    """Of the cluster, one at least of those that are a pool's; None: as the lab would have them."""

    @cached_property
    def node(self) -> Object | None:
        """One whose kubelet attacks."""
        return next(iter(fake_nodes(self.environment) if self.nodes is None else self.nodes), None)

    @cached_property
    def places(self) -> list[Place]:
        """Every namespace, the tenants in the order of their names."""
        ordered = sorted(standing(self.tenants), key=lambda tenant: tenant.tenant)
        runtime = next(iter(self.training_runtimes), None)
        return [Place(self.environment, tenant, part, runtime) for tenant in ordered for part in tenant.namespaces]

    @cached_property
    def manned(self) -> list[Place]:
        """Namespaces in which somebody may run workloads."""
        return [place for place in self.places if place.developer]

    @cached_property
    def home(self) -> Place | None:
        """Where the rules that are the same everywhere are attacked; with GPUs if any namespace has some."""
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
        """The denier that a rule is for a kind of object, or for taking one away."""
        return denial.guard(self._policies[rule, resource, deleted], rule)

    def pairs(self) -> Iterator[tuple[Place, Place]]:
        """Attacker and victim: each tenant and its neighbours, both ways, so that the number grows with tenants.

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

    def other(self, place: Place) -> Place | None:
        """A namespace of another tenant."""
        return next((other for other in self.places if other.tenant.tenant != place.tenant.tenant), None)
