"""Mistakes that pydantic found, in messages for authors of spec files. Imported only when there is a mistake."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from tenancy.catalog.text import escape_invisible
from tenancy.rules.catalogue import Violation
from tenancy.spec.reading.mistakes import NEEDS_TEXT, Mistake, Mistakes, describe_value, mistake_of_violation
from tenancy.spec.reading.other_names import change_for_foreign_field, field_of, range_of_nodes
from tenancy.spec.reading.problems import Problem, SpecError, dotted_path
from tenancy.spec.reading.source import Location

_CLOSE = 0.6
_READ_AS: dict[type, str] = {bool: "a boolean", int: "a number", float: "a number"}
_EXAMPLES: Mapping[str | None, str] = {"boolean": "true", "integer": "8", "number": "2.50", "date": "2027-01-31"}
_PLAIN = re.compile(r"[\w/@.:+*-]*[A-Za-z%][\w/@.:+*-]*")
"""A text that YAML reads as one without quotes."""
REQUIRED = "is required"


def spec_error(model: type[BaseModel], fields: Mapping[str, Any], error: ValidationError) -> SpecError:
    """All problems of a model that was made in Python, with paths in Python's names."""
    kind, name = model.__name__.lower(), fields.get("tenant")
    spec = f"{kind} {name}" if kind == "tenant" and isinstance(name, str) else kind
    return SpecError([problem(spec, mistake) for mistake in mistakes_in_python_names(model, error)])


def problem(spec: str, mistake: Mistake) -> Problem:
    """A mistake of a spec that is in no file."""
    fault, change = escape_invisible(mistake.given), escape_invisible(mistake.change)
    return Problem(spec, 0, 0, dotted_path(mistake.location), fault, mistake.rule, change, mistake.id)


def mistakes_in_python_names(model: type[BaseModel], error: ValidationError) -> Iterator[Mistake]:
    """Every mistake, with the names of fields that Python has."""
    for mistake, _ in located_mistakes(model, error, _snake):
        location = tuple(
            _snake(str(part)) if _is_field(model, mistake.location, i) else part
            for i, part in enumerate(mistake.location)
        )
        if mistake.rule == NEEDS_TEXT and mistake.change.startswith("quote it"):
            mistake = replace(mistake, change="write a string, in quotes")
        yield replace(mistake, location=location)


def _snake(name: str) -> str:
    return name.replace("-", "_")


def _is_field(model: type[BaseModel], location: Location, index: int) -> bool:
    """Whether a part of a path is a field of a model, not a name that the author chose."""
    part = location[index]
    return isinstance(part, str) and part in _resolved(_schema(model), _node_at(model, location[:index])).get(
        "properties", {}
    )


def located_mistakes(
    model: type[BaseModel], error: ValidationError, spell_field: Callable[[str], str] = str
) -> Iterator[tuple[Mistake, bool]]:
    """Every mistake, and whether it is the key that is wrong. `spelt` is how its reader writes a field's name."""
    details = error.errors(include_url=False)
    misspelt = {
        (*d["loc"][:-1], _intended_field(str(d["loc"][-1]), _fields_at(model, d["loc"][:-1])))
        for d in details
        if d["type"] == "extra_forbidden"
    }
    foreign_keys: dict[Location, dict[str, Any]] = {}
    for detail in details:
        if detail["type"] == "extra_forbidden":
            foreign_keys.setdefault(detail["loc"][:-1], {})[str(detail["loc"][-1])] = detail["input"]
    for detail in details:
        if detail["type"] == "missing" and detail["loc"] in misspelt:
            continue  # it is there, under the name that is refused
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # it is long enough; entries of it are refused
        # A key that breaks its own type is located at "[key]" below itself.
        on_key = detail["loc"][-1:] == ("[key]",)
        location = tuple(part for part in detail["loc"] if part != "[key]")
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Mistakes):
            for mistake in cause.mistakes:
                yield _prefix_location(location, mistake), on_key
        elif isinstance(cause, Violation):
            yield mistake_of_violation(location, cause), on_key
        else:
            siblings = foreign_keys.get(location[:-1], {})
            yield (
                Mistake(location, *_form_mistake_parts(model, location, detail, spell_field, siblings)),
                on_key or detail["type"] == "extra_forbidden",
            )


def _prefix_location(location: Location, mistake: Mistake) -> Mistake:
    return Mistake((*location, *mistake.location), mistake.given, mistake.rule, mistake.change, mistake.id)


def _form_mistake_parts(
    model: type[BaseModel],
    location: Location,
    detail: Any,
    spell_field: Callable[[str], str],
    foreign_siblings: Mapping[str, Any],
) -> tuple[str, str, str]:
    """Given value, rule and change."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            known_fields = [spell_field(name) for name in _fields_at(model, location[:-1])]
            name = str(location[-1])
            change = range_of_nodes(name, known_fields, foreign_siblings) or _key_change(name, value, known_fields)
            return f"key {name!r}", "only known keys are read", change
        case "missing":
            name = spell_field(str(location[-1]))
            example = _example_of(model, _node_at(model, location))
            return f"no {name}", f"{name!r} {REQUIRED}", f"add {name}, such as {example}" if example else f"add {name}"
        case "enum" | "literal_error":
            names = re.findall(r"'([^']*)'", str(context.get("expected", "")))
            change = change_for_foreign_field(str(value), names) or _nearest_change(str(value), names)
            return describe_value(value), f"one of {', '.join(names)}", change
        case "string_type":
            if isinstance(value, bool | int | float):
                return _quote_it(str(value), type(value))
            if first := _first_of_list(location, value):
                return describe_value(value), NEEDS_TEXT, first
            example = _example_of(model, _node_at(model, location))
            change = f"write a string, such as {example}" if example else "write a string"
            parent = _resolved(_schema(model), _node_at(model, location[:-1]))
            may_drop = value is None and location[-1] not in (*parent.get("required", ()), *parent.get("items", ()))
            return describe_value(value), NEEDS_TEXT, f"{change}, or drop the key" if may_drop else change
        case "model_type" | "model_attributes_type" | "dict_type":
            names = [spell_field(name) for name in _fields_at(model, location)]
            needed = [
                spell_field(name) for name in _resolved(_schema(model), _node_at(model, location)).get("required", ())
            ]
            fields = f" of {', '.join(names)}" if names else ""
            if "group" in {*names} - {*needed} and isinstance(value, str):
                needed.insert(0, "group")  # an entry's subject, of which the schema requires one of several
            change = change_for_foreign_field(str(value), names)
            if not change and isinstance(value, str) and (field := _intended_field(value, names)):
                needed = [field]
            example = ", ".join(
                f"{name}: {_example(model, (*location, name), value)}" for name in needed or names[:1] or ["name"]
            )
            return describe_value(value), f"a mapping{fields} is needed", change or f"write it as {{{example}}}"
        case "tuple_type" | "list_type":
            entry = value if isinstance(value, str) and _PLAIN.fullmatch(value) else "one, two"
            return describe_value(value), "a list is needed", f"write it as [{entry}], or with '-' on a line for each"
        case "too_short":
            min_length = context.get("min_length", 1)
            change = "add one" if min_length == 1 else f"add up to {min_length}"
            if "default" in (node := _node_at(model, location)):
                # Without its last entry the list has its default, which may be all: the message says so.
                absent = re.search(r"Default: ([^.;]*)", node.get("description", ""))
                change += f", or drop {location[-1]}{f', which means: {absent[1]}' if absent else ''}"
            return describe_value(value), f"at least {min_length} {_entries(min_length)}", change
        case "too_long":
            max_length = context.get("max_length")
            return f"{context.get('actual_length', 'more')} entries", f"at most {max_length} entries", "drop some"
    return describe_value(value), detail["msg"][:1].lower() + detail["msg"][1:], "write a value that the rule admits"


def _first_of_list(location: Location, value: Any) -> str:
    """Advice for a list of texts where one text is needed: the first, and how the others are written."""
    if not isinstance(value, list) or not value or not all(isinstance(entry, str) for entry in value):
        return ""
    field = next((str(part) for part in reversed(location) if isinstance(part, str)), "")
    further_entries = (
        f", and a further {_HOLDERS.get(location[0], 'entry')} for each of {', '.join(value[1:])}" if value[1:] else ""
    )
    return f"write {field}: {value[0]}{further_entries}"


_HOLDERS: Mapping[Any, str] = {"pools": "pool", "flavors": "flavor", "tiers": "tier", "buckets": "bucket"}
"""Name of an entry of a mapping, by the mapping."""


def _key_change(name: str, value: Any, fields: Sequence[str]) -> str:
    """Advice for a key that is not known."""
    if name.removeprefix("requests.").startswith(("nvidia.com/", "gpu")) and "ephemeral-storage" in fields:
        return "drop it, and write the number under gpus of the tenant or of the namespace, by flavor: gpus: {a100: 8}"
    if replacement := change_for_foreign_field(name, fields):
        return replacement
    nearest_field = _intended_field(name, fields)
    if nearest_field and isinstance(value, list) and nearest_field == name.removesuffix("s") and value:
        further_entries = f", and an entry like this for each of {', '.join(map(str, value[1:]))}" if value[1:] else ""
        return f"write {nearest_field}: {value[0]}{further_entries}"
    return (
        f"did you mean {nearest_field!r}?"
        if nearest_field
        else f"drop it, or use one of {', '.join(fields)}"
        if fields
        else "drop it"
    )


def _intended_field(name: str, fields: Sequence[str]) -> str:
    """The field that a key means: by another tool's name of it, or by a similar spelling; empty if it is none."""
    return field_of(name, fields) or _nearest(name, fields)


def _example(model: type[BaseModel], location: Location, value: Any) -> str:
    """A value for a field of a mapping: what was given in place of the mapping, if it is one for this field."""
    name = location[-1]
    if isinstance(value, str) and (name == "group" or (name == "mail" and "@" in value)):
        return value
    number = _example_of(model, _node_at(model, location))
    return (str(value) if str(value).isdigit() else number) if number.isdigit() else "…"


def _example_of(model: type[BaseModel], node: Any) -> str:
    """A value that a place in a file may have, as YAML on one line; empty where the schema does not tell one."""
    node = _resolved(_schema(model), node)
    for choice in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
        if values := choice.get("examples") or choice.get("enum"):
            is_plain = not isinstance(values[0], str) or _PLAIN.fullmatch(values[0])
            return str(values[0]) if is_plain else f'"{values[0]}"'
        if example := _EXAMPLES.get(choice.get("format") or choice.get("type")):
            return example
    if inner := _example_of(model, node.get("items", {})) if node.get("type") == "array" else "":
        return f"[{inner}]"
    fields = {name: _example_of(model, node["properties"][name]) for name in node.get("required", ())}
    known_all = fields and all(fields.values())
    return f"{{{', '.join(f'{name}: {value}' for name, value in fields.items())}}}" if known_all else ""


def _entries(count: int) -> str:
    return "entry" if count == 1 else "entries"


def _quote_it(text: str, kind: type) -> tuple[str, str, str]:
    return text, NEEDS_TEXT, f'quote it: "{text}" (YAML reads it as {_READ_AS[kind]})'


def _nearest(text: str, candidates: Sequence[str]) -> str:
    dashed = {name.lower().replace("_", "-"): name for name in candidates}
    close = difflib.get_close_matches(text.lower().replace("_", "-"), dashed, n=1, cutoff=_CLOSE)
    return dashed[close[0]] if close else ""


def _nearest_change(text: str, candidates: Sequence[str]) -> str:
    close = _intended_field(text, candidates)
    return f"did you mean {close!r}?" if close else f"use one of {', '.join(candidates)}" if candidates else "drop it"


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    """The keys that a place in a file may have."""
    return list(_resolved(_schema(model), _node_at(model, location)).get("properties", {}))


def _node_at(model: type[BaseModel], location: Location) -> Any:
    """Part of the JSON Schema for a place in a file."""
    schema = _schema(model)
    node: Any = schema
    for part in location:
        node = _resolved(schema, node)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            by_form = next(iter(node.get("patternProperties", {}).values()), None)
            fields = node.get("properties", {})
            # In Python a field has its own name, in a file its alias.
            node = (
                fields.get(part)
                or fields.get(part.replace("_", "-"))
                or by_form
                or node.get("additionalProperties")
                or {}
            )
    return node


def _resolved(schema: Any, node: Any) -> Any:
    choices = [node, *node.get("anyOf", []), *node.get("allOf", [])]
    definitions = [schema["$defs"][choice["$ref"].rpartition("/")[2]] for choice in choices if "$ref" in choice]
    if definitions:
        return next((definition for definition in definitions if "properties" in definition), definitions[0])
    # Of a list of names or a mapping of them, the mapping is what has places below its names.
    return next((choice for choice in choices if isinstance(choice.get("additionalProperties"), dict)), node)
