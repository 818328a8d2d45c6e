"""One run of `tenancy up`, as its command line and the files have it, and the stacks that it selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from tenancy.catalog import vocabulary
from tenancy.cli.common import BAD_INPUT, fail

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tenancy.cli.up_report import Report
    from tenancy.deploy.driver import Driver
    from tenancy.planning import Plan
    from tenancy.planning.scope import Stack
    from tenancy.spec.fields.environment import Environment
    from tenancy.spec.loader import Loaded


class RemovableTenants(NamedTuple):
    """Tenants that may be removed from the cluster."""

    by_file: frozenset[str]
    by_hand: frozenset[str]
    """Arguments of --remove: tenants without a file, and namespaces that are no longer in their tenants' files."""
    timeout: int

    @classmethod
    def from_spec(cls, loaded: Loaded, removed_names: Sequence[str], timeout: int) -> RemovableTenants:
        """By the files and the arguments of --remove; ends the command if these name what a file has."""
        from tenancy.spec.fields.tenant import OffboardingStage

        names = {tenant.tenant for tenant in loaded.tenants}
        known_namespaces = {
            tenant.namespace_name(namespace) for tenant in loaded.tenants for namespace in tenant.namespaces
        }
        if names_in_files := sorted(known_namespaces.intersection(removed_names)):
            input_text, change = (
                f"--remove {names_in_files[0]}, which its tenant's file names",
                "remove it from the file first",
            )
            fail(
                f"given {input_text}; rule: a namespace in a tenant's file is not removed; change: {change}", BAD_INPUT
            )
        if names_in_files := sorted(names.intersection(removed_names)):
            input_text, change = f"--remove {names_in_files[0]}, which has a file", "write `offboarding: hold` into it"
            fail(f"given {input_text}; rule: a tenant with a file leaves in stages; change: {change}", BAD_INPUT)
        removed_tenants = frozenset(t.tenant for t in loaded.tenants if t.offboarding is OffboardingStage.REMOVE)
        return cls(removed_tenants, frozenset(removed_names), timeout)

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.by_file | self.by_hand

    def with_kept_namespaces(self, loaded: Loaded) -> bool:
        """Whether one of them may have an adopted namespace, which stays: a tenant without a file may."""
        return bool(self.by_hand) or any(t.adopt and t.tenant in self.by_file for t in loaded.tenants)


@dataclass(frozen=True, slots=True)
class StackSelection:
    """Options that select stacks."""

    names: tuple[str, ...]
    """Arguments of --stack; empty for all."""
    shard: tuple[int, int] | None
    """Part and number of parts."""


class EnvironmentRun(NamedTuple):
    """Parts that every step of one run reads: the files, their plan, the options, the engine and the report."""

    loaded: Loaded
    plan: Plan
    leavers: RemovableTenants
    driver: Driver
    report: Report
    selection: StackSelection
    only_preview: bool
    refresh: bool
    skip_preview: bool = False
    """Whether the preview of a shared stack is left out where it would refuse nothing."""
    replacing: frozenset[str] = frozenset()
    """Node groups and zones that --replace names."""


@dataclass(frozen=True, slots=True)
class SelectedStacks:
    """Stacks of one run."""

    planned_names: tuple[str, ...]
    """Every stack of the environment, selected or not."""
    cluster_exists: bool
    new_cluster: Stack | None
    """The stack of a cluster that this run makes."""
    others: tuple[Stack, ...]
    """The rest, in the order in which they run."""
    is_whole: bool
    """Whether the options leave out no stack."""

    @property
    def any_on_cluster(self) -> bool:
        """Whether one of them has objects on the cluster: its own stack has AWS resources only, and is updated even if
        the API server does not answer."""
        from tenancy.planning.scope import StackScope

        return any(scope is not StackScope.CLUSTER for _, scope, _ in self.others)


def parse_shard(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Part and number of parts."""
    if text is None:
        return None
    part, parts = [*text.split("/"), ""][:2]
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise click.BadParameter(f"given {text}; rule: K/N with K from 1 to N; change: write it like 3/20")
    return int(part), int(parts)


def expect_replaceable(environment: Environment, names: Collection[str]) -> None:
    """End the command if --replace names neither a node group nor a zone."""
    from tenancy.planning.common.charts import SYSTEM_NODES

    if names and not environment.builds_cluster:
        input_text = f"given --replace {sorted(names)[0]} and a cluster of another tool"
        rule, change = "the cluster's tool replaces its nodes", "leave --replace out"
        fail(f"{input_text}; rule: {rule}; change: {change}", BAD_INPUT)
    groups = [
        SYSTEM_NODES[vocabulary.POOL],
        *sorted(name for name, pool in environment.pools.items() if pool.nodes.min),
    ]
    for name in names:
        # The file no longer has a zone that is left.
        if name not in groups and not (environment.aws.region and name[:-1] == environment.aws.region):
            change = f"name one of {', '.join(groups)}, or a zone such as {environment.aws.region or 'eu-central-1'}a"
            rule = f"managed nodes of {environment.environment}, or a zone"
            fail(f"given --replace {name}; rule: {rule}; change: {change}", BAD_INPUT)


def select_stacks(run: EnvironmentRun) -> SelectedStacks:
    """The stacks that the options select, in the order in which they run; ends the command if one is not the
    environment's."""
    from tenancy.planning.scope import StackScope, in_shard, ordered_stacks, stacks

    plan, selection = run.plan, run.selection
    planned_stacks = list(stacks(plan, run.loaded.environment.stacks))
    names = tuple(name for name, *_ in planned_stacks)
    if unknown := set(selection.names) - set(names):
        fail(
            f"given --stack {', '.join(sorted(unknown))}; rule: a stack of {plan.environment}; change: use one of "
            f"{', '.join(names)}",
            BAD_INPUT,
        )
    # The other stacks need the system nodes to run on; without these nodes the cluster is incomplete.
    cluster_exists = plan.cluster is None or run.driver.has_resource(names[0], plan.cluster.system)
    selected_stacks = [
        stack
        for stack in ordered_stacks(planned_stacks, cluster_exists)
        if not selection.names or stack[0] in selection.names
    ]
    if selection.shard:
        selected_stacks = in_shard(selected_stacks, *selection.shard)
    makes_cluster = not cluster_exists and bool(selected_stacks) and selected_stacks[0][1] is StackScope.CLUSTER
    return SelectedStacks(
        planned_names=names,
        cluster_exists=cluster_exists,
        new_cluster=selected_stacks[0] if makes_cluster else None,
        others=tuple(selected_stacks[1:] if makes_cluster else selected_stacks),
        is_whole=not (selection.names or selection.shard),
    )
