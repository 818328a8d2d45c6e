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
    from tenancy.engine.early import Early
    from tenancy.engine.whole_check import Beside
    from tenancy.live.fleet_drift import FleetDrift
    from tenancy.planning.scope import Stack
    from tenancy.validation import Loaded


@dataclass(frozen=True)
class Later:
    """Drift that is asked for while the stacks with a cause run: of tenants that had none in the last run."""

    answer: Future[FleetDrift] | None
    """None if there is nothing to ask."""
    stacks: Mapping[str, str]
    """Names of the stacks that it is about, by their tenants."""
    keep: Callable[[FleetDrift], None]
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
    later: Later

    @property
    def recorded(self) -> bool:
        """Whether the run changes records: a preview does not."""
        return not self.run.only_preview

    def selector(self, name: str, tenant: str | None) -> str | None:
        """Selector of the stack's objects if one of them is not as planned."""
        from tenancy.live.selectors import of_environment

        is_late = name in self.drifted and name in self.existing
        return of_environment(self.run.plan.environment, tenant) if is_late else None


def decided(
    run: RunSettings,
    driver: Driver,
    report: Report,
    loaded: Loaded,
    stacks: Sequence[Stack],
    chosen: Sequence[str],
    early: Early | None = None,
    beside: Beside | None = None,
) -> Fleet:
    """Which of the stacks need a run, by the records and objects on the cluster; without a cluster, all of them.

    Drift of tenants that had none in the last run, and have no other cause to run, is told by `also_drifted`. `early`
    is what was asked for while the files were read, and `beside` a process that shares the work.
    """
    from tenancy.engine import checked, records
    from tenancy.engine.decide import Asked, causes
    from tenancy.engine.digests import digests, is_standard, of_inputs, of_program
    from tenancy.engine.whole_check import Found, check_all
    from tenancy.live.background import in_background
    from tenancy.live.fleet_drift import ALWAYS_LISTED, FleetDrift, compared, followed, platform_drifted
    from tenancy.planning.scope import StackScope

    plan = run.plan
    wanted = [stack for stack in stacks if not chosen or stack[0] in chosen]
    existing = driver.stacks(plan.environment)
    program = of_program(driver.root, str(driver.engine.version))
    on_cluster = any(scope is not StackScope.CLUSTER for _, scope, _ in wanted)
    found: Mapping[str, StackDigest] = {}
    former = checked.Checked()
    if on_cluster:
        found = early.records.result() if early else records.read(driver.api)
        former = (early.checked.result() if early else checked.read(driver.api)).of_program(program)
    inputs = of_inputs(loaded, plan)

    def known(stack: Stack) -> str:
        """The digest of its plan, if that is made from the same as its recorded one; else an empty text."""
        name, _, tenant = stack
        if name in everything.plans:
            return everything.plans[name]
        recorded = found[name].plan if tenant and name in found else ""
        return recorded if tenant and former.is_made_from(name, inputs[tenant], recorded) else ""

    there = [stack for stack in wanted if stack[0] in existing]
    whole = [name for name, scope, _ in there if scope is StackScope.ALL]
    shared = [name for name, scope, _ in there if scope is StackScope.PLATFORM]
    names = {tenant: name for name, _, tenant in there if tenant}
    first = len(names) > ALWAYS_LISTED and not former.versions
    stacks_of_tenants = [stack for stack in there if stack[2]]
    everything = check_all(driver.api, loaded, plan, stacks_of_tenants, beside) if first else Found()
    made = digests(loaded, plan, wanted, driver.root, program, known)
    drifted = {name for name in (*whole, *shared) if platform_drifted(driver.api, plan.environment, plan.platform)}
    decide = partial(causes, wanted, made, found, existing, asked=Asked(chosen, run.refresh, run.leavers.by_hand))
    idle = {name for name, why in decide(drifted=drifted).items() if not why}
    before = [t for t, name in names.items() if name in idle and former.is_as_planned(name, made[name].plan)]
    if len(before) <= ALWAYS_LISTED:
        before = []
    news = early.changes if early else None
    answer = in_background(followed, driver.api, plan, before, former.versions, news) if before else None
    rest = plan.names if whole else [*names.keys() - {*before}]
    late = everything.drift if first else compared(driver.api, plan, rest) if rest else FleetDrift()
    drifted |= {whole[0] if whole else names[tenant] for tenant in late.tenants}

    def keep(later: FleetDrift) -> None:
        if run.only_preview or len(names) <= ALWAYS_LISTED or len(wanted) <= len(plan.names):
            return  # of a few tenants alone there is nothing to save
        clean = {name: tenant for tenant, name in names.items() if tenant not in late.tenants | later.tenants}
        made_from = {name: (inputs[tenant], made[name].plan) for name, tenant in clean.items()}
        checked.write(driver.api, checked.Checked(late.older(later), made_from, program))

    why = decide(drifted=drifted)
    for name, each in why.items():
        report.plan(name, [str(cause) for cause in each])
    later = Later(answer, {tenant: names[tenant] for tenant in before}, keep)
    return Fleet(run, driver, report, loaded, made, existing, drifted, why, is_standard(driver.root), later)


def also_drifted(fleet: Fleet) -> Fleet:
    """The stacks that have to run because of drift since the last run alone; waits until it is known."""
    from tenancy.engine.decide import Cause
    from tenancy.live.fleet_drift import FleetDrift

    found = fleet.later.answer.result() if fleet.later.answer else FleetDrift()
    fleet.later.keep(found)
    drifted = {fleet.later.stacks[tenant] for tenant in found.tenants}
    stacks = fleet.later.stacks.values()
    why: dict[str, Sequence[Cause]] = {name: (Cause.DRIFT,) if name in drifted else () for name in stacks}
    for name, each in why.items():
        fleet.report.plan(name, [str(cause) for cause in each])
    return replace(fleet, drifted=drifted, causes=why)
