"""ClusterRoles and bindings that every API server makes for itself, as far as identities of an environment have them.

Source: kubernetes v1.36.3 `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`. A test compares them with a cluster's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tenancy.kube.objects import Object

GROUP = "rbac.authorization.k8s.io"
CLAIMS_SINCE = (1, 34)
"""Minor version from which on every cluster serves ResourceClaims."""

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_EVENTS = (" events.k8s.io", "events", "create patch update")

_Rights = Iterable[tuple[str, str, str]]
"""API groups, resources, verbs; a group list that begins with a space includes the core group."""

_VIEW: _Rights = (
    (
        "",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
        "replicationcontrollers/scale serviceaccounts services services/status",
        _READ,
    ),
    (
        "",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas "
        "resourcequotas/status",
        _READ,
    ),
    ("", "namespaces", _READ),
    (" events.k8s.io", "events", _READ),
    ("discovery.k8s.io", "endpointslices", _READ),
    (
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets "
        "replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
        _READ,
    ),
    ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
    ("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
    (
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status "
        "networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
        _READ,
    ),
    ("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
    ("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
)
_EDIT: _Rights = (
    ("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", _READ),
    ("", "serviceaccounts", "impersonate"),
    ("", "pods pods/attach pods/exec pods/portforward pods/proxy", _WRITE),
    ("", "pods/eviction", "create"),
    (
        "",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts "
        "services services/proxy",
        _WRITE,
    ),
    ("", "serviceaccounts/token", "create"),
    (" events.k8s.io", "events", _WRITE),
    (
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets "
        "statefulsets/scale",
        _WRITE,
    ),
    ("autoscaling", "horizontalpodautoscalers", _WRITE),
    ("batch", "cronjobs jobs", _WRITE),
    (
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "
        "replicasets/scale replicationcontrollers/scale",
        _WRITE,
    ),
    ("policy", "poddisruptionbudgets", _WRITE),
    ("networking.k8s.io", "ingresses networkpolicies", _WRITE),
    ("coordination.k8s.io", "leases", f"{_READ} {_WRITE}"),
)
_VIEW_CLAIMS = ("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", _READ)
_EDIT_CLAIMS = ("resource.k8s.io", "resourceclaims resourceclaimtemplates", _WRITE)
_ADMIN: _Rights = (
    ("authorization.k8s.io", "localsubjectaccessreviews", "create"),
    (GROUP, "rolebindings roles", f"{_READ} {_WRITE}"),
)
_BASIC: _Rights = (
    ("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
)
_PATHS: Mapping[str, str] = {
    "system:discovery": "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    "system:public-info-viewer": "/healthz /livez /readyz /version /version/",
    "system:service-account-issuer-discovery": "/.well-known/openid-configuration /.well-known/openid-configuration/ "
    "/openid/v1/jwks /openid/v1/jwks/",
}
"""Roles that only read paths."""


def _of_pods(kinds: str, groups: str = "apps extensions") -> _Rights:
    """Rights of a controller that makes pods for a kind."""
    resources, verbs = kinds, "get list update watch"
    return (
        (groups, resources, verbs),
        (groups, f"{resources}/status", "update"),
        (groups, f"{resources}/finalizers", "update"),
        ("", "pods", "create delete list patch watch"),
        _EVENTS,
    )


_CONTROLLERS: Mapping[str, _Rights] = {
    "cronjob-controller": (
        ("batch", "cronjobs", "get list update watch"),
        ("batch", "jobs", "create delete get list patch update watch"),
        ("batch", "cronjobs/status", "update"),
        ("batch", "cronjobs/finalizers", "update"),
        ("", "pods", "delete list watch"),
        _EVENTS,
    ),
    "daemon-set-controller": (
        ("apps extensions", "daemonsets", _READ),
        ("apps extensions", "daemonsets/status", "update"),
        ("apps extensions", "daemonsets/finalizers", "update"),
        ("", "nodes", "list watch"),
        ("", "pods", "create delete list patch watch"),
        ("", "pods/binding", "create"),
        ("apps", "controllerrevisions", "create delete get list patch update watch"),
        _EVENTS,
    ),
    "deployment-controller": (
        ("apps extensions", "deployments", "get list update watch"),
        ("apps extensions", "deployments/status", "update"),
        ("apps extensions", "deployments/finalizers", "update"),
        ("apps extensions", "replicasets", "create delete get list patch update watch"),
        ("", "pods", "get list update watch"),
        _EVENTS,
    ),
    "job-controller": (
        ("batch", "jobs", "get list patch update watch"),
        ("batch", "jobs/status", "update"),
        ("batch", "jobs/finalizers", "update"),
        ("", "pods", "create delete list patch watch"),
        _EVENTS,
    ),
    "replicaset-controller": _of_pods("replicasets"),
    "replication-controller": _of_pods("replicationcontrollers", ""),
    "statefulset-controller": (
        ("", "pods", "list watch"),
        ("apps", "statefulsets", _READ),
        ("apps", "statefulsets/status", "update"),
        ("apps", "statefulsets/finalizers", "update"),
        ("", "pods", "create delete get patch update"),
        ("apps", "controllerrevisions", "create delete get list patch update watch"),
        ("", "persistentvolumeclaims", "create get list watch"),
        ("", "persistentvolumeclaims", "delete update"),
        ("", "pods/finalizers", "update"),
        _EVENTS,
    ),
}
"""Service accounts of kube-system that make the pods of work, and their rights."""

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
_BINDINGS: Mapping[str, tuple[str, ...]] = {
    "cluster-admin": (MASTERS,),
    "system:discovery": (AUTHENTICATED,),
    "system:basic-user": (AUTHENTICATED,),
    "system:public-info-viewer": (AUTHENTICATED, UNAUTHENTICATED),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}
"""Role -> groups that have it everywhere; the binding has the role's name."""


def objects(minor: tuple[int, int]) -> Iterator[Object]:
    """ClusterRoles and ClusterRoleBindings that the API server of a minor version makes."""
    claims = minor >= CLAIMS_SINCE
    yield _role("cluster-admin", [*_rules((("*", "*", "*"),)), _paths("*", "*")])
    yield _role("system:basic-user", _rules(_BASIC))
    for name, paths in _PATHS.items():
        yield _role(name, [_paths(paths, "get")])
    parts = {
        "view": [*_VIEW, *([_VIEW_CLAIMS] if claims else [])],
        "edit": [*_EDIT, *([_EDIT_CLAIMS] if claims else [])],
        "admin": _ADMIN,
    }
    next_roles = {"view": "edit", "edit": "admin"}
    for name, rights in parts.items():
        yield _role(f"system:aggregate-to-{name}", _rules(rights), {_aggregated(name): "true"})
        labels = {_aggregated(next_roles[name]): "true"} if name in next_roles else {}
        selectors = [{"matchLabels": {_aggregated(name): "true"}}]
        yield {**_role(name, [], labels), "aggregationRule": {"clusterRoleSelectors": selectors}}
    for name, groups in _BINDINGS.items():
        yield binding(name, name, [{"kind": "Group", "name": group} for group in groups])
    for account, rights in _CONTROLLERS.items():
        name = f"system:controller:{account}"
        yield _role(name, _rules(rights))
        yield binding(name, name, [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}])


def platform_binding(group: str) -> Object:
    """The binding that gives the platform's group its rights; it exists before the environment does."""
    return binding("platform", "cluster-admin", [{"kind": "Group", "name": group}])


def binding(name: str, role: str, subjects: list[dict[str, str]]) -> Object:
    """A ClusterRoleBinding to a ClusterRole."""
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRoleBinding", **body}


def _role(name: str, rules: list[Object], labels: Mapping[str, str] | None = None) -> Object:
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def _rules(rights: _Rights) -> list[Object]:
    return [
        {"apiGroups": groups.split(" "), "resources": resources.split(), "verbs": verbs.split()}
        for groups, resources, verbs in rights
    ]


def _paths(paths: str, verb: str) -> Object:
    return {"nonResourceURLs": paths.split(), "verbs": [verb]}


def _aggregated(role: str) -> str:
    return f"{GROUP}/aggregate-to-{role}"


NODE_RULES = tuple(
    _rules(
        (
            ("authentication.k8s.io", "tokenreviews", "create"),
            ("authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews", "create"),
            ("", "services", _READ),
            _EVENTS,
            ("", "pods", "create delete"),
            ("", "pods/status", "update patch"),
            ("", "pods/eviction", "create"),
            ("", "endpoints", "get"),
            ("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
            ("storage.k8s.io", "csidrivers", _READ),
            ("node.k8s.io", "runtimeclasses", _READ),
        )
    )
)
"""Rights of every node; those that depend on the node are in `nodes`."""
