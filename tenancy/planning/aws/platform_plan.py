"""The AWS half that tenants share: buckets and their keys, the boundary of all roles, and who gets in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from tenancy.catalog import vocabulary
from tenancy.planning.aws import grants, iam_roles, kinds
from tenancy.planning.aws.bucket_policies import break_glass_arn, bucket_policy
from tenancy.planning.aws.documents import Document, allow, arn, deny, document, partition
from tenancy.planning.aws.keys import bucket_key_policy
from tenancy.planning.aws.platform_models import (
    AlarmPlan,
    Boundary,
    BreakGlassPlan,
    BucketPlan,
    DataPlan,
    LifecycleRule,
    OidcProvider,
)
from tenancy.planning.aws.tenant_models import AccessEntry, KeyPlan, TenantRolePlan
from tenancy.planning.common import names
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import CI_AUDIENCE
from tenancy.spec.fields.tenant import Tenant

UPLOAD_DAYS = 7
"""Days after which an unfinished multipart upload is deleted: no listing of objects shows it, but it is billed."""
MFA_SECONDS = 900
PURPOSE_TAG = "purpose"
"""Tag of a bucket with the purpose from its file."""
ENABLED_WITH_READ_EVENTS = "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS"
"""CloudTrail writes AssumeRole with `readOnly: true`. EventBridge user guide, "Receiving read-only management events
from AWS services", 2026-11-23; PutRule's enumeration RuleState."""
ADMINISTRATOR = "AmazonEKSClusterAdminPolicy"


def data_plan(environment: Environment, tenants: Sequence[Tenant]) -> DataPlan | None:
    """None where AWS is switched off."""
    if not environment.aws.enabled:
        return None
    created_buckets = {name: bucket for name, bucket in sorted(environment.buckets.items()) if not bucket.existing}
    has_identities = any(tenant.ci or any(map(tenant.has_identity, tenant.namespaces)) for tenant in tenants)
    aws = environment.aws
    return DataPlan(
        keys=tuple(
            KeyPlan(
                alias=names.bucket_key_alias(environment, name),
                description=f"Bucket {name} of {environment.environment}",
                policy=bucket_key_policy(environment, name),
                tags=names.tags(environment),
            )
            for name in created_buckets
        ),
        boundary=boundary(environment) if has_identities else None,
        shared_roles=iam_roles.shared_roles(environment, tenants),
        buckets=tuple(_bucket(environment, tenants, name) for name in created_buckets),
        providers=tuple(_providers(environment, tenants)),
        access_entries=tuple(
            AccessEntry(environment.cluster.name, role, (group,), names.tags(environment))
            for group, role in sorted(aws.group_roles.items())
        ),
        break_glass=_break_glass(environment),
        cost_tags=COST_TAGS if aws.management_account else (),
        tags=names.tags(environment),
    )


COST_TAGS = (
    *(
        vocabulary.TENANT_TAG,
        names.NAMESPACE_TAG,
        names.CLAIM_TAG,
        names.ENVIRONMENT_TAG,
        names.CLUSTER_TAG,
        names.POOL_TAG,
    ),
    *vocabulary.COST_LABELS,
)


def boundary(environment: Environment) -> Boundary:
    """The permissions boundary of all tenants' roles, whatever their policies say later.

    It lists the services to allow, so IAM, STS, organisations, EC2 and the rest are outside. Explicit denies stay in
    force when a later change adds an allow.
    """
    buckets = [grants.bucket_arn(environment, name) for name in sorted(environment.buckets)]
    points = arn(environment, "s3", "accesspoint/*")
    statements = [
        allow(
            "Objects",
            [*grants.READ, *grants.READ_VERSIONS, *grants.PUT, *grants.DELETE, *grants.UPLOAD],
            [*(f"{bucket}/*" for bucket in buckets), f"{points}/object/*"],
        ),
        allow("Lists", [*grants.LIST, *grants.LIST_VERSIONS], [*buckets, points]),
        allow(
            "Keys",
            [grants.DECRYPT, grants.ENCRYPT],
            grants.key_arns(environment),
            {"StringEquals": {"kms:ViaService": grants.via_s3(environment)}},
        ),
        *(kind.boundary_statement(environment) for kind in kinds.KINDS if kind.pods),
        allow(
            "Files",
            [grants.MOUNT, grants.MOUNT_WRITE],
            arn(environment, "elasticfilesystem", "file-system/*"),
            {"Null": {"elasticfilesystem:AccessPointArn": "false"}},
        ),
        *(kind.boundary_statement(environment) for kind in kinds.KINDS if not kind.pods),
        allow("Registry", ["ecr:GetAuthorizationToken"], "*"),
        allow("Cluster", ["eks:DescribeCluster"], iam_roles.cluster_arn(environment)),
        deny(
            "NeverOthers",
            ["iam:*", "organizations:*", "account:*", "sts:AssumeRole*", "sts:GetFederationToken", "ec2:*"],
            "*",
        ),
        deny("NeverKeys", ["kms:CreateGrant", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion", "kms:*Alias"], "*"),
        deny(
            "NeverBuckets",
            ["s3:*Policy", "s3:*Acl", "s3:DeleteObjectVersion", "s3:PutBucket*", "s3:PutEncryptionConfiguration"],
            "*",
        ),
        deny("NeverAccess", ["eks:*AccessEntry", "eks:*AccessPolicy", "eks:*PodIdentityAssociation"], "*"),
    ]
    return Boundary(
        name=iam_roles.boundary_name(environment),
        path=names.platform_path(environment),
        arn=iam_roles.boundary_arn(environment),
        document=document(*statements),
        tags=names.tags(environment),
    )


def _bucket(environment: Environment, tenants: Sequence[Tenant], name: str) -> BucketPlan:
    spec = environment.buckets[name]
    return BucketPlan(
        name=name,
        policy=bucket_policy(environment, tenants, name),
        key=names.bucket_key_alias(environment, name),
        versioned=spec.versioning,
        lifecycle=tuple(_lifecycle(environment, tenants, name)),
        tags={**names.tags(environment), **({PURPOSE_TAG: spec.purpose} if spec.purpose else {})},
    )


def _lifecycle(environment: Environment, tenants: Sequence[Tenant], name: str) -> Iterator[LifecycleRule]:
    spec = environment.buckets[name]
    yield LifecycleRule(
        id="everything",
        prefix="",
        expire_days=spec.expiration_days,
        old_version_days=spec.noncurrent_version_days if spec.versioning else None,
        abort_upload_days=UPLOAD_DAYS,
        drop_markers=spec.versioning and spec.expiration_days is None,
    )
    days: dict[tuple[str, str], int] = {}
    for tenant in tenants:
        for grant in tenant.storage:
            if grant.bucket == name and grant.expiration_days:
                key = (tenant.tenant, grant.prefix)
                days[key] = min(grant.expiration_days, days.get(key, grant.expiration_days))
    for (tenant_name, prefix), expire in sorted(days.items()):
        digest = hashlib.sha256(prefix.encode()).hexdigest()[:8]
        yield LifecycleRule(id=f"{tenant_name}-{digest}", prefix=prefix, expire_days=expire)


def _providers(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[OidcProvider]:
    if environment.aws.irsa and environment.aws.oidc_issuer and not environment.builds_cluster:
        # Of a cluster that is built it is part of the cluster's stack.
        yield OidcProvider(
            url=f"https://{environment.aws.oidc_issuer}",
            arn=iam_roles.provider_arn(environment, environment.aws.oidc_issuer),
            audience=CI_AUDIENCE,
            existing=False,
            tags=names.tags(environment),
        )
    existing_providers = environment.aws.existing_oidc_providers
    for issuer, forge in sorted({(tenant.ci.issuer, tenant.ci.forge) for tenant in tenants if tenant.ci}):
        yield OidcProvider(
            url=f"https://{issuer}",
            arn=iam_roles.provider_arn(environment, issuer),
            audience=CI_AUDIENCE,
            existing=issuer in existing_providers or forge in existing_providers,
            tags=names.tags(environment),
        )


def _break_glass(environment: Environment) -> BreakGlassPlan | None:
    spec = environment.aws.break_glass
    if not spec:
        return None
    role, name = break_glass_arn(environment), names.aws_name(environment, "break-glass")
    topic = arn(environment, "sns", name)
    rule = arn(environment, "events", f"rule/{name}")
    role_assumed: Document = {
        "source": ["aws.sts"],
        "detail-type": ["AWS API Call via CloudTrail"],
        "detail": {
            "eventSource": ["sts.amazonaws.com"],
            "eventName": ["AssumeRole"],
            "requestParameters": {"roleArn": [role]},
        },
    }
    trust = {
        "Effect": "Allow",
        "Principal": {"AWS": list(spec.trusted_principals)},
        "Action": "sts:AssumeRole",
        "Condition": {
            "Bool": {"aws:MultiFactorAuthPresent": "true"},
            "NumericLessThan": {"aws:MultiFactorAuthAge": str(MFA_SECONDS)},
            # STS in another region sends its events to EventBridge there, where no rule matches them.
            "StringEquals": {"aws:RequestedRegion": environment.aws.region},
        },
    }
    publish_statement = allow("TellOfIt", ["sns:Publish"], topic, {"ArnEquals": {"aws:SourceArn": rule}})
    return BreakGlassPlan(
        role=TenantRolePlan(
            name=name,
            path=names.platform_path(environment),
            arn=role,
            purpose="break-glass",
            trust=document(trust),
            policies={"emergency": document(*_emergency(environment))},
            boundary=environment.aws.permissions_boundary or "",
            session_seconds=iam_roles.SESSION_SECONDS,
            tags=names.tags(environment),
        ),
        entry=AccessEntry(
            cluster=environment.cluster.name,
            principal=role,
            groups=(environment.platform.group,),
            tags=names.tags(environment),
            policy=f"arn:{partition(environment.aws.region)}:eks::aws:cluster-access-policy/{ADMINISTRATOR}",
        ),
        alarm=AlarmPlan(
            name=name,
            topic=topic,
            pattern=role_assumed,
            state=ENABLED_WITH_READ_EVENTS,
            # Subscribers are identities of the account, for which their own policy is enough.
            topic_policy=document({**publish_statement, "Principal": {"Service": "events.amazonaws.com"}}),
            mail=spec.mail,
            tags=names.tags(environment),
        ),
    )


def _emergency(environment: Environment) -> Iterator[Document]:
    """Into the cluster, and into the data to read and mend it; no right on identities."""
    yield allow("FindCluster", ["eks:DescribeCluster"], iam_roles.cluster_arn(environment))
    buckets = [grants.bucket_arn(environment, name) for name in sorted(environment.buckets)]
    if buckets:
        actions = [*grants.READ, *grants.READ_VERSIONS, *grants.PUT, *grants.DELETE, *grants.UPLOAD]
        yield allow("MendObjects", actions, [f"{bucket}/*" for bucket in buckets])
        listing = [*grants.LIST, *grants.LIST_VERSIONS, "s3:GetBucketPolicy", "s3:GetBucketVersioning"]
        yield allow("SeeBuckets", listing, buckets)
        via_s3 = {"StringEquals": {"kms:ViaService": grants.via_s3(environment)}}
        yield allow("UseKeys", [grants.DECRYPT, grants.ENCRYPT], grants.key_arns(environment), via_s3)
