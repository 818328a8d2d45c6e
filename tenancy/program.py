"""The Pulumi program: read the stack's config, load the files, make the plan, check the cluster, create resources.

A repository's `__main__.py` calls `run` and is the same for every stack.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import NoReturn

import pulumi

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.cluster.preflight import PreconditionFailed, check, removing_by_name, replacing_by_name, wait_for_guards
from tenancy.components.collector import collect_seldom
from tenancy.components.program import build
from tenancy.deploy import records
from tenancy.deploy.cost_tags import CostTagsUnavailable, known_keys
from tenancy.deploy.plain_engine import check_cluster, check_plain, is_plain
from tenancy.lifecycle.adoption_record import record
from tenancy.planning import Plan, make_plan
from tenancy.planning.aws.cluster import CLUSTER_IS_BUILT_RULE
from tenancy.planning.aws.platform_models import KNOWN_COST_TAGS, DataPlan
from tenancy.planning.outputs import stack_outputs
from tenancy.planning.plan_model import PlatformPlan, TenantPlan
from tenancy.planning.scope import StackScope, names_of, reach_hint, scope_of, select
from tenancy.spec.loader import ON_LAB, load, on_lab
from tenancy.spec.reading.problems import SpecError

EXIT_ALREADY_REPORTED = 32
"""Exit code that tells the engine's host that the message has been shown; after any other it adds its own."""


def run() -> None:
    """Register the resources of the stack that the engine runs; exit code 32 after a message that says what is wrong.

    Config of the stack, all optional: `gpu-tenancy:environment`, `gpu-tenancy:scope`, `gpu-tenancy:tenant`. By default
    the stack's name says them.
    """
    config = pulumi.Config("gpu-tenancy")
    stack = pulumi.get_stack()
    environment, tenant = names_of(stack)
    try:
        loaded = load(config.get("environment") or environment)
        if os.environ.get(ON_LAB) or loaded.environment.cluster.context == vocabulary.LAB_CONTEXT:
            loaded = on_lab(loaded)
        scope = scope_of(config.get("scope"), loaded.environment.stacks, stack)
        plan = make_plan(loaded, loaded.day)
        platform, tenants = select(plan, scope, config.get("tenant") or tenant)
        if platform and platform.data:
            platform = replace(platform, data=_with_known_tags(platform.data, plan))
        if scope is StackScope.CLUSTER:
            _check_cluster(plan, stack)
        api = None if scope is StackScope.CLUSTER else _checked(plan, platform, tenants)
        if api and not pulumi.runtime.is_dry_run():
            record(api, tenants)
        if api and is_plain() and not pulumi.runtime.is_dry_run():
            # The next `tenancy up` cannot know what this run is about to change.
            records.forget(api, stack)
    except ApiUnreachable as error:
        _end(f"{error}{reach_hint(plan)}")
    except (SpecError, PreconditionFailed, ValueError) as error:
        _end(str(error))
    except KeyError as error:
        _end(f"given tenant {error}; rule: a tenant of the environment; change: name one")

    def guards_enforced() -> None:
        try:
            wait_for_guards(api or Api(plan.context), plan.platform.marker["data"]["digest"])
        except (PreconditionFailed, ApiUnreachable) as error:
            raise pulumi.RunError(str(error)) from None

    collect_seldom()
    build(plan, scope, platform, tenants, guards_enforced, replacing=replacing_by_name())
    for name, value in stack_outputs(loaded.environment, loaded.tenants, tenants).items():
        pulumi.export(name, value)


def _checked(plan: Plan, platform: PlatformPlan | None, tenants: tuple[TenantPlan, ...]) -> Api:
    """The API server, once its cluster is ready for the stack."""
    api = Api(plan.context)
    if platform is None and not is_plain():
        return api  # `tenancy up` has checked the cluster for all tenants at once
    messages = check(api, plan, platform, tenants, removing_by_name())
    if is_plain():
        messages += check_plain(api, plan, platform, tenants, preview=pulumi.runtime.is_dry_run())
    for text in messages:
        pulumi.log.warn(text)
    return api


def _check_cluster(plan: Plan, stack: str) -> None:
    """Raises if there is no cluster to make, or if quotas are behind its nodes."""
    if plan.cluster is None:
        raise ValueError(
            f"given stack {stack}; rule: {CLUSTER_IS_BUILT_RULE}; change: write both, or use another stack"
        )
    if is_plain():
        for text in check_cluster(plan):
            pulumi.log.warn(text)


def _with_known_tags(data: DataPlan, plan: Plan) -> DataPlan:
    """The cost tags that AWS knows: from `tenancy up`, or else from AWS."""
    tags = os.environ.get(KNOWN_COST_TAGS)
    if tags is not None:
        return data.with_cost_tags(tags.split(","))
    if not (data.cost_tags and plan.account):
        return data
    try:
        return data.with_cost_tags(known_keys(data.cost_tags, plan.account.region))
    except CostTagsUnavailable as error:
        pulumi.log.warn(f"every cost-allocation tag is activated, whether AWS knows its key yet or not: {error}")
        return data


def _end(message: str) -> NoReturn:
    pulumi.log.error(message)
    sys.exit(EXIT_ALREADY_REPORTED)
