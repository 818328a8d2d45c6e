"""`tenants/<name>.yaml`: one team and what it may have. Ten lines are a complete tenant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tenancy.catalog import vocabulary as words
from tenancy.rules.catalogue import RULES
from tenancy.rules.values import (
    LONGEST_EXCEPTION,
    foreign_subject,
    too_wide_together,
    unbounded_end,
    unsafe_prefix,
    unsafe_range,
    weak_pod_security,
)
from tenancy.spec.base import (
    Count,
    Day,
    Flag,
    FlavorName,
    Form,
    LabelValue,
    Line,
    Mail,
    Mistake,
    PartName,
    Port,
    Slug,
    Spec,
    TenantName,
    Whole,
    broken,
    plain,
    written,
)
from tenancy.spec.data import Access, Days, Uses
from tenancy.spec.environment import Quota
from tenancy.spec.identity import Ci
from tenancy.spec.queues import Gate, Preset, Weight
from tenancy.spec.source import Location


class Owner(Spec):
    name: Slug = Field(description="Group or person that answers for the tenant; a label.")
    mail: Mail = Field(description="Where alerts and reports go; an annotation.")


class Isolation(StrEnum):
    NAMESPACE = "namespace"  # shared nodes, shared API server
    DEDICATED_NODES = "dedicated-nodes"  # own nodes, shared API server
    SANDBOX = "sandbox"  # own kernel per pod
    VIRTUAL_CLUSTER = "virtual-cluster"  # own API server


class Leaving(StrEnum):
    """Stages of a tenant that goes, in their order. Until the last one it may stay after all."""

    HOLD = "hold"  # nothing new starts, everybody only reads
    EXPORT = "export"  # the same; what it owns is being written down
    REMOVE = "remove"  # gone from the cluster, its file stays as the record


class Role(StrEnum):
    VIEWER = "viewer"  # reads everything but secrets
    DEVELOPER = "developer"  # runs workloads, holds the tenant's secrets
    OPERATOR = "operator"  # keeps workloads running: scales, restarts, debugs; makes none
    OWNER = "owner"  # developer who also manages service accounts and sees who has access


_Subject = Annotated[
    str,
    Form(
        r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$",
        "a name as the identity provider spells it, without spaces around it",
        "drop spaces and control characters",
        253,
    ),
]


_PartAccount = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "a part of the tenant and a service account of it, with a slash between",
        "write it like train/pipeline",
        95,
    ),
]


class Subject(Spec):
    """A group or a single user of the identity provider, or a service account of the tenant's own."""

    group: _Subject | None = Field(None, description="Group. One of group, user and service-account.")
    user: _Subject | None = Field(None, description="User. One of group, user and service-account.")
    service_account: _PartAccount | None = Field(
        None, description="Service account that a part declares, as <part>/<name>. One of the three."
    )
    namespaces: tuple[PartName, ...] = Field((), min_length=1, description="Parts that it holds in; absent: all.")

    def mistakes(self) -> Iterator[Mistake]:
        given = [name for name in ("group", "user", "service-account") if getattr(self, name.replace("-", "_"))]
        if len(given) != 1:
            rule = "an entry is one group, one user or one service account"
            change = "write exactly one of group, user and service-account"
            yield Mistake((), f"both {given[0]} and {given[1]}" if given else "none of them", rule, change)
        elif self.kind != "ServiceAccount" and (stranger := foreign_subject(self.kind, self.name, person=True)):
            yield broken((self.kind.lower(),), "rbac-05", stranger)

    @property
    def kind(self) -> Literal["Group", "User", "ServiceAccount"]:
        return "Group" if self.group is not None else "User" if self.user is not None else "ServiceAccount"

    @property
    def name(self) -> str:
        return self.group or self.user or self.service_account or ""


class Person(Subject):
    """Who is what to the tenant."""

    role: Role = Field(description="What they may do.")


class GpuShare(Spec):
    """How much of a flavor is the tenant's. Counts are GPUs, slices or replicas of the flavor."""

    guaranteed: Count = Field(description="Always there when called in.")
    sharing: Preset = Field(Preset.STRICT, description="What happens with the idle rest.")
    lend_up_to: Count | None = Field(None, description="Lent at most; absent: nothing.")
    borrow_up_to: Count | None = Field(
        None, description="Borrowed on top of the guarantee at most, of each pool; absent: nothing."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if self.lend_up_to is not None:
            where = ("lend-up-to",)
            if self.sharing is Preset.STRICT:
                yield broken(where, "share-01", f"lend-up-to: {self.lend_up_to} with sharing: strict")
            elif self.lend_up_to > self.guaranteed:
                given = f"lend-up-to: {self.lend_up_to} of {self.guaranteed} guaranteed"
                yield broken(where, "share-01", given, "lend at most what is guaranteed")
        if self.borrow_up_to is not None and self.sharing is not Preset.LEND_AND_BORROW:
            given = f"borrow-up-to: {self.borrow_up_to} with sharing: {self.sharing}"
            yield broken(("borrow-up-to",), "share-01", given)


class PodSecurity(StrEnum):
    RESTRICTED = "restricted"
    BASELINE = "baseline"  # needs an exception from ns-03


_Account = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "lower-case letters, digits and dashes, at most 63",
        "write it like workload",
    ),
]


class Account(Spec):
    """A service account that pods of a part may run as, beside the one that carries its grants on AWS."""

    name: _Account = Field(description="Name.")
    api_token: Flag = Field(
        False,
        description="Whether its pods get a token of the API server's. What it may do there is what people gives it.",
    )


def _account(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Namespace(Spec):
    """A part of the tenant. Its namespace is called `<tenant>--<name>`."""

    name: PartName = Field(description="The part's name, such as train.")
    purpose: Line = Field("", description="What it is for; an annotation.")
    tier: Slug | None = Field(None, description="Tier of this part; absent: the tenant's.")
    gpus: dict[FlavorName, Count] = Field(
        default_factory=dict,
        description="GPUs of the tenant's guarantee that this part holds. What no part claims is the first part's.",
    )
    queues: dict[Slug, Weight] = Field(
        default_factory=dict,
        description="Queues beside the one called default, with their weights: among a tenant's queues of one tier, "
        "who has used less for its weight goes first.",
    )
    weight: Weight = Field(1, description="Weight of the part's own queue, called default.")
    queue: Gate = Field(
        Gate.OPEN,
        description="Whether new work of the part starts, as the tenant's queue says it of all parts. Absent: open.",
    )
    quota: Quota | None = Field(None, description="Less than the tier's quota; absent: the tier's.")
    pod_security: PodSecurity = Field(PodSecurity.RESTRICTED, description="Pod Security level.")
    open_inside: Flag = Field(
        True,
        description="Whether its pods connect to each other, and to siblings' where between-parts says so, on any "
        "port. False: what NetworkPolicies of the tenant's own open. Absent: they do.",
    )
    service_account: _Account = Field(
        words.WORKLOAD_ACCOUNT,
        description="Service account whose pods have the part's grants on AWS. It is made where there are any.",
    )

    service_accounts: tuple[
        Annotated[Account, BeforeValidator(_account, json_schema_input_type=str | Account)], ...
    ] = Field(
        (), max_length=20, description="Further service accounts that its pods may run as. They are made; absent: none."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if self.service_account == words.DEFAULT_ACCOUNT:
            yield broken(("service-account",), "aws-07", "service-account: default")
        known = {words.DEFAULT_ACCOUNT, self.service_account}
        for i, account in enumerate(self.service_accounts):
            if account.name in known:
                given = f"service account {account.name!r} twice, or one that is there anyway"
                yield broken(("service-accounts", i), "name-02", given)
            known.add(account.name)


_Prefix = Annotated[
    str, Form(r"^[^\x00-\x1f\x7f]+$", "a prefix of object names", "write the prefix as 'teams/<tenant>/'", 512)
]
_Host = Annotated[
    str,
    Form(
        r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
        "a full host name in lower case, without wildcard, scheme or port",
        "write it like api.vendor.example",
        253,
    ),
]
_Range = Annotated[
    str, Form(r"^[0-9a-f.:]+/[0-9]{1,3}$", "an address range with its length", "write it like 198.51.100.0/24", 60)
]


class Storage(Spec):
    bucket: Slug = Field(description="A bucket of the environment.")
    prefix: _Prefix = Field(description="Ends with '/'.")
    access: Access = Field(Access.READ_ONLY, description="What the tenant's workloads may do there.")
    namespaces: tuple[PartName, ...] = Field((), min_length=1, description="Parts whose pods may; absent: all.")
    expire_after: Days | None = Field(
        None, description="Days after which objects under the prefix go; absent: as the bucket says."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if given := unsafe_prefix(self.prefix):
            yield broken(("prefix",), "stor-01", given)
        if self.expire_after and self.access is Access.READ_ONLY:
            rule = "only who writes says when it goes"
            yield Mistake(("expire-after",), "expire-after with access: read-only", rule, "drop it")

    def overlaps(self, other: Storage) -> bool:
        return self.bucket == other.bucket and (
            self.prefix.startswith(other.prefix) or other.prefix.startswith(self.prefix)
        )


class _Way(Spec):
    """One place, with a port of whoever is connected to."""

    cidr: _Range | None = Field(None, description="Address range.")
    service: Slug | None = Field(None, description="A service of the platform, by its name in the environment.")
    port: Port = Field(description="Destination port.")
    protocol: Literal["TCP", "UDP"] = Field("TCP", description="Transport.")

    def mistakes(self) -> Iterator[Mistake]:
        kinds = [name for name in ("dns", "cidr", "service") if name in type(self).model_fields]
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none of them"
            yield Mistake((), said, "an entry is one place", f"write exactly one of {', '.join(kinds)}")
        elif self.cidr is not None and (unsafe := unsafe_range(self.cidr)):
            yield broken(("cidr",), "net-05", unsafe)

    @property
    def place(self) -> str:
        """As people read it, such as 198.51.100.0/24:8443/TCP."""
        named = self.cidr or self.service or getattr(self, "dns", None)
        return f"{named}:{self.port}/{self.protocol}"


class Reach(_Way):
    """Something outside the tenant that its pods may connect to. Everything else is denied. One of three."""

    dns: _Host | None = Field(None, description="Host name; needs cluster.cni cilium.")

    def mistakes(self) -> Iterator[Mistake]:
        yield from super().mistakes()
        if self.dns and self.dns.endswith(_OF_THE_CLUSTER):
            rule = "a host name is of somebody outside the cluster: to Cilium a service's address is no address range"
            change = "name a service of the platform with service, or open between-parts for the tenant's own"
            yield Mistake(("dns",), self.dns, rule, change)


_OF_THE_CLUSTER = (".cluster.local", ".svc")


class Accept(_Way):
    """Something outside the tenant that may connect to its pods. Everything else is denied. One of two."""


class Budget(Spec):
    monthly_usd: Annotated[int, Whole(1, 1_000_000_000)] = Field(description="Alerts start at half of it.")


_Word = Annotated[str, Form(r"^[^\s\x00-\x1f]+$", "one word", "write it without spaces", 63)]
_Reason = Annotated[
    str,
    Form(
        r"^[^\x00-\x1f\x7f]{10,500}$",
        "a sentence of 10 to 500 characters on one line",
        "say why, for an auditor to read",
    ),
]


class Waiver(Spec):
    """An exception from one rule for one object, with somebody who answers for it and an end."""

    rule: _Word = Field(description="Id of a waivable rule.")
    object: _Word = Field(description="What it holds for: a part of the tenant.")
    reason: _Reason = Field(description="Why, in a sentence an auditor reads.")
    owner: Mail = Field(description="Who answers for it.")
    until: Day = Field(description=f"Last day on which it holds, {LONGEST_EXCEPTION} days ahead at most.")

    def mistakes(self) -> Iterator[Mistake]:
        rule = RULES.get(self.rule)
        if rule is None or not rule.waivable:
            known = ", ".join(r.id for r in RULES.values() if r.waivable)
            yield broken(("rule",), "exc-01", f"rule {self.rule!r}", f"only these can be waived: {known}")
        if given := unbounded_end(self.until):
            yield broken(("until",), "exc-01", given)


def held(names: Collection[str], namespace: Namespace) -> bool:
    """Whether a part is among those that something is limited to; without names it is all of them."""
    return not names or namespace.name in names


def _part(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict | Namespace):
        raise plain(written(value), "a part's name, or a mapping with its name", "write train, or {name: train}")
    return value


class Tenant(Spec):
    """One team, its people, its share and its limits."""

    tenant: TenantName = Field(description="Name; every derived name starts with it.")
    title: Line = Field("", description="Name as people write it; an annotation.")
    team: Slug = Field(description="Cost label: the team.")
    owner: Owner = Field(description="Who answers for it.")
    department: Slug = Field(description="A department of the environment.")
    cost_center: LabelValue = Field(description="Cost label: the cost center.")
    product: Slug | None = Field(None, description="Cost label: the product; absent: the team.")
    tier: Slug = Field(description="A tier of the environment.")
    isolation: Isolation = Field(Isolation.NAMESPACE, description="How far apart from others it runs.")
    namespaces: tuple[Annotated[Namespace, BeforeValidator(_part, json_schema_input_type=str | Namespace)], ...] = (
        Field(
            default_factory=lambda: (Namespace(name="main"),),
            min_length=1,
            max_length=20,
            description="Parts; absent: one called main.",
        )
    )
    people: tuple[Person, ...] = Field((), description="Who may do what; absent: nobody but the platform.")
    gpu_users: tuple[Subject, ...] = Field(
        (),
        min_length=1,
        description="Who may run work that asks for GPUs, of those among people who may run work; absent: all of them.",
    )
    apart: Flag = Field(
        False,
        description="Whether its pods never share a node with another tenant's, for teams that a regulation keeps "
        "apart. Its manifests then carry the anti-affinity that `tenancy sample` writes. Absent: they may.",
    )
    gpus: dict[FlavorName, GpuShare] = Field(default_factory=dict, description="Shares by flavor; absent: none.")
    weight: Weight = Field(
        1, description="Of what several tenants of a department borrow, each gets its weight's share."
    )
    queue: Gate = Field(Gate.OPEN, description="Whether new work starts; drain also evicts what runs. Absent: open.")
    storage: tuple[Storage, ...] = Field((), description="Prefixes in the environment's buckets; absent: none.")
    uses: Uses = Field(default_factory=Uses, description="What else on AWS is its alone; absent: nothing.")
    ci: Ci | None = Field(None, description="Its pipeline's identity; absent: none.")
    reach: tuple[Reach, ...] = Field((), max_length=100, description="What leaves the tenant; absent: nothing but DNS.")
    accept: tuple[Accept, ...] = Field((), max_length=100, description="What comes in from outside; absent: nothing.")
    between_parts: Flag = Field(
        False, description="Whether pods of one part connect to pods of another, on any port. Absent: they do not."
    )
    budget: Budget | None = Field(None, description="What it may cost; absent: no alert.")
    exceptions: tuple[Waiver, ...] = Field((), description="Waivers in force; absent: none.")
    leaving: Leaving | None = Field(
        None,
        description="Stage at which it leaves. hold and export: nothing new starts, everybody only reads, and dropping "
        "the line gives all of it back; remove takes it off the cluster. Absent: it stays.",
    )
    adopt: Flag = Field(
        False,
        description="Take over namespaces of these names that exist already. While it is true, they and what is in "
        "them stay when the tenant's file goes; its access and limits do not. Absent: refuse.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        parts: dict[str, Namespace] = {}
        for i, namespace in enumerate(self.namespaces):
            if parts.setdefault(namespace.name, namespace) is not namespace:
                yield broken(("namespaces", i, "name"), "name-02", f"namespace {namespace.name!r} twice")
        known = f"name a part: {', '.join(parts)}"
        for field, subjects in (("people", self.people), ("gpu-users", self.gpu_users)):
            for i, subject in enumerate(subjects):
                for j, part in enumerate(subject.namespaces):
                    if part not in parts:
                        yield broken((field, i, "namespaces", j), "ref-01", f"namespace {part!r}", known)
                if subject.service_account and not self.declares(subject.service_account):
                    change = "declare it under the part's service-accounts"
                    given = f"service account {subject.service_account!r}"
                    yield broken((field, i, "service-account"), "ref-01", given, change)
        yield from self._gpu_users()
        for where, given in self._limited():
            if given not in parts:
                yield broken(where, "ref-01", f"namespace {given!r}", known)
        again: dict[tuple[str, str], int] = {}
        for i, waiver in enumerate(self.exceptions):
            first = again.setdefault((waiver.rule, waiver.object), i)
            if first != i:
                given = f"{waiver.rule} for {waiver.object}, as exceptions[{first}]"
                yield broken(("exceptions", i), "exc-01", given, "keep one of the two")
            if waiver.object not in parts:
                yield broken(("exceptions", i, "object"), "exc-01", f"object {waiver.object!r}", known)
        for i, namespace in enumerate(self.namespaces):
            if words.DEFAULT_QUEUE in namespace.queues:
                given = f"a queue {words.DEFAULT_QUEUE}, which every part has"
                where = ("namespaces", i, "queues", words.DEFAULT_QUEUE)
                yield broken(where, "name-02", given, "write its weight as the part's weight")
        waived = {w.object for w in self.exceptions if w.rule == "ns-03"}
        for i, namespace in enumerate(self.namespaces):
            if (given := weak_pod_security(namespace.pod_security)) and namespace.name not in waived:
                where = ("namespaces", i, "pod-security")
                yield broken(where, "ns-03", f"pod-security: {given} in {namespace.name}")
        for field, ways in (("reach", self.reach), ("accept", self.accept)):
            if found := too_wide_together([way.cidr or "" for way in ways]):
                yield broken((field, found[0], "cidr"), "net-05", found[1])
        yield from self._claims()

    def _gpu_users(self) -> Iterator[Mistake]:
        """Whoever may use GPUs, and runs no work that could ask for them."""
        workers = [person for person in self.people if person.role is not Role.VIEWER]
        grouped = any(person.kind == "Group" for person in workers)
        for i, user in enumerate(self.gpu_users):
            roles = {person.role for person in self.people if (person.kind, person.name) == (user.kind, user.name)}
            if user.kind == "User" and grouped and not roles:
                continue  # one of a group's: who is in it, no file says
            parts = [person.namespaces for person in workers if (person.kind, person.name) == (user.kind, user.name)]
            if any(not mine or not user.namespaces or {*mine} & {*user.namespaces} for mine in parts):
                continue
            why = "in other parts alone" if parts else "a viewer" if roles else "none of people"
            change = "give it a role under people that runs work, such as developer"
            where = "service-account" if user.kind == "ServiceAccount" else user.kind.lower()
            yield broken(("gpu-users", i, where), "ref-01", f"{where} {user.name!r}, {why}", change)

    def _claims(self) -> Iterator[Mistake]:
        claimed: Counter[str] = Counter()
        for i, namespace in enumerate(self.namespaces):
            for flavor, count in namespace.gpus.items():
                where = ("namespaces", i, "gpus", flavor)
                if flavor not in self.gpus:
                    change = "write the tenant's share of it under gpus, or drop it here"
                    yield broken(where, "share-01", f"{flavor}, of which the tenant has no share", change)
                    continue
                before, guaranteed = claimed[flavor], self.gpus[flavor].guaranteed
                claimed[flavor] += count
                if before <= guaranteed < claimed[flavor]:
                    given = f"{before} + {count} = {claimed[flavor]} {flavor} in namespaces of {guaranteed} guaranteed"
                    yield broken(where, "share-01", given, "lower the parts' gpus or raise the guarantee")

    def _limited(self) -> Iterator[tuple[Location, str]]:
        """Every part that something on AWS is limited to, and where it is written."""
        some: list[tuple[Location, tuple[str, ...]]] = [
            *((("storage", i), grant.namespaces) for i, grant in enumerate(self.storage)),
            *((("uses", "files", i), files.namespaces) for i, files in enumerate(self.uses.files)),
            (("ci",), self.ci.namespaces if self.ci else ()),
        ]
        for kind in ("secrets", "logs", "queues"):
            some += [(("uses", kind, name), use.namespaces) for name, use in getattr(self.uses, kind).items()]
        for where, names in some:
            for j, name in enumerate(names):
                yield (*where, "namespaces", j), name

    def grants_of(self, namespace: Namespace) -> tuple[Storage, ...]:
        """What the part's pods may reach in buckets."""
        return tuple(grant for grant in self.storage if held(grant.namespaces, namespace))

    def has_identity(self, namespace: Namespace) -> bool:
        """Whether the part's pods are somebody on AWS: where they have a grant, or use something."""
        some = [*self.uses.secrets.values(), *self.uses.logs.values(), *self.uses.queues.values(), *self.uses.files]
        return bool(self.grants_of(namespace)) or any(held(use.namespaces, namespace) for use in some)

    def declares(self, account: str) -> bool:
        """Whether a part has a service account, given as <part>/<name>."""
        part, _, name = account.partition("/")
        return any(n.name == part and any(a.name == name for a in n.service_accounts) for n in self.namespaces)

    @property
    def sandboxed(self) -> bool:
        return self.isolation is Isolation.SANDBOX

    @property
    def in_virtual_clusters(self) -> bool:
        return self.isolation is Isolation.VIRTUAL_CLUSTER

    def accounts_in(self, namespace: Namespace) -> tuple[Account, ...]:
        """Service accounts of a part beside the default one and the one with its grants."""
        syncer = (Account.model_validate({"name": words.VIRTUAL_CLUSTER, "api-token": True}),)
        return (*namespace.service_accounts, *(syncer if self.in_virtual_clusters else ()))

    @property
    def on_own_nodes(self) -> bool:
        return self.isolation is Isolation.DEDICATED_NODES

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
