"""`tenancy simulate`: a day of work on a real Kueue, before and after a change."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from tenancy.cli.common import (
    BAD_INPUT,
    environment_argument,
    example,
    fail,
    load_or_exit,
    refuses_bad_input,
    report_write_errors,
    say,
)

if TYPE_CHECKING:
    from tenancy.simulation.report import SimulationReport
    from tenancy.simulation.trace import Trace
    from tenancy.spec.reading.problems import SpecError

MAX_JOBS = 100_000
"""Max jobs of one run, which takes hours."""
HOURS_PER_DAY = 24


@click.command(
    epilog=example("tenancy simulate bank --change fraud:gpus.a100.guaranteed=96 --out page.html"),
)
@environment_argument
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="CSV file with one job per row. Default: a generated trace, by --jobs, --hours and --seed.",
)
@click.option(
    "--map-user",
    "mapped",
    multiple=True,
    metavar="USER=TENANT",
    help="Tenant to which a user or team of the --trace file belongs; repeatable.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=2000,
    show_default=True,
    metavar="N",
    help="Number of jobs in the generated trace.",
)
@click.option(
    "--hours",
    type=click.IntRange(1, 24 * 366),
    metavar="N",
    help="Length in hours of the generated trace, or of the section of the --trace file. Default: 24, or to the end of "
    "the file.",
)
@click.option(
    "--start-hour",
    "begin",
    type=click.IntRange(min=0),
    metavar="HOUR",
    help="First hour of the section of the --trace file. Default: 0.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Random seed of the generated trace; the same seed gives the same trace.",
)
@click.option(
    "--notebooks",
    type=click.IntRange(min=0, max=MAX_JOBS),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of notebooks in the generated trace, besides --jobs: their GPUs become idle while they are open.",
)
@click.option(
    "--start-date",
    "day",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="First day of the run, UTC, for windows, further shares and budgets. Default: the next Monday.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="CHANGE",
    help="Change to the spec for a second run: TENANT:FIELD=VALUE, environment:FIELD=VALUE, or a folder with changed "
    "spec files; repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML page with the results to this file too.",
)
@click.option(
    "--write-trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the trace to this CSV file and stop without a run.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    help="Format of the output. Default: table.",
)
@click.option(
    "--speed",
    default="auto",
    show_default=True,
    metavar="auto|N",
    help="Simulated seconds per real second while work waits. A start may be recorded up to N simulated seconds late.",
)
@click.option(
    "--checkpoints",
    "state",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for checkpoints of the run. Default: .lab/simulations of the checkout.",
)
@click.option(
    "--ignore-checkpoints", "fresh", is_flag=True, help="Start at hour 0 and ignore checkpoints of an interrupted run."
)
@refuses_bad_input
def command(
    environment: str,
    trace: Path | None,
    mapped: tuple[str, ...],
    jobs: int,
    hours: int | None,
    begin: int | None,
    seed: int,
    notebooks: int,
    day: dt.datetime | None,
    changes: tuple[str, ...],
    out: Path | None,
    write_trace: Path | None,
    form: str,
    speed: str,
    state: Path | None,
    fresh: bool,
) -> None:
    """Simulate a trace of work under the quotas of ENV, and a second time with the changes of --change.

    A real Kueue, started for the simulation, decides which work starts; nodes, pods and time are simulated. The command
    needs no cluster and no lab, and takes some minutes for a day of work. The same command continues an interrupted
    run from its last checkpoint.

    Exit codes: 0 success, 1 the results are partial, 2 bad input, 130 interrupted.
    """
    from tenancy.spec.reading.problems import SpecError

    window = _window(speed)
    _refuse_unused_options(trace is not None)
    for option, path in (("--out", out), ("--write-trace", write_trace)):
        _require_writable(option, path)
    loaded = load_or_exit(environment, "json" if form == "json" else "text")
    if not loaded.environment.has_queues:
        fail(
            f"given {environment}, with queues.scheduler: none; rule: a simulation needs queues; change: drop "
            "queues.scheduler: none",
            BAD_INPUT,
        )
    from tenancy.planning.common.stages import without_removed_tenants
    from tenancy.simulation import trace as traces
    from tenancy.simulation import trace_files
    from tenancy.simulation.changes import with_changes
    from tenancy.simulation.generate import generate
    from tenancy.simulation.report import run_both

    try:
        after = without_removed_tenants(with_changes(loaded, changes)) if changes else None
        loaded = without_removed_tenants(loaded)
        if trace:
            work_trace = _section(trace_files.read(trace, loaded, _mapping(mapped)), trace, begin, hours)
        else:
            generated_jobs = generate(loaded, jobs, hours or HOURS_PER_DAY, seed, notebooks)
            if not generated_jobs:
                fail(f"given {environment}, whose tenants have no GPUs; rule: work needs GPUs", BAD_INPUT)
            work_trace = traces.Trace(tuple(generated_jobs), (f"generated with seed {seed}",))
        if after is not None:
            traces.must_fit(work_trace, after)
    except SpecError as error:
        _refuse(error, form)
    if write_trace:
        with report_write_errors():
            write_trace.write_text(traces.write(work_trace.jobs), "utf-8")
        click.echo(f"{write_trace}: {len(work_trace.jobs)} jobs", err=True)
        return
    end_second = max(job.submit for job in work_trace.jobs) + 1
    seconds = end_second if trace and hours is None else (hours or HOURS_PER_DAY) * 3600
    report = _run_interruptible(
        lambda: run_both(
            loaded,
            after,
            work_trace,
            -(-seconds // 3600) * 3600,
            window,
            changes,
            lambda line: click.echo(line, err=True),
            _state(state),
            fresh=fresh,
            start=day.replace(tzinfo=dt.UTC) if day else None,
        )
    )
    _show(report, form)
    if out:
        from tenancy.simulation.page import page

        with report_write_errors():
            out.write_text(page(report), "utf-8")
        click.echo(f"{out}: {out.stat().st_size // 1024} KiB", err=True)
    if report.partial:
        change = "run the same command again, which continues from there, or try --jobs 500"
        at = f"{report.before.hours:.1f} h"
        fail(f"the simulation stalled at {at}: {report.partial}; the results above are partial; change: {change}")


def _state(folder: Path | None) -> Path:
    """The folder of the checkpoints, created if it does not exist."""
    from tenancy.lab.control_plane import SIMULATIONS
    from tenancy.lab.layout import Lab, LabError
    from tenancy.lab.tools import cache_root

    if folder is None:
        try:
            folder = Lab.locate().folder / SIMULATIONS
        except LabError:
            folder = cache_root() / SIMULATIONS
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        rule = f"a folder that can be created ({error.strerror})"
        fail(f"given --checkpoints {folder}; rule: {rule}; change: another path", BAD_INPUT)
    return folder


def _section(trace: Trace, path: Path, begin: int | None, hours: int | None) -> Trace:
    """The section of a trace file that --start-hour and --hours select; more jobs than the max of a run are refused."""
    from tenancy.simulation import trace as traces

    if begin is not None or hours is not None:
        last_hour_count = trace.jobs[-1].submit // 3600 + 1
        trace = traces.select_hours(trace, begin or 0, hours or last_hour_count)
        if not trace.jobs:
            input_text = (
                f"given --start-hour {begin or 0} and {path}, whose last job is submitted in hour {last_hour_count - 1}"
            )
            fail(f"{input_text}; rule: a trace has jobs; change: select hours with jobs", BAD_INPUT)
    if len(trace.jobs) > MAX_JOBS:
        input_text = f"given {path} with {len(trace.jobs):,} jobs"
        change = "take a part of it, --start-hour 24 --hours 24 for its second day"
        fail(f"{input_text}; rule: a run has at most {MAX_JOBS:,}, which take hours; change: {change}", BAD_INPUT)
    return trace


def _window(speed: str) -> int | None:
    if speed == "auto":
        return None
    if not (speed.isascii() and speed.isdigit() and int(speed)):
        fail(f"given --speed {speed!r}; rule: auto or a whole number above 0; change: write --speed 360", BAD_INPUT)
    return int(speed)


def _refuse_unused_options(has_trace_file: bool) -> None:
    """Refuse options that would have no effect."""
    parameter_source = click.get_current_context().get_parameter_source
    for name, option in (("jobs", "--jobs"), ("seed", "--seed"), ("notebooks", "--notebooks")):
        if has_trace_file and parameter_source(name) is ParameterSource.COMMANDLINE:
            rule = f"{option} is for a generated trace"
            fail(f"given {option} with --trace; rule: {rule}; change: drop one of the two", BAD_INPUT)
    if not has_trace_file and parameter_source("begin") is ParameterSource.COMMANDLINE:
        fail(
            "given --start-hour without --trace; rule: a generated trace starts at 0; change: add --trace FILE",
            BAD_INPUT,
        )
    if not has_trace_file and parameter_source("mapped") is ParameterSource.COMMANDLINE:
        fail(
            "given --map-user without --trace; rule: --map-user names users of a trace; change: add --trace FILE",
            BAD_INPUT,
        )


def _require_writable(option: str, path: Path | None) -> None:
    """Refuse a path that cannot be written before the run, which takes minutes."""
    if path is None:
        return
    target = path if path.exists() or not path.parent.is_dir() else path.parent
    if not os.access(target, os.W_OK):
        rule = "a file that can be written, in a folder that exists"
        fail(f"given {option} {path}; rule: {rule}; change: another path", BAD_INPUT)


def _mapping(texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if not all(text.partition("=")):
            fail(
                f"given --map-user {text!r}; rule: a name and a tenant; change: write --map-user user42=fraud",
                BAD_INPUT,
            )
    return {name: tenant for name, _, tenant in (text.partition("=") for text in texts)}


def _refuse(error: SpecError, form: str) -> NoReturn:
    if form == "json":
        click.echo(json.dumps({"problems": [problem.as_dict() for problem in error.problems]}, indent=2))
    for problem in error.problems if form != "json" else ():
        say(str(problem), err=True)
    count = len(error.problems)
    click.echo(f"tenancy: {count} problem{'s' * (count > 1)}; nothing was started", err=True)
    sys.exit(BAD_INPUT)


def _run_interruptible(work: Any) -> SimulationReport:
    """Run `work`; a signal that ends it also ends the processes that it started."""
    from tenancy.lab.layout import LabError
    from tenancy.lab.tools import ToolsError

    def end(number: int, _frame: Any) -> NoReturn:
        # A second signal must not interrupt the cleanup.
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    before = {
        signal_number: signal.signal(signal_number, end)
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        return work()
    except KeyboardInterrupt:
        again = "the same command continues from the last checkpoint"
        click.echo(f"tenancy: interrupted; nothing is left running; {again}", err=True)
        sys.exit(130)
    except (LabError, ToolsError) as problem:
        fail(str(problem))
    except OSError as problem:
        fail(f"the simulation failed: {problem}; change: run the same command again, which continues it")
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


def _show(report: SimulationReport, form: str) -> None:
    if form == "json":
        click.echo(json.dumps(report.as_json(), indent=2))
        return
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for row in report.rows():
            writer.writerow(row)
        click.echo(out.getvalue(), nl=False)
        return
    from tenancy.cli.tables import print_tables

    print_tables(report.tables())
