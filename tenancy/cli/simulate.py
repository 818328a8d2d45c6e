"""`tenancy simulate`: a day of work on the real Kueue, before a change and after it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from tenancy.cli.common import BAD_INPUT, environment_argument, example, fail, load_or_exit, refuses_bad_input, writing

if TYPE_CHECKING:
    from tenancy.simulation.report import Report
    from tenancy.simulation.trace import Trace
    from tenancy.spec import SpecError

MOST_JOBS = 100_000
"""Of one run: it takes hours."""
A_DAY = 24


@click.command(
    epilog=example("tenancy simulate bank --change fraud:gpus.a100.guaranteed=96 --out page.html"),
)
@environment_argument
@click.option(
    "--trace", type=click.Path(path_type=Path), help="CSV of jobs; absent: made from --jobs, --hours, --seed."
)
@click.option("--map", "mapped", multiple=True, metavar="NAME=TENANT", help="Which tenant a user of the trace is.")
@click.option(
    "--jobs", type=click.IntRange(1, MOST_JOBS), default=2000, show_default=True, help="Jobs of a made trace."
)
@click.option(
    "--hours",
    type=click.IntRange(1, 24 * 366),
    help="Hours of a made trace, 24 unless said; of a file, how much of it is taken.",
)
@click.option("--from", "begin", type=click.IntRange(min=0), help="Hour of a file that is the first; 0 unless said.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Same seed, same trace.")
@click.option("--change", "changes", multiple=True, metavar="WHAT", help="Second run: tenant:path=value, or a folder.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write a page to look at.")
@click.option("--write-trace", type=click.Path(path_type=Path, dir_okay=False), help="Write the trace and end.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", help="How to print the answer."
)
@click.option(
    "--speed",
    default="auto",
    show_default=True,
    metavar="auto|N",
    help="N simulated seconds in a real one while work waits: a start may be found so late.",
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
    changes: tuple[str, ...],
    out: Path | None,
    write_trace: Path | None,
    form: str,
    speed: str,
) -> None:
    """Run a trace of work under the quotas of ENV on a Kueue of its own, and again with what --change says.

    Kueue decides; nothing else is real. It needs no cluster and no lab, and takes some minutes for a day of work.
    """
    from tenancy.spec import SpecError

    window = _window(speed)
    _idle_options(trace is not None)
    for option, path in (("--out", out), ("--write-trace", write_trace)):
        _writable(option, path)
    loaded = load_or_exit(environment, "json" if form == "json" else "text")
    if not loaded.environment.queued:
        fail(
            f"given {environment}, where nobody queues; rule: a simulation is one of queues; change: drop "
            "queues.scheduler: none",
            BAD_INPUT,
        )
    from tenancy.simulation import trace as traces
    from tenancy.simulation.changes import changed
    from tenancy.simulation.generate import generate
    from tenancy.simulation.report import run_both

    try:
        after = changed(loaded, changes) if changes else None
        if trace:
            found = _part(traces.read(trace, loaded, _mapping(mapped)), trace, begin, hours)
        else:
            made = generate(loaded, jobs, hours or A_DAY, seed)
            if not made:
                fail(f"given {environment}, whose tenants have no GPUs; rule: work needs some", BAD_INPUT)
            found = traces.Trace(tuple(made), (f"made with seed {seed}",))
        if after is not None:
            traces.must_fit(found, after)
    except SpecError as error:
        _refuse(error, form)
    if write_trace:
        with writing():
            write_trace.write_text(traces.write(found.jobs), "utf-8")
        click.echo(f"{write_trace}: {len(found.jobs)} jobs", err=True)
        return
    last = max(job.submit for job in found.jobs) + 1
    seconds = last if trace and hours is None else (hours or A_DAY) * 3600
    report = _guarded(
        lambda: run_both(
            loaded, after, found, -(-seconds // 3600) * 3600, window, changes, lambda line: click.echo(line, err=True)
        )
    )
    _show(report, form)
    if out:
        from tenancy.simulation.page import page

        with writing():
            out.write_text(page(report), "utf-8")
        click.echo(f"{out}: {out.stat().st_size // 1024} KiB", err=True)


def _part(found: Trace, path: Path, begin: int | None, hours: int | None) -> Trace:
    """The hours of a file that were asked for; more jobs than one run takes end it."""
    from tenancy.simulation import trace as traces

    if begin is not None or hours is not None:
        there = found.jobs[-1].submit // 3600 + 1
        found = traces.cut(found, begin or 0, hours or there)
        if not found.jobs:
            given = f"given --from {begin or 0} and {path}, whose last job comes in hour {there - 1}"
            fail(f"{given}; rule: a trace has jobs; change: ask for hours in which some come", BAD_INPUT)
    if len(found.jobs) > MOST_JOBS:
        given = f"given {path} with {len(found.jobs):,} jobs"
        change = "take a part of it, --from 24 --hours 24 for its second day"
        fail(f"{given}; rule: a run has at most {MOST_JOBS:,}, which take hours; change: {change}", BAD_INPUT)
    return found


def _window(speed: str) -> int | None:
    if speed == "auto":
        return None
    if not (speed.isascii() and speed.isdigit() and int(speed)):
        fail(f"given --speed {speed!r}; rule: auto or a whole number above 0; change: write --speed 360", BAD_INPUT)
    return int(speed)


def _idle_options(traced: bool) -> None:
    """What was asked for and would change nothing is a mistake."""
    given = click.get_current_context().get_parameter_source
    for name, option in (("jobs", "--jobs"), ("seed", "--seed")):
        if traced and given(name) is ParameterSource.COMMANDLINE:
            fail(f"given {option} with --trace; rule: it is for a made trace; change: drop one of the two", BAD_INPUT)
    if not traced and given("begin") is ParameterSource.COMMANDLINE:
        fail("given --from without --trace; rule: a made trace starts at 0; change: name the trace", BAD_INPUT)
    if not traced and given("mapped") is ParameterSource.COMMANDLINE:
        fail("given --map without --trace; rule: it names who is in a trace; change: name the trace", BAD_INPUT)


def _writable(option: str, path: Path | None) -> None:
    """Said before the minutes that a run takes."""
    if path is None:
        return
    there = path if path.exists() or not path.parent.is_dir() else path.parent
    if not os.access(there, os.W_OK):
        rule = "a file that can be written, in a folder that is there"
        fail(f"given {option} {path}; rule: {rule}; change: another path", BAD_INPUT)


def _mapping(given: tuple[str, ...]) -> dict[str, str]:
    for text in given:
        if not all(text.partition("=")):
            fail(f"given --map {text!r}; rule: a name and a tenant; change: write --map user42=fraud", BAD_INPUT)
    return {name: tenant for name, _, tenant in (text.partition("=") for text in given)}


def _refuse(error: SpecError, form: str) -> NoReturn:
    if form == "json":
        click.echo(json.dumps({"problems": [problem.as_dict() for problem in error.problems]}, indent=2))
    for problem in error.problems if form != "json" else ():
        click.echo(str(problem), err=True)
    count = len(error.problems)
    click.echo(f"tenancy: {count} problem{'s' * (count > 1)}; nothing was started", err=True)
    sys.exit(BAD_INPUT)


def _guarded(work: Any) -> Report:
    """The work; whoever ends it, what it started ends with it."""
    from tenancy.lab.layout import LabError
    from tenancy.lab.tools import ToolsError

    def end(number: int, _frame: Any) -> NoReturn:
        # A second signal must not interrupt the clearing up.
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return work()
    except KeyboardInterrupt:
        click.echo("tenancy: ended early; nothing is left running", err=True)
        sys.exit(130)
    except (LabError, ToolsError) as problem:
        fail(str(problem))
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _show(report: Report, form: str) -> None:
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
    from tenancy.cli.report import Table, as_text

    click.echo("\n\n".join(as_text(Table(*dataclasses.astuple(table))) for table in report.tables() if table.rows))
