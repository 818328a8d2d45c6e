"""A kind of AWS resource is whole by its descriptor: every reader iterates over the descriptors."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from pydantic import Field

from tenancy.catalog.days import today
from tenancy.cli.export import _data
from tenancy.components.aws.tenant_aws_resources import TenantAwsResources
from tenancy.iam.account import AccountModel
from tenancy.iam.answers import requests_by_service
from tenancy.planning import make_plan
from tenancy.planning.access_review import review
from tenancy.planning.aws import kinds
from tenancy.planning.aws.kinds.kind import AwsKind, PolicyType, ResourceGrant, only_its_own
from tenancy.planning.fixed_costs import fixed_costs
from tenancy.planning.plan_model import Plan
from tenancy.spec.checks.validator import ValidSpec
from tenancy.spec.fields.data import AwsResources, Names
from tenancy.spec.fields.environment import Environment
from tests import registered
from tests.registered import register
from tests.registered_aws import inputs_of_kinds
from tests.tenant_aws_world import ACCOUNT, AWS, BUCKETS, REGION, tenant

READ = "dynamodb:GetItem"
TABLES = AwsKind(
    field="tables",
    noun="table",
    type="dynamodb/table:Table",
    service="dynamodb",
    path="table/{name}",
    name=lambda environment, tenant, name: f"{environment.cluster.name}--{tenant.tenant}--{name}",
    boundary=("Tables", lambda environment: f"{environment.cluster.name}--*"),
    requests={"read": READ},
    pods=ResourceGrant("UseTables", [READ, "dynamodb:PutItem"], "reads and writes the table"),
    policy=PolicyType(
        "dynamodb/resourcePolicy:ResourcePolicy",
        "resourceArn",
        lambda arn, allowed: [only_its_own([READ], arn, allowed)],
    ),
    properties=lambda _: {"billingMode": "PAY_PER_REQUEST"},
    monthly_price=Decimal("0.25"),
)
NAME = "small--fraud--features"
ARN = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{NAME}"


class WithTables(AwsResources):
    """The block with a field for the kind."""

    tables: Names = Field(default_factory=dict, description="Tables. Default: none.")


@pytest.fixture
def spec(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> ValidSpec:
    """A tenant with a table that one of its namespaces uses."""
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, TABLES))
    fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    on_aws = Environment.model_validate({**fields, "aws": AWS, "buckets": BUCKETS, "pools": {}, "flavors": {}})
    resources = WithTables.model_validate({"tables": {"features": {"namespaces": ["serve"]}}})
    return ValidSpec(on_aws, (tenant().model_copy(update={"aws_resources": resources}),))


@pytest.fixture
def plan(spec: ValidSpec) -> Plan:
    return make_plan(spec, today())


def test_a_kind_is_whole_by_its_descriptor(plan: Plan) -> None:
    aws = plan.tenant("fraud").aws
    assert aws
    (table,) = aws.owned
    serve = next(role for role in aws.roles if role.purpose == "serve")
    assert (table.name, table.arn) == (NAME, ARN)
    assert table.policy
    (statement,) = table.policy.document["Statement"]
    assert statement["Condition"]["StringNotEquals"]["aws:PrincipalArn"] == [serve.arn, AWS["platform-role"]]
    assert serve.policies["uses"]["Statement"] == [
        {"Sid": "UseTables", "Effect": "Allow", "Action": [READ, "dynamodb:PutItem"], "Resource": [ARN]}
    ]
    assert [role.purpose for role in aws.roles] == ["train", "serve"], "idle uses nothing"
    assert plan.platform.data
    assert plan.platform.data.boundary
    opened = {s["Sid"]: s["Resource"] for s in plan.platform.data.boundary.document["Statement"]}
    assert opened["Tables"] == f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/small--*"


def test_reports_name_it(spec: ValidSpec, plan: Plan) -> None:
    entries = [entry for entry in review(spec.environment, spec.tenants, plan) if NAME in entry.applies_to]
    assert [(entry.subject, entry.role, entry.field) for entry in entries] == [
        ("fraud--serve/scorer", "reads and writes the table", ("aws-resources", "tables", "features"))
    ]
    costs = {cost.item: cost for cost in fixed_costs(spec.environment, plan)}
    assert costs["tables of tenants"].count == 1
    assert _data(spec.environment, spec.tenants[0])["tables"] == [NAME]


def test_the_evaluator_knows_it(spec: ValidSpec, plan: Plan) -> None:
    account = AccountModel(spec.environment, spec.tenants, plan)
    assert account.thing(ARN).title == f"table {NAME}"
    assert requests_by_service()["dynamodb"] == {"read": READ}


def test_the_component_makes_it_with_its_policy(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    aws = plan.tenant("fraud").aws
    assert aws
    monkeypatch.setattr(registered, "build", lambda *_: TenantAwsResources("fraud", aws))
    requests = register(plan)
    (table,) = inputs_of_kinds(requests, "Table").values()
    (policy,) = inputs_of_kinds(requests, "ResourcePolicy").values()
    assert Counter([table.type, policy.type]) == Counter(
        [f"aws:{TABLES.type}", "aws:dynamodb/resourcePolicy:ResourcePolicy"]
    )
    assert (table.protect, table.name) == (True, "fraud-" + NAME)


def test_the_check_of_namespaces_reads_it(spec: ValidSpec) -> None:
    resources = WithTables.model_validate({"tables": {"features": {"namespaces": ["nosuch"]}}})
    member = spec.tenants[0].model_copy(update={"aws_resources": resources})
    places = [location for location, name in member._namespace_references() if name == "nosuch"]
    assert places == [("aws-resources", "tables", "features", "namespaces", 0)]
