"""Costs other than nodes: volumes, snapshots, traffic, objects under a prefix, and shared costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import polars as pl

from tenancy.catalog import vocabulary
from tenancy.catalog.prices import MONTH_HOURS
from tenancy.catalog.text import pluralize
from tenancy.chargeback.bill import TaggedCosts
from tenancy.chargeback.claims import NO_TENANT, PLATFORM, Claims, is_not_tenant, timeline
from tenancy.chargeback.model import HOUR, BillingUnit, Category, ChargebackReport, CostLine, DataFinding
from tenancy.chargeback.rounding import divide_by_weights, rounded
from tenancy.chargeback.tables import NO_AMOUNT
from tenancy.planning.aws.prices import MICRO
from tenancy.planning.common.names import NAMESPACE_TAG
from tenancy.rules.catalogue import Violation
from tenancy.spec.fields.costs import UsageKind
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant


class _Item(NamedTuple):
    kind: str
    tenant: str
    namespace: str
    bucket: str
    prefix: str
    description: str
    micro: int
    start: int
    end: int


def add_lines(
    report: ChargebackReport, table: pl.DataFrame, namespace_claims: Claims, known_tenants: Collection[str]
) -> None:
    """Add the table's lines in the range; the payer is the tenant of the line, of its namespace or of its prefix."""
    report_range = (report.periods[0].start, report.periods[-1].end)
    unknown_owners: Counter[tuple[str, str]] = Counter()
    for item in _items(report, table, report_range):
        owners = set()
        for owner, start, end in _payers(report, item, namespace_claims, known_tenants):
            length = max(item.end - item.start, 1)
            for number, period in enumerate(report.periods):
                overlap = min(end, period.end) - max(start, period.start)
                is_moment = item.start == item.end and period.start <= start < period.end
                if overlap > 0 or is_moment:
                    # The part of each period is rounded separately, so that it does not depend on the report's range.
                    amount = item.micro if is_moment else rounded(item.micro * overlap, length)
                    _add_cost(report, BillingUnit(number, "", item.kind), owner, item.kind, amount, item.description)
                    owners.add(owner)
        unknown_owners.update(
            (owner, _payer_text(item, owner)) for owner in owners if is_not_tenant(owner) and owner != PLATFORM
        )
    for (owner, payer_text), count in sorted(unknown_owners.items()):
        rule = "bill-08" if owner == NO_TENANT else "bill-03"
        report.findings.append(
            DataFinding(rule, f"{pluralize(count, 'line')} {payer_text}", f"they are charged to {owner}")
        )


def add_shared_costs(report: ChargebackReport) -> None:
    """Add the costs that all tenants share, by the hour."""
    for number, period in enumerate(report.periods):
        for name, price in sorted(report.environment.costs.shared.items()):
            amount = rounded(int(price * MICRO) * (period.end - period.start), HOUR)
            _add_cost(report, BillingUnit(number, "", "shared"), PLATFORM, Category.OTHER, amount, name)


def add_billed_costs(
    report: ChargebackReport,
    tagged_costs: Sequence[TaggedCosts],
    namespace_claims: Claims,
    known_tenants: Collection[str],
) -> None:
    """Add a bill's lines without a pool; the tenant of the namespace pays, else that of the tag, else the platform."""
    unknown_payers: dict[tuple[str, str], int] = defaultdict(int)
    for item in tagged_costs:
        period = report.periods[item.period]
        owner, tag = item.tenant or PLATFORM, f"{vocabulary.TENANT_TAG}={item.tenant}, an unknown tenant"
        unknown = bool(item.tenant) and item.tenant not in known_tenants
        if item.namespace in namespace_claims:
            # The bill has the cost of a volume, and the claims have the tenant of its namespace, hour by hour.
            owner_intervals = timeline(namespace_claims[item.namespace], (period.start, period.end))
            parts = divide_by_weights(item.micro, [end - start for _, start, end in owner_intervals])
            owners = [(owner, part) for (owner, _, _), part in zip(owner_intervals, parts, strict=True)]
            tag = f"{NAMESPACE_TAG}={item.namespace}, which did not belong to one tenant all the time"
        elif item.namespace and (unknown or not item.tenant):
            owners = [(NO_TENANT, item.micro)]
            tag = f"{NAMESPACE_TAG}={item.namespace}, which belongs to no tenant"
        else:
            owners = [(NO_TENANT if unknown else owner, item.micro)]
        for owner, amount in owners:
            _add_cost(
                report, BillingUnit(item.period, "", item.category), owner, item.category, amount, item.description
            )
            if is_not_tenant(owner) and owner != PLATFORM:
                unknown_payers[tag, owner] += amount
    for (tag, owner), amount in sorted(unknown_payers.items()):
        rule = "bill-08" if owner == NO_TENANT else "bill-03"
        observation = f"${amount / MICRO:,.2f} billed with the tag {tag}"
        report.findings.append(DataFinding(rule, observation, f"they are charged to {owner}"))


def _add_cost(
    report: ChargebackReport, billing_unit: BillingUnit, owner: str, kind: str, amount: int, description: str
) -> None:
    report.bills[billing_unit] = report.bills.get(billing_unit, 0) + amount
    category = Category(kind) if kind in set(Category) else Category.OTHER
    report.lines.append(CostLine(billing_unit, owner, category, "", amount, detail=description or kind))


def _items(report: ChargebackReport, table: pl.DataFrame, report_range: tuple[int, int]) -> list[_Item]:
    texts = ["kind", "id", "tenant", "namespace", "bucket", "prefix"]
    rows = table.with_columns(pl.col(texts).cast(pl.String)).with_columns(
        pl.col("start").fill_null(report_range[0]), pl.col("end").fill_null(report_range[1])
    )
    line_rows, totals = [], defaultdict(list)
    for row in rows.sort(pl.all()).unique(maintain_order=True).iter_rows(named=True):
        if row["end"] < report_range[0] or row["start"] >= report_range[1]:
            continue
        if row["kind"] not in {*UsageKind, "overhead", "other"}:
            kinds = ", ".join((*UsageKind, "overhead", "other"))
            raise Violation("bill-07", f"lines: kind: {row['kind']!r}", f"use one of {kinds}")
        if row["bucket"] and not row["prefix"] and row["dollars"] != NO_AMOUNT:
            totals[row["bucket"], row["start"], row["end"]].append(row)
        else:
            line_rows.append(row)
    items = []
    for (bucket, start, end), bucket_rows in sorted(totals.items()):
        parts = [row for row in line_rows if (row["bucket"], row["start"], row["end"]) == (bucket, start, end)]
        parts = [row for row in parts if row["dollars"] == NO_AMOUNT and row["quantity"]]
        line_rows = [row for row in line_rows if row not in parts]
        amount = sum(row["dollars"] for row in bucket_rows)
        if not parts:
            items += [_item(row, row["dollars"]) for row in bucket_rows]
        split = divide_by_weights(amount, [row["quantity"] for row in parts]) if parts else []
        items += [_item(row, part) for row, part in zip(parts, split, strict=True)]
    for row in line_rows:
        amount = row["dollars"] if row["dollars"] != NO_AMOUNT else _amount_by_rate(report, row)
        if amount is not None:
            items.append(_item(row, amount))
    return items


def _item(row: dict[str, Any], amount: int) -> _Item:
    place = f"{row['bucket']}/{row['prefix']}" if row["bucket"] else row["namespace"]
    description = " ".join(filter(None, (row["id"], place)))
    owner_fields = (row["tenant"], row["namespace"], row["bucket"], row["prefix"])
    return _Item(row["kind"], *owner_fields, description, amount, row["start"], row["end"])


def _amount_by_rate(report: ChargebackReport, row: dict[str, Any]) -> int | None:
    rate = report.environment.costs.rates.get(row["kind"]) if row["kind"] in set(UsageKind) else None
    if rate is None:
        observation = (
            f"{row['quantity'] / MICRO:,.2f} GiB of {row['kind']} {row['id'] or row['namespace']} without a rate"
        )
        report.findings.append(DataFinding("bill-01", observation.rstrip(), "they are in no line"))
        return None
    amount = int(rate * MICRO) * row["quantity"]
    if row["kind"] == UsageKind.EGRESS:
        return rounded(amount, MICRO)
    return rounded(amount * (row["end"] - row["start"]), MICRO * MONTH_HOURS * HOUR)


def _payers(
    report: ChargebackReport, item: _Item, namespace_claims: Claims, known_tenants: Collection[str]
) -> list[tuple[str, int, int]]:
    if item.kind == "overhead":
        return [(PLATFORM, item.start, item.end)]
    if item.tenant:
        return [(item.tenant if item.tenant in known_tenants else NO_TENANT, item.start, item.end)]
    if item.namespace:
        return timeline(namespace_claims.get(item.namespace, {}), (item.start, max(item.end, item.start + 1)))
    if item.bucket:
        return [(_payer_of_prefix(report.environment, report.tenants, item.bucket, item.prefix), item.start, item.end)]
    return [(NO_TENANT, item.start, item.end)]


def _payer_text(item: _Item, owner: str) -> str:
    """The owner of a line without exactly one tenant, in words."""
    if item.tenant:
        return f"of unknown tenant {item.tenant}"
    if item.namespace:
        owners = "no tenant" if owner == NO_TENANT else "more than one tenant"
        return f"of namespace {item.namespace}, which belongs to {owners}"
    return f"of {item.kind} with neither tenant, namespace nor bucket"


def _payer_of_prefix(environment: Environment, tenants: Sequence[Tenant], bucket: str, prefix: str) -> str:
    """The payer of a prefix: its only writer; without writers, its only reader. The platform pays for any other prefix,
    and for objects outside of all prefixes."""
    if bucket not in environment.buckets or not prefix:
        return PLATFORM
    grants = [
        (tenant.tenant, grant.access)
        for tenant in tenants
        for grant in tenant.storage
        if grant.bucket == bucket and prefix.startswith(grant.prefix)
    ]
    writers = sorted({name for name, access in grants if access is not Access.READ_ONLY})
    readers = sorted({name for name, _ in grants})
    payers = writers or readers
    return payers[0] if len(payers) == 1 else PLATFORM
