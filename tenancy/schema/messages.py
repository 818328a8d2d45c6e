"""Mistakes that pydantic found, in messages for authors of spec files. Imported only when there is a mistake."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from tenancy.catalog.text import shown
from tenancy.rules.catalogue import Violation
from tenancy.schema.mistakes import NEEDS_TEXT, Mistake, Mistakes, found, written
from tenancy.schema.other_names import field_of, in_place_of
from tenancy.schema.problems import Problem, SpecError, dotted
from tenancy.schema.source import Location

_CLOSE = 0.6
_READ_AS: dict[type, str] = {bool: "a boolean", int: "a number", float: "a number"}
_EXAMPLES: Mapping[str | None, str] = {"boolean": "true", "integer": "8", "number": "2.50", "date": "2027-01-31"}
_PLAIN = re.compile(r"[\w/@.:+*-]*[A-Za-z%][\w/@.:+*-]*")
"""A text that YAML reads as one without quotes."""
REQUIRED = "is required"


def refused(model: type[BaseModel], fields: Mapping[str, Any], error: ValidationError) -> SpecError:
    """All problems of a model that was made in Python, with paths in Python's names."""
    kind, name = model.__name__.lower(), fields.get("tenant")
    spec = f"{kind} {name}" if kind == "tenant" and isinstance(name, str) else kind
    return SpecError([problem(spec, mistake) for mistake in in_python(model, error)])


def problem(spec: str, mistake: Mistake) -> Problem:
    """A mistake of a spec that is in no file."""
    given, change = shown(mistake.given), shown(mistake.change)
    return Problem(spec, 0, 0, dotted(mistake.where), given, mistake.rule, change, mistake.id)


def in_python(model: type[BaseModel], error: ValidationError) -> Iterator[Mistake]:
    """Every mistake, with the names of fields that Python has."""
    for mistake, _ in explain(model, error, _snake):
        where = tuple(
            _snake(str(part)) if _is_field(model, mistake.where, i) else part for i, part in enumerate(mistake.where)
        )
        if mistake.rule == NEEDS_TEXT and mistake.change.startswith("quote it"):
            mistake = replace(mistake, change="write a string, in quotes")
        yield replace(mistake, where=where)


def _snake(name: str) -> str:
    return name.replace("-", "_")


def _is_field(model: type[BaseModel], where: Location, index: int) -> bool:
    """Whether a part of a path is a field of a model, not a name that the author chose."""
    part = where[index]
    return isinstance(part, str) and part in _resolved(_schema(model), _node_at(model, where[:index])).get(
        "properties", {}
    )


def explain(
    model: type[BaseModel], error: ValidationError, spelt: Callable[[str], str] = str
) -> Iterator[tuple[Mistake, bool]]:
    """Every mistake, and whether it is the key that is wrong. `spelt` is how its reader writes a field's name."""
    details = error.errors(include_url=False)
    misspelt = {
        (*d["loc"][:-1], _meant_by(str(d["loc"][-1]), _fields_at(model, d["loc"][:-1])))
        for d in details
        if d["type"] == "extra_forbidden"
    }
    for detail in details:
        if detail["type"] == "missing" and detail["loc"] in misspelt:
            continue  # it is there, under the name that is refused
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # it is long enough; entries of it are refused
        # A key that breaks its own type is located at "[key]" below itself.
        on_key = detail["loc"][-1:] == ("[key]",)
        where = tuple(part for part in detail["loc"] if part != "[key]")
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Mistakes):
            for mistake in cause.mistakes:
                yield _within(where, mistake), on_key
        elif isinstance(cause, Violation):
            yield found(where, cause), on_key
        else:
            yield Mistake(where, *_plain(model, where, detail, spelt)), on_key or detail["type"] == "extra_forbidden"


def _within(where: Location, mistake: Mistake) -> Mistake:
    return Mistake((*where, *mistake.where), mistake.given, mistake.rule, mistake.change, mistake.id)


def _plain(model: type[BaseModel], where: Location, detail: Any, spelt: Callable[[str], str]) -> tuple[str, str, str]:
    """What was given, the rule and the change."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            known = [spelt(name) for name in _fields_at(model, where[:-1])]
            name = str(where[-1])
            return f"key {name!r}", "only known keys are read", _other_key(name, value, known)
        case "missing":
            name = spelt(str(where[-1]))
            example = _example_of(model, _node_at(model, where))
            return f"no {name}", f"{name!r} {REQUIRED}", f"add {name}, such as {example}" if example else f"add {name}"
        case "enum" | "literal_error":
            names = re.findall(r"'([^']*)'", str(context.get("expected", "")))
            return written(value), f"one of {', '.join(names)}", _instead(str(value), names)
        case "string_type":
            if isinstance(value, bool | int | float):
                return _quoted(str(value), type(value))
            if first := _first_of_list(where, value):
                return written(value), NEEDS_TEXT, first
            example = _example_of(model, _node_at(model, where))
            change = f"write a string, such as {example}" if example else "write a string"
            parent = _resolved(_schema(model), _node_at(model, where[:-1]))
            may_drop = value is None and where[-1] not in (*parent.get("required", ()), *parent.get("items", ()))
            return written(value), NEEDS_TEXT, f"{change}, or drop the key" if may_drop else change
        case "model_type" | "model_attributes_type" | "dict_type":
            names = [spelt(name) for name in _fields_at(model, where)]
            needed = [spelt(name) for name in _resolved(_schema(model), _node_at(model, where)).get("required", ())]
            fields = f" of {', '.join(names)}" if names else ""
            example = ", ".join(f"{name}: {_example(name, value)}" for name in needed or names[:1] or ["name"])
            return written(value), f"a mapping{fields} is needed", f"write it as {{{example}}}"
        case "tuple_type" | "list_type":
            return written(value), "a list is needed", "write it as [one, two], or with '-' on a line for each"
        case "too_short":
            least = context.get("min_length", 1)
            change = "add one" if least == 1 else f"add up to {least}"
            if "default" in (node := _node_at(model, where)):
                # Without its last entry the list has its default, which may be all: the message says so.
                absent = re.search(r"Default: ([^.;]*)", node.get("description", ""))
                change += f", or drop {where[-1]}{f', which means: {absent[1]}' if absent else ''}"
            return written(value), f"at least {least} {_entries(least)}", change
        case "too_long":
            most = context.get("max_length")
            return f"{context.get('actual_length', 'more')} entries", f"at most {most} entries", "drop some"
    return written(value), detail["msg"][:1].lower() + detail["msg"][1:], "write a value that the rule admits"


def _first_of_list(where: Location, value: Any) -> str:
    """What to write in place of a list of texts where one is needed: the first, and how the others are written."""
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        return ""
    field = next((str(part) for part in reversed(where) if isinstance(part, str)), "")
    more = f", and a further {_HOLDERS.get(where[0], 'entry')} for each of {', '.join(value[1:])}" if value[1:] else ""
    return f"write {field}: {value[0]}{more}"


_HOLDERS: Mapping[Any, str] = {"pools": "pool", "flavors": "flavor", "tiers": "tier", "buckets": "bucket"}
"""What an entry of a mapping is called, by the mapping."""


def _other_key(name: str, value: Any, known: Sequence[str]) -> str:
    """What to write instead of a key that is not known."""
    if name.removeprefix("requests.").startswith(("nvidia.com/", "gpu")) and "ephemeral-storage" in known:
        return "drop it, and write the number under gpus of the tenant or of the namespace, by flavor: gpus: {a100: 8}"
    if instead := in_place_of(name, known):
        return instead
    close = _meant_by(name, known)
    if close and isinstance(value, list) and close == name.removesuffix("s") and value:
        more = f", and an entry like this for each of {', '.join(map(str, value[1:]))}" if value[1:] else ""
        return f"write {close}: {value[0]}{more}"
    return f"did you mean {close!r}?" if close else f"drop it, or use one of {', '.join(known)}" if known else "drop it"


def _meant_by(name: str, known: Sequence[str]) -> str:
    """The field that a key means: by another tool's name of it, or by a similar spelling; empty if it is none."""
    return field_of(name, known) or _nearest(name, known)


def _example(name: str, value: Any) -> str:
    """A value for a required field: the given text, if it is one for this field."""
    return value if name == "mail" and isinstance(value, str) and "@" in value else "…"


def _example_of(model: type[BaseModel], node: Any) -> str:
    """A value that a place in a file may have, as YAML on one line; empty where the schema does not tell one."""
    node = _resolved(_schema(model), node)
    for choice in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
        if known := choice.get("examples") or choice.get("enum"):
            return str(known[0]) if _PLAIN.fullmatch(str(known[0])) else f'"{known[0]}"'
        if example := _EXAMPLES.get(choice.get("format") or choice.get("type")):
            return example
    if inner := _example_of(model, node.get("items", {})) if node.get("type") == "array" else "":
        return f"[{inner}]"
    fields = {name: _example_of(model, node["properties"][name]) for name in node.get("required", ())}
    known_all = fields and all(fields.values())
    return f"{{{', '.join(f'{name}: {value}' for name, value in fields.items())}}}" if known_all else ""


def _entries(count: int) -> str:
    return "entry" if count == 1 else "entries"


def _quoted(text: str, kind: type) -> tuple[str, str, str]:
    return text, NEEDS_TEXT, f'quote it: "{text}" (YAML reads it as {_READ_AS[kind]})'


def _nearest(given: str, known: Sequence[str]) -> str:
    dashed = {name.replace("_", "-"): name for name in known}
    close = difflib.get_close_matches(given.lower().replace("_", "-"), dashed, n=1, cutoff=_CLOSE)
    return dashed[close[0]] if close else ""


def _instead(given: str, known: Sequence[str]) -> str:
    close = _nearest(given, known)
    return f"did you mean {close!r}?" if close else f"use one of {', '.join(known)}" if known else "drop it"


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _fields_at(model: type[BaseModel], where: Location) -> list[str]:
    """The keys that a place in a file may have."""
    return list(_resolved(_schema(model), _node_at(model, where)).get("properties", {}))


def _node_at(model: type[BaseModel], where: Location) -> Any:
    """What the JSON Schema says of a place in a file."""
    schema = _schema(model)
    node: Any = schema
    for part in where:
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
    for choice in choices:
        if "$ref" in choice:
            return schema["$defs"][choice["$ref"].rsplit("/", 1)[1]]
    # Of a list of names or a mapping of them, the mapping is what has places below its names.
    return next((choice for choice in choices if isinstance(choice.get("additionalProperties"), dict)), node)
