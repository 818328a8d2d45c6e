"""Properties of every object that rules read: its labels, and whether it is a tenant's or the product's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.kube.objects import labels_of
from tenancy.rules.findings import Object


def annotations_of(item: Object) -> Mapping[str, str]:
    """Annotations of an object; empty without any."""
    return (item.get("metadata") or {}).get("annotations") or {}


def spec_of(item: Object) -> Mapping[str, Any]:
    """The object's spec; empty without one."""
    return item.get("spec") or {}


def is_tenants(item: Object) -> bool:
    """Whether the object has a tenant's label."""
    return vocabulary.TENANT in labels_of(item)


def is_ours(item: Object) -> bool:
    """Whether the object has the label of an environment or of a tenant."""
    return vocabulary.ENVIRONMENT in labels_of(item) or is_tenants(item)


def plain_value(value: Any) -> Any:
    """The value as messages show it, with plain dictionaries instead of other mappings."""
    return {key: plain_value(entry) for key, entry in value.items()} if isinstance(value, Mapping) else value
