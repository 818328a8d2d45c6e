"""JSON Schema of the two kinds of file, for editors."""

from __future__ import annotations

from typing import Any

from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

MODELS = {"environment": Environment, "tenant": Tenant}


def schema(kind: str) -> dict[str, Any]:
    """The schema of `environment` or `tenant` files, draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **MODELS[kind].model_json_schema(by_alias=True)}


def reference() -> str:
    """The page docs/spec.md: every field of both files with its meaning and its default."""
    lines = [
        "# Spec files",
        "",
        "Made by `tenancy schema --markdown` from the models that read the files.",
        "An environment is a folder with `environment.yaml` and `tenants/*.yaml`. Unknown keys are refused.",
        "Quantities are Kubernetes quantities (`500m`, `64`, `256Gi`).",
    ]
    for kind, title in (("environment", "environment.yaml"), ("tenant", "tenants/&lt;name&gt;.yaml")):
        document = schema(kind)
        lines += ["", f"## {title}", "", *_table(document, document)]
        for name, definition in document.get("$defs", {}).items():
            if "properties" in definition:
                about = [_summary(definition), ""] if definition.get("description") else []
                lines += ["", f"### {name}", "", *about, *_table(definition, document)]
    return "\n".join(lines) + "\n"


def _summary(definition: dict[str, Any]) -> str:
    return " ".join(definition.get("description", "").split())


def _table(definition: dict[str, Any], document: dict[str, Any]) -> list[str]:
    required = set(definition.get("required", ()))
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, field in definition["properties"].items():
        absent = "required" if key in required else _default(field)
        meaning = field.get("description", "").replace("|", "\\|")
        rows.append(f"| `{key}` | {_type(field, document)} | {absent} | {meaning} |")
    return rows


def _default(field: dict[str, Any]) -> str:
    import json

    default = field.get("default")
    if default is None or default in ({}, [], ""):
        return "–"
    return f"`{json.dumps(default)}`" if not isinstance(default, str) else f"`{default}`"


def _type(field: dict[str, Any], document: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        definition = document["$defs"][name]
        return (
            " \\| ".join(f"`{v}`" for v in definition["enum"]) if "enum" in definition else f"[{name}](#{name.lower()})"
        )
    if "const" in field or "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if choices := field.get("anyOf"):
        kinds = [_type(choice, document) for choice in choices if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if field.get("type") == "array":
        return "list of " + _type(field.get("items", {}), document)
    value_schemas = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")]
    if isinstance(value_schemas[0], dict):
        return "name → " + _type(value_schemas[0], document)
    return {"string": "text", "integer": "number", "boolean": "true or false"}.get(field.get("type", ""), "value")
