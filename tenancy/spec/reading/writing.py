"""Writes a tenant's file: short values on one line, and texts quoted where YAML would read another type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tenancy.catalog.text import is_shown

_PLAIN = re.compile(r"[A-Za-z]([A-Za-z0-9 ._/@-]*[A-Za-z0-9._/@-])?")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML 1.1 does not read as text."""
_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def tenant_text(document: Mapping[str, Any], schema: str | None) -> str:
    """The file of a tenant, its fields in the order of the document; editors find the schema by its first line."""
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    for key, value in document.items():
        match value:
            case list():
                lines += [f"{key}:", *(f"  - {flow(entry)}" for entry in value)]
            case dict() if any(isinstance(entry, dict) for entry in value.values()):
                lines += [f"{key}:", *(f"  {flow(name)}: {flow(entry)}" for name, entry in value.items())]
            case _:
                lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """A value on one line."""
    match value:
        case dict():
            return "{" + ", ".join(f"{flow(key)}: {flow(entry)}" for key, entry in value.items()) + "}"
        case int():
            return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if is_shown(character):
        return _ESCAPES.get(character, character)
    return f"\\U{ord(character):08x}"
