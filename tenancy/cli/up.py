from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from tenancy.cli.common import enter_lab, environment_argument, example, fail, load_or_exit

if TYPE_CHECKING:
    from tenancy.engine.changes import Outcome

SHOWN = 12


@click.command("up", epilog=example("tenancy up local"))
@environment_argument
@click.option("--preview", "only_preview", is_flag=True, help="Show what would change and stop.")
def command(environment: str, only_preview: bool) -> None:
    """Preview ENV with the policy pack, then make it so.

    Spec files with a mistake end it before the engine starts (exit code 2). A mandatory rule that is
    broken, an object in the way that somebody else made, or an API server that does not answer end it
    before anything is changed (exit code 1).
    """
    from tenancy.components.scope import Scope, select, stacks
    from tenancy.engine.driver import Driver, Failed
    from tenancy.lab.layout import LabError, find_root
    from tenancy.live.api import Api, Unreachable
    from tenancy.live.preflight import Refused, check
    from tenancy.plan import make_plan

    began = time.monotonic()
    loaded = load_or_exit(environment)
    plan = make_plan(loaded.environment, loaded.tenants)
    try:
        root = find_root(loaded.folder.resolve())
        enter_lab(plan.context, root)
        api = Api(plan.context)
        driver = Driver(root, api, click.echo)
        click.echo(f"{plan.environment}: {len(plan.tenants)} tenants, {sum(1 for _ in plan.objects())} objects")
        for name, scope, tenant in stacks(plan, loaded.environment.stacks):
            if scope is not Scope.TENANT:
                check(api, plan, *select(plan, scope, tenant))
            stack = driver.select(name)
            planned = driver.preview(stack)
            if not planned.changes:
                continue
            if only_preview:
                show(planned)
            else:
                show(driver.update(stack))
    except (Unreachable, Refused, Failed, LabError) as error:
        fail(str(error))
    click.echo(f"{plan.environment}: done in {time.monotonic() - began:.1f} s")


def show(outcome: Outcome) -> None:
    """The objects that changed, by tenant; a long list of new ones is only counted."""
    for tenant, changes in outcome.by_tenant():
        told = [change for change in changes if change.operation != "create"]
        new = [change for change in changes if change.operation == "create"]
        for change in told + (new if len(new) <= SHOWN else []):
            click.echo(f"  {tenant:<14} {change}")
        if len(new) > SHOWN:
            kinds: dict[str, int] = {}
            for change in new:
                kind = change.object.partition(" ")[0]
                kinds[kind] = kinds.get(kind, 0) + 1
            text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            click.echo(f"  {tenant:<14} + {text}")
