"""Pools and flavors: the nodes, how their GPUs are partitioned or shared, and the flavors that they yield."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from tenancy.catalog import boards, gpus, nodes
from tenancy.catalog.account import MAX_NODES_AT_ONCE
from tenancy.catalog.instances import MACHINES, NOT_NVIDIA, Instance, network_layers
from tenancy.catalog.versions import ami_release_misfit
from tenancy.spec.fields.base import Count, Day, Distinct, Flag, Positive, Slug, Spec, TextForm, WholeNumber
from tenancy.spec.reading.mistakes import Mistake, describe_value, form_error, nearest, rule_mistake


class Sharing(StrEnum):
    """Sharing of one GPU by several pods without partitions."""

    TIME_SLICING = "time-slicing"  # no memory or fault isolation: one tenant per pool
    MPS = "mps"  # soft memory limits, shared faults: one tenant per pool


class Strategy(StrEnum):
    """Naming of MIG slices as resources."""

    MIXED = "mixed"  # each profile is a resource of its own
    SINGLE = "single"  # slices have the name of whole GPUs: one profile per pool, and no pool with whole GPUs


class Provisioner(StrEnum):
    """Provisioner that adds nodes to a pool."""

    MANAGED = "managed"  # an EKS managed node group of fixed size
    KARPENTER = "karpenter"  # the minimum as a managed group, further nodes for pending pods
    SELF_MANAGED = "self-managed"  # of an existing cluster: EC2 instances that join it by themselves, or no EC2 at all
    AUTO_MODE = "auto-mode"  # of an existing cluster: EKS' own, whose image and device plugin take no settings


class Market(StrEnum):
    """Market of instances without a reservation."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"  # withdrawn with two minutes' notice: interruptible tiers only


class UpgradeStrategy(StrEnum):
    """Order in which an upgrade replaces nodes."""

    SURGE = "surge"  # a new node starts before the old one is removed
    TERMINATE_FIRST = "terminate-first"  # the old node is removed first, for a reservation without room for another


_PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb(\+[a-z.]+)?")


class Flavor(Spec):
    """A kind of GPU that pools yield: a whole GPU, a MIG slice, or a replica of a shared GPU or slice."""

    gpu: str = Field(description="GPU board of the flavor. Required.", json_schema_extra={"enum": list(boards.BOARDS)})
    mig: str | None = Field(default=None, description="MIG profile of the slice. Default: none, the whole GPU.")
    gpu_sharing: Sharing | None = Field(
        default=None, description="How replicas share the GPU or slice. Default: none, it is not shared."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if self.gpu not in boards.BOARDS:
            names = boards.similar(self.gpu)
            change = f"use {' or '.join(names)}" if names else f"use one of {', '.join(boards.BOARDS)}"
            yield rule_mistake(("gpu",), "ref-01", f"board {self.gpu!r}", change)
        elif self.mig is not None and (misfit := boards.layout_misfit(self.gpu, {self.mig: 1})):
            named_profile = _PROFILE.search(self.mig.lower())
            is_offered = named_profile and named_profile[0] in boards.BOARDS[self.gpu].profiles
            change = f"use {named_profile[0]}" if named_profile and is_offered else f"use one of {_profiles(self.gpu)}"
            yield rule_mistake(("mig",), "mig-01", misfit, change)
        if self.mig is not None and self.gpu_sharing is Sharing.MPS:
            yield rule_mistake(("gpu-sharing",), "pool-08", f"gpu-sharing: mps of slices {self.mig}")


class Nodes(Spec):
    """Smallest and largest number of nodes of an autoscaled pool."""

    min: Count = Field(
        default=0, description="Number of nodes that always run. Only these count for guarantees. Default: 0."
    )
    max: Count = Field(description="Maximum number of nodes. Required.")

    @classmethod
    def fixed(cls, count: int) -> Nodes:
        """The same number of nodes at all times; in a file the number alone."""
        return cls(min=count, max=count)

    def mistakes(self) -> Iterator[Mistake]:
        if self.min > self.max:
            yield Mistake(
                ("min",), f"min {self.min} above max {self.max}", "min is at most max", "lower min or raise max"
            )


def _nodes(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    if not isinstance(value, dict | Nodes):
        numbers = re.findall(r"[0-9]+", str(int(value) if isinstance(value, float) else value))
        match sorted(map(int, numbers)):
            case [count]:
                change = f"write {count}, without quotes" if isinstance(value, str) else f"write {count}"
            case [least, most]:
                change = f"write {{min: {least}, max: {most}}}"
            case _:
                change = "write 8, or {min: 2, max: 8}"
        raise form_error(describe_value(value), "a number of nodes, or a mapping of min and max", change)
    return value


def _profiles(board: str) -> str:
    return ", ".join(boards.BOARDS[board].profiles) or "none: the board cannot be partitioned"


class GpuPartition(NamedTuple):
    """GPUs of a node with the same partition; without slices they are whole."""

    gpus: int
    slices: Mapping[str, int]


class Part(Spec):
    """Some GPUs of a node, all with the same partition."""

    gpus: Positive = Field(description="Number of GPUs of a node; the first part takes the lowest indices. Required.")
    slices: dict[str, Positive] = Field(min_length=1, description="Number of slices per GPU, by MIG profile. Required.")


class Mig(Spec):
    """MIG partitions of a node's GPUs: exactly one of layout, layout-name and per-gpu."""

    layout: dict[str, Positive] | None = Field(
        default=None, min_length=1, description="Number of slices on every GPU, by MIG profile. Default: none."
    )
    layout_name: Slug | None = Field(
        default=None,
        description="Name of a layout of mig-layouts, or all-balanced, for every GPU. Default: none.",
        examples=["all-balanced"],
    )
    per_gpu: tuple[Part, ...] | None = Field(
        default=None,
        min_length=1,
        description="Different layouts on one node, by number of GPUs. The remaining GPUs stay whole. Default: none.",
    )
    strategy: Strategy = Field(default=Strategy.MIXED, description="How slices are named as resources. Default: mixed.")

    def mistakes(self) -> Iterator[Mistake]:
        partitions = [name for name in ("layout", "layout_name", "per_gpu") if getattr(self, name) is not None]
        if len(partitions) != 1:
            fault = (
                " and ".join(name.replace("_", "-") for name in partitions) or "none of layout, layout-name and per-gpu"
            )
            yield Mistake(
                (), fault, "GPUs are partitioned in one way", "write exactly one of layout, layout-name and per-gpu"
            )


class GpuSharing(Spec):
    """Number of pods that one GPU or slice serves: exactly one of time-slicing and mps."""

    time_slicing: Annotated[int, WholeNumber(2, 48)] | None = Field(
        default=None, description="Number of pods per GPU or slice that take turns. Default: none."
    )
    mps: Annotated[int, WholeNumber(2, 48)] | None = Field(
        default=None, description="Number of pods per GPU that run at the same time (MPS). Default: none."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if (self.time_slicing is None) == (self.mps is None):
            fault = "both time-slicing and mps" if self.mps else "neither time-slicing nor mps"
            yield Mistake((), fault, "a pool is shared in one way", "write time-slicing: 4, or mps: 4")

    @property
    def mode(self) -> Sharing:
        """The mode that is written: time-slicing or MPS."""
        return Sharing.MPS if self.mps else Sharing.TIME_SLICING

    @property
    def replicas(self) -> int:
        """Number of pods that share one GPU or slice."""
        return self.mps or self.time_slicing or 1


_Reservation = Annotated[
    str,
    TextForm(
        r"^cr-[0-9a-f]{8,17}$",
        "an id of a capacity reservation is 'cr-' and hexadecimal digits",
        "write it like cr-0123abcd",
    ),
]


_PURCHASES = "write on-demand, spot, {reservation: cr-…} or {capacity-block: cr-…, ends: …}"


class Purchase(Spec):
    """Purchase of the nodes: exactly one of market, reservation and capacity-block."""

    market: Market | None = Field(
        default=None, description="Market that nodes are bought on without a reservation. Default: none."
    )
    reservation: _Reservation | None = Field(
        default=None, description="Id of an on-demand capacity reservation; nodes come from it only. Default: none."
    )
    capacity_block: _Reservation | None = Field(
        default=None, description="Id of a capacity block; needs ends. Default: none."
    )
    starts: Day | None = Field(
        default=None,
        description="Day on which the capacity block begins, UTC. Before it the pool has no nodes and its queues are "
        "on hold. Default: it has begun.",
    )
    ends: Day | None = Field(
        default=None,
        description="Day on which the capacity block ends; its nodes are drained 40 minutes earlier. Default: none.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        sources = [n for n in ("market", "reservation", "capacity_block") if getattr(self, n) is not None]
        if len(sources) != 1:
            form_fault = " and ".join(n.replace("_", "-") for n in sources) or "no way to buy"
            yield Mistake((), form_fault, "nodes are bought in one way", _PURCHASES)
        if (self.capacity_block is None) != (self.ends is None):
            form_fault = "capacity-block without ends" if self.capacity_block else "ends without capacity-block"
            yield Mistake(("ends",), form_fault, "a capacity block ends on a day", "write both, or neither")
        if self.starts and not self.capacity_block:
            fault = "starts without capacity-block"
            yield Mistake(("starts",), fault, "a capacity block begins on a day", "write both, or neither")
        elif self.starts and self.ends and self.starts >= self.ends:
            fault = f"capacity block {self.capacity_block} from {self.starts} until {self.ends}"
            yield rule_mistake(
                ("starts",), "pool-07", fault, "write the day on which it begins, before that of its end"
            )

    def has_begun(self, day: dt.date) -> bool:
        """Whether the pool may have nodes on that day; only a capacity block can begin later."""
        return self.starts is None or self.starts <= day

    @property
    def reservation_id(self) -> str | None:
        """Id of the capacity reservation or capacity block that the nodes come from."""
        return self.reservation or self.capacity_block

    def ends_by(self, day: dt.date) -> bool:
        """Whether a capacity block ends on that day or before."""
        return self.ends is not None and self.ends <= day

    @property
    def option(self) -> str:
        """Purchase option of the nodes: on-demand, spot, reservation or capacity-block."""
        return "capacity-block" if self.capacity_block else "reservation" if self.reservation else str(self.market)

    def __str__(self) -> str:
        if self.capacity_block:
            begins = f" from {self.starts}" if self.starts else ""
            return f"capacity block {self.capacity_block}{begins} until {self.ends}"
        return f"reservation {self.reservation}" if self.reservation else str(self.market)


def _purchase(value: Any) -> Any:
    if not isinstance(value, str | dict | Purchase):
        raise form_error(describe_value(value), "nodes are bought in one way", _PURCHASES)
    return {"market": value} if isinstance(value, str) else value


class Upgrade(Spec):
    """Replacement of nodes when the image, the layout or a launch setting changes."""

    strategy: UpgradeStrategy | None = Field(
        default=None,
        description="Whether a new node starts before the old one is removed. Default: surge; terminate-first for a "
        "reservation, which has no room for another node.",
    )
    max_unavailable: Annotated[int, WholeNumber(1, MAX_NODES_AT_ONCE)] = Field(
        default=1, description="Number of nodes that are replaced at the same time. Default: 1."
    )
    wave: Annotated[int, WholeNumber(1, 20)] = Field(
        default=1,
        description="Wave of the pool. Pools of a higher wave are upgraded only after all lower waves, and after the "
        "pause. Default: 1.",
    )


Release = Annotated[str, TextForm(r"^v20[0-9]{6}$", "an AMI release", "write it like v20260724")]
Zone = Annotated[
    str, TextForm(r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$", "an availability zone", "write it like eu-central-1a")
]
Zones = Annotated[tuple[Zone, ...], Distinct()]


class Pool(Spec):
    """Nodes of one instance type, for the tenants and tiers that it names, or for all tenants."""

    instance_type: str = Field(
        description="EC2 instance type of the nodes. A type without GPUs is for work that needs none. Required."
    )
    nodes: Annotated[
        Nodes,
        BeforeValidator(_nodes, json_schema_input_type=int | Nodes),
        Field(description="Number of nodes, or {min, max} for an autoscaled pool. Required.", examples=[8]),
    ]
    provisioner: Provisioner | None = Field(
        default=None,
        description="What makes the nodes. self-managed and auto-mode are of an existing cluster. Default: managed for "
        "a fixed number, karpenter for a range.",
    )
    purchase: Annotated[Purchase, BeforeValidator(_purchase, json_schema_input_type=Market | Purchase)] = Field(
        default_factory=lambda: Purchase(market=Market.ON_DEMAND),
        description="How the nodes are bought. Default: on-demand.",
    )
    efa: Flag = Field(
        default=False,
        description="Whether nodes have EFA interfaces, for training over several nodes. Network policies do not "
        "apply to EFA traffic, so such a pool has one tenant. Default: false.",
    )
    mig: Mig | None = Field(default=None, description="How each GPU is partitioned. Default: none, GPUs are whole.")
    gpu_sharing: GpuSharing | None = Field(
        default=None, description="How each GPU or slice is shared. Default: none, it is not shared."
    )
    tenants: Annotated[tuple[str, ...], Distinct()] = Field(
        default=(),
        min_length=1,
        description="Tenants that may use the pool. Default: those of its tiers; all tenants if tiers is absent too.",
    )
    tiers: Annotated[tuple[str, ...], Distinct()] = Field(
        default=(),
        min_length=1,
        description="Tiers that may use the pool. Default: only its tenants; all tiers if tenants is absent too.",
    )
    zones: Zones = Field(
        default=(),
        min_length=1,
        description="Availability zones of the nodes. A reservation or EFA needs exactly one. Default: all zones of "
        "the environment.",
    )
    ami_release: Release | None = Field(
        default=None, description="Release of the node image. Default: aws.ami-release of the environment."
    )
    upgrade: Upgrade = Field(default_factory=Upgrade, description="How nodes are replaced. Default: one at a time.")

    def mistakes(self) -> Iterator[Mistake]:
        if self.gpu_sharing and not self.sole_tenant:
            yield rule_mistake(("gpu-sharing",), "pool-02", f"a pool with {self.gpu_sharing.mode} for {self._users()}")
        if self.gpu_sharing and self.gpu_sharing.mps and self.mig:
            yield rule_mistake(("gpu-sharing", "mps"), "pool-08", "mps inside MIG slices")
        instance = MACHINES.get(self.instance_type)
        if instance is None and NOT_NVIDIA.match(self.instance_type):
            yield rule_mistake(
                ("instance-type",), "pool-09", f"{self.instance_type}, whose accelerators are no NVIDIA GPUs"
            )
            return
        if instance is None:
            close = " or ".join(nearest(self.instance_type, MACHINES))
            change = f"use {close}; `tenancy catalog` lists the types"
            yield rule_mistake(("instance-type",), "ref-01", f"instance-type {self.instance_type!r}", change)
            return
        if instance.unsupported:
            yield rule_mistake(("instance-type",), "pool-09", f"{self.instance_type}: {instance.unsupported}")
        yield from self._partition_mistakes(instance)
        yield from self._purchase_mistakes(instance)
        if self.ami_release and (misfit := ami_release_misfit(self.ami_release)):
            yield rule_mistake(("ami-release",), "ami-01", misfit)

    def _partition_mistakes(self, instance: Instance) -> Iterator[Mistake]:
        if not instance.gpus:
            for key, value in (("mig", self.mig), ("gpu-sharing", self.gpu_sharing)):
                if value is not None:
                    change = f"drop {key}, or choose a type with GPUs"
                    yield rule_mistake((key,), "pool-09", f"{key} on {self.instance_type}, which has no GPU", change)
            return
        if self.mig and self.mig.layout:
            yield from layout_mistakes(("mig", "layout"), instance.gpu, self.mig.layout)
        parts: tuple[Part, ...] = (self.mig.per_gpu or ()) if self.mig else ()
        for i, part in enumerate(parts):
            yield from layout_mistakes(("mig", "per-gpu", i, "slices"), instance.gpu, part.slices)
        if (partitioned_gpus := sum(part.gpus for part in parts)) > instance.gpus:
            fault = (
                f"{' + '.join(str(part.gpus) for part in parts)} = {partitioned_gpus} GPUs of {instance.gpus} per node"
            )
            change = f"lower gpus until the parts hold at most {instance.gpus}"
            yield rule_mistake(("mig", "per-gpu"), "mig-01", fault, change)

    def _purchase_mistakes(self, instance: Instance) -> Iterator[Mistake]:
        if self.effective_provisioner is Provisioner.MANAGED and self.nodes.min != self.nodes.max:
            fault = f"nodes {self.nodes.min} to {self.nodes.max} with provisioner: managed"
            change = "write a fixed number of nodes, or provisioner: karpenter"
            yield rule_mistake(("provisioner",), "pool-07", fault, change)
        if self.provisioner is Provisioner.KARPENTER and self.nodes.min == self.nodes.max:
            fault = f"{self.nodes.max} nodes, fixed, with provisioner: karpenter"
            change = "write a range {min, max}, or provisioner: managed"
            yield rule_mistake(("provisioner",), "pool-07", fault, change)
        if self.purchase.market is Market.SPOT and self.nodes.min:
            fault = f"nodes.min {self.nodes.min} on spot"
            change = (
                "set nodes.min to 0, and tiers to interruptible ones; EC2 may take a spot node back, so no guarantee "
                "is met by this pool: guarantees need another pool with the flavor"
            )
            yield rule_mistake(("nodes", "min"), "pool-07", fault, change)
        if self.purchase.reservation_id and len(self.zones) != 1:
            fault = f"{self.purchase} in {len(self.zones) or 'all'} zones"
            yield rule_mistake(("zones",), "pool-07", fault, "name the one zone that the reservation is in")
        if self.efa:
            if not self.sole_tenant:
                yield rule_mistake(("efa",), "pool-06", f"efa: on for {self._users()}")
            if not instance.efa:
                change = "drop efa, or use a type that has it, such as p4d.24xlarge"
                yield rule_mistake(
                    ("efa",), "pool-06", f"efa: on for {self.instance_type}, which has no EFA interface", change
                )
            if len(self.zones) != 1:
                fault = f"efa: on in {len(self.zones) or 'all'} zones"
                yield rule_mistake(("zones",), "pool-06", fault, "name one zone: EFA traffic does not leave it")

    def _users(self) -> str:
        return ", ".join((*self.tenants, *(f"tier {t}" for t in self.tiers))) or "all tenants"

    @property
    def effective_provisioner(self) -> Provisioner:
        """The provisioner of the nodes, as given or by their number."""
        if self.provisioner:
            return self.provisioner
        return Provisioner.MANAGED if self.nodes.min == self.nodes.max else Provisioner.KARPENTER

    @property
    def is_autoscaled(self) -> bool:
        """Whether Karpenter makes the pool's nodes above its minimum."""
        return self.effective_provisioner is Provisioner.KARPENTER

    @property
    def terminates_first(self) -> bool:
        """Whether an upgrade removes a node before it makes the next."""
        if self.upgrade.strategy:
            return self.upgrade.strategy is UpgradeStrategy.TERMINATE_FIRST
        return self.purchase.reservation_id is not None

    def preference(self, name: str) -> tuple[bool, int, str]:
        """Sort key: pools that are not open to all tenants first, so that they are used; then reservations, which are
        paid for anyway, and spot last."""
        bought = 0 if self.purchase.reservation_id else 2 if self.purchase.market is Market.SPOT else 1
        return (not self.is_restricted, bought, name)

    @property
    def machine(self) -> Instance:
        """The catalog's entry of the instance type; KeyError if it is unknown."""
        return MACHINES[self.instance_type]

    @property
    def network_layers(self) -> int:
        """Number of network layers that labels of its nodes name; 0 if they have no such labels."""
        return network_layers(self.instance_type)

    @property
    def max_pods(self) -> int:
        """Pods that a node of the pool takes; the same for managed nodes and for those of Karpenter."""
        managed = self.effective_provisioner is Provisioner.MANAGED or self.nodes.min > 0
        return nodes.pods(self.machine, "managed" if managed else "karpenter", self.efa)

    @property
    def strategy(self) -> Strategy:
        """Naming of the pool's MIG slices; mixed without MIG."""
        return self.mig.strategy if self.mig else Strategy.MIXED

    @property
    def interruption_cause(self) -> str:
        """Why work on the pool may lose its GPU, or fail with other work on a shared GPU; empty if it cannot."""
        if self.purchase.market is Market.SPOT:
            return "spot nodes"
        return f"GPUs shared by {self.gpu_sharing.mode}" if self.gpu_sharing else ""

    @property
    def is_restricted(self) -> bool:
        """Whether only some tenants or tiers may use the pool."""
        return bool(self.tenants or self.tiers)

    @property
    def is_bare_metal(self) -> bool:
        """Whether the instance type is bare metal."""
        return self.instance_type.partition(".")[2].startswith("metal")

    @property
    def sole_tenant(self) -> str | None:
        """The one tenant that may use it, if there is just one."""
        return self.tenants[0] if len(self.tenants) == 1 and not self.tiers else None

    def admits(self, tenant: str, tiers: frozenset[str]) -> bool:
        """Whether a tenant, or one of the tiers, may use the pool."""
        return not self.is_restricted or tenant in self.tenants or not tiers.isdisjoint(self.tiers)

    def partitions(self, layouts: Mapping[str, Mapping[str, int]]) -> list[GpuPartition]:
        """Groups of a node's GPUs in order of their index, with the slices on each."""
        count = self.machine.gpus
        if self.mig is None or not count:
            return [GpuPartition(count, {})] if count else []
        if self.mig.per_gpu is None:
            return [
                GpuPartition(
                    count, self.mig.layout or layout_of(self.mig.layout_name or "", self.machine.gpu, layouts) or {}
                )
            ]
        groups = [GpuPartition(part.gpus, part.slices) for part in self.mig.per_gpu]
        whole_gpus = count - sum(part.gpus for part in self.mig.per_gpu)
        return [*groups, GpuPartition(whole_gpus, {})] if whole_gpus > 0 else groups


def layout_of(name: str, board: str, layouts: Mapping[str, Mapping[str, int]]) -> Mapping[str, int] | None:
    """A layout by name: one of the environment, or one that is defined for the board."""
    if name in layouts:
        return layouts[name]
    return boards.balanced(board) if name == BALANCED and boards.BOARDS[board].profiles else None


BALANCED = "all-balanced"


def layout_mistakes(location: tuple[str | int, ...], board: str, layout: Mapping[str, int]) -> Iterator[Mistake]:
    """A mistake for a layout that does not fit on a board, with the nearest layouts that fit."""
    if misfit := boards.layout_misfit(board, layout):
        nearest_layouts = [
            boards.write_layout(layout_that_fits) for layout_that_fits in boards.fitting_layouts(board, layout)
        ]
        yield rule_mistake(
            location,
            "mig-01",
            misfit,
            f"the nearest that fit: {'; '.join(nearest_layouts)}" if nearest_layouts else None,
        )


def resource_name(profile: str | None, is_shared: bool, strategy: Strategy = Strategy.MIXED) -> str:
    """Name of the extended resource of a whole GPU, a slice or a replica."""
    return gpus.resource_name(None if strategy is Strategy.SINGLE else profile, is_shared)
