"""`environment.yaml`: the cluster, its pools and what the tiers of tenants may have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from tenancy.catalog import boards, gpus, nodes
from tenancy.catalog import vocabulary as words
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.catalog.quantity import write
from tenancy.catalog.versions import incompatible
from tenancy.rules.values import (
    astray_image,
    foreign_subject,
    gpu_keys,
    holds_pods,
    inside,
    is_service_cidr,
    moving_image,
    tenants_name,
    unenforced_quota_keys,
    unsafe_range,
    wide_range,
)
from tenancy.spec.aws import Aws
from tenancy.spec.base import (
    COUNTED,
    Amounts,
    Cores,
    Count,
    Flag,
    FlavorName,
    Form,
    LabelValue,
    Line,
    Mistake,
    PartName,
    Positive,
    Quantity,
    Size,
    Slug,
    Spec,
    Whole,
    amount,
    broken,
)
from tenancy.spec.costs import Costs, Price
from tenancy.spec.data import Access, Buckets, FileAccessPoints
from tenancy.spec.metrics import Metrics
from tenancy.spec.pools import (
    BALANCED,
    Cut,
    Flavor,
    Pool,
    Provisioner,
    Strategy,
    layout_mistakes,
    layout_of,
    nearest,
    resource_name,
)
from tenancy.spec.queues import Duration, Order, Preset, Queues, Scheduler, Weight
from tenancy.spec.source import Location


class Department(Spec):
    title: Line = Field("", description="The department's name as people write it; an annotation.")
    sharing: Preset = Field(
        Preset.STRICT,
        description="What its tenants lend to and borrow from other departments, and whether they may use what nobody "
        "is promised. Absent: neither; within the department their own files hold.",
    )
    weight: Weight = Field(1, description="Of what several departments borrow, each gets its weight's share.")


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


_Mirror = Annotated[
    str,
    Form(
        r"^(oci|https?)://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._-]+)*$",
        "an OCI registry's path, or a chart repository's address",
        "write it like oci://registry.bank.example/charts",
        200,
    ),
]


_LabelKey = Annotated[
    str,
    Form(
        r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "a label's key",
        "write it like app.kubernetes.io/name",
        317,
    ),
]


class PlatformService(Spec):
    """Pods of the platform's that tenants' files may name under reach and accept."""

    namespace: Slug = Field(description="One of the platform's: platform.namespaces has it, or it is a system's.")
    labels: dict[_LabelKey, LabelValue] = Field(min_length=1, description="Labels that its pods have, all of them.")


class Platform(Spec):
    group: _Group = Field(
        description="Group of the platform team, the one identity that may change tenants' namespaces. "
        "On EKS an access entry maps an IAM role to it.",
    )
    namespaces: tuple[Slug, ...] = Field(
        (),
        description="Namespaces of the platform's own services (monitoring, operators): guards judge nobody "
        "there, so none is called as a tenant's may be, <tenant>--<part>."
        f" Always among them: {', '.join(words.SYSTEM_NAMESPACES)}.",
    )
    chart_mirror: _Mirror | None = Field(
        None,
        description="Where all Helm charts come from, such as oci://registry.bank.example/charts. Absent: each from "
        "its own repository on the internet.",
    )
    services: dict[Slug, PlatformService] = Field(
        default_factory=dict,
        description="What tenants may reach and be reached by beside the internet, by name: a registry, an ingress, "
        "whoever scrapes metrics. Absent: nothing.",
    )
    docs: _Address = Field(
        "docs/rules.md",
        description="Where a tenant reads about a rule; the end of every refusal.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if given := foreign_subject("Group", self.group):
            change = "name a group of the platform team; EKS gives nobody system:masters"
            yield broken(("group",), "rbac-05", given, change)
        for i, name in enumerate(self.namespaces):
            if given := tenants_name(name):
                change = "name a namespace of the platform's own, without '--'"
                yield broken(("namespaces", i), "name-01", given, change)


class Cni(StrEnum):
    VPC_CNI = "vpc-cni"  # NetworkPolicy: addresses and labels, no host names
    CILIUM = "cilium"  # host names and clusterwide denies as well


class Encryption(StrEnum):
    NONE = "none"
    WIREGUARD = "wireguard"  # Cilium's, between nodes


_Block = Annotated[
    str, Form(r"^[0-9a-f.:]+/[0-9]{1,3}$", "an address range with its length", "write it like 10.64.0.0/16", 60)
]
_Version = Annotated[
    str, Form(r"^1\.3[0-9]$", "a minor version from 1.30 to 1.39", 'write it like "1.36", with quotes')
]
_Context = Annotated[
    str, Form(r"^[^\s\x00-\x1f]+$", "a context's name without spaces", "see kubectl config get-contexts", 253)
]


class Devices(StrEnum):
    PLUGIN = "plugin"  # NVIDIA's device plugin: extended resources such as nvidia.com/gpu
    DRA = "dra"  # NVIDIA's DRA driver: device classes, one for each flavor


DRIVER_DOMAIN = ".nvidia.com"
SERVICE_CIDRS = ("10.100.0.0/16", "172.20.0.0/16")
"""Where EKS puts services if nobody says (EKS API reference, KubernetesNetworkConfigRequest)."""
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class Cluster(Spec):
    name: Slug = Field(description="Name of the EKS cluster.")
    context: _Context = Field(
        description="Context of the kubeconfig. A run whose kubeconfig lacks it stops, so that no shell left on "
        "another cluster is changed by accident.",
    )
    kubernetes: _Version = Field("1.36", description="Minor version of Kubernetes, 1.30 or newer.")
    cni: Cni = Field(Cni.VPC_CNI, description="Who enforces network policies.")
    encryption: Encryption = Field(
        Encryption.NONE, description="Of what pods of different nodes say to each other; wireguard needs cni cilium."
    )
    ranges: tuple[_Block, ...] = Field(
        (),
        min_length=1,
        description="Ranges of nodes and pods: no tenant reaches into them or is reached from them by address. Absent: "
        "the range of the VPC that is made here. Of a given one nobody knows them.",
    )
    service_cidr: _Block | None = Field(
        None,
        description="Range of the cluster's service addresses: no tenant reaches them by address. A cluster that is "
        "made here gets it, and cannot change it: another range is another cluster. Absent: EKS chooses, and both "
        f"ranges that it chooses from are closed to tenants, {' and '.join(SERVICE_CIDRS)}.",
    )
    devices: Devices = Field(
        Devices.PLUGIN, description="How pods ask for GPUs; dra needs Kubernetes 1.34, and pools without Karpenter."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if words.SEPARATOR in self.name:
            # Names on AWS are <cluster>--<tenant>--<part>: another cluster's could be the same.
            yield broken(("name",), "name-01", f"cluster {self.name!r}", "write it with single dashes")
        if self.devices is Devices.DRA and (misfit := incompatible(self.kubernetes, "dra")):
            yield broken(("devices",), "dra-01", f"devices: dra on Kubernetes {self.kubernetes}", misfit)
        if self.encryption is Encryption.WIREGUARD and self.cni is not Cni.CILIUM:
            yield broken(("encryption",), "net-09", f"encryption: wireguard with cni {self.cni}")
        for i, text in enumerate(self.ranges):
            if given := wide_range(text):
                yield Mistake(("ranges", i), given, "a range of the cluster's own", "write it like 10.64.0.0/16")
        if self.service_cidr and (given := unsafe_range(self.service_cidr)):
            rule = "the range of the cluster's services"
            yield Mistake(("service-cidr",), given, rule, "write it like 172.20.0.0/16")


_Handler = Annotated[
    str,
    Form(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "a runtime's handler on the nodes", "write it like kata-qemu"),
]


class Sandbox(Spec):
    """A kernel for each pod. The runtime is on the pool's nodes already: their image, or its own installer, has it."""

    handler: _Handler = Field(description="The runtime's name in containerd's configuration, such as kata-qemu.")
    pool: PartName = Field(description="Pool whose nodes have it: bare metal, which virtual machines need.")
    overhead: Annotated[dict[Literal["cpu", "memory"], Quantity], COUNTED] = Field(
        {"cpu": "250m", "memory": "160Mi"},
        description="What each pod costs beside its containers; counted by quota and scheduler. As Kata's own class.",
    )


_Release = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+:[A-Za-z0-9_][A-Za-z0-9_.-]*@sha256:[0-9a-f]{64}$",
        "an image with its registry, its tag and its digest",
        "write it like registry.bank.example/shared/kubernetes:v1.35.0@sha256:…",
        400,
    ),
]
_Resolver = Annotated[
    str,
    Form(r"^[0-9a-f.:]+$", "an address", "write the clusterIP of kube-system's kube-dns, like 172.20.0.10", 45),
]
_Oidc = Annotated[
    str,
    Form(r"^--oidc-[a-z-]+=[^\s\x00-\x1f]+$", "an argument --oidc-…=…", "write it as kube-apiserver takes it", 400),
]


class VirtualClusters(Spec):
    """An API server of its own for each part of a tenant, as the chart vcluster makes it of its open-source build."""

    syncer: _Release = Field(description="Image of the control plane: loft-sh/vcluster-oss of the chart's release.")
    kubernetes: _Release = Field(description="Image with the API server and its controllers: loft-sh/kubernetes.")
    dns: _Release = Field(description="Image of the CoreDNS that answers inside.")
    resolver: _Resolver = Field(description="Address of the cluster's own DNS, which that one asks for other names.")
    storage_class: Slug | None = Field(
        None,
        description="Storage class of the control planes' volumes; absent: the platform's, which is there under "
        "aws.enabled alone.",
    )
    oidc: tuple[_Oidc, ...] = Field(
        (), description="How people sign in inside, as arguments of kube-apiserver. Absent: by kubeconfig alone."
    )

    @property
    def images(self) -> tuple[str, ...]:
        return (self.syncer, self.kubernetes, self.dns)


_Registry = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?/(([a-z0-9][a-z0-9._-]*|\{tenant\})/)*$",
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
        elif given := astray_image(self.sample):
            yield broken(("sample",), "img-01", f"{given}, which is no path below it")
        if given := moving_image(self.sample):
            yield broken(("sample",), "img-02", given)


OWN_QUOTA_KEYS = frozenset(
    {"configmaps", "persistentvolumeclaims", "pods", "secrets", "services", "services.loadbalancers"}
    | {"services.nodeports", "requests.storage", "cpu", "memory", "ephemeral-storage"}
    | {f"{side}.{what}" for side in ("requests", "limits") for what in ("cpu", "memory", "ephemeral-storage")}
    | {"count/jobs.batch", "count/cronjobs.batch", "count/deployments.apps", "count/statefulsets.apps"}
    | {"count/horizontalpodautoscalers.autoscaling", "count/poddisruptionbudgets.policy", "count/replicasets.apps"}
    | {"count/networkpolicies.networking.k8s.io", "count/workloads.kueue.x-k8s.io"}
    | {"count/controllerrevisions.apps", "count/serviceaccounts"}
)


class Quota(Spec):
    """What one namespace may hold. Limits of cpu and memory are twice the requests unless written."""

    cpu: Cores = Field("64", description="CPU requests, cores.")
    cpu_limit: Cores | None = Field(None, description="CPU limits, cores; absent: twice cpu.")
    memory: Size = Field("256Gi", description="Memory requests, bytes.")
    memory_limit: Size | None = Field(None, description="Memory limits, bytes; absent: twice memory.")
    ephemeral_storage: Size = Field("500Gi", description="Node-local storage, requests and limits, bytes.")
    pods: Count = Field(50, description="Pods that have not ended.")
    services: Count = Field(10, description="Services; load balancers and node ports stay at 0.")
    secrets: Count = Field(50, description="Secrets.")
    config_maps: Count = Field(50, description="ConfigMaps.")
    jobs: Count = Field(500, description="Jobs, ended ones included.")
    deployments: Count = Field(
        50,
        description="Deployments, and StatefulSets as many again; a disruption budget and an autoscaler for each, and "
        "12 ReplicaSets for each Deployment.",
    )
    volume_claims: Count = Field(20, description="PersistentVolumeClaims.")
    storage: Size = Field("2Ti", description="Sum of all claims, bytes.")
    other: dict[str, Quantity] = Field(
        default_factory=dict, description="Further keys of ResourceQuota, as the API server spells them."
    )

    def mistakes(self) -> Iterator[Mistake]:
        for key in unenforced_quota_keys(self.other):
            yield broken(("other", key), "quota-01", f"{key}, which the API server refuses or never counts")
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

    default: Amounts = Field(
        {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "10Gi"},
        description="Limits where none are written.",
    )
    default_request: Amounts = Field(
        {"cpu": "500m", "memory": "2Gi", "ephemeral-storage": "1Gi"},
        description="Requests where none are written.",
    )
    min: Amounts = Field({"cpu": "10m", "memory": "16Mi"}, description="Least request.")
    max: Amounts = Field({"cpu": "96", "memory": "768Gi"}, description="Largest limit.")

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
    min: Size = Field("1Gi", description="Smallest volume claim, bytes.")
    max: Size = Field("500Gi", description="Largest volume claim, bytes.")

    def mistakes(self) -> Iterator[Mistake]:
        if amount(self.min) > amount(self.max):
            yield Mistake(
                ("min",), f"min {self.min} above max {self.max}", "min is at most max", "lower min or raise max"
            )


def unusable(quota: Quota, container: Container, claim: Claim) -> Iterator[Mistake]:
    """Fields of a quota that leave nothing to use, though they are not 0."""
    there = quota.effective()
    for name in ("cpu", "memory"):
        limit = f"{name}-limit"
        if there[limit] < there[name]:
            least = write(there[name])
            given, rule = f"{limit} {write(there[limit])} under {name} {least}", "a limit is no lower than the request"
            yield Mistake((limit,), given, rule, f"write {least} or more, or drop {limit}: it is then twice {name}")
    one = {name: (container.default_request.get(name, "0"), "one default container") for name in _COMPUTE}
    one |= {f"{name}-limit": (container.default.get(name, "0"), "one default container") for name in _COMPUTE[:2]}
    for name, (least, what) in {**one, "storage": (claim.min, "the smallest claim")}.items():
        if 0 < there[name] < amount(least):
            given, rule = f"{name} {write(there[name])} under {least} of {what}", f"a quota takes {what}, or is 0"
            yield Mistake((name,), given, rule, f"write {least} or more, or 0")


_COMPUTE = ("cpu", "memory", "ephemeral-storage")


TierName = Annotated[
    str,
    Form(
        r"^(?!.*--)[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?$",
        "lower-case letters, digits and single dashes, at most 31",  # a queue is called <tenant>--<tier>, in a label
        "write it like production",
    ),
]


class Spread(StrEnum):
    NONE = "none"  # as the scheduler spreads everybody's: loosely
    PREFERRED = "preferred"  # evenly, where there is room: a lost node takes as few replicas as may be
    REQUIRED = "required"  # evenly, or a replica waits, though another node had room for it


class Tier(Spec):
    """What tenants of a kind may have: the defaults of their namespaces and the ceiling over them."""

    priority: Annotated[int, Whole(-999_999_999, 1_000_000_000)] = Field(
        description="Value of the tier's priority class. Pods may use the classes of their tier and of lower ones."
    )
    gpu_tier: Slug = Field("shared", description="Label gpu-tier of its namespaces, for cost reports.")
    interruptible: Flag = Field(
        False,
        description="Whether its work bears to lose its GPU, or a neighbour's fault on it: only then may it use spot "
        "nodes and shared GPUs. Absent: it does not.",
    )
    borrows: Flag = Field(
        True,
        description="Whether its work may run on borrowed GPUs, which their owners call back by evicting it. False: it "
        "holds what is guaranteed, and nobody evicts it but the tenant's own more urgent work.",
    )
    order: Order = Field(Order.BEST_EFFORT, description="Whether who fits may overtake who came first.")
    max_run_time: Duration | None = Field(
        None, description="Longest run of a job; every job says its own, up to this. Absent: no limit."
    )
    spread: Spread = Field(
        Spread.PREFERRED,
        description="How the replicas of a Deployment or a StatefulSet lie on nodes where the pods name no constraint "
        "of their own; from Kubernetes 1.36 on.",
    )
    image_tags: Flag = Field(
        True, description="Whether images may be named by tag, never latest. False: by digest alone."
    )
    writable_root: Flag = Field(
        True, description="Whether containers may write to their root file system. False: to volumes alone."
    )
    storage_access: Access = Field(
        Access.READ_WRITE, description="The widest access to buckets that its tenants' grants may have."
    )
    quota: Quota = Field(default_factory=Quota, description="Per namespace: default and ceiling at once.")
    container: Container = Field(default_factory=Container, description="Per container.")
    claim: Claim = Field(default_factory=Claim, description="Per volume claim.")

    def mistakes(self) -> Iterator[Mistake]:
        for mistake in unusable(self.quota, self.container, self.claim):
            yield replace(mistake, where=("quota", *mistake.where))
        if "max" in self.claim.model_fields_set and amount(self.claim.max) > amount(self.quota.storage) > 0:
            given = f"max {self.claim.max} of one claim, over storage {self.quota.storage} of all claims"
            rule, change = "one claim is no larger than all of them", "lower max, or raise the quota's storage"
            yield Mistake(("claim", "max"), given, rule, change)

    def allows(self, own: Quota | None) -> Quota:
        """What a part of this tier may hold that has a quota of its own, or none."""
        return own.within(self.quota) if own else self.quota


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def undeclared(
    where: Location, what: str, given: str, known: Collection[str], home: str = "environment.yaml"
) -> Mistake:
    """A name that the environment does not have, with the nearest that it has."""
    hint = f"use {' or '.join(nearest(given, known, 2))}, or " if known else ""
    return broken(where, "ref-01", f"{what} {given!r}", f"{hint}declare it in {home}")


def _reservation(pool: Pool) -> str:
    """What a pool says of the reservation that its nodes come from."""
    kind = f"capacity block until {pool.purchase.ends}" if pool.purchase.ends else "on-demand reservation"
    return f"{kind} of {pool.instance} in {', '.join(pool.zones)}"


class GuardsMode(StrEnum):
    ENFORCE = "enforce"
    AUDIT = "audit"  # nothing is refused: who asks is warned, and the audit log keeps it


class Layout(StrEnum):
    ONE = "one"  # one stack holds everything: best up to about five tenants
    PER_TENANT = "per-tenant"  # a platform stack and one per tenant: a change runs 30 resources, not all


class Environment(Spec):
    """One cluster and everything that its tenants share."""

    environment: PartName = Field(description="Name; equal to the folder's.")
    organisation: Organisation = Field(description="Whose departments share the cluster.")
    platform: Platform = Field(description="The team that runs it.")
    cluster: Cluster = Field(description="The Kubernetes side.")
    guards: GuardsMode = Field(
        GuardsMode.ENFORCE,
        description="What guards do about what breaks a rule. audit is for a cluster that has workloads already, until "
        "`tenancy report adoption` finds nothing: it only warns, so tenants can get out. Absent: they refuse.",
    )
    stacks: Layout = Field(Layout.ONE, description="How the environment is split into stacks.")
    aws: Aws = Field(default_factory=Aws, description="The AWS side. Absent: switched off.")
    images: Images = Field(description="Where images come from.")
    sandbox: Sandbox | None = Field(
        None, description="How tenants with isolation: sandbox run. Absent: there are none."
    )
    virtual_clusters: VirtualClusters | None = Field(
        None, description="What tenants with isolation: virtual-cluster run. Absent: there are none."
    )
    queues: Queues = Field(default_factory=Queues, description="How GPUs are shared over time.")
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="Dollars for an hour of a whole GPU, by board: what makes shares of different boards comparable. "
        "Either all boards of the flavors, or none.",
    )
    costs: Costs = Field(
        default_factory=Costs, description="What else `tenancy chargeback` has to know. Absent: as each field says."
    )
    metrics: Metrics = Field(
        default_factory=Metrics, description="Who collects metrics, and who is told of what. Absent: nobody."
    )
    buckets: Buckets = Field(
        default_factory=dict,
        description="Buckets that tenants may be given prefixes of: a list of names, or a mapping with more to say.",
    )
    file_access_points: FileAccessPoints = Field(
        default_factory=dict,
        description="Access points of EFS that tenants may use, by their ARNs: a list, or a mapping with more to say.",
    )
    tiers: dict[TierName, Tier] = Field(min_length=1, description="Kinds of tenant, by name.")
    flavors: dict[FlavorName, Flavor] = Field(default_factory=dict, description="What tenants may ask for, by name.")
    mig_layouts: dict[Slug, dict[str, Positive]] = Field(
        default_factory=dict, description="MIG layouts by name, slices per GPU, for pools that share one."
    )
    pools: dict[PartName, Pool] = Field(default_factory=dict, description="Where it comes from, by name.")

    def mistakes(self) -> Iterator[Mistake]:
        sound = True
        for name, pool in self.pools.items():
            for i, tier in enumerate(pool.tiers):
                if tier not in self.tiers:
                    yield undeclared(("pools", name, "tiers", i), "tier", tier, self.tiers)
            for mistake in self._layout(name, pool):
                sound = False
                yield mistake
            yield from self._placed(name, pool)
        yield from self._addressed()
        yield from self._reserved()
        yield from self._supported()
        yield from self._priced()
        yield from self._collected()
        yield from self._sandboxed()
        if self.virtual_clusters and not self.virtual_clusters.storage_class and not self.aws.enabled:
            given = "virtual-clusters without storage-class, and without aws.enabled, which makes one"
            yield broken(("virtual-clusters",), "iso-03", given, "name a class of the cluster's under storage-class")
        if misfit := incompatible(self.cluster.kubernetes, "pod-defaults"):
            for name, tier in self.tiers.items():
                if tier.spread is Spread.REQUIRED:
                    given = f"spread: required on Kubernetes {self.cluster.kubernetes}"
                    change = f"{misfit}; or leave it to the manifests"
                    yield broken(("tiers", name, "spread"), "ver-01", given, change)
        strict = [name for name, tier in self.tiers.items() if not tier.image_tags]
        if strict and (given := moving_image(self.images.sample, tags=False)):
            yield broken(("images", "sample"), "img-02", f"{given}, which tier {strict[0]} does not take")
        for name, service in self.platform.services.items():
            if service.namespace not in self.system_namespaces:
                where = ("platform", "services", name, "namespace")
                yield undeclared(where, "namespace", service.namespace, self.system_namespaces, "platform.namespaces")
        for mistake in self.aws.identity_mistakes(self.platform.group):
            yield Mistake(("aws", *mistake.where), mistake.given, mistake.rule, mistake.change, mistake.id)
        kinds: dict[tuple[object, ...], str] = {}
        for name, flavor in self.flavors.items():
            yield from self._claimed(name, flavor)
            twin = kinds.setdefault((flavor.gpu, flavor.mig, flavor.share), name)
            if twin != name:
                given = f"flavors {twin} and {name}, which are the same thing"
                yield broken(("flavors", name), "name-02", given, "keep one of the two")
        if sound:
            yield from self._yields()

    def _reserved(self) -> Iterator[Mistake]:
        """Pools of one reservation that is something else in each. Where it is the same, their nodes add up."""
        first: dict[str, str] = {}
        for name, pool in self.pools.items():
            if not (reservation := pool.purchase.reserved):
                continue
            other = first.setdefault(reservation, name)
            said, before = _reservation(pool), _reservation(self.pools[other])
            if said != before:
                given = f"{reservation} as {said}, and in pool {other} as {before}"
                change = "name the reservation that this pool's nodes come from, or make the two pools alike"
                yield broken(("pools", name, "purchase", pool.purchase.way), "pool-07", given, change)

    def _sandboxed(self) -> Iterator[Mistake]:
        if self.sandbox is None:
            return
        where = ("sandbox", "pool")
        pool = self.pools.get(self.sandbox.pool)
        if pool is None:
            yield undeclared(where, "pool", self.sandbox.pool, self.pools, "pools")
        elif not pool.bare_metal:
            given = f"pool {self.sandbox.pool} of {pool.instance}, which is a virtual machine itself"
            yield broken(where, "iso-02", given, "name a pool of bare metal, such as m7i.metal-24xl")

    def _addressed(self) -> Iterator[Mistake]:
        """Ranges of AWS' services that hold the cluster's own addresses, and a range of services that EKS would refuse
        after the VPC is made."""
        made = self.aws.enabled and not self.aws.network.vpc
        for i, text in enumerate(self.aws.network.service_ranges):
            given = holds_pods(text, self.own_ranges, made=made)
            if given := given or inside(text, self.service_cidrs, "services"):
                change = "name the addresses of endpoints, or the range of a subnet that has endpoints alone"
                yield broken(("aws", "network", "service-ranges", i), "net-05", given, change)
        cidr, where = self.cluster.service_cidr, ("cluster", "service-cidr")
        if cidr is None:
            return
        if given := inside(cidr, self.own_ranges):
            rule = "a service's address is no node's and no pod's"
            yield Mistake(where, given, rule, f"write one beside {', '.join(self.own_ranges)}")
        elif self.aws.enabled and not is_service_cidr(cidr):
            rule = "EKS takes /12 to /24 within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
            yield Mistake(where, repr(cidr), rule, "write it like 172.20.0.0/16")

    def _supported(self) -> Iterator[Mistake]:
        """Parts of the platform that do not run on the cluster's Kubernetes."""
        if not self.aws.enabled:
            return
        installed = ["guards", "gpu-operator"]
        installed += ["kueue"] if self.queued else []
        installed += ["karpenter"] if any(pool.scales for pool in self.pools.values()) else []
        installed += ["cilium"] if self.cluster.cni is Cni.CILIUM else []
        for what in installed:
            if change := incompatible(self.cluster.kubernetes, what):
                given = f"Kubernetes {self.cluster.kubernetes} with {what}"
                yield broken(("cluster", "kubernetes"), "ver-01", given, change)

    def _collected(self) -> Iterator[Mistake]:
        """A collector that is installed without a cluster to install it on."""
        if self.metrics.installed and not self.aws.enabled:
            given, rule = "collector: install without aws.enabled", "charts are installed where the cluster is made too"
            change = "install kube-prometheus-stack with charts/values-kube-prometheus-stack.yaml of `tenancy render`, "
            yield Mistake(("metrics", "collector"), given, rule, f"{change}and write existing")

    def _priced(self) -> Iterator[Mistake]:
        """Prices of boards that nobody names, and boards without a price beside others that have one."""
        used = {flavor.gpu for flavor in self.flavors.values()}
        for board in self.prices:
            if board not in boards.BOARDS:
                yield undeclared(("prices", board), "board", board, used, "flavors")
        if missing := sorted(used - self.prices.keys()) if self.prices else []:
            yield broken(("prices",), "price-01", f"prices without {', '.join(missing)}")
        for tier in self.metrics.longest_wait:
            if tier not in self.tiers:
                yield undeclared(("metrics", "longest-wait", tier), "tier", tier, self.tiers, "tiers")
        for name in self.costs.pools:
            if name not in self.pools:
                yield undeclared(("costs", "pools", name), "pool", name, self.pools, "pools")

    def _claimed(self, name: str, flavor: Flavor) -> Iterator[Mistake]:
        """A flavor that cannot be a device class of its own."""
        if not self.devices_by_claim:
            return
        if flavor.share:
            change = "drop the flavor, or set cluster.devices to plugin"
            yield broken(("flavors", name), "dra-01", f"flavor {name} of GPUs shared by {flavor.share}", change)
        if name.endswith(DRIVER_DOMAIN) or not DNS_NAME.fullmatch(name):
            change = f"rename it: a class has a DNS name, and those that end with {DRIVER_DOMAIN} are the driver's"
            yield broken(("flavors", name), "dra-01", f"flavor {name!r} as a device class", change)

    def _layout(self, name: str, pool: Pool) -> Iterator[Mistake]:
        """A named layout that nobody declared, or that does not fit on the pool's board."""
        if not (pool.mig and pool.mig.named):
            return
        where, board = ("pools", name, "mig", "named"), pool.machine.gpu
        layout = layout_of(pool.mig.named, board, self.mig_layouts)
        if layout is None:
            yield undeclared(where, "layout", pool.mig.named, [*self.mig_layouts, BALANCED])
        else:
            yield from layout_mistakes(where, board, layout)

    def _placed(self, name: str, pool: Pool) -> Iterator[Mistake]:
        for i, zone in enumerate(pool.zones):
            if self.aws.enabled and zone not in self.aws.every_zone:
                known = self.aws.every_zone
                yield undeclared(("pools", name, "zones", i), "zone", zone, known, "aws.zones")
        uncertain = pool.uncertain
        for i, tier in enumerate(pool.tiers):
            if uncertain and tier in self.tiers and not self.tiers[tier].interruptible:
                yield broken(("pools", name, "tiers", i), "pool-05", f"tier {tier} on {uncertain}")
        firm = [name for name, tier in self.tiers.items() if not tier.interruptible]
        if uncertain and not pool.restricted and firm:
            given = f"{uncertain} for everybody, tier {firm[0]} among them"
            yield broken(("pools", name), "pool-05", given, "name interruptible tiers under tiers")
        if self.cluster.devices is Devices.DRA:
            if pool.machine.gpus and pool.machine.gpu not in boards.PRODUCTS:
                given = f"{pool.instance} with devices: dra; what the driver calls a {pool.machine.gpu} is not known"
                yield broken(("pools", name, "instance"), "dra-01", given)
            if pool.made_by is Provisioner.KARPENTER:
                yield broken(("pools", name, "nodes"), "dra-01", "a pool of Karpenter with devices: dra")
            if pool.share:
                change = "drop share, or set cluster.devices to plugin"
                yield broken(("pools", name, "share"), "dra-01", f"{pool.share.mode} with devices: dra", change)

    def _yields(self) -> Iterator[Mistake]:
        """What pools yield, judged together: once every layout is known to fit."""
        whole = [
            name
            for name, pool in self.pools.items()
            if not pool.share and any(not slices for _, slices in self.cuts(name))
        ]
        strategies: dict[str, str] = {}
        for name, pool in self.pools.items():
            if pool.machine.gpus and not self.flavors_of(name):
                given = f"pool {name}, which yields no declared flavor"
                yield broken(("pools", name), "ref-01", given, "declare its GPU or slices under flavors")
            cuts = self.cuts(name)
            if pool.mig and pool.mig.strategy is Strategy.SINGLE:
                where = ("pools", name, "mig", "strategy")
                if len(cuts) != 1 or len(cuts[0][1]) != 1:
                    parts = ", ".join(f"{count} x [{boards.write_layout(slices) or 'whole'}]" for count, slices in cuts)
                    yield broken(where, "mig-02", f"strategy: single over {parts}")
                if whole and not pool.share:
                    given = f"strategy: single beside whole GPUs in {', '.join(whole)}, both called {gpus.GPU}"
                    yield broken(where, "mig-02", given, "use strategy: mixed")
            for flavor in self.flavors_of(name):
                other = strategies.setdefault(flavor, name)
                mine, theirs = pool.strategy, self.pools[other].strategy
                if self.flavors[flavor].mig and mine is not theirs:
                    given = f"flavor {flavor} as {mine} in {name} and as {theirs} in {other}"
                    yield broken(("pools", name, "mig", "strategy"), "mig-02", given, "use one strategy for a flavor")
            yield from self._pods(name, pool)

    def _pods(self, name: str, pool: Pool) -> Iterator[Mistake]:
        """More replicas or slices than pods: the last ones could never be used."""
        per_gpu = [sum(slices.values()) or 1 for _, slices in self.cuts(name)]
        units = sum(count * each for (count, _), each in zip(self.cuts(name), per_gpu, strict=True))
        ours = self.daemonsets(name).pods
        room = pool.most_pods - ours
        replicas = pool.share.replicas if pool.share else 1
        if units * replicas <= room:
            return
        what = counted(units, "slice" if pool.mig else "GPU")
        given = (
            f"{what} x {replicas} = {units * replicas} pods on {pool.instance}, which takes {pool.most_pods}, "
            f"{ours} of them the platform's"
        )
        where = ("pools", name, "share") if pool.share else ("pools", name, "mig")
        most = room // units
        change = f"share by {most} at most" if pool.share and most > 1 else f"cut into {room} slices at most"
        yield broken(where, "pool-04", given, change)

    def cuts(self, pool: str) -> list[Cut]:
        """Groups of a node's GPUs in order of their index, with the slices on each."""
        return self.pools[pool].cuts(self.mig_layouts)

    def daemonsets(self, pool: str) -> nodes.Resources:
        """What the platform's own pods take of one node of a pool."""
        spec, addon = self.pools[pool], nodes.Addon
        wanted = {addon.VPC_CNI, addon.KUBE_PROXY, addon.POD_IDENTITY, addon.EBS_CSI, addon.NODE_MONITORING}
        wanted |= {addon.GPU_OPERATOR, addon.DCGM_EXPORTER} if spec.machine.gpus else set()
        wanted |= {addon.CILIUM} if self.cluster.cni is Cni.CILIUM else set()
        wanted |= {addon.EFA} if spec.efa else set()
        wanted |= {addon.NODE_EXPORTER} if self.metrics.installed else set()
        return nodes.daemonset_reserve(wanted)

    @property
    def own_ranges(self) -> tuple[str, ...]:
        """Where nodes and pods have their addresses; empty: nobody has said."""
        made = (self.aws.network.cidr,) if self.aws.enabled and not self.aws.network.vpc else ()
        return self.cluster.ranges or made

    @property
    def service_cidrs(self) -> tuple[str, ...]:
        """Where services have their addresses, or may have them."""
        return (self.cluster.service_cidr,) if self.cluster.service_cidr else SERVICE_CIDRS

    @property
    def ipv4_alone(self) -> bool:
        """Whether pods are known to have no IPv6 address. EKS gives them one or the other, and IPv4 unless told."""
        if self.aws.enabled:
            return True
        return bool(self.cluster.ranges) and not any(":" in text for text in self.cluster.ranges)

    @property
    def queued(self) -> bool:
        """Whether a queue decides when work starts."""
        return self.queues.scheduler is Scheduler.KUEUE

    @property
    def devices_by_claim(self) -> bool:
        return self.cluster.devices is Devices.DRA

    def flavors_of(self, pool: str) -> dict[str, int]:
        """Flavors that one node of a pool yields, with how many of each."""
        return self._yield_of[pool]

    @cached_property
    def pools_by_flavor(self) -> dict[str, list[tuple[str, Pool]]]:
        """Pools that yield each flavor, the preferred first."""
        best_first = sorted(self.pools.items(), key=lambda item: item[1].preference(item[0]))
        return {
            flavor: [(name, pool) for name, pool in best_first if flavor in self.flavors_of(name)]
            for flavor in self.flavors
        }

    @cached_property
    def _yield_of(self) -> dict[str, dict[str, int]]:
        return {name: self._yield(name, pool) for name, pool in self.pools.items()}

    def _yield(self, name: str, pool: Pool) -> dict[str, int]:
        mode, replicas = (pool.share.mode, pool.share.replicas) if pool.share else (None, 1)
        units: dict[str | None, int] = {}
        for count, slices in self.cuts(name):
            for profile, each in slices.items() or [(None, 1)]:
                units[profile] = units.get(profile, 0) + count * each
        return {
            name: units[flavor.mig] * replicas
            for name, flavor in self.flavors.items()
            if flavor.gpu == pool.machine.gpu and flavor.share is mode and flavor.mig in units
        }

    def resource_of(self, flavor: str) -> str:
        """The extended resource that a flavor is."""
        return self._resource_of[flavor]

    @cached_property
    def _resource_of(self) -> dict[str, str]:
        strategies = {flavor: pool.strategy for name, pool in self.pools.items() for flavor in self.flavors_of(name)}
        return {
            name: resource_name(flavor.mig, flavor.share is not None, strategies.get(name, Strategy.MIXED))
            for name, flavor in self.flavors.items()
        }

    @property
    def resources(self) -> frozenset[str]:
        """Every extended resource that some flavor is."""
        return frozenset(self._resource_of.values())

    @cached_property
    def possible_slices(self) -> frozenset[str]:
        """Resource names of every profile of every board that the environment names, and of shared slices of those
        that a pool cuts and shares."""
        sold = {pool.machine.gpu for pool in self.pools.values() if pool.machine.gpus}
        whole = {(board, False) for board in sold | {flavor.gpu for flavor in self.flavors.values()}}
        shared = {(pool.machine.gpu, True) for pool in self.pools.values() if pool.mig and pool.share}
        return frozenset(
            resource_name(profile, replicas)
            for board, replicas in whole | shared
            for profile in boards.BOARDS[board].profiles
        )

    @property
    def system_namespaces(self) -> tuple[str, ...]:
        installed = {words.OPERATOR_NAMESPACE} if self.aws.enabled else set()
        installed |= {self.metrics.namespace} if self.metrics.collected else set()
        if self.queued:
            installed |= {words.QUEUE_NAMESPACE, *(FRAMEWORKS[kind].namespace for kind in self.queues.kinds)}
        return tuple(sorted({*words.SYSTEM_NAMESPACES, *self.platform.namespaces, *installed}))
