"""`rollout` of `environment.yaml`: in which waves a new version of the program reaches the tenants."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.spec.fields.base import Positive, Slug, Spec, TenantName, WholeNumber

_Percent = Annotated[int, WholeNumber(0, 100)]
_Minutes = Annotated[int, WholeNumber(0, 1440)]


class Order(StrEnum):
    """Which tenants come first after the canary."""

    SIZE = "size"  # those with the fewest guaranteed GPUs: a fault reaches little work first
    DEPARTMENT = "department"  # one department after another, in the order of the file


class AlertGate(StrEnum):
    """Treatment of critical alerts by the gate between two waves, where the environment collects metrics."""

    REQUIRED = "required"  # a firing alert stops the rollout, and so does a Prometheus that does not answer
    IGNORED = "ignored"  # Prometheus is not asked


class Rollout(Spec):
    """Waves in which a new version of the program reaches the stacks of tenants, with a gate before each."""

    depends_on: tuple[Slug, ...] = Field(
        default=(),
        description="Environments of the same repository that have to run the new version first, by name: every stack "
        "of theirs, by the records on their clusters. Default: none.",
    )
    canary: tuple[TenantName, ...] = Field(default=(), description="Tenants of the first wave, by name. Default: none.")
    canary_percent: _Percent = Field(
        default=0,
        description="Share of each tier's tenants in the first wave, percent, rounded up; canary counts towards it. "
        "Default: 0.",
    )
    wave_size: Positive = Field(default=50, description="Max number of tenants in a wave after the first. Default: 50.")
    order: Order = Field(default=Order.SIZE, description="Which tenants come first after the canary. Default: size.")
    pause: _Minutes = Field(
        default=5,
        description="Time between the end of a wave and the gate before the next, minutes. Default: 5.",
    )
    alerts: AlertGate = Field(
        default=AlertGate.REQUIRED,
        description="Whether a critical alert of the environment stops the rollout, where metrics are collected. With "
        "required, a Prometheus that does not answer stops it too: a fault that is not seen would reach all tenants. "
        "Default: required.",
    )
