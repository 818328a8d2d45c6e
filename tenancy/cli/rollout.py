from __future__ import annotations

import click

from tenancy.cli.common import BAD_INPUT, environment_argument, example, fail, format_option, lab_option, load_or_exit


@click.group("rollout")
def command() -> None:
    """Show how far a new version has reached the tenants. `tenancy up` starts a rollout and goes on with one."""


@command.command(
    short_help="Show the waves of an environment, and which have the present version.",
    epilog=example("tenancy rollout status bank"),
)
@environment_argument
@lab_option
@format_option
def status(environment: str, lab: bool, form: str) -> None:
    """Show each wave of `rollout` in ENV: its tenants, and how many of them run the present version of the program.

    The records on the cluster say of which version each stack was last made, so the answer is the same on every
    machine with this version. Exit codes: 0 the cluster was read, 2 it was not.
    """
    from tenancy.cli.engine import open_driver
    from tenancy.cli.tables import show
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.deploy import records
    from tenancy.deploy.digests import digests, program_digest
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.rollout import progress, waves
    from tenancy.lab.layout import LabError
    from tenancy.output.tables import Table
    from tenancy.planning import make_plan
    from tenancy.planning.scope import stacks
    from tenancy.spec.fields.rollout import Rollout

    loaded = load_or_exit(environment, form, lab)
    plan = make_plan(loaded, loaded.day)
    try:
        driver = open_driver(loaded, click.echo)
        program = program_digest(driver.root, str(driver.engine.version))
        stack_digests = digests(loaded, plan, stacks(plan, loaded.environment.stacks), driver.root, program)
        stack_records = records.read(driver.api)
    except (RunFailed, LabError, ApiUnreachable) as error:
        fail(str(error), BAD_INPUT)
    if len(stack_digests) <= len(loaded.tenants):
        input_text, change = "stacks: one", "set stacks to per-tenant; `tenancy up` updates one stack at once"
        fail(f"given {input_text}; rule: waves are of tenants' stacks; change: {change}", BAD_INPUT)
    planned_waves = waves(loaded.environment, loaded.tenants, loaded.environment.rollout or Rollout())
    wave_progress = progress(planned_waves, stack_digests, stack_records)
    rows = [
        (
            wave_state.wave.name,
            len(wave_state.wave.stacks),
            len(wave_state.finished),
            ", ".join(wave_state.remaining[:3]) + (" …" * (len(wave_state.remaining) > 3)),
        )
        for wave_state in wave_progress
    ]
    table = Table(f"Rollout in {plan.environment}", ("wave", "tenants", "present version", "left"), rows)
    value = [
        {"wave": wave_state.wave.name, "done": list(wave_state.finished), "left": list(wave_state.remaining)}
        for wave_state in wave_progress
    ]
    show(form, [table], {"environment": plan.environment, "waves": value})
