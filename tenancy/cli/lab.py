"""`tenancy lab`: a Kubernetes control plane on this machine, without containers or cloud."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tenancy.cli.common import BAD_INPUT, example, fail

if TYPE_CHECKING:
    from io import BufferedReader

    from tenancy.lab.layout import Lab
    from tenancy.spec.fields.environment import Environment

COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "kueue",
    "prometheus",
    "metrics-generator",
    "clock",
    "audit",
)
DEFAULT_ENVIRONMENT = "local"


@contextlib.contextmanager
def _report_lab_errors() -> Generator[None]:
    from tenancy.lab.layout import LabError
    from tenancy.lab.plugins import MissingPluginError
    from tenancy.lab.tools import ToolsError

    try:
        yield
    except MissingPluginError as problem:
        fail(str(problem), BAD_INPUT)
    except (LabError, ToolsError) as problem:
        click.echo(f"Error: {problem}", err=True)
        sys.exit(1)


def _print_progress(line: str) -> None:
    click.echo(line, err=True)


@click.group()
def command() -> None:
    """Run the lab: a Kubernetes control plane on this machine, without containers or cloud.

    The API server, controllers and scheduler are real; the nodes are simulated, so that a laptop can run a cluster
    with a hundred GPU nodes. The files of the lab are in `.lab/` of the checkout, or in the folder that the environment
    variable GPU_TENANCY_LAB names.
    """


@command.command(epilog=example("tenancy lab up local"))
@click.argument("environment", required=False, metavar="[ENV]")
@click.option(
    "--with",
    "extras",
    type=click.Choice(["metrics"]),
    multiple=True,
    help="Start Prometheus and a generator of the metrics that it scrapes, too.",
)
@click.option(
    "--history",
    type=click.IntRange(0, 31),
    default=0,
    metavar="DAYS",
    help="Days of generated history, up to today, to load into Prometheus; at most 31. Default: 0.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="Seed of the generated history and GPU metrics.",
)
def up(environment: str | None, extras: tuple[str, ...], history: int, seed: int) -> None:
    """Start the lab with the GPU nodes of ENV (default: local).

    Components that run are left alone and the others are started, so the command can be repeated, and repairs a lab
    with a dead component. With `queues.clock: true` the clock runs too, and works from the first `tenancy up` on.
    """
    from tenancy.lab import control_plane, ports

    started = time.monotonic()
    metrics_rules = metric_history = None
    if history and not extras:
        click.echo("given --history; rule: history needs Prometheus; change: add --with metrics", err=True)
        sys.exit(2)
    with _report_lab_errors():
        recorded_metrics = control_plane.Lab.locate().recall().get("metrics") or {}
        if extras or (recorded_metrics and environment):
            # A lab that already has Prometheus switches to the alert rules of the environment.
            metrics_seed = seed if extras else recorded_metrics["seed"]
            metrics_rules, metric_history = _metrics_of(environment or DEFAULT_ENVIRONMENT, history, metrics_seed)
        settings = _settings_of_environment(environment)
        if settings.name:
            _refuse_another(settings.name)
        lab = control_plane.up(
            platform_group=settings.platform_group,
            nodes=settings.nodes,
            queues=settings.queues,
            watched=metrics_rules,
            history=metric_history,
            clock=settings.clock,
            say=_print_progress,
        )
        if settings.environment:
            _note_missing_operators(lab, settings.environment)
        click.echo(f"The lab is up ({time.monotonic() - started:.1f} s). Next, in this shell:\n")
        click.echo(f"  . {_short(lab.folder / 'env')}")
        if extras:
            click.echo(f"\nPrometheus: http://127.0.0.1:{ports.remembered(lab)['prometheus']}")


@command.command(epilog=example("tenancy lab down"))
def down() -> None:
    """Stop the lab and delete it.

    Deletes the cluster, its logs and certificates, and the Pulumi state in `.lab/state`, which would describe a cluster
    that no longer exists. The downloaded tools stay cached.
    """
    from tenancy.deploy.recovery import end_orphans
    from tenancy.lab import control_plane

    with _report_lab_errors():
        end_orphans(control_plane.Lab.locate().folder / "pulumi")
        was_running = control_plane.down()
        click.echo("The lab and its Pulumi state are gone." if was_running else "There was no lab.")


@command.command(epilog=example("tenancy lab status --format json"))
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
def status(form: str) -> None:
    """Show the state of each component of the lab.

    Exit codes: 0 every component answers, 1 one is dead or does not answer.
    """
    from tenancy.lab import control_plane

    with _report_lab_errors():
        rows = control_plane.status()
    if form == "json":
        import json

        click.echo(json.dumps(control_plane.status_rows(rows), indent=2))
    else:
        _table(
            ["component", "process ID", "port", "state"],
            [
                [
                    row.component,
                    str(row.pid or "–"),
                    str(row.port or "–"),
                    "answers" if row.answering else "alive, but does not answer" if row.alive else "dead",
                ]
                for row in rows
            ],
        )
    sys.exit(0 if all(row.answering for row in rows) else 1)


@command.command(
    short_help="Show a component's log or the audit log.", epilog=example("tenancy lab logs kube-apiserver -n 20")
)
@click.argument("component", type=click.Choice(COMPONENTS))
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until interrupted.")
@click.option(
    "-n",
    "lines",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="LINES",
    help="Number of lines to print, from the end of the log.",
)
def logs(component: str, follow: bool, lines: int) -> None:
    """Show the log of a component of the lab, or the API server's audit log (audit)."""
    from tenancy.lab import control_plane

    with _report_lab_errors():
        path = control_plane.log_file(component)
        if not path.exists():
            raise control_plane.LabError(f"{component} has no log yet. Run `tenancy lab up` first.")
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        _print_log(path, lines, follow)


@command.command(short_help="Install missing tools, and list all.", epilog=example("tenancy lab tools"))
@click.option(
    "--with",
    "extras",
    type=click.Choice(["metrics"]),
    multiple=True,
    help="Include Prometheus and its tools.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
def tools(extras: tuple[str, ...], form: str) -> None:
    """Install the lab's missing tools, and show each tool with its version and source."""
    from tenancy.lab import prometheus
    from tenancy.lab import tools as lab_tools

    with _report_lab_errors():
        rows = lab_tools.table(lab_tools.ensure(_print_progress))
        if extras:
            pins = prometheus.pins()
            rows += lab_tools.table(lab_tools.ensure(_print_progress, pins=pins), pins)
    if form == "json":
        import json

        names = ("tool", "version", "route", "path")
        click.echo(json.dumps([dict(zip(names, map(str, row), strict=True)) for row in rows], indent=2))
    else:
        _table(["tool", "version", "from", "path"], [[str(cell) for cell in row] for row in rows])


def _refuse_another(name: str) -> None:
    """Raise LabError if another environment is deployed in the lab: it could not even be removed from a lab with the
    nodes and the platform group of this one."""
    from tenancy.catalog import vocabulary
    from tenancy.cluster.preflight import other_environment
    from tenancy.lab import control_plane, ports
    from tenancy.lab.api import ApiError, LabApi
    from tenancy.lab.layout import LabError

    lab = control_plane.Lab.locate()
    port = ports.remembered(lab).get("kube-apiserver")
    if port is None or not lab.pki.exists():
        return
    try:
        with LabApi(lab, port, timeout=10) as api:
            namespace = api.get(f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}")
    except (ApiError, OSError):
        return  # no environment is deployed, or the lab does not run
    deployed_environment = (namespace["metadata"].get("labels") or {}).get(vocabulary.ENVIRONMENT, name)
    if deployed_environment != name:
        raise LabError(other_environment(deployed_environment, name, lab=True))


class _LabSettings(NamedTuple):
    """Demands of an environment on the lab; None leaves the lab as it is."""

    name: str = ""
    platform_group: str | None = None
    """Group of the platform."""
    nodes: list[dict[str, Any]] | None = None
    queues: dict[str, Any] | None = None
    """Values of Kueue's chart; empty without queues."""
    clock: str | None = None
    """Folder of the spec files for which the clock runs; empty without a clock."""
    environment: Environment | None = None


def _settings_of_environment(name: str | None) -> _LabSettings:
    """Demands of the environment of that name on the lab; nothing if none is named and there is no default one."""
    from tenancy.lab.layout import find_root
    from tenancy.planning.common.pools import fake_nodes
    from tenancy.planning.services import queue_chart
    from tenancy.spec.loader import load, on_lab
    from tenancy.spec.reading.problems import SpecError

    if name is None:
        name = DEFAULT_ENVIRONMENT
        if not (find_root() / "stacks" / name).is_dir():
            _print_progress(f"no environment `{name}` in this project: the lab starts without GPU nodes")
            return _LabSettings()
    try:
        loaded = on_lab(load(name))
    except SpecError as problem:
        click.echo(str(problem), err=True)
        sys.exit(2)
    environment, chart = loaded.environment, queue_chart(loaded.environment, loaded.tenants)
    clock = str(loaded.folder.resolve()) if environment.has_clock else ""
    values = chart.values if chart else {}
    nodes = fake_nodes(environment)
    return _LabSettings(environment.environment, environment.platform.group, nodes, values, clock, environment)


def _note_missing_operators(lab: Lab, environment: Environment) -> None:
    """A note on kinds of work whose operators the lab has not."""
    from tenancy.cluster.api import Api
    from tenancy.cluster.api_kinds import frameworks_note, unserved_frameworks
    from tenancy.lab.layout import CONTEXT

    if environment.queues.kinds:
        api = Api(CONTEXT, str(lab.kubeconfig))
        if note := frameworks_note(unserved_frameworks(api, environment)):
            _print_progress(f"note: {note}")


def _metrics_of(name: str, days: int, seed: int) -> tuple[dict[str, Any], Iterator[str] | None]:
    """The rules that Prometheus evaluates in a lab of the environment, and its generated history before today."""
    from tenancy.planning.observability.alerts import rule_file
    from tenancy.spec.loader import load, on_lab
    from tenancy.spec.reading.problems import SpecError

    try:
        loaded = on_lab(load(name))
    except SpecError as problem:
        click.echo(str(problem), err=True)
        sys.exit(2)
    metrics_rules = {"seed": seed, "rules": rule_file(loaded.environment, loaded.tenants)}
    if not days:
        return metrics_rules, None
    try:
        from tenancy.chargeback.example import month
    except ImportError:
        click.echo('given --history without polars; rule: history needs it; change: pip install "gpu-tenancy[cost]"')
        sys.exit(1)
    from tenancy.lab.metrics_history import openmetrics

    end = int(time.time()) // 86400 * 86400
    start = end - days * 86400
    return metrics_rules, openmetrics(loaded, month(loaded, start, end, seed), start, end)


def _print_log(path: Path, lines: int, follow: bool) -> None:
    with path.open("rb") as file:
        log_lines = file.read().splitlines(keepends=True)
        sys.stdout.buffer.write(b"".join(log_lines[-lines:] if lines else []))
        sys.stdout.flush()
        while follow:
            _print_rest(file)
            time.sleep(0.2)
            if path.exists() and path.stat().st_ino != _inode(file):
                # The log was rotated: the rest of the old file has been printed.
                return _print_log(path, sys.maxsize, follow)
    return None


def _print_rest(file: BufferedReader) -> None:
    while chunk := file.read(65536):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def _inode(file: BufferedReader) -> int:
    import os

    return os.fstat(file.fileno()).st_ino


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from tenancy.cli.tables import print_tables
    from tenancy.output.tables import Table

    print_tables([Table("", header, rows)], fold=False)


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
