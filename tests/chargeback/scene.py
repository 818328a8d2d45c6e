"""Traces in few lines: the small environment of `tests/conftest.py`, with prices, and tables written as rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from tenancy.chargeback.model import Category, ChargebackReport
from tenancy.chargeback.periods import Period, PeriodLength, periods
from tenancy.chargeback.report import make_report
from tenancy.chargeback.tables import Tables, tables
from tenancy.spec.loader import Loaded
from tests.conftest import SpecFolder

UTC = ZoneInfo("UTC")
HOUR = 3600
DAY = 24 * HOUR
OCTOBER = int(dt.datetime(2026, 10, 1, tzinfo=dt.UTC).timestamp())
NOVEMBER = OCTOBER + 31 * DAY
PRICES = "prices: {l4: 0.80, a100-40gb: 2.50}\n"
"""A node of train or serve is $20 an hour, one of notebooks $3.20."""
MICRO = 1_000_000


def priced(path: Path, more: str = "", prices: str = PRICES) -> Loaded:
    """The small environment with prices."""
    folder = SpecFolder(path / "small")
    folder.add("environment.yaml", prices + more)
    return folder.load()


def node(name: str, pool: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"node": name, "pool": pool, "start": start, "end": end, **more}


def allocation(where: str, on: str, flavor: str, count: int, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "namespace": where,
        "workload": more.pop("workload", f"{where}-{on}"),
        "node": on,
        "flavor": flavor,
        "count": count,
        "start": start,
        "end": end,
        **more,
    }


def tables_of(start: int, end: int, **rows: Iterable[Mapping[str, Any]]) -> Tables:
    """Tables of rows, as though they had been read."""
    frames = {name: pl.DataFrame(list(table_rows), infer_schema_length=None) for name, table_rows in rows.items()}
    frames.setdefault("allocations", pl.DataFrame([allocation("none--main", "none", "a100", 1, start, start)]))
    return tables({name: [(f"{name}.jsonl", frame.lazy())] for name, frame in frames.items()}, start, end)


def whole_periods(start: int, end: int, by: PeriodLength = PeriodLength.RANGE, zone: ZoneInfo = UTC) -> list[Period]:
    return periods(start, end, by, zone)


def report(
    loaded: Loaded, start: int, end: int, by: PeriodLength = PeriodLength.RANGE, **rows: Iterable[Mapping[str, Any]]
) -> ChargebackReport:
    return make_report(loaded.environment, loaded.tenants, tables_of(start, end, **rows), whole_periods(start, end, by))


def dollars(costs: ChargebackReport, *words: object) -> float:
    """Dollars of all lines that have every one of these words: a tenant, a category, a pool, a purchase, a flavor."""
    return round(sum(line.micro for line in costs.lines if _has(line, words)) / MICRO, 6)


def device_hours(costs: ChargebackReport, *words: object) -> float:
    return sum(line.devices for line in costs.lines if _has(line, words)) / HOUR


def _has(line: Any, required: Sequence[object]) -> bool:
    unit = line.billing_unit
    words = {line.tenant, str(line.category), line.flavor, unit.pool, unit.purchase, unit.period}
    return {str(w) if isinstance(w, Category) else w for w in required} <= words


def rules(costs: ChargebackReport) -> set[str]:
    return {finding.rule for finding in costs.findings}
