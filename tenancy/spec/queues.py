"""How GPUs are shared over time: who queues, who lends, who borrows."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog.account import LONGEST_BLOCK
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.spec.base import Form, Mistake, Slug, Spec, Whole, broken


class Scheduler(StrEnum):
    KUEUE = "kueue"
    NONE = "none"  # a tenant holds what is guaranteed, and what it leaves idle stays idle


class Preset(StrEnum):
    STRICT = "strict"  # neither lends nor borrows
    LEND = "lend"  # lends what is idle, takes it back at once
    LEND_AND_BORROW = "lend-and-borrow"

    @property
    def lends(self) -> bool:
        return self is not Preset.STRICT

    @property
    def borrows(self) -> bool:
        return self is Preset.LEND_AND_BORROW


class Order(StrEnum):
    BEST_EFFORT = "best-effort"  # who fits runs, though somebody who does not fit came first
    STRICT = "strict"  # nobody overtakes: large work is never starved by small work, and what fits waits with it


class Gate(StrEnum):
    OPEN = "open"
    HOLD = "hold"  # nothing new starts
    DRAIN = "drain"  # nothing new starts, and what runs is evicted


Weight = Annotated[int, Whole(1, 1000)]
Duration = Annotated[
    str, Form(r"^[1-9][0-9]{0,4}[mhd]$", "a length of time in minutes, hours or days", "write it like 20m, 36h or 7d")
]

_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    return int(duration[:-1]) * _SECONDS[duration[-1]]


_Class = Annotated[
    str,
    Form(
        r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$",
        "the name of a provisioning class",
        "write it like check-capacity.autoscaling.x-k8s.io",
    ),
]


class Queues(Spec):
    """What holds for every queue of the cluster."""

    scheduler: Scheduler = Field(Scheduler.KUEUE, description="Who decides when work starts.")
    kinds: tuple[Slug, ...] = Field(
        (),
        description="Kinds of work whose operators are installed, beside Jobs, Deployments, StatefulSets and pods: "
        f"{', '.join(FRAMEWORKS)}. Tenants may make these, and the queue counts them.",
        json_schema_extra={"items": {"enum": list(FRAMEWORKS)}},
    )
    usage_half_life: Duration = Field(
        "7d",
        description="After this time what somebody used counts half; it decides who of a tenant's queues goes first.",
    )
    pods_ready_within: Duration = Field(
        "20m",
        description="Work whose pods are not ready by then goes back into the queue. A node that is being made takes "
        "about ten minutes.",
    )
    keep_finished: Duration = Field("7d", description="How long the queue remembers work that has ended.")
    hold_before_end: Duration = Field(
        "1d", description="How long before a capacity block ends no new work starts on it, in whole days."
    )
    provisioning_class: _Class | None = Field(
        None,
        description="Class of ProvisioningRequest that is asked before work starts on an autoscaled pool. Absent: "
        "nobody is asked; Karpenter answers no such request, and work would wait for ever.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        held, day = seconds(self.hold_before_end), seconds("1d")
        if held % day or held >= LONGEST_BLOCK * day:
            rule = f"whole days, fewer than the {LONGEST_BLOCK} that a capacity block lasts at most"
            yield Mistake(
                ("hold-before-end",), self.hold_before_end, rule, f"write {-(-held // day) if held % day else 1}d"
            )
        for i, kind in enumerate(self.kinds):
            if kind not in FRAMEWORKS:
                change = f"use one of {', '.join(FRAMEWORKS)}; Jobs, Deployments, StatefulSets and pods always queue"
                yield broken(("kinds", i), "ref-01", f"kind {kind!r}", change)
                continue
            for other in FRAMEWORKS[kind].needs:
                if other not in self.kinds:
                    given = f"kind {kind} without {other}, which it is made of"
                    yield broken(("kinds", i), "ref-01", given, f"add {other}")
