"""Kubernetes objects as plain data, and the digest that tells whether they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as the API takes it: apiVersion, kind, metadata and the rest."""


def digest(objects: Iterator[Object] | list[Object]) -> str:
    """Short hash of a list of objects: equal if and only if nothing would change."""
    text = json.dumps(list(objects), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def at(item: Any, *path: str) -> Any:
    """The value at a path; None if a key of the path is missing."""
    for key in path:
        item = item.get(key) if hasattr(item, "get") else None
    return item


def many(value: Any) -> tuple[Any, ...]:
    """A list that may be missing; an unknown list is one unknown entry."""
    return tuple(value or ())
