from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tenancy.schema.json_schema import MODELS, schema
from tenancy.validation import Environment, Tenant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", MODELS)
def test_the_committed_schema_is_the_generated_one(kind: str) -> None:
    committed = json.loads((ROOT / "schemas" / f"{kind}.json").read_text("utf-8"))
    assert committed == json.loads(json.dumps(schema(kind))), "tenancy schema --out schemas"


def _models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {model.__name__: model}
    text = json.dumps(model.model_json_schema())
    for name in re.findall(r'"#/\$defs/(\w+)"', text):
        for module in (
            "cluster",
            "environment",
            "organisation",
            "people",
            "platform",
            "network_rules",
            "tenant",
            "tiers",
        ):
            part = getattr(__import__(f"tenancy.schema.{module}", fromlist=[name]), name, None)
            if isinstance(part, type) and issubclass(part, BaseModel):
                found[name] = part
    return found


FIELDS = [
    pytest.param(info, id=f"{name}.{field}")
    for model in (Environment, Tenant)
    for name, part in _models(model).items()
    for field, info in part.model_fields.items()
]


@pytest.mark.parametrize("info", FIELDS)
def test_every_field_says_what_it_is(info: object) -> None:
    assert getattr(info, "description", None)


@pytest.mark.parametrize("info", FIELDS)
def test_every_field_names_its_default(info: Any) -> None:
    if info.is_required():
        assert info.description.endswith(" Required.")
        return
    default = str(info.default).lower() if isinstance(info.default, bool) else str(info.default)
    stated = default if isinstance(info.default, str | int) else ""
    assert f" Default: {stated}" in f" {info.description}"


@pytest.mark.parametrize("kind", MODELS)
def test_every_mapping_of_fields_is_closed(kind: str) -> None:
    document = schema(kind)
    open_ones = [
        name
        for name, definition in [(kind, document), *document["$defs"].items()]
        if "properties" in definition and definition.get("additionalProperties") is not False
    ]
    assert open_ones == []


@pytest.mark.parametrize("kind", MODELS)
def test_every_pattern_is_one_that_editors_can_compile(kind: str) -> None:
    for pattern in re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', json.dumps(schema(kind))):
        re.compile(json.loads(f'"{pattern}"'))


def test_a_part_is_a_text_or_a_mapping_for_editors_too() -> None:
    items = schema("tenant")["properties"]["namespaces"]["items"]
    assert {"type": "string"} in items["anyOf"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("stacks/*/**/*.yaml")), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_example_names_its_schema(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    kind = "environment" if path.name == "environment.yaml" else "tenant"
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / named).resolve() == ROOT / "schemas" / f"{kind}.json"


@pytest.mark.parametrize(("command", "page"), [("rules", "rules.md"), ("schema", "spec.md")])
def test_a_generated_page_is_what_its_command_prints(command: str, page: str) -> None:
    from click.testing import CliRunner

    from tenancy.cli import main

    printed = CliRunner().invoke(main, [command, "--markdown"]).stdout
    assert printed == (ROOT / "docs" / page).read_text("utf-8"), f"run make docs: docs/{page} is out of date"
