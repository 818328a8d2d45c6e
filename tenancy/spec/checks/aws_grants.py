"""Rules on the AWS resources of all tenants together: grants that contradict each other, and limits of an account or a
policy that are exceeded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tenancy.catalog import account, vocabulary
from tenancy.catalog.regions import PREFIX_BILLED_IN_YUAN, PREFIX_WITHOUT_BUDGETS
from tenancy.catalog.text import pluralize
from tenancy.rules.values import foreign_arn
from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX, IndexedMistake
from tenancy.spec.fields.data import Access, AwsResources, Files, KeyPer, Storage
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.identity import PodIdentity
from tenancy.spec.fields.tenant import Namespace, Tenant, applies_to
from tenancy.spec.reading.mistakes import Mistake, rule_mistake
from tenancy.spec.reading.source import Location

PLATFORM_ROLES = 6
"""Roles of the cluster, its nodes and the platform's services, and the break-glass role."""
PLATFORM_ASSOCIATIONS = 3
"""Pod Identity associations of the platform's services: network, volumes, Karpenter."""
PLATFORM_ENTRIES = 3
"""Access entries of the platform's role, the nodes' role and the break-glass role."""


def aws_resources(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Every broken rule on AWS resources across files; linear in the number of tenants."""
    for mistake in _platform_mistakes(environment):
        yield ENVIRONMENT_INDEX, mistake
    for index, tenant in enumerate(tenants):
        for mistake in (*_grants(environment, tenant), *_overlapping_grants(tenant), *_files(environment, tenant)):
            yield index, mistake
        if environment.aws.identity is PodIdentity.SHARED:
            for mistake in _shared_role_mistakes(environment, tenant):
                yield index, mistake
    if environment.aws.identity is PodIdentity.SHARED:
        yield from _shared_trust(environment, tenants)
    yield from _repeated_resources(tenants)
    if environment.aws.enabled:
        for index, tenant in enumerate(tenants):
            for mistake in (*_lengths(environment, tenant), *_budget(environment, tenant)):
                yield index, mistake
        yield from _bucket_lengths(environment, tenants)
        yield from _quotas(environment, tenants)


def _platform_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Settings of the environment's file that AWS would refuse, or that give access to another account."""
    aws = environment.aws
    if not aws.enabled:
        return
    if aws.management_account and aws.region.startswith(PREFIX_WITHOUT_BUDGETS):
        fault = f"management-account: true in {aws.region}"
        yield Mistake(
            ("aws", "management-account"),
            fault,
            "this region has no Cost Explorer, which activates cost tags",
            "drop it",
        )
    for name, bucket in environment.buckets.items():
        if len(name) < 3:
            rule = "S3 accepts names of 3 to 63 characters"
            yield Mistake(("buckets", name), f"bucket {name!r}", rule, "give it a longer name")
        if name.startswith(account.BUCKET_PREFIXES) or name.endswith(account.BUCKET_SUFFIXES):
            rule = "S3 reserves some beginnings and ends of names"
            change = f"use none of {', '.join((*account.BUCKET_PREFIXES, *account.BUCKET_SUFFIXES))}"
            yield Mistake(("buckets", name), f"bucket {name!r}", rule, change)
        if bucket.kms_key_arn and (fault := foreign_arn(bucket.kms_key_arn, aws.account, aws.region)):
            yield rule_mistake(("buckets", name, "kms-key-arn"), "aws-01", fault)
    for arn in environment.efs_access_points:
        if fault := foreign_arn(arn, aws.account, aws.region):
            yield rule_mistake(("efs-access-points", arn), "aws-01", fault)
    length = boundary_length(environment)
    if length > account.MANAGED_LENGTH:
        fault = f"{len(environment.buckets)} buckets in the boundary of all roles, {length} characters of "
        change = "keep tenants' data in fewer buckets, or spread the tenants over two environments"
        yield rule_mistake(("buckets",), "aws-02", f"{fault}{account.MANAGED_LENGTH}", change)
    trusted = aws.break_glass.trusted_principals if aws.break_glass else ()
    length = 280 + len(aws.region) + sum(len(arn) + 3 for arn in trusted)
    if length > account.TRUST_LENGTH:
        fault = f"{len(trusted)} principals in the trust of break-glass, {length} characters of {account.TRUST_LENGTH}"
        location: Location = ("aws", "break-glass", "trusted-principals")
        yield rule_mistake(location, "aws-02", fault, "trust one role that these people take with MFA")


def _overlapping_grants(tenant: Tenant) -> Iterator[Mistake]:
    """Grants of one namespace that overlap."""
    reported: set[int] = set()
    for namespace in tenant.namespaces:
        grants = sorted(
            (g.bucket, g.prefix, i) for i, g in enumerate(tenant.storage) if applies_to(g.namespaces, namespace)
        )
        for (bucket, outer_prefix, first_number), (other_bucket, prefix, second_number) in pairwise(grants):
            first_index, last_index = sorted((first_number, second_number))
            if bucket == other_bucket and prefix.startswith(outer_prefix) and last_index not in reported:
                reported.add(last_index)
                first_grant, last_grant = tenant.storage[first_index], tenant.storage[last_index]
                fault = (
                    f"{last_grant.access} on {bucket}/{last_grant.prefix}, which overlaps {first_grant.access} on "
                    f"{bucket}/{first_grant.prefix} in namespace {namespace.name}"
                )
                yield rule_mistake(("storage", last_index, "prefix"), "stor-07", fault)


def _grants(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, grant in enumerate(tenant.storage):
        bucket = environment.buckets.get(grant.bucket)
        if bucket is None:
            continue  # reported elsewhere
        if bucket.tenant not in {None, tenant.tenant}:
            fault = f"bucket {grant.bucket!r}, which is reserved for {bucket.tenant}"
            yield rule_mistake(
                ("storage", i, "bucket"), "ref-01", fault, "use a bucket that is open to several tenants"
            )
        keeps = grant.access in {Access.APPEND_ONLY, Access.WRITE_ONCE}
        if keeps and not bucket.versioning:
            yield rule_mistake(
                ("storage", i, "access"), "stor-05", f"{grant.access} in {grant.bucket}, versioning: false"
            )
        for namespace in tenant.namespaces:
            tier = environment.tiers.get(tenant.tier_of(namespace))
            if tier and applies_to(grant.namespaces, namespace) and grant.access.is_wider_than(tier.max_storage_access):
                fault = (
                    f"{grant.access} in namespace {namespace.name} of tier {tenant.tier_of(namespace)}, whose "
                    f"max-storage-access is {tier.max_storage_access}"
                )
                yield rule_mistake(("storage", i, "access"), "stor-06", fault)
                break


def _files(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    for i, files in enumerate(tenant.aws_resources.efs_access_points):
        point = environment.efs_access_points.get(files.access_point)
        if point and point.tenant not in {None, tenant.tenant}:
            fault = f"access point {files.access_point!r}, which is reserved for {point.tenant}"
            location: Location = ("aws-resources", "efs-access-points", i, "access-point")
            yield rule_mistake(location, "ref-01", fault, "use one that is the tenant's, or open to several")


def _shared_role_mistakes(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """Grants that tags of namespace and service account cannot separate."""
    for i, grant in enumerate(tenant.storage):
        bucket = environment.buckets.get(grant.bucket)
        needs_own_policies = bucket and (bucket.access_points or bucket.kms_key_scope is KeyPer.TENANT)
        if bucket and needs_own_policies:
            bucket_setting = "access-points" if bucket.access_points else "kms-key-scope: tenant"
            fault = f"bucket {grant.bucket} with {bucket_setting} and identity: shared"
            yield rule_mistake(
                ("storage", i, "bucket"), "aws-04", fault, "use another bucket, or identity: pod-identity"
            )
        if grant.access is Access.READ_ONLY:
            continue
        namespaces = [namespace for namespace in tenant.namespaces if applies_to(grant.namespaces, namespace)]
        for namespace in namespaces:
            if grant.prefix != tenant.namespace_name(namespace) + "/":
                fault = f"{grant.access} on {grant.prefix} for namespace {namespace.name} with identity: shared"
                yield rule_mistake(("storage", i, "prefix"), "aws-04", fault)
                break
    for kind in dict.fromkeys(place[0] for place, _ in tenant.aws_resources.uses()):
        fault = f"{kind} with identity: shared"
        yield rule_mistake(("aws-resources", kind), "aws-04", fault, "drop them, or set aws.identity to pod-identity")


def _shared_trust(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Names of namespaces that the trust of a shared role lists, because they have no common form."""
    names = [
        name
        for tenant in tenants
        for namespace in tenant.namespaces
        if tenant.has_identity(namespace) and vocabulary.SEPARATOR not in (name := tenant.namespace_name(namespace))
    ]
    length = 700 + len(environment.cluster.name) * 2 + sum(len(name) + 3 for name in names)
    if length > account.TRUST_LENGTH:
        fault = f"{len(names)} names of namespaces without '--' in the trust of shared roles, {length} characters of "
        change = "use the pattern {tenant}--{namespace} for some of them, or set aws.identity to pod-identity"
        yield ENVIRONMENT_INDEX, rule_mistake(("aws", "identity"), "aws-02", f"{fault}{account.TRUST_LENGTH}", change)


def _repeated_resources(tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Pipelines and EFS folders that two tenants name."""
    pipelines: dict[tuple[str, str], str] = {}
    points: dict[str, list[tuple[str, bool]]] = {}
    for index, tenant in enumerate(tenants):
        if tenant.ci:
            first_tenant = pipelines.setdefault((tenant.ci.issuer, tenant.ci.subject), tenant.tenant)
            if first_tenant != tenant.tenant:
                fault = f"{tenant.ci.subject}, which is the pipeline of {first_tenant}"
                yield (
                    index,
                    rule_mistake(("ci",), "aws-05", fault, "give each tenant a repository or a branch of its own"),
                )
        for i, files in enumerate(tenant.aws_resources.efs_access_points):
            writes = files.access == "read-write"
            other_users = [name for name, other_writes in points.get(files.access_point, ()) if writes or other_writes]
            if other_users := [name for name in other_users if name != tenant.tenant]:
                fault = f"{files.access_point}, which {other_users[0]} uses as well"
                change = "make an access point with a folder of its own, or let both only read"
                yield (
                    index,
                    rule_mistake(("aws-resources", "efs-access-points", i, "access-point"), "stor-02", fault, change),
                )
            points.setdefault(files.access_point, []).append((tenant.tenant, writes))


# Lengths of the policies. The plan writes them later; a test compares both.


def _statement_length(actions: int, resources: Iterable[int], condition: int = 0) -> int:
    """Characters of a statement, by those of its actions, resources and condition."""
    return 76 + actions + sum(resource + 3 for resource in resources) + condition


def _bucket_arn(environment: Environment, bucket: str) -> int:
    """Characters of a bucket's ARN."""
    return len("arn:aws:s3:::") + _partition_excess(environment) + len(bucket)


def _access_point_arn(environment: Environment) -> int:
    """Maximum of characters of an access point's ARN."""
    name_length = len(environment.aws.region) + account.ACCESS_POINT_NAME
    return len("arn:aws:s3::111122223333:accesspoint/") + _partition_excess(environment) + name_length


def _partition_excess(environment: Environment) -> int:
    """Maximum of characters by which the partition's name is longer than `aws`."""
    return 7 if environment.aws.region.startswith(("us-gov-", "cn-")) else 0


def role_length(environment: Environment, tenant: Tenant, namespace: Namespace) -> int:
    """Maximum of characters of a namespace's inline policies."""
    grants = {(g.bucket, g.prefix, g.access) for g in tenant.grants_of(namespace) if g.bucket in environment.buckets}
    total = 100
    contexts = 0
    for bucket in {bucket for bucket, _, _ in grants}:
        grants_in_bucket = [(prefix, access) for name, prefix, access in grants if name == bucket]
        bucket_arn = _bucket_arn(environment, bucket)
        point = _access_point_arn(environment) if environment.buckets[bucket].access_points else 0
        arn_lengths = [bucket_arn, *([point] if point else [])]

        def objects(grants: Sequence[tuple[str, Access]], whole: int = bucket_arn, point: int = point) -> list[int]:
            bucket_objects = [whole + len(prefix) + 2 for prefix, _ in grants]
            return [*bucket_objects, *(point + len(prefix) + 9 for prefix, _ in grants if point)]

        def listed(grants: Sequence[tuple[str, Access]]) -> int:
            return 50 + sum(len(prefix) + 4 for prefix, _ in grants)

        writable = [grant for grant in grants_in_bucket if grant[1] is not Access.READ_ONLY]
        total += _statement_length(18, arn_lengths, listed(grants_in_bucket)) + _statement_length(
            18, objects(grants_in_bucket)
        )
        if writable:
            total += _statement_length(26, arn_lengths, listed(writable)) + _statement_length(24, objects(writable))
            total += _statement_length(60, objects(writable))
        for access, extra in ((Access.READ_WRITE, 0), (Access.APPEND_ONLY, 0), (Access.WRITE_ONCE, 60)):
            if grants_of_access := [grant for grant in grants_in_bucket if grant[1] is access]:
                total += _statement_length(38, objects(grants_of_access), extra) * (2 if extra else 1)
        contexts += (
            bucket_arn
            + 3
            + sum(objects(grants_in_bucket))
            + 3 * len(grants_in_bucket)
            + 60
            + len(bucket)
            + len(environment.environment)
        )
    if grants:
        total += 2 * (330 + len(environment.aws.region)) + contexts + 100
    names: dict[str, list[str]] = {}
    for (kind, key), use in tenant.aws_resources.uses():
        if not applies_to(use.namespaces, namespace):
            continue
        if isinstance(use, Files):
            total += 420
        else:
            names.setdefault(str(kind), []).append(str(key))
    for names_of_kind in names.values():
        total += _statement_length(160, [190 + len(tenant.tenant) + len(name) for name in names_of_kind])
    return total


def boundary_length(environment: Environment) -> int:
    """Maximum of characters of the boundary of all tenants' roles."""
    name_lengths = 12 * (len(environment.aws.region) + _partition_excess(environment)) + 6 * len(
        environment.environment
    )
    buckets = sum(2 * _bucket_arn(environment, name) + 8 for name in environment.buckets)
    return 2450 + name_lengths + 3 * len(environment.cluster.name) + buckets


def pipeline_length(environment: Environment, tenant: Tenant) -> int:
    """Maximum of characters of the policy of a tenant's pipeline."""
    repository_arn = (
        60
        + _partition_excess(environment)
        + len(environment.aws.region)
        + len(environment.environment)
        + len(tenant.tenant)
    )
    repository_arns = sum(repository_arn + len(name) for name in tenant.aws_resources.repositories)
    return 560 + 2 * repository_arn + len(environment.cluster.name) + repository_arns


def key_length(environment: Environment, tenant: Tenant) -> int:
    """Maximum of bytes of the policy of a tenant's own key."""
    prefixes = {(grant.bucket, grant.prefix) for grant in tenant.storage if _by_key(environment, grant)}
    contexts = sum(2 * _bucket_arn(environment, bucket) + len(prefix) + 8 for bucket, prefix in prefixes)
    names = 2 * len(environment.environment) + len(environment.cluster.name) + len(environment.aws.region)
    return 1250 + names + len(tenant.tenant) + len(environment.aws.platform_role) + contexts


def _budget(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    """A budget that AWS would refuse at the end of a run, or would read in another currency."""
    region = environment.aws.region
    if tenant.budget and region.startswith((PREFIX_WITHOUT_BUDGETS, PREFIX_BILLED_IN_YUAN)):
        in_china = region.startswith(PREFIX_BILLED_IN_YUAN)
        rule = "AWS bills in yuan in China, not in dollars" if in_china else "this region has no AWS Budgets"
        yield Mistake(("budget",), f"budget in {region}", rule, "drop it; `tenancy chargeback` shows what is spent")


def _lengths(environment: Environment, tenant: Tenant) -> Iterator[Mistake]:
    if tenant.ci and (length := pipeline_length(environment, tenant)) > account.INLINE_LENGTH:
        fault = f"{len(tenant.aws_resources.repositories)} repositories, {length} characters of {account.INLINE_LENGTH}"
        yield rule_mistake(
            ("aws-resources", "repositories"), "aws-02", fault, "keep more images in fewer repositories, by tag"
        )
    if (length := key_length(environment, tenant)) > account.KEY_POLICY_LENGTH:
        fault = f"prefixes under the tenant's own key, {length} bytes of {account.KEY_POLICY_LENGTH}"
        yield rule_mistake(("storage",), "aws-02", fault)
    for i, namespace in enumerate(tenant.namespaces):
        length = role_length(environment, tenant, namespace)
        if length > account.INLINE_LENGTH:
            fault = f"grants of namespace {namespace.name}, {length} characters of {account.INLINE_LENGTH}"
            yield rule_mistake(
                ("namespaces", i) if "namespaces" in tenant.model_fields_set else ("storage",), "aws-02", fault
            )
    for name in sorted({g.bucket for g in tenant.storage if g.bucket in environment.buckets}):
        length = policy_length(environment, [tenant], name, point=True)
        if environment.buckets[name].access_points and length > account.BUCKET_POLICY_LENGTH:
            fault = f"prefixes in {name}, {length} bytes of {account.BUCKET_POLICY_LENGTH} in the access point's policy"
            yield rule_mistake(("storage",), "aws-02", fault)


def _role_arn(environment: Environment, tenant: Tenant, namespace: Namespace) -> int:
    if environment.aws.identity is PodIdentity.SHARED:
        return 50 + len(environment.environment) + account.ROLE_NAME
    name = len(environment.cluster.name) + len(tenant.tenant) + len(namespace.name) + 4
    path = len(environment.environment) + len(tenant.tenant) + 11
    return len("arn:aws:iam::111122223333:role") + _partition_excess(environment) + path + min(name, account.ROLE_NAME)


def policy_length(environment: Environment, tenants: Iterable[Tenant], bucket: str, *, point: bool = False) -> int:
    """Maximum of bytes of a bucket's policy, if tenants use the bucket directly, or of an access point's policy."""
    exempt = len(environment.aws.platform_role) + 3
    if environment.aws.break_glass:
        name = min(len(environment.cluster.name) + len("-break-glass"), account.ROLE_NAME)
        exempt += len("arn:aws:iam::111122223333:role/tenancy-platform//") + len(environment.environment) + name + 10
    resource_arn = _access_point_arn(environment) if point else _bucket_arn(environment, bucket)
    within = resource_arn + (len("/object") if point else 0)
    role_lengths = (
        len(environment.environment) + _partition_excess(environment) + len(environment.aws.organization_id or "")
    )
    total = 1500 + 5 * resource_arn + 4 * exempt if point else 2650 + 12 * resource_arn + 7 * exempt + 3 * role_lengths
    roles_of_prefix: dict[str, set[str]] = {}
    accesses: dict[str, set[Access]] = {}
    longest: dict[str, int] = {}
    for tenant in tenants:
        for grant in tenant.storage:
            for namespace in tenant.namespaces if grant.bucket == bucket else ():
                if applies_to(grant.namespaces, namespace):
                    role = f"{tenant.tenant}/{namespace.name}"
                    longest[role] = _role_arn(environment, tenant, namespace)
                    roles_of_prefix.setdefault(grant.prefix, set()).add(role)
                    accesses.setdefault(grant.prefix, set()).add(grant.access)
    total += sum(length + 3 for length in longest.values()) if point else 0
    groups: dict[frozenset[str], list[str]] = {}
    for prefix, roles in _related_roles(roles_of_prefix).items():
        groups.setdefault(frozenset(roles), []).append(prefix)
    for roles, prefixes in groups.items():
        role_lengths = sum(longest[role] + 3 for role in roles) + exempt
        total += _statement_length(6, [within + len(prefix) + 2 for prefix in prefixes], 65 + role_lengths)
        total += _statement_length(40, [resource_arn], 90 + role_lengths + sum(len(prefix) + 4 for prefix in prefixes))
    for prefix, prefix_accesses in accesses.items():
        # Counted once more, and once for each end that its access denies.
        ends = 0 if Access.READ_WRITE in prefix_accesses else 1 if Access.APPEND_ONLY in prefix_accesses else 2
        total += len(prefix) + 4 + ends * (within + len(prefix) + 5)
    return total


def _related_roles(roles_of_prefix: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """For each prefix the tenants that have it, a prefix around it or a prefix below it."""
    related = {prefix: set(roles) for prefix, roles in roles_of_prefix.items()}
    outer_prefixes: list[str] = []
    for prefix in sorted(roles_of_prefix):
        while outer_prefixes and not prefix.startswith(outer_prefixes[-1]):
            outer_prefixes.pop()
        for outer in outer_prefixes:
            related[outer] |= roles_of_prefix[prefix]
            related[prefix] |= roles_of_prefix[outer]
        outer_prefixes.append(prefix)
    return related


def _bucket_lengths(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    tenants_of_bucket: dict[str, list[Tenant]] = {}
    rules: dict[str, set[tuple[str, str]]] = {}
    for tenant in tenants:
        for name in {grant.bucket for grant in tenant.storage}:
            tenants_of_bucket.setdefault(name, []).append(tenant)
        for grant in tenant.storage:
            if grant.expiration_days:
                rules.setdefault(grant.bucket, set()).add((tenant.tenant, grant.prefix))
    for name, bucket in environment.buckets.items():
        if bucket.existing:
            continue
        location: Location = ("buckets", name)
        length = 0 if bucket.access_points else policy_length(environment, tenants_of_bucket.get(name, ()), name)
        if length > account.BUCKET_POLICY_LENGTH:
            fault = (
                f"bucket {name} with prefixes of {pluralize(len(tenants_of_bucket[name]), 'tenant')}, {length} bytes "
                f"of {account.BUCKET_POLICY_LENGTH}"
            )
            change = "set access-points on the bucket, or make a second bucket"
            yield ENVIRONMENT_INDEX, rule_mistake(location, "aws-02", fault, change)
        count = 1 + len(rules.get(name, ()))
        if count > account.LIFECYCLE_RULES:
            fault = f"bucket {name} with {count} rules of expiry of {account.LIFECYCLE_RULES}"
            yield (
                ENVIRONMENT_INDEX,
                rule_mistake(location, "aws-02", fault, "set expiration-days on a bucket for what expires"),
            )


def _quotas(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[IndexedMistake]:
    """Sums over all tenants. Other resources of the account are unknown here, so no room is reserved for them."""
    pods = [
        (tenant, namespace) for tenant in tenants for namespace in tenant.namespaces if tenant.has_identity(namespace)
    ]
    pipelines = [tenant for tenant in tenants if tenant.ci]
    has_shared_roles = environment.aws.identity is PodIdentity.SHARED
    buckets = environment.buckets
    new_buckets = [name for name, bucket in buckets.items() if not bucket.existing]
    shapes = {frozenset(_shape(t, n, g) for g in t.grants_of(n)) for t, n in pods} if has_shared_roles else ()
    counts = {
        "roles": (len(shapes) if has_shared_roles else len(pods)) + len(pipelines) + PLATFORM_ROLES,
        "policies": 1,
        "oidc-providers": len({t.ci.issuer for t in pipelines if t.ci}) + environment.aws.irsa,
        "associations": PLATFORM_ASSOCIATIONS + (0 if environment.aws.identity is PodIdentity.IRSA else len(pods)),
        "access-entries": PLATFORM_ENTRIES + len(environment.aws.group_roles) + len(pipelines),
        "access-points": sum(len({g.bucket for g in t.storage if _by_point(environment, g)}) for t in tenants),
        "buckets": len(new_buckets),
        "keys": (not environment.aws.kms_key_arn)
        + len(new_buckets)
        + sum(any(_by_key(environment, grant) for grant in t.storage) for t in tenants),
        "budgets": sum(tenant.budget is not None for tenant in tenants),
    }
    for kind in AwsResources.model_fields:
        if kind in account.QUOTAS:
            counts[kind] = sum(len(getattr(tenant.aws_resources, kind)) for tenant in tenants)
    for name, count in counts.items():
        quota = account.QUOTAS[name]
        available = environment.aws.service_quotas.get(name, quota.default)
        if count > available:
            fault = f"{count} {name} for {pluralize(len(tenants), 'tenant')} of {available} {quota.title}"
            change = f"have it raised and write service-quotas: {{{name}: <number>}}, or use another account"
            if name == "roles" and not has_shared_roles:
                change += ", or set identity to shared"
            if quota.most == 0:
                change = _ALTERNATIVES.get(name, "use another account")
            yield ENVIRONMENT_INDEX, rule_mistake(("aws", "service-quotas", name), "aws-03", fault, change)


_ALTERNATIVES = {
    "associations": "use another cluster, or identity: irsa",
    "access-entries": "use another cluster, or map one group of the environment for several groups of people",
}
"""Changes for quotas that AWS does not raise."""


def _shape(tenant: Tenant, namespace: Namespace, grant: Storage) -> tuple[str, str, str]:
    is_own_prefix = grant.prefix == tenant.namespace_name(namespace) + "/"
    return grant.bucket, "" if is_own_prefix else grant.prefix, f"{grant.access} {namespace.service_account}"


def _by_point(environment: Environment, grant: Storage) -> bool:
    bucket = environment.buckets.get(grant.bucket)
    return bucket is not None and bucket.access_points


def _by_key(environment: Environment, grant: Storage) -> bool:
    bucket = environment.buckets.get(grant.bucket)
    return bucket is not None and bucket.kms_key_scope is KeyPer.TENANT and grant.access is not Access.READ_ONLY
