"""`tenancy chargeback`: who pays what of the bill, and why."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tenancy.cli.common import BAD_INPUT, FAILED, environment_argument, example, fail, load_or_exit, refuses_bad_input

if TYPE_CHECKING:
    from tenancy.chargeback.model import ChargebackReport
    from tenancy.chargeback.tables import Tables
    from tenancy.chargeback.use import BudgetUse, TenantUse
    from tenancy.output.tables import Table
    from tenancy.spec.loader import Loaded


@click.command(
    epilog=example("tenancy chargeback bank --from 2026-10-01 --to 2026-11-01 --tables october/ --explain fraud")
)
@environment_argument
@click.option(
    "--from",
    "start",
    required=True,
    metavar="TIME",
    help="Start of the range: a date, such as 2026-10-01, which means its midnight in --timezone, or a time.",
)
@click.option(
    "--to", "end", required=True, metavar="TIME", help="End of the range, exclusive: a date or a time, as in --from."
)
@click.option(
    "--period",
    "by",
    type=click.Choice(["month", "week", "day", "range"]),
    default="month",
    show_default=True,
    help="Length of a billing period; work that runs across a boundary is split there.",
)
@click.option(
    "--timezone",
    "zone",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="Time zone of the period boundaries, such as Europe/Berlin.",
)
@click.option(
    "--tables",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Read usage from the tables in this folder, such as --save-tables wrote.",
)
@click.option("--prometheus", metavar="URL", help="Read usage from the Prometheus at this URL.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the bearer token for --prometheus. Default: no token.",
)
@click.option(
    "--step",
    type=click.IntRange(15, 3600),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two samples that --prometheus is asked for.",
)
@click.option(
    "--save-tables",
    "record",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write the usage of --prometheus or --example into this folder, as tables for --tables.",
)
@click.option(
    "--example",
    "seed",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Generate example usage with this seed, to see what a bill looks like.",
)
@click.option(
    "--bill",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Allocate the costs of this AWS Cost and Usage Report (CUR 2.0, Parquet); repeatable. Default: prices of the "
    "spec.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY",
    help="Split what work held by this label of its namespace, such as product or project, in the formats csv, parquet "
    "and focus; repeatable.",
)
@click.option("--tenant", metavar="NAME", help="Limit the report to this tenant.")
@click.option("--explain", metavar="NAME", help="Show how this tenant's total is computed, down to the workloads.")
@click.option(
    "--max-workloads",
    "rows",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of workloads that --explain shows.",
)
@click.option(
    "--events", type=click.Path(path_type=Path), metavar="FILE", help="Write usage events to this file as JSON lines."
)
@click.option(
    "--mail",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write a mail to every tenant into this folder, as Markdown and HTML; none is sent.",
)
@click.option("--strict", is_flag=True, help="Exit with code 1 if data for the report is missing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "focus", "parquet"]),
    default="table",
    show_default=True,
    help="Format of the report; focus is the FinOps format FOCUS as CSV.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report to this file instead of printing it. Required with --format parquet.",
)
@refuses_bad_input
def command(
    environment: str,
    start: str,
    end: str,
    by: str,
    zone: str,
    folder: Path | None,
    prometheus: str | None,
    token_file: Path | None,
    step: int,
    record: Path | None,
    seed: int | None,
    bill: tuple[Path, ...],
    labels: tuple[str, ...],
    tenant: str | None,
    explain: str | None,
    rows: int,
    events: Path | None,
    mail: Path | None,
    strict: bool,
    form: str,
    out: Path | None,
) -> None:
    """Allocate the cost of ENV's nodes to tenants, so that every GPU-second has a payer and the sum is the bill.

    Usage comes from exactly one of --tables, --prometheus and --example. A tenant pays for the capacity that its
    workloads hold. Idle capacity of an owned pool is paid by the pool's owner; of a shared pool, by the tenants with
    guarantees there. docs/chargeback.md has the formulas and the columns of the tables.
    """
    from tenancy.chargeback import periods as calendar

    sources = [name for name, value in (("--tables", folder), ("--prometheus", prometheus)) if value]
    sources += ["--example"] if seed is not None else []
    if len(sources) != 1:
        _refuse(
            f"{' and '.join(sources) or 'no data'}",
            "usage comes from exactly one source",
            "--tables, --prometheus or --example",
        )
    if form == "parquet" and not out:
        _refuse("--format parquet without --out", "Parquet is written to a file", "--out FILE")
    if labels and form not in {"csv", "parquet", "focus"}:
        _refuse(f"--label with --format {form}", "labels are columns or tags", "--format csv, parquet or focus")
    if token_file and not prometheus:
        _refuse("--token-file without --prometheus", "a token is for a Prometheus", "--prometheus URL")
    loaded = load_or_exit(environment, "json" if form == "json" else "text")
    try:
        import polars  # noqa: F401
    except ImportError:
        fail(
            'given an installation without polars; rule: this command needs it; change: pip install "gpu-tenancy[cost]"'
        )
    from tenancy.chargeback import bill as bills
    from tenancy.chargeback import outputs
    from tenancy.chargeback.budgets import data_gaps
    from tenancy.chargeback.labels import known_keys
    from tenancy.chargeback.report import make_report
    from tenancy.chargeback.use import budgets, uses

    time_zone = calendar.zone_of(zone)
    time_range = (calendar.moment(start, time_zone), calendar.moment(end, time_zone))
    periods = calendar.periods(*time_range, calendar.PeriodLength(by), time_zone)
    if events:
        outputs.require_whole_periods(periods)
    tables = _read(loaded, time_range, folder, prometheus, token_file, step, seed, record)
    billed_costs = bills.read_bill(bill, periods, loaded.environment.environment) if bill else None
    report = make_report(loaded.environment, loaded.tenants, tables, periods, billed_costs)
    tenant_uses, budget_uses = uses(report, tables), budgets(report, calendar.PeriodLength(by))
    known_tenants = sorted(
        {line.tenant for line in report.lines} | {loaded_tenant.tenant for loaded_tenant in loaded.tenants}
    )
    for name in filter(None, (tenant, explain)):
        if name not in known_tenants:
            _refuse(f"tenant {name!r}", f"a tenant of {environment} or a payer in the report", ", ".join(known_tenants))
    for key in labels:
        if key not in (keys := known_keys(report)):
            _refuse(f"--label {key!r}", "a label of a tenant or a namespace", ", ".join(keys))
    if tenant:
        report.lines = [line for line in report.lines if line.tenant == tenant]
        tenant_uses, budget_uses = (
            [u for u in tenant_uses if u.tenant == tenant],
            [d for d in budget_uses if d.tenant == tenant],
        )
    report.notes += data_gaps(report, budget_uses, tenant_uses, tenant or "")
    try:
        _write(report, tenant_uses, budget_uses, form, out, tenant or "", explain, rows, labels)
        if events:
            events.write_text("".join(f"{line}\n" for line in outputs.events(report)), "utf-8")
        if mail:
            _mail(report, loaded, tenant_uses, budget_uses, mail)
    except OSError as error:
        _refuse(str(error.filename), f"a path that can be written ({error.strerror})", "another path")
    if report.findings:
        from tenancy.catalog.text import pluralize

        if form != "table" or out:
            for finding in report.findings:
                click.echo(f"tenancy: {finding}", err=True)
        if strict:
            fail(
                f"{pluralize(len(report.findings), 'finding')} of missing data, which --strict does not accept", FAILED
            )


def _refuse(input_text: str, rule: str, change: str) -> NoReturn:
    fail(f"given {input_text}; rule: {rule}; change: use {change}", BAD_INPUT)


def _token(file: Path) -> str:
    from tenancy.catalog.files import SETTINGS, read_text_file

    try:
        token, reason = read_text_file(file, SETTINGS).strip(), "an empty file"
    except (OSError, UnicodeDecodeError) as error:
        token, reason = "", getattr(error, "strerror", None) or "not UTF-8"
    if not token:
        _refuse(f"--token-file {file} ({reason})", "a file with a token", "the path of a file that holds one")
    return token


def _read(
    loaded: Loaded,
    time_range: tuple[int, int],
    folder: Path | None,
    prometheus: str | None,
    token_file: Path | None,
    step: int,
    seed: int | None,
    record: Path | None,
) -> Tables:
    from tenancy.chargeback import tables

    if folder:
        return tables.read(folder, *time_range)
    if prometheus:
        from tenancy.chargeback.prometheus import prometheus_at, read_tables
        from tenancy.cluster.prometheus import PrometheusUnavailable

        token = _token(token_file) if token_file else ""
        try:
            frames = read_tables(prometheus_at(prometheus, token), loaded.environment, *time_range, step)
        except PrometheusUnavailable as error:
            fail(f"given --prometheus {prometheus}; rule bill-10: {error}; change: check the address and the token")
    else:
        from tenancy.chargeback.example import frames as made
        from tenancy.chargeback.example import month
        from tenancy.planning.common.stages import without_removed_tenants

        frames = made(month(without_removed_tenants(loaded), *time_range, seed or 0))
    if record:
        try:
            record.mkdir(parents=True, exist_ok=True)
            for name, frame in frames.items():
                frame.write_parquet(record / f"{name}.parquet")
        except OSError as error:
            _refuse(f"--save-tables {record}", f"a folder that can be written to ({error.strerror})", "another path")
    return tables.tables({name: [(name, frame.lazy())] for name, frame in frames.items()}, *time_range)


def _write(
    report: ChargebackReport,
    tenant_uses: Sequence[TenantUse],
    budget_uses: Sequence[BudgetUse],
    form: str,
    out: Path | None,
    tenant: str,
    explain: str | None,
    rows: int,
    labels: Sequence[str],
) -> None:
    import json

    from tenancy.chargeback import outputs

    if form == "parquet" and out:
        out.write_bytes(outputs.as_parquet(report, labels))
        return
    match form:
        case "json":
            text = json.dumps(outputs.as_json(report, tenant_uses, budget_uses), indent=2) + "\n"
        case "csv":
            text = outputs.as_csv(outputs.columns(labels), outputs.rows(report, labels))
        case "focus":
            text = outputs.as_csv(outputs.FOCUS, outputs.focus(report, labels))
        case _:
            terminal = out is None and sys.stdout.isatty()
            text = _text(report, tenant_uses, budget_uses, tenant, explain, rows, terminal)
    if out:
        out.write_text(text, "utf-8")
    else:
        click.echo(text, nl=False)


def _text(
    report: ChargebackReport,
    tenant_uses: Sequence[TenantUse],
    budget_uses: Sequence[BudgetUse],
    tenant: str,
    explain: str | None,
    rows: int,
    terminal: bool,
) -> str:
    from tenancy.chargeback import pages
    from tenancy.output.tables import Table, as_text

    report_tables = (
        pages.explain(report, explain, rows) if explain else pages.tables(report, tenant_uses, budget_uses, tenant)
    )
    tables = [_with_number_columns(table) for table in report_tables if table.rows]
    for title, notes in (("Missing data", report.findings), ("Notes", report.notes)):
        tables += [Table(title, (), (), [str(note) for note in notes])] if notes else []
    parts = [as_text(table, terminal=terminal) for table in tables]
    return "\n\n".join(parts or ["No costs: no node was observed, and nothing was billed."]) + "\n"


_NUMBER = re.compile(r"-?[0-9][0-9,]*(\.[0-9]+)?|–|")


def _with_number_columns(table: Table) -> Table:
    """The table with its columns of numbers, which are texts with thousands separators."""
    columns = list(zip(*table.rows, strict=True))
    number_columns = {
        column for column in range(1, len(columns)) if all(_NUMBER.fullmatch(str(cell)) for cell in columns[column])
    }
    return table._replace(numbers=frozenset(number_columns))


def _mail(
    report: ChargebackReport,
    loaded: Loaded,
    tenant_uses: Sequence[TenantUse],
    budget_uses: Sequence[BudgetUse],
    folder: Path,
) -> None:
    from tenancy.chargeback.mail import mail

    folder.mkdir(parents=True, exist_ok=True)
    payers = {line.tenant for line in report.lines}
    for tenant in loaded.tenants:
        if tenant.tenant in payers:
            for form, ending in (("markdown", "md"), ("html", "html")):
                (folder / f"{tenant.tenant}.{ending}").write_text(
                    mail(report, tenant, tenant_uses, budget_uses, form), "utf-8"
                )
