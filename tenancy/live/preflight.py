"""Before anything is made: is this cluster ready for the plan, and is nothing of somebody else's in the way?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from tenancy.catalog import vocabulary as words
from tenancy.live.api import Api, collection, path_of
from tenancy.live.drift import is_the_engines
from tenancy.live.queues import queue_problems
from tenancy.plan.guards import MARKER, QUESTION, VERSION, standing
from tenancy.plan.model import Object, Plan, PlatformPlan, TenantPlan

PATIENCE = 30.0
"""Seconds within which an API server takes up guards that are stored; it does so every second."""
ANSWERS = 10
"""Each API server takes them up by itself: that many answers in a row, each on a connection of its own,
miss one of two servers behind a load balancer once in five hundred times."""


class Refused(Exception):
    """The cluster is not in the state that the plan needs; nothing was changed."""


def check(api: Api, plan: Plan, platform: PlatformPlan | None, tenants: Sequence[TenantPlan]) -> None:
    """Refuse what would take over foreign objects, and a tenant's stack on a cluster without guards."""
    problems = [
        *_foreign(api, plan.environment, platform, tenants),
        *queue_problems(api, plan, platform, tenants),
    ]
    if platform is None:
        problems += _guards(api)
    if problems:
        raise Refused("\n".join(problems))


def _foreign(api: Api, environment: str, platform: PlatformPlan | None, tenants: Sequence[TenantPlan]) -> Iterator[str]:
    planned: list[tuple[Object, bool]] = [
        (namespace.namespace, tenant.adopt) for tenant in tenants for namespace in tenant.namespaces
    ]
    planned += [(queue, False) for tenant in tenants for queue in tenant.queues]
    if platform:
        planned += [(found, False) for found in platform.objects() if "namespace" not in found["metadata"]]
    lists: dict[tuple[str, str], dict[str, Any]] = {}
    for found, adopt in planned:
        kind = (found["apiVersion"], found["kind"])
        if kind not in lists:
            lists[kind] = {item["metadata"]["name"]: item for item in api.items(collection(*kind), absent=True)}
        present = lists[kind].get(found["metadata"]["name"])
        if present is None or adopt or _is_ours(present, environment):
            continue
        name = f"{found['kind']} {found['metadata']['name']}"
        change = "delete or rename it"
        if is_the_engines(present) and words.ENVIRONMENT not in (present["metadata"].get("labels") or {}):
            change = f"label it again: `kubectl label {name} {words.ENVIRONMENT}={environment}`"
        if found["kind"] == "Namespace" and found["metadata"]["name"] != words.PLATFORM_NAMESPACE:
            tenant = found["metadata"]["labels"][words.TENANT]
            change += f", or write `adopt: true` into the file of tenant {tenant} to take it over"
        yield (
            f"given {name}, which exists and carries no {words.ENVIRONMENT}={environment}; "
            f"rule: what somebody else made is not taken over silently; change: {change}"
        )


def _is_ours(present: Any, environment: str) -> bool:
    return (present["metadata"].get("labels") or {}).get(words.ENVIRONMENT) == environment


def _guards(api: Api) -> Iterator[str]:
    data = _marker(api)
    version = str(data.get("version", ""))
    if not version.isdigit() or int(version) < VERSION:
        found = f"guards of version {version}" if version else "no guards"
        yield (
            f"given a cluster with {found}; rule: a tenant is made only behind guards of version {VERSION} or newer; "
            "change: update the platform stack of the environment first"
        )
    else:
        wait_for_guards(api, str(data.get("digest", "")))


def _marker(api: Api) -> dict[str, Any]:
    where = {"apiVersion": "v1", "kind": "ConfigMap"}
    path = path_of({**where, "metadata": {"name": MARKER, "namespace": words.PLATFORM_NAMESPACE}})
    answer = api.request("GET", path)
    return dict(answer.body.get("data") or {}) if answer.ok else {}


def wait_for_guards(api: Api, digest: str, patience: float = PATIENCE) -> None:
    """Return once the guards of that digest judge what the API server is asked; Refused if they never do.

    Stored is not in force: for about a second after its guards are made, a cluster admits everything.
    """
    path = collection("v1", "ConfigMap", words.PLATFORM_NAMESPACE) + "?dryRun=All"
    question = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": QUESTION}}
    deadline = time.monotonic() + patience
    in_a_row = 0
    while in_a_row < ANSWERS:
        answer = api.request("POST", path, question, headers={"Connection": "close"})
        in_a_row = in_a_row + 1 if answer.status == 403 and standing(digest) in answer.message else 0
        if in_a_row:
            continue
        if time.monotonic() > deadline:
            raise Refused(
                f"given guards that are stored and not in force after {patience:.0f} s (the API server says: "
                f"{answer.status} {answer.message or 'admitted'}); rule: nobody enters before the guards judge; "
                "change: see what the API server's log says about ValidatingAdmissionPolicies, then run this again"
            )
        time.sleep(0.05)
