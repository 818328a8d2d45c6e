"""`environment.yaml`: the cluster, its pools and what the tiers of tenants may have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.rules.values import foreign_subject, gpu_keys, unenforced_quota_keys
from tenancy.spec.base import (
    Count,
    Flag,
    FlavorName,
    Form,
    Line,
    Mistake,
    PartName,
    Positive,
    Quantity,
    Slug,
    Spec,
    Whole,
    amount,
    broken,
    plain,
    written,
)
from tenancy.spec.source import Location


class Department(Spec):
    title: Line = Field("", description="The department's name as people write it; an annotation.")


class Organisation(Spec):
    name: Slug = Field(description="Root of the organisation's tree.")
    departments: dict[Slug, Department] = Field(
        min_length=1, description="Departments by slug; every tenant belongs to one."
    )


_Group = Annotated[
    str,
    Form(r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$", "a group's name without spaces", "write it like gpu-platform-team", 253),
]
_Address = Annotated[
    str, Form(r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", "a path or address", "write it like docs/rules.md", 200)
]


class Platform(Spec):
    group: _Group = Field(
        description="Group of the platform team, the one identity that may change tenants' namespaces. "
        "On EKS an access entry maps an IAM role to it.",
    )
    namespaces: tuple[Slug, ...] = Field(
        (),
        description="Namespaces of the platform's own services (monitoring, operators): guards judge nobody "
        f"there. Always among them: {', '.join(words.SYSTEM_NAMESPACES)}.",
    )
    docs: _Address = Field(
        "docs/rules.md",
        description="Where a tenant reads about a rule; the end of every refusal.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if given := foreign_subject("Group", self.group):
            change = "name a group of the platform team; EKS gives nobody system:masters"
            yield broken(("group",), "rbac-05", given, change)


class Cni(StrEnum):
    VPC_CNI = "vpc-cni"  # NetworkPolicy: addresses and labels, no host names
    CILIUM = "cilium"  # host names and clusterwide denies as well


_Version = Annotated[
    str, Form(r"^1\.3[0-9]$", "a minor version from 1.30 to 1.39", 'write it like "1.36", with quotes')
]
_Account = Annotated[
    str, Form(r"^([0-9]{12})?$", "an account id of 12 digits", 'write it like "111122223333", with quotes')
]
_Context = Annotated[
    str, Form(r"^[^\s\x00-\x1f]+$", "a context's name without spaces", "see kubectl config get-contexts", 253)
]
_Region = Annotated[str, Form(r"^([a-z]{2}(-[a-z]+)+-[0-9])?$", "an AWS region", "write it like eu-central-1")]


class Cluster(Spec):
    name: Slug = Field(description="Name of the EKS cluster.")
    context: _Context = Field(
        description="Context of the kubeconfig. A run whose kubeconfig lacks it stops, so that no shell left on "
        "another cluster is changed by accident.",
    )
    kubernetes: _Version = Field("1.36", description="Minor version of Kubernetes, 1.30 or newer.")
    cni: Cni = Field(Cni.VPC_CNI, description="Who enforces network policies.")


class Aws(Spec):
    enabled: Flag = Field(
        False, description="Whether the AWS layer (roles, buckets, nodes) is built. Absent: it is not."
    )
    account: _Account = Field("", description="Account id, 12 digits.")
    region: _Region = Field("", description="Region, such as eu-central-1.")

    def mistakes(self) -> Iterator[Mistake]:
        if self.enabled:
            given = "aws.enabled: true; this version builds the Kubernetes half"
            yield broken(("enabled",), "build-01", given, "set aws.enabled to false")


_Registry = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?/(([a-z0-9._-]+|\{tenant\})/)*$",
        "a prefix of image names: a registry's host and path, which ends with '/'",
        "write it like registry.bank.example/teams/{tenant}/",
        200,
    ),
]
_Image = Annotated[
    str, Form(r"^[^\s\x00-\x1f]+$", "an image's name without spaces", "write it like registry.example/cuda:13.0", 400)
]


class Images(Spec):
    registries: tuple[_Registry, ...] = Field(
        min_length=1,
        description="Prefixes that tenants' images start with; each ends with '/', and {tenant} stands for the "
        "tenant's name.",
    )
    sample: _Image = Field(description="A small CUDA image in a registry open to all tenants, for `tenancy sample`.")

    def mistakes(self) -> Iterator[Mistake]:
        if not self.sample.startswith(self.registries):
            yield broken(("sample",), "img-01", f"sample {self.sample!r} outside {', '.join(self.registries)}")


OWN_QUOTA_KEYS = frozenset(
    {"configmaps", "persistentvolumeclaims", "pods", "secrets", "services", "services.loadbalancers"}
    | {"services.nodeports", "requests.storage", "cpu", "memory", "ephemeral-storage"}
    | {f"{side}.{what}" for side in ("requests", "limits") for what in ("cpu", "memory", "ephemeral-storage")}
    | {"count/jobs.batch", "count/cronjobs.batch", "count/deployments.apps", "count/statefulsets.apps"}
)


class Quota(Spec):
    """What one namespace may hold. Limits of cpu and memory are twice the requests unless written."""

    cpu: Quantity = Field("64", description="CPU requests, cores.")
    cpu_limit: Quantity | None = Field(None, description="CPU limits, cores; absent: twice cpu.")
    memory: Quantity = Field("256Gi", description="Memory requests, bytes.")
    memory_limit: Quantity | None = Field(None, description="Memory limits, bytes; absent: twice memory.")
    ephemeral_storage: Quantity = Field("500Gi", description="Node-local storage, requests and limits, bytes.")
    pods: Count = Field(50, description="Pods that have not ended.")
    services: Count = Field(10, description="Services; load balancers and node ports stay at 0.")
    secrets: Count = Field(50, description="Secrets.")
    config_maps: Count = Field(50, description="ConfigMaps.")
    jobs: Count = Field(500, description="Jobs, ended ones included.")
    deployments: Count = Field(50, description="Deployments, and StatefulSets as many again.")
    volume_claims: Count = Field(20, description="PersistentVolumeClaims.")
    storage: Quantity = Field("2Ti", description="Sum of all claims, bytes.")
    other: dict[str, Quantity] = Field(
        default_factory=dict, description="Further keys of ResourceQuota, as the API server spells them."
    )

    def mistakes(self) -> Iterator[Mistake]:
        for key in unenforced_quota_keys(self.other):
            yield broken(("other", key), "quota-01", f"{key}, which the API server stores and never counts")
        for key in self.other:
            if key in OWN_QUOTA_KEYS:
                given, change = f"{key}, which has a field of its own", "use the quota's field, and drop it here"
                yield Mistake(("other", key), given, "a limit is written once", change)
            elif key.startswith(("requests.nvidia.com/", "requests." + gpus.EFA)):
                given, change = f"{key}, which is granted as a flavor", "write it under the tenant's gpus"
                yield Mistake(("other", key), given, "GPUs are counted per tenant", change)

    def within(self, ceiling: Quota) -> Quota:
        """This quota where it says something, the ceiling elsewhere."""
        mine = {name: getattr(self, name) for name in self.model_fields_set}
        if "other" in mine:
            mine["other"] = {**ceiling.other, **self.other}
        # A limit follows from its request: with a request of its own the ceiling's limit would be too wide.
        for name in ("cpu", "memory"):
            if name in mine and mine.get(f"{name}_limit") is None:
                mine[f"{name}_limit"] = None
        return ceiling.model_copy(update=mine)

    def effective(self) -> dict[str, Decimal]:
        """Every limit as a number, by the name that people write."""
        numbers = {n: getattr(self, n) for n in type(self).model_fields if n != "other"}
        limits = {n: amount(str(value)) for n, value in numbers.items() if value is not None}
        for name in ("cpu", "memory"):
            limits.setdefault(f"{name}_limit", 2 * limits[name])
        return {n.replace("_", "-"): value for n, value in limits.items()} | {
            f"other.{key}": amount(value) for key, value in self.other.items()
        }

    def over(self, ceiling: Quota) -> list[str]:
        """Fields in which this quota asks for more than the ceiling has."""
        most = ceiling.effective()
        return [name for name, value in self.within(ceiling).effective().items() if value > most.get(name, value)]


class Container(Spec):
    """Limits of one container; a GPU is never among them."""

    default: dict[str, Quantity] = Field(
        {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "10Gi"},
        description="Limits where none are written.",
    )
    default_request: dict[str, Quantity] = Field(
        {"cpu": "500m", "memory": "2Gi", "ephemeral-storage": "1Gi"},
        description="Requests where none are written.",
    )
    min: dict[str, Quantity] = Field({"cpu": "10m", "memory": "16Mi"}, description="Least request.")
    max: dict[str, Quantity] = Field({"cpu": "96", "memory": "768Gi"}, description="Largest limit.")

    def mistakes(self) -> Iterator[Mistake]:
        for field in _CONTAINER_ORDER:
            alias = field.replace("_", "-")
            for key in gpu_keys(getattr(self, field)):
                yield broken((alias, key), "quota-02", f"{key} under {alias}")
        yield from _out_of_order({field.replace("_", "-"): getattr(self, field) for field in _CONTAINER_ORDER})


_CONTAINER_ORDER = ("min", "default_request", "default", "max")


def _out_of_order(steps: dict[str, dict[str, str]]) -> Iterator[Mistake]:
    """Bounds by name, least first: the API server refuses a limit range whose bounds cross."""
    for key in sorted({key for bounds in steps.values() for key in bounds}):
        present = [(name, bounds[key]) for name, bounds in steps.items() if key in bounds]
        for (low, least), (high, most) in pairwise(present):
            if amount(least) > amount(most):
                given = f"{low} {least} above {high} {most} of {key}"
                rule = "min, default-request, default and max do not cross"
                yield Mistake((low, key), given, rule, f"lower {low} or raise {high}; absent ones have defaults")


class Claim(Spec):
    min: Quantity = Field("1Gi", description="Smallest volume claim, bytes.")
    max: Quantity = Field("500Gi", description="Largest volume claim, bytes.")

    def mistakes(self) -> Iterator[Mistake]:
        if amount(self.min) > amount(self.max):
            yield Mistake(
                ("min",), f"min {self.min} above max {self.max}", "min is at most max", "lower min or raise max"
            )


class Tier(Spec):
    """What tenants of a kind may have: the defaults of their namespaces and the ceiling over them."""

    priority: Annotated[int, Whole(-999_999_999, 1_000_000_000)] = Field(
        description="Value of the tier's priority class. Pods may use the classes of their tier and of lower ones."
    )
    gpu_tier: Slug = Field("shared", description="Label gpu-tier of its namespaces, for cost reports.")
    quota: Quota = Field(default_factory=Quota, description="Per namespace: default and ceiling at once.")
    container: Container = Field(default_factory=Container, description="Per container.")
    claim: Claim = Field(default_factory=Claim, description="Per volume claim.")


class Sharing(StrEnum):
    TIME_SLICING = "time-slicing"  # no memory or fault isolation: one tenant per pool
    MPS = "mps"  # soft memory limits, shared faults: one tenant per pool


class Flavor(Spec):
    """What the pools of one kind yield: a whole GPU, a MIG slice, or a replica of a shared GPU."""

    gpu: Literal["a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb", "a10g", "l4", "l40s", "t4"] = Field(
        description="The board."
    )
    mig: str | None = Field(None, description="MIG profile; absent: the whole GPU.")
    share: Sharing | None = Field(None, description="How replicas share the GPU; absent: they do not.")

    def mistakes(self) -> Iterator[Mistake]:
        if self.mig is not None and (misfit := gpus.layout_misfit(self.gpu, {self.mig: 1})):
            yield broken(("mig",), "mig-01", misfit, f"use one of {_profiles(self.gpu)}")
        if self.mig is not None and self.share:
            change = "choose one; sharing inside slices is not built"
            yield broken(("share",), "build-01", "mig and share in one flavor", change)

    @property
    def resource(self) -> str:
        """The extended resource that a pod asks for."""
        return gpus.resource_name(self.mig, self.share is not None)


class Nodes(Spec):
    min: Count = Field(0, description="Nodes that are always there; only these back a guarantee.")
    max: Count = Field(description="Nodes at most.")

    def mistakes(self) -> Iterator[Mistake]:
        if self.min > self.max:
            yield Mistake(
                ("min",), f"min {self.min} above max {self.max}", "min is at most max", "lower min or raise max"
            )


def _nodes(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    if not isinstance(value, dict | Nodes):
        raise plain(written(value), "a number of nodes, or a mapping of min and max", "write 8, or {min: 2, max: 8}")
    return value


def _profiles(board: str) -> str:
    return ", ".join(gpus.BOARDS[board]) or "none: the board cannot be partitioned"


class Mig(Spec):
    layout: dict[str, Positive] = Field(min_length=1, description="Slices per GPU, by profile.")


class Share(Spec):
    mode: Sharing = Field(description="How one GPU serves several pods.")
    replicas: Annotated[int, Whole(2, 48)] = Field(description="Pods per GPU.")


class Pool(Spec):
    """Nodes of one instance type. Who may use it: the tenants named, the tiers named, or everybody."""

    instance: str = Field(description="EC2 instance type.")
    nodes: Annotated[
        Nodes,
        BeforeValidator(_nodes, json_schema_input_type=int | Nodes),
        Field(description="A fixed number, or {min, max} of an autoscaled pool."),
    ]
    mig: Mig | None = Field(None, description="How each GPU is partitioned; absent: it is not.")
    share: Share | None = Field(None, description="How each GPU is shared; absent: it is not.")
    tenants: tuple[str, ...] = Field((), description="Tenants that may use the pool.")
    tiers: tuple[str, ...] = Field((), description="Tiers that may use the pool.")

    def mistakes(self) -> Iterator[Mistake]:
        if self.mig and self.share:
            change = "choose one; sharing inside slices is not built"
            yield broken(("share",), "build-01", "mig and share in one pool", change)
        if self.share and (len(self.tenants) != 1 or self.tiers):
            given = ", ".join((*self.tenants, *(f"tier {t}" for t in self.tiers))) or "everybody"
            yield broken(("share",), "pool-02", f"a {self.share.mode} pool for {given}")
        instance = gpus.INSTANCES.get(self.instance)
        if instance is None:
            close = " or ".join(nearest(self.instance, gpus.INSTANCES))
            change = f"use {close}, or add a row to tenancy/catalog/gpus.py"
            yield broken(("instance",), "ref-01", f"instance {self.instance!r}", change)
        elif self.mig and (misfit := gpus.layout_misfit(instance.gpu, self.mig.layout)):
            yield broken(("mig", "layout"), "mig-01", misfit)

    @property
    def restricted(self) -> bool:
        return bool(self.tenants or self.tiers)

    def admits(self, tenant: str, tiers: frozenset[str]) -> bool:
        return not self.restricted or tenant in self.tenants or not tiers.isdisjoint(self.tiers)


def nearest(given: str, known: Iterable[str], count: int = 3) -> list[str]:
    import difflib  # only on the way to a message

    return difflib.get_close_matches(given, list(known), n=count, cutoff=0.0)


def undeclared(
    where: Location, what: str, given: str, known: Collection[str], home: str = "environment.yaml"
) -> Mistake:
    """A name that the environment does not have, with the nearest that it has."""
    hint = f"use {' or '.join(nearest(given, known, 2))}, or " if known else ""
    return broken(where, "ref-01", f"{what} {given!r}", f"{hint}declare it in {home}")


class Layout(StrEnum):
    ONE = "one"  # one stack holds everything: best up to about five tenants
    PER_TENANT = "per-tenant"  # a platform stack and one per tenant: a change runs 30 resources, not all


class Environment(Spec):
    """One cluster and everything that its tenants share."""

    environment: PartName = Field(description="Name; equal to the folder's.")
    organisation: Organisation = Field(description="Whose departments share the cluster.")
    platform: Platform = Field(description="The team that runs it.")
    cluster: Cluster = Field(description="The Kubernetes side.")
    stacks: Layout = Field(Layout.ONE, description="How the environment is split into stacks.")
    aws: Aws = Field(default_factory=Aws, description="The AWS side. Absent: switched off.")
    images: Images = Field(description="Where images come from.")
    buckets: tuple[Slug, ...] = Field((), description="Buckets that tenants may be given prefixes of.")
    tiers: dict[Slug, Tier] = Field(min_length=1, description="Kinds of tenant, by name.")
    flavors: dict[FlavorName, Flavor] = Field(default_factory=dict, description="What tenants may ask for, by name.")
    pools: dict[PartName, Pool] = Field(default_factory=dict, description="Where it comes from, by name.")

    def mistakes(self) -> Iterator[Mistake]:
        for name, pool in self.pools.items():
            for i, tier in enumerate(pool.tiers):
                if tier not in self.tiers:
                    yield undeclared(("pools", name, "tiers", i), "tier", tier, self.tiers)
            if not self.flavors_of(name):
                given = f"pool {name}, which yields no declared flavor"
                yield broken(("pools", name), "ref-01", given, "declare its GPU or slices under flavors")
        kinds: dict[tuple[object, ...], str] = {}
        for name, flavor in self.flavors.items():
            twin = kinds.setdefault((flavor.gpu, flavor.mig, flavor.share), name)
            if twin != name:
                given = f"flavors {twin} and {name}, which are the same thing"
                yield broken(("flavors", name), "name-02", given, "keep one of the two")

    def flavors_of(self, pool: str) -> dict[str, int]:
        """Flavors that one node of a pool yields, with how many of each."""
        spec = self.pools[pool]
        instance = gpus.INSTANCES[spec.instance]
        found: dict[str, int] = {}
        for name, flavor in self.flavors.items():
            if flavor.gpu != instance.gpu:
                continue
            if spec.mig:
                per_gpu = spec.mig.layout.get(flavor.mig or "", 0)
            elif spec.share:
                per_gpu = spec.share.replicas if flavor.share == spec.share.mode else 0
            else:
                per_gpu = 0 if flavor.mig or flavor.share else 1
            if per_gpu:
                found[name] = per_gpu * instance.gpus
        return found

    @property
    def resources(self) -> frozenset[str]:
        """Every extended resource that some flavor is."""
        return frozenset(flavor.resource for flavor in self.flavors.values())

    @property
    def system_namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({*words.SYSTEM_NAMESPACES, *self.platform.namespaces}))
