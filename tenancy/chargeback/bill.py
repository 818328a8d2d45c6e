"""AWS's own bill: Cost and Usage Report 2.0 (Data Exports) in Parquet.

Column names: AWS Data Exports user guide, "Cost and Usage Report (CUR) 2.0". `resource_tags` is a map, and keys of it
are spelled with `user_`, `user:` or neither, by how the export was made: letters and digits alone are compared. Tags
must be activated as cost allocation tags.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tenancy.catalog import vocabulary as words
from tenancy.chargeback.allocate import Finding, Pot
from tenancy.chargeback.measures import MICRO
from tenancy.chargeback.periods import Period, written
from tenancy.chargeback.rounding import shared
from tenancy.plan.names import ENVIRONMENT_TAG, POOL_TAG
from tenancy.rules.catalogue import Violation
from tenancy.spec.costs import Bought, Kind

COSTS = {
    # Amortised: what was paid ahead stands with the hours that used it.
    "Usage": "line_item_unblended_cost",
    "DiscountedUsage": "reservation_effective_cost",
    "SavingsPlanCoveredUsage": "savings_plan_savings_plan_effective_cost",
}
"""Column of the cost, by `line_item_line_item_type`."""
COVERED = {"SavingsPlanNegation", "SavingsPlanUpfrontFee"}
"""Lines whose money stands in others."""
NEEDED = (
    "line_item_line_item_type",
    "line_item_product_code",
    "line_item_usage_type",
    "line_item_usage_start_date",
    "line_item_usage_end_date",
    "line_item_unblended_cost",
    "line_item_currency_code",
    "resource_tags",
)


class Bill(NamedTuple):
    pots: dict[Pot, int]
    """Millionths of a dollar of the nodes of each pool."""
    beside: list[tuple[int, str, str, str, int]]
    """(period, tenant, category, what, millionths) of all else."""
    findings: list[Finding]
    notes: list[str]


def read(paths: Sequence[Path], periods: Sequence[Period], environment: str) -> Bill:
    """Everything of the environment that the bill has in the range; a line of several hours goes to the periods by its
    hours."""
    found: dict[tuple[str, str, str, str, int, int], Decimal] = defaultdict(Decimal)
    findings: list[Finding] = []
    others = Decimal()
    for path in paths:
        everything = _scan(path)
        missing = [name for name in NEEDED if name not in everything.columns]
        if missing:
            raise Violation("bill-07", f"{path.name} without column {missing[0]}", "export CUR 2.0 with resource ids")
        frame = everything.filter(_tagged(everything.schema["resource_tags"], environment))
        others += Decimal(str(everything["line_item_unblended_cost"].sum())) - Decimal(
            str(frame["line_item_unblended_cost"].sum())
        )
        for row in frame.iter_rows(named=True):
            kind = row["line_item_line_item_type"]
            if kind in COVERED or row["line_item_usage_end_date"] is None:
                continue
            if (currency := row["line_item_currency_code"]) != "USD":
                raise Violation("bill-07", f"{path.name}: currency {currency}", "export the bill in USD")
            column = COSTS.get(kind, "line_item_unblended_cost")
            cost = row.get(column)
            if cost is None:
                raise Violation("bill-07", f"{path.name}: {kind} without {column}", f"export the column {column}")
            tags = {_letters(key): value for key, value in _pairs(row["resource_tags"])}
            if tags.get(_letters(ENVIRONMENT_TAG)) != environment:
                continue
            start, end = (int(row[f"line_item_usage_{side}_date"].timestamp()) for side in ("start", "end"))
            pool = tags.get(_letters(POOL_TAG), "") if _compute(row) else ""
            tenant = tags.get(_letters(words.TENANT_TAG), "")
            what = (pool, _purchase(row)) if pool else (_category(row), _what(row, kind))
            found[*(what), "" if pool else tenant, "pool" if pool else "", start, end] += Decimal(str(cost))
    pots: dict[Pot, int] = defaultdict(int)
    beside: dict[tuple[int, str, str, str], int] = defaultdict(int)
    outside = 0
    for (first, second, tenant, pool, start, end), cost in sorted(found.items()):
        amount = int((cost * MICRO).to_integral_value())
        parts = [max(0, min(end, period.end) - max(start, period.start)) for period in periods]
        left = max(end - start, 1) - sum(parts)
        *of, rest = shared(amount, [*parts, left])
        outside += rest
        for number, part in enumerate(of):
            if part and pool:
                pots[Pot(number, first, second)] += part
            elif part:
                beside[number, tenant, first, second] += part
    if outside:
        lies = f"from {written(periods[0].start)} to {written(periods[-1].end)}"
        given = f"${outside / MICRO:,.2f} of the bill outside of the range {lies}"
        findings.append(Finding("bill-04", given, "they are in no line"))
    notes = [f"${others:,.2f} of the bill have no tag {ENVIRONMENT_TAG}={environment}: they are of somebody else"]
    all_else = [(*key, amount) for key, amount in sorted(beside.items())]
    return Bill(dict(pots), all_else, findings, notes if others else [])


def _scan(path: Path) -> pl.DataFrame:
    try:
        frame = pl.scan_parquet(path)
        wanted = [name for name in (*NEEDED, *COSTS.values(), "pricing_term") if name in frame.collect_schema().names()]
        return frame.select(list(dict.fromkeys(wanted))).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        given = f"--bill {path}: {str(error).splitlines()[0]}"
        raise Violation("bill-07", given, "name a Parquet file of a CUR 2.0 export") from None


def _tagged(kind: pl.DataType, environment: str) -> pl.Expr:
    """Whether some tag has the environment's name: what need not be looked at row by row."""
    tags = pl.col("resource_tags")
    if isinstance(kind, pl.Struct):
        return pl.any_horizontal(
            tags.struct.field(field.name).eq(environment).fill_null(False) for field in kind.fields
        )
    return tags.list.eval(pl.element().struct.field("value") == environment).list.any().fill_null(False)


def _pairs(tags: Any) -> list[tuple[str, str]]:
    """A map of Parquet: polars makes a list of key and value of it, and writers without maps a structure."""
    if isinstance(tags, dict):
        return [(key, value) for key, value in tags.items() if value]
    return [(pair["key"], pair["value"]) for pair in tags or () if pair["value"]]


def _letters(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).removeprefix("user_")


def _compute(row: dict) -> bool:
    return row["line_item_product_code"] == "AmazonEC2" and bool(
        re.search(r"BoxUsage|SpotUsage|Reservation|CapacityBlock|DedicatedUsage", row["line_item_usage_type"])
    )


def _purchase(row: dict) -> str:
    usage = row["line_item_usage_type"]
    if "SpotUsage" in usage:
        return Bought.SPOT
    if "CapacityBlock" in usage:
        return Bought.CAPACITY_BLOCK
    # Of an on-demand capacity reservation: what it ran, and what of it nobody ran.
    return Bought.RESERVATION if "Reservation" in usage or "UnusedBox" in usage else Bought.ON_DEMAND


def _category(row: dict) -> str:
    product, usage = row["line_item_product_code"], row["line_item_usage_type"]
    if product == "AmazonS3":
        return Kind.S3
    if "SnapshotUsage" in usage:
        return Kind.SNAPSHOT
    if "VolumeUsage" in usage or product == "AmazonEFS":
        return Kind.STORAGE
    return Kind.EGRESS if "DataTransfer-Out" in usage or "NatGateway" in usage else "other"


def _what(row: dict, kind: str) -> str:
    return row["line_item_product_code"] if kind in COSTS else f"{row['line_item_product_code']} {kind}"
