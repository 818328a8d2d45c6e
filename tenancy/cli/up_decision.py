"""Which stacks of `tenancy up` need a run, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenancy.cli.up_settings import EnvironmentRun

if TYPE_CHECKING:
    from tenancy.deploy.decide import Cause
    from tenancy.deploy.digests import StackDigest
    from tenancy.planning.scope import Stack


@dataclass(frozen=True)
class Fleet:
    """State that the stacks of one run share: it is read once, not once for each stack."""

    run: EnvironmentRun
    digests: Mapping[str, StackDigest]
    existing: Collection[str]
    """Stacks that the backend has."""
    drifted: Collection[str]
    """Stacks with an object that is not as planned."""
    causes: Mapping[str, Sequence[Cause]]
    standard: bool
    """Whether program and pack are the library's own."""

    @property
    def recorded(self) -> bool:
        """Whether the run changes records: a preview does not."""
        return not self.run.only_preview

    def selector(self, name: str, tenant: str | None) -> str | None:
        """Selector of the stack's objects if one of them is not as planned."""
        from tenancy.cluster.selectors import environment_selector

        is_drifted = name in self.drifted and name in self.existing
        return environment_selector(self.run.plan.environment, tenant) if is_drifted else None


def decide_runs(run: EnvironmentRun, stacks: Sequence[Stack]) -> Fleet:
    """Which of the stacks need a run, by the records and objects on the cluster; without a cluster, all of them."""
    from tenancy.deploy import records
    from tenancy.deploy.decide import CliSelection, causes
    from tenancy.deploy.digests import digests, is_standard, program_digest
    from tenancy.deploy.fleet_drift import has_platform_drift, tenants_with_drift
    from tenancy.planning.scope import StackScope

    plan, driver = run.plan, run.driver
    existing = driver.stacks(plan.environment)
    program = program_digest(driver.root, str(driver.engine.version))
    on_cluster = any(scope is not StackScope.CLUSTER for _, scope, _ in stacks)
    stack_digests = digests(run.loaded, plan, stacks, driver.root, program)
    existing_stacks = [stack for stack in stacks if stack[0] in existing]
    names_by_tenant = {tenant: name for name, _, tenant in existing_stacks if tenant}
    whole_platform = [name for name, scope, _ in existing_stacks if scope in {StackScope.ALL, StackScope.PLATFORM}]
    drifted = {name for name in whole_platform if has_platform_drift(driver.api, plan.environment, plan.platform)}
    for name, scope, _ in existing_stacks:
        if scope is StackScope.ALL:
            names_by_tenant |= dict.fromkeys(plan.names, name)
    # A cluster that is still to be made has no API server.
    if names_by_tenant:
        drifted |= {names_by_tenant[tenant] for tenant in tenants_with_drift(driver.api, plan, [*names_by_tenant])}
    causes_by_stack = causes(
        stacks,
        stack_digests,
        records.read(driver.api) if on_cluster else {},
        existing,
        drifted,
        CliSelection(run.selection.names, run.refresh, run.leavers.by_hand),
    )
    for name, stack_causes in causes_by_stack.items():
        run.report.plan(name, [str(cause) for cause in stack_causes])
    return Fleet(run, stack_digests, existing, drifted, causes_by_stack, is_standard(driver.root))


def print_decisions(fleet: Fleet) -> None:
    """Say which stacks run and why."""
    from tenancy.deploy.decide import summary_lines

    for text in summary_lines(fleet.run.plan.environment, fleet.causes):
        fleet.run.report.say(text)
