"""A month against its budgets: spent so far, forecast, and the day on which each threshold is crossed.

forecast  = so far x seconds of the month / seconds of data
crossed   = start of the data + threshold x budget x seconds of data / so far
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenancy.chargeback.claims import is_not_tenant
from tenancy.chargeback.model import Category, ChargebackReport
from tenancy.chargeback.periods import Period, iso_time
from tenancy.chargeback.use import THRESHOLDS, BudgetUse, TenantUse
from tenancy.planning.aws.prices import MICRO

ALL_BUDGETS = "all with a budget"
ALREADY_REACHED = "reached"
MAX_UTC_OFFSET = 14 * 3600
"""Max seconds between a time zone and UTC."""


class BudgetStatus(NamedTuple):
    """One budget in one month."""

    use: BudgetUse
    lines: Mapping[int, str]
    """Percent of the budget -> REACHED, or the day on which it is forecast to be reached, or empty."""

    @property
    def percent(self) -> float:
        """Spent so far, in percent of the budget."""
        return 100 * self.use.micro / MICRO / self.use.budget

    @property
    def forecast_percent(self) -> float:
        """Forecast for the month, in percent of the budget."""
        return 100 * self.use.forecast_micro / MICRO / self.use.budget


def budget_statuses(
    report: ChargebackReport, uses: Sequence[BudgetUse], *, with_totals: bool = False
) -> list[BudgetStatus]:
    """A row for every budget, and with `with_totals` a total of all budgets for each month."""
    statuses = [_budget_status(report.periods[use.period], use) for use in uses]
    for number, period in enumerate(report.periods) if with_totals else ():
        month_uses = [use for use in uses if use.period == number]
        if len(month_uses) > 1:
            total_use = BudgetUse(
                number, ALL_BUDGETS, *(sum(use[field_index] for use in month_uses) for field_index in (2, 3, 4)), 0, 0
            )
            statuses.append(_budget_status(period, total_use))
    return statuses


def _budget_status(period: Period, use: BudgetUse) -> BudgetStatus:
    return BudgetStatus(use, {threshold: _line(period, use, threshold) for threshold in sorted(THRESHOLDS)})


def _line(period: Period, use: BudgetUse, threshold: int) -> str:
    threshold_micro = use.budget * MICRO * threshold
    if use.micro * 100 >= threshold_micro:
        return ALREADY_REACHED
    if use.micro <= 0 or use.forecast_micro * 100 < threshold_micro:
        return ""
    observed_seconds = period.end - period.start
    return iso_time(period.start + threshold_micro * observed_seconds // (use.micro * 100))[:10]


def data_gaps(
    report: ChargebackReport, budget_uses: Sequence[BudgetUse], uses: Sequence[TenantUse], tenant_name: str = ""
) -> list[str]:
    """Gaps in the numbers of budgets and use, with reasons; of one tenant, or of all."""
    tenants = [tenant for tenant in report.tenants if tenant_name in {"", tenant.tenant}]
    budgeted = [tenant.tenant for tenant in tenants if tenant.budget]
    gaps = []
    if budgeted and not budget_uses:
        gaps.append("budgets are monthly: --period month shows them")
    without_budget = sorted({tenant.tenant for tenant in tenants} - set(budgeted))
    if without_budget:
        gaps.append(f"no budget in the file of {_first_names(without_budget)}: no alert is sent")
    for number in sorted({use.period for use in budget_uses}):
        period = report.periods[number]
        if late_start := _begins_late(period):
            gaps.append(f"data of {period.name} starts at {iso_time(period.start)}: {late_start}")
        missing_micro = sum(
            line.micro
            for line in report.lines
            if line.billing_unit.period == number and line.category is Category.MISSING and is_not_tenant(line.tenant)
        )
        if missing_micro and not tenant_name:
            gaps.append(
                f"${missing_micro / MICRO:,.2f} of {period.name} are of hours without data or of unknown devices: what "
                "tenants spent so far is too low by their parts of it"
            )
    unmeasured_tenants = sorted(
        {use.tenant for use in uses if use.measured_use is None and tenant_name in {"", use.tenant}}
    )
    if unmeasured_tenants:
        gaps.append(f"use of {_first_names(unmeasured_tenants)} was not measured: it is unknown, not zero")
    return gaps


def _begins_late(period: Period) -> str:
    """Whether the month began before its data; decided by its name, whatever the time zone."""
    first = dt.datetime.strptime(period.name, "%Y-%m").replace(tzinfo=dt.UTC).timestamp()
    if period.is_whole or period.start - first <= MAX_UTC_OFFSET:
        return ""
    return "earlier costs are in no number, and the forecast assumes the same rate for them"


def _first_names(names: Sequence[str], max_names: int = 5) -> str:
    return ", ".join(names[:max_names]) + (f" and {len(names) - max_names} more" if len(names) > max_names else "")
