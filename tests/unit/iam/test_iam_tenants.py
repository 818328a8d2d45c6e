"""The tenants' roles, for all strings: what a role may touch and what is a neighbour's have nothing in common.

Beside it who becomes such a role: pods by Pod Identity or by the cluster's tokens, pipelines by their forge's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenancy.iam import evaluator, requests
from tenancy.iam.account import PIPELINE, PLATFORM, AccountIdentity, AccountModel, AwsTarget
from tenancy.iam.evaluator import Decision, Policies, all_of
from tenancy.iam.requests import Principal, ResourceClass, federated, request, role_session, service, user
from tenancy.planning import make_plan
from tenancy.planning.aws.tenant_models import Association, TenantRolePlan
from tenancy.spec.loader import load
from tests.iam import worlds
from tests.iam.borders import S3, Border, borders, crossed, crossings
from tests.iam.symbolic import Region
from tests.iam.worlds import ACCOUNT, CLUSTER, REGION, World, tenant_file, world

BANK = Path(__file__).parents[3] / "stacks" / "bank"
NO_POLICY = "implicit deny: no resource policy allows it"


def _bank() -> AccountModel:
    loaded = load(BANK)
    return AccountModel(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))


@pytest.fixture(scope="module")
def bank() -> AccountModel:
    return _bank()


def _who(account: AccountModel, tenant: str, part: str) -> AccountIdentity:
    return next(identity for identity in account.identities if (identity.tenant, identity.namespace) == (tenant, part))


# No tenant reaches a neighbour, whatever is asked


def _proven(account: AccountModel) -> int:
    count = 0
    for who, border, witness in crossings(account):
        assert witness is None, f"{who} reaches {border.title}: {witness}"
        count += 1
    return count


def test_no_role_of_the_bank_reaches_anything_of_another_tenant(bank: AccountModel) -> None:
    """15 tenants: every pair of them, and every string that a request can hold."""
    assert _proven(bank) > 250


@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(
            pytest.param(s, marks=pytest.mark.exhaustive(reason="six more seeds; `make test` has three"))
            for s in range(3, 9)
        ),
    ],
)
def test_no_role_reaches_anything_of_a_tenant_that_is_called_nearly_the_same(seed: int) -> None:
    assert _proven(world(seed).account) > 10


READS = ["s3:GetObject"]
WRITER = ["s3:AbortMultipartUpload", "s3:GetObjectVersion", "s3:ListMultipartUploadParts", "s3:PutObject"]
GIVES = {
    "read-only": READS,
    "write-once": [*READS, *WRITER],
    "append-only": [*READS, *WRITER],
    "read-write": [*READS, *WRITER, "s3:DeleteObject"],
}
"""The most that a grant gives on objects."""


def _without(account: AccountModel, who: AccountIdentity, random_world: World) -> list[dict[str, Any]]:
    """Statements that take away what the file promises."""
    statements: list[dict[str, Any]] = []
    for grant in worlds.grants_of(random_world.file(who.tenant), who.namespace):
        wholes = [f"arn:aws:s3:::{grant['bucket']}"]
        objects = [f"{wholes[0]}/{grant['prefix']}*"]
        if point := account._point(who.tenant, grant["bucket"]):
            wholes.append(point)
            objects.append(f"{point}/object/{grant['prefix']}*")
        lists = ["s3:ListBucket", *(["s3:ListBucketVersions"] if grant["access"] != "read-only" else [])]
        within = {"StringLike": {"s3:prefix": f"{grant['prefix']}*"}}
        statements.append({"Effect": "Deny", "Action": GIVES[grant["access"]], "Resource": objects})
        statements.append({"Effect": "Deny", "Action": lists, "Resource": wholes, "Condition": within})
    return statements


@pytest.mark.parametrize("seed", range(9))
def test_a_role_may_nothing_on_s3_but_what_its_file_says(seed: int) -> None:
    """By its own policies and the boundary alone, before any bucket has a say: take away what is promised, and of all
    requests to S3 none is left."""
    random_world = world(seed)
    everything = Border("S3", Region(S3, ("*",)), AwsTarget("S3"))
    checked_roles = 0
    for who in random_world.account.identities:
        if who.tenant == PLATFORM or who.namespace == PIPELINE:
            continue
        without = _without(random_world.account, who, random_world)
        assert crossed(random_world.account, who, everything, without) is None, str(who)
        if without:
            assert crossed(random_world.account, who, everything) is not None, "what is promised is something"
            checked_roles += 1
    assert checked_roles


# A mistake is found, and shown


def _broken(who: AccountIdentity, old: str, new: str) -> AccountIdentity:
    """The same with a text in its policies that is another."""
    policies = {name: _replaced(document, old, new) for name, document in who.role.policies.items()}
    assert policies != who.role.policies, f"{old!r} stands nowhere"
    return replace(who, role=replace(who.role, policies=policies))


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {_replaced(key, old, new): _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value


TWINS = World(
    (
        tenant_file(
            "fraud",
            namespaces=[{"name": "train"}],
            storage=[
                {"bucket": "given", "prefix": "teams/fraud/", "access": "read-write"},
                {"bucket": "plain", "prefix": "teams/fraud/", "access": "read-write"},
            ],
        ),
        tenant_file(
            "fraud-2",
            namespaces=[{"name": "train"}],
            storage=[
                {"bucket": "given", "prefix": "teams/fraud-2/", "access": "read-write"},
                {"bucket": "plain", "prefix": "teams/fraud-2/", "access": "read-write"},
            ],
        ),
    )
)


def test_a_prefix_without_its_slash_is_shown_by_the_shortest_request_that_crosses() -> None:
    account = TWINS.account
    broken = _broken(_who(account, "fraud", "train"), "teams/fraud/*", "teams/fraud*")
    witnesses = {border.title: crossed(account, broken, border) for border in borders(account, broken)}
    witness = witnesses["objects in given"]
    assert str(witness) == "s3:getobject on arn:aws:s3:::given/teams/fraud-2/: allowed by identity policy Read0, " + (
        "permissions boundary Objects"
    )
    assert witnesses["objects in plain"] is None, "there the bucket's own policy is the second lock"
    assert witnesses["lists of given"] is not None


@pytest.mark.parametrize("old", ["StringLike", "s3:prefix"])
def test_a_list_without_its_condition_is_found(old: str) -> None:
    account = TWINS.account
    new = "StringLikeIfExists" if old == "StringLike" else "s3:delimiter"
    broken = _broken(_who(account, "fraud", "train"), old, new)
    lists = next(border for border in borders(account, broken) if border.title == "lists of given")
    assert crossed(account, _who(account, "fraud", "train"), lists) is None
    assert crossed(account, broken, lists) is not None


def _damaged(random: Random, who: AccountIdentity) -> AccountIdentity:
    """Its policies with a slash, a condition or a statement gone, or a star for a word."""
    policies = {}
    for name, document in who.role.policies.items():
        statements = []
        for statement in document["Statement"]:
            damaged = dict(statement)
            fault = random.choice(["slash", "condition", "statement", "star", "effect", "none", "none"])
            if fault == "slash":
                damaged = _replaced(damaged, "/*", "*")
            elif fault == "condition":
                damaged.pop("Condition", None)
            elif fault == "star":
                damaged = _replaced(damaged, "teams/", "*/")
            elif fault == "effect" and random.random() < 0.3:
                damaged["Effect"] = "Deny"
            if fault != "statement":
                statements.append(damaged)
        policies[name] = {"Version": "2012-10-17", "Statement": statements}
    return replace(who, role=replace(who.role, policies=policies))


@pytest.mark.exhaustive(reason="many damaged policies; `make test` has the tenants' own and the faults of the prover")
def test_prover_and_evaluator_agree_on_damaged_policies() -> None:
    """The evaluator allows each witness of the prover; where there is none, it allows none of many requests."""
    random, reached, excluded = Random(7), 0, 0
    for seed in range(1, 22, 3):
        account = world(seed).account
        for sound in account.identities:
            if sound.tenant == PLATFORM or sound.namespace == PIPELINE:
                continue
            who = _damaged(random, sound)
            for border in borders(account, who):
                if not border.title.startswith(("objects", "lists")):
                    continue
                decide = evaluator.compile(account.policies(who, border.thing))
                witness = crossed(account, who, border)
                if witness:
                    assert decide(witness.request).allowed, str(witness)
                    reached += 1
                    continue
                for _ in range(8):
                    aws_request = _within(random, border, who.principal)
                    assert not decide(aws_request).allowed, aws_request
                    excluded += 1
    assert reached > 10
    assert excluded > 200


def _within(random: Random, border: Border, who: Principal) -> requests.AwsRequest:
    """A request of the border's language."""
    region = border.region
    resource = random.choice(region.resources).replace("*", random.choice(["", "x", "a/b"]))
    actions = ["s3:ListBucket", "s3:ListBucketVersions"] if region.keys else ["s3:GetObject", "s3:PutObject"]
    context: dict[str, Any] = {"aws:SecureTransport": "true", "aws:VpceAccount": ACCOUNT}
    if region.keys and (prefix := random.choice(region.keys["s3:prefix"])) is not None:
        context["s3:prefix"] = prefix.replace("*", random.choice(["", "x"]))
    return request(who, random.choice(actions), resource, context, resource_account=ACCOUNT)


# Who becomes a tenant's role


PODS = service("pods.eks.amazonaws.com")
CLUSTER_ARN = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}"
FILES = (
    tenant_file(
        "fraud",
        namespaces=[{"name": "train"}, {"name": "serve"}],
        storage=[
            {"bucket": "plain", "prefix": "fraud--train/", "access": "read-write", "namespaces": ["train"]},
            {"bucket": "plain", "prefix": "reference/"},
        ],
        ci={"github": "bank/fraud-models", "branch": "main"},
    ),
    tenant_file(
        "fraud-2",
        namespaces=[{"name": "train"}],
        storage=[{"bucket": "plain", "prefix": "fraud-2--train/", "access": "read-write"}],
        ci={"gitlab": "bank/risk/fraud-2", "branch": "main"},
    ),
)
FORMS = {form: World(FILES, form) for form in ("pod-identity", "irsa", "shared")}


def _assume_role(
    role: TenantRolePlan, who: Principal, context: Mapping[str, Any], *actions: str, own_policies: Any = ()
) -> Decision:
    decide = evaluator.compile(Policies(identity=own_policies, resource=role.trust, guard=ResourceClass.TRUST))
    return all_of(decide, [request(who, f"sts:{action}", role.arn, context) for action in actions])


def _by_pods(role: TenantRolePlan, who: Principal, context: Mapping[str, Any], own_policies: Any = ()) -> Decision:
    """Pod Identity asks for both: the role, and tags on its session."""
    return _assume_role(role, who, context, "AssumeRole", "TagSession", own_policies=own_policies)


def _pod_context(namespace: str, account: str = "workload") -> dict[str, str]:
    """Context that EKS sends when a pod asks for its role."""
    return {
        "aws:SourceAccount": ACCOUNT,
        "aws:SourceArn": CLUSTER_ARN,
        "aws:RequestTag/eks-cluster-arn": CLUSTER_ARN,
        "aws:RequestTag/eks-cluster-name": CLUSTER,
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": account,
    }


def _association(random_world: World, namespace: str) -> tuple[TenantRolePlan, Association]:
    for who in random_world.account.identities:
        aws = next((plan.aws for plan in random_world.account.plan.tenants if plan.name == who.tenant), None)
        for association in aws.associations if aws else ():
            if association.namespace == namespace and association.role == who.role.arn:
                return who.role, association
    raise AssertionError(namespace)


OTHER_PODS = {
    "another namespace's namespace": {"aws:RequestTag/kubernetes-namespace": "fraud--serve"},
    "a tenant's that is called nearly the same": {"aws:RequestTag/kubernetes-namespace": "fraud-2--train"},
    "a namespace of no tenant": {"aws:RequestTag/kubernetes-namespace": "default"},
    "another service account": {"aws:RequestTag/kubernetes-service-account": "default"},
    "a service account in other case": {"aws:RequestTag/kubernetes-service-account": "Workload"},
    "another cluster, by its tag": {"aws:RequestTag/eks-cluster-arn": f"{CLUSTER_ARN}-2"},
    "another cluster, by the source": {"aws:SourceArn": f"{CLUSTER_ARN}-2"},
    "a cluster of that name elsewhere": {"aws:SourceArn": CLUSTER_ARN.replace(REGION, "eu-west-1")},
    "another account": {"aws:SourceAccount": worlds.OTHER_ACCOUNT},
}


@pytest.mark.parametrize("other_pods", OTHER_PODS)
def test_a_pod_of_another_place_does_not_become_a_tenants_role(other_pods: str) -> None:
    role, _ = _association(FORMS["pod-identity"], "fraud--train")
    assert _by_pods(role, PODS, _pod_context("fraud--train")).allowed
    assert str(_by_pods(role, PODS, {**_pod_context("fraud--train"), **OTHER_PODS[other_pods]})) == NO_POLICY


ASKED_FOR = [name for name in _pod_context("fraud--train") if name != "aws:RequestTag/eks-cluster-name"]


@pytest.mark.parametrize("missing", ASKED_FOR)
@pytest.mark.parametrize("form", ["pod-identity", "shared"])
def test_without_a_session_tag_or_a_source_there_is_no_role(form: str, missing: str) -> None:
    """So with `disableSessionTags` there is none either: all tags are missing then."""
    role, _ = _association(FORMS[form], "fraud--train")
    pod_context = _pod_context("fraud--train")
    assert _by_pods(role, PODS, pod_context).allowed
    assert (
        str(_by_pods(role, PODS, {name: value for name, value in pod_context.items() if name != missing})) == NO_POLICY
    )


@pytest.mark.parametrize("form", ["pod-identity", "shared"])
def test_an_association_that_sets_no_tags_gives_no_role_and_none_is_planned(form: str) -> None:
    form_world = FORMS[form]
    role, association = _association(form_world, "fraud--train")
    untagged = {name: value for name, value in _pod_context("fraud--train").items() if "RequestTag" not in name}
    assert str(_by_pods(role, PODS, untagged)) == NO_POLICY
    assert association.disable_session_tags is False


ANYTHING = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
PEOPLE = {
    "an administrator": role_session(f"arn:aws:iam::{ACCOUNT}:role/admin"),
    "the platform's own role": role_session(worlds.PLATFORM_ROLE),
    "a user": user(f"arn:aws:iam::{ACCOUNT}:user/admin"),
    "another account's administrator": role_session(f"arn:aws:iam::{worlds.OTHER_ACCOUNT}:role/admin"),
    "a neighbour's pods": role_session(f"arn:aws:iam::{ACCOUNT}:role/tenancy/bank/fraud-2/{CLUSTER}--fraud-2--train"),
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("form", FORMS)
def test_only_pods_and_pipelines_assume_a_tenants_role(form: str, who: str) -> None:
    """Though their own policies allow everything: a trusted principal can set tags, and only these are trusted."""
    for identity in FORMS[form].account.identities:
        if identity.tenant != PLATFORM:
            decision = _by_pods(identity.role, PEOPLE[who], _pod_context("fraud--train"), own_policies=[ANYTHING])
            assert str(decision) == NO_POLICY, str(identity)


@pytest.mark.parametrize("name", ["eks.amazonaws.com", "ec2.amazonaws.com", "lambda.amazonaws.com"])
def test_no_other_service_becomes_a_tenants_role(name: str) -> None:
    role, _ = _association(FORMS["pod-identity"], "fraud--train")
    assert str(_by_pods(role, service(name), _pod_context("fraud--train"))) == NO_POLICY


def test_a_shared_role_is_taken_by_namespaces_of_tenants_alone_and_each_sees_its_own_prefix() -> None:
    shared_world = FORMS["shared"]
    role, _ = _association(shared_world, "fraud--train")
    assert _by_pods(role, PODS, _pod_context("fraud--train")).allowed
    for namespace in ("default", "kube-system", "fraud"):
        assert str(_by_pods(role, PODS, _pod_context(namespace))) == NO_POLICY, namespace
    assert str(_by_pods(role, PODS, _pod_context("fraud--train", "default"))) == NO_POLICY
    account = shared_world.account
    fraud, twin = _who(account, "fraud", "train"), _who(account, "fraud-2", "train")
    for who, own_namespace, foreign_namespace in (
        (fraud, "fraud--train", "fraud-2--train"),
        (twin, "fraud-2--train", "fraud--train"),
    ):
        assert account.ask(who, "s3:GetObject", f"arn:aws:s3:::plain/{own_namespace}/x").allowed
        assert not account.ask(who, "s3:GetObject", f"arn:aws:s3:::plain/{foreign_namespace}/x").allowed


def test_a_shared_role_without_its_tags_reaches_no_prefix_of_a_part() -> None:
    """As if the trust had let it: a variable without a value matches nothing."""
    shared_world = FORMS["shared"]
    account = shared_world.account
    who = _who(account, "fraud", "train")
    bare = replace(who, principal=role_session(who.role.arn, organisation=worlds.ORGANISATION))
    assert account.ask(who, "s3:GetObject", "arn:aws:s3:::plain/fraud--train/x").allowed
    for text in ("fraud--train/x", "/x", "${aws:PrincipalTag/kubernetes-namespace}/x", "x"):
        assert not account.ask(bare, "s3:GetObject", f"arn:aws:s3:::plain/{text}").allowed, text
    assert account.ask(bare, "s3:GetObject", "arn:aws:s3:::plain/reference/x").allowed, "what all of them read"


# By token


EKS = federated(f"arn:aws:iam::{ACCOUNT}:oidc-provider/{worlds.ISSUER}")


def _claims(issuer: str, **claims: str) -> dict[str, str]:
    return {f"{issuer}:{name}": value for name, value in claims.items()}


POD = {"sub": "system:serviceaccount:fraud--train:workload", "aud": "sts.amazonaws.com"}
OTHER_TOKENS = {
    "another namespace": {"sub": "system:serviceaccount:fraud--serve:workload"},
    "a tenant that is called nearly the same": {"sub": "system:serviceaccount:fraud-2--train:workload"},
    "another service account": {"sub": "system:serviceaccount:fraud--train:default"},
    "a service account that begins alike": {"sub": "system:serviceaccount:fraud--train:workload-2"},
    "a namespace that ends alike": {"sub": "system:serviceaccount:x-fraud--train:workload"},
    "a wildcard as text": {"sub": "system:serviceaccount:fraud--train:*"},
    "the API server's audience": {"aud": "https://kubernetes.default.svc"},
    "no audience of this kind": {"aud": ""},
}


def _irsa() -> TenantRolePlan:
    return _who(FORMS["irsa"].account, "fraud", "train").role


def _by_token(role: TenantRolePlan, who: Principal, claims: Mapping[str, str]) -> Decision:
    return _assume_role(role, who, claims, "AssumeRoleWithWebIdentity")


@pytest.mark.parametrize("other_token", OTHER_TOKENS)
def test_a_token_of_another_service_account_does_not_become_a_tenants_role(other_token: str) -> None:
    role = _irsa()
    assert _by_token(role, EKS, _claims(worlds.ISSUER, **POD)).allowed
    assert str(_by_token(role, EKS, _claims(worlds.ISSUER, **{**POD, **OTHER_TOKENS[other_token]}))) == NO_POLICY


@pytest.mark.parametrize("missing", POD)
def test_a_token_without_a_claim_does_not_become_a_tenants_role(missing: str) -> None:
    claims = {name: value for name, value in POD.items() if name != missing}
    assert str(_by_token(_irsa(), EKS, _claims(worlds.ISSUER, **claims))) == NO_POLICY


def test_the_same_token_of_another_cluster_does_not_become_a_tenants_role() -> None:
    other_issuer = worlds.ISSUER[:-1] + "A"
    provider = federated(f"arn:aws:iam::{ACCOUNT}:oidc-provider/{other_issuer}")
    assert str(_by_token(_irsa(), provider, _claims(other_issuer, **POD))) == NO_POLICY
    assert str(_by_token(_irsa(), provider, _claims(worlds.ISSUER, **POD))) == NO_POLICY
    elsewhere = federated(EKS.arn.replace(ACCOUNT, worlds.OTHER_ACCOUNT))
    assert str(_by_token(_irsa(), elsewhere, _claims(worlds.ISSUER, **POD))) == NO_POLICY


# Pipelines


GITHUB, GITLAB = "token.actions.githubusercontent.com", "gitlab.com"
MAIN = {"sub": "repo:bank/fraud-models:ref:refs/heads/main", "aud": "sts.amazonaws.com"}
OTHER_RUNS = {
    "another branch": {"sub": "repo:bank/fraud-models:ref:refs/heads/dev"},
    "a branch that begins alike": {"sub": "repo:bank/fraud-models:ref:refs/heads/main-2"},
    "a tag called like the branch": {"sub": "repo:bank/fraud-models:ref:refs/tags/main"},
    "a pull request, from a fork for one": {"sub": "repo:bank/fraud-models:pull_request"},
    "an environment": {"sub": "repo:bank/fraud-models:environment:main"},
    "a fork": {"sub": "repo:mallory/fraud-models:ref:refs/heads/main"},
    "a repository that begins alike": {"sub": "repo:bank/fraud-models-2:ref:refs/heads/main"},
    "an owner that ends alike": {"sub": "repo:x-bank/fraud-models:ref:refs/heads/main"},
    "another case": {"sub": "repo:Bank/fraud-models:ref:refs/heads/main"},
    "another audience": {"aud": "https://github.com/bank"},
}


def _forge(issuer: str) -> Principal:
    return federated(f"arn:aws:iam::{ACCOUNT}:oidc-provider/{issuer}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other_run", OTHER_RUNS)
def test_only_the_one_repository_and_branch_becomes_the_pipelines_role(other_run: str, form: str) -> None:
    role = _who(FORMS[form].account, "fraud", PIPELINE).role
    assert _by_token(role, _forge(GITHUB), _claims(GITHUB, **MAIN)).allowed
    assert str(_by_token(role, _forge(GITHUB), _claims(GITHUB, **{**MAIN, **OTHER_RUNS[other_run]}))) == NO_POLICY


@pytest.mark.parametrize(
    ("sub", "allowed"),
    [
        ("project_path:bank/risk/fraud-2:ref_type:branch:ref:main", True),
        ("project_path:bank/risk/fraud-2:ref_type:tag:ref:main", False),
        ("project_path:bank/risk/fraud-2:ref_type:branch:ref:main2", False),
        ("project_path:bank/risk/fraud:ref_type:branch:ref:main", False),
        ("project_path:mallory/bank/risk/fraud-2:ref_type:branch:ref:main", False),
    ],
)
def test_on_gitlab_too(sub: str, allowed: bool) -> None:
    role = _who(FORMS["pod-identity"].account, "fraud-2", PIPELINE).role
    claims = {"sub": sub, "aud": "sts.amazonaws.com"}
    assert _by_token(role, _forge(GITLAB), _claims(GITLAB, **claims)).allowed == allowed


def test_a_pipelines_token_of_another_forge_is_not_taken() -> None:
    role = _who(FORMS["pod-identity"].account, "fraud", PIPELINE).role
    assert str(_by_token(role, _forge(GITLAB), _claims(GITLAB, **MAIN))) == NO_POLICY
    assert str(_by_token(role, _forge(GITLAB), _claims(GITHUB, **MAIN))) == NO_POLICY


def test_a_pipeline_does_not_become_the_role_of_pods() -> None:
    for form in ("pod-identity", "irsa"):
        role = _who(FORMS[form].account, "fraud", "train").role
        assert str(_by_token(role, _forge(GITHUB), _claims(GITHUB, **MAIN))) == NO_POLICY


# The way in for an emergency


MFA = {
    "aws:MultiFactorAuthPresent": "true",
    "aws:MultiFactorAuthAge": "60",
    "aws:RequestedRegion": REGION,
}
"""Context keys of a session with a second factor, as strings, like AWS sends them."""
OTHER_SESSIONS = {
    "no second factor": {"aws:MultiFactorAuthPresent": "false"},
    "one of long ago": {"aws:MultiFactorAuthAge": "901"},
    "through another region, which has no alarm": {"aws:RequestedRegion": "us-east-1"},
}


def _in_emergency(who: str, context: Mapping[str, str]) -> bool:
    role = _who(FORMS["pod-identity"].account, PLATFORM, "break-glass").role
    return _assume_role(
        role, user(f"arn:aws:iam::{ACCOUNT}:user/{who}"), context, "AssumeRole", own_policies=[ANYTHING]
    ).allowed


@pytest.mark.parametrize("other_session", OTHER_SESSIONS)
def test_break_glass_is_for_who_showed_a_second_factor_just_now(other_session: str) -> None:
    assert _in_emergency("emergency", MFA)
    assert not _in_emergency("emergency", {**MFA, **OTHER_SESSIONS[other_session]})


@pytest.mark.parametrize("missing", MFA)
def test_break_glass_is_refused_when_less_is_known(missing: str) -> None:
    assert not _in_emergency("emergency", {name: value for name, value in MFA.items() if name != missing})


def test_break_glass_is_for_who_is_named() -> None:
    assert not _in_emergency("admin", MFA)
