"""`tenants/<name>.yaml`: one team and what it may have. Ten lines are a complete tenant."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tenancy.catalog import vocabulary as words
from tenancy.rules.catalogue import RULES, Violation
from tenancy.rules.values import foreign_subject, unsafe_prefix, unsafe_range, weak_pod_security
from tenancy.spec.base import (
    Count,
    FlavorName,
    LabelValue,
    Mail,
    PartName,
    Port,
    Positive,
    Slug,
    Spec,
    TenantName,
)
from tenancy.spec.environment import Quota


class Owner(Spec):
    name: Slug = Field(description="Group or person that answers for the tenant; a label.")
    mail: Mail = Field(description="Where alerts and reports go; an annotation.")


class Isolation(StrEnum):
    NAMESPACE = "namespace"  # shared nodes, shared API server
    DEDICATED_NODES = "dedicated-nodes"  # own nodes, shared API server
    SANDBOX = "sandbox"  # own kernel per pod
    VIRTUAL_CLUSTER = "virtual-cluster"  # own API server


class Role(StrEnum):
    VIEWER = "viewer"  # reads everything but secrets
    DEVELOPER = "developer"  # runs workloads, holds the tenant's secrets
    OPERATOR = "operator"  # keeps workloads running: scales, restarts, debugs; makes none
    OWNER = "owner"  # developer who also manages service accounts and sees who has access


class Person(Spec):
    """A group or a single user of the identity provider, and what they are to the tenant."""

    group: str | None = Field(None, max_length=253, description="Group. Either this or user.")
    user: str | None = Field(None, max_length=253, description="User. Either this or group.")
    role: Role = Field(description="What they may do.")
    namespaces: tuple[PartName, ...] = Field((), description="Parts that the role holds in; absent: all.")

    @model_validator(mode="after")
    def _is_somebody(self) -> Self:
        if (self.group is None) == (self.user is None):
            raise ValueError("exactly one of group and user is needed")
        if given := foreign_subject(self.kind, self.name):
            raise Violation("rbac-05", given)
        return self

    @property
    def kind(self) -> Literal["Group", "User"]:
        return "Group" if self.group is not None else "User"

    @property
    def name(self) -> str:
        return self.group if self.group is not None else self.user or ""


class Preset(StrEnum):
    STRICT = "strict"  # neither lends nor borrows
    LEND = "lend"  # lends what is idle, takes it back at once
    LEND_AND_BORROW = "lend-and-borrow"


class GpuShare(Spec):
    """How much of a flavor is the tenant's. Counts are GPUs, slices or replicas of the flavor."""

    guaranteed: Count = Field(description="Always there when called in.")
    sharing: Preset = Field(Preset.STRICT, description="What happens with the idle rest.")
    lend_up_to: Count | None = Field(None, description="Lent at most; absent: nothing.")
    borrow_up_to: Count | None = Field(None, description="Borrowed on top of the guarantee at most; absent: nothing.")

    @model_validator(mode="after")
    def _keeps_to_its_preset(self) -> Self:
        if self.lend_up_to is not None:
            if self.sharing is Preset.STRICT:
                raise Violation("share-01", f"lend-up-to: {self.lend_up_to} with sharing: strict")
            if self.lend_up_to > self.guaranteed:
                raise Violation("share-01", f"lend-up-to: {self.lend_up_to} of {self.guaranteed} guaranteed")
        if self.borrow_up_to is not None and self.sharing is not Preset.LEND_AND_BORROW:
            raise Violation("share-01", f"borrow-up-to: {self.borrow_up_to} with sharing: {self.sharing}")
        return self


class PodSecurity(StrEnum):
    RESTRICTED = "restricted"
    BASELINE = "baseline"  # needs an exception from ns-03


class Namespace(Spec):
    """A part of the tenant. Its namespace is called `<tenant>--<name>`."""

    name: PartName = Field(description="The part's name, such as train.")
    purpose: str = Field("", max_length=200, description="What it is for; an annotation.")
    tier: Slug | None = Field(None, description="Tier of this part; absent: the tenant's.")
    gpus: dict[FlavorName, Count] = Field(
        default_factory=dict,
        description="GPUs of the tenant's guarantee that this part holds. What no part claims is the first part's.",
    )
    quota: Quota | None = Field(None, description="Less than the tier's quota; absent: the tier's.")
    pod_security: PodSecurity = Field(PodSecurity.RESTRICTED, description="Pod Security level.")


class Access(StrEnum):
    READ_ONLY = "read-only"
    READ_WRITE = "read-write"
    APPEND_ONLY = "append-only"  # may write, may not delete
    WRITE_ONCE = "write-once"  # may write what is not there


class Storage(Spec):
    bucket: Slug = Field(description="A bucket of the environment.")
    prefix: str = Field(min_length=1, max_length=512, description="Ends with '/'.")
    access: Access = Field(Access.READ_ONLY, description="What the tenant's workloads may do there.")

    @model_validator(mode="after")
    def _prefix_is_exact(self) -> Self:
        if given := unsafe_prefix(self.prefix):
            raise Violation("stor-01", given)
        return self

    def overlaps(self, other: Storage) -> bool:
        return self.bucket == other.bucket and (
            self.prefix.startswith(other.prefix) or other.prefix.startswith(self.prefix)
        )


class Reach(Spec):
    """Something outside the tenant that its pods may connect to. Everything else is denied."""

    dns: str | None = Field(
        None,
        pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
        description="Host name; needs cluster.cni cilium. Either this or cidr.",
    )
    cidr: str | None = Field(None, description="Address range. Either this or dns.")
    port: Port = Field(description="Destination port.")
    protocol: Literal["TCP", "UDP"] = Field("TCP", description="Transport.")

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if (self.dns is None) == (self.cidr is None):
            raise ValueError("exactly one of dns and cidr is needed")
        if self.cidr is not None and (given := unsafe_range(self.cidr)):
            raise Violation("net-05", given)
        return self


class Budget(Spec):
    monthly_usd: Positive = Field(description="Alerts start at half of it.")


class Waiver(Spec):
    """An exception from one rule for one object, with somebody who answers for it and an end."""

    rule: str = Field(description="Id of a waivable rule.")
    object: str = Field(min_length=1, description="What it holds for: a part of the tenant.")
    reason: str = Field(min_length=10, description="Why, in a sentence an auditor reads.")
    owner: Mail = Field(description="Who answers for it.")
    until: dt.date = Field(description="Last day on which it holds.")

    @model_validator(mode="after")
    def _holds(self) -> Self:
        rule = RULES.get(self.rule)
        if rule is None or not rule.waivable:
            known = ", ".join(r.id for r in RULES.values() if r.waivable)
            raise Violation("exc-01", f"rule {self.rule!r}", f"only these can be waived: {known}")
        if self.until < dt.date.today():
            raise Violation("exc-01", f"until: {self.until}, which is past")
        return self


def _part(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Tenant(Spec):
    """One team, its people, its share and its limits."""

    tenant: TenantName = Field(description="Name; every derived name starts with it.")
    title: str = Field("", max_length=200, description="Name as people write it; an annotation.")
    team: Slug = Field(description="Cost label: the team.")
    owner: Owner = Field(description="Who answers for it.")
    department: Slug = Field(description="A department of the environment.")
    cost_center: LabelValue = Field(description="Cost label: the cost center.")
    product: Slug | None = Field(None, description="Cost label: the product; absent: the team.")
    tier: Slug = Field(description="A tier of the environment.")
    isolation: Isolation = Field(Isolation.NAMESPACE, description="How far apart from others it runs.")
    namespaces: tuple[Annotated[Namespace, BeforeValidator(_part, json_schema_input_type=str | Namespace)], ...] = Field(
        (Namespace(name="main"),), min_length=1, max_length=20, description="Parts; absent: one called main."
    )
    people: tuple[Person, ...] = Field((), description="Who may do what; absent: nobody but the platform.")
    gpus: dict[FlavorName, GpuShare] = Field(default_factory=dict, description="Shares by flavor; absent: none.")
    storage: tuple[Storage, ...] = Field((), description="Prefixes in the environment's buckets; absent: none.")
    reach: tuple[Reach, ...] = Field((), description="What leaves the tenant; absent: nothing but DNS.")
    budget: Budget | None = Field(None, description="What it may cost; absent: no alert.")
    exceptions: tuple[Waiver, ...] = Field((), description="Waivers in force; absent: none.")
    adopt: bool = Field(
        False, description="Take over namespaces of these names that exist already; absent: refuse."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.isolation is not Isolation.NAMESPACE:
            raise Violation("build-01", f"isolation: {self.isolation}", "use namespace")
        parts = [n.name for n in self.namespaces]
        for part in parts:
            if parts.count(part) > 1:
                raise Violation("name-02", f"namespace {part!r} twice")
        for person in self.people:
            for part in person.namespaces:
                if part not in parts:
                    raise Violation("ref-01", f"namespace {part!r} of {person.kind.lower()} {person.name}")
        for namespace in self.namespaces:
            waived = any(w.rule == "ns-03" and w.object == namespace.name for w in self.exceptions)
            if (given := weak_pod_security(namespace.pod_security)) and not waived:
                raise Violation("ns-03", f"pod-security: {given} in {namespace.name}")
        for waiver in self.exceptions:
            if waiver.object not in parts:
                raise Violation("exc-01", f"object {waiver.object!r}", f"name a part: {', '.join(parts)}")
        for flavor in {f for n in self.namespaces for f in n.gpus}:
            held = sum(n.gpus.get(flavor, 0) for n in self.namespaces)
            guaranteed = self.gpus[flavor].guaranteed if flavor in self.gpus else 0
            if held > guaranteed:
                raise Violation(
                    "share-01",
                    f"{held} {flavor} in namespaces of {guaranteed} guaranteed",
                    "lower the parts' gpus or raise the guarantee",
                )
        return self

    def tier_of(self, namespace: Namespace) -> str:
        return namespace.tier or self.tier

    @property
    def tiers(self) -> frozenset[str]:
        return frozenset(self.tier_of(n) for n in self.namespaces)

    def namespace_name(self, namespace: Namespace) -> str:
        return words.derived_name(self.tenant, namespace.name)

    def held_in(self, namespace: Namespace) -> dict[str, int]:
        """Guaranteed GPUs by flavor that one part holds: its own claim, and for the first part the rest."""
        held = {}
        for flavor, share in self.gpus.items():
            count = namespace.gpus.get(flavor, 0)
            if namespace is self.namespaces[0]:
                count += share.guaranteed - sum(n.gpus.get(flavor, 0) for n in self.namespaces)
            held[flavor] = count
        return held
