"""Which stacks of `tenancy up` need a run, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tenancy.cli.up_report import Report
from tenancy.cli.up_stack import RunSettings

if TYPE_CHECKING:
    from tenancy.engine.decide import Cause
    from tenancy.engine.digests import StackDigest
    from tenancy.engine.driver import Driver
    from tenancy.engine.fleet_comparison import HelperProcess
    from tenancy.engine.prefetch import Prefetch
    from tenancy.live.fleet_drift import FleetDrift
    from tenancy.planning.scope import Stack
    from tenancy.validation import Loaded


@dataclass(frozen=True)
class PendingDrift:
    """Drift that is asked for while the stacks with a cause run: of tenants that had none in the last run."""

    answer: Future[FleetDrift] | None
    """None if there is nothing to ask."""
    stacks: Mapping[str, str]
    """Names of the stacks that it is about, by their tenants."""
    record: Callable[[FleetDrift], None]
    """Record for the next run what was found without drift."""


@dataclass(frozen=True)
class Fleet:
    """What the stacks of one run share: it is read once, not once for each stack."""

    run: RunSettings
    driver: Driver
    report: Report
    loaded: Loaded
    digests: Mapping[str, StackDigest]
    existing: Collection[str]
    """Stacks that the backend has."""
    drifted: Collection[str]
    """Stacks with an object that is not as planned."""
    causes: Mapping[str, Sequence[Cause]]
    standard: bool
    """Whether program and pack are the library's own."""
    pending_drift: PendingDrift

    @property
    def recorded(self) -> bool:
        """Whether the run changes records: a preview does not."""
        return not self.run.only_preview

    def selector(self, name: str, tenant: str | None) -> str | None:
        """Selector of the stack's objects if one of them is not as planned."""
        from tenancy.live.selectors import environment_selector

        is_drifted = name in self.drifted and name in self.existing
        return environment_selector(self.run.plan.environment, tenant) if is_drifted else None


def decide_runs(
    run: RunSettings,
    driver: Driver,
    report: Report,
    loaded: Loaded,
    stacks: Sequence[Stack],
    selected_stacks: Sequence[str],
    prefetch: Prefetch | None = None,
    helper_process: HelperProcess | None = None,
) -> Fleet:
    """Which of the stacks need a run, by the records and objects on the cluster; without a cluster, all of them.

    `also_drifted` tells the drift of tenants that had none in the last run and have no other cause to run. `prefetch`
    holds the answers that were requested while the files were read, and `helper_process` shares the work.
    """
    from tenancy.engine import fleet_check_record, records
    from tenancy.engine.decide import CliSelection, causes
    from tenancy.engine.digests import digests, input_digests, is_standard, program_digest
    from tenancy.engine.fleet_comparison import FleetComparison, check_all
    from tenancy.live.background import in_background
    from tenancy.live.fleet_drift import ALWAYS_LISTED, FleetDrift, drift_by_changes, drift_by_lists, has_platform_drift
    from tenancy.planning.scope import StackScope

    plan = run.plan
    planned = [stack for stack in stacks if not selected_stacks or stack[0] in selected_stacks]
    existing = driver.stacks(plan.environment)
    program = program_digest(driver.root, str(driver.engine.version))
    on_cluster = any(scope is not StackScope.CLUSTER for _, scope, _ in planned)
    recorded_digests: Mapping[str, StackDigest] = {}
    former = fleet_check_record.FleetCheckRecord()
    if on_cluster:
        recorded_digests = prefetch.records.result() if prefetch else records.read(driver.api)
        former = (prefetch.check_record.result() if prefetch else fleet_check_record.read(driver.api)).of_program(
            program
        )
    inputs = input_digests(loaded, plan)

    def reusable_digest(stack: Stack) -> str:
        """The digest of its plan, if that is made from the same as its recorded one; else an empty text."""
        name, _, tenant = stack
        if name in full_check.plans:
            return full_check.plans[name]
        recorded = recorded_digests[name].plan if tenant and name in recorded_digests else ""
        return recorded if tenant and former.is_made_from(name, inputs[tenant], recorded) else ""

    existing_stacks = [stack for stack in planned if stack[0] in existing]
    one_stack_names = [name for name, scope, _ in existing_stacks if scope is StackScope.ALL]
    platform_names = [name for name, scope, _ in existing_stacks if scope is StackScope.PLATFORM]
    names = {tenant: name for name, _, tenant in existing_stacks if tenant}
    is_first_check = len(names) > ALWAYS_LISTED and not former.versions
    stacks_of_tenants = [stack for stack in existing_stacks if stack[2]]
    full_check = (
        check_all(driver.api, loaded, plan, stacks_of_tenants, helper_process) if is_first_check else FleetComparison()
    )
    stack_digests = digests(loaded, plan, planned, driver.root, program, reusable_digest)
    drifted = {
        name
        for name in (*one_stack_names, *platform_names)
        if has_platform_drift(driver.api, plan.environment, plan.platform)
    }
    decide = partial(
        causes,
        planned,
        stack_digests,
        recorded_digests,
        existing,
        selection=CliSelection(selected_stacks, run.refresh, run.leavers.by_hand),
    )
    idle_stacks = {name for name, causes_by_stack in decide(drifted=drifted).items() if not causes_by_stack}
    unchanged_tenants = [
        t for t, name in names.items() if name in idle_stacks and former.is_as_planned(name, stack_digests[name].plan)
    ]
    if len(unchanged_tenants) <= ALWAYS_LISTED:
        unchanged_tenants = []
    prefetched_changes = prefetch.changes if prefetch else None
    answer = (
        in_background(drift_by_changes, driver.api, plan, unchanged_tenants, former.versions, prefetched_changes)
        if unchanged_tenants
        else None
    )
    tenants_to_compare = plan.names if one_stack_names else [*names.keys() - {*unchanged_tenants}]
    drift = (
        full_check.drift
        if is_first_check
        else drift_by_lists(driver.api, plan, tenants_to_compare)
        if tenants_to_compare
        else FleetDrift()
    )
    drifted |= {one_stack_names[0] if one_stack_names else names[tenant] for tenant in drift.tenants}

    def keep(later_drift: FleetDrift) -> None:
        if run.only_preview or len(names) <= ALWAYS_LISTED or len(planned) <= len(plan.names):
            return  # of a few tenants alone there is nothing to save
        clean = {name: tenant for tenant, name in names.items() if tenant not in drift.tenants | later_drift.tenants}
        made_from = {name: (inputs[tenant], stack_digests[name].plan) for name, tenant in clean.items()}
        fleet_check_record.write(
            driver.api, fleet_check_record.FleetCheckRecord(drift.older(later_drift), made_from, program)
        )

    causes_by_stack = decide(drifted=drifted)
    for name, stack_causes in causes_by_stack.items():
        report.plan(name, [str(cause) for cause in stack_causes])
    pending_drift = PendingDrift(answer, {tenant: names[tenant] for tenant in unchanged_tenants}, keep)
    return Fleet(
        run,
        driver,
        report,
        loaded,
        stack_digests,
        existing,
        drifted,
        causes_by_stack,
        is_standard(driver.root),
        pending_drift,
    )


def also_drifted(fleet: Fleet) -> Fleet:
    """The stacks that have to run because of drift since the last run alone; waits until it is known."""
    from tenancy.engine.decide import Cause
    from tenancy.live.fleet_drift import FleetDrift

    drift = fleet.pending_drift.answer.result() if fleet.pending_drift.answer else FleetDrift()
    fleet.pending_drift.record(drift)
    drifted = {fleet.pending_drift.stacks[tenant] for tenant in drift.tenants}
    stacks = fleet.pending_drift.stacks.values()
    causes_by_stack: dict[str, Sequence[Cause]] = {name: (Cause.DRIFT,) if name in drifted else () for name in stacks}
    for name, stack_causes in causes_by_stack.items():
        fleet.report.plan(name, [str(cause) for cause in stack_causes])
    return replace(fleet, drifted=drifted, causes=causes_by_stack)
