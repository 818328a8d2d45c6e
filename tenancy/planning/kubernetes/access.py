"""Four personas as ClusterRoles without wildcards, bound per namespace.

Our own and not the built-in `edit`: that one may impersonate, mint tokens, delete the default-deny and
grows with every CRD that is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.common.labels import platform_labels, tenant_labels
from tenancy.planning.common.meta import Meta
from tenancy.planning.guards.facts import frameworks
from tenancy.planning.kubernetes.namespace_objects import ClusterRole, PolicyRule, RoleBinding, RoleSubject
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Namespace, Tenant, applies_to

READ = ("get", "list", "watch")
CHANGE = ("create", "update", "patch", "delete", "deletecollection")

Rights = Mapping[tuple[str, tuple[str, ...]], tuple[str, ...]]
"""(API group, resources) -> verbs."""

_VIEW: Rights = {
    ("", ("configmaps", "events", "persistentvolumeclaims", "pods", "pods/log", "serviceaccounts", "services")): READ,
    ("", ("limitranges", "resourcequotas")): READ,
    ("apps", ("daemonsets", "deployments", "replicasets", "statefulsets")): READ,
    ("autoscaling", ("horizontalpodautoscalers",)): READ,
    ("batch", ("cronjobs", "jobs")): READ,
    ("discovery.k8s.io", ("endpointslices",)): READ,
    ("events.k8s.io", ("events",)): READ,
    ("networking.k8s.io", ("networkpolicies",)): READ,
    ("policy", ("poddisruptionbudgets",)): READ,
}
_OPERATE: Rights = {
    ("", ("pods",)): ("delete", "deletecollection"),
    ("", ("pods/attach", "pods/exec", "pods/portforward")): ("get", "create"),
    ("apps", ("deployments/scale", "statefulsets/scale")): ("get", "update", "patch"),
    ("batch", ("jobs",)): ("delete",),
}
_DEVELOP: Rights = {
    ("", ("configmaps", "persistentvolumeclaims", "pods", "services")): CHANGE,
    ("", ("secrets",)): READ + CHANGE,
    ("", ("pods/attach", "pods/exec", "pods/portforward")): ("get", "create"),
    ("", ("pods/ephemeralcontainers",)): ("get", "update", "patch"),
    ("apps", ("deployments", "statefulsets")): CHANGE,
    ("apps", ("deployments/scale", "statefulsets/scale")): ("get", "update", "patch"),
    ("autoscaling", ("horizontalpodautoscalers",)): CHANGE,
    ("batch", ("cronjobs", "jobs")): CHANGE,
    # net-10 refuses changes of the platform's policies in the same namespace; deletecollection would include them.
    ("networking.k8s.io", ("networkpolicies",)): ("create", "update", "patch", "delete"),
    ("policy", ("poddisruptionbudgets",)): CHANGE,
}
_OWNER: Rights = {
    ("", ("serviceaccounts",)): CHANGE,
    ("rbac.authorization.k8s.io", ("rolebindings",)): READ,
}
_CLAIMS = ("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates"))
_VIEW_CLAIMS: Rights = {_CLAIMS: READ}
_MAKE_CLAIMS: Rights = {_CLAIMS: ("create", "delete")}
"""Without update: the requests of a claim are immutable, and only the scheduler writes its status."""

_VIEW_QUEUES: Rights = {
    ("kueue.x-k8s.io", ("localqueues", "workloads")): READ,
    ("visibility.kueue.x-k8s.io", ("localqueues/pendingworkloads",)): ("get",),
}
"""Tenants have no right to write there: a Workload's status says what was admitted, and a LocalQueue's spec says whose
share it spends."""

_SYNC: Rights = {
    ("", ("configmaps", "persistentvolumeclaims", "pods", "secrets", "services")): (
        *READ,
        *("create", "update", "patch", "delete"),
    ),
    ("", ("pods/attach", "pods/exec", "pods/portforward")): ("get", "create"),
    ("", ("pods/ephemeralcontainers",)): ("update", "patch"),
    ("", ("endpoints", "events", "pods/log")): READ,
    ("apps", ("deployments", "replicasets", "statefulsets")): READ,
    ("discovery.k8s.io", ("endpointslices",)): READ,
}
"""Rights of a virtual cluster's syncer: the chart's role (loft-sh/vcluster@000779f chart/templates/role.yaml) without
endpoints, whose writer can direct traffic to any address, and without the status of pods."""

PERSONAS: Mapping[Role, tuple[Rights, ...]] = {
    Role.VIEWER: (_VIEW,),
    Role.OPERATOR: (_VIEW, _OPERATE),
    Role.DEVELOPER: (_VIEW, _DEVELOP),
    Role.OWNER: (_VIEW, _DEVELOP, _OWNER),
}


GPU_USER = "gpu-user"
"""Role of users who may run work on GPUs, where that is granted by name. It creates nothing: it is bound in addition to
a role."""


def role_name(role: str) -> str:
    """Name of the ClusterRole of a persona."""
    return f"tenancy-{role}"


def _rights(environment: Environment, role: Role) -> tuple[Rights, ...]:
    rights: list[Rights] = [*PERSONAS[role]]
    may_make, may_end = _DEVELOP in PERSONAS[role], _OPERATE in PERSONAS[role]
    if environment.uses_device_claims:
        rights += [_VIEW_CLAIMS, *([_MAKE_CLAIMS] if may_make else [])]
    if environment.has_queues:
        rights.append(_VIEW_QUEUES)
    for framework in frameworks(environment):
        verbs = READ + (CHANGE if may_make else ("delete",) if may_end else ())
        rights.append({(framework.group, (framework.resource,)): verbs})
    return tuple(rights)


def cluster_roles(environment: Environment) -> tuple[ClusterRole, ...]:
    """One ClusterRole for each persona."""

    def rules(rights: tuple[Rights, ...]) -> tuple[PolicyRule, ...]:
        return tuple(
            PolicyRule(group, resources, tuple(verbs)) for part in rights for (group, resources), verbs in part.items()
        )

    group, resource, verb = vocabulary.GPU_GRANT
    all_rights: dict[str, tuple[Rights, ...]] = {role: _rights(environment, role) for role in PERSONAS}
    all_rights[GPU_USER] = ({(group, (resource,)): (verb,)},)
    if environment.virtual_clusters:
        all_rights[vocabulary.VIRTUAL_CLUSTER] = (_SYNC,)
    labels = platform_labels(environment)
    return tuple(ClusterRole(Meta(role_name(role), labels), rules(rights)) for role, rights in all_rights.items())


def role_bindings(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[RoleBinding, ...]:
    """One RoleBinding per persona that has at least one subject, named after the persona."""
    bindings = []
    for role in PERSONAS:
        people = [p for p in tenant.people if p.role is role and applies_to(p.namespaces, namespace)]
        if subjects := {*((p.kind, p.name) for p in people), *_pipeline_group(tenant, namespace, role)}:
            bindings.append(_binding(environment, tenant, namespace, role.value, sorted(subjects)))
    users = {(u.kind, u.name) for u in tenant.gpu_users if applies_to(u.namespaces, namespace)}
    if users:
        bindings.append(_binding(environment, tenant, namespace, GPU_USER, sorted(users)))
    if tenant.in_virtual_clusters:
        syncer = ("ServiceAccount", f"{namespace.name}/{vocabulary.VIRTUAL_CLUSTER}")
        bindings.append(_binding(environment, tenant, namespace, vocabulary.VIRTUAL_CLUSTER, [syncer]))
    return tuple(bindings)


def _binding(
    environment: Environment, tenant: Tenant, namespace: Namespace, role: str, subjects: Sequence[tuple[str, str]]
) -> RoleBinding:
    meta = Meta(role, tenant_labels(environment, tenant, namespace), tenant.namespace_name(namespace))
    return RoleBinding(meta, role_name(role), tuple(_subject(tenant, kind, name) for kind, name in subjects))


def _subject(tenant: Tenant, kind: str, name: str) -> RoleSubject:
    if kind != "ServiceAccount":
        return RoleSubject(kind, name)
    namespace, _, account = name.partition("/")
    (namespace_name,) = tenant.names_of({namespace})
    return RoleSubject(kind, account, namespace_name)


def _pipeline_group(tenant: Tenant, namespace: Namespace, role: Role) -> list[tuple[str, str]]:
    """The group of the tenant's pipeline, if that has the role there."""
    ci = tenant.ci
    is_bound = ci and ci.role == role and applies_to(ci.namespaces, namespace)
    return [("Group", vocabulary.CI_GROUP.format(tenant=tenant.tenant))] if is_bound else []
