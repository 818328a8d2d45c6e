"""The module `tenancy.spec.typed`: the models as TypedDicts, for mappings that a type checker knows."""

from __future__ import annotations

from typing import Any

from tenancy.spec.json_schema import MODELS

_HEAD = '''"""Mappings of the models' fields in Python's names. Made from the models by `tenancy schema --python`."""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict
'''
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def module() -> str:
    """The text of `tenancy/spec/typed.py`."""
    classes: dict[str, dict[str, Any]] = {}
    enums: dict[str, str] = {}
    for model in MODELS.values():
        document = model.model_json_schema(by_alias=False)
        for name, definition in {model.__name__: document, **document.get("$defs", {})}.items():
            if "enum" in definition:
                enums[name] = f"Literal[{', '.join(map(repr, definition['enum']))}]"
            elif "properties" in definition:
                classes[name] = definition
    lines = [_HEAD]
    for name, definition in sorted(classes.items()):
        required = definition.get("required", ())
        lines += ["", f"class {_class(name)}(TypedDict):"]
        if about := " ".join(definition.get("description", "").split()):
            lines += [f'    """{about}"""', ""]
        for field, form in definition["properties"].items():
            kind = _type(form, enums)
            lines.append(f"    {field}: {kind if field in required else f'NotRequired[{kind}]'}")
        lines.append("")
    return "\n".join(lines)


def _class(name: str) -> str:
    return f"{name.strip('_')}Dict"


def _type(form: dict[str, Any], enums: dict[str, str]) -> str:
    if "$ref" in form:
        name = form["$ref"].rsplit("/", 1)[1]
        return enums.get(name) or _class(name)
    if "const" in form or "enum" in form:
        return f"Literal[{', '.join(map(repr, form.get('enum', [form.get('const')])))}]"
    if choices := form.get("anyOf") or form.get("oneOf"):
        return " | ".join(dict.fromkeys(_type(choice, enums) for choice in choices))
    match form.get("type"):
        case "array":
            return f"Sequence[{_type(form.get('items', {}), enums)}]"
        case "object":
            value_schemas = [*form.get("patternProperties", {}).values(), form.get("additionalProperties")]
            return f"Mapping[str, {_type(value_schemas[0], enums) if isinstance(value_schemas[0], dict) else 'object'}]"
        case "string" if form.get("format") == "date":
            return "str | dt.date"
        case str(plain) if plain in _PLAIN:
            return _PLAIN[plain]
    return "object"
