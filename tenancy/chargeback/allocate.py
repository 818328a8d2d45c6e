"""Allocation of every node's cost, to the last millionth of a dollar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import polars as pl

from tenancy.catalog.instances import MACHINES
from tenancy.chargeback.claims import NO_DATA, NO_TENANT, PLATFORM, UNKNOWN, claims, named, owners
from tenancy.chargeback.measures import FINE, Measure, measure
from tenancy.chargeback.periods import Period, Window, windows, written
from tenancy.chargeback.rounding import rounded, shared
from tenancy.chargeback.sweep import above, cut, lent, levels, once, weigh
from tenancy.chargeback.tables import Tables
from tenancy.planning.aws.prices import MICRO, bought, node_price
from tenancy.planning.queueing.quota_shares import shares
from tenancy.rules.catalogue import RULES
from tenancy.schema.costs import OverheadKey, PurchaseKind
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

HOUR = 3600
SEEN_PERCENT = 99
"""Part of the hours of nodes.min below which data is missing. A node that is replaced is absent for minutes."""


class Category(StrEnum):
    """Category of a line."""

    HELD = "held"  # within the guarantee
    BORROWED = "borrowed"  # above it
    IDLE = "idle"  # idle capacity of an owned pool, or a share of that of a shared pool
    CREDIT = "credit"  # for lent capacity; negative
    OVERHEAD = "overhead"  # a share of the platform's own costs
    MISSING = "missing"  # hours without data, or devices of an unknown type
    STORAGE = "storage"
    SNAPSHOT = "snapshot"
    EGRESS = "egress"
    S3 = "s3"
    OTHER = "other"


class BillingUnit(NamedTuple):
    """Unit of billing: a pool's nodes of one purchase option in one period; without a pool, costs of one kind."""

    period: int
    pool: str
    purchase: str


@dataclass(frozen=True, slots=True)
class CostLine:
    """A part of a bill that one tenant pays, or the platform."""

    pot: BillingUnit
    tenant: str
    category: Category
    flavor: str
    micro: int
    """Millionths of a dollar."""
    weight: int = 0
    """Unit-seconds of the pool's nodes."""
    devices: int = 0
    """Device-seconds that were held."""
    detail: str = ""
    """Kind of cost of a line without a pool."""

    @property
    def order(self) -> tuple[int, bool, str, str, str, str, str, str]:
        """Key by which lines are sorted."""
        where = (self.pot.pool, self.pot.purchase, str(self.category), self.flavor, self.detail)
        return (self.pot.period, named(self.tenant), self.tenant, *where)


@dataclass(frozen=True, slots=True)
class DataFinding:
    """Missing or contradictory data."""

    rule: str
    given: str
    effect: str
    """How the report treats it."""

    def __str__(self) -> str:
        rule = RULES[self.rule]
        return f"given {self.given}; rule {self.rule}: {rule.title}; effect: {self.effect}; change: {rule.fix}"


@dataclass(frozen=True, slots=True)
class Idle:
    """How the idle part of a pool's nodes is computed, in unit-seconds."""

    whole: int
    held: int
    idle: int
    credited: int
    """Borrowed capacity that is allocated as if it had been idle."""


@dataclass(slots=True)
class ChargebackReport:
    """The allocation of an environment's bill to its tenants."""

    environment: Environment
    tenants: Sequence[Tenant]
    periods: Sequence[Period]
    lines: list[CostLine] = field(default_factory=list)
    bills: dict[BillingUnit, int] = field(default_factory=dict)
    """Millionths of a dollar; all lines of a pot add up to it."""
    findings: list[DataFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes that do not concern faults of the data."""
    work: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Capacity held by each workload: a row for each period, pool, purchase, flavor and queue."""
    idle: dict[BillingUnit, Idle] = field(default_factory=dict)
    rates: dict[BillingUnit, list[tuple[str, int]]] = field(default_factory=dict)
    """Instance type and price of its node-hour, for every pot of nodes."""
    measures: dict[str, Measure] = field(default_factory=dict)
    promised: dict[tuple[int, str], int] = field(default_factory=dict)
    """(period, tenant) -> what its guarantees are unit cost by the prices of nodes, for proportions."""

    def hours(self, line: CostLine) -> float:
        """GPU-hours of a line, or node-hours in a pool without GPUs; a slice counts as its part of the node."""
        return self.gpu_hours(line.pot.pool, line.weight)

    def gpu_hours(self, pool: str, weight: int) -> float:
        """GPU-hours of a weight in unit-seconds; node-hours in a pool without GPUs."""
        of = self.measures.get(pool)
        return weight * max(of.gpus, 1) / of.units / HOUR if of else weight / FINE / HOUR


class PoolShare(NamedTuple):
    """Of a pool, in one window."""

    count: int
    lends: int


Guarantees = Mapping[tuple[int, str], Mapping[tuple[str, str], PoolShare]]
"""(window, pool) -> (tenant, flavor) -> share."""
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
    borders = {mark for mark in _marks(tables.guarantees) if whole[0] < mark < whole[1]}
    found = windows(list(periods), borders, tables.gaps)
    guarantees = _guarantees(environment, tenants, tables.guarantees, found)
    nodes = cut(_nodes(report, tables.nodes), found)
    report.measures = {
        name: measure(environment, name) for name in sorted(set(nodes["pool"].unique()) & environment.pools.keys())
    }
    nodes = _measured(report, nodes)
    held = _held(report, tables, nodes, whole, found)
    _missing(report, found, nodes)
    rows, strange, over = weigh(held, ("node", *_POT))
    if over.height:
        _crowded(report, over)
    drafts = _share(report, nodes, rows, strange, guarantees, found)
    report.promised = _promised(report, nodes, guarantees, found)
    _price(report, nodes, drafts, found, billed)
    return report


def _marks(guarantees: pl.DataFrame | None) -> list[int]:
    return [] if guarantees is None else pl.concat([guarantees["start"], guarantees["end"]]).unique().to_list()


def _guarantees(
    environment: Environment, tenants: Sequence[Tenant], table: pl.DataFrame | None, found: Sequence[Window]
) -> Guarantees:
    """Guarantees of every tenant: from the table if there is one, else from today's files."""
    made: dict[tuple[int, str], dict[tuple[str, str], PoolShare]] = defaultdict(dict)
    if table is None:
        for name, share in shares(environment, tenants).items():
            for pool in environment.pools:
                for flavor in environment.flavors_of(pool):
                    if count := share.guaranteed(pool, flavor):
                        lends = share.lent.get(pool, {}).get(flavor, 0)
                        for window in range(len(found)):
                            made[window, pool][name, flavor] = PoolShare(count, lends)
        return made
    for row in cut(table, found).select("window", "pool", "tenant", "flavor", "count", "lends").iter_rows():
        window, pool, name, flavor, count, lends = row
        before = made[window, pool].get((name, flavor), PoolShare(0, 0))
        made[window, pool][name, flavor] = PoolShare(before.count + count, before.lends + lends)
    return made


# Nodes


def _nodes(report: ChargebackReport, table: pl.DataFrame) -> pl.DataFrame:
    """Nodes with their types, without duplicates."""
    environment = report.environment
    nodes = table.with_columns(pl.col("node", "pool", "instance", "purchase").cast(pl.String))
    kinds = nodes.select("pool", "instance", "purchase", "price").unique().sort(pl.all())
    filled = []
    for name, instance, purchase, price in kinds.iter_rows():
        pool = environment.pools.get(name)
        what = instance or (pool.instance if pool else "")
        how = purchase or (str(bought(pool)) if pool else "on-demand")
        cost = price if price >= 0 else node_price(environment, name, what, how)
        filled.append((name, instance, purchase, price, what, how, -1 if cost is None else cost))
    schema = [*kinds.columns, "what", "how", "cost"]
    told = pl.DataFrame(filled, dict.fromkeys(schema, pl.String) | {"price": pl.Int64, "cost": pl.Int64}, orient="row")
    nodes = nodes.join(told, on=kinds.columns).select(
        "node", "pool", pl.col("what").alias("instance"), pl.col("how").alias("purchase"), "cost", "start", "end"
    )
    differ = levels(nodes.with_columns(one=pl.lit(1)), ["node"], count="one").filter(pl.col("count") > 1)
    kinds_of = nodes.group_by("node").agg(pl.struct("pool", "instance", "purchase").n_unique().alias("kinds"))
    both = differ.join(kinds_of.filter(pl.col("kinds") > 1), on="node").sort("node", "start")
    for node, start, end in both.select("node", "start", "end").head(3).iter_rows():
        given = f"node {node} in two pools, or of two kinds, from {written(start)} to {written(end)}"
        report.findings.append(DataFinding("bill-06", given, "it counts for the one that began first"))
    return once(nodes.sort(pl.all()), ["node"])[0]


def _measured(report: ChargebackReport, nodes: pl.DataFrame) -> pl.DataFrame:
    """Nodes with their `capacity` in units, and whether their type is known."""
    environment = report.environment
    known = []
    for pool, instance in nodes.select("pool", "instance").unique().sort(pl.all()).iter_rows():
        of = report.measures.get(pool)
        machine, ours = MACHINES.get(instance), environment.pools[pool].machine if of else None
        fits = bool(of and machine and ours and (machine.gpu, machine.gpus) == (ours.gpu, ours.gpus))
        known.append((pool, instance, of.units if of else FINE, fits))
        if not fits:
            what = f"pool {pool} of {instance or 'no known type'}"
            says = (
                f"which environment.yaml has as {environment.pools[pool].instance}" if of else "not in environment.yaml"
            )
            report.findings.append(DataFinding("bill-02", f"{what}, {says}", f"its cost is charged to {UNKNOWN}"))
    schema = {"pool": pl.String, "instance": pl.String, "capacity": pl.Int64, "known": pl.Boolean}
    return nodes.join(pl.DataFrame(known, schema, orient="row"), on=["pool", "instance"], maintain_order="left")


def _missing(report: ChargebackReport, found: Sequence[Window], nodes: pl.DataFrame) -> None:
    """Report hours without data, and pools with fewer nodes observed than nodes.min."""
    for window in found:
        if window.gap:
            given = f"no data from {written(window.start)} to {written(window.end)}"
            report.findings.append(DataFinding("bill-04", given, f"their cost is charged to {NO_DATA}"))
    environment = report.environment
    seen = dict(nodes.group_by("pool").agg(seconds=(pl.col("end") - pl.col("start")).sum()).iter_rows())
    for name, pool in environment.pools.items():
        always_on = pool.nodes.min * (report.periods[-1].end - report.periods[0].start)
        missing = always_on - seen.get(name, 0)
        if 100 * seen.get(name, 0) < SEEN_PERCENT * always_on:
            price = node_price(environment, name, pool.instance, str(bought(pool)))
            unit_cost = "of unknown price" if price is None else f"${rounded(missing * price, HOUR * MICRO):,}"
            given = f"{missing / HOUR:,.1f} node-hours fewer of pool {name} than its nodes.min"
            report.findings.append(DataFinding("bill-04", given, f"these hours, {unit_cost}, are in no line"))


# Allocations


def _held(
    report: ChargebackReport, tables: Tables, nodes: pl.DataFrame, whole: tuple[int, int], found: Sequence[Window]
) -> pl.DataFrame:
    """Capacity held by each tenant on each node in each window, in units of the node."""
    texts = ("namespace", "workload", "pod", "queue", "tenant", "node", "flavor")
    rows = tables.allocations.filter((pl.col("count") > 0) | (pl.col("cpu") > 0) | (pl.col("memory") > 0))
    one = rows.filter(pl.col("pod").cast(pl.String) != "")
    if one.height:
        keys = ["namespace", "pod", "node", "flavor"]
        one, twice = once(one, keys)
        if twice:
            given = f"{twice / HOUR:,.2f} hours of pods that the data has twice"
            report.findings.append(DataFinding("bill-05", given, "they count once"))
        rows = pl.concat([one, rows.filter(pl.col("pod").cast(pl.String) == "")])
    rows = owners(rows, claims(report.environment, report.tenants, rows, tables.namespaces, whole), whole)
    rows = cut(rows, found).with_columns(pl.col(name).cast(pl.String) for name in texts)
    gaps = [i for i, window in enumerate(found) if window.gap]
    rows = rows.filter(~pl.col("window").is_in(gaps)) if gaps else rows
    there = nodes.select(
        "node", "window", "pool", "instance", "purchase", "cost", "capacity", "known", pl.col("start").alias("from"),
        pl.col("end").alias("to"),
    )  # fmt: skip
    rows = rows.with_row_index("row")
    placed = (
        rows.join(there, on=["node", "window"])
        .with_columns(pl.max_horizontal("start", "from").alias("start"), pl.min_horizontal("end", "to").alias("end"))
        .filter(pl.col("start") < pl.col("end"))
    )
    _homeless(report, rows, placed)
    placed = _units(report, placed)
    _note_unassigned(report, placed)
    return placed.drop("row", "from", "to", "tenant").sort(
        "window", "node", "namespace", "workload", "pod", "flavor", "start", "end", "count"
    )


def _homeless(report: ChargebackReport, rows: pl.DataFrame, placed: pl.DataFrame) -> None:
    """Report capacity held on nodes that are not in the data."""
    length = (pl.col("end") - pl.col("start")).sum()
    there = placed.group_by("row").agg(there=length)
    lost = (
        rows.filter(pl.col("count") > 0)
        .join(there, on="row", how="left")
        .with_columns(lost=(pl.col("end") - pl.col("start") - pl.col("there").fill_null(0)) * pl.col("count"))
        .filter(pl.col("lost") > 0)
        .group_by("node")
        .agg(pl.col("lost").sum(), pl.col("owner").unique().sort())
        .sort("lost", "node", descending=[True, False])
    )
    for node, seconds, who in lost.head(5).iter_rows():
        given = f"{seconds / HOUR:,.2f} device-hours of {', '.join(who[:3])} on {node} when the data has no such node"
        report.findings.append(DataFinding("bill-06", given, "they are in no line"))
    if lost.height > 5:
        rest = int(lost["lost"][5:].sum())
        given = f"{rest / HOUR:,.2f} device-hours on {lost.height - 5} more nodes that the data does not have"
        report.findings.append(DataFinding("bill-06", given, "they are in no line"))


def _units(report: ChargebackReport, placed: pl.DataFrame) -> pl.DataFrame:
    """The part of its node that each row holds: the largest of the parts of its devices, its CPU and its memory.
    `strange` counts devices that the pool does not yield."""
    of = [
        (pool, flavor, units, made.cpu, made.memory, made.gpus)
        for pool, made in report.measures.items()
        for flavor, units in {"": 0, **made.of}.items()
    ]
    schema = {
        "pool": pl.String,
        "flavor": pl.String,
        "each": pl.Int64,
        "cpus": pl.Int64,
        "mib": pl.Int64,
        "gpus": pl.Int64,
    }
    rows = placed.join(pl.DataFrame(of, schema, orient="row"), on=["pool", "flavor"], how="left", maintain_order="left")
    odd = pl.col("each").is_null() | ~pl.col("known") | ((pl.col("flavor") == "") & (pl.col("count") > 0))
    cpu = pl.col("cpu") * pl.col("capacity") // pl.col("cpus")
    memory = (pl.col("memory") // 2**20) * pl.col("capacity") // pl.col("mib")
    # The platform's pods on a GPU node serve all tenants on it; the price of the node is charged by its devices.
    ours = (pl.col("owner") == PLATFORM) & (pl.col("gpus") > 0) & (pl.col("count") == 0)
    rows = rows.with_columns(strange=odd.cast(pl.Int64), device_units=pl.col("count") * pl.col("each")).with_columns(
        pl.when(odd).then(0).otherwise("device_units").alias("device_units"),
        pl.when(odd | ours).then(0).otherwise(pl.max_horizontal("device_units", cpu, memory)).alias("units"),
    )
    strange = (
        rows.filter((pl.col("strange") > 0) & pl.col("known"))
        .group_by("pool", "flavor")
        .agg(seconds=((pl.col("end") - pl.col("start")) * pl.col("count")).sum(), who=pl.col("owner").unique().sort())
        .sort("pool", "flavor")
    )
    for pool, flavor, seconds, who in strange.iter_rows():
        given = f"{seconds / HOUR:,.2f} device-hours of flavor {flavor!r} on pool {pool}, held by {', '.join(who[:3])}"
        report.findings.append(DataFinding("bill-02", given, f"the rest of these nodes is charged to {UNKNOWN}"))
    return rows.drop("each", "cpus", "mib", "gpus")


def _note_unassigned(report: ChargebackReport, placed: pl.DataFrame) -> None:
    whose = (
        placed.filter(pl.col("owner").str.starts_with("(") & (pl.col("owner") != PLATFORM))
        .group_by("owner", "namespace")
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            seconds=((pl.col("end") - pl.col("start")) * pl.col("count")).sum(),
        )
        .sort("owner", "namespace")
    )
    for owner, namespace, start, end, seconds in whose.iter_rows():
        when = f"from {written(start)} to {written(end)}"
        if owner == NO_TENANT:
            given = f"{seconds / HOUR:,.2f} device-hours in {namespace}, which belongs to no tenant, {when}"
            report.findings.append(DataFinding("bill-08", given, f"they are charged to {NO_TENANT}"))
        else:
            who = owner.removeprefix("(disputed: ").removesuffix(")")
            given = f"namespace {namespace} claimed by {who} at one time, {when}: {seconds / HOUR:,.2f} device-hours"
            report.findings.append(
                DataFinding("bill-03", given, f"they are charged to {owner}, and no tenant pays them")
            )


def _crowded(report: ChargebackReport, over: pl.DataFrame) -> None:
    by_node = over.group_by("node").agg(
        pl.col("start").min(), pl.col("end").max(), times=(pl.col("devices") * 100 // pl.col("most")).max()
    )
    for node, start, end, times in by_node.sort("node").head(5).iter_rows():
        given = f"up to {times} % of the devices of {node} held between {written(start)} and {written(end)}"
        report.findings.append(DataFinding("bill-05", given, "its cost is shared in proportion to the allocations"))
    if by_node.height > 5:
        given = f"{by_node.height - 5} more nodes with more devices held than they have"
        report.findings.append(DataFinding("bill-05", given, "their cost is shared in proportion to the allocations"))


def _promised(
    report: ChargebackReport, nodes: pl.DataFrame, guarantees: Guarantees, found: Sequence[Window]
) -> dict[tuple[int, str], int]:
    prices = dict(nodes.group_by("pool").agg(pl.col("cost").max()).iter_rows())
    made: dict[tuple[int, str], int] = defaultdict(int)
    for (window, pool), of in guarantees.items():
        if pool in report.measures:
            length, measured = found[window].end - found[window].start, report.measures[pool]
            for (name, flavor), share in of.items():
                part = share.count * measured.of.get(flavor, 0) * FINE // measured.units
                made[found[window].period, name] += part * length * max(prices.get(pool, 0), 0)
    return made


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
