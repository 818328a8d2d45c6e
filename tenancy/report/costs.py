"""Costs as rows: amounts with bars, budgets, and GPU-hours that were held and used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenancy.report.facts import first_names
from tenancy.report.inputs import BudgetMonth, ChargebackSummary, TenantUseSummary
from tenancy.report.shares import UNALLOCATED, Segment

AMOUNT, OVER_BUDGET = "amount", "over"


@dataclass(frozen=True, slots=True)
class AmountRow:
    """A name and its amount; a remainder belongs to no tenant."""

    name: str
    dollars: str
    share: str
    note: str
    remainder: bool
    segment: Segment


@dataclass(frozen=True, slots=True)
class Amounts:
    """A table of amounts with its total."""

    rows: Sequence[AmountRow]
    total: str
    caption: str


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A tenant's budget of a month and its use."""

    tenant: str
    month: str
    so_far: str
    share: str
    budget: str
    forecast: str
    alert: str
    segment: Segment


@dataclass(frozen=True, slots=True)
class UseRow:
    """Held, used, used of held, idle, and dollars of idle GPU-hours, as text."""

    tenant: str
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class UseReport:
    """Use of tenants, and the names of those whose use was not measured."""

    rows: Sequence[UseRow]
    unmeasured: str


@dataclass(frozen=True, slots=True)
class ChargebackView:
    """A chargeback: its time, sentences about missing data, budgets and use."""

    span: str
    missing: Sequence[str]
    budgets: Sequence[BudgetRow]
    use: UseReport


def share(part: float, total: float) -> str:
    """A part in percent."""
    return f"{part / total:.0%}" if total else "–"


def span(chargeback: ChargebackSummary) -> str:
    """First and last day of the costs."""
    return f"{chargeback.start[:10]} to {chargeback.end[:10]}, as charged back"


def view(chargeback: ChargebackSummary, tenants: Sequence[str] | None = None) -> ChargebackView:
    """A chargeback of all tenants, or of some; what the whole bill lacks is only for the page of all."""
    names = sorted({*chargeback.budgets, *chargeback.use_by_tenant}) if tenants is None else tenants
    return ChargebackView(
        span=span(chargeback),
        missing=chargeback.data_findings if tenants is None else (),
        budgets=_budgets({name: chargeback.budgets[name] for name in names if name in chargeback.budgets}),
        use=_use({name: chargeback.use_by_tenant[name] for name in names if name in chargeback.use_by_tenant}),
    )


def bill(chargeback: ChargebackSummary) -> Amounts:
    """Cost of each tenant; lines without a tenant are below."""
    tenant_lines = [
        (name, amount, _note(chargeback, name)) for name, amount in chargeback.paid.items() if not name.startswith("(")
    ]
    other_lines = [(name, amount) for name, amount in chargeback.paid.items() if name.startswith("(")]
    return amounts(tenant_lines, other_lines, "the lines add up to the bill")


def amounts(rows: Iterable[tuple[str, float, str]], remainders: Sequence[tuple[str, float]], caption: str) -> Amounts:
    """Names, dollars and notes, the largest amount first; remainders that are not zero are below, with the sum."""
    lines = [(*row, False) for row in sorted(rows, key=lambda row: (-row[1], row[0]))]
    lines += [(name, amount, "", True) for name, amount in remainders if amount]
    total = sum(amount for _, amount, _, _ in lines)
    largest = max([amount for _, amount, _, _ in lines], default=0) or 1
    amount_rows = [
        AmountRow(
            name=name,
            dollars=_dollars(amount),
            share=share(amount, total),
            note=note,
            remainder=remainder,
            segment=Segment(UNALLOCATED if remainder else AMOUNT, max(0.0, 100 * amount / largest)),
        )
        for name, amount, note, remainder in lines
    ]
    return Amounts(amount_rows, _dollars(total), caption)


def _dollars(amount: float) -> str:
    return f"${amount:,.0f}"


def _note(chargeback: ChargebackSummary, name: str) -> str:
    """The three largest categories of a tenant's costs."""
    parts = sorted(chargeback.parts.get(name, {}).items(), key=lambda part: -part[1])
    return ", ".join([f"{category} {_dollars(amount)}" for category, amount in parts if round(amount)][:3])


def _budgets(months_by_tenant: Mapping[str, Sequence[BudgetMonth]]) -> list[BudgetRow]:
    return [_budget(name, month) for name, months in months_by_tenant.items() for month in months]


def _budget(name: str, month: BudgetMonth) -> BudgetRow:
    part = month.so_far / month.budget if month.budget else 0.0
    alert = f"{month.expected} % expected" if month.expected else ""
    return BudgetRow(
        tenant=name,
        month=month.period,
        so_far=_dollars(month.so_far),
        share=f"{part:.0%}",
        budget=_dollars(month.budget),
        forecast=_dollars(month.forecast),
        alert=f"{month.reached} % reached" if month.reached else alert,
        segment=Segment(OVER_BUDGET if part >= 1 else AMOUNT, 100 * min(1.0, part)),
    )


def _use(use_by_tenant: Mapping[str, TenantUseSummary]) -> UseReport:
    rows = [
        UseRow(
            name,
            (
                f"{used.allocated_hours:,.0f}",
                "–" if used.used_hours is None else f"{used.used_hours:,.0f}",
                "–" if used.efficiency is None else f"{used.efficiency:.0f} %",
                f"{used.idle:,.0f}",
                _dollars(used.idle_dollars),
            ),
        )
        for name, used in use_by_tenant.items()
    ]
    return UseReport(rows, first_names([name for name, used in use_by_tenant.items() if used.used_hours is None]))
