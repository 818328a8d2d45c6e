"""IAM documents against AWS' own list of actions and condition keys: what IAM would take and never match."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tenancy.plan import identity
from tenancy.spec import load
from tenancy.spec.environment import Environment

BANK = Path(__file__).parents[2] / "stacks" / "bank"
GLOBAL = ("aws:",)
"""Condition keys that any action may be judged by."""
UNLISTED = {"kms:EncryptionContext:aws:logs:arn"}
"""The list has no encryption contexts: their keys are the caller's."""

Statement = dict[str, Any]


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load(BANK).environment


@pytest.fixture(scope="module")
def reference() -> dict[str, dict[str, set[str]]]:
    """Service -> action -> condition keys, all in lower case but for the service."""
    (file,) = [f for f in importlib.metadata.files("parliament") or () if f.name == "iam_definition.json"]
    services: dict[str, dict[str, set[str]]] = {}
    for service in json.loads(Path(str(file.locate())).read_text("utf-8")):
        actions = services.setdefault(service["prefix"], {})
        of_resources = {
            found["resource"]: {key.lower() for key in found["condition_keys"]} for found in service["resources"]
        }
        for privilege in service["privileges"]:
            keys = actions.setdefault(privilege["privilege"].lower(), set())
            for kind in privilege["resource_types"]:
                keys |= {key.lower() for key in kind["condition_keys"]}
                keys |= of_resources.get(kind["resource_type"].rstrip("*"), set())
    return services


def _documents(environment: Environment) -> Iterator[tuple[str, dict[str, Any]]]:
    for purpose, role in identity.roles(environment).items():
        yield f"{purpose} trust", role.trust
        for name, document in role.inline.items():
            yield f"{purpose} {name}", document
    yield "queue", identity.queue_policy(environment)
    yield "key", identity.key_policy(environment)


def _unknown(document: dict[str, Any], reference: dict[str, dict[str, set[str]]]) -> list[str]:
    """Actions that there are not, and condition keys that none of a statement's actions knows."""
    wrong = []
    for statement in document["Statement"]:
        allowed: set[str] = set()
        for action in _listed(statement["Action"]):
            service, _, name = action.partition(":")
            found = [a for a in reference.get(service, {}) if fnmatchcase(a, name.lower())]
            wrong += [] if found else [action]
            allowed.update(*(reference[service][a] for a in found))
        for keys in statement.get("Condition", {}).values():
            wrong += [
                key
                for key in keys
                if not key.startswith(GLOBAL)
                and key not in UNLISTED
                and not any(fnmatchcase(key.lower(), k.replace("${tagkey}", "*").lower()) for k in allowed)
            ]
    return wrong


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_every_action_and_condition_key_is_one_that_aws_has(
    environment: Environment, reference: dict[str, dict[str, set[str]]]
) -> None:
    wrong = {name: found for name, doc in _documents(environment) if (found := _unknown(doc, reference))}
    assert wrong == {}


@pytest.mark.parametrize(
    "statement",
    [
        {"Action": "ec2:DescribeInstancs"},
        {"Action": ["eks:DescribeCluster", "sqs:RecieveMessage"]},
        {"Action": "ec2:RunInstances", "Condition": {"StringEquals": {"ec2:InstanceTyp": "p4d.24xlarge"}}},
    ],
)
def test_a_misspelled_one_is_noticed(statement: Statement, reference: dict[str, dict[str, set[str]]]) -> None:
    assert _unknown({"Statement": [statement]}, reference)
