"""The stacks that `tenancy up` runs: shared ones one after another, and those of tenants side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.up_decision import Fleet, decide_runs
from tenancy.cli.up_report import StackReport
from tenancy.cli.up_stack import preview_and_update, remove_unrecorded_tenant, revert_drift, stages_advice

if TYPE_CHECKING:
    from tenancy.cli.up_settings import EnvironmentRun, SelectedStacks
    from tenancy.cluster.api import Api
    from tenancy.deploy.changes import Outcome
    from tenancy.kube.objects import Object
    from tenancy.planning.scope import Stack


class NothingToCompare(Exception):
    """Raised by a preview of objects on a cluster that does not exist yet."""


def create_cluster(run: EnvironmentRun, stacks: SelectedStacks) -> None:
    """Create the environment's cluster if there is none yet, before any stack of objects on it."""
    if stacks.new_cluster:
        run_shared(decide_runs(run, [stacks.new_cluster]), stacks.new_cluster)
    if not stacks.cluster_exists and stacks.any_on_cluster:
        _expect_cluster(run)


def _expect_cluster(run: EnvironmentRun) -> None:
    """Check that the kubeconfig reaches a cluster that was just created; the AWS CLI adds it to the kubeconfig."""
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.deploy.driver import RunFailed
    from tenancy.planning.common.names import kubeconfig_command

    if run.only_preview:
        raise NothingToCompare
    try:
        run.driver.api.items("/api/v1/namespaces?limit=1")
    except ApiUnreachable as error:
        cluster, context = run.plan.cluster, run.plan.context
        command = kubeconfig_command(cluster.name, cluster.region, context) if cluster else ""
        raise RunFailed(
            f"the cluster exists, but context {context!r} does not reach it ({error}); rule: the other stacks "
            f"need a context in the kubeconfig; change: `{command}`, then run this again"
        ) from error


def run_shared(fleet: Fleet, stack: Stack) -> Outcome | None:
    """Run a stack that is no tenant's, if it needs it; its preview's outcome."""
    from tenancy.cluster.preflight import check
    from tenancy.deploy import records
    from tenancy.lifecycle.adoption import quota_notes
    from tenancy.planning.scope import StackScope, select

    name, scope, _ = stack
    run, driver, report = fleet.run, fleet.run.driver, fleet.run.report
    if not fleet.causes[name]:
        return None
    started = time.monotonic()
    on_cluster = scope is not StackScope.CLUSTER
    pause = 60 * run.loaded.environment.aws.upgrade_pause
    if on_cluster:
        platform, tenants = select(run.plan, scope, None)
        for text in quota_notes(driver.api, tenants) if tenants else ():
            report.say(text)
        for text in check(driver.api, run.plan, platform, tenants, run.leavers.by_hand):
            report.say(f"note: {text}")
        if fleet.recorded:
            records.forget(driver.api, name)
    selected_stack, drifted, outcome = driver.select(name), fleet.selector(name, None), None
    resources = driver.resources(selected_stack)
    unlabelled_reason = _beyond_labels(fleet, stack)
    is_first_run = not resources and fleet.recorded and unlabelled_reason is None and _start(fleet, stack)
    preview_reason = unlabelled_reason or _needs_preview(fleet, stack, resources)
    if preview_reason and run.skip_preview:
        report.say(f"{name}: previewed all the same: {preview_reason}")
    if preview_reason is None and run.skip_preview:
        _update(run, selected_stack, drifted, first=is_first_run)
    else:
        outcome = preview_and_update(run, selected_stack, drifted=drifted, pause=pause, is_first_run=is_first_run)
    if on_cluster:
        _record(fleet, name)
    report.ended(name, "previewed" if run.only_preview else "updated", time.monotonic() - started)
    return outcome


def _beyond_labels(fleet: Fleet, stack: Stack) -> str | None:
    """Resources of a stack that no plan has and no label selects; None for a tenant's stack, and if there are none."""
    from tenancy.deploy.digests import has_program_config
    from tenancy.planning.scope import StackScope, select

    _, scope, _ = stack
    plan = fleet.run.plan
    if scope is StackScope.CLUSTER or plan.account is not None:
        return "it has resources on AWS"
    if not fleet.standard or has_program_config(fleet.run.driver.root, stack):
        return "its program, policy pack or config is not the library's own"
    platform, _ = select(plan, scope, None)
    if platform and (platform.metrics_charts or platform.services):
        return "it has charts, whose objects no plan knows"
    return None


def _needs_preview(fleet: Fleet, stack: Stack, resources: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the update of a stack that is no tenant's has to be previewed first; None if a preview would refuse nothing
    that is not known before."""
    from tenancy.deploy.decide import needs_preview
    from tenancy.planning.scope import objects_of, select

    _, scope, _ = stack
    if fleet.run.leavers.names:
        return "a tenant leaves"
    platform, tenants = select(fleet.run.plan, scope, None)
    spaces = {item["metadata"]["name"] for item in objects_of(platform, tenants) if item["kind"] == "Namespace"}
    return needs_preview(resources, {tenant.name for tenant in tenants}, spaces)


def run_tenants(fleet: Fleet, stacks: Sequence[Stack], workers: int) -> list[str]:
    """Run the stacks of tenants that need it, and return the names of those that failed."""
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.cluster.preflight import PreconditionFailed
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.workers import run_all

    stacks_to_run = [stack for stack in stacks if fleet.causes.get(stack[0])]
    if not stacks_to_run:
        return []
    fleet.run.driver.end_orphans()
    reports = {name: StackReport(fleet.run.report) for name, *_ in stacks_to_run}
    started: dict[str, float] = {}
    is_checked = _are_ready(fleet, [tenant or "" for *_, tenant in stacks_to_run])

    def work(stack: Stack) -> None:
        started.setdefault(stack[0], time.monotonic())
        _run_tenant(fleet, reports[stack[0]], stack, is_checked)

    def interrupted() -> None:
        fleet.run.report.say("no further stack begins; those at work end first (Ctrl-C again to leave them)")

    failed = []
    error_types = (RunFailed, PreconditionFailed, ApiUnreachable)
    for number, result in enumerate(run_all(stacks_to_run, work, workers, error_types, interrupted), 1):
        name = result.item[0]
        seconds = time.monotonic() - started[name]
        reports[name].flush()
        if result.failed is not None:
            failed.append(name)
        success_result = "previewed" if fleet.run.only_preview else "updated"
        fleet.run.report.ended(name, "failed" if result.failed else success_result, seconds, result.failed)
        count = f"[{number}/{len(stacks_to_run)}]"
        if result.failed:
            click.echo(f"tenancy: {count} {name}: failed: {result.failed}", err=True)
        else:
            fleet.run.report.say(f"{count} {name}: done")
    return failed


def _are_ready(fleet: Fleet, tenants: Sequence[str]) -> bool:
    """Whether the cluster is ready for all these tenants, asked at once; if not, each one is asked for itself, so that
    the others go on."""
    from tenancy.cluster.preflight import PreconditionFailed, check

    run, plan = fleet.run, fleet.run.plan
    tenant_plans = [plan.tenant(name) for name in tenants]
    try:
        for text in check(run.driver.api, plan, None, tenant_plans, run.leavers.by_hand):
            run.report.say(f"note: {text}")
    except PreconditionFailed:
        return False
    return True


def _run_tenant(fleet: Fleet, report: StackReport, stack: Stack, is_checked: bool) -> None:
    from tenancy.cluster.api import path_of
    from tenancy.cluster.preflight import check
    from tenancy.deploy import records
    from tenancy.deploy.decide import Cause, is_as_planned, needs_preview
    from tenancy.deploy.digests import has_program_config
    from tenancy.deploy.tenant_program import register
    from tenancy.lifecycle.adoption import quota_notes

    name, _, tenant = stack
    driver = fleet.run.driver.for_parallel_run(report.say)
    run = fleet.run._replace(driver=driver, report=report)
    fleet = replace(fleet, run=run)
    tenant_plan = run.plan.tenant(tenant or "")
    if not is_checked:
        check(driver.api, run.plan, None, [tenant_plan], run.leavers.by_hand)
    if name in fleet.existing:
        for text in quota_notes(driver.api, [tenant_plan]):
            report.say(text)
    selected_stack = driver.open_known(name, exists=name in fleet.existing)
    drifted = fleet.selector(name, tenant)
    if drifted and set(fleet.causes[name]) == {Cause.DRIFT}:
        reverted = revert_drift(run, selected_stack, drifted)
        stored = [
            path_of(resource["inputs"]) for resource in driver.resources(selected_stack) if "kind" in resource["inputs"]
        ]
        if is_as_planned(reverted.drifted, map(path_of, tenant_plan.objects()), stored):
            return
        drifted, run = None, run._replace(refresh=reverted.missing or run.refresh)
    if fleet.recorded:
        records.forget(driver.api, name)
    resources = driver.resources(selected_stack) if name in fleet.existing else []
    is_first_run = not resources and fleet.recorded and _start(fleet, stack)
    leaving_names = {tenant_plan.name, *(space.name for space in tenant_plan.namespaces)} & run.leavers.names
    spaces = [space.name for space in tenant_plan.namespaces]
    uses_library_program = fleet.standard and not has_program_config(driver.root, stack)
    skips_preview = uses_library_program and not run.only_preview and not leaving_names and not run.leavers.by_hand
    if skips_preview and needs_preview(resources, {tenant_plan.name}, spaces) is None:
        program = partial(register, run.loaded, run.plan, tenant_plan.name, driver.api)
        _update(run, selected_stack, drifted, program=program, first=is_first_run)
    else:
        preview_and_update(run, selected_stack, drifted=drifted)
    _record(fleet, name)


def _update(run: EnvironmentRun, selected_stack: Any, drifted: str | None, **update_options: Any) -> None:
    """Update a stack without a preview; drift of its objects is reverted first. `update_options` are those of
    `Driver.update`."""
    refresh = run.refresh
    if drifted:
        refresh = revert_drift(run, selected_stack, drifted).missing or refresh
    run.report.show(selected_stack.name, run.driver.update(selected_stack, refresh=refresh, **update_options))


def _start(fleet: Fleet, stack: Stack) -> bool:
    """Prepare the first run of a stack that has no resources; whether its state may be written at the end alone."""
    from tenancy.planning.scope import objects_of, select

    name, scope, tenant = stack
    platform, tenants = select(fleet.run.plan, scope, tenant)
    # The platform's namespace is made before those of tenants.
    if name in fleet.existing or _namespace_exists(
        fleet.run.driver.api, objects_of(platform, () if platform else tenants)
    ):
        _remove_unrecorded(fleet, stack)
    # Nothing on AWS, no chart, and no namespace of another owner may depend on a state that a killed engine does not
    # write: no label finds them.
    return not any(
        tenant_plan.aws or tenant_plan.adopt or any(space.chart for space in tenant_plan.namespaces)
        for tenant_plan in tenants
    )


def _namespace_exists(api: Api, planned: Sequence[Object]) -> bool:
    """Whether one of the planned namespaces is on the cluster already."""
    from tenancy.cluster.api import path_of

    return any(api.request("GET", path_of(item)).ok for item in planned if item["kind"] == "Namespace")


def _remove_unrecorded(fleet: Fleet, stack: Stack) -> None:
    """Remove what a run made whose state was never written or is lost, and that the files no longer have; the engine
    takes over the rest. RunFailed if another stack has the tenant, or if the file of a tenant was deleted."""
    from tenancy.cluster.api import path_of
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.unrecorded_objects import find_unrecorded, remove_unplanned
    from tenancy.lifecycle.removal import RemovalTimeout
    from tenancy.planning.scope import StackScope, objects_of, select

    name, scope, tenant = stack
    run, plan, api = fleet.run, fleet.run.plan, fleet.run.driver.api
    platform_stack = plan.environment
    if tenant and platform_stack in fleet.existing and tenant in run.driver.components(platform_stack):
        raise RunFailed(
            f"given stack {platform_stack}, which has tenant {tenant}; rule: each object is in one stack; "
            "change: `tenancy "
            f"move {platform_stack}`; nothing was changed"
        )
    unrecorded_objects = [
        unrecorded_object
        for unrecorded_object in find_unrecorded(api, platform_stack, tenant)
        if scope is not StackScope.PLATFORM or not unrecorded_object.tenant
    ]
    known_tenants = {*plan.names}
    for removed_tenant in sorted(
        {unrecorded_object.tenant for unrecorded_object in unrecorded_objects if unrecorded_object.tenant}
        - known_tenants
    ):
        if removed_tenant not in run.leavers.by_hand:
            raise RunFailed(
                f"given stack {name}, whose tenant {removed_tenant} has no file; "
                f"{stages_advice(removed_tenant, platform_stack)}"
            )
        tenant_objects = [
            unrecorded_object for unrecorded_object in unrecorded_objects if unrecorded_object.tenant == removed_tenant
        ]
        unrecorded_objects = [
            unrecorded_object for unrecorded_object in unrecorded_objects if unrecorded_object.tenant != removed_tenant
        ]
        remove_unrecorded_tenant(run, name, tenant_objects)
    try:
        removed_objects = remove_unplanned(
            api, unrecorded_objects, {path_of(item) for item in objects_of(*select(plan, scope, tenant))}
        )
    except RemovalTimeout as error:
        raise RunFailed(f"stack {name}: {error}") from error
    for unrecorded_object in removed_objects:
        run.report.say(
            f"{name}: removed {unrecorded_object}, which a run that was ended had made and the files no longer have"
        )


def _record(fleet: Fleet, stack: str) -> None:
    """Record a stack's success. Without the record it runs again the next time, and changes nothing."""
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.deploy import records

    if not fleet.recorded:
        return
    try:
        records.write(fleet.run.driver.api, stack, fleet.digests[stack])
    except ApiUnreachable as error:
        fleet.run.report.say(f"note: {error}; the next run repeats the stack")
