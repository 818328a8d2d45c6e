"""AWS resources of one tenant: identities of its pods and its pipeline, and resources that it does not share.

Plain data: names and ARNs follow from the files, nothing is asked of AWS. All of it belongs to the tenant's own stack;
what several tenants share is in `tenancy.planning.aws.platform_models`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tenancy.planning.aws.documents import Document


@dataclass(frozen=True, slots=True)
class Association:
    """aws.eks.PodIdentityAssociation: pods of one service account get one role.

    Made after the namespace and removed before it: it refers to namespace and account by name, so the next owner of
    these names would get the role of an association that was left.
    """

    cluster: str
    namespace: str
    service_account: str
    role: str
    """ARN. The role is this plan's, or a shared one of the platform's (`DataPlan.shared_roles`)."""
    tags: dict[str, str]
    disable_session_tags: bool = False
    """Always False: the trust asks for the tags."""


@dataclass(frozen=True, slots=True)
class TenantRolePlan:
    """aws.iam.Role, with an aws.iam.RolePolicy for each of `policies`.

    Not protected: a role that is lost is made again, data is not.
    """

    name: str
    path: str
    """Begins and ends with '/'."""
    arn: str
    """Its ARN on AWS: known beforehand, so that policies name it before it exists."""
    purpose: str
    """The namespace whose pods have it, or `ci`."""
    trust: Document
    policies: dict[str, Document]
    """Inline policies, by name."""
    boundary: str
    """ARN of `DataPlan.boundary`, which the platform's stack makes first; of break-glass the organisation's or none."""
    session_seconds: int
    """maxSessionDuration."""
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """aws.eks.AccessEntry of type STANDARD: an IAM role is in Kubernetes groups.

    `policy` is an access policy, for an aws.eks.AccessPolicyAssociation of the whole cluster; only break-glass has one.
    """

    cluster: str
    principal: str
    groups: tuple[str, ...]
    tags: dict[str, str]
    policy: str = ""


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """aws.kms.Key with an aws.kms.Alias. Protected and kept: without it all that it encrypted is lost."""

    alias: str
    """Begins with `alias/`."""
    description: str
    policy: Document
    tags: dict[str, str]
    rotates: bool = True
    deletion_days: int = 30


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """aws.s3.AccessPoint of one bucket, with public access blocked and its own policy (aws.s3control.AccessPointPolicy,
    or inline). The bucket's policy leaves tenants to the access points."""

    name: str
    bucket: str
    arn: str
    policy: Document
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class ResourcePolicy:
    """A resource's own policy, which is a resource of its own on AWS."""

    type: str
    """Pulumi's type."""
    target: str
    """Property with the id of the resource."""
    document: Document
    properties: dict[str, Any]
    """Besides those two."""


@dataclass(frozen=True, slots=True)
class OwnedResource:
    """A resource that one tenant alone uses, of one of `tenancy.planning.aws.kinds`."""

    kind: str
    """Its field in `aws-resources`."""
    noun: str
    type: str
    """Pulumi's type."""
    name: str
    arn: str
    properties: dict[str, Any]
    """Besides name and tags."""
    policy: ResourcePolicy | None
    is_kept: bool
    """Whether it stays on AWS when its stack is destroyed, and its policy with it: what is left without its policy has
    one lock instead of two."""
    is_protected: bool
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Alert:
    """A notification of a budget: aws.budgets.BudgetNotificationArgs, GREATER_THAN, in PERCENTAGE."""

    kind: str
    """ACTUAL or FORECASTED."""
    percent: int
    mail: str


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """aws.budgets.Budget of type COST, MONTHLY, in USD."""

    name: str
    limit: str
    """Dollars, as AWS takes them: a text."""
    filters: dict[str, tuple[str, ...]]
    """Cost filters: name -> values."""
    alerts: tuple[Alert, ...]
    tags: dict[str, str]


@dataclass(frozen=True, slots=True)
class TenantAwsPlan:
    """In the order in which it is made. Associations and access entries come after the tenant's namespaces and go
    before them; roles need the platform's boundary, which is there by then."""

    keys: tuple[KeyPlan, ...] = ()
    roles: tuple[TenantRolePlan, ...] = ()
    access_points: tuple[AccessPoint, ...] = ()
    owned: tuple[OwnedResource, ...] = ()
    """Further resources of its own, by kind and name."""
    budget: BudgetPlan | None = None
    associations: tuple[Association, ...] = ()
    access_entries: tuple[AccessEntry, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    """Tags of resources of the tenant as a whole; resources of a namespace have tags of their own."""

    def __bool__(self) -> bool:
        return any(True for _ in self.resources())

    def owned_of(self, kind: str) -> tuple[OwnedResource, ...]:
        """Those of one kind, a field of `aws-resources`."""
        return tuple(resource for resource in self.owned if resource.kind == kind)

    def resources(self) -> Iterator[object]:
        """Every one of them, in order."""
        for resources_of_kind in (self.keys, self.roles, self.access_points, self.owned):
            yield from resources_of_kind
        if self.budget:
            yield self.budget
        yield from self.associations
        yield from self.access_entries
