"""Four personas as ClusterRoles without wildcards, bound per namespace.

Our own and not the built-in `edit`: that one may impersonate, mint tokens, delete the default-deny and
grows with every CRD that is installed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenancy.catalog import vocabulary as words
from tenancy.plan.guards import frameworks
from tenancy.plan.labels import manifest, platform_labels, tenant_labels
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Namespace, Role, Tenant, held

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
    ("policy", ("poddisruptionbudgets",)): CHANGE,
}
_OWN: Rights = {
    ("", ("serviceaccounts",)): CHANGE,
    ("rbac.authorization.k8s.io", ("rolebindings",)): READ,
}
_CLAIMS = ("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates"))
_VIEW_CLAIMS: Rights = {_CLAIMS: READ}
_MAKE_CLAIMS: Rights = {_CLAIMS: ("create", "delete")}
"""What a claim asks for never changes, and its status says which devices it got: that is the scheduler's."""

_VIEW_QUEUES: Rights = {
    ("kueue.x-k8s.io", ("localqueues", "workloads")): READ,
    ("visibility.kueue.x-k8s.io", ("localqueues/pendingworkloads",)): ("get",),
}
"""Nobody of a tenant's writes there: a Workload's status is what was admitted, a queue's spec whose share it spends."""

PERSONAS: Mapping[Role, tuple[Rights, ...]] = {
    Role.VIEWER: (_VIEW,),
    Role.OPERATOR: (_VIEW, _OPERATE),
    Role.DEVELOPER: (_VIEW, _DEVELOP),
    Role.OWNER: (_VIEW, _DEVELOP, _OWN),
}


def role_name(role: Role) -> str:
    return f"tenancy-{role}"


def _rights(environment: Environment, role: Role) -> tuple[Rights, ...]:
    rights: list[Rights] = [*PERSONAS[role]]
    may_make, may_end = _DEVELOP in PERSONAS[role], _OPERATE in PERSONAS[role]
    if environment.devices_by_claim:
        rights += [_VIEW_CLAIMS, *([_MAKE_CLAIMS] if may_make else [])]
    if environment.queued:
        rights.append(_VIEW_QUEUES)
    for framework in frameworks(environment):
        verbs = READ + (CHANGE if may_make else ("delete",) if may_end else ())
        rights.append({(framework.group, (framework.resource,)): verbs})
    return tuple(rights)


def cluster_roles(environment: Environment) -> tuple[Object, ...]:
    def rules(rights: tuple[Rights, ...]) -> list[dict[str, list[str]]]:
        return [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for part in rights
            for (group, resources), verbs in part.items()
        ]

    return tuple(
        manifest(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            role_name(role),
            platform_labels(environment),
            {"rules": rules(_rights(environment, role))},
        )
        for role in PERSONAS
    )


def role_bindings(environment: Environment, tenant: Tenant, namespace: Namespace) -> tuple[Object, ...]:
    """One RoleBinding per persona that somebody has, named after it."""
    bindings = []
    for role in PERSONAS:
        people = [
            person
            for person in tenant.people
            if person.role is role and (not person.namespaces or namespace.name in person.namespaces)
        ]
        subjects = sorted({*((p.kind, p.name) for p in people), *_pipeline(tenant, namespace, role)})
        if not subjects:
            continue
        body = {
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name} for kind, name in subjects
            ],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role_name(role),
            },
        }
        bindings.append(
            manifest(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                role.value,
                tenant_labels(environment, tenant, namespace),
                body,
                namespace=words.derived_name(tenant.tenant, namespace.name),
            )
        )
    return tuple(bindings)


def _pipeline(tenant: Tenant, namespace: Namespace, role: Role) -> list[tuple[str, str]]:
    """The group of the tenant's pipeline, if that has the role there."""
    ci = tenant.ci
    there = ci and ci.role == role and held(ci.namespaces, namespace)
    return [("Group", words.CI_GROUP.format(tenant=tenant.tenant))] if there else []
