"""A month against its budgets: spent so far, forecast, and the day on which each threshold is crossed.

forecast  = so far x seconds of the month / seconds of data
crossed   = start of the data + threshold x budget x seconds of data / so far
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenancy.chargeback.claims import named
from tenancy.chargeback.model import Category, ChargebackReport
from tenancy.chargeback.periods import Period, written
from tenancy.chargeback.use import MARKS, BudgetUse, TenantUse
from tenancy.planning.aws.prices import MICRO

ALL = "all with a budget"
REACHED = "reached"
FURTHEST = 14 * 3600
"""Max seconds between a time zone and UTC."""


class BudgetStatus(NamedTuple):
    """One budget in one month."""

    spent: BudgetUse
    lines: Mapping[int, str]
    """Percent of the budget -> REACHED, or the day on which it is forecast to be reached, or empty."""

    @property
    def percent(self) -> float:
        """Spent so far, in percent of the budget."""
        return 100 * self.spent.micro / MICRO / self.spent.budget

    @property
    def forecast_percent(self) -> float:
        """Forecast for the month, in percent of the budget."""
        return 100 * self.spent.forecast_micro / MICRO / self.spent.budget


def standings(report: ChargebackReport, spent: Sequence[BudgetUse], *, summed: bool = False) -> list[BudgetStatus]:
    """A row for every budget, and with `summed` a total of all budgets for each month."""
    found = [_standing(report.periods[each.period], each) for each in spent]
    for number, period in enumerate(report.periods) if summed else ():
        of = [each for each in spent if each.period == number]
        if len(of) > 1:
            whole = BudgetUse(number, ALL, *(sum(each[at] for each in of) for at in (2, 3, 4)), 0, 0)
            found.append(_standing(period, whole))
    return found


def _standing(period: Period, spent: BudgetUse) -> BudgetStatus:
    return BudgetStatus(spent, {mark: _line(period, spent, mark) for mark in sorted(MARKS)})


def _line(period: Period, spent: BudgetUse, mark: int) -> str:
    line = spent.budget * MICRO * mark
    if spent.micro * 100 >= line:
        return REACHED
    if spent.micro <= 0 or spent.forecast_micro * 100 < line:
        return ""
    seen = period.end - period.start
    return written(period.start + line * seen // (spent.micro * 100))[:10]


def lacks(report: ChargebackReport, spent: Sequence[BudgetUse], uses: Sequence[TenantUse], only: str = "") -> list[str]:
    """Gaps in the numbers of budgets and use, with reasons; of one tenant, or of all."""
    tenants = [tenant for tenant in report.tenants if only in {"", tenant.tenant}]
    budgeted = [tenant.tenant for tenant in tenants if tenant.budget]
    found = []
    if budgeted and not spent:
        found.append("budgets are monthly: --by month shows them")
    without = sorted({tenant.tenant for tenant in tenants} - set(budgeted))
    if without:
        found.append(f"no budget in the file of {_some(without)}: no alert is sent")
    for number in sorted({each.period for each in spent}):
        period = report.periods[number]
        if missing := _begins_late(period):
            found.append(f"data of {period.name} starts at {written(period.start)}: {missing}")
        unseen = sum(
            line.micro
            for line in report.lines
            if line.pot.period == number and line.category is Category.MISSING and named(line.tenant)
        )
        if unseen and not only:
            found.append(
                f"${unseen / MICRO:,.2f} of {period.name} are of hours without data or of unknown devices: what "
                "tenants spent so far is too low by their parts of it"
            )
    blind = sorted({use.tenant for use in uses if use.used is None and only in {"", use.tenant}})
    if blind:
        found.append(f"use of {_some(blind)} was not measured: it is unknown, not zero")
    return found


def _begins_late(period: Period) -> str:
    """Whether the month began before its data; decided by its name, whatever the time zone."""
    first = dt.datetime.strptime(period.name, "%Y-%m").replace(tzinfo=dt.UTC).timestamp()
    if period.whole or period.start - first <= FURTHEST:
        return ""
    return "earlier costs are in no number, and the forecast assumes the same rate for them"


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
