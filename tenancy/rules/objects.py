"""Rules of the policy pack on a program's objects, each by itself and all together.

An object is a dict as the API accepts it, from any author and tool. The rules on tenants' objects are here, those on
nodes in `aws` and `nodes`, those on queues in `queues`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.catalog.versions import COMPATIBLE, incompatible
from tenancy.kube.pod_templates import BUILT_IN, templates_of
from tenancy.rules import aws, cilium, nodes, queues
from tenancy.rules.declared import undeclared
from tenancy.rules.exceptions import FindingWaiver
from tenancy.rules.found import UNKNOWN, Finding, Given, Object, at, many, name_of
from tenancy.rules.values import (
    day,
    foreign_subject,
    gpu_keys,
    publishes,
    too_wide_together,
    unbounded_end,
    unenforced_quota_keys,
    unsafe_range,
    weak_pod_security,
)


def _labels(item: Object) -> Mapping[str, str]:
    return (item.get("metadata") or {}).get("labels") or {}


def _annotations(item: Object) -> Mapping[str, str]:
    return (item.get("metadata") or {}).get("annotations") or {}


def _spec(item: Object) -> Mapping[str, Any]:
    return item.get("spec") or {}


def is_tenants(item: Object) -> bool:
    """Whether the object has a tenant's label."""
    return words.TENANT in _labels(item)


def is_ours(item: Object) -> bool:
    """Whether the object has the label of an environment or of a tenant."""
    return words.ENVIRONMENT in _labels(item) or is_tenants(item)


def _carried(item: Object, rule: str, today: dt.date | None = None) -> tuple[dt.date | None, str]:
    """Last day of an exception in an object's annotation, or why the exception is not valid."""
    for text in str(_annotations(item).get(words.EXCEPTIONS, "")).split(","):
        name, _, until = text.partition("=")
        if name != rule:
            continue
        if (end := day(until)) is None:
            return None, f"; its exception ends on {until!r}, which is not a day"
        if words.ENVIRONMENT not in _labels(item):
            return None, f"; its exception is valid only on objects of this product, with {words.ENVIRONMENT}"
        return (None, f"; its exception has {given}") if (given := unbounded_end(end, today)) else (end, "")
    return None, ""


def excepted(item: Object, today: dt.date | None = None) -> Iterator[tuple[Finding, FindingWaiver]]:
    """Findings on an object that a valid exception of a tenant's file covers, by the object's annotation."""
    if item.get("kind") != "Namespace" or not is_tenants(item):
        return
    until, _ = _carried(item, "ns-03", today)
    if until and (given := weak_pod_security(_labels(item).get(words.PSA_ENFORCE))):
        owner = str(_annotations(item).get(words.OWNER_MAIL, "unknown"))
        waiver = FindingWaiver(
            "ns-03", name_of(item), "an exception in the tenant's file, with its reason there", owner, until
        )
        yield Finding("ns-03", name_of(item), f"{words.PSA_ENFORCE}: {given}"), waiver


def _namespace(item: Object) -> Given:
    if not is_tenants(item):
        return
    labels = _labels(item)
    level = labels.get(words.PSA_ENFORCE)
    if given := weak_pod_security(level):
        until, reason = _carried(item, "ns-03")
        if until is None:
            yield "ns-03", f"{words.PSA_ENFORCE}: {given}{reason}"
    version = str(labels.get(words.PSA_VERSION, "none"))
    if version != UNKNOWN and (misfit := _unpinned(version)) is not None:
        yield "ns-03", f"{words.PSA_VERSION}: {version}{misfit}"
    if missing := [key for key in words.COST_LABELS if not labels.get(key)]:
        yield "cost-02", f"no label {', '.join(missing)}"
    # Only a preview shows it; a plain manifest is not checked for it.
    if item.get(aws.PROTECTED) is False and words.ENVIRONMENT in labels and words.LEAVING not in _annotations(item):
        yield "ns-07", "no protection from deletion when its file is deleted"


_PINNED = re.compile(r"v(1\.\d+)")


def _unpinned(version: str) -> str | None:
    """Why a version of the Pod Security Standards is not accepted; None if it is."""
    found = _PINNED.fullmatch(version)
    if not found:
        return ""
    return f", older than v{COMPATIBLE['guards'].oldest}" if incompatible(found[1], "guards") else None


def _quota(item: Object) -> Given:
    if lost := unenforced_quota_keys(_spec(item).get("hard") or {}):
        yield "quota-01", ", ".join(lost)


def _limit_range(item: Object) -> Given:
    fields = ("default", "defaultRequest", "min", "max", "maxLimitRequestRatio")
    named = {k for limit in _spec(item).get("limits") or () for f in fields for k in gpu_keys(limit.get(f) or {})}
    if named:
        yield "quota-02", ", ".join(sorted(named))


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
        if (held := sorted((resources & _LIMITS) - guarded)) and not verbs <= _READ:
            yield "rbac-03", f"{', '.join(sorted(verbs - _READ))} on {', '.join(held)}"


def _role(item: Object) -> Given:
    if is_ours(item):
        # The environment's own roles come with its guards; another role of a tenant may have no guards.
        yield from role_rules(item, _GUARDED if words.ENVIRONMENT in _labels(item) else frozenset())


def _binding(item: Object) -> Given:
    if not is_tenants(item):
        return
    if item.get("kind") == "ClusterRoleBinding":
        yield "rbac-04", f"ClusterRoleBinding to {(item.get('roleRef') or {}).get('name')}"
    for subject in item.get("subjects") or ():
        if given := foreign_subject(str(subject.get("kind")), str(subject.get("name", ""))):
            yield "rbac-05", given


def _network_policy(item: Object, homes: Mapping[str, str] = MappingProxyType({})) -> Given:
    """net-02, net-05; `homes` are the namespaces that are known to be a tenant's, with their tenants."""
    if not is_tenants(item):
        return
    tenant = _labels(item)[words.TENANT]
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for rule in _spec(item).get(direction) or ():
            peers = rule.get(side)
            if not peers:
                yield "net-02", f"{direction} without '{side}', which allows every peer"
            for peer in peers or ():
                block = peer.get("ipBlock")
                mine = direction == "egress" and block and block.get("cidr") == words.IDENTITY_AGENT
                if block and not mine and (given := unsafe_range(str(block.get("cidr")))):
                    yield "net-05", f"{direction} {given}"
                selector = peer.get("namespaceSelector")
                if selector is not None and not _stays_home(peer, tenant, direction, rule, homes):
                    unknown = f" with ports {UNKNOWN}" if UNKNOWN in str(rule.get("ports")) else ""
                    yield "net-02", f"{direction} namespaceSelector {_plain(selector)} of tenant {tenant}{unknown}"


def _stays_home(peer: Object, tenant: str, direction: str, rule: Object, homes: Mapping[str, str]) -> bool:
    labels = peer["namespaceSelector"].get("matchLabels") or {}
    if labels.get(words.TENANT) == tenant:
        return True
    ports = {(port.get("port"), port.get("endPort", port.get("port"))) for port in rule.get("ports") or ()}
    space = str(labels.get(words.SPACE_NAME, words.SEPARATOR))
    if space in homes:
        return homes[space] == tenant
    if direction == "egress" and space == "kube-system" and ports == {(53, 53)}:
        return True
    # A service of the platform: no tenant's namespace has such a name.
    pods = (peer.get("podSelector") or {}).get("matchLabels")
    named = bool(ports) and None not in {first for first, _ in ports}
    return words.SEPARATOR not in space and space != "default" and bool(pods) and named


def _cilium(item: Object) -> Given:
    if is_tenants(item):
        yield from cilium.in_namespace(item, _labels(item)[words.TENANT], {})


def _clusterwide(item: Object) -> Given:
    if is_ours(item):
        yield from cilium.clusterwide(item, {})


def _opened_to_neighbours(items: Iterable[Object], homes: Mapping[str, str]) -> Iterator[Finding]:
    """net-02, net-05 with the tenants of the namespaces that a policy names."""
    for item in items:
        kind = item.get("kind")
        found: Given = iter(())
        if kind == "NetworkPolicy":
            found = _network_policy(item, homes)
        elif kind == cilium.IN_NAMESPACE and is_tenants(item):
            found = cilium.in_namespace(item, _labels(item)[words.TENANT], homes)
        elif kind == cilium.CLUSTERWIDE and homes:
            found = cilium.clusterwide(item, homes)
        together = {Finding(rule, name_of(item), given): None for rule, given in found}
        alone = set(object_findings(item)) if together else set()
        yield from (finding for finding in together if finding not in alone)


def _opened_beyond_the_file(
    items: Iterable[Object], spaces: Mapping[str, Object], homes: Mapping[str, str]
) -> Iterator[Finding]:
    """net-02 for traffic that is not allowed in this namespace, but may be in another."""
    for item in items:
        space = spaces.get(str(at(item, "metadata", "namespace")))
        if item.get("kind") != "NetworkPolicy" or space is None:
            continue
        said = any(rule == "net-02" for rule, _ in (*_network_policy(item), *_network_policy(item, homes)))
        for given in () if said else undeclared(item, space):
            yield Finding("net-02", name_of(item), given)


def _opened_together(items: Iterable[Object]) -> Iterator[Finding]:
    """net-05 on the ranges of all policies in a namespace together, because policies add up."""
    opened: dict[tuple[str, str], list[tuple[Object, str]]] = {}
    kinds = {"NetworkPolicy", cilium.IN_NAMESPACE}
    # The finding names the same policy in any order.
    for item in sorted((one for one in items if one.get("kind") in kinds and is_tenants(one)), key=name_of):
        kind = item["kind"]
        for direction in ("ingress", "egress"):
            found = cilium.ranges(item, direction) if kind == cilium.IN_NAMESPACE else _ranges(item, direction)
            where = str(at(item, "metadata", "namespace")), direction
            opened.setdefault(where, []).extend((item, cidr) for cidr in found)
    for (_, direction), ranges in opened.items():
        if found := too_wide_together([cidr for _, cidr in ranges]):
            yield Finding("net-05", name_of(ranges[found[0]][0]), f"{direction} {found[1]}")


def _ranges(policy: Object, direction: str) -> list[str]:
    side = {"ingress": "from", "egress": "to"}[direction]
    peers = [peer for rule in _spec(policy).get(direction) or () for peer in rule.get(side) or ()]
    return [str(at(peer, "ipBlock", "cidr")) for peer in peers if peer.get("ipBlock")]


def _service(item: Object) -> Given:
    if not is_tenants(item):
        return
    spec = _spec(item)
    if spec.get("type", "ClusterIP") != "ClusterIP":
        yield "net-01", f"type {spec['type']}"
    if spec.get("externalIPs"):
        yield "net-01", f"externalIPs {list(spec['externalIPs'])}"
    if spec.get("externalName"):
        yield "net-01", f"externalName {spec['externalName']}"
    notes = _annotations(item)
    for key in filter(publishes, notes) if isinstance(notes, Mapping) else ():
        yield "net-01", f"annotation {key}: {notes[key]}"


_RAY = ("RayCluster", "RayCronJob", "RayJob", "RayService")
"""KubeRay's kinds (v1.6.2), each with a cluster's spec in it."""


def _ray(item: Object) -> Given:
    """net-01 on every Ray cluster in an object: KubeRay publishes its head's dashboard by an Ingress."""
    yield from _workload(item)
    if is_tenants(item):
        for where, head in _ray_heads(item.get("spec"), "spec"):
            if at(head, "enableIngress") is True:
                yield "net-01", f"{where}.enableIngress: true"


def _ray_heads(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The heads of the clusters in a field of KubeRay's kinds, at any depth, with their paths."""
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        path = f"{where}.{key}"
        if key == "headGroupSpec":
            yield path, inner
        elif isinstance(inner, Mapping):
            yield from _ray_heads(inner, path)


_MOUNTPOINT = "s3.csi.aws.com"


def _volume(item: Object) -> Given:
    """stor-09."""
    spec = _spec(item)
    claim = [at(spec, "claimRef", key) for key in ("namespace", "name")]
    if UNKNOWN in claim or not all(claim):
        yield "stor-09", f"claimRef {UNKNOWN if UNKNOWN in claim else 'without its namespace and name'}"
    if "hostPath" in spec:
        yield "stor-09", f"hostPath {at(spec, 'hostPath', 'path')}"
    if at(spec, "csi", "driver") == _MOUNTPOINT:
        source = at(spec, "csi", "volumeAttributes", "authenticationSource") or "driver, the default"
        if source != "pod":
            yield "stor-09", f"authenticationSource {source}"


def _pod_identity(item: Object) -> Given:
    yield from aws.untagged(_spec(item).get("disableSessionTags"))


def _guard(item: Object) -> Given:
    if _spec(item).get("failurePolicy", "Fail") != "Fail":
        yield "guard-01", f"failurePolicy {_spec(item)['failurePolicy']}"


def _guard_binding(item: Object) -> Given:
    actions = _spec(item).get("validationActions") or []
    if "Deny" not in actions:
        meant = ((item.get("metadata") or {}).get("annotations") or {}).get(words.GUARDS_MODE) == "audit"
        yield "guard-03" if meant and "Warn" in actions else "guard-01", f"validationActions {list(actions)}"


def _workload(item: Object) -> Given:
    if not is_tenants(item):
        return
    for template in templates_of(item):
        where, spec = template.path, template.spec
        if at(spec, "runtimeClassName") not in {None, "", words.SANDBOX_CLASS}:
            yield "gpu-01", f"{where}.runtimeClassName: {at(spec, 'runtimeClassName')}"
        if at(spec, "nodeName"):
            yield "sched-02", f"{where}.nodeName: {at(spec, 'nodeName')}"
        for path, container in template.containers:
            for number, variable in enumerate(many(at(container, "env"))):
                name, value = at(variable, "name"), at(variable, "value")
                harmless = name == gpus.DEVICE_VARIABLES[0] and value in {"void", "none"}
                if name in gpus.DEVICE_VARIABLES and not harmless:
                    given = "a value from another source" if value is None else value
                    yield "gpu-02", f"{path}.env[{number}] {name}: {given}"


def _release(item: Object) -> Given:
    yield from nodes.CHECKS["Release"](item)
    yield from queues.CHECKS["Release"](item)


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    cilium.CLUSTERWIDE: _clusterwide,
    cilium.IN_NAMESPACE: _cilium,
    "ClusterRole": _role,
    "ClusterRoleBinding": _binding,
    "LimitRange": _limit_range,
    "Namespace": _namespace,
    "NetworkPolicy": _network_policy,
    "PersistentVolume": _volume,
    "PodIdentityAssociation": _pod_identity,
    "ResourceQuota": _quota,
    "Role": _role,
    "RoleBinding": _binding,
    "Service": _service,
    "ValidatingAdmissionPolicy": _guard,
    "ValidatingAdmissionPolicyBinding": _guard_binding,
    **dict.fromkeys(BUILT_IN, _workload),
    **dict.fromkeys(_RAY, _ray),
    **aws.CHECKS,
    **nodes.CHECKS,
    **queues.CHECKS,
    "Release": _release,
}
MACHINES = frozenset({*aws.CHECKS, *nodes.CHECKS, "ConfigMap"})
"""Kinds whose rules report unknown values themselves; for others, every unknown field is reported."""


def object_findings(item: Object) -> Iterator[Finding]:
    """Findings on one object by itself."""
    # An object of an unknown kind is searched for pods.
    check = CHECKS.get(str(item.get("kind")), _workload)
    for rule, given in check(item):
        yield Finding(rule, name_of(item), given)


def stack_findings(items: Iterable[Object]) -> Iterator[Finding]:
    """Findings on all objects of a program together. One pass, one index."""
    spaces: dict[str, Object] = {}
    inside: dict[str, list[Object]] = {}
    roles: dict[tuple[str, str, str], Object] = {}
    cluster_bindings: list[Object] = []
    items = list(items)
    yield from nodes.findings_together(items)
    for item in items:
        kind, metadata = str(item.get("kind")), item.get("metadata") or {}
        if kind == "Namespace" and is_tenants(item):
            spaces[str(metadata.get("name"))] = item
        elif kind in {"Role", "ClusterRole"}:
            roles[kind, str(metadata.get("namespace", "")), str(metadata.get("name"))] = item
        elif kind == "ClusterRoleBinding":
            cluster_bindings.append(item)
        if metadata.get("namespace"):
            inside.setdefault(str(metadata["namespace"]), []).append(item)

    homes = {name: _labels(space)[words.TENANT] for name, space in spaces.items()}
    owner_of: dict[tuple[str, str], str] = {}
    for name, space in sorted(spaces.items()):
        present = inside.get(name, [])
        yield from _isolation_resources(name, space, present)
        tenant = _labels(space)[words.TENANT]
        for queue in (item for item in present if item.get("kind") == "LocalQueue" and not is_tenants(item)):
            for rule, given in queues.foreign_share(queue, tenant):
                yield Finding(rule, name_of(queue), given)
        for binding in (item for item in present if item.get("kind") == "RoleBinding"):
            yield from _bound_role(binding, name, roles)
            may_be_shared = [at(binding, "roleRef", key) for key in ("kind", "name")] == ["ClusterRole", _VIEWER]
            for subject in binding.get("subjects") or ():
                if subject.get("kind") == "ServiceAccount":
                    whose = homes.get(str(subject.get("namespace", name)), tenant)
                    if whose != tenant:
                        given = f"ServiceAccount {subject.get('namespace')}/{subject.get('name')} of tenant {whose}"
                        yield Finding("rbac-05", name_of(binding), given)
                elif subject.get("kind") == "Group" and not may_be_shared:
                    key = ("Group", str(subject.get("name")))
                    first = owner_of.setdefault(key, tenant)
                    if first != tenant:
                        yield Finding("rbac-05", name_of(binding), f"Group {key[1]!r}, which belongs to tenant {first}")
    for binding in cluster_bindings:
        for subject in binding.get("subjects") or ():
            tenant = owner_of.get((str(subject.get("kind")), str(subject.get("name"))))
            if tenant:
                yield Finding("rbac-04", name_of(binding), f"{subject['kind']} {subject['name']!r} of tenant {tenant}")
    for queue, given in queues.shares_taken(items, homes):
        yield Finding("kueue-05", name_of(queue), given)
    yield from _opened_to_neighbours(items, homes)
    yield from _opened_beyond_the_file(items, spaces, homes)
    yield from _opened_together(items)
    for item, given in aws.cluster_wide(items, owner_of):
        yield Finding("rbac-04", name_of(item), given)
    for item, given in aws.tenants_policies(items):
        yield Finding("id-06", name_of(item), given)
    for item in items if spaces else ():
        if item.get("kind") == aws.CLUSTER and (loose := aws.undeletable(item)):
            yield Finding("eks-03", name_of(item), f"{loose}, with tenants on the cluster")


def _isolation_resources(name: str, space: Object, present: Iterable[Object]) -> Iterator[Finding]:
    kinds = {str(item.get("kind")) for item in present if _bounds(item)}
    missing = [kind for kind in ("ResourceQuota", "LimitRange") if kind not in kinds]
    if not any(_denies_all(item) for item in present):
        missing.append("default-deny NetworkPolicy")
    if missing:
        yield Finding("ns-04", name_of(space), f"no {', no '.join(missing)} in {name}")


def _bounds(item: Object) -> bool:
    """Whether a quota or limit range has limits, and for all pods: with scopes, other pods would have none."""
    said = {"ResourceQuota": "hard", "LimitRange": "limits"}.get(str(item.get("kind")))
    scopes = [at(_spec(item), key) for key in ("scopeSelector", "scopes")]
    return bool(said) and bool(at(_spec(item), said)) and not any(one and one != UNKNOWN for one in scopes)


def _denies_all(item: Object) -> bool:
    spec = _spec(item)
    return (
        item.get("kind") == "NetworkPolicy"
        and not spec.get("podSelector")
        and {"Ingress", "Egress"} <= set(spec.get("policyTypes") or ())
        and not spec.get("ingress")
        and not spec.get("egress")
    )


def _bound_role(binding: Object, namespace: str, roles: Mapping[tuple[str, str, str], Object]) -> Iterator[Finding]:
    reference = binding.get("roleRef") or {}
    kind = str(reference.get("kind"))
    role = roles.get((kind, namespace if kind == "Role" else "", str(reference.get("name"))))
    if role is None or is_ours(role):
        return  # not in this program, or checked by itself
    for rule, given in role_rules(role):
        yield Finding(rule, name_of(role), f"{given}, bound in {namespace}")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
