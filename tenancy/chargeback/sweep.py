"""Held capacity of each node at each second, and the borrowed part of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import polars as pl

from tenancy.chargeback.periods import Window
from tenancy.chargeback.rounding import divide_by_weights


def split_by_windows(rows: pl.DataFrame, windows: Sequence[Window]) -> pl.DataFrame:
    """The rows, split at the boundaries of windows; each part has the number of its window."""
    if not rows.height:
        return rows.with_columns(window=pl.lit(0, pl.Int64))
    starts = pl.Series([window.start for window in windows])
    ends = pl.Series([window.end for window in windows])
    first = starts.search_sorted(rows["start"], side="right").cast(pl.Int64) - 1
    last = starts.search_sorted(rows["end"], side="left").cast(pl.Int64)
    return (
        rows.with_columns(window=pl.int_ranges(first, last, eager=True))
        .explode("window")
        .with_columns(
            pl.max_horizontal("start", pl.lit(starts).gather(pl.col("window"))).alias("start"),
            pl.min_horizontal("end", pl.lit(ends).gather(pl.col("window"))).alias("end"),
        )
        .filter(pl.col("start") < pl.col("end"))
    )


def levels(rows: pl.DataFrame, keys: Sequence[str], **columns_by_sum: str) -> pl.DataFrame:
    """Intervals with constant sums of some columns, by keys: `start`, `end` and the sums by name."""
    summed = {name: pl.col(column).sum() for name, column in columns_by_sum.items()}
    up = rows.lazy().select(*keys, *set(columns_by_sum.values()), at="start")
    down = rows.lazy().select(*keys, *(-pl.col(column) for column in set(columns_by_sum.values())), at="end")
    return (
        pl.concat([up, down])
        .group_by(*keys, "at")
        .agg(**summed)
        .sort(*keys, "at")
        .with_columns(
            *(pl.col(name).cum_sum().over(keys) for name in columns_by_sum), end=pl.col("at").shift(-1).over(keys)
        )
        .filter(pl.col("end").is_not_null())
        .rename({"at": "start"})
        .collect()
    )


def without_overlaps(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Remove overlaps between rows of one key: time in two rows counts once, for the row that begins first. Also
    returns the number of duplicate seconds."""
    previous_end = pl.col("end").cum_max().shift().over(keys)
    marked_rows = (
        rows.sort(*keys, "start", "end", descending=[False] * len(keys) + [False, True])
        .with_columns(pl.max_horizontal("start", previous_end).alias("from"))
        .with_columns(twice=pl.min_horizontal("from", "end") - pl.col("start"))
    )
    twice = int(marked_rows["twice"].sum())
    return marked_rows.with_columns(start="from").filter(pl.col("start") < pl.col("end")).select(rows.columns), twice


def with_weights(
    rows: pl.DataFrame, keys: Sequence[str], capacity: str = "capacity"
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Every row with its `weight`: unit-seconds of its node. If all rows together are more than the node, it is
    divided in proportion.

    `keys` identify nodes and their prices. Also returns the rest of each node with unknown devices (`unknown`,
    unit-seconds), and intervals in which more devices were held than the node has (`start`, `end`, `devices`, `most`).
    """
    keys = [*keys, capacity]
    levels_by_node = levels(rows, keys, held="units", strange="strange", devices="device_units")
    crowded = levels_by_node.filter(pl.col("held") > pl.col(capacity))
    unknown_rest = (
        levels_by_node.filter(pl.col("strange") > 0)
        .with_columns(
            unknown=(pl.col(capacity) - pl.min_horizontal("held", capacity)) * (pl.col("end") - pl.col("start"))
        )
        .group_by(keys)
        .agg(pl.col("unknown").sum())
    )
    over_capacity = levels_by_node.filter(pl.col("devices") > pl.col(capacity)).select(
        "node", "start", "end", "devices", most=capacity
    )
    rows = rows.with_row_index("row")
    plain = rows.with_columns(weight=pl.col("units") * (pl.col("end") - pl.col("start")))
    if not crowded.height:
        return plain.drop("row"), unknown_rest, over_capacity
    pairs = (
        rows.select("row", *keys, "units", "start", "end")
        .filter(pl.col("units") > 0)
        .join(crowded.rename({"start": "from", "end": "to"}), on=keys)
        .filter((pl.col("start") <= pl.col("from")) & (pl.col("to") <= pl.col("end")))
        .sort("node", "window", "from", "row")
    )
    corrections: dict[int, int] = defaultdict(int)
    columns = pairs.select("node", "window", "from", "to", "row", "units", capacity).iter_rows()
    group: list[tuple[int, int]] = []
    current: tuple[str, int, int, int, int] | None = None

    def settle() -> None:
        if current is not None:
            seconds = current[3] - current[2]
            parts = divide_by_weights(current[4] * seconds, [units for _, units in group])
            for (row, units), part in zip(group, parts, strict=True):
                corrections[row] += part - units * seconds

    for node, window, start, end, row, units, node_capacity in columns:
        key = (node, window, start, end, node_capacity)
        if key != current:
            settle()
            current, group = key, []
        group.append((row, units))
    settle()
    correction_rows = pl.DataFrame(
        {"row": list(corrections), "change": list(corrections.values())}, {"row": pl.UInt32, "change": pl.Int64}
    )
    weighed = (
        plain.join(correction_rows, on="row", how="left", maintain_order="left")
        .with_columns(weight=pl.col("weight") + pl.col("change").fill_null(0))
        .drop("row", "change")
    )
    return weighed, unknown_rest, over_capacity


def held_above_guarantee(rows: pl.DataFrame, guaranteed: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Device-seconds held by keys, and the part of them above the guarantee."""
    levels_with_guarantee = (
        levels(rows, keys, held="count")
        .join(guaranteed, on=list(keys), how="left")
        .with_columns(pl.col("guaranteed").fill_null(0), seconds=pl.col("end") - pl.col("start"))
    )
    return levels_with_guarantee.group_by(*keys).agg(
        held=(pl.col("held") * pl.col("seconds")).sum(),
        borrowed=((pl.col("held") - pl.col("guaranteed")).clip(0) * pl.col("seconds")).sum(),
    )


def lent_by_tenants(
    events: Sequence[tuple[int, str, int]], guaranteed: Mapping[str, tuple[int, int]], start: int, end: int
) -> tuple[dict[str, int], int]:
    """Device-seconds lent by each tenant, scaled so that only their proportions count, and the total lent.

    At every second, capacity held above guarantees is lent by the tenants with idle guarantees, in proportion to their
    idle amounts and no more than these. `events` are (time, tenant, change of held devices); `guaranteed` has the
    guarantee and the lending limit.
    """
    held_by_tenant: dict[str, int] = defaultdict(int)
    spare_by_tenant = {name: min(count, lending_limit) for name, (count, lending_limit) in guaranteed.items()}
    total_spare = sum(spare_by_tenant.values())
    rate = debt = total = 0  # credit of one spare device since the start; devices held above guarantees
    earned: dict[str, int] = defaultdict(int)
    since: dict[str, int] = defaultdict(int)
    last = start
    changes = defaultdict(list)
    for time, name, change in events:
        changes[time].append((name, change))
    for time in sorted({*changes, end}):
        if total_spare and debt:
            seconds = (time - last) * min(debt, total_spare)
            rate += (seconds << 64) // total_spare
            total += seconds
        last = time
        for name, change in changes.get(time, ()):
            count, lending_limit = guaranteed.get(name, (0, 0))
            debt -= max(0, held_by_tenant[name] - count)
            held_by_tenant[name] += change
            debt += max(0, held_by_tenant[name] - count)
            new_spare = max(0, min(count - held_by_tenant[name], lending_limit))
            previous_spare = spare_by_tenant.get(name, 0)
            if new_spare != previous_spare:
                earned[name] += previous_spare * (rate - since[name])
                since[name] = rate
                spare_by_tenant[name] = new_spare
                total_spare += new_spare - previous_spare
    for name, count in spare_by_tenant.items():
        earned[name] += count * (rate - since[name])
    return {name: amount for name, amount in earned.items() if amount}, total
