"""One stack's part of `tenancy up`: drift is reverted, a preview is checked, leaving tenants go in their stages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenancy.catalog import vocabulary
from tenancy.cli.up_cluster import cluster_changes, permitted_changes, protect, refuse_unpermitted

if TYPE_CHECKING:
    from tenancy.cli.up_settings import EnvironmentRun, SelectedStacks
    from tenancy.deploy.changes import Outcome
    from tenancy.deploy.unrecorded_objects import UnrecordedObject
    from tenancy.planning import Plan


NETWORK = "the network"
"""First step of an update that makes a part of it."""
NETWORK_KINDS = ("Subnet ", "RouteTable ", "RouteTableAssociation ", "Eip ", "NatGateway ", "VpcEndpoint ")
"""Kinds of a network's resources for each zone, as changes name them."""


def stages_advice(tenant: str, environment: str) -> str:
    """Rule and change of a message, for a tenant whose file was deleted before its stages of leaving."""
    return (
        f"rule: a tenant leaves in stages; change: restore its file with `offboarding: hold`, and after `tenancy up "
        f"{environment}` write `offboarding: remove`; or remove it at once with all objects in its namespaces: "
        f"`tenancy up {environment} --remove {tenant}`"
    )


def _refuse_skipped_stages(run: EnvironmentRun, stack: Any) -> None:
    """Raise RunFailed if a tenant skipped stages before `offboarding: remove`, or if no Kueue runs to end its work."""
    from tenancy.deploy.driver import RunFailed
    from tenancy.lifecycle.removal import kueue_runs, skipped_hold

    driver, leavers, environment = run.driver, run.leavers, run.plan.environment
    leaving_tenants = [tenant for tenant in sorted(leavers.names) if driver.tenant_resources(stack, tenant)]
    if leaving_tenants and kueue_runs(driver.api) is False:
        raise RunFailed(
            f"given tenant {', '.join(leaving_tenants)} that leaves, and a Kueue whose webhook does not answer; "
            "rule: only Kueue "
            "removes its finalizers from queued work, and they block the deletion of namespaces; change: start Kueue "
            "(for the lab: `tenancy lab up`) and run this again; nothing was changed"
        )
    for tenant in sorted(leavers.by_file):
        # The state lists them in the order of their creation, which varies.
        spaces = sorted(resource["id"] for resource in _namespaces(driver.tenant_resources(stack, tenant)))
        if spaces and (resource := skipped_hold(driver.api, spaces)):
            raise RunFailed(
                f"given tenant {tenant} with offboarding: remove, whose {', '.join(resource)} is in use; rule: a "
                f"tenant leaves in stages; change: write `offboarding: hold` and run `tenancy up {environment}`, "
                f"save what it owns with `tenancy export {tenant} {environment}`, then write "
                "`offboarding: remove`; nothing was changed"
            )


def _namespaces(resources: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [resource for resource in resources if resource["type"] == vocabulary.NAMESPACE_TYPE]


def _remove_tenant(run: EnvironmentRun, stack: Any, tenant: str) -> None:
    """Remove access bindings, work and namespaces of a tenant, in this order. The engine's update removes the rest."""
    from tenancy.deploy.changes import is_access_binding
    from tenancy.deploy.driver import RunFailed
    from tenancy.lifecycle.removal import RemovalTimeout, end_and_remove, mark_left, require_removable_bindings

    driver, report = run.driver, run.report
    resources = driver.tenant_resources(stack, tenant)
    if not resources:
        return
    bindings = [
        resource["inputs"]
        for resource in resources
        if is_access_binding(resource) and resource["type"].startswith("kubernetes:")
    ]
    # Adopted namespaces existed before the tenant, and stay.
    namespaces = _namespaces(resources)
    namespace_names = [resource["id"] for resource in namespaces if not resource.get("retainOnDelete")]
    queues = [resource["id"] for resource in resources if resource["type"].endswith(":ClusterQueue")]
    try:
        require_removable_bindings(driver.api, bindings)
        report.show(stack.name, driver.delete_access(stack, tenant))
        end_and_remove(
            driver.api, namespace_names, queues, run.leavers.timeout, lambda text: report.say(f"{stack.name}: {text}")
        )
        kept_namespaces = [resource["id"] for resource in namespaces if resource.get("retainOnDelete")]
        mark_left(driver.api, kept_namespaces)
    except RemovalTimeout as error:
        raise RunFailed(f"stack {stack.name}: tenant {tenant} is not removed\n  {error}") from error


def remove_unrecorded_tenant(run: EnvironmentRun, stack: str, unrecorded_objects: Sequence[UnrecordedObject]) -> None:
    """Remove a tenant's objects that no state has, in the order of `_remove_tenant`."""
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.unrecorded_objects import remove_all
    from tenancy.lifecycle.removal import RemovalTimeout

    if not unrecorded_objects:
        return
    try:
        report_text = lambda text: run.report.say(f"{stack}: {text}")  # noqa: E731
        remove_all(run.driver.api, unrecorded_objects, run.leavers.timeout, report_text)
    except RemovalTimeout as error:
        raise RunFailed(f"stack {stack}: its tenant is not removed\n  {error}") from error


def preview_and_update(
    run: EnvironmentRun,
    stack: Any,
    *,
    drifted: str | None = None,
    pause: float = 0,
    is_first_run: bool = False,
) -> Outcome:
    """Preview the stack with the policy pack and update it; the preview's outcome. `drifted` is the selector of its
    objects, if one of them is not as planned; `is_first_run` is `first` of `Driver.update`."""
    from tenancy.deploy.changes import namespaces_to_delete, tenants_without_file
    from tenancy.deploy.driver import RunFailed
    from tenancy.planning.aws.creation import wave_text

    plan, leavers, driver, report = run.plan, run.leavers, run.driver, run.report
    name, only_preview, refresh = stack.name, run.only_preview, run.refresh
    platform_aws = plan.platform.data
    if name == plan.environment and plan.account and platform_aws and platform_aws.cost_tags:
        driver.set_known_cost_tags(stack, platform_aws.cost_tags, plan.account.region)
    _refuse_skipped_stages(run, stack)
    if drifted:
        refresh = revert_drift(run, stack, drifted).missing or refresh
    leaving_names = leavers.names
    changes = cluster_changes(run, stack, run.replacing)
    if not only_preview:
        protect(driver, stack, changes)
    may = permitted_changes(run, stack, changes)
    with driver.unprotected(stack, leaving_names, may.removable, is_final=not only_preview):
        planned = driver.preview(stack, refresh=refresh)
    orphans = [tenant for tenant in tenants_without_file(planned, plan) if tenant not in leavers.by_hand]
    if orphans:
        raise RunFailed(
            f"given stack {name}, which has tenant {', '.join(orphans)} without a file; "
            f"{stages_advice(orphans[0], plan.environment)}; nothing was changed"
        )
    if lost_namespace_names := namespaces_to_delete(planned, plan):
        raise RunFailed(
            f"given stack {name}, whose update would delete {', '.join(lost_namespace_names)} and all objects "
            "in it; rule: a namespace "
            f"in the spec files is never removed; change: if `stacks` was changed, `tenancy move {plan.environment}`; "
            "if the resource was renamed or belongs to another stack by now, `pulumi state rename` or `pulumi state "
            "move` it; nothing was changed"
        )
    refuse_unpermitted(name, planned, plan, may)
    if only_preview:
        report.show(name, planned)
        for wave, groups in _replaced_groups(plan, planned):
            report.say(f"{name}: {wave_text(wave, groups)}")
    elif planned.changes or planned.other_changes:
        # A single namespace is removed by the engine itself, in the order that the update of its tenant needs: its
        # replacement is created before it is deleted.
        for tenant in sorted(name for name in leaving_names if vocabulary.SEPARATOR not in name):
            _remove_tenant(run, stack, tenant)
        for part, resources in _waves(plan, planned)[:-1]:
            report.show(name, driver.update(stack, resources, refresh=refresh))
            # Nothing runs on a new part of the network yet.
            wait = 0 if part == NETWORK else pause
            report.say(f"{name}: {part} is done; the next follows in {wait / 60:.0f} min (Ctrl-C ends the run here)")
            time.sleep(wait)
        report.show(name, driver.update(stack, refresh=refresh, first=is_first_run))
        protect(driver, stack, cluster_changes(run, stack))
    return planned


class RevertedDrift(NamedTuple):
    """Drift of a stack's objects that was found and reverted."""

    drifted: int
    missing: bool
    """Whether the engine has to refresh, because it has to make objects again."""


def revert_drift(run: EnvironmentRun, stack: Any, selector: str) -> RevertedDrift:
    """Revert drift of the stack's objects, which the engine does not see, because it compares with its state alone."""
    from tenancy.cluster import drift
    from tenancy.deploy.driver import RunFailed

    altered = run.driver.drift_with_managers(stack, selector)
    for altered_object, manager in altered:
        run.report.say(f"{stack.name}: drifted: {altered_object}")
        if run.only_preview:
            continue
        try:
            drift.revert_drift(run.driver.api, altered_object, manager)
        except drift.RevertFailed as error:
            raise RunFailed(f"stack {stack.name}: {error}; change: restore it by hand, or delete it") from error
    return RevertedDrift(
        len(altered), not run.only_preview and any(altered_object.live is None for altered_object, _ in altered)
    )


def _waves(plan: Plan, planned: Outcome) -> list[tuple[str, list[str]]]:
    """Resources to update one group after another: first the control plane, because no node may be newer, then the
    node groups by wave."""
    from tenancy.planning.common.names import control_plane_name, node_group_names

    if plan.cluster is None:
        return []
    changed_names = {change.object.rpartition(" ")[2] for change in planned.changes if change.operation != "create"}
    control_plane = control_plane_name(plan.cluster.name)
    first_steps = [("the control plane", [control_plane])] if control_plane in changed_names else []
    waves: dict[int, list[str]] = {}
    for group in plan.cluster.groups:
        resources = node_group_names(plan.cluster.name, group.name)
        if changed_names.intersection(resources):
            waves.setdefault(group.wave, []).extend(resources)
    new_objects = {c.object for c in planned.changes if c.operation in {"create", "update"}}
    network = sorted({name.rpartition(" ")[2] for name in new_objects if name.startswith(NETWORK_KINDS)})
    if network and (first_steps or waves):
        # A targeted step knows only what exists: subnets of a new zone come before what refers to them.
        first_steps.insert(0, (NETWORK, network))
    return first_steps + [(f"wave {wave}", resources) for wave, resources in sorted(waves.items())]


_REPLACING_FIELDS = ("launchTemplate", "releaseVersion", "version")
"""Inputs of a node group for which EKS replaces its nodes one after another; other fields change in place."""


def _replaced_groups(plan: Plan, planned: Outcome) -> list[tuple[int, list[str]]]:
    """Waves with the node groups whose nodes are replaced."""
    from tenancy.planning.common.names import node_group_names

    if plan.cluster is None:
        return []
    waves: dict[int, list[str]] = {}
    changes = {c.object.rpartition(" ")[2]: c for c in planned.changes if c.operation in {"update", "replace"}}
    for group in plan.cluster.groups:
        template_name, group_name = node_group_names(plan.cluster.name, group.name)
        group_change = changes.get(group_name)
        replacing = group_change and (
            group_change.operation == "replace" or any(d.startswith(_REPLACING_FIELDS) for d in group_change.details)
        )
        if template_name in changes or replacing:
            waves.setdefault(group.wave, []).append(group.name)
    return sorted(waves.items())


def remove_former_tenants(run: EnvironmentRun, stacks: SelectedStacks) -> None:
    """Remove stacks of tenants without a file, in a run that leaves out no stack; raise RunFailed if a stack has a
    tenant that another stack would create."""
    from tenancy.deploy import records
    from tenancy.deploy.driver import RunFailed
    from tenancy.deploy.unrecorded_objects import find_unrecorded
    from tenancy.planning.scope import CLUSTER_SUFFIX

    plan, driver, report = run.plan, run.driver, run.report
    if not (stacks.cluster_exists and stacks.is_whole):
        return
    for name in driver.stacks(plan.environment):
        if name in stacks.planned_names:
            continue
        if name == plan.environment + CLUSTER_SUFFIX:
            raise RunFailed(
                f"given stack {name}, whose cluster the files no longer build; rule: a cluster that is built here "
                "stays with its environment; change: write `cluster.mode: build` and `aws.enabled: true` again; to "
                f"remove the cluster, `aws.deletion-protection: false`, `tenancy up {plan.environment}` and "
                f"`tenancy down {plan.environment}`; nothing was changed"
            )
        tenant = name.removeprefix(vocabulary.derived_name(plan.environment, ""))
        if tenant in plan.names:
            stack = driver.select(name)
            if driver.resources(stack):
                raise RunFailed(
                    f"given stack {name}, which has tenant {tenant}; rule: each object is in one stack; change: "
                    f"`tenancy move {plan.environment}`, or set stacks: per-tenant in environment.yaml"
                )
            continue
        stack = driver.select(name)
        resources = driver.resources(stack)
        # A first run that was killed has left objects, and no state of them.
        unrecorded_objects = [] if resources else find_unrecorded(driver.api, plan.environment, tenant)
        if (resources or unrecorded_objects) and tenant not in run.leavers.by_hand:
            raise RunFailed(f"given stack {name}, whose tenant has no file; {stages_advice(tenant, plan.environment)}")
        if run.only_preview:
            report.say(f"{name}: its tenant has no file: the remaining resources would be removed")
        else:
            report.say(f"{name}: its tenant has no file: removing the remaining resources")
            _remove_tenant(run, stack, tenant)
            remove_unrecorded_tenant(run, name, unrecorded_objects)
            report.show(name, driver.destroy(stack))
            driver.forget(stack)
            records.forget(driver.api, name)
