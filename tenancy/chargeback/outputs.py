"""The report as tables, CSV, Parquet, JSON and FOCUS: the same input, the same bytes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl

from tenancy.catalog import vocabulary
from tenancy.chargeback.budgets import budget_statuses
from tenancy.chargeback.claims import is_not_tenant
from tenancy.chargeback.labels import by_labels
from tenancy.chargeback.model import HOUR, BillingUnit, Category, ChargebackReport, CostLine
from tenancy.chargeback.periods import Period, iso_time
from tenancy.chargeback.rounding import divide_by_weights, rounded
from tenancy.chargeback.use import BudgetUse, TenantUse
from tenancy.planning.aws.prices import MICRO
from tenancy.rules.catalogue import Violation

CENT = MICRO // 100


def money(micro: int) -> str:
    """Dollars with six decimals, exact."""
    return str(Decimal(micro).scaleb(-6).quantize(Decimal("0.000001")))


def cents(amounts: Mapping[str, int]) -> dict[str, int]:
    """Millionths of a dollar as cents, so that they add up to the bill in cents."""
    total = rounded(sum(amounts.values()), CENT)
    floors = {name: amount // CENT for name, amount in amounts.items()}
    by_remainder = sorted(amounts, key=lambda name: -(amounts[name] % CENT))
    for name in by_remainder[: total - sum(floors.values())]:
        floors[name] += 1
    return floors


def dollars(cents: int) -> str:
    """Cents as dollars, with separators of thousands."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"


def totals(report: ChargebackReport, period: int | None = None) -> dict[str, int]:
    """Total of every tenant in millionths of a dollar; payers that are not tenants come last."""
    micro_by_payer: dict[str, int] = defaultdict(int)
    for line in report.lines:
        if period is None or line.billing_unit.period == period:
            micro_by_payer[line.tenant] += line.micro
    return dict(sorted(micro_by_payer.items(), key=lambda item: (is_not_tenant(item[0]), item[0])))


def price_of(report: ChargebackReport, line: CostLine) -> str:
    """Dollars for a GPU-hour, or a node-hour of a pool without GPUs; empty if nodes have different prices."""
    hours = report.hours(line) if line.billing_unit.pool and line.weight else 0
    return f"{line.micro / MICRO / hours:.6f}" if hours else ""


# Rows

COLUMNS = (
    "period",
    "start",
    "end",
    "tenant",
    "team",
    "department",
    "cost_center",
    "category",
    "pool",
    "purchase",
    "flavor",
    "detail",
    "gpu_hours",
    "device_hours",
    "dollars_an_hour",
    "dollars",
)


def rows(report: ChargebackReport, keys: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """One row for each line, as texts, for CSV and Parquet; with keys of labels, a column more for each key, and a row
    for each of their values."""
    rows_by_line = []
    for line, labels in by_labels(report, keys):
        period = report.periods[line.billing_unit.period]
        rows_by_line.append(
            (
                period.name,
                iso_time(period.start),
                iso_time(period.end),
                line.tenant,
                *(labels.get(key, "") for key in ("team", "department", "cost-center")),
                str(line.category),
                line.billing_unit.pool,
                line.billing_unit.purchase if line.billing_unit.pool else "",
                line.flavor,
                line.detail,
                f"{report.hours(line):.6f}" if line.billing_unit.pool else "",
                f"{line.devices / HOUR:.6f}" if line.devices else "",
                price_of(report, line),
                money(line.micro),
                *(labels.get(key, "") for key in keys),
            )
        )
    return rows_by_line


def as_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows with a header as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def columns(keys: Sequence[str] = ()) -> list[str]:
    """Names of the columns of `rows`."""
    return [*COLUMNS, *(f"label_{key}" for key in keys)]


def as_parquet(report: ChargebackReport, keys: Sequence[str] = ()) -> bytes:
    """The rows with numbers as decimals."""
    numbers = {"gpu_hours", "device_hours", "dollars_an_hour", "dollars"}
    frame = pl.DataFrame(rows(report, keys), columns(keys), orient="row").with_columns(
        pl.when(pl.col(name) == "").then(None).otherwise(pl.col(name)).cast(pl.Decimal(38, 6)).alias(name)
        for name in COLUMNS
        if name in numbers
    )
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def as_json(report: ChargebackReport, uses: Sequence[TenantUse], budgets: Sequence[BudgetUse]) -> dict[str, Any]:
    """The report as plain values, for JSON."""
    micro_by_payer = totals(report)
    cents_by_payer = cents(micro_by_payer)
    return {
        "environment": report.environment.environment,
        "start": iso_time(report.periods[0].start),
        "end": iso_time(report.periods[-1].end),
        "currency": "USD",
        "bill": money(sum(report.bills.values())),
        "tenants": [
            {"tenant": name, "dollars": money(micro), "invoice": f"{Decimal(cents_by_payer[name]).scaleb(-2):.2f}"}
            for name, micro in micro_by_payer.items()
        ],
        "bills": [
            {
                "period": report.periods[billing_unit.period].name,
                "pool": billing_unit.pool,
                "for": billing_unit.purchase,
                "dollars": money(amount),
            }
            for billing_unit, amount in sorted(report.bills.items())
        ],
        "lines": [dict(zip(COLUMNS, row, strict=True)) for row in rows(report)],
        "use": [
            {
                "period": report.periods[use.period].name,
                "tenant": use.tenant,
                "gpu_hours_held": round(use.allocated, 3),
                "gpu_hours_idle": round(use.idle, 3),
                "gpu_hours_used": None if use.measured_use is None else round(use.measured_use, 3),
                "measured_percent": round(use.measured, 1),
                "efficiency_percent": None if use.efficiency is None else round(use.efficiency, 1),
                "utilisation_percent": None if use.utilisation is None else round(use.utilisation, 1),
                "idle_dollars": money(use.idle_micro),
                "held_and_unused_dollars": None if use.unused_micro is None else money(use.unused_micro),
            }
            for use in uses
        ],
        "budgets": [
            {
                "period": report.periods[budget.period].name,
                "tenant": budget.tenant,
                "budget": budget.budget,
                "dollars": money(budget.micro),
                "forecast": money(budget.forecast_micro),
                "reached_percent": budget.reached,
                "expected_percent": budget.expected,
                "lines": {str(mark): line or None for mark, line in lines.items()},
            }
            for budget, lines in budget_statuses(report, budgets)
        ],
        "named": [
            {"rule": finding.rule, "given": finding.observation, "effect": finding.effect}
            for finding in report.findings
        ],
        "notes": list(report.notes),
    }


# FOCUS 1.2: the FinOps Open Cost and Usage Specification. Costs are after discounts throughout: the list price is
# given where one is known. Columns outside of the specification have names that begin with x_, as it requires.

FOCUS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
    "x_Category",
    "x_Pool",
)

_SERVICE = {
    Category.STORAGE: ("Storage", "Volumes"),
    Category.SNAPSHOT: ("Storage", "Snapshots"),
    Category.S3: ("Storage", "Objects"),
    Category.EGRESS: ("Networking", "Traffic"),
}
_PRICING = {"on-demand": "Standard", "reservation": "Standard", "spot": "Dynamic", "capacity-block": "Committed"}


def focus(report: ChargebackReport, keys: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Rows of the report in the columns of FOCUS, without the header; with keys of labels, the values of namespaces
    are in Tags."""
    environment = report.environment
    rows = []
    for line, labels in by_labels(report, keys):
        period = report.periods[line.billing_unit.period]
        hours = f"{report.hours(line):.6f}" if line.billing_unit.pool else ""
        amount, credit = money(line.micro), line.category is Category.CREDIT
        unit = "" if not line.billing_unit.pool else "GPU-Hours" if _gpus(report, line) else "Node-Hours"
        description = " ".join(filter(None, (str(line.category), line.flavor, line.detail, line.billing_unit.pool)))
        category, service = _SERVICE.get(
            line.category, ("Compute", "GPU nodes" if line.billing_unit.pool else "Platform")
        )
        tags = labels or {vocabulary.TENANT: line.tenant}
        rows.append(
            (
                amount,
                environment.aws.account or environment.environment,
                environment.organisation.name,
                "USD",
                iso_time(period.end),
                iso_time(period.start),
                "Credit" if credit else "Usage",
                "",
                description,
                "Usage-Based",
                iso_time(period.end),
                iso_time(period.start),
                "" if credit else hours,
                "" if credit else unit,
                amount,
                amount,
                environment.organisation.name,
                amount,
                "" if credit or not line.billing_unit.pool else _PRICING.get(line.billing_unit.purchase, "Other"),
                hours,
                unit,
                vocabulary.PRODUCT,
                vocabulary.PRODUCT,
                environment.aws.region,
                category,
                service,
                "/".join(filter(None, (line.billing_unit.pool, line.billing_unit.purchase, line.flavor))),
                line.tenant,
                line.tenant,
                json.dumps(dict(sorted(tags.items())), separators=(",", ":")),
                str(line.category),
                line.billing_unit.pool,
            )
        )
    return rows


def _gpus(report: ChargebackReport, line: CostLine) -> bool:
    measure = report.measures.get(line.billing_unit.pool)
    return bool(measure and measure.gpus)


# Usage events


def require_whole_periods(periods: Sequence[Period]) -> None:
    """Refuse partial periods: their events would differ from those of the whole period, and both would be billed."""
    for period in periods:
        if not period.is_whole:
            observation = f"--events for {iso_time(period.start)} to {iso_time(period.end)}, a part of {period.name}"
            raise Violation("bill-09", observation, "ask for whole periods, after they have ended")


def workloads(report: ChargebackReport) -> Iterator[tuple[dict[str, Any], int]]:
    """Cost of every workload: its tenant's lines of held and borrowed capacity, allocated by weight."""
    lines: dict[tuple[BillingUnit, str, str], int] = defaultdict(int)
    for line in report.lines:
        if line.category in {Category.HELD, Category.BORROWED}:
            lines[line.billing_unit, line.tenant, line.flavor] += line.micro
    groups: dict[tuple[BillingUnit, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in report.work.iter_rows(named=True):
        groups[BillingUnit(row["period"], row["pool"], row["purchase"]), row["owner"], row["flavor"]].append(row)
    for key, work_rows in sorted(groups.items()):
        if key not in lines:
            continue
        unit_cost = [row["unit_cost"] for row in work_rows]
        unit_cost = unit_cost if sum(unit_cost) else [row["weight"] for row in work_rows]
        parts = divide_by_weights(lines[key], unit_cost) if sum(unit_cost) else [0] * len(work_rows)
        yield from zip(work_rows, parts, strict=True)


def events(report: ChargebackReport) -> Iterator[str]:
    """One line of JSON for each workload of a tenant, with an id that is the same in every run for the period."""
    for row, micro in workloads(report):
        if is_not_tenant(row["owner"]):
            continue
        period = report.periods[row["period"]]
        fields = {
            "environment": report.environment.environment,
            "period": period.name,
            "tenant": row["owner"],
            "namespace": row["namespace"],
            "workload": row["workload"],
            "queue": row["queue"],
            "flavor": row["flavor"],
            "pool": row["pool"],
            "purchase": row["purchase"],
        }
        key = json.dumps([*fields.values(), period.start, period.end], ensure_ascii=True)
        yield json.dumps(
            {
                "id": hashlib.sha256(key.encode()).hexdigest()[:32],
                **fields,
                "start": iso_time(row["start"]),
                "end": iso_time(row["end"]),
                "gpu_seconds": f"{report.gpu_hours(row['pool'], row['weight']) * HOUR:.3f}",
                "device_seconds": row["devices"],
                "dollars": money(micro),
            }
        )
