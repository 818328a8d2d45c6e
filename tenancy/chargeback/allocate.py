"""Allocation of every node's cost, to the last millionth of a dollar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tenancy.chargeback.claims import NO_DATA, PLATFORM, UNKNOWN, is_not_tenant
from tenancy.chargeback.measures import measure
from tenancy.chargeback.model import HOUR, BillingUnit, Category, ChargebackReport, CostLine, DataFinding, Idle
from tenancy.chargeback.periods import Period, Window, windows
from tenancy.chargeback.rounding import divide_by_weights, rounded
from tenancy.chargeback.sweep import held_above_guarantee, lent_by_tenants, split_by_windows, with_weights
from tenancy.chargeback.tables import Tables
from tenancy.chargeback.usage import (
    Guarantees,
    guarantee_times,
    guaranteed_costs,
    guarantees_of,
    held_devices,
    nodes_of,
    report_crowded_nodes,
    report_missing_data,
    with_capacity,
)
from tenancy.planning.aws.prices import MICRO
from tenancy.spec.fields.costs import OverheadKey, PurchaseKind
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

Borrowed = Mapping[tuple[int, str, str, str], tuple[int, int]]
"""(window, pool, tenant, flavor) -> device-seconds held, and how many of them above the guarantee."""


def allocate(
    environment: Environment,
    tenants: Sequence[Tenant],
    tables: Tables,
    periods: Sequence[Period],
    billed: Mapping[BillingUnit, int] | None = None,
) -> ChargebackReport:
    """Allocate the cost of the nodes. With `billed`, the millionths of a dollar of each pot, these are allocated; else
    the cost of the nodes by the prices of the environment."""
    report = ChargebackReport(environment, tenants, periods)
    report_range = (periods[0].start, periods[-1].end)
    borders = {mark for mark in guarantee_times(tables.guarantees) if report_range[0] < mark < report_range[1]}
    windows_of_report = windows(list(periods), borders, tables.gaps)
    guarantees = guarantees_of(environment, tenants, tables.guarantees, windows_of_report)
    nodes = split_by_windows(nodes_of(report, tables.nodes), windows_of_report)
    report.measures = {
        name: measure(environment, name) for name in sorted(set(nodes["pool"].unique()) & environment.pools.keys())
    }
    nodes = with_capacity(report, nodes)
    allocated = held_devices(report, tables, nodes, report_range, windows_of_report)
    report_missing_data(report, windows_of_report, nodes)
    rows, unknown_device_time, crowded_intervals = with_weights(allocated, ("node", *_UNIT_COLUMNS))
    if crowded_intervals.height:
        report_crowded_nodes(report, crowded_intervals)
    unpriced_lines = _unpriced_lines(report, nodes, rows, unknown_device_time, guarantees, windows_of_report)
    report.promised = guaranteed_costs(report, nodes, guarantees, windows_of_report)
    _price_lines(report, nodes, unpriced_lines, windows_of_report, billed)
    return report


# Allocation


@dataclass(slots=True)
class UnpricedLine:
    """A line before it has a price."""

    billing_unit: BillingUnit
    tenant: str
    category: Category
    flavor: str
    cost: int
    """Millionths of a dollar for a node-hour."""
    weight: int
    devices: int = 0


_UNIT_COLUMNS = ("window", "pool", "instance", "purchase", "cost")


def _unpriced_lines(
    report: ChargebackReport,
    nodes: pl.DataFrame,
    rows: pl.DataFrame,
    unknown_device_time: pl.DataFrame,
    guarantees: Guarantees,
    windows: Sequence[Window],
) -> list[UnpricedLine]:
    seconds = pl.col("end") - pl.col("start")
    by_pot = (
        nodes.group_by(*_UNIT_COLUMNS, "capacity", "known")
        .agg(seconds=seconds.sum())
        .sort(*_UNIT_COLUMNS)
        .iter_rows(named=True)
    )
    rows_by_unit: dict[tuple, list[tuple[str, str, int, int]]] = defaultdict(list)
    sums = rows.group_by(*_UNIT_COLUMNS, "owner", "flavor").agg(
        pl.col("weight").sum(), devices=(seconds * pl.col("count")).sum(), odd=pl.col("strange").max()
    )
    for row in sums.sort(*_UNIT_COLUMNS, "owner", "flavor").iter_rows():
        rows_by_unit[row[:5]].append(row[5:9])
    unknown_by_unit = unknown_device_time.group_by(*_UNIT_COLUMNS).agg(pl.col("unknown").sum())
    unknown = {row[:5]: row[5] for row in unknown_by_unit.select(*_UNIT_COLUMNS, "unknown").iter_rows()}
    borrowed_seconds = _borrowed(rows, guarantees)
    credits = (
        _credits(report, rows, guarantees, borrowed_seconds, windows) if report.environment.costs.lender_credit else {}
    )
    report.work = _work(rows, windows)
    unpriced: list[UnpricedLine] = []
    for unit_row in by_pot:
        key = tuple(unit_row[name] for name in _UNIT_COLUMNS)
        unpriced += _unit_lines(
            report,
            unit_row,
            rows_by_unit.get(key, []),
            unknown.get(key, 0),
            guarantees,
            borrowed_seconds,
            credits,
            windows[unit_row["window"]],
        )
    return unpriced


def _unit_lines(
    report: ChargebackReport,
    unit_row: Mapping,
    allocations: Sequence[tuple[str, str, int, int]],
    unknown: int,
    guarantees: Guarantees,
    borrowed_seconds: Borrowed,
    credits: Mapping[tuple[int, str, str], tuple[dict[str, int], int, int]],
    window: Window,
) -> Iterator[UnpricedLine]:
    """Allocation of the node-seconds of nodes with the same price, in one window."""
    billing_unit, pool = BillingUnit(window.period, unit_row["pool"], unit_row["purchase"]), unit_row["pool"]
    unit_seconds, cost = unit_row["seconds"] * unit_row["capacity"], unit_row["cost"]
    measure = report.measures.get(pool)
    previous_idle = report.idle.get(billing_unit, Idle(0, 0, 0, 0))
    report.idle[billing_unit] = Idle(
        previous_idle.total + unit_seconds, previous_idle.allocated, previous_idle.idle, previous_idle.credited
    )
    if window.gap:
        yield UnpricedLine(billing_unit, NO_DATA, Category.MISSING, "", cost, unit_seconds)
        return
    if not unit_row["known"]:
        yield UnpricedLine(billing_unit, UNKNOWN, Category.MISSING, "", cost, unit_seconds)
        return
    credited: dict[str, int] = defaultdict(int)
    allocated = 0
    for tenant, flavor, weight, devices in allocations:
        allocated += weight
        all_held, above_it = borrowed_seconds.get((unit_row["window"], pool, tenant, flavor), (0, 0))
        borrowed = weight * above_it // all_held if all_held else 0
        if weight - borrowed or not borrowed:
            part = devices - (devices * above_it // all_held if all_held else 0)
            yield UnpricedLine(billing_unit, tenant, Category.HELD, flavor, cost, weight - borrowed, part)
        if borrowed:
            yield UnpricedLine(
                billing_unit, tenant, Category.BORROWED, flavor, cost, borrowed, devices * above_it // all_held
            )
            lenders, lent_by_all, of_all = credits.get((unit_row["window"], pool, flavor), ({}, 0, 0))
            if of_all:
                percent = report.environment.costs.lender_credit
                credit = borrowed * percent * min(lent_by_all, of_all) // (100 * of_all)
                for name, amount in zip(lenders, divide_by_weights(credit, list(lenders.values())), strict=True):
                    credited[name] += amount
    if unknown:
        yield UnpricedLine(billing_unit, UNKNOWN, Category.MISSING, "", cost, unknown)
    idle, credited_total = unit_seconds - allocated - unknown, sum(credited.values())
    report.idle[billing_unit] = Idle(
        previous_idle.total + unit_seconds,
        previous_idle.allocated + allocated,
        previous_idle.idle + idle,
        previous_idle.credited + credited_total,
    )
    for name, amount in sorted(credited.items()):
        if amount:
            yield UnpricedLine(billing_unit, name, Category.CREDIT, "", cost, -amount)
    if measure and measure.owner:
        bearers = {measure.owner: 1}
    else:
        bearers = defaultdict(int)
        for (name, flavor), share in sorted(guarantees.get((unit_row["window"], pool), {}).items()):
            bearers[name] += share.count * measure.units_by_flavor.get(flavor, 0) if measure else 0
    if not sum(bearers.values()):
        bearers = {PLATFORM: 1}
    for name, amount in zip(bearers, divide_by_weights(idle + credited_total, list(bearers.values())), strict=True):
        if amount:
            yield UnpricedLine(billing_unit, name, Category.IDLE, "", cost, amount)


def _borrowed(rows: pl.DataFrame, guarantees: Guarantees) -> Borrowed:
    keys = ["window", "pool", "owner", "flavor"]
    guarantee_rows = pl.DataFrame(
        [
            (window, pool, name, flavor, share.count)
            for (window, pool), shares in guarantees.items()
            for (name, flavor), share in shares.items()
        ],
        dict.fromkeys(keys, pl.String) | {"window": pl.Int64, "guaranteed": pl.Int64},
        orient="row",
    )
    tenant_rows = rows.filter((pl.col("count") > 0) & ~pl.col("owner").str.starts_with("("))
    if not tenant_rows.height:
        return {}
    return {row[:4]: (row[4], row[5]) for row in held_above_guarantee(tenant_rows, guarantee_rows, keys).iter_rows()}


def _credits(
    report: ChargebackReport,
    rows: pl.DataFrame,
    guarantees: Guarantees,
    borrowed_seconds: Borrowed,
    windows: Sequence[Window],
) -> dict[tuple[int, str, str], tuple[dict[str, int], int, int]]:
    """(window, pool, flavor) -> the amount lent by each lender, for proportions, and the total device-seconds lent and
    borrowed."""
    borrowed_by_flavor: dict[tuple[int, str, str], int] = defaultdict(int)
    for (window, pool, _, flavor), (_, borrowed) in borrowed_seconds.items():
        borrowed_by_flavor[window, pool, flavor] += borrowed
    events: dict[tuple[int, str, str], list[tuple[int, str, int]]] = defaultdict(list)
    tenant_rows = rows.filter((pl.col("count") > 0) & ~pl.col("owner").str.starts_with("("))
    columns = ("window", "pool", "flavor", "owner", "start", "end", "count")
    for window, pool, flavor, owner, start, end, count in tenant_rows.select(*columns).iter_rows():
        events[window, pool, flavor] += [(start, owner, count), (end, owner, -count)]
    credits = {}
    for key, lending_events in sorted(events.items()):
        window, pool, flavor = key
        measure = report.measures.get(pool)
        if measure is None or measure.owner:
            continue
        guarantees_by_tenant = {
            name: (share.count, share.lends)
            for (name, share_flavor), share in guarantees.get((window, pool), {}).items()
            if share_flavor == flavor
        }
        lenders, total = lent_by_tenants(
            lending_events, guarantees_by_tenant, windows[window].start, windows[window].end
        )
        if total:
            credits[key] = (dict(sorted(lenders.items())), total, borrowed_by_flavor[key])
    return credits


def _work(rows: pl.DataFrame, windows: Sequence[Window]) -> pl.DataFrame:
    """Capacity held by each workload, by category of its charge."""
    period = pl.Series([window.period for window in windows])
    seconds = pl.col("end") - pl.col("start")
    keys = ("period", "pool", "purchase", "owner", "flavor", "namespace", "workload", "queue")
    return (
        rows.with_columns(period=pl.lit(period).gather(pl.col("window")))
        .with_columns(price=pl.col("cost").clip(0))
        .group_by(*keys)
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            pl.col("count").max(),
            pl.col("weight").sum(),
            devices=(seconds * pl.col("count")).sum(),
            unit_cost=(pl.col("weight").cast(pl.Int128) * pl.col("price")).sum(),
            strange=pl.col("strange").max(),
        )
        .sort(*keys)
    )


# Prices


def _price_lines(
    report: ChargebackReport,
    nodes: pl.DataFrame,
    unpriced_lines: Sequence[UnpricedLine],
    windows: Sequence[Window],
    billed: Mapping[BillingUnit, int] | None,
) -> None:
    """Turn drafts into lines: the bill of each pot is allocated in proportion to the value of its drafts."""
    seconds = pl.col("end") - pl.col("start")
    costs: dict[BillingUnit, dict[tuple[str, int], int]] = defaultdict(lambda: defaultdict(int))
    columns = ("window", "pool", "purchase", "instance", "cost")
    for window, pool, purchase, instance, cost, total in (
        nodes.group_by(columns).agg(seconds=seconds.sum()).sort(columns).iter_rows()
    ):
        costs[BillingUnit(windows[window].period, pool, purchase)][instance, cost] += total
    by_pot: dict[BillingUnit, list[UnpricedLine]] = defaultdict(list)
    for draft in unpriced_lines:
        by_pot[draft.billing_unit].append(draft)
    bill_by_unit = None if billed is None else _bill_by_observed_unit(billed, costs)
    for billing_unit in sorted(by_pot):
        report.rates[billing_unit] = sorted((instance, cost) for instance, cost in costs[billing_unit])
        unpriced = sum(total for (_, cost), total in costs[billing_unit].items() if cost < 0)
        if bill_by_unit is not None:
            if billing_unit not in bill_by_unit:
                observation = (
                    f"{sum(costs[billing_unit].values()) / HOUR:,.1f} node-hours of "
                    f"{billing_unit.pool}, {billing_unit.purchase}, on no bill"
                )
                report.findings.append(DataFinding("bill-01", observation, "they are in no line"))
                continue
            amount = bill_by_unit[billing_unit]
            drafts_to_price = (
                [replace(draft, cost=1) for draft in by_pot[billing_unit]] if unpriced else by_pot[billing_unit]
            )
        else:
            if unpriced:
                kinds = ", ".join(
                    sorted({instance or "no type" for (instance, cost) in costs[billing_unit] if cost < 0})
                )
                observation = (
                    f"{unpriced / HOUR:,.1f} node-hours of {billing_unit.pool}, "
                    f"{billing_unit.purchase} {kinds}, without a price"
                )
                report.findings.append(DataFinding("bill-01", observation, "they are in no line"))
            drafts_to_price = [draft for draft in by_pot[billing_unit] if draft.cost >= 0]
            amount = rounded(sum(cost * total for (_, cost), total in costs[billing_unit].items() if cost > 0), HOUR)
        if drafts_to_price:
            report.bills[billing_unit] = amount
            report.lines += _lines(billing_unit, _sums_by_line(drafts_to_price), amount)
    for billing_unit, amount in sorted((bill_by_unit or {}).items()):
        if billing_unit not in by_pot and amount:
            report.bills[billing_unit] = amount
            report.lines.append(CostLine(billing_unit, NO_DATA, Category.MISSING, "", amount))
            observation = (
                f"${amount / MICRO:,.2f} billed for {billing_unit.pool}, {billing_unit.purchase}, "
                "without an observed node"
            )
            report.findings.append(DataFinding("bill-04", observation, f"they are charged to {NO_DATA}"))


def _bill_by_observed_unit(
    billed: Mapping[BillingUnit, int], costs: Mapping[BillingUnit, Mapping[tuple[str, int], int]]
) -> dict[BillingUnit, int]:
    """The bill by the pots of the observed nodes. A bill distinguishes only spot from other purchases; it has instances
    in a reservation as on-demand."""

    def alike(pot: BillingUnit) -> tuple[int, str, bool]:
        return (pot.period, pot.pool, pot.purchase == PurchaseKind.SPOT)

    weights_by_kind: dict[tuple[int, str, bool], dict[BillingUnit, int]] = defaultdict(dict)
    for billing_unit, costs_by_price in sorted(costs.items()):
        unit_cost = sum(max(cost, 0) * total for (_, cost), total in costs_by_price.items())
        weights_by_kind[alike(billing_unit)][billing_unit] = unit_cost or sum(costs_by_price.values())
    bill_by_unit: dict[BillingUnit, int] = defaultdict(int)
    for billing_unit, amount in sorted(billed.items()):
        unit_weights = weights_by_kind.get(alike(billing_unit))
        if not unit_weights:
            bill_by_unit[billing_unit] += amount
            continue
        for observed_unit, part in zip(
            unit_weights, divide_by_weights(amount, list(unit_weights.values())), strict=True
        ):
            bill_by_unit[observed_unit] += part
    return dict(bill_by_unit)


def _sums_by_line(unpriced_lines: Sequence[UnpricedLine]) -> list[tuple[tuple[str, Category, str], int, int, int]]:
    """(tenant, category, flavor), what it is unit cost, its weight and its devices; in one order."""
    sums_by_key: dict[tuple[str, Category, str], tuple[int, int, int]] = {}
    for draft in unpriced_lines:
        key = (draft.tenant, draft.category, draft.flavor)
        unit_cost, weight, devices = sums_by_key.get(key, (0, 0, 0))
        sums_by_key[key] = (unit_cost + draft.weight * draft.cost, weight + draft.weight, devices + draft.devices)
    return [(key, *sums) for key, sums in sorted(sums_by_key.items())]


def _lines(
    billing_unit: BillingUnit, line_sums: Sequence[tuple[tuple[str, Category, str], int, int, int]], amount: int
) -> Iterator[CostLine]:
    unit_cost = [line_cost for _, line_cost, _, _ in line_sums]
    if sum(unit_cost) <= 0:  # a price of 0: by time instead
        unit_cost = [weight for _, _, weight, _ in line_sums]
    parts = divide_by_weights(amount, unit_cost)
    for ((tenant, category, flavor), _, weight, devices), part in zip(line_sums, parts, strict=True):
        if part or weight or devices:
            yield CostLine(billing_unit, tenant, category, flavor, part, weight, devices)


# Costs of the platform itself


def share_overhead(report: ChargebackReport) -> None:
    """The platform's own lines, shared among tenants by the environment's key, within their pots."""
    lines: list[CostLine] = []
    bearers = [_bearers(report, period) for period in range(len(report.periods))]
    for line in report.lines:
        weights_by_tenant = bearers[line.billing_unit.period]
        if line.tenant != PLATFORM or not weights_by_tenant:
            lines.append(line)
            continue
        values = list(weights_by_tenant.values())
        money, weight = divide_by_weights(line.micro, values), divide_by_weights(line.weight, values)
        detail = line.detail or f"{line.category} {line.flavor}".strip()
        lines += [
            CostLine(line.billing_unit, name, Category.OVERHEAD, "", money[i], weight[i], detail=detail)
            for i, name in enumerate(weights_by_tenant)
        ]
    report.lines = lines


def _bearers(report: ChargebackReport, period: int) -> dict[str, int]:
    """Tenants among whom the platform's costs of a period are shared, with their weights."""
    weights: dict[str, int] = defaultdict(int)
    match report.environment.costs.overhead:
        case OverheadKey.GUARANTEE:
            for (when, name), unit_cost in report.promised.items():
                weights[name] += unit_cost if when == period else 0
        case OverheadKey.EVEN:
            weights.update((tenant.tenant, 1) for tenant in report.tenants)
            weights.update((line.tenant, 1) for line in report.lines if line.billing_unit.period == period)
        case OverheadKey.COMPUTE:
            for line in report.lines:
                if line.billing_unit.period == period and line.category in {
                    Category.HELD,
                    Category.BORROWED,
                    Category.IDLE,
                }:
                    weights[line.tenant] += line.micro
    return {name: weight for name, weight in sorted(weights.items()) if weight > 0 and not is_not_tenant(name)}


def sort_and_check(report: ChargebackReport) -> ChargebackReport:
    """Sort the lines, and check that they add up to the bill."""
    report.lines.sort(key=lambda line: line.order)
    sums: dict[BillingUnit, int] = defaultdict(int)
    for line in report.lines:
        sums[line.billing_unit] += line.micro
    if unbalanced_units := [pot for pot in {*sums, *report.bills} if sums[pot] != report.bills.get(pot, 0)]:
        raise AssertionError(f"the lines of {min(unbalanced_units)} do not add up to its bill")
    return report
