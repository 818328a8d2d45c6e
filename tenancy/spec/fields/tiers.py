"""`tiers`: quotas, bounds of containers and claims, priority, spreading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from tenancy.catalog import gpus
from tenancy.kube.quantities import write
from tenancy.rules.values import gpu_keys, huge_pages_for_all, unenforced_quota_keys, without_default
from tenancy.spec.fields.base import (
    Amounts,
    Cores,
    Count,
    Flag,
    Quantity,
    Size,
    Slug,
    Spec,
    TextForm,
    WholeNumber,
    amount,
)
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.queues import Duration, QueueingStrategy
from tenancy.spec.reading.mistakes import Mistake, rule_mistake

OWN_QUOTA_KEYS = frozenset(
    {"configmaps", "persistentvolumeclaims", "pods", "secrets", "services", "services.loadbalancers"}
    | {"services.nodeports", "requests.storage", "cpu", "memory", "ephemeral-storage"}
    | {f"{side}.{what}" for side in ("requests", "limits") for what in ("cpu", "memory", "ephemeral-storage")}
    | {"count/jobs.batch", "count/cronjobs.batch", "count/deployments.apps", "count/statefulsets.apps"}
    | {"count/horizontalpodautoscalers.autoscaling", "count/poddisruptionbudgets.policy", "count/replicasets.apps"}
    | {"count/networkpolicies.networking.k8s.io", "count/workloads.kueue.x-k8s.io"}
    | {"count/controllerrevisions.apps", "count/serviceaccounts", "count/pods"}
)


class Quota(Spec):
    """Limits of one namespace. Limits of cpu and memory are twice the requests by default."""

    cpu: Cores = Field(default="64", description="CPU requests of all pods, cores. Default: 64.")
    cpu_limit: Cores | None = Field(default=None, description="CPU limits of all pods, cores. Default: twice cpu.")
    memory: Size = Field(default="256Gi", description="Memory requests of all pods, bytes. Default: 256Gi.")
    memory_limit: Size | None = Field(
        default=None, description="Memory limits of all pods, bytes. Default: twice memory."
    )
    ephemeral_storage: Size = Field(
        default="500Gi", description="Requests and limits of node-local storage of all pods, bytes. Default: 500Gi."
    )
    pods: Count = Field(default=50, description="Number of pods that have not ended. Default: 50.")
    services: Count = Field(
        default=10, description="Number of services. Load balancers and node ports stay at 0. Default: 10."
    )
    ended_pods: Count | None = Field(
        default=None, description="Number of pods that have ended and are not deleted yet. Default: twice jobs."
    )
    secrets: Count = Field(default=30, description="Number of secrets. Default: 30.")
    config_maps: Count = Field(default=30, description="Number of ConfigMaps. Default: 30.")
    jobs: Count = Field(
        default=100,
        description="Number of Jobs, ended ones included. Each further kind of queued work gets a fifth of it, "
        "unless hard says more. Default: 100.",
    )
    cron_jobs: Count = Field(default=20, description="Number of CronJobs. Default: 20.")
    deployments: Count = Field(
        default=20,
        description="Number of Deployments, and as many StatefulSets. Each gets a disruption budget and an "
        "autoscaler, and each Deployment 12 ReplicaSets. Default: 20.",
    )
    volume_claims: Count = Field(default=20, description="Number of PersistentVolumeClaims. Default: 20.")
    storage: Size = Field(default="2Ti", description="Storage of all claims together, bytes. Default: 2Ti.")
    hard: dict[str, Quantity] = Field(
        default_factory=dict,
        description="Further keys of the ResourceQuota and their amounts, as the API server spells them. Containers "
        "may ask for the resources that it names, such as requests.hugepages-2Mi or requests.rdma/hca; the queue does "
        "not count them. Default: none.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        for key in unenforced_quota_keys(self.hard):
            fault, name = f"{key}, which the API server refuses or never counts", key.removeprefix("limits.")
            suggestion = f"did you mean '{_REQUESTS}{name}'?" if "/" in name or _is_huge(name) else None
            change = _TO_FLAVORS if (_REQUESTS + name).startswith(_BY_FLAVOR) else suggestion
            yield rule_mistake(("hard", key), "quota-01", fault, change)
        for key in self.hard:
            if key in OWN_QUOTA_KEYS:
                fault, change = f"{key}, which has a field of its own", "use the quota's field, and drop it here"
                yield Mistake(("hard", key), fault, "a limit is written once", change)
            elif key.startswith(_BY_FLAVOR):
                fault = f"{key}, which is granted as a flavor"
                yield Mistake(("hard", key), fault, "GPUs are counted per tenant", _TO_FLAVORS)
            elif key.startswith(_HUGE_PAGES) and (mistake := _huge_page_mistake(key, self.hard[key])):
                yield mistake

    @property
    def extra_resources(self) -> tuple[str, ...]:
        """Resources of `hard` that containers may ask for: extended ones and huge pages."""
        amounts = {key.removeprefix(_REQUESTS): text for key, text in self.hard.items() if key.startswith(_REQUESTS)}
        return tuple(sorted(name for name, most in amounts.items() if amount(most) and ("/" in name or _is_huge(name))))

    def or_default(self, ceiling: Quota) -> Quota:
        """This quota for the fields that it sets, and the ceiling for all others."""
        own_fields = {name: getattr(self, name) for name in self.model_fields_set}
        if "hard" in own_fields:
            own_fields["hard"] = {**ceiling.hard, **self.hard}
        # A limit follows from its request: for a request set here, the ceiling's limit would be too wide.
        for name in ("cpu", "memory"):
            if name in own_fields and own_fields.get(f"{name}_limit") is None:
                own_fields[f"{name}_limit"] = None
        return ceiling.model_copy(update=own_fields)

    def effective(self) -> dict[str, Decimal]:
        """Every limit as a number, by its name in the file."""
        numbers = {n: getattr(self, n) for n in type(self).model_fields if n != "hard"}
        limits = {n: amount(str(value)) for n, value in numbers.items() if value is not None}
        for name in ("cpu", "memory"):
            limits.setdefault(f"{name}_limit", 2 * limits[name])
        limits.setdefault("ended_pods", 2 * limits["jobs"])
        return {n.replace("_", "-"): value for n, value in limits.items()} | {
            f"hard.{key}": amount(value) for key, value in self.hard.items()
        }

    def excess_over(self, ceiling: Quota) -> dict[str, tuple[str, str]]:
        """Fields in which this quota exceeds the ceiling, with its amount and the ceiling's."""
        maxima = ceiling.effective()
        return {
            name: (write(value), write(maxima[name]))
            for name, value in self.or_default(ceiling).effective().items()
            if name in maxima and value > maxima[name]
        }


_REQUESTS = "requests."
_TO_FLAVORS = "drop it, and write the number under gpus of the tenant or of the namespace, by flavor"
_HUGE = "hugepages-"
_HUGE_PAGES = _REQUESTS + _HUGE
_BY_FLAVOR = ("requests.nvidia.com/", _REQUESTS + gpus.EFA, "requests.deviceclass.resource.kubernetes.io/")


def _is_huge(resource: str) -> bool:
    return resource.startswith(_HUGE)


def _huge_page_mistake(key: str, text: str) -> Mistake | None:
    """Why an amount of huge pages is none; they are counted in bytes."""
    size = key.removeprefix(_HUGE_PAGES)
    if size not in _PAGES:
        rule = "nodes have huge pages of 2Mi, or of 1Gi"
        return Mistake(("hard", key), key, rule, f"write {_HUGE_PAGES}{_PAGES[0]}")
    page = amount(size)
    if amount(text) % page:
        next_amount = write((amount(text) // page + 1) * page)
        fault = f"{text} of {key.removeprefix(_REQUESTS)}"
        return Mistake(("hard", key), fault, "huge pages are counted in bytes, by whole pages", f"write {next_amount}")
    return None


_PAGES = ("2Mi", "1Gi")


class Container(Spec):
    """Limits of one container; a GPU is never among them."""

    default: Amounts = Field(
        default={"cpu": "2", "memory": "8Gi", "ephemeral-storage": "10Gi"},
        description="Limits of a container that sets none, by resource. Default: cpu 2, memory 8Gi, "
        "ephemeral-storage 10Gi.",
    )
    default_request: Amounts = Field(
        default={"cpu": "500m", "memory": "2Gi", "ephemeral-storage": "1Gi"},
        description="Requests of a container that sets none, by resource. Default: cpu 500m, memory 2Gi, "
        "ephemeral-storage 1Gi.",
    )
    min: Amounts = Field(
        default={"cpu": "10m", "memory": "16Mi"},
        description="Smallest request of a container, by resource. Default: cpu 10m, memory 16Mi.",
    )
    max: Amounts = Field(
        default={"cpu": "96", "memory": "768Gi"},
        description="Largest limit of a container, by resource. Default: cpu 96, memory 768Gi.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        for field in _CONTAINER_ORDER:
            alias = field.replace("_", "-")
            for key in gpu_keys(getattr(self, field)):
                change = f"drop {key} from {alias}: the tenant's shares and quota.hard limit such resources"
                yield rule_mistake((alias, key), "quota-02", f"{key} under {alias}", change)
            for key in () if field == "max" else huge_pages_for_all(getattr(self, field)):
                change = f"drop {key} from {alias}, and limit it under quota.hard as {_REQUESTS}{key}"
                yield rule_mistake((alias, key), "quota-02", f"{key} under {alias}", change)
        for key, maximum in without_default(self.max, self.default).items():
            usual_default = type(self).model_fields["default"].default.get(key, maximum)
            change = f"write {key}: {usual_default} under default, or drop {key} from max"
            if _is_huge(key):
                change = f"drop {key} from max, and limit it under quota.hard as {_REQUESTS}{key}"
            yield rule_mistake(("max", key), "quota-02", f"max {maximum} of {key} without a default", change)
        yield from _crossed_bounds({field.replace("_", "-"): getattr(self, field) for field in _CONTAINER_ORDER})


_CONTAINER_ORDER = ("min", "default_request", "default", "max")


def _crossed_bounds(steps: dict[str, dict[str, str]]) -> Iterator[Mistake]:
    """Bounds by name, least first: the API server refuses a limit range whose bounds cross."""
    for key in sorted({key for bounds in steps.values() for key in bounds}):
        present = [(name, bounds[key]) for name, bounds in steps.items() if key in bounds]
        for (low, lower), (high, higher) in pairwise(present):
            if amount(lower) > amount(higher):
                fault = f"{low} {lower} above {high} {higher} of {key}"
                rule = "min, default-request, default and max do not cross"
                yield Mistake((low, key), fault, rule, f"lower {low} or raise {high}; absent ones have defaults")


class Claim(Spec):
    """Smallest and largest size of one volume claim, bytes."""

    min: Size = Field(default="1Gi", description="Smallest volume claim, bytes. Default: 1Gi.")
    max: Size = Field(default="500Gi", description="Largest volume claim, bytes. Default: 500Gi.")

    def mistakes(self) -> Iterator[Mistake]:
        if amount(self.min) > amount(self.max):
            yield Mistake(
                ("min",), f"min {self.min} above max {self.max}", "min is at most max", "lower min or raise max"
            )


def unusable_limits(quota: Quota, container: Container, claim: Claim) -> Iterator[Mistake]:
    """Fields of a quota that are above 0 and still too small to use."""
    limits = quota.effective()
    for name in ("cpu", "memory"):
        limit = f"{name}-limit"
        if limits[limit] < limits[name]:
            least = write(limits[name])
            fault, rule = f"{limit} {write(limits[limit])} under {name} {least}", "a limit is no lower than the request"
            yield Mistake((limit,), fault, rule, f"write {least} or more, or drop {limit}: it is then twice {name}")
    minima = {name: (container.default_request.get(name, "0"), "one default container") for name in _COMPUTE}
    minima |= {f"{name}-limit": (container.default.get(name, "0"), "one default container") for name in _COMPUTE[:2]}
    for name, (least, consumer) in {**minima, "storage": (claim.min, "the smallest claim")}.items():
        if 0 < limits[name] < amount(least):
            fault, rule = (
                f"{name} {write(limits[name])} under {least} of {consumer}",
                f"a quota has room for {consumer}, or is 0",
            )
            yield Mistake((name,), fault, rule, f"write {least} or more, or 0")


_COMPUTE = ("cpu", "memory", "ephemeral-storage")


TierName = Annotated[
    str,
    TextForm(
        r"^(?!.*--)[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?$",
        "lower-case letters, digits and single dashes, at most 31",  # a queue is called <tenant>--<tier>, in a label
        "write it like production",
    ),
]


class Spread(StrEnum):
    """Whether pods are spread evenly over nodes."""

    NONE = "none"  # as the scheduler spreads all pods by default, loosely
    PREFERRED = "preferred"  # evenly if there is room, so that a lost node takes few replicas
    REQUIRED = "required"  # evenly; a replica waits rather than run on another node with room


class SpreadOf(StrEnum):
    """Which pods are spread as one group."""

    REPLICAS = "replicas"  # the pods of one Deployment or StatefulSet
    JOBS = "jobs"  # the pods of one Job: they then share no node's disk, network or NVLink
    NAMESPACE = "namespace"  # all pods of a namespace


class IdleAction(StrEnum):
    """Action after the warnings to work whose GPUs are idle."""

    ALERT = "alert"  # nothing: the work goes on, and the alert GpuIdle is sent as for every tier
    SUSPEND = "suspend"  # its pods are deleted, and its GPUs go to other work


class IdleRule(Spec):
    """Rule for work that holds GPUs and does not use them."""

    utilization_threshold: Annotated[
        str, TextForm(r"^[1-9][0-9]?%$", "a part of a GPU's time, 1% to 99%", "write it like 5%, with the sign")
    ] = Field(
        default="5%",
        description="A GPU is idle while its engine is active for less than this part of the time. Default: 5%.",
    )
    duration: Duration = Field(
        default="30m",
        description="Time for which every GPU of the work is idle without interruption before the first warning, "
        "between two warnings, and between the last one and its suspension. Default: 30m.",
    )
    warnings: Annotated[int, WholeNumber(1, 10)] = Field(
        default=2, description="Number of warnings, as events on the work. Default: 2."
    )
    action: IdleAction = Field(
        default=IdleAction.ALERT,
        description="What follows the last warning. suspend needs interruptible: true. Default: alert; the work goes "
        "on.",
    )

    @property
    def part(self) -> float:
        """`utilization_threshold` as a number from 0 to 1."""
        return int(self.utilization_threshold[:-1]) / 100


class Tier(Spec):
    """Limits of a kind of tenant: the defaults of its namespaces and their ceiling."""

    priority: Annotated[int, WholeNumber(-999_999_999, 1_000_000_000)] = Field(
        description="Value of the tier's priority class. Pods may use the classes of their tier and of lower tiers. "
        "Required."
    )
    gpu_tier: Slug = Field(
        default="shared", description="Label gpu-tier of the tier's namespaces, for cost reports. Default: shared."
    )
    interruptible: Flag = Field(
        default=False,
        description="Whether the tier's work tolerates the loss of its GPU, and faults of other pods on a shared "
        "GPU. Only then may it use spot nodes and shared GPUs. Default: false.",
    )
    allow_borrowing: Flag = Field(
        default=True,
        description="Whether the tier's work may run on borrowed GPUs, where it is preempted when their owners "
        "reclaim them. If false, it runs on guaranteed GPUs only, and only more urgent work of its own tenant "
        "preempts it. Default: true.",
    )
    queueing_strategy: QueueingStrategy = Field(
        default=QueueingStrategy.BEST_EFFORT_FIFO,
        description="Whether work that fits may start before earlier work that does not fit. Default: "
        "best-effort-fifo.",
    )
    max_run_time: Duration | None = Field(
        default=None,
        description="Longest run time of a job; every job must set its own, up to this. Default: no limit.",
    )
    idle: IdleRule | None = Field(
        default=None,
        description="What happens to work whose GPUs are idle; needs queues.clock and metrics. Default: nothing but "
        "the alert GpuIdle.",
    )
    topology_spread: Spread = Field(
        default=Spread.PREFERRED,
        description="How pods without topologySpreadConstraints of their own are spread over nodes; needs Kubernetes "
        "1.36 or newer. Default: preferred.",
    )
    topology_spread_scope: tuple[SpreadOf, ...] = Field(
        default=(SpreadOf.REPLICAS,),
        min_length=1,
        description="Which pods are spread. Pods of a GPU job are faster on few nodes, so jobs are not spread by "
        "default. Default: [replicas].",
    )
    allow_image_tags: Flag = Field(
        default=True,
        description="Whether images may be named by tag (never latest). If false, only by digest. Default: true.",
    )
    allow_large_config: Flag = Field(
        default=False,
        description="Whether a config map or a secret may be up to 1 MiB, the API server's maximum. If false, up to "
        "256 KiB. Default: false.",
    )
    allow_writable_root_filesystem: Flag = Field(
        default=True,
        description="Whether containers may write to their root file system. If false, only to volumes. Default: true.",
    )
    max_storage_access: Access = Field(
        default=Access.READ_WRITE,
        description="Widest access to buckets that grants of the tier's tenants may have. Default: read-write.",
    )
    quota: Quota = Field(
        default_factory=Quota,
        description="Quota of each namespace of the tier: its default and its maximum. Default: the defaults of its "
        "fields.",
    )
    container: Container = Field(
        default_factory=Container, description="Limits of one container. Default: the defaults of its fields."
    )
    volume_claim: Claim = Field(
        default_factory=Claim, description="Size of one volume claim. Default: the defaults of its fields."
    )

    def mistakes(self) -> Iterator[Mistake]:
        for mistake in unusable_limits(self.quota, self.container, self.volume_claim):
            yield replace(mistake, location=("quota", *mistake.location))
        if (
            "max" in self.volume_claim.model_fields_set
            and amount(self.volume_claim.max) > amount(self.quota.storage) > 0
        ):
            fault = f"max {self.volume_claim.max} of one claim, over storage {self.quota.storage} of all claims"
            rule, change = "one claim is no larger than all of them", "lower max, or raise the quota's storage"
            yield Mistake(("volume-claim", "max"), fault, rule, change)
        if self.idle and self.idle.action is IdleAction.SUSPEND and not self.interruptible:
            yield rule_mistake(("idle", "action"), "time-06", "action: suspend with interruptible: false")

    def quota_for(self, namespace_quota: Quota | None) -> Quota:
        """The quota of a namespace of this tier, which may set its own."""
        return namespace_quota.or_default(self.quota) if namespace_quota else self.quota
