from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tenancy.catalog import vocabulary as words
from tenancy.cli.common import (
    BAD_INPUT,
    environment_argument,
    example,
    fail,
    format_option,
    lab_option,
    load_or_exit,
    print_json,
    tell,
)
from tenancy.validation import told

if TYPE_CHECKING:
    from tenancy.engine.changes import Outcome
    from tenancy.engine.driver import Driver
    from tenancy.kube.objects import Object
    from tenancy.planning import Plan
    from tenancy.validation import Loaded

NAMESPACE = "kubernetes:core/v1:Namespace"
SHOWN = 12
MOST = 60
"""Max rows of the table of grants."""


@click.command("up", epilog=example("tenancy up local"))
@environment_argument
@lab_option
@click.option("--preview", "only_preview", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--refresh", is_flag=True, help="Refresh state from the cluster and AWS first, and revert drift.")
@click.option("--stack", "chosen", multiple=True, metavar="STACK", help="Update only this stack of ENV; repeatable.")
@click.option(
    "--remove",
    "unnamed",
    multiple=True,
    metavar="NAME",
    help="Remove this tenant whose file was deleted, or this namespace (TENANT--NAMESPACE) that is no longer in its "
    "tenant's file, at once and without the stages of `leaving`; repeatable.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the work of a leaving tenant to end, and again for its namespaces to be deleted.",
)
@format_option
def command(
    environment: str,
    lab: bool,
    only_preview: bool,
    refresh: bool,
    chosen: tuple[str, ...],
    unnamed: tuple[str, ...],
    timeout: int,
    form: str,
) -> None:
    """Preview ENV with the policy pack, then update its stacks.

    A mistake in the spec files ends the command before the Pulumi engine starts (exit code 2). A broken mandatory rule,
    an existing object that the stacks did not create, or an API server that does not answer ends it before anything is
    changed (exit code 1). With `--format json` progress is printed to stderr, and the changes, one record per object,
    to stdout.
    """
    from tenancy.engine.driver import Driver, Failed
    from tenancy.lab.layout import LabError
    from tenancy.live.adoption import quota_notes
    from tenancy.live.api import ApiUnreachable
    from tenancy.live.preflight import PreconditionFailed, check, refuse_another
    from tenancy.planning import make_plan
    from tenancy.planning.scope import StackScope, in_order, objects_of, reach_hint, select, selector_of, stacks

    began = time.monotonic()
    failed: list[str] = []
    guarded = True
    loaded = load_or_exit(environment, form, lab)
    tell(told(loaded))
    report = _Report(form)
    plan = make_plan(loaded.environment, loaded.tenants)
    leavers = _RemovableTenants.of(loaded, unnamed, timeout)
    try:
        driver = Driver.of(loaded, report.say, leavers.by_hand)
        report.say(f"{plan.environment}: {len(plan.tenants)} tenants, {sum(1 for _ in plan.objects())} objects")
        wanted = list(stacks(plan, loaded.environment.stacks))
        if unknown := set(chosen) - {name for name, *_ in wanted}:
            known, given = ", ".join(name for name, *_ in wanted), ", ".join(sorted(unknown))
            fail(f"given --stack {given}; rule: a stack of {plan.environment}; change: use one of {known}", BAD_INPUT)
        # The other stacks need the system nodes to run on; without these nodes the cluster is incomplete.
        standing = plan.cluster is None or driver.holds(wanted[0][0], plan.cluster.system)
        wanted = in_order(wanted, standing)
        # The cluster stack has AWS resources only, and is updated even if the API server does not answer.
        if standing and any(
            scope is not StackScope.CLUSTER for name, scope, _ in wanted if not chosen or name in chosen
        ):
            refuse_another(driver.api, plan)
        if standing and not chosen:
            _remove_former(driver, plan, report, {name for name, *_ in wanted}, only_preview, leavers)
        pause = 60 * loaded.environment.aws.upgrade_pause
        for name, scope, tenant in wanted:
            if chosen and name not in chosen:
                continue
            if scope is StackScope.CLUSTER:
                _bring_up(driver, plan, report, name, only_preview, leavers, refresh, pause=pause)
                continue
            if not standing:
                _expect_cluster(driver, plan, only_preview)
                standing = True
            if scope is not StackScope.PLATFORM:
                for text in quota_notes(driver.api, select(plan, scope, tenant)[1]):
                    report.say(text)
            if scope is not StackScope.TENANT:
                for text in check(driver.api, plan, *select(plan, scope, tenant), leavers.by_hand):
                    report.say(f"note: {text}")
            elif only_preview and not guarded:
                report.say(f"{name}: no preview is possible before the platform stack is deployed")
                continue
            try:
                owned = _Owned(selector_of(plan, tenant), objects_of(*select(plan, scope, tenant)))
                outcome = _bring_up(driver, plan, report, name, only_preview, leavers, refresh, owned)
                guarded = not only_preview or not outcome.changes
            except Failed as error:
                if scope is not StackScope.TENANT:
                    raise
                # A stack that cannot be updated does not stop the stacks of other tenants.
                click.echo(f"tenancy: {error}", err=True)
                failed.append(name)
    except _NothingToCompare:
        report.say(f"{plan.environment}: no preview of the other stacks is possible before the cluster exists")
    except (ApiUnreachable, PreconditionFailed, Failed, LabError) as error:
        report.end()
        fail(f"{error}{reach_hint(plan) if isinstance(error, ApiUnreachable) else ''}")
    if only_preview and loaded.environment.flavors:
        report.say(_supply(loaded))
    report.end()
    if failed:
        fail(f"{plan.environment}: {len(failed)} of {len(wanted)} stacks failed: {', '.join(failed)}")
    report.say(f"{plan.environment}: done in {time.monotonic() - began:.1f} s")


def _supply(loaded: Loaded) -> str:
    """Supply and guarantees per flavor: the part of `tenancy report capacity` that a reviewer needs."""
    from tenancy.cli import supply_tables
    from tenancy.output.tables import as_text
    from tenancy.planning.queueing.capacity import supply

    flavors = supply(loaded.environment, loaded.tenants)
    return as_text(supply_tables.capacity(loaded.environment.environment, flavors)[0])


class _Report:
    """Prints progress as text, or all changes as JSON at the end."""

    def __init__(self, form: str) -> None:
        self._json = form == "json"
        self._records: list[dict[str, Any]] = []

    def say(self, text: str) -> None:
        click.echo(text, err=self._json)

    def show(self, stack: str, outcome: Outcome) -> None:
        if self._json:
            self._records += [{"stack": stack, **asdict(change)} for change in outcome.changes]
        else:
            show(outcome)

    def end(self) -> None:
        if self._json:
            print_json(self._records)


class _NothingToCompare(Exception):
    """Raised by a preview of objects on a cluster that does not exist yet."""


def _expect_cluster(driver: Driver, plan: Plan, only_preview: bool) -> None:
    """Check that the kubeconfig reaches a cluster that was just created; the AWS CLI adds it to the kubeconfig."""
    from tenancy.engine.driver import Failed
    from tenancy.live.api import ApiUnreachable
    from tenancy.planning.common.names import kubeconfig_command

    if only_preview:
        raise _NothingToCompare
    try:
        driver.api.items("/api/v1/namespaces?limit=1")
    except ApiUnreachable as error:
        cluster = plan.cluster
        command = kubeconfig_command(cluster.name, cluster.region, plan.context) if cluster else ""
        raise Failed(
            f"the cluster exists, but context {plan.context!r} does not reach it ({error}); rule: the other stacks "
            f"need a context in the kubeconfig; change: `{command}`, then run this again"
        ) from error


class _RemovableTenants(NamedTuple):
    """Tenants that may be removed from the cluster."""

    by_file: frozenset[str]
    by_hand: frozenset[str]
    """Arguments of --remove: tenants without a file, and namespaces that are no longer in their tenants' files."""
    timeout: int

    @classmethod
    def of(cls, loaded: Loaded, unnamed: Sequence[str], timeout: int) -> _RemovableTenants:
        from tenancy.schema.tenant import Leaving

        names = {tenant.tenant for tenant in loaded.tenants}
        known = {tenant.namespace_name(each) for tenant in loaded.tenants for each in tenant.namespaces}
        if named := sorted(known.intersection(unnamed)):
            given, change = f"--remove {named[0]}, which its tenant's file names", "remove it from the file first"
            fail(f"given {given}; rule: a namespace in a tenant's file is not removed; change: {change}", BAD_INPUT)
        if named := sorted(names.intersection(unnamed)):
            given, change = f"--remove {named[0]}, which has a file", "write `leaving: hold` into it"
            fail(f"given {given}; rule: a tenant with a file leaves in stages; change: {change}", BAD_INPUT)
        gone = frozenset(t.tenant for t in loaded.tenants if t.leaving is Leaving.REMOVE)
        return cls(gone, frozenset(unnamed), timeout)


def _in_stages(tenant: str, environment: str) -> str:
    """Rule and change of a message, for a tenant whose file was deleted before its stages of leaving."""
    return (
        f"rule: a tenant leaves in stages; change: restore its file with `leaving: hold`, and after `tenancy up "
        f"{environment}` write `leaving: remove`; or remove it at once with all objects in its namespaces: `tenancy up "
        f"{environment} --remove {tenant}`"
    )


def _refuse_early(driver: Driver, plan: Plan, stack: Any, leavers: _RemovableTenants) -> None:
    """Raise Failed if a tenant skipped the stages before `leaving: remove`, or if no Kueue runs to end its work."""
    from tenancy.engine.driver import Failed
    from tenancy.live.removal import kueue_runs, never_held

    going = [tenant for tenant in sorted(leavers.by_file | leavers.by_hand) if driver.of_tenant(stack, tenant)]
    if going and kueue_runs(driver.api) is False:
        raise Failed(
            f"given tenant {', '.join(going)} that leaves, and a Kueue whose webhook does not answer; rule: only Kueue "
            "removes its finalizers from queued work, and they block the deletion of namespaces; change: start Kueue "
            "(for the lab: `tenancy lab up`) and run this again; nothing was changed"
        )
    for tenant in sorted(leavers.by_file):
        # The state lists them in the order of their creation, which varies.
        spaces = sorted(found["id"] for found in driver.of_tenant(stack, tenant) if found["type"] == NAMESPACE)
        if spaces and (found := never_held(driver.api, spaces)):
            raise Failed(
                f"given tenant {tenant} with leaving: remove, whose {', '.join(found)} is in use; rule: a tenant "
                f"leaves in stages; change: write `leaving: hold` and run `tenancy up {plan.environment}`, save what "
                f"it owns with `tenancy export {tenant} {plan.environment}`, then write `leaving: remove`; nothing "
                "was changed"
            )


def _take_out(driver: Driver, report: _Report, stack: Any, tenant: str, timeout: int) -> None:
    """Remove access bindings, work and namespaces of a tenant, in this order. The engine's update removes the rest."""
    from tenancy.engine.changes import is_access_binding
    from tenancy.engine.driver import Failed
    from tenancy.live.removal import RemovalTimeout, access_bindings_blocked, mark_left, take_out

    held = driver.of_tenant(stack, tenant)
    if not held:
        return
    bindings = [
        found["inputs"] for found in held if is_access_binding(found) and found["type"].startswith("kubernetes:")
    ]
    # Adopted namespaces existed before the tenant, and stay.
    spaces = [found["id"] for found in held if found["type"] == NAMESPACE and not found.get("retainOnDelete")]
    queues = [found["id"] for found in held if found["type"].endswith(":ClusterQueue")]
    try:
        access_bindings_blocked(driver.api, bindings)
        report.show(stack.name, driver.shut(stack, tenant))
        take_out(driver.api, spaces, queues, timeout, lambda text: report.say(f"{stack.name}: {text}"))
        kept = [found["id"] for found in held if found["type"] == NAMESPACE and found.get("retainOnDelete")]
        mark_left(driver.api, kept)
    except RemovalTimeout as error:
        raise Failed(f"stack {stack.name}: tenant {tenant} is not removed\n  {error}") from error


def _bring_up(
    driver: Driver,
    plan: Plan,
    report: _Report,
    name: str,
    only_preview: bool,
    leavers: _RemovableTenants,
    refresh: bool,
    owned: _Owned | None = None,
    pause: float = 0,
) -> Outcome:
    from tenancy.engine.changes import lost_namespaces, without_file
    from tenancy.engine.driver import Failed

    stack = driver.select(name)
    shared = plan.platform.data
    if name == plan.environment and plan.account and shared and shared.cost_tags:
        driver.tell_cost_tags(stack, shared.cost_tags, plan.account.region)
    _refuse_early(driver, plan, stack, leavers)
    if owned:
        refresh = _put_back(driver, report, stack, owned, only_preview) or refresh
    leaving = leavers.by_file | leavers.by_hand
    with driver.released(stack, leaving, for_good=not only_preview):
        planned = driver.preview(stack, refresh=refresh)
    orphans = [tenant for tenant in without_file(planned, plan) if tenant not in leavers.by_hand]
    if orphans:
        raise Failed(
            f"given stack {name}, which has tenant {', '.join(orphans)} without a file; "
            f"{_in_stages(orphans[0], plan.environment)}; nothing was changed"
        )
    if lost := lost_namespaces(planned, plan):
        raise Failed(
            f"given stack {name}, whose update would delete {', '.join(lost)} and all objects in it; rule: a namespace "
            "in the spec files is never removed; change: if the resource was renamed or now belongs to another "
            "stack, `pulumi state rename` or `pulumi state move` it; nothing was changed"
        )
    if only_preview:
        report.show(name, planned)
    elif planned.changes or planned.others:
        # A single namespace is removed by the engine itself, in the order that the update of its tenant needs: its
        # replacement is created before it is deleted.
        for tenant in sorted(name for name in leaving if words.SEPARATOR not in name):
            _take_out(driver, report, stack, tenant, leavers.timeout)
        for part, resources in _waves(plan, planned)[:-1]:
            report.show(name, driver.update(stack, resources, refresh=refresh))
            report.say(f"{name}: {part} is done; the next follows in {pause / 60:.0f} min (Ctrl-C ends the run here)")
            time.sleep(pause)
        report.show(name, driver.update(stack, refresh=refresh))
    return planned


class _Owned(NamedTuple):
    """The objects that a stack creates on the cluster."""

    selector: str
    objects: Sequence[Object]


def _put_back(driver: Driver, report: _Report, stack: Any, owned: _Owned, only_preview: bool) -> bool:
    """Revert drift of the stack's objects, which the engine does not see, because it compares with its state alone.
    Returns whether the engine has to refresh, because objects are missing."""
    from tenancy.engine.driver import Failed
    from tenancy.live.drift import NotPutBack, drift, put_back

    # A planned object that is not created yet counts as drift here; the state tells the two apart, but takes longer to
    # read.
    if not drift(driver.api, owned.selector, owned.objects):
        return False
    altered = driver.altered(stack, owned.selector)
    for each, manager in altered:
        report.say(f"{stack.name}: drifted: {each}")
        if only_preview:
            continue
        try:
            put_back(driver.api, each, manager)
        except NotPutBack as error:
            raise Failed(f"stack {stack.name}: {error}; change: restore it by hand, or delete it") from error
    return not only_preview and any(each.live is None for each, _ in altered)


def _waves(plan: Plan, planned: Outcome) -> list[tuple[str, list[str]]]:
    """Resources to update one group after another: first the control plane, because no node may be newer, then the
    node groups by wave."""
    from tenancy.planning.common.names import control_plane_name, node_group_names

    if plan.cluster is None:
        return []
    changed = {change.object.rpartition(" ")[2] for change in planned.changes if change.operation != "create"}
    control_plane = control_plane_name(plan.cluster.name)
    first = [("the control plane", [control_plane])] if control_plane in changed else []
    waves: dict[int, list[str]] = {}
    for group in plan.cluster.groups:
        resources = node_group_names(plan.cluster.name, group.name)
        if changed.intersection(resources):
            waves.setdefault(group.wave, []).extend(resources)
    return first + [(f"wave {wave}", resources) for wave, resources in sorted(waves.items())]


def _remove_former(
    driver: Driver, plan: Plan, report: _Report, wanted: set[str], only_preview: bool, leavers: _RemovableTenants
) -> None:
    """Remove stacks of tenants without a file; raise Failed if a stack has a tenant that another stack would create."""
    from tenancy.engine.driver import Failed

    for name in driver.stacks(plan.environment):
        if name in wanted:
            continue
        tenant = name.removeprefix(words.derived_name(plan.environment, ""))
        if tenant in {found.name for found in plan.tenants}:
            stack = driver.select(name)
            if driver.resources(stack):
                raise Failed(
                    f"given stack {name}, which has tenant {tenant}; rule: each object is in one stack; change: "
                    f"`pulumi state move --source {name} --dest {plan.environment}` its resources, then "
                    f"`pulumi stack rm {name}`; or set stacks: per-tenant in environment.yaml"
                )
            continue
        stack = driver.select(name)
        if driver.resources(stack) and tenant not in leavers.by_hand:
            raise Failed(f"given stack {name}, whose tenant has no file; {_in_stages(tenant, plan.environment)}")
        if only_preview:
            report.say(f"{name}: its tenant has no file: the remaining resources would be removed")
        else:
            report.say(f"{name}: its tenant has no file: removing the remaining resources")
            _take_out(driver, report, stack, tenant, leavers.timeout)
            report.show(name, driver.destroy(stack))
            driver.forget(stack)


def show(outcome: Outcome) -> None:
    """Print the objects that changed, by tenant; of many new objects only the count per kind is printed."""
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
    if outcome.grants:
        from tenancy.cli.tables import print_tables
        from tenancy.output.tables import Table

        rows, header = sorted(outcome.grants), ("tenant", "namespace", "at", "before", "after")
        more = [f"and {len(rows) - MOST} more: see `tenancy who-can`"] if len(rows) > MOST else []
        print_tables([Table("Grants on AWS", header, rows[:MOST], more)])
