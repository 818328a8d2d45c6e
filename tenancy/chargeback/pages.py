"""The tables of a report, and those that explain a total."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tenancy.chargeback.budgets import budget_statuses
from tenancy.chargeback.model import HOUR, Category, ChargebackReport
from tenancy.chargeback.outputs import CENT, cents, dollars, totals, workloads
from tenancy.chargeback.periods import iso_time
from tenancy.chargeback.rounding import rounded
from tenancy.chargeback.use import THRESHOLDS, BudgetUse, TenantUse
from tenancy.output.tables import Table
from tenancy.planning.aws.prices import MICRO

_COLUMNS = (Category.HELD, Category.BORROWED, Category.IDLE, Category.CREDIT, Category.OVERHEAD)
OTHER_COSTS = "other"
"""Title of the column for all other costs: volumes, traffic, objects, and hours without a tenant."""


def tables(
    report: ChargebackReport, uses: Sequence[TenantUse], budgets: Sequence[BudgetUse], only: str = ""
) -> list[Table]:
    """Tables of all tenants, or of one."""
    result = []
    for number in range(len(report.periods)):
        result += [_tenants(report, number, only), *([] if only else [_bills(report, number)])]
    tenant_uses = [use for use in uses if only in {"", use.tenant}]
    if tenant_uses:
        result.append(_uses(report, tenant_uses))
    if tenant_budgets := [budget for budget in budgets if only in {"", budget.tenant}]:
        result.append(_budgets(report, tenant_budgets, summed=not only))
    return result


def _name(report: ChargebackReport, number: int) -> str:
    period = report.periods[number]
    part = "" if period.is_whole else f", from {iso_time(period.start)} to {iso_time(period.end)}"
    return f"{period.name}{part}"


def _tenants(report: ChargebackReport, number: int, tenant: str) -> Table:
    totals_by_tenant = totals(report, number)
    cents_by_tenant = cents(totals_by_tenant)
    micro_by_column: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for line in report.lines:
        if line.billing_unit.period == number:
            micro_by_column[line.tenant][line.category if line.category in _COLUMNS else OTHER_COSTS] += line.micro
    columns = [
        column
        for column in (*_COLUMNS, OTHER_COSTS)
        if any(amounts.get(column) for amounts in micro_by_column.values())
    ]
    rows = []
    for name in totals_by_tenant:
        if tenant in {"", name}:
            column_cents = _cents_adding_up_to(
                [micro_by_column[name].get(column, 0) for column in columns], cents_by_tenant[name]
            )
            rows.append((name, *map(dollars, column_cents), dollars(cents_by_tenant[name])))
    remarks = (
        []
        if tenant
        else [f"{len(totals_by_tenant)} lines add up to the bill of ${dollars(sum(cents_by_tenant.values()))}"]
    )
    title = f"Costs of {report.environment.environment} by tenant, {_name(report, number)}, dollars"
    return Table(title, ("", *map(str, columns), "total"), rows, remarks)


def _cents_adding_up_to(amounts: Sequence[int], total: int) -> list[int]:
    """Millionths as cents that add up to a given total of cents."""
    parts = [amount // CENT for amount in amounts]
    order = sorted(range(len(amounts)), key=lambda i: -(amounts[i] % CENT))
    for i in order[: max(0, total - sum(parts))]:
        parts[i] += 1
    return parts


def _bills(report: ChargebackReport, number: int) -> Table:
    rows = []
    for billing_unit, amount in sorted(report.bills.items()):
        if billing_unit.period != number:
            continue
        idle = report.idle.get(billing_unit)
        hours = report.gpu_hours(billing_unit.pool, idle.total) if idle and billing_unit.pool else 0.0
        prices = sorted({f"{cost / MICRO:,.2f}" for _, cost in report.rates.get(billing_unit, ()) if cost >= 0})
        rows.append(
            (
                billing_unit.pool or billing_unit.purchase,
                billing_unit.purchase if billing_unit.pool else "",
                " and ".join(prices) or "–",
                f"{hours:,.1f}" if idle else "–",
                f"{100 * idle.allocated / idle.total:.1f}" if idle and idle.total else "–",
                dollars(rounded(amount, CENT)),
            )
        )
    return Table(
        f"Costs by pool, {_name(report, number)}",
        ("pool", "purchase", "a node-hour", "GPU-hours", "held %", "dollars"),
        rows,
    )


def _percent(number: float | None) -> str:
    return "–" if number is None else f"{number:.1f}"


def _uses(report: ChargebackReport, uses: Sequence[TenantUse]) -> Table:
    rows = [
        (
            use.tenant,
            report.periods[use.period].name,
            f"{use.allocated:,.1f}",
            "–" if use.measured_use is None else f"{use.measured_use:,.1f}",
            f"{use.idle:,.1f}",
            _percent(use.measured),
            _percent(use.efficiency),
            _percent(use.utilisation),
            dollars(rounded(use.idle_micro, CENT)),
            "–" if use.unused_micro is None else dollars(rounded(use.unused_micro, CENT)),
        )
        for use in uses
    ]
    header = ("", "period", "held", "used", "idle", "measured %", "efficiency %", "use %", "idle $", "held, unused $")
    remarks = ["efficiency: used hours of held hours; use: used hours of all paid hours, idle hours included"]
    return Table("Held and used, GPU-hours", header, rows, remarks)


def _budgets(report: ChargebackReport, budgets: Sequence[BudgetUse], *, summed: bool) -> Table:
    rows = [
        (
            status.use.tenant,
            report.periods[status.use.period].name,
            f"{status.use.budget:,}",
            dollars(rounded(status.use.micro, CENT)),
            f"{status.percent:.1f}",
            dollars(rounded(status.use.forecast_micro, CENT)),
            f"{status.forecast_percent:.1f}",
            *(line or "–" for line in status.lines.values()),
        )
        for status in budget_statuses(report, budgets, with_totals=summed)
    ]
    lines = [f"{mark} %" for mark in sorted(THRESHOLDS)]
    remarks = ["a date: the forecast day on which that part of the budget is spent"]
    return Table("Budgets", ("", "month", "budget", "so far", "%", "forecast", "%", *lines), rows, remarks)


def alert(budget: BudgetUse) -> str:
    """The reached or the expected share of a budget, in percent; empty below the first alert."""
    if budget.reached:
        return f"{budget.reached} % reached"
    return f"{budget.expected} % expected" if budget.expected else ""


# Explanation of a total


def explain(report: ChargebackReport, tenant: str, max_workloads: int) -> list[Table]:
    """The lines of a tenant's total, the computation of its idle cost, and its workloads."""
    result = []
    for number, period in enumerate(report.periods):
        lines = [line for line in report.lines if line.billing_unit.period == number and line.tenant == tenant]
        if not lines:
            continue
        total = sum(line.micro for line in lines)
        rows = []
        for line in lines:
            hours = report.hours(line) if line.billing_unit.pool else 0.0
            rows.append(
                (
                    str(line.category),
                    line.billing_unit.pool or line.billing_unit.purchase,
                    line.billing_unit.purchase if line.billing_unit.pool else "",
                    line.flavor or line.detail or "–",
                    f"{line.devices / HOUR:,.2f}" if line.devices else "–",
                    f"{hours:,.2f}" if hours else "–",
                    f"{line.micro / MICRO / hours:.4f}" if hours else "–",
                    f"{line.micro / MICRO:,.6f}",
                )
            )
        header = ("for", "pool", "purchase", "flavor", "device-hours", "GPU-hours", "x dollars", "= dollars")
        result.append(
            Table(
                f"{tenant}, {period.name}: ${total / MICRO:,.6f}, line by line",
                header,
                rows,
                _idle_remarks(report, tenant, number),
            )
        )
        workload_costs = [
            (row, micro) for row, micro in workloads(report) if (row["owner"], row["period"]) == (tenant, number)
        ]
        workload_costs.sort(key=lambda item: -item[1])
        workload_rows = [
            (
                row["namespace"],
                row["workload"],
                row["flavor"] or "–",
                row["pool"],
                iso_time(row["start"]),
                iso_time(row["end"]),
                f"{row['devices'] / HOUR:,.2f}",
                f"{report.gpu_hours(row['pool'], row['weight']):,.2f}",
                f"{micro / MICRO:,.6f}",
            )
            for row, micro in workload_costs[:max_workloads]
        ]
        hidden_cost = sum(micro for _, micro in workload_costs[max_workloads:])
        remarks = (
            [
                f"{len(workload_costs) - max_workloads} more workloads: ${hidden_cost / MICRO:,.6f}; "
                "--max-workloads shows them"
            ]
            if hidden_cost
            else []
        )
        remarks.append(f"{len(workload_costs)} workloads: ${sum(micro for _, micro in workload_costs) / MICRO:,.6f}")
        header = ("namespace", "workload", "flavor", "pool", "first", "last", "device-hours", "GPU-hours", "dollars")
        result.append(Table(f"{tenant}, {period.name}: workloads of held and borrowed", header, workload_rows, remarks))
    return result


def _idle_remarks(report: ChargebackReport, tenant: str, number: int) -> list[str]:
    """The computation of the idle lines."""
    remarks = []
    for billing_unit, idle in sorted(report.idle.items()):
        tenant_idle = sum(
            line.weight
            for line in report.lines
            if line.billing_unit == billing_unit and line.tenant == tenant and line.category is Category.IDLE
        )
        if billing_unit.period != number or not tenant_idle:
            continue
        total, allocated, idle_hours, credited_hours = (
            report.gpu_hours(billing_unit.pool, weight)
            for weight in (idle.total, idle.allocated, idle.idle, idle.credited)
        )
        owner = report.measures[billing_unit.pool].owner
        credited = f" and {credited_hours:,.2f} borrowed ones, credited to the lenders," if credited_hours else ""
        share = (
            "all of it: the tenant owns the pool"
            if owner == tenant
            else f"{100 * tenant_idle / (idle.idle + idle.credited):.4f} %: its part of the guarantees there"
        )
        remarks.append(
            f"idle of {billing_unit.pool}, {billing_unit.purchase}: of {total:,.2f} GPU-hours {allocated:,.2f} "
            f"were held; {idle_hours:,.2f} idle"
            f"{credited} are shared, {share}"
        )  # fmt: skip
    return remarks
