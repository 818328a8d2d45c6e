"""Access of each subject, with the line of the spec file that grants it, read from the plan.

Group membership is decided by the identity provider, and is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.aws import kinds
from tenancy.planning.aws.iam_roles import ci_group
from tenancy.planning.common.stages import active_tenants
from tenancy.planning.plan_model import NamespacePlan, Plan
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant, applies_to
from tenancy.spec.reading.source import Location

ENVIRONMENT = ""
"""Value of `file` for environment.yaml, instead of a tenant."""
CI = "CI identity"
SERVICE_ACCOUNT = "service account"
IAM_ROLE = "IAM role"
BREAK_GLASS = "break-glass"
ON_AWS = frozenset({CI, SERVICE_ACCOUNT, IAM_ROLE, BREAK_GLASS})
"""Kinds that get in by an object of AWS: a role, an association, an access entry."""
IS_GROUP = "is group "
"""Beginning of the sentence about an AWS identity that becomes a Kubernetes group."""

READS = "reads"
_DATA: Mapping[Access, str] = {
    Access.READ_ONLY: READS,
    Access.WRITE_ONCE: "reads, writes what is new",
    Access.APPEND_ONLY: "reads, writes, deletes nothing",
    Access.READ_WRITE: "reads, writes, deletes",
}
_VERBS: Mapping[frozenset[str], str] = {
    frozenset(verbs.split()): description
    for verbs, description in {
        "get": "reads one that it can name",
        "get list watch": READS,
        "delete": "deletes",
        "delete deletecollection": "deletes",
        "create delete": "makes and deletes",
        "get create": "uses",
        "get update patch": "changes",
        "create update patch delete deletecollection": "makes, changes and deletes",
        "get list watch create update patch delete deletecollection": "reads, makes, changes and deletes",
        "get list watch delete": "reads and deletes",
    }.items()
}
"""Verbs of a rule -> what they come to. Any others are shown as they are."""


@dataclass(frozen=True, slots=True)
class Right:
    """Rights of one role on some kinds of object."""

    role: str
    may: str
    to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccessGrant:
    """One subject, its role or rights, and where they apply."""

    tenant: str
    """Empty: of the platform."""
    kind: str
    """Group, User, CI identity, service account, IAM role or break-glass."""
    subject: str
    role: str
    """A role of `rights`, a sentence about data, or what an identity of AWS becomes."""
    applies_to: tuple[str, ...]
    """Namespaces, buckets with their prefixes, or the cluster."""
    file: str
    """The tenant whose file says so; ENVIRONMENT: environment.yaml."""
    field: Location


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """One subject in one RoleBinding. A ClusterRoleBinding has no namespace."""

    namespace: str
    kind: str
    name: str
    role: str


def rights(plan: Plan) -> tuple[Right, ...]:
    """Every role, in words."""
    resources_by_right: dict[tuple[str, str], set[str]] = {}
    for role in plan.platform.cluster_roles:
        for rule in role.rules:
            description = _VERBS.get(frozenset(rule.verbs), ", ".join(rule.verbs))
            resources_by_right.setdefault((_persona(role.name), description), set()).update(rule.resources)
    order = list(dict.fromkeys(role for role, _ in resources_by_right))
    return tuple(
        Right(role, may, tuple(sorted(resources)))
        for (role, may), resources in sorted(
            resources_by_right.items(), key=lambda item: (order.index(item[0][0]), item[0][1] != READS)
        )
    )


def _persona(name: str) -> str:
    return name.removeprefix("tenancy-")


def review(environment: Environment, tenants: Sequence[Tenant], plan: Plan) -> tuple[AccessGrant, ...]:
    """Every subject with access by the files, sorted; where AWS is off, without access that only AWS objects give."""
    grants = all_grants(environment, tenants, plan)
    return tuple(entry for entry in grants if environment.aws.enabled or entry.kind not in ON_AWS)


def inactive_grants(environment: Environment, tenants: Sequence[Tenant], plan: Plan) -> tuple[AccessGrant, ...]:
    """Grants on AWS in the files of an environment without AWS: they give no access."""
    if environment.aws.enabled:
        return ()
    return tuple(entry for entry in all_grants(environment, tenants, plan) if entry.kind in ON_AWS)


def all_grants(environment: Environment, tenants: Sequence[Tenant], plan: Plan) -> list[AccessGrant]:
    """Every subject that the files name, made or not: changes of the files are judged by this list."""
    tenants = active_tenants(tenants)
    grants = [*_platform_grants(environment, tenants)]
    for tenant in tenants:
        grants += [
            *_role_grants(tenant, plan),
            *_pipeline_grants(environment, tenant),
            *_data_grants(environment, tenant),
        ]
    return sorted(grants, key=lambda e: (e.tenant, e.kind, e.subject, e.role, e.applies_to, e.field))


def planned_bindings(plan: Plan) -> frozenset[Binding]:
    """Every binding that the plan makes."""
    spaces = (space for tenant in plan.tenants for space in tenant.namespaces)
    return frozenset(binding for space in spaces for binding in bindings_in(space))


def bindings_in(space: NamespacePlan) -> Iterator[Binding]:
    """Every subject that the plan binds in a namespace."""
    for binding in space.bindings:
        for subject in binding.subjects:
            yield Binding(space.name, subject.kind, subject.full_name, binding.role)


def bindings(item: Object) -> Iterator[Binding]:
    """The subjects of a RoleBinding or a ClusterRoleBinding of a cluster."""
    namespace = item["metadata"].get("namespace", "")
    for subject in item.get("subjects") or ():
        # A service account's name means nothing without its namespace.
        name = f"{subject['namespace']}/{subject['name']}" if subject.get("namespace") else subject["name"]
        yield Binding(namespace, subject["kind"], name, item["roleRef"]["name"])


def _role_grants(tenant: Tenant, plan: Plan) -> Iterator[AccessGrant]:
    """Subjects with a role in the tenant's namespaces."""
    spaces: dict[tuple[str, str, str], list[str]] = {}
    for namespace in plan.tenant(tenant.tenant).namespaces:
        for binding in bindings_in(namespace):
            spaces.setdefault((binding.kind, binding.name, binding.role), []).append(binding.namespace)
    for (kind, name, role), bound_namespaces in spaces.items():
        if name == ci_group(tenant) and tenant.ci:
            yield AccessGrant(
                tenant.tenant,
                CI,
                tenant.ci.subject,
                _persona(role),
                tuple(bound_namespaces),
                tenant.tenant,
                ("ci", "role"),
            )
            continue
        for field, named_namespaces in _people_entries(tenant, kind, name, _persona(role)):
            granted_namespaces = tuple(
                space for space in bound_namespaces if not named_namespaces or space in named_namespaces
            )
            yield AccessGrant(tenant.tenant, kind, name, _persona(role), granted_namespaces, tenant.tenant, field)


def _people_entries(tenant: Tenant, kind: str, name: str, role: str) -> list[tuple[Location, frozenset[str]]]:
    """The entries under `people` that give this subject a role, with the namespaces of those that name some."""
    if role == vocabulary.VIRTUAL_CLUSTER:
        return [(("isolation",), frozenset())]
    entries: list[tuple[Location, frozenset[str]]] = [
        (("people", i), tenant.names_of(person.namespaces))
        for i, person in enumerate(tenant.people)
        if (person.kind, person.name, person.role.value) == (kind, name, role)
    ]
    return entries or [((), frozenset())]


def _pipeline_grants(environment: Environment, tenant: Tenant) -> Iterator[AccessGrant]:
    for kind in kinds.KINDS:
        entries, grant = getattr(tenant.aws_resources, kind.field), kind.pipeline
        if tenant.ci and entries and grant:
            targets = tuple(f"{grant.title}{kind.name(environment, tenant, name)}" for name in sorted(entries))
            may = (tenant.offboarding and grant.words_without_writes) or grant.words
            field = ("aws-resources", kind.key)
            yield AccessGrant(tenant.tenant, CI, tenant.ci.subject, may, targets, tenant.tenant, field)


def _data_grants(environment: Environment, tenant: Tenant) -> Iterator[AccessGrant]:
    """AWS resources that pods reach, by service account."""
    uses = tenant.aws_resources
    for namespace in tenant.namespaces:
        subject = f"{tenant.namespace_name(namespace)}/{namespace.service_account}"

        def entry(may: str, target: str, *field: str | int, subject: str = subject) -> AccessGrant:
            return AccessGrant(tenant.tenant, SERVICE_ACCOUNT, subject, may, (target,), tenant.tenant, field)

        for i, grant in enumerate(tenant.storage):
            if applies_to(grant.namespaces, namespace):
                yield entry(_DATA[grant.access], f"s3://{grant.bucket}/{grant.prefix}", "storage", i)
        for kind in kinds.KINDS:
            for name in sorted(getattr(uses, kind.field)) if kind.pods else ():
                use = uses.users(kind.field, name)
                if kind.pods and use and applies_to(use.namespaces, namespace):
                    target = f"{kind.pods.title}{kind.name(environment, tenant, name)}"
                    yield entry(kind.pods.words, target, "aws-resources", kind.key, name)
        for i, files in enumerate(uses.efs_access_points):
            if applies_to(files.namespaces, namespace):
                may = "mounts, reads and writes" if files.access == "read-write" else "mounts and reads"
                yield entry(may, files.access_point, "aws-resources", "efs-access-points", i)


def _platform_grants(environment: Environment, tenants: Sequence[Tenant]) -> Iterator[AccessGrant]:
    aws, cluster = environment.aws, (f"cluster {environment.cluster.name}",)
    group = environment.platform.group
    yield AccessGrant(
        "", "Group", group, "runs the cluster and every tenant", cluster, ENVIRONMENT, ("platform", "group")
    )
    if aws.platform_role:
        field = ("aws", "platform-role")
        yield AccessGrant("", IAM_ROLE, aws.platform_role, f"{IS_GROUP}{group}", cluster, ENVIRONMENT, field)
    for name, role in sorted(aws.group_roles.items()):
        holders = [t.tenant for t in tenants if any(p.group == name for p in t.people)]
        description = f"{IS_GROUP}{name}" + ("" if holders else ", which no tenant names")
        for tenant in holders or [""]:
            yield AccessGrant(tenant, IAM_ROLE, role, description, cluster, ENVIRONMENT, ("aws", "group-roles", name))
    if aws.break_glass:
        may = "administers for an hour, by MFA, with an alarm"
        for i, principal in enumerate(aws.break_glass.trusted_principals):
            field = ("aws", "break-glass", "trusted-principals", i)
            yield AccessGrant("", BREAK_GLASS, principal, may, cluster, ENVIRONMENT, field)
