"""The tenants' stacks of `tenancy up`: those that need a run, side by side."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.up_decision import Fleet
from tenancy.cli.up_report import Report, StackReport
from tenancy.cli.up_stack import bring_up, in_stages, put_back, take_out_unrecorded

if TYPE_CHECKING:
    from tenancy.engine.changes import Outcome
    from tenancy.engine.driver import Driver
    from tenancy.kube.objects import Object
    from tenancy.live.api import Api
    from tenancy.planning.scope import Stack


def run_shared(fleet: Fleet, stack: Stack, pause: int) -> Outcome | None:
    """Run a stack that is no tenant's, if it needs it; its preview's outcome. `pause` are minutes between two waves of
    node groups."""
    from tenancy.engine import records
    from tenancy.live.adoption import quota_notes
    from tenancy.live.preflight import check
    from tenancy.planning.scope import StackScope, select

    name, scope, _ = stack
    run, driver, report = fleet.run, fleet.driver, fleet.report
    if not fleet.causes[name]:
        return None
    began = time.monotonic()
    on_cluster = scope is not StackScope.CLUSTER
    if on_cluster:
        platform, tenants = select(run.plan, scope, None)
        for text in quota_notes(driver.api, tenants) if tenants else ():
            report.say(text)
        for text in check(driver.api, run.plan, platform, tenants, _removing(fleet)):
            report.say(f"note: {text}")
        if fleet.recorded:
            records.forget(driver.api, name)
    opened, drifted, outcome = driver.select(name), fleet.selector(name, None), None
    held = driver.resources(opened)
    beyond = _beyond_labels(fleet, stack)
    first = not held and fleet.recorded and beyond is None and _start(fleet, report, stack)
    why = beyond or _needs_preview(fleet, stack, held)
    if why and run.skip_preview:
        report.say(f"{name}: previewed all the same: {why}")
    if why is None and run.skip_preview:
        _update(driver, report, opened, drifted, run.refresh, first=first)
    else:
        outcome = bring_up(run, driver, report, opened, drifted=drifted, pause=60 * pause, first=first)
    if on_cluster:
        _record(fleet, report, name)
    report.ended(name, "previewed" if run.only_preview else "updated", time.monotonic() - began)
    return outcome


def _beyond_labels(fleet: Fleet, stack: Stack) -> str | None:
    """What a stack that is no tenant's makes that no plan knows and no label finds; None if there is nothing."""
    from tenancy.engine.digests import has_program_config
    from tenancy.planning.scope import StackScope, select

    _, scope, _ = stack
    plan = fleet.run.plan
    if scope is StackScope.CLUSTER or plan.account is not None:
        return "it has resources on AWS"
    if not fleet.standard or has_program_config(fleet.driver.root, stack):
        return "its program, policy pack or config is not the library's own"
    platform, _ = select(plan, scope, None)
    if platform and (platform.metrics_charts or platform.services):
        return "it has charts, whose objects no plan knows"
    return None


def _needs_preview(fleet: Fleet, stack: Stack, resources: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the update of a stack that is no tenant's has to be previewed first; None if a preview would refuse nothing
    that is not known before."""
    from tenancy.engine.decide import needs_preview
    from tenancy.planning.scope import objects_of, select

    _, scope, _ = stack
    leavers = fleet.run.leavers
    if leavers.by_file | leavers.by_hand:
        return "a tenant leaves"
    platform, tenants = select(fleet.run.plan, scope, None)
    spaces = {item["metadata"]["name"] for item in objects_of(platform, tenants) if item["kind"] == "Namespace"}
    return needs_preview(resources, {tenant.name for tenant in tenants}, spaces)


def run_tenants(fleet: Fleet, stacks: Sequence[Stack], workers: int) -> list[str]:
    """Run the stacks of tenants that need it, and return the names of those that failed."""
    from tenancy.engine.driver import Failed
    from tenancy.engine.workers import run_all
    from tenancy.live.api import ApiUnreachable
    from tenancy.live.preflight import PreconditionFailed

    waiting = [stack for stack in stacks if fleet.causes.get(stack[0])]
    if not waiting:
        return []
    fleet.driver.end_orphans()
    reports = {name: StackReport(fleet.report) for name, *_ in waiting}
    began: dict[str, float] = {}
    checked = _checked(fleet, [tenant or "" for *_, tenant in waiting])

    def work(stack: Stack) -> None:
        began.setdefault(stack[0], time.monotonic())
        _run_tenant(fleet, reports[stack[0]], stack, checked)

    def interrupted() -> None:
        fleet.report.say("no further stack begins; those at work end first (Ctrl-C again to leave them)")

    failed = []
    kinds = (Failed, PreconditionFailed, ApiUnreachable)
    for number, result in enumerate(run_all(waiting, work, workers, kinds, interrupted), 1):
        name = result.item[0]
        seconds = time.monotonic() - began[name]
        reports[name].flush()
        if result.failed is not None:
            failed.append(name)
        done = "previewed" if fleet.run.only_preview else "updated"
        fleet.report.ended(name, "failed" if result.failed else done, seconds, result.failed)
        count = f"[{number}/{len(waiting)}]"
        if result.failed:
            click.echo(f"tenancy: {count} {name}: failed: {result.failed}", err=True)
        else:
            fleet.report.say(f"{count} {name}: done")
    return failed


def _checked(fleet: Fleet, tenants: Sequence[str]) -> bool:
    """Whether the cluster is ready for all these tenants, asked at once; if not, each one is asked for itself, so that
    the others go on."""
    from tenancy.live.preflight import PreconditionFailed, check

    plan = fleet.run.plan
    try:
        for text in check(fleet.driver.api, plan, None, [plan.tenant(name) for name in tenants], _removing(fleet)):
            fleet.report.say(f"note: {text}")
    except PreconditionFailed:
        return False
    return True


def _removing(fleet: Fleet) -> Collection[str]:
    return fleet.run.leavers.by_hand


def _run_tenant(fleet: Fleet, report: StackReport, stack: Stack, checked: bool) -> None:
    from tenancy.engine import records
    from tenancy.engine.decide import Cause, is_as_planned, needs_preview
    from tenancy.engine.digests import has_program_config
    from tenancy.live.adoption import quota_notes
    from tenancy.live.api import path_of
    from tenancy.live.preflight import check

    name, _, tenant = stack
    run, driver = fleet.run, fleet.driver.beside(report.say)
    part = run.plan.tenant(tenant or "")
    if not checked:
        check(driver.api, run.plan, None, [part], _removing(fleet))
    if name in fleet.existing:
        for text in quota_notes(driver.api, [part]):
            report.say(text)
    opened = driver.ready(name, exists=name in fleet.existing)
    drifted, refresh = fleet.selector(name, tenant), run.refresh
    if drifted and set(fleet.causes[name]) == {Cause.DRIFT}:
        found = put_back(driver, report, opened, drifted, run.only_preview)
        stored = [path_of(each["inputs"]) for each in driver.resources(opened) if "kind" in each["inputs"]]
        if is_as_planned(found.drifted, map(path_of, part.objects()), stored):
            return
        drifted, refresh = None, found.missing or refresh
    if fleet.recorded:
        records.forget(driver.api, name)
    held = driver.resources(opened) if name in fleet.existing else []
    first = not held and fleet.recorded and _start(fleet, report, stack)
    leaves = {part.name, *(space.name for space in part.namespaces)} & (run.leavers.by_file | run.leavers.by_hand)
    spaces = [space.name for space in part.namespaces]
    own = fleet.standard and not has_program_config(driver.root, stack)
    direct = own and not run.only_preview and not leaves and not run.leavers.by_hand
    if direct and needs_preview(held, {part.name}, spaces) is None:
        program = _program(fleet, tenant or "")
        _update(driver, report, opened, drifted, refresh, program=program, first=first)
    else:
        bring_up(run._replace(refresh=refresh), driver, report, opened, drifted=drifted)
    _record(fleet, report, name)


def _update(driver: Driver, report: Report, opened: Any, drifted: str | None, refresh: bool, **how: Any) -> None:
    """Update a stack without a preview; drift of its objects is reverted first. `how` is as for `Driver.update`."""
    if drifted:
        refresh = put_back(driver, report, opened, drifted, only_preview=False).missing or refresh
    report.show(opened.name, driver.update(opened, refresh=refresh, **how))


def _start(fleet: Fleet, report: Report, stack: Stack) -> bool:
    """Prepare the first run of a stack that has no resources; whether its state may be written at the end alone."""
    from tenancy.planning.scope import objects_of, select

    name, scope, tenant = stack
    platform, tenants = select(fleet.run.plan, scope, tenant)
    # The platform's namespace is made before those of tenants.
    if name in fleet.existing or _stands(fleet.driver.api, objects_of(platform, () if platform else tenants)):
        _take_back(fleet, report, stack)
    # Nothing on AWS, no chart, and no namespace of another owner may depend on a state that a killed engine does not
    # write: no label finds them.
    return not any(each.aws or each.adopt or any(space.chart for space in each.namespaces) for each in tenants)


def _stands(api: Api, planned: Sequence[Object]) -> bool:
    """Whether one of the planned namespaces is on the cluster already."""
    from tenancy.live.api import path_of

    return any(api.request("GET", path_of(item)).ok for item in planned if item["kind"] == "Namespace")


def _take_back(fleet: Fleet, report: Report, stack: Stack) -> None:
    """Remove what a run made whose state was never written or is lost, and that the files no longer have; the engine
    takes over the rest. Failed if another stack has the tenant, or if the file of a tenant was deleted."""
    from tenancy.engine.driver import Failed
    from tenancy.live.api import path_of
    from tenancy.live.removal import RemovalTimeout
    from tenancy.live.unrecorded import remove_unplanned, unrecorded
    from tenancy.planning.scope import StackScope, objects_of, select

    name, scope, tenant = stack
    plan, leavers, api = fleet.run.plan, fleet.run.leavers, fleet.driver.api
    shared = plan.environment
    if tenant and shared in fleet.existing and tenant in fleet.driver.components(shared):
        raise Failed(
            f"given stack {shared}, which has tenant {tenant}; rule: each object is in one stack; change: `tenancy "
            f"move {shared}`; nothing was changed"
        )
    found = [each for each in unrecorded(api, shared, tenant) if scope is not StackScope.PLATFORM or not each.tenant]
    known = {*plan.names}
    for gone in sorted({each.tenant for each in found if each.tenant} - known):
        if gone not in leavers.by_hand:
            raise Failed(f"given stack {name}, whose tenant {gone} has no file; {in_stages(gone, shared)}")
        left = [each for each in found if each.tenant == gone]
        found = [each for each in found if each.tenant != gone]
        take_out_unrecorded(fleet.driver, report, name, left, leavers.timeout)
    try:
        removed = remove_unplanned(api, found, {path_of(item) for item in objects_of(*select(plan, scope, tenant))})
    except RemovalTimeout as error:
        raise Failed(f"stack {name}: {error}") from error
    for each in removed:
        report.say(f"{name}: removed {each}, which a run that was ended had made and the files no longer have")


def _record(fleet: Fleet, report: Report, stack: str) -> None:
    """Record a stack's success. Without the record it runs again the next time, and changes nothing."""
    from tenancy.engine import records
    from tenancy.live.api import ApiUnreachable

    if not fleet.recorded:
        return
    try:
        records.write(fleet.driver.api, stack, fleet.digests[stack])
    except ApiUnreachable as error:
        report.say(f"note: {error}; the next run repeats the stack")


def _program(fleet: Fleet, tenant: str) -> Any:
    from tenancy.engine.tenant_program import register

    return partial(register, fleet.loaded, fleet.run.plan, tenant, fleet.driver.api)
