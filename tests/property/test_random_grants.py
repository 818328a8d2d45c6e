"""Random tenants with names and prefixes that are made to be confused: no tenant reaches a neighbour's data, and each
reaches what its file grants. What is granted comes from the files, what is allowed from the plan's documents."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from tenancy.iam.account import PIPELINE, PLATFORM, AccountIdentity, AccountModel, AwsTarget, Step, key_arn
from tenancy.iam.evaluator import Decide, compile
from tenancy.iam.requests import request
from tests.conftest import examples
from tests.iam import worlds
from tests.iam.worlds import Call, World, grants_of, owned, promised, use_promised, world

WORLDS = 60
CALLS = 1700
SAMPLED_SEEDS = range(0, WORLDS, 10)
"""Enough for what is tried on all of a world; of every form of identity as many."""
LEAST = 100_000
"""Calls that are judged; each is one to three requests."""

OBJECT_ACTIONS = [
    *("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:GetObjectVersion", "s3:AbortMultipartUpload"),
    *("s3:ListMultipartUploadParts", "s3:DeleteObjectVersion", "s3:PutObjectAcl", "s3:GetObjectAcl"),
    *("s3:PutObjectTagging", "s3:RestoreObject", "s3:PutObjectRetention", "s3:BypassGovernanceRetention"),
    *("s3:GetObjectTagging", "S3:getobject"),
]
BUCKET_ACTIONS = [
    *("s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads", "s3:PutBucketPolicy"),
    *("s3:GetBucketPolicy", "s3:DeleteBucket", "s3:DeleteBucketPolicy", "s3:PutLifecycleConfiguration"),
    *("s3:PutEncryptionConfiguration", "s3:PutReplicationConfiguration", "s3:GetBucketAcl"),
]
ENCRYPTION = "s3:x-amz-server-side-encryption"
CONTEXTS: list[dict[str, Any]] = [
    *({}, {}, {}),
    {"s3:if-none-match": "*", "s3:ObjectCreationOperation": "true"},
    {"s3:ObjectCreationOperation": "true"},
    {"s3:ObjectCreationOperation": "false"},
    {ENCRYPTION: "AES256"},
    {ENCRYPTION: "aws:kms"},
    {f"{ENCRYPTION}-customer-algorithm": "AES256"},
    {"s3:x-amz-copy-source": "plain/teams/fraud/x"},
]


class Contradiction(NamedTuple):
    """A difference, with everything that repeats it."""

    seed: int
    who: str
    call: Any
    promised: bool
    answer: tuple[str, ...]


def _texts(random_world: World, bucket: str) -> list[str]:
    """Keys and prefixes inside, around, beside and nearly in what any tenant holds."""
    texts = {"", "x", "teams/", "teams", "reference", "."}
    prefixes = {
        grant["prefix"] for file in random_world.files for grant in file["storage"] if grant["bucket"] == bucket
    }
    prefixes |= {grant["prefix"] for file in random_world.files for grant in file["storage"][:1]}
    for prefix in prefixes:
        bare = prefix[:-1]
        texts |= {prefix, bare, f"{prefix}x", f"{prefix}a/b", f"{bare}-2/x", f"{bare}2", prefix.upper(), f"/{prefix}x"}
        texts |= {
            prefix[: len(prefix) // 2],
            prefix.partition("/")[0] + "/",
            f"x/{prefix}x",
            f"{bare}/../x",
            f"{bare}*",
        }
    return sorted(texts)


def _calls(random: Random, random_world: World, count: int) -> Iterator[tuple[AccountIdentity, Call]]:
    """Half of them anywhere, half of them in what is granted to who calls."""
    callers = [identity for identity in random_world.account.identities if identity.tenant != PLATFORM]
    texts = {bucket: _texts(random_world, bucket) for bucket in random_world.buckets}
    for _ in range(count):
        who = random.choice(callers)
        own_grants = grants_of(random_world.file(who.tenant), who.namespace) if who.namespace != PIPELINE else []
        grant = random.choice(own_grants) if own_grants and random.random() < 0.5 else None
        bucket = grant["bucket"] if grant else random.choice(list(random_world.buckets))
        text = f"{grant['prefix']}{random.choice(['', 'x', 'a/b', '../x'])}" if grant else random.choice(texts[bucket])
        secure, inside = random.random() < 0.95, random.random() < 0.95
        if random.random() < 0.35:
            context = {} if random.random() < 0.1 else {"s3:prefix": text}
            context |= {"s3:delimiter": "/"} if random.random() < 0.3 else {}
            call = Call(random.choice(BUCKET_ACTIONS[:2] * 5 + BUCKET_ACTIONS), bucket, None, context, secure, inside)
        else:
            action = random.choice(OBJECT_ACTIONS[:5] * 5 + OBJECT_ACTIONS)
            call = Call(action, bucket, text or "x", random.choice(CONTEXTS), secure, inside)
        yield who, call


def _answer_of(random_world: World, who: AccountIdentity, call: Call) -> tuple[bool, tuple[str, ...]]:
    resource = f"arn:aws:s3:::{call.bucket}{'' if call.key is None else '/' + call.key}"
    context = {"aws:SecureTransport": str(call.secure).lower(), **call.context}
    context |= {"aws:VpceAccount": worlds.ACCOUNT} if call.inside else {}
    answer = random_world.account.ask(who, call.action, resource, context)
    return answer.allowed, tuple(answer.reasons())


def _expected(random_world: World, who: AccountIdentity, call: Call) -> bool:
    usual = call._replace(action="s3:GetObject") if call.action == "S3:getobject" else call
    return promised(random_world.file(who.tenant), who.namespace, usual)


@pytest.fixture(scope="module")
def judged() -> Counter[str]:
    return Counter()


def test_a_role_may_what_its_tenants_file_promises_and_nothing_else(judged: Counter[str]) -> None:
    wrong: list[Contradiction] = []
    for seed in range(examples(WORLDS)):
        random_world, random = world(seed), Random(seed)
        for who, call in _calls(random, random_world, CALLS):
            expected = _expected(random_world, who, call)
            allowed, reasons = _answer_of(random_world, who, call)
            judged["calls"] += 1
            judged[f"allowed {random_world.identity}"] += allowed
            if allowed != expected:
                wrong.append(Contradiction(seed, str(who), call, expected, reasons))
    assert not wrong, f"{len(wrong)} of {judged['calls']}: {wrong[:5]}"
    assert judged["calls"] >= examples(LEAST)
    for identity in ("pod-identity", "irsa", "shared"):
        allowed_calls = judged[f"allowed {identity}"]
        assert allowed_calls > examples(1000), "a test in which no identity is allowed anything shows nothing"


def test_every_grant_of_a_file_works_for_every_namespace_that_has_it() -> None:
    """All of them, not a sample: on its first object, and on one far below."""
    count = 0
    for seed in SAMPLED_SEEDS:
        random_world = world(seed)
        for who in random_world.account.identities:
            if who.tenant == PLATFORM or who.namespace == PIPELINE:
                continue
            for grant in grants_of(random_world.file(who.tenant), who.namespace):
                for call in _granted(grant):
                    if promised(random_world.file(who.tenant), who.namespace, call):
                        allowed, reasons = _answer_of(random_world, who, call)
                        assert allowed, Contradiction(seed, str(who), call, True, reasons)
                        count += 1
    assert count > 1000


def _granted(grant: Any) -> Iterator[Call]:
    new = {"s3:if-none-match": "*", "s3:ObjectCreationOperation": "true"}
    for text in (grant["prefix"], f"{grant['prefix']}a", f"{grant['prefix']}a/b/c"):
        for action in OBJECT_ACTIONS:
            for context in ({}, new, {"s3:ObjectCreationOperation": "false"}):
                yield Call(action, grant["bucket"], text, context)
        for action in BUCKET_ACTIONS:
            yield Call(action, grant["bucket"], None, {"s3:prefix": text})


ANYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def test_a_role_with_widened_policies_still_reaches_no_neighbour() -> None:
    """The second lock alone: policies of buckets. Where tenants come through access points it is each its own point's,
    which knows nothing of prefixes that are not its tenant's: there the roles' own policies are the one lock."""
    count = 0
    for seed in SAMPLED_SEEDS:
        random_world = world(seed)
        account = random_world.account
        for who in account.identities:
            if who.tenant == PLATFORM or random_world.identity == "shared":
                continue  # a shared role is one principal to a bucket
            for file in random_world.files:
                for grant in file["storage"]:
                    bucket, text = grant["bucket"], f"{grant['prefix']}x"
                    own_grants = [g for g in random_world.file(who.tenant)["storage"] if g["bucket"] == bucket]
                    if worlds.BUCKETS[bucket].get("existing") or any(
                        worlds.overlap(g["prefix"], text) for g in own_grants
                    ):
                        continue
                    if worlds.BUCKETS[bucket].get("access-points"):
                        continue
                    for action in OBJECT_ACTIONS:
                        step = _step(random_world, who, action, f"arn:aws:s3:::{bucket}/{text}", account.ambient)
                        assert not _widened(random_world, who, step), (seed, str(who), action, text)
                        count += 1
                    for context in ({"s3:prefix": grant["prefix"]}, {"s3:prefix": ""}, {}):
                        step = _step(
                            random_world, who, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {**account.ambient, **context}
                        )
                        assert not _widened(random_world, who, step), (seed, str(who), context)
                        count += 1
    assert count > 1000


def _step(random_world: World, who: AccountIdentity, action: str, resource: str, context: Any) -> Step:
    aws_request = request(who.principal, action, resource, context, resource_account=worlds.ACCOUNT)
    return Step(random_world.account.thing(resource), aws_request)


def _widened(random_world: World, who: AccountIdentity, step: Step) -> bool:
    return _anything(random_world.account, who, step.target)(step.request).allowed


_READ: dict[tuple[int, str, str], Decide] = {}


def _anything(account: AccountModel, who: AccountIdentity, thing: AwsTarget) -> Decide:
    """Decisions on an identity whose own policies allow everything."""
    cache_key = (id(account), who.role.arn, thing.title)
    if cache_key not in _READ:
        _READ[cache_key] = compile(dataclasses.replace(account.policies(who, thing), identity=[ANYTHING]))
    return _READ[cache_key]


def test_no_tenant_bypasses_the_access_points_or_uses_a_neighbours() -> None:
    count = 0
    for seed in SAMPLED_SEEDS:
        random_world = world(seed)
        account, points = random_world.account, {}
        for tenant in account.plan.tenants:
            points |= {point.arn: tenant.name for point in (tenant.aws.access_points if tenant.aws else ())}
        for who in account.identities:
            if who.tenant == PLATFORM:
                continue
            for arn, owner in points.items():
                for grant in random_world.file(owner)["storage"]:
                    for action, path_below in (("s3:GetObject", f"/object/{grant['prefix']}x"), ("s3:ListBucket", "")):
                        step = _step(
                            random_world,
                            who,
                            action,
                            arn + path_below,
                            {**account.ambient, "s3:prefix": grant["prefix"]},
                        )
                        if who.tenant != owner:
                            assert not account.decide(who, step).allowed
                            assert not _widened(random_world, who, step), "the point's own policy"
                            count += 1
            for grant in random_world.file(who.tenant)["storage"]:
                if worlds.BUCKETS[grant["bucket"]].get("access-points"):
                    direct = f"arn:aws:s3:::{grant['bucket']}/{grant['prefix']}x"
                    step = _step(random_world, who, "s3:GetObject", direct, account.ambient)
                    assert str(account.decide(who, step)).endswith("resource policy OnlyThroughAccessPoints")
                    count += 1
    assert count > 100


def test_what_a_tenant_has_alone_is_used_by_its_own_namespaces_only() -> None:
    count, allowed_count = 0, 0
    for seed in SAMPLED_SEEDS:
        random_world = world(seed)
        account, owned_arns = random_world.account, {thing.arn for thing in owned(random_world.files)}
        for thing in owned(random_world.files):
            actions = (
                [*worlds.PULLS, *worlds.PUSHES, "ecr:BatchDeleteImage", "ecr:SetRepositoryPolicy"]
                if thing.kind == "repositories"
                else [*worlds.USES[thing.kind], *worlds.OTHERS[thing.kind]]
            )
            for who in account.identities:
                if who.tenant == PLATFORM:
                    continue
                for action in actions:
                    for near in {thing.arn, _neighbouring_arn(thing.arn)} - (owned_arns - {thing.arn}):
                        step = _step(random_world, who, action, near, account.ambient)
                        is_promised = near == thing.arn and use_promised(
                            random_world.file(who.tenant), who.namespace, action, thing
                        )
                        decision = account.decide(who, step)
                        assert decision.allowed == is_promised, (seed, str(who), action, near, str(decision))
                        count, allowed_count = count + 1, allowed_count + decision.allowed
    assert count > 5_000
    assert allowed_count > 100


def _neighbouring_arn(arn: str) -> str:
    """The name of something else that begins alike."""
    if ":secret:" in arn:
        return f"{arn[:-7]}-2{arn[-7:]}"
    return f"{arn.replace(':log-stream:pod', '')}-2{':log-stream:pod' if ':log-stream:' in arn else ''}"


def test_a_key_opens_for_whom_a_file_lets_into_its_bucket_and_through_s3_alone() -> None:
    count, allowed_count = 0, 0
    for seed in SAMPLED_SEEDS:
        random_world = world(seed)
        account = random_world.account
        aliases = [key.alias for key in (account.plan.platform.data.keys if account.plan.platform.data else ())]
        aliases += [key.alias for tenant in account.plan.tenants if tenant.aws for key in tenant.aws.keys]
        for who in account.identities:
            if who.tenant == PLATFORM:
                continue
            for alias in aliases:
                for bucket in random_world.buckets:
                    for action in ("kms:Decrypt", "kms:GenerateDataKey", "kms:CreateGrant", "kms:Encrypt"):
                        for via in ("s3", "secretsmanager"):
                            is_promised = _opens(random_world, who, alias, bucket, action) and via == "s3"
                            context = {
                                "kms:ViaService": f"{via}.{worlds.REGION}.amazonaws.com",
                                "kms:CallerAccount": worlds.ACCOUNT,
                                "kms:EncryptionContext:aws:s3:arn": f"arn:aws:s3:::{bucket}",
                                "kms:ResourceAliases": [alias],
                            }
                            aws_request = request(who.principal, action, key_arn(account.environment, alias), context)
                            decision = account.decide(who, Step(account._targets[alias], aws_request))
                            assert decision.allowed == is_promised, (
                                seed,
                                str(who),
                                alias,
                                bucket,
                                action,
                                str(decision),
                            )
                            count, allowed_count = count + 1, allowed_count + decision.allowed
    assert count > 5_000
    assert allowed_count > 50


def _opens(random_world: World, who: AccountIdentity, alias: str, bucket: str, action: str) -> bool:
    """By the files: the bucket's key for who has a grant in it; a tenant's own for what its parts write, and read."""
    kind, _, name = alias.removeprefix("alias/tenancy/bank/").partition("/")
    if action not in {"kms:Decrypt", "kms:GenerateDataKey"} or who.namespace == PIPELINE:
        return False
    file = random_world.file(who.tenant)
    own_grants = [grant for grant in grants_of(file, who.namespace) if grant["bucket"] == bucket]
    writes = any(grant["access"] != "read-only" for grant in own_grants)
    reads_only = any(grant["access"] == "read-only" for grant in own_grants)
    per_tenant = worlds.BUCKETS[bucket].get("kms-key-scope") == "tenant"
    if kind == "bucket":
        if name != bucket or not own_grants:
            return False
        return (reads_only and action == "kms:Decrypt") if per_tenant else (writes or action == "kms:Decrypt")
    if name != who.tenant or not per_tenant:
        return False
    writable_prefixes = [g["prefix"] for g in file["storage"] if g["bucket"] == bucket and g["access"] != "read-only"]
    reads_own = any(
        worlds.overlap(grant["prefix"], prefix)
        for grant in own_grants
        if grant["access"] == "read-only"
        for prefix in writable_prefixes
    )
    return writes or (reads_own and action == "kms:Decrypt")


ELSEWHERE = [
    *("sts:AssumeRole", "iam:PassRole", "iam:CreatePolicyVersion", "iam:AttachRolePolicy", "iam:PutRolePolicy"),
    *("ec2:RunInstances", "ec2:CreateTags", "eks:CreateAccessEntry", "eks:CreatePodIdentityAssociation"),
    *("organizations:LeaveOrganization", "kms:CreateGrant", "kms:PutKeyPolicy", "kms:CreateAlias", "s3:CreateBucket"),
    *("s3:CreateAccessPoint", "s3:PutAccessPointPolicy", "s3:PutAccountPublicAccessBlock", "logs:PutResourcePolicy"),
    *("eks-auth:AssumeRoleForPodIdentity", "ecr:CreateRepository", "secretsmanager:ListSecrets", "sqs:CreateQueue"),
    *("s3:ListAllMyBuckets", "ssm:StartSession", "lambda:CreateFunction", "sts:GetFederationToken"),
]


def test_no_tenant_may_anything_on_the_account_itself() -> None:
    count = 0
    for seed in SAMPLED_SEEDS:
        random_world = world(seed)
        account = random_world.account
        targets = [
            "*",
            *(who.role.arn for who in account.identities),
            f"arn:aws:s3:::{next(iter(random_world.buckets))}",
        ]
        for who in account.identities:
            if who.tenant == PLATFORM:
                continue
            for action in ELSEWHERE:
                for target in targets:
                    decision = account.decide(who, _step(random_world, who, action, target, account.ambient))
                    assert not decision.allowed, (seed, str(who), action, target, str(decision))
                    count += 1
            cluster = f"arn:aws:eks:{worlds.REGION}:{worlds.ACCOUNT}:cluster/{worlds.CLUSTER}"
            own_cluster = account.decide(who, _step(random_world, who, "eks:DescribeCluster", cluster, account.ambient))
            assert own_cluster.allowed == (who.namespace == PIPELINE)
            other_cluster = account.decide(
                who, _step(random_world, who, "eks:DescribeCluster", f"{cluster}-2", account.ambient)
            )
            assert not other_cluster.allowed
    assert count > 3_000
