"""The AWS half of an environment as a security reviewer reads it, before anything is made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tenancy.cli.render import command
from tenancy.cli.render_aws import aws_texts
from tenancy.components.aws_registrations import CLUSTER, PLATFORM, AwsRegistration, aws_registrations
from tenancy.planning import Plan, make_plan
from tenancy.planning.scope import StackScope
from tenancy.rules.catalogue import RULES
from tenancy.spec.loader import load
from tests import registered
from tests.aws_answers import Answers
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder, every, nonempty
from tests.registered import register
from tests.registered_aws import on_aws

MORE = """ci: {github: bank/fraud-models, branch: main}
aws-resources: {repositories: [scoring], secrets: [card-network], log-groups: [jobs], sqs-queues: [jobs]}
"""
ROOT = Path(__file__).parents[3]
PLACEHOLDER = re.compile(r"<(?!what AWS answers to )[^<>]+ of (\w+) ([^<>]+)>")


def planned(folder: Path) -> Plan:
    loaded = load(folder)
    return make_plan(loaded, loaded.day)


@pytest.fixture(scope="module")
def regulated() -> Plan:
    return planned(ROOT / "stacks" / "regulated")


@pytest.fixture(scope="module")
def registrations(regulated: Plan) -> tuple[AwsRegistration, ...]:
    return aws_registrations(regulated)


@pytest.fixture(scope="module")
def resources(registrations: tuple[AwsRegistration, ...]) -> Mapping[str, list[dict[str, Any]]]:
    """Resources of each file by its path, as they are read."""
    texts = aws_texts(registrations)
    return {path: list(yaml.safe_load_all(text)) for path, text in texts.items() if path != "aws/index.yaml"}


def resource_properties(
    resources: Mapping[str, list[dict[str, Any]]], path: str, resource: str, name: str
) -> dict[str, Any]:
    (match,) = (
        candidate for candidate in resources[path] if (candidate["resource"], candidate["name"]) == (resource, name)
    )
    return match["properties"]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from (str(key), *strings(child))
    elif isinstance(value, list):
        for child in value:
            yield from strings(child)
    elif isinstance(value, str):
        yield value


def registered_by_program(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], set[str]]:
    """Names of the properties of every resource on AWS that the stacks' own programs register."""
    answers = Answers()
    monkeypatch.setattr(registered.Echo, "call", lambda mocks, call: answers(mocks, call))
    properties_by_resource: dict[tuple[str, str], set[str]] = {}
    for scope in (StackScope.CLUSTER, StackScope.ALL):
        if scope is StackScope.ALL or plan.cluster:
            for request in on_aws(register(plan, scope)).values():
                if not request.type.startswith("pulumi:"):
                    properties_by_resource[request.type, request.name] = set(request.object) | set(
                        request.propertyDependencies
                    )
    return properties_by_resource


def compare(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered_properties = {
        (registration.kind, registration.name): set(registration.properties) for registration in aws_registrations(plan)
    }
    program = registered_by_program(plan, monkeypatch)
    assert rendered_properties.keys() == program.keys()
    missing = {name: program[name] - properties - {"arn"} for name, properties in rendered_properties.items()}
    # An output of a mock without a value is a property without one, there and not here.
    assert {name: keys for name, keys in missing.items() if keys} == {}


def test_every_resource_and_property_that_the_programs_register_is_rendered(
    regulated: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(regulated, monkeypatch)


def test_every_setting_by_which_aws_enforces_a_rule_is_made() -> None:
    settings = {
        (registration.kind, name)
        for registration in aws_registrations(planned(ROOT / "stacks" / "bank"))
        for name, value in registration.properties.items()
        if value is not None
    }
    rules = [rule for rule in RULES.values() if rule.aws_settings]
    assert len(rules) > 20
    assert {rule.id for rule in rules if not rule.aws_settings.items() <= settings} == set()


@pytest.mark.exhaustive(reason="every resource of a large environment; `make test` renders a small one")
@pytest.mark.parametrize("name", ["bank"])
def test_every_resource_of_a_large_environment_is_rendered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(planned(ROOT / "stacks" / name), monkeypatch)


def test_no_property_is_left_without_a_value(registrations: tuple[AwsRegistration, ...]) -> None:
    assert [
        (registration.kind, registration.name, registration.unresolved)
        for registration in registrations
        if registration.unresolved
    ] == []


def test_every_resource_is_in_one_file_and_the_index_counts_them(registrations: tuple[AwsRegistration, ...]) -> None:
    texts = aws_texts(registrations)
    (index,) = yaml.safe_load_all(texts["aws/index.yaml"])
    assert set(index) == set(texts) - {"aws/index.yaml"}
    assert sum(sum(kinds.values()) for kinds in index.values()) == len(registrations)
    for path, kinds in index.items():
        read = [resource["resource"] for resource in yaml.safe_load_all(texts[path])]
        assert {kind: read.count(kind) for kind in set(read)} == kinds, path


def test_documents_are_data_and_no_text_in_a_text(resources: Mapping[str, list[dict[str, Any]]]) -> None:
    for path, file_resources in nonempty(resources.items()):
        for text in strings(file_resources):
            if text.startswith(("{", "[")):
                with pytest.raises(json.JSONDecodeError):
                    json.loads(text)
            assert not re.fullmatch(r"[A-Za-z0-9+/=]{200,}", text), f"{path}: base64"


def test_a_role_has_its_trust_its_policies_and_its_boundary(resources: Mapping[str, list[dict[str, Any]]]) -> None:
    roles = [
        resource["properties"]
        for resource in resources["aws/tenants/payments/iam.yaml"]
        if resource["resource"].endswith(":Role")
    ]
    assert roles
    for role in roles:
        (statement,) = role["assumeRolePolicy"]["Statement"]
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert statement["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-namespace"].startswith("payments--")
        assert role["permissionsBoundary"].endswith("/regulated-tenants")
    cni = resource_properties(
        resources, f"aws/{CLUSTER}/iam.yaml", "aws:iam/rolePolicy:RolePolicy", "regulated-role-vpc-cni-interfaces"
    )
    assert {statement["Sid"] for statement in cni["policy"]["Statement"]} >= {"ReadNetwork", "ChangeOwnInterfaces"}


@pytest.mark.parametrize(
    ("path", "resource", "document"),
    [
        (f"aws/{PLATFORM}/s3.yaml", "aws:s3/bucketPolicy:BucketPolicy", "policy"),
        (f"aws/{PLATFORM}/kms.yaml", "aws:kms/key:Key", "policy"),
        (f"aws/{PLATFORM}/iam.yaml", "aws:iam/policy:Policy", "policy"),
        (f"aws/{CLUSTER}/kms.yaml", "aws:kms/key:Key", "policy"),
        (f"aws/{CLUSTER}/eks.yaml", "aws:eks/addon:Addon", "configurationValues"),
    ],
)
def test_policies_and_configurations_are_read_as_such(
    resources: Mapping[str, list[dict[str, Any]]], path: str, resource: str, document: str
) -> None:
    documents = [
        entry["properties"][document]
        for entry in resources[path]
        if entry["resource"] == resource
        if document in entry["properties"]
    ]
    assert every(isinstance(document, dict) for document in documents)


def test_what_aws_assigns_names_the_resource_that_gets_it(
    registrations: tuple[AwsRegistration, ...], resources: Mapping[str, list[dict[str, Any]]]
) -> None:
    registered_names = {(registration.kind.rpartition(":")[2], registration.name) for registration in registrations}
    referenced_names = {
        match.groups() for text in strings(list(resources.values())) for match in PLACEHOLDER.finditer(text)
    }
    assert referenced_names
    assert referenced_names <= registered_names


def test_what_is_protected_or_stays_says_so(resources: Mapping[str, list[dict[str, Any]]]) -> None:
    (key,) = (
        resource for resource in resources[f"aws/{CLUSTER}/kms.yaml"] if resource["resource"] == "aws:kms/key:Key"
    )
    assert key["protected"] is True
    (alias,) = (
        resource for resource in resources[f"aws/{CLUSTER}/kms.yaml"] if resource["resource"] == "aws:kms/alias:Alias"
    )
    assert "protected" not in alias


def test_a_cluster_of_another_tool_has_the_tenants_documents_and_no_cluster(
    spec: SpecFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", f"  mode: existing\n{ON_AWS}")
    spec.add("tenants/fraud.yaml", MORE)
    out = tmp_path / "out"
    result = CliRunner().invoke(command, [str(spec.path), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert not (out / "aws" / CLUSTER).exists()
    text = (out / "aws" / "tenants" / "fraud" / "iam.yaml").read_text("utf-8")
    assert "assumeRolePolicy:\n    Version:" in text
    compare(planned(spec.path), monkeypatch)
    again = CliRunner().invoke(command, [str(spec.path), "--out", str(tmp_path / "again")])
    assert again.exit_code == 0, again.output
    for path in out.rglob("*.yaml"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(out)).read_bytes(), path


def test_without_aws_no_file_is_written(plan: Plan) -> None:
    assert aws_texts(aws_registrations(plan)) == {}
