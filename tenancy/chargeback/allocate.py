"""Allocation of every node's cost, to the last millionth of a dollar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tenancy.chargeback.claims import NO_DATA, PLATFORM, UNKNOWN, named
from tenancy.chargeback.measures import measure
from tenancy.chargeback.model import HOUR, BillingUnit, Category, ChargebackReport, CostLine, DataFinding, Idle
from tenancy.chargeback.periods import Period, Window, windows
from tenancy.chargeback.rounding import rounded, shared
from tenancy.chargeback.sweep import above, cut, lent, weigh
from tenancy.chargeback.tables import Tables
from tenancy.chargeback.usage import (
    Guarantees,
    guarantees_of,
    held_devices,
    marks,
    measured,
    nodes_of,
    note_crowded,
    note_missing,
    promised_of,
)
from tenancy.planning.aws.prices import MICRO
from tenancy.schema.costs import OverheadKey, PurchaseKind
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

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
    whole = (periods[0].start, periods[-1].end)
    borders = {mark for mark in marks(tables.guarantees) if whole[0] < mark < whole[1]}
    found = windows(list(periods), borders, tables.gaps)
    guarantees = guarantees_of(environment, tenants, tables.guarantees, found)
    nodes = cut(nodes_of(report, tables.nodes), found)
    report.measures = {
        name: measure(environment, name) for name in sorted(set(nodes["pool"].unique()) & environment.pools.keys())
    }
    nodes = measured(report, nodes)
    held = held_devices(report, tables, nodes, whole, found)
    note_missing(report, found, nodes)
    rows, strange, over = weigh(held, ("node", *_POT))
    if over.height:
        note_crowded(report, over)
    drafts = _share(report, nodes, rows, strange, guarantees, found)
    report.promised = promised_of(report, nodes, guarantees, found)
    _price(report, nodes, drafts, found, billed)
    return report


# Allocation


@dataclass(slots=True)
class UnpricedLine:
    """A line before it has a price."""

    pot: BillingUnit
    tenant: str
    category: Category
    flavor: str
    cost: int
    """Millionths of a dollar for a node-hour."""
    weight: int
    devices: int = 0


_POT = ("window", "pool", "instance", "purchase", "cost")


def _share(
    report: ChargebackReport,
    nodes: pl.DataFrame,
    rows: pl.DataFrame,
    strange: pl.DataFrame,
    guarantees: Guarantees,
    found: Sequence[Window],
) -> list[UnpricedLine]:
    seconds = pl.col("end") - pl.col("start")
    by_pot = nodes.group_by(*_POT, "capacity", "known").agg(seconds=seconds.sum()).sort(*_POT).iter_rows(named=True)
    held: dict[tuple, list[tuple[str, str, int, int]]] = defaultdict(list)
    sums = rows.group_by(*_POT, "owner", "flavor").agg(
        pl.col("weight").sum(), devices=(seconds * pl.col("count")).sum(), odd=pl.col("strange").max()
    )
    for row in sums.sort(*_POT, "owner", "flavor").iter_rows():
        held[row[:5]].append(row[5:9])
    apart = strange.group_by(*_POT).agg(pl.col("unknown").sum())
    unknown = {row[:5]: row[5] for row in apart.select(*_POT, "unknown").iter_rows()}
    over = _borrowed(rows, guarantees)
    credits = _credits(report, rows, guarantees, over, found) if report.environment.costs.lender_credit else {}
    report.work = _work(rows, found)
    drafts: list[UnpricedLine] = []
    for pot in by_pot:
        key = tuple(pot[name] for name in _POT)
        drafts += _pot(
            report, pot, held.get(key, []), unknown.get(key, 0), guarantees, over, credits, found[pot["window"]]
        )
    return drafts


def _pot(
    report: ChargebackReport,
    pot: Mapping,
    held: Sequence[tuple[str, str, int, int]],
    unknown: int,
    guarantees: Guarantees,
    over: Borrowed,
    credits: Mapping[tuple[int, str, str], tuple[dict[str, int], int, int]],
    window: Window,
) -> Iterator[UnpricedLine]:
    """Allocation of the node-seconds of nodes with the same price, in one window."""
    where, pool = BillingUnit(window.period, pot["pool"], pot["purchase"]), pot["pool"]
    whole, cost = pot["seconds"] * pot["capacity"], pot["cost"]
    made = report.measures.get(pool)
    before = report.idle.get(where, Idle(0, 0, 0, 0))
    report.idle[where] = Idle(before.whole + whole, before.held, before.idle, before.credited)
    if window.gap:
        yield UnpricedLine(where, NO_DATA, Category.MISSING, "", cost, whole)
        return
    if not pot["known"]:
        yield UnpricedLine(where, UNKNOWN, Category.MISSING, "", cost, whole)
        return
    credited: dict[str, int] = defaultdict(int)
    taken = 0
    for tenant, flavor, weight, devices in held:
        taken += weight
        all_held, above_it = over.get((pot["window"], pool, tenant, flavor), (0, 0))
        borrowed = weight * above_it // all_held if all_held else 0
        if weight - borrowed or not borrowed:
            part = devices - (devices * above_it // all_held if all_held else 0)
            yield UnpricedLine(where, tenant, Category.HELD, flavor, cost, weight - borrowed, part)
        if borrowed:
            yield UnpricedLine(where, tenant, Category.BORROWED, flavor, cost, borrowed, devices * above_it // all_held)
            lenders, lent_by_all, of_all = credits.get((pot["window"], pool, flavor), ({}, 0, 0))
            if of_all:
                percent = report.environment.costs.lender_credit
                credit = borrowed * percent * min(lent_by_all, of_all) // (100 * of_all)
                for name, amount in zip(lenders, shared(credit, list(lenders.values())), strict=True):
                    credited[name] += amount
    if unknown:
        yield UnpricedLine(where, UNKNOWN, Category.MISSING, "", cost, unknown)
    idle, back = whole - taken - unknown, sum(credited.values())
    report.idle[where] = Idle(before.whole + whole, before.held + taken, before.idle + idle, before.credited + back)
    for name, amount in sorted(credited.items()):
        if amount:
            yield UnpricedLine(where, name, Category.CREDIT, "", cost, -amount)
    if made and made.owner:
        bearers = {made.owner: 1}
    else:
        bearers = defaultdict(int)
        for (name, flavor), share in sorted(guarantees.get((pot["window"], pool), {}).items()):
            bearers[name] += share.count * made.of.get(flavor, 0) if made else 0
    if not sum(bearers.values()):
        bearers = {PLATFORM: 1}
    for name, amount in zip(bearers, shared(idle + back, list(bearers.values())), strict=True):
        if amount:
            yield UnpricedLine(where, name, Category.IDLE, "", cost, amount)


def _borrowed(rows: pl.DataFrame, guarantees: Guarantees) -> Borrowed:
    keys = ["window", "pool", "owner", "flavor"]
    promised = pl.DataFrame(
        [(w, pool, name, flavor, s.count) for (w, pool), of in guarantees.items() for (name, flavor), s in of.items()],
        dict.fromkeys(keys, pl.String) | {"window": pl.Int64, "guaranteed": pl.Int64},
        orient="row",
    )
    counted = rows.filter((pl.col("count") > 0) & ~pl.col("owner").str.starts_with("("))
    if not counted.height:
        return {}
    return {row[:4]: (row[4], row[5]) for row in above(counted, promised, keys).iter_rows()}


def _credits(
    report: ChargebackReport, rows: pl.DataFrame, guarantees: Guarantees, over: Borrowed, found: Sequence[Window]
) -> dict[tuple[int, str, str], tuple[dict[str, int], int, int]]:
    """(window, pool, flavor) -> the amount lent by each lender, for proportions, and the total device-seconds lent and
    borrowed."""
    of_all: dict[tuple[int, str, str], int] = defaultdict(int)
    for (window, pool, _, flavor), (_, borrowed) in over.items():
        of_all[window, pool, flavor] += borrowed
    events: dict[tuple[int, str, str], list[tuple[int, str, int]]] = defaultdict(list)
    counted = rows.filter((pl.col("count") > 0) & ~pl.col("owner").str.starts_with("("))
    columns = ("window", "pool", "flavor", "owner", "start", "end", "count")
    for window, pool, flavor, owner, start, end, count in counted.select(*columns).iter_rows():
        events[window, pool, flavor] += [(start, owner, count), (end, owner, -count)]
    made = {}
    for key, of in sorted(events.items()):
        window, pool, flavor = key
        measured = report.measures.get(pool)
        if measured is None or measured.owner:
            continue
        promised = {
            name: (share.count, share.lends)
            for (name, what), share in guarantees.get((window, pool), {}).items()
            if what == flavor
        }
        lenders, total = lent(of, promised, found[window].start, found[window].end)
        if total:
            made[key] = (dict(sorted(lenders.items())), total, of_all[key])
    return made


def _work(rows: pl.DataFrame, found: Sequence[Window]) -> pl.DataFrame:
    """Capacity held by each workload, by category of its charge."""
    period = pl.Series([window.period for window in found])
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


def _price(
    report: ChargebackReport,
    nodes: pl.DataFrame,
    drafts: Sequence[UnpricedLine],
    found: Sequence[Window],
    billed: Mapping[BillingUnit, int] | None,
) -> None:
    """Turn drafts into lines: the bill of each pot is allocated in proportion to the value of its drafts."""
    seconds = pl.col("end") - pl.col("start")
    costs: dict[BillingUnit, dict[tuple[str, int], int]] = defaultdict(lambda: defaultdict(int))
    columns = ("window", "pool", "purchase", "instance", "cost")
    for window, pool, purchase, instance, cost, total in (
        nodes.group_by(columns).agg(seconds=seconds.sum()).sort(columns).iter_rows()
    ):
        costs[BillingUnit(found[window].period, pool, purchase)][instance, cost] += total
    by_pot: dict[BillingUnit, list[UnpricedLine]] = defaultdict(list)
    for draft in drafts:
        by_pot[draft.pot].append(draft)
    given_for = None if billed is None else _matched(billed, costs)
    for pot in sorted(by_pot):
        report.rates[pot] = sorted((instance, cost) for instance, cost in costs[pot])
        unpriced = sum(total for (_, cost), total in costs[pot].items() if cost < 0)
        if given_for is not None:
            if pot not in given_for:
                given = f"{sum(costs[pot].values()) / HOUR:,.1f} node-hours of {pot.pool}, {pot.purchase}, on no bill"
                report.findings.append(DataFinding("bill-01", given, "they are in no line"))
                continue
            amount = given_for[pot]
            of = [replace(draft, cost=1) for draft in by_pot[pot]] if unpriced else by_pot[pot]
        else:
            if unpriced:
                kinds = ", ".join(sorted({instance or "no type" for (instance, cost) in costs[pot] if cost < 0}))
                given = f"{unpriced / HOUR:,.1f} node-hours of {pot.pool}, {pot.purchase} {kinds}, without a price"
                report.findings.append(DataFinding("bill-01", given, "they are in no line"))
            of = [draft for draft in by_pot[pot] if draft.cost >= 0]
            amount = rounded(sum(cost * total for (_, cost), total in costs[pot].items() if cost > 0), HOUR)
        if of:
            report.bills[pot] = amount
            report.lines += _lines(pot, _merged(of), amount)
    for pot, amount in sorted((given_for or {}).items()):
        if pot not in by_pot and amount:
            report.bills[pot] = amount
            report.lines.append(CostLine(pot, NO_DATA, Category.MISSING, "", amount))
            given = f"${amount / MICRO:,.2f} billed for {pot.pool}, {pot.purchase}, without an observed node"
            report.findings.append(DataFinding("bill-04", given, f"they are charged to {NO_DATA}"))


def _matched(
    billed: Mapping[BillingUnit, int], costs: Mapping[BillingUnit, Mapping[tuple[str, int], int]]
) -> dict[BillingUnit, int]:
    """The bill by the pots of the observed nodes. A bill distinguishes only spot from other purchases; it has instances
    in a reservation as on-demand."""

    def alike(pot: BillingUnit) -> tuple[int, str, bool]:
        return (pot.period, pot.pool, pot.purchase == PurchaseKind.SPOT)

    seen: dict[tuple[int, str, bool], dict[BillingUnit, int]] = defaultdict(dict)
    for pot, of in sorted(costs.items()):
        unit_cost = sum(max(cost, 0) * total for (_, cost), total in of.items())
        seen[alike(pot)][pot] = unit_cost or sum(of.values())
    made: dict[BillingUnit, int] = defaultdict(int)
    for pot, amount in sorted(billed.items()):
        those = seen.get(alike(pot))
        if not those:
            made[pot] += amount
            continue
        for one, part in zip(those, shared(amount, list(those.values())), strict=True):
            made[one] += part
    return dict(made)


def _merged(drafts: Sequence[UnpricedLine]) -> list[tuple[tuple[str, Category, str], int, int, int]]:
    """(tenant, category, flavor), what it is unit cost, its weight and its devices; in one order."""
    found: dict[tuple[str, Category, str], tuple[int, int, int]] = {}
    for draft in drafts:
        key = (draft.tenant, draft.category, draft.flavor)
        unit_cost, weight, devices = found.get(key, (0, 0, 0))
        found[key] = (unit_cost + draft.weight * draft.cost, weight + draft.weight, devices + draft.devices)
    return [(key, *sums) for key, sums in sorted(found.items())]


def _lines(
    pot: BillingUnit, merged: Sequence[tuple[tuple[str, Category, str], int, int, int]], amount: int
) -> Iterator[CostLine]:
    unit_cost = [each for _, each, _, _ in merged]
    if sum(unit_cost) <= 0:  # a price of 0: by time instead
        unit_cost = [weight for _, _, weight, _ in merged]
    parts = shared(amount, unit_cost)
    for ((tenant, category, flavor), _, weight, devices), part in zip(merged, parts, strict=True):
        if part or weight or devices:
            yield CostLine(pot, tenant, category, flavor, part, weight, devices)


# Costs of the platform itself


def share_overhead(report: ChargebackReport) -> None:
    """The platform's own lines, shared among tenants by the environment's key, within their pots."""
    kept: list[CostLine] = []
    bearers = [_bearers(report, period) for period in range(len(report.periods))]
    for line in report.lines:
        of = bearers[line.pot.period]
        if line.tenant != PLATFORM or not of:
            kept.append(line)
            continue
        values = list(of.values())
        money, weight = shared(line.micro, values), shared(line.weight, values)
        what = line.detail or f"{line.category} {line.flavor}".strip()
        kept += [
            CostLine(line.pot, name, Category.OVERHEAD, "", money[i], weight[i], detail=what)
            for i, name in enumerate(of)
        ]
    report.lines = kept


def _bearers(report: ChargebackReport, period: int) -> dict[str, int]:
    """Tenants among whom the platform's costs of a period are shared, with their weights."""
    weights: dict[str, int] = defaultdict(int)
    match report.environment.costs.overhead:
        case OverheadKey.GUARANTEE:
            for (when, name), unit_cost in report.promised.items():
                weights[name] += unit_cost if when == period else 0
        case OverheadKey.EVEN:
            weights.update((tenant.tenant, 1) for tenant in report.tenants)
            weights.update((line.tenant, 1) for line in report.lines if line.pot.period == period)
        case OverheadKey.COMPUTE:
            for line in report.lines:
                if line.pot.period == period and line.category in {Category.HELD, Category.BORROWED, Category.IDLE}:
                    weights[line.tenant] += line.micro
    return {name: weight for name, weight in sorted(weights.items()) if weight > 0 and not named(name)}


def settle(report: ChargebackReport) -> ChargebackReport:
    """Sort the lines, and check that they add up to the bill."""
    report.lines.sort(key=lambda line: line.order)
    sums: dict[BillingUnit, int] = defaultdict(int)
    for line in report.lines:
        sums[line.pot] += line.micro
    if lost := [pot for pot in {*sums, *report.bills} if sums[pot] != report.bills.get(pot, 0)]:
        raise AssertionError(f"the lines of {min(lost)} do not add up to its bill")
    return report
