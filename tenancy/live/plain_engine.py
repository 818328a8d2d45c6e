"""Checks of a run of the plain engine, `pulumi up`, for what `tenancy up` does before and after the engine.

The program either does the same, or ends with the command to run. docs/pulumi.md has the list.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.live.adoption import quota_notes
from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.drift import by_others, missing
from tenancy.live.guards import PreconditionFailed
from tenancy.live.preflight import environment_of
from tenancy.live.selectors import of_all_tenants, of_environment
from tenancy.planning.model import Plan, PlatformPlan, TenantPlan
from tenancy.planning.scope import objects_of
from tenancy.rules.found import name_of

BY_COMMAND = "GPU_TENANCY_UP"
"""Variable that `tenancy up` sets for the program: it makes these checks itself, or acts instead."""
SHOWN = 10
"""Objects that one message names."""


def is_plain() -> bool:
    """Whether the engine was started by hand, and not by `tenancy up`."""
    return not os.environ.get(BY_COMMAND)


def check_plain(
    api: Api, plan: Plan, platform: PlatformPlan | None, tenants: Sequence[TenantPlan], *, preview: bool
) -> list[str]:
    """Warnings; PreconditionFailed for what only `tenancy up` does. A preview warns of drift, an update is refused."""
    problems = list(_removals(api, plan, tenants))
    selector = of_environment(plan.environment, tenants[0].name if platform is None and tenants else None)
    drifted = list(_drifted(api, plan, selector, objects_of(platform, tenants)))
    told = [*quota_notes(api, tenants), *_missing(api, plan, selector, tenants)]
    if preview:
        told += drifted
    else:
        problems += drifted
    if problems:
        raise PreconditionFailed("\n".join(problems))
    return told


def _removals(api: Api, plan: Plan, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Tenants at their last stage whose namespaces exist: the engine deletes in an order of its own, and waits ten
    minutes for a namespace whose work nothing has ended."""
    going = {tenant.name for tenant in tenants if not tenant.namespaces}
    if not going:
        return
    held = {
        item["metadata"]["labels"][words.TENANT]
        for item in api.items(f"/api/v1/namespaces?labelSelector={of_all_tenants(plan.environment)}")
        if (item["metadata"].get("annotations") or {}).get(words.LEAVING) != words.LEFT
    }
    for name in sorted(going & held):
        yield (
            f"given tenant {name} with leaving: remove; rule: access ends first, then work, then namespaces; change: "
            f"`tenancy up {plan.environment}` removes the tenant in this order"
        )


def _drifted(api: Api, plan: Plan, selector: str, objects: Sequence[Object]) -> Iterator[str]:
    for each in islice(by_others(api, selector, objects), SHOWN):
        yield (
            f"given {each}; rule: the files say what an object is, and the engine compares them with its state alone; "
            f"change: `tenancy up {plan.environment}` reverts it; to keep the change, write it into the files"
        )


def _missing(api: Api, plan: Plan, selector: str, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    """Objects that namespaces of the plan lack, if the namespaces exist."""
    spaces = [space for tenant in tenants for space in tenant.namespaces]
    present = {item["metadata"]["name"] for item in api.items(f"/api/v1/namespaces?labelSelector={selector}")}
    wanted = [item for space in spaces if space.name in present for item in space.objects()]
    if gone := [name_of(item) for item in missing(api, selector, wanted)]:
        more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
        commands = f"`pulumi up --refresh` or `tenancy up {plan.environment}`"
        yield (
            f"{', '.join(gone[:SHOWN])}{more}: not on the cluster. An update makes what is new; {commands} makes again "
            "what was deleted by hand"
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
                f"{collection('v1', 'ResourceQuota')}?labelSelector={of_environment(plan.environment)}"
            )
        }
    except ApiUnreachable as error:
        return [f"whether quotas count what the nodes offer is not checked: {error}"]
    behind = sorted(
        {
            space.name
            for tenant in plan.tenants
            for space in tenant.namespaces
            for quota in space.quotas
            if (hard := live.get((space.name, quota.meta.name))) is not None and quota.hard.keys() - hard.keys()
        }
    )
    if behind:
        raise PreconditionFailed(
            f"given namespace {', '.join(behind[:SHOWN])}, whose quota does not count every resource of the pools yet; "
            "rule: quotas before nodes; change: update the environment's other stacks first, or `tenancy up "
            f"{plan.environment}`, which runs all of them in order"
        )
    return []
