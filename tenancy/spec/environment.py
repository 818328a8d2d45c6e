"""`environment.yaml`: the cluster, its pools and what the tiers of tenants may have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tenancy.catalog import gpus
from tenancy.catalog import vocabulary as words
from tenancy.rules.catalogue import Violation
from tenancy.rules.values import foreign_subject, gpu_keys, unenforced_quota_keys
from tenancy.spec.base import Count, FlavorName, PartName, Positive, Quantity, Slug, Spec, amount


class Department(Spec):
    title: str = Field("", description="The department's name as people write it; an annotation.")


class Organisation(Spec):
    name: Slug = Field(description="Root of the organisation's tree.")
    departments: dict[Slug, Department] = Field(
        min_length=1, description="Departments by slug; every tenant belongs to one."
    )


class Platform(Spec):
    group: str = Field(
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$",
        description="Group of the platform team, the one identity that may change tenants' namespaces. "
        "On EKS an access entry maps an IAM role to it.",
    )
    namespaces: tuple[Slug, ...] = Field(
        (),
        description="Namespaces of the platform's own services (monitoring, operators): guards judge nobody "
        f"there. Always among them: {', '.join(words.SYSTEM_NAMESPACES)}.",
    )
    docs: str = Field(
        "docs/rules.md",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$",
        description="Where a tenant reads about a rule; the end of every refusal.",
    )

    @model_validator(mode="after")
    def _is_no_system_group(self) -> Self:
        if given := foreign_subject("Group", self.group):
            raise Violation(
                "rbac-05", given, "name a group of the platform team; EKS gives nobody system:masters"
            )
        return self


class Cni(StrEnum):
    VPC_CNI = "vpc-cni"  # NetworkPolicy: addresses and labels, no host names
    CILIUM = "cilium"  # host names and clusterwide denies as well


class Cluster(Spec):
    name: Slug = Field(description="Name of the EKS cluster.")
    context: str = Field(
        min_length=1,
        max_length=253,
        description="Context of the kubeconfig. A run whose kubeconfig lacks it stops, so that no shell left on "
        "another cluster is changed by accident.",
    )
    kubernetes: str = Field(
        "1.36", pattern=r"^1\.(3[0-9])$", description="Minor version of Kubernetes, 1.30 or newer."
    )
    cni: Cni = Field(Cni.VPC_CNI, description="Who enforces network policies.")


class Aws(Spec):
    enabled: bool = Field(
        False, description="Whether the AWS layer (roles, buckets, nodes) is built. Absent: it is not."
    )
    account: str = Field("", pattern=r"^([0-9]{12})?$", description="Account id, 12 digits.")
    region: str = Field(
        "", pattern=r"^([a-z]{2}(-[a-z]+)+-[0-9])?$", description="Region, such as eu-central-1."
    )

    @model_validator(mode="after")
    def _is_off(self) -> Self:
        if self.enabled:
            raise Violation(
                "build-01",
                "aws.enabled: true; this version builds the Kubernetes half",
                "set aws.enabled to false",
            )
        return self


Registry = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?/(([a-z0-9._-]+|\{tenant\})/)*$", max_length=200
    ),
]


class Images(Spec):
    registries: tuple[Registry, ...] = Field(
        min_length=1,
        description="Prefixes that tenants' images start with; each ends with '/', and {tenant} stands for the "
        "tenant's name.",
    )
    sample: str = Field(
        description="A small CUDA image in a registry open to all tenants, for `tenancy sample`."
    )

    @model_validator(mode="after")
    def _sample_is_allowed(self) -> Self:
        if not self.sample.startswith(self.registries):
            raise Violation("img-01", f"sample {self.sample!r} outside {', '.join(self.registries)}")
        return self


class Quota(Spec):
    """What one namespace may hold. Limits of cpu and memory are twice the requests unless written."""

    cpu: Quantity = Field("64", description="CPU requests, cores.")
    cpu_limit: Quantity | None = Field(None, description="CPU limits, cores; absent: twice cpu.")
    memory: Quantity = Field("256Gi", description="Memory requests, bytes.")
    memory_limit: Quantity | None = Field(None, description="Memory limits, bytes; absent: twice memory.")
    ephemeral_storage: Quantity = Field(
        "500Gi", description="Node-local storage, requests and limits, bytes."
    )
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

    @model_validator(mode="after")
    def _keys_are_enforced(self) -> Self:
        if lost := unenforced_quota_keys(self.other):
            raise Violation("quota-01", f"{', '.join(lost)}, which the API server stores and never counts")
        return self

    def over(self, ceiling: Quota) -> list[str]:
        """Fields in which this quota asks for more than the ceiling has."""
        names = [n for n in type(self).model_fields if n != "other" and getattr(self, n) is not None]
        mine = {n: amount(str(getattr(self, n))) for n in names}
        most = {n: amount(str(getattr(ceiling, n))) for n in names if getattr(ceiling, n) is not None}
        return [n.replace("_", "-") for n in names if n in most and mine[n] > most[n]]


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

    @model_validator(mode="after")
    def _has_no_gpu_and_is_ordered(self) -> Self:
        for field in ("default", "default_request", "min", "max"):
            if named := gpu_keys(getattr(self, field)):
                raise Violation("quota-02", f"{', '.join(named)} under {field.replace('_', '-')}")
        order = ("min", "default_request", "default", "max")
        for low, high in zip(order, order[1:], strict=False):
            for key, text in getattr(self, low).items():
                other = getattr(self, high).get(key)
                if other is not None and amount(text) > amount(other):
                    raise ValueError(
                        f"{key}: {low.replace('_', '-')} {text} is above {high.replace('_', '-')} {other}"
                    )
        return self


class Claim(Spec):
    min: Quantity = Field("1Gi", description="Smallest volume claim, bytes.")
    max: Quantity = Field("500Gi", description="Largest volume claim, bytes.")


class Tier(Spec):
    """What tenants of a kind may have: the defaults of their namespaces and the ceiling over them."""

    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] = Field(
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

    @model_validator(mode="after")
    def _board_has_the_profile(self) -> Self:
        if self.mig and (misfit := gpus.layout_misfit(self.gpu, {self.mig: 1})):
            raise Violation("mig-01", misfit)
        return self

    @property
    def resource(self) -> str:
        """The extended resource that a pod asks for."""
        return gpus.resource_name(self.mig, self.share is not None)


class Nodes(Spec):
    min: Count = Field(0, description="Nodes that are always there; only these back a guarantee.")
    max: Count = Field(description="Nodes at most.")

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


def _nodes(value: Any) -> Any:
    return {"min": value, "max": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Mig(Spec):
    layout: dict[str, Positive] = Field(min_length=1, description="Slices per GPU, by profile.")


class Share(Spec):
    mode: Sharing = Field(description="How one GPU serves several pods.")
    replicas: Annotated[int, Field(ge=2, le=48)] = Field(description="Pods per GPU.")


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

    @model_validator(mode="after")
    def _fits_the_hardware(self) -> Self:
        if self.instance not in gpus.INSTANCES:
            raise Violation(
                "ref-01",
                f"instance {self.instance!r}",
                "use one of "
                + ", ".join(nearest(self.instance, gpus.INSTANCES))
                + ", or add a row to tenancy/catalog/gpus.py",
            )
        if self.mig and self.share:
            raise Violation(
                "build-01", "mig and share in one pool", "choose one; sharing inside slices is not built"
            )
        board = gpus.INSTANCES[self.instance].gpu
        if self.mig and (misfit := gpus.layout_misfit(board, self.mig.layout)):
            raise Violation("mig-01", misfit)
        if self.share and (len(self.tenants) != 1 or self.tiers):
            given = ", ".join((*self.tenants, *(f"tier {t}" for t in self.tiers))) or "everybody"
            raise Violation("pool-02", f"a {self.share.mode} pool for {given}")
        return self

    @property
    def restricted(self) -> bool:
        return bool(self.tenants or self.tiers)

    def admits(self, tenant: str, tiers: frozenset[str]) -> bool:
        return not self.restricted or tenant in self.tenants or not tiers.isdisjoint(self.tiers)


def nearest(given: str, known: Any, count: int = 3) -> list[str]:
    import difflib  # only on the way to a message

    return difflib.get_close_matches(given, list(known), n=count, cutoff=0.0)


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
    flavors: dict[FlavorName, Flavor] = Field(
        default_factory=dict, description="What tenants may ask for, by name."
    )
    pools: dict[PartName, Pool] = Field(default_factory=dict, description="Where it comes from, by name.")

    @model_validator(mode="after")
    def _refers_to_what_it_declares(self) -> Self:
        for name, pool in self.pools.items():
            for tier in pool.tiers:
                if tier not in self.tiers:
                    raise Violation(
                        "ref-01", f"tier {tier!r} in pool {name}", f"use one of {', '.join(self.tiers)}"
                    )
            if not self.flavors_of(name):
                raise Violation(
                    "ref-01",
                    f"pool {name}, which yields no declared flavor",
                    "declare its GPU or slices under flavors",
                )
        kinds: dict[tuple[object, ...], str] = {}
        for name, flavor in self.flavors.items():
            if twin := kinds.setdefault((flavor.gpu, flavor.mig, flavor.share), name):
                if twin != name:
                    raise Violation("name-02", f"flavors {twin} and {name}, which are the same thing")
        return self

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
