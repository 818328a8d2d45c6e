"""Objects of a stack that are on the cluster and in no state.

The engine writes the state of a stack's first run once, at its end, and a run that is killed before leaves such
objects: written at each step, as by default, the state of a first run keeps a bucket busy for longer than the cluster
(`python -m bench state`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlparse

from tenancy.catalog import vocabulary
from tenancy.cluster.api import NOT_FOUND, Api
from tenancy.cluster.discovery import listable_kinds
from tenancy.cluster.drift import is_engine_object
from tenancy.cluster.selectors import environment_selector
from tenancy.kube.objects import Object, name_of
from tenancy.lifecycle.removal import ACCESS_BINDINGS, RemovalTimeout, end_and_remove, require_removable_bindings

STATE_AT_END = MappingProxyType({"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"})
"""Variables with which the engine writes a stack's state once, at the end of a run."""
_ACCESS = frozenset(kind for _, kind in ACCESS_BINDINGS)


def first_run_variables(backend: str) -> Mapping[str, str]:
    """Variables of the engine for the first run of a stack, by the URL of its backend.

    File and bucket backends write the whole state at each step; Pulumi's service gets parts of it.
    """
    return {} if urlparse(backend).scheme in {"", "http", "https"} else STATE_AT_END


@dataclass(frozen=True, slots=True)
class UnrecordedObject:
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
        return (self.item["metadata"].get("labels") or {}).get(vocabulary.TENANT)

    def __str__(self) -> str:
        return name_of(self.item)


def find_unrecorded(api: Api, environment: str, tenant: str | None) -> list[UnrecordedObject]:
    """All objects with the labels of the environment, or of one of its tenants, that the engine wrote, but not
    namespaces that it left (`offboarding`). To be asked only if their stack has no resources. A kind whose list is
    refused is skipped."""
    selector = environment_selector(environment, tenant)
    return [entry for entry in _labelled(api, selector) if is_engine_object(entry.item) and not _has_left(entry.item)]


def _labelled(api: Api, selector: str) -> Iterator[UnrecordedObject]:
    for kind in listable_kinds(api)[0]:
        answer = api.request("GET", f"{kind.path()}?labelSelector={selector}")
        for item in (answer.body.get("items") or ()) if answer.ok else ():
            metadata = item["metadata"]
            path = kind.path(metadata.get("namespace", ""), metadata["name"])
            yield UnrecordedObject({"apiVersion": kind.version, "kind": kind.kind, **item}, path)


def _has_left(item: Object) -> bool:
    return (item["metadata"].get("annotations") or {}).get(vocabulary.LEAVING) == vocabulary.LEFT


def remove_unplanned(api: Api, entries: Sequence[UnrecordedObject], planned: Collection[str]) -> list[UnrecordedObject]:
    """Remove those that the plan has not, by their paths, access bindings first, and return them; namespaces stay,
    which rule ns-07 judges."""
    unplanned = [entry for entry in entries if entry.path not in planned and entry.kind != "Namespace"]
    unplanned.sort(key=lambda entry: entry.kind not in _ACCESS)
    for entry in unplanned:
        _delete(api, entry)
    return unplanned


def remove_all(api: Api, entries: Sequence[UnrecordedObject], patience: float, say: Callable[[str], None]) -> None:
    """Remove a tenant: access bindings, work and namespaces, and then the rest; RemovalTimeout if a part of it takes
    longer than `patience` seconds."""
    bindings = [entry for entry in entries if entry.kind in _ACCESS]
    require_removable_bindings(api, [entry.item for entry in bindings])
    for entry in bindings:
        _delete(api, entry)
    names = {kind: [entry.name for entry in entries if entry.kind == kind] for kind in _STAGED}
    end_and_remove(api, names["Namespace"], names["ClusterQueue"], patience, say)
    for entry in entries:
        if entry.kind != "Namespace" and entry not in bindings:
            _delete(api, entry)


_STAGED = ("Namespace", "ClusterQueue")


def _delete(api: Api, entry: UnrecordedObject) -> None:
    answer = api.request("DELETE", f"{entry.path}?propagationPolicy=Background")
    if not answer.ok and answer.status != NOT_FOUND:
        raise RemovalTimeout(f"{entry} cannot be removed: {answer.status} {answer.message}")
