"""What rules read of every object: its labels, and whether it is a tenant's or the product's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.rules.found import Object


def labels_of(item: Object) -> Mapping[str, str]:
    return (item.get("metadata") or {}).get("labels") or {}


def annotations_of(item: Object) -> Mapping[str, str]:
    return (item.get("metadata") or {}).get("annotations") or {}


def spec_of(item: Object) -> Mapping[str, Any]:
    return item.get("spec") or {}


def is_tenants(item: Object) -> bool:
    return words.TENANT in labels_of(item)


def is_ours(item: Object) -> bool:
    return words.ENVIRONMENT in labels_of(item) or is_tenants(item)


def plain_value(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
