"""Kinds that an API server has, from its discovery lists, which include the kinds of operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tenancy.cluster.api import Api


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind, in the version that its group prefers."""

    version: str
    """Group and version, as an object's apiVersion says it."""
    kind: str
    plural: str
    verbs: tuple[str, ...]
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "") -> str:
        """Path of the objects of a namespace, of those of the whole cluster, or of one object."""
        root = f"/apis/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}{'/namespaces/' + namespace if namespace else ''}/{self.plural}{'/' + name if name else ''}"


def namespaced_kinds(api: Api) -> tuple[tuple[ResourceKind, ...], tuple[str, ...]]:
    """`listable_kinds`, of kinds whose objects are in namespaces."""
    kinds, silent = listable_kinds(api)
    return tuple(kind for kind in kinds if kind.namespaced), silent


def listable_kinds(api: Api) -> tuple[tuple[ResourceKind, ...], tuple[str, ...]]:
    """Every kind that can be listed, and the API versions that did not answer: their APIService's server is down."""
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in _groups(api))]
    kinds: list[ResourceKind] = []
    silent: list[str] = []
    for version in versions:
        answer = api.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}")
        if not answer.ok:
            silent.append(version)
            continue
        kinds += [
            ResourceKind(
                version, resource["kind"], resource["name"], tuple(resource["verbs"]), bool(resource["namespaced"])
            )
            for resource in answer.body.get("resources") or ()
            # A name with a slash is a part of another resource.
            if "list" in resource["verbs"] and "/" not in resource["name"]
        ]
    return tuple(kinds), tuple(silent)


def _groups(api: Api) -> Iterator[dict[str, dict[str, str]]]:
    yield from api.request("GET", "/apis").body.get("groups") or ()
