"""Read observed usage: a folder of tables, each as Parquet, Arrow, CSV or JSON lines, from any source.

A table has intervals (`start`, `end`) or samples (`time`, one row for each series and scrape); samples are converted to
intervals. Times are whole seconds since 1970; fractions of a second are cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tenancy.catalog.files import regular_file
from tenancy.chargeback.periods import LAST, union
from tenancy.rules.catalogue import Violation

SUFFIXES = (".parquet", ".arrow", ".csv", ".jsonl")


class Column(NamedTuple):
    """A column of a usage table."""

    kind: str
    """text, count, milli (thousandths), micro (millionths) or time."""
    fallback: Any = None
    """Value of an empty cell; None: required."""
    maximum: int = 10**9
    """Max value in the column's unit; a product of more with seconds and parts of nodes does not fit into 64 bits."""


_TEXT, _MAYBE = Column("text"), Column("text", "")
NO_AMOUNT = -(2**62)
DEVICES, CORES, BYTES = 10**4, 10**5, 2**50
"""Max devices of a pod, more than any pod has."""
TABLES: Mapping[str, Mapping[str, Column]] = {
    "nodes": {
        "node": _TEXT,
        "pool": _TEXT,
        "instance": _MAYBE,
        "purchase": _MAYBE,
        "price": Column("micro", NO_AMOUNT, 10**6),
    },
    "allocations": {
        "namespace": _TEXT,
        "workload": _TEXT,
        "pod": _MAYBE,
        "queue": _MAYBE,
        "tenant": _MAYBE,
        "node": _TEXT,
        "flavor": _MAYBE,
        "count": Column("count", 0, DEVICES),
        "cpu": Column("milli", 0, CORES),
        "memory": Column("count", 0, BYTES),
    },
    "used": {
        "namespace": _TEXT,
        "pool": _MAYBE,
        "flavor": _TEXT,
        "devices": Column("count", 1, 10**5),
        "value": Column("micro", maximum=1),
    },
    "guarantees": {
        "tenant": _TEXT,
        "pool": _TEXT,
        "flavor": _TEXT,
        "count": Column("count", maximum=10**6),
        "lends": Column("count", 0, 10**6),
    },
    "namespaces": {"namespace": _TEXT, "tenant": _TEXT},
    "gaps": {},
    "lines": {
        "kind": _TEXT,
        "id": _MAYBE,
        "tenant": _MAYBE,
        "namespace": _MAYBE,
        "bucket": _MAYBE,
        "prefix": _MAYBE,
        "quantity": Column("micro", 0),
        "dollars": Column("micro", NO_AMOUNT),
    },
}
"""Columns by table. `cpu` is in cores, `memory` in bytes, `value` from 0 to 1, `price` in dollars for an hour of the
node, `quantity` in the unit of the line's kind; the flavor is empty for a pod without devices."""

REQUIRED = ("nodes", "allocations")
"""Tables without which nothing can be allocated."""

_PER_UNIT = {"milli": 1_000, "micro": 1_000_000}


@dataclass(slots=True)
class Tables:
    """Intervals of every table. A table that does not exist is None: it was not recorded."""

    nodes: pl.DataFrame
    allocations: pl.DataFrame
    used: pl.DataFrame | None = None
    guarantees: pl.DataFrame | None = None
    namespaces: pl.DataFrame | None = None
    lines: pl.DataFrame | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)


def read(folder: Path, start: int, end: int) -> Tables:
    """The tables of a folder, limited to the range."""
    if not folder.is_dir():
        raise Violation("bill-07", f"--tables {folder}, which is no folder", "name the folder of the tables")
    paths_by_table = {name: paths for name in TABLES if (paths := _paths(folder, name))}
    for name in REQUIRED:
        if name not in paths_by_table:
            observation = f"{folder} without {name}{SUFFIXES[0]}, or another of {', '.join(SUFFIXES[1:])}"
            raise Violation("bill-07", observation, f"write the table of {name}; docs/chargeback.md lists its columns")
    return tables(
        {name: [(path.name, _scan(path)) for path in paths] for name, paths in paths_by_table.items()}, start, end
    )


def tables(parts_by_table: Mapping[str, Iterable[tuple[str, pl.LazyFrame]]], start: int, end: int) -> Tables:
    """Tables by name, each in parts with the names of their sources."""
    sample_frames: dict[str, pl.DataFrame] = {}
    interval_frames: dict[str, pl.DataFrame] = {}
    for name, parts in parts_by_table.items():
        for source, part in parts:
            columns = part.collect_schema().names()
            try:
                frame = _typed(name, source, part, columns)
            except pl.exceptions.PolarsError as error:
                error_text = str(error).splitlines()[0]
                raise Violation(
                    "bill-07", f"{source}: {error_text}", "check its rows: they have different types"
                ) from None
            kind = sample_frames if "time" in columns else interval_frames
            kind[name] = pl.concat([kind[name], frame]) if name in kind else frame
    gaps = [(row[0], row[1]) for row in interval_frames["gaps"].iter_rows()] if "gaps" in interval_frames else []
    scrapes = _scrapes(sample_frames)
    step = _step(scrapes)
    if step:
        gaps += _scrape_gaps(scrapes, step, start, end)
    for name in list(sample_frames):
        frame = sample_frames.pop(name)
        intervals = _sample_intervals(frame, scrapes, step) if name != "used" else _spread(frame, step)
        interval_frames[name] = pl.concat([interval_frames[name], intervals]) if name in interval_frames else intervals
    interval_frames.pop("gaps", None)
    for name in REQUIRED:
        # No node or no work in the whole range: the source was read, and has no row.
        interval_frames.setdefault(name, _empty(name))
    clipped = {name: _clip(frame, start, end) for name, frame in interval_frames.items() if name != "lines"}
    return Tables(
        **clipped,
        **({"lines": interval_frames["lines"]} if "lines" in interval_frames else {}),
        gaps=union((max(a, start), min(b, end)) for a, b in gaps),
    )


def _paths(folder: Path, name: str) -> list[Path]:
    """`allocations.parquet`, or its parts `allocations-1.parquet`, `allocations-2.parquet`."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in SUFFIXES and (path.stem == name or path.stem.startswith(f"{name}-"))
    )


def _scan(path: Path) -> pl.LazyFrame:
    try:
        regular_file(path)
        match path.suffix:
            case ".parquet":
                frame = pl.scan_parquet(path)
            case ".arrow":
                frame = pl.scan_ipc(path)
            case ".csv":
                # All columns as text: a column that begins with numbers may have other values further down.
                frame = pl.scan_csv(path, infer_schema=False)
            case _:
                frame = pl.scan_ndjson(path, infer_schema_length=None)
        frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        observation = f"{path.name}: {str(error).splitlines()[0]}"
        raise Violation("bill-07", observation, f"write it as {path.suffix.removeprefix('.')}") from None
    return frame


# Types


def _typed(name: str, source: str, frame: pl.LazyFrame, column_names: list[str]) -> pl.DataFrame:
    """Convert the columns of a table to their types; a value of another type is refused with its row."""
    columns = TABLES[name]
    times = ("time",) if "time" in column_names else ("start", "end")
    for column, column_type in columns.items():
        if column not in column_names and column_type.fallback is None:
            raise Violation(
                "bill-07", f"{source} without column {column}", f"add it; {source} has {', '.join(column_names)}"
            )
    if "time" not in column_names and "start" not in column_names:
        raise Violation("bill-07", f"{source} without times", "add start and end, or time")
    known_columns = {**columns, **dict.fromkeys(times, Column("time"))}
    if unknown_columns := [column for column in column_names if column not in known_columns]:
        raise Violation(
            "bill-07", f"{source} with column {unknown_columns[0]}", f"columns are {', '.join(known_columns)}"
        )
    schema = frame.collect_schema()
    expressions = [
        _value(column, column_type, schema[column])
        if column in column_names
        else pl.lit(column_type.fallback).alias(column)
        for column, column_type in columns.items()
    ]
    expressions += [
        _value(column, Column("time"), schema[column])
        if column in column_names
        else pl.lit(None, dtype=pl.Int64).alias(column)  # present until the data ends
        for column in times
    ]
    kinds = {column: pl.String if column_type.kind == "text" else pl.Int64 for column, column_type in columns.items()}
    kinds |= dict.fromkeys(times, pl.Int64)
    typed_frame = frame.select(column.cast(kind) for column, kind in zip(expressions, kinds.values(), strict=True))
    # Few names in many rows: stored as numbers instead of texts.
    texts = [column for column, column_type in columns.items() if column_type.kind == "text"]
    collected_frame = typed_frame.with_columns(pl.col(texts).cast(pl.Categorical)).collect(engine="streaming")
    _refuse_bad_values(source, frame, collected_frame, columns, times)
    return collected_frame


def _empty(name: str) -> pl.DataFrame:
    kinds = {
        column: pl.String if column_type.kind == "text" else pl.Int64 for column, column_type in TABLES[name].items()
    }
    frame = pl.LazyFrame(schema={**kinds, "start": pl.Int64, "end": pl.Int64})
    return _typed(name, name, frame, frame.collect_schema().names())


def _value(name: str, column_type: Column, data_type: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if column_type.kind == "text":
        expression = column.cast(pl.String)
    elif column_type.kind == "time":
        expression = _time(column, data_type)
    else:
        is_whole_number = column_type.kind == "count" and data_type.is_integer()
        number = column if is_whole_number else column.cast(pl.Float64, strict=False)
        # A pod cannot hold a fraction of a device: it is refused, not truncated.
        expression = (
            (number * _PER_UNIT[column_type.kind]).round()
            if column_type.kind in _PER_UNIT
            else pl.when(number % 1 == 0).then(number)
        )
        expression = expression.cast(pl.Int64, strict=False)
    if column_type.fallback is not None:
        # An empty value has a meaning; an unreadable one has none.
        absent = column.is_null() | (column == "") if data_type == pl.String else column.is_null()
        expression = pl.when(absent).then(pl.lit(column_type.fallback)).otherwise(expression)
    return expression.alias(name)


def _time(column: pl.Expr, data_type: pl.DataType) -> pl.Expr:
    if data_type.is_integer() or data_type.is_float():
        return column.cast(pl.Int64)
    if isinstance(data_type, pl.Datetime):
        return column.dt.epoch("s")
    text = column.cast(pl.String).str.strip_chars().replace("", None)
    number = text.cast(pl.Float64, strict=False).floor().cast(pl.Int64)
    spelled = (
        text.str.replace(r"Z$", "+00:00").str.replace(" ", "T").str.replace(r"^(\d{4}-\d{2}-\d{2})$", "${1}T00:00:00")
    )
    zoned = pl.when(spelled.str.contains(r"[+-]\d{2}:?\d{2}$")).then(spelled).otherwise(spelled + "+00:00")
    moment = zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", time_zone="UTC", strict=False)
    return pl.coalesce(number, moment.dt.epoch("s"))


def _refuse_bad_values(
    source: str,
    raw: pl.LazyFrame,
    frame: pl.DataFrame,
    columns: Mapping[str, Column],
    times: tuple[str, ...],
) -> None:
    """Refuse the first row with a value that is missing, unreadable, out of bounds or out of order."""
    nullable = {"end"} | ({"start"} if "end" in times else set())
    tests: list[tuple[str, pl.Expr]] = []
    for column, column_type in columns.items():
        bad = pl.col(column).is_null()
        if column_type.kind == "text" and column_type.fallback is None:
            bad = bad | (pl.col(column).cast(pl.String) == "")
        if column_type.kind != "text":
            unit = _PER_UNIT.get(column_type.kind, 1)
            fits = pl.col(column).is_between(_min_value(column, column_type) * unit, column_type.maximum * unit)
            bad = bad | (~fits & (pl.col(column) != NO_AMOUNT))
        tests.append((column, bad))
    tests += [(column, pl.col(column).is_null()) for column in times if column not in nullable]
    tests += [(column, ~pl.col(column).is_between(0, LAST)) for column in times]
    if "end" in times:
        tests.append(("end", pl.col("end") < pl.col("start")))
    rows = frame.select(
        pl.when(bad).then(pl.int_range(pl.len())).min().alias(str(i)) for i, (_, bad) in enumerate(tests)
    )
    hits = [(row, tests[i][0]) for i, row in enumerate(rows.row(0)) if row is not None] if frame.height else []
    # An unreadable time is not an empty one.
    for column in nullable & set(times) & set(raw.collect_schema().names()):
        is_null_now, raw_values = (
            frame[column].is_null(),
            raw.select(pl.col(column).cast(pl.String)).collect().to_series(),
        )
        unreadable_rows = (is_null_now & raw_values.is_not_null() & (raw_values != "")).arg_true()
        hits += [(int(unreadable_rows[0]), column)] if len(unreadable_rows) else []
    if hits:
        row, column = min(hits)
        value = raw.select(column).slice(row, 1).collect().item() if column in raw.collect_schema().names() else None
        line = row + 2 if source.endswith(".csv") else row + 1
        column_type = columns.get(column, Column("time"))
        raise Violation(
            "bill-07", f"{source}:{line}: {column}: {value!r}", f"write {_expected_value_text(column, column_type)}"
        )


def _expected_value_text(column: str, column_type: Column) -> str:
    match column_type.kind:
        case "time":
            time_text = "seconds since 1970 or 2026-10-01T06:00:00Z, before the year 9999"
            return f"{time_text} and not before start" if column == "end" else time_text
        case "text":
            return "a value"
        case kind:
            number_text = "a whole number" if kind == "count" else "a number"
            return f"{number_text} from {_min_value(column, column_type):,} to {column_type.maximum:,}"


def _min_value(column: str, column_type: Column) -> int:
    """Min value of a column: only credits may be negative."""
    return -column_type.maximum if column == "dollars" else 0


# From samples to intervals


def _scrapes(moments: Mapping[str, pl.DataFrame]) -> pl.Series:
    """Every time with a sample of any table except use."""
    time_frames = [frame.select(pl.col("time").unique()) for name, frame in moments.items() if name != "used"]
    if not time_frames:
        time_frames = [frame.select(pl.col("time").unique()) for frame in moments.values()]
    return pl.concat(time_frames)["time"].unique().sort() if time_frames else pl.Series("time", [], pl.Int64)


def _step(scrapes: pl.Series) -> int:
    """Seconds between two scrapes: the most frequent value."""
    if len(scrapes) < 2:
        return 0
    return min(scrapes.diff().drop_nulls().mode().to_list())


def _scrape_gaps(scrapes: pl.Series, step: int, start: int, end: int) -> list[tuple[int, int]]:
    """Intervals without data of more than one and a half steps, also at the ends of the range."""
    scrape_times = scrapes.filter((scrapes >= start - step) & (scrapes < end)).to_list()
    if not scrape_times:
        return [(start, end)]
    borders = [*([start - step] if scrape_times[0] > start + step // 2 else []), *scrape_times, end]
    return [(a + step, b) for a, b in pairwise(borders) if b - a > step * 3 // 2]


def _sample_intervals(frame: pl.DataFrame, scrapes: pl.Series, step: int) -> pl.DataFrame:
    """Join rows of one series at consecutive scrapes into one interval, however long the time without any scrape
    between them; after its last row the interval lasts until the next scrape."""
    keys = [column for column in frame.columns if column != "time"]
    index = pl.lit(scrapes).search_sorted(pl.col("time")).cast(pl.Int32)
    following = scrapes.shift(-1).fill_null(scrapes[-1] + step) if len(scrapes) else scrapes
    until = pl.min_horizontal(following, scrapes + step * 3 // 2) if step else following
    ends = pl.select(until).to_series()
    # A 64-bit hash for each series, with its columns stored once: sorting all columns would take minutes and gigabytes.
    # The probability of a collision among a million series is 3 in 100 million.
    numbered = frame.select(pl.struct(keys).hash().alias("series"), index.alias("index"))
    series_rows = frame.select(keys).filter(numbered["series"].is_first_distinct())
    series_rows = series_rows.with_columns(series=numbered["series"].unique(maintain_order=True))
    begins = (pl.col("series") != pl.col("series").shift()) | (pl.col("index") - pl.col("index").shift() > 1)
    runs = (
        numbered.lazy()
        .sort("series", "index")
        .with_columns(begins.fill_null(True).cum_sum().alias("run"))
        .group_by("run", "series")
        .agg(first=pl.col("index").first(), last=pl.col("index").last())
        .collect()
    )
    return (
        runs.join(series_rows, on="series")
        .with_columns(start=pl.lit(scrapes).gather(pl.col("first")), end=pl.lit(ends).gather(pl.col("last")))
        .select(*keys, "start", "end")
        .sort(pl.all())
    )


def _spread(frame: pl.DataFrame, step: int) -> pl.DataFrame:
    return frame.with_columns(start=pl.col("time"), end=pl.col("time") + max(step, 1)).drop("time")


def _clip(frame: pl.DataFrame, start: int, end: int) -> pl.DataFrame:
    return frame.with_columns(
        pl.col("start").fill_null(start).clip(start, end), pl.col("end").fill_null(end).clip(start, end)
    ).filter(pl.col("start") < pl.col("end"))
