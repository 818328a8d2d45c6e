from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import regress
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field
from pydantic.fields import FieldInfo

from tenancy.spec.fields.base import Spec
from tenancy.spec.json_schema import MODELS, schema
from tests.conftest import examples

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", MODELS)
def test_the_committed_schema_is_the_generated_one(kind: str) -> None:
    committed = json.loads((ROOT / "schemas" / f"{kind}.json").read_text("utf-8"))
    assert committed == json.loads(json.dumps(schema(kind))), "tenancy schema --out schemas"


def _models(base: type[Spec] = Spec) -> Iterator[type[Spec]]:
    """All models of the spec: each is a subclass."""
    for model in base.__subclasses__():
        if model.__module__.startswith("tenancy."):
            yield model
        yield from _models(model)


FIELDS = {f"{model.__name__}.{field}": info for model in _models() for field, info in model.model_fields.items()}


def test_every_model_of_the_json_schemas_is_among_them() -> None:
    definitions = {name for kind in MODELS for name, part in schema(kind)["$defs"].items() if "properties" in part}
    assert len(definitions) > 40
    assert definitions <= {model.__name__ for model in _models()}


def test_every_field_says_what_it_is() -> None:
    assert [name for name, info in FIELDS.items() if not info.description] == []


def _states_default(info: FieldInfo) -> bool:
    """Whether the field's description ends with its default, or says that it is required."""
    description = str(info.description)
    if info.is_required():
        return description.endswith(" Required.")
    default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
    stated_default = default if isinstance(info.default, str | int) else ""
    return f" Default: {stated_default}" in f" {description}"


def test_every_field_names_its_default() -> None:
    assert [name for name, info in FIELDS.items() if not _states_default(info)] == []


def test_a_default_that_is_not_stated_is_noticed() -> None:
    assert _states_default(Field(default=3, description="Number of nodes. Default: 3."))
    assert not _states_default(Field(default=3, description="Number of nodes. Default: 4."))
    assert not _states_default(Field(default=3, description="Number of nodes."))
    assert not _states_default(Field(description="Number of nodes."))


@pytest.mark.parametrize("kind", MODELS)
def test_every_mapping_of_fields_is_closed(kind: str) -> None:
    document = schema(kind)
    open_ones = [
        name
        for name, definition in [(kind, document), *document["$defs"].items()]
        if "properties" in definition and definition.get("additionalProperties") is not False
    ]
    assert open_ones == []


def _patterns(node: Any) -> set[str]:
    """Every pattern in a JSON schema."""
    if isinstance(node, list):
        return {nested_pattern for inner in node for nested_pattern in _patterns(inner)}
    if not isinstance(node, dict):
        return set()
    node_patterns = {node["pattern"]} if isinstance(node.get("pattern"), str) else set()
    return node_patterns | {nested_pattern for inner in node.values() for nested_pattern in _patterns(inner)}


_CHARACTERS = st.one_of(st.characters(max_codepoint=127), st.sampled_from("é€ß"))
"""Without the blanks of Unicode: those are no printable characters, which the spec refuses beside the pattern."""
PATTERNS = sorted({pattern for kind in MODELS for pattern in _patterns(schema(kind))})


def _editor_takes(pattern: str, text: str) -> bool:
    """The answer of ECMAScript, whose regular expressions JSON Schema has, as strict as editors are (flag u)."""
    return regress.Regex(pattern, "u").find(text) is not None


def test_both_schemas_have_patterns() -> None:
    assert len(PATTERNS) > 30


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=examples(60), derandomize=True)
@given(data=st.data())
def test_an_editor_takes_the_texts_that_we_take(pattern: str, data: st.DataObject) -> None:
    compiled = re.compile(pattern, re.ASCII)
    matching_text = data.draw(st.from_regex(compiled, fullmatch=True, alphabet=_CHARACTERS))
    edited_text = st.tuples(st.integers(0, len(matching_text)), _CHARACTERS).map(
        lambda c: matching_text[: c[0]] + c[1] + matching_text[c[0] :]
    )
    further_text = data.draw(st.one_of(edited_text, st.text(_CHARACTERS)))
    assert _editor_takes(pattern, matching_text)
    assert _editor_takes(pattern, further_text) == bool(compiled.fullmatch(further_text))


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        ("tenant", "team@bank.example", '"team"@bank.example'),
        ("tenant", "a.b+c@bank.example", "a`b@bank.example"),
        ("tenant", "team@bank.example", "team\\@bank.example"),
        ("environment", "on-call@bank.example", "{{x}}@bank.example"),
        ("environment", "on-call@bank.example", "on-call@bank.example,b@c.example"),
        ("environment", "on-call@bank.example", "on-call"),
    ],
)
def test_an_editor_judges_a_mail_address_as_we_do(model: str, good: str, bad: str) -> None:
    (pattern,) = {candidate for candidate in _patterns(schema(model)) if candidate.startswith("^[^@")}
    assert _editor_takes(pattern, good)
    assert not _editor_takes(pattern, bad)


def test_an_escape_that_only_python_knows_would_be_found() -> None:
    with pytest.raises(regress.RegressError):
        _editor_takes(r"^[^\"]+$", "x")


def test_a_namespace_is_a_text_or_a_mapping_for_editors_too() -> None:
    items = schema("tenant")["properties"]["namespaces"]["items"]
    assert {"type": "string"} in items["anyOf"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("stacks/*/**/*.yaml")), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_example_names_its_schema(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    kind = "environment" if path.name == "environment.yaml" else "tenant"
    schema_path = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / schema_path).resolve() == ROOT / "schemas" / f"{kind}.json"


@pytest.mark.parametrize(("command", "page"), [("rules", "rules.md"), ("schema", "spec.md")])
def test_a_generated_page_is_what_its_command_prints(command: str, page: str) -> None:
    from click.testing import CliRunner

    from tenancy.cli import main

    printed = CliRunner().invoke(main, [command, "--markdown"]).stdout
    assert printed == (ROOT / "docs" / page).read_text("utf-8"), f"run make docs: docs/{page} is out of date"
