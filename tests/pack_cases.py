"""For every rule of the policy pack an object that breaks it, and its twin that differs in one field."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import vocabulary as words

Object = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True)
class Case:
    """`broken` and `mended` are the same objects but for one field; the last one is what the finding names."""

    rule: str
    broken: tuple[Object, ...]
    mended: tuple[Object, ...]
    finding: str

    @property
    def id(self) -> str:
        return f"{self.rule}-{self.finding.replace(' ', '-').replace('/', '-')}"


def manifest(
    api: str,
    kind: str,
    name: str,
    body: Object | None = None,
    tenant: str | None = "acme",
    namespace: str | None = None,
) -> Object:
    labels = {words.TENANT: tenant} if tenant else {}
    metadata: Object = {"name": name, "labels": labels}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **(body or {})}


def with_field(item: Object, path: tuple[Any, ...], value: Any) -> Object:
    """A copy that differs in one field; None leaves it out."""
    changed = copy.deepcopy(item)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def namespace(name: str, tenant: str) -> Object:
    space = manifest("v1", "Namespace", name, tenant=tenant)
    levels = {words.PSA_ENFORCE: "restricted", words.PSA_VERSION: "v1.36"}
    space["metadata"]["labels"] |= {**dict.fromkeys(words.COST_LABELS, "x"), **levels}
    return space


def walls(name: str, tenant: str) -> tuple[Object, ...]:
    deny = {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
    return (
        manifest("v1", "ResourceQuota", "walls", {"spec": {"hard": {"pods": "1"}}}, tenant, name),
        manifest("v1", "LimitRange", "walls", {"spec": {"limits": []}}, tenant, name),
        manifest("networking.k8s.io/v1", "NetworkPolicy", "walls", deny, tenant, name),
    )


def binding(name: str, where: str, tenant: str, role: str, group: str, kind: str = "Role") -> Object:
    body = {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
    }
    return manifest(f"{RBAC}/v1", "RoleBinding", name, body, tenant, where)


def _one(rule: str, item: Object, path: tuple[Any, ...], mended: Any) -> Case:
    metadata = item["metadata"]
    where = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return Case(rule, (item,), (with_field(item, path, mended),), f"{item['kind']} {where}{metadata['name']}")


def _space(rule: str, name: str, path: tuple[Any, ...], broken: Any) -> Case:
    good = namespace(name, name)
    rest = walls(name, name)
    return Case(rule, (*rest, with_field(good, path, broken)), (*rest, good), f"Namespace {name}")


def _pod(rule: str, name: str, spec: Object, path: tuple[Any, ...], mended: Any) -> Case:
    full = {"containers": [{"name": "main", "image": "x"}], **spec}
    return _one(rule, manifest("v1", "Pod", name, {"spec": full}, namespace="acme--pods"), path, mended)


def _role(rule: str, name: str, group: str, resource: str, verb: str, path: tuple[Any, ...], mended: Any) -> Case:
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    return _one(rule, manifest(f"{RBAC}/v1", "ClusterRole", name, {"rules": rules}), path, mended)


def _bound(rule: str, name: str, resource: str, verb: str, path: tuple[Any, ...], mended: Any) -> Case:
    """A role of somebody else's, which becomes dangerous by being bound to a tenant."""
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}]
    role = manifest(f"{RBAC}/v1", "Role", "foreign", {"rules": rules}, None, name)
    rest = (namespace(name, name), *walls(name, name), binding("bound", name, name, "foreign", f"{name}-people"))
    return Case(rule, (*rest, role), (*rest, with_field(role, path, mended)), f"Role {name}/foreign")


def _policy(rule: str, name: str, spec: Object, path: tuple[Any, ...], mended: Any) -> Case:
    item = manifest("networking.k8s.io/v1", "NetworkPolicy", name, {"spec": spec}, namespace="acme--net")
    return _one(rule, item, path, mended)


_CRON = {"jobTemplate": {"spec": {"template": {"spec": {"containers": [], "runtimeClassName": "nvidia"}}}}}
_SUBJECTS = ("subjects", 0, "name")
_LABELS = ("metadata", "labels")
_SHARED = (
    *(item for name in ("left", "right") for item in (namespace(name, name), *walls(name, name))),
    binding("developer", "left", "left", "tenancy-developer", "both", "ClusterRole"),
)
_OWNED = (namespace("owned", "owned"), *walls("owned", "owned"), binding("b", "owned", "owned", "r", "owned-people"))
_WIDE = {
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
    "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "owned-people"}],
}
_VISIBLE = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

OBJECT_CASES = (
    _space("cost-02", "unbilled", (*_LABELS, "cost-center"), None),
    _space("ns-03", "weak", (*_LABELS, words.PSA_ENFORCE), "baseline"),
    _space("ns-03", "unlevelled", (*_LABELS, words.PSA_ENFORCE), None),
    _space("ns-03", "unpinned", (*_LABELS, words.PSA_VERSION), "latest"),
    _pod("gpu-01", "runtime", {"runtimeClassName": "nvidia"}, ("spec", "runtimeClassName"), None),
    _one(
        "gpu-01",
        manifest("batch/v1", "CronJob", "nightly", {"spec": _CRON}, namespace="acme--pods"),
        ("spec", "jobTemplate", "spec", "template", "spec", "runtimeClassName"),
        None,
    ),
    _pod(
        "gpu-02",
        "devices",
        {"containers": [{"name": "main", "image": "x", "env": _VISIBLE}]},
        ("spec", "containers", 0, "env", 0, "value"),
        "none",
    ),
    _pod("sched-02", "placed", {"nodeName": "node-1"}, ("spec", "nodeName"), None),
    _one(
        "guard-01",
        manifest(ADMISSION, "ValidatingAdmissionPolicy", "soft", {"spec": {"failurePolicy": "Ignore"}}, None),
        ("spec", "failurePolicy"),
        "Fail",
    ),
    _one(
        "guard-01",
        manifest(
            ADMISSION, "ValidatingAdmissionPolicyBinding", "soft", {"spec": {"validationActions": ["Audit"]}}, None
        ),
        ("spec", "validationActions"),
        ["Deny"],
    ),
    _one(
        "net-01",
        manifest("v1", "Service", "open", {"spec": {"type": "NodePort"}}, namespace="acme--net"),
        ("spec", "type"),
        "ClusterIP",
    ),
    _one(
        "net-01",
        manifest("v1", "Service", "stolen", {"spec": {"externalIPs": ["192.0.2.1"]}}, namespace="acme--net"),
        ("spec", "externalIPs"),
        [],
    ),
    _policy("net-02", "everybody", {"ingress": [{"from": []}]}, ("spec", "ingress", 0, "from"), [{"podSelector": {}}]),
    _policy(
        "net-02",
        "neighbours",
        {"egress": [{"to": [{"namespaceSelector": {}}]}]},
        ("spec", "egress", 0, "to", 0, "namespaceSelector"),
        {"matchLabels": {words.TENANT: "acme"}},
    ),
    _policy(
        "net-05",
        "metadata",
        {"egress": [{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}]},
        ("spec", "egress", 0, "to", 0, "ipBlock", "cidr"),
        "198.51.100.0/24",
    ),
    _one(
        "quota-01",
        manifest(
            "v1",
            "ResourceQuota",
            "uncounted",
            {"spec": {"hard": {"limits.nvidia.com/gpu": "4"}}},
            namespace="acme--main",
        ),
        ("spec", "hard"),
        {"requests.nvidia.com/gpu": "4"},
    ),
    _one(
        "quota-02",
        manifest(
            "v1",
            "LimitRange",
            "gpus",
            {"spec": {"limits": [{"type": "Container", "default": {"nvidia.com/gpu": "1"}}]}},
            namespace="acme--main",
        ),
        ("spec", "limits", 0, "default"),
        {"cpu": "1"},
    ),
    _role("rbac-01", "all", "", "*", "get", ("rules", 0, "resources"), ["pods"]),
    _role("rbac-02", "climbing", "", "pods", "escalate", ("rules", 0, "verbs"), ["get"]),
    _role("rbac-02", "minting", "", "serviceaccounts/token", "create", ("rules", 0, "resources"), ["pods"]),
    _role("rbac-03", "unlimited", "", "resourcequotas", "delete", ("rules", 0, "verbs"), ["get"]),
    _one(
        "rbac-04",
        manifest(f"{RBAC}/v1", "ClusterRoleBinding", "wide", with_field(_WIDE, _SUBJECTS, "x")),
        (*_LABELS, words.TENANT),
        None,
    ),
    _one(
        "rbac-05",
        binding("anybody", "acme--main", "acme", "tenancy-viewer", "system:authenticated", "ClusterRole"),
        _SUBJECTS,
        "acme-people",
    ),
)
STACK_CASES = (
    *(
        Case(
            "ns-04",
            (*(wall for wall in walls(name, name) if wall["kind"] != missing), namespace(name, name)),
            (*walls(name, name), namespace(name, name)),
            f"Namespace {name}",
        )
        for name, missing in (("unmetered", "ResourceQuota"), ("unbounded", "LimitRange"), ("open", "NetworkPolicy"))
    ),
    _bound("rbac-01", "anything", "*", "get", ("rules", 0, "resources"), ["pods"]),
    _bound("rbac-02", "posing", "users", "impersonate", ("rules", 0, "verbs"), ["get"]),
    _bound("rbac-03", "selfmade", "networkpolicies", "delete", ("rules", 0, "verbs"), ["get"]),
    Case(
        "rbac-04",
        (*_OWNED, manifest(f"{RBAC}/v1", "ClusterRoleBinding", "everywhere", _WIDE, None)),
        (
            *_OWNED,
            with_field(manifest(f"{RBAC}/v1", "ClusterRoleBinding", "everywhere", _WIDE, None), _SUBJECTS, "ops"),
        ),
        "ClusterRoleBinding everywhere",
    ),
    Case(
        "rbac-05",
        (*_SHARED, binding("developer", "right", "right", "tenancy-developer", "both", "ClusterRole")),
        (*_SHARED, binding("developer", "right", "right", "tenancy-developer", "right-people", "ClusterRole")),
        "RoleBinding right/developer",
    ),
)
CASES = (*OBJECT_CASES, *STACK_CASES)
