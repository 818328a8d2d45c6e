"""Name, namespace, labels and annotations of a planned object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenancy.kube.objects import Object


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata of an object."""

    name: str
    labels: Mapping[str, str]
    namespace: str = ""
    """Empty for cluster-wide objects."""
    annotations: Mapping[str, str] = field(default_factory=dict)

    def manifest(self, api_version: str, kind: str, body: Mapping[str, object]) -> Object:
        """The object as the API server takes it; `body` is all but its metadata."""
        metadata: dict[str, object] = {"name": self.name, "labels": dict(self.labels)}
        if self.namespace:
            metadata["namespace"] = self.namespace
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


class PlannedObject:
    """An object of the plan: a dataclass whose fields are what the plan decides about it."""

    __slots__ = ()
    meta: Meta

    @property
    def name(self) -> str:
        """Its name."""
        return self.meta.name

    def manifest(self) -> Object:
        """The object as the API server takes it."""
        raise NotImplementedError
