"""A tenant's objects on a cluster as they can be created elsewhere, its volumes, and the objects left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.cluster.discovery import ResourceKind, namespaced_kinds
from tenancy.cluster.user_copies import has_ended, user_copy
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection

SECRET = "Secret"
_TOKEN = "kubernetes.io/service-account-token"
_DERIVED_KINDS = frozenset({"ControllerRevision", "Endpoints", "EndpointSlice", "Event", "Lease", "Workload"})
"""Kinds that controllers write about other objects."""
_BUILT_IN_OBJECTS = frozenset({("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")})

FROM_TENANT_FILE = "made from the tenant's file, which is exported"
OWNED = "made by what owns it, which is exported"
ENDED = "it has ended"
DERIVED = "controllers derive it from other objects"
BUILT_IN = "every namespace has it"
TOKEN = "a token of this cluster, unit_cost nothing elsewhere"
SECRETS_EXCLUDED = "secrets are only named, unless --include-secrets says otherwise"


@dataclass(frozen=True, slots=True)
class Volume:
    """A claim and its volume: the data itself is not exported."""

    namespace: str
    claim: str
    size: str
    storage_class: str
    access: tuple[str, ...]
    volume: str
    driver: str
    handle: str
    """The driver's id of the volume: of EBS vol-…, of EFS fs-…; empty while the claim is not bound."""
    on_removal: str
    """The reclaim policy: Delete or Retain the volume when the claim is deleted."""


@dataclass(slots=True)
class ExportedObjects:
    """Everything of some namespaces."""

    objects: dict[tuple[str, str], list[Object]] = field(default_factory=dict)
    """(namespace, plural) -> objects."""
    secrets: list[tuple[str, str, str]] = field(default_factory=list)
    """(namespace, name, type) of secrets without their content."""
    volumes: list[Volume] = field(default_factory=list)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(kind, why) -> how many."""
    unread: list[str] = field(default_factory=list)
    """Lists that could not be read: the export lacks them."""
    running: list[str] = field(default_factory=list)
    """Work that has pods now."""
    created: str = ""
    """Day on which the first of the namespaces was created."""

    @property
    def count(self) -> int:
        """Number of exported objects."""
        return sum(map(len, self.objects.values()))


def collect(api: Api, environment: str, spaces: Sequence[str], *, with_secrets: bool = False) -> ExportedObjects:
    """The content of these namespaces; ApiUnreachable if none of them exists."""
    exported = ExportedObjects()
    kinds, silent = namespaced_kinds(api)
    exported.unread += [f"{version}: its server does not answer" for version in silent]
    days = []
    for space in spaces:
        answer = api.request("GET", f"/api/v1/namespaces/{space}")
        if not answer.ok:
            exported.unread.append(f"namespace {space}: {answer.status} {answer.message}")
            continue
        days.append(str(answer.body["metadata"]["creationTimestamp"])[:10])
        for kind in kinds:
            # A kind that cannot be created is a view of other objects.
            if "create" in kind.verbs:
                _collect_kind(api, environment, space, kind, exported, with_secrets)
    if not days:
        raise ApiUnreachable(f"given {', '.join(spaces)}, none of which exists; change: run `tenancy up {environment}`")
    exported.created = min(days)
    exported.volumes += _volumes(api, spaces)
    return exported


def _collect_kind(
    api: Api, environment: str, space: str, kind: ResourceKind, exported: ExportedObjects, with_secrets: bool
) -> None:
    answer = api.request("GET", kind.path(space))
    if not answer.ok:
        exported.unread.append(f"{kind.plural} ({kind.version}) of {space}: {answer.status} {answer.message}")
        return
    for item in answer.body.get("items") or ():
        manifest = {"apiVersion": kind.version, "kind": kind.kind, **item}
        if kind.kind == "Pod" and not has_ended(manifest):
            exported.running.append(f"{space}/{item['metadata']['name']}")
        if why := _exclusion_reason(manifest, environment):
            exported.left_out[kind.kind, why] += 1
        elif kind.kind == SECRET and not with_secrets:
            exported.left_out[kind.kind, SECRETS_EXCLUDED] += 1
            exported.secrets.append((space, item["metadata"]["name"], item.get("type", "")))
        else:
            exported.objects.setdefault((space, kind.plural), []).append(user_copy(manifest))


def _exclusion_reason(item: Mapping[str, Any], environment: str) -> str:
    metadata, kind = item["metadata"], item["kind"]
    if (metadata.get("labels") or {}).get(vocabulary.ENVIRONMENT) == environment:
        return FROM_TENANT_FILE
    if kind in _DERIVED_KINDS:
        return DERIVED
    if metadata.get("ownerReferences"):
        return OWNED
    if kind in {"Job", "Pod"} and has_ended(item):
        return ENDED
    if (kind, metadata["name"]) in _BUILT_IN_OBJECTS:
        return BUILT_IN
    return TOKEN if kind == SECRET and item.get("type") == _TOKEN else ""


def _volumes(api: Api, spaces: Sequence[str]) -> Iterator[Volume]:
    volumes_by_name = {item["metadata"]["name"]: item["spec"] for item in api.items("/api/v1/persistentvolumes")}
    for space in spaces:
        for claim in api.items(collection("v1", "PersistentVolumeClaim", space), absent=True):
            spec, status = claim["spec"], claim.get("status") or {}
            name = spec.get("volumeName", "")
            volume = volumes_by_name.get(name, {})
            driver = volume.get("csi") or {}
            size = (status.get("capacity") or (spec.get("resources") or {}).get("requests") or {}).get("storage", "")
            yield Volume(
                space,
                claim["metadata"]["name"],
                size,
                spec.get("storageClassName", ""),
                tuple(spec.get("accessModes") or ()),
                name,
                driver.get("driver", ""),
                driver.get("volumeHandle", ""),
                volume.get("persistentVolumeReclaimPolicy", ""),
            )
