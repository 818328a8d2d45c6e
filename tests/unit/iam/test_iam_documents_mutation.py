"""Every statement and every condition of the documents that the plan makes has a named case that notices its loss.

A case stands for one lock alone: of a role's policy without the bucket's, of a bucket's with roles that may everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tenancy.iam import evaluator
from tenancy.iam.account import PIPELINE, PLATFORM, AccountIdentity, AccountModel, key_arn
from tenancy.iam.evaluator import Policies
from tenancy.iam.requests import Principal, ResourceClass, federated, request, role_session, service, user
from tenancy.planning import make_plan
from tenancy.planning.common import names
from tenancy.spec.loader import load
from tests.iam import worlds
from tests.iam.worlds import ACCOUNT, CLUSTER, REGION, World, tenant_file, world

BANK = Path(__file__).parents[3] / "stacks" / "bank"
Document = Mapping[str, Any]
ANYTHING = {"Sid": "Anything", "Effect": "Allow", "Action": "*", "Resource": "*"}

FRAUD = tenant_file(
    "fraud",
    namespaces=[{"name": "train"}, {"name": "serve"}],
    storage=[
        {"bucket": "plain", "prefix": "teams/fraud/", "access": "read-write", "namespaces": ["train"]},
        {"bucket": "plain", "prefix": "models/fraud/", "access": "write-once", "namespaces": ["train"]},
        {"bucket": "plain", "prefix": "logs/fraud/", "access": "append-only", "namespaces": ["train"]},
        {"bucket": "plain", "prefix": "reference/"},
        {"bucket": "locked", "prefix": "fraud/", "access": "read-write", "namespaces": ["train"]},
        {"bucket": "crowd", "prefix": "fraud/", "access": "read-write", "namespaces": ["train"]},
        {"bucket": "crowd", "prefix": "scores/", "access": "read-write", "namespaces": ["serve"]},
        {"bucket": "given", "prefix": "fraud/", "access": "read-write", "namespaces": ["train"]},
        {"bucket": "given", "prefix": "reference/", "namespaces": ["serve"]},
    ],
    aws_resources={
        "repositories": ["scoring"],
        "secrets": ["card"],
        "log-groups": ["jobs"],
        "sqs-queues": ["jobs"],
        "efs-access-points": [
            {"access-point": worlds.point("fraud"), "file-system": "fs-0123abcd", "access": "read-write"}
        ],
    },
    ci={"github": "bank/fraud", "branch": "main"},
)
NLP = tenant_file(
    "nlp",
    namespaces=[{"name": "train"}],
    storage=[
        {"bucket": "plain", "prefix": "teams/nlp/", "access": "read-write"},
        {"bucket": "crowd", "prefix": "nlp/", "access": "read-write"},
    ],
)
ITS_OWN = tenant_file(
    "fraud",
    namespaces=[{"name": "train"}],
    storage=[{"bucket": "plain", "prefix": "fraud--train/", "access": "read-write"}],
)
WORLDS = {
    "pod-identity": World((FRAUD, NLP)),
    "irsa": World((FRAUD, NLP), "irsa"),
    "shared": World((ITS_OWN,), "shared"),
}


def _role(form: str, tenant: str, part: str) -> AccountIdentity:
    return next(
        identity
        for identity in WORLDS[form].account.identities
        if (identity.tenant, identity.namespace) == (tenant, part)
    )


# Documents


@dataclass(frozen=True)
class PlannedDocument:
    """A document of the plan's."""

    kind: str
    name: str
    document: Document


def _documents(account: AccountModel, form: str) -> Iterator[PlannedDocument]:
    data = account.plan.platform.data
    assert data is not None
    for who in account.identities:
        pods = "shared" if form == "shared" else "token" if form == "irsa" else "pods"
        trust = "emergency" if who.tenant == PLATFORM else "token" if who.namespace == PIPELINE else pods
        yield PlannedDocument(f"trust of {trust}", f"{who} trust", who.role.trust)
        for name, document in who.role.policies.items():
            yield PlannedDocument("emergency" if who.tenant == PLATFORM else "role", f"{who} {name}", document)
    if data.boundary:
        yield PlannedDocument("boundary", "boundary", data.boundary.document)
    for bucket in data.buckets:
        yield PlannedDocument("bucket", bucket.name, bucket.policy)
    for key in data.keys:
        yield PlannedDocument("key", key.alias, key.policy)
    if data.break_glass:
        yield PlannedDocument("topic", "topic", data.break_glass.alarm.topic_policy)
    for tenant in account.plan.tenants:
        if tenant.aws is None:
            continue
        for key in tenant.aws.keys:
            yield PlannedDocument("key", key.alias, key.policy)
        for point in tenant.aws.access_points:
            yield PlannedDocument("bucket", f"{tenant.name} {point.bucket} point", point.policy)
        for resource in tenant.aws.owned:
            if resource.policy:
                yield PlannedDocument(resource.noun, resource.name, account.thing(resource.arn).policy or {})


def _ecr(name: str) -> str:
    return f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{name}"


def _parts(planned: PlannedDocument) -> Iterator[tuple[str, str]]:
    """Statements and conditions: a Sid, and an operator with its key; of a whole statement no such."""
    for at, statement in enumerate(planned.document["Statement"]):
        label = statement.get("Sid", f"[{at}]")
        yield label, ""
        for operator, keys in statement.get("Condition", {}).items():
            for key in keys:
                yield label, f"{operator} {key}"


def _without_part(document: Document, label: str, part: str) -> Document:
    """The document without the statement, or without one key of its condition."""
    statements = []
    for at, statement in enumerate(document["Statement"]):
        if statement.get("Sid", f"[{at}]") != label:
            statements.append(statement)
        elif part:
            operator, _, key = part.partition(" ")
            condition = {name: dict(keys) for name, keys in statement["Condition"].items()}
            del condition[operator][key]
            condition = {name: keys for name, keys in condition.items() if keys}
            statements.append({**{k: v for k, v in statement.items() if k != "Condition"}, "Condition": condition})
    assert document["Statement"] != statements, f"{label} {part} is not there"
    return {**document, "Statement": statements}


# Cases

TRAIN, SERVE, NEIGHBOUR = (
    _role("pod-identity", *who).principal for who in (("fraud", "train"), ("fraud", "serve"), ("nlp", "train"))
)
PLATFORM_TEAM = role_session(worlds.PLATFORM_ROLE, organisation=worlds.ORGANISATION)
ADMIN = role_session(f"arn:aws:iam::{ACCOUNT}:role/admin", organisation=worlds.ORGANISATION)
NO_ORGANISATION = role_session(TRAIN.role)
"""The role's ARN, and of no organisation."""
ELSEWHERE = role_session(worlds.PLATFORM_ROLE, organisation="o-0ther0ther")
EMERGENCY = _role("pod-identity", PLATFORM, "break-glass").principal
PODS, EVENTS = service("pods.eks.amazonaws.com"), service("events.amazonaws.com")
INSIDE = {"aws:SecureTransport": "true", "aws:VpceAccount": ACCOUNT}
CLUSTER_ARN = f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}"
PLAIN, EXISTING_BUCKET = "arn:aws:s3:::plain", "arn:aws:s3:::given"
KMS = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/11111111-0000-0000-0000-000000000000"
FILES = f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:file-system/fs-0123abcd"
SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:tenancy/bank/fraud/card-AbC123"
LOG = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/tenancy/bank/fraud/jobs:log-stream:pod"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}--fraud--jobs"
CROWD = f"arn:aws:s3:{REGION}:{ACCOUNT}:accesspoint/" + names.tenant_access_point(
    WORLDS["pod-identity"].account.environment, WORLDS["pod-identity"].account.tenants[0], "crowd"
)
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:{CLUSTER}-break-glass"
RULE = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{CLUSTER}-break-glass"
GITHUB = "token.actions.githubusercontent.com"
ENCRYPTION = "s3:x-amz-server-side-encryption"
NEW = {"s3:if-none-match": "*", "s3:ObjectCreationOperation": "true"}
OVERWRITE = {"s3:ObjectCreationOperation": "true"}
A_PART = {"s3:ObjectCreationOperation": "false"}
WHERE = {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": CLUSTER_ARN}
POD_REQUEST = {
    **WHERE,
    "aws:RequestTag/eks-cluster-arn": CLUSTER_ARN,
    "aws:RequestTag/kubernetes-namespace": "fraud--train",
    "aws:RequestTag/kubernetes-service-account": "workload",
}
MFA = {"aws:MultiFactorAuthPresent": "true", "aws:MultiFactorAuthAge": "60", "aws:RequestedRegion": REGION}
IRSA_CLAIMS = {f"{worlds.ISSUER}:sub": "system:serviceaccount:fraud--train:workload"}
IRSA_CLAIMS |= {f"{worlds.ISSUER}:aud": "sts.amazonaws.com"}
RUN = {f"{GITHUB}:sub": "repo:bank/fraud:ref:refs/heads/main", f"{GITHUB}:aud": "sts.amazonaws.com"}


def via_s3(bucket: str = "plain", via: str = "s3", alias: str = "bucket/plain") -> dict[str, Any]:
    return {
        "kms:ViaService": f"{via}.{REGION}.amazonaws.com",
        "kms:EncryptionContext:aws:s3:arn": f"arn:aws:s3:::{bucket}",
        "kms:ResourceAliases": [f"alias/tenancy/bank/{alias}"],
    }


@dataclass(frozen=True)
class Case:
    """A request and the answer of a document, which is the opposite one without the part."""

    name: str
    document: str
    label: str
    part: str
    who: Principal
    action: str
    resource: str
    allowed: bool
    context: Mapping[str, Any] = field(default_factory=dict)
    form: str = "pod-identity"
    widened: bool = False
    """True for a boundary that gets one more line, which allows everything."""

    def answer(self, planned: PlannedDocument, document: Document) -> bool:
        everything = {"Version": "2012-10-17", "Statement": [ANYTHING]}
        if self.widened:
            document = {**document, "Statement": [*document["Statement"], ANYTHING]}
        if planned.kind in {"role", "emergency"}:
            policies = Policies(identity=[document])
        elif planned.kind == "boundary":
            policies = Policies(identity=[everything], boundary=document)
        else:
            guard = (
                ResourceClass.TRUST
                if planned.kind.startswith("trust")
                else ResourceClass.KEY
                if planned.kind == "key"
                else ResourceClass.ORDINARY
            )
            policies = Policies(identity=[everything] if self.who.account else [], resource=document, guard=guard)
        aws_request = request(self.who, self.action, self.resource, self.context, resource_account=ACCOUNT)
        return evaluator.compile(policies)(aws_request).allowed


def allows(
    name: str, document: str, label: str, part: str, who: Principal, action: str, resource: str, **more: Any
) -> Case:
    return Case(name, document, label, part, who, action, resource, True, **more)


def denies(
    name: str, document: str, label: str, part: str, who: Principal, action: str, resource: str, **more: Any
) -> Case:
    return Case(name, document, label, part, who, action, resource, False, **more)


def _cases_of_roles() -> Iterator[Case]:
    """Statements with a number are those of bucket `plain`, the fourth; the rest is the same function's."""
    train, serve, uses = "fraud/train storage", "fraud/serve storage", "fraud/train uses"
    its = f"{PLAIN}/teams/fraud/x"
    own_prefix = {"s3:prefix": "teams/fraud/"}
    yield allows("a part lists its prefix", train, "List3", "", TRAIN, "s3:ListBucket", PLAIN, context=own_prefix)
    yield denies(
        "a part lists nothing else",
        train,
        "List3",
        "StringLike s3:prefix",
        TRAIN,
        "s3:ListBucket",
        PLAIN,
        context={"s3:prefix": "teams/nlp/"},
    )
    yield allows("a part reads", train, "Read3", "", TRAIN, "s3:GetObject", its)
    yield allows(
        "a part lists old versions",
        train,
        "ListVersions3",
        "",
        TRAIN,
        "s3:ListBucketVersions",
        PLAIN,
        context=own_prefix,
    )
    yield denies(
        "a part lists no old versions of others",
        train,
        "ListVersions3",
        "StringLike s3:prefix",
        TRAIN,
        "s3:ListBucketVersions",
        PLAIN,
    )
    yield allows("a part reads old versions", train, "ReadVersions3", "", TRAIN, "s3:GetObjectVersion", its)
    yield allows("a part gives up an upload", train, "Upload3", "", TRAIN, "s3:AbortMultipartUpload", its)
    yield allows("a part writes and deletes", train, "Write3", "", TRAIN, "s3:DeleteObject", its)
    yield allows("a part appends", train, "Append3", "", TRAIN, "s3:PutObject", f"{PLAIN}/logs/fraud/x")
    once = f"{PLAIN}/models/fraud/x"
    yield allows("a part writes what is new", train, "WriteNew3", "", TRAIN, "s3:PutObject", once, context=NEW)
    yield denies(
        "a part writes nothing over",
        train,
        "WriteNew3",
        "Null s3:if-none-match",
        TRAIN,
        "s3:PutObject",
        once,
        context=OVERWRITE,
    )
    yield allows("a part writes new in pieces", train, "WriteParts3", "", TRAIN, "s3:PutObject", once, context=A_PART)
    yield denies(
        "a whole object is no piece",
        train,
        "WriteParts3",
        "Bool s3:ObjectCreationOperation",
        TRAIN,
        "s3:PutObject",
        once,
        context=OVERWRITE,
    )
    for label, who, document, context, key in (
        ("UseKeys", TRAIN, train, via_s3(), KMS),
        ("ReadKeys", SERVE, serve, via_s3(), KMS),
        ("UseKeysGiven", TRAIN, train, via_s3("given", alias="theirs"), worlds.GIVEN_KEY),
        ("ReadKeysGiven", SERVE, serve, via_s3("given", alias="theirs"), worlds.GIVEN_KEY),
    ):
        action = "kms:Decrypt"
        yield allows(f"{label}: through S3", document, label, "", who, action, key, context=context)
        yield denies(
            f"{label}: through nothing else",
            document,
            label,
            "StringEquals kms:ViaService",
            who,
            action,
            key,
            context={**context, "kms:ViaService": f"secretsmanager.{REGION}.amazonaws.com"},
        )
        yield denies(
            f"{label}: only of its own objects",
            document,
            label,
            "StringLike kms:EncryptionContext:aws:s3:arn",
            who,
            action,
            key,
            context={**context, "kms:EncryptionContext:aws:s3:arn": f"{PLAIN}/teams/nlp/x"},
        )
        if not label.endswith("Given"):
            yield denies(
                f"{label}: with no other key",
                document,
                label,
                "ForAnyValue:StringEquals kms:ResourceAliases",
                who,
                action,
                key,
                context={**context, "kms:ResourceAliases": ["alias/tenancy/bank/tenant/nlp"]},
            )
    yield allows("a part reads its secret", uses, "ReadSecrets", "", TRAIN, "secretsmanager:GetSecretValue", SECRET)
    yield allows("a part writes its log", uses, "WriteLogs", "", TRAIN, "logs:PutLogEvents", LOG)
    yield allows("a part uses its queue", uses, "UseQueues", "", TRAIN, "sqs:SendMessage", QUEUE)
    through = {"elasticfilesystem:AccessPointArn": worlds.point("fraud")}
    mount = "elasticfilesystem:ClientMount"
    yield allows("a part mounts its folder", uses, "MountFiles0", "", TRAIN, mount, FILES, context=through)
    yield denies(
        "a part mounts no other folder",
        uses,
        "MountFiles0",
        "StringEquals elasticfilesystem:AccessPointArn",
        TRAIN,
        mount,
        FILES,
        context={"elasticfilesystem:AccessPointArn": f"{worlds.POINT}99999999"},
    )
    pipeline, ci = f"fraud/{PIPELINE} pipeline", _role("pod-identity", "fraud", PIPELINE).principal
    yield allows("a pipeline finds the cluster", pipeline, "FindCluster", "", ci, "eks:DescribeCluster", CLUSTER_ARN)
    yield allows("a pipeline logs in", pipeline, "LogInToRegistry", "", ci, "ecr:GetAuthorizationToken", "*")
    shared_repository = _ecr("bank/shared/base")
    yield allows(
        "a pipeline pulls shared images", pipeline, "PullShared", "", ci, "ecr:BatchGetImage", shared_repository
    )
    yield allows("a pipeline pushes its own", pipeline, "PushOwn", "", ci, "ecr:PutImage", _ecr("bank/fraud/scoring"))


def _cases_of_the_boundary() -> Iterator[Case]:
    """Around a role whose own policies allow everything."""
    for label, action, resource, context in (
        ("Objects", "s3:GetObject", f"{PLAIN}/x", {}),
        ("Lists", "s3:ListBucket", PLAIN, {}),
        ("Keys", "kms:Decrypt", KMS, via_s3()),
        ("Secrets", "secretsmanager:GetSecretValue", SECRET, {}),
        ("Logs", "logs:PutLogEvents", LOG, {}),
        ("Queues", "sqs:SendMessage", QUEUE, {}),
        ("Files", "elasticfilesystem:ClientMount", FILES, {"elasticfilesystem:AccessPointArn": "x"}),
        ("Images", "ecr:PutImage", _ecr("bank/fraud/scoring"), {}),
        ("Registry", "ecr:GetAuthorizationToken", "*", {}),
        ("Cluster", "eks:DescribeCluster", CLUSTER_ARN, {}),
    ):
        yield allows(
            f"the boundary has room for {label}", "boundary", label, "", TRAIN, action, resource, context=context
        )
    yield denies(
        "the boundary has no keys but through S3",
        "boundary",
        "Keys",
        "StringEquals kms:ViaService",
        TRAIN,
        "kms:Decrypt",
        KMS,
        context=via_s3(via="ec2"),
    )
    yield denies(
        "the boundary has no file system but through an access point",
        "boundary",
        "Files",
        "Null elasticfilesystem:AccessPointArn",
        TRAIN,
        "elasticfilesystem:ClientMount",
        FILES,
    )
    for label, action, resource in (
        ("NeverOthers", "sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
        ("NeverKeys", "kms:CreateGrant", KMS),
        ("NeverBuckets", "s3:PutBucketPolicy", PLAIN),
        ("NeverAccess", "eks:CreateAccessEntry", CLUSTER_ARN),
    ):
        yield denies(f"{label}, whatever line is added", "boundary", label, "", TRAIN, action, resource, widened=True)


def _cases_of_buckets() -> Iterator[Case]:
    """Roles whose own policies allow everything: what is refused, the bucket refuses."""
    bucket, its, get, put = "plain", f"{PLAIN}/teams/fraud/x", "s3:GetObject", "s3:PutObject"
    by_principal = "StringNotEquals aws:PrincipalArn"

    def case(
        name: str, label: str, part: str, who: Principal, action: str, resource: str, allowed: bool, **context: Any
    ) -> Case:
        merged_context = {
            **INSIDE,
            **{key: value for key, value in context.get("also", {}).items() if value is not None},
        }
        for key, value in context.get("also", {}).items():
            if value is None:
                merged_context.pop(key)
        return Case(name, context.get("of", bucket), label, part, who, action, resource, allowed, merged_context)

    plain = {"aws:SecureTransport": "false"}
    outside = {"aws:VpceAccount": None}
    yield case("nothing unencrypted", "NothingUnencrypted", "", TRAIN, get, its, False, also=plain)
    yield case("but over TLS", "NothingUnencrypted", "Bool aws:SecureTransport", TRAIN, get, its, True)
    yield case("nothing from outside", "OnlyFromInside", "", TRAIN, get, its, False, also=outside)
    yield case("but from inside", "OnlyFromInside", "StringNotEquals aws:VpceAccount", TRAIN, get, its, True)
    yield case(
        "the platform mends from outside", "OnlyFromInside", by_principal, PLATFORM_TEAM, get, its, True, also=outside
    )
    yield case("no role without an organisation", "OnlyOfTheOrganisation", "", NO_ORGANISATION, get, its, False)
    yield case("but of ours", "OnlyOfTheOrganisation", "StringNotEquals aws:PrincipalOrgID", TRAIN, get, its, True)
    yield case("the platform in any case", "OnlyOfTheOrganisation", by_principal, ELSEWHERE, get, its, True)
    free = f"{PLAIN}/free/x"
    yield case("no other role of the account", "OnlyTenants", "", ADMIN, get, free, False)
    yield case("but tenants", "OnlyTenants", "ArnNotLike aws:PrincipalArn", TRAIN, get, its, True)
    yield case("no tenant makes an object public", "Never", "", TRAIN, "s3:PutObjectAcl", its, False)
    yield case(
        "the platform writes the policy", "Never", by_principal, PLATFORM_TEAM, "s3:PutBucketPolicy", PLAIN, True
    )
    weak, strong = {ENCRYPTION: "AES256"}, {ENCRYPTION: "aws:kms"}
    yield case("no weaker encryption", "NoWeakerEncryption", "", TRAIN, put, its, False, also=weak)
    by_encryption = f"StringNotEquals {ENCRYPTION}"
    yield case("but KMS by name", "NoWeakerEncryption", by_encryption, TRAIN, put, its, True, also=strong)
    yield case("and by default", "NoWeakerEncryption", f"Null {ENCRYPTION}", TRAIN, put, its, True)
    by_client = {f"{ENCRYPTION}-customer-algorithm": "AES256"}
    yield case("no keys of clients", "NoKeysOfClients", "", TRAIN, put, its, False, also=by_client)
    absent = f"Null {ENCRYPTION}-customer-algorithm"
    yield case("but without one", "NoKeysOfClients", absent, TRAIN, put, its, True)
    holder = _label(bucket, "Only", "teams/fraud/")
    yield case("no neighbour reads", holder, "", NEIGHBOUR, get, its, False)
    yield case("but who holds it", holder, by_principal, TRAIN, get, its, True)
    listing = holder.replace("Only", "List")
    within, foreign_prefix = {"s3:prefix": "teams/fraud/"}, {"s3:prefix": "teams/nlp/"}
    yield case("no neighbour lists", listing, "", NEIGHBOUR, "s3:ListBucket", PLAIN, False, also=within)
    yield case(
        "but its own", listing, "StringLike s3:prefix", NEIGHBOUR, "s3:ListBucket", PLAIN, True, also=foreign_prefix
    )
    yield case("and who holds it lists it", listing, by_principal, TRAIN, "s3:ListBucket", PLAIN, True, also=within)
    everything = {"s3:prefix": ""}
    yield case("no tenant lists it all", "ListWithin", "", TRAIN, "s3:ListBucket", PLAIN, False, also=everything)
    yield case(
        "but the platform",
        "ListWithin",
        "ArnLike aws:PrincipalArn",
        PLATFORM_TEAM,
        "s3:ListBucket",
        PLAIN,
        True,
        also=everything,
    )
    yield case(
        "and what is held", "ListWithin", "StringNotLike s3:prefix", TRAIN, "s3:ListBucket", PLAIN, True, also=within
    )
    once, reference_object = f"{PLAIN}/models/fraud/x", f"{PLAIN}/reference/x"
    delete = "s3:DeleteObject"
    yield case("no tenant deletes what is kept", "DenyDeletes", "", TRAIN, delete, once, False)
    yield case("but the platform mends", "DenyDeletes", by_principal, PLATFORM_TEAM, delete, once, True)
    yield case("no tenant writes what all read", "DenyWrites", "", TRAIN, put, reference_object, False)
    yield case("but the platform fills it", "DenyWrites", by_principal, PLATFORM_TEAM, put, reference_object, True)
    yield case("no tenant writes over", "DenyOverwrites", "", TRAIN, put, once, False, also=OVERWRITE)
    yield case("but new", "DenyOverwrites", "Null s3:if-none-match", TRAIN, put, once, True, also=NEW)
    parts = "Bool s3:ObjectCreationOperation"
    yield case("and in pieces", "DenyOverwrites", parts, TRAIN, put, once, True, also=A_PART)
    yield case(
        "and the platform mends it", "DenyOverwrites", by_principal, PLATFORM_TEAM, put, once, True, also=OVERWRITE
    )
    crowd, direct = "arn:aws:s3:::crowd/fraud/x", "OnlyThroughAccessPoints"
    point = {"s3:DataAccessPointAccount": ACCOUNT}
    yield case("no way past the access points", direct, "", TRAIN, get, crowd, False, of="crowd")
    yield case("but for the platform", direct, "ArnLike aws:PrincipalArn", PLATFORM_TEAM, get, crowd, True, of="crowd")
    yield case(
        "and through them",
        direct,
        "StringNotEquals s3:DataAccessPointAccount",
        TRAIN,
        get,
        crowd,
        True,
        of="crowd",
        also=point,
    )
    through = "fraud crowd point"
    yield case(
        "no neighbour's access point", "OnlyItsOwn", "", NEIGHBOUR, get, f"{CROWD}/object/other/x", False, of=through
    )
    yield case("but its own", "OnlyItsOwn", by_principal, TRAIN, get, f"{CROWD}/object/fraud/x", True, of=through)


def _label(document: str, kind: str, prefix: str) -> str:
    """Sid of the statement that closes a prefix."""
    planned = next(candidate for candidate in ALL["pod-identity"] if candidate.name == document)
    return next(
        statement["Sid"]
        for statement in planned.document["Statement"]
        if statement["Sid"].startswith(kind) and f"{PLAIN}/{prefix}*" in statement["Resource"]
    )


def _cases_of_the_rest() -> Iterator[Case]:
    key, arn = "alias/tenancy/bank/bucket/plain", key_arn(WORLDS["pod-identity"].account.environment, "x")
    decrypt = "kms:Decrypt"
    yield allows("the platform looks after keys", key, "Administer", "", PLATFORM_TEAM, "kms:DescribeKey", arn)
    yield allows("a tenant uses a key through S3", key, "UseThroughS3", "", TRAIN, decrypt, arn, context=via_s3())
    yield denies(
        "and not by itself",
        key,
        "UseThroughS3",
        "StringEquals kms:ViaService",
        TRAIN,
        decrypt,
        arn,
        context=via_s3(via="ec2"),
    )
    yield denies(
        "nor for another bucket",
        key,
        "UseThroughS3",
        "StringLike kms:EncryptionContext:aws:s3:arn",
        TRAIN,
        decrypt,
        arn,
        context=via_s3("locked"),
    )
    yield denies(
        "and no other role of the account",
        key,
        "UseThroughS3",
        "ArnLike aws:PrincipalArn",
        ADMIN,
        decrypt,
        arn,
        context=via_s3(),
    )
    by_principal = "StringNotEquals aws:PrincipalArn"
    secret, read = "tenancy/bank/fraud/card", "secretsmanager:GetSecretValue"
    yield denies("no administrator reads a secret", secret, "OnlyItsOwn", "", ADMIN, read, SECRET)
    yield allows("but its tenant", secret, "OnlyItsOwn", by_principal, TRAIN, read, SECRET)
    queue, send, plain = f"{CLUSTER}--fraud--jobs", "sqs:SendMessage", {"aws:SecureTransport": "false"}
    yield denies("no message unencrypted", queue, "NothingUnencrypted", "", TRAIN, send, QUEUE, context=plain)
    yield allows(
        "but over TLS", queue, "NothingUnencrypted", "Bool aws:SecureTransport", TRAIN, send, QUEUE, context=INSIDE
    )
    yield denies("no neighbour sends", queue, "OnlyItsOwn", "", NEIGHBOUR, send, QUEUE, context=INSIDE)
    yield allows("but its tenant", queue, "OnlyItsOwn", by_principal, TRAIN, send, QUEUE, context=INSIDE)
    image, ci = "bank/fraud/scoring", _role("pod-identity", "fraud", PIPELINE).principal
    yield denies("no administrator pushes", image, "OnlyItsOwn", "", ADMIN, "ecr:PutImage", _ecr(image))
    yield allows("but its pipeline", image, "OnlyItsOwn", by_principal, ci, "ecr:PutImage", _ecr(image))
    emergency = f"{PLATFORM}/break-glass emergency"
    for label, action, resource, context in (
        ("FindCluster", "eks:DescribeCluster", CLUSTER_ARN, {}),
        ("MendObjects", "s3:PutObject", f"{PLAIN}/x", {}),
        ("SeeBuckets", "s3:ListBucket", PLAIN, {}),
        ("UseKeys", decrypt, KMS, via_s3()),
    ):
        yield allows(f"in an emergency: {label}", emergency, label, "", EMERGENCY, action, resource, context=context)
    yield denies(
        "no keys but through S3, in an emergency either",
        emergency,
        "UseKeys",
        "StringEquals kms:ViaService",
        EMERGENCY,
        decrypt,
        KMS,
        context=via_s3(via="ec2"),
    )
    publish, rule = "sns:Publish", {"aws:SourceArn": RULE}
    yield allows("the alarm is told", "topic", "TellOfIt", "", EVENTS, publish, TOPIC, context=rule)
    yield denies(
        "by its own rule alone",
        "topic",
        "TellOfIt",
        "ArnEquals aws:SourceArn",
        EVENTS,
        publish,
        TOPIC,
        context={"aws:SourceArn": f"{RULE}-2"},
    )


def _cases_of_trust() -> Iterator[Case]:
    pods, assume = "fraud/train trust", "sts:AssumeRole"
    arn = _role("pod-identity", "fraud", "train").role.arn
    shared_form = {"form": "shared"}
    yield allows("its pods", pods, "[0]", "", PODS, assume, arn, context=POD_REQUEST)
    yield allows("pods of the shape", pods, "[0]", "", PODS, assume, arn, context=POD_REQUEST, **shared_form)
    for operator, key, other_value in (
        ("StringEquals", "aws:SourceAccount", worlds.OTHER_ACCOUNT),
        ("StringEquals", "aws:RequestTag/eks-cluster-arn", f"{CLUSTER_ARN}-2"),
        ("StringEquals", "aws:RequestTag/kubernetes-namespace", "nlp--train"),
        ("StringEquals", "aws:RequestTag/kubernetes-service-account", "default"),
        ("ArnEquals", "aws:SourceArn", f"{CLUSTER_ARN}-2"),
    ):
        others = {**POD_REQUEST, key: other_value}
        part = f"{operator} {key}"
        yield denies(f"no pods with another {key}", pods, "[0]", part, PODS, assume, arn, context=others)
        if "namespace" in key:
            part, others = f"StringLike {key}", {**POD_REQUEST, key: "default"}
        yield denies(
            f"none of the shape with another {key}", pods, "[0]", part, PODS, assume, arn, context=others, **shared_form
        )
    token = "sts:AssumeRoleWithWebIdentity"
    for document, issuer, claims, form in (
        (pods, worlds.ISSUER, IRSA_CLAIMS, "irsa"),
        (f"fraud/{PIPELINE} trust", GITHUB, RUN, "pod-identity"),
    ):
        who = federated(f"arn:aws:iam::{ACCOUNT}:oidc-provider/{issuer}")
        yield allows(f"a token of {issuer}", document, "[0]", "", who, token, arn, context=claims, form=form)
        for claim in ("sub", "aud"):
            others = {**claims, f"{issuer}:{claim}": "other"}
            part = f"StringEquals {issuer}:{claim}"
            yield denies(
                f"none of {issuer} with another {claim}",
                document,
                "[0]",
                part,
                who,
                token,
                arn,
                context=others,
                form=form,
            )
    glass, jane = f"{PLATFORM}/break-glass trust", user(f"arn:aws:iam::{ACCOUNT}:user/emergency")
    yield allows("who breaks the glass", glass, "[0]", "", jane, assume, arn, context=MFA)
    for operator, key, other_value in (
        ("Bool", "aws:MultiFactorAuthPresent", "false"),
        ("NumericLessThan", "aws:MultiFactorAuthAge", "901"),
        ("StringEquals", "aws:RequestedRegion", "us-east-1"),
    ):
        part = f"{operator} {key}"
        yield denies(
            f"no user with another {key}", glass, "[0]", part, jane, assume, arn, context={**MFA, key: other_value}
        )


ALL = {form: list(_documents(world.account, form)) for form, world in WORLDS.items()}
CASES = [
    *_cases_of_roles(),
    *_cases_of_the_boundary(),
    *_cases_of_buckets(),
    *_cases_of_the_rest(),
    *_cases_of_trust(),
]


def _document_of(case: Case) -> PlannedDocument:
    return next(planned for planned in ALL[case.form] if planned.name == case.document)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.label} {case.part}: {case.name}")
def test_a_case_notices_what_is_lost(case: Case) -> None:
    planned = _document_of(case)
    assert case.answer(planned, planned.document) is case.allowed, "as it is planned"
    assert case.answer(planned, _without_part(planned.document, case.label, case.part)) is not case.allowed, (
        "without it"
    )


def _kind_of_part(kind: str, label: str, part: str) -> tuple[str, str, str]:
    """Alike are statements that differ in their number, and conditions that differ in the issuer of a token."""
    operator, _, key = part.partition(" ")
    claim = re.sub(r".*:(sub|aud)$", r"<issuer>:\1", key) if kind == "trust of token" else key
    return kind, label if label.startswith("[") else label.rstrip("0123456789"), f"{operator} {claim}".strip()


COVERED = {_kind_of_part(_document_of(case).kind, case.label, case.part) for case in CASES}


@pytest.mark.parametrize("form", WORLDS)
def test_every_statement_and_every_condition_has_a_case(form: str) -> None:
    missing = {
        _kind_of_part(planned.kind, label, part) for planned in ALL[form] for label, part in _parts(planned)
    } - COVERED
    assert missing == set()


def test_what_the_bank_and_random_tenants_have_is_covered_too() -> None:
    loaded = load(BANK)
    bank = AccountModel(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))
    accounts = [(bank, "pod-identity"), *((world(seed).account, world(seed).identity) for seed in range(12))]
    parts = {
        _kind_of_part(planned.kind, label, part)
        for account, form in accounts
        for planned in _documents(account, form)
        for label, part in _parts(planned)
    }
    assert parts - COVERED == set()
    assert COVERED - parts == set(), "a case for what is no more"


def test_every_statement_of_a_role_has_a_name_of_its_own() -> None:
    """Answers name it."""
    for form in WORLDS:
        for who in WORLDS[form].account.identities:
            sids = [statement["Sid"] for document in who.role.policies.values() for statement in document["Statement"]]
            assert len(sids) == len(set(sids)), str(who)
