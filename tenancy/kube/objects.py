"""Kubernetes objects as plain data, and the digest that tells whether they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as the API takes it: apiVersion, kind, metadata and the rest."""

UNKNOWN = "not known until apply"
"""Placeholder of a value that a preview does not know, or that a workflow's parameter gives. A finding that contains it
only advises, for any rule."""

CLOCK_FIELDS = (("spec", "resourceGroups"), ("spec", "stopPolicy"))
"""Fields of a queue or Cohort that the clock writes after the engine has made it."""


def identity(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace and name of an object; the namespace is empty for a cluster-wide one."""
    return item["kind"], *place_of(item)


def place_of(item: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name, which tell objects of one kind apart; items of a list do not say their kind."""
    return item["metadata"].get("namespace") or "", item["metadata"]["name"]


def name_of(item: Mapping[str, Any]) -> str:
    """Kind, namespace and name as one text, for messages; of an object whose name the API server makes, its start."""
    metadata = item.get("metadata") or {}
    prefix = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    start = metadata.get("generateName")
    name = metadata.get("name") or (f"(generateName {start})" if start else "(without a name)")
    return f"{item.get('kind')} {prefix}{name}"


def digest(objects: Iterator[Object] | list[Object]) -> str:
    """Short hash of a list of objects: equal if and only if nothing would change."""
    text = json.dumps(list(objects), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def get_path(item: Any, *path: str) -> Any:
    """The value at a path; None if a key of the path is missing."""
    for key in path:
        item = item.get(key) if hasattr(item, "get") else None
    return item


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Labels of an object; empty without any."""
    return get_path(item, "metadata", "labels") or {}


def true_conditions(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Conditions in the status of an object that are true, by type."""
    return {c["type"]: c for c in get_path(item, "status", "conditions") or () if c["status"] == "True"}


def as_list(value: Any) -> tuple[Any, ...]:
    """A list that may be missing; an unknown list is one unknown entry."""
    return tuple(value or ())
