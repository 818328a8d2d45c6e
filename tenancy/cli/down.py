from __future__ import annotations

import time

import click

from tenancy.cli.common import environment_argument, example, fail, lab_option, load_or_exit


@click.command("down", epilog=example("tenancy down local"))
@environment_argument
@lab_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(environment: str, lab: bool, yes: bool) -> None:
    """Remove everything of ENV from its cluster: tenants first, the guards last.

    With the namespaces goes what is in them; those of a tenant with `adopt: true` stay.
    """
    from tenancy.cli.up import show
    from tenancy.components.scope import CLUSTER_SUFFIX
    from tenancy.engine.driver import Driver, Failed
    from tenancy.lab.layout import LabError
    from tenancy.live.api import Unreachable

    began = time.monotonic()
    loaded = load_or_exit(environment, lab=lab)
    name = loaded.environment.environment
    try:
        driver = Driver.of(loaded, click.echo)
        there = driver.stacks(name)
        if loaded.environment.aws.deletion_protection and name + CLUSTER_SUFFIX in there:
            there.remove(name + CLUSTER_SUFFIX)
            release = f"`aws.deletion-protection: false` and `tenancy up {name}` release it"
            click.echo(f"{name}: the cluster stays; {release}")
        # An engine that waits for a dead cluster waits long.
        driver.api.items("/api/v1/namespaces?limit=1")
        stacks = [driver.select(stack) for stack in there]
        held = {stack.name: driver.resources(stack) for stack in stacks}
        names = [r["id"] for found in held.values() for r in found if r["type"] == "kubernetes:core/v1:Namespace"]
        if not any(held.values()):
            click.echo(f"{name}: there is nothing to remove")
            return
        click.echo(f"{name}: on {driver.api.host}, with all that is in them: {', '.join(sorted(names))}")
        if not yes and not click.confirm("Remove them?"):
            fail("nothing was changed")
        for stack in stacks:
            if held[stack.name]:
                show(driver.destroy(stack))
            if stack.name != name:
                driver.forget(stack)
    except (Unreachable, Failed, LabError) as error:
        fail(str(error))
    click.echo(f"{name}: removed in {time.monotonic() - began:.1f} s")
