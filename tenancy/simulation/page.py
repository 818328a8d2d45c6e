"""The report as one page: no network, no script, light and dark mode, printable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from tenancy.simulation import drawing
from tenancy.simulation.report import Report, Table, time, wait
from tenancy.simulation.results import BINS, Results, waits_of

SHOWN = len(drawing.COLOURS)
"""Max tenants with a colour of their own; the rest share one."""
EVICTED = "#D55E00"

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --paper: #ffffff; --card: #f6f8fa;
  --accent: #0072B2; --ring: #57606a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --paper: #0d1117;
  --card: #161b22; --accent: #56B4E9; --ring: #9aa4af; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 3rem; max-width: 1560px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; } p { margin: .3rem 0; }
h3 { font-size: .9rem; font-weight: 600; margin: 0 0 .3rem; color: var(--soft); }
.soft, figcaption { color: var(--soft); font-size: .88rem; } code { background: var(--card); padding: .1em .35em; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: .8rem; margin: 1.2rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 1rem 1.5rem; }
figure.one { max-width: 780px; } figure { margin: 0; break-inside: avoid; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; } svg text.name { fill: var(--ink); }
.grid { stroke: var(--line); stroke-width: 1; } .limit { stroke: var(--ink); stroke-dasharray: 5 4; }
.stem { stroke: var(--ring); stroke-width: 2; }
circle.before { fill: var(--paper); stroke: var(--ring); stroke-width: 2; }
circle.after { fill: var(--accent); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .3rem 0 .6rem; font-size: .88rem; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: .28rem .7rem .28rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; } li { margin: .15rem 0; }
@media print { body { padding: 0; font-size: 11px; max-width: none; } h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  .pair { grid-template-columns: 1fr 1fr; } * { print-color-adjust: exact; } }
"""


def page(report: Report) -> str:
    """The whole page."""
    title = f"Simulation of {report.environment}{' (partial)' if report.partial else ''}"
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    both = [("before", report.before)] + ([("after", report.after)] if report.after else [])
    last = report.after or report.before
    yield f"<h1>Simulation of {escape(report.environment)}</h1>"
    if report.partial:
        yield f"<p><strong>Partial results, {escape(report.part)}:</strong> {escape(report.partial)}</p>"
    what = " and ".join(f"<code>{escape(change)}</code>" for change in report.changes)
    over = f"{report.before.jobs} jobs over {report.before.hours:g} hours"
    yield f'<p class="soft">{over}{", before and after " + what if what else ""}</p>'
    yield _tiles(report.before, report.after)

    colours = _colours(both)
    most = max(last.capacity, report.before.capacity)
    yield "<h2>GPUs in use</h2>"
    yield drawing.legend(colours)
    yield _pair(
        both,
        lambda r: drawing.stacked(
            drawing.layers(r.use, colours, BINS), colours, max(most, 1), r.hours, r.capacity, "GPUs in use by tenant"
        ),
        "the dashed line is the total number of GPUs",
    )
    yield "<h2>Waiting times</h2>"
    yield _waits(report)
    yield "<h2>GPUs borrowed</h2>"
    lent = max([1.0, *(sum(each) for _, r in both for each in zip(*r.borrowing.values(), strict=True))])
    yield _pair(
        both,
        lambda r: drawing.stacked(
            drawing.layers(r.borrowing, colours, BINS), colours, lent, r.hours, None, "GPUs borrowed by tenant"
        ),
        "above the tenant's guarantee",
    )
    yield "<h2>Fairness of borrowing</h2>"
    yield _pair(
        both,
        lambda r: drawing.line(r.fairness, r.hours, "var(--accent)", "Jain's index over time"),
        "Jain's index of borrowed GPUs divided by weight, among tenants that borrow or wait to: 1 is even, and 1/n "
        "means that one of n tenants has all of them",
    )
    yield "<h2>Evictions</h2>"
    counted = {name: _hourly(r.evicted) for name, r in both}
    peak = max([1, *(value for values in counted.values() for value in values)])
    yield _pair(
        both,
        lambda r: drawing.bars(_hourly(r.evicted), r.hours, peak, EVICTED, "evictions over time"),
        "number of evictions over time",
    )
    for table in report.tables():
        if table.rows:
            yield _table(table)


def _tiles(before: Results, after: Results | None) -> str:
    def one(of: Results | None) -> dict[str, str]:
        if of is None:
            return {}
        started = [value for values in of.all_waits.values() for value in values]
        waits = waits_of(started, sum(group.waits.never for group in of.tenants))
        there = of.capacity * of.hours
        return {
            "in use": f"{sum(pool.used for pool in of.pools) / there:.0%}" if there else "–",
            "waiting time, p95": wait(waits, waits.p95),
            "longest wait": wait(waits, waits.max),
            "evictions": str(sum(group.evictions for group in of.tenants)),
            "GPU hours lost by evictions": f"{sum(group.lost for group in of.tenants):.0f}",
            "fairness of borrowing": "–" if of.mean_fairness is None else f"{of.mean_fairness:.2f}",
        }

    first, second = one(before), one(after)
    tiles = []
    for name, value in first.items():
        later = second.get(name, value)
        text = value if later == value else f"{value} → {later}"
        tiles.append(f'<div class="tile"><span class="soft">{escape(name)}</span><b>{escape(text)}</b></div>')
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _colours(both: Sequence[tuple[str, Results]]) -> dict[str, str]:
    """The tenants with most GPU hours, in either run, and one grey for the rest."""
    hours: dict[str, float] = {}
    for _, results in both:
        for group in results.tenants:
            hours[group.name] = hours.get(group.name, 0) + group.used
    names = sorted((name for name in hours if hours[name]), key=lambda name: (-hours[name], name))
    found = dict(zip(names, drawing.COLOURS, strict=False))
    return found | ({drawing.OTHERS: drawing.REST} if len(names) > SHOWN else {})


def _pair(both: Sequence[tuple[str, Results]], draw: Callable[[Results], str], caption: str) -> str:
    figures = "".join(
        f"<figure>{f'<h3>{name} the change</h3>' if len(both) > 1 else ''}{draw(results)}</figure>"
        for name, results in both
    )
    return f'<div class="pair">{figures}</div><p class="soft">{escape(caption)}</p>'


def _waits(report: Report) -> str:
    after = {group.name: group for group in report.after.tenants} if report.after else {}
    rows = []
    for group in report.before.tenants:
        later = after.get(group.name)
        if group.waits.p95 is not None:
            value = later.waits.p95 if later else None
            rows.append((group.name, float(group.waits.p95), None if value is None else float(value)))
    unbounded = sorted(
        {
            group.name
            for results in (report.before, report.after)
            for group in (results.tenants if results else ())
            if group.waits.p95 is None and group.waits.never
        }
    )
    rows.sort(key=lambda row: -max(row[1], row[2] or 0))
    chart = drawing.dumbbells(rows, lambda seconds: time(round(seconds)), 3600, "waiting times")
    dots = "hollow: before, filled: after; " if report.after else ""
    caption = f"{dots}95 % of the jobs started within this time (p95); the scale is a square root"
    if unbounded:
        caption += f"; more than 5 % never started: {', '.join(unbounded)}"
    return f'<figure class="one">{chart}</figure><p class="soft">{caption}</p>'


def _hourly(values: Sequence[int], each: int = 4) -> list[float]:
    return [float(sum(values[at : at + each])) for at in range(0, len(values), each)]


def _table(table: Table) -> str:
    numeric = [
        all(isinstance(row[at], int | float) or _short(row[at]) for row in table.rows)
        for at in range(len(table.header))
    ]
    classes = [' class="n"' if number and at else "" for at, number in enumerate(numeric)]
    head = "".join(f"<th{of}>{escape(name)}</th>" for name, of in zip(table.header, classes, strict=True))
    rows = "".join(
        f"<tr>{''.join(f'<td{of}>{escape(str(cell))}</td>' for cell, of in zip(row, classes, strict=True))}</tr>"
        for row in table.rows
    )
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in table.remarks)
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>'
        f"</table></div>{f'<ul class=soft>{remarks}</ul>' if remarks else ''}"
    )


def _short(cell: object) -> bool:
    return isinstance(cell, str) and (cell == "–" or cell[:1].isdigit() or cell.startswith("never"))
