"""`tenants/<name>.yaml`: one team, its access and its limits. Ten lines are a complete tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tenancy.catalog import vocabulary
from tenancy.rules.catalogue import RULES
from tenancy.rules.values import (
    LONGEST_EXCEPTION,
    too_wide_together,
    weak_pod_security,
)
from tenancy.spec.fields.base import (
    Count,
    Day,
    Flag,
    FlavorName,
    LabelKey,
    LabelValue,
    Line,
    Mail,
    Reason,
    ShortName,
    Slug,
    Spec,
    TenantName,
    TextForm,
)
from tenancy.spec.fields.calendar import GpuWindow
from tenancy.spec.fields.data import AwsResources, Storage
from tenancy.spec.fields.identity import Ci
from tenancy.spec.fields.network_rules import EgressRule, IngressRule
from tenancy.spec.fields.people import Owner, Person, Role, Subject
from tenancy.spec.fields.queues import StopPolicy, Weight
from tenancy.spec.fields.shares import Budget, GpuShare, WhenSpent
from tenancy.spec.fields.tiers import Quota
from tenancy.spec.reading.mistakes import Mistake, describe_value, form_error, rule_mistake
from tenancy.spec.reading.source import Location


class Isolation(StrEnum):
    """Degree to which a tenant shares the cluster with other tenants."""

    NAMESPACE = "namespace"  # shared nodes, shared API server
    DEDICATED_NODES = "dedicated-nodes"  # own nodes, shared API server
    SANDBOX = "sandbox"  # own kernel per pod
    VIRTUAL_CLUSTER = "virtual-cluster"  # own API server


class OffboardingStage(StrEnum):
    """Stages of a tenant's removal, in their order. Before the last one the removal can be cancelled."""

    HOLD = "hold"  # no new work starts, and all access is read-only
    EXPORT = "export"  # the same, while the tenant's objects are exported
    REMOVE = "remove"  # the tenant is removed from the cluster; its file stays as the record


class PodSecurity(StrEnum):
    """The Pod Security level of a namespace."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"  # needs an exception from ns-03


_Account = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "lower-case letters, digits and dashes, at most 63",
        "write it like workload",
    ),
]


class ServiceAccount(Spec):
    """A service account that pods of a namespace may use, besides the one with its AWS grants."""

    name: _Account = Field(description="Name of the service account. Required.")
    automount_token: Flag = Field(
        default=False,
        description="Whether its pods get a token of the API server. The account's entries under people decide what "
        "it may do there. Default: false.",
    )


def _account(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Namespace(Spec):
    """A namespace of the tenant. On the cluster it has the name that the environment's pattern gives, or its own."""

    name: ShortName = Field(description="Name of the namespace within the tenant, such as train. Required.")
    namespace_name: Slug | None = Field(
        default=None,
        description="Name of the namespace on the cluster, such as ml-fraud, for a namespace that exists already (with "
        "adopt: true) or has a name of its own. Default: as namespace-name of the environment says.",
    )
    purpose: Line = Field(default="", description="What the namespace is for; an annotation. Default: empty.")
    tier: Slug | None = Field(default=None, description="Tier of the namespace. Default: the tenant's tier.")
    product: Slug | None = Field(
        default=None, description="Cost label product of the namespace. Default: the tenant's product."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels of the namespace and of the objects in it, by keys of organisation.label-keys. They are "
        "added to the tenant's labels and replace those with the same key. Default: none.",
    )
    annotations: dict[LabelKey, Line] = Field(
        default_factory=dict,
        max_length=20,
        description="Annotations of the namespace, by keys that organisation.annotation-keys allows. They are "
        "added to the "
        "tenant's and replace those with the same key. Default: none.",
    )
    gpus: dict[FlavorName, Count] = Field(
        default_factory=dict,
        description="Number of GPUs of the tenant's guarantee that this namespace gets, by flavor. GPUs that no "
        "namespace names go to the first one. Default: none.",
    )
    queues: dict[Slug, Weight] = Field(
        default_factory=dict,
        description="Further queues besides the one named default, with their weights. Of a tenant's queues of one "
        "tier, the one with the lowest usage per weight goes first. Default: none.",
    )
    weight: Weight = Field(default=1, description="Weight of the namespace's queue named default. Default: 1.")
    stop_policy: StopPolicy = Field(
        default=StopPolicy.NONE,
        description="Whether new work of the namespace starts and running work stays, as stop-policy of the "
        "tenant says for all namespaces. Default: none.",
    )
    quota: Quota | None = Field(
        default=None, description="Quota of the namespace, at most the tier's. Default: the tier's quota."
    )
    pod_security: PodSecurity = Field(
        default=PodSecurity.RESTRICTED,
        description="Pod Security level that the namespace enforces. Default: restricted.",
    )
    allow_intra_namespace: Flag = Field(
        default=True,
        description="Whether pods of the namespace can connect to each other on any port, and with "
        "allow-cross-namespace to pods of other namespaces. If false, only as NetworkPolicies of the tenant allow. "
        "Default: true.",
    )
    service_account: _Account = Field(
        default=vocabulary.WORKLOAD_ACCOUNT,
        description="Service account whose pods have the namespace's AWS grants. It is made if there are grants. "
        "Default: workload.",
    )

    service_accounts: tuple[
        Annotated[ServiceAccount, BeforeValidator(_account, json_schema_input_type=str | ServiceAccount)], ...
    ] = Field(
        default=(),
        max_length=20,
        description="Further service accounts that pods of the namespace may use. They are made. Default: none.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if self.service_account == vocabulary.DEFAULT_ACCOUNT:
            yield rule_mistake(("service-account",), "aws-07", "service-account: default")
        account_names = {vocabulary.DEFAULT_ACCOUNT, self.service_account}
        for i, account in enumerate(self.service_accounts):
            if account.name in account_names:
                fault = f"service account {account.name!r} twice, or one that every namespace has"
                yield rule_mistake(("service-accounts", i), "name-02", fault)
            account_names.add(account.name)


_Word = Annotated[str, TextForm(r"^[^\s\x00-\x1f]+$", "one word", "write it without spaces", 63)]


class ExceptionEntry(Spec):
    """An exception from one rule for one namespace of the tenant, with a responsible person and an end date."""

    rule: _Word = Field(description="Id of a waivable rule. Required.")
    namespace: _Word = Field(description="Namespace of the tenant that the exception applies to. Required.")
    reason: Reason = Field(description="Reason for the exception, one sentence for an auditor. Required.")
    owner: Mail = Field(description="Mail address of the person responsible for the exception. Required.")
    until: Day = Field(
        description=f"Last day on which the exception is valid, at most {LONGEST_EXCEPTION} days ahead. Required."
    )

    def mistakes(self) -> Iterator[Mistake]:
        rule = RULES.get(self.rule)
        if rule is None or not rule.waivable:
            waivable_rules = ", ".join(r.id for r in RULES.values() if r.waivable)
            yield rule_mistake(
                ("rule",), "exc-01", f"rule {self.rule!r}", f"only these can be waived: {waivable_rules}"
            )


def applies_to(names: Collection[str], namespace: Namespace) -> bool:
    """Whether a grant or use with these names applies to a namespace; without names it applies to all namespaces."""
    return not names or namespace.name in names


def _part(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict | Namespace):
        raise form_error(
            describe_value(value), "a namespace's name, or a mapping with its name", "write train, or {name: train}"
        )
    return value


class Tenant(Spec):
    """One team: its people, its GPU shares and its limits."""

    tenant: TenantName = Field(description="Name of the tenant. Every derived name starts with it. Required.")
    title: Line = Field(default="", description="Display name of the tenant; an annotation. Default: empty.")
    team: Slug = Field(description="Cost label: the team. Required.")
    owner: Owner = Field(description="Group or person responsible for the tenant. Required.")
    department: Slug = Field(description="Department of the environment that the tenant belongs to. Required.")
    cost_center: LabelValue = Field(description="Cost label: the cost center. Required.")
    product: Slug | None = Field(default=None, description="Cost label: the product. Default: the team.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="Labels of all of the tenant's objects and tags of its AWS resources, by keys of "
        "organisation.label-keys. Default: only the cost labels.",
    )
    annotations: dict[LabelKey, Line] = Field(
        default_factory=dict,
        max_length=20,
        description="Annotations of all of the tenant's namespaces, by keys that organisation.annotation-keys allows. "
        "Default: none.",
    )
    tier: Slug = Field(description="Tier of the environment that sets the tenant's limits. Required.")
    isolation: Isolation = Field(
        default=Isolation.NAMESPACE,
        description="How the tenant's work is isolated from other tenants. Default: namespace.",
    )
    namespaces: tuple[Annotated[Namespace, BeforeValidator(_part, json_schema_input_type=str | Namespace)], ...] = (
        Field(
            default_factory=lambda: (Namespace(name="main"),),
            min_length=1,
            max_length=20,
            description="Namespaces of the tenant: a list of names, or of namespaces with settings. Default: "
            "one namespace, main.",
        )
    )
    people: tuple[Person, ...] = Field(
        default=(),
        description="Groups, users and service accounts with access to the tenant, and their roles. Default: none; "
        "only the platform team has access.",
    )
    gpu_users: tuple[Subject, ...] = Field(
        default=(),
        min_length=1,
        description="Those of people who may run work that requests GPUs. Default: all of people who may run work.",
    )
    dedicated_hosts: Flag = Field(
        default=False,
        description="Whether the tenant's pods never share a node with another tenant's pods, as a regulation may "
        "require; they are the cluster's own nodes, not EC2 Dedicated Hosts. Its manifests must have the anti-affinity "
        "that `tenancy sample` writes. Default: false.",
    )
    gpus: dict[FlavorName, GpuShare] = Field(
        default_factory=dict, description="GPU shares of the tenant, by flavor. Default: none."
    )
    gpu_windows: tuple[GpuWindow, ...] = Field(
        default=(),
        max_length=20,
        description="Times of the week in which the tenant has more guaranteed GPUs; the environment needs "
        "queues.clock. Default: none.",
    )
    weight: Weight = Field(
        default=1,
        description="Weight of the tenant when several tenants of a department borrow: borrowed GPUs are shared by "
        "weight. Default: 1.",
    )
    stop_policy: StopPolicy = Field(
        default=StopPolicy.NONE,
        description="Whether the tenant's queues are stopped, as Kueue's stopPolicy: with hold no new work starts; "
        "hold-and-drain also evicts running work. Default: none, new work starts.",
    )
    storage: tuple[Storage, ...] = Field(
        default=(), description="Grants on prefixes of the environment's buckets. Default: none."
    )
    aws_resources: AwsResources = Field(
        default_factory=AwsResources, description="Further AWS resources of the tenant. Default: none."
    )
    ci: Ci | None = Field(default=None, description="CI pipeline that may act for the tenant. Default: none.")
    egress: tuple[EgressRule, ...] = Field(
        default=(),
        max_length=100,
        description="Egress: peers outside the tenant that its pods may connect to. Default: only the cluster's DNS.",
    )
    ingress: tuple[IngressRule, ...] = Field(
        default=(),
        max_length=100,
        description="Ingress: peers outside the tenant that may connect to its pods. Default: none.",
    )
    allow_cross_namespace: Flag = Field(
        default=False,
        description="Whether pods of one namespace can connect to pods of other namespaces, on any port. "
        "Default: false.",
    )
    budget: Budget | None = Field(
        default=None, description="Budget of the tenant. Default: none; no budget alerts are sent."
    )
    exceptions: tuple[ExceptionEntry, ...] = Field(
        default=(), description="Exceptions from waivable rules. Default: none."
    )
    offboarding: OffboardingStage | None = Field(
        default=None,
        description="Stage of the tenant's removal. hold and export: no new work starts and access is read-only; "
        "removing the line restores both. remove: the tenant is removed from the cluster. Default: none, the tenant "
        "stays.",
    )
    adopt: Flag = Field(
        default=False,
        description="Whether existing namespaces are used. They and their content are kept when the tenant is "
        "removed: its access and limits are removed, labels and annotations of before come back, and guards treat them "
        "as unmanaged. If false, a run fails if they exist. Default: false.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        namespaces: dict[str, Namespace] = {}
        for i, namespace in enumerate(self.namespaces):
            if namespaces.setdefault(namespace.name, namespace) is not namespace:
                yield rule_mistake(("namespaces", i, "name"), "name-02", f"namespace {namespace.name!r} twice")
        namespaces_hint = f"name a namespace: {', '.join(namespaces)}"
        for field, subjects in (("people", self.people), ("gpu-users", self.gpu_users)):
            for i, subject in enumerate(subjects):
                for j, part in enumerate(subject.namespaces):
                    if part not in namespaces:
                        yield rule_mistake(
                            (field, i, "namespaces", j), "ref-01", f"namespace {part!r}", namespaces_hint
                        )
                if subject.service_account and not self.declares(subject.service_account):
                    change = "declare it under the namespace's service-accounts"
                    fault = f"service account {subject.service_account!r}"
                    yield rule_mistake((field, i, "service-account"), "ref-01", fault, change)
        yield from self._gpu_user_mistakes()
        for location, fault in self._namespace_references():
            if fault not in namespaces:
                yield rule_mistake(location, "ref-01", f"namespace {fault!r}", namespaces_hint)
        first_exceptions: dict[tuple[str, str], int] = {}
        for i, waiver in enumerate(self.exceptions):
            first = first_exceptions.setdefault((waiver.rule, waiver.namespace), i)
            if first != i:
                fault = f"{waiver.rule} for {waiver.namespace}, as exceptions[{first}]"
                yield rule_mistake(("exceptions", i), "exc-01", fault, "keep one of the two")
            if waiver.namespace not in namespaces:
                yield rule_mistake(
                    ("exceptions", i, "namespace"), "exc-01", f"namespace {waiver.namespace!r}", namespaces_hint
                )
        for i, namespace in enumerate(self.namespaces):
            if vocabulary.DEFAULT_QUEUE in namespace.queues:
                fault = f"a queue {vocabulary.DEFAULT_QUEUE}, which every namespace has"
                location = ("namespaces", i, "queues", vocabulary.DEFAULT_QUEUE)
                yield rule_mistake(location, "name-02", fault, "write its weight as the namespace's weight")
        waived = {w.namespace for w in self.exceptions if w.rule == "ns-03"}
        for i, namespace in enumerate(self.namespaces):
            if (fault := weak_pod_security(namespace.pod_security)) and namespace.name not in waived:
                location = ("namespaces", i, "pod-security")
                yield rule_mistake(location, "ns-03", f"pod-security: {fault} in {namespace.name}")
        for field, rules in (("egress", self.egress), ("ingress", self.ingress)):
            if fault_at := too_wide_together([rule.cidr or "" for rule in rules]):
                yield rule_mistake((field, fault_at[0], "cidr"), "net-05", fault_at[1])
        yield from self._namespace_gpu_mistakes()
        yield from self._window_mistakes()

    def _window_mistakes(self) -> Iterator[Mistake]:
        names: set[str] = set()
        for i, window in enumerate(self.gpu_windows):
            if window.name in names:
                yield rule_mistake(("gpu-windows", i, "name"), "name-02", f"window {window.name!r} twice")
            names.add(window.name)
            if window.flavor not in self.gpus:
                fault = f"{window.flavor}, of which the tenant has no share"
                change = "write it under gpus, with guaranteed: 0 if it has none at other times"
                yield rule_mistake(("gpu-windows", i, "flavor"), "share-01", fault, change)

    def _gpu_user_mistakes(self) -> Iterator[Mistake]:
        """Entries of gpu-users that may not run work which could ask for GPUs."""
        workers = [person for person in self.people if person.role is not Role.VIEWER]
        grouped = any(person.kind == "Group" for person in workers)
        for i, user in enumerate(self.gpu_users):
            roles = {person.role for person in self.people if (person.kind, person.name) == (user.kind, user.name)}
            if user.kind == "User" and grouped and not roles:
                continue  # a member of a group: no file lists them
            parts = [person.namespaces for person in workers if (person.kind, person.name) == (user.kind, user.name)]
            if any(
                not person_namespaces or not user.namespaces or {*person_namespaces} & {*user.namespaces}
                for person_namespaces in parts
            ):
                continue
            why = "in other namespaces alone" if parts else "a viewer" if roles else "none of people"
            change = "give it a role under people that runs work, such as developer"
            location = "service-account" if user.kind == "ServiceAccount" else user.kind.lower()
            yield rule_mistake(("gpu-users", i, location), "ref-01", f"{location} {user.name!r}, {why}", change)

    def _namespace_gpu_mistakes(self) -> Iterator[Mistake]:
        claimed_gpus: Counter[str] = Counter()
        for i, namespace in enumerate(self.namespaces):
            for flavor, count in namespace.gpus.items():
                location = ("namespaces", i, "gpus", flavor)
                if flavor not in self.gpus:
                    change = "write the tenant's share of it under gpus, or drop it here"
                    yield rule_mistake(location, "share-01", f"{flavor}, of which the tenant has no share", change)
                    continue
                before, guaranteed = claimed_gpus[flavor], self.gpus[flavor].guaranteed
                claimed_gpus[flavor] += count
                if before <= guaranteed < claimed_gpus[flavor]:
                    fault = (
                        f"{before} + {count} = {claimed_gpus[flavor]} {flavor} in namespaces of {guaranteed} guaranteed"
                    )
                    yield rule_mistake(location, "share-01", fault, "lower the namespaces' gpus or raise the guarantee")

    def _namespace_references(self) -> Iterator[tuple[Location, str]]:
        """Every namespace that a grant or use on AWS is limited to, and its place in the file."""
        namespace_lists: list[tuple[Location, tuple[str, ...]]] = [
            *((("storage", i), grant.namespaces) for i, grant in enumerate(self.storage)),
            *((("aws-resources", *place), use.namespaces) for place, use in self.aws_resources.uses()),
            (("ci",), self.ci.namespaces if self.ci else ()),
        ]
        for location, names in namespace_lists:
            for j, name in enumerate(names):
                yield (*location, "namespaces", j), name

    def grants_of(self, namespace: Namespace) -> tuple[Storage, ...]:
        """The grants in buckets of the namespace's pods."""
        return tuple(grant for grant in self.storage if applies_to(grant.namespaces, namespace))

    def has_identity(self, namespace: Namespace) -> bool:
        """Whether the namespace's pods have an AWS identity: if they have a grant or use an AWS resource."""
        uses = self.aws_resources.uses()
        return bool(self.grants_of(namespace)) or any(applies_to(use.namespaces, namespace) for _, use in uses)

    def declares(self, account: str) -> bool:
        """Whether a namespace declares a service account, given as <namespace>/<name>."""
        namespace, _, name = account.partition("/")
        return any(n.name == namespace and any(a.name == name for a in n.service_accounts) for n in self.namespaces)

    @property
    def is_sandboxed(self) -> bool:
        """Whether the tenant's pods run in a sandbox, each with a kernel of its own."""
        return self.isolation is Isolation.SANDBOX

    @property
    def in_virtual_clusters(self) -> bool:
        """Whether each namespace of the tenant has an API server of its own."""
        return self.isolation is Isolation.VIRTUAL_CLUSTER

    def accounts_in(self, namespace: Namespace) -> tuple[ServiceAccount, ...]:
        """Service accounts of a namespace beside the default one and the one with its grants."""
        if not self.in_virtual_clusters:
            return namespace.service_accounts
        syncer = ServiceAccount.model_validate({"name": vocabulary.VIRTUAL_CLUSTER, "automount-token": True})
        return (*namespace.service_accounts, syncer)

    @property
    def on_own_nodes(self) -> bool:
        """Whether the tenant's pods run on nodes of the tenant alone."""
        return self.isolation is Isolation.DEDICATED_NODES

    def tier_of(self, namespace: Namespace) -> str:
        """Name of a namespace's tier: its own, or else the tenant's."""
        return namespace.tier or self.tier

    @cached_property
    def tiers(self) -> frozenset[str]:
        """Names of the tiers of all namespaces."""
        return frozenset(self.tier_of(n) for n in self.namespaces)

    def namespace_name(self, namespace: Namespace) -> str:
        """Name of a namespace on the cluster: by default `<tenant>--<namespace>`."""
        return namespace.namespace_name or vocabulary.derived_name(self.tenant, namespace.name)

    def names_of(self, names: Collection[str]) -> frozenset[str]:
        """Names on the cluster of the namespaces with these names within the tenant."""
        return frozenset(self.namespace_name(n) for n in self.namespaces if n.name in names)

    def with_namespace_names(self, pattern: str) -> Tenant:
        """The tenant with each namespace's name on the cluster written out, by the environment's `namespace-name`.

        A name that the file gives stays. The same tenant if there is nothing to write out.
        """
        if pattern == vocabulary.NAMESPACE_NAME or all(n.namespace_name for n in self.namespaces):
            return self

        def name(namespace: Namespace) -> Namespace:
            text = pattern.replace("{tenant}", self.tenant).replace("{namespace}", namespace.name)
            return namespace if namespace.namespace_name else namespace.model_copy(update={"namespace_name": text})

        return self.model_copy(update={"namespaces": tuple(name(namespace) for namespace in self.namespaces)})

    @property
    def changes_with_time(self) -> bool:
        """Whether its guarantee or its queues change with time: by windows, further shares or a budget that binds."""
        binding = self.budget is not None and self.budget.when_spent is not WhenSpent.ALERT
        return binding or bool(self.gpu_windows) or any(share.temporary_shares for share in self.gpus.values())

    def max_extra_gpus(self, flavor: str) -> int:
        """GPUs of a flavor that all windows and further shares have together: no instant has more of them."""
        windows = sum(window.gpus for window in self.gpu_windows if window.flavor == flavor)
        return windows + sum(more.gpus for more in self.gpus[flavor].temporary_shares)

    def guaranteed_in(self, namespace: Namespace) -> dict[str, int]:
        """Guaranteed GPUs of one namespace, by flavor: its own count, and for the first namespace the rest."""
        if namespace is not self.namespaces[0]:
            return {flavor: namespace.gpus.get(flavor, 0) for flavor in self.gpus}
        return {
            flavor: share.guaranteed - sum(n.gpus.get(flavor, 0) for n in self.namespaces[1:])
            for flavor, share in self.gpus.items()
        }
