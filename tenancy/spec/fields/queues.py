"""Sharing of GPUs over time: queueing, lending and borrowing."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog.account import LONGEST_BLOCK
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.rules.values import LONGEST_EXCEPTION
from tenancy.spec.fields.base import Day, Flag, Mail, Reason, Slug, Spec, TextForm, WholeNumber
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class Scheduler(StrEnum):
    """Whether Kueue decides when work with GPUs starts."""

    KUEUE = "kueue"
    NONE = "none"  # a tenant has its guaranteed GPUs only, and its idle GPUs stay idle


class SharingPreset(StrEnum):
    """Whether idle guaranteed GPUs are lent, and whether more than the guarantee may be borrowed."""

    STRICT = "strict"  # neither lends nor borrows
    LEND = "lend"  # lends idle GPUs and reclaims them at once
    LEND_AND_BORROW = "lend-and-borrow"

    @property
    def lends(self) -> bool:
        """Whether idle guaranteed GPUs are lent."""
        return self is not SharingPreset.STRICT

    @property
    def borrows(self) -> bool:
        """Whether idle GPUs of other tenants may be borrowed."""
        return self is SharingPreset.LEND_AND_BORROW


class QueueingStrategy(StrEnum):
    """Order in which a queue's waiting work starts."""

    BEST_EFFORT_FIFO = "best-effort-fifo"  # work that fits starts, although earlier work does not fit yet
    STRICT_FIFO = "strict-fifo"  # first in, first out: small work never delays large work, and waits behind it


class StopPolicy(StrEnum):
    """Whether a queue starts new work and keeps running work."""

    NONE = "none"  # new work starts
    HOLD = "hold"  # no new work starts
    HOLD_AND_DRAIN = "hold-and-drain"  # no new work starts, and running work is evicted


Weight = Annotated[int, WholeNumber(1, 1000)]
Duration = Annotated[
    str,
    TextForm(r"^[1-9][0-9]{0,4}[mhd]$", "a length of time in minutes, hours or days", "write it like 20m, 36h or 7d"),
]

_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    """Number of seconds of a duration such as 20m, 36h or 7d."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


_Class = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
        "the name of a provisioning class",
        "write it like check-capacity.autoscaling.x-k8s.io",
    ),
]


_ClockImage = Annotated[
    str,
    TextForm(
        r"^[a-z0-9][a-z0-9.:/_-]*@sha256:[0-9a-f]{64}$",
        "an image by digest",
        "write it like registry.example/tenancy@sha256:…, with 64 digits",
        400,
    ),
]


class BudgetExemption(Spec):
    """A time for which budgets do not bind, with a responsible person and an end."""

    until: Day = Field(
        description=f"Last day, UTC, at most {LONGEST_EXCEPTION} days ahead; the budget binds again from the next. "
        "Required."
    )
    reason: Reason = Field(description="Reason for it, one sentence for an auditor. Required.")
    owner: Mail = Field(description="Mail address of the person responsible for it. Required.")


class Queues(Spec):
    """Settings of all queues of the cluster."""

    scheduler: Scheduler = Field(
        default=Scheduler.KUEUE, description="Queueing system that decides when work starts. Default: kueue."
    )
    kinds: tuple[Slug, ...] = Field(
        default=(),
        description="Kinds of work whose operators are installed, besides Jobs, Deployments, StatefulSets and pods: "
        f"{', '.join(FRAMEWORKS)}. Tenants may make them, and the queue counts them. Default: none.",
        json_schema_extra={"items": {"enum": list(FRAMEWORKS)}},
    )
    usage_half_life: Duration = Field(
        default="7d",
        description="Time after which past GPU usage counts half. It decides which queue of a tenant goes first. "
        "Default: 7d.",
    )
    pods_ready_timeout: Duration = Field(
        default="20m",
        description="Time within which the pods of started work must be ready; otherwise the work goes back into the "
        "queue. A new node takes about ten minutes. Default: 20m.",
    )
    finished_workload_retention: Duration = Field(
        default="7d", description="Time for which the queue keeps records of ended work. Default: 7d."
    )
    hold_before_capacity_block_end: Duration = Field(
        default="1d",
        description="Time before the end of a capacity block from which no new work starts on it, in whole days. "
        "Default: 1d.",
    )
    clock: Flag = Field(
        default=False,
        description="Whether `tenancy clock run` keeps the queues' quotas and states: it applies windows, further "
        "shares and budgets of tenants, and the hold before a capacity block ends. The engine then writes neither "
        "after it has made a queue. Default: false; a tenant that needs it is refused.",
    )
    clock_image: _ClockImage | None = Field(
        default=None,
        description="Image with this program, by digest: `tenancy clock run` then runs as a Deployment in the cluster. "
        "Default: none; it is a process that you run.",
    )
    budget_exemption: BudgetExemption | None = Field(
        default=None,
        description="In an emergency: a time for which no tenant's budget binds and no idle work is suspended. "
        "Default: none.",
    )
    provisioning_class: _Class | None = Field(
        default=None,
        description="ProvisioningRequest class of an autoscaler that can add all nodes of a job at once, for work on "
        "autoscaled pools: Kueue then starts the work when its nodes exist. Only for an autoscaler that answers such "
        "requests; Karpenter does not, and work would wait for ever. Default: none; no request is made.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        hold_seconds, day = seconds(self.hold_before_capacity_block_end), seconds("1d")
        if hold_seconds % day or hold_seconds >= LONGEST_BLOCK * day:
            rule = f"whole days, fewer than the {LONGEST_BLOCK} that a capacity block lasts at most"
            yield Mistake(
                ("hold-before-capacity-block-end",),
                self.hold_before_capacity_block_end,
                rule,
                f"write {-(-hold_seconds // day) if hold_seconds % day else 1}d",
            )
        if self.clock_image and not self.clock:
            rule = "the image runs the clock"
            yield Mistake(("clock-image",), "clock-image with clock: false", rule, "write clock: true, or drop it")
        if self.budget_exemption and not self.clock:
            rule = "without a clock no budget binds"
            yield Mistake(
                ("budget-exemption",), "budget-exemption with clock: false", rule, "write clock: true, or drop it"
            )
        for i, kind in enumerate(self.kinds):
            if kind not in FRAMEWORKS:
                change = f"use one of {', '.join(FRAMEWORKS)}; Jobs, Deployments, StatefulSets and pods always queue"
                yield rule_mistake(("kinds", i), "ref-01", f"kind {kind!r}", change)
                continue
            for needed_kind in FRAMEWORKS[kind].required_frameworks:
                if needed_kind not in self.kinds:
                    fault = f"kind {kind} without {needed_kind}, which it is made of"
                    yield rule_mistake(("kinds", i), "ref-01", fault, f"add {needed_kind}")
