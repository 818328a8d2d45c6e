from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenancy.catalog import vocabulary
from tenancy.catalog.text import pluralize
from tenancy.cli.common import environment_argument, example, fail, lab_option, load_or_exit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenancy.deploy.driver import Driver
    from tenancy.deploy.layout import Move
    from tenancy.planning import Plan


@click.command("move", epilog=example("tenancy move bank"))
@environment_argument
@lab_option
@click.option("--preview", "only_preview", is_flag=True, help="Show which tenants would move, and change nothing.")
def command(environment: str, lab: bool, only_preview: bool) -> None:
    """Move tenants between the stacks of ENV after a change of `stacks` in environment.yaml.

    Only states change: no object on the cluster and no resource on AWS is touched, and the next `tenancy up` finds
    nothing to change in them. The command can be ended at any moment and run again. Exit codes: 0 all tenants are in
    the stacks that the file says, 1 one could not be moved.
    """
    from tenancy.cli.engine import open_driver
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.layout import moves
    from tenancy.lab.layout import LabError
    from tenancy.planning import make_plan
    from tenancy.spec.fields.environment import Layout

    loaded = load_or_exit(environment, lab=lab)
    plan = make_plan(loaded, loaded.day)
    name = plan.environment
    try:
        driver = open_driver(loaded, click.echo)
        states = {stack: driver.components(stack) for stack in driver.stacks(name)}
        tenant_moves = moves(name, loaded.environment.stacks, plan.names, states)
        if not only_preview:
            _clear_interrupted(driver, {tenant_move.source for tenant_move in tenant_moves})
        for tenant_move in tenant_moves:
            click.echo(
                f"{tenant_move.source}: tenant {tenant_move.tenant} {_verb(only_preview)} to {tenant_move.target}"
            )
            if not only_preview:
                _carry_out(driver, tenant_move, exists=tenant_move.target in states)
        if loaded.environment.stacks is Layout.ONE and not only_preview:
            _forget_empty_stacks(driver, plan)
    except (RunFailed, LabError, ApiUnreachable) as error:
        fail(str(error))
    if not tenant_moves:
        click.echo(f"{name}: every tenant is in the stack that `stacks: {loaded.environment.stacks}` says")
    elif not only_preview:
        click.echo(
            f"{name}: {pluralize(len(tenant_moves), 'tenant')} moved; `tenancy up {name}` records it, and changes "
            "nothing else"
        )


def _verb(only_preview: bool) -> str:
    return "would move" if only_preview else "moves"


def _clear_interrupted(driver: Driver, sources: Iterable[str]) -> None:
    """Clear locks and operations that a killed engine left."""
    driver.end_orphans()
    for name in sorted(sources):
        driver.open_known(name, exists=True)


def _carry_out(driver: Driver, move: Move, *, exists: bool) -> None:
    driver.open_known(move.target, exists=exists)
    if move.is_begun:
        driver.remove_component(move.source, move.urn)
    else:
        driver.move(move.source, move.target, move.urn)


def _forget_empty_stacks(driver: Driver, plan: Plan) -> None:
    """Remove tenants' own stacks that have nothing left; others are `tenancy up`'s, which checks what was in them."""
    own_stacks = {vocabulary.derived_name(plan.environment, name) for name in plan.names}
    for name in driver.stacks(plan.environment):
        if name in own_stacks and not driver.resources(stack := driver.open_known(name, exists=True)):
            driver.forget(stack)
