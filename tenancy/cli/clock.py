from __future__ import annotations

import itertools
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenancy.catalog.days import today
from tenancy.cli.common import BAD_INPUT, environment_argument, example, fail, lab_option, load_or_exit
from tenancy.spec.loader import SUFFIXES, TENANTS_FOLDER, find_folder, load_deployed, on_lab
from tenancy.spec.reading.problems import SpecError
from tenancy.spec.reading.spec_folder import SpecFolder

if TYPE_CHECKING:
    from tenancy.clock.controller import Clock, Round
    from tenancy.clock.health import Health
    from tenancy.cluster.api import Api
    from tenancy.spec.loader import Loaded

INTERVAL = 30.0
"""Seconds between two rounds: by so much a budget may be exceeded, and a window's quota may come late."""
ROUNDS_PER_CLIENT = 20
"""Rounds after which the kubeconfig is read anew: a pod's token is replaced within the hour."""


_WATCHED_SUFFIXES = {*SUFFIXES, ".json"}
"""Suffixes of spec files and of AWS' list of addresses, which is read beside them."""


@click.group("clock")
def command() -> None:
    """Apply scheduled quota changes and enforce budgets: quotas and states of queues that change with time."""


@command.command("run", epilog=example("tenancy clock run local --once"))
@environment_argument
@lab_option
@click.option(
    "--prometheus",
    metavar="URL",
    help="Address of Prometheus, for idle rules. Default: as in metrics.prometheus of the environment.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address on which the process serves /metrics and /healthz. Default: none.",
)
@click.option(
    "--kubeconfig", metavar="FILE", help="Kubeconfig with the context of ENV. Default: KUBECONFIG, or that of the lab."
)
@click.option("--once", is_flag=True, help="Make one round and end: exit code 1 if the cluster refuses it.")
def run(
    environment: str, lab: bool, prometheus: str | None, metrics: str | None, kubeconfig: str | None, once: bool
) -> None:
    """Apply the calendar and the budgets of ENV every 30 seconds, until the process ends.

    Each round reads the record of usage and what changed in the queues and the Workloads, and writes what differs. The
    spec files are read again when one of them changes; a mistake in them is reported, and the last valid ones stay in
    use. An entry that was valid when it was deployed and whose last day has passed is reported once a day, and the
    files stay in use. The time is the API server's. Of several copies the one that holds the Lease works, and another
    takes over after 90 seconds.

    Without this process work is admitted as before, with the quotas and states that were written last.
    """
    from tenancy.clock.controller import Clock
    from tenancy.clock.health import Health
    from tenancy.clock.prometheus import GpuMetrics
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.lab.layout import enter_lab

    address = _address(metrics)
    # Before the files are read: what changes meanwhile is read in the next round.
    last_state = (today(), _state(environment))
    loaded = load_or_exit(environment, lab=lab, read=load_deployed)
    require_clock(loaded)
    if kubeconfig is None:
        enter_lab(loaded.environment.cluster.context)
    context, health = loaded.environment.cluster.context, Health(loaded.environment.environment)
    _report_ended_entries(loaded, health)
    source = GpuMetrics(prometheus or loaded.environment.metrics.address)
    try:
        clock = Clock(Api(context, kubeconfig), loaded.environment, loaded.tenants, idle_gpus=source.idle_gpus)
        if address:
            health.serve(*address)
    except ApiUnreachable as error:
        fail(str(error))
    except OSError as error:
        fail(f"given --metrics {metrics}; rule: an address that can be listened on ({error}); change: another port")
    # The first process of a container gets no default handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if once:
        if problem := _run_round(clock):
            fail(problem)
        return
    for number in itertools.count():
        started = time.monotonic()
        if number % ROUNDS_PER_CLIENT == ROUNDS_PER_CLIENT - 1:
            clock.api = _new_api(context, kubeconfig) or clock.api
        health.attempt()
        if problem := _run_if_leader(clock, health):
            click.echo(f"tenancy: {problem}", err=True)
        # A round reads changes for three seconds.
        time.sleep(max(0.0, INTERVAL - (time.monotonic() - started)))
        # On another day other entries have ended.
        if (state := (today(), _state(environment))) != last_state:
            last_state = state
            _reload(clock, health, environment, lab)


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not (host and port.isdigit() and 0 < int(port) < 65536):
        fail(f"given --metrics {text}; rule: HOST:PORT; change: write --metrics 127.0.0.1:9464", BAD_INPUT)
    return host, int(port)


def _new_api(context: str, kubeconfig: str | None) -> Api | None:
    from tenancy.cluster.api import Api, ApiUnreachable

    try:
        return Api(context, kubeconfig)
    except ApiUnreachable:
        return None


def _run_if_leader(clock: Clock, health: Health) -> str:
    """Make a round if no other copy does; the problem that ended it, or nothing."""
    from tenancy.clock.controller import ClockRefused
    from tenancy.clock.lease import Lease
    from tenancy.cluster.api import ApiUnreachable

    try:
        if not Lease(clock.api).hold():
            health.last_round = None
            return ""
    except (ApiUnreachable, ClockRefused) as error:
        return str(error)
    return _run_round(clock, health)


def require_clock(loaded: Loaded) -> None:
    """End the command with exit code 2 if the environment has no clock."""
    if not loaded.environment.has_clock:
        input_text = f"given {loaded.environment.environment}, with queues.clock: false"
        fail(
            f"{input_text}; rule: the clock changes no queue without it; change: set queues.clock: true",
            BAD_INPUT,
        )


def round_lines(clock_round: Round) -> str:
    """One line for a round that changed something or found a spent budget."""
    budget_lines = [
        f"{exhausted_budget.tenant}: {exhausted_budget}" for exhausted_budget in clock_round.exhausted_budgets
    ]
    return "\n".join(f"{clock_round.now:%Y-%m-%dT%H:%M:%SZ} {line}" for line in (*clock_round.changes, *budget_lines))


def _run_round(clock: Clock, health: Health | None = None) -> str:
    """Make one round; the problem that ended it, or nothing."""
    from tenancy.clock.controller import ClockRefused
    from tenancy.cluster.api import ApiUnreachable

    try:
        clock_round = clock.tick()
    except (ApiUnreachable, ClockRefused) as error:
        return str(error)
    if health:
        health.complete()
    if clock_round.changes:
        click.echo(round_lines(clock_round))
    return clock_round.problem


def _state(environment: str) -> dict[str, tuple[int, int]]:
    """Time of change and size of each file in the folder of an environment, by the place where it is read."""
    state = {}
    for path in _files(environment):
        with suppress(OSError):  # deleted since, or a link without a target
            status = path.stat()
            state[str(path)] = (status.st_mtime_ns, status.st_size)
    return state


def _files(environment: str) -> list[Path]:
    """Folder from which the files of an environment are read; none while it is exchanged."""
    try:
        folder = SpecFolder(find_folder(environment))
        paths = [*folder.entries(), *folder.entries(TENANTS_FOLDER)]
    except (SpecError, OSError):
        return []
    return [path for path in paths if path.suffix in _WATCHED_SUFFIXES and not path.name.startswith(".")]


def _report_ended_entries(loaded: Loaded, health: Health) -> None:
    health.ended = len(loaded.ended)
    for problem in loaded.ended:
        click.echo(str(problem), err=True)
    if loaded.ended:
        click.echo("tenancy: these entries have ended and have no effect; the files stay in use", err=True)


def _reload(clock: Clock, health: Health, environment: str, lab: bool) -> None:
    try:
        loaded = load_deployed(environment)
    except SpecError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        click.echo("tenancy: the files in use stay those before", err=True)
        return
    _report_ended_entries(loaded, health)
    loaded = on_lab(loaded) if lab else loaded
    if loaded.environment.queues.clock:
        clock.environment, clock.tenants = loaded.environment, loaded.tenants
