"""Send a live cluster requests that it must refuse, and twins that it must admit, and compare the denying controls.

Nothing is created: writes are sent as dry runs, which pass through every control that the real request does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode

from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.cluster.api import Api, Response
from tenancy.cluster.api_kinds import unserved_frameworks
from tenancy.kube import deniers
from tenancy.kube.requests import core
from tenancy.planning.plan_model import Plan
from tenancy.rules.workloads import TRAIN_JOB
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks import Attack, Request, Scene

AT_ONCE = 4
"""Concurrent requests: enough to hide the round trip, too few for the API server to queue them."""
CONFLICTS = 3
"""Repetitions of a request whose object another client wrote at the same time."""

TRAINING_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
NODE_OF_POOL = f"/api/v1/nodes?{urlencode({'labelSelector': vocabulary.POOL, 'limit': 1})}"


class NotDeployedError(Exception):
    """The cluster lacks a namespace of the plan."""


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of an attack. `problem` says where the audit log contradicts it."""

    attack: Attack
    status: int = 0
    denier: str = deniers.NONE
    message: str = ""
    twin_status: int = 0
    twin_message: str = ""
    skipped: str = ""
    problem: str = ""

    @property
    def refused(self) -> bool:
        """Whether the expected control refused it, and no other."""
        return self.status >= 400 and self.denier == self.attack.expected_denier and not self.problem

    @property
    def twin_admitted(self) -> bool:
        """Whether the twin was admitted."""
        missing = self.attack.twin_missing and self.twin_status == 404
        return missing or 200 <= self.twin_status < 300

    @property
    def gap(self) -> bool:
        """Whether the attack was not refused by the expected control, or its twin was refused."""
        return not self.skipped and not (self.refused and self.twin_admitted)

    def as_dict(self) -> dict[str, Any]:
        """The record of `--format json`."""
        messages = {"message": self.message} if self.message else {}
        if self.problem:
            messages["problem"] = self.problem
        if not self.twin_admitted and self.twin_message:
            messages["twin_message"] = self.twin_message
        return {
            "id": self.attack.id,
            "attack": self.attack.attack,
            "expected_denier": self.attack.expected_denier,
            "status": self.status,
            "denier": self.denier,
            "refused": self.refused,
            "twin_admitted": self.twin_admitted,
            "rule": self.attack.rule,
            **({"skipped": self.skipped} if self.skipped else {}),
            **messages,
        }


def find_scene(api: Api, loaded: Loaded, plan: Plan) -> Scene:
    """The scene to attack; NotDeployedError if a namespace of the plan does not exist."""
    namespace_names = {item["metadata"]["name"] for item in api.items("/api/v1/namespaces")}
    planned = [namespace.name for tenant in plan.tenants for namespace in tenant.namespaces]
    if missing_namespaces := [name for name in planned if name not in namespace_names]:
        lab = " --lab" if plan.context == vocabulary.LAB_CONTEXT else ""
        raise NotDeployedError(
            "given a cluster without "
            f"{', '.join(missing_namespaces[:5])}{' …' if len(missing_namespaces) > 5 else ''}; "
            f"rule: attacks need the environment in place; change: run `tenancy up {plan.environment}{lab}` first"
        )

    def names(path: str) -> list[str]:
        return sorted(item["metadata"]["name"] for item in api.items(path))

    unserved = unserved_frameworks(api, loaded.environment)
    has_train_jobs = "trainjob" in loaded.environment.queues.kinds and all(
        framework.kind != TRAIN_JOB for framework in unserved
    )
    runtimes = names(TRAINING_RUNTIMES) if has_train_jobs else ()
    # A tenant that leaves has no developer any more, so that no twin would be admitted.
    staying = tuple(tenant for tenant in loaded.tenants if tenant.offboarding is None)
    classes = names("/apis/node.k8s.io/v1/runtimeclasses")
    address = _free_address(api)
    nodes = api.items(NODE_OF_POOL)
    return Scene(loaded.environment, staying, classes, runtimes, nodes, frozenset(namespace_names), address, unserved)


def _free_address(api: Api) -> str | None:
    """An address of the service range far from those that are assigned first: the API server's and DNS."""
    service = api.request("GET", core("default", "services", "kubernetes")).body
    cluster_ip = service.get("spec", {}).get("clusterIP")
    return str(ip_address(cluster_ip) + 250) if cluster_ip else None


def run(
    api: Api,
    attacks: Sequence[Attack],
    audit: denial.AuditLog | None = None,
    *,
    twins: bool = True,
    on_attack_done: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Send every attack and its twin. Without `twins` each twin counts as admitted."""
    tag = f"{denial.AUDIT_PREFIX}{secrets.token_hex(6)}"
    ids = {attack.id: f"{tag}-{number}" for number, attack in enumerate(attacks)}

    def run_attack(attack: Attack) -> Result:
        result = _skip(attack) if attack.skipped else _ask_both(api, attack, ids[attack.id], twins)
        on_attack_done()
        return result

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(run_attack, attacks))
    return results if audit is None else _cross_checked(results, ids, audit)


def ask(api: Api, request: Request, audit_id: str | None = None, again: int = CONFLICTS) -> Response:
    """The answer to a request; writes are sent as dry runs."""
    headers = {"Audit-ID": audit_id} if audit_id else {}
    path, body = request.path if request.method == "GET" else _dry(request.path), request.body
    if request.method == "DELETE" and isinstance(body, dict):
        # With options in the body the API server ignores those of the query.
        body = {**body, "dryRun": ["All"]}
    answer = api.request(request.method, path, body, request.who, request.content_type, headers)
    if answer.status == 409 and answer.body.get("reason") == "Conflict" and again:
        # A controller wrote the object between the API server's read and its write: no control refused anything.
        return ask(api, request, audit_id, again - 1)
    return answer


def _dry(path: str) -> str:
    return path if "dryRun=All" in path else f"{path}{'&' if '?' in path else '?'}dryRun=All"


def _skip(attack: Attack) -> Result:
    return Result(attack, skipped=attack.skipped)


def _ask_both(api: Api, attack: Attack, audit_id: str, twins: bool) -> Result:
    answer = ask(api, attack.request, audit_id)
    message = answer.message
    attack_denier = denial.denier(answer.status, message)
    if not twins:
        return Result(attack, answer.status, attack_denier, message, 200)
    twin = ask(api, attack.twin, f"{audit_id}-twin")
    twin_message = "" if twin.ok else twin.message
    twin_denier = denial.denier(twin.status, twin_message)
    if twin_denier.startswith(deniers.QUOTA) and attack_denier == attack.expected_denier:
        return Result(
            attack,
            answer.status,
            attack_denier,
            message,
            twin.status,
            twin_message,
            f"the twin finds {twin_denier} used up",
        )
    return Result(attack, answer.status, attack_denier, message, twin.status, twin_message)


def _cross_checked(results: Iterable[Result], ids: Mapping[str, str], audit: denial.AuditLog) -> list[Result]:
    results = list(results)
    audit_ids = [ids[result.attack.id] for result in results if not result.attack.skipped]
    events = audit.events(audit_ids)
    return [
        result
        if result.attack.skipped
        else replace(result, problem=denial.audit_disagreement(result.denier, events.get(ids[result.attack.id])) or "")
        for result in results
    ]
