"""Changes of a cluster that `tenancy up` refuses unless the command names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from tenancy.cli.up_settings import EnvironmentRun
    from tenancy.deploy.changes import Outcome
    from tenancy.deploy.cluster_changes import ClusterChanges
    from tenancy.deploy.driver import Driver
    from tenancy.planning import Plan


class PermittedChanges(NamedTuple):
    """Resources of a cluster that one run may delete and replace."""

    removable: frozenset[str] = frozenset()
    """URNs of protected resources that the files no longer have."""
    replaceable: frozenset[str] = frozenset()
    """Names of node groups and roles, as in `ClusterChanges.replacing`."""


def cluster_changes(run: EnvironmentRun, stack: Any, replaceable_names: Collection[str] = ()) -> ClusterChanges | None:
    """The plan of a cluster compared with the state of its stack, which is read here; None for another stack."""
    from tenancy.deploy.cluster_changes import ClusterChanges
    from tenancy.planning.scope import CLUSTER_SUFFIX

    if run.plan.cluster is None or not stack.name.endswith(CLUSTER_SUFFIX):
        return None
    return ClusterChanges(run.plan.cluster, run.driver.resources(stack), replaceable_names)


def protect(driver: Driver, stack: Any, changes: ClusterChanges | None) -> None:
    """Protect in the state of a cluster's stack what the program protects."""
    if changes:
        driver.protect(stack, changes.unprotected)


def permitted_changes(run: EnvironmentRun, stack: Any, changes: ClusterChanges | None) -> PermittedChanges:
    """Resources of a cluster that this run may delete and replace, as the program gets them; RunFailed if the plan
    has a value that AWS cannot change in place."""
    from tenancy.deploy.driver import RunFailed

    if changes is None:
        return PermittedChanges()
    if refusals := list(changes.refusals()):
        raise RunFailed(f"stack {stack.name}:\n  " + "\n  ".join(refusals))
    for text in changes.notes():
        run.report.say(f"note: {text}")
    if changes.replacing:
        run.driver.set_replacements(stack, changes.replacing)
    return PermittedChanges(changes.removed, changes.replacing)


def refuse_unpermitted(stack: str, planned: Outcome, plan: Plan, permitted: PermittedChanges) -> None:
    """Failed if an update would replace or delete what only a named option may."""
    from tenancy.deploy.cluster_changes import unrequested_changes
    from tenancy.deploy.driver import RunFailed

    if refused_changes := unrequested_changes(
        planned.changes, plan.cluster, permitted.replaceable, permitted.removable
    ):
        raise RunFailed(
            f"given stack {stack}, whose update would replace or delete\n  "
            + "\n  ".join(refused_changes)
            + "\n  rule: clusters, networks, node groups, buckets and keys are replaced or deleted only by name; "
            "change: write the old values again; what can be asked for is in docs/cluster.md; nothing was changed"
        )
