"""Label selectors and node selector terms, as Kubernetes matches them.

Sources: `k8s.io/apimachinery` v0.36.3 `pkg/labels/selector.go`, `k8s.io/component-helpers` v0.36.3
`scheduling/corev1/nodeaffinity/nodeaffinity.go`.

A preview does not know every value: a value equal to `unknown`, if that is given, counts as matching.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def matches(selector: Any, labels: Any, unknown: object = None) -> bool:
    """Whether a label selector matches these labels: an absent selector matches none, an empty one all."""
    if selector is None:
        return False
    if unknown is not None and unknown in (selector, labels):
        return True
    has_all = has_labels(_field(selector, "matchLabels"), labels, unknown)
    return has_all and all(
        meets_requirement(requirement, labels, unknown)
        for requirement in _as_list(_field(selector, "matchExpressions"))
    )


def has_labels(required: Any, labels: Any, unknown: object = None) -> bool:
    """Whether labels contain every wanted pair."""
    if unknown is not None and unknown in (required, labels):
        return True
    has = labels if isinstance(labels, Mapping) else {}
    pairs = required.items() if isinstance(required, Mapping) else ()
    return all(
        str(has[key]) == str(value) or (unknown is not None and unknown in (has[key], value)) if key in has else False
        for key, value in ((str(key), value) for key, value in pairs)
    )


def namespace_labels(name: str, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Labels of a namespace: the API server adds one with its name, which none of its own can replace."""
    return {**labels, "kubernetes.io/metadata.name": name}


def meets_requirement(requirement: Any, labels: Any, unknown: object = None) -> bool:
    """Whether labels meet one of `matchExpressions`."""
    has = labels if isinstance(labels, Mapping) else {}
    key, operator = str(_field(requirement, "key")), _field(requirement, "operator")
    values = [value if value == unknown else str(value) for value in _as_list(_field(requirement, "values"))]
    if unknown is not None and unknown in (operator, *values, has.get(key)):
        return True
    present, value = key in has, str(has.get(key))
    match operator:
        case "In":
            return present and value in values
        case "NotIn":
            return not present or value not in values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            numbers = [int(text) for text in (value, *map(str, values)) if _INTEGER.fullmatch(text)]
            if not present or len(values) != 1 or len(numbers) != 2:
                return False
            node_value, bound = numbers
            return node_value > bound if operator == "Gt" else node_value < bound
    return False


def counts_classes(quota: Any, classes: Collection[str]) -> bool:
    """Whether a ResourceQuota, given by its spec, counts pods of these priority classes: without a scope all pods, and
    of scopes only those that name classes are read."""
    terms = _as_list(_field(_field(quota, "scopeSelector"), "matchExpressions"))
    return not _field(quota, "scopes") and all(
        _field(term, "scopeName") == "PriorityClass" and set(classes) <= set(_as_list(_field(term, "values")))
        for term in terms
    )


def _field(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
