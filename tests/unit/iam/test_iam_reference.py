"""IAM documents against AWS' own list of actions and condition keys: what IAM would take and never match."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from cloudsplaining.scan.policy_document import PolicyDocument
from cloudsplaining.scan.resource_policy_document import ResourcePolicyDocument

from tenancy.catalog import account
from tenancy.iam.account import PLATFORM, AccountModel
from tenancy.planning import make_plan
from tenancy.planning.aws import documents, identity
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests.conftest import nonempty
from tests.iam.worlds import world

BANK = Path(__file__).parents[3] / "stacks" / "bank"
GLOBAL = ("aws:",)
"""Condition keys that any action may be judged by."""
UNLISTED = re.compile(
    "kms:EncryptionContext:.*"  # the keys of an encryption context are the caller's
    "|.*:(sub|aud)"  # claims of an OIDC provider, whose name is the key's prefix
    "|s3:ObjectCreationOperation|s3:if-none-match"  # of 2024: S3 user guide, "Enforce conditional writes"
)
"""Condition keys that the list has not."""

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
            resource["resource"]: {key.lower() for key in resource["condition_keys"]}
            for resource in service["resources"]
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
    yield "endpoint", identity.s3_endpoint_policy(environment)
    yield "key", identity.key_policy(environment)


def _tenants() -> list[AccountModel]:
    """The bank, and tenants of every form of identity with grants of every kind."""
    loaded = load(BANK)
    bank = AccountModel(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))
    return [bank, *(world(seed).account for seed in range(12))]


def _permissions(model: AccountModel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Documents that allow: policies of roles, and the boundary around them."""
    data = model.plan.platform.data
    assert data is not None
    for who in model.identities:
        yield from ((f"{who} {name}", document) for name, document in who.role.policies.items())
    if data.boundary:
        yield "boundary", data.boundary.document


def _guards(model: AccountModel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Policies of resources, and who becomes a role."""
    data = model.plan.platform.data
    assert data is not None
    yield from ((f"{who} trust", who.role.trust) for who in model.identities)
    yield from ((thing.title, dict(thing.policy)) for thing in model.things() if thing.policy)
    if data.break_glass:
        yield "topic", data.break_glass.alarm.topic_policy


def _unknown(document: dict[str, Any], reference: dict[str, dict[str, set[str]]]) -> list[str]:
    """Actions that there are not, and condition keys that none of a statement's actions knows."""
    wrong = []
    for statement in document["Statement"]:
        allowed: set[str] = set()
        for action in _as_list(statement["Action"]):
            service, _, name = action.partition(":")
            known_actions = [a for a in reference.get(service, {}) if fnmatchcase(a, name.lower())]
            wrong += [] if known_actions else [action]
            allowed.update(*(reference[service][a] for a in known_actions))
        for keys in statement.get("Condition", {}).values():
            wrong += [
                key
                for key in keys
                if not key.startswith(GLOBAL)
                and not UNLISTED.fullmatch(key)
                and not any(fnmatchcase(key.lower(), k.replace("${tagkey}", "*").lower()) for k in allowed)
            ]
    return wrong


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_every_action_and_condition_key_is_one_that_aws_has(
    environment: Environment, reference: dict[str, dict[str, set[str]]]
) -> None:
    wrong = {name: unknown for name, doc in _documents(environment) if (unknown := _unknown(doc, reference))}
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


def test_every_action_and_condition_key_of_tenants_is_one_that_aws_has(
    reference: dict[str, dict[str, set[str]]],
) -> None:
    for model in nonempty(_tenants()):
        wrong = {
            name: unknown
            for name, document in (*_permissions(model), *_guards(model))
            if (unknown := _unknown(document, reference))
        }
        assert wrong == {}


# A second opinion


EXCEPTED = {
    "credentials_exposure": {
        # Logging in to a registry gives a password that opens what the role's own policies and the repositories open.
        "ecr:GetAuthorizationToken",
    },
}
"""Findings of cloudsplaining, each with the reason why it may stay."""
FINDINGS = [
    *("allows_data_exfiltration_actions", "allows_privilege_escalation", "contains_statement_using_not_action"),
    *("credentials_exposure", "infrastructure_modification", "permissions_management_without_constraints"),
    *("service_wildcard", "tagging_actions_without_constraints", "write_actions_without_constraints"),
    "all_allowed_unrestricted_actions",
]


def _findings(document: dict[str, Any]) -> dict[str, Any]:
    scanned = PolicyDocument(document)
    actions_by_finding = {name: set(_plain(getattr(scanned, name))) - EXCEPTED.get(name, set()) for name in FINDINGS}
    return {name: actions for name, actions in actions_by_finding.items() if actions}


def _plain(finding: Any) -> list[str]:
    return [
        item if isinstance(item, str) else json.dumps(item) for item in (finding() if callable(finding) else finding)
    ]


def test_cloudsplaining_finds_nothing_in_what_tenants_may() -> None:
    wrong = {
        f"{who}": findings for model in _tenants() for who, doc in _permissions(model) if (findings := _findings(doc))
    }
    assert wrong == {}


def test_no_policy_of_tenants_is_open_to_all_principals() -> None:
    for model in nonempty(_tenants()):
        for name, document in _guards(model):
            assert ResourcePolicyDocument(document).internet_accessible_actions == [], name


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ({"Action": ["s3:GetObject"], "Resource": "*"}, "allows_data_exfiltration_actions"),
        ({"Action": ["iam:PassRole", "ec2:RunInstances"], "Resource": "*"}, "allows_privilege_escalation"),
        ({"NotAction": ["iam:*"], "Resource": "*"}, "contains_statement_using_not_action"),
        ({"Action": ["s3:PutBucketPolicy"], "Resource": "*"}, "permissions_management_without_constraints"),
        ({"Action": ["sqs:*"], "Resource": "*"}, "service_wildcard"),
        ({"Action": ["sqs:SendMessage"], "Resource": "*"}, "write_actions_without_constraints"),
    ],
)
def test_what_it_is_there_for_is_noticed(statement: Statement, finding: str) -> None:
    assert finding in _findings({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]})


@pytest.mark.parametrize("action", ["s3:*", "iam:PassRole", "kms:*"])
def test_no_wildcard_is_in_an_action_that_is_allowed(action: str) -> None:
    """The findings are about `*` as a resource; this is about all of them."""
    allowed = {
        allowed_action
        for model in _tenants()
        for _, document in _permissions(model)
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for allowed_action in _as_list(statement["Action"])
    }
    assert not {allowed_action for allowed_action in allowed if "*" in allowed_action}
    assert action not in allowed


# Sizes


def test_every_document_of_tenants_is_within_what_aws_takes() -> None:
    for model in nonempty(_tenants()):
        data = model.plan.platform.data
        assert data is not None
        for who in model.identities:
            inline = sum(map(documents.length, who.role.policies.values()))
            assert inline <= account.INLINE_LENGTH, str(who)
            assert documents.length(who.role.trust) <= account.TRUST_LENGTH, str(who)
            assert len(who.role.name) <= account.ROLE_NAME
            assert bool(who.role.boundary) == (who.tenant != PLATFORM), "a boundary on every role of a tenant"
        assert data.boundary is None or documents.length(data.boundary.document) <= account.MANAGED_LENGTH
        for thing in model.things():
            size = len(json.dumps(thing.policy, separators=(",", ":")).encode())
            # KMS key policies 32 KB, secrets 20 KB, SQS 64 KB, ECR 10 KB: buckets' is the narrowest but for the last.
            limit = 10_240 if thing.title.startswith("repository") else account.BUCKET_POLICY_LENGTH
            assert size <= limit, thing.title
