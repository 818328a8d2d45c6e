"""Attacks on RBAC: other tenants' objects, the isolation resources of the own namespace, cluster-wide objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenancy.kube import deniers
from tenancy.kube.requests import MERGE, STRATEGIC, Impersonation, core, group
from tenancy.planning.kubernetes import flow_control, quotas
from tenancy.planning.kubernetes.access import role_name
from tenancy.rules.attacks import Attack, Request, attack, skipped
from tenancy.rules.scene import MISSING_OBJECT, POD_NAME
from tenancy.rules.workloads import workload
from tenancy.spec.fields.people import Role
from tenancy.verify.attacks.scene import AttackedNamespace, Scene

RULE = "rbac"
RBAC_API = "rbac.authorization.k8s.io/v1"

_PATCH = {"metadata": {"annotations": {"note": "hello"}}}


def access_attacks(scene: Scene) -> Iterator[Attack]:
    """Everything that RBAC alone refuses."""
    pairs = list(scene.pairs())
    for attacker, victim in pairs:
        yield from _cross_tenant(attacker, victim)
    if not pairs:
        yield skipped("rbac-across", RULE, "reach another tenant", "the environment has no second tenant with people")
    for place in scene.staffed:
        yield from _isolation_resources(place)
    if home := scene.home:
        yield from _own_namespace(home)
        yield from _cluster(home)
        yield from _workload(home)
    yield from _personas(scene)


def rbac_attack(id: str, sentence: str, request: Request, **twin: Any) -> Attack:
    """An attack that RBAC alone refuses."""
    return attack(f"rbac-{id}", RULE, sentence, deniers.RBAC, request, **twin)


def _cross_tenant(attacker: AttackedNamespace, victim: AttackedNamespace) -> Iterator[Attack]:
    """Requests to another tenant's namespace; the twin is the same request in the own namespace."""
    pod = attacker.pod()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": POD_NAME}, "stringData": {"a": "b"}}
    requests: tuple[tuple[str, str, str, str, str, Any], ...] = (
        ("list-pods", "see the pods", "GET", "", "pods", None),
        ("list-secrets", "read the secrets", "GET", "", "secrets", None),
        ("read-config", "read a config map", "GET", "", "configmaps/kube-root-ca.crt", None),
        ("read-quota", "see the quota", "GET", "", f"resourcequotas/{quotas.NAME}", None),
        ("list-claims", "see the volume claims", "GET", "", "persistentvolumeclaims", None),
        ("list-events", "read the events", "GET", "", "events", None),
        ("list-jobs", "see the jobs", "GET", "batch/v1", "jobs", None),
        ("run-pod", "run a pod", "POST", "", "pods", pod),
        ("run-job", "run a job", "POST", "batch/v1", "jobs", workload("Job", pod)),
        ("plant-secret", "plant a secret", "POST", "", "secrets", secret),
        ("edit-config", "edit a config map", "PATCH", "", "configmaps/kube-root-ca.crt", _PATCH),
        ("delete-pods", "delete the pods", "DELETE", "", "pods", None),
    )
    suffix = f"@{victim.name}"
    for name, sentence, method, api, what, body in requests:
        victim_path, own_path = (
            group(api, place.name, what) if api else core(place.name, what) for place in (victim, attacker)
        )
        kind = MERGE if method == "PATCH" else "application/json"
        request = Request(method, victim_path, body, attacker.developer, kind)
        text = f"{attacker.tenant.tenant}'s developer: {sentence} of {victim.tenant.tenant}"
        yield rbac_attack(f"{name}-as-{attacker.tenant.tenant}{suffix}", text, request, twin_path=own_path)
    # The pod does not exist: in the own namespace the answer is 404.
    for name, sentence, method, what, body in (
        ("exec", "open a shell in a pod", "GET", "exec?command=id&stdout=true", None),
        ("port-forward", "reach a port", "GET", "portforward?ports=80", None),
        ("logs", "read the logs", "GET", "log", None),
        ("debug", "add a debug container to a pod", "PATCH", "ephemeralcontainers", {"spec": {}}),
    ):
        victim_path, own_path = (core(place.name, "pods", MISSING_OBJECT, what) for place in (victim, attacker))
        kind = STRATEGIC if method == "PATCH" else "application/json"
        request = Request(method, victim_path, body, attacker.developer, kind)
        text = f"{attacker.tenant.tenant}'s developer: {sentence} of {victim.tenant.tenant}"
        yield rbac_attack(
            f"{name}-as-{attacker.tenant.tenant}{suffix}", text, request, twin_path=own_path, twin_missing=True
        )


def _object(api_version: str, kind: str, name: str = POD_NAME, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def _binding(role: str, subject: str = "system:authenticated") -> dict[str, Any]:
    return {
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": subject}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }


def _isolation_resources(place: AttackedNamespace) -> Iterator[Attack]:
    """Quota, limit range and namespace, changed by the tenant's developer; the platform may change them."""
    isolation_resources = {
        "quota": core(place.name, "resourcequotas", quotas.NAME),
        "limit-range": core(place.name, "limitranges", quotas.NAME),
        "namespace": f"/api/v1/namespaces/{place.name}",
    }
    for name, path in isolation_resources.items():
        if name != "namespace":
            request = Request("DELETE", path, None, place.developer)
            yield rbac_attack(f"delete-{name}@{place.name}", f"remove its {name}", request, twin_who=None)
        request = Request("PATCH", path, _PATCH, place.developer, MERGE)
        yield rbac_attack(f"patch-{name}@{place.name}", f"change its {name}", request, twin_who=None)


def _own_namespace(place: AttackedNamespace) -> Iterator[Attack]:
    """Rights that a role with wildcards would give inside the own namespace."""
    where, pod, account = place.name, place.pod(), "default"
    quota = _object("v1", "ResourceQuota", spec={"hard": {"pods": "1"}})
    limits = _object("v1", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "900"}}]})
    role = _object(RBAC_API, "Role", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    binding = _object(RBAC_API, "RoleBinding", **_binding("cluster-admin"))
    endpoints = _object("v1", "Endpoints", subsets=[])
    slices = _object("discovery.k8s.io/v1", "EndpointSlice", addressType="IPv4", endpoints=[])
    daemons = _object(
        "apps/v1",
        "DaemonSet",
        spec={
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {**pod["spec"], "restartPolicy": "Always"}},
        },
    )
    creations = {
        "add-quota": ("add a quota", core(where, "resourcequotas"), quota),
        "add-limits": ("add a limit range with higher limits", core(where, "limitranges"), limits),
        "add-role": ("create a role for itself", group(RBAC_API, where, "roles"), role),
        "add-binding": ("bind itself to cluster-admin", group(RBAC_API, where, "rolebindings"), binding),
        "add-endpoints": ("send a service's traffic elsewhere", core(where, "endpoints"), endpoints),
        "add-slices": (
            "send a service's traffic elsewhere by slices",
            group("discovery.k8s.io/v1", where, "endpointslices"),
            slices,
        ),
        "add-daemons": ("run on every node", group("apps/v1", where, "daemonsets"), daemons),
        "mint-token": (
            "mint a service account's token",
            core(where, "serviceaccounts", account, "token"),
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        ),
    }
    for name, (sentence, path, body) in creations.items():
        yield rbac_attack(name, sentence, Request("POST", path, body, place.developer), twin_who=None)
    binding_of_pod = _object("v1", "Binding", MISSING_OBJECT, target={"kind": "Node", "name": "node-1"})
    missing = {
        "pod-status": (
            "release its quota by a forged pod status",
            Request(
                "PATCH",
                core(where, "pods", MISSING_OBJECT, "status"),
                {"status": {"phase": "Succeeded"}},
                place.developer,
                MERGE,
            ),
        ),
        "pod-binding": (
            "bind a pod to a node without the scheduler",
            Request("POST", core(where, "pods", MISSING_OBJECT, "binding"), binding_of_pod, place.developer),
        ),
        "pod-proxy": (
            "bypass network policies through the pod proxy",
            Request("GET", core(where, "pods", MISSING_OBJECT, "proxy/"), None, place.developer),
        ),
        "pod-resize": (
            "resize a running pod",
            Request("PATCH", core(where, "pods", MISSING_OBJECT, "resize"), {"spec": {}}, place.developer, STRATEGIC),
        ),
    }
    for name, (sentence, request) in missing.items():
        yield rbac_attack(name, sentence, request, twin_who=None, twin_missing=True)


def _cluster(place: AttackedNamespace) -> Iterator[Attack]:
    """The cluster's own objects."""
    who = place.developer
    for name, sentence, path in (
        ("list-nodes", "list the nodes", "/api/v1/nodes"),
        ("list-namespaces", "list the tenants", "/api/v1/namespaces"),
        ("all-secrets", "read all secrets", "/api/v1/secrets"),
        ("all-pods", "see all pods", "/api/v1/pods"),
        ("list-volumes", "list all volumes", "/api/v1/persistentvolumes"),
        ("system-secrets", "read the system's secrets", core("kube-system", "secrets")),
        ("platform-config", "read the platform's config maps", core("tenancy-system", "configmaps")),
        ("list-roles", "list the cluster roles", group(RBAC_API, None, "clusterroles")),
        (
            "list-policies",
            "read the guards",
            group("admissionregistration.k8s.io/v1", None, "validatingadmissionpolicies"),
        ),
    ):
        yield rbac_attack(name, sentence, Request("GET", path, None, who), twin_who=None)
    request = Request("GET", "/debug/pprof/", None, who)
    # Some clusters disable it: an identity with the right to ask gets 404 there.
    yield rbac_attack("profile", "read the API server's memory", request, twin_who=None, twin_missing=True)
    admission = "admissionregistration.k8s.io/v1"
    bind_all = _object(RBAC_API, "ClusterRoleBinding", **_binding("cluster-admin"))
    admin = _object(RBAC_API, "ClusterRole", rules=[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    urgent = _object("scheduling.k8s.io/v1", "PriorityClass", value=1000)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "validations": [{"expression": "false"}],
    }
    deny_all = _object(admission, "ValidatingAdmissionPolicy", spec=spec)
    hook = _object(admission, "MutatingWebhookConfiguration", webhooks=[])
    runtime = _object("node.k8s.io/v1", "RuntimeClass", handler="nvidia")
    source = {"hostPath": {"path": "/"}, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    disk = _object("v1", "PersistentVolume", spec=source)
    subject = {"kind": "User", "user": {"name": who.user if who else POD_NAME}}
    flows = group(flow_control.API, None, "flowschemas")
    anything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    exempt = _object(
        flow_control.API,
        "FlowSchema",
        spec={
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 10,
            "rules": [{"subjects": [subject], "resourceRules": [anything]}],
        },
    )
    for name, sentence, path, body in (
        ("make-flow-schema", "make its requests exempt from every limit", flows, exempt),
        ("bind-cluster-admin", "become cluster-admin", group(RBAC_API, None, "clusterrolebindings"), bind_all),
        ("make-cluster-role", "write a role with every right", group(RBAC_API, None, "clusterroles"), admin),
        (
            "make-priority",
            "make a priority class of its own",
            group("scheduling.k8s.io/v1", None, "priorityclasses"),
            urgent,
        ),
        ("make-policy", "refuse every tenant's pods", group(admission, None, "validatingadmissionpolicies"), deny_all),
        ("make-webhook", "rewrite every tenant's pods", group(admission, None, "mutatingwebhookconfigurations"), hook),
        ("make-runtime", "make a runtime class", group("node.k8s.io/v1", None, "runtimeclasses"), runtime),
        ("make-volume", "make a volume of the node's disk", "/api/v1/persistentvolumes", disk),
        ("make-namespace", "make a namespace", "/api/v1/namespaces", _object("v1", "Namespace")),
    ):
        yield rbac_attack(name, sentence, Request("POST", path, body, who), twin_who=None)
    for kind, sentence in (
        ("flowschemas", "exempt itself from the tenants' flow schema"),
        ("prioritylevelconfigurations", "raise its limit of concurrent requests"),
    ):
        level_path = group(flow_control.API, None, kind, flow_control.TENANTS)
        request = Request("PATCH", level_path, _PATCH, who, MERGE)
        yield rbac_attack(f"change-{kind}", sentence, request, twin_who=None)
    guard = group(admission, None, "validatingadmissionpolicybindings", "tenancy-pods")
    yield rbac_attack("remove-guard", "remove the guard on pods", Request("DELETE", guard, None, who), twin_who=None)
    role = group(RBAC_API, None, "clusterroles", role_name(Role.DEVELOPER))
    request = Request("PATCH", role, _PATCH, who, MERGE)
    yield rbac_attack("widen-role", "widen its own role", request, twin_who=None)


def _workload(place: AttackedNamespace) -> Iterator[Attack]:
    """A pod's service account and a user of no tenant; neither has any rights in the namespace."""
    name = f"system:serviceaccount:{place.name}:default"
    pod = Impersonation(name, ("system:serviceaccounts", f"system:serviceaccounts:{place.name}"))
    stranger = Impersonation("user-of-no-tenant")
    for slug, sentence, who in (
        ("workload", "a pod's own account", pod),
        ("stranger", "a user of no tenant", stranger),
    ):
        for what in ("secrets", "pods"):
            request = Request("GET", core(place.name, what), None, who)
            yield rbac_attack(f"{slug}-{what}", f"{sentence}: read {what}", request, twin_who=place.developer)


def _personas(scene: Scene) -> Iterator[Attack]:
    """Rights of the next role, requested by each role."""
    for role, name, sentence, method, what in (
        (Role.VIEWER, "run", "run a pod", "POST", "pods"),
        (Role.VIEWER, "secrets", "read secrets", "GET", "secrets"),
        (Role.VIEWER, "delete", "delete pods", "DELETE", "pods"),
        (Role.OPERATOR, "run", "run a pod", "POST", "pods"),
        (Role.OPERATOR, "secrets", "read secrets", "GET", "secrets"),
        (Role.OPERATOR, "config", "change a config map", "PATCH", "configmaps/kube-root-ca.crt"),
    ):
        place = next((place for place in scene.staffed if place.person(role)), None)
        id, text = f"{role}-{name}", f"{role}: {sentence}"
        if place is None:
            yield skipped(f"rbac-{id}", RULE, text, f"no tenant has both a {role} and a developer")
            continue
        body = {"POST": place.pod(), "PATCH": _PATCH}.get(method)
        kind = MERGE if method == "PATCH" else "application/json"
        request = Request(method, core(place.name, what), body, place.person(role), kind)
        yield rbac_attack(id, text, request, twin_who=place.developer)
    for role in (Role.DEVELOPER, Role.OWNER):
        place = next((place for place in scene.places if place.person(role)), None)
        if place is None:
            yield skipped(f"rbac-{role}-binding", RULE, f"{role}: change who has access", f"no tenant has a {role}")
            continue
        binding_path = group(RBAC_API, place.name, "rolebindings", role.value)
        request = Request("PATCH", binding_path, _PATCH, place.person(role), MERGE)
        yield rbac_attack(f"{role}-binding", f"{role}: change who has access", request, twin_who=None)
    place = next((place for place in scene.places if place.person(Role.OWNER) and place.person(Role.DEVELOPER)), None)
    if place is None:
        reason = "no tenant has both a developer and an owner"
        yield skipped("rbac-developer-account", RULE, "developer: make a service account", reason)
        return
    account = _object("v1", "ServiceAccount")
    request = Request("POST", core(place.name, "serviceaccounts"), account, place.person(Role.DEVELOPER))
    yield rbac_attack(
        "developer-account", "developer: make a service account", request, twin_who=place.person(Role.OWNER)
    )
