"""Used compared with held capacity, and spent compared with the budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from tenancy.catalog import boards
from tenancy.chargeback.claims import claims, is_not_tenant, owners
from tenancy.chargeback.model import HOUR, Category, ChargebackReport
from tenancy.chargeback.periods import PeriodLength
from tenancy.chargeback.tables import Tables
from tenancy.planning.aws.prices import MICRO
from tenancy.spec.fields.environment import Environment

COVERED = 95
"""Min percent of held device-hours with measured use; below it the report has a note."""


class TenantUse(NamedTuple):
    """A tenant's use of its paid capacity, in GPU-hours of a whole GPU; a slice counts as its part of a GPU."""

    period: int
    tenant: str
    allocated: float
    idle: float
    """Idle GPU-hours that it pays for."""
    measured_use: float | None
    """None: use was not measured."""
    measured: float
    """Percent of held device-hours with measured use."""
    held_micro: int
    idle_micro: int

    @property
    def efficiency(self) -> float | None:
        """Used hours in percent of held and measured hours."""
        measured_hours = self.allocated * self.measured / 100
        return None if self.measured_use is None or not measured_hours else 100 * self.measured_use / measured_hours

    @property
    def utilisation(self) -> float | None:
        """Used hours in percent of all paid hours; hours that were not measured count as used at the same rate."""
        paid_hours = self.allocated + self.idle
        return None if self.efficiency is None or not paid_hours else self.efficiency * self.allocated / paid_hours

    @property
    def unused_micro(self) -> int | None:
        """Cost of held and unused capacity, millionths of a dollar."""
        return None if self.efficiency is None else round(self.held_micro * (1 - min(self.efficiency, 100) / 100))


def uses(report: ChargebackReport, tables: Tables) -> list[TenantUse]:
    """Use of every tenant in pools with GPUs."""
    hours_by_tenant: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    money: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    devices: dict[tuple[int, str], float] = defaultdict(float)
    for line in report.lines:
        measure = report.measures.get(line.billing_unit.pool)
        if (
            not measure
            or not measure.gpus
            or is_not_tenant(line.tenant)
            or line.category in {Category.OVERHEAD, Category.CREDIT}
        ):
            continue
        side = 1 if line.category is Category.IDLE else 0
        hours_by_tenant[line.billing_unit.period, line.tenant][side] += report.hours(line)
        money[line.billing_unit.period, line.tenant][side] += line.micro
        devices[line.billing_unit.period, line.tenant] += line.devices
    measured_uses = _measured_use(report, tables)
    return [
        TenantUse(
            *key,
            allocated=hours[0],
            idle=hours[1],
            measured_use=measured_uses[key][0] if key in measured_uses else None,
            measured=min(100.0, 100 * measured_uses[key][1] / devices[key])
            if key in measured_uses and devices[key]
            else 0.0,
            held_micro=money[key][0],
            idle_micro=money[key][1],
        )
        for key, hours in sorted(hours_by_tenant.items())
    ]


def _measured_use(report: ChargebackReport, tables: Tables) -> Mapping[tuple[int, str], tuple[float, int]]:
    """GPU-hours used, and device-seconds measured."""
    if tables.used is None or not tables.used.height:
        return {}
    report_range = (report.periods[0].start, report.periods[-1].end)
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
    claimed = claims(report.environment, report.tenants, tables.allocations, tables.namespaces, report_range)
    # Use of a namespace that changed its owner within the range is divided by the time of each owner.
    parts = owners(sums, claimed, report_range).with_columns(pl.col("pool", "flavor").cast(pl.String))
    lengths = parts.group_by("period", "namespace", "pool", "flavor").agg(of=(pl.col("end") - pl.col("start")).sum())
    use_by_tenant: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    columns = ("period", "owner", "pool", "flavor", "seconds", "used", "start", "end", "of")
    joined = parts.join(lengths, on=["period", "namespace", "pool", "flavor"])
    for period, owner, pool, flavor, seconds, used, start, end, owned_seconds in (
        joined.select(columns).sort(columns).iter_rows()
    ):
        if is_not_tenant(owner):
            continue
        part = (end - start) / owned_seconds
        use_by_tenant[period, owner][0] += used * part / MICRO / HOUR * gpus_of(report, pool, flavor)
        use_by_tenant[period, owner][1] += seconds * part
    return {key: (hours, int(seconds)) for key, (hours, seconds) in use_by_tenant.items()}


def gpus_of(report: ChargebackReport, pool: str, flavor: str) -> float:
    """Whole GPUs that one device of a flavor is."""
    environment: Environment = report.environment
    named_pools = [pool] if pool in report.measures else list(report.measures)
    for name in named_pools:
        measure = report.measures[name]
        if flavor in measure.units_by_flavor:
            return measure.units_by_flavor[flavor] * measure.gpus / measure.units
    flavor_spec = environment.flavors.get(flavor)
    return float(boards.share_of(flavor_spec.gpu, flavor_spec.mig)) if flavor_spec and flavor_spec.mig else 1.0


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


THRESHOLDS = (100, 80, 50)


def budgets(report: ChargebackReport, period_length: PeriodLength) -> list[BudgetUse]:
    """Months compared with the tenants' budgets; empty if the periods are not months."""
    if period_length is not PeriodLength.MONTH:
        return []
    uses = []
    for number, period in enumerate(report.periods):
        sums: dict[str, int] = defaultdict(int)
        for line in report.lines:
            if line.billing_unit.period == number:
                sums[line.tenant] += line.micro
        for tenant in report.tenants:
            if not tenant.budget:
                continue
            budget, micro = tenant.budget.monthly_usd, sums[tenant.tenant]
            forecast = micro * period.length // (period.end - period.start)
            uses.append(
                BudgetUse(
                    number,
                    tenant.tenant,
                    budget,
                    micro,
                    forecast,
                    _highest_threshold(micro, budget),
                    _highest_threshold(forecast, budget),
                )
            )
    return uses


def _highest_threshold(micro: int, budget: int) -> int:
    return next((threshold for threshold in THRESHOLDS if micro * 100 >= budget * MICRO * threshold), 0)
