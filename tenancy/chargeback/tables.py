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

FORMS = (".parquet", ".arrow", ".csv", ".jsonl")


class Column(NamedTuple):
    """A column of a usage table."""

    kind: str
    """text, count, milli (thousandths), micro (millionths) or time."""
    fallback: Any = None
    """Value of an empty cell; None: required."""
    most: int = 10**9
    """Max value in the column's unit; a product of more with seconds and parts of nodes does not fit into 64 bits."""


_TEXT, _MAYBE = Column("text"), Column("text", "")
NOT_SAID = -(2**62)
DEVICES, CORES, BYTES = 10**4, 10**5, 2**50
"""Max devices of a pod, more than any pod has."""
TABLES: Mapping[str, Mapping[str, Column]] = {
    "nodes": {
        "node": _TEXT,
        "pool": _TEXT,
        "instance": _MAYBE,
        "purchase": _MAYBE,
        "price": Column("micro", NOT_SAID, 10**6),
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
        "value": Column("micro", most=1),
    },
    "guarantees": {
        "tenant": _TEXT,
        "pool": _TEXT,
        "flavor": _TEXT,
        "count": Column("count", most=10**6),
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
        "dollars": Column("micro", NOT_SAID),
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
    found = {name: paths for name in TABLES if (paths := _paths(folder, name))}
    for name in REQUIRED:
        if name not in found:
            given = f"{folder} without {name}{FORMS[0]}, or another of {', '.join(FORMS[1:])}"
            raise Violation("bill-07", given, f"write the table of {name}; docs/chargeback.md lists its columns")
    return tables({name: [(path.name, _scan(path)) for path in paths] for name, paths in found.items()}, start, end)


def tables(given: Mapping[str, Iterable[tuple[str, pl.LazyFrame]]], start: int, end: int) -> Tables:
    """Tables by name, each in parts with the names of their sources."""
    moments: dict[str, pl.DataFrame] = {}
    spans: dict[str, pl.DataFrame] = {}
    for name, parts in given.items():
        for source, part in parts:
            columns = part.collect_schema().names()
            try:
                frame = _typed(name, source, part, columns)
            except pl.exceptions.PolarsError as error:
                said = str(error).splitlines()[0]
                raise Violation("bill-07", f"{source}: {said}", "check its rows: they have different types") from None
            kind = moments if "time" in columns else spans
            kind[name] = pl.concat([kind[name], frame]) if name in kind else frame
    gaps = [(row[0], row[1]) for row in spans["gaps"].iter_rows()] if "gaps" in spans else []
    scrapes = _scrapes(moments)
    step = _step(scrapes)
    if step:
        gaps += _holes(scrapes, step, start, end)
    for name in list(moments):
        frame = moments.pop(name)
        made = _stretches(frame, scrapes, step) if name != "used" else _spread(frame, step)
        spans[name] = pl.concat([spans[name], made]) if name in spans else made
    spans.pop("gaps", None)
    for name in REQUIRED:
        # No node or no work in the whole range: the source was read, and has no row.
        spans.setdefault(name, _empty(name))
    clipped = {name: _clip(frame, start, end) for name, frame in spans.items() if name != "lines"}
    return Tables(
        **clipped,
        **({"lines": spans["lines"]} if "lines" in spans else {}),
        gaps=union((max(a, start), min(b, end)) for a, b in gaps),
    )


def _paths(folder: Path, name: str) -> list[Path]:
    """`allocations.parquet`, or its parts `allocations-1.parquet`, `allocations-2.parquet`."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in FORMS and (path.stem == name or path.stem.startswith(f"{name}-"))
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
        given = f"{path.name}: {str(error).splitlines()[0]}"
        raise Violation("bill-07", given, f"write it as {path.suffix.removeprefix('.')}") from None
    return frame


# Types


def _typed(name: str, source: str, frame: pl.LazyFrame, given: list[str]) -> pl.DataFrame:
    """Convert the columns of a table to their types; a value of another type is refused with its row."""
    wanted = TABLES[name]
    times = ("time",) if "time" in given else ("start", "end")
    for column, of in wanted.items():
        if column not in given and of.fallback is None:
            raise Violation("bill-07", f"{source} without column {column}", f"add it; {source} has {', '.join(given)}")
    if "time" not in given and "start" not in given:
        raise Violation("bill-07", f"{source} without times", "add start and end, or time")
    known = {**wanted, **dict.fromkeys(times, Column("time"))}
    if strange := [column for column in given if column not in known]:
        raise Violation("bill-07", f"{source} with column {strange[0]}", f"columns are {', '.join(known)}")
    schema = frame.collect_schema()
    chosen = [
        _value(column, of, schema[column]) if column in given else pl.lit(of.fallback).alias(column)
        for column, of in wanted.items()
    ]
    chosen += [
        _value(column, Column("time"), schema[column])
        if column in given
        else pl.lit(None, dtype=pl.Int64).alias(column)  # present until the data ends
        for column in times
    ]
    kinds = {column: pl.String if of.kind == "text" else pl.Int64 for column, of in wanted.items()}
    kinds |= dict.fromkeys(times, pl.Int64)
    made = frame.select(column.cast(kind) for column, kind in zip(chosen, kinds.values(), strict=True))
    # Few names in many rows: stored as numbers instead of texts.
    texts = [column for column, of in wanted.items() if of.kind == "text"]
    found = made.with_columns(pl.col(texts).cast(pl.Categorical)).collect(engine="streaming")
    _judge(source, frame, found, wanted, times)
    return found


def _empty(name: str) -> pl.DataFrame:
    kinds = {column: pl.String if of.kind == "text" else pl.Int64 for column, of in TABLES[name].items()}
    frame = pl.LazyFrame(schema={**kinds, "start": pl.Int64, "end": pl.Int64})
    return _typed(name, name, frame, frame.collect_schema().names())


def _value(name: str, of: Column, given: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if of.kind == "text":
        made = column.cast(pl.String)
    elif of.kind == "time":
        made = _time(column, given)
    else:
        whole = of.kind == "count" and given.is_integer()
        number = column if whole else column.cast(pl.Float64, strict=False)
        # A pod cannot hold a fraction of a device: it is refused, not truncated.
        made = (number * _PER_UNIT[of.kind]).round() if of.kind in _PER_UNIT else pl.when(number % 1 == 0).then(number)
        made = made.cast(pl.Int64, strict=False)
    if of.fallback is not None:
        # An empty value has a meaning; an unreadable one has none.
        absent = column.is_null() | (column == "") if given == pl.String else column.is_null()
        made = pl.when(absent).then(pl.lit(of.fallback)).otherwise(made)
    return made.alias(name)


def _time(column: pl.Expr, given: pl.DataType) -> pl.Expr:
    if given.is_integer() or given.is_float():
        return column.cast(pl.Int64)
    if isinstance(given, pl.Datetime):
        return column.dt.epoch("s")
    text = column.cast(pl.String).str.strip_chars().replace("", None)
    number = text.cast(pl.Float64, strict=False).floor().cast(pl.Int64)
    spelled = (
        text.str.replace(r"Z$", "+00:00").str.replace(" ", "T").str.replace(r"^(\d{4}-\d{2}-\d{2})$", "${1}T00:00:00")
    )
    zoned = pl.when(spelled.str.contains(r"[+-]\d{2}:?\d{2}$")).then(spelled).otherwise(spelled + "+00:00")
    at = zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit="us", time_zone="UTC", strict=False)
    return pl.coalesce(number, at.dt.epoch("s"))


def _judge(
    source: str,
    raw: pl.LazyFrame,
    found: pl.DataFrame,
    wanted: Mapping[str, Column],
    times: tuple[str, ...],
) -> None:
    """Refuse the first row with a value that is missing, unreadable, out of bounds or out of order."""
    nullable = {"end"} | ({"start"} if "end" in times else set())
    tests: list[tuple[str, pl.Expr]] = []
    for column, of in wanted.items():
        bad = pl.col(column).is_null()
        if of.kind == "text" and of.fallback is None:
            bad = bad | (pl.col(column).cast(pl.String) == "")
        if of.kind != "text":
            unit = _PER_UNIT.get(of.kind, 1)
            fits = pl.col(column).is_between(_least(column, of) * unit, of.most * unit)
            bad = bad | (~fits & (pl.col(column) != NOT_SAID))
        tests.append((column, bad))
    tests += [(column, pl.col(column).is_null()) for column in times if column not in nullable]
    tests += [(column, ~pl.col(column).is_between(0, LAST)) for column in times]
    if "end" in times:
        tests.append(("end", pl.col("end") < pl.col("start")))
    rows = found.select(
        pl.when(bad).then(pl.int_range(pl.len())).min().alias(str(i)) for i, (_, bad) in enumerate(tests)
    )
    hits = [(row, tests[i][0]) for i, row in enumerate(rows.row(0)) if row is not None] if found.height else []
    # An unreadable time is not an empty one.
    for column in nullable & set(times) & set(raw.collect_schema().names()):
        here, there = found[column].is_null(), raw.select(pl.col(column).cast(pl.String)).collect().to_series()
        lost = (here & there.is_not_null() & (there != "")).arg_true()
        hits += [(int(lost[0]), column)] if len(lost) else []
    if hits:
        row, column = min(hits)
        value = raw.select(column).slice(row, 1).collect().item() if column in raw.collect_schema().names() else None
        line = row + 2 if source.endswith(".csv") else row + 1
        of = wanted.get(column, Column("time"))
        raise Violation("bill-07", f"{source}:{line}: {column}: {value!r}", f"write {_like(column, of)}")


def _like(column: str, of: Column) -> str:
    match of.kind:
        case "time":
            like = "seconds since 1970 or 2026-10-01T06:00:00Z, before the year 9999"
            return f"{like} and not before start" if column == "end" else like
        case "text":
            return "a value"
        case kind:
            what = "a whole number" if kind == "count" else "a number"
            return f"{what} from {_least(column, of):,} to {of.most:,}"


def _least(column: str, of: Column) -> int:
    """Min value of a column: only credits may be negative."""
    return -of.most if column == "dollars" else 0


# From samples to intervals


def _scrapes(moments: Mapping[str, pl.DataFrame]) -> pl.Series:
    """Every time with a sample of any table except use."""
    seen = [frame.select(pl.col("time").unique()) for name, frame in moments.items() if name != "used"]
    if not seen:
        seen = [frame.select(pl.col("time").unique()) for frame in moments.values()]
    return pl.concat(seen)["time"].unique().sort() if seen else pl.Series("time", [], pl.Int64)


def _step(scrapes: pl.Series) -> int:
    """Seconds between two scrapes: the most frequent value."""
    if len(scrapes) < 2:
        return 0
    return min(scrapes.diff().drop_nulls().mode().to_list())


def _holes(scrapes: pl.Series, step: int, start: int, end: int) -> list[tuple[int, int]]:
    """Intervals without data of more than one and a half steps, also at the ends of the range."""
    inside = scrapes.filter((scrapes >= start - step) & (scrapes < end)).to_list()
    if not inside:
        return [(start, end)]
    marks = [*([start - step] if inside[0] > start + step // 2 else []), *inside, end]
    return [(a + step, b) for a, b in pairwise(marks) if b - a > step * 3 // 2]


def _stretches(frame: pl.DataFrame, scrapes: pl.Series, step: int) -> pl.DataFrame:
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
    of = frame.select(keys).filter(numbered["series"].is_first_distinct())
    of = of.with_columns(series=numbered["series"].unique(maintain_order=True))
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
        runs.join(of, on="series")
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
