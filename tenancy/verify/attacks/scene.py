"""Scene of the attacks: the environment's namespaces, and the identities that have a role in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenancy.catalog import vocabulary
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
from tenancy.rules.scene import POD_NAME, AttackPlace, AttackScene
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Namespace, PodSecurity, Tenant, applies_to


def attacked_namespace(
    environment: Environment, tenant: Tenant, namespace: Namespace, training_runtime: str | None
) -> AttackedNamespace:
    """The namespace with what attacks and their twins ask for."""
    tier, without_grant = tenant.tier_of(namespace), _worker(tenant, namespace)
    priorities, device_classes = allowed_classes(environment, tier), granted_classes(environment, tenant)
    max_gpus = quota_ceiling(environment, tenant, namespace)
    return AttackedNamespace(
        environment=environment,
        tenant=tenant,
        namespace=namespace,
        training_runtime=training_runtime,
        name=tenant.namespace_name(namespace),
        developer=_with_gpu_grant(tenant, namespace, without_grant),
        without_grant=without_grant,
        owner=_person(tenant, namespace, Role.OWNER),
        max_gpus=max_gpus,
        usable_gpus={flavor: count for flavor, count in max_gpus.items() if count},
        is_restricted=namespace.pod_security is PodSecurity.RESTRICTED,
        frameworks=frameworks(environment),
        allowances=allowances(environment, tenant, namespace),
        priorities=priorities,
        other_priorities=sorted({class_name(tier) for tier in environment.tiers} - set(priorities)),
        pools=allowed_pools(environment, tenant, tier),
        registries=allowed_registries(environment, tenant),
        resources=granted_resources(environment, tenant, namespace),
        labels=tenant_labels(environment, tenant, namespace),
        own_labels=extra_labels(tenant, namespace),
        device_classes=device_classes,
        other_device_classes=sorted({*map(device_class, claimable_flavors(environment))} - {*device_classes}),
        queue=queue_name(tenant.tenant, tier),
        max_run_seconds=queue_notes(environment, tenant, namespace).get(vocabulary.MAX_RUN_SECONDS, ""),
    )


def _person(tenant: Tenant, namespace: Namespace, role: Role) -> Impersonation | None:
    """An identity with that role in a namespace: the first group that has it, or else the first user."""
    people = [person for person in tenant.people if person.role is role and applies_to(person.namespaces, namespace)]
    for person in sorted(people, key=lambda person: person.kind):
        if person.kind == "Group":
            return Impersonation(f"verify-{role}@{tenant.tenant}", (person.name,))
        if person.kind == "User":
            return Impersonation(person.name)
    return None


def _worker(tenant: Tenant, namespace: Namespace) -> Impersonation | None:
    return _person(tenant, namespace, Role.DEVELOPER) or _person(tenant, namespace, Role.OWNER)


def _with_gpu_grant(tenant: Tenant, namespace: Namespace, worker: Impersonation | None) -> Impersonation | None:
    for user in tenant.gpu_users if worker else ():
        if worker and applies_to(user.namespaces, namespace):
            if user.kind == "Group":
                return Impersonation(worker.user, (*worker.groups, user.name))
            if user.kind == "User":
                return Impersonation(user.name, worker.groups)
    return worker


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackedNamespace(AttackPlace):
    """One tenant's namespace."""

    environment: Environment
    tenant: Tenant
    namespace: Namespace
    max_gpus: Mapping[str, int]
    """Maximum number of GPUs in use here at once, by flavor."""

    def person(self, role: Role) -> Impersonation | None:
        """An identity with that role here."""
        return _person(self.tenant, self.namespace, role)

    def queue_of(self, tenant: str) -> str:
        """Name that the ClusterQueue of a tenant would have for this namespace's tier."""
        return queue_name(tenant, self.tenant.tier_of(self.namespace))

    def manifest(self) -> Object:
        """The Namespace as the plan has it."""
        return namespace_meta(self.environment, self.tenant, self.namespace).manifest("v1", "Namespace", {})

    def pod(self, gpu_counts: Mapping[str, int] | None = None) -> Object:
        """The sample pod without a namespace, so that it can be requested here or elsewhere."""
        pod = sample("pod", self.environment, self.tenant, self.namespace, gpu_counts or {})
        del pod["metadata"]["namespace"]
        pod["metadata"]["name"] = POD_NAME
        return pod


@dataclass(frozen=True)
class Scene(AttackScene[AttackedNamespace]):
    """Material of attacks, made of spec files."""

    environment: Environment
    tenants: Sequence[Tenant]

    @cached_property
    def node(self) -> Object | None:
        """The node whose kubelet attacks."""
        return next(iter(fake_nodes(self.environment) if self.nodes is None else self.nodes), None)

    @cached_property
    def places(self) -> Sequence[AttackedNamespace]:
        """Every namespace, the tenants in the order of their names."""
        ordered = sorted(active_tenants(self.tenants), key=lambda tenant: tenant.tenant)
        runtime = next(iter(self.training_runtimes), None)
        return [
            attacked_namespace(self.environment, tenant, part, runtime)
            for tenant in ordered
            for part in tenant.namespaces
        ]

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
