"""What tenants have on AWS in the real engine, against a double of AWS: what comes before what, and who reaches data at
every moment of a change.

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
from engine_project import Done, Project

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
    """Of roles, by the role's name."""
    boundary: dict[str, Any]
    buckets: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, aws: AwsDouble) -> Moment:
        roles, policies, boundary, buckets = {}, {}, {}, {}
        for each in list(aws.live.values()):
            kind, given = each.type.rpartition(":")[2], each.inputs
            if kind == "Role":
                roles[given["name"]] = each.outputs["arn"]
            elif kind == "RolePolicy":
                policies.setdefault(given["role"], []).append(json.loads(given["policy"]))
            elif kind == "Policy":
                boundary = json.loads(given["policy"])
            elif kind == "BucketPolicy":
                buckets[given["bucket"]] = json.loads(given["policy"])
        return cls(roles, policies, boundary, buckets)

    def who(self, action: str, prefix: str) -> frozenset[str]:
        """Tenants' roles that may do it in this prefix of the bucket."""
        listing = action == "s3:ListBucket"
        resource = f"arn:aws:s3:::{BUCKET}" + ("" if listing else f"/{prefix}cards.parquet")
        context = {**INSIDE, **({"s3:prefix": prefix} if listing else {})}
        found = set()
        for name in (FRAUDS, AMLS):
            if name in self.roles:
                given = Policies(self.policies.get(name, []), self.boundary, resource=self.buckets[BUCKET])
                asked = request(role_session(self.roles[name]), action, resource, context, resource_account=ACCOUNT)
                found |= {name} if compile(given)(asked).allowed else set()
        return frozenset(found)


class Two:
    """Two tenants and what they share, each in a stack of its own."""

    def __init__(self, on: OnAws) -> None:
        self.on, self.aws = on, on.aws
        self.moments: list[Moment] = []
        self.grounded: dict[str, bool] = {}
        """Of associations that came or went: whether their namespaces' isolation resources stood then."""
        self.write()

    def write(self) -> None:
        folder = self.on.folder / "tenants"
        folder.mkdir(parents=True, exist_ok=True)
        (self.on.folder / "environment.yaml").write_text(ENVIRONMENT.format(charts=self.on.charts), "utf-8")
        for name, rest in (("fraud", FRAUD), ("aml", AML)):
            (folder / f"{name}.yaml").write_text(TENANT.format(name=name) + rest, "utf-8")

    def edit(self, tenant: str, old: str, new: str) -> None:
        self.on.edit(old, new, f"tenants/{tenant}.yaml")

    def up(self, *stacks: str) -> list[str]:
        """What was done on AWS, in its order."""
        self.moments.clear()
        done = []
        for stack in stacks:
            found = self.on.pulumi("up", "--yes", "--skip-preview", "--stack", stack)
            assert found.code == 0, found.text
            done += self.aws.order("create", "update", "delete")
        self.moments.append(Moment.of(self.aws))
        return done

    def note(self, call: Call) -> None:
        if call.preview or call.kind not in {"create", "update", "delete"}:
            return
        kind = call.type.rpartition(":")[2]
        if kind in {"RolePolicy", "BucketPolicy", "Role"}:
            self.moments.append(Moment.of(self.aws))
        if kind == "PodIdentityAssociation" and call.kind != "update":
            wall = f"/apis/networking.k8s.io/v1/namespaces/{call.inputs['namespace']}/networkpolicies/default-deny"
            self.grounded[f"{call.kind} {call.name}"] = self.on.project.exists(wall)

    def namespaces(self) -> set[str]:
        return {key[2] for key in self.on.project.objects() if key[0] == "namespaces"}

    def kinds(self) -> set[str]:
        return {each.type.rpartition(":")[2] for each in self.aws.live.values()}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each.inputs for each in self.aws.live.values() if each.type.endswith(f":{kind}")]


PLATFORM, FRAUD_STACK, AML_STACK = "two", "two--fraud", "two--aml"
STACKS = (PLATFORM, AML_STACK, FRAUD_STACK)


@pytest.fixture(scope="module")
def two(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """The tests build on one another, in their order: the half is made, it changes, it goes."""
    with on_aws("two", project, tmp_path_factory.mktemp("two")) as on:
        found = Two(on)
        on.aws.on_call = found.note
        yield found


class Order:
    """What was done, and what came before what."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def at(self, name: str) -> int:
        found = [index for index, step in enumerate(self.done) if step == name]
        assert len(found) == 1, f"{name} was done {len(found)} times in {self.done}"
        return found[0]

    def all(self, *ends: str) -> list[int]:
        found = [index for index, step in enumerate(self.done) if step.endswith(ends)]
        assert found, f"nothing of {ends} in {self.done}"
        return found


@pytest.fixture(scope="module")
def made(two: Two) -> Order:
    for stack in STACKS:
        assert two.on.pulumi("stack", "init", stack).code == 0
    return Order(two.up(*STACKS))


def test_a_buckets_locks_are_shut_before_the_boundary_and_the_boundary_stands_before_any_role(made: Order) -> None:
    locks, boundary = made.all("-policy"), made.at("create platform-data-boundary")
    roles = [index for index in made.all("-role") if "break-glass" not in made.done[index]]
    assert len(roles) == 4
    assert max(index for index in locks if made.done[index].startswith("create platform-data-two-")) < boundary
    assert boundary < min(roles)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", ["two-data", "two-locked"])
def test_a_bucket_is_shut_sealed_and_remembers(two: Two, name: str) -> None:
    of_it = [each for each in two.aws.live.values() if each.inputs.get("bucket") == name]
    found = {each.type.rpartition(":")[2]: each.inputs for each in of_it}
    isolation_resources = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [found["BucketPublicAccessBlock"][wall] for wall in isolation_resources] == [True] * 4
    assert found["BucketOwnershipControls"]["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    assert found["BucketVersioning"]["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = found["BucketServerSideEncryptionConfiguration"]["rules"]
    key = two.aws.find(f"::platform-data-{name}-key").outputs["arn"]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key}
    (tls,) = [
        statement
        for statement in json.loads(found["BucketPolicy"]["policy"])["Statement"]
        if statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    ]
    assert (tls["Effect"], tls["Action"], tls["Principal"]) == ("Deny", ["s3:*"], "*")


@pytest.mark.usefixtures("made")
def test_every_tenants_role_is_made_with_the_boundary_on_it(two: Two) -> None:
    boundary = two.aws.find("::platform-data-boundary").outputs["arn"]
    bound = {role["name"]: role.get("permissionsBoundary") for role in two.of("Role")}
    assert bound.pop("two-break-glass") is None
    assert len(bound) == 4
    assert set(bound.values()) == {boundary}


@pytest.mark.usefixtures("made")
def test_a_pod_gets_its_role_only_behind_its_namespaces_isolation(two: Two) -> None:
    assert two.grounded == {
        "create aml-aws-aml--main-workload": True,
        "create fraud-aws-fraud--train-workload": True,
        "create fraud-aws-fraud--serve-workload": True,
    }


@pytest.mark.usefixtures("made")
def test_each_tenant_reaches_its_own_prefix_alone(two: Two) -> None:
    now = Moment.of(two.aws)
    for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
        assert now.who(action, "teams/fraud/") == {FRAUDS}
        assert now.who(action, "teams/aml/") == {AMLS}


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("stack", STACKS)
def test_a_second_run_and_a_refresh_change_nothing(two: Two, stack: str) -> None:
    assert set(two.on.steps(stack).values()) == {"same"}
    done = two.on.pulumi("refresh", "--yes", "--skip-preview", "--expect-no-changes", "--stack", stack)
    assert done.code == 0, done.text


@pytest.mark.usefixtures("made")
def test_a_change_by_hand_on_aws_is_reverted_by_a_run_with_refresh(two: Two) -> None:
    """A plain run compares with the state alone: AWS keeps no record of who wrote what."""
    role = next(r for r in two.aws.live.values() if r.type.endswith(":RolePolicy") and r.inputs["role"] == FRAUDS)
    planned = json.loads(role.inputs["policy"])
    wide = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    for kept in (role.inputs, role.outputs):
        kept["policy"] = wide
    for more, stands in (((), json.loads(wide)), (("--refresh",), planned)):
        done = two.on.tenancy("up", "two", "--stack", "two--fraud", *more)
        assert done.code == 0, done.text
        assert json.loads(role.inputs["policy"]) == stands


# ── a prefix changes ────────────────────────────────────────────────────────────────────────────────────────────────

OLD, BOTH, NEW = (
    "  - {bucket: two-data, prefix: teams/fraud/, access: read-write, namespaces: [train]}\n",
    "  - {bucket: two-data, prefix: teams/fraud/, access: read-write, namespaces: [train]}\n"
    "  - {bucket: two-data, prefix: cards/, access: read-write, namespaces: [train]}\n",
    "  - {bucket: two-data, prefix: cards/, access: read-write, namespaces: [train]}\n",
)


def seen(two: Two, action: str, prefix: str) -> list[frozenset[str]]:
    """Who reached a prefix, moment by moment, without repetitions."""
    found = [moment.who(action, prefix) for moment in two.moments]
    return [who for index, who in enumerate(found) if index == 0 or found[index - 1] != who]


NO_ROLE, FRAUD_ALONE, AML_ALONE = frozenset[str](), frozenset({FRAUDS}), frozenset({AMLS})


@pytest.mark.exhaustive
@pytest.mark.usefixtures("made")
def test_a_prefix_is_given_and_taken_without_a_moment_in_which_the_tenant_has_none(two: Two) -> None:
    for before, after, steady in ((OLD, BOTH, "teams/fraud/"), (BOTH, NEW, "cards/")):
        two.edit("fraud", before, after)
        two.up(PLATFORM, FRAUD_STACK)
        assert len(two.moments) >= 3
        for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
            assert seen(two, action, steady) == [FRAUD_ALONE]
    assert two.moments[-1].who("s3:GetObject", "teams/fraud/") == NO_ROLE


@pytest.mark.exhaustive
@pytest.mark.usefixtures("made")
def test_a_prefix_that_is_written_anew_is_readable_at_every_moment_by_its_tenant_alone(two: Two) -> None:
    two.edit("fraud", NEW, OLD)
    done = two.up(PLATFORM, FRAUD_STACK)
    assert done == ["update platform-data-two-data-policy", "update fraud-aws-two--fraud--train-storage"]
    for moment in two.moments:
        assert moment.who("s3:GetObject", "cards/") | moment.who("s3:GetObject", "teams/fraud/") == FRAUD_ALONE


@pytest.mark.usefixtures("made")
def test_a_prefix_that_changes_hands_is_shut_to_the_old_before_it_opens_to_the_new(two: Two) -> None:
    two.edit("aml", "prefix: teams/aml/", "prefix: teams/money/")
    two.edit("fraud", OLD, OLD.replace("teams/fraud/", "teams/aml/"))
    two.up(*STACKS)
    for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket"):
        assert seen(two, action, "teams/aml/") == [AML_ALONE, NO_ROLE, FRAUD_ALONE]


# ── something goes ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.exhaustive
@pytest.mark.usefixtures("made")
def test_a_roles_new_name_is_there_and_in_use_before_the_old_one_goes(two: Two) -> None:
    two.grounded.clear()
    two.edit("fraud", "namespaces: [train, serve]", "namespaces: [train, score]")
    refused = two.on.pulumi("up", "--yes", "--skip-preview", "--stack", FRAUD_STACK)
    assert refused.code != 0
    assert "given namespace fraud--serve, which the file of tenant fraud names no more; rule ns-07" in refused.text
    done = two.on.tenancy("up", "two", "--stack", FRAUD_STACK, "--remove", "fraud--serve")
    assert done.code == 0, done.text
    order = Order(two.aws.order("create", "update", "delete"))
    role, association = "fraud-aws-two--fraud--{}-role", "fraud-aws-fraud--{}-workload"
    new = [order.at(f"create {name.format('score')}") for name in (role, association)]
    old = [order.at(f"delete {name.format('serve')}") for name in (association, role)]
    assert [*new, *old] == sorted([*new, *old])
    assert two.grounded[f"delete {association.format('serve')}"], "the isolation resources outlive the pods' identity"


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("stack", "file", "line", "name"),
    [
        (FRAUD_STACK, "tenants/fraud.yaml", "repositories: [scoring], ", "fraud-aws-own-scoring"),
        pytest.param(
            *(FRAUD_STACK, "tenants/fraud.yaml", "secrets: [card-network], ", "fraud-aws-own-card-network"),
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            *(PLATFORM, "environment.yaml", ", two-spare: {}", "platform-data-two-spare-bucket"),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_what_holds_data_is_not_removed_by_removing_a_line(
    two: Two, stack: str, file: str, line: str, name: str
) -> None:
    before = (two.on.folder / file).read_text("utf-8")
    two.on.edit(line, "", file)
    done = two.on.tenancy("up", "two", "--stack", stack)
    (two.on.folder / file).write_text(before, "utf-8")
    assert done.code == 1
    assert f"::{name}" in done.err
    assert "is protected" in done.err
    assert "pulumi state unprotect" in done.err
    assert two.aws.order("delete") == []


def parts(two: Two) -> tuple[str, str]:
    """Fraud's namespaces: the second has a new name where a test above gave it one."""
    renamed = "[train, score]" in (two.on.folder / "tenants" / "fraud.yaml").read_text("utf-8")
    return "train", "score" if renamed else "serve"


@pytest.fixture(scope="module")
def destroyed(two: Two, made: Order) -> tuple[Order, Done]:
    """A tenant's stack, destroyed by the engine's own command without the setting to remove data."""
    assert made.done
    two.grounded.clear()
    refused = two.on.pulumi("destroy", "--yes", "--stack", FRAUD_STACK)
    assert refused.code != 0
    assert two.aws.order("delete") == [], "its preview refuses to delete the namespaces"
    for name in parts(two):
        urns = [r["urn"] for r in two.on.project.state(FRAUD_STACK)["resources"] if r.get("id") == f"fraud--{name}"]
        assert two.on.pulumi("state", "unprotect", *urns, "--yes", "--stack", FRAUD_STACK).code == 0
    done = two.on.pulumi("destroy", "--yes", "--skip-preview", "--stack", FRAUD_STACK)
    return Order(two.aws.order("delete")), done


def test_identities_go_before_the_namespaces_that_they_are_for(two: Two, destroyed: tuple[Order, Done]) -> None:
    order, _ = destroyed
    associations = [f"delete fraud-aws-fraud--{name}-workload" for name in parts(two)]
    assert two.grounded == dict.fromkeys(associations, True)
    for name, association in zip(parts(two), associations, strict=True):
        assert order.at(association) < order.at(f"delete fraud-aws-two--fraud--{name}-role")
    assert order.at("delete fraud-aws-two--fraud.ci") < order.at("delete fraud-aws-two--fraud.ci-role")
    assert {name for name in two.namespaces() if name.startswith("fraud")} == set()


def test_data_is_refused_with_the_command_that_releases_it(two: Two, destroyed: tuple[Order, Done]) -> None:
    order, done = destroyed
    assert done.code != 0
    assert "is protected" in done.text
    assert "pulumi state unprotect" in done.text
    for kind, name in (("Key", "fraud-key"), ("Repository", "own-scoring"), ("Secret", "own-card-network")):
        assert two.aws.find(f":{kind}::fraud-aws-{name}")
        assert f"delete fraud-aws-{name}" not in order.done


@pytest.fixture(scope="module")
def gone(two: Two, destroyed: tuple[Order, Done]) -> Order:
    assert destroyed[0].done
    two.grounded.clear()
    done = two.on.tenancy("down", "two", "--yes")
    assert done.code == 0, done.text
    assert two.grounded == {"delete aml-aws-aml--main-workload": True}
    assert two.namespaces() == set()
    return Order(two.aws.order("delete"))


@pytest.mark.exhaustive
def test_the_boundary_goes_after_every_role_and_the_alarm_after_the_broken_glass(gone: Order) -> None:
    assert gone.at("delete aml-aws-two--aml--main-role") < gone.at("delete platform-data-boundary")
    assert gone.at("delete platform-data-break-glass-role") < gone.at("delete platform-data-break-glass-alarm-mail")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("gone")
def test_what_holds_data_stays_on_aws_with_its_isolation(two: Two) -> None:
    assert two.kinds() == {
        *("Key", "Alias", "Repository", "RepositoryPolicy", "LogGroup", "Bucket", "BucketLifecycleConfiguration"),
        *("BucketOwnershipControls", "BucketPolicy", "BucketPublicAccessBlock", "BucketVersioning"),
        *("BucketServerSideEncryptionConfiguration", "Secret", "SecretPolicy"),
        # The forge's provider is the account's: other environments' pipelines come in by it.
        "OpenIdConnectProvider",
    }
    assert sorted(bucket["bucket"] for bucket in two.of("Bucket")) == ["two-data", "two-locked", "two-spare"]
    assert len(two.of("Key")) == 4


# ── all in one stack ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def one(two: Two, gone: Order) -> Two:
    assert gone.done
    two.aws.live.clear()
    two.write()
    two.on.edit("stacks: per-tenant\n", "")
    two.grounded.clear()
    done = Order(two.up(PLATFORM))
    locks = [index for index in done.all("-policy") if done.done[index].startswith("create platform-data-two-")]
    roles = [index for index in done.all("-role") if "break-glass" not in done.done[index]]
    assert max(locks) < done.at("create platform-data-boundary") < min(roles)
    return two


@pytest.mark.exhaustive
def test_one_stack_makes_the_same_in_the_same_order(one: Two) -> None:
    assert set(one.grounded.values()) == {True}
    assert len(one.grounded) == 3
    assert set(one.on.steps(PLATFORM).values()) == {"same"}


@pytest.mark.exhaustive
def test_in_one_stack_too_a_prefix_is_shut_to_the_old_before_it_opens_to_the_new(one: Two) -> None:
    one.edit("aml", "prefix: teams/aml/", "prefix: teams/money/")
    one.edit("fraud", OLD, OLD.replace("teams/fraud/", "teams/aml/"))
    done = one.up(PLATFORM)
    assert done[0] == "update platform-data-two-data-policy"
    assert seen(one, "s3:GetObject", "teams/aml/") == [AML_ALONE, NO_ROLE, FRAUD_ALONE]
