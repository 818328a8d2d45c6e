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

from tenancy.catalog import vocabulary as words
from tenancy.chargeback.budgets import standings
from tenancy.chargeback.claims import named
from tenancy.chargeback.labels import by_labels
from tenancy.chargeback.model import HOUR, BillingUnit, Category, ChargebackReport, CostLine
from tenancy.chargeback.periods import Period, written
from tenancy.chargeback.rounding import rounded, shared
from tenancy.chargeback.use import BudgetUse, TenantUse
from tenancy.planning.aws.prices import MICRO
from tenancy.rules.catalogue import Violation

CENT = MICRO // 100


def money(micro: int) -> str:
    """Dollars with six decimals, exact."""
    return str(Decimal(micro).scaleb(-6).quantize(Decimal("0.000001")))


def cents(amounts: Mapping[str, int]) -> dict[str, int]:
    """Millionths of a dollar as cents, so that they add up to the bill in cents."""
    whole = rounded(sum(amounts.values()), CENT)
    floors = {name: amount // CENT for name, amount in amounts.items()}
    last = sorted(amounts, key=lambda name: -(amounts[name] % CENT))
    for name in last[: whole - sum(floors.values())]:
        floors[name] += 1
    return floors


def dollars(cents: int) -> str:
    """Cents as dollars, with separators of thousands."""
    return f"{'-' if cents < 0 else ''}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"


def totals(report: ChargebackReport, period: int | None = None) -> dict[str, int]:
    """Total of every tenant in millionths of a dollar; payers that are not tenants come last."""
    found: dict[str, int] = defaultdict(int)
    for line in report.lines:
        if period is None or line.pot.period == period:
            found[line.tenant] += line.micro
    return dict(sorted(found.items(), key=lambda item: (named(item[0]), item[0])))


def price_of(report: ChargebackReport, line: CostLine) -> str:
    """Dollars for a GPU-hour, or a node-hour of a pool without GPUs; empty if nodes have different prices."""
    hours = report.hours(line) if line.pot.pool and line.weight else 0
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
    made = []
    for line, of in by_labels(report, keys):
        period = report.periods[line.pot.period]
        made.append(
            (
                period.name,
                written(period.start),
                written(period.end),
                line.tenant,
                *(of.get(key, "") for key in ("team", "department", "cost-center")),
                str(line.category),
                line.pot.pool,
                line.pot.purchase if line.pot.pool else "",
                line.flavor,
                line.detail,
                f"{report.hours(line):.6f}" if line.pot.pool else "",
                f"{line.devices / HOUR:.6f}" if line.devices else "",
                price_of(report, line),
                money(line.micro),
                *(of.get(key, "") for key in keys),
            )
        )
    return made


def as_csv(header: Sequence[str], of: Sequence[Sequence[str]]) -> str:
    """Rows with a header as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(of)
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
    whole = totals(report)
    rounded_off = cents(whole)
    return {
        "environment": report.environment.environment,
        "start": written(report.periods[0].start),
        "end": written(report.periods[-1].end),
        "currency": "USD",
        "bill": money(sum(report.bills.values())),
        "tenants": [
            {"tenant": name, "dollars": money(micro), "invoice": f"{Decimal(rounded_off[name]).scaleb(-2):.2f}"}
            for name, micro in whole.items()
        ],
        "bills": [
            {"period": report.periods[pot.period].name, "pool": pot.pool, "for": pot.purchase, "dollars": money(amount)}
            for pot, amount in sorted(report.bills.items())
        ],
        "lines": [dict(zip(COLUMNS, row, strict=True)) for row in rows(report)],
        "use": [
            {
                "period": report.periods[use.period].name,
                "tenant": use.tenant,
                "gpu_hours_held": round(use.held, 3),
                "gpu_hours_idle": round(use.idle, 3),
                "gpu_hours_used": None if use.used is None else round(use.used, 3),
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
                "period": report.periods[spent.period].name,
                "tenant": spent.tenant,
                "budget": spent.budget,
                "dollars": money(spent.micro),
                "forecast": money(spent.forecast_micro),
                "reached_percent": spent.reached,
                "expected_percent": spent.expected,
                "lines": {str(mark): line or None for mark, line in lines.items()},
            }
            for spent, lines in standings(report, budgets)
        ],
        "named": [
            {"rule": finding.rule, "given": finding.given, "effect": finding.effect} for finding in report.findings
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
    made = []
    for line, of in by_labels(report, keys):
        period = report.periods[line.pot.period]
        hours = f"{report.hours(line):.6f}" if line.pot.pool else ""
        amount, credit = money(line.micro), line.category is Category.CREDIT
        unit = "" if not line.pot.pool else "GPU-Hours" if _gpus(report, line) else "Node-Hours"
        what = " ".join(filter(None, (str(line.category), line.flavor, line.detail, line.pot.pool)))
        category, service = _SERVICE.get(line.category, ("Compute", "GPU nodes" if line.pot.pool else "Platform"))
        tags = of or {words.TENANT: line.tenant}
        made.append(
            (
                amount,
                environment.aws.account or environment.environment,
                environment.organisation.name,
                "USD",
                written(period.end),
                written(period.start),
                "Credit" if credit else "Usage",
                "",
                what,
                "Usage-Based",
                written(period.end),
                written(period.start),
                "" if credit else hours,
                "" if credit else unit,
                amount,
                amount,
                environment.organisation.name,
                amount,
                "" if credit or not line.pot.pool else _PRICING.get(line.pot.purchase, "Other"),
                hours,
                unit,
                words.PRODUCT,
                words.PRODUCT,
                environment.aws.region,
                category,
                service,
                "/".join(filter(None, (line.pot.pool, line.pot.purchase, line.flavor))),
                line.tenant,
                line.tenant,
                json.dumps(dict(sorted(tags.items())), separators=(",", ":")),
                str(line.category),
                line.pot.pool,
            )
        )
    return made


def _gpus(report: ChargebackReport, line: CostLine) -> bool:
    of = report.measures.get(line.pot.pool)
    return bool(of and of.gpus)


# Usage events


def must_be_whole(periods: Sequence[Period]) -> None:
    """Refuse partial periods: their events would differ from those of the whole period, and both would be billed."""
    for period in periods:
        if not period.whole:
            given = f"--events for {written(period.start)} to {written(period.end)}, a part of {period.name}"
            raise Violation("bill-09", given, "ask for whole periods, after they have ended")


def workloads(report: ChargebackReport) -> Iterator[tuple[dict[str, Any], int]]:
    """Cost of every workload: its tenant's lines of held and borrowed capacity, allocated by weight."""
    lines: dict[tuple[BillingUnit, str, str], int] = defaultdict(int)
    for line in report.lines:
        if line.category in {Category.HELD, Category.BORROWED}:
            lines[line.pot, line.tenant, line.flavor] += line.micro
    groups: dict[tuple[BillingUnit, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in report.work.iter_rows(named=True):
        groups[BillingUnit(row["period"], row["pool"], row["purchase"]), row["owner"], row["flavor"]].append(row)
    for key, of in sorted(groups.items()):
        if key not in lines:
            continue
        unit_cost = [row["unit_cost"] for row in of]
        unit_cost = unit_cost if sum(unit_cost) else [row["weight"] for row in of]
        parts = shared(lines[key], unit_cost) if sum(unit_cost) else [0] * len(of)
        yield from zip(of, parts, strict=True)


def events(report: ChargebackReport) -> Iterator[str]:
    """One line of JSON for each workload of a tenant, with an id that is the same in every run for the period."""
    for row, micro in workloads(report):
        if named(row["owner"]):
            continue
        period = report.periods[row["period"]]
        what = {
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
        key = json.dumps([*what.values(), period.start, period.end], ensure_ascii=True)
        yield json.dumps(
            {
                "id": hashlib.sha256(key.encode()).hexdigest()[:32],
                **what,
                "start": written(row["start"]),
                "end": written(row["end"]),
                "gpu_seconds": f"{report.gpu_hours(row['pool'], row['weight']) * HOUR:.3f}",
                "device_seconds": row["devices"],
                "dollars": money(micro),
            }
        )
