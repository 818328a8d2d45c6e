"""AWS's own bill: Cost and Usage Report 2.0 (Data Exports) in Parquet.

Column names: AWS Data Exports user guide, "Cost and Usage Report (CUR) 2.0". `resource_tags` is a map, and keys of it
are spelled with `user_`, `user:` or neither, by how the export was made: letters and digits alone are compared. Tags
must be activated as cost allocation tags.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tenancy.catalog import vocabulary
from tenancy.catalog.files import regular_file
from tenancy.chargeback.model import BillingUnit, DataFinding
from tenancy.chargeback.periods import LAST, Period, iso_time
from tenancy.chargeback.rounding import round_to_sum
from tenancy.planning.aws.prices import MICRO
from tenancy.planning.common.names import CLAIM_TAG, ENVIRONMENT_TAG, NAMESPACE_TAG, POOL_TAG
from tenancy.rules.catalogue import Violation
from tenancy.spec.fields.costs import PurchaseKind, UsageKind

COST_COLUMN, NET_COST_COLUMN = "line_item_unblended_cost", "line_item_net_unblended_cost"
"""Before and after discounts of a contract; the second is there only where the account has one."""
AMORTISED_COST_COLUMNS: Mapping[str, Mapping[str, int]] = {
    # A prepaid amount is in the lines of the hours that used it; its unused part is in the line of the fee.
    "DiscountedUsage": {"reservation_effective_cost": 1},
    "RIFee": {
        "reservation_unused_amortized_upfront_fee_for_billing_period": 1,
        "reservation_unused_recurring_fee": 1,
    },
    "SavingsPlanCoveredUsage": {"savings_plan_savings_plan_effective_cost": 1},
    "SavingsPlanRecurringFee": {"savings_plan_total_commitment_to_date": 1, "savings_plan_used_commitment": -1},
    "SavingsPlanNegation": {},
    "SavingsPlanUpfrontFee": {},
}
"""Cost of a line, as a sum of columns, by `line_item_line_item_type`; all others cost what is unblended. The
amortised cost of AWS's Cost Explorer."""
UNUSED_COMMITMENT_TYPES = {"RIFee": "unused reservation", "SavingsPlanRecurringFee": "unused commitment"}
"""Lines that belong to no hour of a node, and their names in the report."""
USAGE_LINE_TYPES = ("Usage", "DiscountedUsage", "SavingsPlanCoveredUsage")
PREPAID_FEE, RESERVATION_COLUMN = "Fee", "reservation_reservation_a_r_n"
"""Type of line of a prepaid fee, and the column with the ARN of its reservation. A capacity reservation has no such
fee."""
IDENTITY, INTERVAL = "identity_line_item_id", "identity_time_interval"
"""An id identifies one line in one interval."""
TEXTS = (
    "line_item_line_item_type",
    "line_item_product_code",
    "line_item_usage_type",
    "line_item_currency_code",
)
TIMES = ("line_item_usage_start_date", "line_item_usage_end_date")
TAGS = "resource_tags"
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Errors that polars raises for a damaged file; a panic of its Rust code is no Exception."""
REQUIRED_COLUMNS = (*TEXTS, *TIMES, COST_COLUMN, TAGS)
ZERO_COST_TYPES = tuple(kind for kind, columns in AMORTISED_COST_COLUMNS.items() if not columns)
SUM_COLUMNS = tuple(dict.fromkeys(name for columns in AMORTISED_COST_COLUMNS.values() for name in columns))
MAX_DOLLARS = 10**9
"""Max dollars of one line."""
NANO = 10**9
_MACHINES = "BoxUsage|SpotUsage|Reservation|CapacityBlock|DedicatedUsage|DedicatedRes|UnusedBox|UnusedDed"
"""Usage types of instances and of their reservations: AWS Data Exports user guide, "Monitoring your On-Demand capacity
reservations"."""


class TaggedCosts(NamedTuple):
    """Costs without a pool, by the tags that name the owner; empty without a tag."""

    period: int
    tenant: str
    namespace: str
    category: str
    description: str
    micro: int


class Bill(NamedTuple):
    """The costs of an environment by the Cost and Usage Report."""

    costs_by_unit: dict[BillingUnit, int]
    """Millionths of a dollar of the nodes of each pool."""
    other_costs: list[TaggedCosts]
    """All other costs."""
    findings: list[DataFinding]
    notes: list[str]


class _Key(NamedTuple):
    """Costs that are charged together; for a pool, `category` is its purchase option."""

    pool: str
    category: str
    description: str
    tenant: str
    namespace: str


def read_bill(paths: Sequence[Path], periods: Sequence[Period], environment: str) -> Bill:
    """All costs of the environment on the bill in the range; a line of several hours is split between periods."""
    costs: dict[tuple[_Key, int, int], Decimal] = defaultdict(Decimal)
    foreign_cost = discounts = Decimal()
    unknown_costs: dict[str, int] = defaultdict(int)
    file_by_line: dict[tuple[Any, ...], Path] = {}
    files = _files(paths)
    for path in files:
        frame = _scan(path)
        if len(files) > 1 and IDENTITY not in frame.collect_schema():
            observation = f"{len(files)} files and {path.name} without column {IDENTITY}"
            raise Violation(
                "bill-07", observation, f"export the column {IDENTITY}: a line in two files would count twice"
            )
        is_own_line = _has_environment_tag(frame.collect_schema()[TAGS], environment)
        other_lines = frame.filter(~is_own_line)
        nano = (pl.col("cost") * NANO).round().cast(pl.Int128)  # integers, so that the sum does not depend on the order
        kind = pl.col(TEXTS[0])
        try:
            foreign_cost += Decimal(other_lines.select(nano.sum()).collect().item()) / NANO
            lines_without_cost = other_lines.filter(pl.col("cost").is_null()).group_by(kind).len().collect()
            rows = frame.filter(is_own_line).collect()
        except UNREADABLE as error:
            raise _unreadable(path, error) from None
        for name, count in lines_without_cost.iter_rows():
            unknown_costs[name] += count
        for row in rows.iter_rows(named=True):
            tags = {_normalized_key(key): value for key, value in _pairs(row[TAGS])}
            if tags.get(_normalized_key(ENVIRONMENT_TAG)) != environment:
                foreign_cost += Decimal(str(row["cost"] or 0))
                unknown_costs[row[TEXTS[0]]] += row["cost"] is None
                continue
            start, end, cost = _time_and_cost(path, row)
            discounts += _discount(row)
            if cost:
                _refuse_duplicate(path, row, file_by_line)
            if cost or row[TEXTS[0]] not in ZERO_COST_TYPES:
                costs[_key(row, tags), start, end] += cost
    bill = _rounded_bill(costs, periods, foreign_cost, unknown_costs, environment)
    if round(discounts, 2):
        bill.notes.append(
            f"{NET_COST_COLUMN} has ${discounts:,.2f} of discounts on lines of {environment}; costs in this report are "
            "before them"
        )
    return bill


def _rounded_bill(
    costs: Mapping[tuple[_Key, int, int], Decimal],
    periods: Sequence[Period],
    foreign_cost: Decimal,
    unknown_costs: Mapping[str, int],
    environment: str,
) -> Bill:
    """Round the exact sum of each period to millionths."""
    sums: list[dict[_Key, Fraction]] = [defaultdict(Fraction) for _ in periods]
    outside = Fraction()
    for (key, start, end), cost in costs.items():
        micro = Fraction(cost) * MICRO
        outside += micro
        for number, period in enumerate(periods):
            overlap = min(end, period.end) - max(start, period.start)
            if overlap > 0 or (start == end and period.start <= start < period.end):
                part = micro * Fraction(overlap, end - start) if start < end else micro
                sums[number][key] += part
                outside -= part
    costs_by_unit: dict[BillingUnit, int] = {}
    other_costs: list[TaggedCosts] = []
    for number, costs_by_key in enumerate(sums):
        keys = sorted(costs_by_key)
        for key, amount in zip(keys, round_to_sum([costs_by_key[key] for key in keys]), strict=True):
            if key.pool:
                costs_by_unit[BillingUnit(number, key.pool, key.category)] = amount
            elif amount:
                other_costs.append(
                    TaggedCosts(number, key.tenant, key.namespace, key.category, key.description, amount)
                )
    findings, notes = [], []
    if outside_micro := round(outside):
        range_text = f"from {iso_time(periods[0].start)} to {iso_time(periods[-1].end)}"
        observation = f"${outside_micro / MICRO:,.2f} of the bill outside of the range {range_text}"
        findings.append(DataFinding("bill-04", observation, "they are in no line"))
    tag = f"no tag {ENVIRONMENT_TAG}={environment}"
    if foreign_cost:
        notes.append(f"${foreign_cost:,.2f} of the bill have {tag}: they are not part of this environment")
    for kind, count in sorted(unknown_costs.items()):
        if count:
            columns = " or ".join(_columns(kind))
            notes.append(f"the cost of {count} lines {kind} with {tag} is unknown: they have no {columns}")
    return Bill(costs_by_unit, other_costs, findings, notes)


# Files


def _files(paths: Sequence[Path]) -> list[Path]:
    """Every file of a bill; a folder means all files in it. A file that is named twice is refused."""
    file_by_inode: dict[tuple[int, int], Path] = {}
    for bill_path in paths:
        for path in sorted(bill_path.rglob("*.parquet")) if bill_path.is_dir() else [bill_path]:
            try:
                status = regular_file(path).stat()
            except OSError as error:
                raise _unreadable(path, error) from None
            if previous_path := file_by_inode.get((status.st_dev, status.st_ino)):
                problem_text = "twice" if previous_path == path else f"and {previous_path}, which is the same file"
                raise Violation("bill-07", f"--bill {path} {problem_text}", "name it once: it would count twice")
            file_by_inode[status.st_dev, status.st_ino] = path
    if not file_by_inode:
        raise Violation("bill-07", f"--bill {paths[0]} without a Parquet file", "name the files of a CUR 2.0 export")
    return list(file_by_inode.values())


def _scan(path: Path) -> pl.LazyFrame:
    """The rows with the needed columns: texts, times in seconds since 1970, tags, and `cost`, which is null if a column
    is empty. Times without a zone are UTC."""
    try:
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        schema = frame.collect_schema()
    except (*UNREADABLE, OSError) as error:
        raise _unreadable(path, error) from None
    for name in REQUIRED_COLUMNS:
        if name not in schema:
            raise Violation("bill-07", f"{path.name} without column {name}", "export CUR 2.0 with resource ids")
    optional_columns = [name for name in (IDENTITY, INTERVAL, RESERVATION_COLUMN) if name in schema]
    dollars = [name for name in (COST_COLUMN, NET_COST_COLUMN, *SUM_COLUMNS) if name in schema]
    for names, is_type, expected_text in (
        ((*TEXTS, *optional_columns), _is_text, "texts"),
        (TIMES, lambda kind: isinstance(kind, pl.Datetime), "times"),
        (dollars, lambda kind: kind.is_numeric(), "numbers"),
        ((TAGS,), _is_map, "a map of texts"),
    ):
        for name in names:
            if schema[name] != pl.Null and not is_type(schema[name]):
                raise Violation(
                    "bill-07",
                    f"column {name} of {path.name} with type {schema[name]}",
                    f"export {expected_text}, as CUR 2.0 has them",
                )
    selected_columns = frame.select(
        *(pl.col(name).cast(pl.String).fill_null("") for name in (*TEXTS, *optional_columns)),
        *(pl.col(name).cast(pl.Datetime("us", "UTC")).dt.epoch("s") for name in TIMES),
        *(pl.col(name).cast(pl.Float64) for name in dollars),
        TAGS,
    ).with_row_index("row", 1)
    cost_frame = selected_columns.with_columns(cost=_amortised(set(schema)))
    _require_amounts(path, cost_frame)
    return cost_frame


def _require_amounts(path: Path, frame: pl.LazyFrame) -> None:
    try:
        bad = (
            frame.filter(~pl.col("cost").is_between(-MAX_DOLLARS, MAX_DOLLARS)).head(1).collect()
        )  # no number is larger than all
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    for row in bad.iter_rows(named=True):
        amounts_text = ", ".join(f"{name} {row[name]}" for name in _columns(row[TEXTS[0]]) if name in row)
        raise Violation(
            "bill-07", f"{path.name}: row {row['row']}: {amounts_text}", f"export dollars, {MAX_DOLLARS:,} at most"
        )


def _amortised(column_names: set[str]) -> pl.Expr:
    """The cost of a line; null if the export lacks a column for it."""
    kind, cost_expression = pl.col(TEXTS[0]), pl.col(COST_COLUMN)
    for name, signed_columns in AMORTISED_COST_COLUMNS.items():
        terms = [
            pl.col(column) * sign if column in column_names else pl.lit(None, pl.Float64)
            for column, sign in signed_columns.items()
        ]
        cost = sum(terms, pl.lit(0.0))
        cost_expression = pl.when(kind == name).then(cost).otherwise(cost_expression)
    if RESERVATION_COLUMN not in column_names:
        return pl.when(kind == PREPAID_FEE).then(None).otherwise(cost_expression)
    is_prepaid = (
        (kind == PREPAID_FEE)
        & (pl.col(RESERVATION_COLUMN) != "")
        & ~pl.col(RESERVATION_COLUMN).str.contains("capacity-reservation")
    )
    return pl.when(is_prepaid).then(0.0).otherwise(cost_expression)


def _columns(kind: str) -> Sequence[str]:
    """Columns that are needed for the cost of a line."""
    return (
        (RESERVATION_COLUMN, COST_COLUMN)
        if kind == PREPAID_FEE
        else tuple(AMORTISED_COST_COLUMNS.get(kind, (COST_COLUMN,)))
    )


def _is_text(kind: Any) -> bool:
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def _is_map(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.Struct):
        return all(_is_text(struct_field.dtype) or struct_field.dtype == pl.Null for struct_field in kind.fields)
    pair = kind.inner if isinstance(kind, pl.List) else None
    return (
        isinstance(pair, pl.Struct)
        and {struct_field.name for struct_field in pair.fields} == {"key", "value"}
        and _is_map(pair)
    )


def _unreadable(path: Path, error: Exception) -> Violation:
    observation = f"--bill {path}: {str(error).splitlines()[0]}"
    return Violation("bill-07", observation, "name a Parquet file of a CUR 2.0 export")


# Rows


def _time_and_cost(path: Path, row: Mapping[str, Any]) -> tuple[int, int, Decimal]:
    """Time and cost of a line. A line without an end belongs to the moment of its start."""
    where, kind = f"{path.name}: row {row['row']}", row[TEXTS[0]]
    start, end = (row[name] for name in TIMES)
    end = start if end is None else end
    if start is None or not 0 <= start <= end < LAST:
        observation = f"{where}: {' and '.join(f'{name} {row[name]}' for name in TIMES)}, in seconds since 1970"
        raise Violation("bill-07", observation, "export a line that has a start and no end before it")
    if (currency := row["line_item_currency_code"]) != "USD":
        raise Violation("bill-07", f"{where}: currency {currency!r}", "export the bill in USD")
    if row["cost"] is None:
        column = next((name for name in _columns(kind) if row.get(name) is None), "")
        raise Violation("bill-07", f"{where}: {kind} without {column}", f"export the column {column}")
    return start, end, Decimal(str(row["cost"]))


def _discount(row: Mapping[str, Any]) -> Decimal:
    """The contract discount of a line, if the export has both costs."""
    before, after = (row.get(name) for name in (COST_COLUMN, NET_COST_COLUMN))
    is_known = before is not None and after is not None and isfinite(before) and isfinite(after)
    return Decimal(str(before)) - Decimal(str(after)) if is_known else Decimal()


def _refuse_duplicate(path: Path, row: Mapping[str, Any], file_by_line: dict[tuple[Any, ...], Path]) -> None:
    """Refuse a line that was read before: from two versions of one export, or from copied parts."""
    if not row.get(IDENTITY):
        return
    key = (row[IDENTITY], row.get(INTERVAL), row[TIMES[0]], *(row[name] for name in TEXTS))
    if previous_path := file_by_line.get(key):
        files_text = f"{path.name} twice" if previous_path == path else f"{previous_path.name} and {path.name}"
        observation = f"line {row[IDENTITY]} in {files_text}, of {iso_time(row[TIMES[0]])}"
        raise Violation("bill-07", observation, "name one version of one export: the line would count twice")
    file_by_line[key] = path


def _key(row: Mapping[str, Any], tags: Mapping[str, str]) -> _Key:
    if (
        pool := tags.get(_normalized_key(POOL_TAG), "")
        if _is_ec2_machine(row) and row[TEXTS[0]] not in UNUSED_COMMITMENT_TYPES
        else ""
    ):
        return _Key(pool, _purchase(row), "", "", "")
    namespace = next((tags[key] for key in _NAMESPACES if key in tags), "")
    description = " ".join(filter(None, (_description(row), namespace)))
    return _Key("", _category(row), description, tags.get(_normalized_key(vocabulary.TENANT_TAG), ""), namespace)


def _has_environment_tag(kind: pl.DataType, environment: str) -> pl.Expr:
    """Whether a tag has the environment's name: a filter before rows are read one by one."""
    tags = pl.col(TAGS)
    if isinstance(kind, pl.Struct):
        return pl.any_horizontal(
            pl.lit(False), *(tags.struct.field(field.name).eq(environment).fill_null(False) for field in kind.fields)
        )
    if kind == pl.Null:
        return pl.lit(False)
    return tags.list.eval(pl.element().struct.field("value") == environment).list.any().fill_null(False)


def _pairs(tags: Any) -> list[tuple[str, str]]:
    """A map of Parquet: polars makes a list of key and value of it, and writers without maps a structure."""
    if isinstance(tags, dict):
        return [(key, value) for key, value in tags.items() if value]
    return [(pair["key"], pair["value"]) for pair in tags or () if pair and pair["key"] and pair["value"]]


def _normalized_key(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).removeprefix("user_")


_NAMESPACES = tuple(map(_normalized_key, (NAMESPACE_TAG, CLAIM_TAG)))
"""The tag of our class's volumes, and the one that the EBS driver gives to those of every class."""


def _is_ec2_machine(row: Mapping[str, Any]) -> bool:
    return row["line_item_product_code"] == "AmazonEC2" and bool(re.search(_MACHINES, row["line_item_usage_type"]))


def _purchase(row: Mapping[str, Any]) -> str:
    usage = row["line_item_usage_type"]
    if "SpotUsage" in usage:
        return PurchaseKind.SPOT
    if "CapacityBlock" in usage:
        return PurchaseKind.CAPACITY_BLOCK
    # An on-demand capacity reservation: its used and its unused part.
    return PurchaseKind.RESERVATION if re.search("Reservation|DedicatedRes|Unused", usage) else PurchaseKind.ON_DEMAND


def _category(row: Mapping[str, Any]) -> str:
    product, usage = row["line_item_product_code"], row["line_item_usage_type"]
    if product == "AmazonS3":
        return UsageKind.S3
    if "SnapshotUsage" in usage:
        return UsageKind.SNAPSHOT
    if "VolumeUsage" in usage or product == "AmazonEFS":
        return UsageKind.STORAGE
    return UsageKind.EGRESS if "DataTransfer-Out" in usage or "NatGateway" in usage else "other"


def _description(row: Mapping[str, Any]) -> str:
    product, kind = row["line_item_product_code"], row[TEXTS[0]]
    return product if kind in USAGE_LINE_TYPES else f"{product} {UNUSED_COMMITMENT_TYPES.get(kind, kind)}".strip()
