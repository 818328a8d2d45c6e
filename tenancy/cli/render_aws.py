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
_FILE_NOTE = (
    "# Resources of AWS as the Pulumi program registers them, to read and compare; no tool applies this file.\n"
    "# <ARN of Key bank-key> is the ARN that AWS gives to the resource Key bank-key when it is made, and\n"
    "# <what AWS answers to …> what each run asks AWS.\n"
)
_BASE64_PROPERTY = "userData"
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
    for registration in registrations:
        files.setdefault(
            f"{FOLDER}/{registration.part}/{registration.kind.partition(':')[2].partition('/')[0]}.yaml", []
        ).append(registration)
    if not files:
        return {}
    index = {
        path: dict(sorted(Counter(registration.kind for registration in file_registrations).items()))
        for path, file_registrations in sorted(files.items())
    }
    return {
        f"{FOLDER}/index.yaml": _yaml_text([index]),
        **{
            path: _yaml_text(
                [
                    _resource(registration)
                    for registration in sorted(
                        file_registrations, key=lambda registration: (registration.name, registration.kind)
                    )
                ]
            )
            for path, file_registrations in sorted(files.items())
        },
    }


def _yaml_text(documents: Sequence[Mapping[str, Any]]) -> str:
    text = yaml.dump_all(
        documents, Dumper=_DocumentDumper, sort_keys=False, width=120, explicit_start=True, allow_unicode=True
    )
    return HEADER + _FILE_NOTE + text


def _resource(registration: AwsRegistration) -> Mapping[str, Any]:
    return {
        "resource": registration.kind,
        "name": registration.name,
        **({"protected": True} if registration.protected else {}),
        **({"stays-when-removed": True} if registration.retained else {}),
        "properties": _with_documents(registration.properties),
    }


def _with_documents(value: Any, key: str = "") -> Any:
    """Documents in texts as what they say."""
    if isinstance(value, Mapping):
        return {name: _with_documents(item, name) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return [_with_documents(item) for item in value]
    if isinstance(value, str):
        return _decode_base64(value) if key == _BASE64_PROPERTY else _parse_document(value)
    return value


def _decode_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text


def _parse_document(text: str) -> Any:
    """A JSON document as what it says, and the documents in it, in the order in which they are written."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return _parse_nested(json.loads(text))
    except ValueError:
        return text


def _parse_nested(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _parse_nested(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_parse_nested(item) for item in value]
    return _parse_document(value) if isinstance(value, str) else value
