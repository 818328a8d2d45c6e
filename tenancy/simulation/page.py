"""The report as one page: no network, no script, light and dark mode, printable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenancy.catalog.waits import time
from tenancy.output import charts
from tenancy.output.html import Tile, render
from tenancy.output.tables import Table
from tenancy.simulation.report import SimulationReport, busy_part, in_use_part, wait
from tenancy.simulation.results import BINS, Results, waits_of

EVICTED = "#D55E00"


@dataclass(frozen=True, slots=True)
class Figure:
    """The chart of one run, before or after the change."""

    run: str
    chart: charts.Chart


@dataclass(frozen=True, slots=True)
class TableView:
    """A table whose columns of `numbers` are aligned to the right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    remarks: Sequence[str]
    numbers: frozenset[int]


def page(report: SimulationReport) -> str:
    """The whole page."""
    results_by_name = [("before", report.before)] + ([("after", report.after)] if report.after else [])
    final_results = report.after or report.before
    colours = charts.colours(_hours(results_by_name))
    capacity = max(final_results.capacity, report.before.capacity, 1)
    borrowed = max(
        [
            1.0,
            *(
                sum(tenant_values)
                for _, r in results_by_name
                for tenant_values in zip(*r.borrowing.values(), strict=True)
            ),
        ]
    )
    evictions = {name: _hourly(results.evicted) for name, results in results_by_name}
    peak = max([1, *(value for values in evictions.values() for value in values)])

    def figures(draw: Callable[[Results], charts.Chart]) -> list[Figure]:
        return [Figure(name, draw(results)) for name, results in results_by_name]

    def stacked(
        results: Results, series: Mapping[str, charts.Series], maximum: float, limit: float | None, title: str
    ) -> charts.Chart:
        return charts.stacked(charts.layers(series, colours, BINS), colours, maximum, results.hours, limit, title)

    return render(
        "simulation.html.j2",
        title=f"Simulation of {report.environment}{' (partial)' if report.partial else ''}",
        environment=report.environment,
        part=report.part,
        partial=report.partial,
        span=f"{report.before.jobs} jobs over {report.before.hours:g} hours",
        changes=report.changes,
        tiles=_tiles(report.before, report.after),
        colours=colours,
        in_use=figures(lambda r: stacked(r, r.use, capacity, r.capacity, "GPUs in use by tenant")),
        waits=_waits(report),
        waits_caption=_waits_caption(report),
        borrowed=figures(lambda r: stacked(r, r.borrowing, borrowed, None, "GPUs borrowed by tenant")),
        fairness=figures(lambda r: charts.line(r.fairness, r.hours, "var(--accent)", "Jain's index over time")),
        evictions=[
            Figure(name, charts.bars(evictions[name], results.hours, peak, EVICTED, "evictions over time"))
            for name, results in results_by_name
        ],
        tables=[_table(table) for table in report.tables() if table.rows],
    )


def _tiles(before: Results, after: Results | None) -> list[Tile]:
    def tile_values(results: Results | None) -> dict[str, str]:
        if results is None:
            return {}
        started = [value for values in results.all_waits.values() for value in values]
        waits = waits_of(started, sum(group.waits.never for group in results.tenants))
        idle = {
            "busy": f"{busy_part(results):.0%}",
            "suspended because idle": str(sum(group.suspended for group in results.tenants)),
            "GPU hours back": f"{sum(group.back for group in results.tenants):.0f}",
        }
        return {
            "in use": f"{in_use_part(results):.0%}" if results.capacity * results.hours else "–",
            **(idle if results.activity else {}),
            "waiting time, p95": wait(waits, waits.p95),
            "longest wait": wait(waits, waits.max),
            "evictions": str(sum(group.evictions for group in results.tenants)),
            "GPU hours lost by evictions": f"{sum(group.lost for group in results.tenants):.0f}",
            "fairness of borrowing": "–" if results.mean_fairness is None else f"{results.mean_fairness:.2f}",
        }

    tiles_before, tiles_after = tile_values(before), tile_values(after)
    tiles = []
    for name, value in tiles_before.items():
        value_after = tiles_after.get(name, value)
        tiles.append(Tile(name, value if value_after == value else f"{value} → {value_after}"))
    return tiles


def _hours(results_by_name: Sequence[tuple[str, Results]]) -> dict[str, float]:
    """GPU hours of the tenants that used any, in both runs."""
    hours: dict[str, float] = {}
    for _, results in results_by_name:
        for group in results.tenants:
            hours[group.name] = hours.get(group.name, 0) + group.used
    return {name: amount for name, amount in hours.items() if amount}


def _waits(report: SimulationReport) -> charts.Chart:
    groups_after = {group.name: group for group in report.after.tenants} if report.after else {}
    rows = []
    for group in report.before.tenants:
        group_after = groups_after.get(group.name)
        if group.waits.p95 is not None:
            value = group_after.waits.p95 if group_after else None
            rows.append((group.name, float(group.waits.p95), None if value is None else float(value)))
    rows.sort(key=lambda row: -max(row[1], row[2] or 0))
    return charts.dumbbells(rows, lambda seconds: time(round(seconds)), 3600, "waiting times")


def _waits_caption(report: SimulationReport) -> str:
    unbounded = sorted(
        {
            group.name
            for results in (report.before, report.after)
            for group in (results.tenants if results else ())
            if group.waits.p95 is None and group.waits.never
        }
    )
    dots = "hollow: before, filled: after; " if report.after else ""
    never = f"; more than 5 % never started: {', '.join(unbounded)}" if unbounded else ""
    return f"{dots}95 % of the jobs started within this time (p95); the scale is a square root{never}"


def _hourly(values: Sequence[int], bins_per_hour: int = 4) -> list[float]:
    return [float(sum(values[index : index + bins_per_hour])) for index in range(0, len(values), bins_per_hour)]


def _table(table: Table) -> TableView:
    numbers = {
        index
        for index in range(1, len(table.header))
        if all(isinstance(row[index], int | float) or _short(row[index]) for row in table.rows)
    }
    return TableView(table.title, table.header, table.rows, table.remarks, frozenset(numbers))


def _short(cell: object) -> bool:
    return isinstance(cell, str) and (cell == "–" or cell[:1].isdigit() or cell.startswith("never"))
