"""A chargeback report: its lines, its units of billing and what was wrong with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import polars as pl

from tenancy.chargeback.claims import is_not_tenant
from tenancy.chargeback.measures import FINE, Measure
from tenancy.chargeback.periods import Period
from tenancy.rules.catalogue import RULES
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

HOUR = 3600


class Category(StrEnum):
    """Category of a line."""

    HELD = "held"  # within the guarantee
    BORROWED = "borrowed"  # above it
    IDLE = "idle"  # idle capacity of an owned pool, or a share of that of a shared pool
    CREDIT = "credit"  # for lent capacity; negative
    OVERHEAD = "overhead"  # a share of the platform's own costs
    MISSING = "missing"  # hours without data, or devices of an unknown type
    STORAGE = "storage"
    SNAPSHOT = "snapshot"
    EGRESS = "egress"
    S3 = "s3"
    OTHER = "other"


class BillingUnit(NamedTuple):
    """Unit of billing: a pool's nodes of one purchase option in one period; without a pool, costs of one kind."""

    period: int
    pool: str
    purchase: str


@dataclass(frozen=True, slots=True)
class CostLine:
    """A line of the bill: what one tenant, or the platform, pays in one category."""

    billing_unit: BillingUnit
    tenant: str
    category: Category
    flavor: str
    micro: int
    """Millionths of a dollar."""
    weight: int = 0
    """Unit-seconds of the pool's nodes."""
    devices: int = 0
    """Device-seconds that were held."""
    detail: str = ""
    """Kind of cost of a line without a pool."""

    @property
    def order(self) -> tuple[int, bool, str, str, str, str, str, str]:
        """Key by which lines are sorted."""
        billing_key = (self.billing_unit.pool, self.billing_unit.purchase, str(self.category), self.flavor, self.detail)
        return (self.billing_unit.period, is_not_tenant(self.tenant), self.tenant, *billing_key)


@dataclass(frozen=True, slots=True)
class DataFinding:
    """Missing or contradictory data."""

    rule: str
    observation: str
    effect: str
    """Treatment by the report."""

    def __str__(self) -> str:
        rule = RULES[self.rule]
        return f"given {self.observation}; rule {self.rule}: {rule.title}; effect: {self.effect}; change: {rule.fix}"


@dataclass(frozen=True, slots=True)
class Idle:
    """Computation of the idle part of a pool's nodes, in unit-seconds."""

    total: int
    allocated: int
    idle: int
    credited: int
    """Borrowed capacity that is allocated as if it had been idle."""


@dataclass(slots=True)
class ChargebackReport:
    """The allocation of an environment's bill to its tenants."""

    environment: Environment
    tenants: Sequence[Tenant]
    periods: Sequence[Period]
    lines: list[CostLine] = field(default_factory=list)
    bills: dict[BillingUnit, int] = field(default_factory=dict)
    """Millionths of a dollar; all lines of a pot add up to it."""
    findings: list[DataFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes that do not concern faults of the data."""
    work: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Capacity held by each workload: a row for each period, pool, purchase, flavor and queue."""
    idle: dict[BillingUnit, Idle] = field(default_factory=dict)
    rates: dict[BillingUnit, list[tuple[str, int]]] = field(default_factory=dict)
    """Instance type and price of its node-hour, for every pot of nodes."""
    measures: dict[str, Measure] = field(default_factory=dict)
    promised: dict[tuple[int, str], int] = field(default_factory=dict)
    """(period, tenant) -> what its guarantees are unit cost by the prices of nodes, for proportions."""

    def hours(self, line: CostLine) -> float:
        """GPU-hours of a line, or node-hours in a pool without GPUs; a slice counts as its part of the node."""
        return self.gpu_hours(line.billing_unit.pool, line.weight)

    def gpu_hours(self, pool: str, weight: int) -> float:
        """GPU-hours of a weight in unit-seconds; node-hours in a pool without GPUs."""
        measure = self.measures.get(pool)
        return weight * max(measure.gpus, 1) / measure.units / HOUR if measure else weight / FINE / HOUR
