"""The objects of a cluster, found by kind, namespace and name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenancy.kube.kinds import group_of, plural
from tenancy.kube.objects import Object, get_path, place_of
from tenancy.kube.selectors import namespace_labels

_BY_ITSELF = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Namespaces that every cluster has."""
_CERTIFICATES = "kube-root-ca.crt"
"""ConfigMap that a controller makes in every namespace, as another one its default service account."""


class ClusterObjects:
    """Objects of a cluster, indexed by group and kind; the version of an object's API does not matter."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._kinds: dict[tuple[str, str], dict[tuple[str, str], Object]] = {}
        for item in objects:
            self._kinds.setdefault((group_of(item), item["kind"]), {})[place_of(item)] = item
        spaces = self._kinds.setdefault(("", "Namespace"), {})
        for name in _BY_ITSELF:
            spaces.setdefault(("", name), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for _, name in spaces:
            for kind, object_name in (("ServiceAccount", "default"), ("ConfigMap", _CERTIFICATES)):
                metadata = {"name": object_name, "namespace": name}
                data = {"data": {"ca.crt": ""}} if kind == "ConfigMap" else {}
                item = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **data}
                self._kinds.setdefault(("", kind), {}).setdefault((name, object_name), item)
        self._namespaces = {name: _labelled(item) for (_, name), item in spaces.items()}

    def add(self, item: Object) -> None:
        """Take up an object that was created."""
        metadata = {"name": "", **item["metadata"]}
        place = (metadata.get("namespace") or "", metadata["name"] or f"{len(self._kinds)}-{id(item)}")
        self._kinds.setdefault((group_of(item), item["kind"]), {})[place] = item
        if (group_of(item), item["kind"]) == ("", "Namespace"):
            self._namespaces[metadata["name"]] = _labelled(item)

    def get(self, group: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """The object of that name; None if there is none."""
        return self._kinds.get((group, kind), {}).get((namespace, name))

    def all(self, group: str, kind: str, namespace: str | None = None) -> Sequence[Object]:
        """Objects of a kind, of one namespace if it is given."""
        items = self._kinds.get((group, kind), {}).items()
        return [item for (space, _), item in items if namespace is None or space == namespace]

    def stored(self, group: str, resource: str, name: str, namespace: str = "") -> Object | None:
        """The object that a path names; None if there is none."""
        candidates = (self.get(group, kind, name, namespace) for kind_group, kind in self._kinds if kind_group == group)
        return next((item for item in candidates if item and plural(item["kind"]) == resource), None)

    @property
    def groups(self) -> frozenset[str]:
        """API groups of its objects."""
        return frozenset(group for group, _ in self._kinds)

    def namespace(self, name: str) -> Object | None:
        """A namespace, with the label that the API server adds to each; None if there is none."""
        return self._namespaces.get(name)


def _labelled(item: Mapping[str, Any]) -> Object:
    metadata = item["metadata"]
    labels = namespace_labels(metadata["name"], get_path(metadata, "labels") or {})
    return {**item, "metadata": {**metadata, "labels": labels}}
