"""Objects of a stack that are on the cluster and in no state.

The engine writes the state of a stack's first run once, at its end: one that is killed before leaves such objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.live.api import NOT_FOUND, Api
from tenancy.live.discovery import listed
from tenancy.live.drift import is_the_engines
from tenancy.live.removal import ACCESS_BINDINGS, RemovalTimeout, access_bindings_blocked, take_out
from tenancy.live.selectors import of_environment
from tenancy.rules.found import name_of

_ACCESS = frozenset(kind for _, kind in ACCESS_BINDINGS)


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """One object."""

    item: Object
    """As the API server has it."""
    path: str

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.item["kind"])

    @property
    def name(self) -> str:
        """The object's name, without its namespace."""
        return str(self.item["metadata"]["name"])

    @property
    def tenant(self) -> str | None:
        """The tenant that its label names."""
        return (self.item["metadata"].get("labels") or {}).get(words.TENANT)

    def __str__(self) -> str:
        return name_of(self.item)


def unrecorded(api: Api, environment: str, tenant: str | None) -> list[Unrecorded]:
    """All objects with the labels of the environment, or of one of its tenants, that the engine wrote, but not
    namespaces that it left (`leaving`). To be asked only if their stack has no resources. A kind whose list is refused
    is skipped."""
    selector = of_environment(environment, tenant)
    return [found for found in _labelled(api, selector) if is_the_engines(found.item) and not _has_left(found.item)]


def _labelled(api: Api, selector: str) -> Iterator[Unrecorded]:
    for kind in listed(api)[0]:
        answer = api.request("GET", f"{kind.path()}?labelSelector={selector}")
        for item in (answer.body.get("items") or ()) if answer.ok else ():
            metadata = item["metadata"]
            path = kind.path(metadata.get("namespace", ""), metadata["name"])
            yield Unrecorded({"apiVersion": kind.version, "kind": kind.kind, **item}, path)


def _has_left(item: Object) -> bool:
    return (item["metadata"].get("annotations") or {}).get(words.LEAVING) == words.LEFT


def remove_unplanned(api: Api, found: Sequence[Unrecorded], planned: Collection[str]) -> list[Unrecorded]:
    """Remove those that the plan has not, by their paths, access bindings first, and return them; namespaces stay,
    which rule ns-07 judges."""
    extra = [each for each in found if each.path not in planned and each.kind != "Namespace"]
    extra.sort(key=lambda each: each.kind not in _ACCESS)
    for each in extra:
        _delete(api, each)
    return extra


def remove_all(api: Api, found: Sequence[Unrecorded], patience: float, say: Callable[[str], None]) -> None:
    """Remove a tenant: access bindings, work and namespaces, and then the rest; RemovalTimeout if a part of it takes
    longer than `patience` seconds."""
    bindings = [each for each in found if each.kind in _ACCESS]
    access_bindings_blocked(api, [each.item for each in bindings])
    for each in bindings:
        _delete(api, each)
    names = {kind: [each.name for each in found if each.kind == kind] for kind in _STAGED}
    take_out(api, names["Namespace"], names["ClusterQueue"], patience, say)
    for each in found:
        if each.kind != "Namespace" and each not in bindings:
            _delete(api, each)


_STAGED = ("Namespace", "ClusterQueue")


def _delete(api: Api, found: Unrecorded) -> None:
    answer = api.request("DELETE", f"{found.path}?propagationPolicy=Background")
    if not answer.ok and answer.status != NOT_FOUND:
        raise RemovalTimeout(f"{found} cannot be removed: {answer.status} {answer.message}")
