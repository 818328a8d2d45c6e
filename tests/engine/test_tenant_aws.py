"""Resources of tenants on AWS in the real engine, against a double of AWS: what comes before what, and who reaches data
at every moment of a change.

The double says nothing about what AWS would answer; who reaches what is the evaluator's word on the documents that the
double holds at that moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aws_double import AwsDouble, Call
from engine_aws import OnAws, on_aws
from engine_project import CommandResult, Project

from tenancy.iam.evaluator import Policies, compile
from tenancy.iam.requests import request, role_session
from tests.tenant_aws_files import AML, ENVIRONMENT, FRAUD, TENANT

pytestmark = pytest.mark.chapters

ACCOUNT = "111122223333"
BUCKET = "two-data"
INSIDE = {"aws:SecureTransport": "true", "aws:VpceAccount": ACCOUNT}
FRAUDS, AMLS = "two--fraud--train", "two--aml--main"
"""Their roles."""


@dataclass(frozen=True)
class Moment:
    """The policies that stand when a call comes."""

    roles: dict[str, str]
    """ARN by name."""
    policies: dict[str, list[dict[str, Any]]]
    """ARNs of roles, by the role's name."""
    boundary: dict[str, Any]
    buckets: dict[str, dict[str, Any]]

    @classmethod
    def of_double(cls, aws: AwsDouble) -> Moment:
        roles, policies, boundary, buckets = {}, {}, {}, {}
        for resource in list(aws.live.values()):
            kind, inputs = resource.type.rpartition(":")[2], resource.inputs
            if kind == "Role":
                roles[inputs["name"]] = resource.outputs["arn"]
            elif kind == "RolePolicy":
                policies.setdefault(inputs["role"], []).append(json.loads(inputs["policy"]))
            elif kind == "Policy":
                boundary = json.loads(inputs["policy"])
            elif kind == "BucketPolicy":
                buckets[inputs["bucket"]] = json.loads(inputs["policy"])
        return cls(roles, policies, boundary, buckets)

    def who(self, action: str, prefix: str) -> frozenset[str]:
        """Tenants' roles that may do it in this prefix of the bucket."""
        listing = action == "s3:ListBucket"
        resource = f"arn:aws:s3:::{BUCKET}" + ("" if listing else f"/{prefix}cards.parquet")
        context = {**INSIDE, **({"s3:prefix": prefix} if listing else {})}
        role_names = set()
        for name in (FRAUDS, AMLS):
            if name in self.roles:
                policies = Policies(self.policies.get(name, []), self.boundary, resource=self.buckets[BUCKET])
                role_request = request(
                    role_session(self.roles[name]), action, resource, context, resource_account=ACCOUNT
                )
                role_names |= {name} if compile(policies)(role_request).allowed else set()
        return frozenset(role_names)


class Two:
    """Two tenants and what they share, each in a stack of its own."""

    def __init__(self, on: OnAws) -> None:
        self.on, self.aws = on, on.aws
        self.moments: list[Moment] = []
        self.grounded: dict[str, bool] = {}
        """By association that was made or removed: whether their namespaces' isolation resources stood then."""
        self.write()

    def write(self) -> None:
        folder = self.on.folder / "tenants"
        folder.mkdir(parents=True, exist_ok=True)
        (self.on.folder / "environment.yaml").write_text(ENVIRONMENT.format(charts=self.on.charts), "utf-8")
        for name, grants in (("fraud", FRAUD), ("aml", AML)):
            (folder / f"{name}.yaml").write_text(TENANT.format(name=name) + grants, "utf-8")

    def edit(self, tenant: str, old: str, new: str) -> None:
        self.on.edit(old, new, f"tenants/{tenant}.yaml")

    def up(self, *stacks: str) -> list[str]:
        """Operations on AWS, in their order."""
        self.moments.clear()
        steps = []
        for stack in stacks:
            update = self.on.pulumi("up", "--yes", "--skip-preview", "--stack", stack)
            assert update.code == 0, update.text
            steps += self.aws.order("create", "update", "delete")
        self.moments.append(Moment.of_double(self.aws))
        return steps

    def note(self, call: Call) -> None:
        if call.preview or call.kind not in {"create", "update", "delete"}:
            return
        kind = call.type.rpartition(":")[2]
        if kind in {"RolePolicy", "BucketPolicy", "Role"}:
            self.moments.append(Moment.of_double(self.aws))
        if kind == "PodIdentityAssociation" and call.kind != "update":
            wall = f"/apis/networking.k8s.io/v1/namespaces/{call.inputs['namespace']}/networkpolicies/default-deny"
            self.grounded[f"{call.kind} {call.name}"] = self.on.project.exists(wall)

    def namespaces(self) -> set[str]:
        return {key[2] for key in self.on.project.objects() if key[0] == "namespaces"}

    def kinds(self) -> set[str]:
        return {entry.type.rpartition(":")[2] for entry in self.aws.live.values()}

    def inputs_of(self, kind: str) -> list[dict[str, Any]]:
        return [resource.inputs for resource in self.aws.live.values() if resource.type.endswith(f":{kind}")]


PLATFORM, FRAUD_STACK, AML_STACK = "two", "two--fraud", "two--aml"
STACKS = (PLATFORM, AML_STACK, FRAUD_STACK)


@pytest.fixture(scope="module")
def two(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """The tests build on one another, in their order: the half is made, it changes, it goes."""
    with on_aws("two", project, tmp_path_factory.mktemp("two")) as on:
        environment = Two(on)
        on.aws.on_call = environment.note
        yield environment


class Order:
    """Operations in their order."""

    def __init__(self, steps: list[str]) -> None:
        self.done = steps

    def at(self, name: str) -> int:
        indices = [index for index, step in enumerate(self.done) if step == name]
        assert len(indices) == 1, f"{name} was done {len(indices)} times in {self.done}"
        return indices[0]

    def all(self, *ends: str) -> list[int]:
        indices = [index for index, step in enumerate(self.done) if step.endswith(ends)]
        assert indices, f"nothing of {ends} in {self.done}"
        return indices


@pytest.fixture(scope="module")
def creation_order(two: Two) -> Order:
    for stack in STACKS:
        assert two.on.pulumi("stack", "init", stack).code == 0
    return Order(two.up(*STACKS))


def test_a_buckets_locks_are_shut_before_the_boundary_and_the_boundary_stands_before_any_role(
    creation_order: Order,
) -> None:
    locks, boundary = creation_order.all("-policy"), creation_order.at("create platform-data-boundary")
    roles = [index for index in creation_order.all("-role") if "break-glass" not in creation_order.done[index]]
    assert len(roles) == 4
    assert (
        max(index for index in locks if creation_order.done[index].startswith("create platform-data-two-")) < boundary
    )
    assert boundary < min(roles)


@pytest.mark.usefixtures("creation_order")
@pytest.mark.parametrize("name", ["two-data", "two-locked"])
def test_a_bucket_is_shut_sealed_and_remembers(two: Two, name: str) -> None:
    of_it = [entry for entry in two.aws.live.values() if entry.inputs.get("bucket") == name]
    inputs_by_kind = {entry.type.rpartition(":")[2]: entry.inputs for entry in of_it}
    isolation_resources = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [inputs_by_kind["BucketPublicAccessBlock"][wall] for wall in isolation_resources] == [True] * 4
    assert inputs_by_kind["BucketOwnershipControls"]["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    assert inputs_by_kind["BucketVersioning"]["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = inputs_by_kind["BucketServerSideEncryptionConfiguration"]["rules"]
    key = two.aws.find(f"::platform-data-{name}-key").outputs["arn"]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key}
    (tls,) = [
        statement
        for statement in json.loads(inputs_by_kind["BucketPolicy"]["policy"])["Statement"]
        if statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    ]
    assert (tls["Effect"], tls["Action"], tls["Principal"]) == ("Deny", ["s3:*"], "*")


@pytest.mark.usefixtures("creation_order")
def test_every_tenants_role_is_made_with_the_boundary_on_it(two: Two) -> None:
    boundary = two.aws.find("::platform-data-boundary").outputs["arn"]
    bound = {role["name"]: role.get("permissionsBoundary") for role in two.inputs_of("Role")}
    assert bound.pop("two-break-glass") is None
    assert len(bound) == 4
    assert set(bound.values()) == {boundary}


@pytest.mark.usefixtures("creation_order")
def test_a_pod_gets_its_role_only_behind_its_namespaces_isolation(two: Two) -> None:
    assert two.grounded == {
        "create aml-aws-aml--main-workload": True,
        "create fraud-aws-fraud--train-workload": True,
        "create fraud-aws-fraud--serve-workload": True,
    }


@pytest.mark.usefixtures("creation_order")
def test_each_tenant_reaches_its_own_prefix_alone(two: Two) -> None:
    now = Moment.of_double(two.aws)
    for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
        assert now.who(action, "teams/fraud/") == {FRAUDS}
        assert now.who(action, "teams/aml/") == {AMLS}


@pytest.mark.usefixtures("creation_order")
@pytest.mark.parametrize(
    "stack",
    [
        FRAUD_STACK,
        *(
            pytest.param(
                stack, marks=pytest.mark.exhaustive(reason="the other stacks; `make test` has that of one tenant")
            )
            for stack in (PLATFORM, AML_STACK)
        ),
    ],
)
def test_a_second_run_and_a_refresh_change_nothing(two: Two, stack: str) -> None:
    assert set(two.on.steps(stack).values()) == {"same"}
    result = two.on.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes", "--stack", stack)
    assert result.code == 0, result.text


@pytest.mark.usefixtures("creation_order")
def test_a_change_by_hand_on_aws_is_reverted_by_a_run_with_refresh(two: Two) -> None:
    """A plain run compares with the state alone: AWS keeps no record of who wrote what."""
    role = next(r for r in two.aws.live.values() if r.type.endswith(":RolePolicy") and r.inputs["role"] == FRAUDS)
    planned = json.loads(role.inputs["policy"])
    wide = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    for values in (role.inputs, role.outputs):
        values["policy"] = wide
    for more, stands in (((), json.loads(wide)), (("--refresh",), planned)):
        result = two.on.tenancy("up", "two", "--stack", "two--fraud", "--skip-preview", *more)
        assert result.code == 0, result.text
        assert json.loads(role.inputs["policy"]) == stands


# ── a prefix changes ────────────────────────────────────────────────────────────────────────────────────────────────

OLD, BOTH, NEW = (
    "  - {bucket: two-data, prefix: teams/fraud/, access: read-write, namespaces: [train]}\n",
    "  - {bucket: two-data, prefix: teams/fraud/, access: read-write, namespaces: [train]}\n"
    "  - {bucket: two-data, prefix: cards/, access: read-write, namespaces: [train]}\n",
    "  - {bucket: two-data, prefix: cards/, access: read-write, namespaces: [train]}\n",
)


def distinct_readers(two: Two, action: str, prefix: str) -> list[frozenset[str]]:
    """Roles that reach a prefix at each moment, without repetitions."""
    readers = [moment.who(action, prefix) for moment in two.moments]
    return [who for index, who in enumerate(readers) if index == 0 or readers[index - 1] != who]


NO_ROLE, FRAUD_ALONE, AML_ALONE = frozenset[str](), frozenset({FRAUDS}), frozenset({AMLS})


@pytest.mark.exhaustive(reason="a prefix that is given and taken; `make test` has one that changes hands")
@pytest.mark.usefixtures("creation_order")
def test_a_prefix_is_given_and_taken_without_a_moment_in_which_the_tenant_has_none(two: Two) -> None:
    for before, after, steady in ((OLD, BOTH, "teams/fraud/"), (BOTH, NEW, "cards/")):
        two.edit("fraud", before, after)
        two.up(PLATFORM, FRAUD_STACK)
        assert len(two.moments) >= 3
        for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
            assert distinct_readers(two, action, steady) == [FRAUD_ALONE]
    assert two.moments[-1].who("s3:GetObject", "teams/fraud/") == NO_ROLE


@pytest.mark.exhaustive(reason="a prefix that is written anew; `make test` has one that changes hands")
@pytest.mark.usefixtures("creation_order")
def test_a_prefix_that_is_written_anew_is_readable_at_every_moment_by_its_tenant_alone(two: Two) -> None:
    two.edit("fraud", NEW, OLD)
    steps = two.up(PLATFORM, FRAUD_STACK)
    assert steps == ["update platform-data-two-data-policy", "update fraud-aws-two--fraud--train-storage"]
    for moment in two.moments:
        assert moment.who("s3:GetObject", "cards/") | moment.who("s3:GetObject", "teams/fraud/") == FRAUD_ALONE


@pytest.mark.usefixtures("creation_order")
def test_a_prefix_that_changes_hands_is_shut_to_the_old_before_it_opens_to_the_new(two: Two) -> None:
    two.edit("aml", "prefix: teams/aml/", "prefix: teams/money/")
    two.edit("fraud", OLD, OLD.replace("teams/fraud/", "teams/aml/"))
    two.up(*STACKS)
    for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
        assert distinct_readers(two, action, "teams/aml/") == [AML_ALONE, NO_ROLE, FRAUD_ALONE]


# ── something goes ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.exhaustive(reason="a role's new name; `make test` has the boundary before any role")
@pytest.mark.usefixtures("creation_order")
def test_a_roles_new_name_is_there_and_in_use_before_the_old_one_goes(two: Two) -> None:
    two.grounded.clear()
    two.edit("fraud", "namespaces: [train, serve]", "namespaces: [train, score]")
    refused = two.on.pulumi("up", "--yes", "--skip-preview", "--stack", FRAUD_STACK)
    assert refused.code != 0
    assert "given namespace fraud--serve, which the file of tenant fraud names no more; rule ns-07" in refused.text
    result = two.on.tenancy("up", "two", "--stack", FRAUD_STACK, "--remove", "fraud--serve")
    assert result.code == 0, result.text
    order = Order(two.aws.order("create", "update", "delete"))
    role, association = "fraud-aws-two--fraud--{}-role", "fraud-aws-fraud--{}-workload"
    new = [order.at(f"create {name.format('score')}") for name in (role, association)]
    old = [order.at(f"delete {name.format('serve')}") for name in (association, role)]
    assert [*new, *old] == sorted([*new, *old])
    assert two.grounded[f"delete {association.format('serve')}"], "the isolation resources outlive the pods' identity"


@pytest.mark.usefixtures("creation_order")
@pytest.mark.parametrize(
    ("stack", "file", "line", "name"),
    [
        (FRAUD_STACK, "tenants/fraud.yaml", "repositories: [scoring], ", "fraud-aws-own-scoring"),
        pytest.param(
            *(FRAUD_STACK, "tenants/fraud.yaml", "secrets: [card-network], ", "fraud-aws-own-card-network"),
            marks=pytest.mark.exhaustive(reason="secrets; `make test` has a repository"),
        ),
        pytest.param(
            *(PLATFORM, "environment.yaml", ", two-spare: {}", "platform-data-two-spare-bucket"),
            marks=pytest.mark.exhaustive(reason="a bucket; `make test` has a repository"),
        ),
    ],
)
def test_what_holds_data_is_not_removed_by_removing_a_line(
    two: Two, stack: str, file: str, line: str, name: str
) -> None:
    before = (two.on.folder / file).read_text("utf-8")
    two.on.edit(line, "", file)
    result = two.on.tenancy("up", "two", "--stack", stack)
    (two.on.folder / file).write_text(before, "utf-8")
    assert result.code == 1
    assert f"::{name}" in result.err
    assert "is protected" in result.err
    assert "pulumi state unprotect" in result.err
    assert two.aws.order("delete") == []


def parts(two: Two) -> tuple[str, str]:
    """Fraud's namespaces: the second has a new name where a test above gave it one."""
    renamed = "[train, score]" in (two.on.folder / "tenants" / "fraud.yaml").read_text("utf-8")
    return "train", "score" if renamed else "serve"


@pytest.fixture(scope="module")
def destroyed(two: Two, creation_order: Order) -> tuple[Order, CommandResult]:
    """A tenant's stack, destroyed by the engine's own command without the setting to remove data."""
    assert creation_order.done
    two.grounded.clear()
    refused = two.on.pulumi("destroy", "--yes", "--stack", FRAUD_STACK)
    assert refused.code != 0
    assert two.aws.order("delete") == [], "its preview refuses to delete the namespaces"
    for name in parts(two):
        urns = [r["urn"] for r in two.on.project.state(FRAUD_STACK)["resources"] if r.get("id") == f"fraud--{name}"]
        assert two.on.pulumi("state", "unprotect", *urns, "--yes", "--stack", FRAUD_STACK).code == 0
    result = two.on.pulumi("destroy", "--yes", "--skip-preview", "--stack", FRAUD_STACK)
    return Order(two.aws.order("delete")), result


@pytest.mark.exhaustive(
    reason=(
        "a tenant's stack that the engine alone destroys; the order of identities is in "
        "tests/unit/components/test_components_aws.py, and of a namespace in tests/engine/test_offboarding.py"
    )
)
def test_identities_go_before_the_namespaces_that_they_are_for(
    two: Two, destroyed: tuple[Order, CommandResult]
) -> None:
    order, _ = destroyed
    associations = [f"delete fraud-aws-fraud--{name}-workload" for name in parts(two)]
    assert two.grounded == dict.fromkeys(associations, True)
    for name, association in zip(parts(two), associations, strict=True):
        assert order.at(association) < order.at(f"delete fraud-aws-two--fraud--{name}-role")
    assert order.at("delete fraud-aws-two--fraud.ci") < order.at("delete fraud-aws-two--fraud.ci-role")
    assert {name for name in two.namespaces() if name.startswith("fraud")} == set()


@pytest.mark.exhaustive(reason="data in a stack that is destroyed; `make test` has a line that is removed")
def test_data_is_refused_with_the_command_that_releases_it(two: Two, destroyed: tuple[Order, CommandResult]) -> None:
    order, result = destroyed
    assert result.code != 0
    assert "is protected" in result.text
    assert "pulumi state unprotect" in result.text
    for kind, name in (("Key", "fraud-key"), ("Repository", "own-scoring"), ("Secret", "own-card-network")):
        assert two.aws.find(f":{kind}::fraud-aws-{name}")
        assert f"delete fraud-aws-{name}" not in order.done


@pytest.fixture(scope="module")
def after_down(two: Two, destroyed: tuple[Order, CommandResult]) -> Order:
    assert destroyed[0].done
    two.grounded.clear()
    result = two.on.tenancy("down", "two", "--yes")
    assert result.code == 0, result.text
    assert two.grounded == {"delete aml-aws-aml--main-workload": True}
    assert two.namespaces() == set()
    return Order(two.aws.order("delete"))


@pytest.mark.exhaustive(reason="the order of a removal in the real engine; dependencies are in tests/unit/components")
def test_the_boundary_goes_after_every_role_and_the_alarm_after_the_broken_glass(after_down: Order) -> None:
    assert after_down.at("delete aml-aws-two--aml--main-role") < after_down.at("delete platform-data-boundary")
    assert after_down.at("delete platform-data-break-glass-role") < after_down.at(
        "delete platform-data-break-glass-alarm-mail"
    )


@pytest.mark.exhaustive(reason="what stays after a removal in the real engine; `make test` has a line that is removed")
@pytest.mark.usefixtures("after_down")
def test_what_holds_data_stays_on_aws_with_its_isolation(two: Two) -> None:
    assert two.kinds() == {
        *("Key", "Alias", "Repository", "RepositoryPolicy", "LogGroup", "Bucket", "BucketLifecycleConfiguration"),
        *("BucketOwnershipControls", "BucketPolicy", "BucketPublicAccessBlock", "BucketVersioning"),
        *("BucketServerSideEncryptionConfiguration", "Secret", "SecretPolicy"),
        # The forge's provider is the account's: other environments' pipelines come in by it.
        "OpenIdConnectProvider",
    }
    assert sorted(bucket["bucket"] for bucket in two.inputs_of("Bucket")) == ["two-data", "two-locked", "two-spare"]
    assert len(two.inputs_of("Key")) == 4


# ── all in one stack ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def in_one_stack(two: Two, after_down: Order) -> Two:
    assert after_down.done
    two.aws.live.clear()
    two.write()
    two.on.edit("stacks: per-tenant\n", "")
    two.grounded.clear()
    order = Order(two.up(PLATFORM))
    locks = [index for index in order.all("-policy") if order.done[index].startswith("create platform-data-two-")]
    roles = [index for index in order.all("-role") if "break-glass" not in order.done[index]]
    assert max(locks) < order.at("create platform-data-boundary") < min(roles)
    return two


@pytest.mark.exhaustive(reason="the same in one stack; `make test` has a stack for each tenant")
def test_one_stack_makes_the_same_in_the_same_order(in_one_stack: Two) -> None:
    assert set(in_one_stack.grounded.values()) == {True}
    assert len(in_one_stack.grounded) == 3
    assert set(in_one_stack.on.steps(PLATFORM).values()) == {"same"}


@pytest.mark.exhaustive(reason="the same in one stack; `make test` has a stack for each tenant")
def test_in_one_stack_too_a_prefix_is_shut_to_the_old_before_it_opens_to_the_new(in_one_stack: Two) -> None:
    in_one_stack.edit("aml", "prefix: teams/aml/", "prefix: teams/money/")
    in_one_stack.edit("fraud", OLD, OLD.replace("teams/fraud/", "teams/aml/"))
    steps = in_one_stack.up(PLATFORM)
    assert steps[0] == "update platform-data-two-data-policy"
    assert distinct_readers(in_one_stack, "s3:GetObject", "teams/aml/") == [AML_ALONE, NO_ROLE, FRAUD_ALONE]
