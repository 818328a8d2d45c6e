"""The tables of a report, and those that explain a total."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tenancy.chargeback.budgets import standings
from tenancy.chargeback.model import HOUR, Category, ChargebackReport
from tenancy.chargeback.outputs import CENT, cents, dollars, totals, workloads
from tenancy.chargeback.periods import written
from tenancy.chargeback.rounding import rounded
from tenancy.chargeback.use import MARKS, BudgetUse, TenantUse
from tenancy.output.tables import Table
from tenancy.planning.aws.prices import MICRO

_COLUMNS = (Category.HELD, Category.BORROWED, Category.IDLE, Category.CREDIT, Category.OVERHEAD)
BESIDE = "other"
"""Title of the column for all other costs: volumes, traffic, objects, and hours without a tenant."""


def tables(
    report: ChargebackReport, uses: Sequence[TenantUse], budgets: Sequence[BudgetUse], only: str = ""
) -> list[Table]:
    """Tables of all tenants, or of one."""
    made = []
    for number in range(len(report.periods)):
        made += [_tenants(report, number, only), *([] if only else [_bills(report, number)])]
    mine = [use for use in uses if only in {"", use.tenant}]
    if mine:
        made.append(_uses(report, mine))
    if due := [spent for spent in budgets if only in {"", spent.tenant}]:
        made.append(_budgets(report, due, summed=not only))
    return made


def _name(report: ChargebackReport, number: int) -> str:
    period = report.periods[number]
    part = "" if period.whole else f", from {written(period.start)} to {written(period.end)}"
    return f"{period.name}{part}"


def _tenants(report: ChargebackReport, number: int, only: str) -> Table:
    whole = totals(report, number)
    shown = cents(whole)
    split: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for line in report.lines:
        if line.pot.period == number:
            split[line.tenant][line.category if line.category in _COLUMNS else BESIDE] += line.micro
    used = [column for column in (*_COLUMNS, BESIDE) if any(of.get(column) for of in split.values())]
    rows = []
    for name in whole:
        if only in {"", name}:
            split_up = _fit([split[name].get(column, 0) for column in used], shown[name])
            rows.append((name, *map(dollars, split_up), dollars(shown[name])))
    remarks = [] if only else [f"{len(whole)} lines add up to the bill of ${dollars(sum(shown.values()))}"]
    title = f"Costs of {report.environment.environment} by tenant, {_name(report, number)}, dollars"
    return Table(title, ("", *map(str, used), "total"), rows, remarks)


def _fit(amounts: Sequence[int], whole: int) -> list[int]:
    """Millionths as cents that add up to a given total of cents."""
    made = [amount // CENT for amount in amounts]
    order = sorted(range(len(amounts)), key=lambda i: -(amounts[i] % CENT))
    for i in order[: max(0, whole - sum(made))]:
        made[i] += 1
    return made


def _bills(report: ChargebackReport, number: int) -> Table:
    rows = []
    for pot, amount in sorted(report.bills.items()):
        if pot.period != number:
            continue
        idle = report.idle.get(pot)
        hours = report.gpu_hours(pot.pool, idle.whole) if idle and pot.pool else 0.0
        prices = sorted({f"{cost / MICRO:,.2f}" for _, cost in report.rates.get(pot, ()) if cost >= 0})
        rows.append(
            (
                pot.pool or pot.purchase,
                pot.purchase if pot.pool else "",
                " and ".join(prices) or "–",
                f"{hours:,.1f}" if idle else "–",
                f"{100 * idle.held / idle.whole:.1f}" if idle and idle.whole else "–",
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
            f"{use.held:,.1f}",
            "–" if use.used is None else f"{use.used:,.1f}",
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
            each.spent.tenant,
            report.periods[each.spent.period].name,
            f"{each.spent.budget:,}",
            dollars(rounded(each.spent.micro, CENT)),
            f"{each.percent:.1f}",
            dollars(rounded(each.spent.forecast_micro, CENT)),
            f"{each.forecast_percent:.1f}",
            *(line or "–" for line in each.lines.values()),
        )
        for each in standings(report, budgets, summed=summed)
    ]
    lines = [f"{mark} %" for mark in sorted(MARKS)]
    remarks = ["a date: the forecast day on which that part of the budget is spent"]
    return Table("Budgets", ("", "month", "budget", "so far", "%", "forecast", "%", *lines), rows, remarks)


def alert(spent: BudgetUse) -> str:
    """The reached or the expected share of a budget, in percent; empty below the first alert."""
    if spent.reached:
        return f"{spent.reached} % reached"
    return f"{spent.expected} % expected" if spent.expected else ""


# Explanation of a total


def explain(report: ChargebackReport, tenant: str, most: int) -> list[Table]:
    """The lines of a tenant's total, the computation of its idle cost, and its workloads."""
    made = []
    for number, period in enumerate(report.periods):
        lines = [line for line in report.lines if line.pot.period == number and line.tenant == tenant]
        if not lines:
            continue
        whole = sum(line.micro for line in lines)
        rows = []
        for line in lines:
            hours = report.hours(line) if line.pot.pool else 0.0
            rows.append(
                (
                    str(line.category),
                    line.pot.pool or line.pot.purchase,
                    line.pot.purchase if line.pot.pool else "",
                    line.flavor or line.detail or "–",
                    f"{line.devices / HOUR:,.2f}" if line.devices else "–",
                    f"{hours:,.2f}" if hours else "–",
                    f"{line.micro / MICRO / hours:.4f}" if hours else "–",
                    f"{line.micro / MICRO:,.6f}",
                )
            )
        header = ("for", "pool", "purchase", "flavor", "device-hours", "GPU-hours", "x dollars", "= dollars")
        made.append(
            Table(
                f"{tenant}, {period.name}: ${whole / MICRO:,.6f}, line by line",
                header,
                rows,
                _why(report, tenant, number),
            )
        )
        behind = [(row, micro) for row, micro in workloads(report) if (row["owner"], row["period"]) == (tenant, number)]
        behind.sort(key=lambda item: -item[1])
        shown = [
            (
                row["namespace"],
                row["workload"],
                row["flavor"] or "–",
                row["pool"],
                written(row["start"]),
                written(row["end"]),
                f"{row['devices'] / HOUR:,.2f}",
                f"{report.gpu_hours(row['pool'], row['weight']):,.2f}",
                f"{micro / MICRO:,.6f}",
            )
            for row, micro in behind[:most]
        ]
        rest = sum(micro for _, micro in behind[most:])
        remarks = [f"{len(behind) - most} more workloads: ${rest / MICRO:,.6f}; --rows shows them"] if rest else []
        remarks.append(f"{len(behind)} workloads: ${sum(micro for _, micro in behind) / MICRO:,.6f}")
        header = ("namespace", "workload", "flavor", "pool", "first", "last", "device-hours", "GPU-hours", "dollars")
        made.append(Table(f"{tenant}, {period.name}: workloads of held and borrowed", header, shown, remarks))
    return made


def _why(report: ChargebackReport, tenant: str, number: int) -> list[str]:
    """The computation of the idle lines."""
    remarks = []
    for pot, idle in sorted(report.idle.items()):
        mine = sum(
            line.weight
            for line in report.lines
            if line.pot == pot and line.tenant == tenant and line.category is Category.IDLE
        )
        if pot.period != number or not mine:
            continue
        whole, held, free, back = (
            report.gpu_hours(pot.pool, n) for n in (idle.whole, idle.held, idle.idle, idle.credited)
        )
        owner = report.measures[pot.pool].owner
        credited = f" and {back:,.2f} borrowed ones, credited to the lenders," if back else ""
        share = (
            "all of it: the tenant owns the pool"
            if owner == tenant
            else f"{100 * mine / (idle.idle + idle.credited):.4f} %: its part of the guarantees there"
        )
        remarks.append(
            f"idle of {pot.pool}, {pot.purchase}: of {whole:,.2f} GPU-hours {held:,.2f} were held; {free:,.2f} idle"
            f"{credited} are shared, {share}"
        )  # fmt: skip
    return remarks
