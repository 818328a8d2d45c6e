"""`tenancy lab`: a Kubernetes control plane on this machine, without containers or cloud."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.common import example

if TYPE_CHECKING:
    from io import BufferedReader

COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "kueue",
    "prometheus",
    "metrics-generator",
    "audit",
)
DEFAULT_ENVIRONMENT = "local"


@contextlib.contextmanager
def _clear_errors() -> Generator[None]:
    from tenancy.lab.layout import LabError
    from tenancy.lab.tools import ToolsError

    try:
        yield
    except (LabError, ToolsError) as problem:
        click.echo(f"Error: {problem}", err=True)
        sys.exit(1)


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.group()
def command() -> None:
    """A Kubernetes control plane on this machine.

    Real API server, controllers and scheduler; the nodes are fake, so that a laptop holds a hundred
    GPU machines. It lives in `.lab/` of the checkout; GPU_TENANCY_LAB names another folder.
    """


@command.command(epilog=example("tenancy lab up local"))
@click.argument("environment", required=False, metavar="[ENV]")
@click.option("--with", "extras", type=click.Choice(["metrics"]), multiple=True, help="Prometheus and what it scrapes.")
@click.option(
    "--history", type=click.IntRange(0, 31), default=0, help="Made days before today that Prometheus has seen."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of that, and of what GPUs do.")
def up(environment: str | None, extras: tuple[str, ...], history: int, seed: int) -> None:
    """Bring the lab up with the GPU nodes of ENV (default: local).

    Starts what does not run and leaves what does: it can be repeated, and repairs a lab of which a
    part has died.
    """
    from tenancy.lab import control_plane, ports

    began = time.monotonic()
    watched = past = None
    if history and not extras:
        click.echo("given --history; rule: only Prometheus has one; change: add --with metrics", err=True)
        sys.exit(2)
    with _clear_errors():
        before = control_plane.Lab.of().recall().get("metrics") or {}
        if extras or (before and environment):
            # A lab that has Prometheus already goes over to the environment's rules.
            chosen = seed if extras else before["seed"]
            watched, past = _metrics_of(environment or DEFAULT_ENVIRONMENT, history, chosen)
        group, nodes, queues = _of_environment(environment)
        lab = control_plane.up(
            platform_group=group, nodes=nodes, queues=queues, watched=watched, history=past, say=_say
        )
        click.echo(f"The lab is up ({time.monotonic() - began:.1f} s). Next, in this shell:\n")
        click.echo(f"  . {_short(lab.folder / 'env')}")
        if extras:
            click.echo(f"\nPrometheus: http://127.0.0.1:{ports.remembered(lab)['prometheus']}")


@command.command(epilog=example("tenancy lab down"))
def down() -> None:
    """End the lab and delete it.

    Everything goes: the cluster, its logs and certificates, and the Pulumi state in `.lab/state`,
    because a state that describes a cluster that is gone only misleads. The tools stay cached.
    """
    from tenancy.engine.recovery import end_orphans
    from tenancy.lab import control_plane

    with _clear_errors():
        end_orphans(control_plane.Lab.of().folder / "pulumi")
        there = control_plane.down()
        click.echo("The lab and its Pulumi state are gone." if there else "There was no lab.")


@command.command(epilog=example("tenancy lab status --format json"))
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(form: str) -> None:
    """Show each component; exit code 1 if one is dead or does not answer."""
    from tenancy.lab import control_plane

    with _clear_errors():
        rows = control_plane.status()
    if form == "json":
        import json

        click.echo(json.dumps(control_plane.status_rows(rows), indent=2))
    else:
        _table(
            ["component", "process", "port", "state"],
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


@command.command(epilog=example("tenancy lab logs kube-apiserver -n 20"))
@click.argument("component", type=click.Choice(COMPONENTS))
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows.")
@click.option("-n", "lines", type=click.IntRange(min=0), default=50, show_default=True, help="Last lines.")
def logs(component: str, follow: bool, lines: int) -> None:
    """Show the log of a component, or the API server's audit log."""
    from tenancy.lab import control_plane

    with _clear_errors():
        path = control_plane.log_file(component)
        if not path.exists():
            raise control_plane.LabError(f"{component} has no log yet. Run `tenancy lab up` first.")
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        _print_log(path, lines, follow)


@command.command(epilog=example("tenancy lab tools"))
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def tools(form: str) -> None:
    """Show every tool of the lab, its version and where it came from; get what is missing."""
    from tenancy.lab import tools as lab_tools

    with _clear_errors():
        rows = lab_tools.table(lab_tools.ensure(_say))
    if form == "json":
        import json

        names = ("tool", "version", "route", "path")
        click.echo(json.dumps([dict(zip(names, map(str, row), strict=True)) for row in rows], indent=2))
    else:
        _table(["tool", "version", "from", "path"], [[str(cell) for cell in row] for row in rows])


def _of_environment(name: str | None) -> tuple[str | None, list[dict[str, Any]] | None, dict[str, Any] | None]:
    """The platform group, the fake nodes and the values of Kueue's chart that the environment asks for."""
    from tenancy.lab.layout import find_root
    from tenancy.plan.pools import fake_nodes
    from tenancy.plan.services import queue_chart
    from tenancy.spec import SpecError, load, on_lab

    if name is None:
        name = DEFAULT_ENVIRONMENT
        if not (find_root() / "stacks" / name).is_dir():
            _say(f"no environment `{name}` in this project: the lab gets no GPU nodes")
            return None, None, None
    try:
        environment = on_lab(load(name)).environment
    except SpecError as problem:
        click.echo(str(problem), err=True)
        sys.exit(2)
    chart = queue_chart(environment)
    return environment.platform.group, fake_nodes(environment), chart.values if chart else {}


def _metrics_of(name: str, days: int, seed: int) -> tuple[dict[str, Any], Iterator[str] | None]:
    """What Prometheus evaluates in a lab of the environment, and what it has seen before today."""
    from tenancy.plan.alerts import rule_file
    from tenancy.spec import SpecError, load, on_lab

    try:
        loaded = on_lab(load(name))
    except SpecError as problem:
        click.echo(str(problem), err=True)
        sys.exit(2)
    watched = {"seed": seed, "rules": rule_file(loaded.environment, loaded.tenants)}
    if not days:
        return watched, None
    try:
        from tenancy.chargeback.example import month
    except ImportError:
        click.echo('given --history without polars; rule: it is made with it; change: pip install "gpu-tenancy[cost]"')
        sys.exit(1)
    from tenancy.lab.metrics_history import openmetrics

    end = int(time.time()) // 86400 * 86400
    start = end - days * 86400
    return watched, openmetrics(loaded, month(loaded, start, end, seed), start, end)


def _print_log(path: Path, lines: int, follow: bool) -> None:
    with path.open("rb") as file:
        kept = file.read().splitlines(keepends=True)
        sys.stdout.buffer.write(b"".join(kept[-lines:] if lines else []))
        sys.stdout.flush()
        while follow:
            _print_rest(file)
            time.sleep(0.2)
            if path.exists() and path.stat().st_ino != _inode(file):
                # Rotated: what is left of the old file has been shown.
                return _print_log(path, sys.maxsize, follow)
    return None


def _print_rest(file: BufferedReader) -> None:
    while chunk := file.read(65536):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def _inode(file: BufferedReader) -> int:
    import os

    return os.fstat(file.fileno()).st_ino


def _table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
