"""What tenants hold on AWS together: grants that a form cannot express, and all that an account or a policy has no
room for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenancy.catalog import account
from tenancy.rules.values import foreign_arn
from tenancy.spec.base import Mistake, broken
from tenancy.spec.data import Access, KeyPer
from tenancy.spec.environment import Environment
from tenancy.spec.identity import PodIdentity
from tenancy.spec.source import Location
from tenancy.spec.tenant import Namespace, Storage, Tenant, held

Found = tuple[int, Mistake]
ENVIRONMENT = -1
PLATFORM_ROLES = 6
"""Of the cluster, its nodes and the platform's services; and the one that breaks the glass."""


def holdings(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Every broken rule on AWS that takes more than one file to see; linear in the number of tenants."""
    for index, tenant in enumerate(tenants):
        for mistake in (*_grants(environment, tenant), *_elsewhere(environment, tenant)):
            yield index, mistake
        if environment.aws.identity is PodIdentity.SHARED:
            for mistake in _shared(environment, tenant):
                yield index, mistake
    yield from _twice(tenants)
    if environment.aws.enabled:
        for index, tenant in enumerate(tenants):
            for mistake in _lengths(environment, tenant):
                yield index, mistake
        yield from _bucket_lengths(environment, tenants)
        yield from _quotas(environment, tenants)


def _grants(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, grant in enumerate(tenant.storage):
        bucket = environment.buckets.get(grant.bucket)
        if bucket is None:
            continue  # said elsewhere
        if bucket.tenant not in {None, tenant.tenant}:
            given = f"bucket {grant.bucket!r}, which is kept for {bucket.tenant}"
            yield broken(("storage", i, "bucket"), "ref-01", given, "use a bucket that is open to several tenants")
        keeps = grant.access in {Access.APPEND_ONLY, Access.WRITE_ONCE}
        if keeps and not bucket.versioned:
            yield broken(("storage", i, "access"), "stor-05", f"{grant.access} in {grant.bucket}, versioned: false")
        for namespace in tenant.namespaces:
            tier = environment.tiers.get(tenant.tier_of(namespace))
            if tier and held(grant.namespaces, namespace) and grant.access.wider(tier.storage_access):
                given = (
                    f"{grant.access} in part {namespace.name} of tier {tenant.tier_of(namespace)}, whose "
                    f"storage-access is {tier.storage_access}"
                )
                yield broken(("storage", i, "access"), "stor-06", given)
                break


def _elsewhere(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    aws = environment.aws
    for i, files in enumerate(tenant.uses.files):
        if aws.enabled and (given := foreign_arn(files.access_point, aws.account, aws.region)):
            yield broken(("uses", "files", i, "access-point"), "aws-01", given)


def _shared(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """Grants that tags of namespace and service account cannot tell apart."""
    for i, grant in enumerate(tenant.storage):
        bucket = environment.buckets.get(grant.bucket)
        special = bucket and (bucket.access_points or bucket.key is KeyPer.TENANT)
        if bucket and special:
            what = "access-points" if bucket.access_points else "key: tenant"
            given = f"bucket {grant.bucket} with {what} and identity: shared"
            yield broken(("storage", i, "bucket"), "aws-04", given, "use another bucket, or identity: pod-identity")
        if grant.access is Access.READ_ONLY:
            continue
        own = [namespace for namespace in tenant.namespaces if held(grant.namespaces, namespace)]
        for namespace in own:
            if grant.prefix != tenant.namespace_name(namespace) + "/":
                given = f"{grant.access} on {grant.prefix} for part {namespace.name} with identity: shared"
                yield broken(("storage", i, "prefix"), "aws-04", given)
                break
    for kind in ("secrets", "logs", "queues", "files"):
        if getattr(tenant.uses, kind):
            given = f"{kind} with identity: shared"
            yield broken(("uses", kind), "aws-04", given, "drop them, or set aws.identity to pod-identity")


def _twice(tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Pipelines and folders that two tenants name."""
    pipelines: dict[tuple[str, str], str] = {}
    points: dict[str, list[tuple[str, bool]]] = {}
    for index, tenant in enumerate(tenants):
        if tenant.ci:
            first = pipelines.setdefault((tenant.ci.issuer, tenant.ci.subject), tenant.tenant)
            if first != tenant.tenant:
                given = f"{tenant.ci.subject}, which is the pipeline of {first}"
                yield index, broken(("ci",), "aws-05", given, "give each tenant a repository or a branch of its own")
        for i, files in enumerate(tenant.uses.files):
            writes = files.access == "read-write"
            others = [name for name, wrote in points.get(files.access_point, ()) if writes or wrote]
            if others := [name for name in others if name != tenant.tenant]:
                given = f"{files.access_point}, which {others[0]} uses as well"
                change = "make an access point with a folder of its own, or let both only read"
                yield index, broken(("uses", "files", i, "access-point"), "stor-02", given, change)
            points.setdefault(files.access_point, []).append((tenant.tenant, writes))


# How long the policies get. The plan writes them later; a test holds the two together.


def _written(actions: int, resources: Iterable[int], condition: int = 0) -> int:
    """Characters of a statement, from those of its actions, resources and condition."""
    return 76 + actions + sum(resource + 3 for resource in resources) + condition


def _arn(environment: Environment, bucket: str) -> int:
    """Characters of a bucket's ARN."""
    return len("arn:aws:s3:::") + _more(environment) + len(bucket)


def _more(environment: Environment) -> int:
    """By how much the partition's name is longer than `aws`, at most."""
    return 7 if environment.aws.region.startswith(("us-gov-", "cn-")) else 0


def role_length(environment: Environment, tenant: Tenant, namespace: Namespace) -> int:
    """At most so many characters do a part's inline policies have."""
    grants = {(g.bucket, g.prefix, g.access) for g in tenant.grants_of(namespace) if g.bucket in environment.buckets}
    total = 100
    contexts = 0
    for bucket in {bucket for bucket, _, _ in grants}:
        mine = [(prefix, access) for name, prefix, access in grants if name == bucket]
        whole = _arn(environment, bucket)
        point = 80 + account.ACCESS_POINT_NAME if environment.buckets[bucket].access_points else 0
        wholes = [whole, *([point] if point else [])]

        def objects(some: Sequence[tuple[str, Access]], whole: int = whole, point: int = point) -> list[int]:
            direct = [whole + len(prefix) + 2 for prefix, _ in some]
            return [*direct, *(point + len(prefix) + 9 for prefix, _ in some if point)]

        def listed(some: Sequence[tuple[str, Access]]) -> int:
            return 50 + sum(len(prefix) + 4 for prefix, _ in some)

        writing = [one for one in mine if one[1] is not Access.READ_ONLY]
        total += _written(18, wholes, listed(mine)) + _written(18, objects(mine))
        if writing:
            total += _written(26, wholes, listed(writing)) + _written(24, objects(writing))
            total += _written(60, objects(writing))
        for access, extra in ((Access.READ_WRITE, 0), (Access.APPEND_ONLY, 0), (Access.WRITE_ONCE, 60)):
            if some := [one for one in mine if one[1] is access]:
                total += _written(38, objects(some), extra) * (2 if extra else 1)
        contexts += whole + 3 + sum(objects(mine)) + 3 * len(mine) + 60 + len(bucket) + len(environment.environment)
    if grants:
        total += 2 * (330 + len(environment.aws.region)) + contexts + 100
    for kind, each in (("secrets", 130), ("logs", 120), ("queues", 130)):
        names = [name for name, use in getattr(tenant.uses, kind).items() if held(use.namespaces, namespace)]
        if names:
            total += _written(160, [each + len(tenant.tenant) + 60 + len(name) for name in names])
    total += sum(420 for files in tenant.uses.files if held(files.namespaces, namespace))
    return total


def _lengths(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, namespace in enumerate(tenant.namespaces):
        length = role_length(environment, tenant, namespace)
        if length > account.INLINE_LENGTH:
            given = f"grants of part {namespace.name}, {length} characters of {account.INLINE_LENGTH}"
            yield broken(
                ("namespaces", i) if "namespaces" in tenant.model_fields_set else ("storage",), "aws-02", given
            )
    for name in sorted({g.bucket for g in tenant.storage if g.bucket in environment.buckets}):
        length = policy_length(environment, [tenant], name)
        if environment.buckets[name].access_points and length > account.BUCKET_POLICY_LENGTH:
            given = f"prefixes in {name}, {length} bytes of {account.BUCKET_POLICY_LENGTH} in the access point's policy"
            yield broken(("storage",), "aws-02", given)


def _role_arn(environment: Environment, tenant: Tenant, namespace: Namespace) -> int:
    if environment.aws.identity is PodIdentity.SHARED:
        return 50 + len(environment.environment) + account.ROLE_NAME
    name = len(environment.cluster.name) + len(tenant.tenant) + len(namespace.name) + 4
    path = len(environment.environment) + len(tenant.tenant) + 11
    return len("arn:aws:iam::111122223333:role") + _more(environment) + path + min(name, account.ROLE_NAME)


def policy_length(environment: Environment, tenants: Iterable[Tenant], bucket: str) -> int:
    """At most so many bytes does a bucket's policy have, if tenants come to it directly."""
    exempt = len(environment.aws.platform_role) + 3
    if environment.aws.break_glass:
        name = min(len(environment.cluster.name) + len("-break-glass"), account.ROLE_NAME)
        exempt += len("arn:aws:iam::111122223333:role/tenancy-platform//") + len(environment.environment) + name + 10
    whole = _arn(environment, bucket)
    total = 2250 + 12 * whole + 7 * exempt
    held_by: dict[str, set[str]] = {}
    accesses: dict[str, set[Access]] = {}
    longest: dict[str, int] = {}
    for tenant in tenants:
        for grant in tenant.storage:
            for namespace in tenant.namespaces if grant.bucket == bucket else ():
                if held(grant.namespaces, namespace):
                    role = f"{tenant.tenant}/{namespace.name}"
                    longest[role] = _role_arn(environment, tenant, namespace)
                    held_by.setdefault(grant.prefix, set()).add(role)
                    accesses.setdefault(grant.prefix, set()).add(grant.access)
    groups: dict[frozenset[str], list[str]] = {}
    for prefix, roles in _meeting(held_by).items():
        groups.setdefault(frozenset(roles), []).append(prefix)
    for roles, some in groups.items():
        named = sum(longest[role] + 3 for role in roles) + exempt
        total += _written(6, [whole + len(prefix) + 2 for prefix in some], 65 + named)
        total += _written(40, [whole], 90 + named + sum(len(prefix) + 4 for prefix in some))
    for prefix, found in accesses.items():
        # Listed once more, and once under each of the ends that its access closes.
        ends = 0 if Access.READ_WRITE in found else 1 if Access.APPEND_ONLY in found else 2
        total += len(prefix) + 4 + ends * (whole + len(prefix) + 5)
    return total


def _meeting(held_by: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """For each prefix whoever holds it, one around it or one inside it."""
    found = {prefix: set(roles) for prefix, roles in held_by.items()}
    around: list[str] = []
    for prefix in sorted(held_by):
        while around and not prefix.startswith(around[-1]):
            around.pop()
        for outer in around:
            found[outer] |= held_by[prefix]
            found[prefix] |= held_by[outer]
        around.append(prefix)
    return found


def _bucket_lengths(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    holding: dict[str, list[Tenant]] = {}
    rules: dict[str, set[tuple[str, str]]] = {}
    for tenant in tenants:
        for name in {grant.bucket for grant in tenant.storage}:
            holding.setdefault(name, []).append(tenant)
        for grant in tenant.storage:
            if grant.expire_after:
                rules.setdefault(grant.bucket, set()).add((tenant.tenant, grant.prefix))
    for name, bucket in environment.buckets.items():
        if bucket.existing:
            continue
        where: Location = ("buckets", name)
        length = 0 if bucket.access_points else policy_length(environment, holding.get(name, ()), name)
        if length > account.BUCKET_POLICY_LENGTH:
            given = (
                f"bucket {name} with prefixes of {len(holding[name])} tenants, {length} bytes of "
                f"{account.BUCKET_POLICY_LENGTH}"
            )
            change = "set access-points on the bucket, or make a second bucket"
            yield ENVIRONMENT, broken(where, "aws-02", given, change)
        count = 1 + len(rules.get(name, ()))
        if count > account.LIFECYCLE_RULES:
            given = f"bucket {name} with {count} rules of expiry of {account.LIFECYCLE_RULES}"
            yield ENVIRONMENT, broken(where, "aws-02", given, "set expire-after on a bucket for what expires")


def _quotas(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[Found]:
    """Sums over all tenants. What else is on the account is not known here, so nothing is left over for it."""
    pods = [
        (tenant, namespace) for tenant in tenants for namespace in tenant.namespaces if tenant.has_identity(namespace)
    ]
    pipelines = [tenant for tenant in tenants if tenant.ci]
    shared = environment.aws.identity is PodIdentity.SHARED
    buckets = environment.buckets
    made = [name for name, bucket in buckets.items() if not bucket.existing]
    shapes = {frozenset(_shape(t, n, g) for g in t.grants_of(n)) for t, n in pods} if shared else ()
    wanted = {
        "roles": (len(shapes) if shared else len(pods)) + len(pipelines) + PLATFORM_ROLES,
        "policies": 1,
        "oidc-providers": len({t.ci.issuer for t in pipelines if t.ci}) + environment.aws.irsa,
        "associations": 0 if environment.aws.identity is PodIdentity.IRSA else len(pods),
        "access-points": sum(len({g.bucket for g in t.storage if _by_point(environment, g)}) for t in tenants),
        "buckets": len(made),
        "keys": len(made) + sum(any(_by_key(environment, grant) for grant in t.storage) for t in tenants),
        "budgets": sum(tenant.budget is not None for tenant in tenants),
        "secrets": sum(len(tenant.uses.secrets) for tenant in tenants),
        "repositories": sum(len(tenant.uses.repositories) for tenant in tenants),
    }
    for name, count in wanted.items():
        quota = account.QUOTAS[name]
        there = environment.aws.quotas.get(name, quota.default)
        if count > there:
            given = f"{count} {name} for {len(tenants)} tenants of {there} {quota.title}"
            change = f"have it raised and write quotas: {{{name}: <number>}}, or use another account"
            if name == "roles" and not shared:
                change += ", or set identity to shared"
            if quota.most == 0:
                change = "use another cluster, or identity: irsa" if name == "associations" else "use another account"
            yield ENVIRONMENT, broken(("aws", "quotas", name), "aws-03", given, change)


def _shape(tenant: Tenant, namespace: Namespace, grant: Storage) -> tuple[str, str, str]:
    own = grant.prefix == tenant.namespace_name(namespace) + "/"
    return grant.bucket, "" if own else grant.prefix, f"{grant.access} {namespace.service_account}"


def _by_point(environment: Environment, grant: Storage) -> bool:
    bucket = environment.buckets.get(grant.bucket)
    return bucket is not None and bucket.access_points


def _by_key(environment: Environment, grant: Storage) -> bool:
    bucket = environment.buckets.get(grant.bucket)
    return bucket is not None and bucket.key is KeyPer.TENANT and grant.access is not Access.READ_ONLY
