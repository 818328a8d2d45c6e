"""Authorization: the API server's authorizers Node and RBAC over the roles and bindings of a cluster.

Sources: kubernetes v1.36.3 `plugin/pkg/auth/authorizer/rbac`, `pkg/registry/rbac`, k8s.io/component-helpers v0.36.3
`auth/rbac/validation`, k8s.io/apiserver v0.36.3 `pkg/endpoints/filters/impersonation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tenancy.check.admission import nodes
from tenancy.check.admission.bootstrap import GROUP, MASTERS, NODE_RULES
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.check.admission.requests import AUTHENTICATED, AdmissionRequest, Identity, Operation
from tenancy.check.admission.verdicts import Denial
from tenancy.kube.deniers import API_VALIDATION, RBAC
from tenancy.kube.objects import Object, get_path
from tenancy.kube.selectors import matches

SERVICE_ACCOUNT = "system:serviceaccount:"
_FULL = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_GC_FIELDS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
"""Metadata that a role may change without a check of its rules: the garbage collector needs it."""

PolicyRule = Mapping[str, Any]
"""A rule of a Role or ClusterRole, as the API takes it."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The question to an authorizer: a verb on a resource, or on a path that is no resource."""

    verb: str
    resource: str = ""
    """In the plural; empty for a path."""
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def combined(self) -> str:
        """The resource with its subresource, as rules write it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """An authorizer's answer."""

    allowed: bool
    reason: str = ""
    """The binding that allows it, or why it is not decided."""
    decided: bool = True


class Authorizer:
    """The rights of every identity in a cluster."""

    def __init__(self, cluster: ClusterObjects) -> None:
        """`cluster` has the bootstrap roles too, where they count."""
        self._cluster = cluster
        self._aggregated: dict[str, tuple[PolicyRule, ...]] = {}
        self._bindings: dict[tuple[str, str], list[Object]] = {}
        for kind in ("ClusterRoleBinding", "RoleBinding"):
            for binding in cluster.all(GROUP, kind):
                for subject in binding.get("subjects") or ():
                    key = _subject(subject, get_path(binding, "metadata", "namespace") or "")
                    bindings = self._bindings.setdefault(key, [])
                    if not bindings or bindings[-1] is not binding:
                        bindings.append(binding)

    def decide(self, identity: Identity, attributes: Attributes) -> AccessDecision:
        """Whether an identity may do something, and by which binding."""
        pending = ""
        if MASTERS in identity.groups:
            return AccessDecision(True, f"member of {MASTERS}")
        if (node := nodes.node_of(identity.username, identity.groups)) is not None:
            allowed = self._node_may(node, attributes)
            if allowed:
                return AccessDecision(True, "Node authorizer")
            if allowed is None:
                pending = f"what node {node} may reach depends on the pods that run there"
        for binding in self._bindings_of(identity, attributes.namespace):
            if any(allows(rule, attributes) for rule in self._rules(binding)):
                return AccessDecision(True, _binding_text(binding))
        return AccessDecision(False, pending, decided=not pending)

    def restriction(self, request: AdmissionRequest) -> Denial | None:
        """NodeRestriction's refusal of a kubelet's write of a Node."""
        node = nodes.node_of(request.identity.username, request.identity.groups)
        if node is None or (request.group, request.resource) != ("", "nodes") or request.operation is Operation.READ:
            return None
        reason = nodes.restriction(node, request.operation, request.name, request.object, request.old_object)
        return Denial("NodeRestriction", None, f'nodes "{request.name}" is forbidden: {reason}') if reason else None

    def rules_of(self, identity: Identity, namespace: str = "") -> list[PolicyRule]:
        """Every rule that applies to an identity in a namespace; without one, those that apply everywhere."""
        return [rule for binding in self._bindings_of(identity, namespace) for rule in self._rules(binding)]

    def escalation(self, request: AdmissionRequest) -> Denial | None:
        """The refusal of a role or binding that grants more than the identity has; None if it may grant it.

        The API server checks this after mutating admission and before it validates the object.
        """
        kind = _GRANTS.get(request.resource) if request.group == GROUP and not request.subresource else None
        item, identity = request.object, request.identity
        if kind is None or item is None or request.operation not in (Operation.CREATE, Operation.UPDATE):
            return None
        if MASTERS in identity.groups or _only_collected(item, request.old_object):
            return None
        namespace = request.namespace or ""
        if kind.endswith("Binding"):
            return self._bound_too_much(request, item, namespace)
        attributes = Attributes("escalate", request.resource, GROUP, namespace=namespace, name=_path_name(request))
        if self.decide(identity, attributes).allowed:
            return None
        if reason := self._missing(identity, namespace, item.get("rules") or ()):
            return _refused(request, reason)
        former = request.old_object or {}
        selects = any(get_path(role, "aggregationRule", "clusterRoleSelectors") for role in (item, former))
        if kind == "ClusterRole" and selects and self._missing(identity, namespace, _FULL):
            return _refused(request, "must have cluster-admin privileges to use the aggregationRule")
        return None

    def impersonation(self, identity: Identity, target: Identity, attributes: Attributes) -> Denial | None:
        """The refusal to act as another identity for a request; None if it is allowed.

        Kubernetes 1.36 knows verbs for parts of it, which hold for single requests; before, `impersonate` alone.
        """
        mode, checks = _impersonated(target)
        on = replace(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}")
        constrained = [on, *(replace(check, verb=f"impersonate:{mode}") for check in checks)]
        if mode and all(self.decide(identity, check).allowed for check in constrained):
            return None
        for check in _impersonated(target, legacy=True)[1]:
            if not self.decide(identity, check).allowed:
                return forbidden(identity, check)
        return None

    def _bound_too_much(self, request: AdmissionRequest, item: Object, namespace: str) -> Denial | None:
        reference = item.get("roleRef") or {}
        kind, name = str(reference.get("kind")), str(reference.get("name"))
        resource = {"ClusterRole": "clusterroles", "Role": "roles"}.get(kind)
        attributes = Attributes("bind", resource or "", str(reference.get("apiGroup") or GROUP), "", namespace, name)
        if resource and self.decide(request.identity, attributes).allowed:
            return None
        rules = self._role(kind, name, namespace) if resource else None
        if rules is None:
            return Denial(API_VALIDATION, None, f'{resource or kind}.{GROUP} "{name}" not found', "roleRef")
        reason = self._missing(request.identity, namespace, rules)
        return _refused(request, reason) if reason else None

    def _missing(self, identity: Identity, namespace: str, rules: Iterable[PolicyRule]) -> str:
        """Rights that an identity would grant without having them; empty if it has all of them."""
        own_rules = self.rules_of(identity, namespace)
        single = [part for rule in rules for part in _parts(rule)]
        missing = [part for part in single if not any(_covers(rule, part) for rule in own_rules)]
        if not missing:
            return ""
        groups = "[" + " ".join(json.dumps(group) for group in identity.groups) + "]"
        lines = "\n".join(sorted({_compact(rule) for rule in _joined(missing)}))
        who = f'user "{identity.username}" (groups={groups})'
        return f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}"

    def _node_may(self, node: str, attributes: Attributes) -> bool | None:
        if attributes.resource:
            try:
                return nodes.may(
                    node, attributes.verb, attributes.group, attributes.combined, attributes.namespace, attributes.name
                )
            except LookupError:
                pass
        return any(allows(rule, attributes) for rule in NODE_RULES)

    def _bindings_of(self, identity: Identity, namespace: str) -> Iterator[Object]:
        """Bindings whose subjects include an identity: cluster-wide ones, and those of the namespace."""
        keys = [("User", identity.username), *(("Group", group) for group in identity.groups)]
        if identity.username.startswith(SERVICE_ACCOUNT):
            keys.append(("ServiceAccount", identity.username.removeprefix(SERVICE_ACCOUNT)))
        for key in keys:
            for binding in self._bindings.get(key, ()):
                if get_path(binding, "metadata", "namespace") in (None, "", namespace or None):
                    yield binding

    def _rules(self, binding: Object) -> Sequence[PolicyRule]:
        reference = binding["roleRef"]
        role_rules = self._role(reference["kind"], reference["name"], get_path(binding, "metadata", "namespace") or "")
        return role_rules or ()

    def _role(self, kind: str, name: str, namespace: str) -> Sequence[PolicyRule] | None:
        """The rules of a role; None if there is no such role."""
        role = self._cluster.get(GROUP, kind, name, namespace if kind == "Role" else "")
        if role is None:
            return None
        return self._of_parts(role, frozenset()) if role.get("aggregationRule") else role.get("rules") or ()

    def _of_parts(self, role: Object, ancestors: frozenset[str]) -> Sequence[PolicyRule]:
        """The rules of a role that a controller collects from the roles that it selects."""
        name = role["metadata"]["name"]
        if name not in self._aggregated:
            selectors = get_path(role, "aggregationRule", "clusterRoleSelectors") or ()
            rules: list[PolicyRule] = []
            for part in self._cluster.all(GROUP, "ClusterRole"):
                part_name = part["metadata"]["name"]
                if part_name in {name, *ancestors} or not any(
                    matches(selector, get_path(part, "metadata", "labels")) for selector in selectors
                ):
                    continue
                nested = part.get("aggregationRule")
                rules += self._of_parts(part, ancestors | {name}) if nested else part.get("rules") or ()
            self._aggregated[name] = tuple(rules)
        return self._aggregated[name]


def authenticated(identity: Identity) -> Identity:
    """An identity with the groups that the API server adds: of all authenticated, and of a service account."""
    groups = identity.groups
    if identity.username.startswith(SERVICE_ACCOUNT) and not set(groups) - {AUTHENTICATED}:
        namespace = identity.username.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", *groups)
    return identity if AUTHENTICATED in groups else replace(identity, groups=(*groups, AUTHENTICATED))


def attributes_of(request: AdmissionRequest) -> Attributes:
    """Attributes of a request for the authorizers: the name only where the path has it."""
    return Attributes(
        request.access_verb,
        request.resource,
        request.group,
        request.subresource,
        _where(request),
        _path_name(request),
    )


def _where(request: AdmissionRequest) -> str:
    # Namespaces are objects of the cluster, and yet the path of one names it as the namespace.
    if (request.group, request.resource) == ("", "namespaces"):
        return _path_name(request)
    return request.namespace or ""


def _path_name(request: AdmissionRequest) -> str:
    return "" if request.access_verb == "create" and not request.subresource else request.name


def forbidden(identity: Identity, attributes: Attributes) -> Denial:
    """The refusal as the API server writes it."""
    if not attributes.resource:
        return Denial(
            RBAC, None, f'forbidden: User "{identity.username}" cannot {attributes.verb} path "{attributes.path}"'
        )
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    may_not = f'User "{identity.username}" cannot {attributes.verb} resource "{attributes.combined}"'
    kind = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    quoted_name = f' "{attributes.name}"' if attributes.name else ""
    return Denial(RBAC, None, f'{kind}{quoted_name} is forbidden: {may_not} in API group "{attributes.group}" {where}')


def allows(rule: PolicyRule, attributes: Attributes) -> bool:
    """Whether a rule allows what is asked."""
    if not _one_of(rule.get("verbs"), attributes.verb):
        return False
    if not attributes.resource:
        return any(_path_covers(path, attributes.path) for path in rule.get("nonResourceURLs") or ())
    resources = rule.get("resources") or ()
    of_any = f"*/{attributes.subresource}" if attributes.subresource else None
    names = rule.get("resourceNames")
    return (
        _one_of(rule.get("apiGroups"), attributes.group)
        and ("*" in resources or attributes.combined in resources or of_any in resources)
        and (not names or attributes.name in names)
    )


def _one_of(entries: Any, value: str) -> bool:
    return bool(entries) and ("*" in entries or value in entries)


def _path_covers(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


_GRANTS: Mapping[str, str] = {
    "clusterroles": "ClusterRole",
    "roles": "Role",
    "clusterrolebindings": "ClusterRoleBinding",
    "rolebindings": "RoleBinding",
}


def _subject(subject: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    kind, name = str(subject.get("kind")), str(subject.get("name"))
    # A service account without a namespace is one of the binding's own; of a cluster-wide binding none at all.
    return (kind, f"{subject.get('namespace') or namespace}:{name}" if kind == "ServiceAccount" else name)


def _binding_text(binding: Object) -> str:
    metadata, reference = binding["metadata"], binding["roleRef"]
    space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{binding['kind']} {space}{metadata['name']} of {reference['kind']} {reference['name']}"


def _refused(request: AdmissionRequest, reason: str) -> Denial:
    name = get_path(request.object or {}, "metadata", "name") or ""
    return Denial(RBAC, None, f'{request.resource}.{GROUP} "{name}" is forbidden: {reason}')


def _only_collected(item: Object, old: Object | None) -> bool:
    """Whether an update changes only what the garbage collector needs."""
    return old is not None and _without_gc(item) == _without_gc(old)


def _without_gc(item: Object) -> Object:
    metadata = {key: value for key, value in item["metadata"].items() if key not in _GC_FIELDS}
    return {**item, "metadata": metadata}


def _impersonated(target: Identity, *, legacy: bool = False) -> tuple[str, list[Attributes]]:
    """The mode of an impersonation, and what must be allowed for it; no mode: only the verb `impersonate` will do."""
    name, api = target.username, "" if legacy else "authentication.k8s.io"
    groups = [group for group in target.groups if group != AUTHENTICATED]
    mode, user = "user-info", Attributes("impersonate", "users", api, name=name)
    if name.startswith(SERVICE_ACCOUNT):
        space, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
        mode = "" if groups or target.extra else "serviceaccount"
        user = Attributes("impersonate", "serviceaccounts", api, "", space, account)
    elif name.startswith("system:node:") and not legacy:
        mode = "" if groups or target.extra else "arbitrary-node"
        user = Attributes("impersonate", "nodes", api, name=name.removeprefix("system:node:"))
    extra = (
        Attributes("impersonate", "userextras", "authentication.k8s.io", key, name=value)
        for key, values in target.extra.items()
        for value in values
    )
    return mode, [user, *(Attributes("impersonate", "groups", api, name=group) for group in groups), *extra]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """A rule as rules with one group, resource, name and verb each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                part = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                yield from ({**part, "resourceNames": [name]} for name in rule.get("resourceNames") or ())
                if not rule.get("resourceNames"):
                    yield part
    for path in rule.get("nonResourceURLs") or ():
        yield from ({"nonResourceURLs": [path], "verbs": [verb]} for verb in verbs)


def _covers(own_rule: PolicyRule, part: PolicyRule) -> bool:
    """Whether a rule contains a rule of one part."""

    def has(field: str) -> bool:
        entries = {*(own_rule.get(field) or ())}
        return "*" in entries or entries >= {*(part.get(field) or ())}

    names = own_rule.get("resourceNames")
    return (
        has("verbs")
        and has("apiGroups")
        and all(
            _resource_covered(own_rule.get("resources") or (), resource) for resource in part.get("resources") or ()
        )
        and (not names or {*(part.get("resourceNames") or ("",))} <= {*names})
        and all(
            any(_url_covers(path, url) for path in own_rule.get("nonResourceURLs") or ())
            for url in part.get("nonResourceURLs") or ()
        )
    )


def _resource_covered(own_resources: Sequence[str], resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return "*" in own_resources or resource in own_resources or bool(slash and f"*/{subresource}" in own_resources)


def _url_covers(own_url: str, path: str) -> bool:
    return own_url == path or (own_url.endswith("*") and path.startswith(own_url.rstrip("*")))


def _joined(parts: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Rules of one part each, with the verbs of those that differ in nothing else in one rule."""
    rules_by_key: dict[str, dict[str, Any]] = {}
    url_rules: list[PolicyRule] = []
    for part in parts:
        if "nonResourceURLs" in part:
            url_rules.append(part)
            continue
        key = json.dumps({field: value for field, value in part.items() if field != "verbs"}, sort_keys=True)
        rule = rules_by_key.setdefault(key, {**part, "verbs": []})
        rule["verbs"] = [*rule["verbs"], *part["verbs"]]
    return [*url_rules, *rules_by_key.values()]


def _compact(rule: PolicyRule) -> str:
    words = {
        "apiGroups": "APIGroups",
        "resources": "Resources",
        "nonResourceURLs": "NonResourceURLs",
        "resourceNames": "ResourceNames",
        "verbs": "Verbs",
    }

    def entry_list(entries: Sequence[str]) -> str:
        return "[" + " ".join(json.dumps(entry) for entry in entries) + "]"

    return (
        "{" + ", ".join(f"{word}:{entry_list(rule[field])}" for field, word in words.items() if rule.get(field)) + "}"
    )
