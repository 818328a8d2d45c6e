from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tenancy.catalog.text import pluralize
from tenancy.cli.common import (
    BAD_INPUT,
    environment_argument,
    example,
    fail,
    format_option,
    lab_option,
    load_or_exit,
    print_notes,
)
from tenancy.cli.engine import expect_plugins, open_driver
from tenancy.cli.up_decision import decide_runs, print_decisions
from tenancy.cli.up_fleet import NothingToCompare, create_cluster
from tenancy.cli.up_report import Report
from tenancy.cli.up_rollout import expect_former_environments, run_stacks
from tenancy.cli.up_settings import (
    EnvironmentRun,
    RemovableTenants,
    SelectedStacks,
    StackSelection,
    expect_replaceable,
    parse_shard,
    select_stacks,
)
from tenancy.cli.up_stack import remove_former_tenants
from tenancy.spec.loader import spec_notes

if TYPE_CHECKING:
    from collections.abc import Generator

    from tenancy.planning import Plan


@click.command("up", epilog=example("tenancy up local"))
@environment_argument
@lab_option
@click.option("--preview", "only_preview", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--skip-preview",
    is_flag=True,
    help="Update the platform's stack without a preview, unless it has charts or resources on AWS, or a tenant leaves.",
)
@click.option("--refresh", is_flag=True, help="Refresh state from the cluster and AWS first, and revert drift.")
@click.option(
    "--stack", "selected_stacks", multiple=True, metavar="STACK", help="Update only this stack of ENV; repeatable."
)
@click.option(
    "--remove",
    "removable_names",
    multiple=True,
    metavar="NAME",
    help="Remove this tenant whose file was deleted, or this namespace (TENANT--NAMESPACE) that is no longer in its "
    "tenant's file, at once and without the stages of `offboarding`; repeatable.",
)
@click.option(
    "--replace",
    "replaceable_groups",
    multiple=True,
    metavar="NAME",
    help="Replace the nodes of this pool, of the platform (system), or in this zone, where AWS cannot change them in "
    "place: their groups are deleted and made again, in waves; repeatable.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the work of a leaving tenant to end, and again for its namespaces to be deleted.",
)
@click.option(
    "--shard",
    metavar="K/N",
    callback=parse_shard,
    help="Run only tenants' stacks, and of these part K of N: for a run on several machines, after the platform's.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Tenants' stacks to run at once. Default: by this machine's cores and memory.",
)
@format_option
def command(
    environment: str,
    lab: bool,
    only_preview: bool,
    skip_preview: bool,
    refresh: bool,
    selected_stacks: tuple[str, ...],
    removable_names: tuple[str, ...],
    replaceable_groups: tuple[str, ...],
    timeout: int,
    shard: tuple[int, int] | None,
    parallel: int | None,
    form: str,
) -> None:
    """Update the stacks of ENV that differ from the spec files or from the cluster.

    A stack runs if its files, the program, its config or an object on the cluster changed since its last run; the
    command prints first which stacks run and why. Tenants' stacks run side by side, and one that fails does not stop
    the others. `--stack` and `--refresh` run stacks whether anything changed or not. A new version of the program
    reaches tenants in the waves of `rollout`, with a gate between two; a red gate stops it.

    A mistake in the spec files ends the command before the Pulumi engine starts (exit code 2). A broken mandatory rule,
    an existing object that the stacks did not create, or an API server that does not answer ends it before anything is
    changed (exit code 1). With `--format json` progress is printed to stderr, and one record per stack to stdout. Exit
    code 1 also if a stack failed; the message lists them, and running the command again goes on.
    """
    from tenancy.planning import make_plan

    started, report = time.monotonic(), Report(form)
    if only_preview and skip_preview:
        fail("given --preview and --skip-preview; rule: one of them; change: leave one out", BAD_INPUT)
    loaded = load_or_exit(environment, form, lab)
    print_notes(spec_notes(loaded))
    expect_replaceable(loaded.environment, replaceable_groups)
    plan = make_plan(loaded, loaded.day)
    leavers = RemovableTenants.from_spec(loaded, removable_names, timeout)
    with _failures_reported(plan, report):
        driver = open_driver(loaded, report.say, leavers.by_hand)
        expect_plugins(driver)
    options = (only_preview, refresh, skip_preview, frozenset(replaceable_groups))
    run = EnvironmentRun(loaded, plan, leavers, driver, report, StackSelection(selected_stacks, shard), *options)
    update(run, parallel)
    report.say(f"{plan.environment}: done in {time.monotonic() - started:.1f} s")


def update(run: EnvironmentRun, workers: int | None) -> None:
    """Update the stacks of an environment that differ; ends the command with exit code 1 if one of them failed."""
    failed_stacks: list[str] = []
    run.report.say(f"{run.plan.environment}: {pluralize(len(run.plan.tenants), 'tenant')}")
    with _failures_reported(run.plan, run.report):
        stacks = select_stacks(run)
        _expect_own_cluster(run, stacks)
        remove_former_tenants(run, stacks)
        create_cluster(run, stacks)
        _note_unserved_frameworks(run, stacks)
        fleet = decide_runs(run, stacks.others)
        print_decisions(fleet)
        expect_former_environments(fleet)
        failed_stacks = run_stacks(fleet, stacks.others, workers)
        _restore_kept_namespaces(run, failed_stacks)
    _print_supply(run)
    run.report.end()
    _run_clock_round(run)
    if failed_stacks:
        names = ", ".join(sorted(failed_stacks))
        fail(f"{run.plan.environment}: {len(failed_stacks)} of {len(stacks.planned_names)} stacks failed: {names}")


@contextmanager
def _failures_reported(plan: Plan, report: Report) -> Generator[None]:
    """End the command with the message of what ends a run, after the records of the stacks that have run."""
    from tenancy.clock.controller import ClockRefused
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.cluster.preflight import PreconditionFailed
    from tenancy.deploy.driver import RunFailed
    from tenancy.lab.layout import LabError
    from tenancy.lab.plugins import MissingPluginError
    from tenancy.planning.scope import reach_hint

    try:
        yield
    except NothingToCompare:
        report.say(f"{plan.environment}: no preview of the other stacks is possible before the cluster exists")
    except MissingPluginError as error:
        report.end()
        fail(str(error), BAD_INPUT)
    except (ApiUnreachable, ClockRefused, PreconditionFailed, RunFailed, LabError) as error:
        report.end()
        fail(f"{error}{reach_hint(plan) if isinstance(error, ApiUnreachable) else ''}")
    except KeyboardInterrupt:
        report.end()
        fail(f"{plan.environment}: ended by Ctrl-C; change: `tenancy up {plan.environment}` goes on from there")


def _expect_own_cluster(run: EnvironmentRun, stacks: SelectedStacks) -> None:
    """Refuse the cluster of another environment, and end what a clock reserved that the files no longer have."""
    from tenancy.clock.shutdown import end_reservations
    from tenancy.cluster.preflight import require_same_environment

    if stacks.cluster_exists and stacks.any_on_cluster:
        require_same_environment(run.driver.api, run.plan)
        if not (run.only_preview or run.loaded.environment.has_clock):
            end_reservations(run.driver.api)


def _note_unserved_frameworks(run: EnvironmentRun, stacks: SelectedStacks) -> None:
    """Name the frameworks of the files whose kinds the API server does not serve."""
    from tenancy.cluster.api_kinds import frameworks_note, unserved_frameworks

    is_reachable = stacks.cluster_exists and stacks.any_on_cluster
    if is_reachable and (note := frameworks_note(unserved_frameworks(run.driver.api, run.loaded.environment))):
        run.report.say(f"note: {note}")


def _restore_kept_namespaces(run: EnvironmentRun, failed_stacks: list[str]) -> None:
    """Give the adopted namespaces of tenants that left the labels and annotations of before their adoption."""
    from tenancy.lifecycle.adoption_record import restore_namespaces

    if not (failed_stacks or run.only_preview) and run.leavers.with_kept_namespaces(run.loaded):
        restore_namespaces(run.driver.api, run.plan.environment, run.report.say)


def _print_supply(run: EnvironmentRun) -> None:
    """Print supply and guarantees per flavor after a preview: the part of `tenancy report capacity` that a reviewer
    needs."""
    environment = run.loaded.environment
    if not (run.only_preview and environment.flavors):
        return
    from tenancy.cli import supply_tables
    from tenancy.output.tables import as_text
    from tenancy.planning.queueing.capacity import supply

    flavors = supply(environment, run.loaded.tenants)
    run.report.say(as_text(supply_tables.capacity(environment.environment, flavors)[0]))


def _run_clock_round(run: EnvironmentRun) -> None:
    """Bring queues to what they should be now: the engine leaves their quotas and states to the clock."""
    if run.only_preview or run.selection.names or not run.loaded.environment.has_clock:
        return
    from tenancy.clock.controller import Clock, ClockRefused
    from tenancy.clock.shutdown import begin_again
    from tenancy.cluster.api import ApiUnreachable

    try:
        begin_again(run.driver.api)
        clock_round = Clock(run.driver.api, run.loaded.environment, run.loaded.tenants).tick()
    except (ApiUnreachable, ClockRefused) as error:
        run.report.say(f"note: quotas are left to the clock, which was refused: {error}")
    else:
        run.report.say(f"clock: {len(clock_round.changes)} queues and reservations changed")
