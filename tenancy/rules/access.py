"""Rules on roles and their bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from tenancy.catalog import vocabulary
from tenancy.kube.objects import get_path, labels_of, name_of
from tenancy.rules.findings import Finding, Given, Object
from tenancy.rules.model import Rule, Severity
from tenancy.rules.owned import is_ours, is_tenants
from tenancy.rules.values import (
    foreign_subject,
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="rbac-05",
        title="access is granted to groups and users of people, never to system or platform identities",
        why="a binding to system:authenticated gives every user and pod of the cluster access to the tenant",
        fix="name a group or user of the identity provider that belongs to this tenant alone",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="rbac-01",
        title="a tenant's role has no wildcard",
        why="'*' grants pods/status, namespaces and every resource that is installed later",
        fix="list the resources and verbs",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="rbac-02",
        title="a tenant's role cannot escalate, bind, impersonate, approve or mint tokens",
        why="each of these verbs is a way to every other right",
        fix="drop the verb or resource",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="rbac-03",
        title="a tenant's role can only read the objects that limit the tenant",
        why="a tenant that can write quotas, limit ranges, network policies or bindings is not limited by them",
        fix="grant get, list and watch only",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="rbac-04",
        title=(
            "a tenant gets namespaced rights only, and rights like cluster-admin belong to groups and service "
            "accounts of "
            "the platform"
        ),
        why="a ClusterRoleBinding grants rights in all namespaces, those of every other tenant among them",
        fix="bind the role with a RoleBinding in the tenant's namespaces; for the platform name a group of its own",
        severity=Severity.CRITICAL,
    ),
    Rule(
        id="rbac-07",
        title="the identity that deploys is in the platform's group",
        why="guards let only that group change tenants' namespaces, whatever other rights an identity has",
        fix="add the identity to platform.group, or deploy as one that is in it",
    ),
    Rule(
        id="rbac-06",
        title="a binding names a role that exists",
        why="the user who later makes a role of that name decides what the tenant may do",
        fix="name a role that is among the objects, or drop the binding",
        severity=Severity.MEDIUM,
    ),
)

_ESCALATING_VERBS = frozenset({"bind", "escalate", "approve", "sign"})
_IMPERSONATING = "impersonate"
"""Since 1.36 also `impersonate:user-info`, `impersonate-on:user-info:list` and the like."""
_POWERS = frozenset(
    {
        "serviceaccounts/token",
        "pods/binding",
        "pods/status",
        "bindings",
        "nodes/proxy",
        "pods/proxy",
        "services/proxy",
    }
    | {
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "resourceclaims/status",
        "tokenreviews",
        "subjectaccessreviews",
    }
)
_LIMITS = frozenset(
    {"resourcequotas", "limitranges", "networkpolicies", "roles", "rolebindings", "namespaces", "endpoints"}
    | {
        "endpointslices",
        "clusterroles",
        "clusterrolebindings",
        "deviceclasses",
        "priorityclasses",
        "nodes",
        "persistentvolumes",
        "resourceslices",
    }
    | {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
)
_GUARDED = frozenset({"networkpolicies"})
"""Limits that tenants may add to; with the guards, net-02 and net-10 check the additions."""
_READ = frozenset({"get", "list", "watch"})
_ALL_IDENTITIES = frozenset({"system:authenticated", "system:unauthenticated", "system:masters", "system:anonymous"})
_ALL_ACCOUNTS, _ACCOUNT = "system:serviceaccounts", "system:serviceaccount:"
_FOR_ALL_IDENTITIES = frozenset(
    {"system:basic-user", "system:discovery", "system:public-info-viewer", "system:service-account-issuer-discovery"}
)
"""Kubernetes' own roles that it binds to all identities (1.36, `rbac/bootstrappolicy`)."""
_OVER_ALL = frozenset({"cluster-admin", "admin", "edit"})
_BOOTSTRAPPED = ("kubernetes.io/bootstrapping", "rbac-defaults")
_VIEWER = "tenancy-viewer"
"""The only role that a group may have in several tenants: an auditor's, which reads everything but secrets."""


def _escalating(verbs: Set[str]) -> set[str]:
    return {verb for verb in verbs if verb in _ESCALATING_VERBS or verb.startswith(_IMPERSONATING)}


def role_rules(item: Object, guarded: Set[str] = frozenset()) -> Given:
    """rbac-01 to rbac-03 on a Role or ClusterRole that a tenant is bound to; a guard checks `guarded` kinds."""
    if item.get("aggregationRule"):
        yield "rbac-01", "aggregationRule, which adds the rules of roles that are installed later"
    for rule in item.get("rules") or ():
        resources, verbs = set(rule.get("resources") or ()), set(rule.get("verbs") or ())
        # `*/token` is the token subresource of any resource.
        of_all = {resource for resource in resources if str(resource).startswith("*/")}
        if of_all or "*" in resources | verbs | set(rule.get("apiGroups") or ()):
            yield "rbac-01", f"rule {dict(rule)}"
        reached = {power for power in _POWERS if f"*/{power.partition('/')[2]}" in of_all}
        if mighty := sorted(_escalating(verbs) | resources & _POWERS | reached):
            yield "rbac-02", ", ".join(mighty)
        if (limit_resources := sorted((resources & _LIMITS) - guarded)) and not verbs <= _READ:
            yield "rbac-03", f"{', '.join(sorted(verbs - _READ))} on {', '.join(limit_resources)}"


def _role(item: Object) -> Given:
    if is_ours(item):
        # The environment's own roles come with its guards; another role of a tenant may have no guards.
        yield from role_rules(item, _GUARDED if vocabulary.ENVIRONMENT in labels_of(item) else frozenset())


def _binding(item: Object) -> Given:
    if not is_tenants(item):
        return
    if item.get("kind") == "ClusterRoleBinding":
        yield "rbac-04", f"ClusterRoleBinding to {(item.get('roleRef') or {}).get('name')}"
    for subject in item.get("subjects") or ():
        if detail := foreign_subject(str(subject.get("kind")), str(subject.get("name", ""))):
            yield "rbac-05", detail


def bound(
    items: Iterable[Object],
    inside: Mapping[str, Sequence[Object]],
    homes: Mapping[str, str],
    owner_of: dict[tuple[str, str], str],
) -> Iterator[Finding]:
    """rbac-01 to rbac-05 on bindings, with the roles and the subjects that they name.

    `inside` are the objects of each namespace, `homes` the tenants' namespaces with their tenants. `owner_of` is filled
    with each group that has a role in a tenant's namespace, and the tenant.
    """
    roles: dict[tuple[str, str, str], Object] = {}
    for item in items:
        kind, metadata = str(item.get("kind")), item.get("metadata") or {}
        if kind in {"Role", "ClusterRole"}:
            roles[kind, str(metadata.get("namespace", "")), str(metadata.get("name"))] = item
    for name in sorted(homes):
        for binding in (item for item in inside.get(name, ()) if item.get("kind") == "RoleBinding"):
            yield from _bound_role(binding, name, roles)
            yield from _bound_subjects(binding, name, homes, owner_of)
    for binding in (item for item in items if item.get("kind") in {"ClusterRoleBinding", "RoleBinding"}):
        yield from _bound_to_many(binding, roles)
    for binding in (item for item in items if item.get("kind") == "ClusterRoleBinding"):
        for subject in binding.get("subjects") or ():
            namespace, _ = _account(subject)
            whose = None if is_tenants(binding) else homes.get(namespace)
            tenant = owner_of.get((str(subject.get("kind")), str(subject.get("name")))) or whose
            if tenant:
                yield Finding("rbac-04", name_of(binding), f"{subject['kind']} {subject['name']!r} of tenant {tenant}")


def _account(subject: Object) -> tuple[str, str]:
    """Namespace and name of a service account, which is a user as well; empty for other subjects."""
    name = str(subject.get("name"))
    if subject.get("kind") == "ServiceAccount":
        return str(subject.get("namespace")), name
    if subject.get("kind") == "User" and name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        return namespace, account
    return "", ""


def _bound_to_many(binding: Object, roles: Mapping[tuple[str, str, str], Object]) -> Iterator[Finding]:
    """rbac-04 and, within a namespace of the platform, rbac-05: rights of the platform for all identities or a user."""
    wide, labels = binding.get("kind") == "ClusterRoleBinding", labels_of(binding)
    if labels.get(_BOOTSTRAPPED[0]) == _BOOTSTRAPPED[1] or (not wide and is_tenants(binding)):
        return
    kind, role = (str(get_path(binding, "roleRef", key)) for key in ("kind", "name"))
    namespace = str(get_path(binding, "metadata", "namespace")) if kind == "Role" else ""
    rules = roles.get((kind, namespace, role))
    for subject in binding.get("subjects") or ():
        subject_kind, name = str(subject.get("kind")), str(subject.get("name"))
        for_all = subject_kind != "ServiceAccount" and (name in _ALL_IDENTITIES or name.startswith(_ALL_ACCOUNTS))
        person = wide and subject_kind == "User" and not name.startswith("system:")
        if (for_all or person) and _over_all(role, rules, for_all=for_all):
            yield Finding(
                "rbac-04" if wide else "rbac-05", name_of(binding), f"{kind} {role} for {subject_kind} {name!r}"
            )


def _over_all(name: str, role: Object | None, *, for_all: bool) -> bool:
    """Whether a role has rights that only the platform may have."""
    if role is None:
        of_system = name.startswith("system:") and name not in _FOR_ALL_IDENTITIES
        return name in _OVER_ALL or (for_all and (of_system or name == "view"))
    reads_secrets = any("secrets" in (rule.get("resources") or ()) for rule in role.get("rules") or ())
    return (for_all and reads_secrets) or next(iter(role_rules(role)), None) is not None


def _bound_subjects(
    binding: Object, name: str, homes: Mapping[str, str], owner_of: dict[tuple[str, str], str]
) -> Iterator[Finding]:
    """rbac-05 on a RoleBinding in a tenant's namespace."""
    tenant = homes[name]
    may_be_shared = [get_path(binding, "roleRef", key) for key in ("kind", "name")] == ["ClusterRole", _VIEWER]
    for subject in binding.get("subjects") or ():
        if subject.get("kind") == "ServiceAccount":
            whose = homes.get(str(subject.get("namespace", name)), tenant)
            if whose != tenant:
                detail = f"ServiceAccount {subject.get('namespace')}/{subject.get('name')} of tenant {whose}"
                yield Finding("rbac-05", name_of(binding), detail)
        elif subject.get("kind") == "Group" and not may_be_shared:
            key = ("Group", str(subject.get("name")))
            first = owner_of.setdefault(key, tenant)
            if first != tenant:
                yield Finding("rbac-05", name_of(binding), f"Group {key[1]!r}, which belongs to tenant {first}")


def _bound_role(binding: Object, namespace: str, roles: Mapping[tuple[str, str, str], Object]) -> Iterator[Finding]:
    reference = binding.get("roleRef") or {}
    kind = str(reference.get("kind"))
    role = roles.get((kind, namespace if kind == "Role" else "", str(reference.get("name"))))
    if role is None or is_ours(role):
        return  # not in this program, or checked by itself
    for rule, detail in role_rules(role):
        yield Finding(rule, name_of(role), f"{detail}, bound in {namespace}")


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    "ClusterRole": _role,
    "ClusterRoleBinding": _binding,
    "Role": _role,
    "RoleBinding": _binding,
}
