"""Accounts with tenants whose names and prefixes are made to be confused, and what their files promise them.

`promised` reads the files' own words and nothing of the plan: it is the second opinion on what the plan makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from random import Random
from typing import Any, NamedTuple

from tenancy import planning
from tenancy.catalog.days import today
from tenancy.iam.account import PIPELINE, AccountModel
from tenancy.spec.checks.crossfile import check_between_tenants, check_with_environment
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

ACCOUNT, REGION, CLUSTER = "111122223333", "eu-central-1", "east"
OTHER_ACCOUNT = "444455556666"
ORGANISATION = "o-b4nkexampl3"
PLATFORM_ROLE = f"arn:aws:iam::{ACCOUNT}:role/platform"
ISSUER = f"oidc.eks.{REGION}.amazonaws.com/id/ABCDEF0123456789"
GIVEN_KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b2c3d-0000-0000-0000-000000000000"
POINT = f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:access-point/fsap-"

BUCKETS: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain-2": {"versioning": False},
    "locked": {"kms-key-scope": "tenant"},
    "crowd": {"access-points": True},
    "given": {"existing": True, "kms-key-arn": GIVEN_KEY},
    "bare": {"existing": True},
}
SHARED_BUCKETS = ("plain", "plain-2", "given", "bare")
NAMES = (
    *("fraud", "fraud-2", "fraud-20", "frau", "f", "a", "b", "a-b", "teams", "shared-2", "plain", "x" * 30),
    *("x" * 29, "x" * 29 + "y", "tenant", "s", "ci", "train"),
)
PARTS = ("train", "serve", "t", "train-2", "ci", "p" * 30)
WORDS = ("jobs", "jobs-2", "j", "card-network", "card")


def point(tenant: str) -> str:
    """The access point of its folder."""
    return f"{POINT}{sha256(tenant.encode()).hexdigest()[:16]}"


def environment(identity: str = "pod-identity", **aws: Any) -> Environment:
    buckets = {name: about for name, about in BUCKETS.items() if identity != "shared" or name in SHARED_BUCKETS}
    return Environment.model_validate(
        {
            "environment": "bank",
            "organisation": {"name": "bank", "departments": {"risk": {}}},
            "platform": {"group": "platform-team"},
            "cluster": {"name": CLUSTER, "context": CLUSTER},
            "images": {"registries": ["r/"], "sample": "r/s:1"},
            "tiers": {"gold": {"priority": 1}},
            "buckets": buckets,
            "efs-access-points": {point(name): {"tenant": name} for name in NAMES},
            "aws": {
                "enabled": True,
                "account": ACCOUNT,
                "region": REGION,
                "zones": [f"{REGION}a", f"{REGION}b"],
                "platform-role": PLATFORM_ROLE,
                "organization-id": ORGANISATION,
                "identity": identity,
                **({"irsa": True, "oidc-issuer": ISSUER} if identity == "irsa" else {}),
                "break-glass": {
                    "trusted-principals": [f"arn:aws:iam::{ACCOUNT}:user/emergency"],
                    "mail": "security@bank.example",
                },
                **aws,
            },
        }
    )


def tenant_file(name: str, **fields: Any) -> dict[str, Any]:
    owner = {"name": name, "mail": f"{name}@bank.example"}
    base = {"tenant": name, "team": "team", "owner": owner, "department": "risk", "cost-center": "C", "tier": "gold"}
    return {**base, **fields}


@dataclass(frozen=True)
class World:
    """Files, and the account that the plan makes of them."""

    files: tuple[Mapping[str, Any], ...]
    identity: str = "pod-identity"

    @cached_property
    def account(self) -> AccountModel:
        env = environment(self.identity)
        tenants = [Tenant.model_validate(file) for file in self.files]
        wrong = [*check_between_tenants(tenants), *check_with_environment(env, tenants, today())]
        assert not wrong, f"the files are refused: {wrong}"
        return AccountModel(env, tenants, planning.plan(env, tenants))

    def file(self, tenant: str) -> Mapping[str, Any]:
        return next(file for file in self.files if file["tenant"] == tenant)

    @property
    def buckets(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: BUCKETS[name] for name in self.account.environment.buckets}


# Random files


def overlap(prefix: str, other_prefix: str) -> bool:
    return prefix.startswith(other_prefix) or other_prefix.startswith(prefix)


def _prefixes(random: Random, name: str, parts: Sequence[str]) -> list[str]:
    part = random.choice(parts)
    return [
        f"teams/{name}/",
        f"{name}/",
        f"teams/{name}/{part}/",
        f"teams/{name}-2/",
        f"{name}--{part}/",
        f"{name}/{name}/",
        f"{name[0]}/{name}:1/",
        f"Teams/{name}/+=~'1/",
    ]


def world(seed: int) -> World:
    random = Random(seed)
    identity = ("pod-identity", "irsa", "shared")[seed % 3]
    names = random.sample(NAMES, random.randint(2, 5))
    files: list[dict[str, Any]] = []
    grants: list[tuple[str, dict[str, Any]]] = []
    for name in names:
        parts = random.sample(PARTS, random.randint(1, 3))
        storage = []
        for _ in range(random.randint(1, 5)):
            grant = _grant(random, identity, name, parts)
            if not any(_quarrel(name, parts, grant, other_name, their) for other_name, their in grants):
                grants.append((name, grant))
                storage.append(grant)
                others = [part for part in parts if part not in grant.get("namespaces", parts)]
                if others and identity != "shared" and random.random() < 0.5:  # what one part writes another reads
                    reader = {**grant, "access": "read-only", "namespaces": others[:1]}
                    if not any(_quarrel(name, parts, reader, other_name, their) for other_name, their in grants):
                        grants.append((name, reader))
                        storage.append(reader)
        files.append(
            tenant_file(
                name,
                namespaces=[{"name": part} for part in parts],
                storage=storage,
                **_optional_fields(random, identity, name, parts),
            )
        )
    return World(tuple(files), identity)


def _quarrel(
    name: str, parts: Sequence[str], grant: Mapping[str, Any], other_name: str, their: Mapping[str, Any]
) -> bool:
    """Grants that the files' rules do not let stand together."""
    if grant["bucket"] != their["bucket"] or not overlap(grant["prefix"], their["prefix"]):
        return False
    if name == other_name:
        return bool(set(grant.get("namespaces", parts)) & set(their.get("namespaces", parts)))
    return {grant["access"], their["access"]} != {"read-only"}


def _grant(random: Random, identity: str, name: str, parts: Sequence[str]) -> dict[str, Any]:
    is_shared = identity == "shared"
    bucket = random.choice([b for b in BUCKETS if not is_shared or b in SHARED_BUCKETS])
    access = random.choice(["read-only", "read-write", "append-only", "write-once"])
    if BUCKETS[bucket].get("versioning") is False and access in {"append-only", "write-once"}:
        access = "read-write"
    limited = random.sample(parts, random.randint(1, len(parts))) if random.random() < 0.6 else []
    prefix = random.choice(_prefixes(random, name, parts))
    if access == "read-only" and random.random() < 0.5:
        prefix = random.choice(["reference/", "reference/cards/", "reference-2/"])
    if is_shared and access != "read-only":
        limited = [random.choice(parts)]
        prefix = f"{name}--{limited[0]}/"
    return {"bucket": bucket, "prefix": prefix, "access": access, **({"namespaces": limited} if limited else {})}


def _optional_fields(random: Random, identity: str, name: str, parts: Sequence[str]) -> dict[str, Any]:
    def random_entries() -> dict[str, Any]:
        chosen_words = random.sample(WORDS, random.randint(0, 2))
        return {word: {"namespaces": random.sample(parts, 1)} if random.random() < 0.5 else {} for word in chosen_words}

    uses: dict[str, Any] = {"repositories": random.sample(WORDS, random.randint(0, 2))}
    if identity != "shared":
        uses |= {"secrets": random_entries(), "log-groups": random_entries(), "sqs-queues": random_entries()}
        if random.random() < 0.3:
            files = {"access-point": point(name), "file-system": "fs-0123abcd"}
            uses["efs-access-points"] = [{**files, "access": random.choice(["read-only", "read-write"])}]
    ci = {"ci": {"github": f"bank/{name}", "branch": "main"}} if random.random() < 0.7 else {}
    return {"aws-resources": uses, **ci}


# What the files promise


def grants_of(file: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    return [grant for grant in file.get("storage", ()) if part in (grant.get("namespaces") or [part])]


def is_part(file: Mapping[str, Any], part: str) -> bool:
    return part in {namespace["name"] for namespace in file["namespaces"]}


READS = {"s3:GetObject"}
WRITER_READS = {"s3:GetObjectVersion"}
UPLOADS = {"s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"}


class Call(NamedTuple):
    """A request on a bucket: on an object's key, or with a prefix on the bucket."""

    action: str
    bucket: str
    key: str | None
    """None: the bucket itself."""
    context: Mapping[str, Any]
    """Beside what every request has."""
    secure: bool = True
    inside: bool = True


def promised(file: Mapping[str, Any], part: str, call: Call) -> bool:
    """Does the tenant's file say that pods of the namespace may?"""
    bucket = BUCKETS[call.bucket]
    if not bucket.get("existing") and not (call.secure and call.inside):
        return False
    grants = [grant for grant in grants_of(file, part) if grant["bucket"] == call.bucket] if is_part(file, part) else []
    return any(_by_grant(grant, bucket, call) for grant in grants)


def _by_grant(grant: Mapping[str, Any], bucket: Mapping[str, Any], call: Call) -> bool:
    access, prefix = grant["access"], grant["prefix"]
    versioned = bucket.get("versioning", True)
    if call.key is None:
        prefix_key = call.context.get("s3:prefix")
        if prefix_key is None or not prefix_key.startswith(prefix):
            return False
        return call.action == "s3:ListBucket" or (
            call.action == "s3:ListBucketVersions" and versioned and access != "read-only"
        )
    if not call.key.startswith(prefix):
        return False
    if call.action in READS:
        return True
    if access == "read-only":
        return False
    if call.action in WRITER_READS:
        return versioned
    if call.action in UPLOADS:
        return True
    if call.action == "s3:DeleteObject":
        return access == "read-write"
    if call.action != "s3:PutObject":
        return False
    encryption = call.context.get("s3:x-amz-server-side-encryption")
    by_client = "s3:x-amz-server-side-encryption-customer-algorithm" in call.context
    if not bucket.get("existing") and (encryption not in {None, "aws:kms"} or by_client):
        return False
    new = "s3:if-none-match" in call.context or call.context.get("s3:ObjectCreationOperation") == "false"
    return access != "write-once" or new


SECRET_READS = ("secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret")
LOG_WRITES = ("logs:CreateLogStream", "logs:PutLogEvents")
QUEUE_USES = (
    *("sqs:SendMessage", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"),
    *("sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
)
PULLS = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer", "ecr:BatchCheckLayerAvailability")
PUSHES = ("ecr:PutImage", "ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload")
USES = {"secrets": SECRET_READS, "log-groups": LOG_WRITES, "sqs-queues": QUEUE_USES}
OTHERS = {
    "secrets": ("secretsmanager:PutSecretValue", "secretsmanager:DeleteSecret", "secretsmanager:PutResourcePolicy"),
    "log-groups": ("logs:GetLogEvents", "logs:DeleteLogGroup", "logs:DescribeLogStreams"),
    "sqs-queues": ("sqs:PurgeQueue", "sqs:DeleteQueue", "sqs:SetQueueAttributes"),
}


class Owned(NamedTuple):
    """Something that one tenant alone has."""

    kind: str
    tenant: str
    name: str
    arn: str


def owned(files: Sequence[Mapping[str, Any]]) -> Iterator[Owned]:
    def arn(service: str, resource: str) -> str:
        return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"

    for file in files:
        who, uses = file["tenant"], file.get("aws-resources", {})
        for name in uses.get("secrets", ()):
            yield Owned("secrets", who, name, arn("secretsmanager", f"secret:tenancy/bank/{who}/{name}-AbC123"))
        for name in uses.get("log-groups", ()):
            yield Owned("log-groups", who, name, arn("logs", f"log-group:/tenancy/bank/{who}/{name}:log-stream:pod"))
        for name in uses.get("sqs-queues", ()):
            yield Owned("sqs-queues", who, name, arn("sqs", f"{CLUSTER}--{who}--{name}"))
        for name in uses.get("repositories", ()):
            yield Owned("repositories", who, name, arn("ecr", f"repository/bank/{who}/{name}"))


def use_promised(file: Mapping[str, Any], part: str, action: str, thing: Owned) -> bool:
    if file["tenant"] != thing.tenant:
        return False
    if thing.kind == "repositories":
        return part == PIPELINE and action in (*PULLS, *PUSHES)
    use = file["aws-resources"][thing.kind][thing.name]
    return is_part(file, part) and part in (use.get("namespaces") or [part]) and action in USES[thing.kind]
