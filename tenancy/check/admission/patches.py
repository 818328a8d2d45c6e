"""Patches of objects: RFC 6902, RFC 7386, strategic merges and applied fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenancy.kube.requests import JSON_PATCH, MERGE
from tenancy.rules.attacks import keys_of, value_at

_KEYS = ("name", "key", "containerPort", "mountPath", "type", "uid")
"""Fields by which the API server matches entries of lists."""


class PatchError(ValueError):
    """A patch that the API server does not take."""


def patched(item: Mapping[str, Any], patch: Any, content_type: str) -> dict[str, Any]:
    """The object after a patch of this content type."""
    if content_type == JSON_PATCH:
        return json_patched(item, patch)
    if not isinstance(patch, Mapping):
        raise PatchError("a patch of an object is an object")
    return merged(item, patch, lists=content_type != MERGE)


def merged(item: Mapping[str, Any], patch: Mapping[str, Any], *, lists: bool) -> dict[str, Any]:
    """The object with the fields of the patch; null takes a field off. `lists` are merged by the keys of entries."""
    result = dict(item)
    for key, value in patch.items():
        current_value = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merged(current_value if isinstance(current_value, Mapping) else {}, value, lists=lists)
        elif lists and isinstance(value, list) and isinstance(current_value, list):
            result[key] = _entries(current_value, value)
        else:
            result[key] = value
    return result


def _entries(current_entries: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    entries = [*current_entries, *patch]
    if not all(isinstance(entry, Mapping) for entry in entries):
        return [*current_entries, *(entry for entry in patch if entry not in current_entries)]
    key = next((key for key in _KEYS if all(key in entry for entry in entries)), None)
    if key is None:
        return list(patch)
    merged_entries = {entry[key]: dict(entry) for entry in current_entries}
    for entry in patch:
        merged_entries[entry[key]] = merged(merged_entries.get(entry[key], {}), entry, lists=True)
    return list(merged_entries.values())


def json_patched(item: Any, operations: Any) -> Any:
    """The object after the operations of a JSON patch."""
    for operation in operations:
        kind, keys = operation["op"], keys_of(operation["path"])
        try:
            if kind in ("add", "replace"):
                item = _with_value(item, keys, operation.get("value"), adding=kind == "add")
            elif kind == "remove":
                item = _removed(item, keys)
            elif kind in ("copy", "move"):
                source = keys_of(operation["from"])
                value = value_at(item, operation["from"])
                item = _with_value(_removed(item, source) if kind == "move" else item, keys, value, adding=True)
            elif kind == "test" and value_at(item, operation["path"]) != operation.get("value"):
                raise PatchError(f"testing value {operation['path']} failed")
        except (LookupError, TypeError, ValueError) as error:
            raise PatchError(f"{kind} operation does not apply: {operation['path']}") from error
    return item


def _with_value(value: Any, keys: Sequence[str], new: Any, *, adding: bool) -> Any:
    if not keys:
        return new
    key, *deeper = keys
    if isinstance(value, list):
        index = len(value) if key == "-" else int(key)
        if deeper:
            return [*value[:index], _with_value(value[index], deeper, new, adding=adding), *value[index + 1 :]]
        if index > len(value) or (not adding and index == len(value)):
            raise IndexError(key)
        return [*value[:index], new, *value[index if adding else index + 1 :]]
    if (deeper or not adding) and key not in value:
        raise KeyError(key)
    return {**value, key: _with_value(value[key], deeper, new, adding=adding) if deeper else new}


def _removed(value: Any, keys: Sequence[str]) -> Any:
    key, *deeper = keys
    if isinstance(value, list):
        index = int(key)
        remainder = [_removed(value[index], deeper)] if deeper else []
        return [*value[:index], *remainder, *value[index + 1 :]]
    if not deeper:
        return {name: inner for name, inner in value.items() if name != key or value[key] is None}
    return {**value, key: _removed(value[key], deeper)}
