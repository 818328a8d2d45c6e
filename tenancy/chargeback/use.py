"""Used compared with held capacity, and spent compared with the budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from tenancy.catalog import boards
from tenancy.chargeback.claims import claims, named, owners
from tenancy.chargeback.model import HOUR, Category, ChargebackReport
from tenancy.chargeback.periods import PeriodLength
from tenancy.chargeback.tables import Tables
from tenancy.planning.aws.prices import MICRO
from tenancy.schema.environment import Environment

COVERED = 95
"""Min percent of held device-hours with measured use; below it the report has a note."""


class TenantUse(NamedTuple):
    """A tenant's use of its paid capacity, in GPU-hours of a whole GPU; a slice counts as its part of a GPU."""

    period: int
    tenant: str
    held: float
    idle: float
    """Idle GPU-hours that it pays for."""
    used: float | None
    """None: use was not measured."""
    measured: float
    """Percent of held device-hours with measured use."""
    held_micro: int
    idle_micro: int

    @property
    def efficiency(self) -> float | None:
        """Used hours in percent of held and measured hours."""
        seen = self.held * self.measured / 100
        return None if self.used is None or not seen else 100 * self.used / seen

    @property
    def utilisation(self) -> float | None:
        """Used hours in percent of all paid hours; hours that were not measured count as used at the same rate."""
        whole = self.held + self.idle
        return None if self.efficiency is None or not whole else self.efficiency * self.held / whole

    @property
    def unused_micro(self) -> int | None:
        """Cost of held and unused capacity, millionths of a dollar."""
        return None if self.efficiency is None else round(self.held_micro * (1 - min(self.efficiency, 100) / 100))


def uses(report: ChargebackReport, tables: Tables) -> list[TenantUse]:
    """Use of every tenant in pools with GPUs."""
    held: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    money: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    devices: dict[tuple[int, str], float] = defaultdict(float)
    for line in report.lines:
        of = report.measures.get(line.pot.pool)
        if not of or not of.gpus or named(line.tenant) or line.category in {Category.OVERHEAD, Category.CREDIT}:
            continue
        side = 1 if line.category is Category.IDLE else 0
        held[line.pot.period, line.tenant][side] += report.hours(line)
        money[line.pot.period, line.tenant][side] += line.micro
        devices[line.pot.period, line.tenant] += line.devices
    used = _used(report, tables)
    return [
        TenantUse(
            *key,
            held=hours[0],
            idle=hours[1],
            used=used[key][0] if key in used else None,
            measured=min(100.0, 100 * used[key][1] / devices[key]) if key in used and devices[key] else 0.0,
            held_micro=money[key][0],
            idle_micro=money[key][1],
        )
        for key, hours in sorted(held.items())
    ]


def _used(report: ChargebackReport, tables: Tables) -> Mapping[tuple[int, str], tuple[float, int]]:
    """GPU-hours used, and device-seconds measured."""
    if tables.used is None or not tables.used.height:
        return {}
    whole = (report.periods[0].start, report.periods[-1].end)
    starts = pl.Series([period.start for period in report.periods])
    # Integers: a sum of floating-point numbers would depend on their order.
    sums = (
        tables.used.lazy()
        .with_columns(period=pl.lit(starts).search_sorted(pl.col("start"), side="right").cast(pl.Int64) - 1)
        .with_columns(seconds=(pl.col("end") - pl.col("start")) * pl.col("devices"))
        .group_by("period", "namespace", "pool", "flavor")
        .agg(
            pl.col("seconds").sum(),
            pl.col("start").min(),
            pl.col("end").max(),
            used=(pl.col("seconds") * pl.col("value")).sum(),
        )
        .collect()
        .with_columns(pl.lit("").cast(pl.Categorical).alias("tenant"))
    )
    claimed = claims(report.environment, report.tenants, tables.allocations, tables.namespaces, whole)
    # Use of a namespace that changed its owner within the range is divided by the time of each owner.
    parts = owners(sums, claimed, whole).with_columns(pl.col("pool", "flavor").cast(pl.String))
    lengths = parts.group_by("period", "namespace", "pool", "flavor").agg(of=(pl.col("end") - pl.col("start")).sum())
    found: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    columns = ("period", "owner", "pool", "flavor", "seconds", "used", "start", "end", "of")
    joined = parts.join(lengths, on=["period", "namespace", "pool", "flavor"])
    for period, owner, pool, flavor, seconds, used, start, end, of in joined.select(columns).sort(columns).iter_rows():
        if named(owner):
            continue
        part = (end - start) / of
        found[period, owner][0] += used * part / MICRO / HOUR * gpus_of(report, pool, flavor)
        found[period, owner][1] += seconds * part
    return {key: (hours, int(seconds)) for key, (hours, seconds) in found.items()}


def gpus_of(report: ChargebackReport, pool: str, flavor: str) -> float:
    """Whole GPUs that one device of a flavor is."""
    environment: Environment = report.environment
    named_pools = [pool] if pool in report.measures else list(report.measures)
    for name in named_pools:
        of = report.measures[name]
        if flavor in of.of:
            return of.of[flavor] * of.gpus / of.units
    known = environment.flavors.get(flavor)
    return float(boards.share_of(known.gpu, known.mig)) if known and known.mig else 1.0


class BudgetUse(NamedTuple):
    """A tenant's month against its budget, dollars."""

    period: int
    tenant: str
    budget: int
    micro: int
    forecast_micro: int
    """Forecast for the whole month, at the rate so far."""
    reached: int
    """The highest threshold that is reached, of 50, 80 and 100 percent; 0: none."""
    expected: int
    """The highest threshold that the forecast reaches."""


MARKS = (100, 80, 50)


def budgets(report: ChargebackReport, by: PeriodLength) -> list[BudgetUse]:
    """Months compared with the tenants' budgets; empty if the periods are not months."""
    if by is not PeriodLength.MONTH:
        return []
    made = []
    for number, period in enumerate(report.periods):
        sums: dict[str, int] = defaultdict(int)
        for line in report.lines:
            if line.pot.period == number:
                sums[line.tenant] += line.micro
        for tenant in report.tenants:
            if not tenant.budget:
                continue
            budget, micro = tenant.budget.monthly_usd, sums[tenant.tenant]
            forecast = micro * period.length // (period.end - period.start)
            made.append(
                BudgetUse(number, tenant.tenant, budget, micro, forecast, _mark(micro, budget), _mark(forecast, budget))
            )
    return made


def _mark(micro: int, budget: int) -> int:
    return next((mark for mark in MARKS if micro * 100 >= budget * MICRO * mark), 0)
