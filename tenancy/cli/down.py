from __future__ import annotations

import time

import click

from tenancy.catalog import vocabulary
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
    from tenancy.cli.engine import open_driver
    from tenancy.cli.up_report import show
    from tenancy.clock.controller import ClockRefused
    from tenancy.clock.shutdown import end_reservations
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.cluster.preflight import PreconditionFailed
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.unrecorded_objects import find_unrecorded, remove_all
    from tenancy.lab.layout import LabError
    from tenancy.lifecycle.adoption_record import restore_namespaces
    from tenancy.lifecycle.removal import PATIENCE, RemovalTimeout, mark_left
    from tenancy.planning.scope import CLUSTER_SUFFIX, names_of

    started = time.monotonic()
    loaded = load_or_exit(environment, lab=lab)
    name = loaded.environment.environment
    try:
        driver = open_driver(loaded, click.echo)
        stack_names = driver.stacks(name)
        if loaded.environment.aws.deletion_protection and name + CLUSTER_SUFFIX in stack_names:
            stack_names.remove(name + CLUSTER_SUFFIX)
            change = f"`aws.deletion-protection: false` and `tenancy up {name}` remove its deletion protection"
            click.echo(f"{name}: the cluster stays; {change}")
        # This request fails at once if the API server does not answer; the engine would wait for it for a long time.
        driver.api.items("/api/v1/namespaces?limit=1")
        stacks = [driver.select(stack) for stack in stack_names]
        resources_by_stack = {stack.name: driver.resources(stack) for stack in stacks}
        stacks_without_resources = [
            stack for stack, resources in resources_by_stack.items() if not resources and stack != name + CLUSTER_SUFFIX
        ]
        unrecorded_by_stack = {
            stack: find_unrecorded(driver.api, name, names_of(stack)[1]) for stack in stacks_without_resources
        }
        if name in unrecorded_by_stack:  # with objects of all tenants, of which some have stacks of their own
            tenants_with_own_stack = {names_of(stack)[1] for stack in resources_by_stack if stack != name}
            unrecorded_by_stack[name] = [
                item for item in unrecorded_by_stack[name] if item.tenant not in tenants_with_own_stack
            ]
        namespace_resources = [
            resource
            for resources in resources_by_stack.values()
            for resource in resources
            if resource["type"] == vocabulary.NAMESPACE_TYPE
        ]
        adopted = [resource["id"] for resource in namespace_resources if resource.get("retainOnDelete")]
        names = [resource["id"] for resource in namespace_resources if resource["id"] not in adopted]
        names += [
            resource.name
            for items in unrecorded_by_stack.values()
            for resource in items
            if resource.kind == "Namespace"
        ]
        if not any([*resources_by_stack.values(), *unrecorded_by_stack.values()]):
            restore_namespaces(driver.api, name, click.echo)
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
            if unrecorded_objects := unrecorded_by_stack.get(stack.name):
                remove_all(driver.api, unrecorded_objects, PATIENCE, click.echo)
            if resources_by_stack[stack.name]:
                show(driver.destroy(stack))
            if stack.name != name:
                driver.forget(stack)
        if adopted and name + CLUSTER_SUFFIX not in stack_names:  # else they are gone with their cluster
            restore_namespaces(driver.api, name, click.echo)
    except (ApiUnreachable, ClockRefused, RunFailed, LabError, PreconditionFailed, RemovalTimeout) as error:
        fail(str(error))
    click.echo(f"{name}: removed in {time.monotonic() - started:.1f} s")
