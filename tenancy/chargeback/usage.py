"""Supply and held capacity, by window: nodes, guarantees and devices, from the tables."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from tenancy.catalog.instances import MACHINES
from tenancy.chargeback.claims import NO_DATA, NO_TENANT, PLATFORM, UNKNOWN, claims, owners
from tenancy.chargeback.measures import FINE
from tenancy.chargeback.model import HOUR, ChargebackReport, DataFinding
from tenancy.chargeback.periods import Window, iso_time
from tenancy.chargeback.rounding import rounded
from tenancy.chargeback.sweep import levels, split_by_windows, without_overlaps
from tenancy.chargeback.tables import Tables
from tenancy.planning.aws.prices import MICRO, node_price, purchase_kind
from tenancy.planning.queueing.quota_shares import shares
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

MIN_OBSERVED_PERCENT = 99
"""Part of the hours of nodes.min below which data is missing. A node that is replaced is absent for minutes."""


class PoolShare(NamedTuple):
    """Capacity of a pool in one window."""

    count: int
    lends: int


Guarantees = Mapping[tuple[int, str], Mapping[tuple[str, str], PoolShare]]
"""(window, pool) -> (tenant, flavor) -> share."""


def guarantee_times(guarantees: pl.DataFrame | None) -> list[int]:
    """Times at which a guarantee starts or ends."""
    return [] if guarantees is None else pl.concat([guarantees["start"], guarantees["end"]]).unique().to_list()


def guarantees_of(
    environment: Environment, tenants: Sequence[Tenant], table: pl.DataFrame | None, windows: Sequence[Window]
) -> Guarantees:
    """Guarantees of every tenant: from the table if there is one, else from the files, as on the last of the days."""
    guarantees: dict[tuple[int, str], dict[tuple[str, str], PoolShare]] = defaultdict(dict)
    if table is None:
        last_day = dt.datetime.fromtimestamp(windows[-1].end - 1, dt.UTC).date()
        for name, share in shares(environment, tenants, last_day).items():
            for pool in environment.pools:
                for flavor in environment.flavors_of(pool):
                    if count := share.guaranteed(pool, flavor):
                        lends = share.lending.get(pool, {}).get(flavor, 0)
                        for window in range(len(windows)):
                            guarantees[window, pool][name, flavor] = PoolShare(count, lends)
        return guarantees
    for row in (
        split_by_windows(table, windows).select("window", "pool", "tenant", "flavor", "count", "lends").iter_rows()
    ):
        window, pool, name, flavor, count, lends = row
        previous = guarantees[window, pool].get((name, flavor), PoolShare(0, 0))
        guarantees[window, pool][name, flavor] = PoolShare(previous.count + count, previous.lends + lends)
    return guarantees


def nodes_of(report: ChargebackReport, table: pl.DataFrame) -> pl.DataFrame:
    """Nodes with their types, without duplicates."""
    environment = report.environment
    nodes = table.with_columns(pl.col("node", "pool", "instance", "purchase").cast(pl.String))
    kinds = nodes.select("pool", "instance", "purchase", "price").unique().sort(pl.all())
    kind_rows = []
    for name, instance, purchase, price in kinds.iter_rows():
        pool = environment.pools.get(name)
        resolved_instance = instance or (pool.instance_type if pool else "")
        resolved_purchase = purchase or (str(purchase_kind(pool)) if pool else "on-demand")
        cost = price if price >= 0 else node_price(environment, name, resolved_instance, resolved_purchase)
        kind_rows.append(
            (name, instance, purchase, price, resolved_instance, resolved_purchase, -1 if cost is None else cost)
        )
    schema = [*kinds.columns, "what", "how", "cost"]
    filled_kinds = pl.DataFrame(
        kind_rows, dict.fromkeys(schema, pl.String) | {"price": pl.Int64, "cost": pl.Int64}, orient="row"
    )
    nodes = nodes.join(filled_kinds, on=kinds.columns).select(
        "node", "pool", pl.col("what").alias("instance"), pl.col("how").alias("purchase"), "cost", "start", "end"
    )
    overlapping_nodes = levels(nodes.with_columns(one=pl.lit(1)), ["node"], count="one").filter(pl.col("count") > 1)
    kinds_of = nodes.group_by("node").agg(pl.struct("pool", "instance", "purchase").n_unique().alias("kinds"))
    ambiguous_nodes = overlapping_nodes.join(kinds_of.filter(pl.col("kinds") > 1), on="node").sort("node", "start")
    for node, start, end in ambiguous_nodes.select("node", "start", "end").head(3).iter_rows():
        observation = f"node {node} in two pools, or of two kinds, from {iso_time(start)} to {iso_time(end)}"
        report.findings.append(DataFinding("bill-06", observation, "it counts for the one that began first"))
    return without_overlaps(nodes.sort(pl.all()), ["node"])[0]


def with_capacity(report: ChargebackReport, nodes: pl.DataFrame) -> pl.DataFrame:
    """Nodes with their `capacity` in units, and whether their type is known."""
    environment = report.environment
    kind_rows = []
    for pool, instance in nodes.select("pool", "instance").unique().sort(pl.all()).iter_rows():
        measure = report.measures.get(pool)
        machine, pool_machine = MACHINES.get(instance), environment.pools[pool].machine if measure else None
        is_same_machine = bool(
            measure
            and machine
            and pool_machine
            and (machine.gpu, machine.gpus) == (pool_machine.gpu, pool_machine.gpus)
        )
        kind_rows.append((pool, instance, measure.units if measure else FINE, is_same_machine))
        if not is_same_machine:
            pool_text = f"pool {pool} of {instance or 'no known type'}"
            problem_text = (
                f"which environment.yaml has as {environment.pools[pool].instance_type}"
                if measure
                else "not in environment.yaml"
            )
            report.findings.append(
                DataFinding("bill-02", f"{pool_text}, {problem_text}", f"its cost is charged to {UNKNOWN}")
            )
    schema = {"pool": pl.String, "instance": pl.String, "capacity": pl.Int64, "known": pl.Boolean}
    return nodes.join(pl.DataFrame(kind_rows, schema, orient="row"), on=["pool", "instance"], maintain_order="left")


def report_missing_data(report: ChargebackReport, windows: Sequence[Window], nodes: pl.DataFrame) -> None:
    """Report hours without data, and pools with fewer nodes observed than nodes.min."""
    for window in windows:
        if window.gap:
            observation = f"no data from {iso_time(window.start)} to {iso_time(window.end)}"
            report.findings.append(DataFinding("bill-04", observation, f"their cost is charged to {NO_DATA}"))
    environment = report.environment
    observed_seconds = dict(nodes.group_by("pool").agg(seconds=(pl.col("end") - pl.col("start")).sum()).iter_rows())
    for name, pool in environment.pools.items():
        always_on = pool.nodes.min * (report.periods[-1].end - report.periods[0].start)
        missing = always_on - observed_seconds.get(name, 0)
        if 100 * observed_seconds.get(name, 0) < MIN_OBSERVED_PERCENT * always_on:
            price = node_price(environment, name, pool.instance_type, str(purchase_kind(pool)))
            unit_cost = "of unknown price" if price is None else f"${rounded(missing * price, HOUR * MICRO):,}"
            observation = f"{missing / HOUR:,.1f} node-hours fewer of pool {name} than its nodes.min"
            report.findings.append(DataFinding("bill-04", observation, f"these hours, {unit_cost}, are in no line"))


def held_devices(
    report: ChargebackReport,
    tables: Tables,
    nodes: pl.DataFrame,
    report_range: tuple[int, int],
    windows: Sequence[Window],
) -> pl.DataFrame:
    """Capacity held by each tenant on each node in each window, in units of the node."""
    texts = ("namespace", "workload", "pod", "queue", "tenant", "node", "flavor")
    rows = tables.allocations.filter((pl.col("count") > 0) | (pl.col("cpu") > 0) | (pl.col("memory") > 0))
    pod_rows = rows.filter(pl.col("pod").cast(pl.String) != "")
    if pod_rows.height:
        keys = ["namespace", "pod", "node", "flavor"]
        pod_rows, duplicate_seconds = without_overlaps(pod_rows, keys)
        if duplicate_seconds:
            observation = f"{duplicate_seconds / HOUR:,.2f} hours of pods that the data has twice"
            report.findings.append(DataFinding("bill-05", observation, "they count once"))
        rows = pl.concat([pod_rows, rows.filter(pl.col("pod").cast(pl.String) == "")])
    rows = owners(rows, claims(report.environment, report.tenants, rows, tables.namespaces, report_range), report_range)
    rows = split_by_windows(rows, windows).with_columns(pl.col(name).cast(pl.String) for name in texts)
    gaps = [i for i, window in enumerate(windows) if window.gap]
    rows = rows.filter(~pl.col("window").is_in(gaps)) if gaps else rows
    node_windows = nodes.select(
        "node", "window", "pool", "instance", "purchase", "cost", "capacity", "known", pl.col("start").alias("from"),
        pl.col("end").alias("to"),
    )  # fmt: skip
    rows = rows.with_row_index("row")
    placed_rows = (
        rows.join(node_windows, on=["node", "window"])
        .with_columns(pl.max_horizontal("start", "from").alias("start"), pl.min_horizontal("end", "to").alias("end"))
        .filter(pl.col("start") < pl.col("end"))
    )
    _report_unknown_nodes(report, rows, placed_rows)
    placed_rows = _units(report, placed_rows)
    _report_unassigned(report, placed_rows)
    return placed_rows.drop("row", "from", "to", "tenant").sort(
        "window", "node", "namespace", "workload", "pod", "flavor", "start", "end", "count"
    )


def _report_unknown_nodes(report: ChargebackReport, rows: pl.DataFrame, placed_rows: pl.DataFrame) -> None:
    """Report capacity held on nodes that are not in the data."""
    length = (pl.col("end") - pl.col("start")).sum()
    placed_seconds = placed_rows.group_by("row").agg(there=length)
    unplaced_rows = (
        rows.filter(pl.col("count") > 0)
        .join(placed_seconds, on="row", how="left")
        .with_columns(lost=(pl.col("end") - pl.col("start") - pl.col("there").fill_null(0)) * pl.col("count"))
        .filter(pl.col("lost") > 0)
        .group_by("node")
        .agg(pl.col("lost").sum(), pl.col("owner").unique().sort())
        .sort("lost", "node", descending=[True, False])
    )
    for node, seconds, owner_names in unplaced_rows.head(5).iter_rows():
        observation = (
            f"{seconds / HOUR:,.2f} device-hours of {', '.join(owner_names[:3])} on {node} when the "
            "data has no such node"
        )
        report.findings.append(DataFinding("bill-06", observation, "they are in no line"))
    if unplaced_rows.height > 5:
        hidden_seconds = int(unplaced_rows["lost"][5:].sum())
        observation = (
            f"{hidden_seconds / HOUR:,.2f} device-hours on {unplaced_rows.height - 5} more nodes that "
            "the data does not have"
        )
        report.findings.append(DataFinding("bill-06", observation, "they are in no line"))


def _units(report: ChargebackReport, placed_rows: pl.DataFrame) -> pl.DataFrame:
    """The part of its node that each row holds: the largest of the parts of its devices, its CPU and its memory.
    `unknown_devices` counts devices that the pool does not yield."""
    measure_rows = [
        (pool, flavor, units, measure.cpu, measure.memory, measure.gpus)
        for pool, measure in report.measures.items()
        for flavor, units in {"": 0, **measure.units_by_flavor}.items()
    ]
    schema = {
        "pool": pl.String,
        "flavor": pl.String,
        "each": pl.Int64,
        "cpus": pl.Int64,
        "mib": pl.Int64,
        "gpus": pl.Int64,
    }
    rows = placed_rows.join(
        pl.DataFrame(measure_rows, schema, orient="row"), on=["pool", "flavor"], how="left", maintain_order="left"
    )
    is_unknown_device = pl.col("each").is_null() | ~pl.col("known") | ((pl.col("flavor") == "") & (pl.col("count") > 0))
    cpu = pl.col("cpu") * pl.col("capacity") // pl.col("cpus")
    memory = (pl.col("memory") // 2**20) * pl.col("capacity") // pl.col("mib")
    # The platform's pods on a GPU node serve all tenants on it; the price of the node is charged by its devices.
    is_platform_pod = (pl.col("owner") == PLATFORM) & (pl.col("gpus") > 0) & (pl.col("count") == 0)
    rows = rows.with_columns(
        strange=is_unknown_device.cast(pl.Int64), device_units=pl.col("count") * pl.col("each")
    ).with_columns(
        pl.when(is_unknown_device).then(0).otherwise("device_units").alias("device_units"),
        pl.when(is_unknown_device | is_platform_pod)
        .then(0)
        .otherwise(pl.max_horizontal("device_units", cpu, memory))
        .alias("units"),
    )
    unknown_devices = (
        rows.filter((pl.col("strange") > 0) & pl.col("known"))
        .group_by("pool", "flavor")
        .agg(seconds=((pl.col("end") - pl.col("start")) * pl.col("count")).sum(), who=pl.col("owner").unique().sort())
        .sort("pool", "flavor")
    )
    for pool, flavor, seconds, owner_names in unknown_devices.iter_rows():
        observation = (
            f"{seconds / HOUR:,.2f} device-hours of flavor {flavor!r} on pool {pool}, held by "
            f"{', '.join(owner_names[:3])}"
        )
        report.findings.append(DataFinding("bill-02", observation, f"the rest of these nodes is charged to {UNKNOWN}"))
    return rows.drop("each", "cpus", "mib", "gpus")


def _report_unassigned(report: ChargebackReport, placed_rows: pl.DataFrame) -> None:
    unassigned_rows = (
        placed_rows.filter(pl.col("owner").str.starts_with("(") & (pl.col("owner") != PLATFORM))
        .group_by("owner", "namespace")
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            seconds=((pl.col("end") - pl.col("start")) * pl.col("count")).sum(),
        )
        .sort("owner", "namespace")
    )
    for owner, namespace, start, end, seconds in unassigned_rows.iter_rows():
        period_text = f"from {iso_time(start)} to {iso_time(end)}"
        if owner == NO_TENANT:
            observation = (
                f"{seconds / HOUR:,.2f} device-hours in {namespace}, which belongs to no tenant, {period_text}"
            )
            report.findings.append(DataFinding("bill-08", observation, f"they are charged to {NO_TENANT}"))
        else:
            claimants = owner.removeprefix("(disputed: ").removesuffix(")")
            observation = (
                f"namespace {namespace} claimed by {claimants} at one time, {period_text}: "
                f"{seconds / HOUR:,.2f} device-hours"
            )
            report.findings.append(
                DataFinding("bill-03", observation, f"they are charged to {owner}, and no tenant pays them")
            )


def report_crowded_nodes(report: ChargebackReport, crowded_intervals: pl.DataFrame) -> None:
    """Report nodes on which more devices were held than exist."""
    by_node = crowded_intervals.group_by("node").agg(
        pl.col("start").min(), pl.col("end").max(), times=(pl.col("devices") * 100 // pl.col("most")).max()
    )
    for node, start, end, times in by_node.sort("node").head(5).iter_rows():
        observation = f"up to {times} % of the devices of {node} held between {iso_time(start)} and {iso_time(end)}"
        report.findings.append(
            DataFinding("bill-05", observation, "its cost is shared in proportion to the allocations")
        )
    if by_node.height > 5:
        observation = f"{by_node.height - 5} more nodes with more devices held than they have"
        report.findings.append(
            DataFinding("bill-05", observation, "their cost is shared in proportion to the allocations")
        )


def guaranteed_costs(
    report: ChargebackReport, nodes: pl.DataFrame, guarantees: Guarantees, windows: Sequence[Window]
) -> dict[tuple[int, str], int]:
    """Guaranteed capacity by period and tenant, each unit-second times the node's cost."""
    prices = dict(nodes.group_by("pool").agg(pl.col("cost").max()).iter_rows())
    costs: dict[tuple[int, str], int] = defaultdict(int)
    for (window, pool), pool_shares in guarantees.items():
        if pool in report.measures:
            length, measure = windows[window].end - windows[window].start, report.measures[pool]
            for (name, flavor), share in pool_shares.items():
                part = share.count * measure.units_by_flavor.get(flavor, 0) * FINE // measure.units
                costs[windows[window].period, name] += part * length * max(prices.get(pool, 0), 0)
    return costs
