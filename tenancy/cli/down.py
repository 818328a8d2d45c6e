from __future__ import annotations

import time

import click

from tenancy.catalog import vocabulary as words
from tenancy.cli.common import environment_argument, example, fail, lab_option, load_or_exit


@click.command("down", epilog=example("tenancy down local"))
@environment_argument
@lab_option
@click.option("--yes", is_flag=True, help="Remove without asking for confirmation.")
def command(environment: str, lab: bool, yes: bool) -> None:
    """Remove everything of ENV from its cluster: tenants first, admission policies last.

    A namespace is deleted with all objects in it. Namespaces of a tenant with `adopt: true` stay, and get the labels
    and annotations of before their adoption. An EKS cluster with `aws.deletion-protection: true` stays too.
    """
    from tenancy.cli.up_report import show
    from tenancy.clock.controller import ClockRefused
    from tenancy.clock.ending import end_reservations
    from tenancy.engine.driver import Driver, Failed
    from tenancy.lab.layout import LabError
    from tenancy.live.adoption_record import give_back
    from tenancy.live.api import ApiUnreachable
    from tenancy.live.preflight import PreconditionFailed
    from tenancy.live.removal import PATIENCE, RemovalTimeout, mark_left
    from tenancy.live.unrecorded import remove_all, unrecorded
    from tenancy.planning.scope import CLUSTER_SUFFIX, names_of

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
        # Fails at once if the API server does not answer; the engine would wait for it for a long time.
        driver.api.items("/api/v1/namespaces?limit=1")
        stacks = [driver.select(stack) for stack in there]
        held = {stack.name: driver.resources(stack) for stack in stacks}
        emptied = [stack for stack, found in held.items() if not found and stack != name + CLUSTER_SUFFIX]
        lost = {stack: unrecorded(driver.api, name, names_of(stack)[1]) for stack in emptied}
        if name in lost:  # with objects of all tenants, of which some have stacks of their own
            apart = {names_of(stack)[1] for stack in held if stack != name}
            lost[name] = [found for found in lost[name] if found.tenant not in apart]
        spaces = [r for found in held.values() for r in found if r["type"] == words.NAMESPACE_TYPE]
        adopted = [r["id"] for r in spaces if r.get("retainOnDelete")]
        names = [r["id"] for r in spaces if r["id"] not in adopted]
        names += [r.name for found in lost.values() for r in found if r.kind == "Namespace"]
        if not any([*held.values(), *lost.values()]):
            give_back(driver.api, name, click.echo)
            click.echo(f"{name}: there is nothing to remove")
            return
        click.echo(f"{name}: namespaces on {driver.api.host} with all objects in them: {', '.join(sorted(names))}")
        if adopted:
            click.echo(f"{name}: adopted namespaces stay, without access and limits: {', '.join(sorted(adopted))}")
        if not yes and not click.confirm("Remove them?"):
            fail("nothing was changed")
        end_reservations(driver.api)
        mark_left(driver.api, adopted)
        for stack in stacks:
            if found := lost.get(stack.name):
                remove_all(driver.api, found, PATIENCE, click.echo)
            if held[stack.name]:
                show(driver.destroy(stack))
            if stack.name != name:
                driver.forget(stack)
        if adopted and name + CLUSTER_SUFFIX not in there:  # else they are gone with their cluster
            give_back(driver.api, name, click.echo)
    except (ApiUnreachable, ClockRefused, Failed, LabError, PreconditionFailed, RemovalTimeout) as error:
        fail(str(error))
    click.echo(f"{name}: removed in {time.monotonic() - began:.1f} s")
