"""A new version in waves: after each wave a gate, and a red gate stops the rollout."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenancy.cli.up_decision import Fleet
from tenancy.cli.up_fleet import run_shared, run_tenants
from tenancy.cli.up_gate import gate_findings

if TYPE_CHECKING:
    from tenancy.cli.up_settings import EnvironmentRun
    from tenancy.cluster.api import Api
    from tenancy.planning.scope import Stack

MAX_NAMED_STACKS = 5
"""Stacks that a message names."""


def run_stacks(fleet: Fleet, stacks: Sequence[Stack], workers: int | None) -> list[str]:
    """Run those of the stacks that need it, in their order and tenants side by side; the names of the failed ones."""
    from tenancy.deploy.workers import available, default_workers
    from tenancy.planning.scope import StackScope

    name, failed = fleet.run.plan.environment, list[str]()
    tenants = [stack for stack in stacks if stack[1] is StackScope.TENANT]
    can_run_tenants = True
    for stack in stacks:
        if stack[1] is not StackScope.TENANT:
            outcome = run_shared(fleet, stack)
            can_run_tenants = can_run_tenants and not (fleet.run.only_preview and outcome and outcome.changes)
        elif stack == tenants[0] and not can_run_tenants:
            fleet.run.report.say(f"{name}: no preview of the tenants is possible before the platform is deployed")
        elif stack == tenants[0]:
            failed = run_waves(fleet, tenants, workers or default_workers(*available()))
    return failed


def run_waves(
    fleet: Fleet, stacks: Sequence[Stack], workers: int, gate: Callable[[EnvironmentRun], list[str]] | None = None
) -> list[str]:
    """Run the tenants' stacks that need it, those of a new program in the environment's waves; the names of failed
    ones. RunFailed if a wave fails or a gate is red."""
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.rollout import waves, waves_for_new_program

    environment = fleet.run.loaded.environment
    if environment.rollout is None or fleet.run.only_preview:
        return run_tenants(fleet, stacks, workers)
    planned = waves(environment, fleet.run.loaded.tenants, environment.rollout)
    waves_to_run = [wave for wave in waves_for_new_program(planned, fleet.causes) if wave.stacks]
    stacks_in_waves = {name for wave in waves_to_run for name in wave.stacks}
    failed = run_tenants(fleet, [stack for stack in stacks if stack[0] not in stacks_in_waves], workers)
    for wave in waves_to_run:
        if wave.name != planned[0].name:
            _pause(fleet, environment.rollout.pause, wave.name)
            if problems := (gate or gate_findings)(fleet.run):
                raise RunFailed(_stopped_text(fleet, f"before {wave.name}", problems))
        fleet.run.report.say(f"{wave.name}: {len(wave.stacks)} stacks")
        if failed_stacks := run_tenants(fleet, [stack for stack in stacks if stack[0] in wave.stacks], workers):
            raise RunFailed(_stopped_text(fleet, f"in {wave.name}", [f"stacks failed: {', '.join(failed_stacks)}"]))
    return failed


def expect_former_environments(fleet: Fleet, reach: Callable[[str], Api] | None = None) -> None:
    """Failed if a stack would get a new version of the program that an environment of `rollout.depends-on` does not
    run yet on all of its stacks, or that cannot be asked. `reach` gives the API server of a context."""
    from tenancy.deploy.decide import Cause
    from tenancy.deploy.driver import RunFailed

    rollout, name = fleet.run.loaded.environment.rollout, fleet.run.plan.environment
    new = [stack for stack, causes in fleet.causes.items() if Cause.PROGRAM in causes and Cause.REQUESTED not in causes]
    if not new or rollout is None or fleet.run.only_preview:
        return
    for former in rollout.depends_on:
        if problem := _unready_reason(fleet, former, fleet.digests[new[0]].program, reach):
            raise RunFailed(
                f"given a new version for {name}, and {problem}; rule: {name} gets a version after "
                f"{', '.join(rollout.depends_on)} (rollout.depends-on); change: `tenancy up {former}` first; "
                "nothing was changed"
            )


def _unready_reason(fleet: Fleet, former: str, program: str, reach: Callable[[str], Api] | None) -> str:
    """Cause that keeps another environment from running the program on all of its stacks; empty if it does."""
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.deploy import records
    from tenancy.deploy.rollout import find_outdated_stacks
    from tenancy.planning import make_plan
    from tenancy.planning.scope import StackScope, stacks
    from tenancy.spec.loader import load
    from tenancy.spec.reading.problems import SpecError

    try:
        loaded = load(fleet.run.loaded.folder.parent / former)
        plan = make_plan(loaded, loaded.day)
        stack_records = records.read((reach or Api)(plan.context))
    except (SpecError, ApiUnreachable) as error:
        return f"environment {former}, which cannot be asked: {str(error).splitlines()[0]}"
    # A cluster's own stack has no record.
    stack_names = [
        name for name, scope, _ in stacks(plan, loaded.environment.stacks) if scope is not StackScope.CLUSTER
    ]
    outdated_stacks = find_outdated_stacks(stack_names, program, stack_records)
    ellipsis = " …" if len(outdated_stacks) > MAX_NAMED_STACKS else ""
    shown_names = f"{', '.join(outdated_stacks[:MAX_NAMED_STACKS])}{ellipsis}"
    return (
        f"environment {former}, where {len(outdated_stacks)} of {len(stack_names)} stacks do not run it: {shown_names}"
        if outdated_stacks
        else ""
    )


def _pause(fleet: Fleet, minutes: int, wave: str) -> None:
    if minutes:
        fleet.run.report.say(f"{wave} begins after {minutes} min and a gate (Ctrl-C stops the rollout here)")
    time.sleep(60 * minutes)


def _stopped_text(fleet: Fleet, where: str, problems: Sequence[str]) -> str:
    name = fleet.run.plan.environment
    return (
        f"the rollout of {name} stopped {where}\n  " + "\n  ".join(problems) + f"\n  `tenancy rollout status {name}` "
        f"shows where it stands; change: correct it, and `tenancy up {name}` goes on with the gate; or check out the "
        f"former version, and `tenancy up {name}` takes back the tenants that have the new one"
    )
