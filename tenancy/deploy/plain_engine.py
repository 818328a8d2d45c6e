"""Checks of a run of the plain engine, `pulumi up`, for what `tenancy up` does before and after the engine.

The program either does the same, or ends with the command to run. docs/pulumi.md has the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.cluster.drift import foreign_drift, missing_objects
from tenancy.cluster.guards import PreconditionFailed
from tenancy.cluster.preflight import environment_of
from tenancy.cluster.selectors import all_tenants_selector, environment_selector
from tenancy.kube.objects import Object, name_of
from tenancy.kube.requests import collection
from tenancy.lifecycle.adoption import quota_notes
from tenancy.planning.plan_model import Plan, PlatformPlan, TenantPlan
from tenancy.planning.scope import objects_of

BY_COMMAND = "GPU_TENANCY_UP"
"""Variable that `tenancy up` sets for the program: it makes these checks itself, or acts instead."""
MAX_NAMED_OBJECTS = 10
"""Objects that one message names."""


def is_plain() -> bool:
    """Whether the engine was started by hand, and not by `tenancy up`."""
    return not os.environ.get(BY_COMMAND)


def check_plain(
    api: Api, plan: Plan, platform: PlatformPlan | None, tenants: Sequence[TenantPlan], *, preview: bool
) -> list[str]:
    """Warnings; PreconditionFailed for what only `tenancy up` does. A preview warns of drift, an update is refused."""
    problems = list(_removals(api, plan, tenants))
    selector = environment_selector(plan.environment, tenants[0].name if platform is None and tenants else None)
    drift_problems = list(_drift_problems(api, plan, selector, objects_of(platform, tenants)))
    remarks = [*quota_notes(api, tenants), *_missing_remarks(api, plan, selector, tenants)]
    if preview:
        remarks += drift_problems
    else:
        problems += drift_problems
    if problems:
        raise PreconditionFailed("\n".join(problems))
    return remarks


def _removals(api: Api, plan: Plan, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Tenants at their last stage whose namespaces exist: the engine deletes in an order of its own, and waits ten
    minutes for a namespace whose work nothing has ended."""
    leaving_names = {tenant.name for tenant in tenants if not tenant.namespaces}
    if not leaving_names:
        return
    tenants_with_namespaces = {
        item["metadata"]["labels"][vocabulary.TENANT]
        for item in api.items(f"/api/v1/namespaces?labelSelector={all_tenants_selector(plan.environment)}")
        if (item["metadata"].get("annotations") or {}).get(vocabulary.LEAVING) != vocabulary.LEFT
    }
    for name in sorted(leaving_names & tenants_with_namespaces):
        yield (
            f"given tenant {name} with offboarding: remove; rule: access ends first, then work, then namespaces; "
            f"change: `tenancy up {plan.environment}` removes the tenant in this order"
        )


def _drift_problems(api: Api, plan: Plan, selector: str, objects: Sequence[Object]) -> Iterator[str]:
    for object_drift in islice(foreign_drift(api, selector, objects), MAX_NAMED_OBJECTS):
        yield (
            f"given {object_drift}; rule: the files say what an object is, and the engine compares them with its state "
            f"alone; change: `tenancy up {plan.environment}` reverts it; to keep the change, write it into the files"
        )


def _missing_remarks(api: Api, plan: Plan, selector: str, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Objects that namespaces of the plan lack, if the namespaces exist."""
    spaces = [space for tenant in tenants for space in tenant.namespaces]
    present = {item["metadata"]["name"] for item in api.items(f"/api/v1/namespaces?labelSelector={selector}")}
    expected = [item for space in spaces if space.name in present for item in space.objects()]
    if missing_names := [name_of(item) for item in missing_objects(api, selector, expected)]:
        more = f" and {len(missing_names) - MAX_NAMED_OBJECTS} more" if len(missing_names) > MAX_NAMED_OBJECTS else ""
        commands = f"`pulumi up --refresh` or `tenancy up {plan.environment}`"
        yield (
            f"{', '.join(missing_names[:MAX_NAMED_OBJECTS])}{more}: not on the cluster. An update makes what is new; "
            f"{commands} makes again what was deleted by hand"
        )


def check_cluster(plan: Plan) -> list[str]:
    """Before the cluster's stack: PreconditionFailed if quotas of existing namespaces do not count a resource that its
    nodes are about to offer. A cluster that does not exist yet is not reached, which is a warning."""
    try:
        api = Api(plan.context)
        if environment_of(api) != plan.environment:
            return []
        live = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): item["spec"].get("hard") or {}
            for item in api.items(
                f"{collection('v1', 'ResourceQuota')}?labelSelector={environment_selector(plan.environment)}"
            )
        }
    except ApiUnreachable as error:
        return [f"whether quotas count what the nodes offer is not checked: {error}"]
    outdated = sorted(
        {
            space.name
            for tenant in plan.tenants
            for space in tenant.namespaces
            for quota in space.quotas
            if (hard := live.get((space.name, quota.meta.name))) is not None and quota.hard.keys() - hard.keys()
        }
    )
    if outdated:
        raise PreconditionFailed(
            f"given namespace {', '.join(outdated[:MAX_NAMED_OBJECTS])}, whose quota does not count every resource of "
            "the pools yet; rule: quotas before nodes; change: update the environment's other stacks first, or "
            f"`tenancy up {plan.environment}`, which runs all of them in order"
        )
    return []
