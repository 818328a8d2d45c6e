"""Requests to the API server as plain data: paths, content types, and the identity that sends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from tenancy.kube.kinds import plural

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
"""Content types of patches; the last is a server-side apply."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user and groups to impersonate."""

    user: str
    groups: Sequence[str] = ()

    def headers(self) -> list[tuple[str, str]]:
        """HTTP headers by which the request runs as this user."""
        groups = [*self.groups, "system:authenticated"]
        return [("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in groups)]


_CLUSTER_SCOPED = frozenset(
    {"ClusterRole", "Namespace", "PriorityClass", "APIService", "CustomResourceDefinition"}
    | {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Node"}
    | {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
)


def collection(api_version: str, kind: str, namespace: str | None = None) -> str:
    """Path of the list of a kind."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    scope = "" if kind in _CLUSTER_SCOPED or namespace is None else f"/namespaces/{namespace}"
    return f"{root}{scope}/{plural(kind)}"


def core(namespace: str, *path: str) -> str:
    """Path of something in a namespace's core group."""
    return "/".join([f"/api/v1/namespaces/{quote(namespace)}", *path])


def group(api_version: str, namespace: str | None, *path: str) -> str:
    """Path of something in a named API group."""
    scope = [f"namespaces/{quote(namespace)}"] if namespace else []
    return "/".join([f"/apis/{api_version}", *scope, *path])
