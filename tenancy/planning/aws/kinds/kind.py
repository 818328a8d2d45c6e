"""The description of one kind of AWS resource that a tenant has for itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tenancy.planning.aws import documents
from tenancy.planning.aws.documents import Document
from tenancy.planning.aws.tenant_models import OwnedResource, ResourcePolicy
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant


@dataclass(frozen=True, slots=True)
class ResourceGrant:
    """Access to a tenant's resources of one kind, by the policy of a role."""

    sid: str
    actions: Sequence[str]
    words: str
    """Verb phrase of reports, such as "reads the secret"."""
    words_without_writes: str = ""
    """The same for a tenant that leaves; empty: no other."""
    suffix: str = ""
    """Text after the resource's ARN in the statement; `*` and `?` stand for any text."""
    title: str = ""
    """Text before the resource's name in reports."""


@dataclass(frozen=True, slots=True)
class PolicyType:
    """The policy that each resource of a kind has itself: its type and its statements."""

    type: str
    """Pulumi's type."""
    target: str
    """Property with the id of the resource."""
    statements: Callable[[str, Sequence[str]], Sequence[Document]]
    """Its statements, by the resource's ARN and the ARNs of the principals that it leaves out."""
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AwsKind:
    """One kind. Its entries are a field of `aws-resources`; all else about it is here."""

    field: str
    """Name of the field, in Python's spelling."""
    noun: str
    """One of them, in messages."""
    type: str
    """Pulumi's type."""
    service: str
    """The service in ARNs."""
    path: str
    """Resource part of the ARN, with `{name}`."""
    name: Callable[[Environment, Tenant, str], str]
    """Name on AWS of an entry of a tenant."""
    boundary: tuple[str, Callable[[Environment], str]]
    """Sid, and name of all tenants' resources, in the boundary of their roles."""
    requests: Mapping[str, str]
    """Verb of `tenancy can` -> action."""
    pods: ResourceGrant | None = None
    """Grant of the namespaces that use it; None: pods have none."""
    pipeline: ResourceGrant | None = None
    """Grant of the tenant's pipeline; None: it has none."""
    policy: PolicyType | None = None
    properties: Callable[[Environment], dict[str, Any]] = lambda _: {}
    """Properties besides name and tags."""
    is_kept: bool = True
    """Whether it stays on AWS when its stack is destroyed."""
    is_protected: bool = True
    """Whether the state protects it."""
    monthly_price: Decimal | None = None
    """Dollars for one for a month, in the estimate of fixed costs; None: it costs by use."""

    @property
    def key(self) -> str:
        """The field's key in a file, and the name of the quota in `aws.service-quotas` where it has one."""
        return self.field.replace("_", "-")

    def arn(self, environment: Environment, name: str) -> str:
        """ARN of the one with a name, or a pattern of names."""
        return documents.arn(environment, self.service, self.path.format(name=name))

    def arns(self, environment: Environment, tenant: Tenant, names: Collection[str]) -> list[str]:
        """ARNs of these entries of a tenant, sorted by entry."""
        return [self.arn(environment, self.name(environment, tenant, name)) for name in sorted(names)]

    def boundary_statement(self, environment: Environment) -> Document:
        """Statement of the boundary of all tenants' roles that leaves the kind open."""
        sid, name = self.boundary
        actions = [*(self.pods.actions if self.pods else ()), *(self.pipeline.actions if self.pipeline else ())]
        return documents.allow(sid, actions, self.arn(environment, name(environment)))

    def resource(
        self, environment: Environment, tenant: Tenant, entry: str, allowed: Sequence[str], tags: dict[str, str]
    ) -> OwnedResource:
        """The resource of one entry. Its policy leaves out the `allowed` principals."""
        name = self.name(environment, tenant, entry)
        arn = self.arn(environment, name)
        policy = None
        if self.policy:
            content = documents.document(*self.policy.statements(arn, allowed))
            policy = ResourcePolicy(self.policy.type, self.policy.target, content, dict(self.policy.properties))
        return OwnedResource(
            kind=self.field,
            noun=self.noun,
            type=self.type,
            name=name,
            arn=arn,
            properties=self.properties(environment),
            policy=policy,
            is_kept=self.is_kept,
            is_protected=self.is_protected,
            tags=tags,
        )


def only_its_own(actions: list[str], resource: str, allowed: Sequence[str]) -> Document:
    """The statement of a resource's policy that denies all identities but these, whatever their policies allow."""
    others = {"StringNotEquals": {"aws:PrincipalArn": [*allowed]}}
    return documents.deny("OnlyItsOwn", actions, resource, others, principal="*")
