"""Resources of other tenants alone, as languages of requests; from the files, and nothing of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tenancy.iam.account import PLATFORM, AccountIdentity, AccountModel, AwsTarget
from tenancy.iam.requests import ResourceClass
from tenancy.spec.fields.tenant import Tenant
from tests.iam.symbolic import Region, Witness, counterexample

S3 = ("s3:*",)


class Border(NamedTuple):
    """Requests for a resource that only its tenants may touch, and the policy that guards it."""

    title: str
    region: Region
    thing: AwsTarget


def _overlap(prefix: str, other_prefix: str) -> bool:
    return prefix.startswith(other_prefix) or other_prefix.startswith(prefix)


def _foreign(tenant: str, tenants: Sequence[Tenant], bucket: str) -> list[str]:
    """Prefixes of others in the bucket that the tenant has no grant around, in or on."""
    own_prefixes = [
        grant.prefix
        for holder in tenants
        if holder.tenant == tenant
        for grant in holder.storage
        if grant.bucket == bucket
    ]
    return sorted(
        {
            grant.prefix
            for holder in tenants
            if holder.tenant != tenant
            for grant in holder.storage
            if grant.bucket == bucket and not any(_overlap(grant.prefix, prefix) for prefix in own_prefixes)
        }
    )


def borders(account: AccountModel, who: AccountIdentity) -> Iterator[Border]:
    """Everything of every other tenant, by kind: one proof for all of them."""
    aws, tenants = account.environment.aws, account.tenants
    env, cluster = account.environment.environment, account.environment.cluster.name

    def arn(service: str, resource: str) -> str:
        return f"arn:aws:{service}:{aws.region}:{aws.account}:{resource}"

    for bucket in account.environment.buckets:
        prefixes = _foreign(who.tenant, tenants, bucket)
        bucket_arn = f"arn:aws:s3:::{bucket}"
        if not prefixes:
            continue
        thing = account.thing(bucket_arn)
        objects = tuple(f"{bucket_arn}/{prefix}*" for prefix in prefixes)
        yield Border(f"objects in {bucket}", Region(S3, objects), thing)
        # A list with less than the prefix shows what is in it as well.
        around = {prefix[:length] for prefix in prefixes for length in range(len(prefix))}
        listed_prefixes = (None, *sorted(around), *(f"{prefix}*" for prefix in prefixes))
        lists = Region(("s3:List*",), (bucket_arn,), {"s3:prefix": listed_prefixes})
        yield Border(f"lists of {bucket}", lists, thing)
        if own_arns := account._point(who.tenant, bucket):
            inside = tuple(f"{own_arns}/object/{prefix}*" for prefix in prefixes)
            yield Border(f"objects in {bucket}, by its point", Region(S3, inside), account.thing(own_arns))
            yield Border(
                f"lists of {bucket}, by its point", replace(lists, resources=(own_arns,)), account.thing(own_arns)
            )
    others = [plan for plan in account.plan.tenants if plan.name != who.tenant and plan.aws]
    for title, actions, own_arns in (
        ("secrets", ("secretsmanager:*",), [arn("secretsmanager", f"secret:tenancy/{env}/{o.name}/*") for o in others]),
        ("log groups", ("logs:*",), [arn("logs", f"log-group:/tenancy/{env}/{o.name}/*") for o in others]),
        ("queues", ("sqs:*",), [arn("sqs", f"{cluster}--{o.name}--*") for o in others]),
        ("repositories", ("ecr:*",), [arn("ecr", f"repository/{env}/{o.name}/*") for o in others]),
        ("roles", ("sts:*", "iam:*"), [f"arn:aws:iam::{aws.account}:role/tenancy/{env}/{o.name}/*" for o in others]),
    ):
        if own_arns:
            yield Border(f"{title} of others", Region(actions, tuple(own_arns)), AwsTarget(title))
    for neighbour in others:
        name = neighbour.name
        if neighbour.aws is None:
            continue
        for point in neighbour.aws.access_points:
            through = Region(S3, (point.arn, f"{point.arn}/*"))
            yield Border(f"access point {point.name} of {name}", through, account.thing(point.arn))
        for key in neighbour.aws.keys:
            opened = Region(("kms:*",), (arn("kms", "key/*"),))
            yield Border(f"key of {name}", opened, AwsTarget(key.alias, key.policy, ResourceClass.KEY))


WITHOUT_RESOURCE = {"Effect": "Deny", "Action": "ecr:GetAuthorizationToken", "Resource": "*"}
"""Logging in to the registry is about no repository, though a policy says `*`."""


def crossed(account: AccountModel, who: AccountIdentity, border: Border, without: Sequence[Any] = ()) -> Witness | None:
    """The shortest request that crosses the border; None: there is none. `without` are statements that deny."""
    policies = account.policies(who, border.thing)
    denied = {"Version": "2012-10-17", "Statement": [WITHOUT_RESOURCE, *without]}
    policies = replace(policies, identity=[*policies.identity, denied])
    return counterexample(policies, who.principal, border.region, resource_account=account.environment.aws.account)


def crossings(account: AccountModel) -> Iterator[tuple[AccountIdentity, Border, Witness | None]]:
    for who in account.identities:
        if who.tenant != PLATFORM:
            for border in borders(account, who):
                yield who, border, crossed(account, who, border)
