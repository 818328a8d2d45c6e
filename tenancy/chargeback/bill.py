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

from tenancy.catalog import vocabulary as words
from tenancy.catalog.files import regular_file
from tenancy.chargeback.model import BillingUnit, DataFinding
from tenancy.chargeback.periods import LAST, Period, written
from tenancy.chargeback.rounding import nearest
from tenancy.planning.aws.prices import MICRO
from tenancy.planning.common.names import CLAIM_TAG, ENVIRONMENT_TAG, NAMESPACE_TAG, POOL_TAG
from tenancy.rules.catalogue import Violation
from tenancy.schema.costs import PurchaseKind, UsageKind

UNBLENDED, NET = "line_item_unblended_cost", "line_item_net_unblended_cost"
"""Before and after discounts of a contract; the second is there only where the account has one."""
AMORTISED: Mapping[str, Mapping[str, int]] = {
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
"""What a line costs, as a sum of columns, by `line_item_line_item_type`; all others cost what is unblended. The
amortised cost of AWS's Cost Explorer."""
UNUSED = {"RIFee": "unused reservation", "SavingsPlanRecurringFee": "unused commitment"}
"""Lines that belong to no hour of a node, and their names in the report."""
USED = ("Usage", "DiscountedUsage", "SavingsPlanCoveredUsage")
UPFRONT, RESERVATION = "Fee", "reservation_reservation_a_r_n"
"""Types of lines for a prepaid fee of a reservation. A capacity reservation has no such fee."""
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
"""What polars raises for a damaged file; a panic of its Rust code is no Exception."""
NEEDED = (*TEXTS, *TIMES, UNBLENDED, TAGS)
ELSEWHERE = tuple(kind for kind, of in AMORTISED.items() if not of)
SUMMED = tuple(dict.fromkeys(name for of in AMORTISED.values() for name in of))
MOST = 10**9
"""Max dollars of one line."""
NANO = 10**9
_MACHINES = "BoxUsage|SpotUsage|Reservation|CapacityBlock|DedicatedUsage|DedicatedRes|UnusedBox|UnusedDed"
"""Usage types of instances and of what is reserved for them: AWS Data Exports user guide, "Monitoring your On-Demand
capacity reservations"."""


class TaggedCosts(NamedTuple):
    """Costs without a pool, by the tags that name the owner; empty without a tag."""

    period: int
    tenant: str
    namespace: str
    category: str
    what: str
    micro: int


class Bill(NamedTuple):
    """The costs of an environment by the Cost and Usage Report."""

    pots: dict[BillingUnit, int]
    """Millionths of a dollar of the nodes of each pool."""
    beside: list[TaggedCosts]
    """All other costs."""
    findings: list[DataFinding]
    notes: list[str]


class _Key(NamedTuple):
    """Costs that are charged together; for a pool the product is its purchase option."""

    pool: str
    category: str
    what: str
    tenant: str
    namespace: str


def read(paths: Sequence[Path], periods: Sequence[Period], environment: str) -> Bill:
    """All costs of the environment on the bill in the range; a line of several hours is split between periods."""
    found: dict[tuple[_Key, int, int], Decimal] = defaultdict(Decimal)
    others = less = Decimal()
    unknown: dict[str, int] = defaultdict(int)
    told: dict[tuple[Any, ...], Path] = {}
    files = _files(paths)
    for path in files:
        frame = _scan(path)
        if len(files) > 1 and IDENTITY not in frame.collect_schema():
            given = f"{len(files)} files and {path.name} without column {IDENTITY}"
            raise Violation("bill-07", given, "export it: a line in two files would count twice")
        mine = _tagged(frame.collect_schema()[TAGS], environment)
        theirs = frame.filter(~mine)
        nano = (pl.col("cost") * NANO).round().cast(pl.Int128)  # integers, so that the sum does not depend on the order
        kind = pl.col(TEXTS[0])
        try:
            others += Decimal(theirs.select(nano.sum()).collect().item()) / NANO
            lacking = theirs.filter(pl.col("cost").is_null()).group_by(kind).len().collect()
            rows = frame.filter(mine).collect()
        except UNREADABLE as error:
            raise _unread(path, error) from None
        for name, count in lacking.iter_rows():
            unknown[name] += count
        for row in rows.iter_rows(named=True):
            tags = {_letters(key): value for key, value in _pairs(row[TAGS])}
            if tags.get(_letters(ENVIRONMENT_TAG)) != environment:
                others += Decimal(str(row["cost"] or 0))
                unknown[row[TEXTS[0]]] += row["cost"] is None
                continue
            start, end, cost = _judged(path, row)
            less += _discount(row)
            if cost:
                _once(path, row, told)
            if cost or row[TEXTS[0]] not in ELSEWHERE:
                found[_key(row, tags), start, end] += cost
    bill = _bill(found, periods, others, unknown, environment)
    if round(less, 2):
        bill.notes.append(
            f"{NET} has ${less:,.2f} of discounts on lines of {environment}; costs in this report are before them"
        )
    return bill


def _bill(
    found: Mapping[tuple[_Key, int, int], Decimal],
    periods: Sequence[Period],
    others: Decimal,
    unknown: Mapping[str, int],
    environment: str,
) -> Bill:
    """Round the exact sum of each period to millionths."""
    sums: list[dict[_Key, Fraction]] = [defaultdict(Fraction) for _ in periods]
    outside = Fraction()
    for (key, start, end), cost in found.items():
        micro = Fraction(cost) * MICRO
        outside += micro
        for number, period in enumerate(periods):
            inside = min(end, period.end) - max(start, period.start)
            if inside > 0 or (start == end and period.start <= start < period.end):
                part = micro * Fraction(inside, end - start) if start < end else micro
                sums[number][key] += part
                outside -= part
    pots: dict[BillingUnit, int] = {}
    beside: list[TaggedCosts] = []
    for number, of in enumerate(sums):
        keys = sorted(of)
        for key, amount in zip(keys, nearest([of[key] for key in keys]), strict=True):
            if key.pool:
                pots[BillingUnit(number, key.pool, key.category)] = amount
            elif amount:
                beside.append(TaggedCosts(number, key.tenant, key.namespace, key.category, key.what, amount))
    findings, notes = [], []
    if left := round(outside):
        lies = f"from {written(periods[0].start)} to {written(periods[-1].end)}"
        given = f"${left / MICRO:,.2f} of the bill outside of the range {lies}"
        findings.append(DataFinding("bill-04", given, "they are in no line"))
    tag = f"no tag {ENVIRONMENT_TAG}={environment}"
    if others:
        notes.append(f"${others:,.2f} of the bill have {tag}: they are not part of this environment")
    for kind, count in sorted(unknown.items()):
        if count:
            columns = " or ".join(_columns(kind))
            notes.append(f"the cost of {count} lines {kind} with {tag} is unknown: they have no {columns}")
    return Bill(pots, beside, findings, notes)


# Files


def _files(paths: Sequence[Path]) -> list[Path]:
    """Every file of a bill; a folder means all files in it. A file that is named twice is refused."""
    found: dict[tuple[int, int], Path] = {}
    for given in paths:
        for path in sorted(given.rglob("*.parquet")) if given.is_dir() else [given]:
            try:
                of = regular_file(path).stat()
            except OSError as error:
                raise _unread(path, error) from None
            if before := found.get((of.st_dev, of.st_ino)):
                same = "twice" if before == path else f"and {before}, which is the same file"
                raise Violation("bill-07", f"--bill {path} {same}", "name it once: it would count twice")
            found[of.st_dev, of.st_ino] = path
    if not found:
        raise Violation("bill-07", f"--bill {paths[0]} without a Parquet file", "name the files of a CUR 2.0 export")
    return list(found.values())


def _scan(path: Path) -> pl.LazyFrame:
    """The rows with the needed columns: texts, times in seconds since 1970, tags, and `cost`, which is null if a column
    is empty. Times without a zone are UTC."""
    try:
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        given = frame.collect_schema()
    except (*UNREADABLE, OSError) as error:
        raise _unread(path, error) from None
    for name in NEEDED:
        if name not in given:
            raise Violation("bill-07", f"{path.name} without column {name}", "export CUR 2.0 with resource ids")
    maybe = [name for name in (IDENTITY, INTERVAL, RESERVATION) if name in given]
    dollars = [name for name in (UNBLENDED, NET, *SUMMED) if name in given]
    for names, fits, like in (
        ((*TEXTS, *maybe), _is_text, "texts"),
        (TIMES, lambda kind: isinstance(kind, pl.Datetime), "times"),
        (dollars, lambda kind: kind.is_numeric(), "numbers"),
        ((TAGS,), _is_map, "a map of texts"),
    ):
        for name in names:
            if given[name] != pl.Null and not fits(given[name]):
                raise Violation(
                    "bill-07", f"{path.name}: {name} of {given[name]}", f"export {like}, as CUR 2.0 has them"
                )
    chosen = frame.select(
        *(pl.col(name).cast(pl.String).fill_null("") for name in (*TEXTS, *maybe)),
        *(pl.col(name).cast(pl.Datetime("us", "UTC")).dt.epoch("s") for name in TIMES),
        *(pl.col(name).cast(pl.Float64) for name in dollars),
        TAGS,
    ).with_row_index("row", 1)
    made = chosen.with_columns(cost=_amortised(set(given)))
    _must_be_amounts(path, made)
    return made


def _must_be_amounts(path: Path, frame: pl.LazyFrame) -> None:
    try:
        bad = frame.filter(~pl.col("cost").is_between(-MOST, MOST)).head(1).collect()  # no number is larger than all
    except UNREADABLE as error:
        raise _unread(path, error) from None
    for row in bad.iter_rows(named=True):
        said = ", ".join(f"{name} {row[name]}" for name in _columns(row[TEXTS[0]]) if name in row)
        raise Violation("bill-07", f"{path.name}: row {row['row']}: {said}", f"export dollars, {MOST:,} at most")


def _amortised(given: set[str]) -> pl.Expr:
    """The cost of a line; null if the export lacks a column for it."""
    kind, made = pl.col(TEXTS[0]), pl.col(UNBLENDED)
    for name, of in AMORTISED.items():
        terms = [pl.col(column) * sign if column in given else pl.lit(None, pl.Float64) for column, sign in of.items()]
        cost = sum(terms, pl.lit(0.0))
        made = pl.when(kind == name).then(cost).otherwise(made)
    if RESERVATION not in given:
        return pl.when(kind == UPFRONT).then(None).otherwise(made)
    ahead = (kind == UPFRONT) & (pl.col(RESERVATION) != "") & ~pl.col(RESERVATION).str.contains("capacity-reservation")
    return pl.when(ahead).then(0.0).otherwise(made)


def _columns(kind: str) -> Sequence[str]:
    """Columns that are needed for the cost of a line."""
    return (RESERVATION, UNBLENDED) if kind == UPFRONT else tuple(AMORTISED.get(kind, (UNBLENDED,)))


def _is_text(kind: Any) -> bool:
    return isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def _is_map(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.Struct):
        return all(_is_text(of.dtype) or of.dtype == pl.Null for of in kind.fields)
    pair = kind.inner if isinstance(kind, pl.List) else None
    return isinstance(pair, pl.Struct) and {of.name for of in pair.fields} == {"key", "value"} and _is_map(pair)


def _unread(path: Path, error: Exception) -> Violation:
    given = f"--bill {path}: {str(error).splitlines()[0]}"
    return Violation("bill-07", given, "name a Parquet file of a CUR 2.0 export")


# Rows


def _judged(path: Path, row: Mapping[str, Any]) -> tuple[int, int, Decimal]:
    """Time and cost of a line. A line without an end belongs to the moment of its start."""
    where, kind = f"{path.name}: row {row['row']}", row[TEXTS[0]]
    start, end = (row[name] for name in TIMES)
    end = start if end is None else end
    if start is None or not 0 <= start <= end < LAST:
        given = f"{where}: {' and '.join(f'{name} {row[name]}' for name in TIMES)}, in seconds since 1970"
        raise Violation("bill-07", given, "export a line that has a start and no end before it")
    if (currency := row["line_item_currency_code"]) != "USD":
        raise Violation("bill-07", f"{where}: currency {currency!r}", "export the bill in USD")
    if row["cost"] is None:
        column = next((name for name in _columns(kind) if row.get(name) is None), "")
        raise Violation("bill-07", f"{where}: {kind} without {column}", f"export the column {column}")
    return start, end, Decimal(str(row["cost"]))


def _discount(row: Mapping[str, Any]) -> Decimal:
    """The contract discount of a line, if the export has both costs."""
    before, after = (row.get(name) for name in (UNBLENDED, NET))
    known = before is not None and after is not None and isfinite(before) and isfinite(after)
    return Decimal(str(before)) - Decimal(str(after)) if known else Decimal()


def _once(path: Path, row: Mapping[str, Any], told: dict[tuple[Any, ...], Path]) -> None:
    """Refuse a line that was read before: from two versions of one export, or from copied parts."""
    if not row.get(IDENTITY):
        return
    key = (row[IDENTITY], row.get(INTERVAL), row[TIMES[0]], *(row[name] for name in TEXTS))
    if before := told.get(key):
        both = f"{path.name} twice" if before == path else f"{before.name} and {path.name}"
        given = f"line {row[IDENTITY]} in {both}, of {written(row[TIMES[0]])}"
        raise Violation("bill-07", given, "name one version of one export: the line would count twice")
    told[key] = path


def _key(row: Mapping[str, Any], tags: Mapping[str, str]) -> _Key:
    if pool := tags.get(_letters(POOL_TAG), "") if _compute(row) and row[TEXTS[0]] not in UNUSED else "":
        return _Key(pool, _purchase(row), "", "", "")
    namespace = next((tags[key] for key in _NAMESPACES if key in tags), "")
    what = " ".join(filter(None, (_what(row), namespace)))
    return _Key("", _category(row), what, tags.get(_letters(words.TENANT_TAG), ""), namespace)


def _tagged(kind: pl.DataType, environment: str) -> pl.Expr:
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


def _letters(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).removeprefix("user_")


_NAMESPACES = tuple(map(_letters, (NAMESPACE_TAG, CLAIM_TAG)))
"""The tag of our class's volumes, and the one that the EBS driver gives to those of every class."""


def _compute(row: Mapping[str, Any]) -> bool:
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


def _what(row: Mapping[str, Any]) -> str:
    product, kind = row["line_item_product_code"], row[TEXTS[0]]
    return product if kind in USED else f"{product} {UNUSED.get(kind, kind)}".strip()
