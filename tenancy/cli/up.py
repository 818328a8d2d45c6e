from __future__ import annotations

import time
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
from tenancy.cli.up_cluster import expect_replaceable
from tenancy.cli.up_decision import decide_runs
from tenancy.cli.up_fleet import run_shared
from tenancy.cli.up_report import Report
from tenancy.cli.up_rollout import expect_former_environments, run_waves
from tenancy.cli.up_stack import NothingToCompare, RemovableTenants, RunSettings, expect_cluster, remove_former_tenants
from tenancy.spec.loader import spec_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenancy.cli.up_decision import Fleet
    from tenancy.cluster.api import Api
    from tenancy.planning.scope import Stack
    from tenancy.spec.loader import Loaded


def _shard(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Part and number of parts."""
    if text is None:
        return None
    part, parts = [*text.split("/"), ""][:2]
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise click.BadParameter(f"given {text}; rule: K/N with K from 1 to N; change: write it like 3/20")
    return int(part), int(parts)


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
    callback=_shard,
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
    from tenancy.cli.engine import expect_plugins, open_driver
    from tenancy.clock.controller import ClockRefused
    from tenancy.clock.shutdown import end_reservations
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.cluster.api_kinds import frameworks_note, unserved_frameworks
    from tenancy.cluster.preflight import PreconditionFailed, require_same_environment
    from tenancy.deploy.decide import summary_lines as decisions
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.workers import available, default_workers
    from tenancy.lab.layout import LabError
    from tenancy.lab.plugins import MissingPluginError
    from tenancy.lifecycle.adoption_record import restore_namespaces
    from tenancy.planning import make_plan
    from tenancy.planning.scope import StackScope, in_shard, ordered_stacks, reach_hint, stacks

    started = time.monotonic()
    failed: list[str] = []
    if only_preview and skip_preview:
        fail("given --preview and --skip-preview; rule: one of them; change: leave one out", BAD_INPUT)
    loaded = load_or_exit(environment, form, lab)
    print_notes(spec_notes(loaded))
    expect_replaceable(loaded.environment, replaceable_groups)
    report = Report(form)
    plan = make_plan(loaded, loaded.day)
    leavers = RemovableTenants.from_spec(loaded, removable_names, timeout)
    run = RunSettings(plan, leavers, only_preview, refresh, skip_preview, frozenset(replaceable_groups))
    try:
        driver = open_driver(loaded, report.say, run.leavers.by_hand)
        expect_plugins(driver)
        report.say(f"{plan.environment}: {pluralize(len(plan.tenants), 'tenant')}")
        planned_stacks = list(stacks(plan, loaded.environment.stacks))
        if unknown := set(selected_stacks) - {name for name, *_ in planned_stacks}:
            known_names, input_text = ", ".join(name for name, *_ in planned_stacks), ", ".join(sorted(unknown))
            fail(
                f"given --stack {input_text}; rule: a stack of {plan.environment}; change: use one of {known_names}",
                BAD_INPUT,
            )
        # The other stacks need the system nodes to run on; without these nodes the cluster is incomplete.
        cluster_exists = plan.cluster is None or driver.has_resource(planned_stacks[0][0], plan.cluster.system)
        stacks_to_run = [
            stack
            for stack in ordered_stacks(planned_stacks, cluster_exists)
            if not selected_stacks or stack[0] in selected_stacks
        ]
        stacks_to_run = in_shard(stacks_to_run, *shard) if shard else stacks_to_run
        # The cluster stack has AWS resources only, and is updated even if the API server does not answer.
        has_cluster_stacks = any(scope is not StackScope.CLUSTER for _, scope, _ in stacks_to_run)
        if cluster_exists and has_cluster_stacks:
            require_same_environment(driver.api, plan)
            if not (only_preview or loaded.environment.has_clock):
                # Of a clock that the files no longer have.
                end_reservations(driver.api)
        if cluster_exists and not (selected_stacks or shard):
            remove_former_tenants(
                run, driver, report, driver.stacks(plan.environment), {name for name, *_ in planned_stacks}
            )
        if not cluster_exists and stacks_to_run and stacks_to_run[0][1] is StackScope.CLUSTER:
            cluster_fleet = decide_runs(run, driver, report, loaded, stacks_to_run[:1], selected_stacks)
            run_shared(cluster_fleet, stacks_to_run[0], loaded.environment.aws.upgrade_pause)
            stacks_to_run = stacks_to_run[1:]
        if not cluster_exists and has_cluster_stacks:
            expect_cluster(driver, plan, only_preview)
        if (
            cluster_exists
            and has_cluster_stacks
            and (note := frameworks_note(unserved_frameworks(driver.api, loaded.environment)))
        ):
            report.say(f"note: {note}")
        fleet = decide_runs(run, driver, report, loaded, stacks_to_run, selected_stacks)
        for text in decisions(plan.environment, fleet.causes):
            report.say(text)
        expect_former_environments(fleet)
        failed = _run_stacks(fleet, stacks_to_run, parallel or default_workers(*available()))
        if not (failed or only_preview) and run.leavers.with_kept_namespaces(loaded):
            restore_namespaces(driver.api, plan.environment, report.say)
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
    if only_preview and loaded.environment.flavors:
        report.say(_supply(loaded))
    report.end()
    if not (only_preview or selected_stacks) and loaded.environment.has_clock:
        report.say(_run_clock_round(loaded, driver.api))
    if failed:
        fail(f"{plan.environment}: {len(failed)} of {len(planned_stacks)} stacks failed: {', '.join(sorted(failed))}")
    report.say(f"{plan.environment}: done in {time.monotonic() - started:.1f} s")


def _run_stacks(fleet: Fleet, stacks: Sequence[Stack], workers: int) -> list[str]:
    """Run those of the stacks that need it; the names of the failed ones."""
    from tenancy.planning.scope import StackScope

    name, failed = fleet.run.plan.environment, list[str]()
    tenants = [stack for stack in stacks if stack[1] is StackScope.TENANT]
    can_run_tenants = True
    for stack in stacks:
        if stack[1] is not StackScope.TENANT:
            outcome = run_shared(fleet, stack, fleet.loaded.environment.aws.upgrade_pause)
            can_run_tenants = can_run_tenants and not (fleet.run.only_preview and outcome and outcome.changes)
        elif stack == tenants[0] and not can_run_tenants:
            fleet.report.say(f"{name}: no preview of the tenants is possible before the platform is deployed")
        elif stack == tenants[0]:
            failed = run_waves(fleet, tenants, workers)
    return failed


def _run_clock_round(loaded: Loaded, api: Api) -> str:
    """Bring queues to what they should be now: the engine leaves their quotas and states to the clock."""
    from tenancy.clock.controller import Clock, ClockRefused
    from tenancy.clock.shutdown import begin_again
    from tenancy.cluster.api import ApiUnreachable

    try:
        begin_again(api)
        clock_round = Clock(api, loaded.environment, loaded.tenants).tick()
    except (ApiUnreachable, ClockRefused) as error:
        return f"note: quotas are left to the clock, which was refused: {error}"
    return f"clock: {len(clock_round.changes)} queues and reservations changed"


def _supply(loaded: Loaded) -> str:
    """Supply and guarantees per flavor: the part of `tenancy report capacity` that a reviewer needs."""
    from tenancy.cli import supply_tables
    from tenancy.output.tables import as_text
    from tenancy.planning.queueing.capacity import supply

    flavors = supply(loaded.environment, loaded.tenants)
    return as_text(supply_tables.capacity(loaded.environment.environment, flavors)[0])
