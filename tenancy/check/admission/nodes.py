"""Rights of a kubelet with its own identity: the Node authorizer and the admission plugin NodeRestriction.

Sources: kubernetes v1.36.3 `plugin/pkg/auth/authorizer/node`, `plugin/pkg/admission/noderestriction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenancy.check.admission.bootstrap import NODES
from tenancy.kube.kubelets import kubelet_may_label
from tenancy.kube.objects import Object, get_path

PREFIX = "system:node:"
_LEASES = "kube-node-lease"
_LEASE_VERBS = frozenset({"get", "create", "update", "patch", "delete"})
_READ = frozenset({"get", "list", "watch"})
_DEPENDENT: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "secrets"): _READ,
    ("", "configmaps"): _READ,
    ("", "persistentvolumeclaims"): frozenset({"get"}),
    ("", "persistentvolumeclaims/status"): frozenset({"update", "patch"}),
    ("", "persistentvolumes"): frozenset({"get"}),
    ("", "pods"): _READ,
    ("", "serviceaccounts"): frozenset({"get"}),
    ("", "serviceaccounts/token"): frozenset({"create"}),
    ("resource.k8s.io", "resourceclaims"): frozenset({"get"}),
    ("resource.k8s.io", "resourceslices"): _READ | {"update", "patch", "delete", "deletecollection"},
    ("storage.k8s.io", "volumeattachments"): frozenset({"get"}),
}
"""Kinds that a node reaches where its own pods use them, and the verbs."""
_ALWAYS: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "nodes"): frozenset({"create", "update", "patch"}),
    ("", "nodes/status"): frozenset({"update", "patch"}),
    ("", "pods"): frozenset({"create", "delete"}),
    ("", "pods/status"): frozenset({"update", "patch"}),
    ("", "pods/eviction"): frozenset({"create"}),
    ("resource.k8s.io", "resourceslices"): frozenset({"create"}),
}
"""Kinds that every node may write; NodeRestriction limits them to its own."""
_DIVIDED = frozenset(
    (group, resource.partition("/")[0])
    for group, resource in (*_DEPENDENT, *_ALWAYS, ("coordination.k8s.io", "leases"), ("storage.k8s.io", "csinodes"))
)
"""Kinds for which a rule on nodes in general says nothing."""


def node_of(username: str, groups: tuple[str, ...]) -> str | None:
    """Name of the node whose kubelet this is; None for any other identity."""
    return username.removeprefix(PREFIX) if username.startswith(PREFIX) and NODES in groups else None


def may(node: str, verb: str, group: str, resource: str, namespace: str, name: str) -> bool | None:
    """Whether the kubelet of a node may do something to a kind that is not every node's alike.

    `resource` is written with its subresource. None if that depends on the pods of the node. LookupError for other
    kinds.
    """
    kind = (group, resource)
    if (group, resource.partition("/")[0]) not in _DIVIDED:
        raise LookupError(resource)
    if group == "coordination.k8s.io":
        return verb in _LEASE_VERBS and namespace == _LEASES and (verb == "create" or name == node)
    if kind == ("storage.k8s.io", "csinodes"):
        return verb in _LEASE_VERBS and (verb == "create" or name == node)
    if kind == ("", "nodes") and verb in _READ:
        return name == node
    if verb in _ALWAYS.get(kind, ()):
        return True
    return None if verb in _DEPENDENT.get(kind, ()) else False


def restriction(node: str, operation: str, name: str, item: Object | None, old: Object | None) -> str:
    """Why NodeRestriction refuses a kubelet's write of a Node; empty if it does not."""
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    labels, former = (get_path(node, "metadata", "labels") or {} for node in (item or {}, old or {}))
    changed_keys = sorted(key for key in {*labels, *former} if labels.get(key) != former.get(key))
    if reserved := [key for key in changed_keys if not kubelet_may_label(key)]:
        if operation == "CREATE":
            return f'node "{node}" is not allowed to set the following labels: {", ".join(reserved)}'
        if operation == "UPDATE":
            return f"is not allowed to modify labels: {', '.join(reserved)}"
    if operation == "UPDATE":
        for words, path in (("taints", ("spec", "taints")), ("ownerReferences", ("metadata", "ownerReferences"))):
            if _entries_at(item, path) != _entries_at(old, path):
                return f'node "{node}" is not allowed to modify {words}'
    return ""


def _entries_at(item: Object | None, path: tuple[str, ...]) -> list[Any]:
    return get_path(item or {}, *path) or []
