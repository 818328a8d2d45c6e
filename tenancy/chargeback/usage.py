"""What stood and what was held, by window: nodes, guarantees and devices, from the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from tenancy.catalog.instances import MACHINES
from tenancy.chargeback.claims import NO_DATA, NO_TENANT, PLATFORM, UNKNOWN, claims, owners
from tenancy.chargeback.measures import FINE
from tenancy.chargeback.model import HOUR, ChargebackReport, DataFinding
from tenancy.chargeback.periods import Window, written
from tenancy.chargeback.rounding import rounded
from tenancy.chargeback.sweep import cut, levels, once
from tenancy.chargeback.tables import Tables
from tenancy.planning.aws.prices import MICRO, node_price, purchase_kind
from tenancy.planning.queueing.quota_shares import shares
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

SEEN_PERCENT = 99
"""Part of the hours of nodes.min below which data is missing. A node that is replaced is absent for minutes."""


class PoolShare(NamedTuple):
    """Of a pool, in one window."""

    count: int
    lends: int


Guarantees = Mapping[tuple[int, str], Mapping[tuple[str, str], PoolShare]]
"""(window, pool) -> (tenant, flavor) -> share."""


def marks(guarantees: pl.DataFrame | None) -> list[int]:
    """Times at which a guarantee starts or ends."""
    return [] if guarantees is None else pl.concat([guarantees["start"], guarantees["end"]]).unique().to_list()


def guarantees_of(
    environment: Environment, tenants: Sequence[Tenant], table: pl.DataFrame | None, found: Sequence[Window]
) -> Guarantees:
    """Guarantees of every tenant: from the table if there is one, else from today's files."""
    made: dict[tuple[int, str], dict[tuple[str, str], PoolShare]] = defaultdict(dict)
    if table is None:
        for name, share in shares(environment, tenants).items():
            for pool in environment.pools:
                for flavor in environment.flavors_of(pool):
                    if count := share.guaranteed(pool, flavor):
                        lends = share.lending.get(pool, {}).get(flavor, 0)
                        for window in range(len(found)):
                            made[window, pool][name, flavor] = PoolShare(count, lends)
        return made
    for row in cut(table, found).select("window", "pool", "tenant", "flavor", "count", "lends").iter_rows():
        window, pool, name, flavor, count, lends = row
        before = made[window, pool].get((name, flavor), PoolShare(0, 0))
        made[window, pool][name, flavor] = PoolShare(before.count + count, before.lends + lends)
    return made


def nodes_of(report: ChargebackReport, table: pl.DataFrame) -> pl.DataFrame:
    """Nodes with their types, without duplicates."""
    environment = report.environment
    nodes = table.with_columns(pl.col("node", "pool", "instance", "purchase").cast(pl.String))
    kinds = nodes.select("pool", "instance", "purchase", "price").unique().sort(pl.all())
    filled = []
    for name, instance, purchase, price in kinds.iter_rows():
        pool = environment.pools.get(name)
        what = instance or (pool.instance if pool else "")
        how = purchase or (str(purchase_kind(pool)) if pool else "on-demand")
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


def measured(report: ChargebackReport, nodes: pl.DataFrame) -> pl.DataFrame:
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


def note_missing(report: ChargebackReport, found: Sequence[Window], nodes: pl.DataFrame) -> None:
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
            price = node_price(environment, name, pool.instance, str(purchase_kind(pool)))
            unit_cost = "of unknown price" if price is None else f"${rounded(missing * price, HOUR * MICRO):,}"
            given = f"{missing / HOUR:,.1f} node-hours fewer of pool {name} than its nodes.min"
            report.findings.append(DataFinding("bill-04", given, f"these hours, {unit_cost}, are in no line"))


def held_devices(
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


def note_crowded(report: ChargebackReport, over: pl.DataFrame) -> None:
    """Report nodes on which more devices were held than exist."""
    by_node = over.group_by("node").agg(
        pl.col("start").min(), pl.col("end").max(), times=(pl.col("devices") * 100 // pl.col("most")).max()
    )
    for node, start, end, times in by_node.sort("node").head(5).iter_rows():
        given = f"up to {times} % of the devices of {node} held between {written(start)} and {written(end)}"
        report.findings.append(DataFinding("bill-05", given, "its cost is shared in proportion to the allocations"))
    if by_node.height > 5:
        given = f"{by_node.height - 5} more nodes with more devices held than they have"
        report.findings.append(DataFinding("bill-05", given, "their cost is shared in proportion to the allocations"))


def promised_of(
    report: ChargebackReport, nodes: pl.DataFrame, guarantees: Guarantees, found: Sequence[Window]
) -> dict[tuple[int, str], int]:
    """Guaranteed capacity by period and tenant, each unit-second times the node's cost."""
    prices = dict(nodes.group_by("pool").agg(pl.col("cost").max()).iter_rows())
    made: dict[tuple[int, str], int] = defaultdict(int)
    for (window, pool), of in guarantees.items():
        if pool in report.measures:
            length, measured = found[window].end - found[window].start, report.measures[pool]
            for (name, flavor), share in of.items():
                part = share.count * measured.of.get(flavor, 0) * FINE // measured.units
                made[found[window].period, name] += part * length * max(prices.get(pool, 0), 0)
    return made
