from __future__ import annotations

import time

import click

from tenancy.cli.common import enter_lab, environment_argument, example, fail, load_or_exit


@click.command("down", epilog=example("tenancy down local"))
@environment_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(environment: str, yes: bool) -> None:
    """Remove everything of ENV from its cluster: tenants first, the guards last.

    With the namespaces goes what is in them; those of a tenant with `adopt: true` stay.
    """
    from tenancy.cli.up import show
    from tenancy.engine.driver import Driver, Failed
    from tenancy.lab.layout import LabError, find_root
    from tenancy.live.api import Api, Unreachable
    from tenancy.plan import make_plan

    began = time.monotonic()
    loaded = load_or_exit(environment)
    plan = make_plan(loaded.environment, loaded.tenants)
    try:
        root = find_root(loaded.folder.resolve())
        enter_lab(plan.context, root)
        api = Api(plan.context)
        # An engine that waits for a dead cluster waits long.
        api.items("/api/v1/namespaces?limit=1")
        driver = Driver(root, api, click.echo)
        stacks = [driver.select(name) for name in driver.stacks(plan.environment)]
        held = {stack.name: driver.resources(stack) for stack in stacks}
        names = [r["id"] for found in held.values() for r in found if r["type"] == "kubernetes:core/v1:Namespace"]
        if not any(held.values()):
            click.echo(f"{plan.environment}: there is nothing to remove")
            return
        click.echo(f"{plan.environment}: on {api.host}, with all that is in them: {', '.join(sorted(names))}")
        if not yes and not click.confirm("Remove them?"):
            fail("nothing was changed")
        for stack in stacks:
            if held[stack.name]:
                show(driver.destroy(stack))
            if stack.name != plan.environment:
                driver.forget(stack)
    except (Unreachable, Failed, LabError) as error:
        fail(str(error))
    click.echo(f"{plan.environment}: removed in {time.monotonic() - began:.1f} s")
