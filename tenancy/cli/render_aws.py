"""The AWS half of an environment as files to read: every resource, with documents as YAML."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tenancy.components.aws_registrations import AwsRegistration
from tenancy.planning.render import HEADER

FOLDER = "aws"
_ABOUT = (
    "# Resources of AWS as the Pulumi program registers them, to read and compare; no tool applies this file.\n"
    "# <ARN of Key bank-key> is the ARN that AWS gives to the resource Key bank-key when it is made, and\n"
    "# <what AWS answers to …> what each run asks AWS.\n"
)
_ENCODED = "userData"
"""A property whose text is in base64."""


class _DocumentDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (the base class' name)
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_DocumentDumper.add_representer(str, _text)


def aws_texts(registrations: Sequence[AwsRegistration]) -> Mapping[str, str]:
    """Relative path -> text: one file for each part and service, and an index of all."""
    files: dict[str, list[AwsRegistration]] = {}
    for one in registrations:
        files.setdefault(f"{FOLDER}/{one.part}/{one.kind.partition(':')[2].partition('/')[0]}.yaml", []).append(one)
    if not files:
        return {}
    index = {path: dict(sorted(Counter(one.kind for one in found).items())) for path, found in sorted(files.items())}
    return {
        f"{FOLDER}/index.yaml": _written([index]),
        **{
            path: _written([_resource(one) for one in sorted(found, key=lambda one: (one.name, one.kind))])
            for path, found in sorted(files.items())
        },
    }


def _written(documents: Sequence[Mapping[str, Any]]) -> str:
    text = yaml.dump_all(
        documents, Dumper=_DocumentDumper, sort_keys=False, width=120, explicit_start=True, allow_unicode=True
    )
    return HEADER + _ABOUT + text


def _resource(one: AwsRegistration) -> Mapping[str, Any]:
    return {
        "resource": one.kind,
        "name": one.name,
        **({"protected": True} if one.protected else {}),
        **({"stays-when-removed": True} if one.retained else {}),
        "properties": _readable(one.properties),
    }


def _readable(value: Any, key: str = "") -> Any:
    """Documents in texts as what they say."""
    if isinstance(value, Mapping):
        return {name: _readable(each, name) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [_readable(each) for each in value]
    if isinstance(value, str):
        return _decoded(value) if key == _ENCODED else _document(value)
    return value


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text


def _document(text: str) -> Any:
    """A JSON document as what it says, and the documents in it, in the order in which they are written."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return _parsed(json.loads(text))
    except ValueError:
        return text


def _parsed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _parsed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_parsed(each) for each in value]
    return _document(value) if isinstance(value, str) else value
