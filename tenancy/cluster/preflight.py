"""Checks before the first change: is the cluster ready for the plan, and do its names collide with other objects?"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import NOT_FOUND, Api, ApiUnreachable, path_of
from tenancy.cluster.api_kinds import unserved
from tenancy.cluster.deployer import deployer_problems
from tenancy.cluster.drift import is_engine_object
from tenancy.cluster.guards import PreconditionFailed, guard_problems, wait_for_guards
from tenancy.cluster.kueue_settings import kueue_settings
from tenancy.cluster.queue_changes import queue_problems
from tenancy.cluster.selectors import MAX_NAMED, tenants_selector
from tenancy.cluster.undecided_namespaces import UndecidedNamespace, problem, undecided_namespaces
from tenancy.kube.objects import Object
from tenancy.kube.requests import collection
from tenancy.planning.plan_model import Plan, PlatformPlan, TenantPlan
from tenancy.rules.catalogue import RULES

__all__ = [
    "REMOVING",
    "REPLACING",
    "PreconditionFailed",
    "check",
    "check_platform",
    "removing_by_name",
    "replacing_by_name",
    "wait_for_guards",
]

REMOVING = "GPU_TENANCY_REMOVING"
"""Variable in which `tenancy up --remove` passes the tenants and namespaces to remove, comma-separated."""
REPLACING = "GPU_TENANCY_REPLACING"
"""Variable in which `tenancy up --replace` passes what the cluster's program may replace, comma-separated."""


def check(
    api: Api,
    plan: Plan,
    platform: PlatformPlan | None,
    tenants: Sequence[TenantPlan],
    removing: Collection[str] = (),
) -> list[str]:
    """Refuse a run that would harm the cluster; return warnings, which do not stop it.

    Refused are another environment's cluster, the takeover of foreign objects, the deletion of tenants' namespaces,
    kinds that the cluster does not serve, guards that would stop work, a Kueue whose configuration leaves GPUs
    uncounted, an identity that the guards would refuse in mid-run, and a tenant's stack on a cluster without guards.
    `removing` are tenants and namespaces whose removal was requested by name.
    """
    require_same_environment(api, plan)
    by_name = platform is None and 0 < len(tenants) <= MAX_NAMED
    namespaces = _namespaces(api, tenants_selector(plan.environment, (t.name for t in tenants)) if by_name else "")
    problems = [
        *deployer_problems(api, plan, platform),
        *_ownership_conflicts(api, plan.environment, platform, tenants),
        *_undeclared_removals(namespaces, plan, platform, tenants, removing),
        *unserved(api, plan, platform, tenants),
        *queue_problems(api, plan, tenants),
    ]
    if platform is None:
        return _warnings_or_failure(plan, [*problems, *guard_problems(api)], ())
    settings = kueue_settings(api, plan)
    return [
        *settings.remarks,
        *_warnings_or_failure(plan, problems, undecided_namespaces(api, plan, namespaces), settings.problems),
    ]


def check_platform(
    platform: PlatformPlan, context: str | None, kubeconfig: str | None = None, preview: bool = False
) -> list[str]:
    """`check` for a program of its own that makes the guards, and whose tenants are not known yet: PreconditionFailed
    for another environment's cluster, an identity that the guards would refuse, foreign objects, kinds that the cluster
    does not serve, and namespaces with work that no file decides about; return warnings.

    In a preview missing kinds are a warning: the program may install the operator that defines them.
    """
    api, environment = Api(context, kubeconfig), platform.namespace["metadata"]["labels"][vocabulary.ENVIRONMENT]
    plan = Plan(environment, context or "", platform, ())
    require_same_environment(api, plan)
    missing_kinds = list(unserved(api, plan, platform, ()))
    problems = [
        *deployer_problems(api, plan, platform),
        *_ownership_conflicts(api, environment, platform, ()),
        *([] if preview else missing_kinds),
    ]
    return [
        *(missing_kinds if preview else ()),
        *_warnings_or_failure(plan, problems, undecided_namespaces(api, plan, _namespaces(api))),
    ]


def _namespaces(api: Api, selector: str = "") -> list[Object]:
    """All namespaces, or those of a selector, with their metadata alone, and that without its managers: the list grows
    with the tenants."""
    result = []
    for item in api.paged_items("/api/v1/namespaces", selector=selector):
        item["metadata"].pop("managedFields", None)
        result.append({"metadata": item["metadata"]})
    return result


def _warnings_or_failure(
    plan: Plan, problems: Sequence[str], undecided_spaces: Sequence[UndecidedNamespace], settings: Sequence[str] = ()
) -> list[str]:
    """Warnings; PreconditionFailed with all problems. With enforced guards these include namespaces whose work would be
    refused, and `settings` of Kueue with which guarantees do not hold."""
    warnings = [*([problem(undecided_spaces)] if undecided_spaces else []), *settings]
    if plan.admission.enforced:
        problems, warnings = [*problems, *warnings], []
    if problems:
        raise PreconditionFailed("\n".join(problems))
    return warnings


def removing_by_name() -> frozenset[str]:
    """Tenants and namespaces that `tenancy up` told this program to remove."""
    return frozenset(name for name in os.environ.get(REMOVING, "").split(",") if name)


def replacing_by_name() -> frozenset[str]:
    """Node groups that this run of the cluster's program may replace, and PLATFORM_ROLE for the platform's access."""
    return frozenset(name for name in os.environ.get(REPLACING, "").split(",") if name)


def _undeclared_removals(
    namespaces: Sequence[Object],
    plan: Plan,
    platform: PlatformPlan | None,
    tenants: Sequence[TenantPlan],
    removing: Collection[str],
) -> Iterator[str]:
    """ns-07: namespaces of the environment that the plan lacks, and whose tenant's file never said `offboarding`."""
    tenant_names = set(plan.names)
    planned = {space.name for tenant in tenants for space in tenant.namespaces}
    stack_tenants = {tenant.name for tenant in tenants}

    @cache
    def all_planned() -> set[str]:
        """Needs the plans of all tenants: only for a namespace that is not in those of the stack's own."""
        return {space.name for tenant in plan.tenants for space in tenant.namespaces}

    namespaces_by_tenant: dict[str, list[str]] = {}
    for item in namespaces:
        metadata = item["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        tenant = labels.get(vocabulary.TENANT)
        if tenant is None or labels.get(vocabulary.ENVIRONMENT) != plan.environment or name in planned:
            continue
        if platform is None and tenant not in stack_tenants:
            continue  # another stack's
        has_left = (metadata.get("annotations") or {}).get(vocabulary.LEAVING) == vocabulary.LEFT
        if has_left or "deletionTimestamp" in metadata or {tenant, name} & {*removing}:
            continue
        by_file = tenant in tenant_names and not plan.tenant(tenant).namespaces
        if not (by_file or name in all_planned()):
            namespaces_by_tenant.setdefault(tenant, []).append(name)
    for tenant, names in sorted(namespaces_by_tenant.items()):
        rule = f"rule ns-07: {RULES['ns-07'].title}"
        if tenant in tenant_names:
            subject = f"namespace {', '.join(names)}, which the file of tenant {tenant} names no more"
            change = f"write the namespace into the file again; or, with all that is in it, `{_remove(plan, *names)}`"
        else:
            subject = f"namespace {', '.join(names)} of tenant {tenant}, which has no file"
            change = (
                f"write its file again with `offboarding: hold`, and after `tenancy up {plan.environment}` with "
                f"`offboarding: remove`; or, with all that is in its namespaces at once, `{_remove(plan, tenant)}`"
            )
        yield f"given {subject}; {rule}; change: {change}"


def _remove(plan: Plan, *names: str) -> str:
    return f"tenancy up {plan.environment} {' '.join(f'--remove {name}' for name in names)}"


def environment_of(api: Api) -> str:
    """The environment of a cluster; empty if it has none."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": vocabulary.PLATFORM_NAMESPACE}}
    answer = api.request("GET", path_of(home))
    labels = answer.body["metadata"].get("labels") if answer.ok else None
    return (labels or {}).get(vocabulary.ENVIRONMENT, "")


def require_same_environment(api: Api, plan: Plan) -> None:
    """PreconditionFailed if the cluster has another environment: two would share guards, queues and nodes."""
    holder = environment_of(api)
    if holder not in {"", plan.environment}:
        raise PreconditionFailed(
            other_environment(holder, plan.environment, lab=plan.context == vocabulary.LAB_CONTEXT)
        )


def other_environment(holder: str, environment: str, *, lab: bool) -> str:
    """The message about a cluster with another environment."""
    cluster_name = "this lab" if lab else "this cluster"
    down_command = (
        f"run `tenancy down {holder}{' --lab' if lab else ''}`{' or `tenancy lab down`' if lab else ''} first"
    )
    alternative = "" if lab else ", or name another cluster in cluster.context"
    return (
        f"given environment {environment}, and {cluster_name}, which belongs to environment {holder}; rule: one "
        f"cluster has one environment; change: {down_command}{alternative}; nothing was changed"
    )


def _ownership_conflicts(
    api: Api, environment: str, platform: PlatformPlan | None, tenants: Sequence[TenantPlan]
) -> Iterator[str]:
    planned: list[tuple[Object, bool]] = [
        (namespace.namespace, tenant.adopt) for tenant in tenants for namespace in tenant.namespaces
    ]
    planned += [(queue, False) for tenant in tenants for queue in tenant.queues]
    if platform:
        planned += [
            (planned_object, False)
            for planned_object in platform.objects()
            if "namespace" not in planned_object["metadata"]
        ]
    foreign_by_kind: dict[tuple[str, str], dict[str, Object]] = {}
    for planned_object, adopt in planned:
        kind = (planned_object["apiVersion"], planned_object["kind"])
        if kind not in foreign_by_kind:
            existing = _existing_objects(
                api, kind, [item for item, _ in planned if (item["apiVersion"], item["kind"]) == kind]
            )
            foreign_by_kind[kind] = {
                item["metadata"]["name"]: item for item in existing if not _is_ours(item, environment)
            }
        present = foreign_by_kind[kind].get(planned_object["metadata"]["name"])
        if present is None or adopt:
            continue
        name = f"{planned_object['kind']} {planned_object['metadata']['name']}"
        change = "delete or rename it"
        if is_engine_object(present) and vocabulary.ENVIRONMENT not in (present["metadata"].get("labels") or {}):
            change = f"label it again: `kubectl label {name} {vocabulary.ENVIRONMENT}={environment}`"
        if (
            planned_object["kind"] == "Namespace"
            and planned_object["metadata"]["name"] != vocabulary.PLATFORM_NAMESPACE
        ):
            tenant = planned_object["metadata"]["labels"][vocabulary.TENANT]
            change += f", or write `adopt: true` into the file of tenant {tenant} to take it over"
        yield (
            f"given {name}, which exists and carries no {vocabulary.ENVIRONMENT}={environment}; "
            f"rule: an object that another manager owns is not taken over silently; change: {change}"
        )


def _existing_objects(api: Api, kind: tuple[str, str], planned: Sequence[Object]) -> Iterator[Any]:
    """Those of the planned objects of a kind that are on the cluster, perhaps with others of the kind."""
    if len(planned) > MAX_NAMED:
        yield from api.paged_items(collection(*kind), absent=True)
        return
    for item in planned:
        answer = api.request("GET", path_of(item))
        if answer.ok:
            yield answer.body
        elif answer.status != NOT_FOUND:
            raise ApiUnreachable(f"GET {path_of(item)}: {answer.status} {answer.message}")


def _is_ours(present: Any, environment: str) -> bool:
    return (present["metadata"].get("labels") or {}).get(vocabulary.ENVIRONMENT) == environment
