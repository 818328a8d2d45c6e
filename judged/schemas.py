"""JSON schemas for kubeconform, without its download: of Kubernetes' kinds and of each custom kind that is rendered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from judged import homes

CUSTOM = ("schemas-cilium", "schemas-karpenter", "schemas-prometheus-operator")
"""Folders with definitions of kinds, as the tests take them out of pinned modules."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C where it is built: definitions are long
    """PyYAML's safe loader, which reads the word `=` as a word."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)
_OPEN = "x-kubernetes-preserve-unknown-fields"
_PREFIX = "#/$defs/"


def write(kubernetes: Path, folder: Path) -> None:
    """One file for each kind into `folder`, named KIND-GROUP-VERSION.json. `kubernetes` is a folder of
    kubernetes-validate with strict schemas of one version. Raises SkippedJudge if a module cannot be had."""
    folder.mkdir(parents=True)
    for name, schema in (*_builtin(kubernetes), *_custom()):
        (folder / name).write_text(json.dumps(schema), "utf-8")


def _builtin(kubernetes: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    definitions = json.loads((kubernetes / "_definitions.json").read_text("utf-8"))["$defs"]
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            used: set[str] = set()
            _collect(name, definitions, used)
            yield (
                file_name(kind["group"], kind["version"], kind["kind"]),
                {
                    "$ref": f"{_PREFIX}{name}",
                    "$defs": {definition_name: definitions[definition_name] for definition_name in sorted(used)},
                },
            )


def _collect(name: str, definitions: Mapping[str, Any], used: set[str]) -> None:
    if name in used:
        return
    used.add(name)
    for reference in _references(definitions[name]):
        _collect(reference.removeprefix(_PREFIX), definitions, used)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for item in schema.values():
            yield from _references(item)


def _custom() -> Iterator[tuple[str, dict[str, Any]]]:
    paths = sorted(path for name in CUSTOM for path in homes.test_tool(name).glob("*.yaml"))
    kueue = homes.output(homes.lab_tool("helm"), "template", "kueue", homes.lab_tool("kueue-chart"))
    for text in (*(path.read_text("utf-8") for path in paths), kueue):
        for item in yaml.load_all(text, Loader=_Loader):
            yield from definition(item or {})


def definition(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """File name and strict schema of each version of a CustomResourceDefinition."""
    if item.get("kind") != "CustomResourceDefinition":
        return
    group, kind = item["spec"]["group"], item["spec"]["names"]["kind"]
    for version in item["spec"]["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"const": kind}, "metadata": {}}
        yield file_name(group, version["name"], kind), schema


def strict(schema: Any) -> Any:
    """A structural schema that refuses unknown fields, where the API server would drop them."""
    if not isinstance(schema, dict):
        return schema
    strict_schema = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string"):
        strict_schema.pop("anyOf", None)
        strict_schema["type"] = ["integer", "string"]
    if "properties" in strict_schema:
        strict_schema["properties"] = {
            name: strict(property_schema) for name, property_schema in strict_schema["properties"].items()
        }
        if not schema.get(_OPEN) and "additionalProperties" not in strict_schema:
            strict_schema["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if key in strict_schema:
            strict_schema[key] = strict(strict_schema[key])
    return strict_schema


def file_name(group: str, version: str, kind: str) -> str:
    """KIND-GROUP-VERSION.json in small letters. kubeconform says `v1` for the group of Pods too."""
    return f"{kind}-{group or version}-{version}.json".lower()


LOCATION = "{{ .ResourceKind }}-{{ .Group }}-{{ .ResourceAPIVersion }}.json"
"""The same as a template of kubeconform."""
